"""The benchmark of methods, version 1: tasks, representations, methods at several sparsities, two endpoints per task.

Needs the extra ``nn``, and for sparse autoencoders ``sae``. Importing this package imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from percolab.benchmark.tasks import TASKS, VERSION, Options, Task, task
from percolab.features.specs import Budget

if TYPE_CHECKING:
    from percolab.benchmark.declaration import benchmark
    from percolab.benchmark.submissions import check

__all__ = ["TASKS", "VERSION", "Budget", "Options", "Task", "benchmark", "check", "task"]


def __getattr__(name: str) -> Any:
    if name not in ("benchmark", "check"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from percolab.benchmark.declaration import benchmark
        from percolab.benchmark.submissions import check
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise ImportError(f"the benchmark needs {error.name}: pip install 'percolab[nn]'") from error
    return {"benchmark": benchmark, "check": check}[name]
