"""Locations of stores: a path, or a URL, such as ``s3://bucket/name.zarr`` or any other that fsspec knows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from percolab.ground.extras import missing
from percolab.ground.text import one_line
from percolab.store import objects

if TYPE_CHECKING:
    from zarr.abc.store import Store

Location = str | os.PathLike[str]

LOCK = "percolab.lock"  #: Key of the lock of a store at a URL, in that store; see `exclusion`.
#: Name of the temporary file that Zarr writes and then renames to its key; a killed writer leaves it behind.
TEMPORARY = re.compile(r".+\.[0-9a-f]{32}\.partial")


def local_path(location: Location) -> Path | None:
    """Return the path of a location, or None if it is a URL that only fsspec can follow."""
    name = os.fspath(location)
    if name.startswith("file://"):
        return Path(name.removeprefix("file://"))
    return None if "://" in name else Path(name)


def absolute(location: Location) -> str:
    """Return a location that means the same in other directories and processes."""
    path = local_path(location)
    return os.fspath(location) if path is None else os.path.abspath(path)


def writing_target(location: Location) -> str:
    """Return where to write: links are followed, so that their targets are written and the links stay."""
    path = local_path(location)
    return os.fspath(location) if path is None else os.path.realpath(path)


def zarr_store(location: Location) -> Store:
    """Return the Zarr store at a location, for writing."""
    from zarr.storage import FsspecStore, LocalStore, ObjectStore

    path, url = local_path(location), os.fspath(location)
    if path is not None:
        return LocalStore(path)
    if objects.handles(url):
        return ObjectStore(objects.opened(url))
    file_system(location)  # raises, in one line, if there is none
    return FsspecStore.from_url(url)


def file_system(location: Location) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it, through fsspec."""
    url = os.fspath(location)
    try:
        import fsspec.core

        system, path = fsspec.core.url_to_fs(url)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ImportError(f"a store at a URL needs {package}: pip install {package}") from error
    except ImportError as error:
        if url.partition("://")[0] in objects.SCHEMES:
            raise missing(f"{url} needs", "obstore", "url") from error
        raise ImportError(f"{url} needs another package: {one_line(error)}") from error
    except ValueError as error:
        raise ValueError(f"location must be a path or a URL that fsspec knows, got {url!r}") from error
    return system, path


def is_free(location: Location) -> bool:
    """Return whether a location is free, apart from files of a writer that was killed as it began."""
    path, url = local_path(location), os.fspath(location)
    if path is not None:
        names = [file.name for file in path.iterdir()] if path.is_dir() else [""]
        return not os.path.lexists(path) or all(n.startswith("zarr.") and TEMPORARY.fullmatch(n) for n in names)
    if objects.handles(url):
        return all(key.startswith(LOCK) for key, _ in objects.sizes(url))
    system, root = file_system(location)
    return not (system.exists(root) and system.find(root))


def n_bytes(location: Location) -> int:
    """Return the bytes of all files at a location."""
    path, url = local_path(location), os.fspath(location)
    if path is not None:
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    if objects.handles(url):
        return sum(size for _, size in objects.sizes(url))
    system, root = file_system(location)
    return int(system.du(root))
