"""Figure 2: percolation on the Bethe lattice with z = 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ints = NDArray[np.int64]

PROB, DEPTH, DRAWN, SEED = 0.6, 15, 7, 5
"""Share of occupied nodes, shells that are sampled, shells that are drawn, seed."""


def draw(quick: bool = False) -> Figure:
    """Draw a sample of a Bethe lattice: infinite clusters red, finite ones blue, empty nodes hollow.

    Fifteen shells are sampled and seven drawn; a cluster counts as infinite if it reaches the last shell sampled.
    """
    parent, shell, angle = lattice(DEPTH)
    occupied, infinite = percolate(parent, shell, PROB, np.random.default_rng(SEED))
    figure = style.new_figure(5.2, 5.6)
    axes = figure.subplots()
    _draw_nodes(axes, parent, shell, angle, occupied, infinite)
    axes.set_title(f"z = 3, p = {PROB} above the threshold p$_c$ = {theory.bethe_threshold(3):g}")
    return figure


def lattice(depth: int) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Return parent, shell and angle of every node of a Bethe lattice with z = 3, shell after shell from the centre."""
    parent, shell, angle = [np.array([-1])], [np.array([0])], [np.array([0.0])]
    first = 0
    for s in range(1, depth + 1):
        children = 3 if s == 1 else 2
        above = first + np.arange(parent[-1].size)
        parent.append(np.repeat(above, children))
        count = parent[-1].size
        shell.append(np.full(count, s))
        angle.append(2 * np.pi * (np.arange(count) + 0.5) / count + np.pi / 2)
        first += above.size
    return np.concatenate(parent), np.concatenate(shell), np.concatenate(angle)


def percolate(
    parent: Ints, shell: Ints, prob: float, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Occupy nodes at random; return which are occupied, and which of these are connected to the last shell."""
    occupied = rng.random(parent.size) < prob
    infinite = occupied & (shell == shell.max())
    for node in range(parent.size - 1, 0, -1):  # up to the node of its cluster that is nearest to the centre
        if infinite[node] and occupied[parent[node]]:
            infinite[parent[node]] = True
    for node in range(1, parent.size):  # and down again to all its other branches
        if occupied[node] and infinite[parent[node]]:
            infinite[node] = True
    return occupied, infinite


def _draw_nodes(
    axes: Axes,
    parent: Ints,
    shell: Ints,
    angle: NDArray[np.float64],
    occupied: NDArray[np.bool_],
    infinite: NDArray[np.bool_],
) -> None:
    from matplotlib.collections import LineCollection

    radius = np.array([0, *np.cumsum(0.93 ** np.arange(shell.max()))])[shell]
    place = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    drawn = np.flatnonzero((shell <= DRAWN) & (parent >= 0))
    lines = np.stack([place[drawn], place[parent[drawn]]], axis=1)
    joined = occupied[drawn] & occupied[parent[drawn]]
    red = joined & infinite[drawn]
    kinds = ((~joined, style.FAINT, 0.7), (joined & ~red, style.BLUE, 1.6), (red, style.VERMILION, 2.6))
    for chosen, colour, width in kinds:
        axes.add_collection(LineCollection(list(lines[chosen]), colors=colour, linewidths=width, zorder=1))
    seen = shell <= DRAWN
    area = np.interp(shell, [0, DRAWN], [70, 9])
    marks = (
        (seen & ~occupied, "o", "white", style.GREY, "empty"),
        (seen & occupied & ~infinite, "s", style.BLUE, style.BLUE, "finite clusters"),
        (seen & infinite, "o", style.VERMILION, style.VERMILION, "infinite clusters"),
    )
    look: dict[str, Any]
    for chosen, mark, face, edge, label in marks:
        x, y = place[chosen].T
        look = {"marker": mark, "facecolor": face, "edgecolor": edge, "linewidths": 0.7, "zorder": 2, "label": label}
        axes.scatter(x, y, area[chosen], **look)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.02)
    handles, labels = axes.get_legend_handles_labels()
    legend = axes.legend(handles[::-1], labels[::-1], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3)
    for handle in legend.legend_handles:
        handle.set_sizes([36])  # type: ignore[union-attr]
