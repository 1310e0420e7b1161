"""The command line: what it writes and prints, and one line for everything that can be wrong."""

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import percolab as pl
from percolab import exports
from percolab.cli import errors, main
from percolab.cli.errors import BAD_INPUT, FAILURE, INTERRUPTED
from percolab.model.recipe import ENGINE_NAMES, PRESETS

SMALL = ["generate", "--n-points", "300", "--dim", "4", "--engine", "paper"]


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "percolab.ground.progress.LINE_SECONDS", 1e6
    )  # tests may be slow, and check all that is printed


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    path = tmp_path_factory.mktemp("generated") / "a.zarr"
    assert main.run([*SMALL, "--seed", "7", "-q", "-o", str(path)]) == 0
    return path


@pytest.fixture
def store(generated, in_tmp_path):
    return shutil.copytree(generated, Path("a.zarr"))


@pytest.fixture
def fails(capfd):
    """Run a command that must fail with this code and exactly one line on standard error."""

    def check(words, code, message):
        capfd.readouterr()
        before = snapshot()
        assert main.run(words) == code
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert message in err
        assert snapshot() == before

    return check


def snapshot():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


# ---------------------------------------------------------------------- generate


def test_generate_writes_what_the_recipe_makes(capfd):
    words = ["--mode", "custom", "--create-prob", "0.1", "--min-cluster-size", "5", "--dtype", "float32"]
    assert main.run([*SMALL, *words, "--seed", "3", "--value-seed", "9", "--threads", "1", "-o", "a.zarr"]) == 0
    loaded = pl.load("a.zarr", verify=True)
    assert loaded.recipe == pl.Recipe(
        300, 4, "custom", 0.1, pl.Seeds(3, 10_003, 9), engine="paper", min_cluster_size=5, dtype="float32"
    )
    expected = pl.generate(loaded.recipe)
    np.testing.assert_array_equal(loaded.X[:], expected.X)
    assert loaded.forest.equals(expected.forest)
    out, err = capfd.readouterr()
    assert out == (
        f"a.zarr: {len(expected):,} points in R^4, {expected.forest.n_clusters} clusters, "
        f"{expected.forest.n_latents} latents; seeds 3, 10003, 9\n"
    )
    assert err == ""  # no bar where standard error is not a terminal


@pytest.mark.parametrize("size", ["300", "3e2", "300.0", "3_00", "+300"])
def test_sizes_as_people_write_them(size):
    words = ["generate", "--n-points", size, "--dim", "4", "--engine", "paper", "--seed", "7", "-q", "-o", "a.zarr"]
    assert main.run(words) == 0
    assert pl.load("a.zarr").recipe == pl.Recipe(300, 4, seeds=7, engine="paper")


def test_no_placeholder_is_the_name_of_its_option():
    """Typer 0.27 takes such a placeholder for the option's spelling: --TARGET for --target."""

    def options(command):
        yield from (param for param in command.params if param.opts[0].startswith("-"))
        for inner in getattr(command, "commands", {}).values():
            yield from options(inner)

    known = list(options(typer.main.get_command(main.app)))
    assert len(known) > 100
    assert not [param.opts for param in known if str(param.metavar).lower() == param.name]


def test_create_prob_implies_mode_custom():
    assert main.run([*SMALL, "--create-prob", "0.2", "--seed", "1", "-q", "-o", "a.zarr"]) == 0
    assert pl.load("a.zarr").recipe == pl.Recipe(300, 4, "custom", 0.2, seeds=1, engine="paper")


def test_seeds(capfd):
    def seeds(*words):
        assert main.run([*SMALL, *words, "--overwrite", "--quiet", "-o", "a.zarr"]) == 0
        return pl.load("a.zarr").recipe.seeds

    assert seeds("--seed", "5") == pl.Seeds(5, 10_005, 20_005)
    named = seeds("--graph-seed", "1", "--embed-seed", "2")
    assert (named.graph, named.embed) == (1, 2)
    assert named.value is not None
    assert seeds() != seeds()  # drawn afresh
    assert capfd.readouterr() == ("", "")


