"""The benchmark: its cells, how they are shared out and resumed, and the gaps of its table against planted numbers."""

import json
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import percolab as pl  # noqa: E402
from percolab.benchmark import (  # noqa: E402
    Budget,
    Task,
    benchmark,
    bins,
    drawing,
    keeping,
    report,
    tables,
    task,
)
from percolab.benchmark.cells import CELLS, TRUTHS, Cell, grid  # noqa: E402
from percolab.benchmark.evaluating import Evaluator  # noqa: E402
from percolab.benchmark.networks import Networks  # noqa: E402
from percolab.features import score, specs  # noqa: E402
from percolab.features.specs import READING, STANDARD, entry, make  # noqa: E402
from percolab.intervals import Estimate  # noqa: E402
from percolab.nn import ResidualMLP, TrainConfig, loss_recovered  # noqa: E402

TINY = Budget(n_features=12, k=3, steps=5, batch_size=64, lr=1e-3, n_components=3)
TRAINING = TrainConfig(d_model=8, n_blocks=1, epochs=2, batch_size=64, lr=1e-2)
WORLD = Task(
    "world",
    "small",
    pl.Superposition([pl.Recipe(300, 4, "one_cluster", seeds=seed) for seed in (1, 2)], seed=0),
    TRAINING,
    ("blocks.0",),
    10,
    TINY,
)
CLUSTER = replace(WORLD, name="cluster", recipe=pl.Recipe(300, 4, "one_cluster", seeds=1))
METHODS = ["linear-reading", "neurons", "kmeans@batch_size=64", "oracle"]
GIVEN = {"scale": "small", "n_seeds": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A benchmark of a tiny task."""
    output = tmp_path_factory.mktemp("benchmark") / "all"
    told = []
    results = benchmark([WORLD], output=output, only=METHODS, progress=lambda *step: told.append(step), **GIVEN)
    cells = [step for step in told if step[0] == "cells"]
    assert cells == [("cells", done, 25) for done in range(26)]
    assert {stage for stage, _, _ in told} == {"cells", "training"}
    return output, results


def kept(output, name, task="world"):
    return json.loads((output / CELLS / task / f"{name}.json").read_text())


# ---------------------------------------------------------------------- cells


def test_every_cell_is_a_file_that_says_what_made_it(made):
    output, results = made
    names = {file.stem for file in (output / CELLS / "world").iterdir()}
    places = ["raw_raw", "untrained_blocks.0", "trained-0_blocks.0", "trained-1_blocks.0"]
    wanted = {f"{place}_{m.replace('_', '-')}_{seed}" for place in places for m in METHODS[:3] for seed in (0, 1)}
    assert names == wanted | {"truth_truth_oracle_0"}
    assert results["cells"] == {"done": 25, "asked": 25, "failed": 0}
    cell = kept(output, "trained-1_blocks.0_kmeans@batch-size=64_1")
    made_from = cell["made_from"]
    assert made_from["recipe"] == WORLD.recipe.to_dict()
    assert made_from["training"]["epochs"] == 2
    assert made_from["options"] == {"n_features": 12, "batch_size": 64, "max_iterations": 50}
    assert (made_from["network"], made_from["layer"], made_from["seed"]) == ("trained-1", "blocks.0", 1)
    assert cell["provenance"]["percolab"] == pl.__version__
    assert kept(output, "raw_raw_neurons_0")["made_from"]["training"] is None


def test_a_cell_holds_what_score_gives(made):
    output, _ = made
    networks = Networks(WORLD, output, [0, 1], torch.device("cpu"), lambda *given: None)
    A = networks.activations("trained-1", "blocks.0", 1)
    method = make(entry(METHODS[2], TINY), 1, "cpu").fit(A)
    decoder = {"directions": method.directions, "bias": method.bias, "activations": A}
    values = kept(output, "trained-1_blocks.0_kmeans@batch-size=64_1")["values"]
    for factor in (0, 1):
        found = score(networks.dataset, method.encode(A), factor=factor, min_size=10, seed=1, **decoder)
        f1 = found.concepts["f1"][found.concepts["summarised"]]
        np.testing.assert_allclose(values["factors"][str(factor)]["f1"], f1, rtol=1e-3)
    assert values["factors"]["1"]["summary"]["recovery"] == pytest.approx(found.summary["recovery"])
    assert "summary" not in values["factors"]["0"]  # irrelevant: the best F1 is all that is used
    test = networks.split.test
    decoded = method.encode(A[test]) @ method.directions + method.bias
    model = networks.model("trained-1", 1)
    lost = loss_recovered(model, networks.dataset.X[test], networks.y(1)[test], "blocks.0", decoded, device="cpu")
    assert values["loss_recovered"]["replaced"] == pytest.approx(lost.replaced)
    assert values["loss_recovered"]["loss"] == pytest.approx(lost.loss)
    assert kept(output, "untrained_blocks.0_neurons_0")["values"]["loss_recovered"] is None


def test_networks_of_a_seed_differ_in_what_they_were_trained_for_alone(made):
    output, _ = made
    (file,) = (output / "networks" / "world").glob("*/checkpoint.pt")
    run = torch.load(file, weights_only=True)
    seeds = [(config["seed"], config["split_seed"]) for config in run["configs"]]
    assert seeds == [(0, 42), (0, 42), (1, 42), (1, 42)]
    networks = Networks(WORLD, output, [0, 1], torch.device("cpu"), lambda *given: None)
    fresh = ResidualMLP(4, 8, 1, seed=1)
    same = zip(networks.model("untrained", 1).parameters(), fresh.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    members = [networks.model(name, 1).input.weight for name in ("trained-0", "trained-1", "untrained")]
    assert not torch.equal(members[0], members[1])
    assert not torch.equal(members[1], members[2])
    assert np.array_equal(networks.y(1), networks.dataset.swapped(1).y)


def test_a_decoder_may_have_no_bias(made):
    output, _ = made
    networks = Networks(WORLD, output, [0, 1], torch.device("cpu"), lambda *given: None)
    evaluator = Evaluator.__new__(Evaluator)
    evaluator.networks = networks
    cell = Cell(WORLD, "trained-0", "blocks.0", entry("neurons", TINY), 0)
    A = networks.activations("trained-0", "blocks.0", 0)
    found = [
        evaluator._recovered(cell, SimpleNamespace(directions=np.eye(8), bias=bias, encode=lambda A: A), A)
        for bias in (None, np.zeros(8))
    ]
    assert found[0] == found[1]
    assert found[0]["share"] == pytest.approx(1, abs=1e-4)


def test_the_reading_is_the_separation_of_siblings(made):
    output, _ = made
    networks = Networks(WORLD, output, [0, 1], torch.device("cpu"), lambda *given: None)
    A = networks.activations("trained-0", "blocks.0", 0).double().numpy()
    truth = json.loads((output / TRUTHS / "world.json").read_text())["factors"][1]["pairs"]
    rows = pl.truth(networks.dataset, 1).rows
    forest = networks.dataset.factors[1].forest
    found = kept(output, "trained-0_blocks.0_linear-reading_0")["values"]["factors"]["1"]["separation"]
    assert len(found) == len(truth["parent"]) > 3
    for parent, value in zip(truth["parent"], found, strict=True):
        below = forest.points_of(parent)
        middle = below.start + forest.left_size[parent]
        left, right = (A[(rows >= lo) & (rows < hi)] for lo, hi in ((below.start, middle), (middle, below.stop)))
        assert min(len(left), len(right)) >= 10
        spread = left.var(0).sum() + right.var(0).sum()
        assert value == pytest.approx(((left.mean(0) - right.mean(0)) ** 2).sum() / spread, rel=1e-3)


# ---------------------------------------------------------------------- resuming and sharing out


def test_what_is_there_is_not_computed_again(made, monkeypatch):
    output, before = made
    monkeypatch.setattr(Evaluator, "evaluate", lambda *given: pytest.fail("computed again"))
    again = benchmark([WORLD], output=output, only=METHODS, **GIVEN)
    assert json.dumps(again) == json.dumps(before)  # NaN is not equal to itself


def test_what_is_asked_for_twice_is_one_cell(tmp_path):
    given = {"output": tmp_path / "twice", "networks": ["raw"], "time_limit": 0, **GIVEN}
    once = benchmark([CLUSTER], **given)["cells"]["asked"]
    assert benchmark([CLUSTER], methods=["pca", "pca"], seeds=[0, 1, 0], **given)["cells"]["asked"] == once
    assert benchmark([CLUSTER], only=["pca", "pca"], layers=["input", "input"], **given)["cells"]["asked"] == 2


def test_cells_that_another_process_made_meanwhile_are_not_computed_again(tmp_path, monkeypatch):
    given = {"only": ["neurons"], "networks": ["raw"], **GIVEN}
    benchmark([CLUSTER], output=tmp_path / "other", **given)
    computed = []
    plain = Evaluator.evaluate

    def evaluate(self, cell):
        computed.append(cell.seed)
        for file in (tmp_path / "other" / CELLS / "cluster").glob("*_1.json"):  # the other one was faster
            shutil.copy(file, tmp_path / "mine" / CELLS / "cluster")
        return plain(self, cell)

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    (tmp_path / "mine" / CELLS / "cluster").mkdir(parents=True)
    shutil.copy(tmp_path / "other" / "benchmark.json", tmp_path / "mine")
    found = benchmark([CLUSTER], output=tmp_path / "mine", **given)
    assert computed == [0]
    assert found["cells"] == {"done": 2, "asked": 2, "failed": 0}


@pytest.mark.slow
def test_parts_give_what_the_whole_gives(made, tmp_path):
    whole, results = made
    output = tmp_path / "parts"
    part = {"output": output, "only": METHODS, **GIVEN}
    assert benchmark([WORLD], time_limit=0, **part)["cells"] == {"done": 0, "asked": 25, "failed": 0}
    assert benchmark([WORLD], networks=["raw"], seeds=[1], **part)["cells"]["asked"] == 3
    some = benchmark([WORLD], networks=["trained-0", "truth"], **part)
    assert some["cells"] == {"done": 7, "asked": 7, "failed": 0}
    assert benchmark([WORLD], **part)["cells"]["done"] == 25
    found = json.loads((output / report.RESULTS).read_text())
    assert found == json.loads((whole / report.RESULTS).read_text())
    assert found["lines"] == json.loads(json.dumps(found["lines"]))
    assert [line["method"] for line in results["lines"]][:4] == ["linear-reading", "neurons", "oracle", METHODS[2]]


def test_networks_that_are_gone_are_trained_again(made, tmp_path):
    shutil.copytree(made[0] / "data", tmp_path / "data")
    shutil.copytree(made[0] / "networks", tmp_path / "networks")
    (file,) = (tmp_path / "networks" / "world").glob("*/checkpoint.pt")
    file.unlink()
    before, after = (
        Networks(WORLD, output, [0, 1], torch.device("cpu"), lambda *given: None).activations(
            "trained-1", "blocks.0", 1
        )
        for output in (made[0], tmp_path)
    )
    assert torch.allclose(before, after, atol=1e-5)


def test_a_clock_that_runs_out_ends_after_the_cell(tmp_path, monkeypatch):
    moments = iter(range(1000))  # asked at the start, before the task and before each cell
    monkeypatch.setattr("percolab.benchmark.running.time", SimpleNamespace(monotonic=lambda: next(moments)))
    given = {"output": tmp_path / "limited", "only": ["neurons"], "networks": ["raw"], **GIVEN}
    assert benchmark([CLUSTER], time_limit=3, **given)["cells"] == {"done": 1, "asked": 2, "failed": 0}


def test_another_recipe_is_computed_again(made, tmp_path):
    cell = Cell(WORLD, "raw", "raw", entry("neurons", TINY), 0)
    assert cell.is_done(made[0])
    for changed in (replace(WORLD, min_size=11), replace(WORLD, recipe=WORLD.recipe.swapped(0))):
        assert not replace(cell, task=changed).is_done(made[0])
    assert replace(cell, task=replace(WORLD, training=replace(TRAINING, epochs=3))).is_done(made[0])  # no network
    trained = Cell(WORLD, "trained-0", "blocks.0", entry("neurons", TINY), 0)
    assert trained.is_done(made[0])
    assert not replace(trained, task=replace(WORLD, training=replace(TRAINING, epochs=3))).is_done(made[0])


def test_networks_are_trained_anew_when_something_changed(tmp_path, monkeypatch):
    output = tmp_path / "changed"
    given = {"output": output, "only": ["neurons"], "networks": ["trained"], **GIVEN | {"n_seeds": 1}}
    networks = output / "networks" / "cluster"
    kept = []
    slower = replace(CLUSTER, training=replace(TRAINING, lr=5e-3))
    larger = replace(CLUSTER, recipe=replace(CLUSTER.recipe, n_points=320))
    monkeypatch.setattr(report, "pictures", lambda found: {})
    for one, version in [*((one, pl.__version__) for one in (CLUSTER, slower, larger)), (CLUSTER, "99.0")]:
        for module in ("cells", "networks", "keeping"):
            monkeypatch.setattr(f"percolab.benchmark.{module}.__version__", version)
        found = benchmark([one], **given)
        assert (found["cells"], found["failed"]) == ({"done": 1, "asked": 1, "failed": 0}, [])
        kept.append(json.loads((networks / "0.json").read_text()))
    runs = [one["run"] for one in kept]
    assert len(set(runs)) == 4
    assert {file.parent.name for file in networks.glob("*/checkpoint.pt")} == set(runs)
    assert kept[3]["made_from"]["percolab"] == "99.0"
    assert kept[0]["test"] == kept[3]["test"]
    assert kept[0]["test"] not in (kept[1]["test"], kept[2]["test"])


def test_a_run_of_many_seeds_has_a_name_that_a_file_may_have(made):
    networks = Networks(WORLD, made[0], [0, 1], torch.device("cpu"), lambda *given: None)
    names = {networks._run_name(seeds) for seeds in ([0], [0, 1], [1, 0], list(range(100)))}
    assert len(names) == 4
    assert max(map(len, names)) <= 64


def test_a_method_that_fails_is_noted_and_tried_again(tmp_path, monkeypatch):
    (tmp_path / "own_methods.py").write_text(
        "import numpy as np\n"
        "class Broken:\n"
        "    def fit(self, activations):\n        raise RuntimeError('first line\\nsecond line')\n"
        "    def encode(self, activations):\n        return activations\n"
        "class Negative:\n"
        "    def __init__(self, n_features=3, shift=0.0):\n        self.n, self.shift = n_features, shift\n"
        "    def fit(self, activations):\n        return self\n"
        "    def encode(self, activations):\n        return np.ones((len(activations), self.n)) + self.shift\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ["own_methods:Broken", "own_methods:Negative@shift=-2", "own_methods:Negative"]
    given = {"output": tmp_path / "failing", "networks": ["raw"], "seeds": [0], **GIVEN}
    for _ in range(2):
        found = benchmark([CLUSTER], methods=own, only=[*own, "neurons"], **given)
        assert found["cells"] == {"done": 2, "asked": 4, "failed": 2}
        broken, negative = found["failed"]
        assert broken == "cluster raw raw own_methods:Broken 0: RuntimeError: first line second line"
        assert negative.startswith("cluster raw raw own_methods:Negative@shift=-2 0: ValueError: codes must be finite")
    page = (tmp_path / "failing" / report.REPORT).read_text()
    assert "own_methods:Broken 0: RuntimeError: first line second line" in page
    cell = kept(tmp_path / "failing", "raw_raw_own-methods-Negative_0", "cluster")
    assert cell["made_from"]["options"] == {"n_features": 12}


def test_a_method_that_was_edited_is_computed_again(tmp_path, monkeypatch):
    code = (
        "import numpy as np\n"
        "class Mine:\n"
        "    def fit(self, activations):\n        return self\n"
        "    def encode(self, activations):\n        return np.maximum(activations - SHIFT, 0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    computed = []
    plain = Evaluator.evaluate
    monkeypatch.setattr(Evaluator, "evaluate", lambda self, cell: (computed.append(cell.seed), plain(self, cell))[1])
    monkeypatch.setattr(report, "pictures", lambda found: {})
    name = "edited_method:Mine"
    given = {"output": tmp_path / "own", "only": [name], "networks": ["raw"], **GIVEN}

    def run(shift, **more):
        (tmp_path / "edited_method.py").write_text(code.replace("SHIFT", shift))
        sys.modules.pop("edited_method", None)
        computed.clear()
        return benchmark([CLUSTER], **given | more)["lines"][0]["values"]["raw"], list(computed)

    before, seeds = run("0.0")
    assert seeds == [0, 1]
    assert run("0.0") == (before, [])
    after, seeds = run("0.25", seeds=[0])  # of another length, since Python compares dates in seconds
    assert seeds == [0]
    assert after["value"] != before["value"]
    assert after["seeds"] == 1  # the other seed is of the method as it was
    assert run("0.25")[1] == [1]
    assert run("0.25", again=[name])[1] == [0, 1]
    cell = kept(tmp_path / "own", "raw_raw_edited-method-Mine_0", "cluster")
    assert len(cell["made_from"]["source"]) == 64


def test_methods_of_percolab_are_known_by_its_version():
    for name in STANDARD:
        assert "source" not in Cell(WORLD, "raw", "raw", entry(name, TINY), 0).made_from()


# ---------------------------------------------------------------------- cells that do not belong together


def test_cells_of_another_recipe_are_left_out_and_named(tmp_path):
    given = {"output": tmp_path / "mixed", "networks": ["raw"], "seeds": [0], **GIVEN}
    larger = replace(CLUSTER, recipe=replace(CLUSTER.recipe, n_points=320))
    assert benchmark([CLUSTER], only=["kmeans@batch_size=64"], **given)["left_out"] == []
    found = benchmark([larger], only=["neurons"], **given)
    assert [line["method"] for line in found["lines"]] == ["neurons"]
    said = "cluster: 1 cell made from other settings (recipe), left out, of kmeans@batch_size=64"
    assert found["left_out"] == json.loads((tmp_path / "mixed" / report.RESULTS).read_text())["left_out"] == [said]
    assert said in (tmp_path / "mixed" / report.REPORT).read_text()
    back = benchmark([CLUSTER], only=["kmeans@batch_size=64"], **given)  # the table is of the task that is asked for
    assert [line["method"] for line in back["lines"]] == ["kmeans@batch_size=64"]
    assert back["left_out"] == ["cluster: 1 cell made from other settings (recipe), left out, of neurons"]


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"training": {"epochs": 3}}, "training"),
        ({"scale": "paper"}, "scale"),
        ({"min_size": 11}, "min_size"),
        ({"ratio": 0.5}, "ratio"),
        ({"percolab": "0.0.1"}, "percolab"),
        ({"options": {"n_features": 16, "batch_size": 16384, "max_iterations": 50}}, "options"),
        ({"source": "abc", "name": "kmeans"}, "source"),
    ],
)
def test_a_table_has_cells_of_one_making(changed, what, tmp_path):
    planted(tmp_path, EFFECTS)
    file = tmp_path / CELLS / "world" / "trained-0_kmeans_2.json"
    cell = json.loads(file.read_text())
    file.write_text(json.dumps(cell | {"made_from": cell["made_from"] | changed, "provenance": {"created": "1999"}}))
    (line,) = tables.lines(tmp_path)
    assert line.values["recovery"].seeds == 2
    kept = keeping.read_kept(tmp_path)
    assert len(kept.cells) == 11
    assert kept.left_out == [f"world: 1 cell made from other settings ({what}), left out, of kmeans"]
    file.write_text(json.dumps(cell | {"made_from": cell["made_from"] | changed, "failed": "ValueError"}))
    assert tables.failures(keeping.read_kept(tmp_path)) == []


def test_options_in_the_name_are_not_those_of_the_budget():
    budget = {"n_features": 12, "k": 3, "batch_size": 64}
    assert specs.has_budget("batchtopk@k=8", {"n_features": 12, "k": 8, "batch_size": 64}, budget)
    assert not specs.has_budget("batchtopk@k=8", {"n_features": 16, "k": 8, "batch_size": 64}, budget)
    assert specs.has_budget("kmeans", {"n_features": 12, "batch_size": 16384}, budget)  # fixed
    assert specs.has_budget("not.there:Class", {"n_features": 12}, budget)
    assert not specs.has_budget("not.there:Class", {"n_features": 16}, budget)


# ---------------------------------------------------------------------- methods and grid


def test_methods_get_their_size_from_the_task():
    assert make(entry("random-dictionary", TINY), 5, "cpu") == make(entry("random-dictionary@seed=5", TINY), 1, "cpu")
    found = make(entry("batchtopk@k=2+frozen=decoder", TINY), 7, "cpu")
    assert (found.n_features, found.k, found.frozen, found.seed, found.steps) == (12, 2, "decoder", 7, 5)
    assert make(entry("batchtopk-frozen-encoder", TINY), 0, "cpu").frozen == "encoder"
    assert {entry(name, TINY).name for name in STANDARD} == set(STANDARD)


def test_options_may_be_truth_values():
    assert make(entry("neurons@signed=False", TINY), 0, "cpu").signed is False
    assert make(entry("neurons@signed=True", TINY), 0, "cpu").signed is True
    assert entry("batchtopk@frozen=None+k=2+lr=1e-2", TINY).options["frozen"] is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", r"^method must be one of neurons, .* or package\.module:Class, got 'nothing'$"),
        ("kmeans@size=3", r"^method must have the option it is given, got 'size' for 'kmeans'$"),
        ("kmeans@3", r"^method must be NAME or NAME@option=value\+option=value, got 'kmeans@3'$"),
    ],
)
def test_unknown_methods_are_one_line(spec, message):
    with pytest.raises(ValueError, match=message):
        entry(spec, TINY)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tasks": ["mnist"]}, r"^tasks must be one of paper-one-cluster, .*, got 'mnist'$"),
        ({"scale": "large"}, r"^scale must be one of paper, small, got 'large'$"),
        ({"seeds": [2]}, r"^seeds must be below n_seeds, 2, got 2$"),
        ({"n_seeds": 0}, r"^n_seeds must be at least 1, got 0$"),
        ({"networks": ["frozen"]}, r"^networks must be some of truth, raw, untrained, trained-0, .*, got 'frozen'$"),
        ({"layers": ["blocks"]}, r"^layers must be modules of the network \(input, blocks\.0, .*\), got 'blocks'$"),
        ({"time_limit": -1}, r"^time_limit must be a number of at least 0, got -1$"),
        ({"methods": ["nothing"]}, r"^method must be one of "),
        ({"only": ["pca"], "again": ["ica"]}, r"^again must name methods that are computed \(pca\), got 'ica'$"),
    ],
)
def test_bad_input_is_one_line_before_any_work(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        benchmark(**{"tasks": ["superposed-2"], "output": tmp_path / "new"} | GIVEN | given)
    assert not (tmp_path / "new").exists()


def test_a_directory_must_be_that_of_a_benchmark(made, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"^output must be empty or hold a benchmark, got "):
        benchmark([CLUSTER], output=tmp_path, **GIVEN)
    with pytest.raises(FileExistsError, match=r"^output must hold a benchmark of scale paper, got "):
        benchmark([CLUSTER], output=made[0], **GIVEN | {"scale": "paper"})


def test_tasks_at_both_scales():
    for name in ("paper-one-cluster", "paper-multi-cluster", "superposed-2", "superposed-4"):
        full, small = task(name), task(name, "small")
        assert full.recipe == pl.PRESETS[name]
        assert full.n_factors == small.n_factors == {"superposed-2": 2, "superposed-4": 4}.get(name, 1)
        assert full.budget.n_features == full.budget.batch_size == 4096
        assert len(grid(full, [entry("neurons", TINY)], [0, 1], full.networks, ["a", "b"])) == 2 * (
            1 + 2 * (1 + full.n_factors)
        )
        assert Task(**vars(small)).to_dict() == json.loads(json.dumps(small.to_dict()))


# ---------------------------------------------------------------------- the table


KEPT = (
    "recovered", "chance", "splitting", "f1_union", "absorption_edge", "absorption", "absorption_null",
)  # fmt: skip
"""What a cell keeps of its bins, beside how many concepts there are and their recovery."""


def planted(output, effects, seeds=(0, 1, 2), counts=(40, 30), method="kmeans", column="f1"):
    """Write cells in which a network's F1 of a concept is that of the concept plus an effect and a little noise."""
    rng = np.random.default_rng(0)
    base = [rng.uniform(0.2, 0.4, count) for count in counts]
    noise = np.random.default_rng(len(method))
    units = [{"start": list(range(0, 10 * count, 10)), "counted": [True] * count} for count in counts]
    keeping.write_truths(output, WORLD, [{"concepts": unit, "pairs": unit} for unit in units])
    (output / CELLS / "world").mkdir(parents=True, exist_ok=True)
    for network in ("raw", "untrained", "trained-0", "trained-1"):
        for seed in seeds:
            factors = {}
            for k, values in enumerate(base):
                values = values + effects.get((network, k), 0) + 0.01 * noise.normal(size=values.size)
                summary = {"recovery": float(values.mean()), "l0": 3.0 + seed}
                bins = {"from": [16], "to": [32], "concepts": [values.size]}
                bins |= {name: [None if seed else 0.5] for name in KEPT}
                bins["recovery"] = [float(values.mean())]
                values = np.exp(values) if column == "separation" else values
                factors[str(k)] = {"summary": summary, "by_size": bins, "by_depth": bins, column: values.tolist()}
            layer = "raw" if network == "raw" else "blocks.0"
            made_from = Cell(WORLD, network, layer, entry(method, TINY), seed).made_from()
            cell = {"made_from": made_from, "provenance": {}, "values": {"factors": factors}}
            (output / CELLS / "world" / f"{network}_{method}_{seed}.json").write_text(json.dumps(cell))


EFFECTS = {("trained-0", 0): 0.3, ("trained-1", 1): 0.1, ("trained-1", 0): 0.05, ("untrained", 1): -0.1}


@pytest.mark.parametrize(("method", "column"), [("kmeans", "f1"), (READING, "separation")])
def test_planted_gaps_are_found(method, column, tmp_path):
    planted(tmp_path, EFFECTS, method=method, column=column)
    (line,) = tables.lines(tmp_path)
    gaps = {name: line.values[name] for name in ("trained_untrained", "trained_raw", "relevant_irrelevant")}
    wanted = {
        "trained_untrained": (40 * 0.3 + 30 * 0.2) / 70,
        "trained_raw": (40 * 0.3 + 30 * 0.1) / 70,
        "relevant_irrelevant": (40 * (0.3 - 0.05) + 30 * 0.1) / 70,
    }
    for name, found in gaps.items():
        assert found.low < wanted[name] < found.high
        assert found.value == pytest.approx(wanted[name], abs=0.005)
        assert (found.seeds, found.units) == (3, 70)
    assert line.values["relevant_irrelevant_share"].value > 0.98


def test_no_effect_gives_no_gap(tmp_path):
    planted(tmp_path, {("trained-0", 0): 0.3, ("trained-1", 0): 0.3})  # as large where it is irrelevant
    (line,) = tables.lines(tmp_path)
    assert abs(line.values["relevant_irrelevant"].value) < 0.005
    assert not line.values["relevant_irrelevant"].found
    assert abs(line.values["relevant_irrelevant_share"].value - 0.5) < 0.1
    assert line.values["trained_untrained"].value > 0.1


def test_means_are_over_seeds_on_the_hierarchy_that_was_trained_on(tmp_path):
    planted(tmp_path, EFFECTS)
    (line,) = tables.lines(tmp_path)
    cells = [json.loads(file.read_text()) for file in sorted((tmp_path / CELLS / "world").glob("trained-*.json"))]
    own = [cell["values"]["factors"][cell["made_from"]["network"][-1]]["summary"]["recovery"] for cell in cells]
    assert line.values["recovery"].value == pytest.approx(np.mean(own))
    assert line.values["recovery"].seeds == 3
    assert line.values["l0"].value == pytest.approx(4)
    by_seed = np.array([3, 4, 5])
    half = 4.302653 * by_seed.std(ddof=1) / np.sqrt(3)  # Student's t with 2 degrees of freedom
    assert line.values["l0"].high - line.values["l0"].value == pytest.approx(half, rel=1e-4)
    for found in (line.by_size, line.by_depth):
        assert found["trained"][0].values["recovery"].value == pytest.approx(np.mean(own))
    absorption = line.by_depth["trained"][0].values["absorption"]
    assert (absorption.value, absorption.seeds) == (0.5, 1)  # what is not known is left out


def test_seeds_that_lack_a_network_are_left_out(tmp_path):
    planted(tmp_path, EFFECTS)
    (tmp_path / CELLS / "world" / "trained-1_kmeans_2.json").unlink()
    (line,) = tables.lines(tmp_path)
    assert line.values["recovery"].seeds == 2
    assert line.values["untrained"].seeds == 3
    assert line.values["relevant_irrelevant"].seeds == 2
    assert line.values["relevant_irrelevant"].value == pytest.approx(13 / 70, abs=0.01)


def test_controls_are_of_the_hierarchies_that_were_trained_on(tmp_path):
    planted(tmp_path, EFFECTS)
    for file in (tmp_path / CELLS / "world").glob("trained-1_*.json"):
        file.unlink()
    (line,) = tables.lines(tmp_path)
    cells = [json.loads(file.read_text()) for file in sorted((tmp_path / CELLS / "world").glob("untrained_*.json"))]
    own = [cell["values"]["factors"]["0"]["summary"]["recovery"] for cell in cells]
    assert line.values["untrained"].value == pytest.approx(np.mean(own))
    assert line.by_size["untrained"][0].values["recovery"].value == pytest.approx(np.mean(own))


def test_the_picture_of_the_gaps_names_its_task(tmp_path):
    planted(tmp_path, EFFECTS)
    (axes,) = drawing.draw_gaps(tables.lines(tmp_path)).axes
    assert axes.get_title(loc="left") == "world"


def test_gaps_are_compared_with_those_of_kmeans(tmp_path):
    planted(tmp_path, {("trained-0", 0): 0.1, ("trained-1", 1): 0.1})
    planted(tmp_path, {("trained-0", 0): 0.3, ("trained-1", 1): 0.3}, method="topk")
    plain, mine = (line.values for line in tables.lines(tmp_path))
    assert "relevant_irrelevant_over_kmeans" not in plain
    for name in ("trained_untrained", "relevant_irrelevant"):
        found = mine[f"{name}_over_kmeans"]
        assert found.low < 0.2 < found.high
        assert found.value == pytest.approx(0.2, abs=0.005)
        ratios = mine[f"{name}_ratio"], plain[f"{name}_ratio"], mine[f"{name}_ratio_over_kmeans"]
        assert [ratio.value for ratio in ratios] == pytest.approx(np.log([2, 4 / 3, 1.5]), abs=0.02)
        assert ratios[2].low < np.log(1.5) < ratios[2].high


def test_methods_that_prefer_the_relevant_alike_are_told_alike(tmp_path):
    planted(tmp_path, {("trained-0", 0): 0.1, ("trained-1", 1): 0.1})
    planted(tmp_path, {("trained-0", 0): 0.1, ("trained-1", 1): 0.1}, method="topk")
    assert not tables.lines(tmp_path)[1].values["relevant_irrelevant_ratio_over_kmeans"].found


def test_absorption_is_compared_with_independent_misses(tmp_path):
    planted(tmp_path, EFFECTS)
    for file in (tmp_path / CELLS / "world").glob("trained-*.json"):
        cell = json.loads(file.read_text())
        seed = cell["made_from"]["seed"]
        for factor in cell["values"]["factors"].values():
            factor["summary"] |= {"absorption": 0.1 * seed + 0.05, "absorption_null": 0.1 * seed}
        file.write_text(json.dumps(cell))
    (line,) = tables.lines(tmp_path)
    assert line.values["absorption_excess"].value == pytest.approx(0.05)
    assert line.values["absorption_excess"].high == pytest.approx(0.05)  # seed by seed, so what varies alike is gone


def test_bins_have_intervals_over_seeds():
    """Of each seed the mean over the hierarchies that know a number; then Student's interval over seeds."""
    nothing = {name: [None, None] for name in KEPT}
    first = {"from": [1, 3], "to": [3, 7], "concepts": [4, 20], "recovery": [0.1, 0.5], **nothing}
    second = {"from": [3, 7], "to": [7, 15], "concepts": [10, 5], "recovery": [0.7, 0.2], **nothing}
    seeds = []
    for shift in (0.0, 0.1, 0.5):
        mine = first | {"absorption": [None, 0.2 + shift], "absorption_null": [None, shift], "splitting": [shift, None]}
        seeds.append([mine, second | {"absorption": [0.3, 0.9], "absorption_null": [0.2, None]}])
    seeds[1][0] = seeds[1][0] | {"splitting": [None, None]}
    found = bins.bins(seeds, ("recovery", "absorption", "absorption_excess", "splitting"))
    assert [(one.start, one.stop, one.concepts) for one in found] == [(1, 3, 4), (3, 7, 15), (7, 15, 5)]
    low, middle, high = (one.values for one in found)
    assert [middle["recovery"].value, middle["recovery"].high] == pytest.approx([0.6] * 2)
    by_seed = np.array([0.25, 0.3, 0.5])  # with what the other hierarchy has
    half = 4.302653 * by_seed.std(ddof=1) / np.sqrt(3)
    assert middle["absorption"].value == pytest.approx(by_seed.mean())
    assert middle["absorption"].high == pytest.approx(by_seed.mean() + half, rel=1e-6)
    excess = middle["absorption_excess"]
    assert [excess.value, excess.low, excess.high] == pytest.approx([0.15] * 3)  # what varies alike is gone
    assert np.isnan(low["absorption_excess"].value)
    assert np.isnan(high["absorption_excess"].value)  # misses that are not known are not 0
    assert (low["splitting"].value, low["splitting"].seeds) == (0.25, 2)
    plain = bins.columns(found)
    assert (plain["from"][0], plain["to"][0], plain["absorption_excess"][0]) == (1, 3, None)
    excess = [plain[f"absorption_excess_{part}"][0] for part in ("low", "high", "seeds")]
    recovery = [plain[f"recovery{part}"][0] for part in ("", "_low", "_high", "_seeds")]
    assert excess == [None, None, 0]
    assert recovery == [pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.1), 3]
    assert len({len(column) for column in plain.values()}) == 1


