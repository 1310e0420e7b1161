"""Sets of rows as bits, 64 per word: counting, joining, and ranks at the edges of intervals.

Bit p & 63 of word p >> 6 is position p. Words are uint64, and every shift is by a uint64: numba turns a mix
of signed and unsigned integers into floats.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from percolab.ground.compiled import kernel

WORD = 64
ZERO, ONE = np.uint64(0), np.uint64(1)
ALL = np.uint64(2**64 - 1)
_63 = np.uint64(63)


@intrinsic
def ones(typing_context, word):
    """Return the number of set bits of a uint64, as int64."""

    def emit(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), emit


@intrinsic
def lowest(typing_context, word):
    """Return the place of the lowest set bit of a uint64, 64 if there is none, as int64."""

    def emit(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), emit


def words_for(n_rows: int) -> int:
    """Return how many words hold this many bits."""
    return -(-n_rows // WORD)


@kernel
def has(words, position):
    """Return whether the position is in the set."""
    return (words[position >> 6] >> np.uint64(position & 63)) & ONE != ZERO


@kernel
def add(words, position):
    """Put a position into the set."""
    words[position >> 6] |= ONE << np.uint64(position & 63)


@kernel
def remove(words, position):
    """Take a position out of the set."""
    words[position >> 6] &= ~(ONE << np.uint64(position & 63))


@kernel
def from_bit(position):
    """Return the mask of a word's bits from the bit of this position on."""
    return ALL << np.uint64(position & 63)


@kernel
def upto_bit(position):
    """Return the mask of a word's bits up to and including the bit of this position."""
    return ALL >> (_63 - np.uint64(position & 63))


@kernel
def count(words, start, stop):
    """Return how many positions of [start, stop) are in the set."""
    if stop <= start:
        return 0
    a, b = start >> 6, (stop - 1) >> 6
    if a == b:
        return ones(words[a] & from_bit(start) & upto_bit(stop - 1))
    total = ones(words[a] & from_bit(start)) + ones(words[b] & upto_bit(stop - 1))
    for w in range(np.uint64(a + 1), np.uint64(b)):  # unsigned: numba then skips the test for indices from the end
        total += ones(words[w])
    return total


@kernel
def count_outside(words, other, start, stop):
    """Return how many positions of [start, stop) are in the first set and not in the other."""
    if stop <= start:
        return 0
    a, b = start >> 6, (stop - 1) >> 6
    if a == b:
        return ones(words[a] & ~other[a] & from_bit(start) & upto_bit(stop - 1))
    total = ones(words[a] & ~other[a] & from_bit(start)) + ones(words[b] & ~other[b] & upto_bit(stop - 1))
    for w in range(np.uint64(a + 1), np.uint64(b)):
        total += ones(words[w] & ~other[w])
    return total


@kernel
def list_positions(words, out):
    """Write the positions of the set, increasing, and return how many there are."""
    count_so_far = 0
    for w in range(words.size):
        left = words[w]
        while left != ZERO:
            out[count_so_far] = w * 64 + lowest(left)
            count_so_far += 1
            left &= left - ONE
    return count_so_far


@kernel
def ranks(words, edges, before, out):
    """Write, for each edge, how many positions of the set are below it; `before` is scratch: words and one more."""
    before[0] = 0
    for w in range(words.size):
        before[w + 1] = before[w] + ones(words[w])
    for j in range(edges.size):
        w = edges[j] >> 6
        inside = edges[j] & 63
        out[j] = before[w]
        if inside:
            out[j] += ones(words[w] & ~from_bit(inside))
