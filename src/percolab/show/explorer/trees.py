"""The trees of the page: which latents of a hierarchy are listed, with their sizes, depths and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Ints
from percolab.model.forest import Forest
from percolab.worlds.superposed import Truth

MOST_LISTED = 200_000  #: Latents up to which all are listed; of more, concepts only.
MOST_CONCEPTS = 20_000  #: Concepts of a tree; where there are more, those of more points are taken.
#: A latent gets components of its own if it has at most this share of the points of the nearest one above that has.
VIEW_RATIO = 1 / 2
FEWEST_SEEN = 30  #: Points that a latent needs for components of its own.


@dataclass(frozen=True, eq=False)
class Listing:
    """Latents of a hierarchy, in preorder, and those among them that are concepts."""

    latent: Ints
    concept: NDArray[np.bool_]
    min_size: int  #: fewest points of a concept


def list_latents(forest: Forest, min_size: int, below: int | None = None) -> Listing:
    """Return the latents to show of a forest, or of what is below one of its latents, itself included.

    All of them where there are few. Otherwise concepts, of twice as many points until there are few enough.
    """
    first, end = (0, forest.n_latents) if below is None else (below, forest.descendants(below).stop)
    least = min_size
    while True:
        concepts = forest.concepts(least, 1)
        concepts = concepts[(concepts >= first) & (concepts < end)]
        if concepts.size <= MOST_CONCEPTS:
            break
        least *= 2
    if end - first <= MOST_LISTED:
        latent = np.arange(first, end)
        return Listing(latent, np.isin(latent, concepts), least)
    latent = concepts if below is None else np.union1d(concepts, [below])
    return Listing(latent, np.ones(latent.size, np.bool_), least)


def columns(truth: Truth, listing: Listing) -> dict[str, Any]:
    """Return the listed latents as columns."""
    forest, latent = truth.forest, listing.latent
    return {
        "latent": latent,
        "start": forest.latent_start[latent],
        "size": forest.latent_size[latent],
        "depth": forest.latent_depth[latent],
        "z": np.asarray(truth.latent_z[latent], np.float32),
        "concept": listing.concept,
        "min_size": listing.min_size,
        "n_rows": forest.n_points,
        "n_latents": forest.n_latents,
        "n_clusters": forest.n_clusters,
        "cluster_start": forest.cluster_start[: np.count_nonzero(forest.cluster_size > 1) + 1],
    }


def seen_alone(forest: Forest, listing: Listing) -> Ints:
    """Return the latents that get components of their own, the largest first."""
    least = max(listing.min_size, FEWEST_SEEN)
    chosen = forest.concepts(least, VIEW_RATIO)
    chosen = chosen[forest.latent_size[chosen] < forest.n_points]
    return chosen[np.argsort(-forest.latent_size[chosen], kind="stable")]
