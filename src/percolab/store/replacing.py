"""Moving a complete store to its target, so that at every moment there is a whole one, the old or the new.

Nothing is replaced unless it was asked for, and then only a dataset of percolab, in exchange: old and new change names
in one step, and the old one is removed after that. Where the system cannot exchange, two renames are written down
before they are made, and whoever comes next to the target completes them.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from percolab.ground import files, locks, moves
from percolab.store import metadata
from percolab.store.locations import Location, local_path
from percolab.store.schema import StoreError
from percolab.store.sources import source


def status(location: Location) -> str:
    """Return the status of the store at a location, or that it is "foreign", or that "nothing" is there."""
    try:
        return str(metadata.attributes(source(location), location).get("status", "foreign"))
    except FileNotFoundError:
        return "nothing"
    except StoreError:
        return "foreign"


def put(complete: Path, target: Path, *, overwrite: bool, sync: bool = True) -> None:
    """Move a complete store to its target; what is there stays unless `overwrite`.

    Raises FileExistsError if something is there that may not be replaced; the store then stays where it is.
    """
    if sync:
        files.sync_tree(complete)
    try:
        moves.rename_new(complete, target)
    except FileExistsError:
        if not overwrite:
            raise FileExistsError(f"output must not exist unless overwrite is given, got {str(target)!r}") from None
        _replace(complete, target)
    if sync:
        files.sync(target.parent)


def _replace(complete: Path, target: Path) -> None:
    try:
        with locks.alone(target):
            try:
                moves.exchange(complete, target)
            except moves.UnsupportedError:
                _replace_in_steps(complete, target)
                return
            if status(complete) == "foreign":  # it appeared at the last moment
                moves.exchange(complete, target)
                raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(target)!r}")
            remove(complete, target)
    except locks.HeldError:
        raise StoreError(f"{target} is being written by another process") from None


def remove(store: Path, target: Path) -> None:
    """Remove a store that is no longer at its target, under a name that is swept away if this is interrupted."""
    doomed = files.partial(target)
    store.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


# ---------------------------------------------------------------------- without an exchange


def _replace_in_steps(complete: Path, target: Path) -> None:
    if status(target) == "foreign":
        raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(target)!r}")
    old = files.partial(target, ".old")
    journal = _journal(target)
    with files.open_partial(target) as file:  # whose lock keeps others from completing what is under way
        file.write(json.dumps({"new": complete.name, "old": old.name}).encode())
        file.flush()
        os.fsync(file.fileno())
        os.replace(file.name, journal)
        files.sync(target.parent)
        target.rename(old)
        complete.rename(target)
        files.sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
        journal.unlink()


def _journal(target: Path) -> Path:
    return files.beside(target, "replacing")


def recover(location: Location) -> None:
    """Complete a replacement in steps that was interrupted; do nothing if there is none, or if it is under way."""
    path = local_path(location)
    if path is None:
        return
    target = Path(os.path.realpath(path))
    journal = _journal(target)
    with suppress(FileNotFoundError, locks.HeldError), locks.alone(journal):
        try:
            names = json.loads(journal.read_text())
            new, old = (target.with_name(os.path.basename(names[key])) for key in ("new", "old"))
        except (KeyError, TypeError, ValueError):
            journal.unlink()  # it is written whole, so this is not ours
            return
        if not os.path.lexists(target):
            (new if status(new) == "complete" else old).rename(target)
        if not os.path.lexists(new):
            shutil.rmtree(old, ignore_errors=True)
        journal.unlink()
