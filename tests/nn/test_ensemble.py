"""Several networks at once: each is its own single run; seeds apart, own targets, kept epochs, labels, resuming."""

import dataclasses
import json
import os
import signal

import numpy as np
import pandas
import pytest
import torch

import percolab as pl
from percolab.nn import CorpusTrainConfig, LabelScore, ResidualMLP, TrainConfig, load_model, train
from percolab.nn.networks.model import member_weights, stack
from percolab.nn.networks.objective import label_score
from percolab.nn.training import run

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

TINY = TrainConfig(d_model=16, n_blocks=2, epochs=4, batch_size=64, lr=3e-3)


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(pl.Recipe(300, 8, "one_cluster", seeds=3, engine="paper"))


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def close(model, other):
    return torch.allclose(weights(model), weights(other), atol=1e-5)


def test_a_stack_computes_what_its_members_compute():
    members = [ResidualMLP(5, 8, 2, seed=seed) for seed in range(3)]
    x = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    stacked = stack(members)
    assert torch.allclose(stacked(x), torch.stack([m(x[i]) for i, m in enumerate(members)]), atol=1e-6)
    stacked(x).square().sum().backward()
    for i, one in enumerate(members):
        one(x[i]).square().sum().backward()
        gradients = member_weights({name: p.grad for name, p in stacked.named_parameters()}, i)
        for name, p in one.named_parameters():
            assert torch.allclose(gradients[name], p.grad, rtol=1e-4, atol=1e-5)
            assert torch.equal(member_weights(stacked.state_dict(), i)[name], p)
            assert stacked.get_parameter(name).grad.stride() == stacked.get_parameter(name).stride()


def test_each_member_is_its_own_single_run(dataset):
    configs = TINY.with_seeds([1, 2, 3])
    together = train(dataset, TINY, seeds=[1, 2, 3], device="cpu")
    assert [result.config for result in together] == configs
    for config, result in zip(configs, together, strict=True):
        alone = train(dataset, config, device="cpu")
        assert close(alone.model, result.model)
        assert np.allclose(alone.history, result.history, rtol=1e-4)
        assert result.test.r2 == pytest.approx(alone.test.r2, abs=1e-4)
        assert np.array_equal(alone.split.test, result.split.test)
    assert not close(together[0].model, together[1].model)


def test_seeds_are_apart(dataset):
    same = dataclasses.replace(TINY, seed=5, epochs=1)
    base = train(dataset, same, keep=[0], device="cpu")
    for name in ("split_seed", "weight_seed", "order_seed"):
        other = train(dataset, dataclasses.replace(same, **{name: 6}), keep=[0], device="cpu")
        assert np.array_equal(base.split.train, other.split.train) == (name != "split_seed")
        assert close(base.model_at(0), other.model_at(0)) == (name != "weight_seed")
        assert not close(base.model, other.model)
    explicit = dataclasses.replace(same, seed=9, split_seed=5, weight_seed=5, order_seed=5)
    assert torch.equal(weights(train(dataset, explicit, device="cpu").model), weights(base.model))


def test_members_with_their_own_splits(dataset):
    configs = [dataclasses.replace(TINY, epochs=2, split_seed=seed) for seed in (1, 2)]
    for config, result in zip(configs, train(dataset, configs, device="cpu"), strict=True):
        alone = train(dataset, config, device="cpu")
        assert close(alone.model, result.model)
        assert result.test.mse == pytest.approx(alone.test.mse, rel=1e-4)


def test_members_with_their_own_targets(dataset):
    targets = np.stack([dataset.y, -2 * dataset.y])
    both = train(dataset, [TINY, TINY], targets=targets, device="cpu")
    assert close(both[0].model, train(dataset, TINY, device="cpu").model)
    other = dataset.with_target(targets[1])
    assert close(both[1].model, train(other, TINY, device="cpu").model)
    assert both[1].validation.mse == pytest.approx(train(other, TINY, device="cpu").validation.mse, rel=1e-4)


def test_a_superposed_world_and_its_swap():
    recipes = [pl.Recipe(200, 6, "one_cluster", seeds=s) for s in (1, 2)]
    world = pl.superpose(recipes, seed=0)
    swapped = [world.swapped(k) for k in range(2)]
    both = train(world, [TINY, TINY], targets=np.stack([w.y for w in swapped]), device="cpu")
    for alone, result in zip(swapped, both, strict=True):
        assert close(train(alone, TINY, device="cpu").model, result.model)


