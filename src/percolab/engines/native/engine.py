"""The native engine: any size, any number of workers, any part alone.

Every random number is a pure function of (seed, which node, what for): see `philox`. Clusters are grown from the top
down by the split law: see `splitting` and `pieces`. Since the split laws interlace and a node's numbers depend on its
path alone, datasets of different sizes from one seed are refinements of each other in hierarchy, values and directions:
see docs/native-engine.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines import clusters, needs
from percolab.engines.arrays import Arrays
from percolab.engines.clusters import ClusterTable
from percolab.engines.native import births, pieces, positions, skeleton
from percolab.engines.native.pieces import GROUP
from percolab.engines.native.skeleton import DEPTH, FIRST, LATENT, LEFT, PARENT, SIZE, Pieces, Stand
from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_integer, check_seed
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.rng import philox

VERSION = 1
"""Version of the data this engine makes: the same recipe and version give the same data."""

BATCH = 1 << 15
"""Most rows per task."""


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
    return grow_forest(ClusterTable.single(n), key, parallel.thread_count(None))


def cluster_of(recipe: Recipe, point: int) -> int:
    """Return the founder of a point's cluster, the first point that joined it, without building anything.

    Two points are in the same cluster if they have the same founder. Time O(log n).
    """
    if recipe.engine != "native":
        raise ValueError(f"recipe.engine must be 'native', got {recipe.engine!r}")
    point = check_integer("point", point, 0)
    if point >= recipe.n_points:
        raise ValueError(f"point must be below {recipe.n_points}, got {point}")
    return int(clusters.follow_to_founder(point, recipe.attachment_prob, seed_key(recipe.seeds.graph)))


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


@kernel
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


def build(recipe: Recipe, threads: int, report: Progress) -> Arrays:
    """Make the dataset of a recipe."""
    needs.require(needs.before_clusters(recipe), recipe)
    table = cluster_table(recipe)
    needs.require(needs.of_arrays(table.n_points, recipe), recipe)
    # Waking a thread takes as long as making some hundred points. Powers of two, since threads are kept by number.
    threads = min(threads, 1 << (table.n_points // GROUP).bit_length())
    stand = Stand.of_clusters(table.start, table.founder)
    grown = grow(stand, seed_key(recipe.seeds.graph), threads, report)
    point_id = deal_labels(table, seed_key(recipe.seeds.graph), threads)
    values = value(grown, np.zeros(0), seed_key(recipe.seeds.value), threads, report)
    X = place(recipe, grown, Entries.none(recipe), threads, report)
    forest = Forest(table.start, table.birth.astype(np.int64), point_id, grown.left_size, grown.bond)
    return Arrays(forest, X, values.y, values.latent_z, values.point_z)


def cluster_table(recipe: Recipe) -> ClusterTable:
    """Return the clusters that a recipe keeps."""
    if recipe.attachment_prob == 0:
        return ClusterTable.single(recipe.n_points, keep=recipe.n_points >= recipe.min_cluster_size)
    dtype: type[np.integer[Any]] = np.int32 if recipe.n_points < 2**31 else np.int64
    cluster: NDArray[np.integer[Any]] = np.empty(recipe.n_points, dtype)
    clusters.attach_keyed(recipe.attachment_prob, seed_key(recipe.seeds.graph), cluster)
    return ClusterTable.from_labels(cluster, recipe.min_cluster_size, dtype)


def _batch(n: int, threads: int) -> int:
    """Return the rows per task: two tasks or more for every thread, none of less than a group of rows."""
    return min(BATCH, max(GROUP, n // (2 * threads)))


def seed_key(seed: int) -> np.uint64:
    """Return a recipe's seed as a key for Philox."""
    return np.uint64(seed)


# ---------------------------------------------------------------------- trees


