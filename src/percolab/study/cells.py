"""Cells: the pieces of a study's work. Each is computed once and kept in one file, with the inputs it was made from.

The result of a cell is a dataclass of arrays, mappings of arrays, plain values, and dataclasses of plain values. Its
file is an `.npz` of these arrays, with a JSON record of everything else: plain values, the cell's inputs, the time it
took and the device. A cell is not computed again while its file holds a result of the same inputs. Cells are computed
in this process, in several processes of this machine, or as tasks of a Ray cluster. All give the same numbers, up to
rounding.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from percolab.ground import foreign_files
from percolab.ground.files import replacing
from percolab.ground.progress import Progress, silent
from percolab.ground.text import one_line
from percolab.ground.validation import check_integer
from percolab.store import runners
from percolab.study.directory import SCHEMA, VERSION

T = TypeVar("T")
RECORD = "record.json"  #: The entry of a cell's file that is not an array of its result.


@dataclass(frozen=True)
class Here:
    """Where a cell is computed: device, progress, and a directory for unfinished work."""

    device: str = "auto"
    progress: Progress = silent
    scratch: Path | None = None  #: directory for work that can be resumed; None where nothing outlasts the cell


@dataclass(frozen=True, eq=False)
class Cell(Generic[T]):
    """One piece of work: everything that determines its result, and the function that computes it."""

    name: str  #: its file below the directory of cells
    kind: type[T]  #: dataclass of the result
    make: Callable[..., T]  #: called with `Here` and the results of `needs`; other processes must be able to find it
    made_from: Mapping[str, Any]  #: plain values, equal after a round trip through JSON
    needs: tuple[Cell[Any], ...] = ()
    #: whether it is computed for its own sake; otherwise only for a missing cell that needs it
    lasting: bool = True
    stage: str = ""  #: stage that its time is counted for; its name, unless given
    gpus: float = 1.0  #: GPUs that it needs, where there are any
    rank: int = 0  #: cells of a lower rank are computed first


@dataclass(frozen=True)
class Made:
    """How long a result took, where it was computed, and why it failed, if it did."""

    seconds: float
    device: str
    failed: str = ""  #: why there is no result


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of computing a cell: a result, or the reason why there is none."""

    result: Any
    made: Made
    error: Exception | None = None


def compute(task: tuple[Cell[Any], Here, Sequence[Any]]) -> Outcome:
    """Compute a cell in this process; an exception becomes part of the outcome."""
    from percolab.ground.devices import choose_device, device_name

    cell, here, needed = task
    begun, result, error = time.perf_counter(), None, None
    try:
        result = cell.make(here, *needed)
    except Exception as fault:
        error = fault
    failed = "" if error is None else f"{type(error).__name__}: {one_line(error)}"
    return Outcome(result, Made(time.perf_counter() - begun, device_name(choose_device(here.device)), failed), error)


# ---------------------------------------------------------------------- where cells are computed

Given = tuple[Cell[Any], Sequence[Any]]  #: A cell, and the results that it needs.


class InProcess:
    """Computes cells one after another in this process, and resumes interrupted work."""

    at_once: int | None = 1  #: how many cells it is given at a time

    def run(self, cells: Iterable[Given], here: Here) -> Iterator[tuple[Cell[Any], Outcome]]:
        """Yield the outcome of every cell."""
        for cell, needed in cells:
            scratch = None if here.scratch is None else here.scratch / cell.name
            yield cell, compute((cell, replace(here, scratch=scratch), needed))
            if here.scratch is not None and scratch is not None:  # the result is saved by now
                shutil.rmtree(scratch, ignore_errors=True)
                with suppress(OSError):
                    here.scratch.rmdir()


