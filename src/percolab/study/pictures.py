"""Pictures: estimates with their intervals, by layer, by epoch, in bins; a comparison of networks; writing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from percolab.ground.files import replacing
from percolab.ground.progress import Progress, silent
from percolab.nn.networks.activations import label
from percolab.show import style
from percolab.show.style import GREY, INK, PALETTE
from percolab.study.contrasts import Contrast, is_everywhere
from percolab.study.estimates import Row
from percolab.study.measured import LOGARITHMIC, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PNG_DPI = 160
MARKERS = "osD^vPX*"
FAINT = ("null", "untrained", "random", "raw", "unrelated", "on its training rows")
"""Words in the names of series that are drawn grey: controls, and what is there for comparison."""
DODGE = 1.2
"""By what factor all series of a logarithmic axis are moved apart at most, so that intervals do not hide each other."""
CROWDED = 500
"""Ratio of the ends of a logarithmic axis from which labels have room at powers of ten only."""
SHORT = 32
"""Characters of a name of which three fit side by side."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure and what it shows."""

    figure: Figure
    caption: str


def write(drawn: Mapping[str, Figure], folder: Path, progress: Progress = silent) -> None:
    """Write figures as PNG into a folder, each under its name."""
    for done, (name, figure) in enumerate(drawn.items()):
        progress("figures", done, len(drawn))
        with style.sheet(), replacing(folder / f"{name}.png") as partial:
            figure.savefig(partial, dpi=PNG_DPI)
    progress("figures", len(drawn), len(drawn))


def by_layer(
    series: Mapping[str, Sequence[Row]],
    names: Sequence[str],
    title: str,
    ylabel: str,
    *,
    zero: float | None = 0.0,
    log_y: bool = False,
) -> Figure:
    """Draw estimates by layer, series side by side, each with its interval.

    Parameters
    ----------
    series
        Rows of a table by name, each with a ``layer``.
    names
        The layers, in order.
    title, ylabel
        In words.
    zero
        Where a line says that there is nothing; None draws none.
    log_y
        Whether the axis is logarithmic.
    """
    with style.sheet():
        figure = style.new_figure(6.4, 3.9)
        axes = figure.subplots()
        place = {name: i for i, name in enumerate(names)}
        width = min(0.18, 0.62 / max(1, len(series) - 1))
        for k, (name, rows) in enumerate(series.items()):
            shift = (k - (len(series) - 1) / 2) * width
            _marks(axes, [place[r["layer"]] + shift for r in rows], rows, k, name)
        _line_at(axes, zero)
        if log_y:
            axes.set_yscale("log")
        axes.set_xticks(range(len(names)), [layer_words(name) for name in names], fontsize=7.5)
        axes.grid(axis="y")
        axes.set_ylabel(ylabel)
        axes.set_title(title, loc="left")
        _legend(figure, axes, len(series))
    return figure


def by_number(
    series: Mapping[str, Sequence[Row]],
    x: str | Callable[[Row], float],
    title: str,
    xlabel: str,
    ylabel: str,
    *,
    zero: float | None = 0.0,
    log_x: bool = True,
    log_y: bool = False,
    symmetric_from: float | None = None,
    ticks: bool = False,
) -> Figure:
    """Draw estimates against a number, such as the epoch or the size, one line per series, with intervals.

    `symmetric_from` makes the axis linear up to there and logarithmic above, so that epoch 0 has a place; `ticks` puts
    a mark at each number.
    """
    with style.sheet():
        from matplotlib.ticker import LogLocator, NullFormatter

        figure = style.new_figure(6.4, 3.9)
        axes = figure.subplots()
        for k, (name, rows) in enumerate(series.items()):
            each = min(1.05, DODGE ** (1 / len(series))) if log_x or symmetric_from is not None else 1.0
            shift = each ** (k - (len(series) - 1) / 2)
            at = [shift * (float(r[x]) if isinstance(x, str) else x(r)) for r in rows]
            _marks(axes, at, rows, k, name, line="-")
        _line_at(axes, zero)
        if symmetric_from is not None:
            axes.set_xscale("symlog", linthresh=symmetric_from)
            axes.set_xlim(left=-0.15 * symmetric_from, right=DODGE * axes.get_xlim()[1])
        elif log_x and any(series.values()):
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < CROWDED * low else (1,)))
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        if log_y:
            axes.set_yscale("log")
        if ticks:
            marks = sorted({float(r[x]) if isinstance(x, str) else x(r) for rows in series.values() for r in rows})
            axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
            axes.set_xticks([], minor=True)
        axes.grid(axis="y")
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.set_title(title, loc="left")
        _legend(figure, axes, len(series))
    return figure


def _marks(axes: Axes, x: Sequence[float], rows: Sequence[Row], k: int, name: str, line: str = "") -> None:
    """Draw numbers with their intervals, and where there are several draws of the data, a dot for each."""
    value = [r.estimate.value for r in rows]
    spread = [
        [max(0.0, e.value - e.low) if e.low == e.low else 0.0 for e in (r.estimate for r in rows)],
        [max(0.0, e.high - e.value) if e.high == e.high else 0.0 for e in (r.estimate for r in rows)],
    ]
    null = any(word in name for word in FAINT)
    colour = style.ROLES.get(name, GREY if null else PALETTE[k % len(PALETTE)])
    axes.errorbar(
        x, value, yerr=spread, fmt=f"{line}{MARKERS[k % len(MARKERS)]}", color=colour, markersize=5, elinewidth=1.1,
        capsize=2, linewidth=1.1, markerfacecolor="white" if null else colour, label=name,
    )  # fmt: skip
    for at, one in zip(x, rows, strict=True):
        axes.plot([at] * len(one.by_draw), one.by_draw, ".", color=colour, markersize=3, alpha=0.5)


def _line_at(axes: Axes, zero: float | None) -> None:
    if zero is not None:
        axes.axhline(zero, color=INK, linewidth=0.9, zorder=1)


def _legend(figure: Figure, axes: Axes, count: int) -> None:
    if count > 1:
        handles, names = axes.get_legend_handles_labels()
        columns = 3 if max(map(len, names)) <= SHORT else 2
        figure.legend(handles, names, loc="outside lower center", ncols=min(columns, count))


def layer_words(name: str) -> str:
    """Return a layer's name on two lines."""
    return (
        label(name)
        .replace(", ", "\n")
        .replace(" stream", "")
        .replace("input layer", "input\nlayer")
        .replace("raw input", "raw\ninput")
    )


# ---------------------------------------------------------------------- a comparison


def of_comparison(cells: Sequence[Measured], contrasts: Sequence[Contrast]) -> Figure:
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