def test_a_preset_is_its_recipe(monkeypatch):
    small = pl.Recipe(200, 3, "distribution", seeds=1, engine="paper", min_cluster_size=4)
    monkeypatch.setattr("percolab.cli.generate.PRESETS", {**PRESETS, "small": small})
    assert main.run(["generate", "small", "-o", "a.zarr"]) == 0
    assert pl.load("a.zarr").recipe == small
    words = ["--min-cluster-size", "9", "--dtype", "float32", "--threads", "1"]
    assert main.run(["generate", "small", *words, "-o", "b.zarr"]) == 0
    changed = pl.Recipe(200, 3, "distribution", seeds=1, engine="paper", min_cluster_size=9, dtype="float32")
    assert pl.load("b.zarr").recipe == changed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-points", "0", "--dim", "4"], "--n-points must be at least 1, got 0"),
        (["--n-points", "-5", "--dim", "4"], "--n-points must be at least 1, got -5"),
        (["--n-points", "10.5", "--dim", "4"], "--n-points must be an integer, got '10.5'"),
        (["--n-points", "1e-3", "--dim", "4"], "--n-points must be an integer, got '1e-3'"),
        (["--n-points", "nan", "--dim", "4"], "--n-points must be an integer, got 'nan'"),
        (["--n-points", "1e19", "--dim", "4"], "--n-points must be below 2**63, got '1e19'"),
        (["--n-points", "1e999999999", "--dim", "4"], "--n-points must be below 2**63, got '1e999999999'"),
        (
            ["--n-points", "9" * 5000, "--dim", "4"],
            "--n-points must be below 2**63, got '99999999999999999999'… (5,000",
        ),
        (["--n-points", "9" * 18, "--dim", "9" * 18], "--n-points must fit in memory"),
        (["--n-points", "10", "--dim", "4", "--seed", str(2**64)], "--seed must be below 2**64, got"),
        (["--n-points", "2000000000", "--dim", "100000"], "--n-points must fit in memory: 2,000,000,000 points"),
        (["--n-points", "10", "--dim", "0"], "--dim must be at least 2, got 0"),
        (["--n-points", "10", "--dim", "1"], "--dim must be at least 2, got 1"),
        (
            ["--n-points", "10", "--dim", "4", "--mode", "many"],
            "--mode must be one of one_cluster, distribution, custom",
        ),
        (
            ["--n-points", "10", "--dim", "4", "--engine", "steam"],
            f"--engine must be one of {', '.join(ENGINE_NAMES)}, got",
        ),
        (["--n-points", "10", "--dim", "4", "--dtype", "int8"], "--dtype must be one of float32, float64, got 'int8'"),
        (
            ["--n-points", "10", "--dim", "4", "--mode", "one_cluster", "--create-prob", "0.5"],
            "--create-prob must be left out unless --mode custom, got 0.5",
        ),
        (["--n-points", "10", "--dim", "4", "--mode", "custom"], "--create-prob must be given with --mode custom\n"),
        (
            ["--n-points", "10", "--dim", "4", "--mode", "custom", "--create-prob", "1.5"],
            "--create-prob must be between 0 and 1, got 1.5",
        ),
        (
            ["--n-points", "10", "--dim", "4", "--mode", "custom", "--create-prob", "nan"],
            "--create-prob must be between 0 and 1, got nan",
        ),
        (
            ["--n-points", "10", "--dim", "4", "--mode", "custom", "--create-prob", "half"],
            "--create-prob must be a number, got 'half'",
        ),
        (["--n-points", "10", "--dim", "4", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["--n-points", "10", "--dim", "4", "--value-seed", "-1"], "--value-seed must be at least 0, got -1"),
        (["--n-points", "10", "--dim", "4", "--graph-seed", str(2**64)], "--graph-seed must be below 2**64, got"),
        (["--n-points", "10", "--dim", "4", "--min-cluster-size", "0"], "--min-cluster-size must be at least 1, got 0"),
        (["--n-points", "10", "--dim", "4", "--threads", "0"], "--threads must be at least 1, got 0"),
        (["--n-points", "10", "--dim", "4", "--shards", "0"], "--shards must be at least 1, got 0"),
        (["--n-points", "10", "--dim", "4", "--shards", "x"], "--shards must be an integer, got 'x'"),
        (
            ["--n-points", "10", "--dim", "4", "--runner", "ray"],
            "--runner must be left out unless --shards is given, got",
        ),
        (
            ["--n-points", "10", "--dim", "4", "--shards", "2", "--threads", "2"],
            "--threads must be left out with --shards",
        ),
        (
            ["--n-points", "10", "--dim", "4", "--shards", "2", "--runner", "sun"],
            "--runner must be one of local, ray",
        ),
        (
            ["--n-points", "10", "--dim", "4", "--shards", "2", "--address", "a"],
            "--address must be left out",
        ),
        (["paper-one-cluster", "--shards", "2"], "--engine must be 'native' to make parts of a dataset, got"),
        (["--n-points", str(10**15), "--dim", "4", "--shards", "2"], "--n-points must fit in memory"),
        (["--n-points", "10"], "--n-points and --dim must be given, or one of paper-one-cluster"),
        ([], "--n-points and --dim must be given"),
        (
            ["paper"],
            "PRESET must be one of paper-one-cluster, paper-multi-cluster, superposed-2, superposed-4, got 'paper'",
        ),
        (["paper-one-cluster", "--dim", "3"], "--dim must be left out with the preset paper-one-cluster, got 3"),
        (["paper-one-cluster", "--seed", "3"], "--seed must be left out with the preset paper-one-cluster, got 3"),
        (["paper-one-cluster", "--mode", "custom"], "--mode must be left out with the preset"),
        (["paper-one-cluster", "--min-cluster-size", "x"], "--min-cluster-size must be an integer, got 'x'"),
        (["--points", "10"], "--points"),
        (["--points", "10"], "(see percolab generate --help)\n"),
        (["--n-points"], "--n-points"),
    ],
)
def test_bad_input_is_one_line(words, message, fails):
    fails(["generate", *words, "-o", "a.zarr"], BAD_INPUT, message)


