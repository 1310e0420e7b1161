"""The benchmark of methods: tasks x representations x methods x seeds, in cells that are files, with a report.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from percolab.benchmark.tasks import TASKS, Task, task
from percolab.features.specs import Budget

if TYPE_CHECKING:
    from percolab.benchmark.running import benchmark

__all__ = ["TASKS", "Budget", "Task", "benchmark", "task"]


def __getattr__(name: str) -> Any:
    if name != "benchmark":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from percolab.benchmark.running import benchmark
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise ImportError(f"the benchmark needs {error.name}: pip install 'percolab[nn]'") from error
    return benchmark