@dataclass(frozen=True, eq=False)
class Grown:
    """The trees of a stand. Rows are counted from its first."""

    stand: Stand
    parts: Pieces
    left_size: NDArray[np.int64]
    """(n_latents,) number of points on the left of each latent"""
    ends: NDArray[np.int64]
    """rows where bonds end, by place: see `pieces`"""

    @classmethod
    def begin(cls, stand: Stand, key: np.uint64) -> Grown:
        """Expand a stand; `ends` tells in which piece each bond of the skeleton ends, by its first row."""
        parts = skeleton.expand(stand, key)
        ends = np.empty(parts.n_places, np.int64)
        skeleton.land(parts.piece, parts.entering, ends)
        return cls(stand, parts, np.empty(stand.n_latents, np.int64), ends)

    @property
    def bond(self) -> NDArray[np.int64]:
        """(n_latents, 2) rows that each latent's bond joins."""
        return self.ends[: 2 * self.left_size.size].reshape(-1, 2)

    def grow_pieces(self, key: np.uint64) -> tuple[Any, ...]:
        """Return what `pieces.grow` needs after the range of pieces."""
        parts = self.parts
        return parts.piece, parts.piece_path, parts.entering, key, self.left_size, self.ends


def grow(stand: Stand, key: np.uint64, threads: int, report: Progress) -> Grown:
    """Grow every tree and merger tree of a stand."""
    grown = Grown.begin(stand, key)
    parts = grown.parts
    batches = parts.batches(_batch(stand.n_rows, threads))
    tasks = [(pieces.grow, (lo, hi, *grown.grow_pieces(key))) for lo, hi in batches]
    parallel.run(tasks, threads, parallel.counter(report, "trees", parts.row_ends(batches)))
    skeleton.settle(parts.skeleton, parts.base, grown.left_size, grown.ends)
    return grown


def grow_forest(table: ClusterTable, key: np.uint64, threads: int, report: Progress = silent) -> Forest:
    """Grow every cluster of a table."""
    grown = grow(Stand.of_clusters(table.start, table.founder), key, threads, report)
    point_id = deal_labels(table, key, threads)
    return Forest(table.start, table.birth.astype(np.int64), point_id, grown.left_size, grown.bond)


