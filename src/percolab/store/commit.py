"""Whole stores: written beside their target, and moved there when complete, in one step."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground import files
from percolab.ground.progress import Progress
from percolab.store import exclusion, locations, metadata, unfinished
from percolab.store.byte_sources import source
from percolab.store.locations import Location
from percolab.store.schema import COLUMNS, EXTRA_COLUMNS, FOREST_COLUMNS, ROW_KINDS, StoreError


def write_whole(path: Location, write: Callable[[Location], None], *, overwrite: bool, sync: bool) -> None:
    """Have a store written beside its target and moved there when complete; at a URL, written to the target itself."""
    check_target(path, overwrite=overwrite)
    if locations.local_path(path) is None:
        with exclusion.alone(path, path):
            write(path)
        return
    target = Path(locations.writing_target(path))
    files.sweep(target)
    with files.partial_directory(target) as partial:
        write(partial)
        try:
            put(partial, target, overwrite=overwrite, sync=sync)
        except FileExistsError as fault:
            raise FileExistsError(f"{fault}; the new dataset is kept at {str(_keep(partial, target))!r}") from fault


def _keep(complete: Path, target: Path) -> Path:
    """Move a dataset that found its target taken to a name of its own: it may have taken hours."""
    kept = target.with_name(f"{target.stem[:100]}.kept-{secrets.token_hex(4)}{target.suffix[:20]}")
    files.rename_new(complete, kept)
    return kept


def check_target(path: Location, *, overwrite: bool) -> None:
    """Raise, in one line, unless a dataset may be written to a path or a URL."""
    local = locations.local_path(path)
    if local is None:
        _check_url(path)
        return
    target = Path(locations.writing_target(path))
    files.check_directory(target if os.path.islink(local) else local)
    there = status(target)
    if there == "nothing":
        return
    if not overwrite:
        raise FileExistsError(f"output must not exist unless overwrite is given, got {str(path)!r}")
    if there == "foreign":
        raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(path)!r}")
    check_exchange(target)
    with exclusion.locked(target, path):
        return


def _check_url(url: Location) -> None:
    try:
        there = metadata.attributes(source(url), url).get("status")
    except FileNotFoundError:
        return
    except StoreError as fault:  # something else is there, or nobody answers
        raise FileExistsError(f"output must be new, since URLs are not overwritten: {fault}") from fault
    if there != "writing":
        raise FileExistsError(f"output must not exist, since URLs are not overwritten, got {str(url)!r}")


def write_dataset(dataset: Dataset, path: Location, progress: Progress) -> None:
    """Write all columns of a dataset to a store, cell by cell."""
    columns = {name: getattr(dataset.forest if name in FOREST_COLUMNS else dataset, name) for name in COLUMNS}
    total = sum(int(column.nbytes) for column in columns.values())
    done = 0
    store = unfinished.begin(path, dataset.recipe, dataset.forest.n_points, dataset.forest.n_clusters)
    for kind, names in ROW_KINDS.items():
        for index in range(store.n_cells(kind)):
            lo, hi = store.span(kind, index)
            part = {name: columns[name][lo:hi] for name in names}
            store.write(kind, lo, part)
            done += sum(column.nbytes for column in part.values())
            progress("saving", done, total)
    made = {key: value for key, value in dataset.provenance.items() if key != "loaded_from"}
    if dataset.modification:
        made["modified"] = dataset.modification
    store.finish(made, sync=False, extra=_extra(dataset))  # what is moved to a target is synced before that


def _extra(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """Return the columns that only some datasets have, as they are stored."""
    columns = dict(dataset.extra)
    if dataset.forest.n_extra_bonds:
        columns |= {name: getattr(dataset.forest, name) for name in ("extra_bond", "extra_latent")}
    return {name: np.asarray(column).astype(EXTRA_COLUMNS[name][1], copy=False) for name, column in columns.items()}


# ---------------------------------------------------------------------- the last step
#
# Moving a complete store to its target, so that at every moment there is a whole one, the old or the new.
# Nothing is replaced unless it was asked for, and then only a dataset of percolab, in exchange: old and new change
# names in one step, and the old one is removed after that. Where the system cannot exchange two names, nothing is
# replaced.


def status(location: Location) -> str:
    """Return the status of the store at a location, or that it is "foreign", or that "nothing" is there."""
    try:
        return str(metadata.attributes(source(location), location).get("status", "foreign"))
    except FileNotFoundError:
        return "nothing"
    except StoreError:
        return "foreign"


def put(complete: Path, target: Path, *, overwrite: bool, sync: bool = True) -> None:
    """Move a complete store to its target. A store that has this name is replaced only with `overwrite`.

    Raises FileExistsError if something is there that may not be replaced; the store then stays where it is.
    """
    if sync:
        files.sync_tree(complete)
    try:
        files.rename_new(complete, target)
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
            files.exchange(complete, target)
            raise FileExistsError(f"output must be a percolab dataset to be overwritten, got {str(target)!r}")
        remove(complete, target)


def check_exchange(target: Path) -> None:
    """Raise FileExistsError, in one line, unless what is at a target can be exchanged for something new."""
    with files.open_partial(target) as first, files.open_partial(target) as other:
        try:
            _exchange(Path(first.name), Path(other.name), target)
        finally:
            for file in (first, other):
                Path(file.name).unlink()


def _exchange(first: Path, other: Path, target: Path) -> None:
    try:
        files.exchange(first, other)
    except files.UnsupportedError:
        raise FileExistsError(
            "output must not exist on a file system that cannot exchange two names in one step, even with overwrite: "
            f"remove it, or choose another, got {str(target)!r}"
        ) from None


def remove(store: Path, target: Path) -> None:
    """Remove a store that is no longer at its target, under a name that is swept away if this is interrupted."""
    doomed = files.partial(target)
    store.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
