"""The arrays that an engine makes from a recipe, and the memory they take: a refusal comes before work starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import memory
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe

FOREST_BYTES = 5 * 8  #: Bytes per point of a forest's columns (one latent per point, which is an upper bound).
VALUE_BYTES = 3 * 8  #: Bytes per point of y, point_z and latent_z.
WORK_BYTES = 60  #: Bytes per point of work arrays while a dataset is made.
TABLE_BYTES = 4  #: Bytes per point before the clusters are known.
SOLVED_COORDINATE_BYTES, SOLVED_BYTES = 20, 150  #: Bytes of a limb while it is solved: per dimension, and in addition.


@dataclass(frozen=True, eq=False)
class Arrays:
    """A forest, positions, targets and the values behind them."""

    forest: Forest
    X: NDArray[Any]  #: (n, d) positions
    y: NDArray[np.float64]  #: (n,) targets
    latent_z: NDArray[np.float64]  #: (n-C,) values of latents
    point_z: NDArray[np.float64]  #: (n,) values of points


def bytes_before_clusters(recipe: Recipe) -> int:
    """Return the bytes certain to be needed before cluster sizes are known."""
    if recipe.min_cluster_size == 1 or recipe.mode == "one_cluster":
        return bytes_of_arrays(recipe.n_points, recipe)
    return TABLE_BYTES * recipe.n_points


def bytes_of_arrays(n_points: int, recipe: Recipe) -> int:
    """Return the peak bytes for a dataset of this many rows."""
    per_point = recipe.dim * np.dtype(recipe.dtype).itemsize + FOREST_BYTES + VALUE_BYTES + WORK_BYTES
    return n_points * per_point


def bytes_of_table(recipe: Recipe, limb_rows: int) -> int:
    """Return the peak bytes of the table that all parts of a dataset share."""
    n, p = recipe.n_points, recipe.attachment_prob
    # The share of points in clusters above a size s falls as s^(-p/(1-p)); one in 1.2 √limb_rows of them makes a limb.
    in_large = n * limb_rows ** (-p / (1 - p)) if p < 1 else 0
    limbs = 0.8 * in_large / limb_rows**0.5 * (recipe.dim * SOLVED_COORDINATE_BYTES + SOLVED_BYTES)
    # First labels, points and sizes of clusters; then points, sizes, births and starts, which are twice as wide.
    numbers = 0 if p == 0 else max(2 + p, 1 + 4 * p)
    return int(limbs + n * numbers * (4 if n < 2**31 else 8))


def require_memory(needed: int, recipe: Recipe) -> None:
    """Raise MemoryError, in one line, unless `needed` bytes are free."""
    points = f"{recipe.n_points:,} points in {recipe.dim} dimensions"
    memory.require(needed, f"n_points must fit in memory: {points} need about")
