"""The truth behind samples: one hierarchy, and the row of it that each sample has, for every kind of dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.model.forest import Forest
from percolab.worlds.superposed import Superposed

AnyDataset = Dataset | Superposed
"""What has samples, targets and truths."""


@dataclass(frozen=True, eq=False)
class Truth:
    """One hierarchy behind the samples of a dataset: sample i is row ``rows[i]`` of `forest`."""

    dataset: Dataset
    """the percolation dataset that the hierarchy is of; in a superposed world, a factor"""
    rows: NDArray[np.int64]
    """(n,) the row of it that each sample has: repeats are possible, and rows that no sample has"""

    @property
    def forest(self) -> Forest:
        """Its clusters, points, bonds and latents."""
        return self.dataset.forest

    @property
    def latent_z(self) -> NDArray[np.float64]:
        """(n_latents,) value of every latent."""
        return self.dataset.latent_z

    @property
    def point_z(self) -> NDArray[np.float64]:
        """(n_points,) value of every point, by row of the forest."""
        return self.dataset.point_z

    @property
    def y(self) -> NDArray[np.float64]:
        """(n_points,) targets of the hierarchy itself, by row of the forest."""
        return self.dataset.y

    @cached_property
    def in_order(self) -> bool:
        """Whether sample i is row i: the samples of a latent are then a slice, that of `Forest.points_of`."""
        return self.rows.size == self.forest.n_points and bool((self.rows == np.arange(self.rows.size)).all())

    def samples_of(self, latent: int) -> NDArray[np.int64]:
        """Return the samples whose point is below a latent, in increasing order."""
        below = self.forest.points_of(latent)
        if self.in_order:
            return np.arange(below.start, below.stop)
        return np.flatnonzero((self.rows >= below.start) & (self.rows < below.stop))

    def latent_at_depth(self, depth: int) -> NDArray[np.int64]:
        """Return, for every sample, the latent of its point at this depth, or -1 where it has none."""
        return self.forest.latent_at_depth(depth)[self.rows]


def truth(dataset: AnyDataset, factor: int | None = None) -> Truth:
    """Return the hierarchy behind a dataset, or behind one factor of a superposed world, by sample.

    Parameters
    ----------
    dataset
        A dataset or a world.
    factor
        Which factor of a world; it may be left out where there is one hierarchy.
    """
    if isinstance(dataset, Superposed):
        k = dataset.recipe.check_factor(factor)
        return Truth(dataset.factors[k], dataset.rows[:, k])
    if factor is not None and factor != 0:
        raise ValueError(f"factor must be 0 or left out for a dataset of one hierarchy, got {factor!r}")
    return Truth(dataset, np.arange(dataset.forest.n_points))
