"""Superposed worlds on disk: one Zarr group with the samples, and beside them the truth of every factor.

The group holds X, y and rows; ``factors/K`` holds y, latent_z, point_z and the columns of the forest of factor K, in a
random graph also of the bonds that close cycles. X of a factor is not stored: the recipe makes it again. Arrays are
cut, packed, digested and checked as those of a dataset. A world is written whole: it cannot be resumed, nor made in
shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.dataset.dataset import Dataset, save_with
from percolab.ground.progress import Progress, silent
from percolab.ground.text import one_line
from percolab.ground.validation import check_choice
from percolab.store import commit, locations, metadata, schema
from percolab.store.byte_sources import source
from percolab.store.finished import Complete
from percolab.store.locations import Location
from percolab.store.schema import CYCLE_COLUMNS, FORMAT, SAMPLE_COLUMNS, VALUE_COLUMNS, StoreError, factor_columns
from percolab.store.stored_array import StoredArray
from percolab.store.unfinished import Unfinished
from percolab.worlds.superposed import AnyDataset, RemadeArray, Superposed
from percolab.worlds.superposition import KIND, Superposition


def load(path: Location, *, verify: bool = False) -> Any:
    """Open a dataset, a superposed world, or documents. Nothing but metadata is read.

    X, and every column of documents, is read as it is indexed; the rest at first touch.

    Parameters
    ----------
    path
        Where `save`, ``percolab generate`` or ``percolab documents`` wrote it: a path, or a URL that fsspec knows.
    verify
        Read everything once and compare it with its digests; raise `StoreError` naming what differs.
    """
    store = opened(path)
    if verify:
        store.verify()
    if isinstance(store, CompleteWorld):
        return Superposed.lazy(store.field)
    return (StoredDocuments if isinstance(store.recipe, DocumentRange) else Dataset).lazy(store.field)


def load_points(path: Location) -> Any:
    """Open a dataset or a superposed world; refuse documents, which have no X."""
    dataset = load(path)
    if isinstance(dataset, StoredDocuments):
        raise ValueError(f"dataset must be one of points, got documents at {str(path)!r}")
    return dataset


def opened(path: Location) -> Complete:
    """Open the store of a dataset or of a world, by what it says it is."""
    return CompleteWorld(path) if is_world(path) else Complete(path)


def is_world(path: Location) -> bool:
    """Tell whether a superposed world is at a location."""
    recipe = metadata.attributes(source(path), path).get("recipe")
    return isinstance(recipe, dict) and recipe.get("kind") == KIND


def open_columns(
    path: Location, names: Iterable[str], identity: str | None = None
) -> tuple[dict[str, StoredArray], str]:
    """Open some columns of the rows of a dataset, or of the samples of a world; return them, and the store's identity.

    A store of another identity than the one given, if one is, is refused.
    """
    store = opened(path)
    if identity is not None:
        store.check_identity(identity)
    known = SAMPLE_COLUMNS if isinstance(store, CompleteWorld) else next(iter(store.content.kinds.values()))
    return {name: store.array(check_choice("columns", name, known)) for name in names}, store.identity


# ---------------------------------------------------------------------- saving


def save(
    dataset: AnyDataset, path: Location, *, overwrite: bool = False, sync: bool = True, progress: Progress = silent
) -> None:
    """Write a dataset or a world to a path or a URL. What is at a path stays unless this succeeds.

    Parameters
    ----------
    dataset
        What to write.
    path
        A path, or a URL that fsspec knows. Where it is a link, what it leads to is written.
    overwrite
        Replace a dataset that is there, in one step, once this one is complete. Nothing else is ever replaced.
    sync
        Have everything on the disk before the dataset is at its path, so that not even a power cut leaves half of one.
    progress
        Called with a stage, how many bytes are written and how many there are.
    """
    write: Callable[..., None] = _write if isinstance(dataset, Superposed) else commit.write_dataset
    commit.write_whole(path, lambda location: write(dataset, location, progress), overwrite=overwrite, sync=sync)


save_with(save)


def _write(world: Superposed, path: Location, progress: Progress) -> None:
    import zarr

    said: dict[str, Any] = {"format": FORMAT, "status": "writing", "recipe": world.recipe.to_dict()}
    zarr.create_group(locations.zarr_store(path), zarr_format=3, attributes={"percolab": said}, overwrite=True)
    store = Unfinished(path, schema.CELL)
    columns = dict(_columns(world))
    total, done = sum(int(column.nbytes) for column in columns.values()), 0
    sha256 = {}
    for name, column in columns.items():
        sha256[name] = store.write_whole(name, column)
        done += int(column.nbytes)
        progress("saving", done, total)
    made = {
        **_plain(world.provenance),
        **({"modified": world.modification} if world.modification else {}),
        "sigma": world.sigma.tolist(),
        "factors": [_plain(factor.provenance) for factor in world.factors],
    }
    store.say(store.signed(said | {"status": "complete", "provenance": made, "sha256": sha256}))


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in provenance.items() if key != "loaded_from"}


def _columns(world: Superposed) -> Iterator[tuple[str, Any]]:
    for name in SAMPLE_COLUMNS:
        yield name, getattr(world, name)
    for k, factor in enumerate(world.factors):
        for name in factor_columns(factor.recipe):
            yield f"factors/{k}/{name}", getattr(factor if name in VALUE_COLUMNS else factor.forest, name)


# ---------------------------------------------------------------------- loading


class CompleteWorld(Complete):
    """A complete store of a world.

    Parameters
    ----------
    path
        Where it is.
    """

    def __init__(self, path: Location) -> None:
        super().__init__(path)
        self.made: dict[str, Any] = self.attributes["provenance"]
        self.sigma = _sigma(self.made, self.recipe, path)

    def field(self, name: str) -> Any:
        """Return a field of the world."""
        match name:
            case "provenance":
                said = super().field(name)
                return {key: value for key, value in said.items() if key not in ("sigma", "factors")}
            case "sigma":
                return self.sigma
            case "rows":
                return self._rows()
            case "factors":
                return tuple(Dataset.lazy(partial(self.factor_field, k)) for k in range(len(self.recipe.factors)))
            case _:
                return super().field(name)

    def _rows(self) -> Any:
        """Return the table of rows, checked: they index the factors. Rows of one factor lie side by side."""
        rows = np.asfortranarray(self.array("rows")[:])
        check_rows(rows, [self.layouts[f"factors/{k}/y"].shape[0] for k in range(rows.shape[1])], self.given)
        return rows

    def factor_field(self, k: int, name: str) -> Any:
        """Return a field of the dataset of a factor."""
        recipe = self.recipe.factors[k]

        def column(name: str) -> StoredArray:
            return self.array(f"factors/{k}/{name}")

        match name:
            case "recipe":
                return recipe
            case "provenance":
                return dict(self.made["factors"][k])
            case "extra":
                return {}
            case "X":
                return RemadeArray(recipe, (len(column("point_id")), recipe.dim))
            case "forest":
                return self.forest(recipe, column, CYCLE_COLUMNS if recipe.mode == "random_graph" else ())
            case _:
                return column(name)[:]


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
    """Raise unless a table of rows has rows of every factor, of which there are so many."""
    for k, length in enumerate(lengths):
        column = rows[:, k]
        if column.size and not 0 <= column.min() <= column.max() < length:
            raise StoreError(f"{path} is damaged: rows of factor {k} must be from 0 to {length - 1}")
