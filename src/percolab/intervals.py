"""Estimates with intervals: one law for every number that this package reports.

**What varies.** A statistic is computed from a table with one row per network (or seed) and one column per unit: a
latent, a concept or a test row. Networks and units are both samples. Units are nested, so neighbours in a hierarchy
are not independent: units are grouped into blocks (`kin`), which are runs of neighbours in leaf order.

**Law.** The interval is value ± t·√V. With V_s the variance along seeds, V_b the variance along blocks, and V_sb
the variance of the interaction of seeds and blocks, which is contained in both V_s and V_b,

    V = max(V_s, V_b, V_s + V_b - V_sb),

as for the mean of a two-way table of random effects. t is Student's quantile with the degrees of freedom of
Satterthwaite, V² / (V_s²/f_s + V_b²/f_b + V_sb²/(f_s f_b)), where f_s and f_b are one less than the number of seeds and
of blocks. Blocks of unequal sizes m count by their effective number, (Σm)²/Σm². An axis with fewer than two parts adds
nothing: the interval then covers the other axis alone. This happens for the largest latents of a cluster, which are
all nested in one another and so form a single block.

**Variances** along the axes come from leaving parts out (`jackknife`, `mean_interval`) where the statistic is smooth.
For a median or a rank correlation, where the jackknife fails, they come from redrawing blocks (`bootstrap`), with the
factor n/(n-1) that a bootstrap lacks. The interval of a positive statistic is computed on the scale of logarithms, and
the interval of a share stays within 0 and 1 (`share_interval`). So all intervals have one meaning: 95% of them contain
the value of the statistic over all networks and all units of the kind. Coverage is higher, up to 99%, where cells vary
independently and neither networks nor blocks do. It is lower, 82%, for a share near 1 where only networks differ: five
networks cannot show that a few are unlike the rest. ``python tests/interval_coverage.py`` measures the coverage.

`central` and `prediction` give the range of a single draw rather than of a mean. The module also has bins of units
(`equal_bins`, `log_bins`) and straight-line fits, which many of the reported statistics use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike

from percolab.ground.arrays import Floats, Ints
from percolab.model.forest import Forest

LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
LONGEST = 6  #: Decimals beyond which a number is written as a power of ten.
LEAST_PARTS = 2  #: The least effective number of parts from which a spread can be estimated.


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float
    seeds: int = 0  #: number of networks, or draws, that it is computed from
    units: int = 0  #: number of concepts, or latents, that it is computed from
    p: float | None = None  #: where a null is stated: the probability of a value at least as far from the null

    @property
    def found(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def through(self, rising: Callable[[float], float]) -> Estimate:
        """Return the estimate of a rising function of the number."""
        value, low, high = (float(rising(number)) for number in (self.value, self.low, self.high))
        return replace(self, value=value, low=low, high=high)

    def within(self, least: float, most: float) -> Estimate:
        """Return the estimate with its interval clipped to the range of values that the number can take."""
        return replace(self, low=float(np.clip(self.low, least, most)), high=float(np.clip(self.high, least, most)))

    def to_dict(self) -> dict[str, Any]:
        """Return the estimate as plain values: one row of a table of effects."""
        values = asdict(self)
        del values["p"]
        return {**values, "leaves_out_0": self.found}

    @property
    def form(self) -> str:
        """How the number is written: with three decimals, or with more if its interval is too narrow to be seen."""
        half, size = (self.high - self.low) / 2, abs(self.value)
        seen = max(half, size / 1000) if half > 0 else size / 10
        digits = -int(np.floor(np.log10(seen))) if 0 < seen < np.inf else 0
        return f"z.{max(3, digits)}f" if digits <= LONGEST else ".2e"

    def text(self, form: str = "") -> str:
        """Return the number with its interval, if it has one. All estimates are written this way."""
        if np.isnan(self.value):
            return ""
        form = form or self.form
        ends = "" if np.isnan(self.low) else f" ({self.low:{form}} to {self.high:{form}})"
        return f"{self.value:{form}}{ends}"

    def __str__(self) -> str:
        return self.text(".2f")


def p_text(p: float) -> str:
    """Return a p value as text. All p values of pages are written this way."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


@dataclass(frozen=True)
class Spread:
    """The variance of a statistic, along one axis or in total, and its degrees of freedom."""

    variance: float
    freedom: float

    @property
    def quantile(self) -> float:
        """Student's t."""
        return float(scipy.stats.t.ppf(TAILS[1], self.freedom))


