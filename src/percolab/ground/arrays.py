"""Names for the common array types, and arrays that are read or made only when they are indexed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def as_array(values: Any) -> NDArray[Any]:
    """Return anything that NumPy takes, or a tensor of any type and device, as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype):  # NumPy has no such type
            values = values.float()
        return np.asarray(values.numpy())
    return np.asarray(values)


class LazyArray:
    """An array that is read or made when it is indexed; this class holds its shape and type."""

    shape: Any  #: tuple of integers
    dtype: Any

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array in memory."""
        return self.size * int(self.dtype.itemsize)

    def __len__(self) -> int:
        return int(self.shape[0])
