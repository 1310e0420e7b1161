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

from percolab.checks.moves import Moved, moves, reach
from percolab.dataset.dataset import Dataset
from percolab.ground.compiled import kernel
from percolab.model.edits import Move, Shift
from percolab.model.forest import Forest

Ints = NDArray[np.int64]

BLOCK = 1024
"""Most points of a block."""
MOST_ENTRIES = 150_000_000
"""Entries of X that are read; of a larger dataset, some clusters and latents."""
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
        words = (self.recipe.to_json(), purpose)
        return np.random.default_rng([SEED, *(zlib.crc32(word.encode()) for word in words)])

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks of at most `BLOCK` points."""
        return blocks(self.forest, BLOCK)

    @cached_property
    def rooted(self) -> tuple[Ints, Ints]:
        """Parent (-1 at the first row of each cluster) and height above it of every point, along bonds."""
        parent, height = np.empty(self.forest.n_points, np.int64), np.empty(self.forest.n_points, np.int64)
        _root(self.forest.cluster_start, self.forest.bond, parent, height)
        return parent, height

    @cached_property
    def pairs(self) -> tuple[Blocks, Ints, Ints]:
        """Two distinct random points of every block of at least 16 points, and their graph distance."""
        chosen, rng = self.blocks.of_size(16), self.choices("pairs")
        first = rng.integers(chosen.size)
        second = rng.integers(chosen.size - 1)
        second += second >= first
        pair = np.column_stack([chosen.start + first, chosen.start + second])
        return chosen, pair, self.distances(pair)

    def distances(self, pair: Ints) -> Ints:
        """Return the graph distance of each pair of points of the same cluster."""
        distance = np.empty(len(pair), np.int64)
        _distances(*self.rooted, pair, distance)
        return distance

    @cached_property
    def moved(self) -> list[Moved]:
        """What edits moved: the edits of a subsample were made to what it was taken from."""
        has_moves = any(isinstance(edit, Shift | Move) for edit in self.recipe.edits)
        return moves(self.dataset, self.rooted) if has_moves and self.dataset.source_row is None else []

    @property
    def slack(self) -> float:
        """What moves add to the size of numbers that were rounded, as a length."""
        return reach(self.recipe) + sum(moved.slack for moved in self.moved)

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


# ---------------------------------------------------------------------- trees along bonds


@kernel
def _root(cluster_start, bond, parent, height):
    """Fill parent and height of every point, breadth first from the first row of each cluster."""
    n = parent.size
    offset = np.zeros(n + 2, np.int64)
    for i in range(bond.shape[0]):
        offset[bond[i, 0] + 2] += 1
        offset[bond[i, 1] + 2] += 1
    for r in range(2, n + 2):
        offset[r] += offset[r - 1]
    neighbour = np.empty(2 * bond.shape[0], np.int64)
    for i in range(bond.shape[0]):
        for side in range(2):
            r = bond[i, side]
            neighbour[offset[r + 1]] = bond[i, 1 - side]
            offset[r + 1] += 1
    queue = np.empty(n, np.int64)
    for c in range(cluster_start.size - 1):
        head, tail = 0, 1
        queue[0] = cluster_start[c]
        parent[queue[0]], height[queue[0]] = -1, 0
        while head < tail:
            r = queue[head]
            head += 1
            for j in range(offset[r], offset[r + 1]):
                to = neighbour[j]
                if to != parent[r]:
                    parent[to], height[to] = r, height[r] + 1
                    queue[tail] = to
                    tail += 1


@kernel
def _distances(parent, height, pair, distance):
    """Fill the graph distance of each pair of points of the same cluster, by climbing to where their paths meet."""
    for i in range(pair.shape[0]):
        a, b = pair[i, 0], pair[i, 1]
        steps = 0
        while a != b:
            if height[a] < height[b]:
                a, b = b, a
            a = parent[a]
            steps += 1
        distance[i] = steps


@kernel
def distance_sums(parent, height, start, stop):
    """Return, for the points of one cluster, how many points hang on each, and the sum of its distances to all.

    Crossing a bond away from the root, to a point with k points on it, brings k points closer and takes s - k away.
    """
    size = stop - start
    below, total = np.ones(size, np.int64), np.zeros(size, np.float64)
    levels = np.zeros(size + 1, np.int64)
    for r in range(start, stop):
        levels[height[r] + 1] += 1
        total[0] += height[r]
    for h in range(1, size + 1):
        levels[h] += levels[h - 1]
    order = np.empty(size, np.int64)
    for r in range(start, stop):
        order[levels[height[r]]] = r
        levels[height[r]] += 1
    for i in range(size - 1, 0, -1):
        below[parent[order[i]] - start] += below[order[i] - start]
    for i in range(1, size):
        r = order[i]
        total[r - start] = total[parent[r] - start] + size - 2 * below[r - start]
    return below, total
