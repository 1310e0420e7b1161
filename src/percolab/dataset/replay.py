"""Editing: the edits of `percolab.model.edits`, applied to the arrays of a dataset, in place.

`generate` applies the edits of a recipe one after another, and `Dataset.do`, `shift`, `move` and `turn` apply one more,
by the same functions: so a recipe with edits makes the same bytes as the edits applied one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines import embedding, paper
from percolab.engines.native import positions
from percolab.ground.arrays import Floats
from percolab.ground.compiled import kernel
from percolab.model import paths
from percolab.model.edits import Do, Edit, Move, Shift, Turn
from percolab.model.forest import Forest
from percolab.model.paths import Way
from percolab.model.recipe import Recipe
from percolab.rng import philox

#: The functions that find the row at which the walk of a cluster starts, by the name of the engine.
WALK_ROOT: Mapping[str, Callable[[Recipe, Forest, int], int]] = {
    "native": positions.walk_root,
    "paper": paper.walk_root,
}


def replay(recipe: Recipe, forest: Forest, X: NDArray[Any], latent_z: Floats, point_z: Floats) -> None:
    """Apply all edits of a recipe, in order, to the arrays made without them. Targets are not changed."""
    for number, edit in enumerate(recipe.edits):
        edit.check(forest.n_points, forest.n_latents)
        if isinstance(edit, Do):
            set_values(edit, latent_z, point_z)
        else:
            displace(recipe, forest, edit, recipe.edits[:number], X)


def displace(recipe: Recipe, forest: Forest, edit: Shift | Move | Turn, past: Sequence[Edit], X: NDArray[Any]) -> None:
    """Apply an edit of positions, which comes after those `past` it."""
    match edit:
        case Shift():
            X[forest.points_of(edit.latent)] += shift_vector(edit, X.shape[1])  # rounded once to the type of X
        case Move():
            move(recipe, forest, edit, X)
        case Turn():
            turn(recipe, forest, edit, past, X)


def set_values(edit: Do, latent_z: Floats, point_z: Floats) -> None:
    """Give latents and points their new values."""
    for pairs, values in ((edit.z, latent_z), (edit.point_z, point_z)):
        for node, value in pairs:
            values[node] = value


def way_of(recipe: Recipe, forest: Forest, latent: int) -> tuple[Way, int]:
    """Return the way down to a latent, and the root of the walk of its cluster."""
    root = WALK_ROOT[recipe.engine](recipe, forest, int(forest.latent_cluster[latent]))
    return paths.way_to(forest, latent, root), root


# ---------------------------------------------------------------------- moving


def shift_vector(edit: Shift, dim: int) -> Floats:
    """Return the (d,) vector of a shift: given, or its distance times a unit vector drawn for seed and latent."""
    if edit.seed is None:
        return np.asarray(edit.by, np.float64)
    vector = np.empty(dim)
    _unit_vector(np.uint64(edit.latent), np.uint64(edit.seed), vector)
    return float(edit.by) * vector  # type: ignore[arg-type]


@kernel
def _unit_vector(node, key, vector):
    squares = 0.0
    for j in range(vector.size):
        a, b = philox.block(node, j, philox.SHIFT, key)
        vector[j] = philox.normal(a, b)
        squares += vector[j] * vector[j]
    vector /= np.sqrt(squares)


def move(recipe: Recipe, forest: Forest, edit: Move, X: NDArray[Any]) -> None:
    """Add a vector to all rows beyond a latent's bond: rounded once to the type of X."""
    near, far, intervals = beyond(recipe, forest, edit.latent)
    vector = np.asarray(edit.by, np.float64)
    if not vector.ndim:
        vector = vector * (X[far].astype(np.float64) - X[near])
    for rows in intervals:
        X[rows] += vector


