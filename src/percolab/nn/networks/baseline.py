"""Baselines of the paper's Table 1: the mean, ridge regression, and the nearest other point.

All bonds have the same length, so the nearest other points of a point, along its bonds, tie. Rounding would choose
among them, and rounding differs between processors. Therefore a tie is defined here with a tolerance, and the error is
the mean over tied points.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from percolab.ground.arrays import Floats, Ints
from percolab.ground.devices import Device, choose_device, on_device
from percolab.ground.progress import Progress, shown, silent
from percolab.nn.networks.objective import LabelScore, RegressionScore, label_score, r_squared, score
from percolab.worlds.splits import SPLIT_SEED, Split, split_rows
from percolab.worlds.superposed import AnyDataset

RIDGE_ALPHA = 1.0
LOGISTIC_STEPS = 200
DISTANCE_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}  #: Memory for one block of distances.
#: Points tie if they are as near as the nearest up to this share: far above rounding, far below other distances.
TIED = 1e-6


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest other points of every point."""

    nearest: Ints  #: (n,) the point at the least computed distance, the lowest row among equals; rounding matters
    row: Ints  #: (k,) rows in increasing order, each repeated for every nearest other point
    neighbour: Ints  #: (k,) these nearest points: all at the least distance up to a relative 1e-6

    def mean(self, values: Floats) -> Floats:
        """Return the mean over each row's nearest other points of (k,) values, one for each pair."""
        n = self.nearest.size
        return np.bincount(self.row, values, n) / np.bincount(self.row, minlength=n)


def baselines(
    dataset: AnyDataset,
    *,
    seed: int = SPLIT_SEED,
    split: Split | None = None,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> dict[str, RegressionScore] | dict[str, LabelScore]:
    """Score the baselines of Table 1.

    ``mean`` and ``ridge`` (scikit-learn, alpha 1) are fitted on the training rows and scored on the test rows.
    ``nearest_neighbour`` predicts every point of the dataset by its nearest other point; the error of a point is the
    mean over its nearest others, those whose distance is the least up to a relative 1e-6. This is what breaking ties
    at random gives on average, and the same on every processor. ``nearest_neighbour_release`` takes the least distance
    as computed and of equal ones the first in the order of the authors' release: it gives the digits of the paper,
    but rounding chooses among ties.

    Where y is labels: ``frequencies`` of the classes in the training rows, ``logistic`` regression on standardised X
    (scikit-learn, C = 1, at most 200 steps), and the nearest other points as above. Of C classes, probabilities from n
    rows are (n p + 1) / (n + C), so that no class is impossible; of t nearest other points that tie, their shares
    and one more point with the frequencies of all rows.

    Parameters
    ----------
    dataset
        Any dataset of at least 10 points, or a superposed world.
    seed
        Seed of the split.
    split
        Training and test rows; None takes those of `split_rows`.
    device
        Device that searches for neighbours.
    progress
        True shows a bar; a function is called with ("neighbours", rows done, rows in all).
    """
    device = choose_device(device)
    X = on_device("X", dataset.X, torch.device("cpu"), torch.float64).numpy()
    if split is None:
        split = split_rows(dataset, seed)
    # In order of birth, as in the release: among equal distances the lowest row wins, which in leaf order would favour
    # distant relatives.
    order = dataset.release_order
    with shown(progress) as tell:
        nearest = neighbours(torch.from_numpy(X[order]).to(device), progress=tell)
    y = np.asarray(dataset.y)
    if y.ndim != 1:
        raise ValueError(f"y must be one number or label per row, ({len(X)},), got shape {y.shape}")
    return (_of_labels if y.dtype.kind in "biu" else _of_numbers)(X, y, split, order, nearest)


def _of_numbers(X: Floats, y: Floats, split: Split, order: Ints, nearest: Neighbours) -> dict[str, RegressionScore]:
    ridge = Ridge(alpha=RIDGE_ALPHA).fit(X[split.train], y[split.train])
    ordered = y[order]
    mse = float(nearest.mean((ordered[nearest.row] - ordered[nearest.neighbour]) ** 2).mean())
    return {
        "mean": score(y[split.test], np.full(split.test.size, y[split.train].mean())),
        "ridge": score(y[split.test], ridge.predict(X[split.test])),
        "nearest_neighbour": RegressionScore(r_squared(mse, float(y.var())), mse),
        "nearest_neighbour_release": score(ordered, ordered[nearest.nearest]),
    }


def _of_labels(X: Floats, y: Ints, split: Split, order: Ints, nearest: Neighbours) -> dict[str, LabelScore]:
    n_classes, n = int(y.max()) + 1, split.train.size
    frequency = np.bincount(y[split.train], minlength=n_classes) / n
    by_regression = np.zeros((split.test.size, n_classes))
    model: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=LOGISTIC_STEPS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[split.train], y[split.train])
    by_regression[:, model[-1].classes_] = model.predict_proba(X[split.test])

    def smoothed(p: Floats) -> Floats:
        return np.log((n * p + 1) / (n + n_classes))

    every = np.broadcast_to(smoothed(frequency), by_regression.shape)
    return {
        "frequencies": label_score(y[split.test], every),
        "logistic": label_score(y[split.test], smoothed(by_regression)),
        **_neighbour_labels(y[order], nearest),
    }


