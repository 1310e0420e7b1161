"""Independent parts of a forest, which is what p-values rest on.

The points of one cluster are strongly dependent: a cluster's tree is a single draw, however many points it has. But
cutting a bond of a uniform tree leaves two trees that are independent and uniform given their points. So latents that
do not contain each other, chosen from the top down by size alone, are independent uniform trees of their sizes, each
with its own merger tree of the same law. One cluster of 200,000 points holds thousands of them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.dataset.replay import WALK_ROOT, shift_vector
from percolab.engines import embedding
from percolab.engines.native import positions
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.model.edits import Move, Shift, Turn
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe

LARGEST_BLOCK, FEWEST_BLOCKS = 1024, 100
"""Most points of a block, and the fewest blocks that a law is tried on."""
MOST_ENTRIES = 150_000_000
"""Entries of X that are read; of a larger dataset, some clusters and latents."""
ROUNDING = 64
"""Rounding errors granted to a vector between two points, in units of the type's precision at the size of X."""
SEED = 20_240_611
"""Seed of the choices that checks make, with the recipe: the same data always get the same verdict."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Latents that do not contain each other: given their sizes, independent uniform trees."""

    latent: Ints
    start: Ints
    size: Ints

    def of_size(self, least: int) -> Blocks:
        """Return the blocks of at least this many points."""
        kept = self.size >= least
        return Blocks(self.latent[kept], self.start[kept], self.size[kept])

    def __len__(self) -> int:
        return self.latent.size


def blocks(forest: Forest, largest: int) -> Blocks:
    """Return the latents of at most `largest` points whose parent has more, or that have no parent."""
    size, parent = forest.latent_size, forest.latent_parent
    above = np.where(parent >= 0, size[parent], np.iinfo(np.int64).max) if size.size else size
    latent = np.flatnonzero((size <= largest) & (above > largest))
    return Blocks(latent, forest.latent_start[latent], size[latent])


