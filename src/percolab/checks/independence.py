"""Independent parts of a forest, on which p-values are based.

The points of one cluster are strongly dependent: a cluster's tree is a single draw, however many points it has. But
cutting a bond of a uniform tree leaves two trees that are independent and uniform given their points. So latents that
do not contain each other, chosen from the top down by size alone, are independent uniform trees of their sizes, each
with a merger tree of the same law. One cluster of 200,000 points holds thousands of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset, construct
from percolab.engines.native import positions
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.model.edits import Edit, Move, Shift
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.model.target import Target

SMALLEST_BLOCK, LARGEST_BLOCK = 16, 1024  #: Fewest and most points of a block.
FEWEST_BLOCKS = 100  #: Fewest blocks that a law is tested on.
MOST_ENTRIES = 150_000_000  #: Most entries of X that are read; in a larger dataset, some clusters and latents are read.
#: Rounding errors allowed in a vector between two points, in units of the type's precision at the size of X.
ROUNDING = 64
SEED = 20_240_611  #: Seed of the choices that checks make, with the recipe: the same data always get the same verdict.


@dataclass(frozen=True, eq=False)
class Blocks:
    """Latents that do not contain each other: given their sizes, independent uniform trees."""

    latent: Ints
    start: Ints
    size: Ints

    def __len__(self) -> int:
        return self.latent.size


def blocks(forest: Forest, least: int, most: int) -> Blocks:
    """Return the latents of `least` to `most` points whose parent has more than `most`, or that have no parent."""
    size, parent = forest.latent_size, forest.latent_parent
    above = np.where(parent >= 0, size[parent], np.iinfo(np.int64).max) if size.size else size
    latent = np.flatnonzero((size >= least) & (size <= most) & (above > most))
    return Blocks(latent, forest.latent_start[latent], size[latent])


class Subject:
    """A dataset under examination, with quantities that several checks need."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.recipe = dataset.recipe
        self.forest = dataset.forest

    def choices(self, purpose: str) -> np.random.Generator:
        """Return a generator for the choices of one check of this dataset: which points, which pairs."""
        return np.random.default_rng([SEED, *(zlib.crc32(text.encode()) for text in (self.recipe.to_json(), purpose))])

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks of `SMALLEST_BLOCK` to `LARGEST_BLOCK` points."""
        return blocks(self.forest, SMALLEST_BLOCK, LARGEST_BLOCK)

    @cached_property
    def pairs(self) -> tuple[Blocks, Ints, Ints]:
        """Two distinct random points of every block, and their graph distance."""
        chosen, rng = self.blocks, self.choices("pairs")
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
    def moves(self) -> list[Edit]:
        """Edits that change bonds: a `Move` changes one bond, a `Shift` all bonds that lead into a latent or out of it.

        Empty for a subsample, whose edits were made to the dataset that it was taken from.
        """
        whole = self.dataset.source_row is None
        return [edit for edit in self.recipe.edits if whole and isinstance(edit, Shift | Move)]

    @cached_property
    def unmoved(self) -> NDArray[np.floating]:
        """(n, d) X as the recipe makes it without shifts and moves. Turns stay: their steps have the same law."""
        return _positions(self.recipe, [edit for edit in self.recipe.edits if edit not in self.moves])

    @cached_property
    def added(self) -> Floats | None:
        """(n, d) the displacement that shifts and moves added to X; None if there are no such edits."""
        return _positions(self.recipe, self.recipe.edits) - np.float64(self.unmoved) if self.moves else None

    @property
    def precision(self) -> float:
        """Precision of the type of X."""
        return float(np.finfo(self.part.X.dtype).eps)

    def granted(self, reach: Floats) -> Floats:
        """Return the rounding error allowed in vectors between points this far from 0, in units of a bond's length."""
        unit = self.recipe.step * np.sqrt(self.recipe.dim)
        slack = 0.0 if self.added is None else np.linalg.norm(self.added, axis=1).max(initial=0.0) / unit
        # The native engine moves pieces of a cluster by multiples of a unit, which is visible in double precision.
        return np.asarray(ROUNDING * self.precision * (1 + reach + slack) + positions.UNIT / self.recipe.step)

    @property
    def largest(self) -> tuple[int, NDArray[np.floating] | None]:
        """The size of the largest cluster, and its rows of X if they were read."""
        size = int(self.forest.cluster_size[0]) if self.forest.n_clusters else 0
        first, last = self.part.place(np.array([0, max(size - 1, 0)])) if size else (-1, -1)
        return size, self.part.X[first : last + 1] if min(first, last) >= 0 else None

    @cached_property
    def part(self) -> Part:
        """The positions that are read, without the displacements of moves: all bonds must then have the same length."""
        part = Part.of(self.dataset, MOST_ENTRIES)
        if self.added is None:
            return part
        return replace(part, X=(part.X - self.added[part.rows]).astype(part.X.dtype))


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of X that are closed under bonds: all, or some clusters and latents of a dataset too large to read."""

    start: Ints  #: (m,) first rows of the intervals read
    stop: Ints  #: (m,) rows after the last of the intervals
    X: NDArray[np.floating]  #: their rows, interval after interval

    @classmethod
    def of(cls, dataset: Dataset, most_entries: int) -> Part:
        """Read all of X, or random parts of it that have at most this many entries."""
        n, d = dataset.X.shape
        if n * d <= most_entries:
            return cls(np.zeros(1, np.int64), np.array([n]), np.asarray(dataset.X))
        rows = most_entries // d
        parts = blocks(dataset.forest, 1, max(2, rows // 8))
        order = np.random.default_rng(SEED).permutation(len(parts))
        order = np.sort(order[np.cumsum(parts.size[order]) <= rows])
        start, stop = parts.start[order], parts.start[order] + parts.size[order]
        X = np.concatenate([np.asarray(dataset.X[lo:hi]) for lo, hi in zip(start, stop, strict=True)])
        return cls(start, stop, X)

    @property
    def rows(self) -> Ints:
        """The rows of the dataset that were read."""
        return np.concatenate([np.arange(lo, hi) for lo, hi in zip(self.start, self.stop, strict=True)])

    def place(self, rows: Ints) -> Ints:
        """Return the place of rows of the dataset in `X`, -1 for rows not read."""
        offset = np.concatenate([[0], np.cumsum(self.stop - self.start)])[:-1]
        at = np.searchsorted(self.start, rows, side="right") - 1
        inside = (at >= 0) & (rows < self.stop[at])
        return np.where(inside, rows - self.start[at] + offset[at], -1)


def _positions(recipe: Recipe, edits: Sequence[Edit]) -> NDArray[np.floating]:
    """Return X as a recipe makes it with these edits."""
    return np.asarray(construct(replace(recipe, edits=tuple(edits), target=Target())).X)


@kernel
def _sum_distances(depth, above, total):
    """Fill the sum of distances to all points, by place in the walk from the first row of a cluster.

    Crossing a bond away from that row, to a point with k points on its side, brings k points one bond closer and the
    other s - k points one bond further away.
    """
    size = depth.size
    below = np.ones(size, np.int64)
    for at in range(size - 1, 0, -1):
        below[above[at]] += below[at]
    total[0] = depth.sum()
    for at in range(1, size):
        total[at] = total[above[at]] + size - 2 * below[at]
