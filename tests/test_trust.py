"""What a stranger's file, a full disk or a second process cannot do: each test was a fault once."""

import base64
import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import percolab as pl
from percolab import exports
from percolab.cli import errors, main
from percolab.features import score
from percolab.show.explorer import explore
from percolab.store import schema

RECIPE = pl.Recipe(300, 3, "one_cluster", seeds=1)
GENERATE = ["generate", "--n-points", "300", "--dim", "3", "--mode", "one_cluster", "--seed", "2", "--quiet"]


@pytest.fixture(autouse=True)
def never_hang():
    """End a test that waits for a pipe."""

    def hanging(*_):
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hanging)
    signal.alarm(600)  # minutes, since a test may have to compile first on a busy machine
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def ds():
    return pl.generate(RECIPE)


@pytest.fixture(scope="module")
def saved(ds, tmp_path_factory):
    path = tmp_path_factory.mktemp("trust") / "ds.zarr"
    ds.save(path, sync=False)
    return path


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    """A folder with a dataset and the work of years, in which commands are run."""
    folder = tmp_path / "above" / "here"
    folder.mkdir(parents=True)
    shutil.copytree(saved, folder / "ds.zarr")
    (folder / "precious").mkdir()
    (folder / "precious" / "notes.txt").write_text("years of work")
    monkeypatch.chdir(folder)
    return folder


def contents(folder):
    """Return every name below a folder, with what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(folder.rglob("*"))
    }


def refusal(capfd, *words):
    """Run a command that must fail; return its exit code and its one line."""
    code = main.run([str(word) for word in words])
    _, err = capfd.readouterr()
    lines = err.splitlines()
    assert (code != 0, len(lines)) == (True, 1), err
    assert lines[0].isprintable()
    assert len(lines[0]) < 1200
    return code, lines[0]


def in_a_process(program, *words, **settings):
    """Run a program that may crash; return how it ended and what it said."""
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | settings)
    # On a busy machine, or where nothing is compiled yet, a program also says that it works.
    said = [line for line in done.stderr.splitlines(keepends=True) if not re.search("elapsed|^compiling", line)]
    return done.returncode, done.stdout, "".join(said)


# ---------------------------------------------------------------------- lost


JOURNALS = {
    "delete": '{"new": "x", "old": "precious"}',
    "empty the folder above": '{"new": "x", "old": ".."}',
    "rename": '{"new": "precious", "old": "x"}',
    "names": '{"overwrite": true, "names": {".precious.partial-0": "precious"}}',
    "deep": "[" * 100_000,
}
HIDDEN = (".ds.zarr.replacing", ".other.zarr.replacing", ".out.naming", ".ds.zarr.partial-replacing")


def journals(folder, text):
    for name in HIDDEN:
        (folder / name).write_text(text)


def use(folder):
    """Read and write, as far as it goes, without --overwrite."""
    for words in (
        ["info", "ds.zarr"],
        ["info", "other.zarr"],
        [*GENERATE, "-o", "ds.zarr"],
        [*GENERATE, "-o", "ds.zarr", "--shards", "1"],
        ["export", "other.zarr", "--format", "parquet", "-o", "out"],
    ):
        main.run(words)
    for path in ("ds.zarr", "other.zarr"):
        try:
            pl.load(path)
        except FileNotFoundError:
            assert path == "other.zarr"
    with pytest.raises(FileNotFoundError):
        exports.read_parquet("out")


@pytest.mark.parametrize("text", JOURNALS.values(), ids=JOURNALS)
def test_1_a_hidden_file_beside_a_store_changes_nothing(text, folder, capfd):
    journals(folder, text)
    before = contents(folder)
    use(folder)
    assert contents(folder) == before
    assert main.run([*GENERATE, "-o", "ds.zarr", "--overwrite"]) == 0
    assert main.run([*GENERATE, "-o", "other.zarr"]) == 0
    assert (folder / "precious" / "notes.txt").read_text() == "years of work"
    assert {path.name for path in folder.iterdir()} == {"ds.zarr", "other.zarr", "precious", *HIDDEN}


def test_1_what_is_swept_bears_a_name_that_only_a_writer_gives(folder):
    for name in (".ds.zarr.partial-precious", ".ds.zarr.partial-0000000g", ".ds.zarr.partial-"):
        shutil.copytree("precious", name)
    Path(".ds.zarr.partial-00000000").symlink_to("precious")
    Path(".ds.zarr.partial-11111111").mkdir()
    before = contents(folder)
    assert main.run([*GENERATE, "-o", "ds.zarr", "--overwrite"]) == 0
    gone = {".ds.zarr.partial-11111111"}
    assert {name for name in before if not name.startswith("ds.zarr")} - gone <= set(contents(folder))
    assert (folder / "precious" / "notes.txt").read_text() == "years of work"


def test_1_a_store_to_be_resumed_is_no_link(folder, capfd):
    """A store that is to replace another is made beside it; a link there would lead the writer elsewhere."""
    shutil.copytree("ds.zarr", "theirs.zarr")
    chunk = next(path for path in Path("theirs.zarr/X/c").rglob("*") if path.is_file())
    chunk.write_bytes(b"damaged, and to be repaired")
    Path(".ds.zarr.next").symlink_to("theirs.zarr")
    before = contents(folder)
    seed = ["--seed", "1"] if "--seed" not in GENERATE else []
    words = [word if word != "2" else "1" for word in GENERATE]
    refusal(capfd, *words, *seed, "-o", "ds.zarr", "--overwrite", "--shards", "1")
    assert contents(folder) == before


@pytest.mark.slow
def test_2_what_appears_while_features_are_scored_stays(ds, folder, capfd, monkeypatch):
    np.save("codes.npy", np.maximum(ds.X, 0))
    real = pl.features.score
    for suffix in (".html", ".csv", ".json"):
        output = Path(f"out{suffix}")

        def late(*given, output=output, **options):
            output.write_text("years of work")
            return real(*given, **options)

        monkeypatch.setattr(pl.features, "score", late)
        code, said = refusal(capfd, "score", "ds.zarr", "codes.npy", "-o", output)
        assert (code, output.read_text()) == (errors.BAD_INPUT, "years of work")
        assert "--output must not exist unless --overwrite is given" in said
        assert main.run(["score", "ds.zarr", "codes.npy", "-o", str(output), "--overwrite"]) == 0
        assert output.read_text() != "years of work"
        capfd.readouterr()


# ---------------------------------------------------------------------- memory


def spoilt_matrices(ds):
    """Yield sparse codes whose parts contradict each other."""
    dense = np.maximum(ds.X @ np.random.default_rng(0).normal(size=(3, 50)), 0)

    def spoilt(form, **parts):
        matrix = scipy.sparse.csr_array(dense).asformat(form)
        for name, (place, value) in parts.items():
            (matrix.coords[1] if name == "col" else getattr(matrix, name))[place] = value
        return matrix

    for form in ("csr", "csc"):
        yield spoilt(form, indices=(3, 10**9))
        yield spoilt(form, indices=(3, -1))
        yield spoilt(form, indices=(3, 50 if form == "csr" else 300))
        yield spoilt(form, indptr=(20, -(10**9)))
        yield spoilt(form, indptr=(20, 10**9))
        yield spoilt(form, indptr=(-1, 10**9))
        empty = spoilt(form)
        empty.indptr[:] = 0
        empty.indptr[5] = 10**9  # its last number says that there is nothing
        yield empty
    yield spoilt("coo", col=(3, 10**9))
    yield spoilt("coo", col=(3, -(10**9)))
    blocks = scipy.sparse.csr_array(dense).tobsr((2, 2))
    blocks.indices[3] = 10**8
    yield blocks


SCORE_ALL = """
import sys
sys.path[:0] = [{tests!r}]
import test_trust, percolab as pl
ds = pl.generate(test_trust.RECIPE)
for matrix in test_trust.spoilt_matrices(ds):
    try:
        test_trust.score(ds, matrix, min_size=5)
        print("accepted", matrix.format)
    except ValueError as fault:
        print("refused" if "\\n" not in str(fault) and str(fault).startswith("codes must") else fault)
