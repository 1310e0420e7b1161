"""`percolab.features.score` on documents: every column against a slow oracle, planted truths, chance, bad input."""

import numpy as np
import pandas.testing
import pytest
import scipy.sparse
from features_oracle import DocumentOracle, differing, document_scenario
from hypothesis import given, settings
from hypothesis import strategies as st
from obvious import grow_forest

import percolab as pl
from percolab.corpora.corpus import misplaced
from percolab.features import score
from percolab.features.methods import Oracle

ASKED = [("context", "believed"), ("context", "true"), ("token", "believed")]


@pytest.fixture(scope="module")
def corpus():
    """Two lexicons of 300 tokens, with contexts of 8 tokens or more."""
    recipes = [pl.Recipe(300, 2, "one_cluster", seeds=seed) for seed in (1, 2)]
    return pl.Corpus(recipes, length=32, min_size=8, seed=4)


@pytest.fixture(scope="module")
def documents(corpus):
    return corpus.documents(2**40, 2**40 + 120)


@pytest.mark.parametrize("seed", range(30))
def test_every_column_is_the_oracles(seed):
    scored, options = document_scenario(seed)
    assert differing(score(*scored, **options), DocumentOracle(*scored, **options)) == []


@given(
    st.lists(st.integers(2, 14), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 10**6), st.integers(2, 6),
    st.sampled_from(ASKED), st.sampled_from([1, 0.9, 2 / 3]), st.integers(2, 4), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_corpus_any_rows(sizes, lexicons, seed, length, asked, ratio, min_size, subset):
    rng = np.random.default_rng(seed)
    forests = [grow_forest(sizes, seed + k) for k in range(lexicons)]
    corpus = pl.Corpus(forests, length=length, renewal=0.3, min_size=2, seed=seed)
    documents, factor = corpus.documents(3, 9), int(rng.integers(lexicons))
    n = documents.tokens.size
    rows = rng.integers(0, n, rng.integers(1, 2 * n)) if subset else None
    codes = (rng.random((n if rows is None else rows.size, 3)) < rng.random(3)) * 1.0
    codes[0, 0] = 1.0
    options = {"documents": documents, "about": asked[0], "truth": asked[1], "seed": seed, "draws": 1}
    options |= {"min_size": min_size, "ratio": ratio}
    oracle = DocumentOracle(corpus, codes, rows, factor, **options)
    if oracle.latent:
        assert differing(score(corpus, codes, rows, factor, **options), oracle) == []
    else:
        with pytest.raises(ValueError, match=r"^min_size must leave a concept: "):
            score(corpus, codes, rows, factor, **options)


@pytest.mark.parametrize(("about", "truth"), ASKED)
def test_the_membership_matrix_scores_one(corpus, documents, about, truth):
    asked = {"documents": documents, "about": about, "truth": truth}
    rows = np.arange(documents.tokens.size)[::3]
    for rows_ in (None, rows):
        known = Oracle(corpus, rows_, 1, **asked)
        some = np.empty((*documents.tokens.shape, 0)) if rows_ is None else np.empty((rows_.size, 0))
        codes = known.fit(some).encode(some)
        found = score(corpus, codes, rows_, 1, **asked)
        assert (found.concepts["f1"] == 1).all()
        assert found.concepts["latent"].tolist() == known.latent.tolist()
        assert (found.features["f1"] == 1).all()
        assert found.summary["recovery"] == 1
        assert found.summary["absorption_edge"] == 0
        assert set(known.latent) <= set(corpus.contexts(1))
    flipped = Oracle(corpus, rows, 1, flipped=0.05, **asked)
    noisy = score(corpus, flipped.fit(some).encode(some), rows, 1, **asked)
    assert 0.3 < noisy.summary["recovery"] < 0.99


def test_what_is_known_and_what_is_true_are_two_truths(corpus, documents):
    """A perfect feature of what can be known is not one of what is true, and the other way round."""
    shape = np.empty((documents.tokens.size, 0))
    codes = {
        t: Oracle(corpus, factor=0, documents=documents, truth=t).fit(shape).encode(shape) for t in ("believed", "true")
    }
    for truth, other in (("believed", "true"), ("true", "believed")):
        found = score(corpus, codes[other], factor=0, documents=documents, truth=truth)
        assert 0.5 < found.summary["recovery"] < 0.98


def test_positions_of_another_lexicon_belong_to_none_and_count(corpus, documents):
    fires = np.ones((*documents.tokens.shape, 1))
    found = score(corpus, fires, factor=0, documents=documents, truth="true")
    of_lexicon = int((documents.lexicon == 0).sum()) * documents.tokens.shape[1]
    assert found.concepts["size"].max() == of_lexicon  # the top holds all positions of its lexicon
    assert found.features["fired"].item() == documents.tokens.size
    assert found.features["precision"].item() == pytest.approx(of_lexicon / documents.tokens.size)
    alone = score(corpus.swapped(0), fires[:50], factor=0, documents=corpus.swapped(0).documents(0, 50), truth="true")
    top = alone.concepts.iloc[0]
    assert top["size"] == 50 * 32
    assert not top["summarised"]  # it holds every position


def test_codes_by_position_in_any_form_score_the_same(corpus, documents):
    rng = np.random.default_rng(0)
    codes = ((rng.random((*documents.tokens.shape, 20)) < 0.1) * rng.random(20)).astype(np.float32)
    asked = {"factor": 0, "documents": documents, "draws": 2}
    acts = rng.normal(size=(*documents.tokens.shape, 4))
    decoder = {"directions": rng.normal(size=(20, 4)), "activations": acts}
    wanted = score(corpus, codes, **asked, **decoder)
    flat = codes.reshape(-1, 20)
    torch = pytest.importorskip("torch")
    for other in (flat, scipy.sparse.csr_array(flat), torch.from_numpy(codes)):
        for threads in (1, 3):
            found = score(corpus, other, **asked, **decoder, threads=threads)
            pandas.testing.assert_frame_equal(found.concepts, wanted.concepts)
            pandas.testing.assert_frame_equal(found.features, wanted.features)
    assert wanted.settings["about"] == "context"
    assert wanted.plot() is not None
    assert "20 features" in wanted._repr_html_()


def test_chance_keeps_documents_whole(corpus):
    """Features that fire in runs and know nothing reach what chance says; permuted rows would reach less."""
    documents, rng = corpus.swapped(0).documents(0, 400), np.random.default_rng(1)
    n, length = documents.tokens.shape
    runs = np.repeat(rng.random((n, length // 16, 60)) < 0.1, 16, axis=1) * 1.0
    found = score(corpus.swapped(0), runs, factor=0, documents=documents)
    rows = runs.reshape(n * length, -1)[rng.permutation(n * length)]
    by_rows = score(corpus.swapped(0), rows, factor=0, documents=documents)
    large = found.concepts["summarised"] & (found.concepts["size"] > 300)
    mean, at_chance, of_rows = (
        t[large].mean() for t in (found.concepts["f1"], found.concepts["chance"], by_rows.concepts["f1"])
    )
    assert mean == pytest.approx(at_chance, rel=0.06)
    assert at_chance > 1.15 * of_rows


OK = np.ones((3840, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": None}, "documents must be given with a corpus, got None"),
        ({"documents": np.ones((9, 9))}, "documents must be what Corpus.documents returns, got ndarray"),
        ({"factor": None}, "factor must be given for a corpus of 2 hierarchies, got None"),
        ({"factor": 2}, "factor must be below 2, got 2"),
        ({"about": "words"}, "about must be one of context, token, got 'words'"),
        ({"truth": "felt"}, "truth must be one of believed, true, got 'felt'"),
        ({"codes": np.ones((120, 31, 2))}, "codes must be of 120 documents of 32 positions, got (120, 31)"),
        ({"codes": OK[:7]}, "codes must have a row for each of the 3840 rows, unless rows are given, got 7"),
        ({"codes": OK[:2], "rows": [0, 3840]}, "rows must be between 0 and 3839, got 3840"),
        ({"min_size": 10**6}, "min_size must leave a concept: the largest has "),
        ({"dataset": pl.engines.split_forest(30, 1)}, "documents, about and truth must be left out unless a corpus is"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(corpus, documents, change, message):
    with pytest.raises(ValueError) as error:
        score(**{"dataset": corpus, "codes": OK, "factor": 0, "documents": documents} | change)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("truth", ["believed", "true"])
def test_documents_of_another_corpus_are_refused(corpus, documents, truth):
    """With as many tokens they were once scored in silence, near chance, as if the method had failed."""
    others = [pl.Corpus([pl.Recipe(300, 2, "one_cluster", seeds=9 + k) for k in range(2)], length=32, min_size=8)]
    others.append(pl.Corpus(pl.Recipe(200, 2, "one_cluster", seeds=1), length=32, min_size=8))
    wanted = (r"^documents must be of this corpus, got [\d,]+ tokens outside of", r"^tokens must be between 0 and 199")
    for other, message in zip(others, wanted, strict=True):
        with pytest.raises(ValueError, match=message):
            score(other, OK, factor=0, documents=documents, truth=truth)
    for own in (corpus, corpus.swapped(1), corpus.replace(shares=[1, 3])):
        assert misplaced(own, documents) == 0
    moved = corpus.counterfactual(documents, np.full(len(documents), 3), documents.context[:, 3])
    assert misplaced(corpus, moved) == 0


# ---------------------------------------------------------------------- the raw input


@given(st.integers(0, 5), st.integers(0, 6), st.integers(2, 9), st.floats(0, 1), st.integers(0, 9), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_a_bag_forgets_at_its_rate(n, length, n_tokens, decay, seed, threads):
    corpus = pl.Corpus(grow_forest([n_tokens], 1), length=2, min_size=2)
    tokens = np.random.default_rng(seed).integers(0, n_tokens, (n, length))
    found = corpus.bag(tokens, decay, threads=threads)
    assert found.dtype == np.float32
    expected = np.zeros((n, length, n_tokens))
    for i in range(n):
        for t in range(length):
            for s in range(t + 1):
                expected[i, t, tokens[i, s]] += decay ** (t - s)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30)


def test_a_decay_is_a_share(corpus):
    with pytest.raises(ValueError, match=r"^decay must be between 0 and 1, got 1.5$"):
        corpus.bag([[0, 1]], 1.5)
