"""Lexicons: the contexts of a forest of tokens, the probability of each context, and the id of each token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import construct
from percolab.ground.arrays import Floats, Ints
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.rng import philox
from percolab.worlds.samples import shuffle

RATIO = 2 / 3  #: A context has at most this share of the tokens of the nearest context above it.


@dataclass(frozen=True, eq=False)
class Lexicon:
    """A forest whose points are tokens, and the contexts that tokens are drawn from.

    Contexts are numbered by their place 0, 1, … in `contexts`, which is in preorder: every context comes before the
    contexts inside it.
    """

    forest: Forest  #: one row per token
    contexts: Ints  #: (C,) latent of each context
    above: Ints  #: (C,) place of the nearest context above, -1 for none
    level: Ints  #: (C,) number of contexts above
    deepest: Ints  #: (V,) place of the smallest context that holds each row
    prior: Floats  #: (C,) probability of each context: draw a token uniformly, then one of the contexts that hold it
    ids: NDArray[np.int32]  #: (V,) id of each row


def read(forest: Forest, min_size: int, k: int, seed: int) -> Lexicon:
    """Return lexicon k of a corpus: contexts of at least `min_size` tokens, and ids that (seed, k) alone determine."""
    contexts = forest.concepts(min_size, RATIO)
    latent_above = forest.nearest_above(contexts)
    above = np.where(latent_above < 0, -1, np.searchsorted(contexts, latent_above))
    deepest = np.full(forest.n_points, -1, np.int64)
    level = np.zeros(contexts.size, np.int64)
    for c, (start, end) in enumerate(np.transpose(forest.points_of(contexts)).tolist()):
        level[c] = level[above[c]] + 1 if above[c] >= 0 else 0
        deepest[start:end] = c  # in preorder the smallest context of a row comes last
    alone = int(np.count_nonzero(deepest < 0))
    if alone:
        way_out = f"make it with mode='one_cluster' or min_cluster_size={min_size}, or take a lower minimum"
        raise ValueError(
            f"every token must be in a context of at least min_size={min_size} tokens, got {alone:,} of "
            f"{forest.n_points:,} tokens of lexicon {k} in smaller clusters: "
            + (way_out if forest.n_points >= min_size else "take a lower minimum, or more tokens")
        )
    ids = np.empty(forest.n_points, np.int64)
    shuffle(ids, np.uint64(k), philox.TOKEN_ID, np.uint64(seed))
    return Lexicon(forest, contexts, above, level, deepest, _prior(above, level, deepest), ids.astype(np.int32))


@lru_cache(maxsize=16)
def grown(recipe: Recipe) -> Forest:
    """Return the forest of a recipe. It depends on the graph alone, so positions are made in two dimensions."""
    return construct(replace(recipe, dim=2)).forest


def _prior(above: Ints, level: Ints, deepest: Ints) -> Floats:
    """Return π(c) = 1/V Σ 1/m(u) over the tokens u of c, where m(u) contexts hold u."""
    prior = np.bincount(deepest, minlength=above.size) / (level + 1) / deepest.size
    for c in range(above.size - 1, 0, -1):
        if above[c] >= 0:
            prior[above[c]] += prior[c]
    return prior


class Tables(NamedTuple):
    """The tables of all lexicons for compiled passes; contexts are numbered one lexicon after another."""

    first: Ints  #: (K+1,) first context of each lexicon
    latent: NDArray[np.int32]  #: (C,) latent of each context, in its forest
    start: NDArray[np.uint64]  #: (C,) first row of each context
    size: NDArray[np.uint64]  #: (C,) number of tokens of each context
    above: Ints  #: (C,) nearest context above, -1 for none
    chain_start: Ints  #: (C+1,) where the chain of each context begins in `chain`
    chain: Ints  #: contexts from the top down to each context
    of_row: NDArray[np.int32]  #: (K, V) smallest context that holds each row
    of_token: NDArray[np.int32]  #: (K, V) smallest context that holds each token id
    ids: NDArray[np.int32]  #: (K, V) token id of each row
    begin: Floats  #: (C,) π(c) / |c|
    fresh: Floats  #: (C,) renewal π(c) / |c|
    stay: Floats  #: (C,) (1 - renewal) / |c|


def tables(lexicons: Sequence[Lexicon], renewal: float) -> Tables:
    """Return the tables of several lexicons over the same tokens."""
    first = np.cumsum([0] + [lexicon.contexts.size for lexicon in lexicons])
    shifted = list(zip(lexicons, first.tolist(), strict=False))
    above = np.concatenate([np.where(lexicon.above < 0, -1, lexicon.above + base) for lexicon, base in shifted])
    size = np.concatenate([lexicon.forest.latent_size[lexicon.contexts] for lexicon in lexicons])
    chains: list[list[int]] = []
    for c, over in enumerate(above.tolist()):
        chains.append([*chains[over], c] if over >= 0 else [c])
    of_row = np.stack([lexicon.deepest + base for lexicon, base in shifted]).astype(np.int32)
    ids = np.stack([lexicon.ids for lexicon in lexicons])
    of_token = np.empty_like(of_row)
    np.put_along_axis(of_token, ids.astype(np.int64), of_row, axis=1)
    begin = np.concatenate([lexicon.prior for lexicon in lexicons]) / size
    return Tables(
        first,
        np.concatenate([lexicon.contexts for lexicon in lexicons]).astype(np.int32),
        np.concatenate([lexicon.forest.latent_start[lexicon.contexts] for lexicon in lexicons]).astype(np.uint64),
        size.astype(np.uint64),
        above,
        np.cumsum([0] + [len(chain) for chain in chains]),
        np.concatenate(chains),
        of_row,
        of_token,
        ids,
        begin,
        renewal * begin,
        (1 - renewal) / size,
    )
