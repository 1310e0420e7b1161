"""Making datasets and worlds: the factors of a world are made in turn and added to X, and only their truth is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset, construct, vouch
from percolab.engines import generated
from percolab.ground import memory, parallel
from percolab.ground.progress import Progress, shown
from percolab.ground.validation import check_choice, check_keywords
from percolab.ground.version import provenance
from percolab.model.recipe import PRESETS as PAPER_PRESETS
from percolab.model.recipe import Recipe
from percolab.worlds import samples
from percolab.worlds.superposed import Superposed, remade, rotation_of, superposed_targets
from percolab.worlds.superposition import VERSION, Superposition

Factor = Recipe | Dataset | str  #: What a factor of a world can be given as.


@overload
def generate(recipe: Recipe, *, threads: int | None = ..., progress: bool | Progress = ...) -> Dataset: ...


@overload
def generate(*, threads: int | None = ..., progress: bool | Progress = ..., **fields: Any) -> Dataset: ...


@overload
def generate(recipe: Superposition, *, threads: int | None = ..., progress: bool | Progress = ...) -> Superposed: ...


@overload
def generate(recipe: str, *, threads: int | None = ..., progress: bool | Progress = ...) -> Any: ...


def generate(
    recipe: Recipe | Superposition | str | None = None,
    *,
    threads: int | None = None,
    progress: bool | Progress = False,
    **fields: Any,
) -> Dataset | Superposed:
    """Make the dataset of a recipe, or the world of a superposition.

    The law of a dataset: clusters by preferential attachment; in each cluster a uniform random labelled tree and, given
    the tree, a uniform order of its bonds, which defines the latents; positions by a branching random walk along the
    bonds with directions handed down the latents; targets y = Σ z / √(1 + depth). Then the recipe's
    edits, one after another, and the target that it names. The law of a world: see `Superposition`.
    The same recipe gives the same data for any number of threads, and NumPy's global random state is not touched.

    Parameters
    ----------
    recipe
        A `Recipe`, a `Superposition`, or the name of one in `PRESETS`.
    **fields
        Instead of a recipe, its fields: ``generate(n_points=10_000, dim=50, seed=7)``. See `Recipe`.
    threads
        Number of threads; None takes all cores.
    progress
        True shows a bar; a function is called with (stage, points done, points in all).

    Raises
    ------
    MemoryError
        Before any work, if the dataset would not fit in memory.
    """
    if fields:
        check_keywords("generate", fields, [*signature(Recipe).parameters, "threads", "progress"])
        if recipe is not None:
            name, value = next(iter(fields.items()))
            raise ValueError(f"{name} must be left out where a recipe is given, got {value!r}")
        recipe = Recipe(**fields)
    if isinstance(recipe, str):
        recipe = PRESETS[check_choice("recipe", recipe, tuple(PRESETS))]
    with shown(progress) as tell:
        if not isinstance(recipe, Superposition):
            return construct(recipe, threads=threads, progress=tell)  # type: ignore[arg-type]
        return vouch(_superpose(recipe, parallel.thread_count(threads), tell))


def superpose(
    factors: Factor | Iterable[Factor],
    *more: Factor,
    threads: int | None = None,
    progress: bool | Progress = False,
    **fields: Any,
) -> Superposed:
    """Make a world in which every sample has one point of each of several percolation datasets.

    X is the scaled, rotated sum of their positions, y the weighted sum of their targets, or the product of two. All
    factors have weight 1 unless `weights` are given; a factor of weight 0 is irrelevant to y: a control inside the same
    X. Peak memory is the result and the largest X of a factor.

    Parameters
    ----------
    factors
        The factors, one by one or in a list: recipes, names of the paper's datasets in `PRESETS`, or datasets, whose
        recipes are used.
    **fields
        `weights`, `product`, `scales`, `dim`, `rotate` and `seed`: the fields of `Superposition`.
    threads
        Number of threads; None takes all cores.
    progress
        True shows a bar; a function is called with (stage, points done, points in all).
    """
    given: Any = [factors, *more] if more or isinstance(factors, Factor) else factors
    recipes = [_recipe(factor) for factor in given] if isinstance(given, Iterable) else given
    return generate(Superposition(recipes, **fields), threads=threads, progress=progress)


def _recipe(factor: Any) -> Any:
    """Return a recipe in place of a name or a dataset; `Superposition` refuses anything else."""
    if isinstance(factor, str):
        return PAPER_PRESETS[check_choice("factors", factor, tuple(PAPER_PRESETS))]
    if not isinstance(factor, Dataset):
        return factor
    if factor.modification:
        raise ValueError(f"factors must be as their recipes make them, got {factor.modification}")
    return factor.recipe


def _superpose(recipe: Superposition, threads: int, progress: Progress) -> Superposed:
    _require_memory(recipe)
    count = len(recipe.factors)
    factors: list[Dataset] = []
    sigma = np.empty(count)
    X, rows = np.empty((0, 0)), np.empty((0, count), np.int64)
    for k in range(count):
        factor = _factor(recipe, k, threads, progress)
        source = np.asarray(factor.X)
        source.setflags(write=True)  # no other reference exists: the sum may be written in its place
        sigma[k] = samples.spread(source, threads) if len(source) else 0.0
        if not sigma[k] > 0:
            raise ValueError(f"factor {k} must have points at two places or more, got {len(source)} of them")
        if k == 0:
            rows = np.empty((count, len(source)), np.int64).T  # the rows of one factor are contiguous
            in_place = source.shape[1] == recipe.dim and source.dtype == recipe.dtype
            X = source if in_place else np.empty((len(source), recipe.dim), recipe.dtype)
        samples.fill_rows(k, len(source), recipe.seed, threads, rows[:, k])
        scale = recipe.scales[k] / sigma[k]
        samples.add_factor(source, rows[:, k], scale, rotation_of(recipe, k), X, fresh=k == 0, threads=threads)
        progress("sum", (k + 1) * len(X), count * len(X))
        factors.append(remade(factor))
        del factor, source  # frees their memory before the next factor is made
    y = superposed_targets(recipe, [factor.y for factor in factors], rows)
    return Superposed(recipe, X, y, rows, tuple(factors), sigma, provenance(engine_version=VERSION))


def _factor(recipe: Superposition, k: int, threads: int, progress: Progress) -> Dataset:
    """Make one factor; its number is in the names of its stages."""

    def numbered(stage: str, done: int, total: int) -> None:
        progress(f"{stage} {k + 1}/{len(recipe.factors)}", done, total)

    return construct(recipe.factors[k], threads=threads, progress=numbered)


def _require_memory(recipe: Superposition) -> None:
    """Raise MemoryError, in one line, if the memory that is certain to be needed is not free."""
    sizes = [f.n_points if f.min_cluster_size == 1 or f.mode == "one_cluster" else 0 for f in recipe.factors]
    sample = recipe.dim * np.dtype(recipe.dtype).itemsize + 8 * (1 + len(sizes))
    truths = sum(sizes) * (generated.FOREST_BYTES + generated.VALUE_BYTES)
    largest_X = max(n * f.dim * np.dtype(f.dtype).itemsize for n, f in zip(sizes, recipe.factors, strict=True))
    what = f"factors must fit in memory: {len(sizes)} of {max(sizes):,} points or less need about"
    memory.require(sizes[0] * sample + truths + largest_X, what)


# ---------------------------------------------------------------------- presets
#
# Recipes by name: the paper's two datasets, and two superposed worlds.


def _clusters(count: int, n_points: int, dim: int) -> list[Recipe]:
    return [Recipe(n_points, dim, "one_cluster", seeds=seed, engine="native") for seed in range(count)]


#: Recipes by name: the paper's two datasets (Sec. 5 and App. B); a sum of two clusters; a sum of four rotated clusters.
PRESETS: Mapping[str, Recipe | Superposition] = MappingProxyType(
    {
        **PAPER_PRESETS,
        "superposed-2": Superposition(_clusters(2, 100_000, 32), seed=0),
        "superposed-4": Superposition(_clusters(4, 200_000, 64), rotate=True, seed=0),
    }
)


# ---------------------------------------------------------------------- in the manner of scikit-learn

RandomState = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None


@overload
def make_percolation(
    n_points: int = ..., dim: int = ..., *, return_X_y: Literal[True], **options: Any
) -> tuple[NDArray[Any], NDArray[np.float64]]: ...


@overload
def make_percolation(
    n_points: int = ..., dim: int = ..., *, return_X_y: Literal[False] = ..., **options: Any
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
        Number of points.
    dim
        Dimension of the space they lie in.
    random_state
        The seed: an int, as for a `Recipe`; a NumPy generator to draw the seed from; None draws a new seed.
    return_X_y
        Return ``(X, y)`` instead of a `Dataset`.
    seed
        percolab's name for `random_state`.
    **recipe
        Other fields of `Recipe`: `mode`, `create_prob`, `mean_degree`, `engine`, `min_cluster_size`, `dtype`, `target`.
    """
    seed: Any = random_state
    if isinstance(random_state, np.random.Generator):
        seed = int(random_state.integers(2**32))
    elif isinstance(random_state, np.random.RandomState):
        seed = int(random_state.randint(2**32, dtype=np.uint64))
    known = [name for name in (*signature(Recipe).parameters, "random_state", "return_X_y") if name != "seeds"]
    check_keywords("make_percolation", recipe, known)
    if "seed" in recipe and random_state is not None:
        raise ValueError(f"seed and random_state are the same, got {recipe['seed']} and {random_state}")
    dataset = generate(Recipe(n_points, dim, **{"seed": seed} | recipe))
    if not return_X_y:
        return dataset
    for column in (dataset.X, dataset.y):
        column.setflags(write=True)  # no other reference exists
    return np.asarray(dataset.X), dataset.y
