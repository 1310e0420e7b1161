"""Documents: every position's draws are a pure function of (seed, document, position, purpose).

A position has 64 random bits, half for the token and half for the renewal. Where 32 bits leave open which token it is,
or whether a context is renewed, further bits are drawn: tokens are uniform to 96 bits, and renewals have their
probability to 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.lexicon import Tables
from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.rng import philox
from percolab.rng.intrinsics import multiply_high

RUN = 1 << 12
"""Positions drawn in one go: their random bits stay in the processor's cache."""
TASK = 1 << 17
"""Positions of one task: enough to make waking a thread worth it."""

_LOW = np.int64(0xFFFFFFFF)
_32 = np.uint64(32)


@dataclass(frozen=True, eq=False)
class Documents:
    """Some documents of a corpus: n of T positions each, with the truth that they were drawn from."""

    tokens: NDArray[np.int32]
    """(n, T) ids of tokens"""
    context: NDArray[np.int32]
    """(n, T) the context that each token was drawn from: a latent of the forest of the document's lexicon"""
    lexicon: NDArray[np.int32]
    """(n,) lexicon of each document"""
    number: NDArray[np.int64]
    """(n,) number of each document in the corpus"""
    renewed: NDArray[np.bool_]
    """(n, T) where the context was drawn afresh, perhaps the same one; true at position 0"""

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        n, length = self.tokens.shape
        numbers = f", {self.number[0]:,} … {self.number[-1]:,}" if n else ""
        return f"Documents({n:,} of {length:,} tokens{numbers})"


class Plan(NamedTuple):
    """What determines the draws of a corpus, besides its tables."""

    key: np.uint64
    """seed of all draws"""
    share_end: NDArray[np.float64]
    """(K,) a document is of the first lexicon whose end is above its uniform"""
    threshold: np.int64
    """a position is renewed where its first 32 bits are below this, or equal to it"""
    remainder: np.int64
    """and the next 32 bits below this"""


def plan(seed: int, shares: tuple[float, ...], renewal: float) -> Plan:
    """Return the plan of a corpus."""
    end = np.cumsum(shares)
    end[np.flatnonzero(shares)[-1] :] = np.inf  # rounding leaves nothing above the last lexicon that is used
    threshold, remainder = divmod(int(renewal * 2.0**64), 2**32)
    return Plan(philox.seed_key(seed), end, np.int64(threshold), np.int64(remainder))


