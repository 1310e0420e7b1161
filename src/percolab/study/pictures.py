"""Pictures of estimates with their intervals, by layer, by epoch and in bins, and of a comparison of networks."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.ground.files import replacing
from percolab.ground.progress import Progress, silent
from percolab.ground.text import paragraphs
from percolab.nn.networks.activations import label
from percolab.show import dot_rows, style
from percolab.show.dot_rows import Mark, Panel
from percolab.study.contrasts import Contrast, is_everywhere
from percolab.study.estimates import Row
from percolab.study.measured import LOGARITHMIC, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PNG_DPI = 160
MARKERS = "osD^vPX*"
#: Largest factor by which series on a logarithmic axis are moved apart, so that intervals do not hide each other.
DODGE = 1.2
#: Spacing of names at the ends of lines: points from one line of text to the next, letters per line and per inch.
NAME_HEIGHT, NAME_LETTERS, LETTERS = 13, 24, 10
ROOM = 3.7  #: Inches of a picture without the names of its lines: no more, so that its text is large on a phone.


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure and its caption."""

    figure: Figure
    caption: str


def caption(draw: Callable[..., Any], **given: Any) -> str:
    """Return the caption of a picture: the docstring of the function that draws it, with numbers filled in."""
    return " ".join(paragraphs(draw.__doc__)).format(**given)


def drawn_by(*functions: Callable[[Sequence[Row], Any], Figure | None]) -> Callable[..., dict[str, Picture]]:
    """Return a function that draws all pictures of an experiment from its rows and settings.

    A picture is a function: its file has the function's name, its caption is the function's docstring. Where there is
    nothing to draw, the function returns None.
    """

    def draw(rows: Sequence[Row], s: Any) -> dict[str, Picture]:
        figures = {function: function(rows, s) for function in functions}
        return {made.__name__: Picture(figure, caption(made)) for made, figure in figures.items() if figure is not None}

    return draw


def write(drawn: Mapping[str, Figure], folder: Path, progress: Progress = silent) -> None:
    """Write figures as PNG into a folder, each under its name."""
    for done, (name, figure) in enumerate(drawn.items()):
        progress("figures", done, len(drawn))
        with style.sheet(), replacing(folder / f"{name}.png") as partial:
            partial.write_bytes(style.as_png(figure, PNG_DPI))
        progress("figures", done + 1, len(drawn))


