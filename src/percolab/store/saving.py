"""Saving a dataset whole: written beside its target, moved there when complete."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from pathlib import Path

from percolab.dataset.dataset import Dataset, save_with
from percolab.ground.files import check_directory
from percolab.ground.progress import Progress, silent
from percolab.store import cells, extras, locations
from percolab.store.locations import Location
from percolab.store.schema import COLUMNS, FOREST_COLUMNS, KINDS, StoreError


def save(dataset: Dataset, path: Location, *, overwrite: bool = False, report: Progress = silent) -> None:
    """Write a dataset to a path or a URL. What is at a path stays unless this succeeds."""
    check_target(path, overwrite=overwrite)
    target = locations.local_path(path)
    if target is None:
        _write(dataset, path, report)
        return
    _sweep(target)
    partial = target.with_name(f".{target.name}.partial-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        _write(dataset, partial, report)
        put_in_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


save_with(save)


def check_target(path: Location, *, overwrite: bool) -> None:
    """Raise, in one line, unless a dataset may be written to a path or a URL."""
    target = locations.local_path(path)
    if target is not None:
        check_directory(target)
    status = _status(path)
    if status == "nothing":
        return
    if target is None:
        if status != "writing":
            raise FileExistsError(f"output must not exist, since URLs are not overwritten, got {str(path)!r}")
    elif not overwrite:
        raise FileExistsError(f"output must not exist unless overwrite is given, got {str(path)!r}")
    elif status == "foreign":
        raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(path)!r}")


def _status(path: Location) -> str:
    """Return the status of the store at `path`, or that it is not one of ours, or that nothing is there."""
    try:
        return str(locations.open_store(path)[1].get("status", "foreign"))
    except FileNotFoundError:
        return "nothing"
    except StoreError:
        return "foreign"


def _sweep(target: Path) -> None:
    """Remove what writers that no longer run on this machine left beside `target`."""
    prefix = f".{target.name}.partial-{socket.gethostname()}-"
    for left in target.absolute().parent.glob(prefix.replace("[", "[[]") + "*"):
        process = left.name.removeprefix(prefix).split("-")[0]
        if process.isdigit() and not _runs(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write(dataset: Dataset, path: Location, report: Progress) -> None:
    columns = {name: getattr(dataset.forest if name in FOREST_COLUMNS else dataset, name) for name in COLUMNS}
    total = sum(int(column.nbytes) for column in columns.values())
    done = 0
    unfinished = cells.begin(path, dataset.recipe, dataset.forest.n_points, dataset.forest.n_clusters)
    for kind, names in KINDS.items():
        for index in range(unfinished.n_cells(kind)):
            lo, hi = unfinished.span(kind, index)
            part = {name: columns[name][lo:hi] for name in names}
            unfinished.write(kind, lo, part)
            done += sum(column.nbytes for column in part.values())
            report("saving", done, total)
    if dataset.extra:
        extras.write(path, dataset.extra)
    told = {"modified": dataset.modification} if dataset.modification else {}
    unfinished.finish({**{key: value for key, value in dataset.provenance.items() if key != "loaded_from"}, **told})


def put_in_place(complete: Path, target: Path) -> None:
    """Move a complete store to its target; what was there is removed only after that."""
    previous = target.with_name(f".{target.name}.replaced-{secrets.token_hex(4)}")
    if target.exists():
        target.rename(previous)
    try:
        complete.rename(target)
    except BaseException:
        if previous.exists():
            previous.rename(target)
        raise
    for replaced in target.parent.glob(f".{target.name}.replaced-*".replace("[", "[[]")):
        shutil.rmtree(replaced, ignore_errors=True)
