"""Clusters too large to be made at once: cut into limbs, with all that joins the limbs solved once.

A cluster of more than `limb_rows` points is split until its parts have at most that many: these are its *limbs*, the
latents above them the *crown*. A limb can be made alone, given what comes from above: its path and depth, the sum of z,
its top's unit vector, the ends of the crown's bonds that fall into it, and the anchor from which the walk enters.

Anchors need the walk to be followed through every limb, from where it enters to where it leaves: only the pieces on
those ways are grown, about two thirds of the rows. So the limbs of a cluster are solved once, by one machine, in a
third of the time that making it takes, and then made anywhere, in any order.
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
from percolab.engines.clusters import ClusterTable, batches
from percolab.engines.native import engine, pieces, positions, skeleton
from percolab.engines.native.engine import Entries, Grown, Walk, seed_key
from percolab.engines.native.skeleton import FIRST, LATENT, LEFT, PARENT, SIZE, TOKENS, Pieces, Stand
from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.ground.progress import Progress
from percolab.model.recipe import Recipe

MOST_ROWS, LEAST_ROWS = 1 << 16, 1 << 12
LIMB_BYTES = 1 << 26
"""Positions of a limb take at most this many bytes, unless that leaves too few rows. Limbs are no part of the
definition of the data: any size that holds a piece gives the same bytes."""


def limb_rows(recipe: Recipe) -> int:
    """Return the most points of a limb."""
    rows = LIMB_BYTES // (recipe.dim * np.dtype(recipe.dtype).itemsize)
    return min(MOST_ROWS, max(LEAST_ROWS, 1 << max(0, rows.bit_length() - 1)))


@dataclass(frozen=True, eq=False)
class Crown:
    """The limbs of the largest clusters of a dataset, in row order, and the latents above them, solved."""

    parts: Pieces
    """limbs, in place of pieces, and the latents above them; the bond of latent s has the places 2s and 2s + 1"""
    ends: NDArray[np.int64]
    """(2S,) rows where the bonds of these latents end, by place"""
    entry: NDArray[np.int64]
    """(J,) place by which the walk enters each limb, or `positions.AT_ROOT`"""
    z: NDArray[np.float64]
    """(S,) values of these latents"""
    limb_above: NDArray[np.float64]
    """(J,) sum of z above each limb"""
    vector: NDArray[Any]
    """(J, d) unit vector of each limb's top"""
    anchor: NDArray[np.int64]
    """(J, d) anchor of each limb, in units of `positions.UNIT`"""

    @property
    def n_rows(self) -> int:
        """Number of rows in limbs: they are the first of the dataset."""
        limb = self.parts.piece
        return int(limb[-1, FIRST] + limb[-1, SIZE]) if len(limb) else 0

    def stand(self, lo: int, hi: int, start: NDArray[np.int64], founder: NDArray[np.int64]) -> tuple[Stand, Entries]:
        """Return the limbs lo … hi - 1, and whole clusters after them, as a stand.

        `start` counts the clusters' rows from the first row of the stand.
        """
        parts = self.parts
        n_rows = int(start[-1])
        n_latents = n_rows - (hi - lo) - founder.size
        limb = parts.piece[lo:hi].copy()
        first_token = parts.piece[lo - 1, TOKENS] if lo > 0 else 0
        end_token = limb[-1, TOKENS] if hi > lo else first_token
        token = parts.entering[first_token:end_token].copy()
        limb[:, TOKENS] -= first_token
        if hi > lo:
            limb[:, FIRST] -= limb[0, FIRST]
        limb[:, LATENT] = limb[:, FIRST] - np.arange(hi - lo)
        limb_of_token = np.searchsorted(limb[:, TOKENS], np.arange(len(token)), side="right")
        is_entry = token[:, 1].astype(np.int64) == self.entry[lo:hi][limb_of_token]
        place = np.full(hi - lo, positions.AT_ROOT)
        place[limb_of_token[is_entry]] = 2 * n_latents + np.flatnonzero(is_entry)
        token[:, 1] = 2 * n_latents + np.arange(len(token))
        stand = Stand(limb, parts.piece_path[lo:hi], token, start, founder)
        return stand, Entries(place, self.vector[lo:hi], self.anchor[lo:hi])


