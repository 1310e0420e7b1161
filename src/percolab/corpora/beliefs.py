"""Beliefs: the exact probabilities of the present context, the lexicon and the next token, given the tokens so far.

With a(c) the probability of context c after the last token, the next context is c with probability
p(c) = (1 - renewal) a(c) + renewal π(c), π at the first position, and token x then leaves a(c) ∝ p(c) / |c| for the
contexts c that hold x. These form a chain from the top down, so a position takes O(contexts over a token). With several
lexicons, each has its own filter and a weight; a document never changes its lexicon.

Only sums, products, quotients and `philox.log` are used, in a fixed order: the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.corpora.lexicon import Lexicon, Tables
from percolab.ground import memory, parallel
from percolab.ground.arrays import Floats
from percolab.ground.compiled import inlined, kernel
from percolab.ground.intrinsics import bits_of_double, double_of_bits
from percolab.ground.validation import check_index, listed
from percolab.rng import philox

TASK = 1 << 16  #: Positions per task: enough to make waking a thread worthwhile.


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The knowledge of an ideal reader at each position of n documents of T tokens."""

    floor: Floats  #: (n, T) -log P(token | tokens before it): no predictor has a lower mean loss
    #: (n, T) the deepest context that holds the present one with probability above 1/2, as a latent; -1 for none
    believed: NDArray[np.int32]
    believed_lexicon: NDArray[np.int32]  #: (n, T) the lexicon of that context; -1 for none
    lexicon: Floats  #: (n, T, K) probability of each lexicon after each token
    _inside: Callable[[ArrayLike, int], Floats]

    def __len__(self) -> int:
        return len(self.floor)

    def __repr__(self) -> str:
        n, length = self.floor.shape
        return (
            f"Beliefs({n:,} documents of {length:,} tokens, mean floor {self.floor.mean() if n else np.nan:.4g} nats)"
        )

    def inside(self, latents: ArrayLike, k: int = 0) -> Floats:
        """Return (n, T, L) the probability that the context is a context of lexicon k inside each of these latents.

        The filter runs again, and the result takes 8 n T L bytes: pass some documents at a time. A latent contains
        itself and the latents below it.

        Parameters
        ----------
        latents
            Latents of the forest of lexicon k, as indices or a mask; `Corpus.contexts` or any others.
        k
            Number of the lexicon.
        """
        return self._inside(latents, k)


