"""Figure 1: the data model. Clusters in space, and the latent tree of one of them in the same colours."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.model.recipe import Recipe, Seeds
from percolab.show import colouring, drawing, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 40
"""Least size of a cluster that is drawn with its bonds; of the others only the points."""
LARGE = 10
"""Number of clusters that the projection is made for."""
GREYS = ("#6f6f6f", "#8c8c8c", "#a5a5a5", "#bbbbbb")


def draw(quick: bool = False) -> Figure:
    """Draw a cluster distribution, its largest cluster coloured by latents, beside the latent tree of that cluster."""
    n = 3000 if quick else 12_000
    dataset = generate(Recipe(n, 100, "distribution", seeds=Seeds.from_int(11)))
    forest = dataset.forest.cluster(0)
    groups = colouring.disjoint_groups(forest, len(style.PALETTE))
    look = colouring.by_groups(forest, groups)
    figure = style.new_figure(9.5, 4.4)
    space, tree = figure.subplots(1, 2, width_ratios=[1.35, 1])
    _draw_clusters(space, dataset, look)
    style.panel_letter(space, "a", "inputs: clusters in space")
    drawing.draw_tree(tree, forest, look)
    tree.set_title("")  # the figure has titles of its own
    style.panel_letter(tree, "b", "targets: latents of the coloured cluster")
    return figure


def _draw_clusters(axes: Axes, dataset: Dataset, look: colouring.Colouring) -> None:
    """Draw all points in the plane where large clusters are widest."""
    from matplotlib.collections import LineCollection

    forest, X = dataset.forest, np.asarray(dataset.X, np.float64)
    size = int(forest.cluster_size[0])
    plane = _projection(X, dataset.forest.cluster_start[: LARGE + 1])
    rows = np.arange(size, forest.n_points)
    axes.scatter(plane[rows, 0], plane[rows, 1], s=0.8, color=style.FAINT, linewidths=0, zorder=1, rasterized=True)
    for c in range(1, int(np.count_nonzero(forest.cluster_size >= SHOWN))):
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
    axes.set_xlabel("first principal component of large clusters")
    axes.set_ylabel("second principal component")


def _projection(X: NDArray[Any], start: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return all rows in the first two principal components of the clusters that start here, each of equal weight."""
    parts = [X[lo:hi] for lo, hi in pairwise(start)]
    mean = np.mean([part.mean(axis=0) for part in parts], axis=0)
    moment = np.mean([(part - mean).T @ (part - mean) / len(part) for part in parts], axis=0)
    top = np.linalg.eigh(moment)[1][:, [-1, -2]]
    top = top * np.sign(top[np.abs(top).argmax(axis=0), [0, 1]])
    return np.asarray((X - mean) @ top)
