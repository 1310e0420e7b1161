"""The engine of all experiments: data, networks, readers, contrasts, intervals, verdict, files, page.

A study is a grid: draws of the data, networks, layers and readers. Each cell is computed once (`measured`), and
contrasts over cells (`contrasts`) are read together (`verdict`). `compare` is the engine for a notebook; `diff` finds
what two networks do not share. Needs the extra ``nn``; importing this package imports neither torch nor pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import on_demand

if TYPE_CHECKING:
    from percolab.study.comparison import Comparison, compare
    from percolab.study.contrasts import Contrast
    from percolab.study.crosscoder import Difference, diff
    from percolab.study.measured import Measured

__all__ = ["Comparison", "Contrast", "Difference", "Measured", "compare", "diff"]


__getattr__ = on_demand(
    __name__,
    {"study.comparison": "Comparison Contrast Measured compare", "study.crosscoder": "Difference diff"},
    "percolab.study needs",
    "nn",
)
