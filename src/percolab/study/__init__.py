"""The engine of all experiments: data, networks, readers, contrasts, intervals, verdict, files, page.

A study is a grid: draws of the data, networks, layers and readers. Each cell is computed once (`measured`), and
contrasts over cells (`contrasts`) are read together (`verdict`). `compare` is the engine for a notebook. Needs the
extra ``nn``; importing this package imports neither torch nor pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from percolab.study.comparison import Comparison, compare
    from percolab.study.contrasts import Contrast
    from percolab.study.measured import Measured

__all__ = ["Comparison", "Contrast", "Measured", "compare"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from percolab.study import comparison
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise ImportError(f"percolab.study needs {error.name}: pip install 'percolab[nn]'") from error
    return getattr(comparison, name)
