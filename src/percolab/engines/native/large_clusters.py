"""Clusters too large to be made at once: they are cut into limbs, and the connections of the limbs are solved once.

A cluster of more than `limb_rows` points is split until its parts have at most that many: these are its *limbs*, and
with the latents above them they are the *crown*. A limb can be made alone, given the following from above: its path
and depth, the sum of z, the unit vector of its top, the tokens of the crown's bonds that fall into it, and the anchor
from which the walk enters.

To find the anchors, the walk is followed through every limb, from where it enters to where it leaves. Only the pieces
on these paths are grown, about two thirds of the rows. So the limbs of a cluster are solved once, by one machine, in
a third of the time that making the cluster takes, and then made anywhere, in any order.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines import embedding
from percolab.engines.clusters import Clusters, batches
from percolab.engines.native import gaussians, positions, skeleton, value_draws
from percolab.engines.native.growth import Trees
from percolab.engines.native.positions import Entries, Walk
from percolab.engines.native.skeleton import Expansion, Records, Stand, end_of, last_at_most
from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.ground.progress import Progress
from percolab.model.recipe import Recipe

MOST_ROWS, LEAST_ROWS = 1 << 16, 1 << 12
#: Positions of a limb take at most this many bytes, unless that leaves too few rows. Limbs are no part of the
#: definition of the data: any size that holds a piece gives the same bytes.
LIMB_BYTES = 1 << 26


def limb_rows(recipe: Recipe) -> int:
    """Return the most points of a limb."""
    rows = LIMB_BYTES // (recipe.dim * np.dtype(recipe.dtype).itemsize)
    return min(MOST_ROWS, max(LEAST_ROWS, 1 << max(0, rows.bit_length() - 1)))


@dataclass(frozen=True, eq=False)
class Crown:
    """The limbs of the largest clusters of a dataset, in row order, and the latents above them, solved."""

    expansion: Expansion  #: its tips are the limbs; the bond of latent s of its skeleton has the ends 2s and 2s + 1
    end_row: NDArray[np.int64]  #: (2S,) row where each end is
    entry: NDArray[np.int64]  #: (J,) end by which the walk enters each limb, or `positions.AT_ROOT`
    z: NDArray[np.float64]  #: (S,) values of the latents above limbs
    limb_above: NDArray[np.float64]  #: (J,) sum of z above each limb
    vector: NDArray[Any]  #: (J, d) unit vector of each limb's top
    anchor: NDArray[np.int64]  #: (J, d) anchor of each limb, in units of `positions.UNIT`

    @property
    def limb(self) -> Records:
        """(J,) the limbs, as tips."""
        return self.expansion.tip

    @property
    def n_rows(self) -> int:
        """Number of rows in limbs: they are the first of the dataset."""
        return end_of(self.limb) if self.limb.size else 0

    def tokens(self, lo: int, hi: int) -> Records:
        """Return the tokens that enter limbs lo … hi - 1."""
        ends = self.limb["tokens_end"]
        return self.expansion.token[ends[lo - 1] if lo > 0 else 0 : ends[hi - 1] if hi > 0 else 0]

    def stand(self, lo: int, hi: int, start: NDArray[np.int64], founder: NDArray[np.int64]) -> tuple[Stand, Entries]:
        """Return the limbs lo … hi - 1, and whole clusters after them, as a stand.

        `start` counts the clusters' rows from the first row of the stand.
        """
        limb, token = self.limb[lo:hi].copy(), self.tokens(lo, hi).copy()
        if hi > lo:
            limb["first"] -= limb["first"][0]
            limb["tokens_end"] -= limb["tokens_end"][-1] - token.size
        limb["latent"] = limb["first"] - np.arange(hi - lo)
        first_end = 2 * (int(start[-1]) - (hi - lo) - founder.size)
        of_limb = np.searchsorted(limb["tokens_end"], np.arange(token.size), side="right")
        is_entry = token["end"] == self.entry[lo:hi][of_limb]
        entry = np.full(hi - lo, positions.AT_ROOT)
        entry[of_limb[is_entry]] = first_end + np.flatnonzero(is_entry)
        token["end"] = first_end + np.arange(token.size)
        return Stand(limb, token, start, founder), Entries(entry, self.vector[lo:hi], self.anchor[lo:hi])


def cut(recipe: Recipe, clusters: Clusters, threads: int, progress: Progress) -> Crown:
    """Cut the clusters that are too large into limbs, and solve them.

    Time about a third of what making these clusters takes. Memory 12 d + 150 bytes for each limb; a cluster of n points
    has about 0.8 n/√`limb_rows` of them.
    """
    most, start = limb_rows(recipe), clusters.start
    large = bisect(range(start.size - 1), False, key=lambda c: start[c + 1] - start[c] <= most)
    stand = Stand.of_clusters(start[: large + 1], clusters.founder_of(0, large))
    crown = _unsolved(recipe, skeleton.expand(stand, np.uint64(recipe.seeds.graph), most, first_end=0))
    if large:
        way = _solve(recipe, crown, threads, progress)
        if recipe.mode != "one_cluster":
            crown.anchor[crown.entry == positions.AT_ROOT] = _origins(recipe, crown.expansion.skeleton)
        _add_up(crown.limb, crown.entry, crown.end_row, way, crown.anchor)
    return crown


def _unsolved(recipe: Recipe, expansion: Expansion) -> Crown:
    """Return a crown before its limbs are grown: for each bond only the limbs where it ends, and no anchors."""
    limb, latents, key = expansion.tip, expansion.skeleton, np.uint64(recipe.seeds.embed)
    end_row, entry = np.empty(expansion.n_ends, np.int64), np.full(limb.size, positions.AT_ROOT)
    above = np.zeros(latents.size + 1)
    z = value_draws.draw_skeleton(latents, np.uint64(recipe.seeds.value), above)
    vector = np.empty((limb.size, recipe.dim), recipe.dtype)
    if latents.size:
        skeleton.land(limb, expansion.token, end_row)
        positions.enter_tips(limb, latents, expansion.first_end, np.empty(0, np.int64), end_row, key, entry)
        sides = latents["first"], latents["first"] + latents["left"]
        rows = (np.searchsorted(limb["first"], side) for side in sides)  # of `vector`
        gaussians.split_skeleton(latents["parent"].copy(), latents["path"].copy(), *rows, vector, key)
    anchor = np.zeros((limb.size, recipe.dim), np.int64)
    return Crown(expansion, end_row, entry, z, above[limb["parent"]], vector, anchor)


def _origins(recipe: Recipe, latents: Records) -> NDArray[np.int64]:
    """Return the origins of the clusters, in units of anchors, in the order of the limbs in which their walks start."""
    paths = latents["path"][latents["parent"] == -1]
    origin = np.empty((paths.size, recipe.dim), np.int64)
    positions.origin_anchors(paths, np.uint64(recipe.seeds.embed), np.sqrt(recipe.dim), origin)
    return origin


@kernel
def _add_up(limb, entry, end_row, way, anchor):
    """Fill the anchors of limbs from each other: where the walk enters a limb less where it entered the limb before."""
    before, first = np.empty(entry.size, np.int64), limb.first.copy()
    for i in range(entry.size):
        before[i] = -1 if entry[i] < 0 else last_at_most(first, end_row[entry[i] ^ 1])
    for i in embedding.order_of(before):
        if before[i] >= 0:
            for j in range(anchor.shape[1]):
                anchor[i, j] = anchor[before[i], j] + way[entry[i] >> 1, j]


# ---------------------------------------------------------------------- ways through limbs


def _solve(recipe: Recipe, crown: Crown, threads: int, progress: Progress) -> NDArray[np.int64]:
    """Fill the rows of the crown's ends; return, for each bond, the displacement from the anchor to its leaving end."""
    limb, most = crown.limb, limb_rows(recipe)
    way = np.empty((crown.expansion.skeleton.size, recipe.dim), np.int64)
    scratch: SimpleQueue[NDArray[Any]] = SimpleQueue()
    for _ in range(threads):
        scratch.put(np.empty((most, recipe.dim), recipe.dtype))
    runs = batches(limb["size"], most)
    tasks = [(partial(_follow_with, scratch), (recipe, crown, lo, hi, way)) for lo, hi in runs]
    parallel.run(tasks, threads, parallel.counter(progress, "limbs", crown.expansion.row_ends(runs)))
    return way


