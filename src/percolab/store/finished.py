"""Datasets, worlds and documents on disk: a Zarr v3 group that is either complete or recognisably not a dataset.

The group of a dataset holds one array per column (X, y, latent_z, point_z and the five columns of the forest), each cut
into blocks of rows, one chunk per block. Attributes hold the recipe, the provenance, one digest per array, and one
digest of this whole description. `digests/NAME` holds the sha256 of each block of array NAME; the array's digest is the
sha256 of these. Every chunk also carries a CRC32C that is checked when it is read.

The group of a world holds X, y and rows; ``factors/K`` holds all columns of the dataset of factor K but X, which its
recipe makes again.

`commit.save` writes beside its target under another name and moves the complete store to the target, so an interrupted
write leaves the target unchanged. At a URL, where nothing can be moved, it writes to the target itself. The status
attribute says "complete" only at the very end; `unfinished` describes how a store is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.dataset.dataset import Dataset, Lazy
from percolab.ground.progress import Progress, silent
from percolab.ground.text import one_line
from percolab.ground.validation import check_choice
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.store import metadata, schema
from percolab.store.byte_sources import source
from percolab.store.chunks import Chunks
from percolab.store.digests import Cells, block_fault, recorded
from percolab.store.locations import Location, absolute
from percolab.store.schema import CYCLE_COLUMNS, FOREST_COLUMNS, SAMPLE_COLUMNS, Content, StoreError
from percolab.store.stored_array import StoredArray
from percolab.worlds.superposed import RemadeArray, Superposed
from percolab.worlds.superposition import Superposition


def load(path: Location, *, verify: bool = False) -> Any:
    """Open a dataset, a superposed world, or documents. Nothing but metadata is read.

    X, and every column of documents, is read when it is indexed; other fields are read when first used.

    Parameters
    ----------
    path
        Where `save`, ``percolab generate`` or ``percolab documents`` wrote it: a path, or a URL that fsspec knows.
    verify
        Read everything once and compare it with its digests; raise `StoreError` naming the array that differs.
    """
    store = Complete(path)
    if verify:
        store.verify()
    kinds: dict[type, type[Lazy]] = {Superposition: Superposed, DocumentRange: StoredDocuments}
    return kinds.get(type(store.recipe), Dataset).lazy(store.field)


def load_points(path: Location) -> Any:
    """Open a dataset or a superposed world; refuse documents, which have no X."""
    dataset = load(path)
    if isinstance(dataset, StoredDocuments):
        raise ValueError(f"dataset must be one of points, got documents at {str(path)!r}")
    return dataset


# ---------------------------------------------------------------------- a store


class Complete(Cells):
    """A complete store. Opening it reads and checks its whole description, and no data.

    Later reads return data of the same store, or raise.

    Parameters
    ----------
    location
        Where it is.
    """

    identity: str  #: digest of the description of the store, digests of the arrays included

    def __init__(self, location: Location, identity: str | None = None) -> None:
        self.given = location
        self.location = absolute(location)
        self.source = source(self.location)
        self._stamp: object = None
        with suppress(StoreError):  # `attributes` raises with the reason
            self._stamp = self._look()
        self.attributes = metadata.attributes(self.source, location)
        metadata.check_complete(self.attributes, location)
        self.recipe: Any = schema.recipe_of(self.attributes, location)
        self.cell = schema.cell_of(self.recipe)
        self.layouts = metadata.layouts(self.source, self.recipe, location, self.attributes)
        self.identity = metadata.digest(self.attributes, self.layouts)
        if self.attributes.get("metadata_sha256") != self.identity:
            raise StoreError(f"{location} is damaged: its metadata do not match their digest")
        if identity is not None and identity != self.identity:
            raise self._changed()
        self.made: dict[str, Any] = self.attributes["provenance"]
        self.sha256: dict[str, str] = self.attributes["sha256"]  #: the recorded digest of every array
        if isinstance(self.recipe, Superposition):
            self.sigma = _sigma(self.made, self.recipe, location)
        self._digests: dict[str, list[bytes]] = {}
        self._chunks = {name: Chunks(self.source, name, layout) for name, layout in self.layouts.items()}

    def check_unchanged(self) -> None:
        """Raise if the store was replaced or removed since it was opened."""
        now = self._look()
        if now == self._stamp:
            return
        try:
            there = metadata.attributes(self.source, self.given)
        except (FileNotFoundError, StoreError):
            there = {}
        if there.get("metadata_sha256") != self.identity or there.get("status") != "complete":
            raise self._changed()
        self._stamp = now

    def _changed(self) -> StoreError:
        return StoreError(f"{self.given} was changed after it was loaded: load it again")

    def __reduce__(self) -> tuple[type[Complete], tuple[str, str]]:
        return type(self), (self.location, self.identity)

    def _look(self) -> object:
        try:
            return self.source.stamp(metadata.ROOT)
        except OSError:
            return None

    @property
    def content(self) -> Content:
        """What the store holds."""
        return schema.content_of(self.recipe)

    def chunks(self, name: str) -> Chunks:
        """Return the chunks of an array."""
        return self._chunks[name]

    def array(self, name: str) -> StoredArray:
        """Return a column, which is read when it is indexed."""
        return StoredArray(self.chunks(name), self.check_unchanged)

    def columns(self, names: Iterable[str]) -> dict[str, StoredArray]:
        """Return some columns of the rows of a dataset, or of the samples of a world."""
        known = next(iter(self.content.kinds.values()), SAMPLE_COLUMNS)
        return {name: self.array(check_choice("columns", name, known)) for name in names}

    # ------------------------------------------------------------------ what it holds

    def field(self, name: str) -> Any:
        """Return a field of the dataset, the world or the documents."""
        match name:
            case "recipe":
                return self.recipe
            case "provenance":
                said = {key: value for key, value in self.made.items() if key not in ("sigma", "factors")}
                return {**said, "loaded_from": str(self.given)}
            case "sigma":
                return self.sigma
            case "rows":
                return self._rows()
            case "factors":
                return tuple(Dataset.lazy(partial(self.factor_field, k)) for k in range(len(self.recipe.factors)))
            case _ if name == "X" or isinstance(self.recipe, DocumentRange):
                return self.array(name)
            case _:
                return self._truth(name, "", self.recipe)

    def factor_field(self, k: int, name: str) -> Any:
        """Return a field of the dataset of a factor."""
        recipe, folder = self.recipe.factors[k], f"factors/{k}/"
        X = RemadeArray(recipe, (self.layouts[f"{folder}point_id"].shape[0], recipe.dim))
        known = {"recipe": recipe, "provenance": dict(self.made["factors"][k]), "X": X}
        return known[name] if name in known else self._truth(name, folder, recipe)

    def _truth(self, name: str, folder: str, recipe: Recipe) -> Any:
        """Return a field of a dataset whose columns are in a folder of the store."""
        if name == "forest":
            return self._forest(folder, recipe)
        return self._extra(folder) if name == "extra" else self.array(f"{folder}{name}")[:]

    def _rows(self) -> NDArray[np.int64]:
        """Return the table of rows, checked, since they index the factors. The rows of one factor are contiguous."""
        rows = np.asfortranarray(self.array("rows")[:])
        check_rows(rows, [self.layouts[f"factors/{k}/y"].shape[0] for k in range(rows.shape[1])], self.given)
        return rows

    def _extra(self, folder: str) -> dict[str, NDArray[Any]]:
        """Return the columns that only some datasets have, without the columns of the forest; booleans are bytes."""
        names = [name for name in schema.EXTRA_COLUMNS if name not in CYCLE_COLUMNS]
        columns = {name: self.array(key)[:] for name in names if (key := f"{folder}extra/{name}") in self.layouts}
        return {
            name: column.astype(np.bool_) if column.dtype == np.uint8 else column for name, column in columns.items()
        }

    def _forest(self, folder: str, recipe: Recipe) -> Forest:
        """Return a forest, checked: compiled code trusts it, and it may come from an untrusted source."""
        keys = {name: f"{folder}{name}" for name in FOREST_COLUMNS}
        # Bonds that close cycles are extra columns of a dataset, but ordinary columns of a factor.
        places = [(name, f"{folder}{extra}{name}") for name in CYCLE_COLUMNS for extra in ("", "extra/")]
        keys |= {name: key for name, key in places if key in self.layouts}
        forest = Forest(**{name: self.array(key)[:] for name, key in keys.items()})
        born = forest.n_clusters if recipe.min_cluster_size == 1 else recipe.n_points
        try:
            forest.check_structure()
        except ValueError as fault:
            raise StoreError(f"{self.given} is damaged: {one_line(fault)}") from fault
        check_below("point_id", forest.point_id, recipe.n_points, self.given)
        check_below("cluster_id", forest.cluster_id, born, self.given)
        return forest

    # ------------------------------------------------------------------ checking

    def verify(self, progress: Progress = silent) -> None:
        """Compare every block of every array with its digest; raise `StoreError` naming the first that differs."""
        for name in self.layouts:
            self._recorded(name)
        for _, _, fault in self.faults(progress):
            if fault is not None:
                raise StoreError(fault)
        others = [name for name in self.layouts if name not in self.content.in_cells]
        for done, name in enumerate(others, 1):
            for block, digest in enumerate(self._recorded(name)):
                if fault := block_fault(self.chunks(name), block, digest):
                    raise StoreError(fault)
            progress("checking arrays", done, len(others))

    def expected(self, kind: str, index: int) -> Sequence[bytes] | None:
        """Return the digests of the blocks of a cell, or None if they were changed."""
        try:
            return [self._recorded(name)[block] for name, block in self.blocks(kind, index)]
        except StoreError:
            return None

    def _recorded(self, name: str) -> list[bytes]:
        if name not in self._digests:
            n_blocks = self.layouts[name].n_blocks
            self._digests[name] = recorded(self.source, name, n_blocks, self.sha256, self.given)
        return self._digests[name]


# ---------------------------------------------------------------------- worlds


def _sigma(made: dict[str, Any], recipe: Superposition, path: Location) -> Any:
    try:
        sigma, factors = np.array(made["sigma"], np.float64), made["factors"]
        if sigma.shape != (len(recipe.factors),) or len(factors) != len(recipe.factors):
            raise ValueError("there must be one for each factor")
        if not isinstance(factors, list) or not all(isinstance(part, dict) for part in factors):
            raise ValueError("factors must be a list of JSON objects")
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"{path} is damaged: sigma or factors: {one_line(fault)}") from fault
    return sigma


def check_rows(rows: NDArray[Any], lengths: list[int], path: Location) -> None:
    """Raise unless every column of a table of rows indexes a factor of the given length."""
    for k, length in enumerate(lengths):
        check_below(f"rows of factor {k}", rows[:, k], length, path)


def check_below(name: str, numbers: NDArray[Any], limit: int, path: Location) -> None:
    """Raise unless all numbers of a column are from 0 to limit - 1."""
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < limit:
        got = f"{numbers.min()} to {numbers.max()}"
        raise StoreError(f"{path} is damaged: {name} must be from 0 to {limit - 1}, got {got}")