def test_outputs_are_refused_before_work(store, fails):
    Path("file").write_text("mine")
    Path("folder").mkdir()
    Path("folder/other").write_text("mine")
    # Far too large to be made: only a check that comes first can give these messages.
    huge = ["generate", "--n-points", "2000000000", "--dim", "100000"]
    fails([*huge, "-o", "a.zarr"], BAD_INPUT, "--output must not exist unless")
    fails([*huge, "-o", "file"], BAD_INPUT, "--output must not exist unless")
    fails([*huge, "-o", "file", "--overwrite"], BAD_INPUT, "--output must be a percolab dataset to be overwritten")
    fails([*huge, "-o", "folder", "--overwrite"], BAD_INPUT, "--output must be a percolab dataset to be overwritten")
    fails([*huge, "-o", "no/a.zarr"], BAD_INPUT, "--output must be in an existing directory, got 'no/a.zarr'")
    fails([*huge, "-o", "file/a.zarr"], BAD_INPUT, "--output must be in an existing directory, got 'file/a.zarr'")
    fails(["generate", "--n-points", "10", "--dim", "4"], BAD_INPUT, "--output must be given (see percolab")


@pytest.mark.parametrize("shards", [[], ["--shards", "2"]])
def test_locations_that_cannot_be_are_refused_before_work(shards, fails):
    huge = ["generate", "--n-points", "2000000000", "--dim", "100000", *shards, "-o"]
    fails([*huge, "foo://x"], BAD_INPUT, "--output must be a path or a URL that fsspec knows, got 'foo://x'\n")
    fails(["info", "foo://x"], BAD_INPUT, "PATH must be a path or a URL that fsspec knows, got 'foo://x'\n")
    fails([*huge, "x" * 256], BAD_INPUT, "--output must have a name of at most 255 bytes, got one of 256\n")
    fails([*huge, "é" * 128], BAD_INPUT, "--output must have a name of at most 255 bytes, got one of 256\n")


READERS = {
    "edit": ["do:0=1", "-o", "new"],
    "take": ["--size", "1", "-o", "new"],
    "info": [],
    "verify": [],
    "draw": ["-o", "new.png"],
    "explore": ["-o", "new.html"],
    "export": ["--format", "npz", "-o", "new"],
    "train": ["-o", "new"],
    "baselines": [],
    "probe": ["--run", "run", "-o", "new"],
    "score": ["codes.npy"],
}


