"""Birth numbers of native data, dealt to the rows of each cluster by a keyed permutation.

So labels say nothing about the tree, and each row of a large cluster can be dealt alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from percolab import philox
from percolab.intrinsics import multiply_high

SHUFFLED = 1024
"""Clusters of at most this many points are shuffled; in larger ones each row's number can be found alone."""
_ROUNDS = 4


@njit(cache=True, nogil=True)
def deal(lo, hi, start, born_point, key, point_id):
    """Fill the birth numbers of rows lo … hi - 1 of clusters that start at these rows.

    `born_point` lists the points of each cluster by birth; empty, it stands for 0, 1, 2, ….
    """
    c = np.searchsorted(start, lo, side="right") - 1
    while c < start.size - 1 and start[c] < hi:
        first, size = start[c], start[c + 1] - start[c]
        path = philox.cluster_path(born_point[first] if born_point.size else 0)
        begin, end = max(lo, first), min(hi, first + size)
        labels = point_id[begin - lo : end - lo]
        if size <= SHUFFLED:
            whole = labels if labels.size == size else np.empty(size, point_id.dtype)
            for i in range(size):
                whole[i] = born_point[first + i] if born_point.size else i
            _shuffle(whole, path, key)
            if labels.size < size:
                for i in range(labels.size):
                    labels[i] = whole[begin - first + i]
        else:
            _permute(begin - first, size, labels, path, key)
            if born_point.size:
                for i in range(labels.size):
                    labels[i] = born_point[first + labels[i]]
        c += 1


@njit(cache=True, nogil=True)
def _shuffle(labels, path, key):
    """Shuffle uniformly, by Fisher and Yates; two draws of 64 bits come with each block."""
    spare = np.uint64(0)
    for i in range(labels.size - 1, 0, -1):
        if (labels.size - 1 - i) % 2 == 0:
            bits, spare = philox.block(path, i, philox.LABEL, key)
        else:
            bits = spare
        j = np.int64(multiply_high(bits, np.uint64(i + 1)))
        labels[i], labels[j] = labels[j], labels[i]


@njit(cache=True, nogil=True)
def _permute(begin, size, labels, path, key):
    """Fill the places from `begin` on of a keyed permutation of 0 … size - 1, each computed alone.

    A Feistel network permutes the smallest power of two that holds them all; what falls outside is permuted again until
    it falls inside (Black and Rogaway 2002).
    """
    limit = np.uint64(size)
    bits = np.uint64(1)
    while np.uint64(1) << bits < limit:
        bits += np.uint64(1)
    low_bits = bits // np.uint64(2)
    high_bits = bits - low_bits
    keys = np.empty((_ROUNDS, 2), np.uint64)
    for r in range(_ROUNDS):
        keys[r, 0], keys[r, 1] = philox.block(path, r, philox.LABEL, key)
    for i in range(labels.size):
        x = _feistel(np.uint64(begin + i), low_bits, high_bits, keys)
        while x >= limit:
            x = _feistel(x, low_bits, high_bits, keys)
        labels[i] = x


@njit(cache=True, nogil=True)
def _feistel(x, low_bits, high_bits, keys):
    """Permute the numbers of low_bits + high_bits bits: each round adds a keyed hash of one half to the other."""
    one = np.uint64(1)
    low_mask, high_mask = (one << low_bits) - one, (one << high_bits) - one
    low, high = x & low_mask, x >> low_bits
    for r in range(0, _ROUNDS, 2):
        high = (high + philox.fold(low ^ keys[r, 0], keys[r, 1])) & high_mask
        low = (low + philox.fold(high ^ keys[r + 1, 0], keys[r + 1, 1])) & low_mask
    return (high << low_bits) | low
