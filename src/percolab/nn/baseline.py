"""Baselines of the paper's Table 1: the mean, ridge regression, and the nearest other point.

All bonds have one length, so the nearest other points of a point, along its bonds, tie, and the last bits of a distance
would choose among them, which differ from one processor to another. So *tied* is defined here, with a tolerance, and
the error is the mean over those tied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from percolab.dataset.splits import Split
from percolab.ground.progress import Progress, shown, silent
from percolab.nn.device import Device, choose_device, on_device
from percolab.nn.scores import Score, r_squared, score
from percolab.nn.split import SPLIT_SEED, split_rows
from percolab.worlds.truth import AnyDataset, truth

RIDGE_ALPHA = 1.0
BLOCK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}
"""Memory for one block of distances."""
TIED = 1e-6
"""Points are as near as the nearest up to this share of its distance: far above rounding, far below other distances."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest other points of every point."""

    nearest: NDArray[np.int64]
    """(n,) the one at the least distance as computed, the lowest row if several are; rounding chooses it"""
    row: NDArray[np.int64]
    """(k,) the rows, increasing, each as often as it has nearest other points"""
    neighbour: NDArray[np.int64]
    """(k,) those points: all whose distance is the least one up to a relative 1e-6"""

    def mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over each row's nearest other points of (k,) values, one for each pair."""
        n = self.nearest.size
        means: NDArray[np.float64] = np.bincount(self.row, values, n) / np.bincount(self.row, minlength=n)
        return means


def baselines(
    dataset: AnyDataset,
    *,
    seed: int = SPLIT_SEED,
    split: Split | None = None,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> dict[str, Score]:
    """Score the baselines of Table 1.

    ``mean`` and ``ridge`` (scikit-learn, alpha 1) are fitted on the training rows and scored on the test rows.
    ``nearest_neighbour`` predicts every point of the dataset by its nearest other point; the error of a point is the
    mean over its nearest others, those whose distance is the least up to a relative 1e-6. This is what breaking ties
    at random gives on average, and the same on every processor. ``nearest_neighbour_release`` takes the least distance
    as computed and of equal ones the first in the order of the authors' release: it gives the digits of the paper,
    but rounding chooses among ties.

    Parameters
    ----------
    dataset
        Any dataset of at least 10 points, or a superposed world.
    seed
        Seed of the split.
    split
        Training and test rows; None takes those of `split_rows`.
    device
        Where neighbours are looked for.
    progress
        True shows a bar; a function is called with ("neighbours", rows done, rows in all).
    """
    device = choose_device(device)
    X = on_device("X", dataset.X, torch.device("cpu"), torch.float64).numpy()
    if split is None:
        split = split_rows(truth(dataset, 0).forest, seed)
    # By birth, as the release has them: of equal distances the lowest row wins, which in leaf order would favour
    # distant relatives.
    order = dataset.release_order
    with shown(progress) as tell:
        found = neighbours(torch.from_numpy(X[order]).to(device), progress=tell)
    return _of_numbers(X, dataset.y, split, order, found)


def _of_numbers(
    X: NDArray[np.float64], y: NDArray[np.float64], split: Split, order: NDArray[np.int64], found: Neighbours
) -> dict[str, Score]:
    ridge = Ridge(alpha=RIDGE_ALPHA).fit(X[split.train], y[split.train])
    ordered = y[order]
    mse = float(found.mean((ordered[found.row] - ordered[found.neighbour]) ** 2).mean())
    return {
        "mean": score(y[split.test], np.full(split.test.size, y[split.train].mean())),
        "ridge": score(y[split.test], ridge.predict(X[split.test])),
        "nearest_neighbour": Score(r_squared(mse, float(y.var())), mse),
        "nearest_neighbour_release": score(ordered, ordered[found.nearest]),
    }


# ---------------------------------------------------------------------- neighbours


def nearest_neighbours(
    X: torch.Tensor, *, block_bytes: int | None = None, progress: Progress = silent
) -> NDArray[np.int64]:
    """Return the row of the nearest other point of every point, in O(n² d) time and bounded memory.

    Of points at equal distance, as computed, the lowest row is taken. Along bonds all distances are equal but for
    rounding: see `neighbours`.

    Parameters
    ----------
    X
        (n, d), on the device that is to do the work.
    block_bytes
        Memory for one block of distances.
    progress
        Called with ("neighbours", rows done, rows in all).
    """
    parts = [distance.argmin(1).cpu().numpy() for _, distance in _distances(X, block_bytes, progress)]
    return np.concatenate(parts)


def neighbours(X: torch.Tensor, *, block_bytes: int | None = None, progress: Progress = silent) -> Neighbours:
    """Return the nearest other points of every point, all that tie; see `nearest_neighbours` for the parameters."""
    nearest, row, neighbour = [], [], []
    for lo, distance in _distances(X, block_bytes, progress):
        least, at = distance.min(1, keepdim=True)
        tied = (distance <= least * (1 + TIED) ** 2 + _rounding(X)).nonzero().cpu().numpy()
        nearest.append(at[:, 0].cpu().numpy())
        row.append(lo + tied[:, 0])
        neighbour.append(tied[:, 1])
    return Neighbours(np.concatenate(nearest), np.concatenate(row), np.concatenate(neighbour))


def _rounding(X: torch.Tensor) -> float:
    """Return what rounding may do to a squared distance: it decides where points coincide, and nowhere else."""
    centred = X.double() - X.double().mean(0)
    return 64 * torch.finfo(torch.float64).eps * float((centred * centred).sum(1).max())


def _distances(X: torch.Tensor, block_bytes: int | None, progress: Progress) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield squared distances (rows, n) of some rows to all, infinite to themselves, with the first of the rows.

    By matrix products, in float64 on centred data: float32, let alone TF32, would let the rounding of large squares
    choose between near and nearest. A block is overwritten by the next one.
    """
    n = len(X)
    if n < 2:
        raise ValueError(f"X must have at least 2 rows to have neighbours, got {n}")
    X = X.double()
    X = X - X.mean(0)
    squares = (X * X).sum(1, keepdim=True)
    # |b|² - 2ab as one product.
    others = torch.cat([-2 * X, squares], 1).T
    points = torch.cat([X, torch.ones(n, 1, dtype=X.dtype, device=X.device)], 1)
    rows = max(1, (block_bytes or BLOCK_BYTES[X.device.type]) // (8 * n))
    block = torch.empty(min(rows, n), n, dtype=X.dtype, device=X.device)
    for lo in range(0, n, rows):
        hi = min(lo + rows, n)
        distance = torch.matmul(points[lo:hi], others, out=block[: hi - lo])
        distance += squares[lo:hi]
        distance.diagonal(lo).fill_(math.inf)
        yield lo, distance.clamp_(min=0)
        progress("neighbours", hi, n)
