"""The split law: exact at small n, to rounding at large n, interlacing everywhere."""

from fractions import Fraction
from itertools import pairwise
from math import comb

import mpmath
import numpy as np
import pytest
from numba import njit
from scipy import stats
from scipy.special import gammaln, xlogy

from percolab.engines.native import splitting
from percolab.engines.native.splitting import split


def exact_law(n):
    """Return p_n(1), …, p_n(n-1) as exact fractions."""
    ways = [comb(n, k) * k ** (k - 1) * (n - k) ** (n - k - 1) for k in range(1, n)]
    return [Fraction(way, 2 * (n - 1) * n ** (n - 2)) for way in ways]


def log_law(n, k):
    """Return the logarithm of p_n(k)."""
    k = np.asarray(k, float)
    log_ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + xlogy(k - 1, k) + xlogy(n - k - 1, n - k)
    return log_ways - np.log(2 * (n - 1)) - (n - 2) * np.log(n)


@njit
def splits(n, u, k):
    for i in range(u.size):
        k[i] = split(n, u[i])


def draw(n, count, seed=0):
    k = np.empty(count, np.int64)
    splits(n, np.random.default_rng(seed).random(count), k)
    return k


@pytest.mark.parametrize("n", range(2, 12))
def test_the_law_sums_to_one(n):
    assert sum(exact_law(n)) == 1


@pytest.mark.parametrize(
    "n", [2, 3, 4, 5, 7, 20, 63, 64, 65, 66, 67, 68, 69, 80, 129, 200, 1000, pytest.param(3001, marks=pytest.mark.slow)]
)
def test_inversion_is_exact(n):
    """Compare with the exact distribution function at random u and within rounding of every place where k changes."""
    cdf = [float(value) for value in np.cumsum([float(p) for p in exact_law(n)])] if n > 200 else None
    if cdf is None:
        total, cdf = Fraction(0), []
        for p in exact_law(n):
            total += p
            cdf.append(float(total))
    cdf = np.array(cdf)
    rng = np.random.default_rng(n)
    near = np.concatenate([cdf[:-1] + shift for shift in (-1e-13, 1e-13)])
    u = np.concatenate([rng.random(100_000), near[(near > 0) & (near < 1)]])
    if n > 200:  # the sum of rounded terms is not exact itself
        u = u[:100_000]
    k = np.empty(u.size, np.int64)
    splits(n, u, k)
    np.testing.assert_array_equal(k, np.minimum(np.searchsorted(cdf, u, side="right") + 1, n - 1))


def middle_mass(n, x):
    """Return Σ p_n(k) over x < k < n - x, for x = k + 1/2, by the kernel that `split` solves with."""
    size = float(n)
    return splitting._middle_mass(size, x, splitting._scale(size), splitting._smooth_series(1.0 / size))


