"""Checks of the merger trees: how latents split, how deep points lie."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.checks import plots
from percolab.checks.independent import BLOCK, Subject
from percolab.checks.result import Check, Floats, p_of_uniforms, smallest, statistical, too_small
from percolab.ground.compiled import kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ints = NDArray[np.int64]

FEWEST_SPLITS = 200
LARGE_SPLIT = 100
FEWEST_BLOCKS = 100
LIMIT_FROM = 256
"""Least size of a block whose depth is compared with the Rayleigh law."""
MOST_SPLITS = 2_000_000


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's merger trees."""
    yield splits(subject)
    if subject.recipe.engine == "native":
        yield sides(subject)
    yield depths(subject)
    yield depth_limit(subject)


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
    p = p_of_uniforms(places)
    p = smallest(p, p_of_uniforms(large)) if large.size >= FEWEST_SPLITS else p
    note = f"{latent.size:,} latents of 4 points or more, and the {large.size:,} of {LARGE_SPLIT} or more alone"
    single = float(np.mean((left == 1) | (left == size - 1)))
    draw = plots.uniforms(places, "distribution function at the smaller side")
    sizes, counts = np.unique(size, return_counts=True)
    ones = sum(c * 2 * float(theory.split_law(1, int(s))) for s, c in zip(sizes, counts, strict=True)) / size.size
    return statistical(law, f"single points {ones:.4f}", f"{single:.4f}", p, note, draw)


@kernel
def _split_places(size, smaller, log_borel, share, places):
    """Fill the distribution function of the smaller side, below it plus a share of its own probability."""
    for i in range(size.size):
        n, k = size[i], smaller[i]
        scale = np.log(n / (n - 1.0)) - log_borel[n]  # the factor 1/2 of p_n goes with the two orders of the sides
        below = 0.0
        for j in range(1, k):
            below += np.exp(scale + log_borel[j] + log_borel[n - j])
        own = np.exp(scale + log_borel[k] + log_borel[n - k])
        if 2 * k == n:
            own *= 0.5
        places[i] = below + share[i] * own


def sides(subject: Subject) -> Check:
    """Check that left and right are alike: the larger side is on the left half of the time (native data)."""
    from scipy.stats import binomtest

    law, forest = "left and right alike", subject.forest
    twice = 2 * forest.left_size
    unequal = int(np.count_nonzero(twice != forest.latent_size))
    if unequal < FEWEST_SPLITS:
        return too_small(law, "½", f"{FEWEST_SPLITS} latents with unequal sides", f"{unequal}")
    heavy = int(np.count_nonzero(twice > forest.latent_size))
    large = forest.latent_size >= 16
    share, edges = np.histogram(forest.left_size[large] / forest.latent_size[large], 40, (0, 1))

    def draw(axes: Axes) -> None:
        axes.stairs(share, edges, color=plots.BLUE, label="left")
        axes.stairs(share[::-1], edges, color=plots.ORANGE, linestyle="--", label="right")
        axes.set_yscale("log")
        axes.set_xlabel("share of the latent's points on that side (16 points or more)")
        axes.set_ylabel("latents")
        axes.legend(frameon=False)

    note = f"{unequal:,} latents with unequal sides"
    return statistical(law, "½", f"{heavy / unequal:.4f}", binomtest(heavy, unequal).pvalue, note, draw)


# ---------------------------------------------------------------------- depth


@lru_cache(maxsize=1)
def _depth_laws() -> Floats:
    return theory.depth_laws(BLOCK)


def _block_depths(subject: Subject, least: int) -> tuple[Ints, Ints]:
    """Return the size of every block of at least this many points, and the depth of a random point within it."""
    chosen = subject.blocks.of_size(least)
    row = chosen.start + subject.choices(f"points {least}").integers(chosen.size) if len(chosen) else chosen.start
    return chosen.size, subject.forest.point_depth[row] - subject.forest.latent_depth[chosen.latent]


