"""Blocks of kin: units that are near each other in a hierarchy, which are not independent, and so count together."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.model.forest import Forest

Ints = NDArray[np.int64]

BLOCKS = 10
"""Blocks of each hierarchy. More of them share more with their neighbours, fewer leave fewer degrees of freedom."""


def places(forest: Forest, latents: ArrayLike) -> Ints:
    """Return the place of each latent: the row that is reached from it by going to the larger child at every step.

    A latent and one inside it have the same place if the one inside is the larger child all the way down. So latents
    that are mostly the same rows have one place, wherever they begin, and those of other places share at most half.
    """
    n, children = forest.n_points, forest.latent_children
    size = np.concatenate([np.ones(n, np.int64), forest.latent_size])
    below = np.arange(n + forest.n_latents)
    below[n:] = children[np.arange(len(children)), size[children].argmax(1)]
    while (below[n:] >= n).any():  # each round doubles the number of steps
        below = below[below]
    found: Ints = below[n:][np.asarray(latents)]
    return found


def kin(place: ArrayLike, hierarchy: ArrayLike | None = None, count: int = BLOCKS) -> Ints:
    """Return a block for each unit: runs of neighbours in leaf order, of about equal number.

    Units of the same place are in one block.

    Parameters
    ----------
    place
        (U,) a row of each unit, in leaf order: see `places` for latents that are nested.
    hierarchy
        (U,) the hierarchy of each, where there are several: no block has units of two.
    count
        Blocks of each hierarchy.
    """
    where = np.asarray(place)
    which = np.zeros(where.size, np.int64) if hierarchy is None else np.asarray(hierarchy)
    block = np.zeros(where.size, np.int64)
    for i, name in enumerate(np.unique(which)):
        own = which == name
        _, at, sizes = np.unique(where[own], return_inverse=True, return_counts=True)
        middle = np.cumsum(sizes) - sizes / 2
        block[own] = i * count + (middle * count / own.sum()).astype(np.int64)[at]
    return np.unique(block, return_inverse=True)[1].astype(np.int64)
