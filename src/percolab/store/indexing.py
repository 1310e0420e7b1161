"""What NumPy would do with an index, for an array that is not in memory.

An index is taken apart into the rows and columns that it needs, and an index that does the same to these alone. So
NumPy itself decides what the result is.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Needed = slice | NDArray[np.intp]
"""Rows or columns: a range with step 1, or growing numbers."""

_ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Plan:
    """An index in two steps: first what is needed of each axis, then an index into that."""

    needed: tuple[Needed, ...]
    rest: tuple[Any, ...]


def plan(index: Any, shape: tuple[int, ...]) -> Plan:
    """Return how to get ``array[index]`` of an array of this shape; raise IndexError where NumPy does."""
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
                found, again = _along(part, len(needed), shape[len(needed)])
                needed.append(found)
                rest.append(again)
    needed += [slice(0, size) for size in shape[len(needed) :]]
    return Plan(tuple(needed), tuple(rest))


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
    found = (
        slice(rows[0], rows[-1] + 1)
        if rows.step == 1 or len(rows) == 1
        else np.arange(rows[0], rows[-1] + 1, rows.step)
    )
    return found, slice(None, None, -1) if backwards else _ALL


def _within(numbers: NDArray[Any], axis: int, size: int) -> NDArray[np.intp]:
    """Return row numbers as they count from the start; raise IndexError if one is not there."""
    bad = (numbers >= size) | (numbers < -size)
    if np.any(bad):
        raise IndexError(f"index {numbers[bad].flat[0]} is out of bounds for axis {axis} with size {size}")
    found = numbers.astype(np.intp)
    return np.where(found < 0, found + size, found)
