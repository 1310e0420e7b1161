"""Datasets on disk: a Zarr v3 group that is either complete or recognisably not a dataset.

The group holds one array per column (X, y, latent_z, point_z and the five columns of the forest), each cut into blocks
of rows, one chunk a block. Attributes hold recipe, provenance and a digest per array. `digests/NAME` holds the sha256
of each block of array NAME; the array's digest is the sha256 of those. Every chunk also carries a CRC32C that is
checked whenever it is read.

A store is written beside its target under another name and moved there when complete, so an interrupted write
leaves what was there before. Its status attribute says "complete" only at the very end.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.arrays import Report
from percolab.dataset import Dataset
from percolab.forest import Forest
from percolab.recipe import Recipe

if TYPE_CHECKING:
    import zarr

FORMAT = 1
BLOCK_BYTES = 1 << 22
"""Size a block of rows comes close to: large enough to stream, small enough to read a few rows from."""

FOREST_COLUMNS = ("cluster_start", "cluster_id", "point_id", "left_size", "bond")
VALUE_COLUMNS = ("y", "latent_z", "point_z")
COLUMNS = ("X", *VALUE_COLUMNS, *FOREST_COLUMNS)
_ROW_DIMENSION = {
    "X": "point", "y": "point", "point_z": "point", "point_id": "point", "latent_z": "latent", "left_size": "latent",
    "bond": "latent", "cluster_id": "cluster", "cluster_start": "cluster_edge",
}  # fmt: skip
_COLUMN_DIMENSION = {"X": "feature", "bond": "end"}


class StoreError(ValueError):
    """A store that is not a dataset, is incomplete, or is damaged."""


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
            raise StoreError(f"{self._name} cannot be read: {_one_line(fault)}") from fault
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


def save(
    dataset: Dataset, path: str | os.PathLike[str], *, overwrite: bool = False, report: Report | None = None
) -> None:
    """Write a dataset to `path`. What is there stays unless this succeeds."""
    target = Path(path)
    check_target(target, overwrite=overwrite)
    _sweep(target)
    partial = target.with_name(f".{target.name}.partial-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _write(dataset, partial, report or (lambda *_: None))
        _put_in_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Raise, in one line, unless a dataset may be written to `path`."""
    target = Path(path)
    check_directory(path)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not overwrite:
        raise FileExistsError(f"output must not exist unless overwrite is given, got {str(path)!r}")
    if _status(target) is None:
        raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(path)!r}")


def check_directory(path: str | os.PathLike[str]) -> None:
    """Raise OSError, in one line, unless something new may be made beside `path`."""
    parent = Path(path).absolute().parent
    if not parent.is_dir():
        raise FileNotFoundError(f"output must be in an existing directory, got {str(path)!r}")
    try:
        # Permissions do not tell for a superuser or on a read-only disk, so try.
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise PermissionError(f"output must be in a writable directory, got {str(path)!r}") from error


