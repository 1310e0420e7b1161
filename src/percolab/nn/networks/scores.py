"""Scores of predictions: R² and mean squared error of numbers; accuracy and log loss of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import mean_squared_error, r2_score

NAMES = {
    "r2": "R²",
    "mse": "MSE",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "loss": "loss",
    "floor": "floor",
    "excess": "excess",
}
"""Scores in words."""


@dataclass(frozen=True)
class RegressionScore:
    """How well a prediction of numbers does on some rows."""

    r2: float
    """1 - MSE / variance of the targets of these rows; NaN where they are all equal"""
    mse: float
    """mean squared error"""


@dataclass(frozen=True)
class LabelScore:
    """How well a prediction of labels does on some rows."""

    accuracy: float
    """share of the rows whose most probable label is theirs"""
    log_loss: float
    """mean of -log of the probability given to a row's label, in nats"""


def score(target: Any, prediction: Any) -> RegressionScore:
    """Return R² and MSE, in float64."""
    t, p = np.asarray(target, np.float64), np.asarray(prediction, np.float64)
    r2 = float(r2_score(t, p, force_finite=False)) if np.ptp(t) > 0 else math.nan
    return RegressionScore(r2, float(mean_squared_error(t, p)))


def label_score(label: Any, log_probability: Any) -> LabelScore:
    """Return accuracy and log loss of (n,) labels, given the logarithms (n, C) of the classes' probabilities.

    Among classes of equal probability the lowest counts as predicted.
    """
    labels, logs = np.asarray(label, np.int64), np.asarray(log_probability, np.float64)
    given = logs[np.arange(labels.size), labels]
    return LabelScore(float(np.mean(logs.argmax(1) == labels)), float(-given.mean()))


def r_squared(mse: float, variance: float) -> float:
    """Return R² of a mean squared error known already; NaN where the target is constant."""
    return 1 - mse / variance if variance > 0 else math.nan
