"""The benchmark of methods, version 1: tasks, representations, methods at several sparsities, two endpoints per task.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import surface

if TYPE_CHECKING:
    from percolab.benchmark.declaration import benchmark
    from percolab.benchmark.submissions import Checked, check
    from percolab.benchmark.tasks import TASKS, VERSION, Options, Task, task
    from percolab.features.register import Budget

__all__ = ["TASKS", "VERSION", "Budget", "Checked", "Options", "Task", "benchmark", "check", "task"]

_HOMES = {
    "benchmark.declaration": "benchmark",
    "benchmark.submissions": "Checked check",
    "benchmark.tasks": "TASKS VERSION Options Task task",
    "features.register": "Budget",
}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, extra="nn")
