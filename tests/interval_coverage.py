"""How many intervals hold the truth where effects are planted: ``python tests/interval_coverage.py [TRIALS]``.

A table of networks by units has effects of networks, of groups of kin, of the two together, of units and of single
cells; kinds of tables differ in which of these there are. The truth of a statistic is what it is over all networks and
units.
"""

import sys
from statistics import NormalDist

import numpy as np

import percolab as pl
from percolab import intervals
from percolab.experiments import scaling
from percolab.features.concepts import by_row, find_concepts
from percolab.features.thresholds import SUMMARY_RATIO
from percolab.intervals import line_through_origin, log_lines

NETWORKS, EACH, GROUPS = 5, 6, (20, 50)
KINDS = {
    "cells alone": (0, 0, 0, 0, 1),
    "groups": (0, 1, 0, 0.5, 0.5),
    "networks": (1, 0, 0, 0, 0.5),
    "groups by network": (0, 0, 1, 0, 0.3),
    "all of them": (0.3, 1, 0.5, 0.5, 0.5),
}
"""Standard deviations by network, group, group and network, unit, and cell."""
REDRAWS = 300
LEAST = 93
"""Percentage of the intervals, made to hold the truth in 95 % of tables, that must."""


class Table:
    """Numbers by network and unit, normal around 0, and the blocks of kin among the units."""

    def __init__(self, rng, kind, groups):
        self.rng, self.spread = rng, KINDS[kind]
        self.groups = np.repeat(np.arange(groups), EACH)
        self.blocks = intervals.kin(np.arange(self.groups.size))
        self.weights = intervals.redrawn(self.blocks, REDRAWS, int(rng.integers(1 << 30)))
        self.values = self.draw()

    def draw(self):
        """Return (networks, units) numbers."""
        network, group, both, unit, cell = self.spread
        normal, n, groups = self.rng.standard_normal, self.groups.size, self.groups[-1] + 1
        by_group = group * normal(groups) + both * normal((NETWORKS, groups))
        return (
            network * normal((NETWORKS, 1)) + by_group[:, self.groups] + unit * normal(n) + cell * normal((NETWORKS, n))
        )

    @property
    def inside(self):
        """Standard deviation over the units of one network."""
        return sum(s**2 for s in self.spread[1:]) ** 0.5


def mean(table, effect):
    """Mean of differences, or of log ratios."""
    return intervals.mean_interval(effect + table.values, table.blocks), effect


def ratio_of_means(table, effect):
    """Logarithm of a ratio of means of positive numbers, as of errors of probes over errors of the mean."""
    a, b = np.exp(effect + 0.5 * table.values), np.exp(0.5 * table.draw())

    def statistic(seeds, units):
        some = np.ix_(seeds, units)
        return float(np.log(a[some].mean(1) / b[some].mean(1)).mean())

    return intervals.jackknife(statistic, NETWORKS, table.blocks), effect


def slope(table, effect):
    """Slope of responses over doses, through the origin."""
    dose = table.rng.choice([-1.0, 1.0], table.groups.size) * table.rng.uniform(0.5, 1.5, table.groups.size)
    response = effect * dose + table.values

    def statistic(seeds, units):
        y = response[np.ix_(seeds, units)]
        return line_through_origin(np.broadcast_to(dose[units], y.shape), y).slope

    return intervals.jackknife(statistic, NETWORKS, table.blocks), effect


def exponent(table, effect):
    """Slope of log mean squared error over log n, as of `percolab scaling`: each n has networks of its own."""
    n = 100.0 * 2 ** np.arange(5)
    level = 0.3 * np.stack([table.draw() - table.values.mean() for _ in n], 1)
    errors = n[:, None] ** effect * np.exp(level) * table.rng.chisquare(1, (NETWORKS, n.size, table.groups.size))
    return scaling.exponent(n, errors, table.blocks), effect


def median(table, effect):
    """Median of log errors."""
    return intervals.bootstrap(intervals.quantiles(effect + table.values, table.weights), table.blocks), effect


def positive_median(table, effect):
    """Mean over networks of medians of positive numbers, its interval in logarithms."""
    medians = intervals.quantiles(np.exp(effect + 0.3 * table.values), table.weights)
    truth = np.exp(effect + (0.3 * table.spread[0]) ** 2 / 2)
    return intervals.bootstrap(medians, table.blocks, positive=True), float(truth)


def ratio_of_medians(table, effect):
    """Logarithm of a ratio of medians."""
    of, over = (intervals.quantiles(v, table.weights) for v in (effect + table.values, table.draw()))
    return intervals.bootstrap(of - over, table.blocks), effect


def power_law(table, effect):
    """Slope of log medians in five bins of log FOM."""
    fom = 10 ** table.rng.uniform(0, 2, table.groups.size)
    bins = np.minimum((np.log10(fom) / 0.4).astype(int), 4)
    errors = np.exp(table.values) * fom**effect
    medians = [intervals.quantiles(errors[:, bins == b], table.weights[:, bins == b]) for b in range(5)]
    slopes = log_lines(10 ** (0.2 + 0.4 * np.arange(5)), np.stack(medians, 1))[0]
    return intervals.bootstrap(slopes, table.blocks), effect


