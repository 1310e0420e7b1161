"""Corpora: documents are what their draws say, and beliefs those of a dense, obvious filter."""

import json
import math
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obvious import concepts, grow_forest, rows_of

import percolab as pl
from percolab.corpora.collection import DocumentRange
from percolab.rng import philox

HELD_OUT = 2**40


@st.composite
def corpora(draw, most=24, lexicons=3):
    """Corpora over any forests: shallow ones, chains, one cluster or several."""
    least = draw(st.integers(2, 4))
    size = draw(st.integers(least, most))
    forests = []
    for _ in range(draw(st.integers(1, lexicons))):
        sizes, left = [], size
        while left >= 2 * least and draw(st.booleans()):
            sizes.append(draw(st.integers(least, left - least)))
            left -= sizes[-1]
        shape = draw(st.sampled_from(["any", "left chain", "right chain", "even", "ragged"]))
        forests.append(grow_forest(sorted([*sizes, left], reverse=True), draw(st.integers(0, 10**6)), shape))
    shares = draw(st.lists(st.sampled_from([0.0, 1e-9, 0.3, 1.0]), min_size=len(forests), max_size=len(forests)))
    return pl.Corpus(
        forests,
        length=draw(st.integers(2, 9)),
        renewal=draw(st.sampled_from([1e-3, 1 / 16, 0.3, 1.0])),
        min_size=least,
        shares=shares if sum(shares) else None,
        seed=draw(st.integers(0, 2**64 - 1)),
    )


class Dense:
    """All contexts of all lexicons at once: joint probabilities of (lexicon, context), tokens by their ids."""

    def __init__(self, corpus):
        self.corpus, self.place = corpus, []
        emission, prior = [], []
        for k in range(len(corpus.lexicons)):
            forest, ids = corpus.forest(k), corpus.token_ids(k)
            latents = concepts(forest, corpus.min_size, 2 / 3)
            held = [set(rows_of(forest)[latent]) for latent in latents]
            for latent, rows in zip(latents, held, strict=True):
                self.place.append((k, latent))
                law = np.zeros(corpus.n_tokens)
                law[ids[sorted(rows)]] = 1 / len(rows)
                emission.append(law)
                chosen = sum(1 / sum(row in other for other in held) for row in rows) / corpus.n_tokens
                prior.append(chosen)
        self.emission, self.prior = np.array(emission), np.array(prior)
        self.lexicon = np.array([k for k, _ in self.place])
        self.share = np.array(corpus.shares)[self.lexicon]

    def read(self, tokens):
        """Yield, for each position, the law of its token and the joint law of (lexicon, context) after it."""
        joint = self.share * self.prior
        for token in tokens:
            yield joint @ self.emission, (after := self._normal(joint * self.emission[:, token]))
            weight = np.array([after[self.lexicon == k].sum() for k in self.lexicon])
            joint = (1 - self.corpus.renewal) * after + self.corpus.renewal * weight * self.prior
        yield joint @ self.emission, None

    @staticmethod
    def _normal(joint):
        return joint / joint.sum()

    def inside(self, after, k, latent):
        """Return the probability of a context of lexicon k all of whose rows are rows of the latent."""
        rows = rows_of(self.corpus.forest(k))
        held = [j == k and set(rows[c]) <= set(rows[latent]) for j, c in self.place]
        return after[np.array(held)].sum()

    def believed(self, after):
        """Return the lexicon and the context of fewest tokens that holds the present one with probability over 1/2."""
        chances = {(k, c): self.inside(after, k, c) for k, c in self.place}
        if any(abs(chance - 0.5) < 1e-9 for chance in chances.values()):
            return None  # rounding decides
        sizes = {(k, c): len(rows_of(self.corpus.forest(k))[c]) for k, c in self.place}
        return min((pair for pair in self.place if chances[pair] > 0.5), key=sizes.__getitem__, default=(-1, -1))


