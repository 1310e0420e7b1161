"""The native engine: any size, any number of workers, any part alone.

Every random number is a pure function of (seed, which node, what for): see `philox`. Clusters are grown from the top
down by the split law: see `splitting` and `pieces`. Since the split laws interlace and a node's numbers depend on its
path alone, datasets of different sizes from one seed are refinements of each other in hierarchy, values and directions:
see docs/native-engine.md.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from percolab import clusters, memory, parallel, philox, pieces, positions
from percolab.arrays import Arrays, Report, silent
from percolab.clusters import ClusterTable
from percolab.forest import Forest
from percolab.intrinsics import multiply_high
from percolab.pieces import DEPTH, FIRST, GROUP, LATENT, PARENT, SIZE, Pieces
from percolab.recipe import Recipe, check_integer, check_seed

VERSION = 1
"""Version of the data this engine makes: the same recipe and version give the same data."""

BATCH = 1 << 15
"""Rows per task."""


def split_forest(n: int, seed: int) -> Forest:
    """Sample a uniform random labelled tree on n points with its merger tree, as a forest of one cluster.

    The law is that of `cyclic_coalescent`: all n^(n-2) trees equally likely, and given the tree a uniform order of its
    bonds. It is sampled from the top down: a latent of m points has k of them on the left with probability
    C(m,k) k^(k-1) (m-k)^(m-k-1) / (2 (m-1) m^(m-2)), and its bond joins uniform points of both sides. Time
    O(n log n), of which the logarithm is the cheap part; memory 40 bytes per point. The forest equals that of a
    `Recipe` with ``mode="one_cluster"``, ``engine="native"`` and this graph seed.

    Parameters
    ----------
    n : number of points
    seed : seed of the graph
    """
    n = check_integer("n", n, 1)
    key = np.uint64(check_seed("seed", seed))
    table = ClusterTable.single(n)
    forest, _ = grow(table, np.zeros(1, np.int64), key, parallel.thread_count(None), silent)
    return forest


def cluster_of(recipe: Recipe, point: int) -> int:
    """Return the founder of a point's cluster, the first point that joined it, without building anything.

    Two points are in the same cluster if they have the same founder. Time O(log n).
    """
    if recipe.engine != "native":
        raise ValueError(f"recipe.engine must be 'native', got {recipe.engine!r}")
    point = check_integer("point", point, 0)
    if point >= recipe.n_points:
        raise ValueError(f"point must be below {recipe.n_points}, got {point}")
    return int(clusters.follow_to_founder(point, recipe.attachment_prob, _key(recipe.seeds.graph)))


def node_paths(forest: Forest) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the path of every latent and of every point of a native forest, in linear time.

    A path names a node whatever the size of the dataset: in the dataset of the same seeds with more points, the
    latents of the smaller one have the same paths and values, and each of its points is the point or the latent with
    the same path. Paths are 64-bit hashes: two nodes of one dataset of n points share one with probability
    below n²/2^64.
    """
    latent_path, point_path = np.empty(forest.n_latents, np.uint64), np.empty(forest.n_points, np.uint64)
    founder = np.empty(0, np.int64)
    if forest.n_clusters:
        founder = np.minimum.reduceat(forest.point_id, forest.cluster_start[:-1])
    start, size = forest.latent_start, forest.latent_size
    _name_nodes(forest.cluster_start, founder, forest.left_size, start, size, latent_path, point_path)
    return latent_path, point_path


@njit(cache=True, nogil=True)
def _name_nodes(cluster_start, founder, left_size, latent_start, latent_size, latent_path, point_path):
    """Hand paths down from the top of every cluster."""
    for c in range(founder.size):
        top, end = cluster_start[c] - c, cluster_start[c + 1] - c - 1
        path = philox.cluster_path(founder[c])
        if top == end:
            point_path[cluster_start[c]] = path
            continue
        latent_path[top] = path
        for i in range(top, end):
            left_path, right_path = philox.child_paths(latent_path[i])
            left = left_size[i]
            if left > 1:
                latent_path[i + 1] = left_path
            else:
                point_path[latent_start[i]] = left_path
            if latent_size[i] - left > 1:
                latent_path[i + left] = right_path
            else:
                point_path[latent_start[i] + left] = right_path


