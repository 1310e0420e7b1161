"""Moves taken back, so that positions can be checked against their laws.

A `Move` lengthens one bond, and a `Shift` all bonds that lead into a latent or out of it. What they added is subtracted
again: for a move from all rows beyond the bond, found here by cutting the bond in the tree. Then every bond must have
its length, and all other laws of positions hold. A `Turn` draws steps anew from the same law: nothing needs to be taken
back, and what earlier edits added to these steps is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.dataset.editing import WALK_ROOT, shift_vector
from percolab.ground.compiled import kernel
from percolab.model.edits import Move, Shift, Turn
from percolab.model.recipe import Recipe

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rooted = tuple[Ints, Ints]
"""Parent and height of every row along bonds, from the first row of each cluster."""


@dataclass(frozen=True, eq=False)
class Moved:
    """What an edit added to the rows of a cluster."""

    start: int
    """first row of the cluster"""
    times: NDArray[np.int8]
    """how often the vector was added to each row, or subtracted"""
    shift: Floats
    slack: float
    """size of the numbers it follows from: rounding is a share of this"""

    def difference(self, near: int, far: int) -> Floats:
        """Return what the edit added to the vector from one row to another."""
        times = [self.times[row - self.start] if 0 <= row - self.start < self.times.size else 0 for row in (near, far)]
        return (times[1] - times[0]) * self.shift


def moves(dataset: Dataset, rooted: Rooted) -> list[Moved]:
    """Return what shifts and moves of a dataset added, the last first, as far as later turns left it."""
    forest, taken = dataset.forest, list[Moved]()
    turned = np.zeros(forest.n_points, np.bool_)
    for edit in reversed(dataset.recipe.edits):
        if isinstance(edit, Turn):
            turned[forest.points_of(edit.latent)] = True
        if not isinstance(edit, Shift | Move):
            continue
        tree = Tree.of(dataset, rooted, edit.latent)
        times = np.zeros(tree.parent.size, np.int8)
        if isinstance(edit, Shift):
            rows = forest.points_of(edit.latent)
            times[rows.start - tree.start : rows.stop - tree.start] = 1
            vector, slack = shift_vector(edit, dataset.recipe.dim), 0.0
        else:
            near, far, times[:] = tree.beyond(*forest.bond[edit.latent])
            vector, slack = _move_vector(dataset, edit, near, far, taken)
        tree.forget(turned, times)
        if times.any():
            taken.append(Moved(tree.start, times, vector, slack))
    return taken


def _move_vector(dataset: Dataset, edit: Move, near: int, far: int, later: list[Moved]) -> tuple[Floats, float]:
    """Return the vector that a move added, from X and what was added later; and the size of what it follows from."""
    shift = np.asarray(edit.by, np.float64)
    if shift.ndim:
        return shift, 0.0
    ends = np.asarray(dataset.X[np.array([near, far])], np.float64)
    vector = ends[1] - ends[0] - sum(moved.difference(near, far) for moved in later)
    grown = float(shift / (1 + shift))
    return grown * vector, abs(grown) * float(np.linalg.norm(ends, axis=1).sum())


def reach(recipe: Recipe) -> float:
    """Return how far moves led away at most, undone ones included: rows were rounded where they were."""
    total, shifted, length = 0.0, 0.0, dict[int, float]()
    for edit in recipe.edits:
        if isinstance(edit, Shift):
            distance = float(np.linalg.norm(edit.by))
            shifted += distance  # by so much any bond may be longer
        elif isinstance(edit, Move):
            bond = length.get(edit.latent, recipe.step * np.sqrt(recipe.dim))
            distance = float(np.linalg.norm(edit.by)) * (1.0 if isinstance(edit.by, tuple) else bond + shifted)
            length[edit.latent] = bond + distance
        else:
            continue
        total += distance
    return total


@dataclass(frozen=True, eq=False)
class Tree:
    """The bonds of one cluster, as a tree from its first row; rows are counted from that one."""

    start: int
    parent: Ints
    """-1 for the first row"""
    order: Ints
    """rows, parents first"""
    root: int
    """where the walk starts"""

    @classmethod
    def of(cls, dataset: Dataset, rooted: Rooted, latent: int) -> Tree:
        """Return the tree of the cluster of a latent."""
        forest, (parent, height) = dataset.forest, rooted
        cluster = int(forest.latent_cluster[latent])
        start, stop = (int(edge) for edge in forest.cluster_start[cluster : cluster + 2])
        root = WALK_ROOT[dataset.recipe.engine](dataset.recipe, forest, cluster)
        order = np.argsort(height[start:stop], kind="stable")
        return cls(start, np.maximum(parent[start:stop] - start, -1), order, root - start)

    def beyond(self, a: int, b: int) -> tuple[int, int, NDArray[np.bool_]]:
        """Return the near and the far end of a bond, seen from the walk's root, and which rows are beyond it."""
        lower, upper = (a, b) if self.parent[a - self.start] == b - self.start else (b, a)
        below = np.zeros(self.parent.size, np.bool_)
        _mark_below(self.parent, self.order, lower - self.start, below)
        return (lower, upper, ~below) if below[self.root] else (upper, lower, below)

    def forget(self, turned: NDArray[np.bool_], times: NDArray[np.int8]) -> None:
        """Take out of an edit what was added to the steps of turned rows; a step leads to a row, from the walk's root.

        The root has no step: a turn leaves it where it was, but for its own direction.
        """
        steps = times - np.where(self.parent >= 0, times[self.parent], 0)
        leads_to = np.arange(self.parent.size)
        row = self.root
        while self.parent[row] >= 0:  # here the walk goes up the tree
            leads_to[row] = self.parent[row]
            row = int(self.parent[row])
        steps[turned[self.start : self.start + self.parent.size][leads_to]] = 0
        kept = times[self.root]
        _add_up(self.parent, self.order, steps, times)
        times += kept - times[self.root]


@kernel
def _mark_below(parent, order, at, below):
    """Mark a row and all rows that hang on it, given rows in an order that has parents first."""
    below[at] = True
    for row in order:
        if parent[row] >= 0 and below[parent[row]]:
            below[row] = True


@kernel
def _add_up(parent, order, steps, total):
    """Fill the sum of the steps down to each row, given rows in an order that has parents first."""
    for row in order:
        total[row] = steps[row] + (total[parent[row]] if parent[row] >= 0 else 0)
