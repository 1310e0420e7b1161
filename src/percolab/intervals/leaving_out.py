"""Intervals of smooth statistics, such as means, ratios and slopes, from leaving out seeds and blocks of kin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.intervals.estimate import Estimate, Spread, along, effective, interval, total

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistic = Callable[[Ints, Ints], float]
"""Takes the indices of the seeds and of the units that are kept, and returns a number."""


def jackknife(statistic: Statistic, seeds: int, blocks: Ints) -> Estimate:
    """Return a statistic with the interval from leaving out each seed, each block, and each seed with each block.

    Parameters
    ----------
    statistic
        Called with the indices of the seeds and of the units that are kept.
    seeds
        How many there are.
    blocks
        (U,) the block of each unit: all of a block are left out together.
    """
    units = _without(blocks)
    left = np.array([[statistic(some, kept) for kept in units] for some in _without(np.arange(seeds))])
    value, own_seed, own_block = float(left[0, 0]), left[1:, :1], left[:1, 1:]
    sizes = [np.ones(len(own_seed)), np.array([blocks.size - kept.size for kept in units[1:]], np.float64)]
    # What a part adds to the statistic: of a mean, the sum of its deviations over the number of all.
    rest, other = 1 - 1 / seeds, 1 - sizes[1] / max(1, blocks.size)
    by_seed, by_block = (value - own_seed) * rest, (value - own_block) * other
    by_both = (value - own_seed - own_block + left[1:, 1:]) * rest * other
    return interval(value, _spread(by_seed[:, 0], by_block[0], by_both, sizes), seeds, blocks.size)


def _without(parts: Ints) -> list[Ints]:
    """Return all indices, then those without each part in turn; no more than the first where there is one part."""
    names = np.unique(parts)
    left = [np.flatnonzero(parts != name) for name in names] if names.size > 1 else []
    return [np.arange(parts.size), *left]


def _spread(by_seed: Floats, by_block: Floats, by_both: Floats, sizes: list[Floats]) -> Spread | None:
    """Return the spread from what each seed, each block, and each pair of the two add; NaN are left out."""
    axes: list[Spread | None] = []
    factor = 1.0
    for added, size in zip((by_seed, by_block), sizes, strict=True):
        known = np.isfinite(added)
        parts = effective(size[known]) if known.any() else 0.0
        axes.append(along(float(((added[known] - added[known].mean()) ** 2).sum()), parts) if known.any() else None)
        factor *= parts / (parts - 1) if axes[-1] is not None else 0.0
    return total(axes, factor * float(np.nansum(by_both**2)))


def mean_interval(values: ArrayLike, blocks: Ints | None = None) -> Estimate:
    """Return the mean of (seeds, units) numbers with its interval; NaN are left out.

    Parameters
    ----------
    values
        (seeds, units).
    blocks
        (units,) what counts together; None: every unit by itself.
    """
    value, spread, (seeds, units) = _mean(values, blocks)
    return interval(value, spread, seeds, units)


def _mean(values: ArrayLike, blocks: Ints | None) -> tuple[float, Spread | None, tuple[int, int]]:
    """Return the mean of (seeds, units) numbers, its spread, and how many seeds and units are behind it."""
    table = np.asarray(values, np.float64)
    known = np.isfinite(table)
    parts = np.arange(table.shape[1]) if blocks is None else blocks
    behind = int(known.any(1).sum()), int(known.any(0).sum())
    count = int(known.sum())
    if not count:
        return np.nan, None, behind
    value = float(table[known].mean())
    names, place = np.unique(parts, return_inverse=True)
    added, counts = np.zeros((2, len(table), names.size))
    np.add.at(added.T, place, np.where(known, table - value, 0).T / count)
    np.add.at(counts.T, place, known.T)
    rows, columns = counts.sum(1), counts.sum(0)
    by_seed, by_block = added.sum(1), added.sum(0)
    by_both = added - rows[:, None] / count * by_block - by_seed[:, None] * columns / count
    by_seed, by_block = np.where(rows, by_seed, np.nan), np.where(columns, by_block, np.nan)
    return value, _spread(by_seed, by_block, by_both, [rows, columns]), behind


def over_seeds(values: ArrayLike) -> Estimate:
    """Return the mean of a number that each of several networks has, with its interval, which is Student's."""
    return mean_interval(np.asarray(values, np.float64).reshape(-1, 1))


def share_interval(values: ArrayLike, blocks: Ints | None = None) -> Estimate:
    """Return the mean of (seeds, units) numbers that are 0 or 1, or ties of ½, with an interval within 0 and 1.

    It is Wilson's, with Student's t in place of the normal quantile, for as many independent trials as have the
    variance found; where all are alike, for as many as there are units. A share near 0 or 1 of which one network in
    many would have another needs more networks than a few: no interval can tell.
    """
    value, spread, (seeds, units) = _mean(values, blocks)
    if spread is None:
        return interval(value, spread, seeds, units)
    most = value * (1 - value)
    trials = most / spread.variance if spread.variance > 0 and most > 0 else units
    t2 = spread.quantile**2
    middle = (value + t2 / (2 * trials)) / (1 + t2 / trials)
    half = (t2 * (most / trials + t2 / (4 * trials**2))) ** 0.5 / (1 + t2 / trials)
    # Rounding must not put a share of 0 or 1 outside.
    low, high = max(0.0, min(value, middle - half)), min(1.0, max(value, middle + half))
    return Estimate(value, low, high, seeds, units)
