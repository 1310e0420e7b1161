"""Closed forms: what theory says about sizes, trees, merger trees, positions and thresholds.

Each function states a law and where it comes from; `percolab.verify` compares data with them. Symbols are those of the
paper: n points, p the probability that a point starts a new cluster, s the size of a cluster. docs/theory.md lists all
laws in one place, with two corrections to the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, gammaln

from percolab.ground.arrays import Floats
from percolab.ground.compiled import kernel
from percolab.ground.extras import defined, surface
from percolab.ground.validation import check_integer, check_number, check_probability
from percolab.model.recipe import CRITICAL_CREATE_PROB

# ---------------------------------------------------------------------- percolation


@dataclass(frozen=True)
class CriticalExponents:
    """Exponents of mean-field percolation (Stauffer and Aharony, *Introduction to Percolation Theory*, ch. 2)."""

    tau: float = 5 / 2  #: cluster numbers at the threshold, n_s ~ s^(-τ)
    sigma: float = 1 / 2  #: cutoff near the threshold, n_s ~ s^(-τ) e^(-cs) with c ~ ``|p - p_c|^(1/sigma)``
    fractal_dimension: float = 4  #: D: a cluster of radius R has of the order of R^D points
    upper_critical_dimension: float = 6  #: d_u: from this dimension on, the mean-field values hold on a lattice


EXPONENTS = CriticalExponents()


def bethe_threshold(degree: int) -> float:
    """Return p_c = 1/(z - 1), the percolation threshold of a Bethe lattice where every node has z neighbours."""
    return 1 / (check_integer("degree", degree, 3) - 1)


# ---------------------------------------------------------------------- cluster sizes


def size_exponent(create_prob: float = CRITICAL_CREATE_PROB) -> float:
    """Return τ = (2 - p)/(1 - p), the exponent of n_s ~ s^(-τ) (paper, App. on cluster statistics)."""
    p = _below_one(create_prob)
    return (2 - p) / (1 - p)


def expected_clusters(n_points: int, create_prob: float = CRITICAL_CREATE_PROB) -> float:
    """Return 1 + (n - 1) p, the expected number of clusters; it is 1 + Binomial(n - 1, p) exactly."""
    return 1 + (check_integer("n_points", n_points, 1) - 1) * check_probability("create_prob", create_prob)


def size_law(size: ArrayLike, create_prob: float = CRITICAL_CREATE_PROB) -> Floats:
    """Return the limit of P(S = s) over clusters: the Yule-Simon law r B(s, r + 1) with r = 1/(1 - p).

    At p = 1/3 it is (3/2) B(s, 5/2). Times p it is n_s, the limit of the expected number of s-clusters per point
    (Simon 1955; paper, App. on cluster statistics).
    """
    rho = 1 / (1 - _below_one(create_prob))
    return np.asarray(np.exp(np.log(rho) + betaln(np.asarray(size, np.float64), rho + 1)))


def size_ccdf(size: ArrayLike, create_prob: float = CRITICAL_CREATE_PROB) -> Floats:
    """Return the limit of P(S ≥ s) over clusters, Γ(s) Γ(r+1) / Γ(s+r), with r = 1/(1 - p).

    At p = 1/3 this is about (3√π/4) s^(-3/2) for large s. The paper's equation for the CCDF has √π/4: that counts
    clusters per point, `size_ccdf_per_point`, not per cluster as its figure of cluster sizes does.
    """
    rho, s = 1 / (1 - _below_one(create_prob)), np.asarray(size, np.float64)
    return np.exp(gammaln(s) + gammaln(rho + 1) - gammaln(s + rho))


def size_ccdf_per_point(size: ArrayLike, create_prob: float = CRITICAL_CREATE_PROB) -> Floats:
    """Return the limit of (number of clusters of at least s points) / n: p times `size_ccdf`."""
    return create_prob * size_ccdf(size, create_prob)


#: Number of points from which `expected_sizes` returns the limit; its error is then far below one cluster.
LONG_RECURSION = 10**7


def expected_sizes(n_points: int, largest: int, create_prob: float = CRITICAL_CREATE_PROB) -> Floats:
    """Return the expected number M_s of clusters of size s after n points, at index s, for s up to `largest`.

    M_s(n+1) = M_s(n) + (1-p) [(s-1) M_{s-1}(n) - s M_s(n)] / n, plus p for s = 1, from M_1(1) = 1 (the master equation
    of the paper's appendix, for finite n). Time n · `largest`; from 10^7 points on the limit n · n_s is returned.
    """
    n, top = check_integer("n_points", n_points, 1), check_integer("largest", largest, 1)
    p = check_probability("create_prob", create_prob)
    expected = np.zeros(top + 1)
    if n >= LONG_RECURSION and p < 1:
        sizes = np.arange(1, top + 1)
        expected[1:] = n * p * size_law(sizes, p)
        return expected
    expected[1] = 1
    _master_equation(n, p, expected)
    return expected


@kernel
def _master_equation(n, p, expected):
    """Iterate the expected numbers of clusters from one point to n points."""
    for points in range(1, n):
        rate = (1.0 - p) / points
        for s in range(min(expected.size - 1, points + 1), 1, -1):
            expected[s] += rate * ((s - 1) * expected[s - 1] - s * expected[s])
        expected[1] += p - rate * expected[1]


def _below_one(create_prob: float) -> float:
    p = check_probability("create_prob", create_prob)
    if p == 1:
        raise ValueError("create_prob must be below 1, got 1")
    return p


# ---------------------------------------------------------------------- the tree of one cluster


def degree_law(degree: ArrayLike, n_points: int | None = None) -> Floats:
    """Return P(degree = k) of a point of a uniform tree: 1 + Binomial(n - 2, 1/n), or 1 + Poisson(1) if n is None.

    A label occurs in a Prüfer code one time less than its degree, and the code is n - 2 uniform labels (Moon 1970).
    """
    from scipy.stats import binom, poisson

    k = np.asarray(degree, np.float64) - 1
    if n_points is None:
        return np.asarray(poisson.pmf(k, 1))
    n = check_integer("n_points", n_points, 2)
    return np.asarray(binom.pmf(k, n - 2, 1 / n))


def distance_ccdf(distance: ArrayLike, n_points: int) -> Floats:
    """Return P(graph distance ≥ k) of two distinct random points of a uniform tree.

    For k ≥ 1 it is n/(n-1) · Π_{i=1}^{k} (1 - i/n): the path between two random points has as many points as one draws
    with replacement until the first repetition (Moon 1970; Meir and Moon 1970). Distance/√n tends to a Rayleigh law.
    """
    n, k = check_integer("n_points", n_points, 2), np.asarray(distance, np.float64)
    inside = np.clip(k, 1, n - 1)
    log = _log_no_repetition(inside, n) - math.log1p(-1 / n)
    return np.where(k < 1, 1.0, np.where(k > n - 1, 0.0, np.exp(log)))


def _log_no_repetition(k: Any, n: int) -> Any:
    """Return the logarithm of Π_{i=1}^{k} (1 - i/n), to rounding for any n: Stirling's terms are cancelled by hand."""
    return -(n - k - 0.5) * np.log1p(-k / n) - k + _stirling_rest(np.float64(n)) - _stirling_rest(n - k)


def _stirling_rest(x: Any) -> Any:
    """Return ln Γ(x) - (x - ½) ln x + x - ½ ln 2π."""
    large, small = np.maximum(x, 32.0), np.clip(x, 1.0, 32.0)
    series = 1 / (12 * large) - 1 / (360 * large**3) + 1 / (1260 * large**5) - 1 / (1680 * large**7)
    direct = gammaln(small) - (small - 0.5) * np.log(small) + small - 0.5 * math.log(2 * math.pi)
    return np.where(x > 32, series, direct)


def distance_law(distance: ArrayLike, n_points: int) -> Floats:
    """Return P(graph distance = k) of two distinct random points: (k+1) (n-2)! / ((n-1-k)! n^k), k = 1 … n-1."""
    n, k = check_integer("n_points", n_points, 2), np.asarray(distance, np.float64)
    inside = np.clip(k, 1, n - 1)
    log = np.log(inside + 1) + _log_no_repetition(inside, n) - math.log(n - 1)
    return np.where((k >= 1) & (k <= n - 1), np.exp(log), 0.0)


def mean_distance(n_points: int) -> float:
    """Return the expected graph distance of two distinct random points, √(πn/2) - 4/3 + o(1)."""
    n = check_integer("n_points", n_points, 2)
    return float(distance_ccdf(np.arange(1, _reach(n) + 1), n).sum())


def _reach(n: int) -> int:
    """Return how far sums over distances or depths must go: beyond 12 √n nothing is left of a Rayleigh law."""
    return min(n - 1, math.ceil(12 * math.sqrt(n)) + 16)


def tree_count(n_points: int) -> int:
    """Return n^(n-2), the number of labelled trees (Cayley's formula)."""
    n = check_integer("n_points", n_points, 1)
    return 1 if n <= 2 else n ** (n - 2)


def forest_probability(sizes: Sequence[int]) -> float:
    """Return P(F_k = f) for a forest f of trees of these sizes, k of them: Π n_i / (n^(n-k) C(n-1, k-1)).

    F_k is the state of the coalescent with k blocks (Pitman 1999, Theorem 5). It is not uniform over forests, as the
    last corollary of the paper's appendix has it: at n = 4 a forest of type 3+1 has 1/16, one of type 2+2 has 1/12.
    """
    parts = [check_integer("sizes", size, 1) for size in sizes]
    if not parts:
        raise ValueError("sizes must have at least one entry, got none")
    n, k = sum(parts), len(parts)
    return float(math.prod(parts) / (n ** (n - k) * math.comb(n - 1, k - 1)))


# ---------------------------------------------------------------------- the merger tree


def borel_law(size: ArrayLike) -> Floats:
    """Return e^(-k) k^(k-1) / k!: the size of a critical Poisson branching process, whose tail is k^(-3/2)/√(2π)."""
    return np.asarray(np.exp(_log_borel(size)))


def _log_borel(k: Any) -> Any:
    """Return the logarithm of the Borel law, to rounding for any k."""
    k = np.asarray(k, np.float64)
    return -1.5 * np.log(np.maximum(k, 1.0)) - 0.5 * math.log(2 * math.pi) - _stirling_rest(k)


def split_law(left: ArrayLike, n_points: int) -> Floats:
    """Return p_n(k) = C(n,k) k^(k-1) (n-k)^(n-k-1) / (2 (n-1) n^(n-2)), k = 1 … n-1.

    The probability that cutting a uniform bond of a uniform tree on n points leaves k of them on the left. The top
    latent of a cluster splits by this law, and so does every latent below, with n its own size. In terms of the Borel
    law b it is n b(k) b(n-k) / (2 (n-1) b(n)), so it tends to b(k)/2 for fixed k (Pitman 1999; Aldous and Pitman 1998).
    """
    n, k = check_integer("n_points", n_points, 2), np.asarray(left, np.float64)
    inside = np.clip(k, 1, n - 1)
    log = _log_borel(inside) + _log_borel(n - inside) - _log_borel(n) - math.log(2) - math.log1p(-1 / n)
    return np.where((k >= 1) & (k <= n - 1), np.exp(log), 0.0)


def mean_depth(n_points: int) -> float:
    """Return the expected depth of a random point: Σ_{k=1}^{n-1} (1 + 1/k) (n-1)! / ((n-1-k)! n^k).

    The number of random cuts that isolate a random point of a uniform tree (Meir and Moon 1970; Pitman 1999).
    """
    n = check_integer("n_points", n_points, 1)
    if n == 1:
        return 0.0
    k = np.arange(1, _reach(n) + 1)
    return float(np.sum((1 + 1 / k) * np.exp(_log_no_repetition(k, n))))


def depth_shift(n_points: int) -> float:
    """Return ½ ln(2n) + C/2 - 4/3 with Euler's constant C: the mean depth less the mean of its Rayleigh limit."""
    return 0.5 * math.log(2 * n_points) + np.euler_gamma / 2 - 4 / 3


def rayleigh_cdf(x: ArrayLike) -> Floats:
    """Return 1 - exp(-x²/2): the limit law of depth/√n, and of distance/√n, of random points (Aldous 1991)."""
    positive = np.maximum(np.asarray(x, np.float64), 0)
    return -np.expm1(-(positive**2) / 2)


def depth_laws(largest: int) -> Floats:
    """Return P(depth = j) of a random point of a cluster of m points at [m, j], for m up to `largest`.

    Exact: the sizes of the point's latents form a Markov chain, from m to k with probability 2 p_m(k) k/m. Time
    `largest`² · √`largest`; meant for sizes up to a few thousand.
    """
    top = check_integer("largest", largest, 1)
    laws = np.zeros((top + 1, _reach(top) + 2))
    laws[1, 0] = 1
    for m in range(2, top + 1):
        k = np.arange(1, m)
        laws[m, 1:] = (2 * split_law(k, m) * k / m) @ laws[1:m, :-1]
    return laws


# ---------------------------------------------------------------------- positions


def expected_square_distance(distance: ArrayLike, dim: int, step: float) -> Floats:
    """Return E|X_a - X_b|² = d · step² · (graph distance): directions of different points are orthogonal on average.

    For one bond it holds without the expectation: every bond has length step √d.
    """
    return dim * step**2 * np.asarray(distance, np.float64)


def expected_feature_variance(n_points: int) -> float:
    """Return the expected variance of a feature of one cluster: ½ n^(-1/2) (1 - 1/n) E[distance] → √(π/8) = 0.6267."""
    n = check_integer("n_points", n_points, 2)
    return 0.5 / math.sqrt(n) * (1 - 1 / n) * mean_distance(n)


# ---------------------------------------------------------------------- the random graph


def giant_share(mean_degree: float) -> float:
    """Return S, the share of points in the giant cluster: the largest root of S = 1 - e^(-cS), 0 for c ≤ 1.

    Erdős and Rényi (1960). It is the chance that a Poisson branching process with mean c never dies out.
    """
    from scipy.special import lambertw

    c = check_number("mean_degree", mean_degree, 0)
    return 1 + float(lambertw(-c * math.exp(-c)).real) / c if c > 1 else 0.0


def cluster_law(size: ArrayLike, mean_degree: float) -> Floats:
    """Return e^(-cs) (cs)^(s-1) / s!, the share of points in clusters of s points: Borel's law with mean degree c.

    It adds up to 1 for c ≤ 1, and to 1 - S for c > 1, where the share S is in the giant cluster. The number of clusters
    of s points is n times this share over s. At c = 1 the share falls as s^(-3/2)/√(2π), and the number of clusters as
    s^(-5/2); at other c there is a cutoff e^(-s(c - 1 - ln c)).
    """
    c, s = check_number("mean_degree", mean_degree, 0), np.asarray(size, np.float64)
    if c == 0:
        return np.asarray((s == 1).astype(np.float64))
    # Borel's law at c = 1 times the factor (c e^(1-c))^s / c, which does not lose digits at large s.
    return np.asarray(np.exp(_log_borel(s) + s * (math.log(c) + 1 - c)) / c)


def tree_clusters(size: ArrayLike, n_points: int, mean_degree: float) -> Floats:
    """Return the exact expected number of clusters of k points that are trees, in the random graph of n points.

    C(n,k) k^(k-2) p^(k-1) (1-p)^(k(n-k) + k(k-1)/2 - k + 1) with p = c/n: which points, which tree, and no other bond.
    """
    n, k = check_integer("n_points", n_points, 1), np.asarray(size, np.float64)
    p = check_number("mean_degree", mean_degree, 0) / n
    if not 0 < p < 1:
        alone = n if p == 0 else float(n == 1)
        return np.asarray(np.where(k == 1, alone, 0.0))
    inside = np.clip(k, 1, n)
    log = gammaln(n + 1) - gammaln(n - inside + 1) - gammaln(inside + 1) + (inside - 2) * np.log(inside)
    log += (inside - 1) * math.log(p)
    log += (inside * (n - inside) + (inside - 1) * (inside / 2 - 1)) * math.log1p(-p)
    return np.asarray(np.where((k >= 1) & (k <= n), np.exp(log), 0.0))


def clusters_per_point(mean_degree: float) -> float:
    """Return the number of clusters over n, for large n: (1-S) (1 - c(1-S)/2)."""
    outside = 1 - giant_share(mean_degree)
    return outside * (1 - mean_degree * outside / 2)


def cycles_per_point(mean_degree: float) -> float:
    """Return the number of bonds that close a cycle, over n, for large n: c/2 - 1 + (1-S) (1 - c(1-S)/2).

    It counts bonds less merges: a cluster of s points has s - 1 merges. It is 0 for c ≤ 1: few clusters have a cycle.
    """
    return check_number("mean_degree", mean_degree, 0) / 2 - 1 + clusters_per_point(mean_degree)


def cycles_below_threshold(mean_degree: float) -> float:
    """Return the expected number of cycles for c < 1, n large: -½ ln(1-c) - c/2 - c²/4; their number is Poisson.

    Erdős and Rényi (1960): the sum of c^k / 2k over the lengths k ≥ 3.
    """
    c = check_number("mean_degree", mean_degree, 0)
    if c >= 1:
        raise ValueError(f"mean_degree must be below 1, got {mean_degree!r}")
    return -math.log1p(-c) / 2 - c / 2 - c * c / 4


def random_graph_variances(mean_degree: float) -> tuple[float, float, float]:
    """Return the variances, over n, of the size of the giant, the number of clusters, and the number of extra bonds.

    S(1-S)/(1-c(1-S))², t + (c-1)(1-S)² and c/2 - t - (c-1)(1-S²), with t clusters per point. The numbers T_k of tree
    clusters of k points have means nτ_k and covariances nτ_k [j = k] + n(c-1) jk τ_j τ_k, and with the number of bonds
    nτ_k (k - 1 - ck); the giant has all other points, and the extra bonds are bonds - n + clusters. Undefined at c = 1.
    """
    c, S, t = check_number("mean_degree", mean_degree, 0), giant_share(mean_degree), clusters_per_point(mean_degree)
    giant = S * (1 - S) / (1 - c * (1 - S)) ** 2 if c > 1 else 0.0
    return giant, t + (c - 1) * (1 - S) ** 2, max(0.0, c / 2 - t - (c - 1) * (1 - S * S))


# ---------------------------------------------------------------------- what is public

__all__ = defined(globals())
__getattr__, __dir__ = surface(__name__, __all__)
