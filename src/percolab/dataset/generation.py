"""Making the dataset of a recipe, by the engine that it names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from percolab.dataset import editing, targets
from percolab.dataset.dataset import Dataset
from percolab.engines import Arrays
from percolab.engines.native import engine as native
from percolab.engines.paper import engine as paper
from percolab.ground import parallel
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_choice, check_integer
from percolab.ground.version import provenance
from percolab.model.recipe import PRESETS, Recipe
from percolab.model.target import Target

ENGINES = {"native": native, "paper": paper}
"""The modules that make data, by the name of the engine; each has a `VERSION`."""


def generate(recipe: Recipe | str, *, threads: int | None = None, progress: bool | Progress = False) -> Dataset:
    """Make the dataset of a recipe.

    The law: clusters by preferential attachment; in each cluster a uniform random labelled tree and, given the tree, a
    uniform order of its bonds, which defines the latents; positions by a branching random walk along the bonds with
    directions handed down the latents; targets y = Σ z / √(1 + depth). Then the recipe's edits, one after another, and
    the target that it names. The same recipe gives the same data for any number of threads, and NumPy's global random
    state is not touched.

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
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"recipe must be a Recipe or the name of a preset, got {recipe!r}: sizes go by name, n_points=1000"
        )
    if not recipe.target.is_rule:
        raise ValueError(f"target must be one that a recipe can make, got {recipe.target.kind!r}")
    count = parallel.thread_count(threads)
    engine = ENGINES[recipe.engine]
    if progress is True:
        from percolab.ground.progress import bar

        with bar() as report:
            arrays = engine.build(recipe, count, report)
    else:
        arrays = engine.build(recipe, count, progress or silent)
    return _dataset(recipe, arrays, engine.VERSION)


def _dataset(recipe: Recipe, arrays: Arrays, engine_version: int) -> Dataset:
    """Return the dataset of a recipe from what its engine made."""
    forest, y, values = arrays.forest, arrays.y, (arrays.latent_z, arrays.point_z)
    editing.replay(recipe, forest, arrays.X, *values)
    if recipe.edits or recipe.target != Target():
        y = targets.make(recipe.target, forest, *values)
    return Dataset(recipe, forest, arrays.X, y, *values, provenance(engine_version=engine_version)).vouch()


RandomState = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None


@overload
def make_percolation(
    n_points: int | None = ...,
    dim: int | None = ...,
    *,
    random_state: RandomState = ...,
    return_X_y: Literal[True],
    n_samples: int | None = ...,
    n_features: int | None = ...,
    **recipe: Any,
) -> tuple[NDArray[Any], NDArray[np.float64]]: ...


@overload
def make_percolation(
    n_points: int | None = ...,
    dim: int | None = ...,
    *,
    random_state: RandomState = ...,
    return_X_y: Literal[False] = ...,
    n_samples: int | None = ...,
    n_features: int | None = ...,
    **recipe: Any,
) -> Dataset: ...


def make_percolation(
    n_points: int | None = None,
    dim: int | None = None,
    *,
    random_state: RandomState = None,
    return_X_y: bool = False,
    n_samples: int | None = None,
    n_features: int | None = None,
    **recipe: Any,
) -> Dataset | tuple[NDArray[Any], NDArray[np.float64]]:
    """Make a percolation dataset in the manner of scikit-learn's ``make_*`` functions.

    Parameters
    ----------
    n_points
        Number of points; 1000 if not given.
    dim
        Dimension of the space they lie in; 20 if not given.
    random_state
        The seed: an int, as for a `Recipe`; a NumPy generator to draw it from; None for a fresh one.
    return_X_y
        Return ``(X, y)`` instead of a `Dataset`.
    n_samples, n_features
        Scikit-learn's words for `n_points` and `dim`.
    seed
        percolab's word for `random_state`.
    **recipe
        Other fields of `Recipe`: `mode`, `create_prob`, `mean_degree`, `engine`, `min_cluster_size`, `dtype`, `target`.
    """
    n_points = _either("n_points", n_points, "n_samples", n_samples, 1000)
    dim = _either("dim", dim, "n_features", n_features, 20)
    seed: Any = random_state
    if isinstance(random_state, np.random.Generator):
        seed = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        seed = int(random_state.randint(2**32, dtype=np.uint64))
    unknown = sorted(set(recipe) - {field.name for field in fields(Recipe)} - {"seed"} | set(recipe) & {"seeds"})
    if unknown:
        raise TypeError(f"make_percolation got {unknown[0]!r}, which is not a field of a Recipe that it takes")
    if "seed" in recipe and random_state is not None:
        raise ValueError(f"seed and random_state are the same, got {recipe['seed']} and {random_state}")
    dataset = generate(Recipe(n_points, dim, **{"seed": seed} | recipe))
    return (np.asarray(dataset.X), dataset.y) if return_X_y else dataset


def _either(name: str, value: int | None, alias: str, other: int | None, default: int) -> int:
    """Return what was given under one of two names."""
    if value is not None and other is not None:
        raise ValueError(f"{name} and {alias} are the same, and only one may be given, got {value} and {other}")
    if other is not None:
        return check_integer(alias, other, 1)
    return default if value is None else value
