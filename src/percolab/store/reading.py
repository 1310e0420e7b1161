"""Datasets on disk: a Zarr v3 group that is either complete or recognisably not a dataset.

The group holds one array per column (X, y, latent_z, point_z and the five columns of the forest), each cut into blocks
of rows, one chunk a block. Attributes hold recipe, provenance, a digest per array and one of all that is said here.
`digests/NAME` holds the sha256 of each block of array NAME; the array's digest is the sha256 of those. Every chunk also
carries a CRC32C that is checked when it is read.

`saving.save` writes beside its target under another name and moves the store there when complete, so an interrupted
write leaves what was there before. At a URL, where nothing can be moved, it writes to the target itself. The status
attribute says "complete" only at the very end; `unfinished` says how a store gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import DocumentRange
from percolab.dataset.dataset import Dataset
from percolab.ground.progress import Progress, silent
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.store import metadata, schema
from percolab.store.arrays import StoredArray
from percolab.store.cells import Cells
from percolab.store.chunks import Chunks
from percolab.store.digests import check_array, recorded
from percolab.store.locations import Location
from percolab.store.opened import Opened
from percolab.store.schema import AnyRecipe, Content, StoreError

EXTRA_OF_FOREST = ("extra_bond", "extra_latent")


def load(path: Location, *, verify: bool = False) -> Dataset:
    """Open a dataset. Nothing but metadata is read: X is read as it is indexed, each other column at first touch.

    Parameters
    ----------
    path
        Where `Dataset.save` or ``percolab generate`` wrote it: a path, or a URL that fsspec knows.
    verify
        Read everything once and compare it with its digests; raise `StoreError` naming what differs.
    """
    store = Complete(path)
    if verify:
        store.verify()
    return Dataset.lazy(store.field)


def open_columns(path: Location, names: Iterable[str]) -> dict[str, StoredArray]:
    """Open some columns of a dataset by name, all of them lazily. Nothing but metadata is read."""
    store = Complete(path)
    return {name: store.array(name) for name in names}


def verify(path: Location, progress: Progress = silent) -> None:
    """Read a dataset once and compare it with its digests; raise `StoreError` naming what differs."""
    Complete(path).verify(progress)


def digests(path: Location) -> dict[str, str]:
    """Return the recorded digest of every array of a dataset."""
    return Complete(path).sha256


def reopen(location: Location, identity: str) -> Complete:
    """Open a store again, in another process or later; raise if another dataset is there now."""
    store = Complete(location)
    store.check_identity(identity)
    return store


class Complete(Opened, Cells):
    """A complete store. Opening it reads and checks all that it says of itself, and no data.

    Parameters
    ----------
    location
        Where it is.
    """

    def __init__(self, location: Location) -> None:
        super().__init__(location)
        metadata.check_complete(self.attributes, location)
        self.recipe: AnyRecipe = schema.recipe_of(self.attributes, location)
        self.cell = schema.cell_of(self.recipe)
        names, modified = self.attributes["sha256"], "modified" in self.attributes["provenance"]
        self.layouts = metadata.layouts(self.source, self.recipe, location, names, modified=modified)
        self.identity = metadata.check_digest(self.attributes, self.layouts, location)
        self._digests: dict[str, list[bytes] | StoreError] = {}
        self._chunks = {name: Chunks(self.source, name, layout) for name, layout in self.layouts.items()}

    @property
    def content(self) -> Content:
        """What the store holds."""
        return schema.content_of(self.recipe)

    @property
    def sha256(self) -> dict[str, str]:
        """The recorded digest of every array."""
        return dict(self.attributes["sha256"])

    def chunks(self, name: str) -> Chunks:
        """Return the chunks of an array."""
        return self._chunks[name]

    def array(self, name: str) -> StoredArray:
        """Return a column, which is read when it is indexed."""
        return self.stored(self.chunks(name))

    def __reduce__(self) -> tuple[Callable[..., Complete], tuple[str, str]]:
        return reopen, (self.location, self.identity)

    def field(self, name: str) -> Any:
        """Return a field of the dataset, or of documents."""
        match name:
            case "recipe":
                return self.recipe
            case "provenance":
                return {**self.attributes["provenance"], "loaded_from": str(self.given)}
            case "X":
                return self.array("X")
            case _ if isinstance(self.recipe, DocumentRange):
                return self.array(name)
            case "extra":
                return self._extra()
            case "forest":
                return self._forest()
            case _:
                return self.array(name)[:]

    def _extra(self) -> dict[str, NDArray[Any]]:
        """Return the columns that only some datasets have, but for those of the forest."""
        found = {
            name.removeprefix("extra/"): self.array(name)[:] for name in self.layouts if name in self.content.extra
        }
        return {
            name: column.astype(np.bool_) if column.dtype == np.uint8 else column
            for name, column in found.items()
            if name not in EXTRA_OF_FOREST
        }

    def _forest(self) -> Forest:
        assert isinstance(self.recipe, Recipe)
        extra = tuple(name for name in EXTRA_OF_FOREST if f"extra/{name}" in self.layouts)
        return self.forest(self.recipe, lambda name: self.array(f"extra/{name}" if name in extra else name), extra)

    # ------------------------------------------------------------------ checking

    def verify(self, progress: Progress = silent) -> None:
        """Compare every block of every array with its digest; raise `StoreError` naming the first that differs."""
        for name in self.layouts:
            self._recorded(name)
        for _, _, fault in self.faults(progress):
            if fault is not None:
                raise StoreError(fault)
        for name in self.layouts.keys() & set(self.content.extra):  # these are in no cell
            check_array(self.chunks(name), self._recorded(name))

    def expected(self, kind: str, index: int) -> Sequence[bytes] | None:
        """Return the digests of the blocks of a cell, or None if they were changed."""
        try:
            return [self._recorded(name)[block] for name, block in self.blocks(kind, index)]
        except StoreError:
            return None

    def _recorded(self, name: str) -> list[bytes]:
        if name not in self._digests:
            n_blocks = self.layouts[name].n_blocks
            try:
                self._digests[name] = recorded(self.source, name, n_blocks, self.sha256, self.given)
            except StoreError as fault:
                self._digests[name] = fault
        found = self._digests[name]
        if isinstance(found, StoreError):
            raise found
        return found
