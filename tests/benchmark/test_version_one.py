"""Version 1: frozen tasks, a tiny benchmark from data to files, files of others, resuming, networks of one's own."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from obvious import grow_forest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

import percolab as pl  # noqa: E402
from percolab.benchmark import (  # noqa: E402
    Budget,
    Options,
    Task,
    benchmark,
    check,
    declaration,
    envelope,
    judgement,
    networks_and_controls,
    submissions,
    task,
)
from percolab.benchmark.judgement import AT, rated, settings_of  # noqa: E402
from percolab.benchmark.networks_and_controls import Representation, Subject  # noqa: E402
from percolab.benchmark.tasks import SPARSITIES, TASKS  # noqa: E402
from percolab.features.register import entry  # noqa: E402
from percolab.nn import CorpusTrainConfig, ResidualMLP, TrainConfig  # noqa: E402
from percolab.study.cells import Cells, Here, InProcess  # noqa: E402
from percolab.study.directory import SUBMISSION  # noqa: E402

TINY = Budget(n_features=24, k=3, steps=5, batch_size=64, lr=1e-3, n_components=3)
TRAINING = TrainConfig(d_model=8, n_blocks=1, epochs=1, batch_size=64, lr=1e-2)
RECIPE = pl.Superposition([pl.Recipe(500, 4, "one_cluster", seeds=seed) for seed in (1, 2)], seed=0)
WORLD = Task("superposed-2", "small", RECIPE, TRAINING, Options("blocks.0", 5, TINY))
METHODS = ["kmeans", "neurons", "oracle"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    output = tmp_path_factory.mktemp("benchmark") / "all"
    return output, benchmark([WORLD], output=output, only=METHODS, draws=2, device="cpu")["superposed-2"]


@pytest.fixture
def frozen(monkeypatch):
    """The tiny task as if it were one of version 1."""
    monkeypatch.setattr(submissions, "FROZEN", {"small/superposed-2": WORLD})


def test_the_tasks_are_frozen():
    """A change of data, training, sizes, rows or rules is another version, or before its release another revision."""
    frozen = json.loads((Path(__file__).parents[1] / "golden" / "benchmark_tasks.json").read_text())
    assert {f"{scale}/{name}": task(name, scale).digest for scale in ("paper", "small") for name in TASKS} == frozen
    assert frozen == {key: one.digest for key, one in submissions.FROZEN.items()}
    assert len(set(frozen.values())) == len(frozen)
    assert task("superposed-2-tenth").options.share == 0.1
    assert task("documents-tuned").options.tuned


def test_methods_have_their_settings():
    budget = task("documents").options.budget
    assert [name for name, _ in settings_of(entry("topk", budget))] == [f"topk{AT}k={k}" for k in SPARSITIES]
    assert [one.options["k"] for _, one in settings_of(entry("kmeans", budget))] == [1, *SPARSITIES]
    assert len(settings_of(entry("gated", budget))) == 5
    assert [name for name, _ in settings_of(entry("topk@k=7", budget))] == ["topk@k=7"]
    assert [name for name, _ in settings_of(entry("neurons", budget))] == ["neurons"]
    assert len(settings_of(entry("topk", TINY))) == 3  # no more than there are features


@pytest.mark.slow
def test_a_benchmark_has_its_table_and_its_controls(made):
    output, results = made
    assert not results["missing"]
    assert not results["failed"]
    head, rows = results["table"]["head"], results["table"]["rows"]
    for column in (
        "recovery", "untrained", "random norms", "other", "raw input", "chance", "trained - raw", "own - other", "L0",
        "dead", "explained variance", "loss recovered", "threshold 0", "feature chosen before", "one to one", "AUC",
        "held-out subtrees", "splitting", "stability", "MCC", "uniqueness", "precision", "recall", "shrinkage",
        "1-sparse probe", "5-sparse probe", "probe of activations",
    ):  # fmt: skip
        assert column in head, column
    for role in ("trained", "untrained", "other", "raw"):  # curves against L0
        assert (output / "superposed-2" / "figures" / f"recovery-{role}.png").exists()
    lines = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(lines) == ["kmeans", "kmeans-1", "neurons", "oracle"]
    assert float(lines["oracle"]["recovery"]) == 1
    assert float(lines["kmeans"]["recovery"]) > float(lines["kmeans"]["chance"])
    assert 0 < float(lines["kmeans-1"]["L0"]) <= 1
    assert 0 < float(lines["kmeans"]["feature chosen before"]) <= float(lines["kmeans"]["recovery"])
    page = (output / "superposed-2" / "report.html").read_text()
    assert "undecided" in page
    assert "is undecided for kmeans. Not measured: method, question for topk, batchtopk, matryoshka." in page
    assert "only 2 draws of the data" in page


def test_rows_are_fitted_chosen_and_scored_apart():
    for one in (
        WORLD,
        replace(task("documents", "small"), options=replace(task("documents", "small").options, documents=20)),
    ):
        s = declaration.settings(one, only=["neurons"])
        subject = Subject(s, Here("cpu"))
        parts = [subject.rows(subject.views[0])[name] for name in ("fit", "validation", "scored")]
        together = np.concatenate(parts)
        assert np.unique(together).size == together.size
        if one.name == "documents":
            documents = [set((part // subject.views[0].shape[1]).tolist()) for part in parts]
            assert not documents[0] & documents[1]
            assert not documents[1] & documents[2]
            assert list(map(len, documents)) == [12, 4, 4]


@pytest.mark.slow
def test_causes_are_measured_in_networks_of_the_documents_own_lexicon(tmp_path):
    corpus = pl.Corpus([grow_forest([64], seed, "even") for seed in (1, 2)], length=16, min_size=16, seed=1)
    training = CorpusTrainConfig(d_model=8, n_blocks=1, n_heads=1, steps=2, batch_size=8, held_out=8)
    documents = Task("documents", "small", corpus, training, Options("blocks.0", 2, TINY, documents=60))
    results = benchmark([documents], output=tmp_path, only=["kmeans", "neurons"], device="cpu")["documents"]
    assert not results["failed"]
    head, rows = results["table"]["head"], results["table"]["rows"]
    for name, *numbers in rows:
        line = dict(zip(head[1:], numbers, strict=True))
        measured = name != "kmeans-1"  # at the middle setting alone
        assert all(bool(line[f"bridged {how}"]) == measured for how in ("by patches", "at random"))
    files = [json.loads(file.read_text()) for file in (tmp_path / "documents" / SUBMISSION).glob("*.json")]
    with_causes = {(v["role"], v["trained_on"] == v["factor"], v["method"]) for v in files
                   if "bridged" in v["eval_result_metrics"]["recovery"]}  # fmt: skip
    assert with_causes == {("trained", True, "kmeans @ k=24"), ("trained", True, "neurons")}


class Ranked:
    """A method with options whose names end like others."""

    def __init__(self, k=8, rank=2, lr=1e-3, inner_lr=0.1):
        self.k = k

    def fit(self, activations):
        return self

    def encode(self, activations):
        return activations


def test_options_are_known_by_their_whole_names():
    kind = f"{__name__}:Ranked"
    assert len(settings_of(entry(f"{kind}@rank=4", TINY))) == len(settings_of(entry(kind, TINY))) > 1
    rates = replace(WORLD.options, rates={"trained": 0.5})
    assert rated(rates, "trained", entry(f"{kind}@inner_lr=0.2", TINY)).options["lr"] == 0.5
    assert rated(rates, "trained", entry(f"{kind}@lr=0.2", TINY)).options["lr"] == 0.2


def test_what_is_asked_for_is_computed_or_refused(tmp_path):
    asked = declaration.settings(WORLD, only=["kmeans"], methods=["neurons", "kmeans"]).asked
    assert asked == ("kmeans", "neurons")
    pl.generate(n_points=100, dim=2, seed=0).save(tmp_path / "mine.zarr")
    with pytest.raises(ValueError, match=r"^data must be left out for tasks on documents, got it for 'documents'$"):
        declaration.settings(task("documents", "small"), data=tmp_path / "mine.zarr")
    np.save(tmp_path / "a.npy", np.zeros((4, 2), np.float32))
    (tmp_path / "manifest.json").write_text('{"activations": [{"file": "a.npy", "role": "trained", "rows": 4}]}')
    with pytest.raises(ValueError, match=r"^activations must have files for every one of 2 draws, got "):
        declaration.settings(WORLD, activations=tmp_path, draws=2)


def test_a_tenth_of_the_rows_is_trained_on():
    s = declaration.settings(replace(WORLD, options=replace(WORLD.options, share=0.1)), only=["neurons"])
    assert Subject(s, Here("cpu")).training_rows["split"].train.size == 40


def test_random_networks_have_the_norms_of_the_trained_one():
    trained, fresh = ResidualMLP(4, 8, 2, seed=1), ResidualMLP(4, 8, 2, seed=2)
    random = networks_and_controls.with_norms(fresh, trained, 3)
    for mine, theirs in zip(random.state_dict().values(), trained.state_dict().values(), strict=True):
        assert float(mine.norm()) == pytest.approx(float(theirs.norm()), rel=1e-4)
        assert theirs.numel() == 1 or float(theirs.norm()) == 0 or not torch.equal(mine, theirs)
    start, wide = ResidualMLP(64, 64, 2, seed=3), ResidualMLP(64, 64, 2, seed=3)
    random = networks_and_controls.with_norms(wide, start, 3)  # seed 3 drew the initial weights, too
    for mine, theirs in zip(random.parameters(), start.parameters(), strict=True):
        alike = torch.nn.functional.cosine_similarity(mine.detach().flatten(), theirs.detach().flatten(), dim=0)
        assert theirs.ndim == 1 or theirs.numel() < 1000 or abs(float(alike)) < 0.05


@pytest.mark.slow
def test_the_same_command_computes_nothing_again_and_more_is_added(made, monkeypatch):
    output, results = made
    asked = []
    monkeypatch.setattr(declaration, "judge", lambda which, one, s, here, *networks: asked.append(one.name))
    again = benchmark([WORLD], output=output, only=METHODS, draws=2, device="cpu")["superposed-2"]
    assert not asked
    assert again["table"] == results["table"]
    with pytest.raises(ValueError, match="again must name methods that are computed"):
        benchmark([WORLD], output=output, only=METHODS, again=["pca"])
    limited = benchmark([WORLD], output=output, only=["pca"], draws=2, time_limit=0)["superposed-2"]
    assert len(limited["missing"]) == 2 * 5
    more = benchmark([WORLD], output=output, only=["neurons"], draws=2, seeds=2, time_limit=0)["superposed-2"]
    assert len(more["missing"]) == 2 * 4  # of the second seed alone
    assert not asked


@pytest.mark.slow
def test_files_are_accepted_and_give_the_same_table(made, frozen):
    output, results = made
    (found,) = check(output)
    assert (found.draws, found.networks) == (2, 4)
    head, rows = declaration.table(found.rows)
    theirs = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    for row in results["table"]["rows"]:
        mine = dict(zip(results["table"]["head"], row, strict=True))
        assert theirs[mine["method"]]["recovery"] == mine["recovery"]
        assert theirs[mine["method"]].get("own - other") == mine.get("own - other")
    assert (output / "submissions.html").exists()
    jsonschema = pytest.importorskip("jsonschema")
    for file in (output / "superposed-2" / SUBMISSION).iterdir():
        values = json.loads(file.read_text())
        jsonschema.validate(values, envelope.SCHEMA)
        for concept in values["eval_result_details"]:  # the control is about the edges that the feature's measure has
            assert concept.get("absorption_edge") is not None or concept.get("absorption_linear") is None


@pytest.mark.slow
def test_two_files_about_one_place_are_refused(made, frozen, tmp_path):
    """They were once told apart by their options, and the last one was shown."""
    outside(made, tmp_path / "in")
    values = json.loads((tmp_path / "in" / "theirs.json").read_text()) | {"sae_cfg_dict": {"width": 4}, "eval_id": "b"}
    values["checksum"] = envelope.checksum(values)
    (tmp_path / "in" / "other.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"must have one file, got other\.json and theirs\.json"):
        check(tmp_path / "in")


def test_more_networks_leave_the_first_ones_and_their_cells_as_they_are():
    def inputs(seeds):
        plan = declaration.cells(declaration.settings(WORLD, only=["neurons"], seeds=seeds))
        return {cell.name: (cell.made_from, [need.name for need in cell.needs]) for cell in plan}

    few, many = inputs(1), inputs(3)
    assert few.items() <= many.items()
    assert many["trained-1_2/neurons"][1] == ["networks-2"]


def test_autoencoders_trained_elsewhere_do_not_read_the_raw_input():
    """It has another width than the activations that they were trained on, so that the cell would fail."""
    both = ["pretrained@path=folder", "percolab.features.dictionaries:Wrapped", "neurons"]
    names = [cell.name for cell in declaration.cells(declaration.settings(WORLD, only=both))]
    assert [name for name in names if name.startswith("raw")] == ["raw_0/neurons"]
    assert sum("pretrained" in name for name in names) == 4


TREE = """
import numpy as np
from percolab.features import KMeans

