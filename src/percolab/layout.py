"""How a dataset lies in a Zarr store: which arrays, what kind of rows they have, and where a store may be.

A location is a path, or a URL of a file system that fsspec knows, as ``s3://bucket/name.zarr``.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.recipe import Recipe

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

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

TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.partial")
"""Name of the file that Zarr writes before it takes the place of another; a killed writer leaves it."""


class StoreError(ValueError):
    """A store that is not a dataset, is incomplete, or is damaged."""


def shapes(recipe: Recipe, n_points: int, n_clusters: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every array."""
    rows = {"point": n_points, "latent": n_points - n_clusters, "cluster": n_clusters, "cluster_edge": n_clusters + 1}
    columns = {"X": (recipe.dim,), "bond": (2,)}
    return {name: (rows[kind], *columns.get(name, ())) for kind, names in KINDS.items() for name in names}


def dtypes(recipe: Recipe) -> dict[str, np.dtype[Any]]:
    """Return the type of every array."""
    values = {"X": np.dtype(recipe.dtype), **dict.fromkeys(VALUE_COLUMNS, np.dtype(np.float64))}
    return values | dict.fromkeys(FOREST_COLUMNS, np.dtype(np.int64))


# ---------------------------------------------------------------------- locations


def local_path(location: Location) -> Path | None:
    """Return the path of a location, or None if it is a URL that only fsspec can follow."""
    name = os.fspath(location)
    if name.startswith("file://"):
        return Path(name.removeprefix("file://"))
    return None if "://" in name else Path(name)


def zarr_store(location: Location, *, read_only: bool = False) -> Store:
    """Return the Zarr store at a location."""
    from zarr.storage import FsspecStore, LocalStore

    path, url = local_path(location), os.fspath(location)
    if path is not None:
        return LocalStore(path, read_only=read_only)
    try:
        return FsspecStore.from_url(url, read_only=read_only)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ImportError(f"a store at a URL needs {package}: pip install {package}") from error
    except ImportError as error:
        raise ImportError(f"{url} needs another package: {one_line(error)}") from error
    except ValueError as error:
        raise ValueError(f"location must be a path or a URL that fsspec knows, got {url!r}") from error


def is_free(location: Location) -> bool:
    """Tell whether nothing is at a location, but for what a writer left that was killed as it began."""
    from zarr.core.sync import sync

    path = local_path(location)
    if path is None:
        return bool(sync(zarr_store(location, read_only=True).is_empty("")))
    return not os.path.lexists(path) or (path.is_dir() and all(map(_left_by_a_beginner, path.iterdir())))


def _left_by_a_beginner(file: Path) -> bool:
    return file.name.startswith("zarr.") and TEMPORARY.fullmatch(file.name) is not None


def check_directory(path: Location) -> None:
    """Raise OSError, in one line, unless something new may be made beside `path`."""
    parent = Path(path).absolute().parent
    if not parent.is_dir():
        raise FileNotFoundError(f"output must be in an existing directory, got {str(path)!r}")
    try:
        # Permissions do not tell for a superuser or on a read-only disk, so try.
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise PermissionError(f"output must be in a writable directory, got {str(path)!r}") from error


# ---------------------------------------------------------------------- opening


def open_store(location: Location, *, read_only: bool = True) -> tuple[zarr.Group, dict[str, Any]]:
    """Return the group at a location and its attributes, whatever its status."""
    import zarr

    try:
        # Opened for reading first: a store opened for writing makes its directory.
        group = zarr.open_group(zarr_store(location, read_only=True), mode="r", zarr_format=3)
        attributes: Any = group.attrs.get("percolab")
    except FileNotFoundError:
        if is_free(location):
            raise FileNotFoundError(f"dataset must exist, got {str(location)!r}") from None
        raise StoreError(f"{location} is not a percolab dataset: it is not a Zarr group") from None
    except ImportError:
        raise
    except Exception as fault:
        raise StoreError(f"{location} is not a percolab dataset: {one_line(fault)}") from fault
    if not isinstance(attributes, dict):
        raise StoreError(f"{location} is not a percolab dataset: it is a Zarr group of another kind")
    if not read_only:
        group = zarr.open_group(zarr_store(location), mode="r+", zarr_format=3)
    return group, attributes


def open_array(group: zarr.Group, name: str, location: Location) -> zarr.Array[Any] | None:
    """Return an array of a group, or None if it is missing."""
    import zarr

    try:
        array = group.get(name)
    except Exception as fault:
        raise StoreError(f"{location} is damaged: array {name} cannot be opened: {one_line(fault)}") from fault
    if array is not None and not isinstance(array, zarr.Array):
        raise StoreError(f"{location} is damaged: {name} is not an array")
    return array


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


def one_line(fault: BaseException) -> str:
    """Return what an exception says, without line breaks."""
    return " ".join(str(fault).split()) or type(fault).__name__
