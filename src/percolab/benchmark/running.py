"""Running the benchmark: every cell that is not there is computed and kept, then the report is written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from percolab.benchmark import report
from percolab.benchmark.cells import Cell, grid
from percolab.benchmark.evaluating import Evaluator
from percolab.benchmark.keeping import has_truths
from percolab.benchmark.networks import Networks, check_layers
from percolab.benchmark.tasks import TASKS, TRUTH, Task, task
from percolab.features.concepts import SUMMARY_RATIO
from percolab.features.specs import Entry, entry, has_sae_lens, needs_sae_lens, standard
from percolab.ground import text
from percolab.ground.devices import Device, choose_device, device_name
from percolab.ground.extras import missing
from percolab.ground.files import write_json
from percolab.ground.progress import Display, Progress, shown
from percolab.ground.validation import check_integer, check_number
from percolab.ground.version import provenance
from percolab.study.directory import holds
from percolab.study.directory import read_json as read

PACKAGES = ("torch", "numpy", "numba", "scikit-learn", "pandas")
CLAIM = "benchmark.json"
STAGE = "cells"


def benchmark(
    tasks: Iterable[str | Task] = TASKS,
    *,
    output: str | os.PathLike[str],
    scale: str = "paper",
    methods: Iterable[str] = (),
    only: Sequence[str] | None = None,
    again: Sequence[str] = (),
    n_seeds: int = 3,
    seeds: Sequence[int] | None = None,
    networks: Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    time_limit: float | None = None,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Compute the cells that are not there yet, write the report, and return its numbers.

    A cell is a method on a representation with a seed. Cells that are there, made from the same things, are not
    computed again, so the work can be stopped at any time, and shared out to several processes by the filters.

    Parameters
    ----------
    tasks
        Some of `TASKS`, or tasks of one's own.
    output
        Directory; it must be empty, new, or hold a benchmark of the same scale. It gets data, networks, a JSON file for
        each cell, report.html and results.json.
    scale
        ``"paper"``, or ``"small"``: minutes on a laptop.
    methods
        More methods beside the standard ones: ``"package.module:Class"``, the name of an entry point, or a name with
        other options, such as ``"batchtopk@k=128"``.
    only
        Filter: names of methods. Of the standard ones and `methods`, compute these.
    again
        Names of methods whose cells are computed again even if they are there: of one's own, after a change in a file
        that their module imports. A change of the module itself is seen.
    n_seeds
        Seeds are 0 … n_seeds - 1. The networks of all of them are trained at once.
    seeds
        Filter: compute the cells of these seeds.
    networks
        Filter: some of "raw", "untrained", "trained", or "trained-K" for one hierarchy, and "truth" for the oracles.
    layers
        Modules of the network; None: those of the task.
    time_limit
        Seconds after which no further cell is begun.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    progress
        True shows bars; a function is called with (stage, done, total).
    """
    start, directory = time.monotonic(), Path(output)
    chosen = [one if isinstance(one, Task) else task(one, scale) for one in tasks]
    limit = float("inf") if time_limit is None else check_number("time_limit", time_limit, 0)
    all_seeds = range(check_integer("n_seeds", n_seeds, 1))
    cells = {
        one.name: grid(
            one,
            _entries(one, methods, only),
            _seeds(seeds, all_seeds),
            _networks(one, networks),
            check_layers(one, list(dict.fromkeys(layers or one.layers))),
        )
        for one in chosen
    }
    _check_again(again, {cell.entry.name for own in cells.values() for cell in own})
    place = choose_device(device)
    _claim(directory, scale)
    with shown(progress) as tell:
        run = _Run(directory, list(all_seeds), place, tell, start + limit, again)
        for one in chosen:
            run.compute(one, cells[one.name])
    return {**report.write(directory), "cells": {"done": run.done, "asked": run.asked, "failed": run.failed}}


