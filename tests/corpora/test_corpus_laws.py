"""Laws of corpora: correct documents pass, and each planted fault is flagged by the law it breaks."""

import json
from dataclasses import replace

import numpy as np
import pytest
from obvious import grow_forest

import percolab as pl
from percolab.checks import tokens
from percolab.checks.tokens import Sample

N = 4000


def corpus(**options):
    return pl.Corpus([grow_forest([80], s, "ragged") for s in range(2)], **{"min_size": 8, "seed": 3, **options})


@pytest.fixture(scope="module")
def fair():
    return sample(corpus(), corpus())


def sample(made, claimed):
    """Return documents of one corpus under the name of another."""
    documents = made.documents(0, N)
    return Sample(claimed, documents, claimed.beliefs(documents.tokens))


def flagged(sample):
    return {check.law for check in tokens.checks(sample) if check.failed}


def test_documents_pass(fair):
    found = list(tokens.checks(fair))
    assert [check.law for check in found] == [
        "documents",
        "shares of lexicons",
        "prior of contexts",
        "renewals",
        "tokens of contexts",
        "unigram",
        "floor",
        "beliefs",
    ]
    assert [check.verdict for check in found] == ["pass"] * 8


def test_a_lexicon_without_documents_passes(fair):
    for k in range(2):
        checked = list(tokens.checks(tokens.Sample.of(fair.corpus.swapped(k))))
        assert not [check.law for check in checked if check.failed]


@pytest.mark.parametrize(
    ("options", "law"),
    [
        ({"renewal": 1 / 14}, "renewals"),
        ({"renewal": 1 / 2}, "floor"),
        ({"shares": [0.45, 0.55]}, "shares of lexicons"),
        ({"shares": [0, 1]}, "beliefs"),
    ],
)
def test_documents_of_another_corpus_are_flagged(options, law):
    found = flagged(sample(corpus(), corpus(**options)))
    assert law in found <= {"renewals" if "renewal" in options else "shares of lexicons", "floor", "beliefs"}


def test_a_seed_of_documents_is_no_law():
    assert flagged(sample(corpus(seed=4), corpus(seed=4))) == set()


def redrawn(fair, change):
    """Return the sample with other documents; `change` has the context and the row of every position to change."""
    made, documents = fair.corpus, fair.documents
    context, tokens_ = documents.context.copy(), documents.tokens.copy()
    for k in range(2):
        own = documents.lexicon == k
        row = np.argsort(made.token_ids(k))[tokens_[own]]
        at, row = change(made, k, documents.renewed[own], context[own], row, np.random.default_rng(k))
        context[own], tokens_[own] = at, made.token_ids(k)[row]
    return Sample(made, replace(documents, context=context, tokens=tokens_), made.beliefs(tokens_))


def uniform_contexts(made, k, renewed, context, row, rng):
    """Draw contexts uniformly, whatever their prior."""
    segment = np.cumsum(renewed.ravel()) - 1
    context = rng.choice(made.contexts(k), segment[-1] + 1)[segment].reshape(context.shape)
    forest = made.forest(k)
    return context, forest.latent_start[context] + (rng.random(row.shape) * forest.latent_size[context]).astype(int)


def early_tokens(made, k, renewed, context, row, rng):
    """Take the first token of a context more often than others, at one position in a hundred."""
    return context, np.where(rng.random(row.shape) < 0.01, made.forest(k).latent_start[context], row)


def test_contexts_that_are_not_from_the_prior_are_flagged(fair):
    assert {"prior of contexts", "unigram", "beliefs"} <= flagged(redrawn(fair, uniform_contexts))


def test_tokens_that_are_not_uniform_are_flagged(fair):
    assert flagged(redrawn(fair, early_tokens)) == {"tokens of contexts"}


def test_a_wrong_unigram_is_flagged(fair):
    wrong = corpus()
    vars(wrong)["unigram"] = fair.corpus.unigram * np.linspace(0.6, 1.4, 80)
    assert flagged(replace(fair, corpus=wrong)) == {"unigram"}


def test_wrong_floors_are_flagged(fair):
    low = replace(fair.beliefs, floor=fair.beliefs.floor - 0.05)
    assert flagged(replace(fair, beliefs=low)) == {"floor"}
    other = corpus(renewal=0.5).beliefs(fair.documents.tokens).floor
    assert flagged(replace(fair, beliefs=replace(fair.beliefs, floor=other))) == {"floor"}


def test_wrong_contexts_to_believe_are_flagged(fair):
    believed = fair.corpus.contexts(0)[-1]
    wrong = replace(fair.beliefs, believed=np.full_like(fair.beliefs.believed, believed))
    assert flagged(replace(fair, beliefs=wrong)) == {"beliefs"}


def test_a_context_to_believe_that_is_not_the_deepest_is_flagged(fair):
    """Its tops are right too, and oftener."""
    shallow = replace(fair.beliefs, believed=np.minimum(fair.beliefs.believed, 0))
    found = [check for check in tokens.checks(replace(fair, beliefs=shallow)) if check.failed]
    assert [check.law for check in found] == ["beliefs"]
    assert found[0].measured.startswith("not at")


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("tokens", (3, 5), 80), ("lexicon", 7, 2), ("context", (0, 0), 79), ("renewed", (9, 0), False)],
)
def test_documents_that_do_not_fit_are_flagged_alone(fair, name, at, value):
    column = getattr(fair.documents, name).copy()
    column[at] = value
    found = list(tokens.checks(replace(fair, documents=replace(fair.documents, **{name: column}))))
    assert [(check.law, check.verdict) for check in found] == [("documents", "fail")]


def test_a_token_outside_of_its_context_is_flagged(fair):
    column = np.roll(fair.documents.tokens, 1, axis=0)
    assert flagged(replace(fair, documents=replace(fair.documents, tokens=column))) == {"documents"}
    column = fair.documents.context.copy()
    at = np.argwhere(~fair.documents.renewed & (column != 0))[0]
    column[tuple(at)] = 0
    assert flagged(replace(fair, documents=replace(fair.documents, context=column))) == {"documents"}


def test_few_documents_decide_little():
    few = corpus()
    documents = few.documents(0, 3)
    found = list(tokens.checks(Sample(few, documents, few.beliefs(documents.tokens))))
    assert {check.verdict for check in found} == {"pass", "not enough data"}


def test_verify_takes_a_corpus(tmp_path):
    alone = pl.Corpus(grow_forest([80], 1, "ragged"), min_size=8, length=8)
    outcome = pl.verify(alone)
    assert outcome.passed
    assert len(outcome) == 7
    assert "documents of 8 tokens out of 80, 1 lexicon, renewal 0.0625" in str(outcome)
    json.dumps(outcome.to_dicts())
    assert "unigram" in outcome.report(tmp_path).read_text()


def test_a_corpus_of_one_context_fails_no_law():
    """Everything is certain there: nothing is in doubt, and floors are all the same."""
    corpus = pl.Corpus(pl.Recipe(n_points=128, dim=2, mode="one_cluster", seed=0))
    assert corpus.contexts().size == 1
    found = pl.verify(corpus)
    assert found.passed
    assert "prior of contexts: needs two contexts, has one" in str(found)
