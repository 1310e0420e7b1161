"""Recipes of superposed worlds: the factors, how X adds them, and how y combines their targets."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from percolab.ground.text import shown
from percolab.ground.validation import check_integer, check_one_each, check_seed, fill
from percolab.model.recipe import DRAWN_SEED_BITS, Recipe, Written

KIND = "superposed"  #: The ``kind`` in the JSON of a superposition.
#: Version of permutations, rotations and sums: the same recipe, engine versions and this version give the same data.
VERSION = 1


@dataclass(frozen=True, init=False)
class Superposition(Written, kind=KIND):
    """Everything that determines a superposed world. The same recipe gives the same data.

    Sample i has row ``rows[i, k]`` of factor k, which is a percolation dataset. For factor 0, whose number of rows n is
    the number of samples, this is row i. For every other factor, the rows are keyed permutations of its rows, a new one
    for each block of as many samples as it has rows. Then X = Σ_k a_k Q_k X_k[rows[:, k]] / sigma_k, where sigma_k² is
    the mean variance of the columns of X_k, and y = Σ_k w_k y_k[rows[:, k]]. Nothing is centred.

    Factors are independent if their seeds differ.

    Parameters
    ----------
    factors
        Recipes of the factors.
    weights
        w_k, one for each factor; 0 makes it irrelevant to y. None: all 1.
    product
        Two factors (a, b): y is the product of their y instead of a sum. Weights are left out.
    scales
        a_k, one for each factor, at least 0. None: all 1.
    dim
        Dimension D of X; None takes the dimension of the factors, if it is the same. If Σ d_k exceeds D, they overlap.
    rotate
        Whether each factor has its own rotation Q_k into D dimensions (see `percolab.worlds.rotations`) or is added
        without rotation. None rotates only if dimensions differ.
    seed
        Seed of permutations and rotations; None draws one, which is recorded here.
    """

    factors: tuple[Recipe, ...]
    weights: tuple[float, ...] | None  #: None with a product
    product: tuple[int, int] | None
    scales: tuple[float, ...]
    dim: int
    rotate: bool
    seed: int

    def __init__(
        self,
        factors: Iterable[Recipe],
        weights: Sequence[float] | None = None,
        product: tuple[int, int] | None = None,
        scales: Sequence[float] | None = None,
        dim: int | None = None,
        rotate: bool | None = None,
        seed: int | None = None,
    ) -> None:
        recipes = _as_factors(factors)
        count = len(recipes)
        dims = sorted({recipe.dim for recipe in recipes})
        size = _as_dim(dim, dims)
        fill(
            self,
            factors=recipes,
            weights=_as_weights(weights, product, count),
            product=_as_product(product, count),
            scales=_as_numbers("scales", scales, count, least=0.0),
            dim=size,
            rotate=_as_rotate(rotate, size, dims),
            seed=secrets.randbits(DRAWN_SEED_BITS) if seed is None else check_seed("seed", seed),
        )
        self._check_labels()

    def _check_labels(self) -> None:
        """Raise if labels would have to be added, scaled or multiplied."""
        alone = self.product is None and [weight for weight in self.weights or () if weight] == [1]
        for k in () if alone else self.relevant:
            if self.factors[k].target.y_dtype.kind != "f":
                raise ValueError(f"targets of factor {k} must be numbers to be added or multiplied, got labels")

    @property
    def y_dtype(self) -> np.dtype[Any]:
        """Type of y: float64 for numbers, int64 if y is the labels of a single factor."""
        return self.factors[self.relevant[0]].target.y_dtype

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of y for one sample: () or, for token sequences, (length,)."""
        return self.factors[self.relevant[0]].target.y_shape

    @property
    def engine(self) -> str:
        """The word used where other recipes name an engine; each factor names its own engine."""
        return KIND

    @property
    def dtype(self) -> str:
        """Type of X: float64 if any factor has float64."""
        return np.result_type(*(np.dtype(factor.dtype) for factor in self.factors)).name

    @property
    def relevant(self) -> tuple[int, ...]:
        """The factors that y depends on."""
        if self.product is not None:
            return tuple(sorted(self.product))
        return tuple(k for k, weight in enumerate(self.weights or ()) if weight != 0)

    def check_factor(self, factor: object) -> int:
        """Return the number of a factor, or say what is wrong with it."""
        count = len(self.factors)
        if factor is None and count > 1:
            raise ValueError(f"factor must be given where there are {count}, got None")
        k = check_integer("factor", 0 if factor is None else factor, 0)
        if k >= count:
            raise ValueError(f"factor must be between 0 and {count - 1}, got {k}")
        return k

    def swapped(self, factor: int) -> Superposition:
        """Return the recipe with the same X and the y of one factor."""
        k = self.check_factor(factor)
        weights = [float(other == k) for other in range(len(self.factors))]
        return Superposition(self.factors, weights, None, self.scales, self.dim, self.rotate, self.seed)

    @classmethod
    def _of_plain(cls, given: dict[str, Any]) -> Self:
        return cls(**{**given, "factors": cls._parts(given, "factors", "recipes", Recipe.from_dict)})


