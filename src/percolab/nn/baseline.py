"""Baselines of the paper's Table 1: the mean, ridge regression, and the nearest other point."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from percolab.dataset.dataset import Dataset
from percolab.ground.progress import Progress, shown, silent
from percolab.nn.device import Device, choose_device, on_device
from percolab.nn.scores import Score, score
from percolab.nn.split import SPLIT_SEED, split_rows

RIDGE_ALPHA = 1.0
BLOCK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}
"""Memory for one block of distances."""


def baselines(
    dataset: Dataset, *, seed: int = SPLIT_SEED, device: Device = "auto", progress: bool | Progress = False
) -> dict[str, Score]:
    """Score the three baselines of Table 1.

    ``mean`` and ``ridge`` (scikit-learn, alpha 1) are fitted on the training rows and scored on the test rows of
    `split_rows`. ``nearest_neighbour`` predicts every point of the dataset by its nearest other point.

    Parameters
    ----------
    dataset
        Any dataset of at least 10 points.
    seed
        Seed of the split.
    device
        Where neighbours are looked for.
    progress
        True shows a bar; a function is called with ("neighbours", rows done, rows in all).
    """
    device = choose_device(device)
    X = on_device("X", dataset.X, torch.device("cpu"), torch.float64).numpy()
    y = dataset.y
    split = split_rows(dataset, seed)
    ridge = Ridge(alpha=RIDGE_ALPHA).fit(X[split.train], y[split.train])
    # Neighbours along bonds tie, and the lowest row wins an exact tie: in leaf order that would favour distant
    # relatives, in the release's order, by birth, it favours nobody.
    order = dataset.release_order
    with shown(progress) as tell:
        nearest = order[nearest_neighbours(torch.from_numpy(X[order]).to(device), progress=tell)]
    return {
        "mean": score(y[split.test], np.full(split.test.size, y[split.train].mean())),
        "ridge": score(y[split.test], ridge.predict(X[split.test])),
        "nearest_neighbour": score(y[order], y[nearest]),
    }


def nearest_neighbours(
    X: torch.Tensor, *, block_bytes: int | None = None, progress: Progress = silent
) -> NDArray[np.int64]:
    """Return the row of the nearest other point of every point, in O(n² d) time and bounded memory.

    Euclidean distance by matrix products, in float64 on centred data: all bonds have the same length, so the
    neighbours of a point along its bonds tie, and float32, let alone TF32, would let the rounding of large squares
    choose between near and nearest. Among exact ties the lowest row is taken.

    Parameters
    ----------
    X
        (n, d), on the device that is to do the work.
    block_bytes
        Memory for one block of distances.
    progress
        Called with ("neighbours", rows done, rows in all).
    """
    n = len(X)
    if n < 2:
        raise ValueError(f"X must have at least 2 rows to have neighbours, got {n}")
    X = X.double()
    X = X - X.mean(0)
    # |b|² - 2ab as one product: |a|² does not change which b is nearest.
    others = torch.cat([-2 * X, (X * X).sum(1, keepdim=True)], 1).T
    points = torch.cat([X, torch.ones(n, 1, dtype=X.dtype, device=X.device)], 1)
    rows = max(1, (block_bytes or BLOCK_BYTES[X.device.type]) // (8 * n))
    nearest = torch.empty(n, dtype=torch.int64, device=X.device)
    block = torch.empty(min(rows, n), n, dtype=X.dtype, device=X.device)
    for lo in range(0, n, rows):
        hi = min(lo + rows, n)
        distance = torch.matmul(points[lo:hi], others, out=block[: hi - lo])
        distance.diagonal(lo).fill_(math.inf)
        nearest[lo:hi] = distance.argmin(1)
        progress("neighbours", hi, n)
    found: NDArray[np.int64] = nearest.cpu().numpy()
    return found
