"""Drawing: a cluster in space beside its latent tree. Needs matplotlib, in the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.dataset.dataset import Dataset
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_index, check_integer
from percolab.model.forest import Forest
from percolab.show import latent_colours, style
from percolab.show.belief_map import draw_document
from percolab.show.latent_colours import TRUNK, Colouring
from percolab.show.style import PALETTE
from percolab.worlds.superposed import AnyDataset, truth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: A latent with a smaller share of a cluster's points is not drawn in the tree: it would be too narrow to be seen.
SEEN_SHARE = 1 / 250
PART_ROWS = 1 << 13


def draw(
    data: AnyDataset | Corpus | StoredDocuments,
    number: int = 0,
    *,
    factor: int | None = None,
    colour: str | ArrayLike | None = None,
    label: str = "",
    latents: Sequence[int] | None = None,
    n_groups: int = len(PALETTE),
) -> Figure:
    """Draw one cluster in space, beside its latent tree, in the same colours; for documents, draw one document.

    Space is the plane of the cluster's first two principal components; bonds are lines. The tree has the cluster's
    rows along x and the number of points of a latent along y, so the top is the whole cluster; latents too small to
    be seen are left out. For a superposed world, a cluster of one factor is drawn in the factor's own space.

    A document is drawn over the tree of its lexicon: the belief in every context along it, its tokens, and the floor of
    the loss. The only option for documents is the number.

    Parameters
    ----------
    data
        Any dataset, world, corpus or stored documents; only the cluster's rows of X are read. The X of a factor is made
        again.
    number
        The cluster: 0 is the largest. For documents, the document of the corpus, or of the stored ones.
    factor
        The factor of the cluster, in a superposed world of several factors.
    colour
        ``"y"``, ``"z"``, or an array with a value for each row of the dataset, such as a unit's activation. A bond and
        a branch of the tree belong to a latent: they show its z, or the mean of y or of the array over its points. In a
        world, y and z are the factor's, and the array has a value for each sample: a point has the mean over its
        samples, and is grey if it has none.
    label
        The label of the colour bar; by default y, z or value.
    latents
        Up to 6 latents to colour, by their indices in the dataset; of nested latents the smallest counts. With neither
        this nor `colour`, the colours show up to `n_groups` disjoint latents, found by splitting the largest piece
        until there are enough large ones. Points and latents outside all coloured latents are grey.
    n_groups
        Number of colours, at most 6.

    Returns
    -------
    matplotlib.figure.Figure
        Not registered with pyplot; save it with ``figure.savefig("cluster.png", dpi=200)``.
    """
    if isinstance(data, StoredDocuments):
        return draw_document(data.corpus, data.recipe.lo + check_index("document", number, len(data.recipe)))
    if isinstance(data, Corpus):
        return draw_document(data, number)
    known = truth(data, factor)
    if colour is not None and not isinstance(colour, str):
        colour = latent_colours.of_rows(known, colour)
    owner = known.dataset
    with style.sheet():
        figure = style.new_figure(11, 5.2)
        forest = owner.forest.cluster(number)
        if forest.n_points < 2:
            raise ValueError(f"cluster must have at least 2 points to be drawn, got cluster {number} with 1")
        look = _colouring(owner, number, forest, colour, latents, n_groups)
        first = int(owner.forest.cluster_start[number])
        plane, share = principal_components(np.asarray(owner.X[first : first + forest.n_points]))
        space, tree = figure.subplots(1, 2)
        draw_space(space, forest, plane, share, look)
        draw_tree(tree, forest, look)
        if look.scale is not None:
            figure.colorbar(look.scale, ax=[space, tree], label=label or look.name, fraction=0.03, pad=0.01)
        for shade, name in look.labels:
            space.plot([], [], "o", color=shade, label=name)
        if look.labels:
            space.legend(loc="best", frameon=True, framealpha=0.8)
        n, dim = owner.forest.n_points, owner.recipe.dim
        of = "" if owner is data else f" of factor {factor or 0}"
        figure.suptitle(f"Cluster {number}{of}: {forest.n_points:,} of {n:,} points in {dim} dimensions", fontsize=12)
    return figure


def _colouring(
    dataset: Dataset,
    cluster: int,
    forest: Forest,
    colour: str | ArrayLike | None,
    latents: Sequence[int] | None,
    n_groups: int,
) -> Colouring:
    """Return the colours that the arguments of `draw` select."""
    n_groups = check_integer("n_groups", n_groups, 1)
    if n_groups > len(PALETTE):
        raise ValueError(f"n_groups must be at most {len(PALETTE)}, got {n_groups}")
    if colour is not None:
        if latents is not None:
            raise ValueError(f"latents must be left out with colour, got {latents}")
        return latent_colours.by_values(forest, *latent_colours.values_of(dataset, cluster, colour))
    if latents is not None:
        return latent_colours.by_groups(forest, *latent_colours.chosen_groups(dataset, cluster, latents))
    return latent_colours.by_groups(forest, latent_colours.disjoint_groups(forest, n_groups))


# ---------------------------------------------------------------------- what to draw


def principal_components(X: NDArray[Any], n_axes: int = 2) -> tuple[Floats, Floats]:
    """Return rows in their first principal components, and the variance share of each; 0 if there are fewer."""
    n, dim = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    # In parts: a centred float64 copy of a sample in many dimensions would be the largest array in memory.
    parts = [slice(lo, lo + PART_ROWS) for lo in range(0, n, PART_ROWS)]
    if n < dim:
        points = X - mean
        dual, share = top_axes(points @ points.T, n_axes)
        axes = _signed(points.T @ dual / np.maximum(np.linalg.norm(points.T @ dual, axis=0), np.finfo(float).tiny))
    else:
        squares = np.zeros((dim, dim))
        for part in parts:
            points = X[part] - mean
            squares += points.T @ points
        axes, share = top_axes(squares, n_axes)
    places = np.zeros((n, n_axes))
    for part in parts:
        places[part, : share.size] = (X[part] - mean) @ axes
    return places, np.pad(share, (0, n_axes - share.size))


def top_axes(squares: Floats, n_axes: int = 2) -> tuple[Floats, Floats]:
    """Return the first principal axes as columns, and the variance share of each, from a covariance or its multiple."""
    variance, vectors = np.linalg.eigh(squares)
    known = np.maximum(variance[::-1], 0)
    return _signed(vectors[:, ::-1][:, :n_axes]), known[:n_axes] / max(known.sum(), np.finfo(float).tiny)


def _signed(axes: Floats) -> Floats:
    """Return axes whose largest entry is positive: the sign of an axis is arbitrary, and this makes it reproducible."""
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return axes * np.where(largest < 0, -1.0, 1.0)


# ---------------------------------------------------------------------- the two panels


def draw_space(axes: Axes, forest: Forest, plane: Floats, share: Floats, look: Colouring) -> None:
    """Draw the points and bonds of a one-cluster forest in a plane."""
    from matplotlib.collections import LineCollection

    n = forest.n_points
    width = float(np.clip(30 / np.sqrt(n), 0.25, 1.5))
    bonds = LineCollection(
        list(plane[forest.bond[look.bond_order]]),
        colors=look.latents[look.bond_order],
        linewidths=width,
        alpha=0.7,
        rasterized=True,
    )
    axes.add_collection(bonds)
    x, y = plane[look.point_order].T
    axes.scatter(
        x,
        y,
        c=look.points[look.point_order],
        s=float(np.clip(6000 / n, 0.6, 40)),
        linewidths=0,
        zorder=2,
        rasterized=True,
    )
    if forest.n_extra_bonds:
        closing = LineCollection(list(plane[forest.extra_bond]), colors=TRUNK, linewidths=width / 2, linestyles=":")
        closing.set_rasterized(True)
        axes.add_collection(closing)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)
    axes.set_xlabel(f"first principal component ({share[0]:.0%} of variance)")
    axes.set_ylabel(f"second principal component ({share[1]:.0%})")
    axes.set_title("in space")


def draw_tree(axes: Axes, forest: Forest, look: Colouring) -> None:
    """Draw the latent tree of a one-cluster forest."""
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator

    n, size = forest.n_points, forest.latent_size
    smallest = max(1, round(SEEN_SHARE * n))
    corners, node = _elbows(forest, smallest)
    rank = np.empty(2 * n - 1, np.int64)
    rank[look.tree_order] = np.arange(2 * n - 1)
    order = np.argsort(rank[node])
    shades = np.concatenate([look.latents, look.points])[node][order]
    width = float(np.clip(40 / np.sqrt(len(node)), 0.5, 1.6))
    axes.add_collection(LineCollection(list(corners[order]), colors=shades, linewidths=width))
    axes.plot([(n - 1) / 2], [n], "o", color=TRUNK, markersize=4)
    axes.set_xlim(-0.5 - 0.01 * n, n - 0.5 + 0.01 * n)
    axes.set_ylim(smallest / 1.2, n * 1.2)
    axes.set_xlabel("row, in leaf order")
    axes.set_ylabel("points of the latent")
    shown = np.count_nonzero(size >= smallest)
    what = f"latents of at least {smallest:,} points, {shown:,} of {size.size:,}" if smallest > 1 else "all latents"
    axes.set_title(f"its latent tree ({what})")
    axes.set_yscale("log")
    style.plain_numbers(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _elbows(forest: Forest, smallest: int) -> tuple[Floats, Ints]:
    """Return the lines from every child of at least `smallest` points up to its parent, and the child of each.

    A line has three corners: over the middle of the parent's rows, across to the middle of the child's rows, down to
    the child. A child is a latent by its index, or a point by its row after all latents.
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
    return np.stack([x, y], axis=2), np.where(child < n, child + n - 1, child - n)
