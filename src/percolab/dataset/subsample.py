"""Subsamples: some rows of a dataset, and the hierarchy that they inherit.

Rows stay in leaf order. A latent stays if it keeps rows on both sides, so each latent that stays is the lowest latent
above two neighbouring kept rows, and every two neighbours of a cluster have such a latent. Let B[r] be the latent that
splits between rows r - 1 and r. Latents are in preorder, in which a latent comes before all below it, so the lowest
latent above rows a < b is the least of B[a + 1 … b]: no path through the tree is followed, however deep it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_integer, check_seed, listed
from percolab.model.forest import Forest
from percolab.rng import philox


def induced(forest: Forest, rows: Ints) -> tuple[Forest, Ints, Ints]:
    """Return the forest that some sorted rows inherit, and the former numbers of its rows and of its latents.

    Linear time. Clusters are numbered anew, by the birth of the first point that each keeps, and sorted by size; points
    keep their birth numbers. The end of a bond whose row is gone goes to the nearest kept row, in leaf order, of the
    smallest latent that holds both. Bonds that close a cycle stay where both ends are kept.
    """
    splits = forest.parting
    cluster = np.searchsorted(forest.cluster_start, rows, side="right") - 1
    order, start, birth = _sort_clusters(cluster, forest.point_id[rows])
    source_row = rows[order]
    latent = _least_between(splits, rows)
    inside = np.flatnonzero(cluster[1:] == cluster[:-1]) if rows.size else np.empty(0, np.int64)
    latent = latent[inside]
    # Rows and latents of a cluster stay in order, and clusters go where `order` says.
    place = np.empty(rows.size, np.int64)
    place[order] = np.arange(rows.size)
    at = np.lexsort((latent, np.searchsorted(start, place[inside], side="right")))
    left = inside + 1 - np.searchsorted(rows, forest.latent_start[latent])
    new_row = np.full(forest.n_points, -1, np.int64)
    new_row[source_row] = np.arange(rows.size)
    nearest = np.empty(forest.n_points, np.int64)
    _nearest_kept(splits, new_row, nearest)
    bond = new_row[nearest[forest.bond[latent[at]]]]
    trees = Forest(start, birth, forest.point_id[source_row], left[at], bond)
    return _with_cycles(trees, forest, rows, new_row), source_row, latent[at]


def _with_cycles(trees: Forest, forest: Forest, rows: Ints, new_row: Ints) -> Forest:
    """Return a forest on some rows of another with the bonds that close cycles between two of them.

    The latent that was the top when such a bond was added becomes the smallest latent that holds all its kept rows.
    """
    ends = new_row[forest.extra_bond]
    kept = np.flatnonzero((ends >= 0).all(axis=1))
    if not kept.size:
        return trees
    start = forest.latent_start[forest.extra_latent[kept]]
    first = np.searchsorted(rows, start)
    last = np.searchsorted(rows, start + forest.latent_size[forest.extra_latent[kept]]) - 1
    latent = trees.lca(new_row[rows[first]], new_row[rows[last]])
    order = np.argsort(trees.latent_cluster[latent], kind="stable")
    return replace(trees, extra_bond=ends[kept][order], extra_latent=latent[order])


def _sort_clusters(cluster: Ints, point_id: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the order of rows that puts the largest clusters first, the new starts of clusters, and their numbers."""
    if not cluster.size:
        return cluster, np.zeros(1, np.int64), cluster
    first = np.flatnonzero(np.diff(cluster, prepend=-1))
    size = np.diff(np.append(first, cluster.size))
    birth = np.empty(first.size, np.int64)
    birth[np.argsort(np.minimum.reduceat(point_id, first))] = np.arange(first.size)
    sorted_clusters = np.lexsort((birth, -size))
    rank = np.empty(first.size, np.int64)
    rank[sorted_clusters] = np.arange(first.size)
    order = np.argsort(np.repeat(rank, size), kind="stable")
    return order, np.append(0, np.cumsum(size[sorted_clusters])), birth[sorted_clusters]


def _least_between(splits: Ints, rows: Ints) -> Ints:
    """Return the least of `splits` after each row up to the next: the lowest latent above both, or -1 if none is."""
    if rows.size < 2:
        return np.empty(0, np.int64)
    return np.asarray(np.minimum.reduceat(splits[: rows[-1] + 1], rows[:-1] + 1))


@kernel
def _nearest_kept(splits, new_row, nearest):
    """Fill, for every row, the kept row that shares the smallest latent with it, and is the nearest within that latent.

    Kept rows before and after it compete: the latents that they share with it are different and lie on one path down,
    so the larger number is the smaller latent; on each side the nearest kept row shares the smallest latent. -1 if
    there is none.
    """
    n = splits.size
    shared = np.empty(n, np.int64)
    kept, least = -1, -1
    for row in range(n):
        if new_row[row] >= 0:
            kept, least = row, n
        elif splits[row] < 0:
            kept, least = -1, -1
        else:
            least = min(least, splits[row])
        nearest[row], shared[row] = kept, least
    kept, least = -1, -1
    for row in range(n - 1, -1, -1):
        if new_row[row] >= 0:
            kept, least = row, n
        elif least > shared[row]:
            nearest[row], shared[row] = kept, least
        if splits[row] < 0:
            kept, least = -1, -1
        else:
            least = min(least, splits[row])


# ---------------------------------------------------------------------- which rows


def as_rows(rows: ArrayLike, n_points: int) -> Ints:
    """Return rows, given as numbers or as a mask, sorted; or say what is wrong with them."""
    numbers = np.sort(listed("rows", rows, n_points))
    again = numbers[1:][numbers[1:] == numbers[:-1]]
    if again.size:
        raise ValueError(f"rows must not repeat, got {again[0]} more than once")
    return numbers


def nested_rows(forest: Forest, sizes: Any, seed: int) -> list[Ints]:
    """Return random rows, uniform for each size, such that the smaller sets are parts of the larger.

    Every point has a random number, a function of the seed and its birth number alone; a set takes the smallest.
    """
    key = np.uint64(check_seed("seed", seed))
    counts = [check_integer("sizes", size, 1) for size in sizes]
    for count in counts:
        if count > forest.n_points:
            raise ValueError(f"sizes must be at most the number of rows, {forest.n_points}, got {count}")
    first, second = np.empty(forest.n_points, np.uint64), np.empty(forest.n_points, np.uint64)
    philox.blocks(forest.point_id.astype(np.uint64), forest.n_points, philox.SUBSAMPLE, key, first, second)
    order = np.lexsort((second, first))
    return [np.sort(order[:count]) for count in counts]
