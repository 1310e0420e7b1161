"""Where the bytes of a store come from: a directory or a URL, read with bounds.

A store may come from an untrusted source. So a file is read only if it is a plain file, in plain directories, of the
expected size: no pipe can hang a reader, no device can fill its memory, and no link can lead it elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from percolab.ground import foreign_files
from percolab.ground.text import one_line
from percolab.store import objects
from percolab.store.locations import Location, file_system, local_path
from percolab.store.schema import StoreError


class Directory:
    """The files of a directory."""

    is_local = True

    def __init__(self, path: Path) -> None:
        self.path = os.path.abspath(path)

    def read(self, key: str, most: int) -> bytes:
        """Return the content of a file of at most `most` bytes."""
        with self._opened(key) as (file, status):
            if status.st_size > most:
                raise StoreError(f"{key} must have at most {most} bytes, got {status.st_size}")
            return os.read(file, most)

    def read_into(self, key: str, parts: Sequence[memoryview]) -> object:
        """Fill buffers, one after another, from a file that has exactly their size; return its stamp."""
        expected = sum(part.nbytes for part in parts)
        with self._opened(key) as (file, status):
            if status.st_size != expected:
                raise StoreError(f"{key} must have {expected} bytes, got {status.st_size}")
            offset = 0
            for part in parts:
                _fill(file, offset, part, key)
                offset += part.nbytes
            return _stamp(status)

    def read_parts(self, key: str, stamp: object, offsets: Sequence[int], out: memoryview) -> bool:
        """Fill equal parts of a buffer, each from its offset in a file; return False if the file has another stamp."""
        size = out.nbytes // max(1, len(offsets))
        file = foreign_files.descriptor(f"{self.path}/{key}", links=False)
        try:
            if _stamp(os.fstat(file)) != stamp:  # an equal stamp also means the same plain file
                return False
            for k, offset in enumerate(offsets):
                _fill(file, offset, out[k * size : (k + 1) * size], key)
            return True
        finally:
            os.close(file)

    def stamp(self, key: str) -> object:
        """Return a value that changes when a file is replaced or written."""
        return _stamp(os.stat(f"{self.path}/{key}"))

    @contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open a plain file in plain directories; yield its descriptor and its status."""
        *folders, _ = key.split("/")
        path = self.path
        try:
            for folder in folders:
                path = f"{path}/{folder}"
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise StoreError(f"{key} must be in plain directories, and {folder} is not one")
            file = foreign_files.descriptor(f"{self.path}/{key}", links=False)
        except (FileNotFoundError, NotADirectoryError) as fault:
            raise FileNotFoundError(key) from fault
        except OSError as fault:
            raise StoreError(one_line(fault)) from fault
        try:
            yield file, os.fstat(file)
        finally:
            os.close(file)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _fill(file: int, offset: int, out: memoryview, key: str) -> None:
    """Fill a buffer of bytes from an offset on."""
    done = 0
    while done < out.nbytes:
        count = os.preadv(file, [out[done:] if done else out], offset + done)
        if count == 0:
            raise StoreError(f"{key} ends too early")
        done += count


class Remote:
    """The files at a URL, through obstore or fsspec."""

    is_local = False
    LOOK_AGAIN_S = 1.0  #: Seconds for which a stamp is trusted: each check is a request.

    def __init__(self, url: Location) -> None:
        self.url = os.fspath(url)
        self._stamps: dict[str, tuple[float, object]] = {}

    def read(self, key: str, most: int) -> bytes:
        """Return the content of a file of at most `most` bytes."""
        return bytes(self._fetch(key, most))

    def read_into(self, key: str, parts: Sequence[memoryview]) -> object:
        """Fill buffers, one after another, from a file that has exactly their size; return None for a stamp."""
        expected = sum(part.nbytes for part in parts)
        content, offset = memoryview(self._fetch(key, expected)), 0
        if len(content) != expected:
            raise StoreError(f"{key} must have {expected} bytes, got {len(content)}")
        for part in parts:
            part[:] = content[offset : offset + part.nbytes]
            offset += part.nbytes
        return None

    def read_parts(self, key: str, stamp: object, offsets: Sequence[int], out: memoryview) -> bool:
        """Read nothing: requests for single rows take longer than one for a block."""
        return False

    def stamp(self, key: str) -> object:
        """Return a value that changes when a file is replaced or written; it may be up to `LOOK_AGAIN_S` old."""
        looked, digest = self._stamps.get(key, (float("-inf"), None))
        if time.monotonic() - looked > self.LOOK_AGAIN_S:
            digest = hashlib.sha256(self.read(key, 1 << 24)).digest()
            self._stamps[key] = time.monotonic(), digest
        return digest

    def _fetch(self, key: str, most: int) -> Any:
        """Return the bytes of a file of at most `most` bytes."""
        # Before the `try`: an unknown kind of URL is not a fault of the store.
        system, root = (None, "") if objects.handles(self.url) else self._system
        try:
            if system is None:
                content = objects.fetch(self.url, key, most)
            else:
                content = system.cat_file(f"{root}/{key}", start=0, end=most + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as fault:
            raise FileNotFoundError(key) from fault
        except ImportError:
            raise
        except Exception as fault:  # each kind of URL has its own failures
            raise StoreError(f"{key} cannot be fetched: {objects.said(fault)}") from fault
        length = content if isinstance(content, int) else len(content)
        if length > most:
            raise StoreError(f"{key} must have at most {most} bytes, got {length}")
        return content

    @cached_property
    def _system(self) -> tuple[Any, str]:
        return file_system(self.url)

    def __reduce__(self) -> tuple[type[Remote], tuple[str]]:
        return Remote, (self.url,)


#: The files of a store by key, such as ``X/c/0/0``. A missing file raises FileNotFoundError, a wrong one StoreError.
Source = Directory | Remote


def source(location: Location) -> Source:
    """Return the files at a location."""
    path = local_path(location)
    return Remote(location) if path is None else Directory(path)
