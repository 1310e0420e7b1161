"""Pictures of a benchmark: recovery by size, absorption by depth, and the gaps, of every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab.benchmark.lineup import READING
from percolab.benchmark.tables import Line
from percolab.benchmark.tasks import RAW, TRAINED, UNTRAINED
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = {TRAINED: "trained network", UNTRAINED: "untrained", RAW: "raw input"}


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, what it shows, and whether it needs the width of the page."""

    figure: Figure
    caption: str
    wide: bool = False


def pictures(found: list[Line]) -> dict[str, Picture]:
    """Return the pictures of a task by name, for each layer."""
    shown: dict[str, Picture] = {}
    for layer in dict.fromkeys(line.layer for line in found):
        own = [line for line in found if line.layer == layer]
        by_size = [line for line in own if line.by_size.get(TRAINED)]
        if by_size:
            caption = f"Recovery by size of the concept, layer {layer}. Chance is that in the trained network."
            shown[f"{layer}-recovery"] = Picture(draw_by_size(by_size), caption, wide=True)
            caption = (
                f"Absorption by depth in the trained network, layer {layer}. On edges: recall of the upper concept's "
                "feature outside the lower one minus inside. On rows: missed and taken by a feature of a concept below."
            )
            shown[f"{layer}-absorption"] = Picture(draw_absorption(by_size), caption, wide=True)
        if any(line.knows("trained_untrained") for line in own):
            caption = (
                f"The gaps, layer {layer}: difference of best F1, mean over concepts with its 95% interval. The linear "
                "reading is in the table: it has another unit."
            )
            shown[f"{layer}-gaps"] = Picture(draw_gaps(own), caption)
    return shown


def draw_by_size(found: list[Line]) -> Figure:
    """Draw recovery by size, a panel a method."""
    figure = _panels(found, _draw_sizes, "rows of the concept", "mean best F1")
    figure.axes[0].set_ylim(0, 1.05)
    return figure


def draw_absorption(found: list[Line]) -> Figure:
    """Draw absorption by depth, a panel a method."""
    return _panels(found, _draw_depths, "depth of the concept + 1", "difference of recall, share of rows")


def _panels(found: list[Line], draw: Callable[[Axes, Line], None], x: str, y: str) -> Figure:
    across = min(4, len(found))
    down = -(-len(found) // across)
    with style.sheet():
        figure = style.new_figure(2.3 * across, 1.9 * down + 0.3)
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, line in zip(panels, found, strict=False):
            draw(axes, line)
            axes.set_title(line.method, fontsize=8)
        for axes in panels[len(found) :]:
            axes.set_axis_off()
        figure.supxlabel(x, fontsize=9)
        figure.supylabel(y, fontsize=9)
        known = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        figure.legend(known.values(), known.keys(), loc="outside upper center", ncols=len(known), fontsize=8)
    return figure


def _draw_sizes(axes: Axes, line: Line) -> None:
    colours = {TRAINED: style.BLUE, UNTRAINED: style.ORANGE, RAW: style.GREEN}
    for name, colour in colours.items():
        rows = line.by_size[name]
        x = np.sqrt(_column(rows, "from") * _column(rows, "to"))
        label = WORDS[name]
        axes.plot(x, _column(rows, "recovery"), "o-", markersize=3, color=colour, label=label)
        if name == TRAINED:
            axes.plot(x, _column(rows, "chance"), color=style.GREY, label="chance")
    axes.set_xscale("log")


def _draw_depths(axes: Axes, line: Line) -> None:
    rows = line.by_depth[TRAINED]
    x = np.sqrt((_column(rows, "from") + 1) * (_column(rows, "to") + 1))
    axes.plot(x, _column(rows, "absorption_edge"), "o-", markersize=3, color=style.BLUE, label="on edges")
    axes.plot(x, _column(rows, "absorption"), "s-", markersize=3, color=style.VERMILION, label="on rows")
    axes.plot(x, _column(rows, "absorption_null"), "--", color=style.GREY, label="independent misses")
    axes.axhline(0, color=style.INK, linewidth=0.8)
    axes.set_xscale("log", base=2)


def _column(rows: list[dict[str, float | None]], name: str) -> NDArray[np.float64]:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)


def draw_gaps(found: list[Line]) -> Figure:
    """Draw both gaps of every method."""
    gaps = {"trained_untrained": ("trained - untrained", style.BLUE)}
    gaps["relevant_irrelevant"] = ("relevant - irrelevant", style.VERMILION)
    own = [line for line in found if line.method != READING and line.knows("trained_untrained")]
    with style.sheet():
        figure = style.new_figure(5.6, 0.28 * len(own) + 1.0)
        axes = figure.subplots()
        for i, (name, (label, colour)) in enumerate(gaps.items()):
            rows = [(y, line.values[name]) for y, line in enumerate(own) if line.knows(name)]
            if not rows:
                continue
            value = np.array([found.value for _, found in rows])
            ends = np.array([[found.value - found.low, found.high - found.value] for _, found in rows]).T
            place = np.array([y for y, _ in rows]) + 0.2 * i - 0.1
            axes.errorbar(value, place, xerr=np.nan_to_num(ends), fmt="o", markersize=4, color=colour, label=label)
        axes.axvline(0, color=style.INK, linewidth=0.8)
        axes.set_yticks(range(len(own)), [line.method for line in own])
        axes.invert_yaxis()
        axes.set_xlabel("difference of best F1")
        axes.legend()
    return figure
