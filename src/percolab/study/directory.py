"""The directory of a study: one process at a time works in it, and a file in it says which study it holds.

A process may be killed at any step, also while it claims the directory: the same command then resumes in it. The lock
ends with the process, and half-written files are removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from percolab.ground import foreign_files, locks
from percolab.ground.files import check_plain, sweep, write_json
from percolab.ground.text import shown

CLAIM = "experiment.json"  #: File that says which study a directory holds.
#: Of the files that a study writes; a later version may refuse files of an earlier one, with an error that says so.
SCHEMA, VERSION = "percolab study", 1
MOST_BYTES = 1 << 26  #: Largest file of plain values that is read.
FOLDERS = CELLS, TRAINING, FIGURES, SUBMISSION = "cells", "training", "figures", "submission"
FILES = RESULTS, REPORT, TABLE = "results.json", "report.html", "table.parquet"
MADE = {*FOLDERS, *FILES}  #: What a study writes beside its claim, and all that `overwrite` ever removes.


@contextmanager
def claimed(directory: Path, wanted: Mapping[str, Any], *, overwrite: bool = False) -> Iterator[Path]:
    """Hold a directory, made if missing, for the study that `wanted` describes; raise if it cannot be held.

    Parameters
    ----------
    directory
        A directory that is new, empty, or holds the same study.
    wanted
        Everything that determines the study, as plain values, equal after a round trip through JSON.
    overwrite
        Whether another study in the directory is removed.
    """
    if not os.path.lexists(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locks.alone(directory))  # locks a plain file too; `_claim` refuses it
        except locks.HeldError:
            raise FileExistsError(f"output must not be in use by another process, got {str(directory)!r}") from None
        _claim(directory, wanted, overwrite=overwrite)
        check_plain(directory)
        yield directory


def _claim(directory: Path, wanted: Mapping[str, Any], *, overwrite: bool) -> None:
    file, named = directory / CLAIM, {"schema": SCHEMA, "version": VERSION, **wanted}
    if _is_claimed(directory):
        held = read_json(file)
        different = next((name for name in named if held.get(name) != named[name]), None)
        if different is None:
            return
        if not overwrite:
            raise FileExistsError(
                f"output must hold the same experiment unless overwrite is given, got {str(directory)!r} "
                f"with {different} {shown(held.get(different))}"
            )
        for path in (directory / name for name in MADE):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    write_json(file, named)


def _is_claimed(directory: Path) -> bool:
    """Return whether a directory has the file that names its study; raise if it has not and is not empty."""
    if not directory.is_dir():
        raise FileExistsError(f"output must be a directory, got {str(directory)!r}")
    sweep(directory / CLAIM)  # half-written, by a process that was killed here
    if (directory / CLAIM).exists():
        return True
    if any(directory.iterdir()):
        raise FileExistsError(f"output must be empty or hold an experiment, got {str(directory)!r}")
    return False


def read_json(file: Path) -> dict[str, Any]:
    """Return the contents of a JSON file; nothing if it is missing, damaged, too large, or not a plain file."""
    with suppress(OSError, ValueError):
        return foreign_files.read_json(file.name, file, MOST_BYTES)
    return {}
