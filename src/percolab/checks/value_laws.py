"""Checks of the values: z of latents and points, and the targets that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from percolab.checks import verdicts
from percolab.checks.independence import Subject
from percolab.checks.verdicts import Check, does_not_apply, exact, statistical, too_small
from percolab.ground.arrays import Floats, Ints
from percolab.model.edits import Do
from percolab.model.forest import Forest

FEWEST_VALUES = 100
FEWEST_CLUSTERS = 100
FEWEST_SIBLINGS = 100
MOST_VALUES = 4_000_000
TOLERANCE = 1e-8  #: The rounding error allowed in a target: a sum of thousands of values, in another order.


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's values and targets."""
    is_subsample = subject.dataset.source_row is not None
    lost = is_subsample and has_set_values(subject)
    if lost:
        yield does_not_apply("z is N(0, 1)", "0 ± 1", "which values edits set is lost in a subsample")
    else:
        yield values(subject)
    match subject.recipe.target.kind:
        case "sum":
            yield sums(subject)
            if not lost:
                yield targets_over_clusters(subject)
        case "silent":
            yield sums(subject)
            if is_subsample:
                why = "in a subsample a latent's sibling may be gone, with another latent in its place"
                yield does_not_apply("silent siblings", "silent together", why)
            else:
                yield siblings(subject)
                yield silent_half(subject)
        case "sign":
            yield signs(subject)
        case "classes":
            yield classes(subject)
        case "path_tokens":
            yield path_tokens(subject)
        case "custom":
            why = "y was given as an array, so no law is known for it"
            yield does_not_apply("targets", "as the recipe makes them", why)
    if has_set_values(subject) and not is_subsample:
        yield set_values(subject)


def values(subject: Subject) -> Check:
    """Check that z are independent N(0, 1): the law of all z, and no correlation of latents with their parents."""
    from scipy.special import ndtr

    law, dataset = "z is N(0, 1)", subject.dataset
    latents, points = drawn(subject)
    z = np.concatenate([dataset.latent_z[latents][:MOST_VALUES], dataset.point_z[points][:MOST_VALUES]])
    if z.size < FEWEST_VALUES:
        return too_small(law, "0 ± 1", f"{FEWEST_VALUES} values", f"{z.size}")
    p_values = [verdicts.p_of_uniforms(ndtr(z))]
    parent = subject.forest.latent_parent
    below = np.flatnonzero((parent >= 0) & latents & latents[parent])[:MOST_VALUES]
    if below.size >= FEWEST_VALUES:
        product = dataset.latent_z[below] * dataset.latent_z[parent[below]]
        p_values.append(verdicts.p_of_score(float(product.sum()) / math.sqrt(below.size)))
    count = int(np.count_nonzero(~latents) + np.count_nonzero(~points))
    left_out = f" ({count:,} that edits set are left out)" if count else ""
    note = f"{z.size:,} values{left_out}; also that latents do not follow their parents"
    measured = f"{z.mean():.4f} ± {z.std():.4f}"
    p, draw = verdicts.smallest(*p_values), verdicts.histogram(z, "z", normal=True)
    return statistical(law, "0 ± 1", measured, p, note, draw)


def sums_above(subject: Subject) -> tuple[Floats, Ints]:
    """Return the sum of z over each point's latents that carry a value, and the number of all its latents.

    Each latent adds z where its interval starts and subtracts it where it ends. No code is shared with `targets`.
    """
    forest, z = subject.forest, subject.dataset.latent_z
    if subject.recipe.target.kind == "silent":
        z = z * subject.dataset.latent_active
    start, stop = forest.latent_start, forest.latent_start + forest.latent_size
    change = np.bincount(start, z, forest.n_points + 1) - np.bincount(stop, z, forest.n_points + 1)
    number = np.bincount(start, minlength=forest.n_points + 1) - np.bincount(stop, minlength=forest.n_points + 1)
    return np.cumsum(change)[:-1], np.cumsum(number)[:-1]


def sums(subject: Subject) -> Check:
    """Check that every target is the sum of its point's values over √(1 + depth)."""
    law, y = "targets are sums of z", np.asarray(subject.dataset.y)
    if not y.size:
        return too_small(law, "y = Σz/√(1+depth)", "1 point", "0")
    expected = _expected_sums(subject)
    error = float(np.max(np.abs(y - expected)))
    shown = subject.choices("sums").choice(y.size, min(y.size, 2000), replace=False)
    draw = verdicts.curve(expected[shown], y[shown], expected[shown], "Σ z / √(1 + depth)", "y")
    measured = f"{np.mean(np.abs(y - expected) <= TOLERANCE):.2%} of points"
    return exact(law, "100% of points", measured, error, TOLERANCE, "y = Σz/√(1+depth), recomputed", draw)


def _expected_sums(subject: Subject) -> Floats:
    """Return Σ z / √(1 + depth), summed in another order than the targets."""
    above, depth = sums_above(subject)
    point_z = subject.dataset.point_z
    if subject.recipe.target.kind == "silent":
        point_z = point_z * subject.dataset.point_active
    return np.asarray((above + point_z) / np.sqrt(1.0 + depth))


