"""The directory of a study: one process at a time works in it, and a file in it says which study it holds.

A process that is killed at any step, also while it claims the directory, leaves one that the same command goes on with:
the lock ends with the process, and what it had not finished writing is swept away.
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
#: Of the files that a study writes; a later version may refuse what an earlier one wrote, and says so.
SCHEMA, VERSION = "percolab study", 1
MOST_BYTES = 1 << 26  #: Of a file of plain values.
FOLDERS = CELLS, TRAINING, FIGURES = "cells", "training", "figures"
FILES = RESULTS, REPORT, TABLE = "results.json", "report.html", "table.parquet"
MADE = {*FOLDERS, *FILES}  #: What a study makes beside its claim; of another study this is all that is ever removed.


@contextmanager
def claimed(directory: Path, wanted: Mapping[str, Any], *, overwrite: bool = False) -> Iterator[Path]:
    """Hold a directory for the study that `wanted` describes, made if it is not there, or say why it cannot be held.

    Parameters
    ----------
    directory
        New, empty, or of the same study.
    wanted
        Everything that determines the study, as plain values, equal after a round trip through JSON.
    overwrite
        Whether another study that it holds is removed.
    """
    if not os.path.lexists(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        try:
            held.enter_context(locks.alone(directory))  # of a file too, which is then refused
        except locks.HeldError:
            raise FileExistsError(f"output must not be in use by another process, got {str(directory)!r}") from None
        _claim(directory, wanted, overwrite=overwrite)
        check_plain(directory)
        yield directory


def _claim(directory: Path, wanted: Mapping[str, Any], *, overwrite: bool) -> None:
    file = directory / CLAIM
    if _is_claimed(directory):
        held = read_record(file)
        different = next((name for name in wanted if held.get(name) != wanted[name]), None)
        if different is None:
            return
        if not overwrite:
            raise FileExistsError(
                f"output must hold the same experiment unless overwrite is given, got {str(directory)!r} "
                f"with {different} {shown(held.get(different))}"
            )
        for name in MADE:
            _remove(directory / name)
    write_json(file, {"schema": SCHEMA, "version": VERSION, **wanted})


def _is_claimed(directory: Path) -> bool:
    """Return whether a directory has the file that says what it holds; raise unless it has, or is empty."""
    if not directory.is_dir():
        raise FileExistsError(f"output must be a directory, got {str(directory)!r}")
    sweep(directory / CLAIM)  # what a process that was killed here had begun to write
    if (directory / CLAIM).exists():
        return True
    if any(directory.iterdir()):
        raise FileExistsError(f"output must be empty or hold an experiment, got {str(directory)!r}")
    return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_json(file: Path) -> dict[str, Any]:
    """Return what a JSON file holds; nothing if it is missing, damaged, endless, or not a plain file."""
    with suppress(OSError, ValueError):
        return foreign_files.read_json(file.name, file, MOST_BYTES)
    return {}


def read_record(file: Path) -> dict[str, Any]:
    """Return what a JSON file of a study holds; nothing if it is not of this schema and version."""
    values = read_json(file)
    return values if (values.get("schema"), values.get("version")) == (SCHEMA, VERSION) else {}
