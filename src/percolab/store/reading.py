"""Datasets on disk: a Zarr v3 group that is either complete or recognisably not a dataset.

The group holds one array per column (X, y, latent_z, point_z and the five columns of the forest), each cut into blocks
of rows, one chunk a block. Attributes hold recipe, provenance and a digest per array. `digests/NAME` holds the sha256
of each block of array NAME; the array's digest is the sha256 of those. Every chunk also carries a CRC32C that is
checked whenever it is read.

`save` writes beside its target under another name and moves the store there when complete, so an interrupted write
leaves what was there before. At a URL, where nothing can be moved, it writes in place. The status attribute says
"complete" only at the very end; `percolab.store.cells` says how a store gets there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground import files
from percolab.ground.progress import Progress, silent
from percolab.model.forest import Forest
from percolab.store import extras, locations, schema
from percolab.store.locations import Location
from percolab.store.schema import COLUMNS, FOREST_COLUMNS, FORMAT, StoreError

if TYPE_CHECKING:
    import zarr


class StoredArray:
    """An array on disk: index it to read a part, ``[:]`` or ``np.asarray`` to read it all."""

    def __init__(self, array: zarr.Array[Any], name: str) -> None:
        self._array = array
        self._name = name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its elements."""
        return np.dtype(self._array.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array in memory."""
        return self._array.nbytes

    @property
    def block_rows(self) -> int:
        """Rows of one chunk: reading whole blocks is fastest."""
        return int(self._array.chunks[0])

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StoredArray({self._name!r}, shape={self.shape}, dtype={self.dtype})"

    def __getitem__(self, index: Any) -> NDArray[Any]:
        try:
            part = np.asarray(self._select(index))
        except (IndexError, TypeError):
            raise
        except Exception as fault:
            raise StoreError(f"{self._name} cannot be read: {files.one_line(fault)}") from fault
        if part.size and _is_missing(part):
            raise StoreError(f"{self._name} cannot be read: a chunk is missing")
        return part

    def _select(self, index: Any) -> Any:
        first, *rest = index if isinstance(index, tuple) else (index,)
        if not isinstance(first, list | np.ndarray):
            return self._array[index]
        rows = np.asarray(first)
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        rows = np.where(rows < 0, rows + len(self), rows)
        # Zarr reads a sorted selection block by block; the caller's order is restored in memory.
        unique, inverse = np.unique(rows, return_inverse=True)
        return np.asarray(self._array.oindex[(unique, *rest)])[inverse.reshape(rows.shape)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on disk cannot be had without a copy")
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)


def _is_missing(part: NDArray[Any]) -> bool:
    """Tell whether a fill value shows: NaN in floats, -1 in integers, neither of which a dataset holds."""
    return bool(np.isnan(part.min()) if part.dtype.kind == "f" else part.min() < 0)


# ---------------------------------------------------------------------- reading


def load(path: Location, *, verify: bool = False) -> Dataset:
    """Open a dataset. Nothing but metadata is read: X is read as it is indexed, each other column at first touch.

    Parameters
    ----------
    path
        Where `Dataset.save` or ``percolab generate`` wrote it: a path, or a URL that fsspec knows.
    verify
        Read everything once and compare it with its digests; raise `StoreError` naming what differs.
    """
    group, attributes = _open(path)
    recipe = schema.recipe_of(attributes, path)
    arrays = {name: _stored(group, name, path) for name in COLUMNS}
    expected = schema.shapes(recipe, len(arrays["point_id"]), len(arrays["cluster_id"]))
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise StoreError(f"{path} is damaged: array {name} must have shape {expected[name]}, got {array.shape}")
    if verify:
        _verify(group, attributes, arrays, silent)
        extras.read(path)

    def read(name: str) -> Any:
        match name:
            case "recipe":
                return recipe
            case "provenance":
                return {**attributes.get("provenance", {}), "loaded_from": str(path)}
            case "X":
                return arrays["X"]
            case "extra":
                return extras.read(path)
            case "forest":
                return Forest(**{column: arrays[column][:] for column in FOREST_COLUMNS})
            case _:
                return arrays[name][:]

    return Dataset.lazy(read)


def open_columns(path: Location, names: Iterable[str]) -> dict[str, StoredArray]:
    """Open some columns of a dataset by name, all of them lazily. Nothing but metadata is read."""
    group, _ = _open(path)
    return {name: _stored(group, name, path) for name in names}


def verify(path: Location, report: Progress = silent) -> None:
    """Read a dataset once and compare it with its digests; raise `StoreError` naming what differs."""
    group, attributes = _open(path)
    _verify(group, attributes, {name: _stored(group, name, path) for name in COLUMNS}, report)
    extras.read(path)


def digests(path: Location) -> dict[str, str]:
    """Return the recorded digest of every array of a store."""
    return dict(_open(path)[1]["sha256"])


def _open(path: Location) -> tuple[zarr.Group, dict[str, Any]]:
    group, attributes = locations.open_store(path)
    if attributes.get("status") != "complete":
        raise StoreError(
            f"{path} is not a dataset but an unfinished write: run the same command again to go on, or delete it"
        )
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{path} has format {attributes.get('format')!r}; this version of percolab reads {FORMAT}")
    return group, attributes


def _stored(group: zarr.Group, name: str, path: Location) -> StoredArray:
    array = locations.open_array(group, name, path)
    if array is None:
        raise StoreError(f"{path} is damaged: array {name} is missing")
    return StoredArray(array, name)


def _verify(group: zarr.Group, attributes: dict[str, Any], arrays: dict[str, StoredArray], report: Progress) -> None:
    """Compare every block of every array with its digest."""
    done, total = 0, sum(array.nbytes for array in arrays.values())
    for name, array in arrays.items():
        recorded = schema.block_digests(group, name)
        if schema.digest(recorded) != attributes.get("sha256", {}).get(name):
            raise StoreError(f"array {name} does not match its digest: the list of block digests was changed")
        for lo, digest in zip(range(0, len(array), array.block_rows), recorded, strict=True):
            block = array[lo : lo + array.block_rows]
            if hashlib.sha256(np.ascontiguousarray(block).data).digest() != digest:
                raise StoreError(f"array {name} does not match its digest in rows {lo} to {lo + len(block) - 1}")
            done += block.nbytes
            report("checking", done, total)
