"""The rows that each feature fires on, packed: every count is made from them.

Rows are numbered by position, in leaf order, so that a concept is an interval. A feature's firing rows are a sorted
list of positions, 4 bytes each, or one bit per row, whichever is smaller: together at most 1/32 of dense float32 codes.
In addition, packing takes the memory of the bits of one block of features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.features import bits
from percolab.features.codes import Codes, DenseCodes, DeviceCodes, SparseCodes
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.parallel import Task, run

PACKED_BYTES = 1 << 25  #: Memory for the bits of one block of features, while dense codes are packed.
PACKED_WORDS = 256  #: Words of a task that packs: 16,384 rows of a block of features.
#: Features that fire on fewer than 1 in this many rows are lists: 32 bits per firing take less than one bit per row.
LISTED = 32


class Firing(NamedTuple):
    """The firing rows of every feature, over positions 0 … n_rows - 1; kernels take this tuple."""

    n_rows: int
    fired: Ints  #: (F,) number of rows each fires on
    slot: Ints  #: (F,) its row of `words`, or -1: it is a list
    first: Ints  #: (F+1,) its list is positions[first[f] : first[f + 1]]
    positions: NDArray[np.int32]
    words: NDArray[np.uint64]


def pack(codes: Codes, order: Ints, threshold: Floats, threads: int) -> Firing:
    """Pack the cells above each feature's threshold; row ``order[p]`` of the codes is position p.

    Codes must be finite and not negative; otherwise ValueError names the first code that is not.
    """
    if isinstance(codes, SparseCodes):
        return _pack_sparse(codes, order, threshold)
    if isinstance(codes, DeviceCodes):
        blocks = codes.packed(order, threshold)
    else:
        assert isinstance(codes, DenseCodes)
        blocks = _dense_blocks(codes, order, threshold, threads)
    return gather(order.size, codes.shape[1], blocks)


def gather(n_rows: int, n_features: int, blocks: Iterator[NDArray[np.uint64]]) -> Firing:
    """Return the firing rows of features whose bits come block after block: each (features, words)."""
    fired, slot = np.zeros(n_features, np.int64), np.full(n_features, -1, np.int64)
    # The system allocates memory when it is written, so rows that stay empty cost nothing.
    words = np.empty((n_features, bits.words_for(n_rows)), np.uint64)
    lists: list[NDArray[np.int32]] = []
    lo = used = 0
    for block in blocks:
        counts = fired[lo : lo + len(block)]
        _count_rows(block, counts)
        listed = counts * LISTED <= n_rows
        chosen = np.empty(counts[listed].sum(), np.int32)
        _list_rows(block, listed, chosen)
        lists.append(chosen)
        wide = np.flatnonzero(~listed)
        np.take(block, wide, axis=0, out=words[used : used + wide.size], mode="clip")  # other modes copy twice
        slot[lo + wide] = np.arange(used, used + wide.size)
        used += wide.size
        lo += len(block)
    first = np.concatenate([[0], np.cumsum(np.where(slot < 0, fired, 0))])
    return Firing(n_rows, fired, slot, first, np.concatenate([np.empty(0, np.int32), *lists]), words[:used])


def _dense_blocks(codes: DenseCodes, order: Ints, threshold: Floats, threads: int) -> Iterator[NDArray[np.uint64]]:
    n, n_features = order.size, codes.shape[1]
    n_words = bits.words_for(n)
    width = max(1, min(codes.most_columns(), PACKED_BYTES // (8 * n_words)))
    starts = range(0, n_words, PACKED_WORDS)
    for lo in range(0, n_features, width):
        hi = min(lo + width, n_features)
        values, first = codes.columns(lo, hi)
        limit = round_down(threshold[lo:hi], values.dtype)
        packed, bad = np.empty((hi - lo, n_words), np.uint64), np.zeros(len(starts), np.bool_)
        tasks: list[Task] = [
            (_pack_rows, (values, first, order, w, min(w + PACKED_WORDS, n_words), limit, packed, bad[i : i + 1]))
            for i, w in enumerate(starts)
        ]
        run(tasks, threads)
        if bad.any():
            codes.refuse()
        yield packed


def round_down(threshold: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the largest numbers of a type that are not above the thresholds: comparisons give the same result."""
    near = threshold.astype(dtype)
    return np.where(near > threshold, np.nextafter(near, dtype.type(-np.inf)), near)


