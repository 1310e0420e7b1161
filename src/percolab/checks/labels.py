"""Checks of the targets that are not the paper's: silent pairs, classes, sequences of tokens.

Each is checked by what defines it, not by making it again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from percolab.checks import verdicts
from percolab.checks.independence import Subject
from percolab.checks.verdicts import Check, does_not_apply, exact, p_of_score, statistical, too_small
from percolab.ground.arrays import Ints
from percolab.model.forest import Forest

FEWEST_SIBLINGS = 100


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's target, if it is not the paper's."""
    match subject.recipe.target.kind:
        case "silent" if subject.dataset.source_row is not None:
            why = "in a subsample a latent's sibling may be gone, with another latent in its place"
            yield does_not_apply("silent siblings", "silent together", why)
        case "silent":
            yield siblings(subject)
            yield silent_half(subject)
        case "classes":
            yield classes(subject)
        case "path_tokens":
            yield path_tokens(subject)
        case "custom":
            why = "y was given as an array, so no law is known for it"
            yield does_not_apply("targets", "as the recipe makes them", why)


# ---------------------------------------------------------------------- silence


def _sides(subject: Subject) -> NDArray[np.bool_]:
    """Return for the two sides of every latent whether they carry value."""
    active = np.append(subject.dataset.point_active, subject.dataset.latent_active)
    return active[subject.forest.latent_children]


def siblings(subject: Subject) -> Check:
    """Check that both sides of a latent are silent or neither is, and that tops of clusters carry value."""
    forest, sides = subject.forest, _sides(subject)
    apart = int(np.count_nonzero(sides[:, 0] != sides[:, 1]))
    tops = ~subject.dataset.latent_active[forest.latent_parent < 0]
    alone = ~subject.dataset.point_active[forest.point_depth == 0]
    wrong = apart + int(tops.sum() + alone.sum())
    note = f"{len(sides):,} pairs; also that tops and singletons carry value"
    return exact("silent siblings", "silent together", f"{apart:,} pairs apart", wrong, 0, note)


def silent_half(subject: Subject) -> Check:
    """Check that each pair is silent with probability 1/2."""
    law, silent = "share of silent pairs", ~_sides(subject)[:, 0]
    if silent.size < FEWEST_SIBLINGS:
        return too_small(law, "1/2", f"{FEWEST_SIBLINGS} pairs", f"{silent.size}")
    score = (2 * silent.sum() - silent.size) / np.sqrt(silent.size)
    return statistical(law, "0.5", f"{silent.mean():.4f}", p_of_score(float(score)), f"{silent.size:,} pairs")


# ---------------------------------------------------------------------- cuts


def classes(subject: Subject) -> Check:
    """Check that classes are the groups of a cut: whole nodes of the hierarchy, as large as the rule lets them be."""
    forest, y, target = subject.forest, np.asarray(subject.dataset.y), subject.recipe.target
    starts = np.flatnonzero(np.diff(y, prepend=-1))
    size = np.diff(np.append(starts, y.size))
    if target.max_size is None:
        whole, apart = _nodes(forest, starts, size)
        smallest_apart = int(forest.latent_size[apart].min()) if apart.any() else int(size.max())
        wrong = whole + int(starts.size != target.n_groups) + int(np.count_nonzero(size > smallest_apart))
        rule = f"{target.n_groups:,} groups, the largest latents taken apart"
    else:
        wrong = _not_cut(forest, starts, size, target.max_size)
        rule = f"groups of at most {target.max_size:,} rows, none larger possible"
    wrong += int(not np.array_equal(y[starts[_by_size(size)]], np.arange(starts.size)))
    note = f"{starts.size:,} classes of {size.min():,} to {size.max():,} rows; the largest first"
    draw = verdicts.curve(np.arange(1, size.size + 1), np.sort(size)[::-1], None, "class, by size", "rows", log="xy")
    return exact("classes", rule, f"{wrong:,} wrong", wrong, 0, note, draw)


def path_tokens(subject: Subject) -> Check:
    """Check that tokens number the groups of finer and finer cuts, each within its group of the level above."""
    forest, y, target = subject.forest, np.asarray(subject.dataset.y), subject.recipe.target
    n, wrong, counts = forest.n_points, 0, []
    if not n:
        return too_small("path tokens", "nested cuts", "1 point", "0")
    starts = np.zeros(1, np.int64)
    for level in range(y.shape[1]):
        above = starts
        changes = (np.diff(y[:, : level + 1], axis=0) != 0).any(axis=1)
        starts = np.append(0, np.flatnonzero(changes) + 1)
        size = np.diff(np.append(starts, n))
        wrong += _not_cut(forest, starts, size, max(1, n // (target.ratio or 1) ** (level + 1)))
        parent = np.searchsorted(above, starts, side="right") - 1
        order = np.lexsort((starts, -size, parent))
        first = np.append(True, np.diff(parent[order]) != 0)
        place = np.arange(order.size) - np.maximum.accumulate(np.where(first, np.arange(order.size), 0))
        wrong += int(np.count_nonzero(y[starts[order], level] != place))
        counts.append(f"{starts.size:,}")
    note = f"{', '.join(counts)} groups by level; the largest of a group is token 0"
    return exact("path tokens", "nested cuts", f"{wrong:,} wrong", wrong, 0, note)


def _by_size(size: Ints) -> Ints:
    return np.lexsort((np.arange(size.size), -size))


def _nodes(forest: Forest, starts: Ints, size: Ints) -> tuple[int, NDArray[np.bool_]]:
    """Return how many intervals are not a latent's nor a single row, and which latents they take apart."""
    known = set(zip(forest.latent_start.tolist(), forest.latent_size.tolist(), strict=True))
    strange = sum(s > 1 and (a, s) not in known for a, s in zip(starts.tolist(), size.tolist(), strict=True))
    group = np.searchsorted(starts, forest.latent_start, side="right")
    last = np.searchsorted(starts, forest.latent_start + forest.latent_size - 1, side="right")
    return strange, group != last


def _not_cut(forest: Forest, starts: Ints, size: Ints, max_size: int) -> int:
    """Return how many intervals and latents break the rule of the cut at a size.

    Intervals are nodes of at most this size, and no latent of at most this size is taken apart.
    """
    strange, apart = _nodes(forest, starts, size)
    too_fine = int(np.count_nonzero(apart & (forest.latent_size <= max_size)))
    return strange + too_fine + int(np.count_nonzero(size > max_size))
