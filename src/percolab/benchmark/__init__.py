"""The benchmark of methods, version 1: tasks, representations, methods at several sparsities, two endpoints per task.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.benchmark.tasks import TASKS, VERSION, Options, Task, task
from percolab.features.specs import Budget
from percolab.ground.extras import on_demand

if TYPE_CHECKING:
    from percolab.benchmark.declaration import benchmark
    from percolab.benchmark.submissions import check

__all__ = ["TASKS", "VERSION", "Budget", "Options", "Task", "benchmark", "check", "task"]


__getattr__ = on_demand(
    __name__,
    {"benchmark.declaration": "benchmark", "benchmark.submissions": "check"},
    "the benchmark needs",
    "nn",
)