def _follow_with(scratch: SimpleQueue[NDArray[Any]], *arguments: Any) -> None:
    X = scratch.get()
    try:
        _follow(X, *arguments)
    finally:
        scratch.put(X)


def _follow(X: NDArray[Any], recipe: Recipe, crown: Crown, lo: int, hi: int, way: NDArray[np.int64]) -> None:
    """Follow the walk through limbs lo … hi - 1, from where it enters each to where it leaves."""
    key, first_row = np.uint64(recipe.seeds.graph), int(crown.limb[lo]["first"])
    n_rows = end_of(crown.limb[lo:hi]) - first_row
    stand, entries = crown.stand(lo, hi, np.array([n_rows]), np.empty(0, np.int64))
    trees = Trees.begin(stand, key)
    walk = Walk(recipe, trees, entries, X[:n_rows])

    end, local_end = crown.tokens(lo, hi)["end"], stand.token["end"].copy()
    leaves = ~np.isin(local_end, entries.end)
    parts = trees.expansion
    reached, passed = np.zeros((2, parts.tip.size), np.bool_)
    _mark_ways(parts.tip, walk.entry, parts.first_end, trees.end_row, local_end, leaves, reached, passed)
    for p in np.flatnonzero(reached).tolist():
        trees.grow(p, p + 1, key)
    crown.end_row[end] = trees.end_row[local_end] + first_row
    if leaves.any():
        at, rows = np.flatnonzero(passed), trees.end_row[local_end[leaves]]
        way[end[leaves] >> 1] = _walk_ways(walk, at, rows)


def _walk_ways(walk: Walk, passed: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Walk the pieces on the paths to these rows; return the displacements of rows from the anchors of their limbs."""
    parts = walk.trees.expansion
    above = np.zeros(parts.skeleton.size, np.bool_)
    _mark_above(parts.tip, parts.skeleton, passed, above)
    walk.split_skeleton(above)
    for p in passed.tolist():
        walk.walk_pieces(p, p + 1)
    piece = np.searchsorted(parts.tip["first"][passed], rows, side="right") - 1
    inside = np.rint(walk.X[rows].astype(np.float64) / positions.UNIT).astype(np.int64)
    return np.asarray(walk.anchors(passed)[piece] + inside)


@kernel
def _mark_ways(piece, entry, first_end, end_row, end, leaves, reached, passed):
    """Mark the pieces that tokens from above reach, and the pieces on the paths from a limb's entry to its exits."""
    first = piece.first.copy()
    for t in range(end.size):
        p = last_at_most(first, end_row[end[t]])
        reached[p] = True
        while leaves[t] and not passed[p]:
            reached[p] = passed[p] = True
            if entry[p] >= first_end:
                p = last_at_most(first, end_row[entry[p] ^ 1])


@kernel
def _mark_above(piece, skeleton, passed, above):
    """Mark the latents of the skeleton above the pieces that are passed."""
    for p in passed:
        s = piece[p].parent
        while s >= 0 and not above[s]:
            above[s] = True
            s = skeleton[s].parent
