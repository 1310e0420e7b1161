"""Pictures of a comparison: what each role of network gives, and the contrasts with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from percolab.show import style
from percolab.study.contrasts import Contrast, is_everywhere
from percolab.study.measured import LOGARITHMIC, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(cells: Sequence[Measured], contrasts: Sequence[Contrast]) -> Figure:
    """Draw one reader's first measure: left, the mean of every network by role; right, the contrasts."""
    reader, measure = contrasts[0].reader, contrasts[0].measure
    cells = [cell for cell in cells if (cell.reader, cell.measure) == (reader, measure)]
    contrasts = [c for c in contrasts if (c.reader, c.measure) == (reader, measure)]
    layers = list(dict.fromkeys(c.layer for c in contrasts))
    with style.sheet():
        figure = style.new_figure(8.2, 1.6 + 0.55 * len(layers) * max(3, len({c.contrast for c in contrasts})) / 2)
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
        _levels(left, cells, layers, measure)
        _contrasts(right, contrasts, layers)
    return figure


def _levels(axes: Axes, cells: Sequence[Measured], layers: Sequence[str], measure: str) -> None:
    """Draw one dot per network, and the mean of its role as a line."""
    roles = [role for role in style.ROLES if any(cell.role_for_units == role for cell in cells)]
    roles += sorted({cell.role_for_units for cell in cells} - set(roles))
    ticks, names = [], []
    for i, layer in enumerate(layers):
        for j, role in enumerate(roles):
            here = [c for c in cells if c.role_for_units == role and (c.layer == layer or is_everywhere(c))]
            place = i * (len(roles) + 1) + j
            means = np.array([float(np.nanmean(cell.values)) for cell in here if np.isfinite(cell.values).any()])
            colour = style.ROLES.get(role, style.PURPLE)
            axes.plot(means, np.full(means.size, place), "o", color=colour, markersize=4.5, alpha=0.6, linestyle="")
            if means.size:
                axes.plot([means.mean()] * 2, [place - 0.32, place + 0.32], color=colour, linewidth=2.2)
            ticks.append(place)
            names.append(role if len(layers) == 1 else f"{layer}  {role}")
    axes.set_yticks(ticks, names)
    axes.invert_yaxis()
    axes.grid(axis="x")
    if measure in LOGARITHMIC:
        axes.set_xscale("log")
    axes.set_xlabel(f"{measure}, mean over units: one dot per network")


def _contrasts(axes: Axes, contrasts: Sequence[Contrast], layers: Sequence[str]) -> None:
    """Draw every contrast with its 95% interval, and the draws behind it as ticks."""
    names = list(dict.fromkeys(c.contrast for c in contrasts))
    ticks, labels = [], []
    for c in contrasts:
        place = layers.index(c.layer) * (len(names) + 1) + names.index(c.contrast)
        control = c.contrast.split(" - ")[1]
        colour = style.ROLES.get(control, style.PURPLE)
        axes.plot(c.by_draw, np.full(c.by_draw.size, place), "|", color=colour, markersize=8, alpha=0.7)
        if np.isfinite(c.estimate.low):
            axes.plot([c.estimate.low, c.estimate.high], [place, place], color=colour, linewidth=1.6)
        axes.plot([c.estimate.value], [place], "o", color=colour, markersize=6)
        ticks.append(place)
        labels.append(c.contrast if len(layers) == 1 else f"{c.layer}  {c.contrast}")
    axes.axvline(0, color=style.INK, linewidth=0.9)
    axes.set_yticks(ticks, labels)
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.set_xlabel("log ratio" if contrasts[0].is_logarithmic else "difference")
