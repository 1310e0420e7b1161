"""Figures of datasets: the data model (1), cluster sizes (8), and random graphs in three regimes (11)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.dataset.dataset import Dataset, construct
from percolab.engines.cluster_growth import attachment
from percolab.ground.arrays import Floats, Ints
from percolab.model.forest import Forest
from percolab.model.recipe import PRESETS, Recipe, Seeds
from percolab.show import cluster_picture, distributions, latent_colours, style
from percolab.show.distributions import FITTED_SIZE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WITH_BONDS = 40  #: Least size of a cluster that is drawn with its bonds; of smaller ones only points are drawn.
PROJECTED = 10  #: Number of clusters that determine the projection.
GREYS = ("#6f6f6f", "#8c8c8c", "#a5a5a5", "#bbbbbb")
DEGREES = {0.5: "below", 1.0: "critical", 2.0: "above"}
SWEEP = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0)
GRAPH_SEED = 1


def data_model(panels: Any, quick: bool) -> None:
    """Draw a cluster distribution, its largest cluster coloured by latents, beside the latent tree of that cluster."""
    n = 3000 if quick else 12_000
    dataset = construct(Recipe(n, 100, "distribution", seeds=Seeds.from_int(11)))
    forest = dataset.forest.cluster(0)
    groups = latent_colours.disjoint_groups(forest, len(style.PALETTE))
    look = latent_colours.by_groups(forest, groups)
    space, tree = panels
    _draw_clusters(space, dataset, look)
    style.panel_letter(space, "a", "inputs: clusters in space")
    cluster_picture.draw_tree(tree, forest, look)
    tree.set_title("")  # the figure has its own titles
    style.panel_letter(tree, "b", "targets: latents of the coloured cluster")


def _draw_clusters(axes: Axes, dataset: Dataset, look: latent_colours.Colouring) -> None:
    """Draw all points in the plane in which large clusters spread most."""
    from matplotlib.collections import LineCollection

    forest, X = dataset.forest, np.asarray(dataset.X, np.float64)
    size = int(forest.cluster_size[0])
    plane = _projection(X, dataset.forest.cluster_start[: PROJECTED + 1])
    rows = np.arange(size, forest.n_points)
    axes.scatter(plane[rows, 0], plane[rows, 1], s=0.8, color=style.FAINT, linewidths=0, zorder=1, rasterized=True)
    for c in range(1, int(np.count_nonzero(forest.cluster_size >= WITH_BONDS))):
        top = int(forest.cluster_start[c]) - c
        bonds = forest.bond[top : top + int(forest.cluster_size[c]) - 1]
        grey = GREYS[c % len(GREYS)]
        axes.add_collection(LineCollection(list(plane[bonds]), colors=grey, linewidths=0.7, zorder=2, rasterized=True))
    order = look.bond_order
    lines = list(plane[forest.bond[: size - 1]][order])
    axes.add_collection(LineCollection(lines, colors="white", linewidths=3.0, zorder=3, rasterized=True))
    axes.add_collection(LineCollection(lines, colors=look.latents[order], linewidths=1.5, zorder=4, rasterized=True))
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.02)
    axes.set(xlabel="first principal component of large clusters", ylabel="second principal component")


def _projection(X: NDArray[Any], start: Ints) -> Floats:
    """Return all rows in the first two principal components of the clusters that start here, each of equal weight."""
    parts = [X[lo:hi] for lo, hi in pairwise(start)]
    mean = np.mean([part.mean(axis=0) for part in parts], axis=0)
    moment = np.mean([(part - mean).T @ (part - mean) / len(part) for part in parts], axis=0)
    return np.asarray((X - mean) @ cluster_picture.top_axes(moment)[0])


# ---------------------------------------------------------------------- cluster sizes
#
# Figure 8: the distribution of cluster sizes of the paper's multi-cluster dataset, before its filter.


def cluster_sizes(axes: Axes, quick: bool) -> None:
    """Draw the share of clusters with at least s points, the fitted power law, and the exact law."""
    recipe = PRESETS["paper-multi-cluster"]
    size = np.bincount(attachment(recipe.n_points, recipe.attachment_prob, recipe.seeds.graph))
    distributions.draw_sizes(axes, size, theory.size_ccdf, FITTED_SIZE)
    axes.axvline(FITTED_SIZE, ymin=0.35, color=style.GREY, linewidth=0.8, linestyle=":")
    axes.set_ylim(0.5 / size.size, 2)


# ---------------------------------------------------------------------- three regimes
#
# Figure 11, which the paper does not have: random graphs below, at and above the critical point.


def three_regimes(panels: Any, quick: bool) -> None:
    """Draw the sizes of clusters in the three regimes, and the giant and the cycles as bonds are added."""
    n, fewer = (20_000, 5_000) if quick else (1_000_000, 100_000)
    for letter, axes, (degree, name) in zip("abc", panels, DEGREES.items(), strict=False):
        _draw_sizes(axes, forest_of(n, degree), n, degree)
        style.panel_letter(axes, letter, f"{name}: c = {degree:g}")
    _draw_sweep(panels[3], fewer)
    style.panel_letter(panels[3], "d", "giant and cycles")


def forest_of(n: int, degree: float) -> Forest:
    """Return the clusters of a random graph."""
    return construct(Recipe(n, 2, "random_graph", mean_degree=degree, seeds=GRAPH_SEED)).forest


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
    axes.set(xlabel="cluster size s", ylabel="clusters of s points")
    axes.legend(loc="upper right")


def _bins(top: int) -> Ints:
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
    axes.set(xlabel="mean degree c", ylabel=f"over the {n:,} points", ylim=(-0.03, 1.35))
    axes.legend(loc="upper left")
