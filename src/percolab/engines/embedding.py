"""Embedding: directions handed down the latent tree, then a branching random walk along the bonds.

A latent with unit vector v draws a Gaussian u, takes its part orthogonal to v, normalised, as w, and hands
(v + w)/√2 to its left child and (v - w)/√2 to its right one. Points end up with unit vectors. The vector of the
latent over rows [a, b) is kept in row a of X itself: its left child starts at the same row, its right child at the
first row of the right interval, so no latent vector is ever stored anywhere else.

Sums over coordinates are those of `product`, and all else is one operation after another: X has the same bits on every
processor.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from percolab.ground.compiled import kernel

HALF_ROOT = math.sqrt(0.5)


# ---------------------------------------------------------------------- directions
LANES = 16  #: Part of the definition of the data.


@kernel
def normalise(vector):
    """Scale a vector to unit length, in place."""
    inverse = vector.dtype.type(1) / np.sqrt(product(vector, vector))
    for j in range(vector.size):
        vector[j] *= inverse


@kernel
def split_direction(gauss, left, right):
    """Replace the vector v in `left` by (v + w)/√2 and set `right` to (v - w)/√2; `gauss` is the draw and is spent.

    A draw that lies close to v, which is common in few dimensions, loses digits when it is projected off v: it is
    projected again until little changes.
    """
    number = gauss.dtype.type  # arithmetic in the precision of the draw: otherwise float32 would run at half speed
    half_root = number(HALF_ROOT)
    along, square = number(1), number(0)
    while square < number(0.1) * along * along:
        along = product(left, gauss)
        for j in range(left.size):
            gauss[j] -= along * left[j]
        square = product(gauss, gauss)
    scale = half_root / np.sqrt(square)
    for j in range(left.size):
        v, w = half_root * left[j], scale * gauss[j]
        left[j] = v + w
        right[j] = v - w


@kernel
def split_far(gauss, left, right):
    """Do `split_direction` in two passes if the draw u is far from v in direction; return whether it was.

    With a = u·v/|v|², the part of u off v has length √(|u|² - a u·v), which is accurate unless u is close to v. The
    length of v, which is 1 up to rounding, is divided out: otherwise errors would grow from parent to child.
    """
    number = left.dtype.type
    product, square, length = products(gauss, left)
    along = product / length
    off = square - along * product
    if off < number(0.1) * square:
        return False
    half_root = number(HALF_ROOT)
    scale, keep = half_root / np.sqrt(off), half_root / np.sqrt(length)
    keep_left, keep_right = keep - scale * along, keep + scale * along
    for j in range(left.size):
        v, w = left[j], scale * number(gauss[j])
        left[j] = keep_left * v + w
        right[j] = keep_right * v - w
    return True


# ---------------------------------------------------------------------- the walk


class WalkWork(NamedTuple):
    """Work arrays for the walk through an interval of rows; rows are counted from its first."""

    start: Any  #: first row of each latent, in preorder
    size: Any  #: number of points of each latent
    entry: Any  #: row where the walk enters each latent
    parent: Any  #: row from which the walk comes to each row, -1 where it starts
    order: Any  #: rows, each after its parent
    done: Any  #: rows that are in `order` already


@kernel
def walk_work(most):
    """Return work arrays for up to this many rows."""
    start, size, entry = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    return WalkWork(start, size, entry, np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.bool_))


@kernel
def plan_walk(first_row, left_size, bond, entry, work):
    """Return, for the walk that enters an interval at row `entry`, an order of its rows and the parent of each.

    `left_size` and `bond` are those of its latents, in preorder; it starts at `first_row` of the rows that bonds name.
    """
    n_rows = left_size.size + 1
    parent, order = work.parent[:n_rows], work.order[:n_rows]
    _orient(first_row, left_size, bond, entry, work, parent)
    _order(parent, order, work.done)
    return order, parent


@kernel
def _orient(first_row, left_size, bond, root, work, parent):
    """Fill the walk's parent of every row.

    The walk enters a latent's interval at one row, its entry. The bond leads from the side that holds the entry
    into the other side, whose entry is thus the far end of the bond. One forward pass.
    """
    start, size, entry = work.start, work.size, work.entry
    start[0], size[0], entry[0] = 0, parent.size, root
    parent[root] = -1
    for i in range(left_size.size):
        left = left_size[i]
        right = size[i] - left
        a, b = bond[i, 0] - first_row, bond[i, 1] - first_row
        left_entry = right_entry = entry[i]
        if entry[i] < start[i] + left:
            parent[b] = a
            right_entry = b
        else:
            parent[a] = b
            left_entry = a
        if left > 1:
            start[i + 1], size[i + 1], entry[i + 1] = start[i], left, left_entry
        if right > 1:
            start[i + left], size[i + left], entry[i + left] = start[i] + left, right, right_entry


@kernel
def _order(parent, order, done):
    """Fill the order of `order_of`; `done` is work."""
    done[: parent.size] = False
    filled = 0
    for node in range(parent.size):
        first, at = filled, node
        while at >= 0 and not done[at]:
            done[at] = True
            order[filled] = at
            filled += 1
            at = parent[at]
        last = filled - 1
        while first < last:  # reverse the way up to a node that is done
            order[first], order[last] = order[last], order[first]
            first, last = first + 1, last - 1


@kernel
def order_of(parent):
    """Return all nodes such that each comes after its parent; the parent of a root is negative."""
    order = np.empty(parent.size, np.int64)
    _order(parent, order, np.empty(parent.size, np.bool_))
    return order


@kernel
def walk(X, order, parent, origin, stride):
    """Turn the unit vectors in X into positions, in place: `origin`, or that of the parent, plus `stride` times vector.

    X may be a block of columns, since coordinates do not mix.
    """
    number = X.dtype.type
    stride = number(stride)
    for row in order:
        above = parent[row]
        if above < 0:
            for j in range(X.shape[1]):
                X[row, j] = number(origin[j]) + stride * X[row, j]
        else:
            for j in range(X.shape[1]):
                X[row, j] = X[above, j] + stride * X[row, j]


# ---------------------------------------------------------------------- sums in lanes
#
# Sums over coordinates, to the bit on every processor.
# A sum of floating-point numbers depends on its order, and a compiler that may choose the order takes the one that
# suits the vector registers at hand. Here it is fixed: coordinate j is added to lane j mod 16, the lanes are folded
# in halves (8, 4, 2, 1), and the coordinates left over, fewer than 16, are added to that one by one. Products are
# rounded before they are added; LLVM fuses the two only with explicit permission. Sixteen lanes fill one of the widest
# registers there are, or several narrower ones. Numba has no vector types, so the loop is written as LLVM code.


@intrinsic
def product(typing_context, u, v):
    """Return u·v in the precision of v; both are contiguous, and u is at least as long as v."""
    if not _are_vectors(u, v):
        return None

    def emit(context, builder, signature, arguments):
        return _Sums(context, builder, signature, arguments).of_products([(0, 1)])[0]

    return v.dtype(u, v), emit


@intrinsic
def products(typing_context, u, v):
    """Return u·v, u·u and v·v, in one pass, each as `product` does."""
    if not _are_vectors(u, v):
        return None

    def emit(context, builder, signature, arguments):
        sums = _Sums(context, builder, signature, arguments).of_products([(0, 1), (0, 0), (1, 1)])
        return context.make_tuple(builder, signature.return_type, sums)

    return types.UniTuple(v.dtype, 3)(u, v), emit


def _are_vectors(*arrays):
    return all(isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C" for array in arrays)


class _Sums:
    """Writes the sums of products of vectors; the last vector sets their length and precision."""

    def __init__(self, context, builder, signature, arguments):
        self.builder, self.types = builder, signature.args
        self.arrays = [context.make_array(t)(context, builder, a) for t, a in zip(self.types, arguments, strict=True)]
        self.elements = [context.get_value_type(t.dtype) for t in self.types]
        self.size = builder.extract_value(self.arrays[-1].shape, 0)

    def of_products(self, pairs):
        """Return Σ x_a x_b for each pair (a, b) of vectors."""
        builder, index = self.builder, self.size.type
        whole = builder.and_(self.size, ir.Constant(index, -LANES))
        lanes = self._add_up(pairs, LANES, ir.Constant(index, 0), whole)
        folded = [self._fold(lane) for lane in lanes]
        return self._add_up(pairs, 1, whole, self.size, folded)

    def _add_up(self, pairs, width, start, stop, begin=None):
        """Add products to sums of this many lanes, from coordinate `start` on."""
        builder = self.builder
        zero = ir.Constant(self._number(-1, width), None)
        totals = [cgutils.alloca_once_value(builder, zero if begin is None else begin[p]) for p in range(len(pairs))]
        step = ir.Constant(self.size.type, width)
        with cgutils.for_range_slice(builder, start, stop, step, self.size.type) as (at, _):
            x = [self._load(k, at, width) for k in range(len(self.arrays))]
            for total, (a, b) in zip(totals, pairs, strict=True):
                builder.store(builder.fadd(builder.load(total), builder.fmul(x[a], x[b])), total)
        return [builder.load(total) for total in totals]

    def _number(self, k, width):
        """Return the type of one coordinate of a vector, or of several side by side."""
        return ir.VectorType(self.elements[k], width) if width > 1 else self.elements[k]

    def _load(self, k, at, width):
        """Load coordinates of a vector, in the precision of the sums."""
        kind = self._number(k, width)
        pointer = self.builder.bitcast(self.builder.gep(self.arrays[k].data, [at]), kind.as_pointer())
        value = self.builder.load(pointer, align=self.types[k].dtype.bitwidth // 8)
        wanted = self._number(-1, width)
        return value if kind == wanted else self.builder.fpext(value, wanted)

    def _fold(self, lanes):
        """Add the upper half of the lanes to the lower one until one is left."""
        builder, word, width = self.builder, ir.IntType(32), LANES
        while width > 1:
            width //= 2
            halves = []
            for first in (0, width):
                mask = ir.Constant(ir.VectorType(word, width), list(range(first, first + width)))
                halves.append(builder.shuffle_vector(lanes, ir.Constant(lanes.type, ir.Undefined), mask))
            lanes = builder.fadd(*halves)
        return builder.extract_element(lanes, ir.Constant(word, 0))
