"""Checks of the trees of clusters: degrees, distances and ends of bonds, splits of latents, and depths of points.

The tests of the samplers in tests/engines check that all small trees, and both orders of left and right, are equally
likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import FEWEST_BLOCKS, LARGEST_BLOCK, Subject
from percolab.checks.verdicts import Check, p_of_all_and_some, p_of_quadratic, p_of_uniforms, statistical, too_small
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel

FEWEST_OF_DEGREE, MOST_DEGREES = 50, 12
FEWEST_LATENTS = 100
FEWEST_SPLITS, MOST_SPLITS = 200, 2_000_000
LARGE_SPLIT = 100  #: Splits of latents of at least this many points are also checked separately.


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's bonds and merger trees."""
    for law in (degrees, distances, bond_ends, splits, depths):
        yield law(subject)


# ---------------------------------------------------------------------- trees along bonds


def degrees(subject: Subject) -> Check:
    """Check the numbers of points of each degree.

    A point's degree less one is how often it occurs in its cluster's Prüfer code, so the degrees of a cluster have the
    law of s - 2 balls thrown into s boxes. Clusters are independent, and the covariance of occupancy numbers is known,
    so the sum of squares is a chi-square although degrees of one cluster depend on each other.
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


def occupancy(size: Ints, most: int) -> tuple[Floats, Floats]:
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


# ---------------------------------------------------------------------- merger trees


def splits(subject: Subject) -> Check:
    """Check that every latent splits its points by the law of its own size, as an unordered pair.

    Given its size, a latent's split is independent of everything above it and beside it. So the distribution functions
    at the smaller sides, made continuous by a uniform share, are independent uniforms.
    """
    law, expected, forest = "split law", "p_n(k), every size n", subject.forest
    latent = np.flatnonzero(forest.latent_size >= 4)
    if latent.size < FEWEST_SPLITS:
        return too_small(law, expected, f"{FEWEST_SPLITS} latents of 4 points", f"{latent.size}")
    if latent.size > MOST_SPLITS:
        latent = np.sort(subject.choices("latents").choice(latent, MOST_SPLITS, replace=False))
    size, left = forest.latent_size[latent], forest.left_size[latent]
    places = np.empty(latent.size)
    log_borel = np.log(theory.borel_law(np.maximum(np.arange(size.max() + 1), 1)))
    _split_places(size, np.minimum(left, size - left), log_borel, subject.choices("splits").random(latent.size), places)
    large = places[size >= LARGE_SPLIT]
    p = p_of_all_and_some(places, large, FEWEST_SPLITS)
    note = f"{latent.size:,} latents of 4 points or more, and the {large.size:,} of {LARGE_SPLIT} or more alone"
    single = float(np.mean((left == 1) | (left == size - 1)))
    draw = verdicts.uniforms(places, "distribution function at the smaller side")
    sizes, counts = np.unique(size, return_counts=True)
    ones = sum(c * 2 * float(theory.split_law(1, int(s))) for s, c in zip(sizes, counts, strict=True)) / size.size
    return statistical(law, f"single points {ones:.4f}", f"{single:.4f}", p, note, draw)


@kernel
def _split_places(size, smaller, log_borel, share, places):
    """Fill the probability of smaller sides below this one, plus a random share of the probability of this one."""
    for i in range(size.size):
        n, k = size[i], smaller[i]
        scale = np.log(n / (n - 1.0)) - log_borel[n]  # the factor 1/2 of p_n goes with the two orders of the sides
        below = 0.0
        for j in range(1, k):
            below += np.exp(scale + log_borel[j] + log_borel[n - j])
        at_side = np.exp(scale + log_borel[k] + log_borel[n - k])
        if 2 * k == n:
            at_side *= 0.5
        places[i] = below + share[i] * at_side


_depth_laws = lru_cache(maxsize=1)(theory.depth_laws)


def depths(subject: Subject) -> Check:
    """Check the depth of a random point below each of many independent latents, against its exact law."""
    law, chosen = "depth", subject.blocks
    size = chosen.size
    row = chosen.start + subject.choices("points 16").integers(size) if len(chosen) else chosen.start
    depth = subject.forest.point_depth[row] - subject.forest.latent_depth[chosen.latent]
    if size.size < FEWEST_BLOCKS:
        need = f"{FEWEST_BLOCKS} disjoint latents of 16 to 1,024 points"
        return too_small(law, "Σ (1+1/k)(n-1)!/((n-1-k)! n^k)", need, f"{size.size}")
    laws = _depth_laws(LARGEST_BLOCK)
    below = np.cumsum(laws, axis=1) - laws
    places = below[size, depth] + subject.choices("depth").random(size.size) * laws[size, depth]
    expected = np.mean([theory.mean_depth(int(s)) for s in size])
    top = subject.forest.cluster_size[0]
    whole = subject.forest.point_depth[:top].mean()
    note = (
        f"{size.size:,} points, one in each of so many independent latents; largest cluster: mean depth "
        f"{whole:.1f}, expected {theory.mean_depth(int(top)):.1f} over seeds"
    )
    draw = verdicts.uniforms(places, "distribution function at the depth")
    return statistical(law, f"mean {expected:.2f}", f"{depth.mean():.2f}", p_of_uniforms(places), note, draw)
