"""Positions that are made again when they are asked for."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.model.recipe import Recipe


class RemadeArray:
    """The X of a dataset, made again from its recipe when first indexed, and kept from then on."""

    def __init__(self, recipe: Recipe, shape: tuple[int, ...]) -> None:
        self._recipe, self._shape = recipe, shape
        self._made: NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        return np.dtype(self._recipe.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._shape[0] * self._shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the array once it is made."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self._shape[0]

    def __repr__(self) -> str:
        return f"RemadeArray(shape={self._shape}, dtype={self.dtype})"

    def __getitem__(self, index: Any) -> NDArray[Any]:
        part: NDArray[Any] = self._whole()[index]
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self._whole()
        if copy:
            return whole.astype(dtype or whole.dtype)
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def first(self, n_rows: int) -> NDArray[Any]:
        """Return the first rows, which are made now."""
        return self[:n_rows]

    def _whole(self) -> NDArray[Any]:
        if self._made is None:
            self._made = np.asarray(generate(self._recipe).X)
        return self._made


def remade(dataset: Dataset) -> Dataset:
    """Return a dataset without its X in memory: it is made again from the recipe when asked for."""
    kept = {field.name: getattr(dataset, field.name) for field in fields(dataset) if field.name != "X"}
    kept["X"] = RemadeArray(dataset.recipe, dataset.X.shape)
    # Read, and not replaced: a dataset whose fields are replaced does not count as what its recipe makes.
    return Dataset.lazy(kept.__getitem__)