def cut(recipe: Recipe, table: ClusterTable, threads: int, report: Progress) -> Crown:
    """Cut the clusters of a table that are too large into limbs, and solve them.

    Time about a third of what making these clusters takes. Memory 12 d + 150 bytes for each limb; a cluster of n points
    has about 0.8 n/√`limb_rows` of them.
    """
    most, start = limb_rows(recipe), table.start
    large = bisect(range(start.size - 1), False, key=lambda c: start[c + 1] - start[c] <= most)
    clusters = Stand.of_clusters(start[: large + 1], table.founder_of(0, large))
    crown = _unsolved(recipe, skeleton.expand(clusters, seed_key(recipe.seeds.graph), most, base=0))
    if large:
        way = _solve(recipe, crown, threads, report)
        if recipe.mode != "one_cluster":
            crown.anchor[crown.entry == positions.AT_ROOT] = _origins(recipe, crown.parts)
        _add_up(crown.parts.piece, crown.entry, crown.ends, way, crown.anchor)
    return crown


def _unsolved(recipe: Recipe, parts: Pieces) -> Crown:
    """Return what is known before limbs are looked into: of bonds only the limbs where they end, and no anchors."""
    limb, latents, path = parts.piece, parts.skeleton, parts.skeleton_path
    ends, entry = np.empty(parts.n_places, np.int64), np.full(len(limb), positions.AT_ROOT)
    above = np.zeros(len(latents) + 1)
    z = engine.value_skeleton(latents, path, seed_key(recipe.seeds.value), above)
    vector = np.empty((len(limb), recipe.dim), recipe.dtype)
    if len(latents):
        key = seed_key(recipe.seeds.embed)
        skeleton.land(limb, parts.entering, ends)
        positions.enter_pieces(limb, latents, path, parts.base, np.empty(0, np.int64), ends, key, entry)
        first = np.searchsorted(limb[:, FIRST], latents[:, FIRST])
        middle = np.searchsorted(limb[:, FIRST], latents[:, FIRST] + latents[:, LEFT])
        positions.open_skeleton(latents[:, PARENT], path, first, middle, vector, key)
    return Crown(parts, ends, entry, z, above[limb[:, PARENT]], vector, np.zeros((len(limb), recipe.dim), np.int64))


def _origins(recipe: Recipe, parts: Pieces) -> NDArray[np.int64]:
    """Return the origins of the clusters, in units of anchors, in the order of the limbs in which their walks start."""
    tops = np.flatnonzero(parts.skeleton[:, PARENT] == -1)
    origin = np.empty((tops.size, recipe.dim), np.int64)
    key, scale = seed_key(recipe.seeds.embed), np.sqrt(recipe.dim)
    positions.draw_origins(parts.skeleton_path[tops], key, scale, origin)
    return origin


@kernel
def _add_up(limb, entry, ends, way, anchor):
    """Fill the anchors of limbs from each other: where the walk enters a limb less where it entered the one before."""
    before, order = np.empty(entry.size, np.int64), np.empty(entry.size, np.int64)
    starts = limb[:, FIRST].copy()
    for i in range(entry.size):
        before[i] = -1 if entry[i] < 0 else np.searchsorted(starts, ends[entry[i] ^ 1], side="right") - 1
    embedding.walk_order(before, order, np.empty(entry.size, np.bool_))
    for i in order:
        if before[i] >= 0:
            for j in range(anchor.shape[1]):
                anchor[i, j] = anchor[before[i], j] + way[entry[i] >> 1, j]


# ---------------------------------------------------------------------- ways through limbs


