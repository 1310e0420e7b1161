"""Directions of native data: Gaussian vectors drawn by path, many at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from percolab.engines import embedding
from percolab.ground.compiled import kernel
from percolab.rng import philox

BLOCKS_AT_ONCE = 512  #: Philox blocks drawn at once, about: vector registers need many, the cache holds few.


class Draws(NamedTuple):
    """Work arrays for Gaussian vectors of several nodes, and how many come at once."""

    at_once: Any  #: nodes
    blocks: Any  #: Philox blocks of a vector, each of four numbers
    nodes: Any  #: path for every block
    indices: Any  #: number of every block in its vector
    bits: Any
    normals: Any  #: float32, vector after vector, each of 4 `blocks` numbers


@kernel
def draw_work(dim):
    """Return work arrays for vectors of this length."""
    blocks = (dim + 3) // 4
    at_once = max(8, BLOCKS_AT_ONCE // blocks // 8 * 8)
    count = at_once * blocks
    nodes, indices = np.empty(count, np.uint64), np.empty(count, np.uint64)
    for i in range(count):
        indices[i] = i % blocks
    return Draws(at_once, blocks, nodes, indices, np.empty(4 * count, np.int32), np.empty(4 * count, np.float32))


@kernel
def _draw(paths, lo, hi, purpose, key, draws):
    """Draw the vectors of the nodes paths[lo:hi]."""
    blocks = draws.blocks
    for i in range(lo, hi):
        for j in range(blocks):
            draws.nodes[(i - lo) * blocks + j] = paths[i]
    count = (hi - lo) * blocks
    bits = draws.bits[: 4 * count]
    philox.bits_of_nodes(draws.nodes[:count], draws.indices[:count], purpose, key, bits)
    philox.normals_of_bits(bits, draws.normals[: 4 * count])


@kernel
def unit_vectors(paths, rows, count, X, purpose, key, draws):
    """Put a uniform unit vector for each path in its row of X."""
    for lo in range(0, count, draws.at_once):
        hi = min(lo + draws.at_once, count)
        _draw(paths, lo, hi, purpose, key, draws)
        for i in range(lo, hi):
            vector, first = X[rows[i]], 4 * draws.blocks * (i - lo)
            for j in range(vector.size):
                vector[j] = draws.normals[first + j]
            embedding.normalise(vector)


@kernel
def split_vectors(paths, left_rows, right_rows, count, X, key, draws):
    """Split the vectors of latents, which are listed with parents before children.

    The vector of a latent is in its left row of X; splitting it puts the vector of the left child in the same row and
    the vector of the right child in the right row.
    """
    close = np.empty(X.shape[1], X.dtype)
    for lo in range(0, count, draws.at_once):
        hi = min(lo + draws.at_once, count)
        _draw(paths, lo, hi, philox.DIRECTION, key, draws)
        for i in range(lo, hi):
            first, left, right = 4 * draws.blocks * (i - lo), X[left_rows[i]], X[right_rows[i]]
            if not embedding.split_far(draws.normals[first : first + close.size], left, right):
                for j in range(close.size):
                    close[j] = draws.normals[first + j]
                embedding.split_direction(close, left, right)


@kernel
def split_skeleton(parent, path, left_rows, right_rows, X, key):
    """Hand vectors down a skeleton; the vectors of clusters are drawn, the vectors of limbs are in X already."""
    draws = draw_work(X.shape[1])
    tops, top_rows, count = np.empty(path.size, np.uint64), np.empty(path.size, np.int64), 0
    for s in range(path.size):
        if parent[s] == -1:
            tops[count], top_rows[count] = path[s], left_rows[s]
            count += 1
    unit_vectors(tops, top_rows, count, X, philox.VECTOR, key, draws)
    split_vectors(path, left_rows, right_rows, path.size, X, key, draws)


@kernel
def origins(paths, rows, count, centre, scale, key, draws):
    """Put the scaled origin of the cluster of each path in a row of `centre`, which has two columns more than needed.

    An origin is uniform in the unit ball: d coordinates of a uniform point of the sphere in R^(d+2).
    """
    unit_vectors(paths, rows, count, centre, philox.ORIGIN, key, draws)
    for i in range(count):
        for j in range(centre.shape[1]):
            centre[rows[i], j] *= scale
