"""The benchmark of methods: tasks x representations x methods x seeds, in cells that are files, with a report.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.benchmark.tasks import TASKS, Task, task
from percolab.features.specs import Budget
from percolab.ground.extras import on_demand

if TYPE_CHECKING:
    from percolab.benchmark.running import benchmark

__all__ = ["TASKS", "Budget", "Task", "benchmark", "task"]


__getattr__ = on_demand(__name__, {"benchmark.running": "benchmark"}, "the benchmark needs", "nn")
