"""The walk through the trees of a stand: the steps of `positions`, in order, on all threads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines.native import directions, positions
from percolab.engines.native.trees import Trees
from percolab.ground import parallel
from percolab.ground.progress import Progress
from percolab.model.recipe import Recipe
from percolab.rng.philox import seed_key


@dataclass(frozen=True, eq=False)
class Entries:
    """Where the walk enters each limb of a stand, and what is known of it there."""

    end: NDArray[np.int64]
    """(J,) end of the bond by which it enters, or `positions.AT_ROOT`"""
    vector: NDArray[Any]
    """(J, d) unit vector of the limb's top"""
    anchor: NDArray[np.int64]
    """(J, d) where it comes from, in units of `positions.UNIT`"""

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
        parallel.run([(positions.shift, (lo, hi, *rest)) for lo, hi in pairwise(edges)], threads)
    return X


class Walk:
    """The steps that turn a stand's trees into positions in X; rows of X that it does not pass are left alone."""

    def __init__(self, recipe: Recipe, trees: Trees, entries: Entries, X: NDArray[Any]) -> None:
        self.recipe, self.trees, self.entries, self.X = recipe, trees, entries, X
        self.key, self.scale = seed_key(recipe.seeds.embed), np.sqrt(recipe.dim)
        self.has_origin = recipe.mode != "one_cluster"
        parts = trees.expansion
        self.entry = np.full(parts.tip.size, positions.AT_ROOT)
        """end by which the walk enters each piece, or `positions.AT_ROOT`"""
        if parts.skeleton.size or entries.end.size:
            known = entries.end, trees.end_row, self.key
            positions.enter_tips(parts.tip, parts.skeleton, parts.first_end, *known, self.entry)

    def split_skeleton(self, chosen: Any) -> None:
        """Put the vectors of limbs in X, and hand vectors down the chosen latents of the skeleton."""
        self.X[self.trees.stand.limb["first"]] = self.entries.vector
        skeleton = self.trees.expansion.skeleton[chosen]
        if skeleton.size:
            rows = skeleton["first"].copy(), skeleton["first"] + skeleton["left"]
            directions.split_skeleton(skeleton["parent"].copy(), skeleton["path"].copy(), *rows, self.X, self.key)

    def walk_pieces(self, lo: int, hi: int) -> None:
        """Fill the rows of pieces lo … hi - 1."""
        trees, measures = self.trees, (self.recipe.step, self.scale, self.has_origin)
        columns = trees.left_size, trees.bond, trees.end_row
        positions.walk_pieces(lo, hi, trees.expansion.tip, self.entry, *columns, self.X, self.key, *measures)

    def anchors(self, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the anchors of these pieces, which must be all that the walk passes on the way to them."""
        parts = self.trees.expansion
        tops = np.flatnonzero(parts.skeleton["parent"] == -1)
        origin_of = np.full(parts.skeleton.size, -1)
        origin_of[tops] = np.arange(tops.size)
        origin = np.zeros((tops.size if self.has_origin else 0, self.recipe.dim), np.int64)
        positions.origin_anchors(parts.skeleton["path"][tops], self.key, self.scale, origin)
        anchor = np.zeros((inside.size, self.recipe.dim), np.int64)
        known = self.entry, parts.first_end
        positions.start_anchors(
            parts.tip, parts.skeleton, inside, *known, self.entries.anchor, origin_of, origin, anchor
        )
        positions.follow_anchors(parts.tip, inside, *known, self.trees.end_row, self.X, anchor)
        return anchor
