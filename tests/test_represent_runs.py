"""The experiments on what a network represents, from data to report, and their command."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

import percolab as pl
from percolab.cli import main
from percolab.nn import TrainConfig
from percolab.nn.frame.table import select
from percolab.nn.represent import crossed, running
from percolab.nn.represent.settings import DATA, EXPERIMENTS, kept_epochs, settings
from percolab.nn.training import run

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

TINY = TrainConfig(d_model=8, n_blocks=2, epochs=3, batch_size=64, lr=1e-3)


KNOWN = {
    "trained": [{"measure": "log ratio, separation", "layer": "raw", "epoch": 3}],
    "relevance": [{"measure": "separation", "part": "all", "epoch": 0}],
}
"""Estimates that are 0 whatever is learned: training does not change the input, and before it no factor is relevant."""


def tiny(experiment, factors=2):
    """Return an experiment that takes seconds."""
    recipes = [pl.Recipe(500, 4, "one_cluster", seeds=seed) for seed in range(factors)]
    recipe = pl.Superposition(recipes, seed=0) if "superposed-2" in DATA[experiment] else recipes[0]
    usual = settings(experiment, "small", seeds=3 if experiment == "crossed" else 2)
    return replace(
        usual, recipe=recipe, training=TINY, min_size=12, most_pairs=12, rows=6,
        depths=(0, 4, 8, 12), fresh=4, latents=4, retraining=2, features=8, doses=(0.5, 1.0),
        keep=(0, 1, 3) if experiment in ("trained", "relevance") else (0, 3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("represent")


def slowly(names):
    return [pytest.param(name, marks=[] if name == "edit" else [pytest.mark.slow]) for name in names]


@pytest.mark.parametrize("name", slowly(EXPERIMENTS))
def test_an_experiment_runs_from_data_to_report_and_once(name, folder, monkeypatch):
    chosen, stages = tiny(name), []
    results = running.represent(chosen, folder / name, device="cpu", progress=lambda *told: stages.append(told))
    assert ("report", 1, 1) in stages
    assert json.loads((folder / name / "results.json").read_text())["headline"][0]["what"]
    for line in results["headline"]:
        estimate = line["estimate"]
        assert np.isfinite([estimate[name] for name in ("low", "value", "high")]).all(), line["what"]
        assert estimate["seeds"] >= 2
    for known in KNOWN.get(name, []):
        rows = select(results["estimates"], **known)
        assert rows
        assert np.allclose([r["value"] for r in rows], 0, atol=1e-5), known
    page = (folder / name / "report.html").read_text()
    figures = list((folder / name / "figures").glob("*.png"))
    assert page.count("data:image/png") == len(figures) > 1
    assert "How it is measured" in page
    assert "every network and unit in measures.npz" in page
    assert ("With two networks" in page) == (chosen.seeds == 2)
    assert (folder / name / "measures.npz").is_file()

    def again(*_):
        raise AssertionError("a stage that is there was run again")

    (folder / name / "networks.pt").unlink()  # what is measured does not need them
    monkeypatch.setattr(running.MODULES[name], "train", again)
    monkeypatch.setattr(running.MODULES[name], "measure", again)
    assert running.represent(chosen, folder / name, device="cpu")["estimates"] == results["estimates"]
    with pytest.raises(FileExistsError, match="must hold the same experiment unless overwrite"):
        running.represent(replace(chosen, seeds=4), folder / name, device="cpu")


def test_training_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    chosen = tiny("trained")

    def stop(stage, done, total):
        if stage == "training" and done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted, match=r"^stopped after epoch [12] of 3; resume to continue$"):
        running.represent(chosen, tmp_path / "run", device="cpu", progress=stop)
    epochs = []

    def look(stage, done, total):
        if stage == "training":
            epochs.append(done)

    found = running.represent(chosen, tmp_path / "run", device="cpu", progress=look)
    assert min(epochs) > 1
    whole = running.represent(chosen, tmp_path / "whole", device="cpu")
    assert found["estimates"] == whole["estimates"]
    assert found["training"]["test"] == whole["training"]["test"]
    assert not (tmp_path / "run" / "training").exists()


def test_the_rest_of_another_training_is_not_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    first = replace(tiny("trained"), keep=(0, 3))

    def stop(stage, done, total):
        if stage == "training" and done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted):
        running.represent(first, tmp_path, device="cpu", progress=stop)
    found = running.represent(tiny("trained"), tmp_path, device="cpu", overwrite=True)  # it keeps epoch 1 as well
    assert {row["epoch"] for row in found["estimates"] if "epoch" in row} >= {1, 3}


@pytest.mark.slow
def test_with_three_hierarchies_there_is_a_null(folder):
    results = running.represent(tiny("relevance", 3), folder / "three", device="cpu")
    nulls = [row for row in results["estimates"] if row["part"] == "null"]
    assert nulls
    assert all(np.isfinite(row["value"]) for row in nulls)


def test_settings_are_told_by_their_command():
    usual = settings("dose")
    assert usual.command == "percolab represent dose --scale paper"
    other = settings("trained", "small", data="multi-cluster", seeds=7, epochs=9)
    assert other.command == "percolab represent trained --scale small --data multi-cluster --seeds 7 --epochs 9"
    assert other.training.epochs == other.keep[-1] == 9
    assert json.loads(json.dumps(usual.to_dict())) == usual.to_dict()
    assert kept_epochs(500) == (0, 2, 10, 50, 200, 500)
    assert kept_epochs(1) == (0, 1)


@pytest.mark.parametrize(("scale", "usual"), [("small", 10), ("paper", 20)])
def test_there_are_fresh_values_for_the_null_of_any_number_of_seeds(scale, usual):
    assert settings("crossed", scale).fresh == usual
    for seeds in (3, usual, usual + 1, 3 * usual):
        chosen = settings("crossed", scale, seeds=seeds)
        assert chosen.fresh >= 2 * seeds  # with as many as there are seeds, every draw of the null has the same columns
    null = crossed.null_band(np.random.default_rng(0).random((chosen.seeds, chosen.fresh, 2)))
    assert null.low < null.value < null.high


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("represent guess", "EXPERIMENT must be one of trained, crossed, relevance, dose, edit, got 'guess'"),
        ("represent dose --data one-cluster", "--data must be one of superposed-2, superposed-4, got 'one-cluster'"),
        ("represent dose --seeds 1", "--seeds must be at least 2, got 1"),
        ("represent edit --scale large", "--scale must be one of paper, small, got 'large'"),
        ("represent edit --epochs 0", "--epochs must be at least 1, got 0"),
        ("represent edit --device abacus", "--device must be auto, cpu, cuda or cuda:N, got 'abacus'"),
    ],
)
def test_bad_input_is_one_line(words, said, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main.run(words.split()) == 2
    assert capfd.readouterr().err == f"error: {said}\n"
    assert not list(tmp_path.iterdir())