def test_pictures_show_the_intervals(tmp_path):
    planted(tmp_path, EFFECTS)
    for file in (tmp_path / CELLS / "world").glob("trained-*.json"):
        cell = json.loads(file.read_text())
        shift = 0.1 * cell["made_from"]["seed"]
        for factor in cell["values"]["factors"].values():
            columns = {"absorption": [0.3 + shift] * 3, "absorption_null": [0.1, None, 0.1]}
            factor["by_depth"] = {name: values * 3 for name, values in factor["by_depth"].items()} | columns
            factor["by_depth"] |= {"from": [3, 7, 15], "to": [7, 15, 31]}
        file.write_text(json.dumps(cell))
    (line,) = found = tables.lines(tmp_path)
    (axes,) = drawing.draw_absorption(found).axes
    edges, rows = [axes.get_lines()[i].get_ydata() for i in (0, 1)]
    assert edges.tolist() == [0.5] * 3
    np.testing.assert_allclose(rows, [0.3, np.nan, 0.3])
    (bars,) = [drawn for drawn in axes.collections if "LineCollection" in str(drawn) and drawn.get_segments()]
    wanted = line.by_depth["trained"][0].values["absorption_excess"]
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [wanted.low, wanted.high])
    assert len(bars.get_segments()) == 2  # each has no neighbour to make a band with
    low, high = axes.get_ylim()
    assert low < 0.3 < 0.5 < high
    assert high < 1
    (axes,) = drawing.draw_recovery(found).axes
    assert len([label for label in axes.get_legend_handles_labels()[1] if label]) == 4