def build(recipe: Recipe, threads: int, report: Report) -> Arrays:
    """Make the dataset of a recipe."""
    memory.require(memory.before_clusters(recipe), recipe)
    table, founder = cluster_table(recipe)
    memory.require(memory.of_arrays(table.n_points, recipe), recipe)
    forest, parts = grow(table, founder, _key(recipe.seeds.graph), threads, report)
    n, n_latents = forest.n_points, forest.n_latents
    arrays = Arrays(forest, np.empty((n, recipe.dim), recipe.dtype), np.empty(n), np.empty(n_latents), np.empty(n))
    _value(parts, arrays, _key(recipe.seeds.value), threads, report)
    _place(recipe, parts, arrays, threads, report)
    return arrays


def cluster_table(recipe: Recipe) -> tuple[ClusterTable, NDArray[np.int64]]:
    """Return the clusters that a recipe keeps, and the founder of each."""
    if recipe.attachment_prob == 0:
        table = ClusterTable.single(recipe.n_points, keep=recipe.n_points >= recipe.min_cluster_size)
        return table, np.zeros(table.birth.size, np.int64)
    labels: NDArray[np.integer[Any]]
    labels = np.empty(recipe.n_points, np.int32) if recipe.n_points < 2**31 else np.empty(recipe.n_points, np.int64)
    founders = np.empty(recipe.n_points, np.int64)
    born = clusters.attach_keyed(recipe.attachment_prob, _key(recipe.seeds.graph), labels, founders)
    founders = founders[:born].copy()
    table = ClusterTable.from_labels(labels, recipe.min_cluster_size)
    return table, founders[table.birth]


def _key(seed: int | None) -> np.uint64:
    assert seed is not None
    return np.uint64(seed)


# ---------------------------------------------------------------------- trees


def grow(
    table: ClusterTable, founder: NDArray[np.int64], key: np.uint64, threads: int, report: Report
) -> tuple[Forest, Pieces]:
    """Grow every cluster's tree and merger tree, and deal out the points' birth numbers."""
    n, n_latents = table.n_points, table.n_points - table.birth.size
    left_size, bond, point_id = np.empty(n_latents, np.int64), np.empty((n_latents, 2), np.int64), np.empty(n, np.int64)
    parts = pieces.expand(table.start, founder, key, left_size)
    grown = (parts.piece, parts.piece_path, parts.entering, key, left_size, bond.reshape(-1))
    batches = parts.batches(BATCH)
    tasks = [(pieces.grow, (lo, hi, *grown)) for lo, hi in batches]
    parallel.run(tasks, threads, parallel.counter(report, "trees", parts.row_ends(batches)))
    runs = table.batches(BATCH)
    dealt = (table.start, founder, table.point_id, key, point_id)
    parallel.run([(_deal_labels, (lo, hi, *dealt)) for lo, hi in runs], threads)
    return Forest(table.start, table.birth, point_id, left_size, bond), parts


@njit(cache=True, nogil=True)
def _deal_labels(lo, hi, start, founder, born_point, key, point_id):
    """Deal the birth numbers of clusters lo … hi - 1 to their rows by a keyed permutation of each cluster.

    Labels then say nothing about the tree. A cluster of one piece is shuffled; in a larger one each row's number can be
    found alone. An empty `born_point` stands for 0, 1, 2, ….
    """
    for c in range(lo, hi):
        first, size = start[c], start[c + 1] - start[c]
        path = philox.cluster_path(founder[c])
        labels = point_id[first : first + size]
        if size <= pieces.PIECE:
            for i in range(size):
                labels[i] = born_point[first + i] if born_point.size else i
            _shuffle(labels, path, key)
        else:
            _permute(labels, path, key)
            if born_point.size:
                for i in range(size):
                    labels[i] = born_point[first + labels[i]]


