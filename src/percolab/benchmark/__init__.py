"""The benchmark of methods: tasks x representations x methods x seeds, in cells that are files, with a report.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import surface

if TYPE_CHECKING:
    from percolab.benchmark.running import benchmark
    from percolab.benchmark.tasks import TASKS, Task, task
    from percolab.features.specs import Budget

__all__ = ["TASKS", "Budget", "Task", "benchmark", "task"]

_HOMES = {"benchmark.running": "benchmark", "benchmark.tasks": "TASKS Task task", "features.specs": "Budget"}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, extra="nn")