def test_there_are_no_more_components_than_columns():
    assert make(entry("pca", TINY), 0, "cpu", 2).n_components == 2
    assert make(entry("pca", TINY), 0, "cpu", 8).n_components == TINY.n_components
    assert make(entry("kmeans", TINY), 0, "cpu", 2).n_features == TINY.n_features


def test_a_network_that_is_not_asked_for_is_no_loss(tmp_path):
    planted(tmp_path, EFFECTS, counts=(40, 30, 20))
    for seed in range(3):  # of three hierarchies, two have networks
        assert not list((tmp_path / CELLS / "world").glob(f"trained-2_*_{seed}.json"))
    (line,) = tables.lines(tmp_path)
    assert line.values["recovery"].seeds == 3
    assert line.values["relevant_irrelevant"].units == 70
    assert line.values["relevant_irrelevant"].value == pytest.approx(13 / 70, abs=0.01)


def test_numbers_have_the_digits_of_their_intervals():
    cells = {
        "0.247 ± 0.061": Estimate(0.2468, 0.186, 0.308),
        "-0.008 ± 0.005": Estimate(-0.0081, -0.013, -0.003),
        "32.1 ± 1.5": Estimate(32.12, 30.6, 33.6),
        "1.000": Estimate(1.0, float("nan"), float("nan")),
    }
    for wanted, found in cells.items():
        assert report.words(found).replace("\u00a0", " ") == wanted
    assert report.words(Estimate(0.2468, 0.186, 0.308), interval=False) == "0.247"


