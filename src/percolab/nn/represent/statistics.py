"""Intervals by resampling: the jackknife over seeds and over kin, with Student's t.

What is measured has two axes: networks, or seeds, and units, such as concepts or latents. Concepts are nested, so
neighbours in the hierarchy are not independent: units are left out in blocks of kin. Each axis is left out part by
part, the two variances are added, and the degrees of freedom are those of Satterthwaite. What varies with seed and unit
together is in both variances, so intervals are rather too wide than too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistic = Callable[..., float]
"""Takes, for each axis, the indices that are kept, and returns a number."""

CONFIDENCE = 0.95
BLOCKS = 20
"""Blocks of kin that units are left out in."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int
    """networks, or draws, behind it"""
    units: int
    """concepts, or latents, behind it"""

    @property
    def found(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "found": self.found}


def kin_blocks(start: ArrayLike, count: int = BLOCKS) -> Ints:
    """Return a block for each unit: runs of neighbours in leaf order, by the first row of each, of equal number.

    Kin are neighbours in leaf order, so most that units share stays within a block.
    """
    first = np.asarray(start)
    block = np.empty(first.size, np.int64)
    block[np.argsort(first, kind="stable")] = np.arange(first.size) * min(count, first.size) // max(1, first.size)
    return block


def jackknife(statistic: Statistic, axes: Sequence[Ints]) -> Estimate:
    """Return a statistic with an interval from leaving out parts of each of its axes.

    Parameters
    ----------
    statistic
        Called with the indices kept along each axis.
    axes
        For each axis, the part of each index: all of a part are left out together. An axis of one part adds nothing
        to the interval. By convention seeds come first and units last.
    """
    full = [np.arange(parts.size) for parts in axes]
    value = float(statistic(*full))
    variances, freedoms = [], []
    for axis, parts in enumerate(axes):
        names = np.unique(parts)
        if names.size < 2:
            continue
        left = np.empty(names.size)
        for i, name in enumerate(names):
            kept = list(full)
            kept[axis] = np.flatnonzero(parts != name)
            left[i] = statistic(*kept)
        known = left[np.isfinite(left)]
        if known.size < 2:
            continue
        variances.append((known.size - 1) / known.size * float(((known - known.mean()) ** 2).sum()))
        freedoms.append(known.size - 1)
    return _estimate(value, variances, freedoms, axes[0].size, axes[-1].size)


def mean_interval(values: ArrayLike, blocks: Ints | None = None) -> Estimate:
    """Return the mean of (seeds, units) numbers with its interval; NaN are left out.

    Parameters
    ----------
    values
        (seeds, units).
    blocks
        (units,) what is left out together; None: one by one.
    """
    table = np.asarray(values, np.float64)
    known = np.isfinite(table)
    filled = np.where(known, table, 0.0)
    parts = np.arange(table.shape[1]) if blocks is None else blocks
    variances, freedoms = [], []
    total, count = float(filled.sum()), int(known.sum())
    value = total / count if count else np.nan
    by_unit = [np.bincount(parts, column) for column in (filled.sum(0), known.sum(0))] if parts.size else []
    for sums, counts in ((filled.sum(1), known.sum(1)), by_unit):
        there = counts > 0
        if np.count_nonzero(there) < 2:
            continue
        left = (total - sums[there]) / (count - counts[there])
        variances.append((left.size - 1) / left.size * float(((left - left.mean()) ** 2).sum()))
        freedoms.append(left.size - 1)
    there = known.any(0)
    return _estimate(value, variances, freedoms, int(known.any(1).sum()), int(there.sum()))


def _estimate(value: float, variances: Sequence[float], freedoms: Sequence[int], seeds: int, units: int) -> Estimate:
    variance = sum(variances)
    if not variances or not np.isfinite(value):
        return Estimate(value, np.nan, np.nan, seeds, units)
    if variance == 0:
        return Estimate(value, value, value, seeds, units)
    freedom = variance**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * variance**0.5
    return Estimate(value, value - half, value + half, seeds, units)


def prediction(draws: ArrayLike, units: int = 0) -> Estimate:
    """Return the mean of some draws, and where 95% of further draws fall (Student's t)."""
    known = np.asarray(draws, np.float64)
    known = known[np.isfinite(known)]
    if known.size < 2:
        return Estimate(float(known.mean()) if known.size else np.nan, np.nan, np.nan, known.size, units)
    spread = float(known.std(ddof=1)) * (1 + 1 / known.size) ** 0.5
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, known.size - 1)) * spread
    return Estimate(float(known.mean()), float(known.mean()) - half, float(known.mean()) + half, known.size, units)


def verdict(estimate: Estimate, sign: int = 1) -> str:
    """Return in words what an interval says about an effect that is expected to have a sign."""
    if not np.isfinite(estimate.low):
        return "not measured"
    if not estimate.found:
        return "not found"
    return "found" if np.sign(estimate.value) == sign else "found, with the other sign"


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
