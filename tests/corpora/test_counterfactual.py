"""Counterfactual documents: the same draws with another context, until the next renewal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obvious import grow_forest
from sameness import refused
from test_corpora import HELD_OUT, columns, corpora, obvious_document, same, small

import percolab as pl


@settings(max_examples=40, deadline=None)
@given(corpora(), st.integers(0, 2**62), st.data())
def test_a_counterfactual_is_the_document_drawn_with_another_context(corpus, number, data):
    documents = corpus.documents(number, number + 3)
    position = [data.draw(st.integers(0, corpus.length - 1)) for _ in range(3)]
    context = [int(data.draw(st.sampled_from(corpus.contexts(int(k)).tolist()))) for k in documents.lexicon]
    other = corpus.counterfactual(documents, position, context)
    for i in range(3):
        k, renewed, latents, tokens = obvious_document(corpus, number + i, force=(position[i], context[i]))
        assert other.lexicon[i] == k
        assert other.renewed[i].tolist() == renewed
        assert other.context[i].tolist() == latents
        assert other.tokens[i].tolist() == tokens
    assert np.array_equal(other.number, documents.number)


def test_only_positions_until_the_next_renewal_change():
    corpus = small(length=33, renewal=0.1)
    documents = corpus.documents(HELD_OUT, HELD_OUT + 500)
    rng = np.random.default_rng(0)
    position = rng.integers(33, size=500)
    context = np.array([rng.choice(corpus.contexts(int(k))) for k in documents.lexicon])
    other = corpus.counterfactual(documents, position, context)
    ended = 0
    for i, p in enumerate(position):
        later = np.flatnonzero(documents.renewed[i, p + 1 :])
        stop = p + 1 + later[0] if later.size else 33
        forced = np.zeros(33, bool)
        forced[p:stop] = True
        assert (other.context[i] == np.where(forced, context[i], documents.context[i])).all()
        assert (other.tokens[i] == documents.tokens[i])[~forced].all()
        k = int(documents.lexicon[i])
        rows = corpus.forest(k).points_of(int(context[i]))
        assert np.isin(other.tokens[i, forced], corpus.token_ids(k)[rows]).all()
        ended += stop < 33
    assert ended > 200
    assert (other.tokens != documents.tokens).any(axis=1).mean() > 0.5
    for name in ("lexicon", "number", "renewed"):
        assert getattr(other, name) is getattr(documents, name)
    assert other.tokens.dtype == other.context.dtype == np.int32


def test_the_own_context_gives_the_same_document_and_the_way_back():
    corpus = small(length=20)
    documents = corpus.documents(0, 200)
    for position in (0, 7, 19):
        own = documents.context[:, position]
        assert same(corpus.counterfactual(documents, position, own), documents)
        top = [corpus.contexts(int(k))[0] for k in documents.lexicon]
        there = corpus.counterfactual(documents, position, top)
        assert not np.array_equal(there.tokens, documents.tokens)
        assert same(corpus.counterfactual(there, position, own), documents)


def test_counterfactuals_of_counterfactuals_and_of_some_documents():
    corpus = small(length=20, renewal=1e-3)
    documents = corpus.documents(0, 50)
    chosen = [corpus.contexts(int(k))[:3] for k in documents.lexicon]
    first, second = (np.array([contexts[j] for contexts in chosen]) for j in (1, 2))
    both = corpus.counterfactual(corpus.counterfactual(documents, 4, first), 11, second)
    assert (both.context[:, 4] == first).all()
    alone = corpus.counterfactual(documents, 11, second)
    assert np.array_equal(both.tokens[:, 11:], alone.tokens[:, 11:])
    assert np.array_equal(both.tokens[:, :11], corpus.counterfactual(documents, 4, first).tokens[:, :11])
    rows = np.array([40, 3, 17])
    some = corpus.counterfactual(columns(documents, rows), 11, second[rows])
    assert same(some, columns(alone, rows))
    assert len(corpus.counterfactual(corpus.documents(0, 0), 0, 0)) == 0


def test_beliefs_follow_the_forced_context():
    """Forced for long enough, a context is believed in: more than half of the probability lies inside it."""
    corpus = pl.Corpus(grow_forest([500], 1), length=40, renewal=1 / 100, seed=2)
    documents = corpus.documents(0, 300)
    sizes = corpus.forest().latent_size[corpus.contexts()]
    context = int(corpus.contexts()[np.argmin(sizes)])
    other = corpus.counterfactual(documents, 10, context)
    inside = corpus.beliefs(other.tokens).inside([context])[..., 0]
    before = corpus.beliefs(documents.tokens).inside([context])[..., 0]
    assert np.array_equal(inside[:, :10], before[:, :10])
    kept = ~documents.renewed[:, 11:].any(1)
    assert inside[kept, -1].mean() > 0.8 > 0.4 > before[kept, -1].mean()


@pytest.mark.parametrize(
    ("position", "context", "message"),
    [
        (12, 0, "position must be between 0 and 11, got 12"),
        (-1, 0, "position must be between 0 and 11, got -1"),
        (0.5, 0, "position must be integers, got float64"),
        ([1, 2], 0, "position must be a number or have shape (5,), one for each document, got (2,)"),
        (0, [0, 0], "context must be a number or have shape (5,), one for each document, got (2,)"),
        (0, -1, "context must be a context of the document's lexicon, 0, got -1"),
        (0, 38, "context must be a context of the document's lexicon, 0, got 38"),
        (0, 0.5, "context must be a context of the document's lexicon, 0, got 0.5"),
    ],
)
def test_what_is_refused(position, context, message):
    corpus = small(shares=[1, 0])
    with refused(message):
        corpus.counterfactual(corpus.documents(0, 5), position, context)


def test_contexts_of_another_lexicon_and_documents_of_another_corpus_are_refused():
    corpus = pl.Corpus([grow_forest([40], 0, "left chain"), grow_forest([40], 1)], min_size=4, length=12)
    foreign = sorted(set(corpus.contexts(1).tolist()) - set(corpus.contexts(0).tolist()))[0]
    with refused(f"context must be a context of the document's lexicon, 0, got {foreign}"):
        corpus.counterfactual(corpus.swapped(0).documents(0, 5), 0, foreign)
    with refused("documents must be of this corpus, got tokens that it does not draw from their contexts"):
        corpus.counterfactual(corpus.replace(seed=1).documents(0, 5), 6, 0)