@settings(max_examples=60, deadline=None)
@given(corpora())
def test_beliefs_are_those_of_a_dense_filter(corpus):
    dense = Dense(corpus)
    tokens = corpus.documents(5, 7).tokens
    beliefs, every = corpus.beliefs(tokens), corpus.predict(tokens, every=True)
    inside = [beliefs.inside(np.arange(corpus.forest(k).n_latents), k) for k in range(len(corpus.lexicons))]
    for i, document in enumerate(tokens):
        for t, (law, after) in enumerate(dense.read(document)):
            np.testing.assert_allclose(law, corpus.unigram if t == 0 else every[i, t - 1], rtol=1e-9, atol=1e-15)
            if after is None:
                np.testing.assert_allclose(law, corpus.predict(tokens)[i], rtol=1e-9, atol=1e-15)
                continue
            assert beliefs.floor[i, t] == pytest.approx(-math.log(law[document[t]]), rel=1e-9)
            weights = [after[dense.lexicon == k].sum() for k in range(len(corpus.lexicons))]
            np.testing.assert_allclose(beliefs.lexicon[i, t], weights, rtol=1e-9, atol=1e-15)
            for k, columns in enumerate(inside):
                obvious = [dense.inside(after, k, latent) for latent in range(columns.shape[-1])]
                np.testing.assert_allclose(columns[i, t], obvious, rtol=1e-9, atol=1e-15)
            assert dense.believed(after) in (None, (beliefs.believed_lexicon[i, t], beliefs.believed[i, t]))


@settings(max_examples=40, deadline=None)
@given(corpora())
def test_priors_and_unigrams_are_laws(corpus):
    dense = Dense(corpus)
    assert [(k, c) for k in range(len(corpus.lexicons)) for c in corpus.contexts(k)] == dense.place
    priors = np.concatenate([corpus.prior(k) for k in range(len(corpus.lexicons))])
    np.testing.assert_allclose(priors, dense.prior, rtol=1e-12)
    assert corpus.unigram.sum() == pytest.approx(1)


def obvious_document(corpus, number, force=(-1, None)):
    """Draw one document with whole numbers of any length: the definition of the data.

    `force` is a position and the context that it has, in place of its own.
    """
    key = np.uint64(corpus.seed)

    def words(position, purpose):
        a, b = (int(word) for word in philox.block(np.uint64(number), position, purpose, key))
        return [a % 2**32, a >> 32, b % 2**32, b >> 32]

    def long(low, high):
        return low + (high << 32)

    u = (long(*words(0, philox.LEXICON)[:2]) >> 11) * 2.0**-53
    ends = np.cumsum(corpus.shares)
    used = np.flatnonzero(corpus.shares)
    k = next((k for k in used if u < ends[k]), used[-1]) if len(ends) > 1 else 0
    forest, ids, renewed, context, tokens = corpus.forest(k), corpus.token_ids(k), [], [], []
    rows = rows_of(forest)
    for t in range(corpus.length):
        token, renewal = words(t // 2, philox.POSITION)[2 * (t % 2) :][:2]
        more = words(t, philox.FURTHER)
        renewed.append(t == 0 or (renewal << 32) + more[3] < int(corpus.renewal * 2.0**64))
        if renewed[-1]:
            fresh = words(t, philox.FRESH)
            row = long(*fresh[:2]) * corpus.n_tokens >> 64
            holders = [c for c in corpus.contexts(k) if row in rows[c]]
            latent = holders[long(*fresh[2:]) * len(holders) >> 64]
        latent = force[1] if t == force[0] else latent
        u = (token << 64) + long(*more[:2])
        context.append(latent)
        tokens.append(ids[min(rows[latent]) + (u * len(rows[latent]) >> 96)])
    return k, renewed, context, tokens


@settings(max_examples=40, deadline=None)
@given(corpora(), st.integers(0, 2**63 - 2))
def test_documents_are_what_their_draws_say(corpus, number):
    found = corpus.documents(number, number + 1)
    k, renewed, context, tokens = obvious_document(corpus, number)
    assert found.lexicon.tolist() == [k]
    assert found.number.tolist() == [number]
    assert found.renewed[0].tolist() == renewed
    assert found.context[0].tolist() == context
    assert found.tokens[0].tolist() == tokens


def test_further_bits_decide_where_32_do_not():
    """A renewal of 2^-33 leaves every first word of 0 open; a context of 2^30 tokens half of its words."""
    corpus = pl.Corpus(grow_forest([8], 0), min_size=2, renewal=2.0**-33, seed=1)
    assert corpus.documents(0, 100).renewed.sum() == 100
    wide = pl.Corpus(grow_forest([8], 0), min_size=2, length=4, renewal=1 - 2.0**-40, seed=1)
    assert wide.documents(0, 100).renewed.all()


def small(**options):
    return pl.Corpus([grow_forest([40], s) for s in range(2)], **{"min_size": 4, "length": 12, "seed": 5, **options})


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in vars(one))