def recipe_from_dict(values: Mapping[str, Any]) -> Recipe | Superposition:
    """Make either kind of recipe from the result of its `to_dict`."""
    return Superposition.from_dict(values) if "kind" in values else Recipe.from_dict(values)


# ---------------------------------------------------------------------- fields


def _as_factors(factors: object) -> tuple[Recipe, ...]:
    if isinstance(factors, str | Mapping) or not isinstance(factors, Iterable):
        raise ValueError(f"factors must be a list of recipes, got {factors!r}")
    recipes = tuple(factors)
    if not recipes:
        raise ValueError("factors must have at least one recipe, got none")
    for recipe in recipes:
        if not isinstance(recipe, Recipe):
            hint = ": name them one by one, or all in one list" if isinstance(recipe, list | tuple) else ""
            raise ValueError(f"factors must be recipes of one dataset each, got {shown(recipe)}{hint}")
    return recipes


def _as_numbers(name: str, values: object, count: int, least: float = -math.inf) -> tuple[float, ...]:
    """Return one finite number for each factor; None means ones."""
    if values is None:
        return (1.0,) * count
    numbers = check_one_each(name, values, count, "factor", least)
    if not any(numbers):
        raise ValueError(f"{name} must have one that is not 0, got {numbers}")
    return numbers


def _as_weights(weights: object, product: object, count: int) -> tuple[float, ...] | None:
    if product is None:
        return _as_numbers("weights", weights, count)
    if weights is not None:
        raise ValueError(f"weights must be left out with a product, got {weights!r}")
    return None


def _as_product(product: object, count: int) -> tuple[int, int] | None:
    if product is None:
        return None
    named = tuple(product) if isinstance(product, Iterable) and not isinstance(product, str) else ()
    if len(named) != 2:
        raise ValueError(f"product must name two factors, got {product!r}")
    first, second = (check_integer("product", factor, 0) for factor in named)
    if max(first, second) >= count or first == second:
        raise ValueError(f"product must name two different factors out of {count}, got {(first, second)}")
    return first, second


def _as_dim(dim: object, dims: list[int]) -> int:
    if dim is not None:
        return check_integer("dim", dim, 1)
    if len(dims) > 1:
        raise ValueError(f"dim must be given where factors have different dimensions, got {_listed(dims)}")
    return dims[0]


def _as_rotate(rotate: object, dim: int, dims: list[int]) -> bool:
    if rotate is not None and not isinstance(rotate, bool | np.bool_):
        raise ValueError(f"rotate must be True, False or None, got {rotate!r}")
    needed = dims != [dim]
    if needed and rotate is not None and not rotate:
        raise ValueError(f"rotate must be True to put factors of {_listed(dims)} dimensions into {dim}, got False")
    return needed if rotate is None else bool(rotate)


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))
