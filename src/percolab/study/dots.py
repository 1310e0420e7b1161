"""Pictures of a comparison: what each role of network gives, and the contrasts with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from percolab.show import dot_rows, style
from percolab.show.dot_rows import Mark, Panel
from percolab.study.contrasts import Contrast, is_everywhere
from percolab.study.measured import LOGARITHMIC, Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(cells: Sequence[Measured], contrasts: Sequence[Contrast]) -> Figure:
    """Draw one reader's first measure: the mean of every network by role, and below it the contrasts."""
    reader, measure = contrasts[0].reader, contrasts[0].measure
    cells = [cell for cell in cells if (cell.reader, cell.measure) == (reader, measure)]
    contrasts = [c for c in contrasts if (c.reader, c.measure) == (reader, measure)]
    layers = list(dict.fromkeys(c.layer for c in contrasts))
    present = {cell.role_for_units for cell in cells}
    roles = [*(role for role in style.ROLES if role in present), *sorted(present - set(style.ROLES))]
    levels = {role: {layer: _level(cells, role, layer) for layer in layers} for role in roles}
    effects: dict[str, dict[str, Mark]] = {}
    for c in contrasts:
        mark = Mark(c.estimate.value, c.estimate.low, c.estimate.high, [float(value) for value in c.by_draw])
        effects.setdefault(c.contrast, {})[c.layer] = mark
    what = measure if measure == reader else f"{measure} of {reader}"
    unit = "log ratio" if contrasts[0].is_logarithmic else "difference"
    return dot_rows.draw(
        Panel(layers, levels, f"{what}, mean over units: one tick per network", zero=None, log=measure in LOGARITHMIC),
        Panel(layers, effects, f"{unit}, with its 95% interval: one tick per draw of the data"),
    )


def _level(cells: Sequence[Measured], role: str, layer: str) -> Mark:
    """Return the mean of a role's networks, and that of each."""
    here = [c for c in cells if c.role_for_units == role and (c.layer == layer or is_everywhere(c))]
    means = [float(np.nanmean(cell.values)) for cell in here if np.isfinite(cell.values).any()]
    return Mark(float(np.mean(means)) if means else float("nan"), members=means)