class Tree(KMeans):
    def fit(self, activations):
        super().fit(activations)
        self.parents = np.arange(self.n_features) - 1
        return self
"""


@pytest.mark.slow
def test_the_tree_of_a_method_is_scored(tmp_path, monkeypatch):
    name = f"tree_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(TREE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    results = benchmark([WORLD], output=tmp_path / "out", only=[f"{name}:Tree", "neurons"], device="cpu")
    assert not results["superposed-2"]["failed"]
    head, rows = (results["superposed-2"]["table"][part] for part in ("head", "rows"))
    lines = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert 0 <= float(lines[f"{name}:Tree"]["tree edges"]) <= float(lines[f"{name}:Tree"]["tree ancestors"]) <= 1
    assert not lines["neurons"]["tree edges"]


def outside(made, place):
    """A file of a method that was made outside: its numbers under the envelope, its own checksum."""
    output, _ = made
    files = sorted((output / "superposed-2" / SUBMISSION).iterdir())
    values = next(v for v in (json.loads(file.read_text()) for file in files) if v["method"] == "neurons")
    values |= {"method": "their-method", "sae_cfg_dict": {"width": 3}, "eval_id": "theirs"}
    values["checksum"] = envelope.checksum(values)
    place.mkdir()
    (place / "theirs.json").write_text(json.dumps(values))
    return values


@pytest.mark.slow
def test_a_file_made_outside_is_accepted(made, frozen, tmp_path):
    outside(made, tmp_path / "in")
    (found,) = check(tmp_path / "in")
    assert declaration.table(found.rows)[1][0][0] == "their-method"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "signed", "message"),
    [
        (lambda v: v["eval_result_details"][0].update(f1=0.99), False, "checksum must be that of the file"),
        (lambda v: v["eval_result_details"][0].update(f1=0.99), True, "recovery.f1 must be the mean of its details"),
        (lambda v: v["eval_result_metrics"]["recovery"].update(f1=0.99), True, "recovery.f1 must be the mean"),
        (lambda v: v["eval_result_details"][0].update(f1=1.5), True, "'f1' must be from 0 to 1, got 1.5"),
        (lambda v: v.update(benchmark_version=2), True, "'benchmark_version' must be 1, got 2"),
        (lambda v: v.pop("role"), True, "it must have role"),
        (lambda v: v.update(draw="first"), True, "'draw' must be integer, got 'first'"),
        (lambda v: v.update(task_digest="0" * 16), True, "must be of a task of version 1"),
        (lambda v: v.update(method=f"kmeans{AT}k=4"), True, "sae_cfg_dict must be .*'k': 4.*, got {'width': 3}"),
    ],
)
def test_a_tampered_file_is_refused_in_one_line(change, signed, message, made, frozen, tmp_path):
    values = outside(made, tmp_path / "in")
    change(values)
    if signed:
        values["checksum"] = envelope.checksum(values)
    (tmp_path / "in" / "theirs.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message) as fault:
        check(tmp_path / "in")
    assert "\n" not in str(fault.value)


def test_a_folder_of_activations_takes_the_place_of_networks(tmp_path):
    folder = tmp_path / "acts"
    folder.mkdir()
    data = pl.generate(WORLD.recipe)
    entries = []
    for i, (role, factor) in enumerate([("trained", 0), ("trained", 1), ("untrained", None)]):
        np.save(folder / f"{i}.npy", np.asarray(data.X, np.float32) * (i + 1))
        entries.append({"file": f"{i}.npy", "role": role, "factor": factor, "layer": "blocks.0", "rows": 500})
    (folder / "manifest.json").write_text(json.dumps({"activations": entries}))
    results = benchmark([WORLD], output=tmp_path / "out", only=["neurons"], activations=folder, device="cpu")
    assert not results["superposed-2"]["missing"]
    assert "own - other" in results["superposed-2"]["table"]["head"]
    entries[0]["file"] = "../0.npy"
    (folder / "manifest.json").write_text(json.dumps({"activations": entries}))
    with pytest.raises(ValueError, match="file must be the name of an"):
        benchmark([WORLD], output=tmp_path / "other", only=["neurons"], activations=folder)


@pytest.mark.slow
def test_a_folder_of_activations_of_documents_has_one_file_per_lexicon_that_was_read(tmp_path):
    corpus = pl.Corpus([pl.Recipe(64, 2, "one_cluster", seeds=1 + k) for k in range(2)], length=16, min_size=8, seed=1)
    one = Task("documents", "small", corpus, CorpusTrainConfig(), Options("blocks.0", 5, TINY, documents=40))
    folder, entries = tmp_path / "acts", []
    folder.mkdir()
    for role, factor in (("trained", 0), ("trained", 1), ("untrained", None)):
        for k in range(2):
            tokens = corpus.swapped(k).documents(2**40, 2**40 + 40).tokens
            name = f"{role}-{factor}-{k}.npy"
            np.save(folder / name, np.eye(64, dtype=np.float32)[tokens][..., : 8 + 8 * (factor == k)])
            entries.append({"file": name, "role": role, "factor": factor, "layer": "blocks.0", "documents": k})
    (folder / "manifest.json").write_text(json.dumps({"activations": entries}))
    given = {"only": ["neurons"], "activations": folder, "device": "cpu"}
    results = benchmark([one], output=tmp_path / "out", **given)["documents"]
    assert not results["missing"]
    assert "own - other" in results["table"]["head"]
    (folder / "manifest.json").write_text(json.dumps({"activations": [{**e, "documents": 0} for e in entries]}))
    (why, *_) = benchmark([one], output=tmp_path / "half", **given)["documents"]["failed"].values()
    assert "manifest.json must have activations with" in why


OWN = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.inner = torch.nn.Linear(width, 6)
        self.outer = torch.nn.Linear(6, 1)

    def forward(self, x):
        return self.outer(torch.relu(self.inner(x)))[:, 0]

def make(data, seed):
    return Net(data.X.shape[1], seed)
"""


