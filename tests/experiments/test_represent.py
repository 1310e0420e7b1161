"""The experiments on what a network represents, from data to report, and their command."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pandas
import pytest
import scipy.stats
import torch

import percolab as pl
from percolab.cli import main
from percolab.experiments import REPRESENT, crossed
from percolab.experiments.points import kept_epochs
from percolab.experiments.runs import find, represent
from percolab.nn import TrainConfig
from percolab.nn.training import run
from percolab.study import cells

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

TINY = TrainConfig(d_model=8, n_blocks=2, epochs=3, batch_size=64, lr=1e-3)


KNOWN = {
    "trained": [{"measure": "log ratio, separation", "layer": "raw", "epoch": 3}],
    "relevance": [{"measure": "separation", "part": "all", "epoch": 0}],
}
"""Estimates that are 0 whatever is learned: training does not change the input, and before it no factor is relevant."""


OPTIONS = {
    "min_size": 12, "most_pairs": 12, "rows": 6, "depths": (0, 4, 8, 12), "fresh": 4, "latents": 4, "retraining": 2,
    "features": 8, "doses": (0.5, 1.0),
}  # fmt: skip


def tiny(name, factors=2, draws=1):
    """Return the settings of an experiment that takes seconds."""
    experiment = find(name)
    recipes = [pl.Recipe(500, 4, "one_cluster", seeds=seed) for seed in range(factors)]
    recipe = pl.Superposition(recipes, seed=0) if "superposed-2" in experiment.data else recipes[0]
    usual = experiment.settings("small", seeds=experiment.least_seeds, draws=draws)
    keep = {"keep": (0, 1, 3) if name in ("trained", "relevance") else (0, 3)}
    own = {key: value for key, value in {**OPTIONS, **keep}.items() if hasattr(usual.options, key)}
    return replace(usual, recipes=(recipe,), training=TINY, options=replace(usual.options, **own))


def rows(results, **names):
    return [r for r in results["estimates"] if all(r.get(key) == value for key, value in names.items())]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("represent")


def slowly(names):
    return [pytest.param(name, marks=[] if name == "edit" else [pytest.mark.slow]) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", slowly(name for name in REPRESENT if name not in ("documents", "ownership", "causation"))
)
def test_an_experiment_runs_from_data_to_report_and_once(name, folder, monkeypatch):
    chosen, stages = tiny(name), []
    results = represent(chosen, folder / name, device="cpu", progress=lambda *told: stages.append(told))
    assert ("report", 1, 1) in stages
    assert json.loads((folder / name / "results.json").read_text())["headline"][0]["what"]
    for line in results["headline"]:
        estimate = line["estimate"]
        assert np.isfinite([estimate[name] for name in ("low", "value", "high")]).all(), line["what"]
        assert estimate["seeds"] >= 2
    for known in KNOWN.get(name, []):
        found = rows(results, **known)
        assert found
        assert np.allclose([r["value"] for r in found], 0, atol=1e-5), known
    page = (folder / name / "report.html").read_text()
    figures = list((folder / name / "figures").glob("*.png"))
    assert page.count("data:image/png") == len(figures) > 1
    assert "How it is measured" in page
    assert "of this dataset" in page
    assert page.index('class="verdict') < page.index("data:image/png") < page.index("<table")
    assert "not finished" not in page
    assert ("With two networks" in page) == (chosen.seeds == 2)
    table = pandas.read_parquet(folder / name / "table.parquet")
    assert {"draw", "measure", "value"} <= set(table.columns)

    def again(*_):
        raise AssertionError("a stage that is there was run again")

    (folder / name / "cells" / "networks.npz").unlink()  # what is measured does not need them
    monkeypatch.setattr(cells, "compute", again)
    assert represent(chosen, folder / name, device="cpu")["estimates"] == results["estimates"]
    with pytest.raises(FileExistsError, match="must hold the same experiment unless overwrite"):
        represent(replace(chosen, seeds=4), folder / name, device="cpu")


@pytest.mark.slow
def test_draws_differ_in_nothing_but_seeds_and_their_interval_is_over_draws(tmp_path):
    results = represent(tiny("edit", draws=3), tmp_path, device="cpu")
    alone = represent(tiny("edit"), tmp_path / "one", device="cpu")
    for line, one in zip(results["headline"], alone["headline"], strict=True):
        estimate = line["estimate"]
        values = np.array(estimate["by_draw"])
        assert len(values) == 3
        assert len(set(values)) == 3
        assert values[0] == one["estimate"]["value"]  # the first draw is the recipe as it is
        expected = scipy.stats.t.interval(0.95, 2, values.mean(), values.std(ddof=1) / 3**0.5)
        assert (estimate["low"], estimate["high"]) == pytest.approx(expected)
        assert estimate["interval_over"] == "3 draws of the data"
    page = (tmp_path / "report.html").read_text()
    assert "mean over 3 draws of the data" in page
    assert "of this dataset" not in page
    assert results["training"]["networks"] == 3 * alone["training"]["networks"]


@pytest.mark.slow
def test_more_draws_go_on_where_fewer_ended(tmp_path):
    represent(tiny("edit"), tmp_path, device="cpu")
    before = (tmp_path / "cells" / "measures.npz").stat().st_mtime_ns
    results = represent(tiny("edit", draws=2), tmp_path, device="cpu")
    assert (tmp_path / "cells" / "measures.npz").stat().st_mtime_ns == before
    assert results["headline"][0]["estimate"]["interval_over"].endswith("of these 2 datasets")
    assert "only 2 draws of the data" in (tmp_path / "report.html").read_text()


def test_a_run_that_is_interrupted_says_so_on_its_page(tmp_path):
    def stop(stage, done, total):
        if stage == "cells" and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        represent(tiny("edit"), tmp_path, device="cpu", progress=stop)
    page = (tmp_path / "report.html").read_text()
    assert "This run is not finished. Missing: measures." in page
    results = represent(tiny("edit"), tmp_path, device="cpu")
    assert results["missing"] == []
    assert "not finished" not in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_training_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    chosen = tiny("trained")

    def stop(stage, done, total):
        if stage == "training" and done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted, match=r"^stopped after epoch [12] of 3; resume to continue$"):
        represent(chosen, tmp_path / "run", device="cpu", progress=stop)
    epochs = []

    def look(stage, done, total):
        if stage == "training":
            epochs.append(done)

    found = represent(chosen, tmp_path / "run", device="cpu", progress=look)
    assert min(epochs) > 1
    whole = represent(chosen, tmp_path / "whole", device="cpu")
    assert found["estimates"] == whole["estimates"]
    assert found["training"]["test"] == whole["training"]["test"]
    assert not (tmp_path / "run" / "training").exists()


def test_the_rest_of_another_training_is_not_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    first = tiny("trained")
    first = replace(first, options=replace(first.options, keep=(0, 3)))

    def stop(stage, done, total):
        if stage == "training" and done == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(run.TrainingInterrupted):
        represent(first, tmp_path, device="cpu", progress=stop)
    found = represent(tiny("trained"), tmp_path, device="cpu", overwrite=True)  # it keeps epoch 1 as well
    assert {row["epoch"] for row in found["estimates"] if "epoch" in row} >= {1, 3}


@pytest.mark.slow
def test_with_three_hierarchies_there_is_a_null(folder):
    results = represent(tiny("relevance", 3), folder / "three", device="cpu")
    nulls = [row for row in results["estimates"] if row["part"] == "null"]
    assert nulls
    assert all(np.isfinite(row["value"]) for row in nulls)


def test_settings_are_told_by_their_command():
    usual = find("dose").settings()
    assert usual.command == "percolab represent steering --scale paper"
    other = find("trained").settings("small", data="multi-cluster", seeds=7, epochs=9, draws=4)
    options = "--data multi-cluster --seeds 7 --epochs 9 --draws 4"
    assert other.command == f"percolab represent trained --scale small {options}"
    assert other.training.epochs == other.options.keep[-1] == 9
    assert json.loads(json.dumps(usual.to_dict())) == usual.to_dict()
    assert kept_epochs(500) == (0, 2, 10, 50, 200, 500)
    assert kept_epochs(1) == (0, 1)


@pytest.mark.parametrize(("scale", "usual"), [("small", 10), ("paper", 20)])
def test_there_are_fresh_values_for_the_null_of_any_number_of_seeds(scale, usual):
    settings = find("crossed").settings
    assert settings(scale).options.fresh == usual
    for seeds in (3, usual, usual + 1, 3 * usual):
        chosen = settings(scale, seeds=seeds)
        assert (
            chosen.options.fresh >= 2 * seeds
        )  # with as many as there are seeds, every draw of the null has the same columns
    null = crossed.null_band(np.random.default_rng(0).random((chosen.seeds, chosen.options.fresh, 2)))
    assert null.low < null.value < null.high


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "represent guess",
            f"EXPERIMENT must be one of {', '.join(REPRESENT)}, got 'guess'",
        ),
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
