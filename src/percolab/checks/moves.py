"""Moves taken back, so that positions can be checked against their laws.

A `Move` lengthens one bond. What it added is subtracted again from all rows beyond the bond, found here by cutting the
bond in the tree; then every bond must have its length, and all other laws of positions hold. A `Turn` draws steps anew
from the same law: nothing needs to be taken back, and earlier moves of these bonds are gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.dataset.interventions import WALK_ROOT
from percolab.ground.compiled import kernel
from percolab.model.edits import Move, Turn
from percolab.model.recipe import Recipe

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rooted = tuple[Ints, Ints]
"""Parent and height of every row along bonds, from the first row of each cluster."""


@dataclass(frozen=True, eq=False)
class Moved:
    """What a move added, and to which rows."""

    rows: Ints
    shift: Floats
    slack: float
    """size of the numbers it follows from: rounding is a share of this"""


def moves(dataset: Dataset, rooted: Rooted) -> list[Moved]:
    """Return what the moves of a dataset added, the last first, but for those that a later turn undid."""
    forest, found = dataset.forest, list[Moved]()
    turned: list[slice] = []
    bond: dict[int, Floats] = {}
    for edit in reversed(dataset.recipe.edits):
        if isinstance(edit, Turn):
            turned.append(forest.points_of(edit.latent))
        if not isinstance(edit, Move):
            continue
        near, far, rows = beyond(dataset, rooted, edit.latent)
        if any(turn.start <= far < turn.stop for turn in turned):
            continue
        ends = np.asarray(dataset.X[np.array([near, far])], np.float64)
        vector = bond.get(edit.latent, ends[1] - ends[0])
        shift, slack = np.asarray(edit.by, np.float64), 0.0
        if not shift.ndim:
            grown = float(shift / (1 + shift))
            shift, slack = grown * vector, abs(grown) * float(np.linalg.norm(ends, axis=1).sum())
        bond[edit.latent] = vector - shift
        found.append(Moved(rows, shift, slack))
    return found


def reach(recipe: Recipe) -> float:
    """Return how far moves led away at most, undone ones included: rows were rounded where they were."""
    total, length = 0.0, dict[int, float]()
    for edit in recipe.edits:
        if isinstance(edit, Move):
            bond = length.get(edit.latent, recipe.step * np.sqrt(recipe.dim))
            shift = float(np.linalg.norm(edit.by)) * (1.0 if isinstance(edit.by, tuple) else bond)
            length[edit.latent] = bond + shift
            total += shift
    return total


def beyond(dataset: Dataset, rooted: Rooted, latent: int) -> tuple[int, int, Ints]:
    """Return the near and the far end of a latent's bond, seen from the walk's root, and the rows beyond it."""
    forest, (parent, height) = dataset.forest, rooted
    cluster = int(forest.latent_cluster[latent])
    rows = np.arange(*forest.cluster_start[cluster : cluster + 2])
    a, b = (int(end) for end in forest.bond[latent])
    lower, upper = (a, b) if parent[a] == b else (b, a)
    below = np.zeros(rows.size, np.bool_)
    _mark_below(parent[rows] - rows[0], np.argsort(height[rows], kind="stable"), lower - rows[0], below)
    root = WALK_ROOT[dataset.recipe.engine](dataset.recipe, forest, cluster)
    if below[root - rows[0]]:
        return lower, upper, rows[~below]
    return upper, lower, rows[below]


@kernel
def _mark_below(parent, order, at, below):
    """Mark a row and all rows that hang on it, given rows in an order that has parents first."""
    below[at] = True
    for row in order:
        if parent[row] >= 0 and below[parent[row]]:
            below[row] = True
