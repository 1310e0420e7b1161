"""What two networks do not share, on networks built by hand: exact beliefs about lexicons that each knows, turned."""

import numpy as np
import pytest
from obvious import grow_forest
from sameness import refused

torch = pytest.importorskip("torch")

import percolab as pl  # noqa: E402
from percolab.study.crosscoder import BOTH, FIRST, LEAST_ROWS, SECOND, shares, side_by_side  # noqa: E402

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

PAIRS = {"swap": ({0}, {1}), "tuned": ({0}, {0, 1}), "back": ({0, 1}, {0}), "reseeded": ({0}, {0})}


@pytest.fixture(scope="module")
def corpus():
    return pl.Corpus([grow_forest([128], seed, "even") for seed in (3, 4)], length=16, min_size=16, seed=1)


def network(corpus, lexicons, seed):
    """Return a function that gives the beliefs about some lexicons, in a basis of its own."""

    def beliefs(tokens):
        exact = corpus.beliefs(tokens)
        inside = np.concatenate([exact.inside(corpus.contexts(k), k) for k in sorted(lexicons)], 2)
        return inside @ np.linalg.qr(np.random.default_rng(seed).standard_normal((inside.shape[2],) * 2))[0]

    return beliefs


def pair(corpus, name, method="kmeans@n_features=48"):
    known = PAIRS[name]
    return pl.diff(
        *(network(corpus, lexicons, seed) for seed, lexicons in enumerate(known)),
        corpus, trained_on=known, documents=400, method=method, device="cpu",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "owners"), [("swap", (FIRST, SECOND)), ("tuned", (BOTH, SECOND)), ("back", (BOTH, FIRST))]
)
def test_the_owner_of_a_concept_is_found(corpus, name, owners):
    found = pair(corpus, name)
    assert [*found.matched.groupby("lexicon")["owner"].first()] == [*owners]
    assert found.matched["lexicon"].nunique() == 2
    assert found.auc > 0.99


def test_networks_that_know_the_same_share_everything(corpus):
    found = pair(corpus, "reseeded")
    np.testing.assert_allclose(found.matched["share"], 0.5, atol=0.01)
    assert found.misattributed == 0
    assert np.isnan(found.auc)
    assert set(found.concepts["lexicon"]) == {0}


@pytest.mark.sae
@pytest.mark.parametrize("name", ["swap", "tuned", "reseeded"])
def test_a_crosscoder_of_saelens_tells_owners(corpus, name):
    found = pair(corpus, name, "topk@n_features=96+k=4+steps=300+batch_size=512")
    assert len(found.matched) >= 10
    means = found.matched.groupby("owner")["share"].mean()
    assert found.auc > 0.95 if name != "reseeded" else np.isnan(found.auc)
    assert np.abs(means.get(BOTH, 0.5) - 0.5) < 0.15
    assert means.get(SECOND, 1) > 0.65
    assert means.get(FIRST, 0) < 0.35


def test_shares_are_norms_of_halves_of_scaled_activations():
    directions = np.array([[3.0, 0, 0], [0, 0, 2], [0, 4, 3], [0, 0, 0]])
    np.testing.assert_allclose(shares(directions, 2), [0, 1, 3 / 7, 0])
    rng = np.random.default_rng(0)
    values = [torch.from_numpy(rng.normal(5, scale, (250, width))) for scale, width in ((3, 2), (0.01, 1))]
    fitted = side_by_side(values, 200)[:200].numpy()
    for half in (fitted[:, :2], fitted[:, 2:]):
        np.testing.assert_allclose(half.mean(0), 0, atol=1e-12)
        np.testing.assert_allclose((half**2).sum(1).mean(), 1)


def test_two_networks_without_a_truth_list_where_one_sided_features_fire():
    rng = np.random.default_rng(1)
    common, only = np.arange(480) % 4, np.arange(480) // 4 % 3  # all combinations equally often
    first = np.eye(4)[common] + 0.01 * rng.standard_normal((480, 4))
    second = np.concatenate([0.1 * np.eye(4)[common], np.eye(3)[only]], 1) + 0.01 * rng.standard_normal((480, 7))
    found = pl.diff(first, second, method="pca@n_components=5", device="cpu")
    assert found.concepts is None
    top = found.one_sided(4)
    assert (top["share"] > 0.95).all()
    assert (top["fired"] >= LEAST_ROWS).all()
    places = found.firing(int(top["feature"].iloc[0]), 10)
    assert places["row"].between(384, 479).all()
    assert len(set(only[places["row"]])) == 1  # of the second network's own variable
    assert places["activation"].is_monotonic_decreasing
    with refused("concepts must be known to be matched: give a corpus, and trained_on"):
        _ = found.auc


def test_a_page_is_written_and_tables_agree(corpus, tmp_path):
    found = pair(corpus, "tuned")
    found.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "most one-sided" in page
    assert f"document {found.firing(int(found.one_sided(1)['feature'].iloc[0]), 1)['document'][0]}" in page
    codes = found.codes.toarray()
    assert np.array_equal(found.features["fired"], (codes > 0).sum(0))
    row = found.firing(3, 1).iloc[0]
    tokens = corpus.documents(int(row["document"]), int(row["document"]) + 1).tokens
    assert tokens[0, int(row["position"])] == row["token"]
    with pytest.raises(FileExistsError):
        found.save(tmp_path / "page.html")


def test_what_is_refused(corpus):
    one = network(corpus, {0}, 0)
    with refused("data must be a corpus or inputs unless activations are given, got None"):
        pl.diff(one, one)
    with refused("trained_on must be the lexicons of two networks, with a corpus as data"):
        pl.diff(one, one, corpus, trained_on=[{0}], documents=10)
    with refused("trained_on must be lexicons below 2, got 5"):
        pl.diff(one, one, corpus, trained_on=[{0}, {5}], documents=40, method="kmeans@n_features=4")
    with refused("layer must be a name, or two, got 3"):
        pl.diff(one, one, corpus, layer=["a", "b", "c"], documents=10)
    with refused("activations must give (rows, width) for 10 inputs, got (9, 2)"):
        pl.diff(np.zeros((10, 2)), np.zeros((9, 2)), method="kmeans@n_features=2")


def test_a_method_that_is_not_installed_is_said_before_networks_are_read(corpus, monkeypatch):
    def never(tokens):
        raise AssertionError("the network was read")

    monkeypatch.setattr("percolab.features.register.has_sae_lens", lambda: False)
    with pytest.raises(ImportError, match=r"topk needs SAELens: pip install"):
        pl.diff(never, never, corpus, documents=10, device="cpu")
