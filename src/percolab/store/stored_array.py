"""Arrays that stay on disk until they are indexed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import memory
from percolab.ground.arrays import LazyArray
from percolab.store.chunks import THREADS, Chunks

Job = tuple[int, slice | NDArray[np.intp], slice]
"""A block, rows of it, and where they go."""
Needed = slice | NDArray[np.intp]
"""Rows or columns: a range with step 1, or growing numbers."""

_ALL = slice(None)


class StoredArray(LazyArray):
    """An array on disk. Index it as a NumPy array to read a part; ``[:]`` or ``np.asarray`` reads it all.

    Two index arrays are pairs, as in NumPy; what Zarr calls orthogonal indexing is ``X[np.ix_(rows, columns)]``. Chunks
    are whole rows. Columns alone, ``X[:, 2]``, take the time of all rows but the memory of one column.
    """

    def __init__(self, chunks: Chunks, n_rows: int | None = None, unchanged: Callable[[], None] | None = None) -> None:
        self.name = chunks.name
        self._chunks = chunks
        self._n_rows = chunks.layout.shape[0] if n_rows is None else n_rows
        self._unchanged = unchanged

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return (self._n_rows, *self._chunks.layout.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        return self._chunks.layout.dtype

    @property
    def block_rows(self) -> int:
        """Rows of one chunk: reading whole blocks is fastest."""
        return self._chunks.layout.block_rows

    def __repr__(self) -> str:
        return f"StoredArray({self.name!r}, shape={self.shape}, dtype={self.dtype})"

    def __getitem__(self, index: Any) -> NDArray[Any]:
        needed, rest = plan(index, self.shape)
        try:
            part = self._read(*needed)
        finally:
            # After the reading, so that nothing read can be of another store; also after a fault, to say why.
            if self._unchanged is not None:
                self._unchanged()
        values: NDArray[Any] = part[rest]
        return values

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill a C-contiguous array with the rows from `start` on, converted to its type."""
        if out.dtype != self.dtype:
            out[:] = self[start : start + len(out)]
            return
        try:
            for block, rows, where in self._jobs(slice(start, start + len(out))):
                self._chunks.read_into(block, rows.start, out[where])  # type: ignore[union-attr]
        finally:
            if self._unchanged is not None:
                self._unchanged()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on disk cannot be read without a copy")
        whole: NDArray[Any] = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        # Where there is this, torch reads the whole at once; else it would index row by row.
        return self[:].__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __getattr__(self, name: str) -> Any:
        # Reached only for what is not there.
        if hasattr(np.ndarray, name) and not name.startswith("_"):
            raise AttributeError(f"an array on disk has no {name!r}: read it first, as ds.X[:] or ds.in_memory()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def first(self, n_rows: int) -> StoredArray:
        """Return the first rows, still on disk."""
        return StoredArray(self._chunks, min(n_rows, len(self)), self._unchanged)

    # ------------------------------------------------------------------ reading

    def _read(self, rows: Needed, *columns: Needed) -> NDArray[Any]:
        """Read rows and, of these, columns."""
        widths = [_count(needed) for needed in columns]
        self._check_room(_count(rows) * int(np.prod(widths, dtype=object)) * self.dtype.itemsize)
        out = np.empty((_count(rows), *widths), self.dtype)
        whole = out.shape[1:] == self.shape[1:]
        jobs = list(self._jobs(rows))

        def do(job: Job) -> None:
            block, wanted, where = job
            if not whole:
                out[where] = self._chunks.read(block)[wanted][(slice(None), *columns)]
            elif isinstance(wanted, slice):
                self._chunks.read_into(block, wanted.start, out[where])
            else:
                self._chunks.take(block, wanted, out[where])

        if len(jobs) > 1 and not self._chunks.source.is_local:
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(do, jobs))
        else:
            for job in jobs:
                do(job)
        return out

    def _jobs(self, rows: Needed) -> Iterator[Job]:
        """Cut rows at the edges of blocks."""
        step = self.block_rows
        if isinstance(rows, slice):
            for block in range(rows.start // step, -(-rows.stop // step)):
                lo, hi = max(rows.start, block * step), min(rows.stop, (block + 1) * step)
                yield block, slice(lo - block * step, hi - block * step), slice(lo - rows.start, hi - rows.start)
            return
        blocks, first = np.unique(rows // step, return_index=True)
        for block, (lo, hi) in zip(blocks.tolist(), pairwise([*first.tolist(), rows.size]), strict=True):
            yield block, rows[lo:hi] - block * step, slice(lo, hi)

    def _check_room(self, n_bytes: int) -> None:
        """Raise unless there is memory for what is read, and for a block besides."""
        memory.require(n_bytes + self._chunks.layout.block_bytes, f"{self.name} cannot be read at once: it needs")


def _count(needed: Needed) -> int:
    return needed.stop - needed.start if isinstance(needed, slice) else needed.size


# ---------------------------------------------------------------------- what an index needs
#
# What NumPy would do with an index, for an array that is not in memory.
# An index is taken apart into the rows and columns that it needs, and an index that does the same to these alone. So
# NumPy itself decides what the result is.


def plan(index: Any, shape: tuple[int, ...]) -> tuple[list[Needed], tuple[Any, ...]]:
    """Return what ``array[index]`` needs of each axis of an array of this shape, and an index into that.

    Raise IndexError where NumPy does.
    """
    items = [_as_item(item) for item in (index if isinstance(index, tuple) else (index,))]
    left = len(shape) - sum(map(_axes, items))
    if left < 0:
        raise IndexError(f"too many indices for array: it has {len(shape)} axes, got {len(shape) - left} indices")
    dots = sum(item is Ellipsis for item in items)
    if dots > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    needed: list[Needed] = []
    rest: list[Any] = []
    for item in items:
        if item is Ellipsis:
            needed += [slice(0, size) for size in shape[len(needed) : len(needed) + left]]
            rest.append(item)
        elif _axes(item) == 0:
            rest.append(item)
        else:
            for part in _index_arrays(item, len(needed), shape):
                along, again = _along(part, len(needed), shape[len(needed)])
                needed.append(along)
                rest.append(again)
    needed += [slice(0, size) for size in shape[len(needed) :]]
    return needed, tuple(rest)


def _as_item(item: Any) -> Any:
    """Return an item of an index as NumPy understands it: a number, a slice, an array, None or an ellipsis."""
    if item is None or item is Ellipsis or isinstance(item, slice | bool | np.bool_):
        return item
    if not isinstance(item, np.ndarray):
        try:
            return operator.index(item)
        except TypeError:
            item = np.asarray(item)
            if item.size == 0:
                item = item.astype(np.intp)  # an empty list is one of integers
    if item.dtype.kind not in "biu":
        raise IndexError(f"an index must hold integers or booleans, got {item.dtype}")
    return item


def _is_mask(item: Any) -> bool:
    return isinstance(item, bool | np.bool_) or (isinstance(item, np.ndarray) and item.dtype == np.bool_)


def _axes(item: Any) -> int:
    """Return how many axes an item takes; an ellipsis takes what is left."""
    if item is None or item is Ellipsis:
        return 0
    return np.ndim(item) if _is_mask(item) else 1


def _index_arrays(item: Any, axis: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a mask as an array of numbers for each of its axes, and anything else as it is."""
    if not _is_mask(item):
        return (item,)
    for k, size in enumerate(item.shape):
        if size != shape[axis + k]:
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + k}; "
                f"size of axis is {shape[axis + k]} but size of corresponding boolean axis is {size}"
            )
    numbers: tuple[Any, ...] = item.nonzero()
    return numbers


def _along(item: Any, axis: int, size: int) -> tuple[Needed, Any]:
    """Return what an item needs of an axis of this size, and the item that takes the same from that."""
    if isinstance(item, slice):
        return _along_slice(item, size)
    if isinstance(item, int):
        row = _within(np.asarray([item], object), axis, size)[0]
        return slice(row, row + 1), 0
    rows, inverse = np.unique(_within(item, axis, size), return_inverse=True)
    return rows, inverse.reshape(item.shape)


def _along_slice(item: slice, size: int) -> tuple[Needed, slice]:
    rows = range(*item.indices(size))
    if not rows:
        return slice(0, 0), _ALL
    backwards = rows.step < 0
    rows = rows[::-1] if backwards else rows
    span = (
        slice(rows[0], rows[-1] + 1)
        if rows.step == 1 or len(rows) == 1
        else np.arange(rows[0], rows[-1] + 1, rows.step)
    )
    return span, slice(None, None, -1) if backwards else _ALL


def _within(numbers: NDArray[Any], axis: int, size: int) -> NDArray[np.intp]:
    """Return row numbers as they count from the start; raise IndexError if one is not there."""
    bad = (numbers >= size) | (numbers < -size)
    if np.any(bad):
        raise IndexError(f"index {numbers[bad].flat[0]} is out of bounds for axis {axis} with size {size}")
    rows = numbers.astype(np.intp)
    return np.where(rows < 0, rows + size, rows)
