"""A number with its interval, and the law that makes one from variances: see `percolab.intervals`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
LEAST_PARTS = 2
"""Effective number of parts, at least, from which a spread can be told."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int = 0
    """networks, or draws, behind it"""
    units: int = 0
    """concepts, or latents, behind it"""
    p: float | None = None
    """where a null is stated: the probability of a value as far from it"""

    @property
    def found(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    def through(self, rising: Callable[[float], float]) -> Estimate:
        """Return the estimate of a rising function of the number."""
        value, low, high = (float(rising(number)) for number in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    def within(self, least: float, most: float) -> Estimate:
        """Return the part of the interval that the number can be in."""
        return replace(self, low=float(np.clip(self.low, least, most)), high=float(np.clip(self.high, least, most)))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as a row of a table of effects."""
        values = asdict(self)
        del values["p"]
        return {**values, "leaves_out_0": self.found}

    def text(self, form: str = ".3g") -> str:
        """Return the number with its interval, where it has one: the one way in which estimates are written."""
        if np.isnan(self.value):
            return ""
        ends = "" if np.isnan(self.low) else f" ({self.low:{form}} to {self.high:{form}})"
        return f"{self.value:{form}}{ends}"

    def __str__(self) -> str:
        return self.text(".2f")


@dataclass(frozen=True)
class Spread:
    """The variance of a statistic along an axis, or in all, and its degrees of freedom."""

    variance: float
    freedom: float

    @property
    def quantile(self) -> float:
        """Student's t."""
        return float(scipy.stats.t.ppf(TAILS[1], self.freedom))


def effective(counts: ArrayLike) -> float:
    """Return the effective number of parts of these sizes: their number where all are equal, else less."""
    sizes = np.asarray(counts, np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if sizes.any() else 0.0


def along(squares: float, parts: float) -> Spread | None:
    """Return the spread along an axis from the sum of squares of what each part adds; None where parts are too few."""
    if parts < LEAST_PARTS - 1e-9 or not np.isfinite(squares):
        return None
    return Spread(squares * parts / (parts - 1), parts - 1)


def total(axes: Sequence[Spread | None], both: float = 0.0) -> Spread | None:
    """Return the spread of a statistic from those along its axes; `both` is the variance that is in each of them."""
    known = [axis for axis in axes if axis is not None]
    if not known:
        return None
    largest = max(known, key=lambda axis: (axis.variance, axis.freedom))
    variance = sum(axis.variance for axis in known) - both
    if variance <= largest.variance:
        return largest
    freedoms = [axis.freedom for axis in known]
    squares = sum(axis.variance**2 / axis.freedom for axis in known) + both**2 / float(np.prod(freedoms))
    return Spread(variance, variance**2 / squares)


def interval(
    value: float, spread: Spread | None, seeds: int, units: int, *, positive: bool = False, null: float | None = None
) -> Estimate:
    """Return a number with Student's interval.

    Parameters
    ----------
    value, spread
        The number and its spread; None, where nothing is known of it, gives NaN.
    seeds, units
        What is behind it.
    positive
        Whether the interval is taken on the scale of logarithms.
    null
        Value that `p` is about.
    """
    if spread is None or not np.isfinite(value):
        return Estimate(value, np.nan, np.nan, seeds, units)
    error = spread.variance**0.5
    half = spread.quantile * error if error else 0.0
    p = None
    if null is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            p = float(2 * scipy.stats.t.sf(np.abs(np.float64(value - null)) / error, spread.freedom))
    if positive and value > 0:
        factor = float(np.exp(half / value))
        return Estimate(value, value / factor, value * factor, seeds, units, p)
    return Estimate(value, value - half, value + half, seeds, units, p)


def central(draws: ArrayLike, seeds: int = 0, units: int = 0) -> Estimate:
    """Return the mean of many draws, and where the central 95% of them are."""
    values = np.asarray(draws, np.float64)
    low, high = np.quantile(values, TAILS)
    return Estimate(float(values.mean()), float(low), float(high), seeds, units)


def prediction(draws: ArrayLike, units: int = 0) -> Estimate:
    """Return the mean of a few draws, and where 95% of further draws fall (Student's t)."""
    known = np.asarray(draws, np.float64)
    known = known[np.isfinite(known)]
    value = float(known.mean()) if known.size else np.nan
    spread = Spread(float(known.var(ddof=1)) * (1 + 1 / known.size), known.size - 1) if known.size > 1 else None
    return interval(value, spread, known.size, units)


def verdict(estimate: Estimate, sign: int = 1) -> str:
    """Return in words what an interval says about an effect that is expected to have a sign."""
    if not np.isfinite(estimate.low):
        return "not measured"
    if not estimate.found:
        return "not found"
    return "found" if np.sign(estimate.value) == sign else "found, with the other sign"