@dataclass(frozen=True)
class InOthers:
    """Computes cells in processes of this machine, or as tasks of a cluster that this process is connected to.

    If a process or node dies, the cells that it was computing are given to others. Interrupted cells begin again.
    """

    runner: str  #: one of `percolab.store.runners.RUNNERS`
    workers: int | None = None  #: number of processes
    has_gpus: bool = False  #: whether the cluster has GPUs
    at_once: int | None = None  #: no limit: all cells that need no other run together

    def run(self, cells: Iterable[Given], here: Here) -> Iterator[tuple[Cell[Any], Outcome]]:
        """Yield the outcome of every cell."""
        remote = replace(here, progress=silent, scratch=None)  # a node's files may not be on this machine
        waiting: dict[str, Cell[Any]] = {}

        def tasks() -> Iterator[Any]:
            for cell, needed in cells:
                waiting[cell.name] = cell
                yield replace(cell, needs=()), remote, needed

        for name, outcome in runners.run(_named, tasks(), self.runner, self.workers, gpus=self._gpus, apart=True):
            yield waiting.pop(name), outcome

    def _gpus(self, task: tuple[Cell[Any], Here, Sequence[Any]]) -> float:
        cell, here, _ = task
        return cell.gpus if self.has_gpus and here.device != "cpu" else 0.0


def _named(task: tuple[Cell[Any], Here, Sequence[Any]]) -> tuple[str, Outcome]:
    """Return the name and the outcome of a cell; an exception that cannot be sent becomes a `RuntimeError`."""
    outcome = compute(task)
    try:
        pickle.dumps(deepcopy(outcome.error))  # a copy fails where reading would
    except Exception:
        outcome = replace(outcome, error=RuntimeError(outcome.made.failed))
    return task[0].name, outcome


@contextmanager
def connected(address: str | None, workers: int = 1) -> Iterator[InProcess | InOthers]:
    """Yield the runner of cells.

    It is the Ray cluster at an address (``"auto"``: this machine's); otherwise this process, or several `workers`.
    """
    check_integer("workers", workers, 1)
    if address is None:
        yield InProcess() if workers == 1 else InOthers("local", workers)
        return
    if workers > 1:
        raise ValueError(f"workers must be left out with ray, whose cluster has its own, got {workers}")
    runners.check("ray")
    with runners.connected(None, address) as ray:
        yield InOthers("ray", has_gpus=ray.cluster_resources().get("GPU", 0) > 0)


# ---------------------------------------------------------------------- the cells of a directory


