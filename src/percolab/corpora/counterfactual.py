"""Counterfactuals: the same documents by the same draws, with another context for a while."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.corpora import documents as drawing
from percolab.corpora.documents import Documents, Plan
from percolab.corpora.lexicon import Tables
from percolab.model.indices import indices

Ints = NDArray[np.int64]


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
    tokens, new = drawing.draw_tokens(drawn_by, tables, documents, np.append(starts, n * length), drawn)
    if not np.array_equal(tokens[~forced], documents.tokens[~forced]):
        raise ValueError("documents must be of this corpus, got tokens that it does not draw from their contexts")
    return replace(documents, tokens=tokens, context=new)


def _one_each(name: str, values: ArrayLike, n: int) -> Ints:
    """Return one number for each document."""
    given = np.asarray(values)
    if given.shape not in ((), (n,)):
        raise ValueError(f"{name} must be a number or have shape ({n},), one for each document, got {given.shape}")
    return np.broadcast_to(given, n)


def _numbers(tables: Tables, latents: Ints, lexicon: NDArray[np.int32]) -> Ints:
    """Return the number in the tables of each context, given as a latent of a lexicon."""
    numbers = np.empty(latents.size, np.int64)
    for k in range(tables.first.size - 1):
        contexts, of_lexicon = tables.latent[tables.first[k] : tables.first[k + 1]], lexicon == k
        asked = latents[of_lexicon]
        found = np.searchsorted(contexts, asked).clip(max=contexts.size - 1)
        unknown = asked[contexts[found] != asked]
        if unknown.size:
            raise ValueError(f"context must be a context of the document's lexicon, {k}, got {unknown[0]}")
        numbers[of_lexicon] = tables.first[k] + found
    return numbers
