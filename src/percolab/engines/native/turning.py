"""Directions of native data, drawn again: for one latent and all below it, from any seed.

A latent's Gaussian is a function of the embed seed and of its path, so the vector of any node follows from the way down
to it, and the directions below it can be drawn from another seed without the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines.native import directions, positions
from percolab.ground.compiled import kernel
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.rng import philox

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


def walk_root(recipe: Recipe, forest: Forest, cluster: int) -> int:
    """Return the row at which the walk of a cluster starts. Time proportional to its depth and to find its founder."""
    first, stop = (int(edge) for edge in forest.cluster_start[cluster : cluster + 2])
    path = _top_path(forest, cluster)
    key = np.uint64(recipe.seeds.embed)
    return first + int(positions.choose_root(first - cluster, stop - first, path, forest.left_size, key))


def vector_below(
    recipe: Recipe, forest: Forest, cluster: int, sides: Ints, seeds: Words
) -> tuple[NDArray[Any], np.uint64]:
    """Return the unit vector and the path of the node reached from the top of a cluster, left (0) or right (1) at each.

    `seeds` are what the splits on the way were drawn from, one for each side.
    """
    X = np.empty((2, recipe.dim), recipe.dtype)
    path = _follow(X, _top_path(forest, cluster), sides, np.uint64(recipe.seeds.embed), seeds)
    return X[0], np.uint64(path)


def turned_directions(
    forest: Forest, latent: int, n_rows: int, vector: NDArray[Any], path: np.uint64, seed: int
) -> NDArray[Any]:
    """Return the unit vectors of the rows of a latent, given its vector and path, with all splits drawn from `seed`."""
    X = np.empty((n_rows, vector.size), vector.dtype)
    X[0] = vector
    _hand_down(forest.left_size[latent : latent + n_rows - 1], path, np.uint64(seed), X)
    return X


def _top_path(forest: Forest, cluster: int) -> np.uint64:
    """Return the path of a cluster's top: it follows from the point that started the cluster, the first to be born."""
    founder = forest.point_id[slice(*forest.cluster_start[cluster : cluster + 2])].min()
    return np.uint64(philox.cluster_path(founder))


@kernel
def _follow(X, path, sides, key, keys):
    """Put the vector of a node in the first row of X, by the splits from the top of its cluster; return its path."""
    draws = directions.draw_work(X.shape[1])
    paths, rows, others = np.full(1, path, np.uint64), np.zeros(1, np.int64), np.ones(1, np.int64)
    directions.unit_vectors(paths, rows, 1, X, philox.VECTOR, key, draws)
    for k in range(sides.size):
        directions.split_vectors(paths, rows, others, 1, X, keys[k], draws)
        if sides[k]:
            X[0] = X[1]
        left_path, right_path = philox.child_paths(paths[0])
        paths[0] = right_path if sides[k] else left_path
    return paths[0]


@kernel
def _hand_down(left_size, path, key, X):
    """Hand the vector in the first row of X down the latents of an interval."""
    size = np.empty(X.shape[0], np.int64)
    paths, left_row, right_row = np.empty(X.shape[0], np.uint64), np.empty_like(size), np.empty_like(size)
    size[0], paths[0], left_row[0] = X.shape[0], path, 0
    for i in range(left_size.size):
        left = left_size[i]
        left_path, right_path = philox.child_paths(paths[i])
        right_row[i] = left_row[i] + left
        if left > 1:
            size[i + 1], paths[i + 1], left_row[i + 1] = left, left_path, left_row[i]
        if size[i] - left > 1:
            size[i + left], paths[i + left], left_row[i + left] = size[i] - left, right_path, right_row[i]
    draws = directions.draw_work(X.shape[1])
    directions.split_vectors(paths, left_row, right_row, left_size.size, X, key, draws)