@dataclass(eq=False)
class Cells:
    """The cells of a directory: finished ones are read, the others are computed and kept."""

    directory: Path
    runner: InProcess | InOthers = field(default_factory=InProcess)
    here: Here = field(default_factory=Here)
    #: whether a failed cell is recorded with the reason while the others go on; otherwise its exception is raised
    keep_failures: bool = False
    until: float = float("inf")  #: no cell starts after this value of `time.monotonic`
    again: frozenset[str] = frozenset()  #: names of finished cells that are computed again
    #: records of files that were read, by file, time and size
    _known: dict[tuple[Path, int, int], dict[str, Any]] = field(default_factory=dict, repr=False)

    def file(self, cell: Cell[Any]) -> Path:
        """Return the file of a cell."""
        return self.directory / f"{cell.name}.npz"

    def made(self, cell: Cell[Any]) -> Made | None:
        """Return how a cell was made; None if its file is missing, damaged, or made from other inputs."""
        file = self.file(cell)
        try:
            status = os.lstat(file)
            key = file, status.st_mtime_ns, status.st_size
            if key not in self._known:
                self._known[key] = _record(file, cell.kind) if stat.S_ISREG(status.st_mode) else {}
        except OSError:
            return None
        record = self._known[key]
        if record.get("made_from") != cell.made_from:
            return None
        return Made(record["seconds"], record["device"], record["failed"])

    def has(self, cell: Cell[Any]) -> bool:
        """Return whether a cell has a result."""
        made = self.made(cell)
        return made is not None and not made.failed

    def read(self, cell: Cell[T]) -> T:
        """Return the result of a finished cell."""
        return _typed(_load(self.file(cell), cell.kind)["values"], cell.kind)

    def missing(self, cells: Iterable[Cell[Any]]) -> list[Cell[Any]]:
        """Return the cells to compute so that all lasting cells have results; a needed cell comes before its users."""
        order: dict[int, Cell[Any]] = {}

        def visit(cell: Cell[Any]) -> None:
            if id(cell) in order or (self.has(cell) and cell.name not in self.again):
                return
            for need in cell.needs:
                visit(need)
            order[id(cell)] = cell

        for cell in sorted(cells, key=lambda cell: cell.rank):
            if cell.lasting:
                visit(cell)
        return list(order.values())

    def compute(self, cells: Sequence[Cell[Any]]) -> list[Cell[Any]]:
        """Compute the missing cells, in waves of cells that do not need each other; return those still missing."""
        left = self.missing(cells)
        total = len(left)
        if left:
            self.here.progress("cells", 0, total)
        while left and time.monotonic() < self.until:
            waiting = {id(cell) for cell in left}
            wave = [c for c in left if all(id(need) not in waiting and self.has(need) for need in c.needs)]
            if not wave:
                break
            lowest = min(cell.rank for cell in wave)
            wave = [cell for cell in wave if cell.rank == lowest][: self.runner.at_once]
            tried: set[int] = set()
            for cell, outcome in self.runner.run(self._given(wave), self.here):
                self._keep(cell, outcome)
                tried.add(id(cell))
                self.here.progress("cells", total - len(left) + len(tried), total)
            left = [cell for cell in left if id(cell) not in tried]
        return [cell for cell in cells if cell.lasting and not self.has(cell)]

    def _given(self, wave: list[Cell[Any]]) -> Iterable[Given]:
        for cell in wave:
            if time.monotonic() < self.until:
                yield cell, [self.read(need) for need in cell.needs]

    def _keep(self, cell: Cell[Any], outcome: Outcome) -> None:
        if outcome.error is not None and not self.keep_failures:
            raise outcome.error
        values: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for each in fields(cell.kind) if outcome.error is None else ():
            value = getattr(outcome.result, each.name)
            if isinstance(value, np.ndarray):
                arrays[each.name] = value
            elif isinstance(value, dict) and value and all(isinstance(part, np.ndarray) for part in value.values()):
                arrays |= {f"{each.name}/{key}": part for key, part in value.items()}
            else:
                values[each.name] = value
        record = {"schema": SCHEMA, "version": VERSION, "made_from": cell.made_from, "values": values}
        record |= {"seconds": outcome.made.seconds, "device": outcome.made.device, "failed": outcome.made.failed}
        file = self.file(cell)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():  # never write through a link
            file.unlink()
        with replacing(file) as partial, partial.open("wb") as out:
            save = np.savez_compressed if cell.lasting else np.savez
            save(out, **{RECORD: np.array(json.dumps(record, default=asdict))}, **arrays)  # type: ignore[arg-type]


def _record(file: Path, kind: type[Any]) -> dict[str, Any]:
    """Return the record of a file that is complete, written by a study, and fits in memory; otherwise nothing."""
    try:
        return {**_load(file, kind), "values": None}
    except (MemoryError, OSError, ValueError):
        return {}


def _load(file: Path, kind: type[Any]) -> dict[str, Any]:
    """Return the record of a file, with its arrays among the values; raise unless it is complete and of a study."""
    with foreign_files.arrays("a cell", file) as stored:
        record: dict[str, Any] = json.loads(str(stored[RECORD]))
        values = record["values"]
        for entry in stored:
            name, _, key = entry.partition("/")
            if key:
                values.setdefault(name, {})[key] = stored[entry]
            elif entry != RECORD:
                values[name] = stored[entry]
        typed = isinstance(record["seconds"], float) and isinstance(record["device"], str)
        whole = isinstance(record["failed"], str) and (record["failed"] or {*values} == {f.name for f in fields(kind)})
        if (record["schema"], record["version"]) != (SCHEMA, VERSION) or not typed or not whole:
            raise ValueError("it must be a cell of this version")
        return record


def _typed(value: Any, kind: Any) -> Any:
    """Return a plain value as its type says: a dataclass, a list or mapping of dataclasses, or the value itself."""
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(**{name: _typed(part, types[name]) for name, part in value.items()})  # type: ignore[operator]
    if get_origin(kind) is list:
        return [_typed(part, get_args(kind)[0]) for part in value]
    if get_origin(kind) is dict:
        return {key: _typed(part, get_args(kind)[1]) for key, part in value.items()}
    return value
