"""Concepts: latents that can be told from their parent and their sibling.

Most latents are a point away from their child, so the latents with most points of a cluster are near copies of each
other. Lists of latents for people, and best matches between features and latents, are drawn from these instead.
"""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.compiled import kernel
from percolab.ground.validation import check_integer
from percolab.model.indices import listed

if TYPE_CHECKING:
    from percolab.model.forest import Forest

Ints = NDArray[np.int64]

MIN_SIZE, RATIO = 20, 2 / 3
"""The least number of rows of a concept, and the largest share of the rows of the one above, by default."""


def concepts(forest: Forest, min_size: int, ratio: float, rows: ArrayLike | None) -> Ints:
    """Return the concepts of a forest: see `Forest.concepts`."""
    least = check_integer("min_size", min_size, 2)
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < float(ratio) <= 1:
        raise ValueError(f"ratio must be above 0 and at most 1, got {ratio!r}")
    size, left = _present(forest, rows)
    chosen = np.zeros(forest.n_latents, np.bool_)
    tops = (forest.cluster_start[:-1] - np.arange(forest.n_clusters))[forest.cluster_size > 1]
    chosen[tops] = size[tops] >= least
    parts = np.flatnonzero(np.minimum(left, size - left) >= least)
    for child in forest.latent_children[parts].T:
        chosen[child[child >= forest.n_points] - forest.n_points] = True  # a row that came often is no latent
    found = np.flatnonzero(chosen)
    if ratio < 1:
        kept = np.empty(found.size, np.bool_)
        thin(found, forest.latent_size, size, float(ratio), kept)
        found = found[kept]
    return found


def _present(forest: Forest, rows: ArrayLike | None) -> tuple[Ints, Ints]:
    """Return how many of the rows each latent has, and its left child."""
    if rows is None:
        return forest.latent_size, forest.left_size
    count = np.bincount(listed("rows", rows, forest.n_points), minlength=forest.n_points)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
    start = forest.latent_start
    first = before[start]
    return before[start + forest.latent_size] - first, before[start + forest.left_size] - first


def nearest_above(forest: Forest, latents: ArrayLike) -> Ints:
    """Return, for each of these latents, the nearest other of them above it: see `Forest.nearest_above`."""
    chosen, place = np.unique(listed("latents", latents, forest.n_latents), return_inverse=True)
    above = np.empty(chosen.size, np.int64)
    enclose(chosen, forest.latent_size, above)
    return above[place]


@kernel
def enclose(latents, latent_size, above):
    """Fill the nearest of the sorted `latents` above each of them, -1 for none; below i are i + 1 … i + size - 2."""
    open_latents = np.empty(latents.size, np.int64)
    count = 0
    for j in range(latents.size):
        while count and latents[j] >= open_latents[count - 1] + latent_size[open_latents[count - 1]] - 1:
            count -= 1
        above[j] = open_latents[count - 1] if count else -1
        open_latents[count] = latents[j]
        count += 1


@kernel
def thin(latents, latent_size, present, ratio, kept):
    """Mark those of the sorted `latents` with at most `ratio` of the nearest marked one above's rows, and fewer."""
    open_latents = np.empty(latents.size, np.int64)
    count = 0
    for j in range(latents.size):
        latent = latents[j]
        while count and latent >= open_latents[count - 1] + latent_size[open_latents[count - 1]] - 1:
            count -= 1
        above = present[open_latents[count - 1]] if count else np.inf
        kept[j] = present[latent] <= ratio * above and present[latent] < above
        if kept[j]:
            open_latents[count] = latent
            count += 1
