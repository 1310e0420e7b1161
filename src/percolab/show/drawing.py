"""Drawing: a cluster in space beside its latent tree. Needs matplotlib, in the extra ``plot``."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground.validation import check_integer
from percolab.model.forest import Forest
from percolab.show.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ints = NDArray[np.int64]

TRUNK = "#333333"
REST = "#b5b5b5"

GROUP_SHARE = 0.03
"""Share of a cluster's points that a group must have to get a colour."""
SEEN_SHARE = 1 / 250
"""Share of a cluster's points below which a latent is not drawn in the tree: it would be too narrow to be seen."""
BLOCK_ROWS = 1 << 16


def draw_cluster(dataset: Dataset, cluster: int = 0, *, n_groups: int = len(PALETTE)) -> Figure:
    """Draw one cluster in space, beside its latent tree, in the same colours.

    Space is the plane of the cluster's first two principal components; bonds are lines. The tree has the cluster's
    rows along x and the number of points of a latent along y, so the top is the whole cluster; latents too small to
    be seen are left out. Colours are up to `n_groups` disjoint latents, found by splitting the largest piece until
    there are enough large ones. What belongs to no group is grey.

    Parameters
    ----------
    dataset
        Any dataset; of X only the cluster's rows are read.
    cluster
        Index of the cluster: 0 is the largest.
    n_groups
        Number of colours, at most 6.

    Returns
    -------
    matplotlib.figure.Figure
        Not registered with pyplot; save it with ``figure.savefig("cluster.png", dpi=200)``.
    """
    figure_class = _figure_class()
    n_groups = check_integer("n_groups", n_groups, 1)
    if n_groups > len(PALETTE):
        raise ValueError(f"n_groups must be at most {len(PALETTE)}, got {n_groups}")
    forest = dataset.forest.cluster(cluster)
    if forest.n_points < 2:
        raise ValueError(f"cluster must have at least 2 points to be drawn, got cluster {cluster} with 1")
    first = int(dataset.forest.cluster_start[cluster])
    plane, share = principal_plane(dataset.X, first, forest.n_points)
    groups = disjoint_groups(forest, n_groups)
    figure = figure_class(figsize=(11, 5.2), layout="constrained")
    space, tree = figure.subplots(1, 2)
    draw_space(space, forest, plane, share, groups)
    draw_tree(tree, forest, groups)
    recipe = dataset.recipe
    figure.suptitle(
        f"Cluster {cluster}: {forest.n_points:,} of {dataset.forest.n_points:,} points in {recipe.dim} dimensions",
        fontsize=12,
    )
    return figure


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'percolab[plot]'") from error
    return Figure


# ---------------------------------------------------------------------- what to draw