def _solve(recipe: Recipe, crown: Crown, threads: int, report: Progress) -> NDArray[np.int64]:
    """Fill the rows where the crown's bonds end; return, for each, how far the end it leaves by is from the anchor."""
    limb = crown.parts.piece
    way = np.empty((len(crown.parts.skeleton), recipe.dim), np.int64)
    most = limb_rows(recipe)
    scratch: SimpleQueue[NDArray[Any]] = SimpleQueue()
    for _ in range(threads):
        scratch.put(np.empty((most, recipe.dim), recipe.dtype))
    runs = batches(limb[:, SIZE], most)
    tasks = [(partial(_follow_with, scratch), (recipe, crown, lo, hi, way)) for lo, hi in runs]
    marks = [int(limb[hi - 1, FIRST] + limb[hi - 1, SIZE]) for _, hi in runs]
    parallel.run(tasks, threads, parallel.counter(report, "limbs", marks))
    return way


def _follow_with(scratch: SimpleQueue[NDArray[Any]], *arguments: Any) -> None:
    X = scratch.get()
    try:
        _follow(X, *arguments)
    finally:
        scratch.put(X)


def _follow(X: NDArray[Any], recipe: Recipe, crown: Crown, lo: int, hi: int, way: NDArray[np.int64]) -> None:
    """Follow the walk through limbs lo … hi - 1, from where it enters each to where it leaves."""
    limb, key = crown.parts.piece, seed_key(recipe.seeds.graph)
    first_row = int(limb[lo, FIRST])
    n_rows = int(limb[hi - 1, FIRST] + limb[hi - 1, SIZE]) - first_row
    stand, entries = crown.stand(lo, hi, np.array([n_rows]), np.empty(0, np.int64))
    grown = Grown.begin(stand, key)
    parts = grown.parts
    walk = Walk(recipe, grown, entries, X[:n_rows])

    first_token = limb[lo - 1, TOKENS] if lo > 0 else 0
    place = crown.parts.entering[first_token : limb[hi - 1, TOKENS], 1].astype(np.int64)
    local = stand.limb_token[:, 1].astype(np.int64)
    leaves = ~np.isin(local, entries.place)
    reached, passed = np.zeros(len(parts.piece), np.bool_), np.zeros(len(parts.piece), np.bool_)
    _mark_ways(parts.piece, walk.entry, parts.base, grown.ends, local, leaves, reached, passed)
    for p in np.flatnonzero(reached):
        pieces.grow(p, p + 1, *grown.grow_pieces(key))
    crown.ends[place] = grown.ends[local] + first_row
    if not leaves.any():
        return
    walk.X[stand.limb[:, FIRST]] = entries.vector
    above = np.zeros(len(parts.skeleton), np.bool_)
    _mark_above(parts.piece, parts.skeleton, passed, above)
    walk.open_skeleton(above)
    inside = np.flatnonzero(passed)
    for p in inside:
        positions.place(p, p + 1, *walk.place_pieces())
    anchor = walk.anchors(inside)
    rows = grown.ends[local[leaves]]
    at = np.searchsorted(parts.piece[inside, FIRST], rows, side="right") - 1
    moved = np.rint(walk.X[rows].astype(np.float64) / positions.UNIT).astype(np.int64)
    way[place[leaves] >> 1] = anchor[at] + moved


@kernel
def _mark_ways(piece, entry, base, ends, local, leaves, reached, passed):
    """Mark the pieces that tokens from above reach, and those on the ways from a limb's entry to where it is left."""
    starts = piece[:, FIRST].copy()
    for t in range(local.size):
        p = np.searchsorted(starts, ends[local[t]], side="right") - 1
        reached[p] = True
        while leaves[t] and not passed[p]:
            reached[p] = passed[p] = True
            if entry[p] >= base:
                p = np.searchsorted(starts, ends[entry[p] ^ 1], side="right") - 1


@kernel
def _mark_above(piece, skeleton, passed, above):
    """Mark the latents of the skeleton above the pieces that are passed."""
    for p in range(passed.size):
        if passed[p]:
            s = piece[p, PARENT]
            while s >= 0 and not above[s]:
                above[s] = True
                s = skeleton[s, PARENT]
