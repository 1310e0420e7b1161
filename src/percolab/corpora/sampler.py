"""Documents: the draws of every position are a pure function of (seed, document, position, purpose).

A position has 64 random bits, half for the token and half for the renewal. Where 32 bits do not decide which token it
is, or whether a context is renewed, further bits are drawn: tokens are uniform to 96 bits, and renewals have their
probability to 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.corpora.lexicon import Tables
from percolab.ground import memory, parallel
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import multiply_high
from percolab.ground.validation import indices
from percolab.rng import philox

BAG_TASK = 1 << 22  #: Numbers of bags that one task writes: enough to make waking a thread worthwhile.
RUN = 1 << 12  #: Positions drawn in one pass: their random bits stay in the processor's cache.
TASK = 1 << 17  #: Positions per task: enough to make waking a thread worthwhile.

_LOW, _32, _ONE = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(1)


@dataclass(frozen=True, eq=False)
class Documents:
    """Some documents of a corpus: n documents of T positions each, with the truth that they were drawn from."""

    tokens: NDArray[np.int32]  #: (n, T) ids of tokens
    #: (n, T) the context that each token was drawn from: a latent of the forest of the document's lexicon
    context: NDArray[np.int32]
    lexicon: NDArray[np.int32]  #: (n,) lexicon of each document
    number: NDArray[np.int64]  #: (n,) number of each document in the corpus
    renewed: NDArray[np.bool_]  #: (n, T) where the context was drawn afresh, perhaps the same one; true at position 0

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        n, length = self.tokens.shape
        numbers = f", {self.number[0]:,} … {self.number[-1]:,}" if n else ""
        return f"Documents({n:,} of {length:,} tokens{numbers})"


class Plan(NamedTuple):
    """The parameters that determine the draws of a corpus, besides its tables."""

    key: np.uint64  #: seed of all draws
    share_end: NDArray[np.float64]  #: (K,) a document uses the first lexicon whose end is above its uniform draw
    threshold: np.uint64  #: a position is renewed if its first 32 bits are below this number, or equal to it
    remainder: np.uint64  #: and the next 32 bits are below this number


def plan(seed: int, shares: tuple[float, ...], renewal: float) -> Plan:
    """Return the plan of a corpus."""
    end = np.cumsum(shares)
    end[np.flatnonzero(shares)[-1] :] = np.inf  # despite rounding, no draw falls above the last lexicon in use
    threshold, remainder = divmod(int(renewal * 2.0**64), 2**32)
    return Plan(np.uint64(seed), end, np.uint64(threshold), np.uint64(remainder))


def draw(drawn_by: Plan, tables: Tables, lo: int, hi: int, length: int, threads: int) -> Documents:
    """Return documents lo … hi - 1."""
    n = hi - lo
    memory.require(9 * n * length, "documents need")
    tokens, context = np.empty((n, length), np.int32), np.empty((n, length), np.int32)
    renewed, lexicon = np.empty((n, length), np.bool_), np.empty(n, np.int32)
    number = np.arange(lo, hi, dtype=np.int64)
    arrays = number, tokens, context, lexicon, renewed
    parts = parallel.ranges(n, max(1, TASK // length))
    tasks = [(_draw, (drawn_by, tables, *(array[i:end] for array in arrays))) for i, end in parts]
    parallel.run(tasks, threads)
    return Documents(tokens, context, lexicon, number, renewed)


# ---------------------------------------------------------------------- kernels

# In tight loops integers are unsigned: numba has to check whether a signed index is negative.


@kernel
def _draw(drawn_by, tables, number, tokens, context, lexicon, renewed):
    """Fill documents of these numbers, some at a time."""
    length = tokens.shape[1]
    some, n_blocks = max(1, RUN // length), (length + 1) // 2
    nodes, indices = np.empty(some * length, np.uint64), np.empty(some * length, np.uint64)
    bits, fresh = np.empty(4 * some * n_blocks, np.int32), np.empty(4 * some * length, np.int32)
    begins, drawn = np.empty(some * length + 1, np.uint64), np.empty(some * length, np.int64)
    for lo in range(0, number.size, some):
        part = number[lo : lo + some]
        _choose_lexicons(drawn_by, part, lexicon[lo : lo + some])
        for i in range(part.size):
            for b in range(n_blocks):
                nodes[i * n_blocks + b] = part[i]
                indices[i * n_blocks + b] = b
        count = part.size * n_blocks
        philox.bits_of_nodes(nodes[:count], indices[:count], philox.POSITION, drawn_by.key, bits)
        count = _renew(drawn_by, part, bits, renewed[lo : lo + some], begins)
        for s in range(count):
            nodes[s] = part[begins[s] // np.uint64(length)]
            indices[s] = begins[s] % np.uint64(length)
        philox.bits_of_nodes(nodes[:count], indices[:count], philox.FRESH, drawn_by.key, fresh)
        _choose_contexts(tables, length, lexicon[lo : lo + some], begins[:count], fresh, drawn)
        begins[count] = part.size * length
        segments = begins[: count + 1], drawn, tables.start, tables.size, tables.latent
        documents = part, lexicon[lo : lo + some], tokens[lo : lo + some], context[lo : lo + some]
        _choose_tokens(drawn_by.key, segments, tables.ids, bits, documents)


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
    return np.uint64(words[at]) & _LOW


@kernel
def _long_word(words, at):
    """Return two random words as one of 64 bits."""
    return _word(words, at) | (_word(words, at + 1) << _32)


@kernel
def _further(number, position, key):
    """Return the further bits of a position: 64 for its token, and 32 for its renewal."""
    token, renewal = philox.block(np.uint64(number), position, philox.FURTHER, key)
    return token, renewal >> _32


@kernel
def _renew(drawn_by, number, words, renewed, begins):
    """Mark the positions whose context is drawn again, and list them in order: a segment ends where the next begins."""
    n, length = renewed.shape
    stride = np.uint64(4 * ((length + 1) // 2))
    threshold, remainder = drawn_by.threshold, drawn_by.remainder
    count, at = np.uint64(0), np.uint64(0)
    for i in range(np.uint64(n)):
        for t in range(np.uint64(length)):
            word = _word(words, i * stride + t + t + _ONE)
            fresh = (word < threshold) | (t == 0)
            if word == threshold and remainder > 0:
                fresh |= _further(number[i], t, drawn_by.key)[1] < remainder
            renewed[i, t] = fresh
            begins[count] = at
            count += np.uint64(fresh)
            at += _ONE
    return np.int64(count)


@kernel
def _choose_contexts(tables, length, lexicon, begins, bits, drawn):
    """Draw a context from the prior for each segment: a row uniformly, then one of the contexts that hold it."""
    for s in range(begins.size):
        k = lexicon[begins[s] // np.uint64(length)]
        deepest = tables.of_row[k, multiply_high(_long_word(bits, 4 * s), np.uint64(tables.of_row.shape[1]))]
        first = tables.chain_start[deepest]
        holders = np.uint64(tables.chain_start[deepest + 1] - first)
        drawn[s] = tables.chain[first + np.int64(multiply_high(_long_word(bits, 4 * s + 2), holders))]


@kernel
def _choose_tokens(key, segments, ids, words, documents):
    """Fill contexts and tokens, segment by segment: row start + ⌊u · size⌋ of the context."""
    begins, drawn, starts, sizes, latents = segments
    number, lexicon, tokens, context = documents
    length = np.uint64(tokens.shape[1])
    stride = np.uint64(4) * ((length + _ONE) >> _ONE)
    for s in range(begins.size - 1):
        i = begins[s] // length
        k, start, size, latent = np.uint64(lexicon[i]), starts[drawn[s]], sizes[drawn[s]], latents[drawn[s]]
        for t in range(begins[s] - i * length, begins[s + 1] - i * length):
            product = _word(words, i * stride + t + t) * size
            row, rest = start + (product >> _32), product & _LOW
            if rest + size > _LOW:  # further bits may carry
                row += (rest + multiply_high(_further(number[i], t, key)[0], size)) >> _32
            context[i, t] = latent
            tokens[i, t] = ids[k, row]


# ---------------------------------------------------------------------- counterfactuals
#
# Counterfactuals: the same documents from the same draws, with another context for some positions.


def counterfactual(
    drawn_by: Plan, tables: Tables, documents: Documents, position: ArrayLike, context: ArrayLike
) -> Documents:
    """Return documents with a context forced from a position until the document's next renewal: see `Corpus`."""
    n, length = documents.tokens.shape
    first = _one_each("position", indices("position", position, length), n)[:, None]
    places = np.arange(length)
    renewal = np.where(documents.renewed & (places > first), places, length).min(1, initial=length, keepdims=True)
    forced = (places >= first) & (places < renewal)
    latents = np.where(forced, _one_each("context", context, n)[:, None], documents.context)
    begins = documents.renewed | (places == first)
    begins[:, 1:] |= latents[:, 1:] != latents[:, :-1]
    starts = np.flatnonzero(begins)
    drawn = _numbers(tables, latents.flat[starts], documents.lexicon[starts // length])
    n_blocks = (length + 1) // 2
    nodes, blocks = np.repeat(documents.number.astype(np.uint64), n_blocks), np.arange(n_blocks, dtype=np.uint64)
    bits = np.empty(4 * nodes.size, np.int32)
    philox.bits_of_nodes(nodes, np.tile(blocks, n), philox.POSITION, drawn_by.key, bits)
    segments = np.append(starts, n * length).astype(np.uint64), drawn, tables.start, tables.size, tables.latent
    tokens, new = np.empty((n, length), np.int32), np.empty((n, length), np.int32)
    _choose_tokens(drawn_by.key, segments, tables.ids, bits, (documents.number, documents.lexicon, tokens, new))
    if not np.array_equal(tokens[~forced], documents.tokens[~forced]):
        raise ValueError("documents must be of this corpus, got tokens that it does not draw from their contexts")
    return replace(documents, tokens=tokens, context=new)


def _one_each(name: str, values: ArrayLike, n: int) -> Ints:
    """Return one number for each document."""
    array = np.asarray(values)
    if array.shape not in ((), (n,)):
        raise ValueError(f"{name} must be a number or have shape ({n},), one for each document, got {array.shape}")
    return np.broadcast_to(array, n)


def _numbers(tables: Tables, latents: Ints, lexicon: NDArray[np.int32]) -> Ints:
    """Return the number of each context in the tables; contexts are given as latents of a lexicon."""
    numbers = np.empty(latents.size, np.int64)
    for k in range(tables.first.size - 1):
        contexts, of_lexicon = tables.latent[tables.first[k] : tables.first[k + 1]], lexicon == k
        asked = latents[of_lexicon]
        place = np.searchsorted(contexts, asked).clip(max=contexts.size - 1)
        unknown = asked[contexts[place] != asked]
        if unknown.size:
            raise ValueError(f"context must be a context of the document's lexicon, {k}, got {unknown[0]}")
        numbers[of_lexicon] = tables.first[k] + place
    return numbers


# ---------------------------------------------------------------------- bags of tokens
#
# Bags of tokens: the raw input of a document, without anything learned.


def decayed(tokens: NDArray[np.int32], n_tokens: int, decay: float, threads: int) -> NDArray[np.float32]:
    """Return (n, T, V) the decayed bag of tokens after each token."""
    n, length = tokens.shape
    memory.require(4 * tokens.size * n_tokens, "bags need")
    bags = np.empty((n, length, n_tokens), np.float32)
    parts = parallel.ranges(n, max(1, BAG_TASK // max(1, length * n_tokens)))
    parallel.run([(_decay, (tokens[i:end], np.float32(decay), bags[i:end])) for i, end in parts], threads)
    return bags


@kernel
def _decay(tokens, decay, bags):
    """Fill b_t = decay · b_{t-1} + onehot(token t), starting from zero."""
    for i in range(tokens.shape[0]):
        for t in range(tokens.shape[1]):
            if t == 0:
                bags[i, t] = np.float32(0)
            else:
                for token in range(bags.shape[2]):
                    bags[i, t, token] = decay * bags[i, t - 1, token]
            bags[i, t, tokens[i, t]] += np.float32(1)