@pytest.mark.slow
def test_networks_and_data_of_ones_own(tmp_path, monkeypatch):
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    pl.generate(WORLD.recipe).save(tmp_path / "data.zarr")
    given = {"network": f"{name}:make", "layer": "inner", "data": tmp_path / "data.zarr", "only": ["neurons"]}
    results = benchmark([WORLD], output=tmp_path / "out", device="cpu", **given)["superposed-2"]
    assert not results["missing"]
    assert not results["failed"]
    assert f"--network {name}:make --layer inner" in results["command"]
    with pytest.raises(ValueError, match="draws must be 1 for data in a store, got 2"):
        benchmark([WORLD], output=tmp_path / "more", draws=2, **given)
    with pytest.raises(ValueError, match="layer must name a module of the network"):
        benchmark([WORLD], output=tmp_path / "more", network=f"{name}:make")


@pytest.mark.slow
def test_a_method_that_fails_stops_no_other(tmp_path):
    only = ["kmeans@n_features=-3", "neurons"]
    results = benchmark([WORLD], output=tmp_path, only=only, device="cpu")["superposed-2"]
    assert "n_features must be at least 1, got -3" in next(iter(results["failed"].values()))
    assert [row[0] for row in results["table"]["rows"]] == ["neurons"]


def test_representations_are_named_by_role_factor_and_place():
    s = declaration.settings(WORLD, only=["neurons"], seeds=2)
    found = networks_and_controls.representations(s)
    assert found[0] == Representation("trained", 0, 0)
    assert len(found) == 4 + 2 + 2 + 1
    assert len({one.name for one in found}) == len(found)


