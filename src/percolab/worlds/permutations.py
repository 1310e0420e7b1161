"""Which row of each factor a sample has: keyed permutations, exactly uniform."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.rng import philox
from percolab.rng.intrinsics import multiply_high

_RUN = 512
"""Blocks of random bits drawn in one go."""


def fill_rows(factor: int, length: int, seed: int, threads: int, rows: NDArray[np.int64]) -> None:
    """Fill the rows of one factor: 0, 1, 2, … for the first, else a permutation of its rows for each block of samples.

    The permutation of block b is a function of (seed, factor, b) alone; the last one is cut off where samples end.

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
        (n,) what to fill, contiguous.
    """
    if factor == 0:
        rows[:] = np.arange(rows.size)
        return
    key = np.uint64(seed)
    blocks = range(-(-rows.size // length))
    tasks = [(_fill_block, (rows[b * length : (b + 1) * length], length, node(factor, b), key)) for b in blocks]
    parallel.run(tasks, threads)


def node(factor: int, block: int) -> np.uint64:
    """Return what names a block of a factor in the counters of random numbers."""
    return np.uint64((factor << 40) | block)


def _fill_block(rows: NDArray[np.int64], length: int, name: np.uint64, key: np.uint64) -> None:
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