def principal_plane(X: Any, first: int, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows first … first + n - 1 in their two principal components, and the variance share of each."""
    dim = X.shape[1]
    blocks = [slice(lo, min(lo + BLOCK_ROWS, first + n)) for lo in range(first, first + n, BLOCK_ROWS)]
    total, square = np.zeros(dim), np.zeros((dim, dim))
    for rows in blocks:
        block = np.asarray(X[rows], np.float64)
        total += block.sum(0)
        square += block.T @ block
    mean = total / n
    variance, axes = np.linalg.eigh(square / n - np.outer(mean, mean))
    top = axes[:, [-1, -2]]
    # An axis has no sign of its own; this choice makes the picture the same everywhere.
    top *= np.sign(top[np.abs(top).argmax(0), [0, 1]])
    plane = np.concatenate([(np.asarray(X[rows], np.float64) - mean) @ top for rows in blocks])
    return plane, np.maximum(variance[[-1, -2]], 0) / max(variance.sum(), np.finfo(float).tiny)


def disjoint_groups(forest: Forest, n_groups: int) -> Ints:
    """Return up to `n_groups` disjoint latents of a one-cluster forest, the leftmost first."""
    size, children, n = forest.latent_size, forest.latent_children, forest.n_points
    enough = max(2, GROUP_SHARE * n)
    pieces = [(-n, 0)]
    kept: list[int] = []
    while pieces and len(pieces) + len(kept) < n_groups:
        _, latent = heapq.heappop(pieces)
        parts = [int(code) - n for code in children[latent] if code >= n and size[code - n] >= enough]
        for part in parts:
            heapq.heappush(pieces, (-int(size[part]), part))
        if not parts:
            kept.append(latent)
    return np.sort([*kept, *(latent for _, latent in pieces)])


def latent_groups(forest: Forest, groups: Ints) -> Ints:
    """Return, for every latent of a one-cluster forest, its group; -1 for none and -2 above a group."""
    start, size = forest.latent_start, forest.latent_size
    group = np.full(forest.n_latents, -1, np.int64)
    for k, latent in enumerate(groups):
        group[latent : latent + size[latent] - 1] = k
        above = (start <= start[latent]) & (start[latent] + size[latent] <= start + size) & (size > size[latent])
        group[above] = -2
    return group


def colours(group: Ints) -> NDArray[np.str_]:
    """Return the colour of each group; grey for none, dark for what is above a group."""
    return np.array([*PALETTE, TRUNK, REST])[group]


# ---------------------------------------------------------------------- the two panels


def draw_space(
    axes: Axes, forest: Forest, plane: NDArray[np.float64], share: NDArray[np.float64], groups: Ints
) -> None:
    """Draw the points and bonds of a one-cluster forest in a plane, its groups in colour."""
    from matplotlib.collections import LineCollection

    n = forest.n_points
    group = np.full(n, -1, np.int64)
    for k, latent in enumerate(groups):
        group[forest.points_of(latent)] = k
    bond_group = latent_groups(forest, groups)
    width = float(np.clip(30 / np.sqrt(n), 0.25, 1.5))
    order = np.argsort(bond_group >= 0, kind="stable")
    bonds = LineCollection(
        list(plane[forest.bond[order]]),
        colors=colours(bond_group)[order],
        linewidths=width,
        alpha=0.7,
        rasterized=True,
    )
    axes.add_collection(bonds)
    order = np.argsort(group >= 0, kind="stable")
    axes.scatter(
        plane[order, 0],
        plane[order, 1],
        c=colours(group)[order],
        s=float(np.clip(6000 / n, 0.6, 40)),
        linewidths=0,
        zorder=2,
        rasterized=True,
    )
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)
    axes.set_xlabel(f"first principal component ({share[0]:.0%} of variance)")
    axes.set_ylabel(f"second principal component ({share[1]:.0%})")
    axes.set_title("in space", fontsize=11)
    _plain(axes)


def draw_tree(axes: Axes, forest: Forest, groups: Ints) -> None:
    """Draw the latent tree of a one-cluster forest, its groups in colour."""
    from matplotlib.collections import LineCollection

    n, size = forest.n_points, forest.latent_size
    smallest = max(1, round(SEEN_SHARE * n))
    corners, group = _elbows(forest, latent_groups(forest, groups), smallest)
    order = np.argsort(np.where(group == -2, len(PALETTE), group), kind="stable")  # the trunk is drawn last
    width = float(np.clip(40 / np.sqrt(len(group)), 0.5, 1.6))
    axes.add_collection(LineCollection(list(corners[order]), colors=colours(group)[order], linewidths=width))
    axes.plot([(n - 1) / 2], [n], "o", color=TRUNK, markersize=4)
    axes.set_xlim(-0.5 - 0.01 * n, n - 0.5 + 0.01 * n)
    axes.set_ylim(smallest / 1.2, n * 1.2)
    axes.set_xlabel("row, in leaf order")
    axes.set_ylabel("points of the latent")
    shown = np.count_nonzero(size >= smallest)
    what = f"latents of at least {smallest:,} points, {shown:,} of {size.size:,}" if smallest > 1 else "all latents"
    axes.set_title(f"its latent tree ({what})", fontsize=11)
    _count_ticks(axes, n / smallest)
    _plain(axes)


def _elbows(forest: Forest, latent_group: Ints, smallest: int) -> tuple[NDArray[np.float64], Ints]:
    """Return the lines from every child of at least `smallest` points up to its parent, and the group of each.

    A line has three corners: over the middle of the parent's rows, across to the middle of the child's, down to it.
    """
    n, size = forest.n_points, forest.latent_size
    node_size = np.concatenate([np.ones(n, np.int64), size])
    middle = np.concatenate([np.arange(n), forest.latent_start + (size - 1) / 2])
    child = forest.latent_children.ravel()
    parent = np.repeat(np.arange(forest.n_latents), 2)
    shown = node_size[child] >= smallest
    child, parent = child[shown], parent[shown]
    x = np.column_stack([middle[n + parent], middle[child], middle[child]])
    y = np.column_stack([size[parent], size[parent], node_size[child]])
    # A point is in the group of its parent, unless that is above a group: then it is in none.
    of_parent = np.where(latent_group == -2, -1, latent_group)[parent]
    group = np.where(child < n, of_parent, latent_group[np.maximum(child - n, 0)])
    return np.stack([x, y], axis=2), group


def _count_ticks(axes: Axes, decades: float) -> None:
    """Put a logarithmic axis of counts in y, and write counts in full on both axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 300 else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
