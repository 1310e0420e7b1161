"""Positions of native data: walks inside pieces, then pieces moved to their places.

The walk from a cluster's root enters a piece at one end of a bond, the *entry* of the piece; the other end of the bond
is in another piece. Inside the piece, positions are summed as *displacements* from that other end, the *anchor*.
Anchors follow from each other along the tree of pieces; adding a piece's anchor to its displacements gives positions.
So pieces are filled independently. Anchors are integers, multiples of `UNIT`, whose sums do not depend on their order:
positions are the same however a cluster is divided among threads and machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.engines import embedding
from percolab.engines.native import gaussians
from percolab.engines.native.growth import Trees
from percolab.engines.native.pieces import GROUP, next_group, trace, trace_work
from percolab.engines.native.skeleton import last_at_most
from percolab.ground import parallel
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.progress import Progress
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.rng import philox

UNIT = 2.0**-42  #: Unit of anchors.
AT_ROOT = -1  #: Entry of an interval in which the walk starts, in place of the end of a bond.


# ---------------------------------------------------------------------- where the walk enters
Words = NDArray[np.uint64]


@kernel
def _root_is_right(path, key):
    """Return whether the walk's root, given that it is below this latent, is on the right side: probability 1/2."""
    bits, _ = philox.block(path, 0, philox.ROOT, key)
    return bits & np.uint64(1) != 0


@kernel
def choose_root(latent, size, path, left_size, key):
    """Walk down from a latent, left or right with probability 1/2 each; return the row reached, from its first."""
    i, row = latent, 0
    while size > 1:
        left = left_size[i]
        left_path, right_path = philox.child_paths(path)
        if _root_is_right(path, key):
            i, row, size, path = i + left, row + left, size - left, right_path
        else:
            i, size, path = i + 1, left, left_path
    return row


@kernel
def enter_tips(tip, skeleton, first_end, limb_entry, end_row, key, entry):
    """Fill the end by which the walk enters each tip, or `AT_ROOT`.

    The walk enters a latent's interval at one row; the bond leads from the side that holds this row into the other
    side. For bonds from above, `end_row` only needs to identify the tip where they end.
    """
    skeleton_entry = np.empty(skeleton.size, np.int64)
    known = skeleton, first_end, limb_entry, end_row, key, skeleton_entry
    for s in range(skeleton.size):
        skeleton_entry[s] = _enter(skeleton[s], *known)
    for p in range(tip.size):
        entry[p] = _enter(tip[p], *known)


@kernel
def _enter(node, skeleton, first_end, limb_entry, end_row, key, skeleton_entry):
    """Return where the walk enters a node, given where it enters the latent above."""
    parent = node.parent
    if parent == -1:
        return AT_ROOT
    if parent < -1:
        return limb_entry[-2 - parent]
    middle = skeleton[parent].first + skeleton[parent].left
    is_right = node.first == middle
    came = skeleton_entry[parent]
    entered_right = _root_is_right(skeleton[parent].path, key) if came == AT_ROOT else end_row[came] >= middle
    if is_right == entered_right:
        return came
    return first_end + 2 * parent + np.int64(is_right)


# ---------------------------------------------------------------------- inside pieces


class _Listed(NamedTuple):
    """Nodes whose vectors are drawn together: their paths, and rows to put them in."""

    path: Any
    left_row: Any
    right_row: Any


