"""Adding factors up: the scale of each, and X = Σ_k a_k Q_k X_k[rows[:, k]] / sigma_k, one factor at a time.

All sums have a fixed order, so X is the same for any number of threads and on every machine that has the same X_k.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import parallel
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import multiply_high, prefetch_to_read
from percolab.rng import philox
from percolab.worlds.rotations import AHEAD, TILE_BYTES, Rotation, turn

MOMENT_ROWS = 1 << 12  #: Rows whose moments are summed one after another; part of the definition of sigma, to the bit.
TASK_ROWS = 1 << 13  #: Rows of a task.
_RUN = 512  #: Blocks of random bits drawn in one pass.


def spread(X: NDArray[Any], threads: int) -> float:
    """Return sigma: the square root of the mean variance of the columns of X.

    Sums are of differences from the first row, in blocks of `MOMENT_ROWS` rows, the blocks in order.
    """
    n, dim = X.shape
    blocks = parallel.ranges(n, MOMENT_ROWS)
    sums, squares = np.zeros((2, len(blocks), dim))
    centre = X[0].astype(np.float64)
    tasks = [(moments, (X[lo:hi], centre, sums[b], squares[b])) for b, (lo, hi) in enumerate(blocks)]
    parallel.run(tasks, threads)
    return math.sqrt(mean_variance(n, sums, squares))


@kernel
def moments(X, centre, total, square):
    """Fill the sums of X - centre and of its squares, by column, in row order; four rows at a time for speed."""
    n, dim = X.shape
    for i in range(0, n - 3, 4):
        for j in range(dim):
            a, b = np.float64(X[i, j]) - centre[j], np.float64(X[i + 1, j]) - centre[j]
            c, d = np.float64(X[i + 2, j]) - centre[j], np.float64(X[i + 3, j]) - centre[j]
            total[j] = total[j] + a + b + c + d
            square[j] = square[j] + a * a + b * b + c * c + d * d
    for i in range(n - n % 4, n):
        for j in range(dim):
            a = np.float64(X[i, j]) - centre[j]
            total[j] += a
            square[j] += a * a


@kernel
def mean_variance(n, totals, squares):
    """Return the mean over columns of the variance of n rows, from the moments of blocks."""
    blocks, dim = totals.shape
    variance = 0.0
    for j in range(dim):
        total, square = 0.0, 0.0
        for b in range(blocks):
            total += totals[b, j]
            square += squares[b, j]
        mean = total / n
        variance += square / n - mean * mean
    return max(0.0, variance / dim)


def add_factor(
    source: NDArray[Any],
    rows: Ints,
    scale: float,
    rotation: Rotation | None,
    X: NDArray[Any],
    *,
    fresh: bool,
    threads: int,
) -> None:
    """Add `scale` times the rotated rows of a factor to X, or put them there.

    Parameters
    ----------
    source
        (m, d) positions of the factor.
    rows
        (n,) which of its rows each sample has.
    scale
        a_k / sigma_k.
    rotation
        The rotation of the factor; None adds it without a rotation.
    X
        (n, D) array to fill. It may be `source` itself if it is fresh, D = d and the rows are 0, 1, 2, ….
    fresh
        Whether to overwrite X instead of adding to it.
    threads
        Number of threads.
    """
    work, table, stretch = (add, (), 1.0) if rotation is None else (turn, (rotation.table(X.dtype),), rotation.stretch)
    rest = *table, X.dtype.type(scale * stretch), X, fresh
    parts = parallel.ranges(len(X), TASK_ROWS)
    parallel.run([(work, (lo, hi, rows, source, *rest)) for lo, hi in parts], threads)


@kernel
def add(lo, hi, rows, source, scale, X, fresh):
    """Add `scale` times rows of `source` to rows lo … hi - 1 of X, or put them there if `fresh`."""
    for i in range(lo, hi):
        if i + AHEAD < hi:
            for j in range(0, source.shape[1], TILE_BYTES // source.itemsize):
                prefetch_to_read(source[rows[i + AHEAD]], j)
        row = rows[i]
        if fresh:
            for j in range(X.shape[1]):
                X[i, j] = scale * source[row, j]
        else:
            for j in range(X.shape[1]):
                X[i, j] += scale * source[row, j]


# ---------------------------------------------------------------------- rows of factors
#
# Which row of each factor a sample has: keyed permutations, exactly uniform.


def fill_rows(factor: int, length: int, seed: int, threads: int, rows: Ints) -> None:
    """Fill the rows of one factor: 0, 1, 2, … for the first, else a permutation of its rows for each block of samples.

    The permutation of block b is a function of (seed, factor, b) alone; the last one is truncated at the last sample.

    Parameters
    ----------
    factor
        Number of the factor.
    length
        Number of its rows.
    seed
        Seed of the world.
    threads
        Number of threads.
    rows
        (n,) contiguous array to fill.
    """
    if factor == 0:
        rows[:] = np.arange(rows.size)
        return
    key = np.uint64(seed)
    blocks = range(-(-rows.size // length))
    tasks = [(_fill_block, (rows[b * length : (b + 1) * length], length, node(factor, b), key)) for b in blocks]
    parallel.run(tasks, threads)


def node(factor: int, block: int) -> np.uint64:
    """Return the node that identifies a block of a factor in the counters of random numbers."""
    return np.uint64((factor << 40) | block)


def _fill_block(rows: Ints, length: int, name: np.uint64, key: np.uint64) -> None:
    order = rows if rows.size == length else np.empty(length, np.int64)
    shuffle(order, name, philox.WORLD_ROWS, key)
    if order is not rows:
        rows[:] = order[: rows.size]


@kernel
def shuffle(order, name, purpose, key):
    """Fill a uniform permutation of 0 … n - 1, by Fisher and Yates; every block of random bits gives two draws."""
    n = order.size
    for i in range(n):
        order[i] = i
    bits = np.empty((2, _RUN), np.uint64)
    for first in range(0, n - 1, 2 * _RUN):
        for t in range(_RUN):
            bits[0, t], bits[1, t] = philox.block(name, first // 2 + t, purpose, key)
        for t in range(first, min(first + 2 * _RUN, n - 1)):
            i = n - 1 - t
            j = np.int64(multiply_high(bits[t % 2, (t - first) // 2], np.uint64(i + 1)))
            order[i], order[j] = order[j], order[i]
