"""Choices of latents: concepts, which are distinct from their parent and their sibling; and cuts, which cover all rows.

Most latents differ from one child by a single point, so the largest latents of a cluster are near copies of each
other. Lists of latents for people, and best matches between features and latents, therefore use concepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_integer, listed

if TYPE_CHECKING:
    from percolab.model.forest import Forest

#: Defaults: the least number of rows of a concept, and its largest share of the rows of the concept above.
MIN_SIZE, RATIO = 20, 2 / 3


def concepts(forest: Forest, min_size: int = MIN_SIZE, ratio: float = RATIO, *, rows: ArrayLike | None = None) -> Ints:
    """Return the latents that are distinct from their parent and their sibling, sorted. Linear time.

    These are the tops of clusters of at least `min_size` points, and both children of every latent whose smaller
    child has at least `min_size` points. Most other latents differ from one of these by a few points. The top of a
    one-cluster forest is listed, though it has all rows. The defaults are those of `percolab.features.score`.

    Parameters
    ----------
    min_size
        At least 2.
    ratio
        Going down, a concept is kept if it has at most this share of the rows of the nearest kept concept above. Most
        large concepts are near copies of the concept above; a ratio of 1 keeps them.
    rows
        Count only these rows: a mask, or indices, which may repeat. None counts all rows.
    """
    least = check_integer("min_size", min_size, 2)
    share = check_ratio(ratio)
    size, left = _present(forest, rows)
    chosen = np.zeros(forest.n_latents, np.bool_)
    tops = (forest.cluster_start[:-1] - np.arange(forest.n_clusters))[forest.cluster_size > 1]
    chosen[tops] = size[tops] >= least
    parts = np.flatnonzero(np.minimum(left, size - left) >= least)
    for child in forest.latent_children[parts].T:
        chosen[child[child >= forest.n_points] - forest.n_points] = True  # a row that is repeated is not a latent
    latents = np.flatnonzero(chosen)
    return latents[thinned(forest, latents, size, share)] if share < 1 else latents


def check_ratio(ratio: object) -> float:
    """Return a share above 0 and up to 1, or say what is wrong with it."""
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < float(ratio) <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, got {ratio!r}")
    return float(ratio)


def thinned(forest: Forest, latents: Ints, size: Ints, ratio: float) -> NDArray[np.bool_]:
    """Return which sorted latents to keep: those with fewer rows, by `ratio`, than the nearest kept latent above.

    `size` is the number of counted rows of each latent of the forest.
    """
    kept = np.empty(latents.size, np.bool_)
    nest(latents, forest.latent_size, size, ratio, kept, np.empty(latents.size, np.int64))
    return kept


def _present(forest: Forest, rows: ArrayLike | None) -> tuple[Ints, Ints]:
    """Return how many of these rows each latent has, and how many its left child has."""
    if rows is None:
        return forest.latent_size, forest.left_size
    count = np.bincount(listed("rows", rows, forest.n_points), minlength=forest.n_points)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
    start = forest.latent_start
    first = before[start]
    return before[start + forest.latent_size] - first, before[start + forest.left_size] - first


def nearest_above(forest: Forest, latents: ArrayLike) -> Ints:
    """Return, for each of these latents, the nearest of the others that is above it, -1 for none. O(k log k)."""
    chosen, place = np.unique(listed("latents", latents, forest.n_latents), return_inverse=True)
    above = np.empty(chosen.size, np.int64)
    nest(chosen, forest.latent_size, forest.latent_size, 1.0, np.empty(chosen.size, np.bool_), above)
    return above[place]


@kernel
def nest(latents, latent_size, present, ratio, kept, above):
    """Mark those of the sorted `latents` with at most `ratio` of the nearest marked one above's rows, and fewer.

    Fill the nearest marked one above each, -1 for none; below latent i are i + 1 … i + size - 2.
    """
    open_latents = np.empty(latents.size, np.int64)
    count = 0
    for j in range(latents.size):
        latent = latents[j]
        while count and latent >= open_latents[count - 1] + latent_size[open_latents[count - 1]] - 1:
            count -= 1
        above[j] = open_latents[count - 1] if count else -1
        rows_above = present[above[j]] if count else np.inf
        kept[j] = present[latent] <= ratio * rows_above and present[latent] < rows_above
        if kept[j]:
            open_latents[count] = latent
            count += 1


# ---------------------------------------------------------------------- cuts
#
# Cuts across the hierarchy: disjoint groups of rows, each a latent or a single row, that cover all rows.


@dataclass(frozen=True, eq=False)
class Partition:
    """Groups of rows, in row order: disjoint intervals that cover all rows."""

    nodes: Ints  #: (G,) the node of each group: row r as r, latent i as n_points + i
    starts: Ints  #: (G,) its first row
    sizes: Ints  #: (G,) its number of rows
    groups: Ints  #: (n,) the group of each row: what scikit-learn calls groups

    def __len__(self) -> int:
        return self.nodes.size

    def __repr__(self) -> str:
        largest = int(self.sizes.max(initial=0))
        return f"Partition({len(self):,} groups of {self.groups.size:,} rows, the largest of {largest:,})"


def cut(forest: Forest, max_size: int | None = None, *, n_groups: int | None = None) -> Partition:
    """Return disjoint groups of rows, each a latent or a single row, that cover all rows. Linear time.

    Parameters
    ----------
    max_size
        The groups are the largest latents and rows of at most this many rows.
    n_groups
        Instead: start with the clusters, and split the largest group into its two children, of equal ones the
        first, until there are at least this many. If there are more clusters, these are the groups.
    """
    if (max_size is None) == (n_groups is None):
        raise ValueError(f"cut needs one of max_size and n_groups, got max_size={max_size} and n_groups={n_groups}")
    if max_size is not None:
        return _groups(forest, forest.latent_size > check_integer("max_size", max_size, 1))
    wanted = check_integer("n_groups", n_groups, 1)
    if wanted > forest.n_points:
        raise ValueError(f"n_groups must be at most the number of points, {forest.n_points}, got {wanted}")
    split = np.zeros(forest.n_latents, np.bool_)
    # A latent has more points than the latents below it, so the largest are always among those that can be split next.
    largest = np.argsort(-forest.latent_size, kind="stable")
    split[largest[: max(0, wanted - forest.n_clusters)]] = True
    return _groups(forest, split)


def _groups(forest: Forest, split: NDArray[np.bool_]) -> Partition:
    """Return the groups below the split latents. All latents above a split latent are split too."""
    n = forest.n_points
    begins = np.zeros(n, np.bool_)
    begins[forest.cluster_start[:-1]] = True
    begins[forest.latent_start[split] + forest.left_size[split]] = True
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=n)
    parent = forest.latent_parent
    whole = ~split & ((parent < 0) | split[parent]) if split.size else split
    nodes = starts.copy()
    nodes[sizes > 1] = n + np.flatnonzero(whole)  # disjoint latents have the same order in preorder as in rows
    return Partition(nodes, starts, sizes, np.cumsum(begins) - 1)