def _pack_sparse(codes: SparseCodes, order: Ints, threshold: Floats) -> Firing:
    n, n_features = codes.shape
    matrix = codes.values
    fired = np.zeros(n_features, np.int64)
    if _count_sparse(matrix.indptr, matrix.indices, matrix.data, threshold, fired) >= 0:
        codes.refuse()
    slot = np.full(n_features, -1, np.int64)
    wide = fired * LISTED > n
    slot[wide] = np.arange(np.count_nonzero(wide))
    words = np.zeros((np.count_nonzero(wide), bits.words_for(n)), np.uint64)
    first = np.concatenate([[0], np.cumsum(np.where(wide, 0, fired))])
    positions = np.empty(first[-1], np.int32)
    _fill_sparse(
        matrix.indptr, matrix.indices, matrix.data, threshold, order, slot, first[:-1].copy(), positions, words
    )
    return Firing(n, fired, slot, first, positions, words)


# ---------------------------------------------------------------------- kernels


@kernel
def _pack_rows(values, first, order, w0, w1, threshold, words, bad):
    """Fill words w0 … w1 - 1 of the features from `first` on; `bad`: some value is negative, infinite or NaN.

    Half words, bit by bit over all features: 32-bit lanes, like the values. Branches would prevent vectorisation.
    """
    n, width = order.size, threshold.size
    half, wrong = np.empty((2, width), np.uint32), np.empty(width, np.uint32)
    wrong[:] = 0
    for w in range(w0, w1):
        half[:] = 0
        for b in range(min(64, n - w * 64)):
            row = order[w * 64 + b]
            bit = np.uint32(1 << (b & 31))
            part, line = half[b >> 5], values[row, first : first + width]
            for f in range(width):
                x = line[f]
                part[f] |= bit if x > threshold[f] else np.uint32(0)
                wrong[f] |= np.uint32(not ((x >= 0) & (x < np.inf)))
        for f in range(width):
            words[f, w] = np.uint64(half[0, f]) | (np.uint64(half[1, f]) << np.uint64(32))
    for f in range(width):
        bad[0] |= wrong[f] != 0


@kernel
def _count_rows(words, out):
    for f in range(words.shape[0]):
        out[f] = bits.count(words[f], 0, 64 * words.shape[1])


@kernel
def _list_rows(words, chosen, out):
    """Write the positions of the chosen rows of bits, one after another."""
    at = 0
    for f in range(words.shape[0]):
        if chosen[f]:
            at += bits.list_positions(words[f], out[at:])


@kernel
def _count_sparse(indptr, indices, data, threshold, fired):
    """Count the cells of each feature above its threshold; return the first bad entry, or -1."""
    for j in range(indptr[-1]):
        x = data[j]
        if not (x >= 0 and x < np.inf):
            return j
        if x > threshold[indices[j]]:
            fired[indices[j]] += 1
    return -1


@kernel
def _fill_sparse(indptr, indices, data, threshold, order, slot, cursor, positions, words):
    for p in range(order.size):
        row = order[p]
        for j in range(indptr[row], indptr[row + 1]):
            f = indices[j]
            if data[j] > threshold[f]:
                if slot[f] >= 0:
                    bits.add(words[slot[f]], p)
                else:
                    positions[cursor[f]] = p
                    cursor[f] += 1


@kernel
def decode(feature, firing, out):
    """Write the positions a feature fires on, increasing."""
    if firing.slot[feature] >= 0:
        bits.list_positions(firing.words[firing.slot[feature]], out)
    else:
        for j in range(firing.fired[feature]):
            out[j] = firing.positions[firing.first[feature] + j]


@kernel
def place(positions, start, stop, value):
    """Return the first of positions[start:stop] that is not below the value, as an index."""
    while start < stop:
        middle = (start + stop) // 2
        if positions[middle] < value:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def count_in(feature, start, stop, firing):
    """Return how many positions of [start, stop) a feature fires on."""
    if firing.slot[feature] >= 0:
        return bits.count(firing.words[firing.slot[feature]], start, stop)
    lo, hi = firing.first[feature], firing.first[feature] + firing.fired[feature]
    return place(firing.positions, lo, hi, stop) - place(firing.positions, lo, hi, start)


@kernel
def fires_at(feature, position, firing):
    """Return whether a feature fires on a position."""
    if firing.slot[feature] >= 0:
        return bits.has(firing.words[firing.slot[feature]], position)
    lo, hi = firing.first[feature], firing.first[feature] + firing.fired[feature]
    at = place(firing.positions, lo, hi, position)
    return at < hi and firing.positions[at] == position
