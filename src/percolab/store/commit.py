"""Whole stores: written beside their target, and moved to it when complete, in one step."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from percolab.dataset.dataset import Dataset
from percolab.ground import files
from percolab.ground.progress import Progress, silent
from percolab.store import exclusion, locations, metadata, schema, unfinished
from percolab.store.byte_sources import source
from percolab.store.locations import Location
from percolab.store.schema import StoreError
from percolab.worlds.superposed import AnyDataset, Superposed


def save(
    dataset: AnyDataset, path: Location, *, overwrite: bool = False, sync: bool = True, progress: Progress = silent
) -> None:
    """Write a dataset or a world to a path or a URL. An existing dataset at a path stays unless this succeeds.

    Parameters
    ----------
    dataset
        The dataset or world to write.
    path
        A path, or a URL that fsspec knows. If it is a link, the target of the link is written.
    overwrite
        Replace an existing dataset, in one step, once the new one is complete. Nothing else is ever replaced.
    sync
        Sync everything to disk before the dataset is moved to its path, so that even a power cut leaves no partial one.
    progress
        Called with (stage, bytes written, bytes in all).
    """
    check_target(path, overwrite=overwrite)
    if locations.local_path(path) is None:
        with exclusion.alone(path, path):
            _write(dataset, path, progress)
        return
    target = Path(locations.writing_target(path))
    files.sweep(target)
    with files.partial_directory(target) as partial:
        _write(dataset, partial, progress)
        try:
            put(partial, target, overwrite=overwrite, sync=sync)
        except FileExistsError as fault:
            raise FileExistsError(f"{fault}; the new dataset is kept at {str(_keep(partial, target))!r}") from fault


def _keep(complete: Path, target: Path) -> Path:
    """Keep a dataset under another name if its target was taken in the meantime: it may have taken hours."""
    spare = target.with_name(f"{target.stem[:100]}.kept-{secrets.token_hex(4)}{target.suffix[:20]}")
    files.rename_new(complete, spare)
    return spare


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
    except StoreError as fault:  # the URL holds something else, or the server does not answer
        raise FileExistsError(f"output must be new, since URLs are not overwritten: {fault}") from fault
    if there != "writing":
        raise FileExistsError(f"output must not exist, since URLs are not overwritten, got {str(url)!r}")


def _write(dataset: AnyDataset, path: Location, progress: Progress) -> None:
    """Write all columns of a dataset to a store, cell by cell; the columns of a world, and rare columns, whole."""
    counts = (dataset.forest.n_points, dataset.forest.n_clusters) if isinstance(dataset, Dataset) else (0, 0)
    store = unfinished.begin(path, dataset.recipe, *counts)
    columns, sha256 = dict(_columns(dataset)), {}
    total, done = sum(int(column.nbytes) for column in columns.values()), 0

    def report(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        progress("saving", done, total)

    for kind, index in store.cells():
        lo, hi = store.span(kind, index)
        part = {name: columns[name][lo:hi] for name in store.content.kinds[kind]}
        store.write(kind, lo, part)
        report(sum(column.nbytes for column in part.values()))
    for name in (name for name in columns if name not in store.content.in_cells):
        sha256[name] = store.write_whole(name, columns[name])
        report(columns[name].nbytes)
    store.finish(_provenance(dataset), sha256, sync=False)  # a store that is moved is synced before the move


def _columns(dataset: AnyDataset) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a dataset or a world, as they are stored."""
    if isinstance(dataset, Superposed):
        for name in schema.SAMPLE_COLUMNS:
            yield name, getattr(dataset, name)
        for k, factor in enumerate(dataset.factors):
            for name in schema.factor_columns(factor.recipe):
                yield f"factors/{k}/{name}", getattr(factor if name in schema.VALUE_COLUMNS else factor.forest, name)
        return
    for name in schema.COLUMNS:
        yield name, getattr(dataset.forest if name in schema.FOREST_COLUMNS else dataset, name)
    extra = dict(dataset.extra)
    if dataset.forest.n_extra_bonds:
        extra |= {name: getattr(dataset.forest, name) for name in schema.CYCLE_COLUMNS}
    for name, column in extra.items():
        yield f"extra/{name}", np.asarray(column).astype(schema.EXTRA_COLUMNS[name][1], copy=False)


def _provenance(dataset: AnyDataset) -> dict[str, Any]:
    """Return the provenance of a dataset, with its modification; for a world also the provenance of its factors."""
    record = _made(dataset)
    if dataset.modification:
        record["modified"] = dataset.modification
    if isinstance(dataset, Superposed):
        record |= {"sigma": dataset.sigma.tolist(), "factors": [_made(factor) for factor in dataset.factors]}
    return record


def _made(dataset: AnyDataset) -> dict[str, Any]:
    """Return how a dataset was made, wherever it was loaded from."""
    return {key: value for key, value in dataset.provenance.items() if key != "loaded_from"}


# ---------------------------------------------------------------------- the last step
#
# Moving a complete store to its target, so that the target is always a complete store, the old or the new.
# Nothing is replaced without `overwrite`, and then only a dataset of percolab, by an exchange: old and new exchange
# names in one step, and the old one is removed after that. If the system cannot exchange two names, nothing is
# replaced.


def status(location: Location) -> str:
    """Return the status of the store at a location; "foreign" if it is no store, "nothing" if the location is free."""
    try:
        return str(metadata.attributes(source(location), location).get("status", "foreign"))
    except FileNotFoundError:
        return "nothing"
    except StoreError:
        return "foreign"


def put(complete: Path, target: Path, *, overwrite: bool, sync: bool = True) -> None:
    """Move a complete store to its target. A store that has this name is replaced only with `overwrite`.

    Raises FileExistsError if the target exists and may not be replaced; the store then stays where it is.
    """
    if sync:
        files.sync_tree(complete)
    try:
        files.rename_new(complete, target)
    except FileExistsError:
        if not overwrite:
            raise
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
    """Raise FileExistsError, in one line, unless a target can exchange names with a new store."""
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
