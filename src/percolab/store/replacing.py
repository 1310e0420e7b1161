"""Moving a complete store to its target, so that at every moment there is a whole one, the old or the new.

Nothing is replaced unless it was asked for, and then only a dataset of percolab, in exchange: old and new change names
in one step, and the old one is removed after that. Where the system cannot exchange two names, nothing is replaced.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from percolab.ground import files, moves
from percolab.store import exclusion, metadata
from percolab.store.locations import Location
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
    with exclusion.locked(target, target):
        _exchange(complete, target, target)
        if status(complete) == "foreign":  # it appeared at the last moment
            moves.exchange(complete, target)
            raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(target)!r}")
        remove(complete, target)


def check_exchange(target: Path) -> None:
    """Raise FileExistsError, in one line, unless what is at a target can be exchanged for something new."""
    with files.open_partial(target) as one, files.open_partial(target) as other:
        try:
            _exchange(Path(one.name), Path(other.name), target)
        finally:
            for file in (one, other):
                Path(file.name).unlink()


def _exchange(one: Path, other: Path, target: Path) -> None:
    try:
        moves.exchange(one, other)
    except moves.UnsupportedError:
        raise FileExistsError(
            "output must not exist on a file system that cannot exchange two names in one step, even with overwrite: "
            f"remove it, or choose another, got {str(target)!r}"
        ) from None


def remove(store: Path, target: Path) -> None:
    """Remove a store that is no longer at its target, under a name that is swept away if this is interrupted."""
    doomed = files.partial(target)
    store.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
