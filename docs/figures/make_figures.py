"""Draw the figures of the documentation: ``make figures``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

import percolab as pl
from percolab.show import draw
from percolab.show.style import PALETTE

HERE = Path(__file__).parent
EXAMPLE = pl.Recipe(n_points=12, dim=2, seeds=8289, engine="paper")
"""Twelve points in three clusters; the worked example of data-model.md is the same."""
LEFT, RIGHT, INK, FAINT = "#a6cee8", "#f6d9a0", "#222222", "#8a8a8a"
CLUSTER = (PALETTE[0], PALETTE[5], PALETTE[2])


def main() -> None:
    """Write the figures beside this file."""
    recipe = pl.Recipe(n_points=20_000, dim=50, mode="one_cluster", seeds=7, engine="paper")
    draw(pl.generate(recipe)).savefig(HERE / "cluster.png", dpi=150)
    lexicon = pl.Recipe(n_points=1024, dim=2, mode="one_cluster", seeds=1)
    draw(pl.Corpus(lexicon, seed=3), 2**40 + 7).savefig(HERE / "document.png", dpi=150)
    draw_data_model(pl.generate(EXAMPLE)).savefig(HERE / "data_model.png", dpi=150)


def draw_data_model(dataset: pl.Dataset) -> Figure:
    """Draw a small dataset in space, its merger trees over the rows, and the columns that hold them."""
    figure = Figure(figsize=(12.5, 6.8), layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.12))
    space, table = figure.subplots(1, 2, width_ratios=[1, 1.75])
    draw_space(space, dataset)
    space.set_title("In space: discs are rows, boxes are latents", fontsize=11, color=INK)
    table.set_title("In the table: the points of a latent are an interval of rows", fontsize=11, color=INK)
    table.set_axis_off()
    table.set_xlim(-4.9, 11.8)
    table.set_ylim(-15.4, 5.4)
    draw_trees(table, dataset.forest)
    draw_rows(table, dataset.forest)
    draw_latents(table, dataset.forest)
    return figure


def draw_space(axes: Axes, dataset: pl.Dataset) -> None:
    """Draw points with their row, bonds with their latent."""
    X, forest = np.asarray(dataset.X), dataset.forest
    for i, (a, b) in enumerate(forest.bond):
        colour = CLUSTER[forest.latent_cluster[i]]
        axes.plot(*X[[a, b]].T, color=colour, linewidth=2, zorder=1)
        latent_mark(axes, *X[[a, b]].mean(0), i, colour)
    axes.scatter(*X.T, s=330, c=[CLUSTER[c] for c in forest.point_cluster], zorder=3)
    for row, (x, y) in enumerate(X):
        axes.text(x, y, str(row), color="white", ha="center", va="center_baseline", weight="bold", zorder=4)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.12)
    axes.set_axis_off()
    axes.set_anchor("C")


def latent_mark(axes: Axes, x: float, y: float, latent: int, colour: str) -> None:
    """Write a latent's index in a box."""
    box = {"boxstyle": "square,pad=0.25", "facecolor": "white", "edgecolor": colour, "linewidth": 1.2}
    axes.text(x, y, str(latent), ha="center", va="center", fontsize=9, color=colour, bbox=box, zorder=5)


def draw_trees(axes: Axes, forest: pl.Forest) -> None:
    """Draw merger trees: one elbow from each latent to each child."""
    n = forest.n_points
    # Right over the gap between its two sides, so that the picture shows where a latent splits.
    x = forest.latent_start + forest.left_size - 0.5
    height = np.full(n + forest.n_latents, 0.45)
    for i in reversed(range(forest.n_latents)):
        height[n + i] = max(height[forest.latent_children[i]]) + 1.05
    height = height[n:]
    for i, children in enumerate(forest.latent_children):
        colour = CLUSTER[forest.latent_cluster[i]]
        for code in children:
            end = (code, 0.45) if code < n else (x[code - n], height[code - n])
            axes.plot([x[i], end[0], end[0]], [height[i], height[i], end[1]], color=colour, linewidth=1.6)
        latent_mark(axes, x[i], height[i], i, colour)


def draw_rows(axes: Axes, forest: pl.Forest) -> None:
    """Draw the rows, and the columns that have one value per point or per cluster."""
    axes.scatter(
        np.arange(forest.n_points), np.zeros(forest.n_points), s=250, c=[CLUSTER[c] for c in forest.point_cluster]
    )
    axes.text(-0.8, 0, "row", ha="right", va="center", color=FAINT, style="italic")
    name(axes, -1.2, "point_id")
    name(axes, -2.35, "cluster_start")
    name(axes, -3.3, "cluster_id")
    for row in range(forest.n_points):
        axes.text(row, 0, str(row), color="white", ha="center", va="center_baseline", weight="bold")
        value(axes, row, -1.2, forest.point_id[row])
    for c, (lo, hi) in enumerate(zip(forest.cluster_start[:-1], forest.cluster_start[1:], strict=True)):
        axes.plot([lo - 0.42, hi - 0.58], [-2.82, -2.82], color=CLUSTER[c], linewidth=3, solid_capstyle="butt")
        value(axes, (lo + hi - 1) / 2, -3.3, forest.cluster_id[c])
    for edge in forest.cluster_start:
        value(axes, edge - 0.5, -2.35, edge)


def draw_latents(axes: Axes, forest: pl.Forest) -> None:
    """Write the columns that have one value per latent, beside the interval that each stands for."""
    for x, text in ((-4.5, "latent"), (-2.9, "left_size"), (-1.3, "bond")):
        style = {"style": "italic", "color": FAINT} if text == "latent" else {"family": "monospace", "color": INK}
        axes.text(x, -4.75, text, ha="center", va="center", fontsize=10, **style)
    axes.text(
        5.5, -4.75, "left interval | right interval, and the bond between them", ha="center", va="center", color=FAINT
    )
    for i in range(forest.n_latents):
        y, colour = -5.9 - 1.1 * i, CLUSTER[forest.latent_cluster[i]]
        lo, size, left = forest.latent_start[i], forest.latent_size[i], forest.left_size[i]
        axes.barh(y, left - 0.08, left=lo - 0.5 + 0.04, height=0.72, color=LEFT)
        axes.barh(y, size - left - 0.08, left=lo + left - 0.5 + 0.04, height=0.72, color=RIGHT)
        axes.plot(forest.bond[i], [y, y], "-o", color=INK, linewidth=1.3, markersize=5)
        latent_mark(axes, -4.5, y, i, colour)
        value(axes, -2.9, y, left)
        value(axes, -1.3, y, f"{forest.bond[i, 0]}  {forest.bond[i, 1]}")


def name(axes: Axes, y: float, text: str) -> None:
    """Write the name of a column."""
    axes.text(-0.8, y, text, ha="right", va="center", family="monospace", fontsize=10, color=INK)


def value(axes: Axes, x: float, y: float, content: object) -> None:
    """Write an entry of a column."""
    axes.text(x, y, str(content), ha="center", va="center", fontsize=10, color=INK)


if __name__ == "__main__":
    main()