def test_weights_of_epochs_are_kept(dataset, tmp_path):
    results = train(dataset, TINY, seeds=[1, 2], keep=[0, 2, 4], run_dir=tmp_path, device="cpu")
    for seed, result in zip((1, 2), results, strict=True):
        assert sorted(result.kept) == [0, 2, 4]
        assert torch.equal(weights(result.model_at(0)), weights(ResidualMLP(8, 16, 2, seed=seed)))
        assert torch.equal(weights(result.model_at(4)), weights(result.model))
        assert not close(result.model_at(2), result.model)
    with pytest.raises(ValueError, match=r"epoch must be one that was kept \(\[0, 2, 4\]\), got 3"):
        results[0].model_at(3)


def test_an_interrupted_ensemble_goes_on_where_it_was(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    whole = train(dataset, TINY, seeds=[1, 2], keep=[1, 3], device="cpu")

    def press(epoch, epochs, loss, r2):
        if epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted):
        train(dataset, TINY, seeds=[1, 2], keep=[1, 3], run_dir=tmp_path, device="cpu", progress=press)
    rest = train(dataset, TINY, seeds=[1, 2], keep=[1, 3], run_dir=tmp_path, resume=True, device="cpu")
    for one, other in zip(whole, rest, strict=True):
        assert torch.equal(weights(one.model), weights(other.model))
        assert one.history.equals(other.history)
        assert all(torch.equal(one.kept[e][k], other.kept[e][k]) for e in one.kept for k in one.kept[e])
    table = pandas.read_csv(tmp_path / "metrics.csv")
    assert table["member"].tolist() == [0] * 4 + [1] * 4
    assert len(json.loads((tmp_path / "config.json").read_text())["configs"]) == 2
    assert torch.equal(weights(load_model(tmp_path, dataset, member=1, device="cpu")), weights(whole[1].model))
    with pytest.raises(ValueError, match=r"member must be from 0 to 1, got 2"):
        load_model(tmp_path, dataset, member=2)
    with pytest.raises(ValueError, match=r"checkpoint must have 3 members, got 2"):
        train(dataset, TINY, seeds=[1, 2, 3], run_dir=tmp_path, resume=True, device="cpu")
    other = pl.split_rows(dataset, 1)
    with pytest.raises(ValueError, match=r"checkpoint must be of a run with the same targets and split, got others"):
        train(dataset, TINY, seeds=[1, 2], split=other, run_dir=tmp_path, resume=True, device="cpu")


def test_a_given_split_is_used(dataset):
    split = pl.split_rows(dataset, 1, by="subtree", max_size=30)
    result = train(dataset, TINY, split=split, device="cpu")
    assert result.split is split
    predicted = result.model(torch.from_numpy(np.float32(dataset.X[split.test]))).detach().numpy()
    assert result.test.mse == pytest.approx(float(np.mean((predicted - dataset.y[split.test]) ** 2)), rel=1e-4)


# ---------------------------------------------------------------------- networks of one's own


