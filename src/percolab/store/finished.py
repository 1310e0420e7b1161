"""Datasets on disk: a Zarr v3 group that is either complete or recognisably not a dataset.

The group holds one array per column (X, y, latent_z, point_z and the five columns of the forest), each cut into blocks
of rows, one chunk per block. Attributes hold recipe, provenance, a digest per array and one of all that is said here.
`digests/NAME` holds the sha256 of each block of array NAME; the array's digest is the sha256 of those. Every chunk also
carries a CRC32C that is checked when it is read.

`worlds.save` writes beside its target under another name and moves the store there when complete, so an interrupted
write leaves what was there before. At a URL, where nothing can be moved, it writes to the target itself. The status
attribute says "complete" only at the very end; `unfinished` says how a store gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import DocumentRange
from percolab.ground.progress import Progress, silent
from percolab.ground.text import one_line
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.store import metadata, schema
from percolab.store.byte_sources import source
from percolab.store.chunks import Chunks
from percolab.store.digests import Cells, check_array, recorded
from percolab.store.locations import Location, absolute
from percolab.store.schema import CYCLE_COLUMNS, FOREST_COLUMNS, Content, StoreError
from percolab.store.stored_array import StoredArray


class Complete(Cells):
    """A complete store. Opening it reads and checks all that it says of itself, and no data.

    What is read later is of the same store as when it was opened, or raises.

    Parameters
    ----------
    location
        Where it is.
    """

    identity: str
    """digest of all that the store says of itself, digests of the arrays included"""

    def __init__(self, location: Location) -> None:
        self.given = location
        self.location = absolute(location)
        self.source = source(self.location)
        self._stamp = self._look()
        self.attributes = metadata.attributes(self.source, location)
        metadata.check_complete(self.attributes, location)
        self.recipe: Any = schema.recipe_of(self.attributes, location)
        self.cell = schema.cell_of(self.recipe)
        self.layouts = metadata.layouts(self.source, self.recipe, location, self.attributes)
        self.identity = metadata.check_digest(self.attributes, self.layouts, location)
        self._digests: dict[str, list[bytes] | StoreError] = {}
        self._chunks = {name: Chunks(self.source, name, layout) for name, layout in self.layouts.items()}

    def check_unchanged(self) -> None:
        """Raise if another dataset is there, or none, since the store was opened."""
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

    def check_identity(self, identity: str) -> None:
        """Raise unless this is the store that had this identity when it was opened before."""
        if self.identity != identity:
            raise self._changed()

    def _changed(self) -> StoreError:
        return StoreError(f"{self.given} was changed after it was loaded: load it again")

    @classmethod
    def again(cls, location: Location, identity: str) -> Self:
        """Open a store again, in another process or later; raise if another is there now."""
        store = cls(location)
        store.check_identity(identity)
        return store

    def __reduce__(self) -> tuple[Callable[..., Complete], tuple[str, str]]:
        return type(self).again, (self.location, self.identity)

    def forest(self, recipe: Recipe, column: Callable[[str], Any], extra: tuple[str, ...] = ()) -> Forest:
        """Return a forest, checked: compiled code trusts it, and it may come from a stranger.

        Parameters
        ----------
        recipe
            What it was made from.
        column
            Gives a stored column by name.
        extra
            Fields that it has besides those of every forest.
        """
        forest = Forest(**{name: column(name)[:] for name in (*FOREST_COLUMNS, *extra)})
        born = forest.n_clusters if recipe.min_cluster_size == 1 else recipe.n_points
        try:
            forest.check_structure()
            for name, ids, limit in (
                ("point_id", forest.point_id, recipe.n_points),
                ("cluster_id", forest.cluster_id, born),
            ):
                if ids.size and not 0 <= ids.min() <= ids.max() < limit:
                    raise ValueError(f"{name} must be from 0 to {limit - 1}, got {ids.min()} to {ids.max()}")
        except ValueError as fault:
            raise StoreError(f"{self.given} is damaged: {one_line(fault)}") from fault
        return forest

    def _look(self) -> object:
        try:
            return self.source.stamp(metadata.ROOT)
        except OSError:
            return None

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
        return StoredArray(self.chunks(name), unchanged=self.check_unchanged)

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
        columns = {
            name.removeprefix("extra/"): self.array(name)[:] for name in self.layouts if name in self.content.extra
        }
        return {
            name: column.astype(np.bool_) if column.dtype == np.uint8 else column
            for name, column in columns.items()
            if name not in CYCLE_COLUMNS
        }

    def _forest(self) -> Forest:
        extra = tuple(name for name in CYCLE_COLUMNS if f"extra/{name}" in self.layouts)
        return self.forest(self.recipe, lambda name: self.array(f"extra/{name}" if name in extra else name), extra)

    # ------------------------------------------------------------------ checking

    def verify(self, progress: Progress = silent) -> None:
        """Compare every block of every array with its digest; raise `StoreError` naming the first that differs."""
        for name in self.layouts:
            self._recorded(name)
        for _, _, fault in self.faults(progress):
            if fault is not None:
                raise StoreError(fault)
        in_cells = {name for names in self.content.kinds.values() for name in names}
        others = [name for name in self.layouts if name not in in_cells]
        for done, name in enumerate(others, 1):
            check_array(self.chunks(name), self._recorded(name))
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
            try:
                self._digests[name] = recorded(self.source, name, n_blocks, self.sha256, self.given)
            except StoreError as fault:
                self._digests[name] = fault
        block_digests = self._digests[name]
        if isinstance(block_digests, StoreError):
            raise block_digests
        return block_digests
