"""Straight lines by least squares: through the origin, and in logarithms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """A line through the origin, fitted by least squares."""

    slope: float
    r2: float
    """1 - squares left over squares of y; negative where the line is worse than 0"""


def line_through_origin(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit y = slope · x."""
    a, b = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    square, total = float(a @ a), float(b @ b)
    if square == 0:
        return Line(np.nan, np.nan)
    slope = float(a @ b) / square
    rest = float(((b - slope * a) ** 2).sum())
    return Line(slope, 1 - rest / total if total > 0 else np.nan)


def log_lines(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return slopes, intercepts and R² of least squares of log10 y (…, k, B) on log10 x (k,); NaN below 3 points."""
    good = (x > 0)[:, None] & (y > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        u = np.where(good, np.log10(np.where(x > 0, x, 1))[:, None], np.nan)
        v = np.where(good, np.log10(y), np.nan)
        mean: Callable[[Floats], Floats] = lambda values: _mean(values, good)  # noqa: E731
        du, dv = u - mean(u)[..., None, :], v - mean(v)[..., None, :]
        uu, uv, vv = mean(du * du), mean(du * dv), mean(dv * dv)
        slope = np.where(good.sum(-2) >= 3, uv / uu, np.nan)
        return slope, mean(v) - slope * mean(u), np.where(vv > 0, slope * uv / vv, np.nan)


def _mean(values: Floats, good: Any) -> Floats:
    found: Floats = np.where(good, values, 0).sum(-2) / np.maximum(good.sum(-2), 1)
    return found
