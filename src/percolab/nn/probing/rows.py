"""What probes are fitted to and scored on: lines of activations, targets, and the two ways of holding lines out.

Lines of depth D are those whose latent at depth D has enough lines. A latent's ancestors are at least as large as
itself, so the lines of a depth contain those of every greater depth. Everything here is built on that: a line is
described by its `level`, the index of the last depth that it belongs to, and the training lines of a depth are those of
the next depth and some more.

Lines are kept in leaf order, in which those of a latent are an interval, whatever rows of the dataset are present.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.model.forest import Forest
from percolab.nn.probing.latent_values import fresh_values, path_sums

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Column = tuple[str, int]
"""A target and its draw."""

TARGETS = ("z", "sum", "z_redrawn", "sum_redrawn", "z_shuffled", "sum_shuffled")
"""z: the latent's value. sum: the values from depth 0 down to the latent, added. z_redrawn, sum_redrawn: the same for
fresh values of all latents, which no network has been trained on. z_shuffled, sum_shuffled: z and sum dealt to the
wrong lines."""
LATENT_TARGETS = TARGETS[:4]
"""Targets that are the same for all points of a latent."""


def columns(draws: int, targets: tuple[str, ...] = TARGETS) -> tuple[Column, ...]:
    """Return targets with their draws, in the order in which they stand side by side; true ones have draw 0."""
    return tuple((name, draw) for name in targets for draw in range(1 if name in TARGETS[:2] else draws))


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines of activations in leaf order."""

    order: Ints
    """(m,) the lines as they were given, in leaf order"""
    start: Ints
    """(n_latents,) the first line of each latent, in leaf order"""
    size: Ints
    """(n_latents,) number of lines of each latent"""

    @staticmethod
    def of(forest: Forest, rows: Ints) -> Lines:
        """Return lines that are these rows of the forest."""
        order = np.argsort(rows, kind="stable")
        present = rows[order]
        start = np.searchsorted(present, forest.latent_start)
        return Lines(order, start, np.searchsorted(present, forest.latent_start + forest.latent_size) - start)


@dataclass(frozen=True, eq=False)
class ProbeRows:
    """The lines of every depth that has any, with their targets."""

    depths: Ints
    """(J,) depths with lines, increasing"""
    skipped: Ints
    """depths without lines, the last ones"""
    level: Ints
    """(m,) index of the last depth a line belongs to, -1 if none"""
    columns: tuple[Column, ...]
    """(T,) what the targets are"""
    targets: NDArray[np.float32]
    """(m, J, T) the targets of a line at each depth; 0 where it does not belong"""
    depth_index: Ints
    """(L,) index of the depth of each probed latent"""
    latent: Ints
    """(L,) the probed latents, by depth, then by line"""


@dataclass(frozen=True, eq=False)
class HoldOut:
    """A way of holding lines out, the same for all depths: parts that are held out in turn."""

    part: Ints
    """(m,) the part of each line; -1: it is always trained on"""
    n_parts: int
    first_index: Ints
    """(m,) index of the first depth at which a held-out line counts"""
    whole: bool
    """whether latents are held out as a whole"""


def probe_rows(
    forest: Forest, latent_z: Floats, lines: Lines, depths: Ints, min_latent_size: int, draws: int, seed: int
) -> ProbeRows:
    """Find the lines and targets of each depth."""
    large = lines.size >= min_latent_size
    at_depth = [np.flatnonzero(large & (forest.latent_depth == depth)) for depth in depths]
    kept = [j for j, latents in enumerate(at_depth) if latents.size]
    if max(latents.size for latents in at_depth) < 2:  # of a single value there is nothing to learn
        sizes = (np.sort(lines.size[forest.latent_depth == depth])[-2:-1] for depth in depths)
        second = max((int(size[0]) for size in sizes if size.size), default=0)
        raise ValueError(
            f"min_latent_size must leave two latents at some depth, got {min_latent_size} "
            f"and at these depths no second latent has more than {second} points"
        )
    values = _latent_values(forest, latent_z, draws, seed)
    names = columns(draws)
    level = np.full(lines.order.size, -1, np.int64)
    targets = np.zeros((lines.order.size, len(kept), len(names)), np.float32)
    for index, j in enumerate(kept):
        latents = at_depth[j]
        size = lines.size[latents]
        rows = _rows(lines.start[latents], size)
        level[rows] = index
        here = np.repeat(values[latents].astype(np.float32), size, axis=0)
        random = np.random.default_rng((seed, int(depths[j])))
        shuffled = [random.permuted(here[:, :2], axis=0) for _ in range(draws)]
        targets[rows, index, : here.shape[1]] = here
        targets[rows, index, here.shape[1] :] = np.stack(shuffled, 2).reshape(rows.size, -1)
    latent = np.concatenate([at_depth[j] for j in kept])
    depth_index = np.repeat(np.arange(len(kept)), [at_depth[j].size for j in kept])
    return ProbeRows(depths[kept], np.delete(depths, kept), level, names, targets, depth_index, latent)


