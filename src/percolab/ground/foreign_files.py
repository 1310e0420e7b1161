"""Untrusted files, read as data: only plain files, of a bounded size, and no code in them runs."""

from __future__ import annotations

import json
import math
import os
import stat
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import memory
from percolab.ground.files import PathLike
from percolab.ground.text import one_line, shown

if TYPE_CHECKING:
    import scipy.sparse


MOST_JSON = 1 << 20  #: Most bytes of a JSON file; the files of percolab have a few kilobytes.
MOST_DEPTH = 50  #: Most nested objects and lists; the files of percolab have a dozen.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # opening must not wait for the other end of a pipe
_ZIP = b"PK\x03\x04"
#: The arrays of each format that is read from files, as SciPy names them.
PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}


class NotPlainError(OSError):
    """Not a plain file: a pipe, a device, a socket, a directory, or a link where links are not followed."""


def descriptor(path: PathLike, *, links: bool = True) -> int:
    """Open a plain file to read and return its descriptor; never wait for, or read from, anything but a plain file."""
    try:
        opened = os.open(path, _FLAGS | (0 if links else os.O_NOFOLLOW))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        raise
    except OSError as fault:  # a link, a socket, a device that does not exist
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
    """Open a plain file; raise, in one line, if it is missing or if reading it fails: it is then not of its kind."""
    try:
        with open_plain(path) as file:
            yield file
    except FileNotFoundError as fault:
        raise FileNotFoundError(f"{name} must exist, got {os.fspath(fault.filename or path)!r}") from None
    except (MemoryError, PermissionError):
        raise
    except Exception as fault:  # libraries raise many kinds of exceptions for damaged files
        raise ValueError(f"{name} must be {kind}, got {os.fspath(path)!r}: {one_line(fault)}") from fault


# ---------------------------------------------------------------------- JSON