def _neighbour_labels(y: Ints, nearest: Neighbours) -> dict[str, LabelScore]:
    """Score nearest other points; only the probability given to each row's label matters."""
    frequency = np.bincount(y)[y] / y.size
    tied = np.bincount(nearest.row, minlength=y.size)
    right = nearest.mean((y[nearest.row] == y[nearest.neighbour]).astype(np.float64))
    hit = (y == y[nearest.nearest]).astype(np.float64)
    loss = -np.log((tied * right + frequency) / (tied + 1))
    return {
        "nearest_neighbour": LabelScore(float(right.mean()), float(loss.mean())),
        "nearest_neighbour_release": LabelScore(float(hit.mean()), float(-np.log((hit + frequency) / 2).mean())),
    }


# ---------------------------------------------------------------------- neighbours


def nearest_neighbours(X: torch.Tensor, *, block_bytes: int | None = None, progress: Progress = silent) -> Ints:
    """Return the row of the nearest other point of every point, in O(n² d) time and bounded memory.

    Among points at equal computed distance, the lowest row is taken. Along bonds all distances are equal except for
    rounding: see `neighbours`.

    Parameters
    ----------
    X
        (n, d), on the device that computes.
    block_bytes
        Memory for one block of distances.
    progress
        Called with ("neighbours", rows done, rows in all).
    """
    parts = [distance.argmin(1).cpu().numpy() for _, distance in _distances(X, block_bytes, progress)]
    return np.concatenate(parts)


def neighbours(X: torch.Tensor, *, block_bytes: int | None = None, progress: Progress = silent) -> Neighbours:
    """Return all tied nearest other points of every point; see `nearest_neighbours` for the parameters."""
    nearest, row, neighbour = [], [], []
    for lo, distance in _distances(X, block_bytes, progress):
        least, at = distance.min(1, keepdim=True)
        tied = (distance <= least * (1 + TIED) ** 2 + _rounding(X)).nonzero().cpu().numpy()
        nearest.append(at[:, 0].cpu().numpy())
        row.append(lo + tied[:, 0])
        neighbour.append(tied[:, 1])
    return Neighbours(np.concatenate(nearest), np.concatenate(row), np.concatenate(neighbour))


def _rounding(X: torch.Tensor) -> float:
    """Return a bound on the rounding error of a squared distance: it matters only where points coincide."""
    centred = X.double() - X.double().mean(0)
    return 64 * torch.finfo(torch.float64).eps * float((centred * centred).sum(1).max())


def _distances(X: torch.Tensor, block_bytes: int | None, progress: Progress) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield squared distances (rows, n) of a block of rows to all rows, infinite to themselves, and its first row.

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
    rows = max(1, (block_bytes or DISTANCE_BYTES[X.device.type]) // (8 * n))
    block = torch.empty(min(rows, n), n, dtype=X.dtype, device=X.device)
    for lo in range(0, n, rows):
        hi = min(lo + rows, n)
        distance = torch.matmul(points[lo:hi], others, out=block[: hi - lo])
        distance += squares[lo:hi]
        distance.diagonal(lo).fill_(math.inf)
        yield lo, distance.clamp_(min=0)
        progress("neighbours", hi, n)
