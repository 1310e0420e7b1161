"""Values of latents that probes are asked for: the true ones, fresh ones, and their sums down the hierarchy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
from percolab.model.forest import Forest

Floats = NDArray[np.float64]

_FRESH = 1 << 32
"""Second part of the seed of fresh values: apart from the depths, which have the smaller numbers."""


def path_sums(forest: Forest, values: Floats) -> Floats:
    """Return the sums of (n_latents, k) values from the top of the cluster down to each latent. Linear time."""
    total = np.array(values, np.float64, order="C")
    add_parents(forest.latent_parent, total)
    return total


@kernel
def add_parents(parent, total):
    """Add to every row that of its parent, which comes before it."""
    for i in range(parent.size):
        if parent[i] >= 0:
            for k in range(total.shape[1]):
                total[i, k] += total[parent[i], k]


def fresh_values(forest: Forest, draws: int, seed: int) -> Floats:
    """Return (n_latents, draws) standard normal values that no network was trained on."""
    return np.random.default_rng((seed, _FRESH)).standard_normal((draws, forest.n_latents)).T
