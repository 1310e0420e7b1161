"""Datasets: positions, targets and the complete ground truth, with the recipe that makes them again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from percolab.ground.validation import check_integer
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe

if TYPE_CHECKING:
    from percolab.store.arrays import StoredArray


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points in R^d on percolation clusters, a target per point, and everything that produced them.

    Rows are in leaf order: see `Forest`. Use `release_order` for the row order of the authors' release, and shuffle
    before a split by rows, since neighbouring rows are relatives.
    """

    recipe: Recipe
    """what makes this dataset again"""
    forest: Forest
    """clusters, points, bonds and latents"""
    X: NDArray[Any] | StoredArray
    """(n, d) positions, float32 or float64; in a loaded dataset they stay on disk until indexed"""
    y: NDArray[np.float64]
    """(n,) targets"""
    latent_z: NDArray[np.float64]
    """(n-C,) value of every latent"""
    point_z: NDArray[np.float64]
    """(n,) value of every point"""
    provenance: dict[str, Any]
    """versions, platform and time of making"""

    @classmethod
    def lazy(cls, read: Callable[[str], Any]) -> Self:
        """Return a dataset whose fields are read by name when first asked for."""
        dataset = object.__new__(cls)
        object.__setattr__(dataset, "_read", read)
        return dataset

    def __getattr__(self, name: str) -> Any:
        # Reached only when a field is not there yet, which happens in lazy datasets alone.
        read = self.__dict__.get("_read")
        if read is None or name not in {field.name for field in fields(type(self))}:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__[name] = read(name)
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(field.name for field in fields(type(self)))})

    def __getstate__(self) -> dict[str, Any]:
        # A loaded dataset travels by its path: what was read of it is read again where it arrives.
        read = self.__dict__.get("_read")
        return dict(self.__dict__) if read is None else {"_read": read}

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"Dataset({n:,} points in R^{d}, mode={self.recipe.mode!r}, engine={self.recipe.engine!r})"

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def release_order(self) -> NDArray[np.int64]:
        """(n,) ``X[release_order]`` has the row order of the authors' release: by cluster, then by birth."""
        return self.forest.release_order

    def filter(self, min_cluster_size: int) -> Dataset:
        """Return the clusters of at least this many points: what the recipe with that `min_cluster_size` makes.

        They are the first rows. Of a loaded dataset, X stays on disk.
        """
        least = max(check_integer("min_cluster_size", min_cluster_size, 1), self.recipe.min_cluster_size)
        forest = self.forest.largest(int(np.count_nonzero(self.forest.cluster_size >= least)))
        return Dataset(
            recipe=replace(self.recipe, min_cluster_size=least),
            forest=forest,
            X=self.X[: forest.n_points] if isinstance(self.X, np.ndarray) else self.X.first(forest.n_points),
            y=self.y[: forest.n_points],
            latent_z=self.latent_z[: forest.n_latents],
            point_z=self.point_z[: forest.n_points],
            provenance=self.provenance,
        )

    def in_memory(self) -> Dataset:
        """Return the same dataset with every array read into memory."""
        return replace(self, X=np.asarray(self.X))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, sync: bool = True) -> None:
        """Write the dataset to a Zarr store. What is at `path` stays unless this succeeds.

        Parameters
        ----------
        path
            A path, or a URL that fsspec knows. Where it is a link, what it leads to is written.
        overwrite
            Replace a dataset that is there, in one step, once this one is complete. Nothing else is ever replaced.
        sync
            Have everything on the disk before the dataset is at its path, so that not even a power cut leaves half.
        """
        _SAVE[0](self, path, overwrite=overwrite, sync=sync)


class Save(Protocol):
    """Writes a dataset to a path or a URL."""

    def __call__(self, dataset: Dataset, path: str | os.PathLike[str], *, overwrite: bool, sync: bool) -> None:
        """Write it."""


_SAVE: list[Save] = []


def save_with(save: Save) -> None:
    """Take what `Dataset.save` calls: the store is built on datasets, so it comes to them and not they to it."""
    _SAVE[:] = [save]
