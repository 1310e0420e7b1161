"""Writing a store cell by cell, by any number of processes, with interruptions.

The rows of a store are cut into cells of `CELL` rows: of points, of latents, of clusters and of cluster edges. Every
chunk lies in one cell, so each cell can be written by another process, on another machine, in any order. When all
chunks of a cell are there, a record of their digests is written to ``unfinished/KIND``. A cell without a record is not
written, whatever chunks are there; one whose chunks do not match its record is written again. The arrays and their
chunks depend on the shapes and types of the data alone, so the finished store does not show how it was made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.generation import ENGINES
from percolab.ground import files
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_choice, check_integer
from percolab.model.recipe import Recipe
from percolab.store import locations, schema
from percolab.store.locations import Location
from percolab.store.schema import COLUMNS, FORMAT, KINDS, StoreError

if TYPE_CHECKING:
    import zarr

CELL = 1 << 16
"""Rows that one writer owns."""
BLOCK_BYTES = 1 << 22
"""Size a block of rows comes close to: large enough to stream, small enough to read a few rows from."""
THREADS = 4
"""Threads that read back, and that write to a URL, where most of the time goes into waiting for an answer."""

Block = tuple[str, slice]
"""The name of an array and some of its rows."""

_DIGEST_BYTES = 32
_DIGESTS_A_CHUNK = 1 << 16


def begin(location: Location, recipe: Recipe, n_points: int, n_clusters: int, *, cell: int | None = None) -> Unfinished:
    """Return the store of a recipe, ready to be written.

    A store that was begun before, with the same recipe and the same version of its engine, is gone on with. So is one
    that is complete: it becomes unfinished again and `Unfinished.missing` tells what is damaged. Anything else that is
    there is refused.

    Parameters
    ----------
    location
        A path, or a URL that fsspec knows.
    recipe
        What the dataset is made from.
    n_points, n_clusters
        What it has, after any filter.
    cell
        Rows of a cell, a power of two; None takes `CELL`.
    """
    cell = CELL if cell is None else cell
    if check_integer("cell", cell, 1).bit_count() != 1:
        raise ValueError(f"cell must be a power of two, got {cell}")
    wanted = _attributes_of(recipe, cell)
    if not is_begun(location, recipe, cell=cell):
        _create_group(location, wanted)
    unfinished = Unfinished(location, cell)
    unfinished._prepare(recipe, n_points, n_clusters, wanted)
    return unfinished


def is_begun(location: Location, recipe: Recipe, *, cell: int | None = None) -> bool:
    """Tell whether the store of a recipe is at a location, unfinished or complete; raise if something else is there."""
    there = _what_is_there(location)
    if there is not None:
        _check_same(location, there, _attributes_of(recipe, CELL if cell is None else cell))
    return there is not None


def open_unfinished(location: Location) -> Unfinished:
    """Return a store that `begin` made, for another process to write to."""
    _, attributes = locations.open_store(location)
    if attributes.get("status") != "writing" or "cell" not in attributes:
        raise StoreError(f"{location} is not an unfinished store: its status is {attributes.get('status')!r}")
    return Unfinished(location, attributes["cell"])


class Unfinished:
    """A store that is being written. It can be sent to other processes; see `begin` and `open_unfinished`.

    Parameters
    ----------
    location
        Where it is.
    cell
        Rows of a cell.
    """

    def __init__(self, location: Location, cell: int) -> None:
        self.location = os.fspath(location)
        self.cell = cell
        self._opened: dict[str, zarr.Array[Any]] = {}

    def __reduce__(self) -> tuple[type[Unfinished], tuple[str, int]]:
        return Unfinished, (self.location, self.cell)

    def __repr__(self) -> str:
        return f"Unfinished({self.location!r}, cell={self.cell})"

    # ------------------------------------------------------------------ sizes

    def n_rows(self, kind: str) -> int:
        """Return the number of points, latents, clusters or cluster edges: `kind` is a key of `KINDS`."""
        return int(self._array(KINDS[check_choice("kind", kind, tuple(KINDS))][0]).shape[0])

    def n_cells(self, kind: str) -> int:
        """Return the number of cells of a kind."""
        return -(-self.n_rows(kind) // self.cell)

    def span(self, kind: str, index: int) -> tuple[int, int]:
        """Return the first row of a cell and the row after its last."""
        return index * self.cell, min((index + 1) * self.cell, self.n_rows(kind))

    # ------------------------------------------------------------------ cells

    def write(self, kind: str, lo: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Write whole cells.

        Parameters
        ----------
        kind
            What the rows are: a key of `KINDS`.
        lo
            The first row.
        columns
            The rows from `lo` on, of every array of this kind. They end with a cell or with the array.
        """
        hi = self._check_columns(kind, lo, columns)
        records = self._records(kind)  # opened first: a store that was finished meanwhile has none

        def data(block: Block) -> NDArray[Any]:
            name, rows = block
            return columns[name][rows.start - lo : rows.stop - lo]

        def put(block: Block) -> None:
            name, rows = block
            self._array(name)[rows] = data(block)

        with ThreadPoolExecutor(1) as hashing, ThreadPoolExecutor(THREADS) as waiting:
            # A disk does not answer sooner to several threads; a server does.
            each = map if locations.local_path(self.location) else waiting.map
            for index in range(lo // self.cell, -(-hi // self.cell)):
                blocks = self._blocks(kind, index)
                digests = hashing.map(_sha256, map(data, blocks))
                list(each(put, blocks))
                _put_record(records, index, list(digests))

    def missing(self, report: Progress = silent) -> dict[str, list[int]]:
        """Return the cells of each kind that have no record or do not match it. Everything recorded is read.

        Parameters
        ----------
        report
            Called with a stage, how many cells were looked at and how many there are.
        """
        cells = list(self._cells())
        found: dict[str, list[int]] = {kind: [] for kind in KINDS}
        with ThreadPoolExecutor(THREADS) as pool:
            for done, ((kind, index), whole) in enumerate(zip(cells, pool.map(self._is_whole, cells), strict=True), 1):
                if not whole:
                    found[kind].append(index)
                report("checking", done, len(cells))
        return found

    def finish(self, provenance: Mapping[str, Any]) -> None:
        """Make the store a dataset, once every cell has a record.

        Parameters
        ----------
        provenance
            Versions, platform and time of making, for the attributes.
        """
        found = self._collect()
        for name, digests in found.items():
            self._array(f"digests/{name}")[:] = _table(digests)
        begun = {**self._attributes, "sha256": {name: schema.digest(found[name]) for name in COLUMNS}}
        # From here on the records can be made again from the digests; begin does so if this is interrupted.
        self._group.attrs["percolab"] = begun
        self._sweep()
        del self._group["unfinished"]
        self._group.attrs["percolab"] = {
            "format": FORMAT,
            "status": "complete",
            "recipe": begun["recipe"],
            "provenance": dict(provenance),
            "sha256": begun["sha256"],
        }

    # ------------------------------------------------------------------ arrays

    @cached_property
    def _group(self) -> zarr.Group:
        return locations.open_store(self.location, read_only=False)[0]

    @property
    def _attributes(self) -> dict[str, Any]:
        attributes: Any = self._group.attrs["percolab"]
        return dict(attributes)

    def _array(self, name: str) -> zarr.Array[Any]:
        if name not in self._opened:
            array = locations.open_array(self._group, name, self.location)
            if array is None:
                raise StoreError(f"{self.location} is not an unfinished store: array {name} is missing")
            # Else Zarr looks through every chunk whether it holds nothing but fill values.
            self._opened[name] = array.with_config({"write_empty_chunks": True})
        return self._opened[name]

    def _records(self, kind: str) -> zarr.Array[Any]:
        return self._array(f"unfinished/{kind}")

    def _cells(self) -> Iterator[tuple[str, int]]:
        return ((kind, index) for kind in KINDS for index in range(self.n_cells(kind)))

    def _blocks(self, kind: str, index: int) -> list[Block]:
        """Return every block of a cell, in the order of its record."""
        lo, hi = self.span(kind, index)
        steps = [(name, int(self._array(name).chunks[0])) for name in KINDS[kind]]
        return [(name, slice(at, min(at + step, hi))) for name, step in steps for at in range(lo, hi, step)]

    def _check_columns(self, kind: str, lo: int, columns: Mapping[str, NDArray[Any]]) -> int:
        """Check what is to be written and return the row after its last."""
        n = self.n_rows(kind)
        if set(columns) != set(KINDS[kind]):
            raise ValueError(f"columns must be {', '.join(KINDS[kind])}, got {', '.join(columns) or 'none'}")
        hi = lo + len(columns[KINDS[kind][0]])
        if lo % self.cell or not 0 <= lo <= hi <= n or (hi % self.cell and hi != n):
            raise ValueError(f"rows must fill cells of {self.cell} out of {n} rows, got rows {lo} to {hi - 1}")
        for name, column in columns.items():
            array = self._array(name)
            shape = (hi - lo, *array.shape[1:])
            if column.shape != shape or column.dtype != array.dtype:
                raise ValueError(f"{name} must be {array.dtype} {shape}, got {column.dtype} {column.shape}")
        return hi

    # ------------------------------------------------------------------ records

    def _record(self, kind: str, index: int) -> list[bytes] | None:
        """Return the digests of the blocks of a cell, or None if they are not recorded."""
        records = self._records(kind)
        try:
            table = np.asarray(records[_place(records, index)]).reshape(-1, _DIGEST_BYTES)
        except Exception:  # a damaged record is none
            return None
        return [row.tobytes() for row in table] if table.any() else None

    def _is_whole(self, cell: tuple[str, int]) -> bool:
        """Tell whether a cell has a record and matches it."""
        record = self._record(*cell)
        if record is None:
            return False
        try:
            return all(
                _sha256(np.asarray(self._array(name)[rows])) == digest
                for (name, rows), digest in zip(self._blocks(*cell), record, strict=False)
            )
        except Exception:  # a chunk that cannot be read, in any way, is one that is to be written
            return False

    def _collect(self) -> dict[str, list[bytes]]:
        """Return the digests of the blocks of every array, from the records."""
        found: dict[str, list[bytes]] = {name: [] for name in COLUMNS}
        for kind, index in self._cells():
            record = self._record(kind, index)
            if record is None:
                raise StoreError(f"{self.location} is not complete: {kind} cell {index} is not written")
            for (name, _), digest in zip(self._blocks(kind, index), record, strict=False):
                found[name].append(digest)
        return found

    def _recall(self, recorded: Mapping[str, str]) -> None:
        """Make the records from the block digests of a finished store, of each kind whose digests are sound."""
        for kind, names in KINDS.items():
            try:
                found = {name: schema.block_digests(self._group, name) for name in names}
            except StoreError:
                continue
            if any(schema.digest(found[name]) != recorded.get(name) for name in names):
                continue
            following = {name: iter(found[name]) for name in names}
            for index in range(self.n_cells(kind)):
                _put_record(self._records(kind), index, [next(following[n]) for n, _ in self._blocks(kind, index)])

    # ------------------------------------------------------------------ beginning and ending

    def _prepare(self, recipe: Recipe, n_points: int, n_clusters: int, wanted: Mapping[str, Any]) -> None:
        """Create what is not there yet, which is anything when a writer was killed, and check what is."""
        recorded = self._attributes.get("sha256")
        if recorded is not None:
            del self._group["unfinished"]
        dtypes = schema.dtypes(recipe)
        for name, shape in schema.shapes(recipe, n_points, n_clusters).items():
            self._require(name, shape, dtypes[name], **_storing(name, shape, dtypes[name], self.cell))
            n_blocks = -(-shape[0] // int(self._array(name).chunks[0]))
            digests = (n_blocks, _DIGEST_BYTES)
            self._require(f"digests/{name}", digests, np.uint8, chunks=(_DIGESTS_A_CHUNK, _DIGEST_BYTES))
        for kind in KINDS:
            width = _DIGEST_BYTES * max(1, len(self._blocks(kind, 0)))  # no cell has more blocks than the first
            shape = (self.n_cells(kind) * width,)
            self._require(f"unfinished/{kind}", shape, np.uint8, chunks=(width,), compressors=_checked())
        if recorded is not None:
            self._recall(recorded)
            self._group.attrs["percolab"] = dict(wanted)

    def _require(self, name: str, shape: tuple[int, ...], dtype: Any, *, chunks: tuple[int, ...], **how: Any) -> None:
        """Open an array, or create it if it is not there."""
        if locations.open_array(self._group, name, self.location) is None:
            self._group.create_array(name, shape=shape, dtype=dtype, chunks=chunks, **how)
        array = self._array(name)
        found, expected = (array.shape, array.dtype, array.chunks), (shape, np.dtype(dtype), chunks)
        if found != expected:
            said = "{0[0]} {0[1]} in blocks of {0[2]}".format
            raise FileExistsError(
                f"array {name} of {self.location!r} must be {said(expected)} to go on with, got {said(found)}"
            )

    def _sweep(self) -> None:
        """Remove the temporary files that killed writers left."""
        path = locations.local_path(self.location)
        for file in [] if path is None else list(path.rglob("*.partial")):
            if locations.TEMPORARY.fullmatch(file.name):
                file.unlink(missing_ok=True)


# ---------------------------------------------------------------------- what is there


def _what_is_there(location: Location) -> dict[str, Any] | None:
    """Return the attributes of the store at a location, or None if nothing is there."""
    try:
        return locations.open_store(location)[1]
    except FileNotFoundError:
        return None
    except StoreError as fault:
        raise FileExistsError(f"output must be new or a dataset of the same recipe: {fault}") from fault


def _attributes_of(recipe: Recipe, cell: int) -> dict[str, Any]:
    """Return the attributes of an unfinished store."""
    return {
        "format": FORMAT,
        "status": "writing",
        "recipe": recipe.to_dict(),
        "engine_version": ENGINES[recipe.engine].VERSION,
        "cell": cell,
    }


def _create_group(location: Location, attributes: dict[str, Any]) -> None:
    import zarr

    path = locations.local_path(location)
    if path is not None:
        files.check_directory(path)
    zarr.create_group(locations.zarr_store(location), zarr_format=3, attributes={"percolab": attributes})


def _check_same(location: Location, there: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise unless what is there can be gone on with."""
    found = {"cell": wanted["cell"], **there.get("provenance", {}), **there}  # a complete store does not know its cell
    for key in ("format", "engine_version", "cell"):
        _check_field(location, key, found.get(key), wanted[key])
    if "modified" in found:
        raise FileExistsError(
            f"the store at {str(location)!r} must be as its recipe makes it to go on with, got a modified one: "
            f"{found['modified']}"
        )
    theirs, ours = schema.recipe_of(there, location), Recipe.from_dict(wanted["recipe"])
    for field in fields(Recipe):
        _check_field(location, field.name, getattr(theirs, field.name), getattr(ours, field.name))


def _check_field(location: Location, name: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise FileExistsError(
            f"{name} of the store at {str(location)!r} must be {wanted} to go on with, got {found}; "
            "choose another place, or overwrite it"
        )


# ---------------------------------------------------------------------- arrays and records


def _storing(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], cell: int) -> dict[str, Any]:
    """Return how an array is stored: its chunks, what is done to them, and what shows where one is missing."""
    from zarr.codecs import BloscCodec

    row_bytes = max(1, dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64)))
    rows = min(cell, 1 << max(0, (BLOCK_BYTES // row_bytes).bit_length() - 1), max(1, shape[0]))
    integers = dtype.kind == "i"
    # Gaussians do not compress; sizes and row numbers shrink several times.
    packing = [BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")] if integers else []
    kind = next(kind for kind, names in KINDS.items() if name in names)
    return {
        "chunks": (rows, *shape[1:]),
        "compressors": [*packing, *_checked()],
        "fill_value": -1 if integers else np.nan,
        "dimension_names": [kind, {"X": "feature", "y": "level", "bond": "end"}.get(name)][: len(shape)],
    }


def _checked() -> list[Any]:
    """Return what makes a damaged chunk fail to be read."""
    from zarr.codecs import Crc32cCodec

    return [Crc32cCodec()]


def _sha256(data: NDArray[Any]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(data).data).digest()


def _put_record(records: zarr.Array[Any], index: int, digests: Sequence[bytes]) -> None:
    record = np.zeros(records.chunks, np.uint8)
    record[: len(digests) * _DIGEST_BYTES] = _table(digests).ravel()
    records[_place(records, index)] = record


def _place(records: zarr.Array[Any], index: int) -> slice:
    """Return where the record of a cell is: a chunk of its own."""
    width = int(records.chunks[0])
    return slice(index * width, (index + 1) * width)


def _table(digests: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST_BYTES)
