"""Statistics with weights, against the same on repeated values; intervals that hold the truth as often as they say."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import percolab as pl
from percolab.nn import resampling


@given(st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([0.25, 0.5, 0.75]))
def test_weights_are_repeats(seed, n, q):
    random = np.random.default_rng(seed)
    x, y = random.integers(0, 12, n).astype(float), random.standard_normal(n)
    weights = random.integers(0, 4, (5, n)).astype(float)
    found = resampling.quantiles(np.stack([x, y]), weights, q)
    rank = resampling.rank_correlation(x, y, weights)
    for b, counts in enumerate(weights.astype(int)):
        if counts.sum() == 0:
            assert np.isnan(found[:, b]).all()
            continue
        repeated = np.repeat(x, counts), np.repeat(y, counts)
        for i in range(2):
            assert found[i, b] == pytest.approx(np.quantile(repeated[i], q))
        if all(np.ptp(one) > 0 for one in repeated):
            assert rank[b] == pytest.approx(scipy.stats.spearmanr(*repeated).statistic)


def test_lines_are_those_of_scipy():
    random = np.random.default_rng(0)
    x, y = np.geomspace(1, 100, 6), np.exp(random.standard_normal((2, 6, 4)))
    y[1, 2, 3] = np.nan
    slope, intercept, r2 = resampling.lines(x, y)
    for i in range(2):
        for b in range(4):
            good = ~np.isnan(y[i, :, b])
            fit = scipy.stats.linregress(np.log10(x[good]), np.log10(y[i, good, b]))
            assert (slope[i, b], intercept[i, b], r2[i, b]) == pytest.approx((fit.slope, fit.intercept, fit.rvalue**2))
    assert np.isnan(resampling.lines(x[:2], y[0, :2])[0]).all()


@pytest.mark.parametrize("mode", ["one_cluster", "distribution"])
def test_groups_share_no_more_than_they_must(mode):
    ds = pl.generate(pl.Recipe(4000, 2, mode, seeds=1, min_cluster_size=1 if mode == "one_cluster" else 10))
    forest = ds.forest
    latents = np.flatnonzero(forest.latent_size >= 10)
    groups, what = resampling.groups_of(forest, latents)
    assert what == {"one_cluster": "subtrees", "distribution": "clusters"}[mode]
    if what == "clusters":
        assert np.array_equal(groups, forest.latent_cluster[latents])
        return
    cut = forest.cut(max_size=80)
    for latent, group in zip(latents, groups, strict=True):
        rows = forest.points_of(int(latent))
        counts = np.bincount(cut.groups[rows])
        assert counts[group] == counts.max()
    assert np.unique(groups).size > 10


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    """Latents of a group share noise, as nested ones do: resampling groups covers, resampling latents does not."""
    random = np.random.default_rng(0)
    place = np.repeat(np.arange(60), 8)
    held = {"groups": 0, "latents": 0}
    trials = 200
    for _ in range(trials):
        values = np.repeat(random.standard_normal(60), 8) + 0.3 * random.standard_normal(480)
        for name, groups in (("groups", place), ("latents", np.arange(480))):
            weights = resampling.resampled(groups, 200, int(random.integers(1 << 30)))
            found = resampling.interval((weights @ values) / weights.sum(1))
            held[name] += found.low <= 0 <= found.high
    assert held["groups"] >= 0.88 * trials  # 95% in theory; 0.88 is four standard errors below
    assert held["latents"] < 0.75 * trials


def test_networks_are_drawn_too():
    weights = np.ones((501, 3))
    networks = resampling.Networks(5, weights, seed=0)
    values = np.arange(5.0)[:, None] * np.ones(501)
    found = resampling.interval(networks.mean(values))
    assert found.value == 2
    assert found.low < 1.2
    assert found.high > 2.8
    spread = resampling.over_seeds(np.arange(5))
    low, high = scipy.stats.t.interval(0.95, 4, 2, scipy.stats.sem(np.arange(5)))
    assert (spread.low, spread.high) == pytest.approx((low, high))
    assert np.isnan(resampling.over_seeds([1.0]).low)
