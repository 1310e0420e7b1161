"""Dots in rows: estimates with their intervals, one row per item, one dot per series in the colour of its role.

Names of rows are never shortened, from two methods to thirty layers; the figure grows with their number.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, ROOM = 6.4, 3.8  #: Inches: the widest figure, and a figure without the names of rows, for large text on phones.
ROOMY = 16  #: Up to this many dots in a panel, series are named beside their dots; beyond, a legend names them.
APART, CLOSE = 0.2, 0.14  #: Inches between the dots of a row, with and without the names of series beside them.
LETTERS = 12  #: Letters of names and of a legend per inch.
SHARE = 0.8  #: Share of a row's height that its dots take.


class Mark(NamedTuple):
    """An estimate with its interval, and the values that it is the mean of: networks, or draws of the data."""

    value: float
    low: float = float("nan")
    high: float = float("nan")
    members: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """Rows of dots over one axis."""

    rows: Sequence[str]
    series: Mapping[str, Mapping[str, Mark]]  #: the marks of each series, by row
    xlabel: str
    title: str = ""
    zero: float | None = 0.0  #: where a line marks the absence of an effect
    log: bool = False
    limits: tuple[float, float] | None = None  #: ends of the axis; longer intervals run into its edge
    colours: Mapping[str, str] = field(default_factory=dict)  #: colours of series that have no role

    @property
    def is_roomy(self) -> bool:
        """Whether series are named beside their dots."""
        return len(self.series) > 1 and len(self.series) * len(self.rows) <= ROOMY

    @property
    def height(self) -> float:
        """Height of the panel in inches."""
        apart = APART if self.is_roomy else CLOSE
        row = max(0.26, len(self.series) * apart / SHARE)
        return 0.65 + 0.3 * bool(self.title) + 0.18 * self.xlabel.count("\n") + len(self.rows) * row


def draw(*panels: Panel, width: float = 0.0) -> Figure:
    """Return a figure of panels below each other; if one has no room for the names of series, a legend is added.

    Without a `width` the figure is as wide as the names of its rows need.
    """
    width = width or min(WIDTH, ROOM + max(len(row) for panel in panels for row in panel.rows) / LETTERS)
    with style.sheet():
        is_roomy = all(panel.is_roomy for panel in panels)
        names = list(dict.fromkeys(name for panel in panels for name in panel.series))
        heights = [panel.height for panel in panels]
        needs_legend = len(names) > 1 and not is_roomy
        lines = len(names) // _columns(names, width) + 1 if needs_legend else 0
        figure = style.new_figure(width, sum(heights) + 0.25 * lines)
        axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
        for each, panel in zip(axes, panels, strict=True):
            _place(each, panel)
            if is_roomy:
                _name_dots(each, panel)
        if needs_legend:
            _legend(figure, names)
    return figure


def _place(axes: Axes, panel: Panel) -> None:
    """Draw a panel on axes, its first row on top."""
    for (marks, colour), k in zip(_coloured(panel), range(len(panel.series)), strict=True):
        for i, row in enumerate(panel.rows):
            if row not in marks or marks[row].value != marks[row].value:
                continue
            value, low, high, members = marks[row]
            y = _height(panel, i, k)
            axes.plot([low, high], [y, y], color=colour, linewidth=2, solid_capstyle="butt")
            axes.plot(members, [y] * len(members), "|", color=colour, markersize=7, alpha=0.6)
            axes.plot(value, y, "o", color=colour, markersize=6)
    if panel.zero is not None:
        axes.axvline(panel.zero, color=style.INK, linewidth=0.9, zorder=1)
    if panel.log:
        axes.set_xscale("log")
    if panel.limits:
        axes.set_xlim(panel.limits)
    axes.set_yticks(range(len(panel.rows)), panel.rows)
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(panel.xlabel)
    axes.set_title(textwrap.fill(panel.title, 40), loc="left")


def _coloured(panel: Panel) -> list[tuple[Mapping[str, Mark], str]]:
    usual = style.series_colours(list(panel.series))
    colours = [panel.colours.get(name, colour) for name, colour in zip(panel.series, usual, strict=True)]
    return list(zip(panel.series.values(), colours, strict=True))


def _height(panel: Panel, row: int, series: int) -> float:
    return row + SHARE * ((series + 0.5) / len(panel.series) - 0.5)


def _name_dots(axes: Axes, panel: Panel) -> None:
    """Write the name of each series beside its dot in the first row that has it, on the side that has room."""
    from matplotlib.patheffects import withStroke

    ends = axes.get_xlim()
    middle = axes.transData.inverted().transform(axes.transAxes.transform((0.55, 0.5)))[0]
    for k, (name, (marks, colour)) in enumerate(zip(panel.series, _coloured(panel), strict=True)):
        known = [i for i, row in enumerate(panel.rows) if row in marks and marks[row].value == marks[row].value]
        if not known:
            continue
        mark = marks[panel.rows[known[0]]]
        spread = [end for end in (mark.low, mark.value, mark.high, *mark.members) if end == end]
        is_left = mark.value < middle
        at = min(max(max(spread) if is_left else min(spread), ends[0]), ends[1])
        axes.annotate(
            name, (at, _height(panel, known[0], k)), xytext=(8 if is_left else -8, 0), textcoords="offset points",
            ha="left" if is_left else "right", va="center_baseline", color=colour, fontweight="bold", fontsize=9.5,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip
    axes.set_xlim(ends)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """Name the series above the panels, each in its colour."""
    from matplotlib.lines import Line2D

    dots = [Line2D([], [], color=colour, marker="o", linestyle="") for colour in style.series_colours(names)]
    columns = _columns(names, figure.get_figwidth())
    figure.legend(dots, names, loc="outside upper center", ncols=columns, handletextpad=0.2)


def _columns(names: Sequence[str], width: float) -> int:
    """Return how many names fit side by side."""
    return max(1, min(len(names), int(width * LETTERS / (max(map(len, names)) + 5))))
