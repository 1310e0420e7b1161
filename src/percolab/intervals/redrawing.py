"""Intervals of medians and rank correlations, from drawing blocks of kin with replacement.

Statistics are computed for all draws at once, from weights (1 + B, U), how often each unit counts: the first row is
the data as they are. Each network has a statistic of its own, and the estimate is their mean, so networks need not be
redrawn: their variance is the usual one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.intervals.estimate import Estimate, along, effective, interval, total

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

REDRAWS = 500


def redrawn(blocks: Ints, redraws: int = REDRAWS, seed: int = 0) -> Floats:
    """Return weights (1 + redraws, U): how often each unit counts when blocks are drawn with replacement."""
    names, place = np.unique(blocks, return_inverse=True)
    random = np.random.default_rng((seed, 2))
    drawn = random.multinomial(names.size, np.full(names.size, 1 / names.size), redraws)
    return np.concatenate([np.ones((1, blocks.size)), drawn[:, place].astype(np.float64)])


def bootstrap(statistics: Floats, blocks: Ints, *, positive: bool = False, null: float | None = None) -> Estimate:
    """Return the mean over networks of a statistic, with its interval.

    Parameters
    ----------
    statistics
        (networks, 1 + B) by network, for the weights of `redrawn`; NaN where none of the units was drawn.
    blocks
        (U,) the block of each unit that the statistic is of.
    positive
        Whether the interval is taken on the scale of logarithms.
    null
        Value that `p` is about.
    """
    n, counts = len(statistics), np.unique(blocks, return_counts=True)[1]
    drawn = statistics[:, 1:]
    drawn = drawn[:, np.isfinite(drawn).all(0)]
    own, means = statistics[:, 0], drawn.mean(0)
    parts = effective(counts) if drawn.size else 0.0
    by_network = along(float(((own - own.mean()) ** 2).sum()) / n**2, n)
    by_block = along(float(means.var()) if drawn.size else np.nan, parts)
    both = 0.0
    if by_network is not None and by_block is not None:
        both = float((drawn - means).var(1).sum()) / (n * (n - 1)) * parts / (parts - 1)
    return interval(
        float(own.mean()), total([by_network, by_block], both), n, blocks.size, positive=positive, null=null
    )


# ---------------------------------------------------------------------- statistics with weights


def quantiles(values: Floats, weights: Floats, q: float = 0.5) -> Floats:
    """Return (N, B) quantiles of values (N, U), each counted as often as its weight (B, U) says; NaN of nothing.

    A whole weight w counts as w equal values; between two values it is halfway, as the usual median.
    """
    total_weight = weights.sum(1)
    at = q * (total_weight - 1)
    found = np.empty((len(values), len(weights)))
    for i, row in enumerate(values):
        order = np.argsort(row)
        up_to = np.cumsum(weights[:, order], 1)
        ordered = row[order]
        low = (up_to > np.floor(at)[:, None]).argmax(1)
        high = (up_to > np.ceil(at)[:, None]).argmax(1)
        part = at - np.floor(at)
        found[i] = ordered[low] * (1 - part) + ordered[high] * part
    found[:, total_weight == 0] = np.nan
    return found


def rank_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return (B,) Spearman's rank correlations of x and y (U,), each counted as often as its weight (B, U) says."""
    a, b = _ranks(x, weights), _ranks(y, weights)
    n = np.maximum(weights.sum(1, keepdims=True), 1)
    a = a - (weights * a).sum(1, keepdims=True) / n
    b = b - (weights * b).sum(1, keepdims=True) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (weights * a * b).sum(1) / np.sqrt((weights * a * a).sum(1) * (weights * b * b).sum(1))
    return found


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return (B, U) ranks of values (U,); equal values have their mean rank."""
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(weights[:, order], 1)
    found = np.empty_like(weights)
    found[:, order] = up_to - weights[:, order] / 2
    _, place = np.unique(values, return_inverse=True)
    if place.max(initial=-1) + 1 < values.size:
        sums, counts = (_sums(part, place) for part in (found * weights, weights))
        with np.errstate(invalid="ignore"):
            found = (sums / counts)[:, place]
    return np.nan_to_num(found)


def _sums(values: Floats, place: Ints) -> Floats:
    """Return (B, groups) sums of values (B, U) over groups."""
    sums = np.zeros((len(values), int(place.max()) + 1))
    np.add.at(sums.T, place, values.T)
    return sums
