"""Where cells are computed: in this process, or as tasks of a Ray cluster. Both give the same numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from percolab.ground.progress import silent
from percolab.store import runners
from percolab.study.cells import Cell, Here, Outcome, compute

Given = tuple[Cell[Any], Sequence[Any]]


class InProcess:
    """Computes cells one after another in this process, and resumes what was interrupted."""

    at_once: int | None = 1

    def run(self, cells: Iterable[Given], here: Here) -> Iterator[tuple[Cell[Any], Outcome]]:
        """Yield the outcome of every cell."""
        for cell, needed in cells:
            scratch = None if here.scratch is None else here.scratch / cell.name
            yield cell, compute((cell, replace(here, scratch=scratch), needed))
            if here.scratch is not None and scratch is not None:  # the result is kept now
                shutil.rmtree(scratch, ignore_errors=True)
                with suppress(OSError):
                    here.scratch.rmdir()


@dataclass(frozen=True)
class OnRay:
    """Computes cells as tasks of a cluster that this process is connected to.

    A node that dies costs the cells that it was computing, which are given to others.
    """

    has_gpus: bool
    at_once: int | None = None

    def run(self, cells: Iterable[Given], here: Here) -> Iterator[tuple[Cell[Any], Outcome]]:
        """Yield the outcome of every cell."""
        remote = replace(here, progress=silent, scratch=None)  # what a node writes is not here
        waiting: dict[str, Cell[Any]] = {}

        def tasks() -> Iterator[Any]:
            for cell, needed in cells:
                waiting[cell.name] = cell
                yield replace(cell, needs=()), remote, needed

        for name, outcome in runners.run(_named, tasks(), "ray", None, gpus=self._gpus):
            yield waiting.pop(name), outcome

    def _gpus(self, task: tuple[Cell[Any], Here, Sequence[Any]]) -> float:
        cell, here, _ = task
        return cell.gpus if self.has_gpus and here.device != "cpu" else 0.0


def _named(task: tuple[Cell[Any], Here, Sequence[Any]]) -> tuple[str, Outcome]:
    return task[0].name, compute(task)


@contextmanager
def connected(address: str | None) -> Iterator[InProcess | OnRay]:
    """Yield what computes cells: this process, or the Ray cluster at an address (``"auto"``: that of this machine)."""
    if address is None:
        yield InProcess()
        return
    runners.check("ray")
    with runners.connected(None, address) as ray:
        yield OnRay(ray.cluster_resources().get("GPU", 0) > 0)