def test_layers_are_told_apart(tmp_path):
    given = {"output": tmp_path / "layers", "only": ["neurons"], "networks": ["untrained", "raw"], "seeds": [0]}
    found = benchmark([CLUSTER], layers=["input", "blocks.0"], **given, **GIVEN)
    assert found["cells"] == {"done": 3, "asked": 3, "failed": 0}
    recovery = {line["layer"]: line["values"] for line in found["lines"]}
    assert recovery.keys() == {"input", "blocks.0"}
    assert recovery["input"]["raw"] == recovery["blocks.0"]["raw"]
    assert recovery["input"]["untrained"] != recovery["blocks.0"]["untrained"]
    assert [row[0] for row in report.brief(found)] == ["cluster, input", "neurons", "cluster, blocks.0", "neurons"]


def renamed(output, *changes):
    """Write copies of cells with something else in `made_from`."""
    for file in (output / CELLS / "world").glob("*.json"):
        cell = json.loads(file.read_text())
        for i, change in enumerate(changes):
            written = file.with_name(f"{i}_{file.name}")
            written.write_text(json.dumps(cell | {"made_from": cell["made_from"] | change}))
        file.unlink()


def places(output):
    return [(line.layer, line.method) for line in tables.lines(output)]


def test_layers_come_in_the_order_of_the_network(tmp_path, monkeypatch):
    deep = replace(WORLD, training=replace(TRAINING, n_blocks=11))
    monkeypatch.setattr(sys.modules[__name__], "WORLD", deep)
    planted(tmp_path, EFFECTS)
    for file in (tmp_path / CELLS / "world").glob("raw_*"):
        file.unlink()
    renamed(tmp_path, *({"layer": layer} for layer in ("blocks.10", "blocks.2", "output", "input")))
    assert places(tmp_path) == [(layer, "kmeans") for layer in ("input", "blocks.2", "blocks.10", "output")]


