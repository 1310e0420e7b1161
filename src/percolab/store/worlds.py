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
from percolab.ground.text import one_line, shown
from percolab.ground.validation import check_choice
from percolab.model.recipe import Recipe
from percolab.store import commit, digests, locations, metadata, schema
from percolab.store.byte_sources import source
from percolab.store.chunks import Chunks
from percolab.store.finished import Complete, Opened
from percolab.store.locations import Location
from percolab.store.schema import FOREST_COLUMNS, FORMAT, VALUE_COLUMNS, Layout, StoreError
from percolab.store.stored_array import StoredArray
from percolab.store.unfinished import Unfinished
from percolab.worlds.superposed import AnyDataset, RemadeArray, Superposed
from percolab.worlds.superposition import KIND, Superposition

SAMPLE_COLUMNS = ("X", "y", "rows")
CYCLE_COLUMNS = ("extra_bond", "extra_latent")


def factor_columns(recipe: Recipe) -> tuple[str, ...]:
    """Return the columns that are stored of a factor."""
    cycles = CYCLE_COLUMNS if recipe.mode == "random_graph" else ()
    return *VALUE_COLUMNS, *FOREST_COLUMNS, *cycles


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
    found = load(path)
    if isinstance(found, StoredDocuments):
        raise ValueError(f"dataset must be one of points, got documents at {str(path)!r}")
    return found


def opened(path: Location) -> Complete | CompleteWorld:
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


class CompleteWorld(Opened):
    """A complete store of a world. Opening it reads and checks all that it says of itself, and no data.

    Parameters
    ----------
    path
        Where it is.
    """

    def __init__(self, path: Location) -> None:
        super().__init__(path)
        self.recipe = _recipe(self.attributes, path)
        self.sha256 = _check_complete(self.attributes, self.recipe, path)
        self.layouts = {name: self._layout(name) for name in sorted(self.sha256)}
        _check_shapes(self.layouts, self.recipe, path)
        self.identity = metadata.check_digest(self.attributes, self.layouts, path)
        self.made: dict[str, Any] = self.attributes["provenance"]
        self.sigma = _sigma(self.made, self.recipe, path)

    def _layout(self, name: str) -> Layout:
        found = metadata.layout(self.source, name, self.given)
        if found is None:
            raise StoreError(f"{self.given} is damaged: array {name} is missing")
        return found

    def array(self, name: str) -> StoredArray:
        """Return a column, which is read when it is indexed."""
        return self.stored(Chunks(self.source, name, self.layouts[name]))

    def verify(self, progress: Progress = silent) -> None:
        """Compare every block of every array with its digest; raise `StoreError` naming the first that differs."""
        for done, (name, layout) in enumerate(self.layouts.items()):
            progress("verifying", done, len(self.layouts))
            blocks = digests.recorded(self.source, name, layout.n_blocks, self.sha256, self.given)
            digests.check_array(Chunks(self.source, name, layout), blocks)
        progress("verifying", len(self.layouts), len(self.layouts))

    def field(self, name: str) -> Any:
        """Return a field of the world."""
        match name:
            case "recipe":
                return self.recipe
            case "provenance":
                kept = {key: value for key, value in self.made.items() if key not in ("sigma", "factors")}
                return {**kept, "loaded_from": str(self.given)}
            case "sigma":
                return self.sigma
            case "X":
                return self.array("X")
            case "rows":
                return self._rows()
            case "factors":
                return tuple(Dataset.lazy(partial(self.factor_field, k)) for k in range(len(self.recipe.factors)))
            case _:
                return self.array(name)[:]

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


def _recipe(attributes: dict[str, Any], path: Location) -> Superposition:
    try:
        recipe = Superposition.from_dict(attributes["recipe"])
        if recipe.to_dict() != attributes["recipe"]:
            raise ValueError("it must be complete")
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as fault:
        raise StoreError(f"{path} has a damaged recipe: {one_line(fault)}") from fault
    return recipe


def _check_complete(attributes: dict[str, Any], recipe: Superposition, path: Location) -> dict[str, str]:
    """Return the digests of the arrays, or raise unless the store is complete and this version reads it."""
    if attributes.get("status") != "complete":
        raise StoreError(f"{path} is not a dataset but an unfinished write: delete it, and save it again")
    if attributes.get("format") != FORMAT:
        raise StoreError(
            f"{path} has format {shown(attributes.get('format'))}; this version of percolab reads {FORMAT}"
        )
    if not isinstance(attributes.get("provenance"), dict):
        raise StoreError(f"{path} is damaged: its provenance must be a JSON object")
    sha256 = attributes.get("sha256")
    names = {f"factors/{k}/{name}" for k, factor in enumerate(recipe.factors) for name in factor_columns(factor)}
    if not isinstance(sha256, dict) or set(sha256) != names | set(SAMPLE_COLUMNS):
        raise StoreError(f"{path} is damaged: it must have a digest for every array, got {shown(sha256)}")
    return sha256


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


def _check_shapes(layouts: dict[str, Layout], recipe: Superposition, path: Location) -> None:
    n, count = layouts["y"].shape[0], len(recipe.factors)
    expected: dict[str, tuple[int, ...]] = {"X": (n, recipe.dim), "y": (n, *recipe.y_shape), "rows": (n, count)}
    types = {"X": np.dtype(recipe.dtype), "y": recipe.y_dtype, "rows": np.dtype(np.int64)}
    for k, factor in enumerate(recipe.factors):
        n_points, n_clusters = (layouts[f"factors/{k}/{name}"].shape[0] for name in ("point_id", "cluster_id"))
        shapes, dtypes = schema.shapes(factor, n_points, n_clusters), schema.dtypes(factor)
        if factor.mode == "random_graph":
            n_extra = layouts[f"factors/{k}/extra_latent"].shape[0]
            extra = schema.extra_shapes(CYCLE_COLUMNS, n_points, n_clusters, n_extra)
            shapes |= {name: extra[f"extra/{name}"] for name in CYCLE_COLUMNS}
            dtypes |= {name: schema.EXTRA_COLUMNS[name][1] for name in CYCLE_COLUMNS}
        expected |= {f"factors/{k}/{name}": shapes[name] for name in factor_columns(factor)}
        types |= {f"factors/{k}/{name}": dtypes[name] for name in factor_columns(factor)}
    for name, found in layouts.items():
        if found.shape != expected[name] or found.dtype != types[name]:
            said = f"must be {types[name]} {expected[name]}, got {found.dtype} {found.shape}"
            raise StoreError(f"{path} is damaged: array {name} {said}")
