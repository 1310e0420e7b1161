"""``percolab score`` and ``percolab benchmark``: what they print, what they write, and bad input in one line."""

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse

import percolab as pl
from percolab.cli.main import run
from percolab.features import score
from percolab.features.inputs import read_codes
from percolab.ground import progress


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dataset, a world, and codes for them in files."""
    folder = tmp_path_factory.mktemp("score")
    dataset = pl.generate(pl.Recipe(600, 4, "one_cluster", seeds=1))
    dataset.save(folder / "one.zarr")
    recipes = [dataset.recipe, pl.Recipe(600, 4, "one_cluster", seeds=2)]
    pl.generate(pl.Superposition(recipes, seed=0)).save(folder / "world.zarr")
    rng = np.random.default_rng(0)
    codes = np.maximum(np.asarray(dataset.X) @ rng.normal(size=(4, 9)), 0)
    rows = rng.integers(0, 600, 200)
    decoder = {"directions": rng.normal(size=(9, 4)), "bias": np.ones(4), "activations": np.asarray(dataset.X)}
    np.savez(folder / "dense.npz", codes=codes)
    np.savez(folder / "lone.npz", codes)
    np.savez(folder / "decoder.npz", codes=codes, **decoder)
    np.savez(folder / "part.npz", codes=codes[rows], rows=rows)
    np.save(folder / "plain.npy", codes[rows])
    np.save(folder / "rows.npy", rows)
    np.save(folder / "empty.npy", codes[:0, :5])
    scipy.sparse.save_npz(folder / "sparse.npz", scipy.sparse.csr_array(codes))
    np.savez(folder / "negative.npz", codes=codes - 1)
    np.savez(folder / "dead.npz", codes=0 * codes)
    np.savez(folder / "short.npz", codes=codes[:7])
    np.savez(folder / "unnamed.npz", a=codes, b=codes)
    np.savez(folder / "objects.npz", codes=np.array([{}], object))
    (folder / "junk.npz").write_text("no archive")
    np.save(folder / "far.npy", np.full(7, 600))
    return folder, dataset, codes, rows, decoder


def scored(place, *arguments):
    folder = place[0]
    words = [str(folder / word) if word.endswith((".zarr", ".npz", ".npy")) else word for word in arguments]
    return run(["score", *words])


@pytest.mark.parametrize(
    "arguments",
    [["dense.npz"], ["lone.npz"], ["sparse.npz"], ["part.npz"], ["plain.npy", "--rows", "rows.npy"], ["decoder.npz"]],
    ids=lambda words: words[0],
)
def test_codes_of_every_kind_are_scored(arguments, place, capsys):
    _, dataset, codes, rows, decoder = place
    assert scored(place, "one.zarr", *arguments, "--json", "--min-size", "10", "--seed", "3") == 0
    found = json.loads(capsys.readouterr().out)
    part = arguments[0] in ("part.npz", "plain.npy")
    given = (codes[rows], rows) if part else (codes,)
    more = decoder if arguments[0] == "decoder.npz" else {}
    wanted = score(dataset, *given, min_size=10, seed=3, **more).summary
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (None if np.isnan(value) else pytest.approx(value))


def test_a_table_is_printed(place, capsys):
    assert scored(place, "one.zarr", "dense.npz") == 0
    out = capsys.readouterr().out
    assert out.startswith("recovery ")
    assert "nan" not in out
    (head,) = [line for line in out.splitlines() if line.strip().startswith("rows of a concept")]
    assert head.split("  ")[-1] == "absorption null"  # the control beside the number


def test_an_array_in_a_file_of_its_own_is_not_read_at_once(place):
    assert isinstance(read_codes("codes", place[0] / "plain.npy")["codes"], np.memmap)


def test_a_world_is_scored_by_factor(place, capsys):
    summaries = []
    for factor in ("0", "1"):
        assert scored(place, "world.zarr", "dense.npz", "--factor", factor, "--json") == 0
        summaries.append(json.loads(capsys.readouterr().out))
    assert summaries[0]["recovery"] > summaries[1]["recovery"]


def test_tables_and_pages_are_written(place, tmp_path, capsys):
    _, dataset, codes, *_ = place
    wanted = score(dataset, codes)
    for name in ("a.html", "a.csv", "a.json"):
        assert scored(place, "one.zarr", "dense.npz", "-o", str(tmp_path / name)) == 0
        assert capsys.readouterr().out.startswith(f"wrote {tmp_path / name}\nrecovery ")
    page = (tmp_path / "a.html").read_text()
    assert "data:image/png" in page
    assert page.index("data:image/png") < page.index("<table")
    assert "the control is the same method" in page
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0].split(",")[:2] == ["latent", "size"]
    assert len(lines) == 1 + len(wanted.concepts)
    values = json.loads((tmp_path / "a.json").read_text())
    assert values["features"]["fired"] == wanted.features["fired"].tolist()
    assert values["summary"]["recovery"] == pytest.approx(wanted.summary["recovery"])
    capsys.readouterr()
    assert scored(place, "one.zarr", "dense.npz", "-o", str(tmp_path / "a.csv")) == 2
    assert "--output must not exist unless --overwrite is given" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(place):
    """A run on the dataset, of which nothing was learned that counts."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    words = ["--d-model", "8", "--n-blocks", "2", "--epochs", "1", "--batch-size", "64", "--device", "cpu", "-q"]
    assert run(["train", str(place[0] / "one.zarr"), "-o", str(place[0] / "run"), *words]) == 0
    return place[0] / "run"


