"""The engine of all experiments: data, networks, readers, contrasts, intervals, verdict, files, page.

A study is a grid: draws of the data, networks, layers and readers. Each cell is computed once (`measured`), and
contrasts over cells are read together (`contrasts`). `compare` is the engine for a notebook; `diff` finds
what two networks do not share. Needs the extra ``nn``; importing this package imports neither torch nor pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import surface

if TYPE_CHECKING:
    from percolab.intervals import Estimate
    from percolab.study.comparison import Comparison, compare
    from percolab.study.contrasts import Contrast
    from percolab.study.crosscoder import Difference, diff
    from percolab.study.estimates import Row
    from percolab.study.measured import Measured, Units
    from percolab.study.readers import probed_beliefs

__all__ = [
    "Comparison",
    "Contrast",
    "Difference",
    "Estimate",
    "Measured",
    "Row",
    "Units",
    "compare",
    "diff",
    "probed_beliefs",
]

_HOMES = {
    "intervals": "Estimate",
    "study.comparison": "Comparison compare",
    "study.contrasts": "Contrast",
    "study.crosscoder": "Difference diff",
    "study.estimates": "Row",
    "study.measured": "Measured Units",
    "study.readers": "probed_beliefs",
}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, extra="nn")