def rank_correlation(table, effect):
    """Rank correlation of something that kin share with something else that they share."""
    shared = table.rng.standard_normal(table.groups[-1] + 1)[table.groups]
    x = (shared + table.rng.standard_normal(table.groups.size)) / 2**0.5
    ranks = np.stack([intervals.rank_correlation(x, y, table.weights) for y in effect * x + table.values])
    pearson = effect / (effect**2 + table.inside**2) ** 0.5
    return intervals.bootstrap(ranks, table.blocks).within(-1, 1), float(6 / np.pi * np.arcsin(pearson / 2))


def share(table, effect):
    """Share of cells above 0."""
    spread = (table.inside**2 + table.spread[0] ** 2) ** 0.5
    values = (table.values + effect * spread > 0).astype(np.float64)
    return intervals.share_interval(values, table.blocks), NormalDist().cdf(effect)


STATISTICS = {
    mean: (0.5,), ratio_of_means: (0.5,), slope: (0.5,), exponent: (-0.5,), median: (0.5,), positive_median: (0.5,),
    ratio_of_medians: (0.5,), power_law: (0.0, -0.6), rank_correlation: (0.0, 1.0), share: (0.0, 1.0),
}  # fmt: skip
"""Statistics, and the effects that are planted. In the first ones an effect shifts estimate and truth alike: with none
at all, as many hold."""


def held(statistic, effect, kind, groups, trials):
    """Return the share of intervals that hold the truth."""
    count = 0
    for trial in range(trials):
        estimate, truth = statistic(Table(np.random.default_rng((trial, groups)), kind, groups), effect)
        count += estimate.low <= truth <= estimate.high
    return count / trials


# ---------------------------------------------------------------------- nested latents of a real hierarchy


def nested(trials, n_points=20_000, min_size=30, seed=3, concepts=False):
    """Return, for blocks by place, by first row and for none, shares of intervals that hold the truth, 0.

    Latents of depths 0, 5, …, 200 of one cluster, or the concepts that means of scores are over. The number of a latent
    is the mean of noise of its rows, of variance 1, so latents that share rows share all: worse than what networks
    show. Each network adds noise of its own.
    """
    forest = pl.generate(pl.Recipe(n_points, 2, "one_cluster", seeds=seed)).forest
    depth, size = forest.latent_depth, forest.latent_size
    latents = np.flatnonzero((depth % 5 == 0) & (depth <= 200) & (size >= min_size))
    if concepts:
        found = find_concepts(by_row(forest, np.arange(n_points)), min_size, SUMMARY_RATIO)
        latents = found.latent[found.summarised]
    start, stop = forest.points_of(latents)
    log_fom = np.log(forest.figure_of_merit[latents])
    ways = {
        "place": intervals.kin(intervals.places(forest, latents)),
        "first row": intervals.kin(forest.latent_start[latents]),
        "none": np.arange(latents.size),
    }
    count = {(way, name): 0 for way in ways for name in ("mean", "median", "rank correlation")}
    for trial in range(trials):
        rng = np.random.default_rng((trial, 7))
        below = np.concatenate([[0], np.cumsum(rng.standard_normal(forest.n_points))])
        shared = (below[stop] - below[start]) / np.sqrt(stop - start)
        values = shared + 0.5 * rng.standard_normal((NETWORKS, latents.size))
        for way, blocks in ways.items():
            weights = intervals.redrawn(blocks, REDRAWS, trial)
            ranks = np.stack([intervals.rank_correlation(log_fom, own, weights) for own in values])
            found = {
                "mean": intervals.mean_interval(values, blocks),
                "median": intervals.bootstrap(intervals.quantiles(values, weights), blocks),
                "rank correlation": intervals.bootstrap(ranks, blocks),
            }
            for name, estimate in found.items():
                count[way, name] += estimate.low <= 0 <= estimate.high
    return {key: value / trials for key, value in count.items()}


def main(trials):
    """Print the tables; return whether too few intervals hold the truth, as an exit code."""
    shares = []
    print(f"{trials} tables of each kind, {NETWORKS} networks, {EACH} units a group; intervals that hold the truth, %")
    print(f"{'':17}{'effect':>7}{'groups':>7}" + "".join(f"{kind:>19}" for kind in KINDS))
    for statistic, effects in STATISTICS.items():
        for effect in effects:
            for groups in GROUPS:
                row = [held(statistic, effect, kind, groups, trials) for kind in KINDS]
                shares += row
                name = statistic.__name__.replace("_", " ")
                print(f"{name:17}{effect:7}{groups:7}" + "".join(f"{100 * one:19.1f}" for one in row), flush=True)
    for what, concepts in (("nested latents", False), ("concepts", True)):
        print(f"{what}, blocks by place, by first row, none")
        found = nested(trials, concepts=concepts)
        for name in ("mean", "median", "rank correlation"):
            print(f"{name:17}" + "".join(f"{100 * found[way, name]:9.1f}" for way in ("place", "first row", "none")))
    print(f"{100 * np.mean(shares):.1f} % of all intervals of planted tables hold the truth; at least {LEAST} % must")
    return int(100 * np.mean(shares) < LEAST)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
