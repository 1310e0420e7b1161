"""Arrays that stay on disk until they are indexed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import memory
from percolab.ground.arrays import LazyArray
from percolab.store.chunks import THREADS, Chunks

Needed = slice | NDArray[np.intp]  #: Rows: a range with step 1, or growing numbers.
Job = tuple[int, Needed, slice]  #: A block, some of its rows, and where they go.


class StoredArray(LazyArray):
    """An array on disk. Index it as a NumPy array to read a part; ``[:]`` or ``np.asarray`` reads it all.

    Two index arrays are paired, as in NumPy; Zarr's orthogonal indexing is ``X[np.ix_(rows, columns)]``. Chunks hold
    whole rows, so a column, ``X[:, 2]``, takes the time of reading all rows but the memory of one column.
    """

    def __init__(self, chunks: Chunks, unchanged: Callable[[], None], n_rows: int | None = None) -> None:
        layout = chunks.layout
        self.name = chunks.name
        #: shape of the whole array
        self.shape = (layout.shape[0] if n_rows is None else n_rows, *layout.shape[1:])
        self.dtype = layout.dtype  #: type of its elements
        self.block_rows = layout.block_rows  #: rows of one chunk: reading whole blocks is fastest
        self._chunks = chunks
        self._unchanged = unchanged

    def __repr__(self) -> str:
        return f"StoredArray({self.name!r}, shape={self.shape}, dtype={self.dtype})"

    def __getitem__(self, index: Any) -> NDArray[Any]:
        np.broadcast_to(np.False_, self.shape)[index]  # NumPy itself raises if an index is wrong
        rows, columns, rest = plan(index, len(self))
        try:
            part = self._read(rows, columns)
        finally:
            # After reading, so that no data of another store are returned; also after a fault, to give the reason.
            self._unchanged()
        return part[rest]

    def read_into(self, start: int, out: NDArray[Any]) -> None:
        """Fill a C-contiguous array with the rows from `start` on, converted to its type."""
        if out.dtype != self.dtype:
            out[:] = self[start : start + len(out)]
            return
        try:
            for block, rows, where in self._jobs(slice(start, start + len(out))):
                self._chunks.read_into(block, rows.start, out[where])  # type: ignore[union-attr]
        finally:
            self._unchanged()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on disk cannot be read without a copy")
        whole: NDArray[Any] = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        # With this method torch reads the whole array at once; otherwise it would index row by row.
        return self[:].__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __getattr__(self, name: str) -> Any:
        # Reached only for attributes that do not exist.
        if hasattr(np.ndarray, name) and not name.startswith("_"):
            raise AttributeError(f"an array on disk has no {name!r}: read it first, as ds.X[:] or ds.in_memory()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def first(self, n_rows: int) -> StoredArray:
        """Return the first rows, still on disk."""
        return StoredArray(self._chunks, self._unchanged, min(n_rows, len(self)))

    # ------------------------------------------------------------------ reading

    def _read(self, rows: Needed, columns: tuple[Any, ...]) -> NDArray[Any]:
        """Read rows and apply an index of columns to each."""
        taken = slice(None), *columns
        n_rows = rows.stop - rows.start if isinstance(rows, slice) else rows.size
        shape = (n_rows, *np.empty((0, *self.shape[1:]))[taken].shape[1:])
        needed = int(np.prod(shape, dtype=object)) * self.dtype.itemsize + self._chunks.layout.block_bytes
        memory.require(needed, f"{self.name} cannot be read at once: it needs")
        out = np.empty(shape, self.dtype)
        jobs = list(self._jobs(rows))

        def do(job: Job) -> None:
            block, wanted, where = job
            if columns:
                out[where] = self._chunks.read(block)[wanted][taken]
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


def plan(index: Any, n_rows: int) -> tuple[Needed, tuple[Any, ...], tuple[Any, ...]]:
    """Return the rows that ``array[index]`` needs, an index of the columns of each, and an index into the result.

    The index is valid: NumPy has checked it.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not items or items[0] is None or items[0] is Ellipsis or isinstance(items[0], bool | np.bool_):
        return slice(0, n_rows), (), items
    first, rest = items[0], items[1:]
    if isinstance(first, slice):
        rows = range(*first.indices(n_rows)) or range(0)
        order = slice(None, None, 1 if rows.step > 0 else -1)
        rows = rows if rows.step > 0 else rows[::-1]
        needed = slice(rows.start, rows.stop) if rows.step == 1 else np.array(rows, np.intp)
        # A single index of columns is applied block by block.
        return (needed, rest, (order,)) if len(rest) == 1 else (needed, (), (order, *rest))
    chosen = np.asarray(first)
    if chosen.dtype == np.bool_:
        chosen, *others = chosen.nonzero()
        rest = (*others, *rest)
    chosen = chosen.astype(np.intp)
    unique, inverse = np.unique(np.where(chosen < 0, chosen + n_rows, chosen), return_inverse=True)
    return unique, (), (inverse.reshape(chosen.shape) if chosen.ndim else 0, *rest)