def beyond(recipe: Recipe, forest: Forest, latent: int) -> tuple[int, int, list[slice]]:
    """Return the near and the far end of a latent's bond, and the rows beyond it as intervals, in no order."""
    way, _ = way_of(recipe, forest, latent)
    near, far, side = paths.ends(forest, way)
    hanging = paths.hanging(forest, way, side)
    return near, far, [side, *map(slice, hanging.start.tolist(), hanging.stop.tolist())]


# ---------------------------------------------------------------------- turning


def turn(recipe: Recipe, forest: Forest, edit: Turn, before: Sequence[Edit], X: NDArray[Any]) -> None:
    """Walk the rows of a latent along directions drawn from another seed, and carry along the rows that hang on them.

    `before` are the earlier edits: a `Turn` of a latent above determines the seed of the directions below that latent.
    """
    way, root = way_of(recipe, forest, edit.latent)
    rows, hanging = way.interval, paths.hanging(forest, way, way.interval)
    steps = _turned(recipe, forest, way, edit, before)
    stride = recipe.step * np.sqrt(recipe.dim)
    if rows.start <= root < rows.stop:
        came_from = X[root].astype(np.float64) - stride * _vector_of_row(recipe, forest, before, root)
    else:
        came_from = X[_before_entry(forest, way)].astype(np.float64)
    old = X[hanging.row].astype(np.float64)
    latents = slice(edit.latent, edit.latent + rows.stop - rows.start - 1)
    tree = forest.left_size[latents], forest.bond[latents], int(way.entry[-1]) - rows.start
    _walk(X[rows], rows.start, *tree, steps, came_from, stride)
    for start, stop, row, was in zip(hanging.start, hanging.stop, hanging.row, old, strict=True):
        X[start:stop] += X[row] - was  # the row has moved already: it is below the latent, or hangs on it


def _turned(recipe: Recipe, forest: Forest, way: Way, edit: Turn, before: Sequence[Edit]) -> NDArray[Any]:
    """Return the unit vectors that a turn gives the rows of its latent."""
    vector = positions.vector_below(recipe, forest, way.cluster, _sides(way), _seeds(recipe, before, way)[:-1])
    return positions.turned_directions(forest, edit.latent, vector, edit.seed)


def _sides(way: Way) -> NDArray[np.int64]:
    """Return 0 where a way goes left and 1 where it goes right."""
    return np.diff(way.start).clip(0, 1)


def _seeds(recipe: Recipe, edits: Sequence[Edit], way: Way) -> NDArray[np.uint64]:
    """Return the seed of the split of each latent of a way, after some edits."""
    seeds = np.full(way.latent.size, recipe.seeds.embed, np.uint64)
    for edit in edits:
        if isinstance(edit, Turn) and edit.latent in way.latent:
            seeds[way.latent >= edit.latent] = edit.seed
    return seeds


def _vector_of_row(recipe: Recipe, forest: Forest, edits: Sequence[Edit], row: int) -> NDArray[Any]:
    """Return the unit vector of a row, after some edits."""
    way = paths.way_to(forest, int(forest.path(row)[-1]), row)
    last = int(row >= way.start[-1] + forest.left_size[way.latent[-1]])
    return positions.vector_below(recipe, forest, way.cluster, np.append(_sides(way), last), _seeds(recipe, edits, way))


def _before_entry(forest: Forest, way: Way) -> int:
    """Return the row from which the walk enters the last latent of a way, in which it does not start."""
    entry, sides = way.entry, _sides(way)
    k = int(np.flatnonzero(entry[:-1] != entry[-1])[-1])  # below this latent the entry stays the same
    return int(forest.bond[way.latent[k], 1 - sides[k]])


@kernel
def _walk(X, first_row, left_size, bond, entry, steps, came_from, stride):
    """Walk the rows of a latent from its entry: each row is a step from its parent, the entry from `came_from`."""
    order, parent = embedding.plan_walk(first_row, left_size, bond, entry, embedding.walk_work(X.shape[0]))
    for row in order:
        above = parent[row]
        for j in range(X.shape[1]):
            X[row, j] = (came_from[j] if above < 0 else X[above, j]) + stride * steps[row, j]
