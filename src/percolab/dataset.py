"""Datasets: positions, targets and the complete ground truth, with the recipe that makes them again."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numba
import numpy as np
from numpy.typing import NDArray

from percolab import native, paper, parallel
from percolab.arrays import Arrays, Report, silent
from percolab.forest import Forest
from percolab.recipe import PRESETS, Recipe, check_choice, check_integer

if TYPE_CHECKING:
    from percolab.storage import StoredArray

ENGINES = {"native": native, "paper": paper}
"""The modules that make data, by the name of the engine; each has a `VERSION`."""


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
        """Return the clusters of at least this many points: what the recipe with that `min_cluster_size` makes."""
        least = max(check_integer("min_cluster_size", min_cluster_size, 1), self.recipe.min_cluster_size)
        forest = self.forest.largest(int(np.count_nonzero(self.forest.cluster_size >= least)))
        return Dataset(
            recipe=replace(self.recipe, min_cluster_size=least),
            forest=forest,
            X=self.X[: forest.n_points],
            y=self.y[: forest.n_points],
            latent_z=self.latent_z[: forest.n_latents],
            point_z=self.point_z[: forest.n_points],
            provenance=self.provenance,
        )

    def in_memory(self) -> Dataset:
        """Return the same dataset with every array read into memory."""
        return replace(self, X=np.asarray(self.X))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the dataset to a Zarr store; see `percolab.storage`. What is at `path` stays unless this succeeds."""
        from percolab import storage

        storage.save(self, path, overwrite=overwrite)


def generate(recipe: Recipe | str, *, threads: int | None = None, progress: bool | Report = False) -> Dataset:
    """Make the dataset of a recipe.

    The law: clusters by preferential attachment; in each cluster a uniform random labelled tree and, given the tree, a
    uniform order of its bonds, which defines the latents; positions by a branching random walk along the bonds with
    directions handed down the latents; targets y = Σ z / √(1 + depth). The same recipe gives the same data for any
    number of threads, and NumPy's global random state is not touched.

    Parameters
    ----------
    recipe
        A `Recipe`, or the name of one in `PRESETS`.
    threads
        Number of threads; None takes all cores.
    progress
        True shows a bar; a function is called with (stage, points done, points in all).

    Raises
    ------
    MemoryError
        Before any work, if the dataset would not fit in memory.
    """
    if isinstance(recipe, str):
        recipe = PRESETS[check_choice("recipe", recipe, tuple(PRESETS))]
    count = parallel.thread_count(threads)
    engine = ENGINES[recipe.engine]
    if progress is True:
        from percolab.progress import bar

        with bar() as report:
            arrays = engine.build(recipe, count, report)
    else:
        arrays = engine.build(recipe, count, progress or silent)
    return _dataset(recipe, arrays, engine.VERSION)


def _dataset(recipe: Recipe, arrays: Arrays, engine_version: int) -> Dataset:
    made = provenance(engine_version)
    return Dataset(recipe, arrays.forest, arrays.X, arrays.y, arrays.latent_z, arrays.point_z, made)


def provenance(engine_version: int) -> dict[str, Any]:
    """Return versions, platform and time of making. The time is SOURCE_DATE_EPOCH, in seconds, where that is set."""
    from percolab import __version__

    moment = os.environ.get("SOURCE_DATE_EPOCH")
    created = datetime.now(UTC) if moment is None else datetime.fromtimestamp(int(moment), UTC)
    return {
        "percolab": __version__,
        "engine_version": engine_version,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "created": created.isoformat(timespec="seconds"),
    }


RandomState = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None


@overload
def make_percolation(
    n_points: int = ..., dim: int = ..., *, random_state: RandomState = ..., return_X_y: Literal[True], **recipe: Any
) -> tuple[NDArray[Any], NDArray[np.float64]]: ...


@overload
def make_percolation(
    n_points: int = ...,
    dim: int = ...,
    *,
    random_state: RandomState = ...,
    return_X_y: Literal[False] = ...,
    **recipe: Any,
) -> Dataset: ...


def make_percolation(
    n_points: int = 1000,
    dim: int = 20,
    *,
    random_state: RandomState = None,
    return_X_y: bool = False,
    **recipe: Any,
) -> Dataset | tuple[NDArray[Any], NDArray[np.float64]]:
    """Make a percolation dataset in the manner of scikit-learn's ``make_*`` functions.

    Parameters
    ----------
    n_points
        Number of points (samples).
    dim
        Number of features.
    random_state
        An int, as `seeds` of a `Recipe`; a NumPy generator to draw it from; None for a fresh one.
    return_X_y
        Return ``(X, y)`` instead of a `Dataset`.
    **recipe
        Other fields of `Recipe`: `mode`, `create_prob`, `engine`, `min_cluster_size`, `dtype`.
    """
    seed: Any = random_state
    if isinstance(random_state, np.random.Generator):
        seed = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        seed = int(random_state.randint(2**32, dtype=np.uint64))
    dataset = generate(Recipe(n_points, dim, seeds=seed, **recipe))
    return (np.asarray(dataset.X), dataset.y) if return_X_y else dataset