def depths(subject: Subject) -> Check:
    """Check the depth of a random point below each of many independent latents, against its exact law."""
    law, (size, depth) = "depth", _block_depths(subject, 16)
    if size.size < FEWEST_BLOCKS:
        need = f"{FEWEST_BLOCKS} disjoint latents of 16 to 1,024 points"
        return too_small(law, "Σ (1+1/k)(n-1)!/((n-1-k)! n^k)", need, f"{size.size}")
    laws = _depth_laws()
    below = np.cumsum(laws, axis=1) - laws
    places = below[size, depth] + subject.choices("depth").random(size.size) * laws[size, depth]
    expected = np.mean([theory.mean_depth(int(s)) for s in size])
    top = subject.forest.cluster_size[0]
    whole = subject.forest.point_depth[:top].mean()
    note = (
        f"{size.size:,} points, one in each of so many independent latents; largest cluster: mean depth "
        f"{whole:.1f}, expected {theory.mean_depth(int(top)):.1f} over seeds"
    )
    draw = plots.uniforms(places, "distribution function at the depth")
    return statistical(law, f"mean {expected:.2f}", f"{depth.mean():.2f}", p_of_uniforms(places), note, draw)


def depth_limit(subject: Subject) -> Check:
    """Check that depth/√n approaches the Rayleigh law.

    At finite n the law is not yet its limit. Its largest distance from the limit, with the mean shifted as the
    asymptotic expansion says, is known from the exact law and is granted; what the data exceed it by is tested.
    """
    from scipy.stats import kstwo

    law, (size, depth) = "depth, Rayleigh limit", _block_depths(subject, LIMIT_FROM)
    if size.size < FEWEST_BLOCKS:
        need = f"{FEWEST_BLOCKS} disjoint latents of {LIMIT_FROM} to {BLOCK:,} points"
        return too_small(law, "1 - exp(-x²/2)", need, f"{size.size}")
    shift = np.array([theory.depth_shift(int(s)) for s in size])
    u = subject.choices("limit").random(size.size)
    places = theory.rayleigh_cdf((depth - shift - 0.5 + u) / np.sqrt(size))
    granted = _distance_to_limit(LIMIT_FROM)
    found = _kolmogorov(places)
    p = float(kstwo.sf(max(found - granted, 0.0), size.size))
    scaled = np.sort((depth - shift) / np.sqrt(size))

    def draw(axes: Axes) -> None:
        x = np.linspace(0, 4, 200)
        axes.step(scaled, (np.arange(scaled.size) + 0.5) / scaled.size, color=plots.BLUE, label="measured")
        axes.plot(x, theory.rayleigh_cdf(x), ":", color=plots.INK, label="Rayleigh law")
        axes.set_xlabel("(depth - shift) / √n")
        axes.set_ylabel("distribution function")
        axes.legend(frameon=False)

    note = f"{size.size:,} latents of {LIMIT_FROM} to {BLOCK:,} points, where the law is {granted:.3f} from its limit"
    return statistical(law, f"distance ≤ {granted:.3f} + noise", f"{found:.3f}", p, note, draw)


def _kolmogorov(places: Floats) -> float:
    order = np.sort(places)
    n = order.size
    return float(max(np.max(np.arange(1, n + 1) / n - order), np.max(order - np.arange(n) / n)))


@lru_cache(maxsize=4)
def _distance_to_limit(least: int) -> float:
    """Return the largest distance of the exact depth law, spread over [j - ½, j + ½), from the shifted Rayleigh law."""
    laws = _depth_laws()
    worst = 0.0
    edges = np.arange(laws.shape[1]) + 0.5
    for m in np.unique(np.geomspace(least, BLOCK, 12).astype(int)):
        limit = theory.rayleigh_cdf((edges - theory.depth_shift(int(m))) / np.sqrt(m))
        worst = max(worst, float(np.abs(np.cumsum(laws[m]) - limit).max()))
    return worst