@pytest.mark.sae
def test_what_the_endpoints_need_is_computed_first_and_methods_share_a_representation(tmp_path):
    s = declaration.settings(WORLD, only=["topk", "neurons", "kmeans", "oracle"], draws=2)
    plan = [cell for draw in range(2) for cell in declaration.cells(s.drawn(draw))]
    names = [cell.name for cell in Cells(tmp_path, InProcess()).missing(plan)]
    first = ["trained-0_0/topk", "trained-0_0/kmeans", "trained-1_0/topk", "trained-1_0/kmeans"]
    assert names[:10] == [f"{prefix}{name}" for prefix in ("", "draw-1/") for name in ["networks-0", *first]]
    assert not any("neurons" in name or "oracle" in name for name in names[: 10 + 2 * 6])
    assert names[-1] == "draw-1/truth_0/oracle"
    assert len(names) == 2 * (1 + 3 * 5 + 1)


@pytest.mark.slow
def test_methods_on_one_representation_read_it_once(tmp_path, monkeypatch):
    read, asked = judgement.read, []
    monkeypatch.setattr(
        judgement, "read", lambda data, which, *rest: (asked.append(which), read(data, which, *rest))[1]
    )
    benchmark([WORLD], output=tmp_path, only=["neurons", "pca"], device="cpu")
    assert len(asked) == len(set(asked)) + 1  # the raw input is too large to be kept
