"""Files that are either complete or absent: paths are checked first, data go to temporary files, renamed at the end."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from percolab.ground import locks

PathLike = str | os.PathLike[str]

LONGEST_NAME = 255  #: Bytes of a file name, on every common file system.
SYNCED_AT_ONCE = 16  #: Files that are synced to disk at a time: many take no longer than one.
_LONG = 180  #: Bytes of a name above which names beside it are shortened.


# ---------------------------------------------------------------------- before the work
_NOREPLACE, _EXCHANGE = 1, 2
_HERE = -100  #: Directory that relative paths start from: the current one (AT_FDCWD).
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def check_name(path: PathLike) -> None:
    """Raise OSError, in one line, unless the last part of a path is short enough for a file system."""
    length = len(os.fsencode(Path(path).absolute().name))
    if length > LONGEST_NAME:
        raise OSError(f"output must have a name of at most {LONGEST_NAME} bytes, got one of {length}")


def check_directory(path: PathLike) -> None:
    """Raise OSError, in one line, unless something new may be made beside `path`."""
    check_name(path)
    parent = Path(path).absolute().parent
    if not parent.is_dir():
        raise FileNotFoundError(f"output must be in an existing directory, got {str(path)!r}")
    try:
        # Permission bits mean nothing for a superuser or on a read-only disk, so try to write.
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise PermissionError(f"output must be in a writable directory, got {str(path)!r}") from error


def check_plain(directory: PathLike) -> None:
    """Raise if a link, a pipe or a device is anywhere in a directory whose files are read and written by name."""
    for root, folders, names in os.walk(directory):
        for path in (os.path.join(root, name) for name in (*folders, *names)):
            mode = os.lstat(path).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise FileExistsError(f"output must hold plain files and directories alone, got {path!r}")


def check_output(path: PathLike, *, overwrite: bool) -> None:
    """Raise OSError, in one line, unless a file may be written to `path`."""
    check_directory(os.path.realpath(path) if os.path.islink(path) else path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"output must be a file, got the directory {str(path)!r}")
    if not overwrite and os.path.lexists(path):
        raise _exists(path)


def _exists(path: PathLike) -> FileExistsError:
    return FileExistsError(f"output must not exist unless overwrite is given, got {str(path)!r}")


# ---------------------------------------------------------------------- names beside


def beside(path: Path, what: str) -> Path:
    """Return a hidden name beside a path; `what` distinguishes it from other hidden names of the same path."""
    name = path.name
    if len(os.fsencode(name)) > _LONG:
        name = f"{name[:40]}~{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return path.with_name(f".{name}.{what}")


def partial(path: Path, suffix: str = "") -> Path:
    """Return a new name beside a path for an incomplete file or directory; see `sweep`."""
    return beside(path, f"partial-{secrets.token_hex(4)}{suffix}")


def sweep(path: Path) -> None:
    """Remove the partial files of killed writers to `path`. A running writer holds the lock of its partial file.

    Only names that `partial` gives are considered, and no link is followed: whoever could make such a file could also
    have deleted it.
    """
    name = re.compile(re.escape(beside(path, "partial-").name) + r"[0-9a-f]{8}(\..*)?", re.DOTALL)
    with suppress(FileNotFoundError):
        for left in path.absolute().parent.iterdir():
            if name.fullmatch(left.name):
                remove_unlocked(left)


def remove_unlocked(path: Path) -> None:
    """Remove a file or directory, unless another process holds its lock or the system has no locks."""
    with suppress(OSError), locks.alone(path, certain=True, links=False):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# ---------------------------------------------------------------------- to the disk


def sync(path: PathLike) -> None:
    """Sync a file, or the names in a directory, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as fault:
        if fault.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync
            raise
    finally:
        os.close(opened)


def sync_tree(root: PathLike) -> None:
    """Sync everything in a directory to disk: files first, then their names."""
    folders = [(folder, names) for folder, _, names in os.walk(root, topdown=False)]
    with ThreadPoolExecutor(SYNCED_AT_ONCE) as pool:
        list(pool.map(sync, (os.path.join(folder, name) for folder, names in folders for name in names)))
        list(pool.map(sync, (folder for folder, _ in folders)))


# ---------------------------------------------------------------------- writing


@contextmanager
def new_files(*paths: Path, overwrite: bool) -> Iterator[list[IO[bytes]]]:
    """Open a temporary file beside each path; on leaving, rename all to their paths.

    After an exception all paths are as they were before. If a path is a link, its target is written. A file that
    appears at a path in the meantime stays, unless `overwrite`. Several files are renamed one by one, after the files
    that they replace have been moved away: if the writer is killed in between, files are missing, but a new file is
    never seen beside an old one.
    """
    targets = [Path(os.path.realpath(path)) if overwrite else Path(path) for path in paths]
    for path in paths:
        check_output(path, overwrite=overwrite)
    files: list[IO[bytes]] = []
    made: list[Path] = []
    try:
        with ExitStack() as open_files:
            for path in targets:
                sweep(path)
                files.append(open_files.enter_context(open_partial(path, made=made)))
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
            _name([Path(file.name) for file in files], targets, overwrite=overwrite)
    finally:
        for name in made:
            name.unlink(missing_ok=True)


@contextmanager
def new_folder(path: PathLike) -> Iterator[None]:
    """Make a folder to write files to, unless it exists; a folder made here is removed again after an exception."""
    folder = Path(os.fspath(path))
    is_new = not folder.exists()
    if is_new:
        check_directory(folder)
    try:
        if is_new:
            folder.mkdir()
        yield
    except BaseException as fault:
        if is_new and not (isinstance(fault, FileExistsError) and fault.filename == str(folder)):
            with suppress(OSError):  # files that others put there in the meantime stay
                folder.rmdir()
        raise