@njit(cache=True, nogil=True)
def _shuffle(labels, path, key):
    """Shuffle uniformly, by Fisher and Yates; two draws of 64 bits come with each block."""
    spare = np.uint64(0)
    for i in range(labels.size - 1, 0, -1):
        if (labels.size - 1 - i) % 2 == 0:
            bits, spare = philox.block(path, i, philox.LABEL, key)
        else:
            bits = spare
        j = np.int64(multiply_high(bits, np.uint64(i + 1)))
        labels[i], labels[j] = labels[j], labels[i]


_ROUNDS = 4


@njit(cache=True, nogil=True)
def _permute(labels, path, key):
    """Fill a keyed permutation of 0, 1, …, that can be computed for each place alone.

    A Feistel network permutes the smallest power of two that holds them all; what falls outside is permuted again until
    it falls inside (Black and Rogaway 2002).
    """
    size = np.uint64(labels.size)
    bits = np.uint64(1)
    while np.uint64(1) << bits < size:
        bits += np.uint64(1)
    low_bits = bits // np.uint64(2)
    high_bits = bits - low_bits
    keys = np.empty((_ROUNDS, 2), np.uint64)
    for r in range(_ROUNDS):
        keys[r, 0], keys[r, 1] = philox.block(path, r, philox.LABEL, key)
    for i in range(labels.size):
        x = _feistel(np.uint64(i), low_bits, high_bits, keys)
        while x >= size:
            x = _feistel(x, low_bits, high_bits, keys)
        labels[i] = x


@njit(cache=True, nogil=True)
def _feistel(x, low_bits, high_bits, keys):
    """Permute the numbers of low_bits + high_bits bits: each round adds a keyed hash of one half to the other."""
    one = np.uint64(1)
    low_mask, high_mask = (one << low_bits) - one, (one << high_bits) - one
    low, high = x & low_mask, x >> low_bits
    for r in range(0, _ROUNDS, 2):
        high = (high + philox.fold(low ^ keys[r, 0], keys[r, 1])) & high_mask
        low = (low + philox.fold(high ^ keys[r + 1, 0], keys[r + 1, 1])) & low_mask
    return (high << low_bits) | low


# ---------------------------------------------------------------------- values and targets


def _value(parts: Pieces, arrays: Arrays, key: np.uint64, threads: int, report: Report) -> None:
    """Draw the z of every latent and point, and sum them to targets."""
    left_size = arrays.forest.left_size
    above = np.zeros(len(parts.skeleton) + 1)  # the last entry is what a cluster's top has above it: nothing
    _value_skeleton(parts.skeleton, parts.skeleton_path, key, arrays.latent_z, above)
    common = (parts.piece, parts.piece_path, left_size, above, key, arrays.latent_z, arrays.point_z, arrays.y)
    batches = parts.batches(BATCH)
    tasks = [(_value_pieces, (lo, hi, *common)) for lo, hi in batches]
    parallel.run(tasks, threads, parallel.counter(report, "values", parts.row_ends(batches)))


@njit(cache=True, nogil=True)
def _value_skeleton(skeleton, skeleton_path, key, latent_z, above):
    """Draw the z of the skeleton and fill the sum of z down to each of its latents."""
    z = np.empty(skeleton.shape[0])
    philox.normals(skeleton_path, philox.VALUE, key, np.empty(2 * z.size, np.uint64), z)
    for s in range(z.size):
        latent_z[skeleton[s, LATENT]] = z[s]
        above[s] = z[s] + above[skeleton[s, PARENT]]