@dataclass(frozen=True, eq=False)
class Filter:
    """The forward recursion over the contexts of one or several lexicons."""

    lexicons: tuple[Lexicon, ...]
    tables: Tables
    shares: Floats  #: (K,) probability of each lexicon before the first token

    def beliefs(self, tokens: NDArray[np.int32], threads: int) -> Beliefs:
        """Return the beliefs of (n, T) tokens."""
        shape = tokens.shape
        floor, lexicon = np.empty(shape), np.empty((*shape, self.shares.size))
        believed, of_lexicon = np.empty(shape, np.int32), np.empty(shape, np.int32)
        self._run(_believe, threads, (tokens, floor, believed, of_lexicon, lexicon))
        return Beliefs(floor, believed, of_lexicon, lexicon, partial(self.inside, tokens, threads))

    def inside(self, tokens: NDArray[np.int32], threads: int, latents: ArrayLike, k: int) -> Floats:
        """Return `Beliefs.inside` of (n, T) tokens."""
        lexicon = self.lexicons[check_index("k", k, len(self.lexicons))]
        chosen = listed("latents", latents, lexicon.forest.n_latents)
        holders = _holders(lexicon, chosen)
        out = np.zeros((*tokens.shape, chosen.size))
        self._run(_sum_inside, threads, (tokens, out), k, *holders)
        return out

    def predict(self, tokens: NDArray[np.int32], every: bool, threads: int) -> Floats:
        """Return the distribution of the token after the last, (n, V), or after each, (n, T, V)."""
        shape = len(tokens), tokens.shape[1] if every else 1, self.tables.ids.shape[1]
        memory.require(8 * prod(shape), "predictions need")
        out = np.empty(shape)
        self._run(_predict, threads, (tokens, out), every)
        return out if every else out[:, 0]

    def _run(self, function: Any, threads: int, arrays: tuple[NDArray[Any], ...], *rest: Any) -> None:
        """Call a kernel on some documents at a time; all `arrays` have one row per document."""
        n, length = arrays[0].shape
        parts = parallel.ranges(n, max(1, TASK // max(length, 1)))
        documents = [tuple(array[i:end] for array in arrays) for i, end in parts]
        parallel.run([(function, (self.tables, self.shares, *some, *rest)) for some in documents], threads)


def _holders(lexicon: Lexicon, latents: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return, for each context, which of the latents hold it, and the level from which its chain is inside each.

    The result has the form of a CSR matrix: offsets (C+1,), places of latents, levels.
    """
    end = latents + lexicon.forest.latent_size[latents] - 1
    holders = [np.flatnonzero((latents <= c) & (c < end)) for c in lexicon.contexts]
    offsets = np.cumsum([0] + [places.size for places in holders])
    places = np.concatenate([np.empty(0, np.int64), *holders])
    # The highest contexts inside a latent share the contexts above them; in preorder one of the highest comes first.
    levels = np.append(lexicon.level, 0)[np.searchsorted(lexicon.contexts, latents)]
    return offsets, places, levels[places]


# ---------------------------------------------------------------------- kernels


class State(NamedTuple):
    """The state of the filters after some tokens of a document; weights are mantissa · 2^exponent, and never vanish."""

    last: Any  #: (K,) smallest context that holds the last token, -1 before the first
    belief: Any  #: (K, levels) probability of each context over the last token, from the top, given the lexicon
    mantissa: Any  #: (K,) weight of each lexicon
    exponent: Any  #: (K,) power of two of each weight
    weight: Any  #: (K,) the weights, normalised


@kernel
def _room(tables):
    """Return a state with its arrays allocated but not set."""
    K, levels = tables.of_token.shape[0], 1
    for c in range(tables.size.size):
        levels = max(levels, tables.chain_start[c + 1] - tables.chain_start[c])
    return State(np.empty(K, np.int64), np.empty((K, levels)), np.empty(K), np.empty(K, np.int64), np.empty(K))


@inlined
def _begin(state, shares):
    """Set the state before the first token of a document."""
    state.last[:] = -1
    state.mantissa[:] = shares
    state.exponent[:] = 0
    state.weight[:] = shares


@inlined
def _observe(tables, token, k, state):
    """Update the filter of lexicon k with a token; return the probability of the token given the lexicon."""
    c, before, belief = tables.of_token[k, token], state.last[k], state.belief[k]
    first, count = tables.chain_start[c], tables.chain_start[c + 1] - tables.chain_start[c]
    shared, likelihood = 0, 0.0
    if before >= 0:
        earlier = tables.chain_start[before]
        most = min(count, tables.chain_start[before + 1] - earlier)
        while shared < most and tables.chain[first + shared] == tables.chain[earlier + shared]:
            shared += 1
    for j in range(count):
        context = tables.chain[first + j]
        joint = tables.begin[context] if before < 0 else tables.fresh[context]
        if j < shared:
            joint += tables.stay[context] * belief[j]
        belief[j] = joint
        likelihood += joint
    for j in range(count):
        belief[j] /= likelihood
    state.last[k] = c
    return likelihood


@inlined
def _advance(tables, token, state):
    """Update all filters and weights with a token; return the probability of the token."""
    probability, most = 0.0, np.int64(-(2**62))
    for k in range(state.weight.size):
        if state.mantissa[k] == 0:  # a lexicon with share 0
            continue
        likelihood = _observe(tables, token, k, state)
        probability += state.weight[k] * likelihood
        bits = bits_of_double(state.mantissa[k] * likelihood)
        shift = (bits >> 52) - 1022
        state.mantissa[k] = double_of_bits(bits - (shift << 52))
        state.exponent[k] += shift
        most = max(most, state.exponent[k])
    total = 0.0
    for k in range(state.weight.size):
        if state.mantissa[k] > 0:
            power = state.exponent[k] - most
            state.weight[k] = state.mantissa[k] * double_of_bits((power + 1023) << 52) if power > -1000 else 0.0
            total += state.weight[k]
    for k in range(state.weight.size):
        state.weight[k] /= total
    return probability


@kernel(error_model="numpy")
def _believe(tables, shares, tokens, floor, believed, of_lexicon, lexicon):
    """Fill floors, the deepest believed contexts and the probabilities of lexicons."""
    state = _room(tables)
    for i in range(tokens.shape[0]):
        _begin(state, shares)
        for t in range(tokens.shape[1]):
            floor[i, t] = -philox.log(_advance(tables, tokens[i, t], state))
            believed[i, t], of_lexicon[i, t] = _deepest(tables, state)
            for k in range(state.weight.size):
                lexicon[i, t, k] = state.weight[k]


@inlined
def _deepest(tables, state):
    """Return the deepest context that holds the present one with probability above 1/2, and its lexicon; or -1, -1."""
    for k in range(state.weight.size):
        if state.weight[k] > 0.5:
            first, j = tables.chain_start[state.last[k]], tables.chain_start[state.last[k] + 1]
            inside = 0.0
            while j > first:
                j -= 1
                inside += state.weight[k] * state.belief[k, j - first]
                if inside > 0.5:
                    return tables.latent[tables.chain[j]], k
    return -1, -1


@kernel(error_model="numpy")
def _sum_inside(tables, shares, tokens, out, k, offsets, places, levels):
    """Fill the probability of lexicon k and a context inside each latent: a sum over the lower end of the chain."""
    state = _room(tables)
    below = np.zeros(state.belief.shape[1] + 1)
    for i in range(tokens.shape[0]):
        _begin(state, shares)
        for t in range(tokens.shape[1]):
            _advance(tables, tokens[i, t], state)
            c = state.last[k]
            if c < 0:
                continue
            count = tables.chain_start[c + 1] - tables.chain_start[c]
            below[count] = 0.0
            for j in range(count - 1, -1, -1):
                below[j] = below[j + 1] + state.weight[k] * state.belief[k, j]
            c -= tables.first[k]
            for place in range(offsets[c], offsets[c + 1]):
                out[i, t, places[place]] = below[levels[place]]


@kernel(error_model="numpy")
def _predict(tables, shares, tokens, out, every):
    """Fill the probability of every token after each token, or after the last."""
    state = _room(tables)
    above = np.empty(tables.size.size)
    for i in range(tokens.shape[0]):
        _begin(state, shares)
        for t in range(tokens.shape[1]):
            _advance(tables, tokens[i, t], state)
            if every:
                _spread(tables, state, above, out[i, t])
        if not every:
            _spread(tables, state, above, out[i, 0])


@kernel
def _spread(tables, state, above, out):
    """Fill the probability of every token: summed over its contexts, from the top down."""
    out[:] = 0.0
    for k in range(state.weight.size):
        if state.weight[k] == 0:
            continue
        c = state.last[k]
        on_chain = tables.chain_start[c] if c >= 0 else 0
        end = tables.chain_start[c + 1] if c >= 0 else 0
        j = on_chain
        for context in range(tables.first[k], tables.first[k + 1]):
            rate = tables.begin[context] if c < 0 else tables.fresh[context]
            if j < end and tables.chain[j] == context:
                rate += tables.stay[context] * state.belief[k, j - on_chain]
                j += 1
            over = tables.above[context]
            above[context] = rate + above[over] if over >= 0 else rate
        for token in range(out.size):
            out[token] += state.weight[k] * above[tables.of_token[k, token]]