def _status(path: Path) -> str | None:
    """Return the status of the store at `path`, or None if it is not one of ours."""
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]["percolab"]
        return str(attributes["status"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


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


def _write(dataset: Dataset, path: Path, report: Report) -> None:
    import zarr

    group = zarr.create_group(path, zarr_format=3, attributes={"percolab": {"format": FORMAT, "status": "writing"}})
    columns = {name: getattr(dataset.forest if name in FOREST_COLUMNS else dataset, name) for name in COLUMNS}
    total = sum(int(column.nbytes) for column in columns.values())
    done = 0
    digests = {}
    for name, column in columns.items():
        array = _create_array(group, name, column.shape, column.dtype)
        found = []
        for lo, hi in _blocks(array):
            block = np.ascontiguousarray(column[lo:hi])
            array[lo:hi] = block
            found.append(hashlib.sha256(block.data).digest())
            done += block.nbytes
            report("saving", done, total)
        _put_block_digests(group, name, found)
        digests[name] = _digest(found)
    provenance = {key: value for key, value in dataset.provenance.items() if key != "loaded_from"}
    group.attrs["percolab"] = {
        "format": FORMAT,
        "status": "complete",
        "recipe": dataset.recipe.to_dict(),
        "provenance": provenance,
        "sha256": digests,
    }


def _create_array(group: zarr.Group, name: str, shape: tuple[int, ...], dtype: Any) -> zarr.Array[Any]:
    from zarr.codecs import BloscCodec, Crc32cCodec

    dtype = np.dtype(dtype)
    row_bytes = max(1, dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64)))
    rows = min(1 << max(0, (BLOCK_BYTES // row_bytes).bit_length() - 1), max(1, shape[0]))
    # Gaussians do not compress; sizes and row numbers shrink several times.
    packing = [BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")] if dtype.kind == "i" else []
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(rows, *shape[1:]),
        compressors=[*packing, Crc32cCodec()],
        fill_value=-1 if dtype.kind == "i" else np.nan,
        dimension_names=[_ROW_DIMENSION[name], *([_COLUMN_DIMENSION[name]] if len(shape) == 2 else [])],
        config={"write_empty_chunks": True},
    )


def _blocks(array: Any) -> Iterator[tuple[int, int]]:
    rows = int(array.chunks[0])
    for lo in range(0, array.shape[0], rows):
        yield lo, min(lo + rows, array.shape[0])


def _put_block_digests(group: zarr.Group, name: str, found: list[bytes]) -> None:
    table = np.frombuffer(b"".join(found), np.uint8).reshape(-1, 32)
    array = group.create_array(f"digests/{name}", shape=table.shape, dtype=np.uint8, chunks=(1 << 16, 32))
    array[:] = table


def _digest(found: list[bytes]) -> str:
    """Return the digest of an array: the sha256 of the sha256 of its blocks."""
    return hashlib.sha256(b"".join(found)).hexdigest()


def _put_in_place(complete: Path, target: Path) -> None:
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
    shutil.rmtree(previous, ignore_errors=True)


# ---------------------------------------------------------------------- reading


def load(path: str | os.PathLike[str], *, verify: bool = False) -> Dataset:
    """Open a dataset. Nothing but metadata is read: X is read as it is indexed, each other column at first touch.

    Parameters
    ----------
    path
        Where `Dataset.save` or ``percolab generate`` wrote it.
    verify
        Read everything once and compare it with its digests; raise `StoreError` naming what differs.
    """
    group, attributes = _open(Path(path))
    recipe = _recipe(Path(path), attributes)
    arrays = {name: _stored(group, name, path) for name in COLUMNS}
    _check_shapes(arrays, recipe, path)
    if verify:
        _verify(group, attributes, arrays)

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


def digests(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the recorded digest of every array of a store."""
    return dict(_open(Path(path))[1]["sha256"])


def _open(path: Path) -> tuple[zarr.Group, dict[str, Any]]:
    import zarr

    if not path.exists():
        raise FileNotFoundError(f"dataset must exist, got {str(path)!r}")
    try:
        group = zarr.open_group(path, mode="r", zarr_format=3)
        attributes: Any = group.attrs.get("percolab")
    except FileNotFoundError:
        raise StoreError(f"{path} is not a percolab dataset: it is not a Zarr group") from None
    except Exception as fault:
        raise StoreError(f"{path} is not a percolab dataset: {_one_line(fault)}") from fault
    if not isinstance(attributes, dict):
        raise StoreError(f"{path} is not a percolab dataset: it is a Zarr group of another kind")
    if attributes.get("status") != "complete":
        raise StoreError(f"{path} is not a dataset but an interrupted write: make it again or delete it")
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{path} has format {attributes.get('format')!r}; this version of percolab reads {FORMAT}")
    return group, attributes


def _recipe(path: Path, attributes: dict[str, Any]) -> Recipe:
    try:
        return Recipe.from_dict(attributes["recipe"])
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"{path} has a damaged recipe: {_one_line(fault)}") from fault


def _stored(group: zarr.Group, name: str, path: str | os.PathLike[str]) -> StoredArray:
    import zarr

    try:
        array = group[name]
    except KeyError:
        raise StoreError(f"{path} is damaged: array {name} is missing") from None
    except Exception as fault:
        raise StoreError(f"{path} is damaged: array {name} cannot be opened: {_one_line(fault)}") from fault
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{path} is damaged: {name} is not an array")
    return StoredArray(array, name)


def _check_shapes(arrays: dict[str, StoredArray], recipe: Recipe, path: str | os.PathLike[str]) -> None:
    n, n_clusters = len(arrays["point_id"]), len(arrays["cluster_id"])
    rows = {"point": n, "latent": n - n_clusters, "cluster": n_clusters, "cluster_edge": n_clusters + 1}
    columns = {"X": (recipe.dim,), "bond": (2,)}
    for name, array in arrays.items():
        expected = (rows[_ROW_DIMENSION[name]], *columns.get(name, ()))
        if array.shape != expected:
            raise StoreError(f"{path} is damaged: array {name} must have shape {expected}, got {array.shape}")


def _verify(group: zarr.Group, attributes: dict[str, Any], arrays: dict[str, StoredArray]) -> None:
    """Compare every block of every array with its digest."""
    for name, array in arrays.items():
        recorded = _block_digests(group, name)
        if _digest(recorded) != attributes.get("sha256", {}).get(name):
            raise StoreError(f"array {name} does not match its digest: the list of block digests was changed")
        for (lo, hi), digest in zip(_blocks(array._array), recorded, strict=True):
            if hashlib.sha256(np.ascontiguousarray(array[lo:hi]).data).digest() != digest:
                raise StoreError(f"array {name} does not match its digest in rows {lo} to {hi - 1}")


def _block_digests(group: zarr.Group, name: str) -> list[bytes]:
    try:
        table = np.asarray(group[f"digests/{name}"][:])  # type: ignore[index]
    except Exception as fault:
        raise StoreError(f"digests of array {name} cannot be read: {_one_line(fault)}") from fault
    return [row.tobytes() for row in table]


def _one_line(fault: BaseException) -> str:
    return " ".join(str(fault).split()) or type(fault).__name__