@njit(cache=True, nogil=True)
def _value_pieces(lo, hi, piece, piece_path, left_size, above, key, latent_z, point_z, y):
    """Draw the z of pieces lo … hi - 1 and fill their targets."""
    first, size, depth = np.empty(GROUP, np.int64), np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    path, row_path, bits = np.zeros(GROUP, np.uint64), np.empty(GROUP, np.uint64), np.empty(2 * GROUP, np.uint64)
    z, total = np.empty(GROUP), np.empty(GROUP)
    while lo < hi:
        end = pieces.next_group(lo, hi, piece)
        start = piece[lo, FIRST]
        rows = piece[end - 1, FIRST] + piece[end - 1, SIZE] - start
        pieces.trace(lo, end, piece, piece_path, left_size, first, size, path, row_path)
        philox.normals(path[:rows], philox.VALUE, key, bits, z)
        philox.normals(row_path[:rows], philox.VALUE, key, bits, point_z[start : start + rows])
        for p in range(lo, end):
            _sum_piece(p, piece, start, left_size, above, first, size, depth, z, total, latent_z, point_z, y)
        lo = end


@njit(cache=True, nogil=True)
def _sum_piece(p, piece, start, left_size, above, first, size, depth, z, total, latent_z, point_z, y):
    """Sum z from the top of a piece down, in the order of `targets.sum_down`."""
    latent, base = piece[p, LATENT], piece[p, FIRST] - start
    depth[base], total[base] = piece[p, DEPTH], above[piece[p, PARENT]]
    if piece[p, SIZE] == 1:
        y[piece[p, FIRST]] = (point_z[piece[p, FIRST]] + total[base]) / np.sqrt(depth[base] + 1.0)
    for i in range(piece[p, SIZE] - 1):
        slot, left = base + i, left_size[latent + i]
        right, row = size[slot] - left, start + first[slot]
        latent_z[latent + i] = z[slot]
        down = z[slot] + total[slot]
        root = np.sqrt(depth[slot] + 2.0)
        if left > 1:
            depth[slot + 1], total[slot + 1] = depth[slot] + 1, down
        else:
            y[row] = (point_z[row] + down) / root
        if right > 1:
            depth[slot + left], total[slot + left] = depth[slot] + 1, down
        else:
            y[row + left] = (point_z[row + left] + down) / root


# ---------------------------------------------------------------------- positions


def _place(recipe: Recipe, parts: Pieces, arrays: Arrays, threads: int, report: Report) -> None:
    """Fill X: displacements inside pieces, then anchors for the pieces of larger clusters."""
    key, X, forest = _key(recipe.seeds.embed), arrays.X, arrays.forest
    piece, skeleton, left_size, bond = parts.piece, parts.skeleton, forest.left_size, forest.bond
    entry, came_from = np.full(len(piece), -1), np.full(len(piece), -1)
    if len(skeleton):
        positions.open_skeleton(skeleton, parts.skeleton_path, left_size, X, key)
        positions.enter_pieces(piece, skeleton, parts.skeleton_path, left_size, bond, key, entry, came_from)
    scale, has_origin = np.sqrt(recipe.dim), recipe.mode != "one_cluster"
    common = (piece, parts.piece_path, entry, left_size, bond, X, key, recipe.step, scale, has_origin)
    batches = parts.batches(BATCH)
    tasks = [(positions.place, (lo, hi, *common)) for lo, hi in batches]
    parallel.run(tasks, threads, parallel.counter(report, "positions", parts.row_ends(batches)))
    inside = np.flatnonzero(piece[:, PARENT] >= 0)
    if not inside.size:
        return
    anchor = np.zeros((inside.size, recipe.dim))
    if has_origin:
        positions.origins(piece, skeleton, parts.skeleton_path, inside, came_from, key, scale, anchor)
    positions.anchors(piece, came_from, inside, X, anchor)
    edges = np.linspace(0, inside.size, 8 * threads + 1).astype(int)
    shifts = [(positions.shift, (lo, hi, inside, piece, anchor, X)) for lo, hi in pairwise(edges)]
    parallel.run(shifts, threads)
