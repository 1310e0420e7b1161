"""Files that may come from strangers, read as data: plain files alone, of a bounded size, and nothing in them runs."""

from __future__ import annotations

import json
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import memory
from percolab.ground.text import one_line, shown

PathLike = str | os.PathLike[str]

MOST_JSON = 1 << 20
"""Bytes of a file of JSON; those of percolab have a few kilobytes."""
# Opening must not wait for the other end of a pipe. Windows has none of these flags but the last.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_ZIP = b"PK\x03\x04"


class NotPlainError(OSError):
    """Not a plain file: a pipe, a device, a socket, a directory, or a link where links are not followed."""


def descriptor(path: PathLike, *, links: bool = True) -> int:
    """Open a plain file to read and return its descriptor; nothing else is waited for or read from."""
    try:
        opened = os.open(path, _FLAGS | (0 if links else _NO_LINK))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        raise
    except OSError as fault:  # a link, a socket, a device that is not there
        raise NotPlainError(f"{os.fspath(path)!r} must be a plain file: {fault.strerror}") from fault
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise NotPlainError(f"{os.fspath(path)!r} must be a plain file")
    return opened


def open_plain(path: PathLike) -> IO[bytes]:
    """Open a plain file to read."""
    return os.fdopen(descriptor(path), "rb")


@contextmanager
def reading(name: str, path: PathLike, kind: str) -> Iterator[IO[bytes]]:
    """Open a plain file, and say in one line that it is missing, or not of its kind if whatever reads it fails."""
    try:
        with open_plain(path) as file:
            yield file
    except FileNotFoundError as fault:
        raise FileNotFoundError(f"{name} must exist, got {os.fspath(fault.filename or path)!r}") from None
    except (MemoryError, PermissionError):
        raise
    except Exception as fault:  # what libraries raise for damage is of many kinds
        raise ValueError(f"{name} must be {kind}, got {os.fspath(path)!r}: {one_line(fault)}") from fault


# ---------------------------------------------------------------------- JSON


def read_json(name: str, path: PathLike, most: int = MOST_JSON) -> dict[str, Any]:
    """Return the object in a file of JSON of at most so many bytes."""
    with reading(name, path, "a file of JSON") as file:
        text = file.read(most + 1)
        if len(text) > most:
            raise ValueError(f"it has more than {most} bytes")
        return parse_json(text)


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Return the object that a text of JSON is; raise ValueError, in one line, for any other text."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is not JSON: it is nested too deeply") from None
    except ValueError as fault:
        raise ValueError(f"it is not JSON: {one_line(fault)}") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")


# ---------------------------------------------------------------------- arrays


class Arrays(Mapping[str, NDArray[Any]]):
    """The arrays of a file by name, each read when it is asked for."""

    def __init__(self, members: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self:
            raise ValueError(f"it has no array {name}, but {shown(list(self))}")
        return self._members[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@contextmanager
def arrays(name: str, path: PathLike) -> Iterator[Arrays]:
    """Yield the arrays of an .npz file by name; of an .npy file one, under the name "", which stays on disk."""
    with reading(name, path, "a file as NumPy or SciPy save arrays") as file:
        if file.read(len(_ZIP)) != _ZIP:
            yield Arrays({"": partial(_mapped, file)})
            return
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            yield Arrays(
                {member.filename.removesuffix(".npy"): partial(_unpacked, archive, member) for member in members}
            )


def read_array(name: str, path: PathLike) -> NDArray[Any]:
    """Return the array of an .npy file, which stays on disk."""
    with reading(name, path, "an .npy file, an array as NumPy saves it") as file:
        return _mapped(file)


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    memory.require(member.file_size, f"array {shown(member.filename)} needs")
    with archive.open(member) as file:
        found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _mapped(file: IO[bytes]) -> NDArray[Any]:
    file.seek(0)
    version = np.lib.format.read_magic(file)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = headers[version](file)
    n_bytes, start = math.prod(shape) * dtype.itemsize, file.tell()
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if min(shape, default=0) < 0 or n_bytes > os.fstat(file.fileno()).st_size - start:
        raise ValueError(f"it is shorter than an array of shape {shape}")
    order: Any = "F" if fortran else "C"
    if n_bytes == 0:  # which cannot be mapped
        return np.empty(shape, dtype, order)
    return np.memmap(file, dtype, "r", start, shape, order)


# ---------------------------------------------------------------------- torch


def read_torch(name: str, path: PathLike) -> dict[str, Any]:
    """Return the dictionary that `torch.save` wrote to a file, on the CPU: tensors and plain values, never code."""
    import torch

    with reading(name, path, "as percolab writes it") as file:
        _check_stored(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(found, dict):
            raise TypeError("it is not a dictionary")
        return found


def _check_stored(file: IO[bytes]) -> None:
    """Raise unless a file is an archive from its first byte on, not packed, whose parts match their checksums.

    So torch reads it as an archive and not in one of its older ways, never unpacks more than is there, and no flipped
    bit goes unnoticed.
    """
    if file.read(len(_ZIP)) != _ZIP:
        raise ValueError("it is not an archive of torch")
    with zipfile.ZipFile(file) as parts:
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
            raise ValueError("its parts must not be packed")
        if parts.testzip() is not None:
            raise ValueError("a part does not match its checksum")
    file.seek(0)
