"""Scaling: exponents of planted power laws, nearest rows with ties, and the experiment with its command."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import percolab as pl
from percolab import intervals
from percolab.cli import main
from percolab.experiments import runs, scaling
from percolab.nn import ResidualMLP, Split, TrainConfig, train
from percolab.study import material

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores


def planted(rng, slope, seeds=4, rows=200):
    """Return squared errors whose mean is n^slope, with kin that are alike and seeds that differ."""
    n = 100.0 * 2 ** np.arange(6)
    blocks = intervals.kin(np.arange(rows))
    level = np.exp(rng.normal(0, 0.2, intervals.BLOCKS))[blocks] * np.exp(rng.normal(0, 0.05, (seeds, 6, 1)))
    return n, n[:, None] ** slope * level * rng.chisquare(1, (seeds, 6, rows)), blocks


@pytest.mark.parametrize("slope", [-0.5, 0.0])
def test_the_exponent_of_a_power_law_is_in_its_interval(slope):
    found = [scaling.exponent(*planted(np.random.default_rng((3, i)), slope)) for i in range(150)]
    missed = np.mean([not estimate.low <= slope <= estimate.high for estimate in found])
    assert missed <= 0.1  # more than 15 of 150 with probability 0.005
    if slope:
        assert all(estimate.high < 0 for estimate in found)


@pytest.mark.parametrize("beyond", [-0.8, 0.0])
def test_a_bend_is_in_its_interval(beyond):
    found = []
    for i in range(100):
        n, errors, blocks = planted(np.random.default_rng((5, i)), -0.4)
        law = np.where(n < n[3], 1.0, (n / n[3]) ** beyond)  # halves are three numbers each
        found.append(scaling.bend(n, errors * law[:, None], blocks))
    missed = np.mean([not estimate.low <= beyond <= estimate.high for estimate in found])
    assert missed <= 0.12  # more than 12 of 100 with probability 0.002
    if beyond:
        assert np.mean([estimate.high < 0 for estimate in found]) > 0.9


def test_a_ratio_of_errors_on_the_same_rows_is_in_its_interval_which_knows_that_they_are_the_same():
    missed, widths = [], []
    for i in range(100):
        rng = np.random.default_rng((4, i))
        _, errors, blocks = planted(rng, 0.0)
        others = errors[:, 0] * np.exp(0.3 + rng.normal(0, 0.05, errors[:, 0].shape))
        found = scaling.log_ratio(errors[:, 0], others, blocks)
        missed.append(not found.low <= -0.3 - 0.05**2 / 2 <= found.high)
        widths.append(found.high - found.low)
    assert np.mean(missed) <= 0.12  # more than 12 of 100 with probability 0.002
    assert np.median(widths) < 0.1


def test_nearest_rows_that_tie_all_count():
    X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, -1.0], [5.0, 5.0], [5.0, 6.0], [9.0, 9.0]])
    y = np.array([1.0, 2.0, 4.0, 0.0, 7.0, 0.0])
    found = scaling.nearest_errors(X, y, np.array([1, 2, 4]), np.array([0, 3]))
    assert found == pytest.approx([((2 - 1) ** 2 + (4 - 1) ** 2) / 2, 49])
    assert np.allclose(found, scaling.nearest_errors(X, y, np.array([1, 2, 4]), np.array([0, 3]), block_bytes=1))


def test_sizes_double_up_to_all():
    assert scaling.sizes(100, 1000).tolist() == [100, 200, 400, 800, 1000]
    assert scaling.sizes(100, 800).tolist() == [100, 200, 400, 800]
    assert scaling.sizes(100, 100).tolist() == [100]


def test_parameters_are_counted():
    config = TrainConfig(d_model=6, n_blocks=2, expansion=3)
    model = ResidualMLP(5, 6, 2, 3)
    assert scaling._parameters(5, config) == sum(p.numel() for p in model.parameters())


def test_steps_are_the_same_for_any_number_of_rows():
    settings = scaling.EXPERIMENT.settings("small")
    for n in (250, 1000, 6400):
        steps = scaling.epochs(settings, n) * -(-n // settings.training.batch_size)
        assert steps == pytest.approx(settings.options.steps, rel=0.1)


def test_members_have_their_own_splits_and_weights():
    dataset = pl.generate(pl.Recipe(200, 3, "one_cluster", seeds=1))
    config = TrainConfig(d_model=4, n_blocks=1, epochs=1, batch_size=32)
    rows = np.arange(200)
    splits = [Split(rows[lo : lo + 60], rows[150:170], rows[170:]) for lo in (0, 60)]
    models = [ResidualMLP(3, 4, 1, seed=seed) for seed in (8, 9)]
    before = [model.output.weight.detach().clone() for model in models]
    results = train(dataset, config.with_seeds([0, 1]), model=models, split=splits, keep=(0,), device="cpu")
    for k, result in enumerate(results):
        assert result.split is splits[k]
        assert torch.equal(result.kept[0]["output.weight"], before[k])
        alone = ResidualMLP(3, 4, 1, seed=8 + k)
        single = train(dataset, config.with_seeds([k])[0], model=alone, split=splits[k], device="cpu")
        assert torch.allclose(result.model.output.weight, single.model.output.weight, atol=1e-6)
    with pytest.raises(ValueError, match=r"model must be 2 different networks, .*, got 1"):
        train(dataset, config.with_seeds([0, 1]), model=models[:1], device="cpu")
    with pytest.raises(ValueError, match="split must be one, or as many as configs, 2, got 1"):
        train(dataset, config.with_seeds([0, 1]), split=splits[:1], device="cpu")


def tiny():
    recipes = (
        pl.Recipe(600, 3, "one_cluster", seeds=1),
        pl.Recipe(3000, 3, "distribution", seeds=1, min_cluster_size=20),
    )
    training = TrainConfig(d_model=8, n_blocks=1, batch_size=64, lr=1e-3)
    usual = scaling.EXPERIMENT.settings("small", seeds=2)
    options = replace(usual.options, least_rows=60, widths=(4, 8), steps=8)
    return replace(usual, recipes=recipes, training=training, options=options)


@pytest.mark.slow
def test_the_experiment_runs_from_data_to_report_and_once(tmp_path, monkeypatch):
    results = runs.scaling(tmp_path / "out", tiny(), device="cpu")
    assert json.loads((tmp_path / "out" / "results.json").read_text())["training"] == results["training"]
    exponents = [line["estimate"] for line in results["headline"]]
    assert len(exponents) == 12
    assert all(np.isfinite([e["low"], e["value"], e["high"]]).all() for e in exponents)
    nearest = {line["what"]: line["estimate"]["value"] for line in results["headline"] if "1NN" in line["what"]}
    assert all(nearest[f"{data}, 1NN, exponent in training rows"] < 0 for data in ("one-cluster", "multi-cluster"))
    parts = tmp_path / "out" / "cells" / "one-cluster"
    with np.load(parts / "60-nearest.npz") as few, np.load(parts / "480-nearest.npz") as many:
        # More rows cannot put the nearest one farther away, so on the whole 1NN gets better.
        assert many["test"].mean() < few["test"].mean()
    assert set(results["seconds"]) == {"rows", "one-cluster", "multi-cluster", "report"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png") == 2
    before = {path: path.read_bytes() for path in parts.iterdir()}
    (parts / "120x8.npz").unlink()
    assert runs.scaling(tmp_path / "out", tiny(), device="cpu")["estimates"] == results["estimates"]
    again = {path: path.read_bytes() for path in parts.iterdir() if not path.name.startswith("120x8")}
    assert again == {path: kept for path, kept in before.items() if path in again}
    assert len(again) == len(before) - 1
    monkeypatch.setattr(material, "generate", lambda *_, **__: pytest.fail("what is there was measured again"))
    material._LAST.clear()
    assert runs.scaling(tmp_path / "out", tiny(), device="cpu")["estimates"] == results["estimates"]


def test_bad_input_is_one_line(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in (
        ("--seeds 1", "--seeds must be at least 2, got 1"),
        ("--data one-cluster,two", "--data must be one of one-cluster, multi-cluster, got 'two'"),
        ("--scale big", "--scale must be one of paper, small, got 'big'"),
    ):
        assert main.run(["scaling", *words.split()]) == 2
        assert capfd.readouterr().err == f"error: {said}\n"
    one = scaling.EXPERIMENT.settings("paper", data=["one-cluster"])
    assert one.command == "percolab scaling --scale paper --data one-cluster"
    assert [recipe.mode for recipe in one.recipes] == ["one_cluster"]
    assert scaling.EXPERIMENT.settings("small", seeds=3).command == "percolab scaling --scale small --seeds 3"