class Own(torch.nn.Module):
    """A network that cannot be stacked: its norm looks along a row, its output is a column, one weight is bare."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1)
        self.gain = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))) * self.gain)


def test_several_networks_of_ones_own_are_their_single_runs(dataset, tmp_path, monkeypatch):
    alone = [train(dataset, config, model=Own, device="cpu") for config in TINY.with_seeds([1, 2])]
    together = train(dataset, TINY, seeds=[1, 2], model=Own, keep=[0], device="cpu")
    listed = train(dataset, TINY, seeds=[1, 2], model=[Own(1), Own(2)], device="cpu")
    for i, one in enumerate(alone):
        assert close(one.model, together[i].model)
        assert close(one.model, listed[i].model)
        assert np.allclose(one.history, together[i].history, rtol=1e-4)
        assert torch.equal(weights(together[i].model_at(0)), weights(Own(i + 1)))
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)

    def press(epoch, epochs, loss, r2):
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    options = {"seeds": [1, 2], "model": Own, "run_dir": tmp_path, "device": "cpu"}
    with pytest.raises(run.TrainingInterrupted):
        train(dataset, TINY, **options, progress=press)
    for one, rest in zip(together, train(dataset, TINY, **options, resume=True), strict=True):
        assert torch.equal(weights(one.model), weights(rest.model))
    with pytest.raises(ValueError, match=r"checkpoint must have the weights of 2 networks"):
        load_model(tmp_path, dataset)  # which makes the paper's network, and this is none


def test_the_older_name_still_works(dataset):
    with pytest.warns(DeprecationWarning, match=r"percolab.nn.train_ensemble is now percolab.nn.train"):
        first, _ = pl.nn.train_ensemble(dataset, TINY.with_seeds([1, 2]), device="cpu")
    assert close(first.model, train(dataset, TINY.with_seeds([1])[0], device="cpu").model)


# ---------------------------------------------------------------------- labels


def test_labels_are_trained_for_by_cross_entropy(dataset, tmp_path):
    labelled = dataset.with_target("classes", max_size=60)
    config = dataclasses.replace(TINY, epochs=30)
    first, _ = train(labelled, config, seeds=[1, 2], run_dir=tmp_path, device="cpu")
    assert isinstance(first.test, LabelScore)
    assert list(first.history.columns[2:]) == ["train_loss", "validation_loss", "validation_accuracy"]
    common = np.bincount(labelled.y[first.split.test]).max() / first.split.test.size
    assert first.test.accuracy > common + 0.1
    logits = first.model(torch.from_numpy(np.float32(dataset.X[first.split.validation]))).detach()
    target = torch.from_numpy(labelled.y[first.split.validation])
    assert first.validation.log_loss == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, target)), rel=1e-4
    )
    assert first.history["validation_loss"].iloc[-1] == pytest.approx(first.validation.log_loss, rel=1e-4)
    assert first.history["validation_accuracy"].iloc[-1] == pytest.approx(first.validation.accuracy)
    again = load_model(tmp_path, labelled, member=0, device="cpu")
    assert torch.equal(weights(again), weights(first.model))


def test_score_of_labels_by_hand():
    probability = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    found = label_score([0, 1, 0], np.log(probability))
    assert found.accuracy == 2 / 3  # the tie of the last row goes to class 0
    assert found.log_loss == pytest.approx(-np.log([0.5, 0.2, 0.4]).mean())


# ---------------------------------------------------------------------- bad input


def test_bad_members(dataset):
    with pytest.raises(ValueError, match=r"configs must have a member, got none"):
        train(dataset, TINY, seeds=[], device="cpu")
    with pytest.raises(ValueError, match=r"configs must differ in nothing but seeds, got lr 0.1 in member 1"):
        train(dataset, [TINY, dataclasses.replace(TINY, lr=0.1)], device="cpu")
    with pytest.raises(ValueError, match=r"targets must be a row for each member, \(2, 300\), got shape \(300,\)"):
        train(dataset, [TINY, TINY], targets=dataset.y, device="cpu")
    rule = "model must be 2 different networks, or a function that makes one from a seed, got"
    one = torch.nn.Linear(8, 1)
    for given in (one, [one], [one, one], lambda seed: one):
        with pytest.raises(ValueError, match=rf"{rule} 1"):
            train(dataset, TINY, seeds=[1, 2], model=given, device="cpu")
    with pytest.raises(ValueError, match=r"model must be a torch module, or a function that makes one, got int"):
        train(dataset, TINY, model=lambda seed: seed, device="cpu")
    with pytest.raises(ValueError, match=r"seeds must be left out where there is a configuration for each network"):
        train(dataset, [TINY], seeds=[1], device="cpu")
    with pytest.raises(ValueError, match=r"seeds must be a list, with one for each network, got 3: write range\(3\)"):
        train(dataset, TINY, seeds=3, device="cpu")
    with pytest.raises(ValueError, match=r"config must be a TrainConfig, or a CorpusTrainConfig, got a dict"):
        train(dataset, {"epochs": 2}, seeds=[1], device="cpu")
    with pytest.raises(ValueError, match=r"config must be a TrainConfig for a dataset, got a CorpusTrainConfig"):
        train(dataset, CorpusTrainConfig(), device="cpu")
    with pytest.raises(ValueError, match=r"compiled must be left out for a dataset, .*, got True"):
        train(dataset, TINY, compiled=True, device="cpu")
    with pytest.raises(ValueError, match=r"keep must be epochs from 0 to 4, got 5"):
        train(dataset, TINY, keep=[5], device="cpu")
    with pytest.raises(ValueError, match=r"weight_seed must be .*, got -1"):
        TrainConfig(weight_seed=-1)
    with pytest.raises(ValueError, match=r"y must be one number or label per row, \(300,\), got shape \(300, 4\)"):
        train(dataset.with_target("path_tokens"), TINY, device="cpu")
    with pytest.raises(ValueError, match=r"labels must not be negative, got -1"):
        train(dataset, [TINY], targets=np.full((1, 300), -1), device="cpu")
    with pytest.raises(ValueError, match=r"model must give 2 numbers per point, one per class, got 1"):
        train(dataset.with_target("sign"), TINY, model=ResidualMLP(8, 4, 1), device="cpu")
    with pytest.raises(ValueError, match=r"split must have validation rows, got none"):
        train(dataset, TINY, split=pl.split_rows(dataset, fractions=(0.5, 0, 0.5)), device="cpu")