class Subject:
    """A dataset under examination, with what several checks need."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.recipe = dataset.recipe
        self.forest = dataset.forest

    def choices(self, purpose: str) -> np.random.Generator:
        """Return a generator for the choices of one check of this dataset: which points, which pairs."""
        return np.random.default_rng([SEED, *(zlib.crc32(text.encode()) for text in (self.recipe.to_json(), purpose))])

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks of at most `LARGEST_BLOCK` points."""
        return blocks(self.forest, LARGEST_BLOCK)

    @cached_property
    def pairs(self) -> tuple[Blocks, Ints, Ints]:
        """Two distinct random points of every block of at least 16 points, and their graph distance."""
        chosen, rng = self.blocks.of_size(16), self.choices("pairs")
        first = rng.integers(chosen.size)
        second = rng.integers(chosen.size - 1)
        second += second >= first
        pair = np.column_stack([chosen.start + first, chosen.start + second])
        return chosen, pair, self.forest.distance(*pair.T)

    def distance_sums(self, size: int) -> Floats:
        """Return, for the points of the largest cluster, of this size, the sum of the distances to all others."""
        walk, total = self.forest._walk, np.zeros(size)
        _sum_distances(walk.depth[:size], walk.above, total)
        return total[walk.place[:size]]

    @cached_property
    def moved(self) -> list[Moved]:
        """What edits moved; nothing in a subsample, whose edits were made to the dataset that it was taken from."""
        has_moves = any(isinstance(edit, Shift | Move) for edit in self.recipe.edits)
        return moves(self.dataset) if has_moves and self.dataset.source_row is None else []

    @property
    def precision(self) -> float:
        """Precision of the type of X."""
        return float(np.finfo(self.part.X.dtype).eps)

    def granted(self, reach: Floats) -> Floats:
        """Return what rounding may add to vectors between points this far from 0, all in units of a bond's length."""
        unit = self.recipe.step * np.sqrt(self.recipe.dim)
        slack = (moves_reach(self.recipe) + sum(moved.slack for moved in self.moved)) / unit
        # The native engine puts pieces of a cluster in place by multiples of a unit, which shows in double precision.
        return np.asarray(ROUNDING * self.precision * (1 + reach + slack) + positions.UNIT / self.recipe.step)

    @property
    def largest(self) -> tuple[int, NDArray[np.floating] | None]:
        """The size of the largest cluster, and its rows of X if they were read."""
        size = int(self.forest.cluster_size[0]) if self.forest.n_clusters else 0
        first, last = self.part.place(np.array([0, max(size - 1, 0)])) if size else (-1, -1)
        return size, self.part.X[first : last + 1] if min(first, last) >= 0 else None

    @cached_property
    def part(self) -> Part:
        """The positions that are read, with all moves taken back."""
        part = Part.of(self.dataset, MOST_ENTRIES)
        if not self.moved:
            return part
        X = np.array(part.X, np.float64)
        for moved in self.moved:
            rows = np.flatnonzero(moved.times)
            place = part.place(moved.start + rows)
            X[place[place >= 0]] -= moved.times[rows[place >= 0], None] * moved.shift
        return replace(part, X=X.astype(part.X.dtype))


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of X that are closed under bonds: all, or some clusters and latents of a dataset too large to read."""

    start: Ints
    """(m,) first rows of the intervals read"""
    stop: Ints
    """(m,) and where they end"""
    X: NDArray[np.floating]
    """their rows, interval after interval"""

    @classmethod
    def of(cls, dataset: Dataset, most_entries: int) -> Part:
        """Read all of X, or random parts of it that have at most this many entries."""
        n, d = dataset.X.shape
        if n * d <= most_entries:
            return cls(np.zeros(1, np.int64), np.array([n]), np.asarray(dataset.X))
        rows = most_entries // d
        parts = blocks(dataset.forest, max(2, rows // 8))
        order = np.random.default_rng(SEED).permutation(len(parts))
        order = np.sort(order[np.cumsum(parts.size[order]) <= rows])
        start, stop = parts.start[order], parts.start[order] + parts.size[order]
        X = np.concatenate([np.asarray(dataset.X[lo:hi]) for lo, hi in zip(start, stop, strict=True)])
        return cls(start, stop, X)

    def place(self, rows: Ints) -> Ints:
        """Return where rows of the dataset are in `X`, -1 for those not read."""
        offset = np.concatenate([[0], np.cumsum(self.stop - self.start)])[:-1]
        at = np.searchsorted(self.start, rows, side="right") - 1
        inside = (at >= 0) & (rows < self.stop[at])
        return np.where(inside, rows - self.start[at] + offset[at], -1)


@kernel
def _sum_distances(depth, above, total):
    """Fill the sum of distances to all points, by place in the walk from the first row of a cluster.

    Crossing a bond away from that row, to a point with k points on it, brings k points closer and takes s - k away.
    """
    size = depth.size
    below = np.ones(size, np.int64)
    for at in range(size - 1, 0, -1):
        below[above[at]] += below[at]
    total[0] = depth.sum()
    for at in range(1, size):
        total[at] = total[above[at]] + size - 2 * below[at]


# ---------------------------------------------------------------------- moves taken back
#
# A `Move` lengthens one bond, and a `Shift` all bonds that lead into a latent or out of it. What they added is
# subtracted again, for a move from all rows beyond the bond, so that every bond must have its length and all other laws
# of positions hold. A `Turn` draws steps anew from the same law: nothing needs to be subtracted, and what earlier edits
# added to these steps is gone.


@dataclass(frozen=True, eq=False)
class Moved:
    """What an edit added to the rows of a cluster."""

    start: int
    """first row of the cluster"""
    times: NDArray[np.int8]
    """how often the vector was added to each row, or subtracted"""
    shift: Floats
    slack: float
    """size of the numbers it follows from: rounding is a share of this"""

    def difference(self, near: int, far: int) -> Floats:
        """Return what the edit added to the vector from one row to another."""
        times = [self.times[row - self.start] if 0 <= row - self.start < self.times.size else 0 for row in (near, far)]
        return (times[1] - times[0]) * self.shift


def moves(dataset: Dataset) -> list[Moved]:
    """Return what shifts and moves of a dataset added, the last first, as far as later turns left it."""
    forest, taken = dataset.forest, list[Moved]()
    turned = np.zeros(forest.n_points, np.bool_)
    for edit in reversed(dataset.recipe.edits):
        if isinstance(edit, Turn):
            turned[forest.points_of(edit.latent)] = True
        if not isinstance(edit, Shift | Move):
            continue
        walk = Walk.of(dataset, int(forest.latent_cluster[edit.latent]))
        times = np.zeros(walk.parent.size, np.int8)
        if isinstance(edit, Shift):
            rows = forest.points_of(edit.latent)
            times[rows.start - walk.start : rows.stop - walk.start] = 1
            vector, slack = shift_vector(edit, dataset.recipe.dim), 0.0
        else:
            near, far, times[:] = walk.beyond(*forest.bond[edit.latent])
            vector, slack = _move_vector(dataset, edit, near, far, taken)
        walk.forget(turned, times)
        if times.any():
            taken.append(Moved(walk.start, times, vector, slack))
    return taken


def _move_vector(dataset: Dataset, edit: Move, near: int, far: int, later: list[Moved]) -> tuple[Floats, float]:
    """Return the vector that a move added, from X and what was added later; and the size of what it follows from."""
    shift = np.asarray(edit.by, np.float64)
    if shift.ndim:
        return shift, 0.0
    ends = np.asarray(dataset.X[np.array([near, far])], np.float64)
    vector = ends[1] - ends[0] - sum(moved.difference(near, far) for moved in later)
    grown = float(shift / (1 + shift))
    return grown * vector, abs(grown) * float(np.linalg.norm(ends, axis=1).sum())


def moves_reach(recipe: Recipe) -> float:
    """Return how far moves led away at most, undone ones included: rows were rounded where they were."""
    total, shifted, length = 0.0, 0.0, dict[int, float]()
    for edit in recipe.edits:
        if isinstance(edit, Shift):
            distance = float(np.linalg.norm(edit.by))
            shifted += distance  # by so much any bond may be longer
        elif isinstance(edit, Move):
            bond = length.get(edit.latent, recipe.step * np.sqrt(recipe.dim))
            distance = float(np.linalg.norm(edit.by)) * (1.0 if isinstance(edit.by, tuple) else bond + shifted)
            length[edit.latent] = bond + distance
        else:
            continue
        total += distance
    return total


@dataclass(frozen=True, eq=False)
class Walk:
    """The walk along the bonds of one cluster, as its positions were made; rows are counted from its first row."""

    start: int
    """the cluster's first row"""
    parent: Ints
    """the row before each, -1 at the root"""
    order: Ints
    """rows, parents first"""

    @classmethod
    def of(cls, dataset: Dataset, cluster: int) -> Walk:
        """Return the walk of a cluster."""
        forest = dataset.forest
        start, stop = (int(edge) for edge in forest.cluster_start[cluster : cluster + 2])
        latents = slice(start - cluster, stop - cluster - 1)
        root = WALK_ROOT[dataset.recipe.engine](dataset.recipe, forest, cluster) - start
        work = embedding.walk_work(stop - start)
        order, parent = embedding.plan_walk(start, forest.left_size[latents], forest.bond[latents], root, work)
        return cls(start, parent, order)

    def beyond(self, a: int, b: int) -> tuple[int, int, NDArray[np.bool_]]:
        """Return the near and the far end of a bond, and which rows are beyond it."""
        near, far = (a, b) if self.parent[b - self.start] == a - self.start else (b, a)
        below = np.zeros(self.parent.size, np.bool_)
        _mark_below(self.parent, self.order, far - self.start, below)
        return near, far, below

    def forget(self, turned: NDArray[np.bool_], times: NDArray[np.int8]) -> None:
        """Take out of an edit what was added to the steps of turned rows; a step leads to a row, and the root has none.

        A turn leaves the root where it was, but for its own direction.
        """
        has_step = self.parent >= 0
        steps = times - np.where(has_step, times[self.parent], 0)
        steps[turned[self.start : self.start + self.parent.size] & has_step] = 0
        _add_up(self.parent, self.order, steps, times)


@kernel
def _mark_below(parent, order, at, below):
    """Mark a row and all rows that hang on it, given rows in an order that has parents first."""
    below[at] = True
    for row in order:
        if parent[row] >= 0 and below[parent[row]]:
            below[row] = True


@kernel
def _add_up(parent, order, steps, total):
    """Fill the sum of the steps down to each row, given rows in an order that has parents first."""
    for row in order:
        total[row] = steps[row] + (total[parent[row]] if parent[row] >= 0 else 0)
