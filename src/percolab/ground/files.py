"""Files that are either complete or not there: checked before the work, written beside, renamed at the end."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from percolab.ground import locks, moves

PathLike = str | os.PathLike[str]

LONGEST_NAME = 255
"""Bytes of a file name, on every common file system."""
SYNCED_AT_ONCE = 16
"""Files that are brought to the disk at a time: it can do many as fast as one."""
WAIT_S = 0.01
"""Seconds between two looks whether another writer has named its files."""
_LONG = 180
"""Bytes of a name above which names beside it are shortened."""


# ---------------------------------------------------------------------- before the work


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
        # Permissions do not tell for a superuser or on a read-only disk, so try.
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise PermissionError(f"output must be in a writable directory, got {str(path)!r}") from error


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
    """Return a hidden name beside a path, which `what` tells from others of the same path."""
    name = path.name
    if len(os.fsencode(name)) > _LONG:
        name = f"{name[:40]}~{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"
    return path.with_name(f".{name}.{what}")


def partial(path: Path, suffix: str = "") -> Path:
    """Return a new name beside a path for what is not complete; see `sweep`."""
    return beside(path, f"partial-{secrets.token_hex(4)}{suffix}")


def sweep(path: Path) -> None:
    """Remove what writers to `path` left when they were killed. One that still runs holds the lock of its own."""
    prefix = beside(path, "partial-").name
    with suppress(FileNotFoundError):
        for left in path.absolute().parent.iterdir():
            if left.name.startswith(prefix):
                remove_unlocked(left)


def remove_unlocked(path: Path) -> None:
    """Remove a file or directory, unless another process holds its lock or nobody can tell."""
    with suppress(OSError), locks.alone(path, certain=True):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# ---------------------------------------------------------------------- to the disk


def sync(path: PathLike) -> None:
    """Have a file, or the names in a directory, on the disk before this returns."""
    if os.path.isdir(path) and os.name == "nt":  # where directories cannot be opened
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as fault:
        if fault.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems have no such thing
            raise
    finally:
        os.close(opened)


def sync_tree(root: PathLike) -> None:
    """Have everything in a directory on the disk before this returns: files first, then the names of them."""
    folders = [(folder, names) for folder, _, names in os.walk(root, topdown=False)]
    with ThreadPoolExecutor(SYNCED_AT_ONCE) as pool:
        list(pool.map(sync, (os.path.join(folder, name) for folder, names in folders for name in names)))
        list(pool.map(sync, (folder for folder, _ in folders)))


# ---------------------------------------------------------------------- writing


@contextmanager
def new_files(*paths: Path, overwrite: bool) -> Iterator[list[IO[bytes]]]:
    """Open a temporary file beside each path; on leaving, rename all to their paths.

    After an exception all paths are as they were before. Where a path is a link, what it leads to is written. What
    appears at a path meanwhile stays, unless `overwrite`. Several files get their names one by one: of a writer that is
    killed meanwhile nobody ever sees a new file beside an old one, and `complete` gives the others their names.
    """
    targets = [Path(os.path.realpath(path)) if overwrite else Path(path) for path in paths]
    complete(targets[0])
    for path in paths:
        check_output(path, overwrite=overwrite)
    files: list[IO[bytes]] = []
    try:
        with ExitStack() as open_files:
            for path in targets:
                sweep(path)
                files.append(open_files.enter_context(open_partial(path)))
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
            _name([Path(file.name) for file in files], targets, overwrite=overwrite)
    finally:
        for file in files:
            Path(file.name).unlink(missing_ok=True)


@contextmanager
def new_folder(path: PathLike) -> Iterator[None]:
    """Have a folder to write files to; one that was not there is removed again after an exception."""
    folder = Path(os.fspath(path))
    is_new = not folder.exists()
    if is_new:
        check_directory(folder)
        folder.mkdir()
    try:
        yield
    except BaseException:
        if is_new:
            folder.rmdir()
        raise


def _name(written: list[Path], targets: list[Path], *, overwrite: bool) -> None:
    """Give files their names, and have these on the disk."""
    folders = {target.absolute().parent for target in targets}
    # Links may lead to several directories. These are not written down: a journal leads nowhere else.
    together = len(targets) > 1 and len(folders) == 1
    with _written_down(written, targets, overwrite) if together else nullcontext():
        _rename_all(written, targets, overwrite=overwrite, aside=together)
        for folder in folders:
            sync(folder)
        for target in targets:
            _old(target).unlink(missing_ok=True)


def _rename_all(written: list[Path], targets: list[Path], *, overwrite: bool, aside: bool) -> None:
    """Rename files to their targets, all or none; put aside what is there before, so that old and new never meet."""
    renamed: list[tuple[Path, Path]] = []
    try:
        for target in targets if overwrite and aside else []:
            with suppress(FileNotFoundError):
                os.rename(target, _old(target))
                renamed.append((target, _old(target)))
        for file, target in zip(written, targets, strict=True):
            (os.replace if overwrite else _rename_new)(file, target)
            renamed.append((file, target))
    except BaseException:
        for before, now in reversed(renamed):
            os.replace(now, before)
        raise


def _rename_new(source: PathLike, target: PathLike) -> None:
    try:
        moves.rename_new(source, target)
    except FileExistsError:
        raise _exists(target) from None


# ---------------------------------------------------------------------- several files at once


@contextmanager
def _written_down(written: list[Path], targets: list[Path], overwrite: bool) -> Iterator[None]:
    """Have it on the disk which files get which names, for as long as that takes."""
    said = {
        "overwrite": overwrite,
        "names": {file.name: target.name for file, target in zip(written, targets, strict=True)},
    }
    journal = _journal(targets[0])
    with open_partial(targets[0]) as file:  # whose lock keeps others from completing what is under way
        file.write(json.dumps(said).encode())
        file.flush()
        os.fsync(file.fileno())
        while True:
            try:
                moves.rename_new(file.name, journal)
                break
            except FileExistsError:  # of another writer, who has come so far too, or was killed there
                complete(targets[0])
                time.sleep(WAIT_S)
        try:
            sync(journal.parent)
            yield
        finally:
            journal.unlink()


def complete(first: PathLike) -> None:
    """Give the files of a writer that was killed as it renamed several their names; do nothing if there is none.

    Parameters
    ----------
    first
        The first of the paths that it was to write.
    """
    target = Path(os.path.realpath(first))
    journal = _journal(target)
    if not os.path.lexists(journal):
        return
    with suppress(FileNotFoundError, locks.HeldError), locks.alone(journal):
        for new, (name, overwrite) in _names(journal).items():
            with suppress(FileNotFoundError, FileExistsError):
                (os.replace if overwrite else moves.rename_new)(target.with_name(new), target.with_name(name))
        sync(journal.parent)
        for name, _ in _names(journal).values():
            _old(target.with_name(name)).unlink(missing_ok=True)
        journal.unlink()


def _names(journal: Path) -> dict[str, tuple[str, bool]]:
    """Return which file gets which name, of files in the same directory, and whether it replaces another."""
    try:
        said = json.loads(journal.read_text())
        return {
            new: (name, bool(said["overwrite"]))
            for new, name in said["names"].items()
            if os.path.basename(name) == name and new.startswith(beside(journal.with_name(name), "partial-").name)
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}  # it is written whole, so this is not ours


def _journal(target: Path) -> Path:
    return beside(target, "naming")


def _old(target: Path) -> Path:
    """Return where a file is put aside; it is swept away like what is not complete."""
    return beside(target, "partial-old")


def open_partial(path: Path, suffix: str = "") -> IO[bytes]:
    """Open a new file beside a path and hold its lock, so that nobody sweeps it away."""
    while True:
        file = open(partial(path, suffix), "xb")  # noqa: SIM115  # who asks for it closes it
        locks.hold(file.fileno())
        if os.path.exists(file.name):
            return file
        file.close()  # it was swept away before it was locked


@contextmanager
def partial_directory(path: Path) -> Iterator[Path]:
    """Make a new directory beside a path and hold its lock, so that nobody sweeps it away; remove it in the end."""
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
    """Yield a path beside `path` to write to; it replaces `path` when the block ends without a fault."""
    target = Path(os.path.realpath(path))
    sweep(target)
    with open_partial(target, target.suffix) as file:
        try:
            yield Path(file.name)
            os.replace(file.name, target)
        finally:
            Path(file.name).unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Write JSON to `path`, and replace what is there."""
    with replacing(path) as name:
        name.write_text(json.dumps(_plain(values), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return a value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_table(table: Any, stem: Path) -> list[Path]:
    """Write a pandas table as ``{stem}.csv`` and, where pyarrow is installed, ``{stem}.parquet``."""
    writers: dict[str, Callable[[Path], Any]] = {
        ".parquet": lambda path: table.to_parquet(path, index=False),
        ".csv": lambda path: table.to_csv(path, index=False),
    }
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        del writers[".parquet"]
    paths = []
    for suffix, write in writers.items():
        with replacing(stem.with_name(stem.name + suffix)) as name:
            write(name)
        paths.append(stem.with_name(stem.name + suffix))
    return paths