class _Run:
    """The work on some cells, until they are done or time is over."""

    def __init__(
        self,
        output: Path,
        seeds: list[int],
        device: torch.device,
        progress: Progress,
        end: float,
        again: Sequence[str] = (),
    ) -> None:
        self.output, self.seeds, self.device, self.progress, self.end = output, seeds, device, progress, end
        self.again = frozenset(again)
        self.asked = self.done = self.failed = 0
        packages = (*PACKAGES, *(("sae-lens",) if has_sae_lens() else ()))
        self.provenance = provenance(packages, device=device_name(device))

    def compute(self, one: Task, cells: list[Cell]) -> None:
        """Compute the cells of a task that are missing."""
        missing = [cell for cell in cells if not self._is_done(cell)]
        self.asked += len(cells)
        self.done += len(cells) - len(missing)
        self.progress(STAGE, self.done, self.asked)
        if not missing and has_truths(self.output, one):
            return
        if time.monotonic() >= self.end:
            return
        self._note(f"{one.name}: data")
        evaluator = Evaluator(Networks(one, self.output, self.seeds, self.device, self.progress), self.output)
        for cell in missing:
            if time.monotonic() >= self.end:
                return
            self._note(f"{one.name} {cell.name}")
            if self._is_done(cell):  # by another process, meanwhile
                self.done += 1
            else:
                self._compute(evaluator, cell)
            self.progress(STAGE, self.done, self.asked)

    def _is_done(self, cell: Cell) -> bool:
        return cell.entry.name not in self.again and cell.is_done(self.output)

    def _note(self, words: str) -> None:
        if isinstance(self.progress, Display):
            self.progress.note(STAGE, words)

    def _compute(self, evaluator: Evaluator, cell: Cell) -> None:
        """Keep what a cell gives, or why it gives nothing: one method that fails is no reason to stop the others."""
        kept: dict[str, Any] = {"made_from": cell.made_from(), "provenance": self.provenance}
        try:
            kept["values"] = evaluator.evaluate(cell)
            self.done += 1
        except Exception as error:
            kept["failed"] = f"{type(error).__name__}: {text.one_line(error)}"
            self.failed += 1
        kept["ended"] = datetime.now(UTC).isoformat(timespec="microseconds")
        file = cell.file(self.output)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, kept)


def _entries(one: Task, methods: Iterable[str], only: Sequence[str] | None) -> list[Entry]:
    """Return the methods that are asked for, each once."""
    known = {found.name: found for found in (*standard(one.budget), *(entry(spec, one.budget) for spec in methods))}
    entries = list(known.values())
    if only is not None:
        entries = [known.get(name) or _named(name, one) for name in dict.fromkeys(only)]
    for found in entries:
        if needs_sae_lens(found) and not has_sae_lens():
            raise missing(f"{found.name} needs", "SAELens", "sae")
    return entries


def _named(name: str, one: Task) -> Entry:
    """Return a method that only the filter names."""
    try:
        return entry(name, one.budget)
    except ValueError as fault:
        raise ValueError(f"only must name methods: {fault}") from fault


def _check_again(names: Sequence[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"again must name methods that are computed ({', '.join(sorted(known))}), got {name!r}")


def _seeds(seeds: Sequence[int] | None, known: range) -> Sequence[int]:
    if seeds is None:
        return known
    for seed in seeds:
        if seed not in known:
            raise ValueError(f"seeds must be below n_seeds, {len(known)}, got {seed}")
    return list(dict.fromkeys(seeds))


def _networks(one: Task, names: Sequence[str] | None) -> list[str]:
    known = [TRUTH, *one.networks]
    if names is None:
        return known
    for name in names:
        if not any(found.split("-")[0] == name or found == name for found in known):
            raise ValueError(f"networks must be some of {', '.join(known)}, got {name!r}")
    return [found for found in known if found in names or found.split("-")[0] in names]


def _claim(directory: Path, scale: str) -> None:
    """Make the directory that of a benchmark of this scale, or say why not."""
    if holds(directory, CLAIM, "a benchmark"):
        if read(directory / CLAIM).get("scale") != scale:
            raise FileExistsError(f"output must hold a benchmark of scale {scale}, got {str(directory)!r}")
        return
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / CLAIM, {"scale": scale, "ratio": SUMMARY_RATIO})
