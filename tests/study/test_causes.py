"""Causal readers, on networks built by hand: one that is the exact filter, with its beliefs in a layer; and others."""

import numpy as np
import pytest
from obvious import grow_forest
from sameness import refused

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import percolab as pl  # noqa: E402
from percolab.study import causes, compare  # noqa: E402
from percolab.study.causes import Ablation, Interchange, Steering  # noqa: E402
from percolab.study.readers import as_reader, listed_readers  # noqa: E402
from percolab.study.subject import views  # noqa: E402

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Few documents, and few steps of learned subspaces."""
    monkeypatch.setattr(causes, "DOCUMENTS", 24)
    monkeypatch.setattr(causes, "STEPS", 25)
    monkeypatch.setattr(causes, "RATE", 0.1)


@pytest.fixture(scope="module")
def corpus():
    return pl.Corpus(grow_forest([128], 3, "even"), length=16, min_size=16, seed=1)


@pytest.fixture(scope="module")
def view(corpus):
    (view,) = views(corpus, 200)
    return view


class Exact(nn.Module):
    """The exact filter: `belief` gives the probability of each context, `rest` predicts from it.

    `turn` rotates the layer, so that no axis is special; `uses` says whether predictions come from the layer.
    """

    def __init__(self, corpus, uses=True):
        super().__init__()
        self.corpus, self.uses, self.belief = corpus, uses, nn.Identity()
        contexts, forest, ids = corpus.contexts(), corpus.forest(), corpus.token_ids()
        above = forest.nearest_above(contexts)
        below = torch.tensor(np.equal.outer(contexts, above), dtype=torch.float64)
        self.own = torch.eye(contexts.size, dtype=torch.float64) - below  # from nested beliefs to those of a context
        emission = np.zeros((contexts.size, corpus.n_tokens))
        for row, context in zip(emission, contexts.tolist(), strict=True):
            row[ids[forest.points_of(context)]] = 1 / forest.latent_size[context]
        self.emission, self.prior = torch.from_numpy(emission), torch.from_numpy(corpus.prior())
        turn = np.random.default_rng(0).standard_normal((contexts.size, contexts.size))
        self.turn = torch.from_numpy(np.linalg.qr(turn)[0])

    def forward(self, tokens):
        inside = self.corpus.beliefs(tokens.numpy(), threads=1).inside(self.corpus.contexts())
        belief = torch.from_numpy(inside) @ self.own.T
        held = self.belief(belief @ self.turn) @ self.turn.T
        belief = held if self.uses else belief
        ahead = (1 - self.corpus.renewal) * belief + self.corpus.renewal * self.prior
        return (ahead @ self.emission).clamp(min=1e-12).log()


def readings(reader, view, model, layer="belief"):
    return {reading.measure: reading for reading in reader.read_network(view, model, layer, 0)}


def test_the_hand_built_network_is_exact(corpus, view):
    tokens = view.documents.tokens[:5]
    logits = Exact(corpus)(torch.from_numpy(tokens))
    np.testing.assert_allclose(logits.exp(), corpus.predict(tokens, every=True), rtol=1e-9)


def test_swaps_are_documents_with_either_context(corpus, view):
    pairs, units = causes.sibling_contexts(view)
    forest, above = (
        corpus.forest(),
        dict(zip(corpus.contexts(), corpus.forest().nearest_above(corpus.contexts()), strict=True)),
    )
    assert len(pairs) >= 3
    assert np.array_equal(units.place, pairs[:, 0])
    for one, other in pairs:
        assert above[one] == above[other]
        assert forest.points_of(one).stop <= forest.points_of(other).start
    swapped = causes.swap(view, view.test, pairs[0], torch.device("cpu"))
    half, first = len(swapped.base) // 2, swapped.first
    for i, context in enumerate(pairs[0]):
        own = slice(i * half, (i + 1) * half)
        assert np.isin(swapped.base[own, first:], corpus.token_ids()[forest.points_of(context)]).all()
        assert (swapped.sign[own] == (1, -1)[i]).all()
    assert torch.equal(swapped.base[:half], swapped.source[half:])
    assert torch.equal(swapped.base[:, :first], swapped.source[:, :first])
    np.testing.assert_array_equal(swapped.exact, corpus.predict(swapped.base.numpy()))
    np.testing.assert_array_equal(swapped.exact_source, corpus.predict(swapped.source.numpy()))


def test_patching_what_a_network_uses_carries_the_counterfactual(corpus, view):
    found = readings(Interchange(along=["kmeans@n_features=16"]), view, Exact(corpus))
    mean = {name: float(reading.values.mean()) for name, reading in found.items()}
    np.testing.assert_allclose(found["whole"].values, 1, atol=1e-9)
    assert mean["sibling"] > 0.5
    assert mean["learned"] > mean["sibling"] - 0.02
    assert mean["kmeans@n_features=16"] > 0.3
    assert mean["random"] < 0.2


def test_a_fitted_method_is_tried_as_the_reader_tries_it(corpus, view):
    pytest.importorskip("sklearn")
    model, name = Exact(corpus), "kmeans@n_features=16"
    found = readings(Interchange(subspaces=["random"], along=[name]), view, model)
    (method,) = causes._fit_methods([name], view, model, "belief", 0).values()
    assert causes.bridged(view, model, "belief", method, 0) == pytest.approx(
        (found[name].values.mean(), found["random"].values.mean())
    )


class OfTensors:
    """A method that takes tensors alone, since it has a device: single units of the layer."""

    def __init__(self, device="cpu"):
        self.bias = None

    def fit(self, activations):
        self.directions = torch.eye(activations.shape[1]).numpy()

    def encode(self, activations):
        return activations.clamp(min=0)


def test_methods_with_a_device_are_given_tensors(corpus, view):
    model = Exact(corpus)
    (method,) = causes._fit_methods([f"{__name__}:OfTensors"], view, model, "belief", 0).values()
    along, _ = causes.bridged(view, model, "belief", method, 0)
    assert np.isfinite(along)


def test_patching_what_a_network_holds_and_does_not_use_carries_nothing(corpus, view):
    model = Exact(corpus, uses=False)
    for reading in readings(Interchange(subspaces=["sibling", "probe", "random", "whole"]), view, model).values():
        assert not reading.values.any()
    for name, reading in readings(Steering(), view, model).items():
        assert not reading.values.any() or name == "leakage"
    for reading in readings(Ablation(), view, model).values():
        assert not np.nan_to_num(reading.values).any()


def test_steering_moves_an_exact_network_as_the_truth_does(corpus, view):
    found = readings(Steering(), view, Exact(corpus))
    slope, random, another, _ = (found[name].values for name in found)
    assert slope.mean() > 0.4
    assert np.abs(random).mean() < 0.5 * slope.mean()
    assert np.abs(another).mean() < 0.5 * slope.mean()


def test_steering_along_features_moves_as_far_as_the_features_hold_the_difference(corpus, view):
    reader = as_reader("steering@along=kmeans@n_features=16,pca@n_components=3")
    found = readings(reader, view, Exact(corpus))
    slope = found["slope"].values
    assert found["slope along kmeans@n_features=16"].values.mean() > 0.4 * slope.mean()
    assert np.abs(found["slope along pca@n_components=3"].values).mean() < slope.mean()
    plain = readings(Steering(), view, Exact(corpus))
    for name, reading in plain.items():  # features beside them change nothing
        np.testing.assert_array_equal(reading.values, found[name].values)
    unused = readings(as_reader("steering@along=kmeans@n_features=16"), view, Exact(corpus, uses=False))
    assert not unused["slope along kmeans@n_features=16"].values.any()


def test_a_list_of_readers_keeps_methods_with_their_reader():
    asked = ["kmeans", "steering@along=pca,topk@k=8", "ablation", "interchange@along=kmeans"]
    assert listed_readers(",".join(asked)) == asked


@pytest.mark.sae
def test_features_of_an_autoencoder_carry_the_counterfactual(corpus, view):
    spec = "topk@n_features=64+k=4+steps=200+batch_size=256"
    found = readings(as_reader(f"interchange@along={spec}"), view, Exact(corpus))
    assert found[spec].values.mean() > found["random"].values.mean() + 0.2
    steered = readings(as_reader(f"steering@along={spec}"), view, Exact(corpus))
    assert steered[f"slope along {spec}"].values.mean() > 0.3 * steered["slope"].values.mean()


def test_ablation_hurts_where_the_concept_is(corpus, view):
    found = readings(Ablation(), view, Exact(corpus))
    rise, random = (found[name].values for name in ("rise", "rise of a random direction"))
    known = ~np.isnan(rise)
    assert known.sum() >= 5
    assert (rise[known] > 0).mean() > 0.8
    assert np.median(rise[known]) > 3 * abs(np.median(random[known]))


def transformer(corpus, seed):
    return pl.nn.Transformer(corpus.n_tokens, corpus.length, 16, 2, 2, seed=seed)


def test_causal_readers_are_compared_as_others_are(corpus):
    networks = {"trained": [Exact(corpus), Exact(corpus)], "untrained": [Exact(corpus, False), Exact(corpus, False)]}
    asked = [Interchange(subspaces=["sibling", "random"]), "steering"]
    found = compare(corpus, networks, asked, layers=["belief"], rows=200, device="cpu")  # the filter computes there
    assert set(found.table["reader"]) == {"interchange", "steering"}
    assert found.contrasts.iloc[0]["measure"] == "sibling"
    assert found.contrasts.iloc[0]["low"] > 0.2
    assert "more in trained networks" in found.verdict


def test_a_network_is_left_as_it_was(corpus, view, monkeypatch):
    monkeypatch.setattr(causes, "STEPS", 2)
    model = transformer(corpus, 0).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for reader in (Interchange(), Steering(), Ablation()):
        readings(reader, view, model, "blocks.0")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_what_is_refused(corpus):
    with refused("truth, about and since of readers must be left out of causal readers, got 'steering@since=2'"):
        compare(corpus, {"trained": Exact(corpus)}, "steering@since=2", layers=["belief"], rows=20)
    with refused("along must be an option of interchange or steering, got 'ablation@along=kmeans'"):
        as_reader("ablation@along=kmeans")
    points = pl.generate(pl.Recipe(500, 4, "one_cluster", seeds=1))
    with refused("readers must not have 'steering' for points: it reads networks of documents"):
        compare(points, {"trained": nn.Sequential(nn.Linear(4, 1))}, "steering", layers=["0"])
