"""Files that are either complete or not there: checked before the work, written beside, put in place at the end."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

PathLike = str | os.PathLike[str]


def check_directory(path: PathLike) -> None:
    """Raise OSError, in one line, unless something new may be made beside `path`."""
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
    check_directory(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"output must be a file, got the directory {str(path)!r}")
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(f"output must not exist unless overwrite is given, got {str(path)!r}")


@contextmanager
def new_files(*paths: Path, overwrite: bool) -> Iterator[list[IO[bytes]]]:
    """Open a temporary file beside each path; on leaving, close all, then put them in place.

    After an exception all paths are as they were before.
    """
    for path in paths:
        check_output(path, overwrite=overwrite)
    files: list[IO[bytes]] = []
    try:
        with ExitStack() as open_files:
            for path in paths:
                name = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
                files.append(open_files.enter_context(open(name, "xb")))
            yield files
        for file, path in zip(files, paths, strict=True):
            os.replace(file.name, path)
    finally:
        for file in files:
            Path(file.name).unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the place of `path` when the block ends without a fault."""
    partial = path.with_name(f".{path.stem}.partial-{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Write JSON in place of what is at `path`."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(_plain(values), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return a value with None in place of NaN and infinity, which JSON does not have."""
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
        with replacing(stem.with_name(stem.name + suffix)) as partial:
            write(partial)
        paths.append(stem.with_name(stem.name + suffix))
    return paths


def one_line(fault: BaseException) -> str:
    """Return what an exception says, without line breaks."""
    return " ".join(str(fault).split()) or type(fault).__name__
