"""Who is above, below and beside whom: the answers of `Forest` about rows, latents and nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.model import ancestry, bonds, hierarchy
from percolab.model.ancestry import Ragged
from percolab.model.indices import indices, listed, one

if TYPE_CHECKING:
    from percolab.model.forest import Forest

Ints = NDArray[np.int64]


def points_of(forest: Forest, latents: Any) -> slice | tuple[Ints, Ints]:
    """Return the rows of latents: see `Forest.points_of`."""
    if np.ndim(latents) == 0:
        latent = one("latent", latents, forest.n_latents)
        start = int(forest.latent_start[latent])
        return slice(start, start + int(forest.latent_size[latent]))
    chosen = listed("latents", latents, forest.n_latents)
    starts = forest.latent_start[chosen]
    return starts, starts + forest.latent_size[chosen]


def descendants(forest: Forest, latents: Any) -> slice | tuple[Ints, Ints]:
    """Return the latents below latents, of which one with m rows has m - 2: see `Forest.descendants`."""
    if np.ndim(latents) == 0:
        latent = one("latent", latents, forest.n_latents)
        return slice(latent + 1, latent + int(forest.latent_size[latent]) - 1)
    chosen = listed("latents", latents, forest.n_latents)
    return chosen + 1, chosen + forest.latent_size[chosen] - 1


def path(forest: Forest, rows: Any) -> Ints | Ragged:
    """Return the latents above rows: see `Forest.path`. For one row it needs no derived column."""
    if np.ndim(rows):
        last = forest.point_parent[listed("rows", rows, forest.n_points)]
        return ancestry.paths_to(last, forest.latent_parent, forest.latent_depth)
    row = one("row", rows, forest.n_points)
    c = int(np.searchsorted(forest.cluster_start, row, side="right")) - 1
    first = int(forest.cluster_start[c])
    place = forest.left_size, first - c, first, int(forest.cluster_start[c + 1]) - first, row
    length = hierarchy.path(*place, np.empty(0, np.int64))
    latents = np.empty(length, np.int64)
    hierarchy.path(*place, latents)
    return latents


def ancestors(forest: Forest, latents: Any, nodes: Any) -> Ints | Ragged:
    """Return the latents above nodes: see `Forest.ancestors`."""
    codes, parent = _parents(forest, latents, nodes)
    found = ancestry.paths_to(parent.ravel(), forest.latent_parent, forest.latent_depth)
    return found if codes.ndim else found.values


def side(forest: Forest, latents: ArrayLike | None, nodes: ArrayLike | None) -> Ints:
    """Return which child of its parent each node is: see `Forest.side`."""
    codes, pair = _families(forest, latents, nodes)
    return np.where(pair[..., 0] < 0, -1, codes == pair[..., 1])[()]


def sibling(forest: Forest, latents: ArrayLike | None, nodes: ArrayLike | None) -> Ints:
    """Return the other child of each node's parent: see `Forest.sibling`."""
    codes, pair = _families(forest, latents, nodes)
    return np.where(codes == pair[..., 0], pair[..., 1], pair[..., 0])[()]


def common_latent(forest: Forest, a: ArrayLike, b: ArrayLike) -> Ints:
    """Return the smallest latent that has both rows: see `Forest.lca`."""
    first, second, found = _pairs(forest, a, b)
    ancestry.common_latents(forest.parting, forest._parting_minima, first, second, found.reshape(-1))
    return found[()]


def distance(forest: Forest, a: ArrayLike, b: ArrayLike) -> Ints:
    """Return the number of bonds between two rows: see `Forest.distance`."""
    first, second, found = _pairs(forest, a, b)
    walk = forest._walk
    bonds.distances(walk.place, walk.depth, walk.minima, first, second, found.reshape(-1))
    return found[()]


def distance_to(forest: Forest, rows: ArrayLike) -> Ints:
    """Return the number of bonds from every row to the nearest of `rows`: see `Forest.distance_to`."""
    found = np.empty(forest.n_points, np.int64)
    bonds.nearest(forest._walk.place, forest._walk.above, listed("rows", rows, forest.n_points), found)
    return found


def _parents(forest: Forest, latents: ArrayLike | None, nodes: ArrayLike | None) -> tuple[Ints, Ints]:
    """Return the nodes that were named, by either argument, and their parents."""
    n = forest.n_points
    if latents is not None and nodes is None:
        chosen = indices("latents", latents, forest.n_latents)
        return n + chosen, forest.latent_parent[chosen]
    if nodes is None or latents is not None:
        raise ValueError("one of latents and nodes must be given, and not both")
    codes = indices("nodes", nodes, n + forest.n_latents)
    parent, rows = np.empty_like(codes), codes < n
    parent[rows] = forest.point_parent[codes[rows]]
    parent[~rows] = forest.latent_parent[codes[~rows] - n]
    return codes, parent


def _families(forest: Forest, latents: ArrayLike | None, nodes: ArrayLike | None) -> tuple[Ints, Ints]:
    """Return the nodes that were named, and both children of their parents, -1 for tops."""
    codes, parent = _parents(forest, latents, nodes)
    pair = np.full((*codes.shape, 2), -1, np.int64)
    pair[parent >= 0] = forest.latent_children[parent[parent >= 0]]
    return codes, pair


def _pairs(forest: Forest, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints, Ints]:
    """Return two lists of rows, one against the other, and room for an answer to each pair."""
    rows = (indices(name, values, forest.n_points) for name, values in (("a", a), ("b", b)))
    first, second = np.broadcast_arrays(*rows)
    return first.flatten(), second.flatten(), np.empty(first.shape, np.int64)