def _name(written: list[Path], targets: list[Path], *, overwrite: bool) -> None:
    """Rename files to their targets, all or none, and sync their names to disk."""
    folders = sorted({target.absolute().parent for target in targets})
    renamed: list[tuple[Path, Path]] = []
    with ExitStack() as held:
        for folder in folders if len(targets) > 1 else []:
            held.enter_context(locks.alone(folder, wait=True))  # two writers at once do not mix their files
        try:
            for target in targets if overwrite and len(targets) > 1 else []:
                aside = partial(target)
                with suppress(OSError):
                    held.enter_context(locks.alone(target))  # so that nobody sweeps away the file that is put aside
                with suppress(FileNotFoundError):
                    os.rename(target, aside)
                    renamed.append((target, aside))
            old = [aside for _, aside in renamed]
            for folder in folders if old else []:
                sync(folder)
            for file, target in zip(written, targets, strict=True):
                (os.replace if overwrite else rename_new)(file, target)
                renamed.append((file, target))
        except BaseException:
            for before, now in reversed(renamed):
                os.replace(now, before)
            raise
        for folder in folders:
            sync(folder)
        for aside in old:
            aside.unlink(missing_ok=True)


def open_partial(path: Path, suffix: str = "", made: list[Path] | None = None) -> IO[bytes]:
    """Open a new file beside a path and hold its lock, so that nobody sweeps it away.

    Its name is added to `made` before the file exists, so that an interrupt at any step leaves no unknown file behind.
    """
    while True:
        name = partial(path, suffix)
        if made is not None:
            made.append(name)
        file = open(name, "xb")  # noqa: SIM115  # who asks for it closes it
        locks.hold(file.fileno())
        if os.path.exists(file.name):
            return file
        file.close()  # it was swept away before it was locked


@contextmanager
def partial_directory(path: Path) -> Iterator[Path]:
    """Make a new directory beside a path, hold its lock so that nobody sweeps it away, and remove it at the end."""
    with ExitStack() as held:
        while True:
            folder = partial(path)
            folder.mkdir()
            try:
                held.enter_context(locks.alone(folder))
                break
            except (FileNotFoundError, locks.HeldError):  # it is being swept away, before it was locked
                continue
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it replaces `path` when the block ends without a fault.

    It is for files in directories that percolab maintains. If `path` is a link, the link itself is replaced: whoever
    made the directory, nothing outside it is written.
    """
    sweep(path)
    with open_partial(path, path.suffix) as file:
        try:
            yield Path(file.name)
            os.replace(file.name, path)
        finally:
            Path(file.name).unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Write JSON to `path`, replacing any file of this name."""
    with replacing(path) as name:
        name.write_bytes(json_text(values))


def json_text(values: Any) -> bytes:
    """Return values as the text of a JSON file."""
    return (json.dumps(_plain(values), indent=1, allow_nan=False) + "\n").encode()


def _plain(value: Any) -> Any:
    """Return a value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(table: Any, stem: Path) -> list[Path]:
    """Write a pandas table as ``{stem}.csv`` and, where pyarrow is installed, ``{stem}.parquet``."""
    suffixes = (".parquet", ".csv") if find_spec("pyarrow") else (".csv",)
    paths = [stem.with_name(stem.name + suffix) for suffix in suffixes]
    for path in paths:
        with replacing(path) as name:
            (table.to_csv if path.suffix == ".csv" else table.to_parquet)(name, index=False)
    return paths


# ---------------------------------------------------------------------- renames
#
# Renames that never lose a file: to a free name, or an exchange of two names in one step.
# `os.rename` silently replaces a file or an empty directory. Linux can refuse instead, and exchange two names
# (renameat2); on other systems several small steps do the same, or an error says that it cannot be done.


class UnsupportedError(OSError):
    """The system, or this file system, cannot rename in this way in one step."""


def rename_new(source: PathLike, target: PathLike) -> None:
    """Rename a file or directory; raise FileExistsError unless the target is free or an empty directory not in use."""
    if os.path.isdir(source):
        # Only a directory is removed, only if it is empty, and only if no other run is about to write to it.
        with suppress(OSError), locks.alone(target):
            os.rmdir(target)
    try:
        _renameat2(source, target, _NOREPLACE)
    except UnsupportedError:
        _rename_new_in_steps(source, target)
    except FileExistsError:
        raise _exists(target) from None


def exchange(first: PathLike, second: PathLike) -> None:
    """Let two files or directories exchange names, in one step; raise `UnsupportedError` where the system cannot."""
    _renameat2(first, second, _EXCHANGE)


def _rename_new_in_steps(source: PathLike, target: PathLike) -> None:
    try:
        if os.path.isdir(source):
            os.mkdir(target)  # fails if the target exists
            os.rename(source, target)  # replaces nothing but an empty directory
        else:
            os.link(source, target)
            os.unlink(source)
    except OSError as fault:
        is_file = not os.path.isdir(source)
        if fault.errno in (errno.EEXIST, errno.ENOTEMPTY) or (is_file and os.path.lexists(target)):
            raise _exists(target) from None
        if not is_file:
            raise
        os.rename(source, target)  # a file system without hard links: another writer has only a moment to interfere


def _renameat2(source: PathLike, target: PathLike, flags: int) -> None:
    call = _system_call()
    if call is None:
        raise UnsupportedError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if call(_HERE, os.fsencode(source), _HERE, os.fsencode(target), flags) == 0:
        return
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        raise UnsupportedError(code, os.strerror(code))
    raise OSError(code, os.strerror(code), os.fspath(source), None, os.fspath(target))


@cache
def _system_call() -> Any:
    """Return renameat2 of the C library, or None."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call
