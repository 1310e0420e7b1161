"""The commands train, baselines, probe and reproduce: what they write, and what they say about bad input."""

import json
import re
import sys

import numpy as np
import pandas
import pytest
import torch

import percolab as pl
from percolab.cli import main
from percolab.ground.progress import Display
from percolab.nn.training import checkpoint
from percolab.study import pictures

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

SMALL = ("--d-model", "8", "--n-blocks", "2", "--epochs", "2", "--batch-size", "64", "--device", "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset and a run on it."""
    folder = tmp_path_factory.mktemp("cli")
    pl.generate(pl.Recipe(800, 8, "one_cluster", seeds=1, engine="paper")).save(folder / "data.zarr")
    pl.generate(pl.Recipe(800, 9, "one_cluster", seeds=1, engine="paper")).save(folder / "other.zarr")
    assert main.run(["train", str(folder / "data.zarr"), "-o", str(folder / "run"), "-q", *SMALL]) == 0
    pl.generate(pl.Recipe(200, 8, "one_cluster", seeds=1, engine="paper")).save(folder / "small.zarr")
    assert main.run(["train", str(folder / "small.zarr"), "-o", str(folder / "small-run"), "-q", *SMALL]) == 0
    (folder / "damaged").mkdir()
    whole = (folder / "run" / "checkpoint.pt").read_bytes()
    (folder / "damaged" / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    return folder


def test_train_writes_a_run(folder, capsys):
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {"config.json", "metrics.csv", "checkpoint.pt", "training.png", "result.json"}
    result = json.loads((folder / "run" / "result.json").read_text())
    assert set(result) == {"test", "validation", "seconds", "device"}
    assert main.run(["train", str(folder / "data.zarr"), "-o", str(folder / "run"), "--resume", "--device", "cpu"]) == 0
    assert "test R²" in capsys.readouterr().out


def test_training_on_labels_is_told_in_their_words(tmp_path, monkeypatch):
    notes, drawn = [], {}
    monkeypatch.setattr(Display, "note", lambda self, stage, words: notes.append(words))
    monkeypatch.setattr(pictures, "write", lambda figures, directory: drawn.update(figures))
    dataset = pl.generate(pl.Recipe(300, 4, "one_cluster", seeds=1, engine="paper"))
    dataset.with_target("classes", max_size=100).save(tmp_path / "labels.zarr")
    command = ["train", str(tmp_path / "labels.zarr"), "-o", str(tmp_path / "run"), "-q", *SMALL]
    assert main.run(command) == 0
    assert all(", validation accuracy " in words for words in notes)
    assert len(notes) == 2
    assert drawn["training"].axes[0].get_ylabel() == "log loss"


@pytest.fixture(scope="module")
def corpus(folder):
    """A corpus in a file."""
    path = folder / "corpus.json"
    path.write_text(pl.Corpus(pl.Recipe(64, 2, "one_cluster", seeds=1), length=8, min_size=8).to_json())
    return str(path)


DOCUMENTS = ("--d-model", "8", "--n-blocks", "1", "--n-heads", "2", "--batch-size", "8", "--device", "cpu")


@pytest.mark.slow
def test_train_on_documents_shows_the_floor(corpus, tmp_path, capsys):
    command = ["train", corpus, "-o", str(tmp_path / "run"), *DOCUMENTS]
    assert main.run([*command, "--steps", "6", "--every", "3"]) == 0
    assert "excess" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"config.json", "metrics.csv", "checkpoint.pt", "training.png", "excess.png", "result.json"}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["test"]["excess"] == pytest.approx(result["test"]["loss"] - result["test"]["floor"])
    assert result["by_position"]["position"] == list(range(1, 8))
    assert main.run(["train", corpus, "-o", str(tmp_path / "run"), "--resume", "--device", "cpu", "-q"]) == 0


def test_train_takes_the_corpus_of_stored_documents(tmp_path):
    made = ["documents", "--tokens", "64", "--length", "8", "--min-size", "8", "--seed", "1", "--count", "3"]
    assert main.run([*made, "-o", str(tmp_path / "docs.zarr"), "-q"]) == 0
    command = ["train", str(tmp_path / "docs.zarr"), "-o", str(tmp_path / "run"), *DOCUMENTS]
    assert main.run([*command, "--steps", "2", "-q"]) == 0  # two steps of 8 documents, though three are stored
    recipe = json.loads((tmp_path / "run" / "config.json").read_text())["recipe"]
    assert pl.Corpus.from_dict(recipe) == pl.load(tmp_path / "docs.zarr").corpus


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--epochs", "3"], "--epochs must be left out for documents, got 3"),
        (["--steps", "0"], "--steps must be at least 1, got 0"),
        (["--n-heads", "3", "--d-model", "8"], "--n-heads must divide d_model, 8, got 3"),
    ],
)
def test_bad_options_for_documents(corpus, tmp_path, capsys, given, message):
    assert main.run(["train", corpus, "-o", str(tmp_path / "run"), *given]) == 2
    assert message in capsys.readouterr().err


