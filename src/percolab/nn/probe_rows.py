"""What probes are fitted to and scored on: rows, targets and the two ways of holding rows out.

Rows of depth D are the points whose latent at depth D has enough points. A latent's ancestors are at least as large
as itself, so the rows of a depth contain the rows of every greater depth. Everything here is built on that: a row is
described by its `level`, the index of the last depth that it belongs to, and the training rows of a depth are
those of the next depth and some more.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.model.forest import Forest

Ints = NDArray[np.int64]

TARGETS = ("z", "sum", "z_redrawn", "z_shuffled", "sum_shuffled")
"""z: the latent's value. sum: the values from depth 0 down to the latent, added. z_redrawn: a fresh value per latent,
which no network has been trained on. z_shuffled, sum_shuffled: the same targets dealt to the wrong rows."""
LATENT_TARGETS = TARGETS[:3]
"""Targets that are the same for all points of a latent."""


@dataclass(frozen=True, eq=False)
class ProbeRows:
    """The rows of every depth that has any, with their targets."""

    depths: Ints
    """(J,) depths with rows, increasing"""
    skipped: Ints
    """depths without rows, the last ones"""
    level: Ints
    """(n,) index of the last depth a row belongs to, -1 if none"""
    targets: NDArray[np.float32]
    """(n, J, 5) the TARGETS of a row at each depth; 0 where it does not belong"""
    depth_index: Ints
    """(L,) index of the depth of each probed latent"""
    latent: Ints
    """(L,) the probed latents, by depth, then by row"""


@dataclass(frozen=True, eq=False)
class HoldOut:
    """One way of holding rows out, the same for all depths."""

    train: NDArray[np.bool_]
    """(n,) rows that probes are fitted to"""
    held_out: NDArray[np.bool_]
    """(n,) rows that they are scored on, at the depths from `first_index` on"""
    first_index: Ints
    """(n,) index of the first depth at which a held-out row counts"""


def probe_rows(dataset: Dataset, depths: Ints, min_latent_size: int, seed: int) -> ProbeRows:
    """Find the rows and targets of each depth."""
    forest = dataset.forest
    large = forest.latent_size >= min_latent_size
    at_depth = [np.flatnonzero(large & (forest.latent_depth == depth)) for depth in depths]
    kept = [j for j, latents in enumerate(at_depth) if latents.size]
    if max(latents.size for latents in at_depth) < 2:  # of a single value there is nothing to learn
        sizes = (np.sort(forest.latent_size[forest.latent_depth == depth])[-2:-1] for depth in depths)
        second = max((int(size[0]) for size in sizes if size.size), default=0)
        raise ValueError(
            f"min_latent_size must leave two latents at some depth, got {min_latent_size} "
            f"and at these depths no second latent has more than {second} points"
        )
    values = _latent_values(dataset, seed)
    level = np.full(forest.n_points, -1, np.int64)
    targets = np.zeros((forest.n_points, len(kept), len(TARGETS)), np.float32)
    for index, j in enumerate(kept):
        latents = at_depth[j]
        size = forest.latent_size[latents]
        rows = _rows(forest.latent_start[latents], size)
        level[rows] = index
        here = np.repeat(values[latents], size, axis=0)
        random = np.random.default_rng((seed, int(depths[j])))
        here = np.concatenate([here, random.permuted(here[:, :2], axis=0)], 1)
        targets[rows, index] = here
    latent = np.concatenate([at_depth[j] for j in kept])
    depth_index = np.repeat(np.arange(len(kept)), [at_depth[j].size for j in kept])
    skipped = np.delete(depths, kept)
    return ProbeRows(depths[kept], skipped, level, targets, depth_index, latent)


def _rows(start: Ints, size: Ints) -> Ints:
    """Return the rows of disjoint intervals, one after the other."""
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    return np.repeat(start - first, size) + np.arange(size.sum())


def _latent_values(dataset: Dataset, seed: int) -> NDArray[np.float64]:
    """Return (n_latents, 3): z, its sum from the top of the cluster, and a fresh z."""
    forest, z = dataset.forest, dataset.latent_z
    total = z.copy()
    order = np.argsort(forest.latent_depth, kind="stable")
    edges = np.searchsorted(forest.latent_depth[order], np.arange(1, int(forest.latent_depth.max(initial=0)) + 2))
    for lo, hi in itertools.pairwise(edges):
        latents = order[lo:hi]
        total[latents] += total[forest.latent_parent[latents]]
    fresh = np.random.default_rng((seed, 1 << 32)).standard_normal(z.size)
    return np.column_stack([z, total, fresh])


# ---------------------------------------------------------------------- holding out


def random_points(rows: ProbeRows, train_share: float, seed: int) -> HoldOut:
    """Hold out points at random: of n rows of a depth, int(train_share · n) train, at every depth.

    Going up from the deepest depth, the rows that a depth adds are divided at random so that the count comes out.
    """
    random = np.random.default_rng(seed)
    train = np.zeros(rows.level.size, np.bool_)
    done = chosen = 0
    for index in range(rows.depths.size - 1, -1, -1):
        added = np.flatnonzero(rows.level == index)
        done += added.size
        more = int(train_share * done) - chosen
        chosen += more
        train[random.permutation(added)[:more]] = True
    return HoldOut(train, ~train & (rows.level >= 0), np.zeros(rows.level.size, np.int64))


def whole_subtrees(forest: Forest, rows: ProbeRows, min_latent_size: int, folds: int) -> list[HoldOut]:
    """Hold out whole subtrees, so that a probe sees no point of a latent that it is scored on.

    The trunk goes down from the top of the largest cluster, always to the child with more points. What breaks off
    from it, and every other cluster, is a piece. Pieces are dealt to folds, the largest first, each to the fold with
    the fewest points. A fold trains on all rows outside its pieces and is scored on the latents inside them. Latents of
    the trunk have points in several pieces and are never scored.
    """
    start, size, root_depth = _pieces(forest, int(rows.depths[-1]), min_latent_size)
    folds = min(folds, size.size)
    load = np.zeros(folds, np.int64)
    fold_of_row = np.full(forest.n_points, -1, np.int64)
    first_index = np.zeros(forest.n_points, np.int64)
    for piece in np.argsort(-size, kind="stable"):
        fold = int(load.argmin())
        load[fold] += size[piece]
        interval = slice(start[piece], start[piece] + size[piece])
        fold_of_row[interval] = fold
        first_index[interval] = np.searchsorted(rows.depths, root_depth[piece])
    inside = rows.level >= 0
    dealt = [HoldOut(inside & (fold_of_row != f), inside & (fold_of_row == f), first_index) for f in range(folds)]
    return [fold for fold in dealt if fold.train.any() and fold.held_out.any()]


def _pieces(forest: Forest, last_depth: int, least: int) -> tuple[Ints, Ints, Ints]:
    """Return first row, size and depth of the pieces of at least `least` points that break off by `last_depth`."""
    n = forest.n_points
    pieces = [(int(forest.cluster_start[c]), int(forest.cluster_size[c]), 0) for c in range(1, forest.n_clusters)]
    latent = 0
    for depth in range(min(last_depth, int(forest.latent_depth.max(initial=0))) + 1):
        start, size, left = (int(c[latent]) for c in (forest.latent_start, forest.latent_size, forest.left_size))
        children = ((start, left), (start + left, size - left))
        heavy = 0 if left >= size - left else 1
        pieces.append((*children[1 - heavy], depth + 1))
        code = int(forest.latent_children[latent, heavy])
        if code < n:
            break
        latent = code - n
    found = np.array([piece for piece in pieces if piece[1] >= least], np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]
