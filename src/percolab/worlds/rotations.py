"""Fast rotations into D dimensions: rounds of small rotations, as in a fast Fourier transform.

Let P = max(d, D). The d coordinates of a point, with zeros after them if D > d, fill a grid of 4 rows and P // 4
columns. In each round every column is rotated by its own rotation in 4 dimensions, drawn uniformly (Haar); then the
grid is read column by column, which gives the coordinates that the next round starts from. Up to three coordinates
that do not fit in the grid are put in front. If P is a power of 4, log₄ P rounds make each coordinate depend on all
others; else ⌈log₄ P⌉ + 2 rounds are done. That is 8 flops per coordinate and round; a full matrix takes 2 P flops per
coordinate.

If D ≥ d, the result is a D by d matrix Q with orthonormal columns: lengths and angles are kept. If D < d, Q is the
first D rows of a rotation times √(d/D): lengths are kept in the mean over seeds, so the share that a factor has in X
does not depend on D. Entries of Q have mean 0 and, if P is a power of 4, variance 1/D, as those of a uniform rotation.
Data on percolation clusters have no preferred directions, so if D = d the law of Q X is that of X whatever Q is.

The same seed gives the same bits on every machine: the small rotations come from keyed normals by Gram and Schmidt, and
all sums have a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import prefetch_to_read
from percolab.rng import philox

#: Bytes of a row processed at a time: the width of the widest registers; narrower machines use several registers.
TILE_BYTES = 64
TILE_ROWS = 2  #: Rows that share the coefficients they are multiplied by.
WAYS = 4  #: Numbers that are rotated together.

_WORD = ir.IntType(32)
AHEAD = 16  #: How many rows ahead of their use rows are prefetched.
_GROUP = 2 * TILE_ROWS  #: Rows that are rotated in one pass.


@dataclass(frozen=True, eq=False)
class Rotation:
    """A rotation Q of d dimensions into D; see this module."""

    dim: int  #: D
    factor_dim: int  #: d
    columns: NDArray[np.float64]  #: (rounds, P // 4, 4, 4) the rotation of each column in each round; smaller if P is

    @classmethod
    def draw(cls, factor: int, factor_dim: int, dim: int, seed: int) -> Rotation:
        """Return the rotation of a factor: a function of the seed, its number and both dimensions."""
        size = max(factor_dim, dim)
        ways = min(WAYS, size)
        normals = np.empty((_rounds(size), size // ways, ways, ways))
        nodes = np.uint64(factor << 40) + np.arange(normals.size, dtype=np.uint64)
        philox.normals(
            nodes, philox.WORLD_ROTATION, np.uint64(seed), np.empty(2 * normals.size, np.uint64), normals.reshape(-1)
        )
        orthonormalise(normals.reshape(-1, ways, ways))
        return cls(dim, factor_dim, normals)

    @property
    def stretch(self) -> float:
        """The factor that keeps lengths in the mean: √(d/D) if D < d, else 1."""
        return math.sqrt(max(1.0, self.factor_dim / self.dim))

    def matrix(self) -> NDArray[np.float64]:
        """Return Q, (D, d)."""
        size = max(self.factor_dim, self.dim)
        _, count, ways, _ = self.columns.shape
        whole = np.eye(size, self.factor_dim)
        for columns in self.columns:
            grid, rest = np.split(whole, [count * ways])
            turned = np.einsum("cba,ack->cbk", columns, grid.reshape(ways, count, -1))
            whole = np.concatenate([rest, turned.reshape(count * ways, -1)])
        return self.stretch * whole[: self.dim]

    def table(self, dtype: Any) -> NDArray[Any]:
        """Return the small rotations as `turn` needs them: (rounds, 16, P // 4 padded to whole tiles)."""
        rounds, count, ways, _ = self.columns.shape
        lanes = TILE_BYTES // np.dtype(dtype).itemsize
        table = np.zeros((rounds, WAYS, WAYS, -(-count // lanes) * lanes), dtype)
        table[:, :ways, :ways, :count] = self.columns.transpose(0, 2, 3, 1)
        return table.reshape(rounds, WAYS * WAYS, -1)


def _rounds(size: int) -> int:
    """Return the number of rounds after which each of `size` coordinates depends on all."""
    enough = 1
    while WAYS**enough < size:
        enough += 1
    return enough if WAYS**enough == size else enough + 2


@kernel
def orthonormalise(matrices):
    """Make the columns of small matrices orthonormal, in place, by Gram-Schmidt: normals become uniform rotations.

    Each column is projected out of the later ones twice: the second pass removes rounding errors of the first.
    """
    count, size, _ = matrices.shape
    for m in range(count):
        matrix = matrices[m]
        for i in range(size):
            for _ in range(2):
                for j in range(i):
                    along = 0.0
                    for t in range(size):
                        along += matrix[t, j] * matrix[t, i]
                    for t in range(size):
                        matrix[t, i] -= along * matrix[t, j]
            square = 0.0
            for t in range(size):
                square += matrix[t, i] * matrix[t, i]
            length = np.sqrt(square)
            for t in range(size):
                matrix[t, i] /= length


@kernel
def turn(lo, hi, rows, source, table, scale, X, fresh):
    """Add `scale` times the turned rows of `source` to rows lo … hi - 1 of X, or put them there if `fresh`.

    X may be `source` itself if it is fresh and rows are 0, 1, 2, ….
    """
    rounds, _, padded = table.shape
    factor_dim, dim = source.shape[1], X.shape[1]
    size = max(factor_dim, dim)
    count = max(1, size // WAYS)
    outside = max(0, size - WAYS * count)
    lanes = TILE_BYTES // X.itemsize
    # Tiles reach beyond the columns of the grid, with coefficients 0: into the next row, or past the last.
    shape = (_GROUP, WAYS * padded + WAYS)
    before, after = np.zeros(shape, X.dtype), np.zeros(shape, X.dtype)
    for first in range(lo, hi, _GROUP):
        used = min(_GROUP, hi - first)
        for i in range(used):
            if first + i + AHEAD < hi:
                for j in range(0, factor_dim, lanes):
                    prefetch_to_read(source[rows[first + i + AHEAD]], j)
            row = rows[first + i]
            for j in range(factor_dim):
                before[i, j] = source[row, j]
            for j in range(factor_dim, size):
                before[i, j] = 0
        for part in range(rounds):
            for i in range(0, _GROUP, TILE_ROWS):
                for column in range(0, padded, lanes):
                    turn_tile(before, i, count, table, part, column, after, outside)
            for i in range(_GROUP):
                for j in range(outside):
                    after[i, j] = before[i, WAYS * count + j]
            before, after = after, before
        for i in range(used):
            if fresh:
                for j in range(dim):
                    X[first + i, j] = scale * before[i, j]
            else:
                for j in range(dim):
                    X[first + i, j] += scale * before[i, j]


# ---------------------------------------------------------------------- vector registers
#
# Instructions on whole vector registers, for loops that the compiler does not vectorise.


@intrinsic
def turn_tile(typing_context, source, row, stride, table, part, column, out, to):
    """Turn each WAYS numbers of two rows that lie `stride` apart, and put them side by side.

    For both rows r from `row` on, every column c of a tile from `column` on, and every b < WAYS:
    ``out[r, to + WAYS c + b] = Σ_a table[part, WAYS b + a, c] · source[r, a stride + c]``, terms in this order, each
    product and each sum rounded. Arrays are contiguous and of one type; a tile may extend past its columns.
    """

    def emit(context, builder, signature, args):
        _emit_turn(context, builder, signature, args)
        return context.get_dummy_value()

    at = types.intp
    return types.none(source, at, at, table, at, at, out, at), emit


def _emit_turn(context, builder, signature, args):
    _, row, stride, _, part, column, _, to = args
    number = signature.args[0].dtype
    lanes = TILE_BYTES * 8 // number.bitwidth
    vector = ir.VectorType(context.get_value_type(number), lanes)
    source, table, out = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 3, 6))
    width = builder.extract_value(table.shape, 2)

    def times(value, count):
        return builder.mul(value, ir.Constant(value.type, count))

    def start_of(array, r, place):
        at_row = builder.add(row, ir.Constant(row.type, r))
        start = builder.mul(at_row, builder.extract_value(array.shape, 1))
        return builder.gep(array.data, [builder.add(start, place)])

    def load(start, offset):
        pointer = builder.bitcast(builder.gep(start, [offset]), vector.as_pointer())
        return builder.load(pointer, align=number.bitwidth // 8)

    first = builder.mul(times(part, WAYS * WAYS), width)
    coefficients = builder.gep(table.data, [builder.add(first, column)])
    starts = [start_of(source, r, column) for r in range(TILE_ROWS)]
    read = [[load(start, times(stride, a)) for a in range(WAYS)] for start in starts]
    turned = [[None] * WAYS for _ in range(TILE_ROWS)]
    for b in range(WAYS):
        for a in range(WAYS):
            coefficient = load(coefficients, times(width, WAYS * b + a))
            for sums, x in zip(turned, read, strict=True):
                term = builder.fmul(coefficient, x[a])
                sums[b] = term if a == 0 else builder.fadd(sums[b], term)
    for r, sums in enumerate(turned):
        start = start_of(out, r, builder.add(to, times(column, WAYS)))
        for i, numbers in enumerate(_interleave(builder, sums, lanes)):
            pointer = builder.gep(start, [ir.Constant(row.type, i * lanes)])
            builder.store(numbers, builder.bitcast(pointer, vector.as_pointer()), align=number.bitwidth // 8)


def _interleave(builder, vectors, lanes):
    """Return, as four vectors again, the first numbers of four vectors, then the second ones, and so on."""

    def zipped(a, b):
        places = [half + c + side * lanes for half in (0, lanes // 2) for c in range(lanes // 2) for side in (0, 1)]
        masks = (
            ir.Constant(ir.VectorType(_WORD, lanes), [ir.Constant(_WORD, at) for at in side])
            for side in (places[:lanes], places[lanes:])
        )
        return [builder.shuffle_vector(a, b, mask) for mask in masks]

    even, odd = zipped(vectors[0], vectors[2]), zipped(vectors[1], vectors[3])
    return [part for a, b in zip(even, odd, strict=True) for part in zipped(a, b)]
