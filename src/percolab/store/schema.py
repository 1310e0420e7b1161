"""How a dataset lies in a Zarr store: which arrays, what kind of rows they have, and where a store may be.

A location is a path, or a URL of a file system that fsspec knows, as ``s3://bucket/name.zarr``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.ground.files import one_line
from percolab.model.recipe import Recipe

if TYPE_CHECKING:
    import zarr

Location = str | os.PathLike[str]

FORMAT = 1

FOREST_COLUMNS = ("cluster_start", "cluster_id", "point_id", "left_size", "bond")
VALUE_COLUMNS = ("y", "latent_z", "point_z")
COLUMNS = ("X", *VALUE_COLUMNS, *FOREST_COLUMNS)

KINDS = {
    "point": ("X", "y", "point_z", "point_id"),
    "latent": ("latent_z", "left_size", "bond"),
    "cluster": ("cluster_id",),
    "cluster_edge": ("cluster_start",),
}
"""The arrays by what their rows are; also the name of their first dimension."""


class StoreError(ValueError):
    """A store that is not a dataset, is incomplete, or is damaged."""


def shapes(recipe: Recipe, n_points: int, n_clusters: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array."""
    rows = {"point": n_points, "latent": n_points - n_clusters, "cluster": n_clusters, "cluster_edge": n_clusters + 1}
    columns = {"X": (recipe.dim,), "y": recipe.target.y_shape, "bond": (2,)}
    return {name: (rows[kind], *columns.get(name, ())) for kind, names in KINDS.items() for name in names}


def dtypes(recipe: Recipe) -> dict[str, np.dtype[Any]]:
    """Return the type of every array."""
    values = {"X": np.dtype(recipe.dtype), **dict.fromkeys(VALUE_COLUMNS, np.dtype(np.float64))}
    values["y"] = recipe.target.y_dtype
    return values | dict.fromkeys(FOREST_COLUMNS, np.dtype(np.int64))


def recipe_of(attributes: dict[str, Any], location: Location) -> Recipe:
    """Return the recipe in the attributes of a store."""
    try:
        return Recipe.from_dict(attributes["recipe"])
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"{location} has a damaged recipe: {one_line(fault)}") from fault


# ---------------------------------------------------------------------- digests


def block_digests(group: zarr.Group, name: str) -> list[bytes]:
    """Return the recorded sha256 of each block of an array."""
    try:
        table = np.asarray(group[f"digests/{name}"][:])  # type: ignore[index]
    except Exception as fault:
        raise StoreError(f"digests of array {name} cannot be read: {one_line(fault)}") from fault
    return [row.tobytes() for row in table]


def digest(found: Iterable[bytes]) -> str:
    """Return the digest of an array: the sha256 of the sha256 of its blocks."""
    return hashlib.sha256(b"".join(found)).hexdigest()