@kernel
def walk_pieces(lo, hi, piece, entry, left_size, bond, end_row, X, key, step, scale, has_origin):
    """Fill the rows of pieces lo … hi - 1 of X: positions where a piece is a cluster, else displacements."""
    dim = X.shape[1]
    draws, origin_draws = gaussians.draw_work(dim), gaussians.draw_work(dim + 2)
    nodes, work = trace_work(), embedding.walk_work(GROUP)
    listed = _Listed(np.empty(GROUP, np.uint64), np.empty(GROUP, np.int64), np.empty(GROUP, np.int64))
    origin = np.empty((GROUP + 1 if has_origin else 1, dim + 2), X.dtype)
    origin[0] = 0  # displacements start at 0
    stride, scale = X.dtype.type(step * scale), X.dtype.type(scale)
    while lo < hi:
        stop = next_group(lo, hi, piece)
        trace(lo, stop, piece, left_size, nodes)
        count = _list_clusters(lo, stop, piece, listed)
        gaussians.unit_vectors(listed.path, listed.left_row, count, X, philox.VECTOR, key, draws)
        if has_origin:
            gaussians.origins(listed.path, listed.right_row, count, origin, scale, key, origin_draws)
        count = _list_latents(lo, stop, piece, left_size, nodes, listed)
        gaussians.split_vectors(listed.path, listed.left_row, listed.right_row, count, X, key, draws)
        cluster = 0
        for p in range(lo, stop):
            first, size, latent, is_cluster = piece[p].first, piece[p].size, piece[p].latent, piece[p].parent == -1
            cluster += is_cluster
            begin = origin[cluster if is_cluster and has_origin else 0]
            if entry[p] == AT_ROOT:
                enter = choose_root(latent, size, piece[p].path, left_size, key)
            else:
                enter = end_row[entry[p]] - first
            latents = slice(latent, latent + size - 1)
            order, parent = embedding.plan_walk(first, left_size[latents], bond[latents], enter, work)
            embedding.walk(X[first : first + size], order, parent, begin, stride)
        lo = stop


@kernel
def _list_clusters(lo, hi, piece, listed):
    """List the pieces lo … hi - 1 that are clusters, with the rows of vector and origin; return how many."""
    count = 0
    for p in range(lo, hi):
        if piece[p].parent == -1:
            listed.path[count], listed.left_row[count] = piece[p].path, piece[p].first
            count += 1
            listed.right_row[count - 1] = count
    return count


@kernel
def _list_latents(lo, hi, piece, left_size, nodes, listed):
    """List the latents of pieces lo … hi - 1, with the first rows of their sides; return how many."""
    start, count = piece[lo].first, 0
    for p in range(lo, hi):
        base = piece[p].first - start
        for i in range(piece[p].size - 1):
            row = start + nodes.first[base + i]
            listed.path[count], listed.left_row[count] = nodes.path[base + i], row
            listed.right_row[count] = row + left_size[piece[p].latent + i]
            count += 1
    return count


# ---------------------------------------------------------------------- anchors


@kernel
def fixed(x):
    """Return a coordinate as a multiple of `UNIT`."""
    return np.int64(np.rint(np.float64(x) / UNIT))


@kernel
def origin_anchors(paths, key, scale, anchor):
    """Fill the scaled origins of clusters, in units of anchors."""
    dim = anchor.shape[1]
    origin, row, draws = np.empty((1, dim + 2)), np.zeros(1, np.int64), gaussians.draw_work(dim + 2)
    for i in range(anchor.shape[0]):
        gaussians.origins(paths[i : i + 1], row, 1, origin, scale, key, draws)
        for j in range(dim):
            anchor[i, j] = fixed(origin[0, j])


@kernel
def start_anchors(piece, skeleton, inside, entry, first_end, limb_anchor, origin_of, origin, anchor):
    """Fill the anchor of each piece listed in `inside` where the walk enters its limb or starts.

    `origin_of` gives, for the top of a cluster in the skeleton, the number of its origin.
    """
    for i in range(inside.size):
        if entry[inside[i]] >= first_end:
            continue
        top, parent = -1, piece[inside[i]].parent
        while parent >= 0:
            top, parent = parent, skeleton[parent].parent
        for j in range(anchor.shape[1]):
            if parent < -1:
                anchor[i, j] = limb_anchor[-2 - parent, j]
            else:
                anchor[i, j] = origin[origin_of[top], j] if origin.shape[0] else 0


@kernel
def follow_anchors(piece, inside, entry, first_end, end_row, X, anchor):
    """Fill the anchors of the pieces listed in `inside`, in row order; `start_anchors` has filled the first ones.

    X holds displacements. The walk comes to a piece from the other end of the bond by which it enters.
    """
    before = np.empty(inside.size, np.int64)
    first = piece.first[inside]
    for i in range(inside.size):
        end = entry[inside[i]]
        before[i] = -1 if end < first_end else last_at_most(first, end_row[end ^ 1])
    for i in embedding.order_of(before):
        if before[i] >= 0:
            row = end_row[entry[inside[i]] ^ 1]
            for j in range(X.shape[1]):
                anchor[i, j] = anchor[before[i], j] + fixed(X[row, j])


