"""Closed forms, against enumeration and against the processes themselves, in exact arithmetic where it is cheap."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations

import numpy as np
import planted
import pytest

import percolab as pl
from percolab import theory


def trees(n):
    """Return every labelled tree on n points, as a list of bonds: those sets of n - 1 pairs that join all."""
    pairs = list(combinations(range(n), 2))
    return [bonds for bonds in combinations(pairs, n - 1) if len(components(n, bonds)) == 1]


def components(n, bonds):
    group = list(range(n))
    for a, b in bonds:
        old, new = group[a], group[b]
        group = [new if g == old else g for g in group]
    return [frozenset(i for i in range(n) if group[i] == g) for g in set(group)]


def distances(n, bonds):
    far = np.full((n, n), n)
    np.fill_diagonal(far, 0)
    for a, b in bonds:
        far[a, b] = far[b, a] = 1
    for k in range(n):
        far = np.minimum(far, far[:, [k]] + far[[k], :])
    return far


TREES = {n: trees(n) for n in range(2, 6)}


# ---------------------------------------------------------------------- cluster sizes


def exact_sizes(n, p):
    """Return the expected number of clusters of each size and E[Σ s²], over all histories of n points."""
    states = {(1,): Fraction(1)}
    for points in range(1, n):
        following = Counter()
        for sizes, prob in states.items():
            following[tuple(sorted((*sizes, 1)))] += prob * p
            for i, s in enumerate(sizes):
                grown = tuple(sorted((*sizes[:i], s + 1, *sizes[i + 1 :])))
                following[grown] += prob * (1 - p) * Fraction(s, points)
        states = following
    expected, squares = [Fraction(0)] * (n + 1), Fraction(0)
    for sizes, prob in states.items():
        for s in sizes:
            expected[s] += prob
            squares += prob * s * s
    return expected, squares


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 2), Fraction(1, 5), Fraction(1)])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_expected_sizes(n, p):
    expected, squares = exact_sizes(n, p)
    assert theory.expected_sizes(n, n, float(p)) == pytest.approx([float(e) for e in expected])
    assert theory.expected_clusters(n, float(p)) == pytest.approx(float(sum(expected)))
    if p == Fraction(1, 3):
        growth = math.exp(math.lgamma(n + 4 / 3) - math.lgamma(n) - math.lgamma(7 / 3))
        assert float(squares) == pytest.approx(-3 * n + 4 * growth)


def test_expected_sizes_approach_their_limit():
    n, s = 20_000, np.arange(1, 41)
    assert theory.expected_sizes(n, 40)[1:] == pytest.approx(n / 3 * theory.size_law(s), rel=2e-3)
    assert theory.expected_sizes(10**8, 40)[1:] == pytest.approx(10**8 / 3 * theory.size_law(s))


@pytest.mark.parametrize("p", [1 / 3, 0.1, 0.6])
def test_size_law_and_its_tail(p):
    s = np.arange(1, 200_000)
    law = theory.size_law(s, p)
    assert 1 - np.concatenate([[0], np.cumsum(law)[:20]]) == pytest.approx(theory.size_ccdf(np.arange(1, 22), p))
    slope = np.log(theory.size_law(2e6, p) / theory.size_law(1e6, p)) / np.log(2)
    assert -slope == pytest.approx(theory.size_exponent(p), abs=1e-4)
    assert theory.size_ccdf_per_point(7, p) == pytest.approx(p * theory.size_ccdf(7, p))


def test_critical_sizes():
    assert theory.size_exponent() == 5 / 2
    assert theory.size_law(np.array([1, 2, 3])) == pytest.approx([3 / 5, 6 / 35, 8 / 105])
    assert theory.size_ccdf(100) == pytest.approx(0.001324, abs=1e-6)
    assert theory.size_ccdf(1e8) * 1e12 == pytest.approx(3 * math.sqrt(math.pi) / 4, rel=1e-6)


def test_sizes_refuse():
    with pytest.raises(ValueError, match="create_prob must be below 1, got 1"):
        theory.size_law(3, 1.0)
    with pytest.raises(ValueError, match="create_prob must be between 0 and 1, got 2"):
        theory.expected_clusters(3, 2)


# ---------------------------------------------------------------------- the tree


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_tree_laws_by_enumeration(n):
    assert len(TREES[n]) == theory.tree_count(n)
    degree, distance = Counter(), Counter()
    for bonds in TREES[n]:
        degree.update(np.bincount(np.ravel(bonds), minlength=n).tolist())
        distance.update(distances(n, bonds)[np.triu_indices(n, 1)].tolist())
    for counts, law in ((degree, theory.degree_law), (distance, theory.distance_law)):
        total = sum(counts.values())
        assert law(np.arange(0, n + 1), n) == pytest.approx([counts[k] / total for k in range(n + 1)])
    tail = [sum(distance[j] for j in range(k, n)) / sum(distance.values()) for k in range(n + 1)]
    assert theory.distance_ccdf(np.arange(n + 1), n) == pytest.approx(tail)
    mean = sum(k * c for k, c in distance.items()) / sum(distance.values())
    assert theory.mean_distance(n) == pytest.approx(mean)


def test_tree_limits():
    k = np.arange(1, 9)
    assert theory.degree_law(k, 10**8) == pytest.approx(theory.degree_law(k), rel=1e-6)
    assert theory.degree_law(k).sum() == pytest.approx(1, abs=1e-4)
    n = 10**8
    assert theory.mean_distance(n) == pytest.approx(math.sqrt(math.pi * n / 2) - 4 / 3, abs=0.01)
    far = np.array([0.5, 1.0, 2.0])
    assert 1 - theory.distance_ccdf(far * math.sqrt(n), n) == pytest.approx(theory.rayleigh_cdf(far), abs=3e-4)


def test_height_and_diameter_of_sampled_trees():
    n = 3000
    heights = [planted.rooted(pl.engines.split_forest(n, seed))[1].max() for seed in range(60)]
    assert np.mean(heights) == pytest.approx(math.sqrt(2 * math.pi * n), rel=0.12)


# ---------------------------------------------------------------------- forests and merger trees


@pytest.mark.parametrize("n", [3, 4, 5])
def test_forest_probabilities(n):
    """Deleting bonds of a uniform tree in a uniform order: count every tree and every set of deleted bonds."""
    for k in range(1, n + 1):
        counts = Counter()
        for bonds in TREES[n]:
            counts.update(combinations(sorted(bonds), n - k))
        total = sum(counts.values())
        for forest, count in counts.items():
            sizes = [len(part) for part in components(n, forest)]
            assert count / total == pytest.approx(theory.forest_probability(sizes))


def test_forests_are_not_uniform():
    assert theory.forest_probability([3, 1]) == 1 / 16
    assert theory.forest_probability([2, 2]) == 1 / 12
    with pytest.raises(ValueError, match="sizes must have at least one entry"):
        theory.forest_probability([])


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_split_and_depth_by_enumeration(n):
    """Cut the bonds of every tree in every order; count the first split and the depth of every point."""
    split, depth = Counter(), Counter()
    for bonds in TREES[n]:
        for order in permutations(bonds):
            first = [len(part) for part in components(n, order[1:])]
            split.update(first)
            for point in range(n):
                depth[cuts(n, order, point)] += 1
    total = sum(split.values())
    assert theory.split_law(np.arange(n + 1), n) == pytest.approx([split[k] / total for k in range(n + 1)])
    total = sum(depth.values())
    law = theory.depth_laws(n)[n]
    assert law[: n + 1] == pytest.approx([depth[k] / total for k in range(n + 1)][: law.size])
    assert theory.mean_depth(n) == pytest.approx(sum(k * c for k, c in depth.items()) / total)


def cuts(n, order, point):
    """Return how many cuts, in this order, fall in the part that holds a point."""
    found = 0
    for i, bond in enumerate(order):
        part = next(part for part in components(n, order[i:]) if point in part)
        found += bond[0] in part
    return found


def test_split_law_in_exact_arithmetic():
    for n in (7, 40, 300):
        exact = [
            Fraction(math.comb(n, k) * k ** (k - 1) * (n - k) ** (n - k - 1), 2 * (n - 1) * n ** (n - 2))
            for k in range(1, n)
        ]
        assert sum(exact) == 1
        assert theory.split_law(np.arange(1, n), n) == pytest.approx([float(e) for e in exact], rel=1e-12)


def test_split_law_of_large_clusters():
    n = 10**9
    k = np.array([1, 2, 50, 10**4])
    assert theory.split_law(k, n) == pytest.approx(theory.borel_law(k) / 2, rel=1e-4)
    assert theory.split_law(k, n) == pytest.approx(theory.split_law(n - k, n), rel=1e-9)
    ratio = theory.split_law(k + 1, n) / theory.split_law(k, n)
    log = (
        np.log((n - k) / (k + 1.0))
        + k * np.log(k + 1.0)
        - (k - 1) * np.log(k)
        - 1
        - np.log(n - k)  # (n-k-1)^(n-k-2) / (n-k)^(n-k-1) is 1/(e (n-k)) up to O(1/n)
    )
    assert np.log(ratio) == pytest.approx(log, abs=1e-6)


def test_borel_law():
    k = np.arange(1, 200)
    assert theory.borel_law(np.array([1, 2, 3])) == pytest.approx([math.exp(-1), math.exp(-2), 1.5 * math.exp(-3)])
    assert 1 - theory.borel_law(k).sum() == pytest.approx(2 / math.sqrt(2 * math.pi * 200), rel=0.01)


def test_depth():
    assert theory.mean_depth(1) == 0
    assert theory.mean_depth(2) == pytest.approx(1)
    assert theory.mean_depth(200_000) == pytest.approx(565.90, abs=0.005)
    assert theory.mean_depth(10**9) == pytest.approx(
        math.sqrt(math.pi / 2 * 10**9) + theory.depth_shift(10**9), abs=1e-4
    )
    laws = theory.depth_laws(600)
    j = np.arange(laws.shape[1])
    assert laws[1:].sum(axis=1) == pytest.approx(1)
    for m in (2, 10, 100, 600):
        assert laws[m] @ j == pytest.approx(theory.mean_depth(m))
    variance = laws[600] @ j**2 - (laws[600] @ j) ** 2
    assert variance == pytest.approx((2 - math.pi / 2) * 600, rel=0.06)


# ---------------------------------------------------------------------- positions and thresholds


def test_positions():
    assert theory.expected_square_distance(np.array([1, 4]), 10, 0.5) == pytest.approx([2.5, 10])
    assert theory.expected_feature_variance(10**9) == pytest.approx(math.sqrt(math.pi / 8), abs=1e-4)
    n = 5
    pairs = np.mean([distances(n, bonds).mean() for bonds in TREES[n]])
    assert theory.expected_feature_variance(n) == pytest.approx(0.5 * n**-0.5 * pairs)


def test_percolation():
    assert theory.bethe_threshold(3) == 1 / 2
    exponents = theory.EXPONENTS
    assert (exponents.tau, exponents.sigma) == (2.5, 0.5)
    assert (exponents.fractal_dimension, exponents.upper_critical_dimension) == (4, 6)
    assert exponents.tau == theory.size_exponent()


@pytest.mark.parametrize("n", [256, 600])
def test_depths_approach_the_rayleigh_law(n):
    """With the mean shifted as the expansion says, the exact law is within 0.010 of its limit."""
    law = theory.depth_laws(n)[n]
    limit = theory.rayleigh_cdf((np.arange(law.size) + 0.5 - theory.depth_shift(n)) / math.sqrt(n))
    assert np.abs(np.cumsum(law) - limit).max() < 0.010
