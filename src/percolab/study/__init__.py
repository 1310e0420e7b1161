"""The engine of all experiments: data, networks, readers, contrasts, intervals, verdict, files, page.

A study is a grid: draws of the data, networks, layers and readers. Each cell is computed once (`measured`), and
contrasts over cells (`contrasts`) are read together (`verdict`). `compare` is the engine for a notebook; `diff` finds
what two networks do not share. Needs the extra ``nn``; importing this package imports neither torch nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from percolab.study.comparison import Comparison, compare
    from percolab.study.contrasts import Contrast
    from percolab.study.crosscoder import Difference, diff
    from percolab.study.measured import Measured

_HOME = {
    "Comparison": "comparison",
    "Contrast": "contrasts",
    "Difference": "crosscoder",
    "Measured": "measured",
    "compare": "comparison",
    "diff": "crosscoder",
}

__all__ = ["Comparison", "Contrast", "Difference", "Measured", "compare", "diff"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"percolab.study.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise ImportError(f"percolab.study needs {error.name}: pip install 'percolab[nn]'") from error
    return getattr(home, name)
