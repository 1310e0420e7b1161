"""A store that is being written, cell by cell, by any number of processes, with interruptions.

When all chunks of a cell are written, a record of their digests is written to ``unfinished/KIND``. A cell without a
record counts as missing, whatever chunks exist; a cell whose chunks do not match its record is written again. Zarr
writes the arrays; they are read back as in a complete store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import files
from percolab.ground.text import one_line, shown
from percolab.model.forest import Forest
from percolab.model.recipe import Written
from percolab.store import digests, locations, metadata, schema
from percolab.store.byte_sources import source
from percolab.store.chunks import THREADS, Chunks, digests_layout, layout_of
from percolab.store.digests import Block, Cells
from percolab.store.locations import Location
from percolab.store.schema import DIGEST_BYTES, FORMAT, Content, Layout, StoredRecipe, StoreError

if TYPE_CHECKING:
    import zarr


class Unfinished(Cells):
    """A store that is being written. It can be sent to other processes; see `begin`.

    Parameters
    ----------
    location
        Where the store is.
    cell
        Rows of a cell.
    """

    def __init__(self, location: Location, cell: int) -> None:
        self.location = os.fspath(location)
        self.cell = cell
        self.source = source(location)
        self._chunks: dict[str, Chunks] = {}
        self._opened: dict[str, zarr.Array[Any]] = {}

    def __reduce__(self) -> tuple[type[Unfinished], tuple[str, int]]:
        return Unfinished, (self.location, self.cell)

    def __repr__(self) -> str:
        return f"Unfinished({self.location!r}, cell={self.cell})"

    # ------------------------------------------------------------------ writing

    def write(self, kind: str, lo: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Write whole cells.

        Parameters
        ----------
        kind
            The kind of the rows: one of `schema.Content`.
        lo
            The first row.
        columns
            The rows from `lo` on, of every array of this kind. They end at the end of a cell or of the array.
        """
        hi = self._check_columns(kind, lo, columns)
        records = self._array(f"unfinished/{kind}")  # opened first: a store that was finished in the meantime has none

        def rows(block: Block) -> slice:
            step = self.chunks(block[0]).layout.block_rows
            return slice(block[1] * step, min((block[1] + 1) * step, hi))

        def data(block: Block) -> NDArray[Any]:
            wanted = rows(block)
            return columns[block[0]][wanted.start - lo : wanted.stop - lo]

        def put(block: Block) -> None:
            array = self._array(block[0])
            self._from_zarr(lambda: array.__setitem__(rows(block), data(block)))

        with ThreadPoolExecutor(1) as hashing, ThreadPoolExecutor(THREADS) as waiting:
            # A disk is not faster with several threads; a server is.
            each = map if self.source.is_local else waiting.map
            for index in range(lo // self.cell, -(-hi // self.cell)):
                blocks = self.blocks(kind, index)
                block_digests = hashing.map(digests.of_block, map(data, blocks))
                list(each(put, blocks))
                _put_record(records, index, list(block_digests))

    def _check_columns(self, kind: str, lo: int, columns: Mapping[str, NDArray[Any]]) -> int:
        """Check the columns to be written and return the row after their last."""
        n, names = self.n_rows(kind), self.content.kinds[kind]
        if set(columns) != set(names):
            raise ValueError(f"columns must be {', '.join(names)}, got {', '.join(columns) or 'none'}")
        hi = lo + len(columns[names[0]])
        if lo % self.cell or not 0 <= lo <= hi <= n or (hi % self.cell and hi != n):
            raise ValueError(f"rows must fill cells of {self.cell} out of {n} rows, got rows {lo} to {hi - 1}")
        for name, column in columns.items():
            known = self.chunks(name).layout
            shape = (hi - lo, *known.shape[1:])
            if column.shape != shape or column.dtype != known.dtype:
                raise ValueError(f"{name} must be {known.dtype} {shape}, got {column.dtype} {column.shape}")
        return hi

    def write_whole(self, name: str, column: NDArray[Any]) -> str:
        """Write an array that is not in cells, and the digests of its blocks; return the digest of the array."""
        layout = layout_of(name, column.shape, column.dtype, self.cell)
        self.create(name, layout)
        blocks = [slice(lo, lo + layout.block_rows) for lo in range(0, len(column), layout.block_rows)]
        for rows in blocks:
            self._array(name)[rows] = np.asarray(column[rows])
        block_digests = [digests.of_block(np.asarray(column[rows])) for rows in blocks]
        self.create(f"digests/{name}", digests_layout(layout.n_blocks))
        self._array(f"digests/{name}")[:] = _table(block_digests)
        return digests.of_array(block_digests)

    def finish(
        self, provenance: Mapping[str, Any], whole: Mapping[str, str] | None = None, *, sync: bool = True
    ) -> None:
        """Turn the store into a complete dataset, once every cell has a record.

        Parameters
        ----------
        provenance
            Versions, platform and time of making, for the attributes.
        whole
            The digests of the arrays that `write_whole` wrote.
        sync
            Sync everything to disk before the store is marked as complete.
        """
        block_digests = self._collect()
        for name, blocks in block_digests.items():
            self._array(f"digests/{name}")[:] = _table(blocks)
        sha256 = {name: digests.of_array(blocks) for name, blocks in block_digests.items()}
        begun = {**self.attributes, "sha256": {**sha256, **(whole or {})}}
        if self.content.kinds:  # a world, which is written whole, has no records
            # From here on the records can be made again from the digests; begin does so if this is interrupted.
            self.say(begun, sync=sync)
            self._sweep()
            del self.group["unfinished"]
        complete = {
            "format": FORMAT,
            "status": "complete",
            "recipe": begun["recipe"],
            "provenance": dict(provenance),
            "sha256": begun["sha256"],
        }
        arrays = {name: self.chunks(name).layout for name in sorted(begun["sha256"])}
        if sync:
            self.sync()
        self.say(complete | {"metadata_sha256": metadata.digest(complete, arrays)}, sync=sync)

    def sync(self, key: str = "") -> None:
        """Sync the whole store, or a part of it, to disk, if it is on this machine."""
        path = locations.local_path(self.location)
        if path is not None:
            files.sync_tree(path / key)
            files.sync((path / key).parent)

    def _sweep(self) -> None:
        """Remove the temporary files that killed writers left."""
        path = locations.local_path(self.location)
        for file in [] if path is None else list(path.rglob("*.partial")):
            if locations.TEMPORARY.fullmatch(file.name):
                file.unlink(missing_ok=True)

    # ------------------------------------------------------------------ arrays

    @cached_property
    def group(self) -> zarr.Group:
        """The store as a Zarr group, for writing."""
        import zarr

        metadata.attributes(self.source, self.location)  # raises first: Zarr would create a missing directory
        place = locations.zarr_store(self.location)
        return self._from_zarr(lambda: zarr.open_group(place, mode="r+", zarr_format=3, use_consolidated=False))

    def _from_zarr(self, asked: Callable[[], Any]) -> Any:
        """Return the result of a call to Zarr, which uses fields of a description that percolab does not check."""
        try:
            return asked()
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as fault:
            raise StoreError(f"{self.location} is not an unfinished store: {one_line(fault)}") from fault

    @cached_property
    def content(self) -> Content:
        """What the store holds."""
        return schema.content_of(self.attributes.get("recipe"))

    @property
    def attributes(self) -> dict[str, Any]:
        """The current attributes of the store."""
        return metadata.attributes(self.source, self.location)

    def say(self, attributes: dict[str, Any], *, sync: bool = False) -> None:
        """Replace the attributes of the store, in one step."""
        path = locations.local_path(self.location)
        if path is None:
            self.group.attrs["percolab"] = attributes
            return
        root = {"attributes": {"percolab": attributes}, "zarr_format": 3, "node_type": "group"}
        with files.replacing(path / metadata.ROOT) as written:
            written.write_text(json.dumps(root, indent=2))
            if sync:
                files.sync(written)
        if sync:
            files.sync(path)

    def create(self, name: str, layout: Layout, **how: Any) -> None:
        """Create an array, unless it exists already with this layout."""
        known = metadata.layout(self.source, name, self.location)
        if known is None:
            create, how = self.group.create_array, {**_packing(layout), **how}
            self._from_zarr(lambda: create(name, shape=layout.shape, dtype=layout.dtype, chunks=layout.chunks, **how))
        elif known != layout:
            raise FileExistsError(f"array {name} of {self.location!r} must be {layout} to resume, got {known}")
        self._chunks.pop(name, None)

    def chunks(self, name: str) -> Chunks:
        """Return the chunks of an array."""
        if name not in self._chunks:
            known = metadata.layout(self.source, name, self.location)
            if known is None:
                raise StoreError(f"{self.location} is not an unfinished store: array {name} is missing")
            self._chunks[name] = Chunks(self.source, name, known)
        return self._chunks[name]

    def _array(self, name: str) -> zarr.Array[Any]:
        """Return an array for writing."""
        if name not in self._opened:
            self.chunks(name)  # raises if it is missing
            group = self.group
            array: Any = self._from_zarr(lambda: group[name])
            # Otherwise Zarr searches every chunk for values other than the fill value.
            self._opened[name] = array.with_config({"write_empty_chunks": True})
        return self._opened[name]

    # ------------------------------------------------------------------ records

    def expected(self, kind: str, index: int) -> Sequence[bytes] | None:
        """Return the recorded digests of the blocks of a cell, or None if there is no record of it."""
        try:
            table = self.chunks(f"unfinished/{kind}").read(index)
        except StoreError:  # a damaged record counts as missing
            return None
        return [row.tobytes() for row in table.reshape(-1, DIGEST_BYTES)] if table.any() else None

    def recall(self, recorded: Mapping[str, str]) -> None:
        """Make the records from the block digests of a finished store, for each kind whose digests are valid."""
        for kind, names in self.content.kinds.items():
            try:
                lengths = {name: self.chunks(name).layout.n_blocks for name in names}
                known = {
                    name: digests.recorded(self.source, name, lengths[name], recorded, self.location) for name in names
                }
            except StoreError:
                continue
            records = self._array(f"unfinished/{kind}")
            for index in range(self.n_cells(kind)):
                _put_record(records, index, [known[name][block] for name, block in self.blocks(kind, index)])

    def _collect(self) -> dict[str, list[bytes]]:
        """Return the digests of the blocks of every array, from the records."""
        block_digests: dict[str, list[bytes]] = {
            name: [] for name in self.content.columns if name in self.content.in_cells
        }
        for kind, index in self.cells():
            record = self.expected(kind, index)
            if record is None:
                raise StoreError(f"{self.location} is not complete: {kind} cell {index} is not written")
            for (name, _), digest in zip(self.blocks(kind, index), record, strict=False):
                block_digests[name].append(digest)
        return block_digests


def _put_record(records: zarr.Array[Any], index: int, block_digests: Sequence[bytes]) -> None:
    record = np.zeros(records.chunks, np.uint8)
    record[: len(block_digests) * DIGEST_BYTES] = _table(block_digests).ravel()
    width = int(records.chunks[0])
    records[index * width : (index + 1) * width] = record


def _table(block_digests: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(block_digests), np.uint8).reshape(-1, DIGEST_BYTES)


def _packing(layout: Layout) -> dict[str, Any]:
    """Return how the chunks of an array are packed, and the fill value that marks missing chunks."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    packing = [BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")] if layout.packed else []
    empty = {"i": -1, "u": 0, "f": np.nan}[layout.dtype.kind]
    return {"compressors": [*packing, Crc32cCodec()], "fill_value": empty}


# ---------------------------------------------------------------------- begun, or resumed


def begin(location: Location, recipe: StoredRecipe, n_points: int, n_clusters: int) -> Unfinished:
    """Return the store of a recipe, ready to be written.

    A store that was begun before, with the same recipe and the same version of its engine, is resumed. So is a complete
    store: it becomes unfinished again and `Unfinished.missing` lists its damaged cells. Anything else at the location
    is refused. Two runs must not begin at once: see `exclusion.alone`.

    Parameters
    ----------
    location
        A path, or a URL that fsspec knows.
    recipe
        The recipe of the dataset.
    n_points, n_clusters
        The numbers of points and clusters, after any filter; documents have neither.
    """
    import zarr

    wanted = _attributes_of(recipe)
    metadata.check_length(wanted)
    path, is_new = locations.local_path(location), status(location, recipe) is None
    if path is not None and not is_new:
        files.check_plain(path)  # Zarr reads and writes by name, and would follow links
    elif path is not None:
        files.check_directory(path)
    if is_new:
        zarr.create_group(locations.zarr_store(location), zarr_format=3, attributes={"percolab": wanted})
    store = Unfinished(location, wanted["cell"])
    _prepare(store, recipe, n_points, n_clusters, wanted)
    return store


def status(location: Location, recipe: StoredRecipe) -> str | None:
    """Return the status of the store of a recipe, "writing" or "complete"; None if the location is free.

    Raises FileExistsError if the location holds something else.
    """
    path = locations.local_path(location)
    if path is not None:
        files.check_name(path)
    try:
        there = metadata.attributes(source(location), location)
    except FileNotFoundError:
        return None
    except StoreError as fault:
        raise FileExistsError(f"output must be new or a dataset of the same recipe: {fault}") from fault
    _check_same(location, there, _attributes_of(recipe))
    return str(there.get("status"))


def _attributes_of(recipe: StoredRecipe) -> dict[str, Any]:
    """Return the attributes of an unfinished store."""
    return {
        "format": FORMAT,
        "status": "writing",
        "recipe": recipe.to_dict(),
        "engine_version": schema.version_of(recipe),
        "cell": schema.cell_of(recipe),
    }


def _check_same(location: Location, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise unless the store at the location can be resumed."""
    origin = there.get("provenance")
    # The attributes of a complete store do not include its cell.
    said = {"cell": wanted["cell"], **(origin if isinstance(origin, dict) else {}), **there}
    for key in ("format", "engine_version", "cell"):
        _check_field(location, key, said.get(key), wanted[key])
    if "modified" in said:
        raise FileExistsError(
            f"the store at {str(location)!r} must be as its recipe makes it to resume, got a modified one: "
            f"{shown(said['modified'])}"
        )
    theirs, ours = schema.recipe_of(dict(there), location), schema.recipe_of(dict(wanted), location)
    _check_field(location, "kind", type(theirs).__name__, type(ours).__name__)
    for differing in _differences("recipe", theirs, ours):
        _check_field(location, *differing)


def _differences(name: str, stored: Any, wanted: Any) -> Iterator[tuple[str, object, object]]:
    """Yield the fields in which two recipes, or recipes inside them, differ: name, stored and wanted value."""
    if isinstance(wanted, Written) and type(stored) is type(wanted):
        for field in fields(wanted):  # type: ignore[arg-type]
            yield from _differences(field.name, getattr(stored, field.name), getattr(wanted, field.name))
    elif isinstance(wanted, tuple) and name in ("lexicons", "factors") and len(stored) == len(wanted):
        for one, other in zip(stored, wanted, strict=True):
            yield from _differences(name, one, other)
    elif isinstance(wanted, Forest) and isinstance(stored, Forest):
        if not all(np.array_equal(getattr(stored, f.name), getattr(wanted, f.name)) for f in fields(wanted)):
            yield name, stored, wanted
    elif stored != wanted:
        yield name, stored, wanted


def _check_field(location: Location, name: str, stored: object, wanted: object) -> None:
    if stored != wanted:
        raise FileExistsError(
            f"{name} of the store at {str(location)!r} must be {wanted} to resume, got {shown(stored)}; "
            "choose another output, or overwrite it"
        )


def _prepare(store: Unfinished, recipe: StoredRecipe, n_points: int, n_clusters: int, wanted: dict[str, Any]) -> None:
    """Create the missing arrays, which may be any of them if a writer was killed, and check the others."""
    recorded = store.attributes.get("sha256")
    columns = schema.columns_of(recipe, n_points, n_clusters)
    for kind, name in ((kind, name) for kind, names in store.content.kinds.items() for name in names):
        layout = layout_of(name, *columns[name], store.cell)
        second = {"X": "feature", "y": "level", "bond": "end"}.get(name, "position" if kind == "document" else None)
        names = [kind, second][: len(layout.shape)]
        store.create(name, layout, dimension_names=names)
        store.create(f"digests/{name}", digests_layout(layout.n_blocks))
    if recorded is not None:
        del store.group["unfinished"]
    for kind in store.content.kinds:
        width = DIGEST_BYTES * max(1, len(store.blocks(kind, 0)))  # no cell has more blocks than the first
        store.create(f"unfinished/{kind}", Layout((store.n_cells(kind) * width,), np.dtype(np.uint8), width, False))
    if recorded is not None:
        store.recall(recorded if isinstance(recorded, dict) else {})
        store.sync("unfinished")  # before the attributes mark the store as unfinished
        store.say(wanted, sync=True)
