"""Checks of the trees along bonds: degrees, distances, ends of bonds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import FEWEST_BLOCKS, Subject
from percolab.checks.verdicts import Check, p_of_all_and_some, p_of_quadratic, p_of_uniforms, statistical, too_small
from percolab.ground.arrays import Floats

FEWEST_OF_DEGREE = 50
FEWEST_LATENTS = 100
MOST_DEGREES = 12


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's bonds."""
    yield degrees(subject)
    yield distances(subject)
    yield bond_ends(subject)


def degrees(subject: Subject) -> Check:
    """Check the numbers of points of each degree.

    A point's degree less one is how often it occurs in its cluster's Prüfer code, so the degrees of a cluster are those
    of s - 2 balls thrown into s boxes. Clusters are independent, and the covariance of occupancy numbers is known, so
    the sum of squares is a chi-square although degrees of one cluster depend on each other.
    """
    law, forest = "degree", subject.forest
    size = forest.cluster_size[forest.cluster_size >= 3]
    expected, covariance = occupancy(size, MOST_DEGREES)
    common = np.flatnonzero(expected >= FEWEST_OF_DEGREE)
    if common.size < 3:
        need = f"{FEWEST_OF_DEGREE} points of each of 3 degrees expected"
        return too_small(law, "1 + Binomial(s - 2, 1/s)", need, f"{common.size}")
    last = int(common[-1])
    degree = np.bincount(forest.bond.ravel(), minlength=forest.n_points)[: int(size.sum())]
    counts = np.bincount(np.minimum(degree - 1, last + 1), minlength=last + 2)[: last + 1].astype(np.float64)
    square, p, freedom = p_of_quadratic(counts - expected[: last + 1], covariance[: last + 1, : last + 1])
    leaves = counts[0] / size.sum()
    error = np.sqrt(np.diag(covariance))[: last + 1]
    draw = verdicts.curve(np.arange(1, last + 2), counts, expected[: last + 1], "degree", error=error, log="y")
    note = f"degrees 1 to {last + 1}, χ² = {square:.1f} with {freedom} degrees of freedom; 1 + Poisson(1) for large s"
    expected_leaves = expected[0] / size.sum()
    return statistical(law, f"leaves {expected_leaves:.4f}", f"{leaves:.4f}", p, note, draw)


def occupancy(size: NDArray[np.int64], most: int) -> tuple[Floats, NDArray[np.float64]]:
    """Return mean and covariance of the numbers of points with degree 1, 2, …, `most`, over clusters of these sizes.

    With m = s - 2 balls and s boxes, P(one box has j) is binomial and P(two boxes have j and k) trinomial.
    """
    from scipy.special import gammaln, xlogy

    mean, covariance = np.zeros(most), np.zeros((most, most))
    j, k = np.arange(most)[:, None], np.arange(most)[None, :]
    for s, clusters in zip(*np.unique(size, return_counts=True), strict=True):
        m = int(s) - 2
        single = theory.degree_law(np.arange(1, most + 1), int(s))
        rest = np.maximum(m - j - k, 0)
        ways = gammaln(m + 1) - gammaln(j + 1) - gammaln(k + 1) - gammaln(rest + 1)
        two = np.where(j + k <= m, np.exp(ways - (j + k) * np.log(s) + xlogy(rest, 1 - 2 / s)), 0.0)
        mean += clusters * s * single
        covariance += clusters * (s * np.diag(single) + s * (s - 1.0) * two - np.outer(s * single, s * single))
    return mean, covariance


def distances(subject: Subject) -> Check:
    """Check graph distances of two random points: one pair from each of many independent trees."""
    law, (chosen, _, distance) = "graph distance", subject.pairs
    if len(chosen) < FEWEST_BLOCKS:
        need = f"{FEWEST_BLOCKS} disjoint latents of 16 to 1,024 points"
        return too_small(law, "(k+1)(n-2)!/((n-1-k)! n^k)", need, f"{len(chosen)}")
    places, mean = np.empty(len(chosen)), np.empty(len(chosen))
    share = subject.choices("distance").random(len(chosen))
    for s in np.unique(chosen.size):
        of = chosen.size == s
        least = theory.distance_ccdf(distance[of], int(s))
        places[of] = least - share[of] * theory.distance_law(distance[of], int(s))
        mean[of] = theory.mean_distance(int(s))
    note = f"{len(chosen):,} pairs, one in each of so many independent trees of 16 to 1,024 points"
    draw = verdicts.uniforms(places, "P(distance is larger)")
    return statistical(law, f"mean {mean.mean():.2f}", f"{distance.mean():.2f}", p_of_uniforms(places), note, draw)


def bond_ends(subject: Subject) -> Check:
    """Check that a latent's bond joins a uniform point of its left side and a uniform point of its right side."""
    law, forest = "ends of bonds", subject.forest
    left, right = forest.left_size, forest.latent_size - forest.left_size
    informative = int(np.count_nonzero(np.maximum(left, right) > 1))
    if informative < FEWEST_LATENTS:
        return too_small(law, "uniform in both sides", f"{FEWEST_LATENTS} latents of 3 points", f"{informative}")
    u = subject.choices("ends").random((forest.n_latents, 2))
    first = (forest.bond[:, 0] - forest.latent_start + u[:, 0]) / left
    second = (forest.bond[:, 1] - forest.latent_start - left + u[:, 1]) / right
    places = np.concatenate([first[left > 1], second[right > 1]])
    large = np.concatenate([first[left > 64], second[right > 64]])
    p = p_of_all_and_some(places, large, FEWEST_LATENTS)
    measured = f"mean place {places.mean():.4f}"
    note = f"{places.size:,} ends; also the {large.size:,} in sides of more than 64 points alone"
    return statistical(law, "½ (uniform)", measured, p, note, verdicts.uniforms(places, "place in the side"))