def deal_labels(table: ClusterTable, key: np.uint64, threads: int) -> NDArray[np.int64]:
    """Return the birth number of every row."""
    n = table.n_points
    point_id = np.empty(n, np.int64)
    edges = [*range(0, n, max(BATCH, -(-n // (4 * threads)))), n]  # few: each task makes tables for a large cluster
    common = (table.start, table.point_id, key)
    parallel.run([(births.deal, (lo, hi, *common, point_id[lo:hi])) for lo, hi in pairwise(edges)], threads)
    return point_id


# ---------------------------------------------------------------------- values and targets


@dataclass(frozen=True, eq=False)
class Values:
    """Values and targets of the trees of a stand."""

    latent_z: NDArray[np.float64]
    point_z: NDArray[np.float64]
    y: NDArray[np.float64]


def value(grown: Grown, limb_above: NDArray[np.float64], key: np.uint64, threads: int, report: Progress) -> Values:
    """Draw the z of every latent and point, and sum them to targets; `limb_above` is the sum of z above each limb."""
    parts, n = grown.parts, grown.stand.n_rows
    values = Values(np.empty(grown.stand.n_latents), np.empty(n), np.empty(n))
    above = np.zeros(len(parts.skeleton) + limb_above.size + 1)
    above[len(parts.skeleton) : -1] = limb_above[::-1]  # `PARENT` is -1 at the top of a cluster and -2 - j of limb j
    values.latent_z[parts.skeleton[:, LATENT]] = value_skeleton(parts.skeleton, parts.skeleton_path, key, above)
    common = (parts.piece, parts.piece_path, grown.left_size, above, key, values.latent_z, values.point_z, values.y)
    batches = parts.batches(_batch(n, threads))
    tasks = [(_value_pieces, (lo, hi, *common)) for lo, hi in batches]
    parallel.run(tasks, threads, parallel.counter(report, "values", parts.row_ends(batches)))
    return values


@kernel
def value_skeleton(skeleton, skeleton_path, key, above):
    """Return the z of the skeleton and fill the sum of z down to each of its latents."""
    z = np.empty(skeleton.shape[0])
    philox.normals(skeleton_path, philox.VALUE, key, np.empty(2 * z.size, np.uint64), z)
    for s in range(z.size):
        above[s] = z[s] + above[skeleton[s, PARENT]]
    return z


@kernel
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


@kernel
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


@dataclass(frozen=True, eq=False)
class Entries:
    """Where the walk enters each limb of a stand, and what is known of it there."""

    place: NDArray[np.int64]
    """(J,) place of the bond's end by which it enters, or `positions.AT_ROOT`"""
    vector: NDArray[Any]
    """(J, d) unit vector of the limb's top"""
    anchor: NDArray[np.int64]
    """(J, d) where it comes from, in units of `positions.UNIT`"""

    @classmethod
    def none(cls, recipe: Recipe) -> Entries:
        """Return the entries of a stand without limbs."""
        shape = (0, recipe.dim)
        return cls(np.empty(0, np.int64), np.empty(shape, recipe.dtype), np.empty(shape, np.int64))


def place(recipe: Recipe, grown: Grown, entries: Entries, threads: int, report: Progress) -> NDArray[Any]:
    """Return the positions of a stand: displacements inside pieces, then anchors where a piece is not a cluster."""
    parts = grown.parts
    X = np.empty((grown.stand.n_rows, recipe.dim), recipe.dtype)
    X[grown.stand.limb[:, FIRST]] = entries.vector
    walk = Walk(recipe, grown, entries, X)
    walk.open_skeleton(slice(None))
    batches = parts.batches(_batch(len(X), threads))
    tasks = [(positions.place, (lo, hi, *walk.place_pieces())) for lo, hi in batches]
    parallel.run(tasks, threads, parallel.counter(report, "positions", parts.row_ends(batches)))
    inside = np.flatnonzero(parts.piece[:, PARENT] != -1)
    if inside.size:
        anchor = walk.anchors(inside)
        count = min(len(batches), 8 * threads)
        edges = [inside.size * task // count for task in range(count + 1)]
        shifts = [(positions.shift, (lo, hi, inside, parts.piece, anchor, X)) for lo, hi in pairwise(edges)]
        parallel.run(shifts, threads)
    return X


class Walk:
    """The steps that turn a stand's trees into positions in X; see `positions`."""

    def __init__(self, recipe: Recipe, grown: Grown, entries: Entries, X: NDArray[Any]) -> None:
        self.recipe, self.grown, self.entries, self.X = recipe, grown, entries, X
        self.key, self.scale = seed_key(recipe.seeds.embed), np.sqrt(recipe.dim)
        self.has_origin = recipe.mode != "one_cluster"
        parts = grown.parts
        self.entry = np.full(len(parts.piece), positions.AT_ROOT)
        if len(parts.skeleton) or entries.place.size:
            skeleton = parts.skeleton, parts.skeleton_path, parts.base
            positions.enter_pieces(parts.piece, *skeleton, entries.place, grown.ends, self.key, self.entry)

    def open_skeleton(self, nodes: Any) -> None:
        """Hand vectors down these nodes of the skeleton; those of limbs are in X already."""
        skeleton, path = self.grown.parts.skeleton[nodes], self.grown.parts.skeleton_path[nodes]
        if len(skeleton):
            rows = np.ascontiguousarray(skeleton[:, FIRST])
            right_rows = rows + skeleton[:, LEFT]
            positions.open_skeleton(skeleton[:, PARENT], path, rows, right_rows, self.X, self.key)

    def place_pieces(self) -> tuple[Any, ...]:
        """Return what `positions.place` needs after the range of pieces."""
        parts, grown = self.grown.parts, self.grown
        trees = parts.piece, parts.piece_path, self.entry, grown.left_size, grown.bond, grown.ends
        return *trees, self.X, self.key, self.recipe.step, self.scale, self.has_origin

    def anchors(self, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the anchors of these pieces, which must be all that the walk passes on the way to them."""
        parts = self.grown.parts
        tops = np.flatnonzero(parts.skeleton[:, PARENT] == -1)
        origin_of = np.full(len(parts.skeleton), -1)
        origin_of[tops] = np.arange(tops.size)
        origin = np.zeros((tops.size if self.has_origin else 0, self.recipe.dim), np.int64)
        positions.draw_origins(parts.skeleton_path[tops], self.key, self.scale, origin)
        anchor = np.zeros((inside.size, self.recipe.dim), np.int64)
        known = self.entry, parts.base, self.entries.anchor, origin_of, origin
        positions.start_anchors(parts.piece, parts.skeleton, inside, *known, anchor)
        positions.anchors(parts.piece, inside, self.entry, parts.base, self.grown.ends, self.X, anchor)
        return anchor
