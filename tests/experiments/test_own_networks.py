"""Experiments on networks of one's own, and on data in a store."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import percolab as pl
from percolab.cli import main
from percolab.experiments.runs import find, represent, scaling
from percolab.nn import TrainConfig

torch.set_num_threads(1)

OWN = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self, dim, seed):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Sequential(nn.Linear(dim, 6), nn.Tanh())
            self.second = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
            self.out = nn.Linear(5, 1)

    def forward(self, x):
        return self.out(self.second(self.first(x))).squeeze(-1)


def make(data, seed):
    return Two(data.X.shape[1], seed)


number = 3
"""
TINY = TrainConfig(epochs=3, batch_size=64, lr=1e-3)
OPTIONS = {
    "trained": {"keep": (0, 3), "min_size": 12, "most_pairs": 12, "depths": (0, 4, 8)},
    "crossed": {"fresh": 6, "min_size": 12, "depths": (0, 4, 8)},
    "relevance": {"keep": (0, 3), "min_size": 12, "most_pairs": 12, "features": 8},
    "scaling": {"least_rows": 200, "steps": 4},
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "my_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_own", raising=False)
    monkeypatch.chdir(tmp_path)
    factors = [pl.Recipe(500, 4, "one_cluster", seeds=seed) for seed in range(2)]
    pl.generate(factors[0]).save(tmp_path / "one.zarr")
    pl.generate(pl.Superposition(factors, seed=0)).save(tmp_path / "two.zarr")
    return tmp_path


def tiny(name, network="my_own:make", layers=("first", "second"), **given):
    experiment = find(name)
    data = "two.zarr" if name == "relevance" else "one.zarr"
    usual = experiment.settings(
        "small", data=data, seeds=experiment.least_seeds, network=network, layers=layers, **given
    )
    return replace(usual, training=TINY, options=replace(usual.options, **OPTIONS[name]))


@pytest.mark.parametrize("name", ["trained", pytest.param("crossed", marks=pytest.mark.slow)])
def test_networks_of_ones_own_are_read_in_the_layers_that_are_named(place, name):
    results = represent(tiny(name), place / name, device="cpu")
    assert {row["layer"] for row in results["estimates"]} - {"raw"} == {"first", "second"}
    assert all(np.isfinite(line["estimate"]["value"]) for line in results["headline"])
    assert "--data one.zarr" in results["command"]
    assert "--network my_own:make --layers first,second" in results["command"]


@pytest.mark.slow
def test_relevance_of_ones_own_networks_in_a_stored_world(place):
    results = represent(tiny("relevance"), place / "out", device="cpu")
    before = [row["value"] for row in results["estimates"] if row["part"] == "all" and row["epoch"] == 0]
    assert np.allclose(before, 0, atol=1e-6)
    assert results["headline"][0]["estimate"]["layer"] == "second"


@pytest.mark.slow
def test_scaling_of_ones_own_networks_is_in_rows_alone(place):
    results = scaling(place / "out", tiny("scaling", layers=None), device="cpu")
    assert {line["estimate"]["axis"] for line in results["headline"]} == {"n"}
    assert results["settings"]["network"] == "my_own:make"


def test_another_file_of_networks_is_another_study(place):
    first = tiny("trained")
    (place / "my_own.py").write_text(OWN + "\n# changed\n")
    assert tiny("trained").digest != first.digest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "trained --network nowhere:make --layers a",
            "--network must be a function that can be imported, got 'nowhere:make': No module named 'nowhere'",
        ),
        (
            "trained --network my_own:number --layers a",
            "--network must be a function make(data, seed), got 'my_own:number'",
        ),
        ("trained --network my_own:make", "--layers must name modules of the network"),
        ("trained --layers first", "--layers must be left out without --network, got 'first'"),
        (
            "edit --network my_own:make --layers first",
            "--network must be left out: edit is about the paper's network, got 'my_own:make'",
        ),
        ("relevance --data one.zarr", "--data must have several hierarchies for relevance, got 'one.zarr'"),
        ("trained --data two.zarr", "--data must have one hierarchy for trained, got 'two.zarr'"),
        ("trained --data one.zarr --draws 3", "--draws must be 1 for data in a store, got 3"),
    ],
)
def test_bad_input_is_one_line(place, words, said, capfd):
    before = sorted(place.iterdir())
    assert main.run(["represent", *words.split()]) == 2
    assert capfd.readouterr().err == f"error: {said}\n"
    assert sorted(path for path in place.iterdir() if path.name != "__pycache__") == before


def record(folder, data, networks, layer="first"):
    """Write activations of networks of one's own, by role, factor and seed, as `--activations` takes them."""
    folder.mkdir()
    listed = []
    for (role, factor, seed), model in networks.items():
        file = f"{role}-{factor}-{seed}.npy"
        with torch.no_grad():
            np.save(folder / file, dict(model.named_children())[layer](torch.tensor(np.asarray(data.X))).numpy())
        listed.append({"file": file, "role": role, "factor": factor, "seed": seed, "layer": layer})
    (folder / "manifest.json").write_text(json.dumps({"activations": listed}))


@pytest.fixture
def recorded(place):
    import my_own

    world = pl.load(place / "two.zarr")
    own = {("untrained", None, seed): my_own.make(world, seed) for seed in range(2)}
    own |= {
        ("trained", factor, seed): my_own.make(world, 10 + 2 * seed + factor) for factor in (0, 1) for seed in (0, 1)
    }
    record(place / "kept", world, own)
    return place


@pytest.mark.slow
def test_activations_take_the_place_of_networks(recorded):
    settings = find("relevance").settings("small", data="two.zarr", activations=recorded / "kept", min_size=12)
    assert (settings.seeds, settings.layers, settings.options.keep) == (2, ("first",), (0, settings.training.epochs))
    assert "--activations" in settings.command
    results = represent(settings, recorded / "out", device="cpu")
    own = {(r["measure"], r["epoch"]): r for r in results["estimates"] if r["part"] == "all"}
    assert own["separation", 0]["value"] == pytest.approx(0, abs=1e-6)
    assert own["separation", settings.training.epochs]["value"] != pytest.approx(0, abs=1e-6)
    assert results["training"]["networks"] == 4


def test_activations_that_are_not_whole_are_refused(recorded, capsys):
    settings = find("relevance").settings
    digest = settings("small", data="two.zarr", activations="kept").digest
    np.save(recorded / "kept" / "trained-0-0.npy", np.zeros((500, 7)))
    assert settings("small", data="two.zarr", activations="kept").digest != digest
    with pytest.raises(ValueError, match="activations must be left out: crossed trains its networks, got 'kept'"):
        find("crossed").settings("small", data="one.zarr", activations="kept")
    manifest = json.loads((recorded / "kept" / "manifest.json").read_text())["activations"]
    (recorded / "kept" / "manifest.json").write_text(json.dumps({"activations": manifest[1:]}))
    assert main.run(["represent", "relevance", "--data", "two.zarr", "--activations", "kept"]) == 2
    assert "must have, for draw 0, networks of the roles 'trained' and 'untrained'" in capsys.readouterr().err