@pytest.mark.parametrize("command", READERS)
def test_a_dataset_that_is_not_there_is_named_as_on_the_help_page(command, fails):
    if command in ("train", "baselines", "probe"):
        pytest.importorskip("torch")
    np.save("codes.npy", np.ones((3, 2)))
    fails([command, "nothere.zarr", *READERS[command]], BAD_INPUT, "PATH must exist, got 'nothere.zarr'\n")


@pytest.mark.parametrize("length", [230, 255])
def test_long_names(length, fails):
    assert main.run([*SMALL, "--seed", "1", "-o", "x" * length]) == 0
    assert main.run([*SMALL, "--seed", "2", "--overwrite", "-o", "x" * length]) == 0
    assert pl.load("x" * length).recipe.seeds.graph == 2
    assert len(os.listdir()) == 1
    fails(["export", "x" * length, "--format", "npz", "-o", "y" * 252], BAD_INPUT, "--output must have a name of at")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory that nobody can write to")
def test_unwritable_output(store, fails):
    message = "--output must be in a writable directory, got '/proc/a"
    huge = ["generate", "--n-points", "2000000000", "--dim", "100000"]
    fails([*huge, "-o", "/proc/a.zarr"], BAD_INPUT, message)
    fails(["export", "a.zarr", "--format", "npz", "-o", "/proc/a"], BAD_INPUT, message)
    fails(["draw", "a.zarr", "-o", "/proc/a.png"], BAD_INPUT, message)


@pytest.mark.slow
def test_generate_in_shards_and_resume(capfd, fails):
    words = ["generate", "--n-points", "70000", "--dim", "3", "--mode", "one_cluster", "-o", "s.zarr"]
    words += ["--shards", "2", "--workers", "1"]
    assert main.run(words) == 0
    out = capfd.readouterr().out
    assert "s.zarr: 70,000 points in R^3, 1 cluster, 69,999 latents; seeds " in out
    assert "\nmade 2 of 2 shards; a worker took up to " in out
    loaded = pl.load("s.zarr", verify=True)
    assert np.array_equal(pl.generate(loaded.recipe).X, loaded.X)
    chunk = sorted(Path("s.zarr/X/c").rglob("0"))[1]
    chunk.write_bytes(chunk.read_bytes()[:100])
    seeds = loaded.recipe.seeds
    named = ["--graph-seed", seeds.graph, "--embed-seed", seeds.embed, "--value-seed", seeds.value]
    assert main.run([*words, *map(str, named)]) == 0
    assert "made 1 of 2 shards" in capfd.readouterr().out
    assert main.run([*words, *map(str, named)]) == 0
    assert "nothing was missing, and everything matches its digests" in capfd.readouterr().out
    pl.load("s.zarr", verify=True)
    fails([*words, "--seed", "5"], BAD_INPUT, "seeds of the store at")


