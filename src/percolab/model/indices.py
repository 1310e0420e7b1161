"""Rows and latents that users name: indices of any shape, or a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.validation import check_integer

Ints = NDArray[np.int64]


def one(name: str, index: int | np.integer[Any], length: int) -> int:
    """Return an index in [0, length), or say what is wrong with it."""
    found = check_integer(name, index, 0)
    if found >= length:
        raise ValueError(f"{name} must be below {length}, got {found}")
    return found


def indices(name: str, values: ArrayLike, length: int) -> Ints:
    """Return indices in [0, length), in the shape they came in, or say what is wrong with them."""
    found = np.asarray(values)
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"{name} must be integers, got {found.dtype}")
    outside = found[(found < 0) | (found >= length)]
    if outside.size:
        raise ValueError(f"{name} must be between 0 and {length - 1}, got {outside[0]}")
    return found.astype(np.int64)


def listed(name: str, values: ArrayLike | None, length: int) -> Ints:
    """Return a list of indices in [0, length) from indices, a mask, or None for all of them."""
    if values is None:
        return np.arange(length)
    found = np.atleast_1d(np.asarray(values))
    if found.dtype == np.bool_ and found.shape == (length,):
        return np.flatnonzero(found)
    if (found.size and not np.issubdtype(found.dtype, np.integer)) or found.ndim != 1:
        raise ValueError(f"{name} must be indices or a mask of {length} {name}, got {values!r}")
    return indices(name, found, length)