def columns(documents, rows):
    return pl.Documents(*(column[rows] for column in vars(documents).values()))


def test_any_range_and_thread_count_gives_the_same_bytes():
    corpus = small(length=33)
    whole = corpus.documents(0, 9000, threads=1)
    assert same(whole, corpus.documents(0, 9000, threads=3))
    assert same(columns(whole, slice(4321, 4330)), corpus.documents(4321, 4330))
    one, other = corpus.beliefs(whole.tokens, threads=1), corpus.beliefs(whole.tokens, threads=3)
    for name in ("floor", "believed", "believed_lexicon", "lexicon"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    part = corpus.beliefs(whole.tokens[4000:4010]).inside(corpus.contexts(1), 1)
    assert np.array_equal(one.inside(corpus.contexts(1), 1)[4000:4010], part)


def test_draws_depend_neither_on_length_nor_on_shares():
    corpus = small()
    whole = corpus.documents(HELD_OUT, HELD_OUT + 200)
    longer = corpus.replace(length=20).documents(HELD_OUT, HELD_OUT + 200)
    for name in ("tokens", "context", "renewed"):
        assert np.array_equal(getattr(longer, name)[:, :12], getattr(whole, name))
    for k in range(2):
        swapped = corpus.swapped(k).documents(HELD_OUT, HELD_OUT + 200)
        assert (swapped.lexicon == k).all()
        assert np.array_equal(swapped.renewed, whole.renewed)
        assert np.array_equal(swapped.tokens[whole.lexicon == k], whole.tokens[whole.lexicon == k])
    assert 50 < np.count_nonzero(whole.lexicon) < 150


@pytest.mark.parametrize("shares", [[1, 5e-13], [0.1] * 10, [0.7, 0.1, 0.2], [3, 1e-9, 7, 2]])
def test_shares_sum_to_1_and_stay_as_they_are(shares):
    corpus = pl.Corpus([grow_forest([8], s) for s in range(len(shares))], min_size=2, shares=shares)
    assert math.fsum(corpus.shares) == pytest.approx(1, abs=1e-15)
    assert corpus.replace(shares=corpus.shares).shares == corpus.shares


def test_ids_are_those_of_seed_and_number_alone():
    corpus = small()
    for k in range(2):
        assert sorted(corpus.token_ids(k)) == list(range(40))
        other = pl.Corpus([grow_forest([20, 20], 7)] * 2, min_size=4, renewal=1.0, seed=5)
        assert np.array_equal(corpus.token_ids(k), other.token_ids(k))
    assert not np.array_equal(corpus.token_ids(0), corpus.token_ids(1))
    assert not np.array_equal(corpus.token_ids(0), corpus.replace(seed=6).token_ids(0))


def test_the_mean_floor_is_the_entropy():
    """All documents of three tokens: their probabilities add up to 1, and the mean floor is their entropy."""
    corpus = pl.Corpus([grow_forest([5], s) for s in range(2)], min_size=2, length=3, renewal=0.25, shares=[1, 3])
    every = np.array(list(product(range(5), repeat=3)))
    floor = corpus.beliefs(every).floor
    chance = np.exp(-floor.sum(axis=1))
    assert chance.sum() == pytest.approx(1, abs=1e-12)
    assert corpus.unigram == pytest.approx(np.bincount(every[:, 2], weights=chance))
    drawn = corpus.beliefs(corpus.documents(0, 200_000).tokens).floor
    entropy = chance @ floor  # of each position, given those before it
    error = drawn.std(axis=0) / math.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - entropy) < 4 * error).all()
    assert (np.diff(entropy) < 0).all()


