"""Datasets made in shards, by many processes or machines, straight into a store.

A shard is a run of cells of the store: a range of rows, and a range of latents. Each is a pure function of the recipe
and a small part of the table (see `rows`), and is written by one task (see `writing`). What is finished is recorded in
the store, so that a run that was interrupted, in any way, goes on where it was; and a finished store is the same, byte
for byte, however it was made.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from percolab.engines import needs
from percolab.engines.native import engine, limbs, rows
from percolab.engines.native.rows import Latents, Points, Table
from percolab.ground import files, memory, parallel, version
from percolab.ground.progress import Progress, bar, silent
from percolab.ground.validation import check_integer
from percolab.model.recipe import Recipe
from percolab.store import cells, locations, reading, runners, saving, schema
from percolab.store.cells import Unfinished
from percolab.store.locations import Location
from percolab.store.schema import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Range = tuple[str, int, int]
"""A kind of rows (a key of `schema.KINDS`), the first of them and the end."""


@dataclass(frozen=True)
class Made:
    """What a run did."""

    n_points: int
    n_clusters: int
    shards: int
    """shards of the dataset"""
    shards_made: int
    """shards that were missing, wholly or in part"""
    rows_made: int
    """points, latents and clusters that were missing"""
    peak_bytes: int
    """peak memory of the largest worker"""


def generate_store(
    recipe: Recipe,
    location: Location,
    *,
    shards: int,
    runner: str = "local",
    workers: int | None = None,
    address: str | None = None,
    overwrite: bool = False,
    progress: bool | Progress = False,
) -> Made:
    """Make the dataset of a recipe in shards, straight into a store: nothing larger than a shard is held in memory.

    If the store is there already, unfinished or damaged, only what is missing or damaged is made. The finished store is
    the same for any number of shards, runner, workers and interruptions, and has the bytes of `generate` and `save`.
    Workers are started afresh, so a script must call this under ``if __name__ == "__main__":``.

    Parameters
    ----------
    recipe
        A recipe of the native engine.
    location
        A path, or a URL that fsspec knows; with Ray on several machines one that all of them reach.
    shards
        Number of shards. They are cut at multiples of `cells.CELL` rows, so there may be fewer.
    runner
        ``"local"``: processes on this machine. ``"ray"``: tasks on a Ray cluster.
    workers
        Shards that are made at a time; None takes one for each processor of the machine or the cluster.
    address
        Address of the Ray cluster; None starts one on this machine.
    overwrite
        Replace a dataset of another recipe, once this one is complete.
    progress
        True shows a bar; a function is called with (stage, rows done, rows in all).
    """
    if not isinstance(recipe, Recipe):
        raise ValueError(f"recipe must be that of one dataset to be made in shards, got {recipe!r}")
    check_integer("shards", shards, 1)
    recipe.require_plain("to make a dataset in shards")
    runners.check(runner)
    if address is not None and runner != "ray":
        raise ValueError(f"address must be left out unless runner is 'ray', got {address!r}")
    if workers is not None:
        check_integer("workers", workers, 1)
    target = _absolute(location)
    working = _working_place(target, recipe, overwrite)
    with bar() if progress is True else nullcontext(progress or silent) as report:
        made = _already_made(recipe, working, shards, report)
        if made is None:
            made = _make_store(recipe, working, shards, runner, workers, address, report)
    if working != target:
        saving.put_in_place(Path(working), Path(target))
    return made


def recipe_to_go_on(location: Location, *, overwrite: bool) -> Recipe | None:
    """Return the recipe of the store that a run to `location` would go on with or check; None if there is none."""
    target = _absolute(location)
    for place in (_beside(target), target) if overwrite else (target,):
        try:
            _, attributes = locations.open_store(place)
        except (FileNotFoundError, StoreError):
            continue
        if attributes.get("status") == "writing" or place != target or not overwrite:
            return schema.recipe_of(attributes, place)
    return None


def _absolute(location: Location) -> str:
    """Return a location that other processes understand."""
    path = locations.local_path(location)
    return os.fspath(location) if path is None else str(path.absolute())


def _beside(target: str) -> str:
    """Return where a store is made that is to replace another."""
    path = Path(target)
    return str(path.with_name(f".{path.name}.next"))


def _working_place(target: str, recipe: Recipe, overwrite: bool) -> str:
    """Return where the store is made: beside the target if that is a dataset to be replaced, else in its place."""
    on_disk = locations.local_path(target) is not None
    if overwrite and on_disk and not locations.is_free(_beside(target)):
        if recipe_to_go_on(target, overwrite=True) == recipe:
            return _beside(target)
        locations.open_store(_beside(target))  # raises unless it is ours
        shutil.rmtree(_beside(target))
    try:
        is_begun = cells.is_begun(target, recipe)
    except FileExistsError:
        if not overwrite:
            raise
    else:
        if on_disk and not is_begun:
            files.check_directory(target)
        return target
    if not on_disk:
        raise FileExistsError(f"output must not exist at a URL, which cannot be overwritten, got {target!r}")
    saving.check_target(target, overwrite=True)
    return _beside(target)


def _already_made(recipe: Recipe, location: str, shards: int, report: Progress) -> Made | None:
    """Tell what a complete store that matches its digests has; None if there is anything to make."""
    try:
        if not cells.is_begun(location, recipe):
            return None
        reading.verify(location, report)
    except StoreError:
        return None
    columns = reading.open_columns(location, ("point_id", "cluster_id"))
    n_points, n_clusters = (len(column) for column in columns.values())
    return Made(n_points, n_clusters, _count(n_points, shards), 0, 0, 0)


def _count(n_points: int, shards: int) -> int:
    """Return the number of shards: there are no more than cells."""
    return max(1, min(shards, -(-n_points // cells.CELL)))


# ---------------------------------------------------------------------- what is to be made


def _plan(store: Unfinished, missing: dict[str, list[int]], shards: int) -> list[list[Range]]:
    """Return, for each shard that lacks something, what it lacks."""
    plan: list[list[Range]] = [[] for _ in range(shards)]
    for kind in ("point", "latent"):
        edges = np.linspace(0, store.n_cells(kind), shards + 1).round().astype(int)
        for run in _runs(missing[kind], set(edges.tolist())):
            shard = int(np.searchsorted(edges, run[0], side="right")) - 1
            plan[shard].append((kind, store.span(kind, run[0])[0], store.span(kind, run[-1])[1]))
    return [ranges for ranges in plan if ranges]


def _runs(cells: list[int], edges: set[int]) -> Iterator[list[int]]:
    """Cut a sorted list of cells into runs of neighbours, and at edges."""
    run: list[int] = []
    for cell in cells:
        if run and (cell != run[-1] + 1 or cell in edges):
            yield run
            run = []
        run.append(cell)
    if run:
        yield run


# ---------------------------------------------------------------------- what is refused


def _check_room(location: str, recipe: Recipe, table: Table) -> None:
    """Raise, in one line, if the disk has no room for a dataset. Columns of integers are compressed and not counted."""
    path = locations.local_path(location)
    if path is None:
        return
    needed = table.n_points * (recipe.dim * np.dtype(recipe.dtype).itemsize + 16) + table.n_latents * 8
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        wanted, there = memory.readable(needed), memory.readable(free)
        raise ValueError(f"output must be on a disk with {wanted} free, got {there} at {str(path.parent)!r}")


def _check_memory(recipe: Recipe, n_points: int, shards: int, workers: int) -> None:
    """Raise, in one line, if shards are too large for as many workers."""
    n_cells = -(-n_points // cells.CELL)
    largest = min(n_points, -(-n_cells // shards) * cells.CELL) + 2 * limbs.limb_rows(recipe)
    per_worker = needs.of_arrays(largest, recipe)
    free = memory.available()
    if free is not None and workers * per_worker > free:
        raise MemoryError(
            f"shards must be small enough for memory: {workers} workers need about {memory.readable(per_worker)} each, "
            f"and {memory.readable(free)} are free; give more shards or fewer workers"
        )


@contextmanager
def _alone(location: str) -> Iterator[None]:
    """Keep other runs away from a store on disk, where the system can."""
    path = locations.local_path(location)
    if path is None or fcntl is None:
        yield
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{location} is being written by another process") from None
        except OSError:
            pass  # some file systems have no locks
        yield
    finally:
        os.close(directory)


# ---------------------------------------------------------------------- making it


@dataclass(frozen=True, eq=False)
class Shard:
    """A task: parts of a dataset, and the store to write them to."""

    recipe: Recipe
    store: Unfinished
    parts: list[Points | Latents]


def _make_store(
    recipe: Recipe, location: str, shards: int, runner: str, workers: int | None, address: str | None, report: Progress
) -> Made:
    """Make what is missing of a store, and finish it."""
    table = rows.cluster_table(recipe, progress=report)
    shards = _count(table.n_points, shards)
    if runner == "local":
        workers = min(parallel.thread_count(workers), shards)
        _check_memory(recipe, table.n_points, shards, workers)
    is_begun = cells.is_begun(location, recipe)
    if not is_begun:
        _check_room(location, recipe, table)
    store = cells.begin(location, recipe, table.n_points, table.n_clusters)
    with _alone(location):
        missing = store.missing(report if is_begun else silent)
        plan = _plan(store, missing, shards)
        of_clusters = _write_clusters(store, table, missing)
        total, done, peak = sum(hi - lo for ranges in plan for _, lo, hi in ranges), 0, 0
        report("shards", 0, total)
        for n_rows, taken in runners.run(make, _tasks(recipe, store, table, plan), runner, workers, address):
            done, peak = done + n_rows, max(peak, taken)
            report("shards", done, total)
        store.finish(version.provenance(engine_version=engine.VERSION))
    return Made(table.n_points, table.n_clusters, shards, len(plan), total + of_clusters, peak)


def _tasks(recipe: Recipe, store: Unfinished, table: Table, plan: list[list[Range]]) -> Iterator[Shard]:
    for ranges in plan:
        yield Shard(recipe, store, [_cut(table, *wanted) for wanted in ranges])


def _cut(table: Table, kind: str, lo: int, hi: int) -> Points | Latents:
    return table.points(lo, hi) if kind == "point" else table.latents(lo, hi)


def make(shard: Shard) -> tuple[int, int]:
    """Make a shard and write it; return the number of rows, and the peak memory of this process in bytes."""
    done = 0
    for part in shard.parts:
        columns: dict[str, Any]
        if isinstance(part, Points):
            kind, columns = "point", rows.make_points(shard.recipe, part, 1)
        else:
            kind, columns = "latent", rows.make_latents(shard.recipe, part, 1)
        shard.store.write(kind, part.lo, columns)
        del columns  # before the next part is made
        done += part.hi - part.lo
    return done, memory.peak()


def _write_clusters(store: Unfinished, table: Table, missing: dict[str, list[int]]) -> int:
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