def by_layer(
    series: Mapping[str, Sequence[Row]],
    names: Sequence[str],
    title: str,
    xlabel: str,
    *,
    along: str = "layer",
    zero: float | None = 0.0,
    log: bool = False,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Draw estimates by layer, or `along` any other name of rows, as series of dots with intervals.

    `names` are the layers in order; `zero` is where a line marks the null value; `limits` are the ends of the axis.
    Empty series are left out.
    """
    marks = {
        name: {label(r[along]): Mark(r.estimate.value, r.estimate.low, r.estimate.high, r.by_draw) for r in rows}
        for name, rows in series.items()
        if rows
    }
    panel = Panel([label(name) for name in names], marks, xlabel.replace("\n", " "), title, zero, log, limits)
    return dot_rows.draw(panel)


def by_number(
    series: Mapping[str, Sequence[Row]],
    x: str,
    title: str,
    xlabel: str,
    ylabel: str,
    *,
    zero: float | None = 0.0,
    log_y: bool = False,
    symmetric_from: float | None = None,
    ticks: bool = False,
    to_means: bool = False,
) -> Figure:
    """Draw estimates against a number, such as the epoch or the size, one line per series, with intervals.

    `symmetric_from` makes the axis linear up to that number and logarithmic above it, so that epoch 0 has a place;
    `ticks` puts a mark at each number; `to_means` ends the vertical axis, on each side, at most as far beyond the
    numbers as they and 0 lie apart, so that no interval flattens all lines; longer intervals are cut off.
    """
    series = {name: rows for name, rows in series.items() if rows}
    with style.sheet():
        names = min(NAME_LETTERS, max(map(len, series))) if len(series) > 1 else 0
        figure = style.new_figure(ROOM + names / LETTERS, 3.9 + 0.15 * max(0, len(series) - 8))
        axes = figure.subplots()
        colours = style.series_colours(list(series))
        for k, (name, rows) in enumerate(series.items()):
            shift = min(1.05, DODGE ** (1 / len(series))) ** (k - (len(series) - 1) / 2)
            at = [shift * float(r[x]) for r in rows]
            _marks(axes, at, rows, MARKERS[k % len(MARKERS)], name, colours[k])
        if zero is not None:
            axes.axhline(zero, color=style.INK, linewidth=0.9, zorder=1)
        if symmetric_from is not None:
            axes.set_xscale("symlog", linthresh=symmetric_from)
            axes.set_xlim(left=-0.15 * symmetric_from, right=DODGE * axes.get_xlim()[1])
        elif series:
            axes.set_xscale("log")
            style.plain_numbers(axes.xaxis)
        if log_y:
            axes.set_yscale("log")
        if to_means:
            means = [0.0, *(r.estimate.value for rows in series.values() for r in rows)]
            margin, (low, high) = max(0.1, np.ptp(means)), axes.get_ylim()
            axes.set_ylim(max(low, min(means) - margin), min(high, max(means) + margin))
        if ticks:
            marks = sorted({float(r[x]) for rows in series.values() for r in rows})
            axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
            axes.set_xticks([], minor=True)
        axes.grid(axis="y")
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.set_title(title, loc="left")
        if len(series) > 1:
            _name_lines(axes)
    return figure


def _marks(axes: Axes, x: Sequence[float], rows: Sequence[Row], marker: str, name: str, colour: str) -> None:
    """Draw numbers with their intervals, and one dot per draw where there are several draws of the data."""
    value, low, high = np.array([(r.estimate.value, r.estimate.low, r.estimate.high) for r in rows]).T
    spread = np.fmax(0.0, [value - low, high - value])  # without an interval, 0
    axes.errorbar(
        x, value, yerr=spread, fmt=f"-{marker}", color=colour, markersize=5, elinewidth=1.1, capsize=2, label=name
    )
    for at, row in zip(x, rows, strict=True):
        axes.plot([at] * len(row.by_draw), row.by_draw, ".", color=colour, markersize=3, alpha=0.5)


def _name_lines(axes: Axes) -> None:
    """Write the name of each line at its right end, in its colour; names that would touch are moved apart."""
    from matplotlib.container import ErrorbarContainer

    to_axes, ends = axes.transData + axes.transAxes.inverted(), []
    for box in axes.containers:
        if isinstance(box, ErrorbarContainer):
            line, name = box.lines[0], textwrap.fill(str(box.get_label()), NAME_LETTERS)
            ends.append((float(to_axes.transform(np.asarray(line.get_xydata())[-1])[1]), line, name))
    ends.sort(key=lambda end: end[0])
    tall = [1 + name.count("\n") for _, _, name in ends]
    line_height = min(NAME_HEIGHT * 100 / 72 / axes.get_window_extent().height, 1.0 / max(1, sum(tall)))
    places = [max(y, 0.0) for y, _, _ in ends]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + line_height * (tall[i] + tall[i - 1]) / 2)
    for i in reversed(range(len(places))):
        places[i] = min(places[i], 1.0 - line_height * (sum(tall[i:]) - tall[i] / 2))
    for place, (_, line, name) in zip(places, ends, strict=True):
        axes.annotate(
            name, (1.02, place), xycoords="axes fraction", va="center", color=line.get_color(), fontsize=9.5,
            fontweight="bold", annotation_clip=False,
        )  # fmt: skip


# ---------------------------------------------------------------------- a comparison


def of_comparison(cells: Sequence[Measured], contrasts: Sequence[Contrast]) -> Figure:
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
    """Return the mean over the networks of a role, and the mean of each network."""
    here = [c for c in cells if c.role_for_units == role and (c.layer == layer or is_everywhere(c))]
    means = [float(np.nanmean(cell.values)) for cell in here if np.isfinite(cell.values).any()]
    return Mark(float(np.mean(means)) if means else float("nan"), members=means)
