"""Experiments on what a network represents: statistics on planted activations, at stated error rates, without training."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import percolab as pl
from percolab.nn.represent import reading, relevance, siblings, statistics

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

REPEATS = 400
LARGEST_RATE = 0.08
"""Of 400 intervals at 95% that miss the truth with probability 0.05 each, more than 8% do with probability 0.005."""


@pytest.fixture(scope="module")
def forest():
    return pl.generate(pl.Recipe(1200, 3, "one_cluster", seeds=3)).forest


@pytest.fixture(scope="module")
def rows():
    """Samples in another order than rows, as in a superposed world."""
    return np.random.default_rng(5).permutation(1200)


@pytest.fixture(scope="module")
def pairs(forest, rows):
    return siblings.find_siblings(forest, rows, 20)


def rate(find, repeats=REPEATS, seed=0):
    """Return how often something is found."""
    rng = np.random.default_rng(seed)
    return np.mean([find(rng) for _ in range(repeats)])


# ---------------------------------------------------------------------- siblings


def samples_of(forest, rows, latent):
    below = forest.points_of(int(latent))
    return np.flatnonzero((rows >= below.start) & (rows < below.stop))


def test_pairs_are_both_children_of_a_latent(forest, rows, pairs):
    n = forest.n_points
    assert len(pairs) > 5
    for i in range(len(pairs)):
        children = forest.latent_children[pairs.parent[i]] - n
        for child, lo, hi in zip(children, (pairs.start[i], pairs.middle[i]), (pairs.middle[i], pairs.stop[i])):
            assert np.array_equal(np.sort(pairs.order[lo:hi]), samples_of(forest, rows, child))
        assert pairs.size[i] == forest.latent_size[children].min()
        assert pairs.depth[i] == forest.latent_depth[children[0]]
    sizes = forest.latent_size
    both = np.minimum(forest.left_size, sizes - forest.left_size) >= 20
    assert np.array_equal(pairs.parent, np.flatnonzero(both))


def test_of_many_pairs_some_of_every_size_are_taken(forest, rows, pairs):
    some = siblings.find_siblings(forest, rows, 20, most=5)
    assert len(some) == 5
    assert set(some.parent) <= set(pairs.parent)
    assert (some.size.min(), some.size.max()) == (pairs.size.min(), pairs.size.max())


@pytest.mark.parametrize("used", [None, np.arange(0, 1200, 3)])
def test_separation_is_as_defined(pairs, used):
    A = np.random.default_rng(0).standard_normal((1200, 4)) * [1, 2, 3, 100] + 1000
    found = siblings.separation(siblings.sums(torch.from_numpy(A), pairs, used))
    kept = np.arange(1200) if used is None else used
    for i in range(len(pairs)):
        left, right = (
            A[np.intersect1d(pairs.order[lo:hi], kept)]
            for lo, hi in ((pairs.start[i], pairs.middle[i]), (pairs.middle[i], pairs.stop[i]))
        )
        distance = ((left.mean(0) - right.mean(0)) ** 2).sum()
        assert found[i] == pytest.approx(distance / (left.var(0).sum() + right.var(0).sum()), rel=1e-8)


def test_a_linear_reading_is_scored_on_samples_it_has_not_seen(pairs):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1200, 5)).astype(np.float32)
    for i in range(len(pairs)):
        A[pairs.order[pairs.start[i] : pairs.middle[i]], i % 5] += 1.0
    held = rng.random(1200) < 0.4
    found = siblings.reading_accuracy(torch.from_numpy(A), pairs, np.flatnonzero(~held), np.flatnonzero(held))
    covariance = np.cov(A[~held].T, bias=True)
    covariance += siblings.SHRINKAGE * np.trace(covariance) / 5 * np.eye(5)
    for i in range(len(pairs)):
        sides = [pairs.order[pairs.start[i] : pairs.middle[i]], pairs.order[pairs.middle[i] : pairs.stop[i]]]
        left, right = (A[side[~held[side]]].mean(0) for side in sides)
        w = np.linalg.solve(covariance, left - right)
        right_way = [(A[side[held[side]]] - (left + right) / 2) @ w > 0 for side in sides]
        expected = (right_way[0].mean() + 1 - right_way[1].mean()) / 2
        assert found[i] == pytest.approx(expected, abs=2.1 / min(map(len, right_way)))


# ---------------------------------------------------------------------- intervals


def nested_noise(rng, seeds, units, blocks, effect=0.0):
    """Return (seeds, units) numbers that vary by seed, by block of kin, by unit and by both."""
    by_block = rng.normal(0, 0.5, blocks.max() + 1)[blocks]
    return effect + rng.normal(0, 0.3, (seeds, 1)) + by_block + rng.normal(0, 1, (seeds, units))


def test_an_interval_of_a_mean_misses_the_truth_rarely():
    blocks = statistics.kin_blocks(np.arange(120))
    missed = rate(lambda rng: statistics.mean_interval(nested_noise(rng, 5, 120, blocks), blocks).found)
    assert 0.005 < missed < LARGEST_RATE  # neither too narrow nor so wide that it finds nothing


def test_an_interval_that_forgets_kin_would_miss_it_often():
    blocks = statistics.kin_blocks(np.arange(120))
    missed = rate(lambda rng: statistics.mean_interval(nested_noise(rng, 5, 120, blocks)[:1], None).found)
    assert missed > LARGEST_RATE


def test_a_mean_interval_is_the_jackknife():
    rng = np.random.default_rng(1)
    values, blocks = rng.standard_normal((4, 30)), statistics.kin_blocks(rng.permutation(30), 7)
    values[2, 3] = np.nan
    quick = statistics.mean_interval(values, blocks)
    slow = statistics.jackknife(lambda s, u: np.nanmean(values[np.ix_(s, u)]), [np.arange(4), blocks])
    assert quick.to_dict() == pytest.approx(slow.to_dict())


def test_blocks_are_runs_of_neighbours():
    place = np.random.default_rng(0).permutation(100)
    blocks = statistics.kin_blocks(place, 10)
    assert np.array_equal(np.sort(blocks), np.repeat(np.arange(10), 10))
    assert np.array_equal(blocks, place // 10)
    assert np.array_equal(statistics.kin_blocks([5, 3, 4], 20), [2, 0, 1])


# ---------------------------------------------------------------------- relevance


def planted_world(rng, forests, pairs_of, effect, seeds=3, width=4):
    """Return separations (S, K, P) in activations where a pair is set apart more in the network of its own factor."""
    K = len(forests)
    found = []
    for _ in range(seeds):
        for trained_on in range(K):
            A = rng.standard_normal((600, width))
            for k, own in enumerate(pairs_of):
                shift = 0.5 * np.exp(effect / 2 * (k == trained_on))
                for i in range(len(own)):
                    A[own.order[own.start[i] : own.middle[i]]] += shift * rng.standard_normal(width)
            tensor = torch.from_numpy(A)
            found.append(np.concatenate([siblings.separation(siblings.sums(tensor, own)) for own in pairs_of]))
    return np.stack(found).reshape(seeds, K, -1)


@pytest.fixture(scope="module")
def factors():
    forests = [pl.generate(pl.Recipe(600, 2, "one_cluster", seeds=seed)).forest for seed in range(3)]
    places = [np.random.default_rng(k).permutation(600) for k in range(3)]
    found = [siblings.find_siblings(f, p, 12) for f, p in zip(forests, places, strict=True)]
    return forests, found


def relevant(rng, factors, effect):
    forests, own = factors
    values = planted_world(rng, forests, own, effect)
    factor = np.repeat(np.arange(3), [len(part) for part in own])
    blocks = relevance.blocks_of(factor, np.concatenate([part.place for part in own]))
    swap = statistics.mean_interval(relevance.swap_log_ratio(values, factor), blocks)
    idle = statistics.mean_interval(relevance.idle_log_ratio(values, factor), blocks)
    return swap, idle


def test_relevance_is_found_where_it_is_planted_and_not_elsewhere(factors):
    found = rate(lambda rng: relevant(rng, factors, 1.5)[0].low > 0, 40)
    idle = rate(lambda rng: relevant(rng, factors, 1.5)[1].found, 100, seed=1)
    nothing = rate(lambda rng: relevant(rng, factors, 0.0)[0].found, 100, seed=2)
    assert found == 1
    assert idle <= 0.12  # more than 12 of 100 with probability 0.0015
    assert nothing <= 0.12


def test_a_log_ratio_is_of_a_unit_with_itself():
    values = np.exp(np.random.default_rng(0).standard_normal((2, 3, 5)))
    factor = np.array([0, 0, 1, 2, 2])
    found, idle = relevance.swap_log_ratio(values, factor), relevance.idle_log_ratio(values, factor)
    for s, p in np.ndindex(2, 5):
        own, others = factor[p], [k for k in range(3) if k != factor[p]]
        logs = np.log(values[s, :, p])
        assert found[s, p] == pytest.approx(logs[own] - logs[others].mean())
        assert abs(idle[s, p]) == pytest.approx(abs(logs[others[0]] - logs[others[1]]))
    assert relevance.idle_log_ratio(values[:, :2], factor[:3]) is None


# ---------------------------------------------------------------------- probes


@pytest.fixture(scope="module")
def places(forest, rows):
    return reading.find_places(forest, rows, range(0, 40, 4), 25, seed=0)


def test_probes_are_ridge_regressions(forest, rows, places):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1200, 6)).astype(np.float32) * 3 + 1
    values = rng.standard_normal((forest.n_latents, 2))[places.latent]
    found = reading.read(torch.from_numpy(A), places, values)
    for j, depth in enumerate(places.depths):
        latent = forest.latent_at_depth(int(depth))[rows]
        inside = np.isin(latent, places.latent)
        own = np.searchsorted(places.latent[places.depth_index == j], latent[inside])
        own = own + np.flatnonzero(places.depth_index == j)[0]
        fit = places.fit[inside]
        scaled = (A - A[inside][fit].mean(0)) / (A[inside][fit].std(0) + 1e-6)
        for t in range(2):
            target = values[own, t]
            probe = Ridge(alpha=1).fit(scaled[inside][fit], target[fit])
            squared = (probe.predict(scaled[inside][~fit]) - target[~fit]) ** 2
            for number in np.unique(own):
                assert found.mse[number, t] == pytest.approx(squared[own[~fit] == number].mean(), rel=1e-4)
                assert found.baseline[number, t] == pytest.approx((target[fit].mean() - values[number, t]) ** 2, rel=1e-4)


def test_sums_go_down_the_path(forest):
    values = np.random.default_rng(0).standard_normal((forest.n_latents, 3))
    found = reading.path_sums(forest, values)
    for latent in range(0, forest.n_latents, 50):
        path = np.append(forest.ancestors(latent), latent)
        assert np.allclose(found[latent], values[path].sum(0))
