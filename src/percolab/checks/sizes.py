"""Checks of the cluster sizes: the number of clusters, and the law of their sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import SEED, Subject
from percolab.checks.verdicts import Check, exact, p_of_score, statistical, too_small
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.show import style
from percolab.show.distributions import FEWEST_FITTED, FITTED_SIZE, draw_sizes, fit_exponent, size_law

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FEWEST_IN_BIN = 100
SIMULATIONS, SIMULATED_POINTS = 400, 200_000


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's cluster sizes."""
    p = subject.recipe.attachment_prob
    if p in (0.0, 1.0):
        yield _only_count(subject, p)
        return
    yield number_of_clusters(subject, p)
    yield exponent(subject, p)
    yield distribution(subject, p)


def _only_count(subject: Subject, p: float) -> Check:
    """Check the number of clusters where it is not random."""
    n, least = subject.recipe.n_points, subject.recipe.min_cluster_size
    expected = int(n >= least) if p == 0 else n * int(least == 1)
    n_clusters = subject.forest.n_clusters
    return exact("number of clusters", f"{expected:,}", f"{n_clusters:,}", abs(n_clusters - expected), 0)


def number_of_clusters(subject: Subject, p: float) -> Check:
    """Check that the number of clusters is 1 + Binomial(n - 1, p)."""
    from scipy.stats import binomtest

    law, n = "number of clusters", subject.recipe.n_points
    expected = theory.expected_clusters(n, p)
    spread = np.sqrt((n - 1) * p * (1 - p))
    text = f"{expected:,.0f} ± {spread:,.0f}"
    if subject.recipe.min_cluster_size > 1:
        return too_small(law, text, "min_cluster_size 1", f"{subject.recipe.min_cluster_size}")
    if n < 2:
        return too_small(law, text, "2 points", "1")
    n_clusters = subject.forest.n_clusters

    def draw(axes: Axes) -> None:
        x = np.linspace(expected - 5 * spread, expected + 5 * spread, 200)
        axes.plot(x, np.exp(-(((x - expected) / spread) ** 2) / 2), color=style.INK, linestyle=":", label="expected")
        axes.axvline(n_clusters, color=style.BLUE, label="measured")
        axes.set(xlabel="number of clusters", yticks=[])
        axes.legend()

    note = "exact: 1 + Binomial(n - 1, p)"
    return statistical(law, text, f"{n_clusters:,}", binomtest(n_clusters - 1, n - 1, p).pvalue, note, draw)


# ---------------------------------------------------------------------- the exponent


def exponent(subject: Subject, p: float) -> Check:
    """Check the exponent of a power law fitted to large clusters by maximum likelihood.

    The size law is not a pure power law: near s it falls as s^(-τ) (1 - τ(τ-1)/(2s)), so the fitted exponent is a
    little below τ. It is compared with the exponent that the same estimator gives for the expected numbers of clusters.
    The error bar assumes independent clusters; since all sizes add up to n, it is too large by a third.
    """
    least = max(FITTED_SIZE, subject.recipe.min_cluster_size)
    tau, law = theory.size_exponent(p), f"size exponent, s ≥ {least}"
    size = subject.forest.cluster_size
    fitted = size[size >= least]
    if fitted.size < FEWEST_FITTED:
        return too_small(law, f"{tau:.3g}", f"{FEWEST_FITTED} clusters of {least} points", f"{fitted.size}")
    expected = expected_exponent(subject.recipe.n_points, p, least)
    alpha, _ = fit_exponent(size, least)
    error = (expected - 1) / np.sqrt(fitted.size)
    # 1/(alpha - 1) is a mean of logarithms, hence closer to normal than alpha.
    score = (1 / (alpha - 1) - 1 / (expected - 1)) * (expected - 1) * np.sqrt(fitted.size)
    note = f"{tau:.4g} for s → ∞; {fitted.size:,} clusters, maximum likelihood"
    measured = f"{alpha:.3f} ± {error:.3f}"
    draw = partial(draw_sizes, size=size, law=partial(size_law, subject.dataset), fit_from=least)
    return statistical(law, f"{expected:.3f}", measured, p_of_score(score), note, draw)


def expected_exponent(n: int, p: float, least: int) -> float:
    """Return the exponent that maximum likelihood gives for the expected numbers of clusters after n points.

    That is 1 + Σ M_s / Σ M_s ln(s / (s_min - ½)), the estimator of Clauset, Shalizi and Newman (2009, Eq. 3.7).
    """
    exact_up_to = min(max(4 * least, 400), n)
    count = theory.expected_sizes(n, exact_up_to, p)
    s = np.arange(least, exact_up_to + 1)
    tail = np.unique(np.geomspace(exact_up_to + 1, max(n, exact_up_to + 2), 400).astype(np.int64))
    beyond = _expected_larger(tail, n, p)
    # Beyond the exact range, Σ M_s ln s is summed by parts over the number of larger clusters.
    logs = count[s] @ np.log(s / (least - 0.5)) + beyond[0] * np.log(tail[0] / (least - 0.5))
    logs += float(np.sum((beyond[1:] + beyond[:-1]) / 2 * np.diff(np.log(tail))))
    return 1 + float((count[s].sum() + beyond[0]) / logs)


