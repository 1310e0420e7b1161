"""Figure 11, which the paper does not have: random graphs below, at and above the critical point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.dataset.generation import generate
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEGREES = {0.5: "below", 1.0: "critical", 2.0: "above"}
SWEEP = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0)
SEED = 1


def draw(quick: bool = False) -> Figure:
    """Draw the sizes of clusters in the three regimes, and the giant and the cycles as bonds are added."""
    n, fewer = (20_000, 5_000) if quick else (1_000_000, 100_000)
    figure = style.new_figure(10.5, 3.6)
    panels = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.25])
    for letter, axes, (degree, name) in zip("abc", panels, DEGREES.items(), strict=False):
        _draw_sizes(axes, forest_of(n, degree), n, degree)
        style.panel_letter(axes, letter, f"{name}: c = {degree:g}")
    _draw_sweep(panels[3], fewer)
    style.panel_letter(panels[3], "d", "giant and cycles")
    return figure


def forest_of(n: int, degree: float) -> Forest:
    """Return the clusters of a random graph."""
    return generate(Recipe(n, 2, "random_graph", mean_degree=degree, seeds=SEED)).forest


def _draw_sizes(axes: Axes, forest: Forest, n: int, degree: float) -> None:
    """Draw how many clusters have each size, in bins that grow, beside Borel's law."""
    size, top = forest.cluster_size, int(forest.cluster_size[0])
    is_giant = degree > 1
    edges = _bins(int(size[1]) if is_giant else top)
    count = np.histogram(size[1:] if is_giant else size, edges)[0]
    width = np.diff(edges)
    seen = count > 0
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    axes.loglog(middle[seen], (count / width)[seen], "o", markersize=3.2, color=style.BLUE, label=f"{n:,} points")
    grid = np.unique(np.geomspace(1, 10 * top if degree < 1 else top, 300).astype(np.int64))
    law = n * theory.cluster_law(grid, degree) / grid
    shown = law > 0.2 / max(1, width[-1])
    axes.loglog(grid[shown], law[shown], color=style.BLACK, linewidth=1.1, label="Borel's law")
    if is_giant:
        axes.loglog([top], [1], "s", markersize=5, color=style.VERMILION, label=f"giant: {top / n:.1%} of points")
        axes.axvline(n * theory.giant_share(degree), color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel("cluster size s")
    axes.set_ylabel("clusters of s points")
    axes.legend(loc="upper right")


def _bins(top: int) -> NDArray[np.int64]:
    """Return the edges of bins of sizes: single ones up to 10, then wider and wider."""
    wide = np.geomspace(11, max(12, top + 1), max(2, int(6 * np.log10(max(12, top + 1)))))
    return np.unique(np.concatenate([np.arange(1, 12), wide.astype(np.int64), [max(12, top + 1)]]))


def _draw_sweep(axes: Axes, n: int) -> None:
    """Draw the largest cluster and the bonds that close a cycle, over n, against their limits."""
    forests = [forest_of(n, degree) for degree in SWEEP]
    giant = [int(forest.cluster_size[0]) / n for forest in forests]
    cycles = [forest.n_extra_bonds / n for forest in forests]
    fine = np.linspace(0, SWEEP[-1], 200)
    axes.plot(SWEEP, giant, "s", markersize=4, color=style.VERMILION, label="points in the largest cluster")
    axes.plot(fine, [theory.giant_share(c) for c in fine], color=style.BLACK, linewidth=1.1)
    axes.plot(SWEEP, cycles, "o", markersize=4, color=style.GREEN, label="bonds that close a cycle")
    axes.plot(fine, [theory.cycles_per_point(c) for c in fine], color=style.BLACK, linewidth=1.1, label="theory")
    axes.axvline(1, color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel("mean degree c")
    axes.set_ylabel(f"over the {n:,} points")
    axes.set_ylim(-0.03, 1.35)
    axes.legend(loc="upper left")