print("end")
"""


@pytest.mark.slow
def test_3_sparse_codes_are_checked_in_full_in_python(ds):
    code, out, err = in_a_process(SCORE_ALL.format(tests=str(Path(__file__).parent)))
    assert code == 0, err
    assert set(out.split("\n")) == {"refused", "end", ""}


@pytest.mark.slow
def test_3_sparse_codes_are_checked_in_full_from_files(ds, folder, capfd):
    for matrix in spoilt_matrices(ds):
        scipy.sparse.save_npz("codes.npz", matrix)
        for command in (["score", "ds.zarr", "codes.npz"], ["explore", "ds.zarr", "--features", "codes.npz"]):
            words = [*command, "-o", "out.html"]
            code, said = refusal(capfd, *words)
            assert code == errors.BAD_INPUT
            assert said.startswith(("error: CODES must", "error: codes must", "error: --features must"))
        assert not Path("out.html").exists()


FULL = """
import os, resource, sys
import percolab as pl
from percolab import exports
made = pl.generate(pl.Recipe(3000, 30, seeds=1))
write = getattr(exports, "to_" + sys.argv[1])
write(made, "warm", overwrite=True)
for limit in (100, 1000, 10_000, 50_000, 100_000, 250_000, 400_000, 700_000):
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            write(made, "x", overwrite=True)
            code = 0
        except OSError as fault:
            code = 3 if "\\n" not in str(fault) else 4
        sys.stderr.flush()
        if code == 3:
            sys.exit(code)  # with all that happens as a program ends
        os._exit(code)
    print(limit, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.path.lexists("x.h5"), len(os.listdir(".")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["hdf5", "npz", "parquet", "csv", "huggingface"])
def test_4_a_full_disk_is_a_refusal(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = in_a_process(FULL, form)
    assert (code, err) == (0, "")
    written = len(list(tmp_path.iterdir()))
    for line in out.splitlines():
        limit, ended, there, count = line.split()
        assert ended in (("3",) if int(limit) < 100_000 else ("0", "3")), line
        if ended == "3":
            assert (there, int(count)) == ("False", written // 2 if "0" in out.split()[1::4] else written), line


# ---------------------------------------------------------------------- checkpoints


@pytest.fixture(scope="module")
def run_dir(ds, tmp_path_factory):
    torch = pytest.importorskip("torch")
    from percolab import nn

    path = tmp_path_factory.mktemp("run")
    nn.train(ds, configuration(), run_dir=path, device="cpu")
    values = torch.load(path / "checkpoint.pt", weights_only=True)
    values["epoch"] = 2
    torch.save(values, path / "checkpoint.pt")
    return path


def configuration(**changes):
    from percolab.nn import TrainConfig

    return TrainConfig(**{"d_model": 8, "n_blocks": 1, "epochs": 4, "batch_size": 64, **changes})


def spoilt_checkpoints():
    """Return changes to a checkpoint, by name."""
    import torch

    def each(name, value):
        def change(values):
            for part in values["optimizer"]:
                part[name] = value(part[name]) if callable(value) else value

        return change

    def put(*keys, value):
        def change(values):
            for key in keys[:-1]:
                values = values[key]
            values[keys[-1]] = value

        return change

    def circle(values):
        values["recipe"]["seeds"] = values["recipe"]

    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    return {
        "short moments": each("exp_avg", torch.zeros(1)),
        "long moments": each("exp_avg_sq", lambda held: torch.zeros(10 * held.numel())),
        "moments in doubles": each("exp_avg", lambda held: held.double()),
        "moments in pieces": each("exp_avg", lambda held: held.to_sparse()),
        "moments nowhere": each("exp_avg", lambda held: held.to("meta")),
        "steps in a table": each("step", torch.zeros(3, 3)),
        "step below nothing": each("step", torch.tensor(float("nan"))),
        "another moment": each("max_exp_avg_sq", torch.zeros(1)),
        "moments are text": each("exp_avg", "text"),
        "no moments": lambda values: values.update(optimizer=[]),
        "a part is a list": lambda values: values.update(optimizer=[[] for _ in values["optimizer"]]),
        "a part is missing": lambda values: values["optimizer"].pop(),
        "losses in a row": put("losses", value=torch.zeros(1, 4)),
        "losses of integers": put("losses", value=torch.zeros(1, 4, 2, dtype=torch.int64)),
        "losses in pieces": put("losses", value=torch.zeros(1, 4, 2).to_sparse()),
        "a generator of doubles": put("generators", 0, value=torch.zeros(5056, dtype=torch.float64)),
        "a short generator": put("generators", 0, value=torch.zeros(3, dtype=torch.uint8)),
        "a wild generator": put("generators", 0, value=torch.full((5056,), 255, dtype=torch.uint8)),
        "weights of another shape": put("model", "input.weight", value=torch.zeros(3, 8)),
        "weights of complex numbers": put("model", "input.weight", value=torch.zeros(8, 3, dtype=torch.complex64)),
        "weights in pieces": put("model", "input.weight", value=torch.zeros(8, 3).to_sparse()),
        "weights by number": put("model", 3, value=torch.zeros(3)),
        "epoch is true": put("epoch", value=True),
        "no time": put("seconds", value=float("nan")),
        "an odd option": put("configs", 0, 3, value=1),
        "a configuration of text": put("configs", 0, value="text"),
        "many blocks": put("configs", 0, "n_blocks", value=10**6),
        "wide blocks": put("configs", 0, "d_model", value=10**6),
        "an option without an end": put("configs", 0, "d_model", value=laughs),
        "a recipe in a circle": circle,
        "a recipe without an end": put("recipe", "seeds", value=laughs),
        "a recipe by number": put("recipe", 3, value=1),
        "a recipe of tensors": put("recipe", "n_points", value=torch.zeros(3)),
    }


RESUME = """
import shutil, sys, time
sys.path[:0] = [{tests!r}]
import test_trust, torch, percolab as pl
from pathlib import Path
from percolab import nn
ds = pl.generate(test_trust.RECIPE)
whole, folder = torch.load(sys.argv[1] + "/checkpoint.pt", weights_only=True), Path(sys.argv[2])
import copy
for name, change in test_trust.spoilt_checkpoints().items():
    values = copy.deepcopy(whole)
    change(values)
    torch.save(values, folder / "checkpoint.pt")
    for use in (lambda: nn.train(ds, test_trust.configuration(), run_dir=folder, resume=True, device="cpu"),
                lambda: nn.load_model(folder, ds)):
        began = time.process_time()
        try:
            use()
            outcome = "accepted"
        except ValueError as fault:
            good = str(fault).isprintable() and str(fault).startswith("checkpoint must") and len(str(fault)) < 600
            outcome = "refused" if good else f"badly refused: {{fault}}"[:300]
        if time.process_time() - began > 30:
            outcome += " late"
        print(f"{{name}}: {{outcome}}", flush=True)
print("end")
"""


@pytest.mark.slow
def test_5_checkpoints_are_checked_in_full(run_dir, tmp_path):
    pytest.importorskip("torch")
    code, out, err = in_a_process(RESUME.format(tests=str(Path(__file__).parent)), run_dir, tmp_path)
    assert code == 0, out + err[-3000:]
    lines = out.splitlines()
    assert lines.pop() == "end"
    # What a network is made from does not hold moments, losses or generators, and a time is no number of a network.
    allowed = [f"{name}: accepted" for name in spoilt_checkpoints()]
    resumed, made = lines[::2], lines[1::2]
    assert resumed == [f"{name}: refused" for name in spoilt_checkpoints()]
    assert [line for line in made if not line.endswith(": refused")] == [line for line in allowed if line in made]
    for name in ("many blocks", "wide blocks", "weights in pieces", "a recipe in a circle"):
        assert f"{name}: refused" in made


def test_5_a_checkpoint_of_a_million_blocks_is_refused_before_they_are_made(run_dir, folder, capfd):
    import torch

    shutil.copytree(run_dir, "run")
    values = torch.load("run/checkpoint.pt", weights_only=True)
    values["configs"][0]["n_blocks"] = 10**6
    torch.save(values, "run/checkpoint.pt")
    for words in (["train", "ds.zarr", "-o", "run", "--resume"], ["score", "ds.zarr", "--run", "run"]):
        code, said = refusal(capfd, *words, "--device", "cpu")
        assert code == errors.BAD_INPUT
        assert "must have the weights of 1 networks as they are configured, got fewer" in said


def test_5_a_checkpoint_of_endless_documents_is_refused_before_its_network_is_made(folder, capfd):
    torch = pytest.importorskip("torch")
    from percolab import nn

    corpus = pl.Corpus(pl.Recipe(60, 2, "one_cluster", seeds=1), length=8, min_size=4)
    config = nn.CorpusTrainConfig(
        d_model=8, n_blocks=1, n_heads=2, steps=1, warmup=1, every=1, batch_size=4, held_out=8
    )
    nn.train(corpus, config, run_dir="run", device="cpu")
    values = torch.load("run/checkpoint.pt", weights_only=True)
    values["recipe"]["length"] = 2**31 - 1
    torch.save(values, "run/checkpoint.pt")
    code, said = refusal(capfd, "diff", "run", "run", "--device", "cpu")
    assert code == errors.BAD_INPUT
    assert "must have the weights of 1 networks as they are configured, got fewer" in said


def test_5_moments_of_another_shape_are_refused(ds, run_dir, tmp_path):
    import torch

    from percolab import nn

    values = torch.load(run_dir / "checkpoint.pt", weights_only=True)
    values["optimizer"][0]["exp_avg"] = torch.zeros(1)
    torch.save(values, tmp_path / "checkpoint.pt")
    with pytest.raises(ValueError, match=r"^checkpoint must fit the model, got exp_avg must be torch.float32 \(8, 3\)"):
        nn.train(ds, configuration(), run_dir=tmp_path, resume=True, device="cpu")


def test_5_networks_and_codes_that_no_memory_holds(ds, folder, capfd):
    pytest.importorskip("torch")
    for option in ("--n-blocks", "--d-model", "--expansion"):
        code, said = refusal(capfd, "train", "ds.zarr", "-o", "run", option, "1e9", "--device", "cpu")
        assert code == errors.BAD_INPUT
        assert "memory" in said
    assert not Path("run").exists()
    small = scipy.sparse.csr_array(np.maximum(ds.X, 0))
    wide = scipy.sparse.csr_array((small.data, small.indices, small.indptr), shape=(300, 10**11))
    with pytest.raises(MemoryError, match=r"codes of 100000000000 features need .* of memory, and .* are free"):
        score(ds, wide)
    scipy.sparse.save_npz("wide.npz", wide)
    assert refusal(capfd, "score", "ds.zarr", "wide.npz")[0] == errors.BAD_INPUT


# ---------------------------------------------------------------------- hang


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_6_hidden_files_that_are_none_do_not_hang(kind, folder, capfd):
    held = []
    for name in (*HIDDEN, ".ds.zarr.partial-00000000", ".other.zarr.next"):
        if kind == "pipe":
            os.mkfifo(name)
        elif kind == "device":
            Path(name).symlink_to("/dev/zero")
        else:
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].bind(name)
    use(folder)
    assert main.run([*GENERATE, "-o", "ds.zarr", "--overwrite"]) == 0
    assert (folder / "precious" / "notes.txt").read_text() == "years of work"
    for line in held:
        line.close()


# ---------------------------------------------------------------------- messages


def codes_of(ds, **parts):
    decoder = {"directions": np.ones((3, 3)), "bias": np.ones(3), "activations": np.ones((300, 3))}
    return {"codes": np.maximum(ds.X, 0), **decoder, **parts}


BAD_DECODERS = {
    "complex": {"directions": np.ones((3, 3), complex)},
    "text": {"activations": np.full((300, 3), "x")},
    "dates": {"bias": np.zeros(3, "M8[s]")},
    "durations": {"activations": np.zeros((300, 3), "m8[s]")},
    "records": {"bias": np.zeros(3, [("a", float)])},
    "no width": {"directions": np.ones((3, 0)), "bias": np.ones(0), "activations": np.ones((300, 0))},
    "infinite": {"bias": np.array([1, np.inf, 1])},
    "long": {"bias": np.full(3, np.finfo(np.longdouble).max)},
    "rows of numbers": {"rows": np.arange(300) / 2},
    "rows of text": {"rows": np.full(300, "x")},
    "codes of dates": {"codes": np.zeros((300, 3), "M8[s]")},
    "codes of nothing": {"codes": np.zeros((300, 0))},
}


@pytest.mark.parametrize("parts", BAD_DECODERS.values(), ids=BAD_DECODERS)
def test_9_decoders_of_no_numbers_are_refused(parts, ds, folder, capfd):
    given = codes_of(ds, **parts)
    with pytest.raises(ValueError, match=r"^(codes|rows|directions|bias|activations) must") as caught:
        score(ds, min_size=5, **given)
    assert str(caught.value).isprintable()
    np.savez("codes.npz", **given)
    assert refusal(capfd, "score", "ds.zarr", "codes.npz")[0] == errors.BAD_INPUT


def test_9_objects_and_thresholds_in_python(ds):
    for name, value in (("activations", np.full((300, 3), None)), ("directions", [[1, 2, 3], ["a"], []])):
        with pytest.raises(ValueError, match=f"^{name} must be"):
            score(ds, **codes_of(ds, **{name: value}))
    for threshold in ("x", 1j, np.datetime64("2020"), [None] * 3, [[0]] * 3):
        with pytest.raises(ValueError, match=r"^threshold must be"):
            score(ds, np.maximum(ds.X, 0), threshold=threshold)


def spoilt_archives(ds):
    """Yield files of codes as nobody saves them."""
    matrix = scipy.sparse.csr_array(np.maximum(ds.X, 0))
    parts = {"indices": matrix.indices, "indptr": matrix.indptr, "data": matrix.data, "shape": np.array([300, 3])}
    for form in (np.array(3), np.array("lil"), np.array(b"dok"), np.array(["csr"]), np.array("\x1b[2J")):
        yield {**parts, "format": form}
    for name in parts:
        yield {key: value for key, value in parts.items() if key != name} | {"format": np.array(b"csr")}
    for changed in (
        {"shape": np.array([300])}, {"shape": np.array([300.0, 3.0])}, {"shape": np.array([-300, 3])},
        {"shape": np.array([300, 2**63], np.uint64)}, {"data": matrix.data.astype(complex)},
        {"data": matrix.data[:-1]}, {"data": matrix.data[None]}, {"indices": matrix.indices.astype(float)},
        {"indptr": matrix.indptr.astype("M8[s]")}, {"indptr": np.array(0)}, {"data": np.full(matrix.nnz, "x")},
    ):  # fmt: skip
        yield {**parts, "format": np.array(b"csr"), **changed}


def test_9_files_of_codes_as_nobody_saves_them(ds, folder, capfd):
    for parts in spoilt_archives(ds):
        np.savez("codes.npz", **parts)
        code, said = refusal(capfd, "score", "ds.zarr", "codes.npz")
        assert code == errors.BAD_INPUT
        assert said.startswith(("error: CODES must", "error: codes must"))


def damaged_zips(whole):
    """Yield an archive with each of its bytes changed, and cut."""
    for place in range(0, len(whole), max(1, len(whole) // 25)):
        yield whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :]
        yield whole[:place]


@pytest.mark.slow
def test_9_damaged_archives(ds, folder, capfd):
    scipy.sparse.save_npz("whole.npz", scipy.sparse.csr_array(np.maximum(ds.X[:, :1], 0)))
    codes = Path("codes.npz")
    for content in damaged_zips(Path("whole.npz").read_bytes()):
        codes.write_bytes(content)
        if main.run(["score", "ds.zarr", "codes.npz"]):
            assert capfd.readouterr().err.count("\n") == 1
        else:
            capfd.readouterr()
    with zipfile.ZipFile("codes.npz", "w") as archive:
        archive.writestr("codes.npy", b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 10_000)
    assert refusal(capfd, "score", "ds.zarr", "codes.npz")[0] == errors.BAD_INPUT


def test_9_archives_that_unpack_to_more_than_memory(ds, folder, capfd, monkeypatch):
    np.savez_compressed("codes.npz", codes=np.zeros((300, 30_000)))
    monkeypatch.setattr("percolab.ground.memory.available", lambda: 10**6)
    code, said = refusal(capfd, "score", "ds.zarr", "codes.npz")
    assert code == errors.BAD_INPUT
    assert "memory" in said


def test_10_worlds_whose_factors_say_nothing(tmp_path):
    from attack_files import reseal

    path = tmp_path / "world.zarr"
    pl.superpose([RECIPE, RECIPE], seed=0).save(path, sync=False)
    whole = (path / "zarr.json").read_text()
    for factors in ([1, 2], ["ab", "cd"], [None, {}], {"a": 1, "b": 2}, "ab", [[], []], [[["a", 1]], {}]):
        root = json.loads(whole)
        root["attributes"]["percolab"]["provenance"]["factors"] = factors
        (path / "zarr.json").write_text(json.dumps(root))
        assert reseal(path)
        with pytest.raises(pl.StoreError, match=r"is damaged: .*factors"):
            pl.load(path)


AT_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("module", ["percolab.ground.text", "numpy", "numba", "typer", "percolab.cli.options"])
def test_11_an_interrupt_while_the_program_is_loaded(module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    settings = {"INTERRUPTED_AT": module, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "percolab", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | settings)
    assert (done.returncode, done.stdout) == (errors.INTERRUPTED, "")
    assert done.stderr == "error: interrupted, nothing was written\n"


TEXTS = {
    "deep list": "[" * 100_000, "deep object": '{"a":' * 100_000, "long number": "1" * 5000, "word": "nul",
    "list": "[]", "zero": "\x00", "not a number": '{"n_points": NaN, "dim": 3}',
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_12_recipes_of_any_text(text, folder, capfd):
    Path("recipe.json").write_text(text)
    for words in (["generate", "--recipe", "recipe.json"], ["superpose", "recipe.json", "recipe.json"]):
        code, _ = refusal(capfd, *words, "-o", "new.zarr")
        assert code == errors.BAD_INPUT
    with pytest.raises(ValueError):
        pl.Recipe.from_json(text)
    with pytest.raises(ValueError):
        pl.Superposition.from_json(text)


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "huge"])
def test_12_recipes_are_plain_files_of_a_size(name, folder, capfd):
    os.mkfifo("pipe")
    Path("huge").write_text(" " * (1 << 22))
    for words in (["generate", "--recipe", name], ["superpose", name, name]):
        assert refusal(capfd, *words, "-o", "new.zarr")[0] in (errors.BAD_INPUT, errors.FAILURE)
    for words in (["score", "ds.zarr", name], ["explore", "ds.zarr", "--features", name, "-o", "a.html"]):
        assert refusal(capfd, *words)[0] in (errors.BAD_INPUT, errors.FAILURE)
    for words in (["take", "ds.zarr", "--rows", name, "-o", "b.zarr"], ["draw", "ds.zarr", "--colour", name]):
        assert refusal(capfd, *words, *(["-o", "b.png"] if words[0] == "draw" else []))[0] == errors.BAD_INPUT


def test_12_exports_are_plain_files_and_lead_to_no_others(ds, folder):
    h5py = pytest.importorskip("h5py")
    exports.to_hdf5(ds, "whole")
    exports.to_hdf5(ds, "linked")
    np.asarray(ds.X).tofile("raw")
    links = {"link": h5py.ExternalLink("whole.h5", "X"), "storage": [("raw", 0, h5py.h5f.UNLIMITED)]}
    for kind, where in links.items():
        with h5py.File("linked.h5", "r+") as file:
            del file["X"]
            if kind == "link":
                file["X"] = where
            else:
                file.create_dataset("X", ds.X.shape, ds.X.dtype, external=where)
        with pytest.raises(ValueError, match=r"^export must be an export of percolab, got 'linked.h5': "):
            exports.read_hdf5("linked")
    Path("pipe").mkdir()
    for name in ("pipe.h5", "pipe/points.parquet", "pipe.npz", "pipe.recipe.json"):
        os.mkfifo(name)
    for read in (exports.read_hdf5, exports.read_parquet, exports.read_npz, exports.read_csv):
        with pytest.raises(ValueError, match="must be a plain file"):
            read("pipe")


def test_tables_that_unpack_to_more_than_memory(ds, folder, monkeypatch):
    """A column of one number takes a few bytes, however long it is; a text that is said again takes none."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    exports.to_parquet(ds, "out")
    longer = pa.table({"cluster": np.zeros(3_000_000, np.int64)})
    parquet.write_table(longer, "out/points.parquet")
    assert Path("out/points.parquet").stat().st_size < 50_000
    monkeypatch.setattr("percolab.ground.memory.available", lambda: 10**7)
    with pytest.raises(MemoryError, match=r"^what export holds needs 24 MB of memory, and 10 MB are free$"):
        exports.read_parquet("out")
    parquet.write_table(pa.table({"cluster": ["ha" * 1000] * 1000}), "out/points.parquet")
    with pytest.raises(ValueError, match=r"^export must be .*: its columns must be numbers$"):
        exports.read_parquet("out")


# ---------------------------------------------------------------------- the server


@pytest.fixture
def serving(folder):
    """Return a function that starts a server of the dataset, and gives what asks it."""
    servers = []

    def start(**options):
        server = explore(pl.load(folder / "ds.zarr"), name="ds", n_points=20, min_size=5).serve(**options)
        thread = threading.Thread(target=server.run)
        thread.start()
        servers.append((server, thread))
        port = int(server.address.rstrip("/").rsplit(":", 1)[1])

        def ask(target, host=None):
            with socket.create_connection((options.get("host", "127.0.0.1"), port), 300) as line:
                named = f"{options.get('host', '127.0.0.1')}:{port}" if host is None else host.format(port=port)
                line.sendall(f"GET {target} HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n\r\n".encode())
                return int(line.makefile("rb").readline().split()[1])

        return ask

    yield start
    for server, thread in servers:
        server.close()
        thread.join()


def test_13_wild_requests_and_a_store_that_is_gone(serving, folder, capfd):
    ask = serving()
    assert ask("/") == 200
    for target in ("http://[/", "/latent?factor=0&latent=" + "9" * 5000, "/latent?" + "a=1&" * 5000):
        assert ask(target) == 400
    assert ask("/latent?factor=0&latent=0") == 200
    os.rename("ds.zarr", "elsewhere.zarr")
    assert ask("/latent?factor=0&latent=0") == 500
    os.rename("elsewhere.zarr", "ds.zarr")
    assert ask("/latent?factor=0&latent=0") == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("host", ["127.0.0.2", "127.1", "LOCALHOST", "localhost", "127.0.0.1"])
def test_15_other_spellings_of_this_machine_are_as_safe(host, serving):
    ask = serving(host=host)
    assert ask("/") == 200
    assert ask("/", "localhost:{port}") == 200
    for other in ("elsewhere.example", "elsewhere.example:{port}", "127.0.0.1.elsewhere.example:{port}", "[::1", ""):
        assert ask("/", other) == 403


def test_15_a_server_on_no_name_is_refused(folder, capfd):
    code, said = refusal(capfd, "explore", "ds.zarr", "--serve", "--host", "")
    assert (code, said) == (errors.BAD_INPUT, "error: --host must be a name or an address, got ''")


# ---------------------------------------------------------------------- interrupts


LOST = """
import os, signal, sys
import percolab.cli.main as main
from percolab.exports import columns

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            pass

real = columns.record

def record(*given):
    Dying()  # Python prints what is raised there, and goes on
    return real(*given)

import percolab.exports.tables
percolab.exports.tables.record = record
sys.argv = ["percolab", "export", "ds.zarr", "--format", "parquet", "-o", "out"]
main.main()
"""


@pytest.mark.slow
def test_14_an_interrupt_where_nothing_can_be_raised(folder):
    pytest.importorskip("pyarrow")
    code, out, err = in_a_process(LOST)
    assert (code, out, err) == (errors.INTERRUPTED, "", "error: interrupted, nothing was written\n")
    assert not list(folder.glob("*out*"))


def test_16_an_empty_range_is_an_index(ds, folder):
    stored = pl.load("ds.zarr").X
    for index in (range(0), [], (), range(3, 3), range(5, 2)):
        assert stored[index].shape == ds.X[index].shape
        assert stored[index].dtype == ds.X[index].dtype
    assert (stored[range(2, 9, 3)] == ds.X[range(2, 9, 3)]).all()


UNGUARDED = """
import sys
import percolab as pl
try:
    pl.generate_store(pl.Recipe(3000, 3, seeds=1), sys.argv[1], shards=1, workers=1)
except Exception as fault:
    print(type(fault).__name__, fault)
    raise SystemExit(5)
"""


@pytest.mark.slow
def test_17_a_script_without_a_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "a.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()[-1]
    assert said.startswith("WorkerError workers end as they start")
    assert "if __name__ == '__main__':" in said
    assert "memory" not in said


def test_17_only_memory_is_said_to_be_short():
    from percolab.store.runners import WorkerError

    for text in ("workers end as they start", "workers were killed 3 times: did they run out of memory?"):
        assert errors.describe(WorkerError(text)) == (text, errors.FAILURE)


def test_18_verify_tells_a_broken_law_from_what_is_no_dataset(ds, folder, capfd):
    chunk = Path("ds.zarr/y/c/0")
    assert refusal(capfd, "verify", "nothing.zarr")[0] == errors.BAD_INPUT
    assert refusal(capfd, "verify", "precious")[0] == errors.BAD_INPUT
    assert refusal(capfd, "verify", "precious/notes.txt")[0] == errors.BAD_INPUT
    content = chunk.read_bytes()
    chunk.write_bytes(b"damaged")
    assert refusal(capfd, "verify", "ds.zarr")[0] == errors.BAD_INPUT
    chunk.write_bytes(content)
    from attack_files import reseal, signed

    assert schema.is_packed("y") is False
    chunk.write_bytes(signed(np.asarray(ds.y)[::-1].tobytes()))
    assert reseal(Path("ds.zarr"))
    assert main.run(["verify", "ds.zarr"]) == errors.FAILURE


# ---------------------------------------------------------------------- pickles


class Evil:
    def __reduce__(self):
        return os.mkdir, ("owned",)


def pickled_files():
    """Write files with code in them; yield commands and functions that read them."""
    import torch

    evil = np.array([Evil()], object)
    np.save("evil.npy", evil)
    np.savez("evil.npz", codes=evil, X=evil, y=evil)
    Path("evil.pkl").write_bytes(pickle.dumps(Evil()))
    Path("evil.npy.pkl").write_bytes(pickle.dumps(Evil()))
    matrix = {"indices": evil, "indptr": evil, "data": evil, "shape": evil, "format": np.array(b"csr")}
    np.savez("evil-sparse.npz", **matrix)
    for name in ("evil.npy", "evil.npz", "evil-sparse.npz", "evil.pkl"):
        yield ["score", "ds.zarr", name]
        yield ["explore", "ds.zarr", "--features", name, "-o", "out.html"]
        yield ["take", "ds.zarr", "--rows", name, "-o", "out.zarr"]
        yield ["draw", "ds.zarr", "--colour", name, "-o", "out.png"]
    np.save("codes.npy", np.ones((300, 2)))
    yield ["score", "ds.zarr", "codes.npy", "--rows", "evil.npy"]
    yield ["diff", "codes.npy", "evil.npy"]
    whole = torch.load("run/checkpoint.pt", weights_only=True)
    kinds = {"whole": Evil(), "inside": {**whole, "recipe": {**whole["recipe"], "dim": Evil()}}}
    for legacy in (False, True):
        for kind in kinds.values():
            torch.save(kind, "run/checkpoint.pt", _use_new_zipfile_serialization=not legacy)
            yield ["score", "ds.zarr", "--run", "run"]
            yield ["train", "ds.zarr", "-o", "run", "--resume"]
            yield ["diff", "run", "run"]
    with zipfile.ZipFile("run/checkpoint.pt", "w") as archive:
        archive.writestr("constants.pkl", pickle.dumps(Evil()))
        archive.writestr("data.pkl", pickle.dumps(Evil()))
        archive.writestr("version", "3")
    yield ["score", "ds.zarr", "--run", "run"]
    legacy = Path("evil.pkl").read_bytes()
    torch.save(whole, "run/checkpoint.pt")
    # Two files in one: what looks from the front sees a pickle, what looks from the end an archive.
    Path("run/checkpoint.pt").write_bytes(legacy + Path("run/checkpoint.pt").read_bytes())
    yield ["train", "ds.zarr", "-o", "run", "--resume"]


@pytest.mark.slow
def test_nothing_in_a_file_is_executed(folder, run_dir, capfd):
    shutil.copytree(run_dir, "run")
    for words in pickled_files():
        code, _ = refusal(capfd, *words)
        assert code == errors.BAD_INPUT, words
        assert not Path("owned").exists()
    shutil.copy("evil-sparse.npz", "evil_gt_features.npz")
    with pytest.raises(ValueError):
        exports.read_npz("evil")
    assert not Path("owned").exists()


def test_no_type_in_a_table_is_unpickled(ds, folder):
    """Arrow once took types from pickles in the metadata of a column."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    exports.to_parquet(ds, "out")
    table = parquet.read_table("out/points.parquet")
    words = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Evil())}
    schema = pa.schema([field.with_metadata(words) for field in table.schema], table.schema.metadata)
    parquet.write_table(table.cast(schema), "out/points.parquet")
    assert b"py_extension_type" in base64.b64decode(
        parquet.read_metadata("out/points.parquet").metadata[b"ARROW:schema"]
    )
    assert exports.read_parquet("out").recipe == ds.recipe
    assert not Path("owned").exists()


LOADING = re.compile(r"\b(?:np|numpy|torch|pickle|joblib|pandas|pd)\.(?:load|loads|memmap|fromfile|read_pickle)\(")


def test_arrays_and_weights_are_read_in_one_place():
    """All that could hold code goes through `ground.foreign_files`; the table of `rng` is part of the package."""
    sources = Path(pl.__file__).parent
    found = {str(path.relative_to(sources)) for path in sources.rglob("*.py") if LOADING.search(path.read_text())}
    assert found == {"ground/foreign_files.py", "rng/pcg64.py"}
    calls = [line for line in (sources / "ground/foreign_files.py").read_text().splitlines() if LOADING.search(line)]
    assert all("allow_pickle=False" in line or "weights_only=True" in line or "memmap" in line for line in calls)
    assert len(calls) == 3


# ---------------------------------------------------------------------- modules


def test_only_a_module_that_is_named_is_looked_for_here(folder, monkeypatch, capfd):
    """A stranger's module in the current directory may have the name of a library that is not loaded yet."""
    pytest.importorskip("torch")
    installed = [place for place in sys.path if place]
    monkeypatch.setattr(sys, "path", list(installed))
    for words in (["benchmark", "--tasks", "none"], ["scaling", "--data", "none"]):
        refusal(capfd, *words, "-o", "out")
        assert sys.path == installed
    refusal(capfd, "scaling", "--data", "none", "--network", "theirs:make", "-o", "out")
    assert sys.path == [*installed, ""]