def read_json(name: str, path: PathLike, most: int = MOST_JSON) -> dict[str, Any]:
    """Return the object in a file of JSON of at most `most` bytes."""
    with reading(name, path, "a file of JSON") as file:
        text = file.read(most + 1)
        if len(text) > most:
            raise ValueError(f"it has more than {most} bytes")
        return parse_json(text)


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Parse a text as one JSON object; raise ValueError, in one line, for any other text.

    Numbers must be finite, no name may occur twice in an object, and the depth is bounded.
    """
    try:
        values = json.loads(text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique_names)
        _check_depth(values)
    except RecursionError:
        raise ValueError("it is not JSON: it is nested too deeply") from None
    except ValueError as fault:
        raise ValueError(f"it is not JSON: {one_line(fault)}") from None
    if not isinstance(values, dict):
        raise ValueError("it is not a JSON object")
    return values


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word} is not a number")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return values


def _check_depth(values: Any) -> None:
    level: list[Any] = [[values]]
    for _ in range(MOST_DEPTH):
        parts = (part for each in level for part in (each.values() if isinstance(each, dict) else each))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise RecursionError


# ---------------------------------------------------------------------- arrays


@contextmanager
def arrays(name: str, path: PathLike) -> Iterator[Mapping[str, NDArray[Any]]]:
    """Yield the arrays of an .npz file by name, read when indexed; an .npy file gives one memory map, named ""."""
    with reading(name, path, "a file as NumPy or SciPy save arrays") as file:
        if file.read(len(_ZIP)) != _ZIP:
            yield {"": _mapped(file)}
            return
        with zipfile.ZipFile(file) as archive:
            _check_archive(name, archive)
        file.seek(0)
        with np.load(file, allow_pickle=False) as held:
            yield held


def _check_archive(name: str, archive: zipfile.ZipFile) -> None:
    """Raise unless the content of an archive would fit in memory and matches its checksums."""
    memory.require(sum(member.file_size for member in archive.infolist()), f"what {name} holds needs")
    if archive.testzip() is not None:
        raise ValueError("a part does not match its checksum")


def read_array(name: str, path: PathLike) -> NDArray[Any]:
    """Return the array of an .npy file, which stays on disk."""
    with reading(name, path, "an .npy file, an array as NumPy saves it") as file:
        return _mapped(file)


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
    if n_bytes == 0:  # an empty array cannot be mapped
        return np.empty(shape, dtype, order)
    return np.memmap(file, dtype, "r", start, shape, order)


# ---------------------------------------------------------------------- torch


def read_torch(name: str, path: PathLike) -> dict[str, Any]:
    """Return the dictionary that `torch.save` wrote to a file, on the CPU: tensors and plain values, never code."""
    import torch

    with reading(name, path, "as percolab writes it") as file:
        _check_stored(name, file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tensors that `check_tensors` refuses
            values = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(values, dict):
            raise TypeError("it is not a dictionary")
        return values


def check_tensors(values: Iterable[Any]) -> None:
    """Raise unless all values are dense tensors of plain numbers, and the file holds every number."""
    import torch

    for value in values:
        if type(value) is not torch.Tensor or value.layout != torch.strided or value.device.type != "cpu":
            raise TypeError("weights and states must be dense tensors")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise ValueError("weights and states must hold all of their numbers")


def _check_stored(name: str, file: IO[bytes]) -> None:
    """Raise unless a file is an uncompressed archive from its first byte on whose parts match their checksums.

    So torch reads it as an archive and not in one of its older formats, never unpacks more bytes than the file has, and
    no flipped bit goes unnoticed.
    """
    if file.read(len(_ZIP)) != _ZIP:
        raise ValueError("it is not an archive of torch")
    with zipfile.ZipFile(file) as parts:
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
            raise ValueError("its parts must not be packed")
        _check_archive(name, parts)
    file.seek(0)


# ---------------------------------------------------------------------- sparse matrices
#
# Sparse matrices by rows, checked in full: compiled code, in SciPy and in percolab, trusts their indices.


def as_csr(name: str, matrix: Any) -> scipy.sparse.csr_array:
    """Return a SciPy matrix or array of any format by rows, in float32 or float64; messages call it `name`."""
    if matrix.format not in PARTS:
        try:
            matrix = matrix.tocoo()  # safe for all other formats, whatever they hold
        except (IndexError, TypeError, ValueError) as fault:
            raise ValueError(f"{name} must be a sparse matrix whose parts fit, got {one_line(fault)}") from fault
    return _checked(name, matrix.format, matrix.shape, [getattr(matrix, part) for part in PARTS[matrix.format]])


def from_archive(name: str, held: Mapping[str, NDArray[Any]]) -> scipy.sparse.csr_array:
    """Return the matrix that `scipy.sparse.save_npz` wrote, as `as_csr` does."""
    word, shape = held["format"], held["shape"]
    form = word.item() if word.ndim == 0 else None
    form = form.decode("latin-1") if isinstance(form, bytes) else form
    if form not in PARTS:
        raise ValueError(f"{name} must have the format {', '.join(PARTS)}, got {shown(form)}")
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(shape) < 0:
        raise ValueError(f"{name} must have a shape of two integers, got {shown(shape)}")
    return _checked(name, form, shape.tolist(), [held[part] for part in PARTS[form]])


def _checked(name: str, form: str, shape: Sequence[int], parts: list[NDArray[Any]]) -> scipy.sparse.csr_array:
    import scipy.sparse

    if len(shape) != 2:
        raise ValueError(f"{name} must have rows and columns, got shape {tuple(shape)}")
    n_rows, n_columns = shape
    for label, part in zip(PARTS[form], parts, strict=True):
        if part.ndim != 1 or part.dtype.kind not in ("biuf" if label == "data" else "iu"):
            raise ValueError(f"{name} must have a list of numbers as {label}, got {part.dtype} of shape {part.shape}")
    memory.require(16 * (n_rows + 1), f"{name} of {n_rows} rows need")
    data, first, second = parts
    data = data if data.dtype in (np.float32, np.float64) else data.astype(np.float64)
    if form == "coo":
        _check_range(name, "row", first, n_rows)
        _check_range(name, "col", second, n_columns)
        if not data.size == first.size == second.size:
            raise ValueError(f"{name} must have as many rows and columns as data, got {first.size} and {second.size}")
        return scipy.sparse.csr_array(scipy.sparse.coo_array((data, (first, second)), (n_rows, n_columns)))
    n_lines, width = (n_rows, n_columns) if form == "csr" else (n_columns, n_rows)
    _check_range(name, "indices", first, width)
    ends = second.size == n_lines + 1 and second[0] == 0 and second[-1] <= min(data.size, first.size)
    if not ends or (second[1:] < second[:-1]).any():
        raise ValueError(f"{name} must have indptr that grows from 0 to at most {min(data.size, first.size)}, got none")
    kind = scipy.sparse.csr_array if form == "csr" else scipy.sparse.csc_array
    return scipy.sparse.csr_array(kind((data, first, second), shape=(n_rows, n_columns)))


def _check_range(name: str, label: str, values: NDArray[Any], limit: int) -> None:
    if values.size and not 0 <= values.min() <= values.max() < limit:
        raise ValueError(f"{name} must have {label} from 0 to {limit - 1}, got {values.min()} to {values.max()}")
