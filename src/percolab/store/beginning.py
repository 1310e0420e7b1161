"""Beginning a store, or resuming one that was begun before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from percolab.ground import files
from percolab.ground.text import shown
from percolab.ground.validation import check_integer
from percolab.store import locations, metadata, schema
from percolab.store.locations import Location
from percolab.store.schema import DIGEST_BYTES, FORMAT, AnyRecipe, Layout, StoreError
from percolab.store.sources import source
from percolab.store.unfinished import Unfinished


def begin(
    location: Location, recipe: AnyRecipe, n_points: int, n_clusters: int, *, cell: int | None = None
) -> Unfinished:
    """Return the store of a recipe, ready to be written.

    A store that was begun before, with the same recipe and the same version of its engine, is resumed. So is one that
    is complete: it becomes unfinished again and `Unfinished.missing` tells what is damaged. Anything else that is there
    is refused. Two must not begin at once: see `locks.alone`.

    Parameters
    ----------
    location
        A path, or a URL that fsspec knows.
    recipe
        What the dataset is made from.
    n_points, n_clusters
        What it has, after any filter; documents have neither.
    cell
        Rows of a cell, a power of two; None takes `schema.cell_of`.
    """
    cell = schema.cell_of(recipe) if cell is None else cell
    if check_integer("cell", cell, 1).bit_count() != 1:
        raise ValueError(f"cell must be a power of two, got {cell}")
    wanted = _attributes_of(recipe, cell)
    metadata.check_length(wanted)
    if status(location, recipe, cell=cell) is None:
        _create_group(location, wanted)
    store = Unfinished(location, cell)
    _prepare(store, recipe, n_points, n_clusters, wanted)
    return store


def status(location: Location, recipe: AnyRecipe, *, cell: int | None = None) -> str | None:
    """Return what the store of a recipe says it is, "writing" or "complete"; None if nothing is at the location.

    Raises FileExistsError if something else is there.
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
    _check_same(location, there, _attributes_of(recipe, schema.cell_of(recipe) if cell is None else cell))
    return str(there.get("status"))


def _attributes_of(recipe: AnyRecipe, cell: int) -> dict[str, Any]:
    """Return the attributes of an unfinished store."""
    return {
        "format": FORMAT,
        "status": "writing",
        "recipe": recipe.to_dict(),
        "engine_version": schema.version_of(recipe),
        "cell": cell,
    }


def _create_group(location: Location, attributes: dict[str, Any]) -> None:
    import zarr

    path = locations.local_path(location)
    if path is not None:
        files.check_directory(path)
    zarr.create_group(locations.zarr_store(location), zarr_format=3, attributes={"percolab": attributes})


def _check_same(location: Location, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise unless what is there can be resumed."""
    made = there.get("provenance")
    # A complete store does not know its cell.
    found = {"cell": wanted["cell"], **(made if isinstance(made, dict) else {}), **there}
    for key in ("format", "engine_version", "cell"):
        _check_field(location, key, found.get(key), wanted[key])
    if "modified" in found:
        raise FileExistsError(
            f"the store at {str(location)!r} must be as its recipe makes it to resume, got a modified one: "
            f"{shown(found['modified'])}"
        )
    theirs, ours = schema.recipe_of(dict(there), location), schema.recipe_of(dict(wanted), location)
    _check_field(location, "kind", type(theirs).__name__, type(ours).__name__)
    for field in fields(ours):
        _check_field(location, field.name, getattr(theirs, field.name), getattr(ours, field.name))


def _check_field(location: Location, name: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise FileExistsError(
            f"{name} of the store at {str(location)!r} must be {wanted} to resume, got {shown(found)}; "
            "choose another output, or overwrite it"
        )


def _prepare(store: Unfinished, recipe: AnyRecipe, n_points: int, n_clusters: int, wanted: dict[str, Any]) -> None:
    """Create what is not there yet, which is anything when a writer was killed, and check what is."""
    recorded = store.attributes.get("sha256")
    for name, layout in _columns(recipe, n_points, n_clusters, store.cell).items():
        kind = schema.kind_of(name)
        second = {"X": "feature", "y": "level", "bond": "end"}.get(name, "position" if kind == "document" else None)
        names = [kind, second][: len(layout.shape)]
        store.create(name, layout, dimension_names=names)
        store.create(f"digests/{name}", schema.digests_layout(layout.n_blocks))
    if recorded is not None:
        del store.group["unfinished"]
    for kind in store.content.kinds:
        width = DIGEST_BYTES * max(1, len(store.blocks(kind, 0)))  # no cell has more blocks than the first
        store.create(f"unfinished/{kind}", Layout((store.n_cells(kind) * width,), np.dtype(np.uint8), width, False))
    if recorded is not None:
        store.recall(recorded if isinstance(recorded, dict) else {})
        store.sync("unfinished")  # before the store says that these count
        store.say(wanted, sync=True)


def _columns(recipe: AnyRecipe, n_points: int, n_clusters: int, cell: int) -> dict[str, Layout]:
    dtypes = schema.dtypes(recipe)
    shapes = schema.shapes(recipe, n_points, n_clusters)
    return {name: schema.layout(name, shape, dtypes[name], cell) for name, shape in shapes.items()}