@pytest.mark.parametrize("n", [67, 100, 1001, 20_000])
def test_middle_mass_is_exact_to_rounding(n):
    with mpmath.workdps(30):
        log_total = mpmath.log(2 * (n - 1)) + (n - 2) * mpmath.log(n)
        total, worst = mpmath.mpf(0), 0.0
        for k in range(1, min(n // 2, 400)):
            ways = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
            total += mpmath.exp(ways + (k - 1) * mpmath.log(k) + (n - k - 1) * mpmath.log(n - k) - log_total)
            if k >= splitting.SCAN:
                worst = max(worst, abs(float(1 - 2 * total - middle_mass(n, k + 0.5))))
    assert worst < 5e-15


@pytest.mark.parametrize("n", [*range(2, 201, 6), 1000])
def test_chi_square_of_the_split_law(n):
    k, count = draw(n, 100_000, seed=n), 100_000
    expected = count * np.array([float(p) for p in exact_law(n)])
    observed = np.bincount(k, minlength=n)[1:]
    few = expected < 10
    if few.any():
        expected, observed = (
            np.append(expected[~few], expected[few].sum()),
            np.append(observed[~few], observed[few].sum()),
        )
    if expected.size > 1:
        assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_the_first_guess_is_better_than_it_has_to_be():
    """It decides k where no change of k is within `GUESS_ERROR`; its error is largest at the least x."""
    worst = 0.0
    for n in np.unique(np.geomspace(66, 1e12, 2000).astype(np.int64)):
        last = n / 2 - 0.5
        for x in np.unique(np.floor(np.geomspace(splitting.SCAN + 0.5, last, 40)) + 0.5):
            if x <= last:
                worst = max(worst, abs(splitting.guess_root(float(n), middle_mass(n, x)) - x))
    assert worst < splitting.GUESS_ERROR / 4


@pytest.mark.parametrize("n", [1000, 10**6, 10**9])
def test_chi_square_in_the_region_that_solves_for_k(n):
    count = 400_000
    k = draw(n, count, seed=1)
    edges = np.unique(np.geomspace(splitting.SCAN + 1, n // 2, 25).astype(int))
    smaller = np.minimum(k, n - k)
    observed = np.histogram(smaller, [*edges, n])[0][:-1]
    # The mass between edges, from the exact law where that is cheap and from `middle_mass`, tested above, elsewhere.
    if n == 1000:
        law = np.exp(log_law(n, np.arange(1, n)))
        expected = count * np.array([2 * law[a - 1 : b - 1].sum() for a, b in pairwise(edges)])
    else:
        mass = [middle_mass(n, a - 0.5) for a in edges]
        expected = count * -np.diff(mass)
    keep = expected > 10
    chi_square = np.sum((observed - expected)[keep] ** 2 / expected[keep])
    assert stats.chi2.sf(chi_square, keep.sum()) > 1e-4


@pytest.mark.parametrize("n", [2**24 + 1, 10**9, 10**12])
def test_the_careful_comparisons_agree_with_the_plain_ones(n):
    """Where rounding does not matter, n just above and just below `LARGE_SIZE` take different routes to the same k."""
    scale, series = splitting._scale(float(n)), splitting._smooth_series(1.0 / n)
    for k in (33, 100, 10_000, n // 1000):
        mass = middle_mass(n, k + 0.5)
        assert abs(splitting._mass_less(float(n), k + 0.5, scale, series, mass)) < 1e-15
    law = np.exp(log_law(1000, np.arange(1, 33)))
    plain = np.cumsum(law) - splitting._LIMIT
    assert abs(splitting._excess(1000.0, 32) / plain[31] - 1) < 1e-4  # the series is cut for n > LARGE_SIZE


@njit
def interlacing_faults(lowest, highest, count, seed):
    """Count pairs (n, u) where k(n+1) - k(n) is neither 0 nor 1, for n log-uniform in [lowest, highest]."""
    np.random.seed(seed)  # noqa: NPY002 (numba's own)
    faults = 0
    for _ in range(count):
        n = int(lowest * (highest / lowest) ** np.random.random())  # noqa: NPY002
        u = np.random.random()  # noqa: NPY002
        step = split(n + 1, u) - split(n, u)
        faults += step != 0 and step != 1
    return faults


@pytest.mark.parametrize("region", [(2, 70), (60, 200), (200, 1e5), (1e5, 1e11)])
def test_interlacing(region):
    assert interlacing_faults(*region, 1_500_000, 7) == 0


@njit
def faults_at_changes(n, seed):
    """Count interlacing faults at uniforms within a few units in the last place of where k changes for this n."""
    np.random.seed(seed)  # noqa: NPY002 (numba's own)
    faults = 0
    for _ in range(200):
        low, high = 0.0, 1.0
        target = split(n, np.random.random())  # noqa: NPY002
        for _ in range(60):  # bisect to a uniform at which k becomes at least `target`
            middle = 0.5 * (low + high)
            if split(n, middle) < target:
                low = middle
            else:
                high = middle
        for m in (n - 2, n - 1, n, n + 1):
            for shift in range(-3, 4):
                u = high + shift * 2.0**-53
                if m >= 2 and 0.0 <= u < 1.0:
                    step = split(m + 1, u) - split(m, u)
                    faults += step != 0 and step != 1
    return faults


SIZES = [10, 63, 64, 65, 66, 67, 100, 1000, 12_345, 10**6, 2**24 - 1, 2**24, 2**24 + 1, 10**8, 2**28, 10**10, 10**12]


@pytest.mark.parametrize("n", SIZES)
def test_interlacing_where_rounding_could_break_it(n):
    assert faults_at_changes(n, 3) == 0


def test_large_sizes_and_extreme_uniforms():
    for n in (2, 3, 64, 65, 66, 10**3, 10**9, 10**12):
        for u in (0.0, 2.0**-53, 0.25, 0.5 - 2.0**-53, 0.5, 0.5 + 2.0**-53, 1 - 2.0**-53):
            assert 1 <= split(n, u) <= n - 1
        assert split(n, 0.0) == 1
        assert split(n, 1 - 2.0**-53) == n - 1
