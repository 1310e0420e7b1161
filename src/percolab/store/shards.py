"""Datasets and documents made in shards, by many processes or machines, straight into a store.

A shard is a run of cells of the store: a range of rows, and a range of latents; or a range of documents. Each is a pure
function of the recipe and a small part of the table (see `rows`), and is written by one task (see `unfinished`).
Finished cells are recorded in the store, so that an interrupted run resumes where it stopped; and a finished store is
the same, byte for byte, however it was made.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from percolab.corpora.collection import DocumentRange
from percolab.engines import generated
from percolab.engines.native import large_clusters, rows
from percolab.engines.native.rows import ClusterTable
from percolab.ground import files, memory, parallel, version
from percolab.ground.progress import Progress, shown, silent
from percolab.ground.validation import check_integer
from percolab.model.recipe import Recipe
from percolab.store import commit, exclusion, finished, locations, metadata, runners, schema, unfinished
from percolab.store.byte_sources import source
from percolab.store.digests import Missing
from percolab.store.locations import Location
from percolab.store.schema import AnyRecipe, StoredRecipe, StoreError
from percolab.store.unfinished import Unfinished

Range = tuple[str, int, int]  #: A kind of rows (see `schema.Content`), the first row and the end.
Maker = Callable[[], dict[str, Any]]  #: Makes the columns of some rows of a kind; it can be sent to other processes.
Shard = tuple[Unfinished, list[tuple[Range, Maker]]]  #: A task: the store, the rows to write, and their makers.
WORK_BYTES = 64  #: Bytes per position while documents and beliefs are made and written.


@dataclass(frozen=True)
class StoreReport:
    """The result of a run: the size of the store, and how much of it was made."""

    n_points: int  #: points, or documents
    n_clusters: int  #: 0 for documents
    shards: int  #: shards of the dataset
    shards_made: int  #: shards that were missing, wholly or in part
    rows_made: int  #: points, latents and clusters that were missing
    peak_bytes: int  #: peak memory of the largest worker


def generate_store(
    recipe: AnyRecipe,
    location: Location,
    *,
    shards: int | None = None,
    runner: str = "local",
    workers: int | None = None,
    address: str | None = None,
    overwrite: bool = False,
    sync: bool = True,
    progress: bool | Progress = False,
) -> StoreReport:
    """Make a dataset or documents in shards, straight into a store: nothing larger than a shard is held in memory.

    If the store exists already, unfinished or damaged, only its missing or damaged cells are made. The finished store
    is the same for any number of shards, runner, workers and interruptions, and has the bytes of `generate` and `save`.
    Workers are new Python processes, so a script must call this under ``if __name__ == "__main__":``.

    Parameters
    ----------
    recipe
        A recipe of the native engine, or a `DocumentRange`.
    location
        A path, or a URL that fsspec knows; with Ray on several machines, a location that all of them reach.
    shards
        Number of shards. They are cut at multiples of `schema.CELL` rows, so there may be fewer. None: 1 for a dataset;
        documents are made one after another in this process, on all cores.
    runner
        ``"local"``: processes on this machine. ``"ray"``: tasks on a Ray cluster.
    workers
        Shards made at a time; None takes one for each processor of the machine or the cluster.
    address
        Address of the Ray cluster; None starts one on this machine.
    overwrite
        Replace a dataset of another recipe, in one step, once this one is complete.
    sync
        Sync everything to disk before the store is marked as complete.
    progress
        True shows a bar; a function is called with (stage, rows done, rows in all).
    """
    if not isinstance(recipe, Recipe | DocumentRange):
        raise ValueError(f"recipe must be that of one dataset to be made in shards, got {recipe!r}")
    if isinstance(recipe, Recipe):
        recipe.require_plain("to make a dataset in shards")
        shards = 1 if shards is None else shards
    if shards is not None:
        check_integer("shards", shards, 1)
    runners.check(runner)
    if address is not None and runner != "ray":
        raise ValueError(f"address must be left out unless runner is 'ray', got {address!r}")
    if workers is not None:
        check_integer("workers", workers, 1)
    target = locations.writing_target(location)
    working = _working_location(target, recipe, overwrite)
    how = How(shards, runner, workers, sync, moved=working != target)
    with (
        runners.connected(workers, address) if runner == "ray" else nullcontext(),
        exclusion.alone(working, target) as check_alone,
        shown(progress) as report,
    ):
        if locations.local_path(target) is not None:
            files.sweep(Path(target))
        result = _make_store(recipe, working, how, report, check_alone)
        if how.moved:
            commit.put(Path(working), Path(target), overwrite=True, sync=sync)
        return result


def recipe_to_resume(location: Location, *, overwrite: bool) -> Recipe | None:
    """Return the recipe of the dataset that a run to `location` would resume or check; None if there is no dataset."""
    recipe = _recipe_to_resume(locations.writing_target(location), overwrite)
    return recipe if isinstance(recipe, Recipe) else None


def _recipe_to_resume(target: str, overwrite: bool) -> StoredRecipe | None:
    for there in (_beside(target), target) if overwrite else (target,):
        try:
            said = metadata.attributes(source(there), there)
        except (FileNotFoundError, StoreError):
            continue
        if said.get("status") == "writing" or there != target or not overwrite:
            return schema.recipe_of(said, there)
    return None


def _beside(target: str) -> str:
    """Return where a store that is to replace another is made."""
    return str(files.beside(Path(target), "next"))


def _working_location(target: str, recipe: AnyRecipe, overwrite: bool) -> str:
    """Return where the store is made: beside the target if it replaces a dataset, else the target itself."""
    on_disk = locations.local_path(target) is not None
    if overwrite and on_disk and not locations.is_free(_beside(target)):
        if _recipe_to_resume(target, overwrite=True) == recipe:
            return _beside(target)
        _drop(_beside(target), target)
    try:
        status = unfinished.status(target, recipe)
    except FileExistsError:
        if not overwrite:
            raise
    else:
        if on_disk and status is None:
            files.check_directory(target)
        return target
    if not on_disk:
        raise FileExistsError(f"output must not exist at a URL, which cannot be overwritten, got {target!r}")
    commit.check_target(target, overwrite=True)
    return _beside(target)


def _drop(location: str, target: str) -> None:
    """Remove a store that was to replace the target but is of another recipe."""
    metadata.attributes(source(location), location)  # raises unless it is a store of percolab
    with exclusion.alone(location, target):
        commit.remove(Path(location), Path(target))


def _count(recipe: AnyRecipe, n_rows: int, shards: int | None) -> int:
    """Return the number of shards: at most one per cell, and one per cell if `shards` is None."""
    n_cells = -(-n_rows // schema.cell_of(recipe))
    return max(1, n_cells if shards is None else min(shards, n_cells))


# ---------------------------------------------------------------------- what is to be made


def _plan(store: Unfinished, missing: Missing, shards: int) -> list[list[Range]]:
    """Return the missing ranges of each shard that is not complete."""
    plan: list[list[Range]] = [[] for _ in range(shards)]
    for kind in store.content.kinds.keys() & {"point", "latent", "document"}:
        edges = np.linspace(0, store.n_cells(kind), shards + 1).round().astype(int)
        cells = np.array(missing[kind], np.int64)
        breaks = np.flatnonzero((np.diff(cells) != 1) | np.isin(cells[1:], edges)) + 1
        for run in np.split(cells, breaks) if cells.size else []:  # neighbouring cells of one shard
            shard = int(np.searchsorted(edges, run[0], side="right")) - 1
            plan[shard].append((kind, store.span(kind, int(run[0]))[0], store.span(kind, int(run[-1]))[1]))
    return [ranges for ranges in plan if ranges]


# ---------------------------------------------------------------------- what is refused


def _check_room(location: str, recipe: AnyRecipe, n_rows: int, n_clusters: int) -> None:
    """Raise, in one line, if the disk has no room for a dataset. Columns of integers are compressed and not counted."""
    path = locations.local_path(location)
    if path is None:
        return
    if isinstance(recipe, Recipe):
        needed = n_rows * (recipe.dim * np.dtype(recipe.dtype).itemsize + 16) + (n_rows - n_clusters) * 8
    else:
        needed = n_rows * recipe.corpus.length * 8
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        wanted, there = memory.readable(needed), memory.readable(free)
        raise ValueError(f"output must be on a disk with {wanted} free, got {there} at {str(path.parent)!r}")


def _check_memory(recipe: AnyRecipe, n_rows: int, shards: int, workers: int) -> None:
    """Raise, in one line, if the shards of all workers together do not fit in memory."""
    cell = schema.cell_of(recipe)
    n_cells = -(-n_rows // cell)
    largest = min(n_rows, -(-n_cells // shards) * cell)
    if isinstance(recipe, Recipe):
        per_worker = generated.bytes_of_arrays(largest + 2 * large_clusters.limb_rows(recipe), recipe)
    else:
        per_worker = largest * recipe.corpus.length * WORK_BYTES
    what = f"shards must be small enough for memory, so more, or workers fewer: {workers} workers need about"
    memory.require(workers * per_worker, what)


# ---------------------------------------------------------------------- making it


@dataclass(frozen=True)
class How:
    """How a store is made; the finished store does not depend on it."""

    shards: int | None  #: None: in this process
    runner: str
    workers: int | None
    sync: bool
    moved: bool  #: whether the store is moved to its target when complete, and synced then


def _make_store(
    recipe: AnyRecipe, location: str, how: How, progress: Progress, check_alone: Callable[[], None]
) -> StoreReport:
    """Make the missing cells of a store, and finish it. Cells that are stored already are read once."""
    status = unfinished.status(location, recipe)
    missing = None
    if status == "complete":
        with suppress(StoreError):  # if metadata are damaged, `begin` makes them again
            there = finished.Complete(location)
            missing = there.missing(progress)
            if not any(missing.values()):
                n_rows = there.n_rows(next(iter(there.content.kinds)))
                n_clusters = there.n_rows("cluster") if isinstance(recipe, Recipe) else 0
                return StoreReport(n_rows, n_clusters, _count(recipe, n_rows, how.shards), 0, 0, 0)
    table = rows.cluster_table(recipe, progress=progress) if isinstance(recipe, Recipe) else recipe
    n_rows, n_clusters = (table.n_points, table.n_clusters) if isinstance(table, ClusterTable) else (len(table), 0)
    shards = _count(recipe, n_rows, how.shards)
    workers = how.workers
    if how.runner == "local":
        workers = 1 if how.shards is None else min(parallel.thread_count(workers), shards)
        _check_memory(recipe, n_rows, shards, workers)
    if status is None:
        _check_room(location, recipe, n_rows, n_clusters)
    store = unfinished.begin(location, recipe, n_rows, n_clusters)
    if how.sync and status is None:
        store.sync()  # so that the run can be resumed after a power cut
    if missing is None:
        missing = store.missing(progress if status else silent)
    plan = _plan(store, missing, shards)
    of_clusters = _write_clusters(store, table, missing) if isinstance(table, ClusterTable) else 0
    total, done, peak = sum(hi - lo for ranges in plan for _, lo, hi in ranges), 0, 0
    progress("shards", 0, total)
    threads = None if how.shards is None else 1
    tasks = ((store, [(part, _maker(table, *part, threads)) for part in parts]) for parts in plan)
    for count, taken in map(make, tasks) if how.shards is None else runners.run(make, tasks, how.runner, workers):
        done, peak = done + count, max(peak, taken)
        progress("shards", done, total)
    check_alone()
    store.finish(version.provenance(engine_version=schema.version_of(recipe)), sync=how.sync and not how.moved)
    return StoreReport(n_rows, n_clusters, shards, len(plan), total + of_clusters, peak)


def _maker(table: ClusterTable | DocumentRange, kind: str, lo: int, hi: int, threads: int | None) -> Maker:
    """Return the maker of rows lo … hi - 1 of a kind, with only the part of the table that they need."""
    if isinstance(table, DocumentRange):
        return partial(table.part(lo, hi).columns, threads=threads)
    if kind == "point":
        return partial(rows.make_points, table.recipe, table.points(lo, hi), 1)
    return partial(rows.make_latents, table.recipe, table.latents(lo, hi), 1)


def make(shard: Shard) -> tuple[int, int]:
    """Make a shard and write it, part by part; return the number of rows, and the peak memory of this process."""
    store, parts = shard
    for (kind, lo, _), columns in parts:
        store.write(kind, lo, columns())
    return sum(hi - lo for (_, lo, hi), _ in parts), memory.peak()


def _write_clusters(store: Unfinished, table: ClusterTable, missing: Missing) -> int:
    """Write the columns of clusters, which the table holds; return the number of rows."""
    written = 0
    columns: Iterable[tuple[str, str, Any]] = (
        ("cluster", "cluster_id", table.clusters.birth),
        ("cluster_edge", "cluster_start", table.clusters.start),
    )
    for kind, name, column in columns:
        for cell in missing[kind]:
            lo, hi = store.span(kind, cell)
            store.write(kind, lo, {name: column[lo:hi].astype(np.int64)})
            written += hi - lo
    return written