def test_bad_corpora_and_runs_of_another_kind(folder, corpus, tmp_path, capsys):
    (tmp_path / "bad.json").write_text("[")
    assert main.run(["train", str(tmp_path / "bad.json"), "-o", str(tmp_path / "run")]) == 2
    assert "PATH must be a file of JSON, got" in capsys.readouterr().err
    assert main.run(["train", str(folder / "data.zarr"), "-o", str(tmp_path / "run"), "--steps", "3"]) == 2
    assert "--steps must be left out for a dataset, got 3" in capsys.readouterr().err
    assert main.run(["train", corpus, "-o", str(folder / "run"), "--resume"]) == 2
    assert "--output must be of a run on documents, got another in" in capsys.readouterr().err


@pytest.mark.slow
def test_diff_says_what_two_runs_do_not_share(tmp_path, capsys):
    made = ["documents", "--tokens", "64", "--lexicons", "2", "--length", "8", "--min-size", "8", "--count", "3"]
    for name, shares in (("a", "1,0"), ("b", "0.5,0.5")):
        assert main.run([*made, "--shares", shares, "-o", str(tmp_path / f"{name}.zarr"), "-q"]) == 0
        command = ["train", str(tmp_path / f"{name}.zarr"), "-o", str(tmp_path / name), *DOCUMENTS, "--steps", "2"]
        assert main.run([*command, "-q"]) == 0
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    small = ["--documents", "300", "--method", "kmeans@n_features=8", "--device", "cpu"]
    assert main.run(["diff", *runs, *small, "--json", "-o", str(tmp_path / "page.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(row["lexicon"], row["owner"]) for row in found["concept_table"]} == {(0, "both"), (1, "second")}
    assert {"document", "position", "token", "activation"} == set(found["one_sided"][0]["fires"][0])
    assert (tmp_path / "page.html").exists()
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).random((300, 4)))
    files = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    assert main.run(["diff", *files, "--method", "kmeans@n_features=2", "--device", "cpu"]) == 0
    places = [int(row) for row in re.findall(r"row (\d+)", capsys.readouterr().out)]
    assert places
    assert min(places) >= 240  # in the last fifth
    assert main.run(["diff", runs[0], files[0], *small]) == 2
    assert "A and B must both be runs, or both be activations, got one of each" in capsys.readouterr().err


def test_diff_of_runs_on_points_needs_their_dataset(folder, capsys):
    run = str(folder / "run")
    assert main.run(["diff", run, run]) == 2
    assert "data must be given for runs on points, got None for" in capsys.readouterr().err
    small = ["--method", "kmeans@n_features=4", "--device", "cpu", "--json"]
    assert main.run(["diff", run, run, "--data", str(folder / "data.zarr"), *small]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(row["share"] == pytest.approx(0.5) for row in found["one_sided"])


def test_baselines_print(folder, capsys):
    assert main.run(["baselines", str(folder / "data.zarr"), "--device", "cpu"]) == 0
    assert "nearest neighbour" in capsys.readouterr().out
    assert main.run(["baselines", str(folder / "data.zarr"), "--device", "cpu", "--json"]) == 0
    names = {"mean", "ridge", "nearest_neighbour", "nearest_neighbour_release"}
    assert set(json.loads(capsys.readouterr().out)) == names


@pytest.mark.slow
def test_probe_writes_tables_and_figures(folder, tmp_path, capsys):
    command = ["probe", str(folder / "data.zarr"), "--run", str(folder / "run"), "-o", str(tmp_path / "out")]
    command += ["--min-latent-size", "15", "--max-depth", "20", "--draws", "2", "--untrained", "2", "--device", "cpu"]
    assert main.run(command) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *(f"{table}.{form}" for table in ("per_latent", "per_depth") for form in ("csv", "parquet")),
        *(f"{figure}.png" for figure in ("fig4", "fig5", "fig7", "memorising")),
    }
    assert "of probing" in capsys.readouterr().out
    assert main.run(command) == 2
    assert "--output must not hold probes unless --overwrite is given, got" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "data.zarr", "-o", "run"],
            "--output must not hold a run unless --resume or --overwrite is given, got",
        ),
        (["train", "data.zarr", "-o", "new", "--resume"], "--output must exist, got 'new/checkpoint.pt'"),
        (["train", "other.zarr", "-o", "run", "--resume"], "--output must have recipe dim 9, got 8"),
        (["train", "data.zarr", "-o", "new", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["train", "data.zarr", "-o", "new", "--epochs", "many"], "--epochs must be an integer, got 'many'"),
        (["train", "none.zarr", "-o", "new"], "PATH must exist, got 'none.zarr'"),
        (["probe", "other.zarr", "--run", "run", "-o", "new"], "--run must have recipe dim 9, got 8"),
        (["train", "data.zarr", "-o", "damaged", "--resume"], "--output must be as percolab writes it, got"),
        (["probe", "data.zarr", "--run", "damaged", "-o", "new"], "--run must be as percolab writes it, got"),
        (["probe", "data.zarr", "--run", "norun", "-o", "new"], "--run must exist, got 'norun/checkpoint.pt'"),
        (["explore", "data.zarr", "--run", "norun", "-o", "new"], "--run must exist, got 'norun/checkpoint.pt'"),
        (["probe", "small.zarr", "--run", "small-run", "-o", "new"], "--min-latent-size must leave two latents"),
        (
            ["probe", "data.zarr", "--run", "run", "-o", "new", "--max-depth", "-1"],
            "--max-depth must be at least 0, got -1",
        ),
        (["reproduce", "one-cluster", "--epochs", "0"], "--epochs must be at least 1, got 0"),
        (["reproduce", "one-cluster", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["reproduce", "one-cluster", "--fit-from", "-1"], "--fit-from must be a number of at least 0, got -1"),
        (["probe", "data.zarr", "--run", "run", "-o", "new", "--draws", "0"], "--draws must be at least 1, got 0"),
        (
            ["probe", "data.zarr", "--run", "run", "-o", "new", "--untrained", "0"],
            "--untrained must be at least 1, got 0",
        ),
        (["probe", "data.zarr", "--run", "run", "-o", "new", "--factor", "1"], "--factor must be 0 or left out"),
        (
            ["probe", "data.zarr", "--run", "run", "-o", "new", "--min-latent-size", "801"],
            "--min-latent-size must leave",
        ),
        (["reproduce", "two-cluster"], "EXPERIMENT must be one of one-cluster, multi-cluster, got 'two-cluster'"),
        (["reproduce", "one-cluster", "--scale", "big"], "--scale must be one of paper, small, got 'big'"),
        (["reproduce", "one-cluster", "--output", "run"], "--output must be empty or hold an experiment, got"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(folder)
    before = sorted(str(path) for path in folder.rglob("*"))
    assert main.run(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {message}")
    assert said.count("\n") == 1
    assert sorted(str(path) for path in folder.rglob("*")) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
@pytest.mark.parametrize("command", ["train", "baselines", "probe"])
def test_no_cuda_when_asked_for(folder, monkeypatch, capsys, command):
    monkeypatch.chdir(folder)
    more = {"train": ["-o", "new"], "baselines": [], "probe": ["--run", "run", "-o", "new"]}[command]
    assert main.run([command, "data.zarr", *more, "--device", "cuda"]) == 2
    assert capsys.readouterr().err == "error: --device must be there, got 'cuda' and torch sees no CUDA GPU\n"
    assert not (folder / "new").exists()


def test_a_missing_package_is_named(folder, monkeypatch, capsys):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else found(name))
    assert main.run(["baselines", str(folder / "data.zarr")]) == 1
    assert capsys.readouterr().err == "error: this command needs scikit-learn: pip install 'percolab[nn]'\n"


def test_checkpoint_is_plain_data(folder):
    state = checkpoint.load(folder / "run" / "checkpoint.pt")
    assert pl.Recipe.from_dict(state["recipe"]) == pl.load(folder / "data.zarr").recipe
    assert state["epoch"] == 2


@pytest.mark.slow
def test_a_factor_of_a_world_is_probed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipes = [pl.Recipe(1200, 8, "one_cluster", seeds=seed) for seed in (0, 1)]
    pl.superpose(recipes, weights=[1, 0], seed=2).save("world.zarr")
    assert main.run(["train", "world.zarr", "-o", "run", "-q", *SMALL]) == 0
    command = ["probe", "world.zarr", "--run", "run", "-o", "out", "--min-latent-size", "15", "--max-depth", "20"]
    command += ["--draws", "2", "--untrained", "1", "--device", "cpu"]
    assert main.run(command) == 2
    assert capsys.readouterr().err == "error: --factor must be given where there are 2\n"
    assert main.run([*command, "--factor", "1"]) == 0
    assert "untrained  blocks.1" in capsys.readouterr().out
    assert (tmp_path / "out" / "fig4.png").exists()


def test_a_reader_is_looked_for_in_the_current_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "only_here.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main.run(["represent", "documents", "--scale", "small", "--readers", "only_here:Missing"]) == 2
    assert "module 'only_here' has no attribute 'Missing'" in capsys.readouterr().err


OWN = """
import torch


def make(data, seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(data.X.shape[1], 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
"""


def test_small_data_are_probed_with_a_smaller_least_size(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_small.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    pl.generate(pl.Recipe(400, 4, "one_cluster", seeds=2)).save("small.zarr")
    command = ["probe", "small.zarr", "--network", "my_small:make", "--layers", "0", "-o", "out", "--device", "cpu"]
    assert main.run(command) == 2
    assert "--min-latent-size must leave two latents" in capsys.readouterr().err
    assert main.run([*command, "--min-latent-size", "25"]) == 0
    table = pandas.read_parquet(tmp_path / "out" / "table.parquet")
    forest = pl.load("small.zarr").forest
    assert set(table["reader"]) == {"probe", "separation"}
    assert forest.latent_size[table["unit"][table["reader"] == "probe"]].min() in range(25, 200)