def test_weights_of_lexicons_come_back_from_far_below_the_smallest_float():
    """Four thousand tokens that lexicon 0 explains, then twice as many that lexicon 1 does."""
    corpus = small(renewal=1e-3)
    own = [corpus.swapped(k).replace(length=8000).documents(k, k + 1).tokens for k in range(2)]
    weight = corpus.beliefs(np.hstack([own[0][:, :4000], own[1]])).lexicon[0]
    assert weight[3999].tolist() == [1, 0]
    assert weight[-1].tolist() == [0, 1]


def test_a_lexicon_of_share_0_is_known_and_never_believed():
    corpus = small(shares=[1, 0])
    beliefs = corpus.beliefs(corpus.documents(0, 50).tokens)
    assert (beliefs.lexicon == [1, 0]).all()
    assert (beliefs.inside(corpus.contexts(1), 1) == 0).all()
    assert set(np.unique(beliefs.believed_lexicon)) <= {-1, 0}
    alone = pl.Corpus(corpus.lexicons[0], min_size=4, length=12, seed=5)
    assert np.array_equal(alone.beliefs(corpus.documents(0, 50).tokens).floor, beliefs.floor)


def test_json_equality_and_copies():
    recipes = [pl.Recipe(100, 3, "one_cluster", seeds=s) for s in range(3)]
    for corpus in (
        pl.Corpus(recipes, shares=[1, 1, 1]),
        small(shares=[0.1, 0.2]),
        pl.Corpus(recipes[0], seed=2**64 - 1),
    ):
        again = pl.Corpus.from_json(corpus.to_json())
        assert again == corpus
        assert hash(again) == hash(corpus)
        assert pickle.loads(pickle.dumps(corpus)) == corpus
        assert same(again.documents(3, 9), corpus.documents(3, 9))
        assert corpus.replace(seed=7) != corpus
        assert corpus.replace(seed=7).replace(seed=corpus.seed) == corpus
    assert small() != pl.Corpus([grow_forest([40], s) for s in (0, 2)], min_size=4, length=12, seed=5)
    assert pl.Corpus(recipes).shares == (1 / 3,) * 3
    assert "seed=0" in repr(pl.Corpus(recipes))
    assert "lexicon 1" in small()._repr_html_()
    assert repr(small().documents(3, 9)) == "Documents(6 of 12 tokens, 3 … 8)"
    assert repr(small().documents(3, 3)) == "Documents(0 of 12 tokens)"
    assert "3 documents of 12 tokens, mean floor" in repr(small().beliefs(small().documents(0, 3).tokens))


def test_a_dataset_stands_for_its_recipe_or_its_forest():
    recipe = pl.Recipe(100, 3, "one_cluster", seeds=1)
    dataset = pl.generate(recipe)
    assert pl.Corpus(dataset) == pl.Corpus(recipe)
    assert pl.Corpus(dataset.with_target(np.zeros(100))) == pl.Corpus(recipe)
    assert pl.Corpus(dataset).forest().equals(dataset.forest)
    part = dataset.take(np.arange(50, 100))
    corpus = pl.Corpus(part, min_size=4)
    assert isinstance(corpus.lexicons[0], pl.Forest)
    assert pl.Corpus.from_json(corpus.to_json()).forest().equals(part.forest)


@pytest.mark.parametrize("engine", ["native", "paper"])
def test_lexicons_have_the_forest_of_their_recipe(engine):
    recipe = pl.Recipe(200, 7, "distribution", seeds=3, engine=engine, min_cluster_size=10, dtype="float64")
    assert pl.Corpus(recipe, min_size=10).forest().equals(pl.generate(recipe).forest)


ONE = grow_forest([40], 0)