def _expected_larger(size: Ints, n: int, p: float) -> Floats:
    """Return the expected number of clusters of at least these sizes, for large sizes.

    The cluster of the t-th point has at least s points with probability close to (1 - (t/n)^(1-p))^(s-1), and the t-th
    point starts a cluster with probability p, the first with probability 1.
    """
    edges = np.unique(np.concatenate([np.arange(1.0, min(n, 1000) + 1), np.geomspace(min(n, 1000), n, 2000)]))
    middle, births = (edges[1:] + edges[:-1]) / 2, p * np.diff(edges)
    alive = (1 - (middle / n) ** (1 - p)) ** (size[:, None] - 1.0)
    first = (1 - (1 / n) ** (1 - p)) ** (size - 1.0)
    return np.asarray(alive @ births + (1 - p / 2) * first)


# ---------------------------------------------------------------------- the distribution


def distribution(subject: Subject, p: float) -> Check:
    """Check the numbers of clusters by size against their exact expectation.

    Numbers of different sizes are correlated. Their covariance is estimated from simulated attachments, and the sum of
    squares it defines follows Hotelling's law, which allows for the estimate.
    """
    from scipy.stats import f

    n, least, law = subject.recipe.n_points, subject.recipe.min_cluster_size, "cluster sizes (CCDF)"
    edges, expected = size_bins(n, p, least)
    if edges.size < 3:
        need = f"{FEWEST_IN_BIN} clusters expected in each of 3 bins of size"
        return too_small(law, "Γ(s)Γ(r+1)/Γ(s+r)", need, f"{expected.size}")
    counts = _counts(subject.forest.cluster_size, edges)
    simulated = min(n, SIMULATED_POINTS)
    covariance = _covariance(simulated, p, tuple(edges.tolist())) * (n / simulated)
    difference, k = counts - expected, edges.size
    square = float(difference @ np.linalg.solve(covariance, difference))
    p_value = float(f.sf(square * (SIMULATIONS - k + 1) / (SIMULATIONS * k), k, SIMULATIONS - k + 1))
    note = f"{k} bins; exact means for this n, covariance of {SIMULATIONS} simulated runs"
    spread = np.sqrt(np.diag(covariance))
    draw = verdicts.curve(edges, counts, expected, "size s, by bin from", error=spread, log="xy")
    return statistical(law, f"χ² about {k}", f"χ² = {square:.1f}", p_value, note, draw)


def size_bins(n: int, p: float, least: int) -> tuple[Ints, Floats]:
    """Return bins of sizes, as the sizes where they start, and the expected number of clusters in each."""
    top = least
    while top < n and n * float(theory.size_ccdf_per_point(top, p)) > FEWEST_IN_BIN:
        top = max(top + 1, int(top * 1.5))
    exact_sizes = theory.expected_sizes(n, max(top, least), p)
    edges, total = [least], 0.0
    for s in range(least, top):
        if total >= FEWEST_IN_BIN and s >= 1.45 * edges[-1]:
            edges.append(s)
            total = 0.0
        total += exact_sizes[s]
    # The number of larger clusters follows from the number of all clusters.
    cumulative = np.concatenate([[0.0], np.cumsum(exact_sizes)])
    below = cumulative[edges]
    expected = np.diff(np.append(below, theory.expected_clusters(n, p)))
    while len(edges) > 1 and expected[-1] < FEWEST_IN_BIN:
        edges.pop()
        expected = np.append(expected[:-2], expected[-2:].sum())
    enough = expected.size > 0 and expected[-1] >= FEWEST_IN_BIN
    return np.array(edges if enough else []), expected if enough else np.empty(0)


def _counts(size: Ints, edges: Ints) -> Ints:
    return np.histogram(size, np.append(edges, np.iinfo(np.int64).max))[0]


@lru_cache(maxsize=16)
def _covariance(n: int, p: float, edges: tuple[int, ...]) -> Floats:
    """Return the covariance of the numbers of clusters in bins of size after n points, from simulations."""
    rng, start = np.random.default_rng(SEED), np.array(edges)
    runs = np.empty((SIMULATIONS, start.size))
    for run in runs:
        run[:] = _counts(_simulated_sizes(rng.random((n, 2)), p), start)
    return np.atleast_2d(np.cov(runs.T))


@kernel
def _simulated_sizes(u, p):
    """Return the sizes of clusters grown from these uniform draws."""
    labels, size = np.empty(u.shape[0], np.int64), np.zeros(u.shape[0], np.int64)
    born = 0
    for i in range(u.shape[0]):
        labels[i] = born if i == 0 or u[i, 0] < p else labels[int(u[i, 1] * i)]
        born += labels[i] == born
        size[labels[i]] += 1
    return size[:born]
