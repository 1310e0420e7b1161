"""Scores of a regression: mean squared error and R²."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import mean_squared_error, r2_score


@dataclass(frozen=True)
class Score:
    """How well a prediction does on some rows."""

    r2: float
    """1 - MSE / variance of the targets of these rows; NaN where they are all equal"""
    mse: float
    """mean squared error"""


def score(target: Any, prediction: Any) -> Score:
    """Return R² and MSE, in float64."""
    t, p = np.asarray(target, np.float64), np.asarray(prediction, np.float64)
    r2 = float(r2_score(t, p, force_finite=False)) if np.ptp(t) > 0 else math.nan
    return Score(r2, float(mean_squared_error(t, p)))


def r_squared(mse: float, variance: float) -> float:
    """Return R² of a mean squared error known already; NaN where the target is constant."""
    return 1 - mse / variance if variance > 0 else math.nan
