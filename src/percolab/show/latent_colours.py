"""Colours of the points, bonds and latents of a cluster: by chosen latents, or by a value of every point."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_choice, check_finite, check_index
from percolab.model.forest import Forest
from percolab.show import style
from percolab.show.style import PALETTE
from percolab.worlds.superposed import Truth

if TYPE_CHECKING:
    from matplotlib.cm import ScalarMappable


#: Colours of latents above the coloured ones, and of points and latents outside all of them.
TRUNK, REST = "#333333", style.MIDDLE

GROUP_SHARE = 0.03  #: Share of a cluster's points that a group must have to get a colour.
#: Values that every dataset has. z is a point's value for points, and a latent's value for its bond.
NAMED = ("y", "z")
WITHIN = 0.99  #: Share of the values that the colour map distinguishes; the rest gets the colours of its ends.


@dataclass(frozen=True, eq=False)
class Colouring:
    """Colours of a one-cluster forest."""

    points: NDArray[Any]  #: (n,) names or (n, 4) colours; also of the line from a point to its latent, in a tree
    latents: NDArray[Any]  #: (n - 1,) colours of latents, hence of bonds
    point_order: Ints  #: order in which points are drawn; important points come last
    bond_order: Ints
    tree_order: Ints  #: order of latents, then of points
    scale: ScalarMappable | None = None  #: the meaning of colours, for a colour bar
    name: str = ""  #: name of the values, for a colour bar
    labels: tuple[tuple[str, str], ...] = ()  #: colours and texts, for a legend


# ---------------------------------------------------------------------- by latents


def by_groups(forest: Forest, groups: Ints, labels: Sequence[str] = ()) -> Colouring:
    """Colour the points and latents inside some latents of a one-cluster forest; if nested, the smallest counts."""
    latent_group = latent_groups(forest, groups)
    # A point is in the group of its latent; it is in no group if its latent is above a group.
    group = np.maximum(latent_group[forest.point_parent], -1)
    # The trunk is drawn last in a tree, since all branches begin there.
    tree = np.concatenate([latent_group, group])
    return Colouring(
        colours(group),
        colours(latent_group),
        np.argsort(group >= 0, kind="stable"),
        np.argsort(latent_group >= 0, kind="stable"),
        np.argsort(np.where(tree == -2, forest.n_points, tree), kind="stable"),
        labels=tuple(zip(PALETTE, labels, strict=False)),
    )


def disjoint_groups(forest: Forest, n_groups: int) -> Ints:
    """Return up to `n_groups` disjoint latents of a one-cluster forest, the leftmost first.

    The largest piece is split until there are enough large pieces.
    """
    size, children, n = forest.latent_size, forest.latent_children, forest.n_points
    enough = max(2, GROUP_SHARE * n)
    pieces = [(-n, 0)]
    unsplit: list[int] = []
    while pieces and len(pieces) + len(unsplit) < n_groups:
        _, latent = heapq.heappop(pieces)
        parts = [int(code) - n for code in children[latent] if code >= n and size[code - n] >= enough]
        for part in parts:
            heapq.heappush(pieces, (-int(size[part]), part))
        if not parts:
            unsplit.append(latent)
    return np.sort([*unsplit, *(latent for _, latent in pieces)])


def latent_groups(forest: Forest, groups: Ints) -> Ints:
    """Return, for every latent of a one-cluster forest, its group; -1 for none and -2 above a group."""
    start, size = forest.latent_start, forest.latent_size
    group = np.full(forest.n_latents, -1, np.int64)
    for k in np.argsort(-size[groups], kind="stable"):
        latent = groups[k]
        group[latent : latent + size[latent] - 1] = k
    for latent in groups:
        above = (start <= start[latent]) & (start[latent] + size[latent] <= start + size) & (size > size[latent])
        group[above & (group == -1)] = -2
    return group


def colours(group: Ints) -> NDArray[np.str_]:
    """Return the colour of each group; grey for none, dark for latents above a group."""
    return np.array([*PALETTE, TRUNK, REST])[group]


def chosen_groups(dataset: Dataset, cluster: int, latents: Sequence[int]) -> tuple[Ints, list[str]]:
    """Return chosen latents of a dataset as latents of one of its clusters, and the legend entry of each."""
    forest = dataset.forest
    if not 1 <= len(latents) <= len(PALETTE):
        raise ValueError(f"latents must be 1 to {len(PALETTE)} latents, got {len(latents)}")
    first = int(forest.cluster_start[cluster]) - cluster
    for latent in latents:
        check_index("latents", latent, forest.n_latents)
        if forest.latent_cluster[latent] != cluster:
            where = forest.latent_cluster[latent]
            raise ValueError(f"latents must be of cluster {cluster}, got {latent} of cluster {where}")
    labels = [f"latent {latent}: {forest.latent_size[latent]:,} points" for latent in latents]
    return np.array(latents, np.int64) - first, labels


# ---------------------------------------------------------------------- by values


def by_values(forest: Forest, of_points: Floats, of_latents: Floats, name: str) -> Colouring:
    """Colour a one-cluster forest by a value of every point and of every latent."""
    known = of_points[~np.isnan(of_points)]
    if not known.size:
        raise ValueError("colour must have a value for a point of the cluster, got none")
    low, high = (float(edge) for edge in np.quantile(known, [1 - WITHIN, WITHIN]))
    scale = style.colour_scale(low, high)
    scale.set_cmap(scale.get_cmap().with_extremes(bad=REST))
    points, latents = (scale.to_rgba(np.ma.masked_invalid(values)) for values in (of_points, of_latents))
    # Values far from the middle, or large values, are drawn on top; points without a value are drawn below all others.
    weight, latent_weight = (np.nan_to_num(values, nan=low) for values in (of_points, of_latents))
    if low < 0 < high:
        weight, latent_weight = np.abs(np.nan_to_num(of_points)), np.abs(np.nan_to_num(of_latents))
    tree = np.concatenate([latent_weight, weight])
    orders = [np.argsort(values, kind="stable") for values in (weight, latent_weight, tree)]
    return Colouring(points, latents, orders[0], orders[1], orders[2], scale, name)


def values_of(dataset: Dataset, cluster: int, colour: str | ArrayLike) -> tuple[Floats, Floats, str]:
    """Return the values that colour a cluster: one per point and one per latent, and their name.

    Parameters
    ----------
    dataset, cluster
        Which cluster.
    colour
        ``"y"``, whose mean over its points is the value of a latent; ``"z"``; or a result of `of_rows`, treated like y.
    """
    forest = dataset.forest
    rows = slice(int(forest.cluster_start[cluster]), int(forest.cluster_start[cluster + 1]))
    if isinstance(colour, str):
        check_choice("colour", colour, NAMED)
        if colour == "z":
            latents = slice(rows.start - cluster, rows.stop - cluster - 1)
            return np.asarray(dataset.point_z[rows]), np.asarray(dataset.latent_z[latents]), "z"
        if dataset.y.ndim > 1:
            raise ValueError(f"y must have one number per row to be a colour, got {dataset.y.shape[1]}")
        points = np.asarray(dataset.y[rows], np.float64)
    else:
        points = np.asarray(np.asarray(colour)[rows], np.float64)
    return points, _means(forest.cluster(cluster), points), colour if isinstance(colour, str) else "value"


def _means(forest: Forest, points: Floats) -> Floats:
    """Return the mean of values over the points of each latent that have a value; NaN if none has."""
    known = ~np.isnan(points)
    edges = forest.latent_start, forest.latent_start + forest.latent_size
    columns = np.where(known, points, 0.0), known.astype(np.float64)
    total, count = (np.concatenate([[0.0], np.cumsum(column)]) for column in columns)
    sums, counts = total[edges[1]] - total[edges[0]], count[edges[1]] - count[edges[0]]
    return np.asarray(np.divide(sums, counts, out=np.full(sums.size, np.nan), where=counts > 0))


def of_rows(known: Truth, values: ArrayLike) -> Floats:
    """Return values of samples as values of the rows of a hierarchy: the mean over each row's samples, NaN if none."""
    column = np.asarray(values)
    if column.shape != known.rows.shape:
        raise ValueError(f"colour must have shape {known.rows.shape}, one value per row, got {column.shape}")
    numbers = column.astype(np.float64)
    check_finite("colour", numbers)
    if known.in_order:
        return numbers
    n = known.forest.n_points
    count, total = np.bincount(known.rows, minlength=n), np.bincount(known.rows, numbers, minlength=n)
    return np.asarray(np.divide(total, count, out=np.full(n, np.nan), where=count > 0))
