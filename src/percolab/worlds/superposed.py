"""Superposed worlds: X and y of samples that have a point of each of several datasets, with the truth of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from percolab.dataset import targets
from percolab.dataset.dataset import Dataset
from percolab.dataset.lazy import Lazy, vouch
from percolab.ground import html
from percolab.ground.text import printable
from percolab.model.forest import Forest
from percolab.worlds.recipe import Superposition
from percolab.worlds.rotations import Rotation

if TYPE_CHECKING:
    from percolab.store.arrays import StoredArray

BY_HAND = "arrays replaced by hand"
"""What a world says of itself that its recipe does not make."""
OF_ONE_HIERARCHY = ("do", "filter", "move", "subsamples", "take", "turn", "with_target")
"""What datasets have and worlds do not."""


@dataclass(frozen=True, eq=False)
class Superposed(Lazy):
    """Samples that have a point of each of K percolation datasets, the factors; see `Superposition`.

    The truth is the forest and the values of each factor, and the table of rows: `percolab.truth` gives those of one
    factor, in the order of samples.
    """

    recipe: Superposition
    """what makes this world again"""
    X: NDArray[Any] | StoredArray
    """(n, D) the scaled, rotated sum of the factors' positions"""
    y: NDArray[Any]
    """(n,) the weighted sum of the factors' targets, or the product of two, float64; labels of one are int64"""
    rows: NDArray[np.int64]
    """(n, K) the row of each factor that a sample has; the first column is 0, 1, 2, …"""
    factors: tuple[Dataset, ...]
    """the K datasets; the X of each is made again when asked for, and kept from then on"""
    sigma: NDArray[np.float64]
    """(K,) sigma_k: the square root of the mean variance of the columns of each factor's X"""
    provenance: dict[str, Any]
    """versions, platform and time of making"""

    def __repr__(self) -> str:
        n, dim = self.X.shape
        parts = [f"{n:,} samples in R^{dim}", f"{len(self.recipe.factors)} factors"]
        parts.append(f"y from {' and '.join(map(str, self.relevant))}")
        return f"Superposed({', '.join(parts + ['modified'] * bool(self.modification))})"

    def _repr_html_(self) -> str:
        n, dim = self.X.shape
        lines = {"samples": int(n), "dimensions": int(dim), "type of X": str(self.X.dtype)}
        if self.modification:
            lines["modified"] = self.modification
        made = {key: self.provenance[key] for key in ("created", "percolab") if key in self.provenance}
        return html.table("Superposed world", lines | made) + self.recipe._repr_html_()

    def __len__(self) -> int:
        return int(self.X.shape[0])

    # ------------------------------------------------------------------ what it is

    @property
    def modification(self) -> str | None:
        """What sets the world apart from the one that its recipe makes, in words; None if nothing does."""
        told = self.provenance.get("modified")
        if told:
            return printable(str(told))
        return None if "_vouched" in self.__dict__ or "_read" in self.__dict__ else BY_HAND

    def _changed(self, **changes: Any) -> Superposed:
        """Return the world with other fields, as much its recipe's as this one is."""
        world = replace(self, **changes)
        return world if self.modification == BY_HAND else vouch(world)

    # ------------------------------------------------------------------ what y depends on

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weight of each factor in y; None if y is a product."""
        return self.recipe.weights

    @property
    def relevant(self) -> tuple[int, ...]:
        """The factors that y depends on."""
        return self.recipe.relevant

    def swapped(self, factor: int) -> Superposed:
        """Return the same samples with the y of one factor: X and the truth are those of this world, not copies."""
        recipe = self.recipe.swapped(factor)
        return self._changed(recipe=recipe, y=superposed_targets(recipe, [f.y for f in self.factors], self.rows))

    def rotation(self, factor: int) -> NDArray[np.float64]:
        """Return Q_k, (D, d_k): the identity if factors are added as they are."""
        k = self.recipe.check_factor(factor)
        drawn = rotation_of(self.recipe, k)
        return np.eye(self.recipe.dim) if drawn is None else drawn.matrix()

    # ------------------------------------------------------------------ as a dataset

    @property
    def forest(self) -> Forest:
        """The forest, if there is one factor; of several, each has its own."""
        return self._only("forest").forest

    @property
    def latent_z(self) -> NDArray[np.float64]:
        """The value of every latent, if there is one factor."""
        return self._only("latent_z").latent_z

    @property
    def point_z(self) -> NDArray[np.float64]:
        """The value of every point, if there is one factor."""
        return self._only("point_z").point_z

    def _only(self, name: str) -> Dataset:
        if len(self.recipe.factors) > 1:
            raise ValueError(
                f"{name} must be that of a chosen factor where there are {len(self.recipe.factors)}: "
                f"take factors[k].{name}, or truth(dataset, factor=k)"
            )
        return self.factors[0]

    @cached_property
    def release_order(self) -> NDArray[np.int64]:
        """(n,) the samples in the release order of factor 0, whose rows they follow."""
        return self.factors[0].release_order

    def input_tokens(self, vocabulary: int) -> NDArray[np.int32]:
        """Return X as (n, D) tokens: each number's bin, of `vocabulary` bins of its column that hold as many rows."""
        return targets.input_tokens(np.asarray(self.X), vocabulary)

    def __getattr__(self, name: str) -> Any:
        # Reached only for what is not there.
        if name in OF_ONE_HIERARCHY:
            raise AttributeError(
                f"a superposed world has no {name!r}: use it on the dataset of a factor, and superpose its recipe"
            )
        return super().__getattr__(name)

    def in_memory(self) -> Superposed:
        """Return the same world with every array read into memory."""
        return self._changed(X=np.asarray(self.X))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False, sync: bool = True) -> None:
        """Write the world to a Zarr store; see `percolab.store`. What is at `path` stays unless this succeeds."""
        _SAVE[0](self, path, overwrite=overwrite, sync=sync)


def superposed_targets(
    recipe: Superposition, of_factors: Sequence[NDArray[Any]], rows: NDArray[np.int64]
) -> NDArray[Any]:
    """Return y of samples from the targets of the factors and the rows of each.

    Factors of weight 0 are left out, and the others added in order: y of a single factor of weight 1 is its own, to the
    bit, and may then be labels.
    """
    if recipe.product is not None:
        a, b = recipe.product
        product: NDArray[Any] = of_factors[a][rows[:, a]] * of_factors[b][rows[:, b]]
        return product
    y: NDArray[Any] | None = None
    for k in recipe.relevant:
        term = of_factors[k][rows[:, k]]
        if (recipe.weights or ())[k] != 1:
            term *= (recipe.weights or ())[k]
        y = term if y is None else np.add(y, term, out=y)
    assert y is not None  # a recipe has a factor of weight other than 0
    return y


def rotation_of(recipe: Superposition, factor: int) -> Rotation | None:
    """Return the rotation of a factor, or None if factors are added as they are."""
    if not recipe.rotate:
        return None
    return Rotation.draw(factor, recipe.factors[factor].dim, recipe.dim, recipe.seed)


class Save(Protocol):
    """Writes a world to a path or a URL."""

    def __call__(self, world: Superposed, path: str | os.PathLike[str], *, overwrite: bool, sync: bool) -> None:
        """Write it."""


_SAVE: list[Save] = []


def save_with(save: Save) -> None:
    """Take what `Superposed.save` calls: the store is built on worlds, so it comes to them and not they to it."""
    _SAVE[:] = [save]
