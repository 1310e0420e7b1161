"""Datasets on disk: a Zarr v3 group that is either complete or recognisably not a dataset.

The group holds one array per column (X, y, latent_z, point_z and the five columns of the forest), each cut into blocks
of rows, one chunk a block. Attributes hold recipe, provenance and a digest per array. `digests/NAME` holds the sha256
of each block of array NAME; the array's digest is the sha256 of those. Every chunk also carries a CRC32C that is
checked whenever it is read.

`save` writes beside its target under another name and moves the store there when complete, so an interrupted write
leaves what was there before. At a URL, where nothing can be moved, it writes in place. The status attribute says
"complete" only at the very end; `percolab.writing` says how a store gets there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab import layout, writing
from percolab.arrays import Report, silent
from percolab.dataset import Dataset
from percolab.forest import Forest
from percolab.layout import COLUMNS, FOREST_COLUMNS, FORMAT, KINDS, Location, StoreError, check_directory

if TYPE_CHECKING:
    import zarr

__all__ = [
    "COLUMNS", "StoreError", "StoredArray", "check_directory", "check_target", "digests", "load", "open_columns", "save"
]  # fmt: skip


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
            raise StoreError(f"{self._name} cannot be read: {layout.one_line(fault)}") from fault
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


# ---------------------------------------------------------------------- writing


def save(dataset: Dataset, path: Location, *, overwrite: bool = False, report: Report = silent) -> None:
    """Write a dataset to a path or a URL. What is at a path stays unless this succeeds."""
    check_target(path, overwrite=overwrite)
    target = layout.local_path(path)
    if target is None:
        _write(dataset, path, report)
        return
    _sweep(target)
    partial = target.with_name(f".{target.name}.partial-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _write(dataset, partial, report)
        put_in_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_target(path: Location, *, overwrite: bool) -> None:
    """Raise, in one line, unless a dataset may be written to a path or a URL."""
    target = layout.local_path(path)
    if target is not None:
        check_directory(target)
    status = _status(path)
    if status == "nothing":
        return
    if target is None:
        if status != "writing":
            raise FileExistsError(f"output must not exist, since URLs are not overwritten, got {str(path)!r}")
    elif not overwrite:
        raise FileExistsError(f"output must not exist unless overwrite is given, got {str(path)!r}")
    elif status == "foreign":
        raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(path)!r}")


def _status(path: Location) -> str:
    """Return the status of the store at `path`, or that it is not one of ours, or that nothing is there."""
    try:
        return str(layout.open_store(path)[1].get("status", "foreign"))
    except FileNotFoundError:
        return "nothing"
    except StoreError:
        return "foreign"


def _sweep(target: Path) -> None:
    """Remove what writers that no longer run on this machine left beside `target`."""
    prefix = f".{target.name}.partial-{socket.gethostname()}-"
    for left in target.absolute().parent.glob(prefix.replace("[", "[[]") + "*"):
        process = left.name.removeprefix(prefix).split("-")[0]
        if process.isdigit() and not _runs(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write(dataset: Dataset, path: Location, report: Report) -> None:
    columns = {name: getattr(dataset.forest if name in FOREST_COLUMNS else dataset, name) for name in COLUMNS}
    total = sum(int(column.nbytes) for column in columns.values())
    done = 0
    unfinished = writing.begin(path, dataset.recipe, dataset.forest.n_points, dataset.forest.n_clusters)
    for kind, names in KINDS.items():
        for index in range(unfinished.n_cells(kind)):
            lo, hi = unfinished.span(kind, index)
            part = {name: columns[name][lo:hi] for name in names}
            unfinished.write(kind, lo, part)
            done += sum(column.nbytes for column in part.values())
            report("saving", done, total)
    unfinished.finish({key: value for key, value in dataset.provenance.items() if key != "loaded_from"})


def put_in_place(complete: Path, target: Path) -> None:
    """Move a complete store to its target; what was there is removed only after that."""
    previous = target.with_name(f".{target.name}.replaced-{secrets.token_hex(4)}")
    if target.exists():
        target.rename(previous)
    try:
        complete.rename(target)
    except BaseException:
        if previous.exists():
            previous.rename(target)
        raise
    for replaced in target.parent.glob(f".{target.name}.replaced-*".replace("[", "[[]")):
        shutil.rmtree(replaced, ignore_errors=True)


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
    recipe = layout.recipe_of(attributes, path)
    arrays = {name: _stored(group, name, path) for name in COLUMNS}
    expected = layout.shapes(recipe, len(arrays["point_id"]), len(arrays["cluster_id"]))
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise StoreError(f"{path} is damaged: array {name} must have shape {expected[name]}, got {array.shape}")
    if verify:
        _verify(group, attributes, arrays, silent)

    def read(name: str) -> Any:
        match name:
            case "recipe":
                return recipe
            case "provenance":
                return {**attributes.get("provenance", {}), "loaded_from": str(path)}
            case "X":
                return arrays["X"]
            case "forest":
                return Forest(**{column: arrays[column][:] for column in FOREST_COLUMNS})
            case _:
                return arrays[name][:]

    return Dataset.lazy(read)


def open_columns(path: Location, names: Iterable[str]) -> dict[str, StoredArray]:
    """Open some columns of a dataset by name, all of them lazily. Nothing but metadata is read."""
    group, _ = _open(path)
    return {name: _stored(group, name, path) for name in names}


def verify(path: Location, report: Report = silent) -> None:
    """Read a dataset once and compare it with its digests; raise `StoreError` naming what differs."""
    group, attributes = _open(path)
    _verify(group, attributes, {name: _stored(group, name, path) for name in COLUMNS}, report)


def digests(path: Location) -> dict[str, str]:
    """Return the recorded digest of every array of a store."""
    return dict(_open(path)[1]["sha256"])


def _open(path: Location) -> tuple[zarr.Group, dict[str, Any]]:
    group, attributes = layout.open_store(path)
    if attributes.get("status") != "complete":
        raise StoreError(
            f"{path} is not a dataset but an unfinished write: run the same command again to go on, or delete it"
        )
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{path} has format {attributes.get('format')!r}; this version of percolab reads {FORMAT}")
    return group, attributes


def _stored(group: zarr.Group, name: str, path: Location) -> StoredArray:
    array = layout.open_array(group, name, path)
    if array is None:
        raise StoreError(f"{path} is damaged: array {name} is missing")
    return StoredArray(array, name)


def _verify(group: zarr.Group, attributes: dict[str, Any], arrays: dict[str, StoredArray], report: Report) -> None:
    """Compare every block of every array with its digest."""
    done, total = 0, sum(array.nbytes for array in arrays.values())
    for name, array in arrays.items():
        recorded = layout.block_digests(group, name)
        if layout.digest(recorded) != attributes.get("sha256", {}).get(name):
            raise StoreError(f"array {name} does not match its digest: the list of block digests was changed")
        for lo, digest in zip(range(0, len(array), array.block_rows), recorded, strict=True):
            block = array[lo : lo + array.block_rows]
            if hashlib.sha256(np.ascontiguousarray(block).data).digest() != digest:
                raise StoreError(f"array {name} does not match its digest in rows {lo} to {lo + len(block) - 1}")
            done += block.nbytes
            report("checking", done, total)
