"""MT19937 as torch and NumPy seed it, and the permutation that ``torch.randperm`` draws with it, without torch.

The permutation is Fisher and Yates' shuffle. Below a length of `WIDE` the entry at i is exchanged with the one at
i + (draw mod n - i), for i = 0 … n - 2. From there on the remainder of 32 bits would favour low places too much, so two
draws make one of 64 bits, the first its upper half, and the shuffle runs inside out: i is put at (draw mod i + 1), and
what stood there at i.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel

WIDE = (2**32 - 1) // 20
"""Length from which torch takes 64 bits a draw."""

BLOCK = 1 << 20
"""Draws made at a time."""


def stream_of(seed: int) -> np.random.RandomState:
    """Return the generator of a seed, of which the lower 32 bits count. NumPy promises never to change its stream."""
    return np.random.RandomState(seed % 2**32)


def uniforms(n: int, seed: int) -> NDArray[np.float64]:
    """Return n numbers, uniform in [0, 1)."""
    return stream_of(seed).random_sample(n)


def permutation(n: int, seed: int) -> NDArray[np.int64]:
    """Return the permutation of 0 … n - 1 that ``torch.randperm`` gives with a CPU generator of this seed."""
    stream = stream_of(seed)
    order = np.arange(n)
    for lo in range(0, n, BLOCK):
        count = min(BLOCK, n - lo)
        if n < WIDE:
            shuffle(order, lo, np.frombuffer(stream.bytes(4 * count), "<u4"))
        else:
            halves = np.frombuffer(stream.bytes(8 * count), "<u4").astype(np.uint64).reshape(-1, 2)
            shuffle_inside_out(order, lo, halves[:, 0] << np.uint64(32) | halves[:, 1])
    return order


@kernel
def shuffle(order, first, draws):
    """Exchange entries first, first + 1, … each with itself or one behind it."""
    for k in range(draws.size):
        i = first + k
        j = i + np.int64(draws[k]) % (order.size - i)
        order[i], order[j] = order[j], order[i]


@kernel
def shuffle_inside_out(order, first, draws):
    """Put first, first + 1, … each at its own place or one before it."""
    for k in range(draws.size):
        i = first + k
        j = np.int64(draws[k] % np.uint64(i + 1))
        order[i] = order[j]
        order[j] = i
