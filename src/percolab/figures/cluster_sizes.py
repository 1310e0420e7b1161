"""Figure 8: the distribution of cluster sizes of the paper's multi-cluster dataset, before its filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from percolab import theory
from percolab.checks.sizes import FIT_FROM, fit_exponent
from percolab.engines.growth import attachment
from percolab.model.recipe import PRESETS
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(quick: bool = False) -> Figure:
    """Draw the share of clusters with at least s points, the fitted power law, and the exact law."""
    recipe = PRESETS["paper-multi-cluster"]
    size = np.bincount(attachment(recipe.n_points, recipe.attachment_prob, recipe.seeds.graph))
    s, count = np.unique(size, return_counts=True)
    share = np.cumsum(count[::-1])[::-1] / size.size
    fitted = size[size >= FIT_FROM]
    alpha = fit_exponent(fitted, FIT_FROM)
    error = (alpha - 1) / np.sqrt(fitted.size)
    figure = style.new_figure(5.6, 4.0)
    axes = figure.subplots()
    axes.loglog(s, share, "o", markersize=3.2, color=style.BLUE, label=f"{size.size:,} clusters")
    grid = np.geomspace(1, s[-1], 200)
    axes.loglog(
        grid,
        theory.size_ccdf(grid),
        color=style.BLACK,
        linewidth=1.2,
        label="theory, $\\Gamma(s)\\,\\Gamma(5/2)/\\Gamma(s+3/2)$",
    )
    tail = grid[grid >= FIT_FROM]
    start = share[np.searchsorted(s, FIT_FROM)]
    text = f"fit for s ≥ {FIT_FROM}: slope {alpha - 1:.3f} ± {error:.3f}"
    axes.loglog(tail, start * (tail / FIT_FROM) ** (1 - alpha), "--", color=style.VERMILION, linewidth=2, label=text)
    axes.axvline(FIT_FROM, ymin=0.35, color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set_xlabel("cluster size s")
    axes.set_ylabel("share of clusters with size ≥ s")
    axes.set_ylim(0.5 / size.size, 2)
    axes.legend(loc="lower left")
    return figure