@kernel
def shift(lo, hi, inside, piece, anchor, X):
    """Add its anchor to every row of pieces inside[lo:hi]."""
    offset = np.empty(X.shape[1])
    for i in range(lo, hi):
        for j in range(offset.size):
            offset[j] = anchor[i, j] * UNIT
        first, size = piece[inside[i]].first, piece[inside[i]].size
        for row in range(first, first + size):
            for j in range(offset.size):
                X[row, j] += offset[j]


# ---------------------------------------------------------------------- all steps, on all threads


@dataclass(frozen=True, eq=False)
class Entries:
    """Where the walk enters each limb of a stand, with the limb's unit vector and anchor."""

    end: NDArray[np.int64]  #: (J,) end of the bond by which the walk enters, or `AT_ROOT`
    vector: NDArray[Any]  #: (J, d) unit vector of the limb's top
    anchor: NDArray[np.int64]  #: (J, d) position that the walk comes from, in units of `UNIT`

    @classmethod
    def none(cls, recipe: Recipe) -> Entries:
        """Return the entries of a stand without limbs."""
        shape = (0, recipe.dim)
        return cls(np.empty(0, np.int64), np.empty(shape, recipe.dtype), np.empty(shape, np.int64))


def embed(recipe: Recipe, trees: Trees, entries: Entries, threads: int, progress: Progress) -> NDArray[Any]:
    """Return the positions of a stand: displacements inside pieces, then anchors where a piece is not a cluster."""
    X = np.empty((trees.stand.n_rows, recipe.dim), recipe.dtype)
    walk = Walk(recipe, trees, entries, X)
    walk.split_skeleton(slice(None))
    trees.for_pieces("positions", walk.walk_pieces, threads=threads, progress=progress)
    inside = np.flatnonzero(trees.expansion.tip["parent"] != -1)
    if inside.size:
        anchor = walk.anchors(inside)
        edges = np.linspace(0, inside.size, min(inside.size, 8 * threads) + 1).astype(int).tolist()
        rest = inside, trees.expansion.tip, anchor, X
        parallel.run([(shift, (lo, hi, *rest)) for lo, hi in pairwise(edges)], threads)
    return X


