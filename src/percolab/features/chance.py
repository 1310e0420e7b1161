"""Chance: the best F1 of every concept when the rows of each feature are permuted independently.

A permuted feature fires on a uniform random set of as many rows as before, so a set is drawn and counted. Draw t of
feature f is a pure function of (seed, t, f, number of rows, number fired): nothing depends on the threads, on the
order of the rows or on the other features.

In documents features fire in runs, which match concepts better by chance than single rows do. So whole documents are
permuted: the rows of all documents, one document after another, get a feature's codes with its documents in another
order. Where documents have the same positions, as usual, a document gets the codes of another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.features import bits
from percolab.features.concepts import ConceptIntervals
from percolab.features.counting import even_ranges, score_f1
from percolab.features.firing import Firing, decode
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import multiply_high
from percolab.ground.parallel import Task, run
from percolab.rng.philox import CHANCE, STEP, block, mix
from percolab.worlds.samples import shuffle

RARE = 32  #: Sets of at most 1 in this many rows are drawn row by row, larger ones by coin tosses.


def chance(firing: Firing, truth: ConceptIntervals, draws: int, seed: int, threads: int) -> Floats:
    """Return (draws, concepts): the best F1 of any feature in each draw."""
    edges, size = truth.edges, truth.concepts.size
    ranges = even_ranges(firing.fired.size, threads)
    best = np.zeros((draws, len(ranges), size.size))
    common: tuple[Any, ...] = firing.fired, firing.n_rows, edges.at
    if truth.labels.place is not None:
        common = firing, *_by_document(truth), edges.at.size
    draw_best = _best_by_rows if truth.labels.place is None else _best_by_documents
    tasks: list[Task] = [
        (draw_best, (*ends, draw, np.uint64(seed), *common, edges.start, edges.stop, size, best[draw, i]))
        for draw in range(draws)
        for i, ends in enumerate(ranges)
    ]
    run(tasks, threads)
    return best.max(axis=1)


def _by_document(truth: ConceptIntervals) -> tuple[Ints, Ints, Ints, NDArray[np.uint32]]:
    """Return rows in the order of their documents.

    These are, for each position, its place in that order and its document; the first place of each document, and the
    end; and, for each place in that order, the number of edges of concepts that are not above it.
    """
    where, labels = truth.labels.place[truth.order], truth.labels  # type: ignore[index]
    in_documents = np.argsort(where, kind="stable")
    place = np.empty_like(in_documents)
    place[in_documents] = np.arange(place.size)
    _, document, sizes = np.unique(where // labels.length, return_inverse=True, return_counts=True)
    return place, document, np.concatenate([[0], np.cumsum(sizes)]), truth.edges.bin[in_documents]


def permuted(count: int, n_rows: int, *, seed: int, draw: int, feature: int) -> Ints:
    """Return the positions, increasing, of a feature with `count` firing rows in one draw."""
    words = np.empty(bits.words_for(n_rows), np.uint64)
    random_set(n_rows, count, np.uint64(set_key(np.uint64(seed), draw, feature)), words)
    out = np.empty(count, np.int64)
    bits.list_positions(words, out)
    return out


# ---------------------------------------------------------------------- kernels


@kernel
def set_key(seed, draw, feature):
    """Return the initial state of the random stream of one set."""
    key, _ = block(np.uint64(feature), np.uint64(draw), np.uint64(CHANCE), seed)
    return key


@kernel
def random_set(n_rows, count, state, words):
    """Fill bits with a uniform random set of `count` of n_rows positions."""
    if 2 * count > n_rows:
        _draw_set(n_rows, n_rows - count, state, words)
        for w in range(words.size):
            words[w] = ~words[w]
        words[words.size - 1] &= bits.upto_bit(n_rows - 1)
    else:
        _draw_set(n_rows, count, state, words)


@kernel
def _draw_set(n_rows, count, state, words):
    """Fill bits with a uniform random set of at most half of the positions.

    Independent coins of any bias give a set that is uniform among the sets of its size; adding or removing uniform
    positions until the size is right keeps it uniform. The bias is rounded down to 1/256, so mostly rows are added.
    """
    words[:] = bits.ZERO
    held = 0
    if count * RARE > n_rows:
        state = _toss(count * 256 // n_rows, state, words)
        words[words.size - 1] &= bits.upto_bit(n_rows - 1)
        held = bits.count(words, 0, n_rows)
    n = np.uint64(n_rows)
    while held != count:
        p = np.int64(multiply_high(mix(state), n))
        state += STEP
        if held < count and not bits.has(words, p):
            bits.add(words, p)
            held += 1
        elif held > count and bits.has(words, p):
            bits.remove(words, p)
            held -= 1


@kernel
def _toss(heads, state, words):
    """Set each bit with probability heads / 256, from the lowest binary digit of heads: a 1 is an or, a 0 an and."""
    for digit in range(bits.lowest(np.uint64(heads)), 8):
        if (heads >> digit) & 1:
            for w in range(words.size):
                words[w] |= mix(state + np.uint64(w) * STEP)
        else:
            for w in range(words.size):
                words[w] &= mix(state + np.uint64(w) * STEP)
        state += np.uint64(words.size) * STEP
    return state


@kernel
def _best_by_rows(lo, hi, draw, seed, fired, n_rows, edges, start, stop, size, best):
    words = np.empty((n_rows + 63) // 64, np.uint64)
    before, below = np.empty(words.size + 1, np.int32), np.empty(edges.size, np.int32)
    hits, f1 = np.empty(size.size, np.int32), np.empty(size.size)
    for f in range(lo, hi):
        if fired[f] == 0:
            continue
        random_set(n_rows, fired[f], set_key(seed, draw, f), words)
        bits.ranks(words, edges, before, below)
        score_f1(fired[f], size, start, stop, below, hits, f1)
        for c in range(size.size):
            best[c] = max(best[c], f1[c])


@kernel
def _best_by_documents(lo, hi, draw, seed, firing, place, document, begin, bin_of, n_edges, start, stop, size, best):
    order, shift = np.empty(begin.size - 1, np.int64), np.empty(begin.size - 1, np.int64)
    rows, below = np.empty(firing.fired.max(), np.int32), np.empty(n_edges, np.int32)
    hits, f1 = np.empty(size.size, np.int32), np.empty(size.size)
    for f in range(lo, hi):
        if firing.fired[f] == 0:
            continue
        shuffle(order, np.uint64(set_key(seed, draw, f)), CHANCE, seed)
        at = 0
        for d in order:
            shift[d] = at - begin[d]
            at += begin[d + 1] - begin[d]
        decode(f, firing, rows)
        below[:] = 0
        for j in range(firing.fired[f]):
            edge = bin_of[place[rows[j]] + shift[document[rows[j]]]]
            if edge < n_edges:
                below[edge] += 1
        for j in range(1, n_edges):
            below[j] += below[j - 1]
        score_f1(firing.fired[f], size, start, stop, below, hits, f1)
        for c in range(size.size):
            best[c] = max(best[c], f1[c])
