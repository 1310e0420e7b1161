"""Embedding: directions handed down the latent tree, then a branching random walk along the bonds.

A latent with unit vector v draws a Gaussian u, takes its part orthogonal to v, normalised, as w, and hands
(v + w)/√2 to its left child and (v - w)/√2 to its right one. Points end up with unit vectors. The vector of the
latent over rows [a, b) is kept in row a of X itself: its left child starts at the same row, its right child at the
first row of the right interval, so no latent vector is ever stored anywhere else.
"""

from __future__ import annotations

import math

import numpy as np

from percolab.ground.compiled import kernel

REASSOCIATE = {"reassoc", "contract", "nsz"}
"""Lets sums over coordinates use vector registers; X is reproducible on one machine, equal to rounding across them."""

HALF_ROOT = math.sqrt(0.5)


@kernel(fastmath=REASSOCIATE)
def normalise(vector):
    """Scale a vector to unit length, in place."""
    number = vector.dtype.type
    square = number(0)
    for j in range(vector.size):
        square += vector[j] * vector[j]
    inverse = number(1) / np.sqrt(square)
    for j in range(vector.size):
        vector[j] *= inverse


@kernel(fastmath=REASSOCIATE)
def split_direction(gauss, left, right):
    """Replace the vector v in `left` by (v + w)/√2 and set `right` to (v - w)/√2; `gauss` is the draw and is spent.

    A draw that lies close to v, which is common in few dimensions, loses digits when it is projected off v: it is
    projected again until little changes.
    """
    number = gauss.dtype.type  # arithmetic in the draw's own precision, or float32 would run at half speed
    half_root = number(HALF_ROOT)
    along, square = number(1), number(0)
    while square < number(0.1) * along * along:
        along = number(0)
        for j in range(left.size):
            along += gauss[j] * left[j]
        square = number(0)
        for j in range(left.size):
            gauss[j] -= along * left[j]
            square += gauss[j] * gauss[j]
    scale = half_root / np.sqrt(square)
    for j in range(left.size):
        v, w = half_root * left[j], scale * gauss[j]
        left[j] = v + w
        right[j] = v - w


@kernel
def orient(first_row, left_size, bond, root, parent):
    """Fill the walk's parent row of every row of one cluster, -1 at the root; rows are counted from `first_row`.

    The walk enters a latent's interval at one row, its entry. The bond leads from the side that holds the entry
    into the other side, whose entry is thus the far end of the bond. One forward pass.
    """
    size = left_size.size + 1
    entry, start, count = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    entry[0], start[0], count[0] = root, 0, size
    parent[root] = -1
    for i in range(size - 1):
        left = left_size[i]
        right = count[i] - left
        a, b = bond[i, 0] - first_row, bond[i, 1] - first_row
        left_entry = right_entry = entry[i]
        if entry[i] < start[i] + left:
            parent[b] = a
            right_entry = b
        else:
            parent[a] = b
            left_entry = a
        if left > 1:
            entry[i + 1], start[i + 1], count[i + 1] = left_entry, start[i], left
        if right > 1:
            entry[i + left], start[i + left], count[i + left] = right_entry, start[i] + left, right


@kernel
def walk_order(parent, order):
    """Fill the rows such that every row comes after its parent; `parent` is kept."""
    done = np.zeros(parent.size, np.bool_)
    stack = np.empty(parent.size, parent.dtype)
    filled = 0
    for row in range(parent.size):
        waiting = 0
        at = row
        while at >= 0 and not done[at]:
            done[at] = True
            stack[waiting] = at
            waiting += 1
            at = parent[at]
        while waiting > 0:
            waiting -= 1
            order[filled] = stack[waiting]
            filled += 1


@kernel
def walk(X, order, parent, origin, step, scale):
    """Turn the unit vectors in X into positions: X[i] = scale · (position of parent + step · vec[i]), in place.

    X may be a block of columns, since coordinates do not mix.
    """
    stride = step * scale
    for row in order:
        above = parent[row]
        if above < 0:
            for j in range(X.shape[1]):
                X[row, j] = scale * origin[j] + stride * X[row, j]
        else:
            for j in range(X.shape[1]):
                X[row, j] = X[above, j] + stride * X[row, j]
