"""Pictures of a benchmark: recovery and splitting by size, absorption by depth, and the gaps, of every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab.benchmark.bins import EXCESS
from percolab.benchmark.tables import Line
from percolab.benchmark.tasks import RAW, TRAINED, UNTRAINED
from percolab.features.specs import READING
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from percolab.intervals import Estimate

Floats = NDArray[np.float64]

WORDS = {TRAINED: "trained network", UNTRAINED: "untrained", RAW: "raw input"}
BANDS = "Bands are 95% intervals over seeds."
CUT = "Where they are wider than the panel they are cut."


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
        binned = [line for line in own if line.by_size.get(TRAINED)]
        if binned:
            caption = f"Recovery by size of the concept, layer {layer}. Chance is that in the trained network. {BANDS}"
            shown[f"{layer}-recovery"] = Picture(draw_recovery(binned), caption, wide=True)
            caption = (
                f"Splitting by size of the concept, layer {layer}: how many features are taken for it, of concepts "
                f"that have a feature. {BANDS} {CUT}"
            )
            shown[f"{layer}-splitting"] = Picture(draw_splitting(binned), caption, wide=True)
            caption = (
                f"Absorption by depth in the trained network, layer {layer}. On edges: recall of the upper concept's "
                "feature outside the lower one minus inside. On rows: the share missed and taken by a feature of a "
                "concept below, minus what independent misses give; of k-means it cannot be below 0, since a row that "
                f"one cluster takes is missed by all others. {BANDS} {CUT}"
            )
            shown[f"{layer}-absorption"] = Picture(draw_absorption(binned), caption, wide=True)
        if any(line.knows("trained_untrained") for line in own):
            caption = (
                f"The gaps, layer {layer}: difference of best F1, mean over concepts with its 95% interval. The linear "
                "reading is in the table: it has another unit."
            )
            shown[f"{layer}-gaps"] = Picture(draw_gaps(own), caption)
    return shown


# ---------------------------------------------------------------------- by size and by depth


def draw_recovery(found: list[Line]) -> Figure:
    """Draw recovery by size, a panel a method."""
    figure = _panels(found, partial(_draw_sizes, name="recovery"), "rows of the concept", "mean best F1")
    figure.axes[0].set_ylim(0, 1.05)
    return figure


def draw_splitting(found: list[Line]) -> Figure:
    """Draw splitting by size, a panel a method."""
    figure = _panels(found, partial(_draw_sizes, name="splitting"), "rows of the concept", "features a concept")
    _limit(figure.axes[0], [one.values["splitting"] for line in found for own in line.by_size.values() for one in own])
    figure.axes[0].set_ylim(bottom=0)
    return figure


def draw_absorption(found: list[Line]) -> Figure:
    """Draw absorption by depth, a panel a method: on edges, and on rows beyond independent misses."""
    figure = _panels(found, _draw_depths, "depth of the concept + 1", "difference of recall, of shares of rows")
    names = ("absorption_edge", EXCESS)
    _limit(figure.axes[0], [one.values[name] for line in found for one in line.by_depth[TRAINED] for name in names])
    return figure


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
        for axes in panels[: len(found)][-across:]:
            axes.tick_params(labelbottom=True)  # where nothing is below
        figure.supxlabel(x, fontsize=9)
        figure.supylabel(y, fontsize=9)
        known = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
        figure.legend(
            known.values(), known.keys(), loc="outside upper left", ncols=len(known), fontsize=8,
            title=found[0].task, title_fontsize=10, alignment="left",
        )  # fmt: skip
    return figure


def _draw_sizes(axes: Axes, line: Line, name: str) -> None:
    kinds = {TRAINED: (style.BLUE, "o"), UNTRAINED: (style.ORANGE, "s"), RAW: (style.GREEN, "^")}
    for network, (colour, marker) in kinds.items():
        own = line.by_size[network]
        x = np.array([(one.start * one.stop) ** 0.5 for one in own])
        _draw(axes, x, [one.values[name] for one in own], colour, marker, WORDS[network])
        if network == TRAINED and name == "recovery":
            axes.plot(x, [one.values["chance"].value for one in own], color=style.GREY, label="chance")
    axes.set_xscale("log")


def _draw_depths(axes: Axes, line: Line) -> None:
    own = line.by_depth[TRAINED]
    x = np.array([((one.start + 1) * (one.stop + 1)) ** 0.5 for one in own])
    edges, rows = ([one.values[name] for one in own] for name in ("absorption_edge", EXCESS))
    _draw(axes, x, edges, style.BLUE, "o", "on edges")
    _draw(axes, x, rows, style.VERMILION, "s", "on rows, minus independent misses")
    axes.axhline(0, color=style.INK, linewidth=0.8)
    axes.set_xscale("log", base=2)


def _draw(axes: Axes, x: Floats, found: list[Estimate], colour: str, marker: str, label: str) -> None:
    """Draw means as a line and their intervals as a band; where a neighbour has none, as a bar."""
    low, high = np.array([[one.low, one.high] for one in found]).reshape(-1, 2).T
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    known = np.pad(np.isfinite(low), 1)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]
    axes.vlines(x[alone], low[alone], high[alone], color=colour, alpha=0.4, linewidth=2)
    axes.plot(x, [one.value for one in found], marker=marker, markersize=3, color=colour, label=label)


def _limit(axes: Axes, found: list[Estimate]) -> None:
    """Show all means, and of their intervals what is not far beyond: that of two seeds can be as wide as anything."""
    values = np.array([one.value for one in found])
    values = values[np.isfinite(values)]
    if values.size:
        low, high = values.min(), values.max()
        room = 0.25 * (high - low) or 0.1
        axes.set_ylim(low - room, high + room)


# ---------------------------------------------------------------------- the gaps


def draw_gaps(found: list[Line]) -> Figure:
    """Draw both gaps of every method."""
    gaps = {"trained_untrained": ("trained - untrained", style.BLUE, "o")}
    gaps["relevant_irrelevant"] = ("relevant - irrelevant", style.VERMILION, "s")
    own = [line for line in found if line.method != READING and line.knows("trained_untrained")]
    with style.sheet():
        figure = style.new_figure(5.6, 0.28 * len(own) + 1.0)
        axes = figure.subplots()
        for i, (name, (label, colour, marker)) in enumerate(gaps.items()):
            rows = [(y, line.values[name]) for y, line in enumerate(own) if line.knows(name)]
            if not rows:
                continue
            value = np.array([found.value for _, found in rows])
            ends = np.array([[found.value - found.low, found.high - found.value] for _, found in rows]).T
            place = np.array([y for y, _ in rows]) + 0.2 * i - 0.1
            axes.errorbar(value, place, xerr=np.nan_to_num(ends), fmt=marker, markersize=4, color=colour, label=label)
        axes.axvline(0, color=style.INK, linewidth=0.8)
        axes.set_yticks(range(len(own)), [line.method for line in own])
        axes.invert_yaxis()
        axes.set_title(found[0].task, loc="left")
        axes.set_xlabel("difference of best F1")
        axes.legend()
    return figure
