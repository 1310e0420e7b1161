"""Readers of documents and of points: against slow oracles, on planted activations, and what they refuse."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from obvious import rows_of  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402

import percolab as pl  # noqa: E402
from percolab.features.methods import Oracle  # noqa: E402
from percolab.ground import devices  # noqa: E402
from percolab.study import compare  # noqa: E402
from percolab.study.readers import as_reader  # noqa: E402
from percolab.study.sources import Raw  # noqa: E402
from percolab.study.subject import Positions, views  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def corpus():
    """Two lexicons of 256 tokens, with contexts of 8 tokens or more."""
    recipes = [pl.Recipe(256, 2, "one_cluster", seeds=seed) for seed in (1, 2)]
    return pl.Corpus(recipes, length=24, renewal=1 / 12, min_size=8, seed=3)


@pytest.fixture(scope="module")
def seen(corpus):
    return views(corpus, 300)


def knows(corpus, k, seed=0):
    """Return a network of one lexicon: a random linear map of what a perfect reader believes, and noise."""
    rng = np.random.default_rng(seed)
    contexts, alone = corpus.contexts(k), corpus.swapped(k)
    mix = rng.normal(size=(contexts.size, 20))

    def network(tokens):
        inside = alone.beliefs(tokens).inside(contexts, k)
        return (inside @ mix + 0.05 * rng.normal(size=(*tokens.shape, 20))).astype(np.float32)

    return network


def embeds(corpus, seed):
    """Return an untrained network: a random vector of each token."""
    table = np.random.default_rng(seed).normal(size=(corpus.n_tokens, 20)).astype(np.float32)
    return lambda tokens: table[tokens]


# ---------------------------------------------------------------------- the whole comparison


@pytest.mark.parametrize("reader", ["separation", "accuracy@since=4", "beliefs", "neurons@truth=true"])
def test_what_a_network_learns_of_its_lexicon_is_learned_because_it_matters(corpus, reader):
    networks = {
        "trained": {k: [knows(corpus, k, seed) for seed in (0, 1)] for k in range(2)},
        "untrained": [embeds(corpus, seed) for seed in (2, 3)],
        "raw": None,
    }
    found = compare(corpus, networks, reader, rows=200, device="cpu")
    table = found.contrasts.set_index("contrast")
    assert {"own - other", "trained - untrained", "trained - raw", "raw - permuted"} == set(table.index)
    assert ": learned, and because it matters." in found.verdict
    assert found.verdict.lower().startswith(f"{table['measure'].iloc[0]}")
    assert table.loc["raw - permuted", "value"] > 0  # a bag of tokens gives contexts away, in part


def test_a_module_is_read_at_every_position(corpus):
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding = torch.nn.Embedding(256, 8)

        def forward(self, tokens):
            return self.embedding(tokens)

    found = compare(corpus, {"untrained": [Tokens()], "raw": None}, layers=["embedding"], rows=60, device="cpu")
    assert set(found.table["role"]) == {"untrained", "raw", "permuted"}


# ---------------------------------------------------------------------- pairs of contexts


def obvious_pairs(view, asked):
    """Return, for each pair of sibling contexts, the test positions of both: by sets of rows, position by position."""
    corpus, k, documents = view.data, view.factor, view.documents
    sets, contexts = rows_of(corpus.forest(k)), corpus.contexts(k).tolist()
    above = {
        c: min((d for d in contexts if sets[d] > sets[c]), key=lambda d: len(sets[d]), default=None) for c in contexts
    }
    n, length = documents.tokens.shape
    held = {c: [] for c in contexts}
    for i in range(round(0.8 * n), n):
        age = 0
        for t in range(length):
            age = 0 if documents.renewed[i, t] else age + 1
            context = documents.context[i, t] if asked.truth == "true" else view.beliefs.believed[i, t]
            for c in contexts:
                if age >= asked.since and context >= 0 and sets[context] <= sets[c]:
                    held[c].append(i * length + t)
    pairs = [(a, b) for a in contexts for b in contexts if a < b and above[a] is not None and above[a] == above[b]]
    pairs.sort(key=lambda pair: above[pair[0]])
    return [(above[a], held[a], held[b]) for a, b in pairs if min(len(held[a]), len(held[b])) >= 20]


@pytest.mark.parametrize("options", [{}, {"truth": "true"}, {"since": 3}, {"truth": "true", "since": 5}])
def test_separation_is_of_contexts_with_the_same_one_above(seen, options):
    view, asked = seen[1], Positions(**options)
    A = np.random.default_rng(1).normal(size=(view.inputs.size, 6)) + view.beliefs.believed.reshape(-1, 1) / 100
    spec = "separation" + "".join(f"{'+' if i else '@'}{k}={v}" for i, (k, v) in enumerate(options.items()))
    [found] = as_reader(spec).read(view, torch.from_numpy(A), 0)
    obvious = obvious_pairs(view, asked)
    assert len(obvious) > 4
    assert found.units.number.tolist() == [above for above, _, _ in obvious]
    expected = [
        ((A[a].mean(0) - A[b].mean(0)) ** 2).sum() / (A[a].var(0).sum() + A[b].var(0).sum()) for _, a, b in obvious
    ]
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)


def test_accuracy_is_of_held_out_documents(seen):
    view = seen[0]
    n_train = view.train.size
    shown = view.labels().label[:, None] == view.data.contexts(0)
    A = np.random.default_rng(1).normal(size=(len(shown), 40)) * 0.1
    A[:, : shown.shape[1]] += shown
    [told] = as_reader("accuracy").read(view, torch.from_numpy(A), 0)
    assert np.nanmean(told.values) > 0.95
    A[n_train:, : shown.shape[1]] -= shown[n_train:]  # test documents show nothing
    [blind] = as_reader("accuracy").read(view, torch.from_numpy(A), 0)
    assert abs(np.nanmean(blind.values) - 0.5) < 0.05


# ---------------------------------------------------------------------- beliefs


def test_beliefs_are_read_where_they_are(seen):
    view = seen[0]
    rng = np.random.default_rng(0)
    inside = view.beliefs.inside(view.data.contexts(0)).reshape(view.inputs.size, -1)
    mixed = torch.from_numpy(inside @ rng.normal(size=(inside.shape[1], 30)))
    [found] = as_reader("beliefs").read(view, mixed, 0)
    enough = inside[view.test].sum(0) >= 20
    enough[0] = False  # the top holds every position
    assert found.units.number.tolist() == view.data.contexts(0)[enough].tolist()
    assert found.values.min() > 0.999
    [noise] = as_reader("beliefs").read(view, torch.from_numpy(rng.normal(size=(view.inputs.size, 30))), 0)
    assert np.abs(noise.values).max() < 0.1
    assert np.abs(np.median(noise.values)) < 0.02
    [late] = as_reader("beliefs@since=6").read(view, mixed, 0)
    assert late.values.min() > 0.999


def test_the_penalty_is_chosen_by_whole_documents(seen):
    """Activations that only say which document it is fit training documents and tell nothing about others."""
    view = seen[0]
    n, length = view.shape
    which = np.repeat(np.random.default_rng(0).normal(size=(n, 200)), length, axis=0)
    [found] = as_reader("beliefs").read(view, torch.from_numpy(which), 0)
    assert np.median(found.values) > -0.05


# ---------------------------------------------------------------------- features


def test_methods_learn_from_training_documents_and_are_scored_on_the_others(seen):
    view = seen[0]
    _, test = view.rows(Positions(since=2, truth="true"))
    oracle = Oracle(view.data, test, 0, documents=view.documents, truth="true")

    class Knows:
        def fit(self, values):
            self.fitted = len(values)
            return self

        def encode(self, values):
            return oracle.fit(values).encode(values)

    A = torch.zeros(view.inputs.size, 2)
    reader = as_reader(Knows())
    [found] = type(reader)("knows", reader.make, asked=Positions(since=2, truth="true")).read(view, A, 0)
    assert (found.values == 1).all()
    assert set(found.units.number) <= set(view.data.contexts(0))
    [other] = as_reader("neurons@about=token").read(view, A + 1, 0)
    assert other.measure == "f1"


# ---------------------------------------------------------------------- the raw input


def test_the_raw_input_is_read_in_blocks_and_permuted_by_document(seen, monkeypatch):
    view = seen[0]
    wanted = view.data.bag(view.inputs).reshape(view.inputs.size, -1)
    monkeypatch.setattr(devices, "BLOCK_NUMBERS", 7 * 24 * 256)
    read = Raw().read(view, ["raw"], CPU)["raw"]
    np.testing.assert_array_equal(read, wanted)
    moved = Raw(permuted=True).read(view, ["permuted"], CPU)["permuted"].numpy()
    blocks, expected = moved.reshape(300, -1), wanted.reshape(300, -1)
    assert not np.array_equal(blocks, expected)
    assert sorted(map(bytes, blocks)) == sorted(map(bytes, expected))


# ---------------------------------------------------------------------- probes of points


def test_a_probe_is_a_ridge_regression_by_depth_on_the_split():
    n = 4000
    dataset = pl.generate(pl.Recipe(n, 6, "one_cluster", seeds=3))
    view = views(dataset)[0]
    A = np.random.default_rng(0).normal(size=(n, 5)) + 3
    A[:, 0] += dataset.latent_z[dataset.forest.latent_at_depth(5)] * (dataset.forest.latent_at_depth(5) >= 0)
    [found] = as_reader("probe").read(view, torch.from_numpy(A), 0)
    assert found.measure == "error"
    least, checked = -(-20 * n // view.test.size), 0
    for depth in range(0, 201, 5):
        at = dataset.forest.latent_at_depth(depth)
        large = [latent for latent in np.unique(at[at >= 0]) if (at == latent).sum() >= least]
        if len(large) < 2:
            continue
        train, test = (rows[np.isin(at[rows], large)] for rows in (view.train, view.test))
        scale = A[train].std(0) + 1e-6
        model = Ridge(alpha=1.0).fit(A[train] / scale, dataset.latent_z[at[train]])
        error = (model.predict(A[test] / scale) - dataset.latent_z[at[test]]) ** 2
        for latent in large:
            unit = found.values[found.units.number == latent]
            np.testing.assert_allclose(unit, error[at[test] == latent].mean(), rtol=1e-4, atol=1e-9)
            checked += 1
    assert checked == found.values.size >= 4


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        ("separation@since=40", "since must leave positions to fit and positions to score, got 40"),
        ("separation@since=-1", "since must be at least 0, got -1"),
        ("separation@truth=felt", "truth must be one of believed, true, got 'felt'"),
        ("kmeans@about=words", "about must be one of context, token, got 'words'"),
        ("separation@depth=3", "readers must be names"),
        ("beliefs@truth=true", "truth and about must be left out for beliefs"),
        ("probe", "probe must read points, got documents"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(corpus, reader, words):
    with pytest.raises(ValueError, match=words) as told:
        compare(corpus, {"untrained": [embeds(corpus, 0)]}, reader, rows=20, device="cpu")
    assert "\n" not in str(told.value)


def test_points_have_no_positions_and_no_beliefs():
    dataset = pl.generate(pl.Recipe(500, 4, "one_cluster", seeds=1))
    for reader, words in (
        ("beliefs", "beliefs must be read in documents"),
        ("separation@since=2", "left out for points"),
    ):
        with pytest.raises(ValueError, match=words):
            compare(dataset, {"raw": None}, reader, device="cpu")


def test_the_number_of_documents_is_any_integer(corpus):
    assert views(corpus, np.int64(3))[0].shape == (3, 24)
    for rows, words in ((1, "at least 2, got 1"), (True, "an integer, got True"), ("all", "an integer, got 'all'")):
        with pytest.raises(ValueError, match=f"^rows must be {words}$"):
            views(corpus, rows)


def test_an_array_cannot_stand_for_documents_of_several_lexicons(corpus):
    with pytest.raises(ValueError, match="must be a module or a function for a corpus of several lexicons"):
        compare(corpus, {"untrained": [np.ones((20, 24, 3))]}, rows=20, device="cpu")
