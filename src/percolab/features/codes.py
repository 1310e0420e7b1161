"""Codes of any kind behind one interface: dense, sparse or on a device, read in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import scipy.sparse

COPY_BYTES = 1 << 28  #: Memory for one copied block of dense codes: not float, or not stored by rows.
BLOCK_CELLS = 1 << 24  #: Cells of a block of rows.


class Codes:
    """A matrix of activations of features: (rows, features), finite and not negative."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])

    def take(self, rows: NDArray[np.int64] | slice) -> Any:
        """Return some rows, as an array or a CSR array."""
        return self.values[rows]

    def row_slices(self) -> Iterator[slice]:
        """Yield slices that cover all rows, one per block."""
        step = max(1, BLOCK_CELLS // self.shape[1])
        for lo in range(0, self.shape[0], step):
            yield slice(lo, min(lo + step, self.shape[0]))

    def squared_rest(self, directions: NDArray[np.float64], bias: NDArray[np.float64], values: NDArray[Any]) -> float:
        """Return Σ|values - codes @ directions - bias|², in float64."""
        total = 0.0
        for part in self.row_slices():
            rest = np.asarray(values[part], np.float64) - self.take(part) @ directions - bias
            total += float((rest * rest).sum())
        return total

    def refuse(self) -> NoReturn:
        """Raise ValueError for the first code that is negative or not finite."""
        for part in self.row_slices():
            block = self.take(part)
            block = block.toarray() if hasattr(block, "toarray") else block
            for row, feature in np.argwhere(~(np.isfinite(block) & (block >= 0)))[:1]:
                value, cell = block[row, feature], f"row {part.start + row} of feature {feature}"
                way_out = "; features.Neurons makes codes of signed activations" if value < 0 else ""
                raise ValueError(f"codes must be finite and not negative, got {value} in {cell}{way_out}")
        raise AssertionError("no code is negative or not finite")


class DenseCodes(Codes):
    """An array in memory or a memory map."""

    def __init__(self, values: NDArray[Any]) -> None:
        super().__init__(values)
        self._direct = values.dtype in (np.float32, np.float64) and values.flags.c_contiguous

    def most_columns(self) -> int:
        """Return the largest number of features in a block."""
        return self.shape[1] if self._direct else max(1, COPY_BYTES // (8 * max(1, self.shape[0])))

    def columns(self, lo: int, hi: int) -> tuple[NDArray[Any], int]:
        """Return a float array, stored row by row, that holds features lo … hi - 1, and their first column in it."""
        if self._direct:
            return self.values, lo
        small = self.values.dtype.itemsize <= 2 or self.values.dtype == np.float32
        return np.ascontiguousarray(self.values[:, lo:hi], np.float32 if small else np.float64), 0


class SparseCodes(Codes):
    """A SciPy sparse matrix or array, by rows."""

    def __init__(self, matrix: scipy.sparse.csr_array) -> None:
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        super().__init__(matrix)


class DeviceCodes(Codes, ABC):
    """Codes that stay on a device, where they are packed."""

    @abstractmethod
    def packed(self, order: NDArray[np.int64], threshold: NDArray[np.float64]) -> Iterator[NDArray[np.uint64]]:
        """Yield the bits of firing rows, in leaf order, by blocks of features: each (features, words)."""
