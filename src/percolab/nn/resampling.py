"""Intervals that respect that latents are nested: whole clusters or subtrees are resampled, and networks with them.

A latent shares its points with those above and below it, so errors of latents are far from independent. Groups of
latents that share few points are drawn with replacement, a latent counting as often as its group was drawn; the
networks of several seeds are drawn with replacement too. Statistics are computed for all resamples at once, from
weights (1 + B, L): the first row is the data as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from percolab.model.forest import Forest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 500
LEVEL = 0.95
FEWEST_CLUSTERS = 20
"""With fewer clusters than this, subtrees are resampled instead."""
GROUP_SHARE = 1 / 50
"""Most points of a subtree, as a share of all."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that holds 95% of the resamples."""

    value: float
    low: float
    high: float
    p: float | None = None
    """where a null is stated: twice the share of the resamples on its other side, two-sided"""

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def groups_of(forest: Forest, latents: Ints) -> tuple[Ints, str]:
    """Return the group of each latent, and what the groups are, in a word.

    Groups are the clusters. Where these are few, they are the subtrees of a cut at 2% of the points; a latent above the
    cut, which has points of several, belongs to the one that has most of them.
    """
    cluster = forest.latent_cluster[latents]
    if np.unique(cluster).size >= FEWEST_CLUSTERS:
        return cluster, "clusters"
    cut = forest.cut(max(2, int(GROUP_SHARE * forest.n_points)))
    start, end = forest.points_of(latents)
    first = np.searchsorted(cut.starts, start, side="right") - 1
    last = np.searchsorted(cut.starts, end, side="left")
    return np.array([a + int(cut.sizes[a:b].argmax()) for a, b in zip(first, last, strict=True)], np.int64), "subtrees"


def resampled(groups: Ints, resamples: int, seed: int) -> Floats:
    """Return weights (1 + resamples, L): how often each latent counts when groups are drawn with replacement."""
    names, place = np.unique(groups, return_inverse=True)
    random = np.random.default_rng((seed, 2))
    drawn = random.multinomial(names.size, np.full(names.size, 1 / names.size), resamples)
    return np.concatenate([np.ones((1, groups.size)), drawn[:, place].astype(np.float64)])


class Networks:
    """Statistics of several networks, averaged, with intervals over networks and groups of latents."""

    def __init__(self, n: int, weights: Floats, seed: int) -> None:
        self.weights = weights
        random = np.random.default_rng((seed, 3))
        counts = random.multinomial(n, np.full(n, 1 / n), len(weights) - 1) / n
        self.share = np.concatenate([np.full((1, n), 1 / n), counts])

    def mean(self, statistics: Floats) -> Floats:
        """Return (…, 1 + B) means over networks of statistics (networks, …, 1 + B), as they were drawn."""
        means: Floats = np.einsum("n...b,bn->...b", statistics, self.share)
        return means


def interval(values: Floats, null: float | None = None) -> Interval:
    """Return the first of (1 + B,) values, the interval of the others, and p for a null."""
    rest = values[1:][~np.isnan(values[1:])]
    low, high = np.quantile(rest, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if rest.size else (np.nan, np.nan)
    p = None
    if null is not None:
        p = min(1.0, 2 * (1 + min(np.sum(rest <= null), np.sum(rest >= null))) / (1 + rest.size))
    return Interval(float(values[0]), float(low), float(high), p)


def over_seeds(values: Any) -> Interval:
    """Return the mean of a number that each of several networks has, with Student's 95% interval."""
    x = np.asarray(values, np.float64)
    half = np.nan
    if x.size > 1:
        half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, x.size - 1) * x.std(ddof=1) / np.sqrt(x.size))
    return Interval(float(x.mean()), float(x.mean() - half), float(x.mean() + half))


# ---------------------------------------------------------------------- statistics with weights


def quantiles(values: Floats, weights: Floats, q: float = 0.5) -> Floats:
    """Return (N, B) quantiles of values (N, L), each counted as often as its weight (B, L) says; NaN of nothing.

    A whole weight w counts as w equal values; between two values it is halfway, as the usual median.
    """
    total = weights.sum(1)
    at = q * (total - 1)
    found = np.empty((len(values), len(weights)))
    for i, row in enumerate(values):
        order = np.argsort(row)
        up_to = np.cumsum(weights[:, order], 1)
        ordered = row[order]
        low = (up_to > np.floor(at)[:, None]).argmax(1)
        high = (up_to > np.ceil(at)[:, None]).argmax(1)
        part = at - np.floor(at)
        found[i] = ordered[low] * (1 - part) + ordered[high] * part
    found[:, total == 0] = np.nan
    return found


def rank_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return (B,) Spearman's rank correlations of x and y (L,), each counted as often as its weight (B, L) says."""

    def ranks(values: Floats) -> Floats:
        order = np.argsort(values, kind="stable")
        up_to = np.cumsum(weights[:, order], 1)
        found = np.empty_like(weights)
        found[:, order] = up_to - weights[:, order] / 2
        _, place = np.unique(values, return_inverse=True)
        if place.max(initial=-1) + 1 < values.size:  # equal values have their mean rank
            sums, counts = (_sums(part, place) for part in (found * weights, weights))
            with np.errstate(invalid="ignore"):
                found = (sums / counts)[:, place]
        return np.nan_to_num(found)

    a, b = ranks(x), ranks(y)
    n = np.maximum(weights.sum(1, keepdims=True), 1)
    a = a - (weights * a).sum(1, keepdims=True) / n
    b = b - (weights * b).sum(1, keepdims=True) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = (weights * a * b).sum(1) / np.sqrt((weights * a * a).sum(1) * (weights * b * b).sum(1))
    return found


def _sums(values: Floats, place: Ints) -> Floats:
    """Return (B, groups) sums of values (B, L) over groups."""
    sums = np.zeros((len(values), int(place.max()) + 1))
    np.add.at(sums.T, place, values.T)
    return sums


def lines(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
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