@pytest.mark.parametrize(
    ("lexicons", "options", "message"),
    [
        (pl.Recipe(500, 2, seeds=1), {}, r"in a context of at least min_size=32 tokens, got \d+ of 500 .*mode='one_cl"),
        (ONE, {"min_size": 41}, "got 40 of 40 tokens of lexicon 0 in smaller clusters: take a lower minimum, or"),
        ([ONE, grow_forest([41], 0)], {}, "lexicons must have the same number of tokens, got 40 and 41"),
        ([], {}, "lexicons must have at least one, got none"),
        ("one", {}, "lexicons must be recipes, forests or datasets, got 'one'"),
        (pl.Recipe(2**31, 2, "one_cluster"), {}, r"n_points must be at most 2\*\*31 - 1, got 2147483648"),
        (ONE, {"renewal": 0}, "renewal must be above 0 and at most 1, got 0"),
        (ONE, {"renewal": 1.5}, "renewal must be above 0 and at most 1, got 1.5"),
        (ONE, {"renewal": math.nan}, "renewal must be a finite number, got nan"),
        (ONE, {"renewal": 1e-300}, r"renewal must be at least 2\*\*-64"),
        (ONE, {"length": 1}, "length must be at least 2, got 1"),
        (ONE, {"length": 2**31}, r"length must be at most 2\*\*31 - 1, got 2147483648"),
        (ONE, {"min_size": 1}, "min_size must be at least 2, got 1"),
        (ONE, {"shares": [-1]}, "shares must be a number of at least 0, got -1"),
        ([ONE, ONE], {"shares": [0, 0]}, r"shares must have a finite sum above 0, got \[0, 0\]"),
        ([ONE, ONE], {"shares": [1e308, 1e308]}, r"shares must have a finite sum above 0, got \[1e\+308, 1e\+308\]"),
        ([ONE, ONE], {"shares": [1e-290, 1]}, r"shares must be 0 or at least 2\*\*-53 of their sum"),
        ([ONE, ONE], {"shares": [1, 2.0**-54]}, r"shares must be 0 or at least 2\*\*-53 of their sum"),
        ([ONE, ONE], {"shares": {0: 1, 1: 2}}, r"shares must be 2 numbers, one for each lexicon, got \{0: 1, 1: 2\}"),
        ([ONE, ONE], {"shares": [1]}, r"shares must be 2 numbers, one for each lexicon, got \[1\]"),
        (ONE, {"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_is_refused(lexicons, options, message):
    with pytest.raises(ValueError, match=message) as refusal:
        pl.Corpus(lexicons, **options)
    assert "\n" not in str(refusal.value)


def test_arguments_that_are_refused():
    corpus = small()
    for call, message in (
        (lambda: corpus.documents(5, 4), "hi must be at least 5, got 4"),
        (lambda: corpus.documents(0, 2**63), r"hi must be below 2\*\*63"),
        (lambda: corpus.beliefs([[40]]), "tokens must be between 0 and 39, got 40"),
        (lambda: corpus.beliefs([[0.5]]), "tokens must be integers, got float64"),
        (lambda: corpus.beliefs([[1, 2], [3]]), r"tokens must be documents of one length, got \[\[1, 2\], \[3\]\]"),
        (lambda: corpus.unigram.fill(0), "read-only"),
        (lambda: corpus.beliefs([1, 2]), r"tokens must have shape \(documents, positions\), got list \(2,\)"),
        (lambda: corpus.beliefs(corpus.documents(0, 2)), r"tokens must have .*, got Documents \(\)"),
        (lambda: corpus.prior(2), "k must be below 2, got 2"),
        (lambda: corpus.swapped(2), "k must be below 2, got 2"),
        (lambda: corpus.beliefs([[1]]).inside([39], 0), "latents must be between 0 and 38, got 39"),
        (lambda: corpus.beliefs([[1]]).inside([3], 2), "k must be below 2, got 2"),
        (lambda: pl.Corpus.from_dict({"kind": "superposed"}), "kind must be 'corpus', got 'superposed'"),
        (lambda: pl.Corpus.from_dict({"kind": "corpus", "size": 3}), "a corpus has no field 'size'"),
        (lambda: DocumentRange.from_dict({"kind": "documents", "x": 1}), "a document range has no field 'x'"),
        (
            lambda: pl.Corpus.from_dict({"kind": "corpus", "lexicons": 3}),
            "lexicons must be a list of recipes or forests",
        ),
        (
            lambda: pl.Corpus.from_dict({"kind": "corpus", "lexicons": [{"forest": {"bond": []}}]}),
            "forest must have the columns",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    twisted = json.loads(corpus.to_json())
    twisted["lexicons"][0]["forest"]["left_size"][0] = 99
    with pytest.raises(ValueError, match="left_size"):
        pl.Corpus.from_dict(twisted)


def test_no_state_of_numpy_is_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    small().documents(0, 10)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
