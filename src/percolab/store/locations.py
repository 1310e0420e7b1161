"""Where a store may be, and opening what is there.

A location is a path, or a URL of a file system that fsspec knows, as ``s3://bucket/name.zarr``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from percolab.ground.files import one_line
from percolab.store.schema import StoreError

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

Location = str | os.PathLike[str]

TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.partial")
"""Name of the file that Zarr writes before it takes the place of another; a killed writer leaves it."""


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
