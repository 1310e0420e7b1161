"""Figure 9: every small tree is equally likely, and large trees have the right degrees, for both samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from percolab import theory
from percolab.checks.merger_trees import small_forest, tree_codes
from percolab.engines.native.engine import split_forest
from percolab.engines.paper.coalescent import cyclic_coalescent
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TREES, POINTS, LARGE = 500_000, 6, 1_000_000
SAMPLERS = (
    ("cyclic coalescent", "paper", cyclic_coalescent, style.BLUE, "o"),
    ("top-down splitting", "native", split_forest, style.ORANGE, "s"),
)


def draw(quick: bool = False) -> Figure:
    """Draw counts of Prüfer codes of 500,000 trees of 6 points, and degrees of a tree of a million."""
    figure = style.new_figure(9.0, 3.7)
    codes, degrees = figure.subplots(1, 2)
    _draw_codes(codes, TREES // 10 if quick else TREES)
    _draw_degrees(degrees, LARGE // 20 if quick else LARGE)
    return figure


def _draw_codes(axes: Axes, n_trees: int) -> None:
    from scipy.stats import poisson

    cells = theory.tree_count(POINTS)
    mean = n_trees / cells
    width = max(1, round(mean**0.5 / 3))
    reach = int(4.5 * mean**0.5 / width) * width
    edges = np.arange(round(mean) - reach, round(mean) + reach + 1, width) - 0.5
    middle = (edges[1:] + edges[:-1]) / 2
    for i, (name, engine, _, colour, mark) in enumerate(SAMPLERS):
        forest = small_forest(engine, POINTS, n_trees, 0)
        code, _ = tree_codes(forest, np.flatnonzero(forest.latent_size == POINTS), POINTS)
        found, _ = np.histogram(np.bincount(code, minlength=cells), edges)
        x = middle + (i - 0.5) * 0.3 * width
        axes.errorbar(x, found, np.sqrt(found), fmt=mark, markersize=4, color=colour, capsize=1.5, label=name)
    expected = cells * np.diff(poisson.cdf(edges, mean))
    axes.plot(middle, expected, ":", color=style.BLACK, label=f"Poisson, mean {mean:.1f}")
    axes.set_xlabel(f"times a code occurred, of {n_trees:,} trees")
    axes.set_ylabel(f"number of codes, of {cells:,}")
    axes.set_ylim(0, axes.get_ylim()[1] * 1.3)
    axes.legend(loc="upper right")
    style.panel_letter(axes, "a", f"Prüfer codes, n = {POINTS}")


def _draw_degrees(axes: Axes, n: int) -> None:
    k = np.arange(1, 12)
    for i, (name, _, sample, colour, mark) in enumerate(SAMPLERS):
        degree = np.bincount(sample(n, 0).bond.ravel(), minlength=n)
        count = np.bincount(degree, minlength=k[-1] + 1)[1:12]
        seen = count > 0
        x = (k + (i - 0.5) * 0.16)[seen]
        axes.errorbar(
            x, count[seen], np.sqrt(count[seen]), fmt=mark, markersize=4, color=colour, capsize=1.5, label=name
        )
    axes.plot(k, n * theory.degree_law(k), ":", color=style.BLACK, label="1 + Poisson(1)")
    axes.set_yscale("log")
    axes.set_ylim(0.3, 3 * n)
    axes.set_xticks(k)
    axes.set_xlabel("degree")
    axes.set_ylabel("number of points")
    axes.legend(loc="upper right")
    style.panel_letter(axes, "b", f"degrees, n = {n:,}")