def test_methods_on_the_raw_input_alone_and_oracles_are_shown_once(tmp_path):
    raw, inside, truth = tmp_path / "raw", tmp_path / "inside", tmp_path / "truth"
    planted(raw, EFFECTS, method="pca")
    for file in (raw / CELLS / "world").glob("*trained*.json"):
        file.unlink()
    shutil.copytree(raw, truth)
    renamed(truth, {"network": "truth", "layer": "truth", "method": "oracle", "name": "oracle", "options": {}})
    assert places(truth) == [("truth", "oracle")]
    for i, file in enumerate((truth / CELLS / "world").iterdir()):
        shutil.copy(file, raw / CELLS / "world" / f"oracle{i}.json")
    assert places(raw) == [("raw", "pca"), ("raw", "oracle")]
    shutil.copytree(raw, inside)
    planted(inside, EFFECTS)
    assert places(inside) == [("blocks.0", "kmeans"), ("blocks.0", "oracle"), ("raw", "pca")]


def test_the_report_shows_every_method_and_its_gaps(made):
    output, results = made
    page = (output / report.REPORT).read_text()
    for words in (*METHODS, "trained - untrained", "relevant - irrelevant", "better when relevant", "How it was made"):
        assert words in page
    assert page.count('<tr class="part">') == page.count("<th>world, blocks.0</th>") == 1
    assert ">nan" not in page
    assert "data:image/png" in page
    names = {file.stem for file in (output / report.FIGURES).iterdir()}
    assert names == {f"world-blocks.0-{name}" for name in ("recovery", "splitting", "absorption", "gaps")}
    oracle = next(line for line in results["lines"] if line["method"] == "oracle")
    assert oracle["values"]["recovery"]["value"] == 1


# ---------------------------------------------------------------------- with SAELens


@pytest.mark.sae
def test_autoencoders_are_compared(tmp_path):
    names = ["topk", "batchtopk", "jumprelu", "gated", "matryoshka", "batchtopk-frozen-decoder"]
    found = benchmark([WORLD], output=tmp_path / "sae", only=names, **GIVEN | {"n_seeds": 1})
    assert found["cells"] == {"done": 24, "asked": 24, "failed": 0}
    cell = kept(tmp_path / "sae", "trained-0_blocks.0_topk_0")
    assert cell["values"]["factors"]["0"]["summary"]["l0"] == 3
    assert cell["provenance"]["sae-lens"]


def test_autoencoders_are_left_out_where_saelens_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sae_lens", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    from percolab.features.specs import standard

    names = {found.name for found in standard(TINY)}
    assert "kmeans" in names
    assert not names & {"topk", "batchtopk", "jumprelu", "gated", "matryoshka"}
    with pytest.raises(ImportError, match=r"^topk needs SAELens: pip install 'percolab\[sae\]'$"):
        benchmark([WORLD], output=tmp_path / "new", only=["topk"], **GIVEN)
