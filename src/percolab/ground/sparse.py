"""Sparse matrices by rows, checked in full: compiled code, SciPy's and ours, trusts their indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import memory
from percolab.ground.text import one_line, shown

if TYPE_CHECKING:
    import scipy.sparse

PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}
"""The arrays of each format that is read from files, as SciPy names them."""


def as_csr(name: str, matrix: Any) -> scipy.sparse.csr_array:
    """Return a SciPy matrix or array of any format by rows, in float32 or float64; messages call it `name`."""
    if matrix.format not in PARTS:
        try:
            matrix = matrix.tocoo()  # safe for all others, whatever they hold
        except (IndexError, TypeError, ValueError) as fault:
            raise ValueError(
                f"{name} must be a sparse matrix whose parts fit together, got {one_line(fault)}"
            ) from fault
    return _checked(name, matrix.format, matrix.shape, [getattr(matrix, part) for part in PARTS[matrix.format]])


def from_archive(name: str, held: Mapping[str, NDArray[Any]]) -> scipy.sparse.csr_array:
    """Return the matrix that `scipy.sparse.save_npz` wrote, as `as_csr` does."""
    word, shape = held["format"], held["shape"]
    form = word.item() if word.ndim == 0 else None
    form = form.decode("latin-1") if isinstance(form, bytes) else form
    if form not in PARTS:
        raise ValueError(f"{name} must have the format {', '.join(PARTS)}, got {shown(form)}")
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(shape) < 0:
        raise ValueError(f"{name} must have a shape of two integers, got {shown(shape)}")
    return _checked(name, form, shape.tolist(), [held[part] for part in PARTS[form]])


def _checked(name: str, form: str, shape: Sequence[int], parts: list[NDArray[Any]]) -> scipy.sparse.csr_array:
    import scipy.sparse

    if len(shape) != 2:
        raise ValueError(f"{name} must have rows and columns, got shape {tuple(shape)}")
    n_rows, n_columns = shape
    for label, part in zip(PARTS[form], parts, strict=True):
        if part.ndim != 1 or part.dtype.kind not in ("biuf" if label == "data" else "iu"):
            raise ValueError(f"{name} must have a list of numbers as {label}, got {part.dtype} of shape {part.shape}")
    memory.require(16 * (n_rows + 1), f"{name} of {n_rows} rows need")
    data, first, second = parts
    data = data if data.dtype in (np.float32, np.float64) else data.astype(np.float64)
    if form == "coo":
        _check_range(name, "row", first, n_rows)
        _check_range(name, "col", second, n_columns)
        if not data.size == first.size == second.size:
            raise ValueError(f"{name} must have as many rows and columns as data, got {first.size} and {second.size}")
        return scipy.sparse.csr_array(scipy.sparse.coo_array((data, (first, second)), (n_rows, n_columns)))
    n_lines, width = (n_rows, n_columns) if form == "csr" else (n_columns, n_rows)
    _check_range(name, "indices", first, width)
    ends = second.size == n_lines + 1 and second[0] == 0 and second[-1] <= min(data.size, first.size)
    if not ends or (second[1:] < second[:-1]).any():
        raise ValueError(f"{name} must have indptr that grows from 0 to at most {min(data.size, first.size)}, got none")
    kind = scipy.sparse.csr_array if form == "csr" else scipy.sparse.csc_array
    return scipy.sparse.csr_array(kind((data, first, second), shape=(n_rows, n_columns)))


def _check_range(name: str, label: str, values: NDArray[Any], limit: int) -> None:
    if values.size and not 0 <= values.min() <= values.max() < limit:
        raise ValueError(f"{name} must have {label} from 0 to {limit - 1}, got {values.min()} to {values.max()}")
