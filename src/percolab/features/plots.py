"""Pictures of a score: recovery by size over chance, purity, splitting by size, absorption by depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from percolab.features.thresholds import RECOVERED
from percolab.show import style

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from percolab.features.result import Score


def draw_score(score: Score) -> Figure:
    """Draw the four panels of a score."""
    with style.sheet():
        figure = style.new_figure(8.4, 6.2)
        panels = figure.subplots(2, 2).ravel()
        draws = draw_recovery, draw_purity, draw_splitting, draw_absorption
        titles = "recovery of concepts", "purity of features", "splitting", "absorption"
        for axes, letter, draw, title in zip(panels, "abcd", draws, titles, strict=True):
            draw(axes, score)
            style.panel_letter(axes, letter, title)
    return figure


def draw_recovery(axes: Axes, score: Score) -> None:
    """Draw the mean best F1 of concepts by size, the share recovered, and chance with the range of its draws."""
    table = score.by("size")
    if len(table):
        x = _middles(table)
        axes.fill_between(x, table["chance_low"], table["chance_high"], color=style.FAINT, linewidth=0)
        axes.plot(x, table["chance"], color=style.GREY, label="permuted: mean, range of draws")
        axes.plot(x, table["recovery"], "o-", markersize=4, color=style.BLUE, label="mean best F1")
        axes.plot(x, table["recovered"], "s--", markersize=4, color=style.ORANGE, label=f"share above {RECOVERED}")
        axes.legend()
    _size_axis(axes)
    axes.set(ylim=(0, 1.05), ylabel="F1, share")


def draw_purity(axes: Axes, score: Score) -> None:
    """Draw a histogram of the best F1 of live features; state how many features are dead or dense."""
    features = score.features
    live = features[~features["dead"]]
    edges = np.linspace(0, 1, 41)
    axes.stairs(np.histogram(live["purity"], edges)[0], edges, fill=True, color=style.SKY)
    axes.axvline(RECOVERED, color=style.BLACK, linewidth=1)
    counts = f"{len(live):,} live, {int(features['dead'].sum()):,} dead, {int(features['dense'].sum()):,} dense"
    axes.locator_params(axis="y", integer=True)
    axes.set(xlabel=f"best F1 of a feature over concepts\n{counts}", ylabel="features")


def draw_splitting(axes: Axes, score: Score) -> None:
    """Draw the number of features in a concept's union, by size, and the F1 of the union."""
    table = score.by("size")
    if len(table):
        axes.plot(_middles(table), table["splitting"], "o-", markersize=4, color=style.GREEN, label="features taken, k")
        axes.plot(_middles(table), table["f1_union"], "s--", markersize=4, color=style.PURPLE, label="F1 of the union")
        axes.legend()
    _size_axis(axes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("features, F1")


def draw_absorption(axes: Axes, score: Score) -> None:
    """Draw absorption by depth: on edges, on rows, and the share expected on rows of independent misses."""
    table = score.by("depth")
    if len(table):
        x = np.sqrt((table["from"] + 1) * (table["to"] + 1))
        axes.plot(x, table["absorption_edge"], "o-", markersize=4, color=style.BLUE, label="on edges")
        axes.plot(x, table["absorption"], "s-", markersize=4, color=style.VERMILION, label="on rows")
        axes.plot(x, table["absorption_null"], "s--", markersize=4, color=style.GREY, label="independent misses")
        axes.legend()
    axes.axhline(0, color=style.INK, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="depth of the concept + 1", ylabel="difference of recall, share of rows")


def _middles(table: pandas.DataFrame) -> pandas.Series[float]:
    return np.sqrt(table["from"] * table["to"])


def _size_axis(axes: Axes) -> None:
    axes.set(xscale="log", xlabel="rows of the concept")
    style.plain_numbers(axes.xaxis)