def _rows(start: Ints, size: Ints) -> Ints:
    """Return the lines of disjoint intervals, one after the other."""
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    return np.repeat(start - first, size) + np.arange(size.sum())


def _latent_values(forest: Forest, z: Floats, draws: int, seed: int) -> Floats:
    """Return (n_latents, 2 + 2 draws): z, its sum from the top of the cluster, and both for fresh values."""
    fresh = fresh_values(forest, draws, seed)
    return np.column_stack([z, path_sums(forest, z[:, None]), fresh, path_sums(forest, fresh)])


# ---------------------------------------------------------------------- holding out


def random_points(rows: ProbeRows, train_share: float, seed: int) -> HoldOut:
    """Hold out lines at random: of n lines of a depth, int(train_share · n) train, at every depth.

    Going up from the deepest depth, the lines that a depth adds are divided at random so that the count comes out.
    """
    random = np.random.default_rng(seed)
    part = np.zeros(rows.level.size, np.int64)
    done = chosen = 0
    for index in range(rows.depths.size - 1, -1, -1):
        added = np.flatnonzero(rows.level == index)
        done += added.size
        more = int(train_share * done) - chosen
        chosen += more
        part[random.permutation(added)[:more]] = -1
    return HoldOut(part, 1, np.zeros(rows.level.size, np.int64), whole=False)


def whole_subtrees(forest: Forest, lines: Lines, rows: ProbeRows, min_latent_size: int, folds: int) -> HoldOut:
    """Hold out whole subtrees, so that a probe sees no point of a latent that it is scored on.

    The trunk goes down from the top of the largest cluster, always to the child with more points. What breaks off
    from it, and every other cluster, is a piece. Pieces are dealt to folds, the largest first, each to the fold with
    the fewest lines. A fold trains on all lines outside its pieces and is scored on the latents inside them. Latents of
    the trunk have points in several pieces and are never scored.
    """
    start, size, root_depth = _pieces(forest, lines, int(rows.depths[-1]), min_latent_size)
    folds = min(folds, size.size)
    load = np.zeros(folds, np.int64)
    part = np.full(rows.level.size, -1, np.int64)
    first_index = np.zeros(rows.level.size, np.int64)
    for piece in np.argsort(-size, kind="stable"):
        fold = int(load.argmin())
        load[fold] += size[piece]
        interval = slice(start[piece], start[piece] + size[piece])
        part[interval] = fold
        first_index[interval] = np.searchsorted(rows.depths, root_depth[piece])
    return HoldOut(part, folds, first_index, whole=True)


def _pieces(forest: Forest, lines: Lines, last_depth: int, least: int) -> tuple[Ints, Ints, Ints]:
    """Return first line, size and depth of the pieces of at least `least` lines that break off by `last_depth`."""
    n = forest.n_points
    tops = (forest.cluster_start[:-1] - np.arange(forest.n_clusters))[forest.cluster_size > 1]
    pieces = [(top, 0) for top in tops[1:].tolist()]
    latent = 0
    for depth in range(min(last_depth, int(forest.latent_depth.max(initial=0))) + 1):
        left = int(forest.left_size[latent])
        heavy = 0 if left >= forest.latent_size[latent] - left else 1
        children = forest.latent_children[latent].tolist()
        if children[1 - heavy] >= n:  # a single point is no piece
            pieces.append((children[1 - heavy] - n, depth + 1))
        if children[heavy] < n:
            break
        latent = children[heavy] - n
    found = np.array(pieces, np.int64).reshape(-1, 2)
    found = found[lines.size[found[:, 0]] >= least]
    return lines.start[found[:, 0]], lines.size[found[:, 0]], found[:, 1]
