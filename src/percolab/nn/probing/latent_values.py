"""Values of latents that probes are asked for: the true ones, fresh and permuted ones, and sums down the hierarchy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
from percolab.model.forest import Forest
from percolab.nn.probing.places import Places

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Column = tuple[str, int]
"""A target and its draw."""

TARGETS = ("z", "sum", "z_redrawn", "sum_redrawn", "z_shuffled", "sum_shuffled")
"""z: the latent's value. sum: the values from depth 0 down to the latent, added. z_redrawn, sum_redrawn: the same for
fresh values of all latents, which no network has been trained on. z_shuffled, sum_shuffled: z and sum dealt to the
wrong samples."""
TRUE_TARGETS, LATENT_TARGETS = TARGETS[:2], TARGETS[:4]
"""Targets of true values; targets that are the same for all samples of a latent."""
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


def columns(draws: int, targets: tuple[str, ...] = TARGETS) -> tuple[Column, ...]:
    """Return targets with their draws, in the order in which they stand side by side; true ones have draw 0."""
    return tuple((name, draw) for name in targets for draw in range(1 if name in TRUE_TARGETS else draws))


def targets_of(forest: Forest, z: Floats, places: Places, rows: Ints, draws: int, seed: int) -> NDArray[np.float32]:
    """Return (n, J, T) targets of samples at each depth, one for each of `columns`; 0 where a sample has no latent."""
    fresh = fresh_values(forest, draws, seed)
    values = np.column_stack([z, path_sums(forest, z[:, None]), fresh, path_sums(forest, fresh)])[places.latent]
    order = np.argsort(rows, kind="stable")
    targets = np.zeros((*places.where.shape, values.shape[1] + 2 * draws), np.float32)
    for index, depth in enumerate(places.depths.tolist()):
        here = order[places.where[order, index] >= 0]
        true = values[places.where[here, index]].astype(np.float32)
        random = np.random.default_rng((seed, depth))
        shuffled = [random.permuted(true[:, :2], axis=0) for _ in range(draws)]
        targets[here, index] = np.concatenate([true, np.stack(shuffled, 2).reshape(here.size, -1)], 1)
    return targets
