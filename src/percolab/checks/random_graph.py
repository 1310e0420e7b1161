"""Checks of the random graph: the number of bonds, the clusters, the size of the giant, the number of cycles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import Subject
from percolab.checks.verdicts import Check, p_of_quadratic, p_of_score, statistical, too_small, two_sided
from percolab.ground.arrays import Floats, Ints

FEWEST_IN_BIN = 30
#: The least distance from the threshold, |c - 1| n^(1/3), at which the laws of the giant and of cycles hold.
FROM_THRESHOLD = 10.0


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a random graph's clusters."""
    for law in (number_of_bonds, tree_clusters, number_of_clusters, giant, cycles):
        yield law(subject)


def number_of_bonds(subject: Subject) -> Check:
    """Check that the number of bonds, those that close cycles included, is Binomial(n(n-1)/2, c/n)."""
    n, c = subject.recipe.n_points, subject.recipe.mean_degree or 0.0
    pairs, law = n * (n - 1) // 2, "number of bonds"
    spread = np.sqrt(pairs * c / n * (1 - c / n))
    expected = f"{pairs * c / n:,.0f} ± {spread:,.0f}"
    least = subject.recipe.min_cluster_size
    if least > 1 or pairs == 0:
        return too_small(law, expected, "min_cluster_size 1 and 2 points", f"{least} and {n}")
    from scipy.stats import binom

    n_bonds = subject.forest.n_latents + subject.forest.n_extra_bonds
    p = two_sided(binom(pairs, c / n), n_bonds, counted=True)
    return statistical(law, expected, f"{n_bonds:,}", p, "exact: Binomial(n(n-1)/2, c/n)")


def tree_clusters(subject: Subject) -> Check:
    """Check the numbers of clusters without cycles, by size, against their exact expectation.

    The numbers of clusters of sizes j and k have covariance E_j E_k (c - 1) jk / n, plus E_k if j = k.
    """
    n, c, law = subject.recipe.n_points, subject.recipe.mean_degree or 0.0, "clusters without cycles, by size"
    sizes = np.arange(subject.recipe.min_cluster_size, max(2, int(n**0.5)) + 1)
    expected = theory.tree_clusters(sizes, n, c)
    edges = _bins(expected)
    if edges.size < 3:
        need = f"{FEWEST_IN_BIN} clusters expected in each of 3 bins of size"
        return too_small(law, "Borel's law", need, f"{max(0, edges.size - 1)}")
    forest = subject.forest
    has_cycle = np.zeros(forest.n_clusters, np.bool_)
    has_cycle[forest.latent_cluster[forest.extra_latent]] = True
    counted = np.bincount(np.minimum(forest.cluster_size[~has_cycle], sizes[-1] + 1), minlength=sizes[-1] + 2)[sizes]
    counts, means, weights = (
        np.add.reduceat(values, edges[:-1]) for values in (counted.astype(np.float64), expected, expected * sizes)
    )
    covariance = np.diag(means) + (c - 1) / n * np.outer(weights, weights)
    square, p, freedom = p_of_quadratic(counts - means, covariance)
    note = f"{counts.size} bins of sizes up to {sizes[edges[-1] - 1]:,}; exact means"
    spread = np.sqrt(np.diag(covariance))
    draw = verdicts.curve(sizes[edges[:-1]], counts, means, "size s, by bin from", error=spread, log="xy")
    return statistical(law, f"χ² about {freedom}", f"χ² = {square:.1f}", p, note, draw)


def _bins(expected: Floats) -> Ints:
    """Return the sizes where bins of at least `FEWEST_IN_BIN` expected clusters begin, and where the last one ends."""
    edges, total = [0], 0.0
    for i, count in enumerate(expected):
        total += count
        if total >= FEWEST_IN_BIN and i + 1 >= 1.3 * edges[-1]:
            edges.append(i + 1)
            total = 0.0
    return np.array(edges)


def number_of_clusters(subject: Subject) -> Check:
    """Check the number of clusters, which is normal for large n."""
    n, c, law = subject.recipe.n_points, subject.recipe.mean_degree or 0.0, "number of clusters"
    spread = np.sqrt(n * theory.random_graph_variances(c)[1])
    expected = n * theory.clusters_per_point(c)
    text = f"{expected:,.0f} ± {spread:,.0f}"
    if subject.recipe.min_cluster_size > 1 or spread < 10:
        return too_small(law, text, "min_cluster_size 1 and a spread of 10", f"{spread:.3g}")
    n_clusters = subject.forest.n_clusters
    return statistical(
        law, text, f"{n_clusters:,}", p_of_score((n_clusters - expected) / spread), "(1-S)(1 - c(1-S)/2) per point"
    )


def giant(subject: Subject) -> Check:
    """Check the size of the largest cluster above the threshold."""
    n, c, law = subject.recipe.n_points, subject.recipe.mean_degree or 0.0, "giant cluster"
    share = theory.giant_share(c)
    expected = f"{share:.4f} of the points" if share else "none"
    far = (c - 1) * n ** (1 / 3)
    if far < FROM_THRESHOLD:
        return too_small(law, expected, f"(c - 1) n^(1/3) of {FROM_THRESHOLD:g}", f"{far:.3g}")
    spread = np.sqrt(theory.random_graph_variances(c)[0] / n)
    largest = subject.forest.cluster_size[0] / n if subject.forest.n_clusters else 0.0
    p = p_of_score((largest - share) / spread)
    return statistical(law, f"{share:.5f} ± {spread:.5f}", f"{largest:.5f}", p, "S = 1 - exp(-cS)")


def cycles(subject: Subject) -> Check:
    """Check the number of bonds that close a cycle: normal above the threshold, Poisson below."""
    from scipy.stats import poisson

    n, c, law = subject.recipe.n_points, subject.recipe.mean_degree or 0.0, "bonds that close cycles"
    n_cycles, least = subject.forest.n_extra_bonds, subject.recipe.min_cluster_size
    far = abs(c - 1) * n ** (1 / 3)
    if far < FROM_THRESHOLD or least > 1:
        need = f"min_cluster_size 1 and |c - 1| n^(1/3) of {FROM_THRESHOLD:g}"
        return too_small(law, "few", need, f"{least} and {far:.3g}")
    if c < 1:
        mean = theory.cycles_below_threshold(c)
        p = two_sided(poisson(mean), n_cycles, counted=True)
        return statistical(law, f"Poisson, mean {mean:.3g}", f"{n_cycles:,}", p, "-½ ln(1-c) - c/2 - c²/4")
    expected = n * theory.cycles_per_point(c)
    spread = np.sqrt(n * theory.random_graph_variances(c)[2])
    p = p_of_score((n_cycles - expected) / spread)
    return statistical(
        law, f"{expected:,.0f} ± {spread:,.0f}", f"{n_cycles:,}", p, "c/2 - 1 + (1-S)(1 - c(1-S)/2) per point"
    )
