"""How checks are drawn: few kinds of figures, each on an Axes it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from percolab.checks.result import Draw

BLUE, ORANGE, INK = style.BLUE, style.VERMILION, style.INK
BAND = 2.23
"""Kolmogorov's statistic times √n stays below this with probability 0.9999."""


def uniforms(values: NDArray[np.float64], what: str) -> Draw:
    """Draw how the distribution function of values that should be uniform differs from the diagonal."""
    n = values.size
    level = np.quantile(values, np.linspace(0, 1, 201))
    gap = np.searchsorted(np.sort(values), level, side="right") / n - level

    def draw(axes: Axes) -> None:
        axes.axhspan(-BAND / np.sqrt(n), BAND / np.sqrt(n), color=BLUE, alpha=0.15, linewidth=0)
        axes.axhline(0, color=INK, linestyle=":", linewidth=1)
        axes.plot(level, gap, color=BLUE)
        axes.set_xlabel(what)
        axes.set_ylabel("observed share - expected")
        axes.set_title(f"{n:,} independent values; band: 99.99%")

    return draw


def bars(
    x: NDArray[Any],
    counts: NDArray[Any],
    expected: NDArray[Any],
    error: NDArray[Any],
    xlabel: str,
    *,
    log: str = "y",
    labels: list[str] | None = None,
) -> Draw:
    """Draw counts with error bars, and what was expected."""

    def draw(axes: Axes) -> None:
        axes.errorbar(x, counts, yerr=error, fmt="o", markersize=4, color=BLUE, capsize=2, label="measured")
        axes.plot(x, expected, color=INK, linestyle=":", marker="_", markersize=9, label="expected")
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        if labels is not None:
            axes.set_xticks(x, labels)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("count")
        axes.legend()

    return draw


def pulls(counts: NDArray[Any], expected: NDArray[Any], what: str) -> Draw:
    """Draw how many standard errors the counts of many cells lie from what was expected, against the normal law."""
    pull = (counts - expected) / np.sqrt(expected)

    def draw(axes: Axes) -> None:
        edges = np.linspace(-5, 5, 41)
        centres = (edges[1:] + edges[:-1]) / 2
        axes.stairs(
            np.histogram(np.clip(pull, -5, 5), edges)[0],
            edges,
            fill=True,
            color=BLUE,
            alpha=0.7,
            label=f"{counts.size:,} {what}",
        )
        normal = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi) * counts.size * (edges[1] - edges[0])
        axes.plot(centres, normal, color=INK, linestyle=":", label="normal law")
        axes.set_xlabel("(count - expected) / standard error")
        axes.set_ylabel(what)
        axes.legend()

    return draw


def histogram(values: NDArray[np.float64], xlabel: str, *, mean: float | None = None, normal: bool = False) -> Draw:
    """Draw a histogram, with the mean expected or the standard normal law."""
    low, high = (-5.0, 5.0) if normal else (float(np.min(values)), float(np.max(values)))
    count, edges = np.histogram(values, bins=60, range=(low, high if high > low else low + 1), density=True)

    def draw(axes: Axes) -> None:
        axes.stairs(count, edges, fill=True, color=BLUE, alpha=0.7, label="measured")
        if normal:
            x = np.linspace(-5, 5, 201)
            axes.plot(x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), color=INK, linestyle=":", label="normal law")
        if mean is not None:
            axes.axvline(mean, color=INK, linestyle=":", label="expected mean")
            axes.axvline(float(values.mean()), color=ORANGE, label="measured mean")
        axes.set_xlabel(xlabel)
        axes.set_ylabel("density")
        axes.legend()

    return draw