@pytest.mark.slow
def test_an_unfinished_run_keeps_the_seeds_it_drew(monkeypatch):
    words = ["generate", "--n-points", "3000", "--dim", "3", "--shards", "1", "--workers", "1", "-o", "s.zarr"]
    with monkeypatch.context() as patch:
        patch.setattr(
            "percolab.store.runners.run", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        assert main.run(words) == 1
    drawn = json.loads(Path("s.zarr/zarr.json").read_text())["attributes"]["percolab"]["recipe"]["seeds"]
    assert main.run(words) == 0
    assert pl.load("s.zarr").recipe.to_dict()["seeds"] == drawn


def test_overwrite_replaces(store):
    assert main.run([*SMALL, "--seed", "8", "--overwrite", "-o", "a.zarr"]) == 0
    assert pl.load(store, verify=True).recipe.seeds.graph == 8
    assert os.listdir() == ["a.zarr"]


INTERRUPT = """
import os, signal, sys
from contextlib import contextmanager
from percolab.cli import main
from percolab.ground import progress

real = progress.bar

@contextmanager
def bar(**options):
    with real(**options) as report:
        def interrupting(stage, done, total):
            if stage == {stage!r}:
                os.kill(os.getpid(), signal.SIGINT)
            report(stage, done, total)
        yield interrupting

progress.bar = bar
sys.exit(main.run({words!r}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["trees", "positions", "saving"])
def test_interrupted_leaves_what_was_there(stage, store):
    before = snapshot()
    words = [*SMALL, "--seed", "8", "--overwrite", "-o", "a.zarr"]
    program = INTERRUPT.format(stage=stage, words=words)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == INTERRUPTED
    assert (done.stdout, done.stderr) == ("", "error: interrupted, nothing was written\n")
    assert snapshot() == before


def terminal_output(words):
    """Return what a command prints to a terminal that is its standard error."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "90"}
    program = [sys.executable, "-c", "from percolab.cli.main import main; main()", *words]
    with subprocess.Popen(program, stderr=slave, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:  # Linux's way to say that the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert process.returncode == 0
    return seen.decode()


@pytest.mark.slow
def test_a_terminal_gets_a_bar_unless_quiet():
    shown = terminal_output([*SMALL, "--seed", "1", "-o", "a.zarr"])
    assert all(stage in shown for stage in ("trees", "positions", "saving", "100%"))
    assert terminal_output([*SMALL, "--seed", "1", "--quiet", "-o", "b.zarr"]) == ""


# ---------------------------------------------------------------------- info


def test_info_as_json(store, capfd):
    made = pl.load(store)
    assert main.run(["info", "a.zarr", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert pl.Recipe.from_dict(found["recipe"]) == made.recipe
    sizes = made.forest.cluster_size
    assert (found["n_points"], found["dim"], found["dtype"]) == (300, 4, "float64")
    assert (found["n_clusters"], found["largest_cluster"]) == (sizes.size, sizes.max())
    assert (found["singletons"], found["n_latents"]) == ((sizes == 1).sum(), 300 - sizes.size)
    assert found["depth_max"] == max(made.forest.path(row).size for row in range(300))
    assert found["y_mean"] == pytest.approx(made.y.mean())
    assert found["y_variance"] == pytest.approx(made.y.var())
    assert found["provenance"]["percolab"] == pl.__version__
    assert found["store_bytes"] == sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert "sha256" not in found


def test_info_for_people(store, capfd):
    assert main.run(["info", "a.zarr"]) == 0
    out = capfd.readouterr().out
    for text in ("300 in 4 dimensions", "singletons", "depth", "variance", "graph 7, embed 10007, value 20007", "made"):
        assert text in out
    assert "sha256" not in out
    assert main.run(["info", "a.zarr", "--verify"]) == 0
    out = capfd.readouterr().out
    assert "sha256 latent_z" in out
    assert "every array matches its digest" in out


def test_info_reads_little_of_a_large_dataset(store, capfd, monkeypatch):
    assert main.run(["info", str(store), "--json"]) == 0
    whole = json.loads(capfd.readouterr().out)
    monkeypatch.setattr("percolab.show.summary.LARGE", 10)
    monkeypatch.setattr(pl.Forest, "__post_init__", lambda _: pytest.fail("the forest was read"), raising=False)
    assert main.run(["info", str(store), "--json"]) == 0
    quick = json.loads(capfd.readouterr().out)
    unknown = {"n_extra_bonds", "depth_mean", "depth_max", "y_mean", "y_variance"}
    assert {key for key in whole if quick[key] != whole[key]} == unknown
    assert {quick[key] for key in unknown} == {None}
    assert main.run(["info", str(store)]) == 0
    assert "depth" not in capfd.readouterr().out


def test_info_does_not_read_positions(store, fails, capfd):
    chunk = next(path for path in (store / "X").rglob("*") if path.is_file() and path.name != "zarr.json")
    damage(chunk)
    assert main.run(["info", "a.zarr"]) == 0
    fails(["info", "a.zarr", "--verify"], FAILURE, "X")


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def test_broken_stores_are_failures(store, fails):
    Path("text").write_text("not a dataset")
    fails(["info", "nothing.zarr"], BAD_INPUT, "nothing.zarr")
    fails(["info", "text"], FAILURE, "text is not a percolab dataset")
    fails(["info", "."], FAILURE, "is not a percolab dataset")
    fails(["info"], BAD_INPUT, "PATH must be given")
    chunk = next(path for path in (store / "left_size").rglob("*") if path.is_file() and path.name != "zarr.json")
    whole = chunk.read_bytes()
    for broken in (whole[: len(whole) // 2], b""):
        chunk.write_bytes(broken)
        for words in (["info", "a.zarr"], ["info", "a.zarr", "--verify"], ["draw", "a.zarr", "-o", "a.png"]):
            fails(words, FAILURE, "left_size")
        fails(["export", "a.zarr", "--format", "npz", "-o", "a"], FAILURE, "left_size")
    chunk.write_bytes(whole)
    (store / "y" / "zarr.json").unlink()
    fails(["info", "a.zarr"], FAILURE, "y")
    (store / "zarr.json").unlink()
    fails(["info", "a.zarr"], FAILURE, "a.zarr is not a percolab dataset")


def test_an_empty_dataset_in_shards(capfd):
    words = ["generate", "--n-points", "300", "--dim", "4", "--min-cluster-size", "301", "--seed", "1"]
    words += ["--shards", "2", "-o", "a.zarr"]
    said = "a.zarr: 0 points in R^4, 0 clusters, 0 latents; seeds 1, 10001, 20001\n"
    assert main.run(words) == 0
    assert capfd.readouterr().out == f"{said}no point is in a cluster that large, so there was no shard to make\n"
    assert main.run(words) == 0
    assert capfd.readouterr().out == f"{said}nothing was missing, and everything matches its digests\n"
    assert len(pl.load("a.zarr", verify=True).y) == 0


def test_an_empty_dataset_is_a_dataset(capfd, fails):
    words = ["--min-cluster-size", "301", "--seed", "1"]
    assert main.run([*SMALL, *words, "-o", "a.zarr"]) == 0
    assert main.run(["info", "a.zarr"]) == 0
    capfd.readouterr()
    assert main.run(["info", "a.zarr", "--json", "--verify"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["n_points"], found["y_mean"], found["depth_max"]) == (0, None, None)
    fails(["draw", "a.zarr", "-o", "a.png"], BAD_INPUT, "--cluster must")


# ---------------------------------------------------------------------- export and draw


def test_export(store, capfd, fails):
    assert main.run(["export", "a.zarr", "--format", "npz", "-o", "r"]) == 0
    assert capfd.readouterr().out == "wrote r.npz and r_gt_features.npz and r_gt_metadata.npz\n"
    made = pl.load(store)
    np.testing.assert_array_equal(exports.read_npz("r").y, made.y[made.release_order])
    assert main.run(["export", "a.zarr", "--format", "parquet", "-o", "r"]) == 0
    assert capfd.readouterr().out == "wrote r/README.md and r/points.parquet and r/latents.parquet\n"
    assert exports.read_huggingface("r").recipe == made.recipe
    for form, name in (("npz", "r.npz"), ("parquet", "r/README.md")):
        words = ["export", "a.zarr", "--format", form, "-o", "r"]
        fails(words, BAD_INPUT, f"--output must not exist unless --overwrite is given, got '{name}'")
        assert main.run([*words, "--overwrite"]) == 0
    fails(["export", "a.zarr", "--format", "xml", "-o", "r"], BAD_INPUT, "--format must be one of npz, parquet")
    fails(["export", "a.zarr", "-o", "r"], BAD_INPUT, "--format must be given (see percolab export --help)\n")
    fails(["export", "a.zarr", "--format", "npz"], BAD_INPUT, "--output must be given (see percolab")
    fails(["export", "b.zarr", "--format", "npz", "-o", "s"], BAD_INPUT, "b.zarr")


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.svg", b"<?xml")])
def test_draw(name, start, store, capfd):
    assert main.run(["draw", "a.zarr", "--cluster", "1", "-o", name]) == 0
    assert capfd.readouterr().out == f"wrote {name}\n"
    assert Path(name).read_bytes().startswith(start)


@pytest.mark.slow
def test_draw_in_colours(store, fails):
    np.save("one.npy", np.arange(300.0))
    np.save("table.npy", np.ones((300, 2)))
    np.save("words.npy", np.array(["a", "b"]))
    Path("text.npy").write_text("text")
    for i, colour in enumerate(("y", "z", "0,1", "one.npy", "table.npy:1")):
        assert main.run(["draw", "a.zarr", "--colour", colour, "-o", f"{i}.png"]) == 0
    for colour, message in (
        ("x", "--colour must be y, z, latents or a file of values, got 'x'"),
        ("0,9999", "--colour must be below"),
        ("table.npy", "--colour must name a column of a table, such as table.npy:0, got shape (300, 2)"),
        ("table.npy:2", "--colour must name a column that is there, got 2 of shape (300, 2)"),
        ("one.npy:0", "--colour must name a column that is there, got 0 of shape (300,)"),
        (
            "text.npy",
            "--colour must be an .npy file, an array as NumPy saves it, got 'text.npy': ",
        ),
        ("words.npy", "--colour must be numbers, got <U1"),
    ):
        fails(["draw", "a.zarr", "--colour", colour, "-o", "a.png"], BAD_INPUT, message)


def test_draw_refuses(store, fails):
    Path("there.png").write_text("mine")
    fails(["draw", "a.zarr", "-o", "there.png"], BAD_INPUT, "--output must not exist unless --overwrite is given")
    fails(["draw", "a.zarr", "-o", "a.txt"], BAD_INPUT, "--output must be one of .png, .pdf, .svg, got '.txt'")
    fails(["draw", "a.zarr", "-o", "a.png", "--cluster", "-1"], BAD_INPUT, "--cluster must be at least 0, got -1")
    fails(["draw", "a.zarr", "-o", "a.png", "--cluster", "300"], BAD_INPUT, "--cluster must be below")
    fails(["draw", "a.zarr", "-o", "a.png", "--cluster", "one"], BAD_INPUT, "--cluster must be an integer, got 'one'")
    singleton = str(pl.load(store).forest.n_clusters - 1)
    fails(["draw", "a.zarr", "-o", "a.png", "--cluster", singleton], BAD_INPUT, "--cluster must have at least 2 points")


# ---------------------------------------------------------------------- the whole


def test_help_teaches_with_examples(capfd):
    for words in ([], ["generate"], ["info"], ["export"], ["draw"]):
        assert main.run([*words, "--help"]) == 0
        lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
        examples = lines[lines.index("Examples") + 1 :]
        assert sum(line.startswith(f"percolab {' '.join(words)}".rstrip()) for line in examples) >= 2
        assert max(map(len, lines)) <= 80
    assert main.run(["generate", "-h"]) == 0
    out = " ".join(capfd.readouterr().out.replace("│", " ").split())
    assert all(name in out for name in (*ENGINE_NAMES, *PRESETS))


def test_older_versions_of_typer_keep_examples_apart():
    """Before 0.28, typer made a space of every line break in the end of a help page."""
    text = errors.examples("percolab info a.zarr", "# for programs", "percolab info a.zarr --json")
    assert "\n".join(part.replace("\n", " ").strip() for part in text.split("\n\n")).count("\n") == 4
    assert "\n\n".join(text.split("\n\n")).count("\n") == 4  # as later versions do


def test_no_arguments_give_help_and_fail(capfd):
    assert main.run([]) == BAD_INPUT
    out, err = capfd.readouterr()
    assert out == ""
    assert "Usage: percolab" in err
    assert "error:" not in err


def test_a_message_cannot_move_the_cursor(fails):
    fails(["info", "\x1b[2Ja.zarr\x07"], BAD_INPUT, "\\x1b[2Ja.zarr\\x07")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("dim must be at least 2, got 1", "--dim must be at least 2, got 1"),
        ("n_points and dim must be given", "--n-points and --dim must be given"),
        ("dim must be new unless output is given, got 'dim'", "--dim must be new unless --output is given, got 'dim'"),
        ("dim must be left out unless mode='custom', got 0.5", "--dim must be left out unless --mode custom, got 0.5"),
        ("dim must be out with mode, where a dim is, got 3", "--dim must be out with --mode, where a dim is, got 3"),
        ("mode must be given, got None", "--mode must be given"),
        ("seeds.graph must be at least 0, got -1", "--graph-seed must be at least 0, got -1"),
        ("preset must be one of a, b, got 'dim'", "PRESET must be one of a, b, got 'dim'"),
        ("dimension must be small, got 'dim must'", "dimension must be small, got 'dim must'"),
        ("array dim does not match its digest", "array dim does not match its digest"),
    ],
)  # fmt: skip
def test_messages_speak_of_options(message, words):
    names = {
        "dim": "--dim", "n_points": "--n-points", "output": "--output", "overwrite": "--overwrite", "mode": "--mode",
        "preset": "PRESET", "seeds.graph": "--graph-seed",
    }  # fmt: skip
    assert errors.in_options(message, names) == words


def test_every_option_has_its_name_in_the_library():
    import typer.main

    commands = typer.main.get_command(main.app).commands
    assert set(errors.LIBRARY_NAMES) <= set(commands)
    for name, command in commands.items():
        found = errors.option_names(command.params, errors.LIBRARY_NAMES.get(name, {}))
        assert all(spelling.startswith("--") or spelling.isupper() for spelling in found.values())


COMPLETE = """
import os, sys
from percolab.cli.main import main
for words in sys.argv[1:]:
    if not os.fork():
        os.environ |= {"_PERCOLAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        sys.argv = ["percolab"]
        main()
    os.wait()
    print(";", flush=True)
"""


@pytest.mark.slow
def test_shells_complete():
    wanted = {
        "percolab gen": {"generate"},
        "percolab generate --eng": {"--engine"},
        "percolab generate --engine ": set(ENGINE_NAMES),
        "percolab generate p": set(PRESETS),
        "percolab reproduce m": {"multi-cluster"},
    }
    done = subprocess.run([sys.executable, "-c", COMPLETE, *wanted], capture_output=True, text=True, check=False)
    found = [set(one.split()) for one in done.stdout.split(";")[:-1]]
    assert found == list(wanted.values()), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirections", "words", "code", "said"),
    [
        (">&-", "info a.zarr", BAD_INPUT, "error: standard output must be open, got a closed one\n"),
        (">&-", "--version", BAD_INPUT, "error: standard output must be open, got a closed one\n"),
        ("2>&- >out", "info a.zarr", 0, ""),
        ("2>&- >out", "info b.zarr", BAD_INPUT, ""),
        (">/dev/full", "info a.zarr", FAILURE, "error: No space left on device\n"),
        ("", "info $'\\xff.zarr'", BAD_INPUT, "error: arguments must be text, got b'\\xff.zarr'\n"),
        ("", "generate --dim 4 --n-points 9 -o $'\\xff'", BAD_INPUT, "error: arguments must be text, got b'\\xff'\n"),
    ],
)
def test_odd_streams_and_names(redirections, words, code, said, store):
    program = f"{sys.executable} -c 'from percolab.cli.main import main; main()' {words} {redirections}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_version(capfd):
    assert main.run(["--version"]) == 0
    assert capfd.readouterr().out == f"percolab {pl.__version__}\n"


def test_unknown_commands_and_missing_packages_are_one_line(store, fails, monkeypatch):
    fails(["xyzzy"], BAD_INPUT, "No such command 'xyzzy'. (see percolab --help)")
    fails(["--colour"], BAD_INPUT, "No such option: --colour (see percolab --help)")
    fails(["draw", "a.zarr", "--shape"], BAD_INPUT, "(see percolab draw --help)\n")
    fails(["info", "a.zarr", "b.zarr"], BAD_INPUT, "(see percolab info --help)")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    fails(["draw", "a.zarr", "-o", "a.png"], FAILURE, "pip install 'percolab[plot]'")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    fails(["export", "a.zarr", "--format", "parquet", "-o", "a"], FAILURE, "pip install 'percolab[frames]'")


def test_help_imports_nothing_heavy():
    program = (
        "import sys; from percolab.cli import main; main.run(['--help']);"
        "print([name for name in ('zarr', 'matplotlib', 'torch', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_leaves_is_told_nothing(buffered, store):
    words = [sys.executable, *([] if buffered else ["-u"]), "-c", "from percolab.cli.main import main; main()"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment}
    with subprocess.Popen([*words, "info", "a.zarr", "--json"], **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == FAILURE
