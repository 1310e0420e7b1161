"""The experiment on documents: readers of one's choice, and more of them later."""

import json
import sys

import numpy as np
import pandas
import pytest

torch = pytest.importorskip("torch")

from percolab.experiments.documents import EXPERIMENT  # noqa: E402
from percolab.experiments.relevance import EXPERIMENT as RELEVANCE  # noqa: E402
from percolab.experiments.runs import find  # noqa: E402
from percolab.study.comparison import compare  # noqa: E402
from percolab.study.material import Networks  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.slow
def test_readers_are_chosen_and_more_are_added(tmp_path, monkeypatch):
    first = EXPERIMENT.settings("small", epochs=10, documents=60, readers=["separation"])
    assert "--readers separation" in first.command
    results = EXPERIMENT.run(first, tmp_path, device="cpu")
    assert {row["reader"] for row in results["estimates"] if "reader" in row} == {"separation"}
    table = pandas.read_parquet(tmp_path / "table.parquet")
    assert set(table["role"]) == {"trained", "other", "untrained", "raw", "permuted"}
    assert table["value"].notna().any()
    monkeypatch.setattr(Networks, "of", lambda *given: pytest.fail("they are there"))
    more = EXPERIMENT.settings("small", epochs=10, documents=60, readers=["separation", "neurons"])
    results = EXPERIMENT.run(more, tmp_path, device="cpu")
    assert {row["reader"] for row in results["estimates"] if "reader" in row} == {"separation", "neurons"}


OWN = """
import torch


class Own(torch.nn.Module):
    def __init__(self, vocabulary, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.body = torch.nn.Sequential(torch.nn.Embedding(vocabulary, 6), torch.nn.Linear(6, 5), torch.nn.ReLU())
        self.out = torch.nn.Linear(5, vocabulary)

    def forward(self, tokens):
        return self.out(self.body(tokens))


class Alone(Own):
    def fit(self, data, seed):
        self.out.weight.data.fill_(0.0)


def make(data, seed):
    return Own(data.n_tokens, seed)


def make_alone(data, seed):
    return Alone(data.n_tokens, seed)
"""


@pytest.mark.parametrize("make", [pytest.param("make", marks=pytest.mark.slow), "make_alone"])
def test_networks_of_ones_own_read_documents(tmp_path, monkeypatch, make):
    (tmp_path / "my_documents.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = {"network": f"my_documents:{make}", "layers": ["body"], "readers": ["separation"]}
    chosen = EXPERIMENT.settings("small", epochs=5, documents=60, seeds=2, **own)
    results = EXPERIMENT.run(chosen, tmp_path / "run", device="cpu")
    assert {row["layer"] for row in results["estimates"] if row["part"] == "contrast"} == {"body"}
    excess = {row["role"]: row["value"] for row in results["estimates"] if row["part"] == "excess"}
    assert all(value > 0 for value in excess.values())


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Return networks of one's own by role, and a folder with their activations for the documents of each lexicon."""
    (tmp_path / "my_documents.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_documents", raising=False)
    import my_documents

    corpus, folder, listed = EXPERIMENT.settings("small").recipe, tmp_path / "kept", []
    seeds = {"trained": {0: [1, 2], 1: [3, 4]}, "untrained": {None: [5, 6]}}
    networks = {
        role: {factor: [my_documents.make(corpus, seed) for seed in own] for factor, own in by_factor.items()}
        for role, by_factor in seeds.items()
    }
    folder.mkdir()
    for role, by_factor in networks.items():
        for factor, models in by_factor.items():
            for seed, model in enumerate(models):
                for k in range(2):
                    file = f"{role}-{factor}-{seed}-{k}.npy"
                    tokens = corpus.swapped(k).documents(2**40, 2**40 + 60).tokens
                    with torch.no_grad():
                        np.save(folder / file, model.body(torch.from_numpy(tokens).long()).numpy())
                    entry = {"file": file, "role": role, "factor": factor, "seed": seed, "layer": "body"}
                    listed.append({**entry, "documents": k})
    (folder / "manifest.json").write_text(json.dumps({"activations": listed}))
    return corpus, {"trained": networks["trained"], "untrained": networks["untrained"][None], "raw": None}, folder


def test_activations_take_the_place_of_networks(recorded, tmp_path):
    corpus, networks, folder = recorded
    chosen = EXPERIMENT.settings("small", documents=60, readers=["separation"], activations=folder)
    assert (chosen.seeds, chosen.layers) == (2, ("body",))
    assert f"--activations {folder}" in chosen.command
    results = EXPERIMENT.run(chosen, tmp_path / "run", device="cpu")
    assert (results["training"]["networks"], results["training"]["each"]) == (4, "2 per lexicon")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "4 networks (2 per lexicon) on" in page
    assert ">2 networks per lexicon, " in page
    assert page.count("as few as 2 networks per lexicon and only 1 draw of the data") == page.count("only 1 draw") == 1
    assert not [row for row in results["estimates"] if row["part"] == "excess"]
    compared = compare(corpus, networks, ["separation"], layers=["body"], rows=60, device="cpu").contrasts
    same = {row["contrast"]: row["value"] for row in results["estimates"] if row["part"] == "contrast"}
    assert same == dict(zip(compared["contrast"], compared["value"], strict=True))
    assert len(same) >= 3


def test_activations_have_no_causes(recorded):
    _, _, folder = recorded
    with pytest.raises(ValueError, match="readers must not change networks where activations are given, got 'steer"):
        EXPERIMENT.settings("small", readers=["steering"], activations=folder)
    with pytest.raises(ValueError, match="activations must be left out: causation trains its networks"):
        find("causation").settings("small", activations=folder)


def test_readers_are_checked_before_anything_is_trained():
    with pytest.raises(ValueError, match=r"readers must be names .* got 'nonsense'"):
        EXPERIMENT.settings("small", readers=["nonsense"])
    with pytest.raises(ValueError, match="readers must be left out: relevance has its own, got 'beliefs'"):
        RELEVANCE.settings("small", readers=["beliefs"])
