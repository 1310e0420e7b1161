"""Bins of units by their size, depth or figure of merit."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def equal_bins(values: ArrayLike, count: int = 4) -> tuple[Ints, Floats]:
    """Return the bin of each value, of `count` with about as many values each, and the edges.

    Equal values stay together, so where there are many of them there are fewer bins.
    """
    numbers = np.asarray(values, np.float64)
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, count + 1), method="higher"))
    return np.digitize(numbers, edges[1:-1]).astype(np.int64), edges


def log_bins(values: ArrayLike, count: int = 5) -> tuple[Ints, Floats]:
    """Return the bin of each positive value, of `count` logarithmic ones that cover them all, and the edges."""
    numbers = np.asarray(values, np.float64)
    edges = np.geomspace(numbers.min() * (1 - 1e-9), numbers.max() * (1 + 1e-9), count + 1)
    return np.digitize(numbers, edges[1:-1]).astype(np.int64), edges