class Walk:
    """The steps that turn a stand's trees into positions in X; rows of X that it does not pass are left alone."""

    def __init__(self, recipe: Recipe, trees: Trees, entries: Entries, X: NDArray[Any]) -> None:
        self.recipe, self.trees, self.entries, self.X = recipe, trees, entries, X
        self.key, self.scale = np.uint64(recipe.seeds.embed), np.sqrt(recipe.dim)
        self.has_origin = recipe.mode != "one_cluster"
        parts = trees.expansion
        #: end by which the walk enters each piece, or `AT_ROOT`
        self.entry = np.full(parts.tip.size, AT_ROOT)
        if parts.skeleton.size or entries.end.size:
            known = entries.end, trees.end_row, self.key
            enter_tips(parts.tip, parts.skeleton, parts.first_end, *known, self.entry)

    def split_skeleton(self, chosen: Any) -> None:
        """Put the vectors of limbs in X, and hand vectors down the chosen latents of the skeleton."""
        self.X[self.trees.stand.limb["first"]] = self.entries.vector
        skeleton = self.trees.expansion.skeleton[chosen]
        if skeleton.size:
            rows = skeleton["first"].copy(), skeleton["first"] + skeleton["left"]
            gaussians.split_skeleton(skeleton["parent"].copy(), skeleton["path"].copy(), *rows, self.X, self.key)

    def walk_pieces(self, lo: int, hi: int) -> None:
        """Fill the rows of pieces lo … hi - 1."""
        trees, measures = self.trees, (self.recipe.step, self.scale, self.has_origin)
        columns = trees.left_size, trees.bond, trees.end_row
        walk_pieces(lo, hi, trees.expansion.tip, self.entry, *columns, self.X, self.key, *measures)

    def anchors(self, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the anchors of these pieces, which must be all that the walk passes on the way to them."""
        parts = self.trees.expansion
        tops = np.flatnonzero(parts.skeleton["parent"] == -1)
        origin_of = np.full(parts.skeleton.size, -1)
        origin_of[tops] = np.arange(tops.size)
        origin = np.zeros((tops.size if self.has_origin else 0, self.recipe.dim), np.int64)
        origin_anchors(parts.skeleton["path"][tops], self.key, self.scale, origin)
        anchor = np.zeros((inside.size, self.recipe.dim), np.int64)
        known = self.entry, parts.first_end
        start_anchors(parts.tip, parts.skeleton, inside, *known, self.entries.anchor, origin_of, origin, anchor)
        follow_anchors(parts.tip, inside, *known, self.trees.end_row, self.X, anchor)
        return anchor


# ---------------------------------------------------------------------- directions drawn again
#
# Directions of native data, drawn again: for one latent and all below it, from any seed.
# A latent's Gaussian is a function of the embed seed and of its path, so the vector of any node follows from the way
# down to it, and the directions below it can be drawn from another seed without the rest.


def walk_root(recipe: Recipe, forest: Forest, cluster: int) -> int:
    """Return the row at which the walk of a cluster starts. Time: one search for the founder, then the row's depth."""
    first, stop = (int(edge) for edge in forest.cluster_start[cluster : cluster + 2])
    path = _top_path(forest, cluster)
    key = np.uint64(recipe.seeds.embed)
    return first + int(choose_root(first - cluster, stop - first, path, forest.left_size, key))


def vector_below(recipe: Recipe, forest: Forest, cluster: int, sides: Ints, seeds: Words) -> NDArray[Any]:
    """Return the unit vector of the node reached from the top of a cluster, left (0) or right (1) at each latent.

    `seeds` are the seeds of the splits on the way, one per entry of `sides`.
    """
    X = np.empty((2, recipe.dim), recipe.dtype)
    _follow(X, _top_path(forest, cluster), sides, np.uint64(recipe.seeds.embed), seeds)
    return np.asarray(X[0])


def turned_directions(forest: Forest, latent: int, vector: NDArray[Any], seed: int) -> NDArray[Any]:
    """Return the unit vectors of the rows of a latent, given its own vector, with all splits drawn from `seed`."""
    X = np.empty((forest.latent_size[latent], vector.size), vector.dtype)
    X[0] = vector
    latents = slice(latent, latent + len(X) - 1)
    left = forest.latent_start[latents] - forest.latent_start[latent]
    right, (paths, _) = left + forest.left_size[latents], node_paths(forest)
    draws = gaussians.draw_work(vector.size)
    gaussians.split_vectors(paths[latents], left, right, left.size, X, np.uint64(seed), draws)
    return X


def _top_path(forest: Forest, cluster: int) -> np.uint64:
    """Return the path of a cluster's top: it follows from the point that started the cluster, the first to be born."""
    founder = forest.point_id[slice(*forest.cluster_start[cluster : cluster + 2])].min()
    return np.uint64(philox.cluster_path(founder))


@kernel
def _follow(X, path, sides, key, keys):
    """Put the vector of a node in the first row of X, by the splits from the top of its cluster."""
    draws = gaussians.draw_work(X.shape[1])
    paths, rows, others = np.full(1, path, np.uint64), np.zeros(1, np.int64), np.ones(1, np.int64)
    gaussians.unit_vectors(paths, rows, 1, X, philox.VECTOR, key, draws)
    for k in range(sides.size):
        gaussians.split_vectors(paths, rows, others, 1, X, keys[k], draws)
        if sides[k]:
            X[0] = X[1]
        left_path, right_path = philox.child_paths(paths[0])
        paths[0] = right_path if sides[k] else left_path


# ---------------------------------------------------------------------- names of nodes


def node_paths(forest: Forest) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the path of every latent and of every point of a native forest, in linear time.

    A path identifies a node whatever the size of the dataset: in a dataset of the same seeds with more points, the
    latents of the smaller dataset have the same paths and values, and each of its points is the point or the latent
    with the same path. Paths are 64-bit hashes: the probability that two nodes of a dataset of n points share a path is
    below n²/2^64.
    """
    latent_path, point_path = np.empty(forest.n_latents, np.uint64), np.empty(forest.n_points, np.uint64)
    start, size = forest.latent_start, forest.latent_size
    _name_nodes(forest.cluster_start, forest._founders, forest.left_size, start, size, latent_path, point_path)
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
