"""Birth numbers of native data, assigned to the rows of each cluster by a keyed permutation.

So labels are independent of the tree, and the label of each row of a large cluster can be computed alone.
"""

import numpy as np

from percolab.engines.native.skeleton import last_at_most
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import multiply_high
from percolab.rng import philox

#: Clusters of at most this many points are shuffled; in larger ones the number of each row is computed alone.
SHUFFLED = 1024
_ROUNDS = 4
_ONE = np.uint64(1)
_RUN = 1024  #: Labels assigned in one pass.


@kernel
def deal(lo, hi, start, born_point, key, point_id):
    """Fill the birth numbers of rows lo … hi - 1 of clusters that start at these rows.

    `born_point` lists the points of each cluster by birth; if empty, it means 0, 1, 2, ….
    """
    c = last_at_most(start, lo)
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


@kernel
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


@kernel
def _permute(begin, size, labels, path, key):
    """Fill the images of `begin`, `begin` + 1, … under a keyed permutation of 0 … size - 1, each computed alone.

    A Feistel network permutes the numbers below the smallest power of two that is large enough; an image that falls
    outside is permuted again until it falls inside (Black and Rogaway 2002). Images outside are collected and permuted
    together: a loop for each image would end unpredictably.
    """
    bits = 1
    while 1 << bits < size:
        bits += 1
    low_bits, high_bits = np.uint64(bits // 2), np.uint64(bits - bits // 2)
    tables = _round_tables(low_bits, high_bits, path, key)
    outside = np.empty(_RUN, np.uint32)
    for start in range(0, labels.size, _RUN):
        run = labels[start : start + _RUN]
        count = np.uint64(0)
        for i in range(run.size):
            run[i] = _feistel(np.uint64(begin + start + i), low_bits, high_bits, tables)
            outside[count] = i
            count += np.uint64(run[i] >= size)
        while count > 0:
            again, count = np.int64(count), np.uint64(0)
            for j in range(again):
                i = outside[j]
                run[i] = _feistel(np.uint64(run[i]), low_bits, high_bits, tables)
                outside[count] = i
                count += np.uint64(run[i] >= size)


@kernel
def _feistel(x, low_bits, high_bits, tables):
    """Permute the numbers of low_bits + high_bits bits: each round adds a keyed hash of one half to the other."""
    low_mask, high_mask = (_ONE << low_bits) - _ONE, (_ONE << high_bits) - _ONE
    low, high = x & low_mask, x >> low_bits
    for r in range(0, _ROUNDS, 2):
        high = (high + tables[r, low]) & high_mask
        low = (low + tables[r + 1, high]) & low_mask
    return (high << low_bits) | low


@kernel
def _round_tables(low_bits, high_bits, path, key):
    """Return the keyed hash of each round for every half; there are few, since a half has half the bits."""
    tables = np.empty((_ROUNDS, 1 << np.int64(high_bits)), np.uint32)
    for r in range(_ROUNDS):
        a, b = philox.block(path, r, philox.LABEL, key)
        for half in range(1 << np.int64(low_bits if r % 2 == 0 else high_bits)):
            tables[r, half] = philox.fold(np.uint64(half) ^ a, b)
    return tables