def signs(subject: Subject) -> Check:
    """Check that every label says whether the sum of the point's values is positive."""
    law, y = "labels are signs of sums", np.asarray(subject.dataset.y)
    if not y.size:
        return too_small(law, "1 where Σz > 0", "1 point", "0")
    total = _expected_sums(subject)
    wrong = (y != (total > 0)) & (np.abs(total) > TOLERANCE)
    share = f"{1 - wrong.mean():.2%} of points"
    return exact(law, "100% of points", share, int(wrong.sum()), 0, f"{y.mean():.1%} are positive")


def targets_over_clusters(subject: Subject) -> Check:
    """Check that y is N(0, 1): one random point of each cluster, since targets within a cluster are dependent."""
    from scipy.special import ndtr

    law, forest = "y is N(0, 1)", subject.forest
    if forest.n_clusters < FEWEST_CLUSTERS:
        return too_small(law, "0 ± 1", f"{FEWEST_CLUSTERS} clusters", f"{forest.n_clusters}")
    row = forest.cluster_start[:-1] + subject.choices("y").integers(forest.cluster_size)
    as_drawn = _clusters_as_drawn(subject)
    y = np.asarray(subject.dataset.y)[row[as_drawn]]
    several = y[forest.cluster_size[as_drawn] > 1]
    p = verdicts.p_of_all_and_some(ndtr(y), ndtr(several), FEWEST_CLUSTERS)
    note = f"one point of each of {y.size:,} clusters, and of the {several.size:,} with latents alone"
    measured = f"{y.mean():.4f} ± {y.std():.4f}"
    return statistical(law, "0 ± 1", measured, p, note, verdicts.histogram(y, "y", normal=True))


def _clusters_as_drawn(subject: Subject) -> NDArray[np.bool_]:
    """Return which clusters have no value that an edit set."""
    forest, (latents, points) = subject.forest, drawn(subject)
    as_drawn = np.ones(forest.n_clusters, np.bool_)
    as_drawn[forest.latent_cluster[~latents]] = False
    as_drawn[forest.point_cluster[~points]] = False
    return as_drawn


# ---------------------------------------------------------------------- values that edits set
#
# They are not drawn from N(0, 1), so the laws of z and y leave them out.


def has_set_values(subject: Subject) -> bool:
    """Return whether edits set values."""
    return any(isinstance(edit, Do) for edit in subject.recipe.edits)


def set_values(subject: Subject) -> Check:
    """Check that every latent and point has the value that the last edit gave it."""
    dataset = subject.dataset
    error, count = 0.0, 0
    for pairs, values in zip(_last_values(subject), (dataset.latent_z, dataset.point_z), strict=True):
        for node, value in pairs.items():
            error, count = max(error, abs(float(values[node]) - value)), count + 1
    return exact("values set by edits", "as in the recipe", f"within {error:.0e}", error, 0, f"{count:,} values")


def _last_values(subject: Subject) -> tuple[dict[int, float], dict[int, float]]:
    edits = [edit for edit in subject.recipe.edits if isinstance(edit, Do)]
    latents = dict(pair for edit in edits for pair in edit.z)
    return latents, dict(pair for edit in edits for pair in edit.point_z)


def drawn(subject: Subject) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which latents and which points still have the value that was drawn for them."""
    masks = np.ones(subject.forest.n_latents, np.bool_), np.ones(subject.forest.n_points, np.bool_)
    for mask, nodes in zip(masks, _last_values(subject), strict=True):
        mask[list(nodes)] = False
    return masks


# ---------------------------------------------------------------------- silence


def _sides(subject: Subject) -> NDArray[np.bool_]:
    """Return for the two sides of every latent whether they carry a value."""
    active = np.append(subject.dataset.point_active, subject.dataset.latent_active)
    return active[subject.forest.latent_children]


def siblings(subject: Subject) -> Check:
    """Check that both sides of a latent are silent or neither is, and that tops of clusters carry a value."""
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
    return statistical(law, "0.5", f"{silent.mean():.4f}", verdicts.p_of_score(float(score)), f"{silent.size:,} pairs")


# ---------------------------------------------------------------------- cuts


def classes(subject: Subject) -> Check:
    """Check that classes are the groups of a cut: whole nodes of the hierarchy, as large as the rule allows."""
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
    wrong += int(not np.array_equal(y[starts[np.argsort(-size, kind="stable")]], np.arange(starts.size)))
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


def _nodes(forest: Forest, starts: Ints, size: Ints) -> tuple[int, NDArray[np.bool_]]:
    """Return how many intervals are neither latents nor single rows, and which latents they split."""
    known = set(zip(forest.latent_start.tolist(), forest.latent_size.tolist(), strict=True))
    strange = sum(s > 1 and (a, s) not in known for a, s in zip(starts.tolist(), size.tolist(), strict=True))
    group = np.searchsorted(starts, forest.latent_start, side="right")
    last = np.searchsorted(starts, forest.latent_start + forest.latent_size - 1, side="right")
    return strange, group != last


def _not_cut(forest: Forest, starts: Ints, size: Ints, max_size: int) -> int:
    """Return how many intervals and latents break the rule of the cut at a size.

    Intervals are nodes of at most this size, and no latent of at most this size is split.
    """
    strange, apart = _nodes(forest, starts, size)
    too_fine = int(np.count_nonzero(apart & (forest.latent_size <= max_size)))
    return strange + too_fine + int(np.count_nonzero(size > max_size))