def effective(counts: ArrayLike) -> float:
    """Return the effective number of parts of these sizes: the number of parts if all are equal, else less."""
    sizes = np.asarray(counts, np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if sizes.any() else 0.0


def along(squares: float, parts: float) -> Spread | None:
    """Return the spread along an axis from the sum of squares of the contributions; None if there are too few parts."""
    if parts < LEAST_PARTS - 1e-9 or not np.isfinite(squares):
        return None
    return Spread(squares * parts / (parts - 1), parts - 1)


def total(axes: Sequence[Spread | None], both: float = 0.0) -> Spread | None:
    """Return the total spread from the spreads along the axes; `both` is the variance that each of them contains."""
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
        The number and its spread; an unknown spread, None, gives NaN.
    seeds, units
        How many seeds and units the number is computed from.
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
    """Return the mean of many draws, with the interval that holds the central 95% of them."""
    values = np.asarray(draws, np.float64)
    low, high = np.quantile(values, TAILS)
    return Estimate(float(values.mean()), float(low), float(high), seeds, units)


def prediction(draws: ArrayLike, units: int = 0) -> Estimate:
    """Return the mean of a few draws, with the interval in which 95% of further draws fall (Student's t)."""
    known = np.asarray(draws, np.float64)
    known = known[np.isfinite(known)]
    value = float(known.mean()) if known.size else np.nan
    spread = Spread(float(known.var(ddof=1)) * (1 + 1 / known.size), known.size - 1) if known.size > 1 else None
    return interval(value, spread, known.size, units)


def verdict(estimate: Estimate, sign: int = 1) -> str:
    """Return in words what an interval says about an effect whose sign is predicted."""
    if not np.isfinite(estimate.low):
        return "not measured"
    if not estimate.found:
        return "not found"
    return "found" if np.sign(estimate.value) == sign else "found, with the other sign"


# ---------------------------------------------------------------------- blocks of kin

#: Blocks per hierarchy. With more blocks, neighbours are more alike; with fewer, there are fewer degrees of freedom.
BLOCKS = 10


def places(forest: Forest, latents: ArrayLike) -> Ints:
    """Return the place of each latent: the row that is reached from it by going to the larger child at every step.

    A latent and a latent inside it have the same place if every step from the first to the second goes to the larger
    child. So latents with mostly the same rows share a place, and latents of different places share at most half.
    """
    n, children = forest.n_points, forest.latent_children
    size = np.concatenate([np.ones(n, np.int64), forest.latent_size])
    below = np.arange(n + forest.n_latents)
    below[n:] = children[np.arange(len(children)), size[children].argmax(1)]
    while (below[n:] >= n).any():  # each round doubles the number of steps
        below = below[below]
    return below[n:][np.asarray(latents)]


def kin(place: ArrayLike, hierarchy: ArrayLike | None = None, count: int = BLOCKS) -> Ints:
    """Return a block for each unit: runs of neighbours in leaf order, of about equal number.

    Units of the same place are in one block.

    Parameters
    ----------
    place
        (U,) the row, in leaf order, that stands for each unit: see `places` for nested latents.
    hierarchy
        (U,) the hierarchy of each unit, if there are several: no block has units of two hierarchies.
    count
        Blocks per hierarchy.
    """
    where = np.asarray(place)
    which = np.zeros(where.size, np.int64) if hierarchy is None else np.asarray(hierarchy)
    block = np.zeros(where.size, np.int64)
    for i, name in enumerate(np.unique(which)):
        here = which == name
        _, at, sizes = np.unique(where[here], return_inverse=True, return_counts=True)
        middle = np.cumsum(sizes) - sizes / 2
        block[here] = i * count + (middle * count / here.sum()).astype(np.int64)[at]
    return np.unique(block, return_inverse=True)[1].astype(np.int64)


# ---------------------------------------------------------------------- leaving out seeds and blocks

#: Takes the indices of the seeds and of the units that are kept, and returns a number.
Statistic = Callable[[Ints, Ints], float]


def jackknife(statistic: Statistic, seeds: int, blocks: Ints) -> Estimate:
    """Return a statistic with the interval from leaving out each seed, each block, and each seed with each block.

    Parameters
    ----------
    statistic
        Called with the indices of the seeds and of the units that are kept.
    seeds
        Number of seeds.
    blocks
        (U,) the block of each unit: the units of a block are left out together.
    """
    units = _without(blocks)
    left = np.array([[statistic(some, kept) for kept in units] for some in _without(np.arange(seeds))])
    value, own_seed, own_block = float(left[0, 0]), left[1:, :1], left[:1, 1:]
    sizes = [np.ones(len(own_seed)), np.array([blocks.size - kept.size for kept in units[1:]], np.float64)]
    # The contribution of a part to the statistic; for a mean, the sum of its deviations over the number of all units.
    rest, other = 1 - 1 / seeds, 1 - sizes[1] / max(1, blocks.size)
    by_seed, by_block = (value - own_seed) * rest, (value - own_block) * other
    by_both = (value - own_seed - own_block + left[1:, 1:]) * rest * other
    return interval(value, _spread(by_seed[:, 0], by_block[0], by_both, sizes), seeds, blocks.size)


def _without(parts: Ints) -> list[Ints]:
    """Return all indices, then the indices without each part in turn; only the first list if there is one part."""
    names = np.unique(parts)
    left = [np.flatnonzero(parts != name) for name in names] if names.size > 1 else []
    return [np.arange(parts.size), *left]


def _spread(by_seed: Floats, by_block: Floats, by_both: Floats, sizes: list[Floats]) -> Spread | None:
    """Return the spread from the contributions of each seed, each block and each pair of them; NaN are left out."""
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
        (units,) the block of each unit; None makes every unit its own block.
    """
    value, spread, (seeds, units) = _mean(values, blocks)
    return interval(value, spread, seeds, units)


def _mean(values: ArrayLike, blocks: Ints | None) -> tuple[float, Spread | None, tuple[int, int]]:
    """Return the mean of (seeds, units) numbers, its spread, and how many seeds and units it is computed from."""
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
    """Return the mean of one number per network, with Student's interval."""
    return mean_interval(np.asarray(values, np.float64).reshape(-1, 1))


def share_interval(values: ArrayLike, blocks: Ints | None = None) -> Estimate:
    """Return the mean of (seeds, units) numbers that are 0 or 1, or ties of ½, with an interval within 0 and 1.

    It is Wilson's interval, with Student's t in place of the normal quantile. The number of independent trials is the
    number that gives the estimated variance or, where all values are equal, the number of units. If one network in many
    would have another share, a few networks whose shares are all near 0 or 1 do not show it: no interval can.
    """
    value, spread, (seeds, units) = _mean(values, blocks)
    if spread is None:
        return interval(value, spread, seeds, units)
    most = value * (1 - value)
    trials = most / spread.variance if spread.variance > 0 and most > 0 else units
    t2 = spread.quantile**2
    middle = (value + t2 / (2 * trials)) / (1 + t2 / trials)
    half = (t2 * (most / trials + t2 / (4 * trials**2))) ** 0.5 / (1 + t2 / trials)
    # Rounding must not put a share of 0 or 1 outside its interval.
    low, high = max(0.0, min(value, middle - half)), min(1.0, max(value, middle + half))
    return Estimate(value, low, high, seeds, units)


# ---------------------------------------------------------------------- redrawing blocks
#
# Statistics are computed for all redraws at once, from weights (1 + B, U) that say how often each unit counts; the
# first row is the original data. Each network has one statistic, and the estimate is their mean, so networks need not
# be redrawn: the variance along networks is the usual variance of a mean.

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
        (networks, 1 + B) statistic of each network for the weights of `redrawn`; NaN where none of its units was drawn.
    blocks
        (U,) the block of each unit that the statistic uses.
    positive
        Whether the interval is taken on the scale of logarithms.
    null
        Value that `p` is about.
    """
    n, counts = len(statistics), np.unique(blocks, return_counts=True)[1]
    drawn = statistics[:, 1:]
    drawn = drawn[:, np.isfinite(drawn).all(0)]
    of_network, means = statistics[:, 0], drawn.mean(0)
    parts = effective(counts) if drawn.size else 0.0
    by_network = along(float(((of_network - of_network.mean()) ** 2).sum()) / n**2, n)
    by_block = along(float(means.var()) if drawn.size else np.nan, parts)
    both = 0.0
    if by_network is not None and by_block is not None:
        both = float((drawn - means).var(1).sum()) / (n * (n - 1)) * parts / (parts - 1)
    return interval(
        float(of_network.mean()), total([by_network, by_block], both), n, blocks.size, positive=positive, null=null
    )


# ---------------------------------------------------------------------- statistics with weights


def quantiles(values: Floats, weights: Floats, q: float = 0.5) -> Floats:
    """Return (N, B) quantiles of values (N, U), each counted as often as its weight (B, U); NaN if no value counts.

    An integer weight w counts as w equal values. A quantile between two values is their midpoint, as in a median.
    """
    total_weight = weights.sum(1)
    at = q * (total_weight - 1)
    between = np.empty((len(values), len(weights)))
    for i, row in enumerate(values):
        order = np.argsort(row)
        up_to = np.cumsum(weights[:, order], 1)
        ordered = row[order]
        low = (up_to > np.floor(at)[:, None]).argmax(1)
        high = (up_to > np.ceil(at)[:, None]).argmax(1)
        part = at - np.floor(at)
        between[i] = ordered[low] * (1 - part) + ordered[high] * part
    between[:, total_weight == 0] = np.nan
    return between


def rank_correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Return (B,) Spearman's rank correlations of x and y (U,), each counted as often as its weight (B, U) says."""
    a, b = _ranks(x, weights), _ranks(y, weights)
    n = np.maximum(weights.sum(1, keepdims=True), 1)
    a = a - (weights * a).sum(1, keepdims=True) / n
    b = b - (weights * b).sum(1, keepdims=True) / n
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Floats = (weights * a * b).sum(1) / np.sqrt((weights * a * a).sum(1) * (weights * b * b).sum(1))
    return correlation


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return (B, U) ranks of values (U,); equal values have their mean rank."""
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(weights[:, order], 1)
    ranks = np.empty_like(weights)
    ranks[:, order] = up_to - weights[:, order] / 2
    _, place = np.unique(values, return_inverse=True)
    if place.max(initial=-1) + 1 < values.size:
        sums, counts = (_sums(part, place) for part in (ranks * weights, weights))
        with np.errstate(invalid="ignore"):
            ranks = (sums / counts)[:, place]
    return np.nan_to_num(ranks)


def _sums(values: Floats, place: Ints) -> Floats:
    """Return (B, groups) sums of values (B, U) over groups."""
    sums = np.zeros((len(values), int(place.max()) + 1))
    np.add.at(sums.T, place, values.T)
    return sums


# ---------------------------------------------------------------------- bins and straight lines


def equal_bins(values: ArrayLike, count: int = 4) -> tuple[Ints, Floats]:
    """Return the bin of each value, among `count` bins with about equally many values, and the edges of the bins.

    Equal values share a bin, so there are fewer bins if many values are equal.
    """
    numbers = np.asarray(values, np.float64)
    edges = np.unique(np.quantile(numbers, np.linspace(0, 1, count + 1), method="higher"))
    return np.digitize(numbers, edges[1:-1]).astype(np.int64), edges


def log_bins(values: ArrayLike, count: int = 5) -> tuple[Ints, Floats]:
    """Return the bin of each positive value, among `count` logarithmic bins that cover all values, and the edges."""
    numbers = np.asarray(values, np.float64)
    edges = np.geomspace(numbers.min() * (1 - 1e-9), numbers.max() * (1 + 1e-9), count + 1)
    return np.digitize(numbers, edges[1:-1]).astype(np.int64), edges


@dataclass(frozen=True)
class Line:
    """A line through the origin, fitted by least squares."""

    slope: float
    r2: float  #: 1 - residual sum of squares / sum of squares of y; negative where the line is worse than 0


def line_through_origin(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit y = slope · x."""
    a, b = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    square, total = float(a @ a), float(b @ b)
    if square == 0:
        return Line(np.nan, np.nan)
    slope = float(a @ b) / square
    rest = float(((b - slope * a) ** 2).sum())
    return Line(slope, 1 - rest / total if total > 0 else np.nan)


def mean_of_known(values: Floats, axis: int) -> Floats:
    """Return the mean along an axis of the values that are not NaN; NaN where all are NaN."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis)
    return np.where(known.any(axis), total / np.maximum(known.sum(axis), 1), np.nan)


def log_lines(x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Fit log10 y (…, k, B) to log10 x (k,); return slopes, intercepts and R², NaN with fewer than 3 points."""
    good = (x > 0)[:, None] & (y > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        u = np.where(good, np.log10(np.where(x > 0, x, 1))[:, None], np.nan)
        v = np.where(good, np.log10(y), np.nan)
        mean_u, mean_v = mean_of_known(u, -2), mean_of_known(v, -2)
        du, dv = u - mean_u[..., None, :], v - mean_v[..., None, :]
        uu, uv, vv = (mean_of_known(product, -2) for product in (du * du, du * dv, dv * dv))
        slope = np.where(good.sum(-2) >= 3, uv / uu, np.nan)
        return slope, mean_v - slope * mean_u, np.where(vv > 0, slope * uv / vv, np.nan)
