"""Checks of the merger trees: how latents split, how deep points lie.

That all small trees are equally likely, and that left and right are alike, is tested on the samplers: tests/engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import FEWEST_BLOCKS, LARGEST_BLOCK, Subject
from percolab.checks.verdicts import Check, p_of_all_and_some, p_of_uniforms, statistical, too_small
from percolab.ground.arrays import Floats
from percolab.ground.compiled import kernel

FEWEST_SPLITS = 200
LARGE_SPLIT = 100
MOST_SPLITS = 2_000_000


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's merger trees."""
    yield splits(subject)
    yield depths(subject)


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
    """Fill the distribution function of the smaller side, below it plus a share of its own probability."""
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


# ---------------------------------------------------------------------- depth


@lru_cache(maxsize=1)
def _depth_laws() -> Floats:
    return theory.depth_laws(LARGEST_BLOCK)


def depths(subject: Subject) -> Check:
    """Check the depth of a random point below each of many independent latents, against its exact law."""
    law, chosen = "depth", subject.blocks.of_size(16)
    size = chosen.size
    row = chosen.start + subject.choices("points 16").integers(size) if len(chosen) else chosen.start
    depth = subject.forest.point_depth[row] - subject.forest.latent_depth[chosen.latent]
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
    draw = verdicts.uniforms(places, "distribution function at the depth")
    return statistical(law, f"mean {expected:.2f}", f"{depth.mean():.2f}", p_of_uniforms(places), note, draw)
