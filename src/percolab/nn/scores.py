"""Scores of a regression: mean squared error and R²."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


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
    mse = float(np.mean((t - p) ** 2))
    return Score(r_squared(mse, float(t.var())), mse)


def r_squared(mse: float, variance: float) -> float:
    """Return 1 - mse / variance; NaN where the target is constant."""
    return 1 - mse / variance if variance > 0 else float("nan")