def draw(drawn_by: Plan, tables: Tables, lo: int, hi: int, length: int, threads: int) -> Documents:
    """Return documents lo … hi - 1."""
    n = hi - lo
    tokens, context = np.empty((n, length), np.int32), np.empty((n, length), np.int32)
    renewed, lexicon = np.empty((n, length), np.bool_), np.empty(n, np.int32)
    number = np.arange(lo, hi, dtype=np.int64)
    step = max(1, TASK // length)
    tasks = []
    for i in range(0, n, step):
        part = slice(i, i + step)
        arrays = (number[part], tokens[part], context[part], lexicon[part], renewed[part])
        tasks.append((_draw, (drawn_by, tables, *arrays)))
    parallel.run(tasks, threads)
    return Documents(tokens, context, lexicon, number, renewed)


@kernel
def _draw(drawn_by, tables, number, tokens, context, lexicon, renewed):
    """Fill documents of these numbers, some at a time."""
    length = tokens.shape[1]
    some = max(1, RUN // length)
    n_blocks = (length + 1) // 2
    nodes, indices = np.empty(some * length, np.uint64), np.empty(some * length, np.uint64)
    words, fresh = np.empty(4 * some * n_blocks, np.int32), np.empty(4 * some * length, np.int32)
    begins, drawn = np.empty(some * length + 1, np.int64), np.empty(some * length, np.int64)
    for lo in range(0, number.size, some):
        hi = min(lo + some, number.size)
        _choose_lexicons(drawn_by, number[lo:hi], lexicon[lo:hi])
        for i in range(hi - lo):
            for b in range(n_blocks):
                nodes[i * n_blocks + b] = np.uint64(number[lo + i])
                indices[i * n_blocks + b] = np.uint64(b)
        count = (hi - lo) * n_blocks
        philox.bits_of_nodes(nodes[:count], indices[:count], philox.POSITION, drawn_by.key, words[: 4 * count])
        count = _renew(drawn_by, number[lo:hi], words, renewed[lo:hi], begins)
        for s in range(count):
            nodes[s] = np.uint64(number[lo + begins[s] // length])
            indices[s] = np.uint64(begins[s] % length)
        philox.bits_of_nodes(nodes[:count], indices[:count], philox.FRESH, drawn_by.key, fresh[: 4 * count])
        _choose_contexts(tables, length, lexicon[lo:hi], begins[:count], fresh, drawn)
        begins[count] = (hi - lo) * length
        _choose_tokens(
            drawn_by,
            tables,
            number[lo:hi],
            lexicon[lo:hi],
            begins[: count + 1],
            drawn,
            words,
            tokens[lo:hi],
            context[lo:hi],
        )


@kernel
def _choose_lexicons(drawn_by, number, lexicon):
    """Fill the lexicon of each document."""
    for i in range(number.size):
        k = 0
        if drawn_by.share_end.size > 1:
            u = philox.uniform(philox.block(np.uint64(number[i]), 0, philox.LEXICON, drawn_by.key)[0])
            while drawn_by.share_end[k] <= u:
                k += 1
        lexicon[i] = k


@kernel
def _word(words, at):
    """Return a random word as a number in [0, 2^32)."""
    return np.int64(words[at]) & _LOW


@kernel
def _long_word(words, at):
    """Return two random words as one of 64 bits."""
    return np.uint64(_word(words, at)) | (np.uint64(_word(words, at + 1)) << _32)


@kernel
def _renew(drawn_by, number, words, renewed, begins):
    """Mark the positions whose context is fresh, and list them: document by document, so a segment ends at the next."""
    n, length = renewed.shape
    stride = 4 * ((length + 1) // 2)
    count = 0
    for i in range(n):
        for t in range(length):
            word = _word(words, i * stride + 2 * t + 1)
            fresh = word < drawn_by.threshold
            if word == drawn_by.threshold and drawn_by.remainder > 0:
                further = philox.block(np.uint64(number[i]), t, philox.FURTHER, drawn_by.key)[1]
                fresh = np.int64(further >> _32) < drawn_by.remainder
            fresh |= t == 0
            renewed[i, t] = fresh
            begins[count] = i * length + t
            count += np.int64(fresh)
    return count


@kernel
def _choose_contexts(tables, length, lexicon, begins, bits, drawn):
    """Fill a context from the prior for each segment: a row uniformly, then one of the contexts that hold it."""
    for s in range(begins.size):
        k = lexicon[begins[s] // length]
        row = np.int64(multiply_high(_long_word(bits, 4 * s), np.uint64(tables.of_row.shape[1])))
        deepest = tables.of_row[k, row]
        first = tables.chain_start[deepest]
        holders = np.uint64(tables.chain_start[deepest + 1] - first)
        drawn[s] = tables.chain[first + np.int64(multiply_high(_long_word(bits, 4 * s + 2), holders))]


@kernel
def _choose_tokens(drawn_by, tables, number, lexicon, begins, drawn, words, tokens, context):
    """Fill contexts and tokens, segment by segment: row start + ⌊u · size⌋ of the context."""
    length = tokens.shape[1]
    stride = 4 * ((length + 1) // 2)
    for s in range(begins.size - 1):
        i = begins[s] // length
        start, size, latent = tables.start[drawn[s]], tables.size[drawn[s]], tables.latent[drawn[s]]
        ids = tables.ids[lexicon[i]]
        for t in range(begins[s] - i * length, begins[s + 1] - i * length):
            product = _word(words, i * stride + 2 * t) * size
            row = start + (product >> 32)
            if (product & _LOW) + size > _LOW:
                further = philox.block(np.uint64(number[i]), t, philox.FURTHER, drawn_by.key)[0]
                row += ((product & _LOW) + np.int64(multiply_high(further, np.uint64(size)))) >> 32
            context[i, t] = latent
            tokens[i, t] = ids[row]


def draw_tokens(
    drawn_by: Plan, tables: Tables, documents: Documents, begins: NDArray[np.int64], drawn: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (n, T) tokens and contexts by the draws of these documents, from given contexts.

    `begins` are the first positions of segments, counted through all documents, and their end; `drawn` the number of
    each segment's context in the tables.
    """
    n, length = documents.tokens.shape
    n_blocks = (length + 1) // 2
    nodes = np.repeat(documents.number.astype(np.uint64), n_blocks)
    words = np.empty(4 * nodes.size, np.int32)
    philox.bits_of_nodes(nodes, np.tile(np.arange(n_blocks, dtype=np.uint64), n), philox.POSITION, drawn_by.key, words)
    tokens, context = np.empty((n, length), np.int32), np.empty((n, length), np.int32)
    _choose_tokens(drawn_by, tables, documents.number, documents.lexicon, begins, drawn, words, tokens, context)
    return tokens, context
