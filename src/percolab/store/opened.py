"""A store as it was when it was opened: what is read of it later is of the same store, or the difference is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from percolab.ground.text import one_line
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.store import metadata
from percolab.store.arrays import StoredArray
from percolab.store.chunks import Chunks
from percolab.store.locations import Location, absolute
from percolab.store.schema import FOREST_COLUMNS, StoreError
from percolab.store.sources import source


class Opened:
    """What a store says of itself, as it was read once.

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

    def stored(self, chunks: Chunks) -> StoredArray:
        """Return an array of this store, which is read when it is indexed."""
        return StoredArray(chunks, unchanged=self.check_unchanged)

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