@pytest.mark.slow
def test_methods_on_a_network_stand_beside_an_untrained_one(place, trained, tmp_path, capsys):
    from percolab.features.methods import KMeans
    from percolab.nn import activations, load_model

    given = ["one.zarr", "--run", str(trained), "--method", "kmeans@n_features=8", "--method", "neurons"]
    given += ["--layer", "blocks.0", "--device", "cpu"]
    assert scored(place, *given, "--json", "-o", str(tmp_path / "features.html")) == 0
    found = json.loads(capsys.readouterr().out)
    asked = [(m, network) for m in ("kmeans@n_features=8", "neurons") for network in ("trained", "untrained", "raw")]
    assert {(row["method"], row["network"]) for row in found} == set(asked)
    A = activations(load_model(trained, place[1]), place[1].X, ["blocks.0"], device="cpu")["blocks.0"].numpy()
    wanted = score(place[1], KMeans(8, batch_size=16384, max_iterations=50).fit(A).encode(A)).summary
    assert found[0]["recovery"] == pytest.approx(wanted["recovery"])
    assert found[0]["recovery"] != found[2]["recovery"]
    page = (tmp_path / "features.html").read_text()
    assert page.count("data:image/png") == 3  # of both methods together, and of each
    assert scored(place, *given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [tuple(line.split()[:2]) for line in lines[1:-1]] == asked
    assert "held-out rows" in lines[-1]


@pytest.fixture
def own(place, tmp_path, monkeypatch):
    """A network of one's own that trains itself, and its activations in a folder."""
    torch = pytest.importorskip("torch")
    (tmp_path / "my_trained.py").write_text(
        "import torch\n"
        "class Own(torch.nn.Module):\n"
        "    def __init__(self, dim):\n"
        "        super().__init__()\n"
        "        self.body = torch.nn.Sequential(torch.nn.Linear(dim, 6), torch.nn.ReLU())\n"
        "    def forward(self, x):\n"
        "        return self.body(x).sum(1)\n"
        "    def fit(self, data, seed):\n"
        "        with torch.no_grad():\n"
        "            self.body[0].weight.fill_(0.5 + seed)\n"
        "def make(data, seed):\n"
        "    return Own(data.X.shape[1])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    A = torch.relu(torch.tensor(np.asarray(place[1].X)) @ torch.full((place[1].X.shape[1], 6), 0.5)).numpy()
    folder = tmp_path / "kept"
    folder.mkdir()
    for role in ("trained", "untrained"):
        np.save(folder / f"{role}.npy", A if role == "trained" else np.random.default_rng(0).normal(size=A.shape))
    entries = [{"file": f"{role}.npy", "role": role, "layer": "body"} for role in ("trained", "untrained")]
    (folder / "manifest.json").write_text(json.dumps({"activations": entries}))
    return folder


@pytest.mark.parametrize("how", ["network", "activations"])
def test_methods_are_scored_on_a_network_that_was_trained_elsewhere(place, own, how, capsys):
    given = {"network": ["--network", "my_trained:make"], "activations": ["--activations", str(own)]}[how]
    words = ["one.zarr", *given, "--layer", "body", "--method", "neurons", "--device", "cpu"]
    assert scored(place, *words, "--json", "-o", str(own / "page.html")) == 0
    found = {row["network"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(found) == {"trained", "untrained", "raw"}
    assert len({row["recovery"] for row in found.values()}) == 3
    assert " and on X" in (own / "page.html").read_text()
    if how == "network":
        assert scored(place, *words[:3], "--device", "cpu") == 2
        assert "--layer must name modules of the network (body" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["network", "activations"])
def test_a_network_that_was_trained_elsewhere_is_probed(place, own, how, tmp_path, capsys):
    given = {
        "network": ["--network", "my_trained:make", "--layers", "body"],
        "activations": ["--activations", str(own)],
    }
    dataset = pl.generate(pl.Recipe(3_000, 4, "one_cluster", seed=3))
    dataset.save(tmp_path / "more.zarr")
    for role in ("trained", "untrained"):
        values = np.maximum(np.asarray(dataset.X) @ np.random.default_rng(len(role)).normal(size=(4, 6)), 0)
        np.save(own / f"{role}.npy", values)
    words = ["probe", str(tmp_path / "more.zarr"), *given[how], "-o", str(tmp_path / "out"), "--device", "cpu"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert said.startswith("Error of probe at body: ")
    assert all(word in said for word in ("trained - untrained", "trained - raw", "separation"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "results.json", "table.parquet"}
    assert run(words) == 2
    assert "must be new or empty unless --overwrite is given" in capsys.readouterr().err
    assert run([*words, "--draws", "3"]) == 2
    assert "--draws must come with --run, got 3" in capsys.readouterr().err
    assert run(["probe", str(tmp_path / "more.zarr"), "-o", str(tmp_path / "more")]) == 2
    assert "--run or --network or --activations must be given, got none" in capsys.readouterr().err


def test_a_folder_that_is_taken_is_refused_before_networks_are_read(place, tmp_path, capsys):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    words = ["probe", str(place[0] / "one.zarr"), "--network", "no_such:make", "-o", str(tmp_path / "taken")]
    assert run(words) == 2
    assert "must be new or empty unless --overwrite is given" in capsys.readouterr().err


def test_layers_are_not_for_a_run(place, trained, tmp_path, capsys):
    words = ["probe", str(place[0] / "one.zarr"), "--run", str(trained), "-o", str(tmp_path / "out")]
    assert run([*words, "--layers", "blocks.0"]) == 2
    assert "--layers must come with --network or --activations" in capsys.readouterr().err


def test_an_untrained_network_keeps_no_trained_weights():
    import torch
    from torch import nn

    from percolab.study.networks import with_fresh_weights

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Parameter(torch.zeros(4))

    class Reset(Tokens):
        def reset_parameters(self):
            nn.init.normal_(self.first)

    attention = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    with torch.no_grad():
        for weight in attention.parameters():
            weight.fill_(7.0)
    fresh = with_fresh_weights(nn.Sequential(attention, Reset()), 0)
    assert not any((weight == 7).any() for weight in fresh.parameters())
    assert fresh[1].first.any()
    with pytest.raises(ValueError, match=r"got none for 'first' of Tokens '1'$"):
        with_fresh_weights(nn.Sequential(attention, Tokens()), 0)


def test_methods_on_a_network_say_how_far_they_are(place, trained):
    from percolab.benchmark.one_network import compare
    from percolab.nn import load_model
    from percolab.study.networks import with_fresh_weights

    told = []
    model = load_model(trained, place[1], device="cpu")
    compare(
        place[1],
        {"trained": model, "untrained": with_fresh_weights(model, 0)},
        ["neurons", "kmeans@n_features=4"],
        device="cpu",
        progress=lambda *step: told.append(step),
    )
    assert told == [("methods", done, 4) for done in range(5)]


@pytest.mark.parametrize("arguments", [["dense.npz"], ["--run", "RUN", "--method", "neurons", "--device", "cpu"]])
def test_a_bar_is_shown(arguments, place, trained, monkeypatch, capsys):
    shown = []

    class Seen(progress.Display):
        def __call__(self, stage, done, total):
            shown.append((stage, done, total))

        def note(self, stage, text):
            shown.append(text)

    monkeypatch.setattr("percolab.cli.features.bar", lambda **options: nullcontext(Seen()))
    assert scored(place, "one.zarr", *(str(trained) if word == "RUN" else word for word in arguments)) == 0
    if "--run" in arguments:
        assert shown == [
            ("methods", 0, 3), "neurons, trained", ("methods", 1, 3), "neurons, untrained", ("methods", 2, 3),
            "neurons, raw", ("methods", 3, 3),
        ]  # fmt: skip
    else:
        assert shown == [("scoring", done, 6) for done in range(1, 7)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "CODES or --run or --network or --activations must be given, got none"),
        (
            ["dense.npz", "--run", "RUN"],
            "CODES or --run or --network or --activations must be given, got codes and run",
        ),
        (["--network", "nowhere:make"], "--network must be a function that can be imported, got 'nowhere:make'"),
        (["--run", "RUN", "--layer", "head"], "--layer must be modules of the model (input, "),
        (["--run", "RUN", "--method", "oracle"], "--method must make features of activations, got 'oracle'"),
        (["--run", "RUN", "-o", "score.csv"], "--output must end in .html, got 'score.csv'"),
        (["--run", "nothing"], "--run must exist, got 'nothing/checkpoint.pt'"),
        (["--run", "RUN", "--rows", "rows.npy"], "--rows must come with CODES, got --run"),
        (
            ["dense.npz", "--method", "neurons"],
            "--method must come with --run or --network or --activations, got CODES",
        ),
        (["dense.npz", "--layer", "blocks.0"], "--layer must come with --run or --network or --activations, got CODES"),
        (["dense.npz", "--device", "cpu"], "--device must come with --run or --network or --activations, got CODES"),
        (
            ["--run", "RUN", "--threshold", "1e9"],
            "CODES must be above the threshold somewhere, got none in 16 features",
        ),
        (["--run", "RUN", "--draws", "0"], "--draws must be at least 1, got 0"),
    ],
)
def test_methods_on_a_network_are_refused_in_one_line(arguments, message, place, trained, capsys):
    words = [str(trained) if word == "RUN" else word for word in arguments]
    assert scored(place, "one.zarr", *words) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


BAD = {
    "negative": ("one.zarr negative.npz", "CODES must be finite and not negative, got "),
    "dead": ("one.zarr dead.npz", "CODES must be above the threshold somewhere, got none in 9 features"),
    "short": ("one.zarr short.npz", "CODES must have a row for each of the 600 rows, unless --rows are given, "),
    "far": ("one.zarr short.npz --rows far.npy", "--rows must be between 0 and 599, got 600"),
    "large": ("one.zarr dense.npz --min-size 601", "--min-size must leave a concept: the largest has 600"),
    "small": ("one.zarr dense.npz --min-size 1", "--min-size must be at least 2, got 1"),
    "unnamed": ("one.zarr unnamed.npz", "CODES must be a file as NumPy or SciPy save arrays, got "),
    "junk": ("one.zarr junk.npz", "CODES must be a file as NumPy or SciPy save arrays, got "),
    "objects": ("one.zarr objects.npz", "CODES must be a file as NumPy or SciPy save arrays, got "),
    "nothing": ("one.zarr nothing.npz", "CODES must exist, got "),
    "rows": ("one.zarr dense.npz --rows nothing.npy", "--rows must exist, got "),
    "factor": ("world.zarr dense.npz", "--factor must be given for a world of 2 hierarchies"),
    "empty": ("one.zarr empty.npy", "CODES must have shape (rows, features), at least 1 of each, got (0, 5)"),
    "suffix": ("one.zarr dense.npz -o score.png", "--output must end in .html or .csv or .json, got 'score.png'"),
    "threshold": ("one.zarr dense.npz --threshold -1", "--threshold must be at least 0, got -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, place, capsys):
    arguments, message = BAD[case]
    assert scored(place, *arguments.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "mnist"], "--tasks must be one of documents, "),
        (["--scale", "huge"], "--scale must be one of paper, small, got 'huge'"),
        (["--only", "lasso"], "methods must be known: method must be one of neurons, "),
        (["--method", "lasso"], "methods must be known: method must be one of neurons, "),
        (["--method", "no_such:Thing"], "methods must be known: method must be a class that can be imported"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--network", "no_such:make"], "--layer must name a module of the network"),
        (["--activations", "no-such-folder"], "manifest.json must exist"),
    ],
)
def test_a_benchmark_refuses_in_one_line(arguments, message, tmp_path, capsys):
    pytest.importorskip("torch")
    given = [] if "--tasks" in arguments else ["--tasks", "superposed-2"]
    assert run(["benchmark", "-o", str(tmp_path / "new"), *given, *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "new").exists()


OWN = """
import numpy as np

class Halves:
    def fit(self, activations):
        return self

    def encode(self, activations):
        return np.maximum(activations, 0)
"""


@pytest.mark.slow
def test_a_method_beside_the_user_is_compared(tmp_path, monkeypatch, capsys):
    """As its page says: a class in a file of one's own, named by --only; a method that fails is named."""
    pytest.importorskip("torch")
    from percolab import benchmark
    from percolab.nn import TrainConfig

    own = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{own}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])  # as of the program, not of `python -m`
    training = TrainConfig(d_model=8, n_blocks=1, epochs=1, batch_size=64)
    recipe = pl.Recipe(300, 4, "one_cluster", seeds=1)
    tiny = benchmark.Task(
        "paper-one-cluster", "small", recipe, training, benchmark.Options("blocks.0", 5, benchmark.Budget())
    )
    monkeypatch.setattr("percolab.benchmark.declaration.task", lambda name, scale: tiny)
    words = ["benchmark", "-o", "made", "--scale", "small", "--tasks", "paper-one-cluster", "--device", "cpu"]
    assert run([*words, "--only", f"neurons,{own}:Halves", "--time-limit", "0", "-q"]) == 130
    unfinished = "error: unfinished: 8 cells of paper-one-cluster are left; the same command resumes\n"
    assert capsys.readouterr() == ("", unfinished)
    assert run([*words, "--only", f"neurons,{own}:Halves"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert last == "made/paper-one-cluster/report.html: done"
    assert [line.split()[0] for line in table] == ["paper-one-cluster", "neurons", f"{own}:Halves"]
    assert "trained - raw" in table[0]
    assert run([*words, "--only", "kmeans@n_features=-3"]) == 1
    assert "n_features must be at least 1, got -3" in capsys.readouterr().err.splitlines()[-1]
    assert run(["benchmark", "--check", "made"]) == 2
    assert "must be of a task of version 1" in capsys.readouterr().err
