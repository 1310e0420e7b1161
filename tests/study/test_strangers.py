"""Directories of studies and folders that strangers made: each test was a fault once."""

import io
import json
import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from attack_studies import EXPERIMENT, SETTINGS, WORLD, made_results, state_of, study  # noqa: E402

from percolab.benchmark import declaration, envelope, submissions  # noqa: E402
from percolab.cli import main  # noqa: E402
from percolab.features.dictionaries import Pretrained  # noqa: E402
from percolab.ground.devices import on_device  # noqa: E402
from percolab.ground.foreign_files import parse_json  # noqa: E402
from percolab.study.cells import RECORD  # noqa: E402
from percolab.study.directory import SUBMISSION  # noqa: E402
from percolab.study.sources import folder as read_activations  # noqa: E402


@pytest.fixture(autouse=True)
def never_hang():
    """End a test that waits for a pipe."""
    signal.alarm(600)  # minutes, since a test may have to compile first on a busy machine
    yield
    signal.alarm(0)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("owned",)


# ---------------------------------------------------------------------- directories


@pytest.mark.parametrize("name", ["results.json", "training", "cells/part"])
def test_nothing_is_written_or_removed_where_a_link_in_a_directory_leads(name, tmp_path):
    study(tmp_path)
    precious = tmp_path / "precious"
    for part in ("networks", "part"):
        (precious / part).mkdir(parents=True)
        (precious / part / "notes.txt").write_text("years of work")
    place = tmp_path / "out" / name
    if place.is_dir():
        place.rename(tmp_path / "aside")
    place.unlink(missing_ok=True)
    place.symlink_to(precious / "part" / "notes.txt" if "." in name else precious)
    with pytest.raises(FileExistsError, match=r"^output must hold plain files and directories alone, got '"):
        study(tmp_path)
    assert sorted(path.name for path in precious.rglob("*")) == ["networks", "notes.txt", "notes.txt", "part"]
    assert (precious / "part" / "notes.txt").read_text() == "years of work"


def test_a_pipe_in_a_directory_is_not_waited_for(tmp_path):
    study(tmp_path)
    os.mkfifo(tmp_path / "out" / "training")
    with pytest.raises(FileExistsError, match=r"^output must hold plain files and directories alone, got '"):
        study(tmp_path)


def test_a_claim_that_is_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("years of work")
    (tmp_path / "out" / "experiment.json").symlink_to(tmp_path / "precious")
    EXPERIMENT.run(SETTINGS, tmp_path / "out", device="cpu", overwrite=True)
    assert (tmp_path / "precious").read_text() == "years of work"


def change_cell(folder, change):
    file = folder / "out" / "cells" / "part" / "0.npz"
    with np.load(file) as stored:
        parts = dict(stored)
    record = json.loads(str(parts[RECORD]))
    change(record["values"])
    np.savez(file, **{**parts, RECORD: np.array(json.dumps(record))})


@pytest.mark.parametrize("change", [{"size": ["a"]}, {"names": 3}])
def test_cells_that_a_study_cannot_use_are_one_line(change, tmp_path):
    study(tmp_path)
    change_cell(tmp_path, lambda values: values.update(change))
    with pytest.raises(ValueError, match=r"^output must hold cells that this study can use, got '") as caught:
        study(tmp_path)
    assert str(caught.value).isprintable()


def test_cells_that_are_not_whole_are_computed_again(tmp_path):
    expected = study(tmp_path)["estimates"]
    change_cell(tmp_path, lambda values: values.clear())
    assert study(tmp_path)["estimates"] == expected


def test_no_pickle_in_a_cell_is_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = study(tmp_path)["estimates"]
    for name in ("values", "number", RECORD):
        file = tmp_path / "out" / "cells" / "part" / "0.npz"
        with np.load(file) as stored:
            parts = dict(stored)
        np.savez(file, **{**parts, name: np.array([Evil()], object)})
        assert study(tmp_path)["estimates"] == expected
        assert not Path("owned").exists()


# ---------------------------------------------------------------------- result files


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of result files, and what is in one of them."""
    monkeypatch.setattr(submissions, "FROZEN", {"small/superposed-2": WORLD})
    whole = made_results(tmp_path, draws=1)
    folder = tmp_path / SUBMISSION
    return folder, whole, next(file for file in sorted(folder.iterdir()) if json.loads(file.read_text()) == whole[0])


def test_result_files_are_accepted(results, capsys):
    folder, _, _ = results
    assert main.run(["benchmark", "--check", str(folder)]) == 0
    assert "all files are as they should be" in capsys.readouterr().out


def deep(values):
    inner = values["sae_cfg_dict"]
    for _ in range(900):
        inner["a"] = inner = {}


CHANGES = {
    "a number too large for a column": lambda v: v["eval_result_details"][0].update(concept=10**30),
    "a number too large for a float": lambda v: v["eval_result_metrics"]["recovery"].update(auc=10**400),
    "a metric of text": lambda v: v["eval_result_metrics"]["recovery"].update(f1="1"),
    "a metric that is a list": lambda v: v["eval_result_metrics"]["sparsity"].update(l0=[1]),
    "no l0": lambda v: v["eval_result_metrics"]["recovery"].pop("l0"),
    "a terminal's escape": lambda v: v.update(method="\x1b[2Jtopk"),
    "a name without an end": lambda v: v.update(layer="x" * 10**5),
    "other concepts": lambda v: v["eval_result_details"][0].update(concept=77),
    "deep": deep,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_result_files_of_strangers_are_refused_in_one_line(change, results, capsys):
    folder, (values, *_), file = results
    change(values)
    values["checksum"] = envelope.checksum(values)
    file.write_text(json.dumps(values))
    assert main.run(["benchmark", "--check", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said[:-1].isprintable()


def test_the_page_of_results_replaces_a_link(results, tmp_path):
    folder, _, _ = results
    (tmp_path / "precious").write_text("years of work")
    (folder / submissions.REPORT).symlink_to(tmp_path / "precious")
    submissions.check(folder)
    assert (tmp_path / "precious").read_text() == "years of work"
    assert not (folder / submissions.REPORT).is_symlink()


@pytest.mark.parametrize(
    "text", ['{"a": 1e999}', '{"a": NaN}', '{"a": 1, "a": 2}', '{"a": ' + "[" * 60 + "]" * 60 + "}"]
)
def test_json_is_finite_flat_and_has_each_name_once(text):
    with pytest.raises(ValueError, match=r"^it is not JSON: "):
        parse_json(text)


# ---------------------------------------------------------------------- activations, autoencoders, networks


def activations(folder, values, **changes):
    folder.mkdir(exist_ok=True)
    content = io.BytesIO()
    np.save(content, values, allow_pickle=True)
    (folder / "0.npy").write_bytes(content.getvalue())
    (folder / "manifest.json").write_text(json.dumps({"activations": [{"file": "0.npy", "role": "trained"} | changes]}))
    return folder


@pytest.mark.parametrize(
    "values",
    [np.float32(3), np.zeros(3), np.zeros((3, 2), complex), np.full((3, 2), "x"), np.array([[Evil()]], object)],
)
def test_activations_are_rows_of_numbers(values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^0\.npy must "):
        read_activations(activations(tmp_path / "in", values))
    assert not Path("owned").exists()


NOT_ROWS = {
    "text": np.full((50, 4), "x"),
    "complex": np.ones((50, 4), complex),
    "dates": np.zeros((50, 4), "M8[s]"),
    "records": np.zeros((50, 4), [("a", "f4")]),
    "one value": np.float32(3),
    "no width": np.ones((50, 0)),
}


@pytest.mark.parametrize("values", NOT_ROWS.values(), ids=NOT_ROWS)
def test_activations_of_two_networks_are_rows_of_numbers(values, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("good.npy", np.ones((50, 4)))
    np.save("bad.npy", values)
    for names in (["good.npy", "bad.npy"], ["bad.npy", "bad.npy"]):
        assert main.run(["diff", *names, "--method", "kmeans@n_features=2", "--device", "cpu"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(("error: activations must ", "error: --data must have at least 2 rows"))
        assert said[:-1].isprintable()


def test_arrays_on_disk_are_read_if_memory_holds_them(tmp_path, monkeypatch):
    """A file may have holes, which take no disk."""
    whole = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.uint8, (10**6, 100))
    monkeypatch.setattr("percolab.ground.memory.available", lambda: 10**8)
    with pytest.raises(MemoryError, match=r"^activations of shape \(1000000, 100\) need 400 MB of memory"):
        on_device("activations", whole, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("file", ["\x1b[2J.npy", "../0.npy", "0.npy/..", "a\x00.npy", "\u202e.npy"])
def test_names_in_a_manifest_are_those_of_files_in_its_folder(file, tmp_path):
    with pytest.raises(ValueError, match=r"^file must be the name of an") as caught:
        read_activations(activations(tmp_path / "in", np.zeros((3, 2)), file=file))
    assert str(caught.value).isprintable()


def test_activations_are_not_waited_for(tmp_path):
    folder = activations(tmp_path / "in", np.zeros((3, 2)))
    (folder / "0.npy").unlink()
    os.mkfifo(folder / "0.npy")
    with pytest.raises(ValueError, match="must be a plain file"):
        read_activations(folder)


SPOILT = {
    "in pieces": lambda held: held.to_sparse(),
    "nowhere": lambda held: held.to("meta"),
    "complex": lambda held: held.to(torch.complex64),
    "larger than its file": lambda held: torch.zeros(1).expand(10**5, 10**6),
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_weights_of_autoencoders_are_plain_tensors(change, tmp_path):
    state = state_of("AutoEncoder")
    torch.save({**state, "encoder.weight": change(state["encoder.weight"])}, tmp_path / "ae.pt")
    (tmp_path / "config.json").write_text(json.dumps({"trainer": {"dict_class": "AutoEncoder"}}))
    with pytest.raises(ValueError, match=r"^ae\.pt must have encoder\.weight, 2 dimensions of finite numbers"):
        Pretrained(str(tmp_path)).fit(np.zeros((3, 6)))


@pytest.mark.parametrize("legacy", [False, True])
def test_no_pickle_in_a_folder_of_an_autoencoder_is_loaded(legacy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"trainer": {"dict_class": "AutoEncoder"}}))
    for held in (Evil(), {"bias": Evil()}):
        torch.save(held, "ae.pt", _use_new_zipfile_serialization=not legacy)
        with pytest.raises(ValueError, match=r"^ae\.pt must be"):
            Pretrained(".").fit(np.zeros((3, 6)))
    Path("ae.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match=r"^ae\.pt must be"):
        Pretrained(".").fit(np.zeros((3, 6)))
    assert not Path("owned").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cfg.json", "sae_weights.safetensors"])
def test_folders_of_sae_lens_are_plain_files(name, tmp_path):
    pytest.importorskip("sae_lens")
    (tmp_path / "cfg.json").write_text(json.dumps({"architecture": "topk", "d_in": 6, "d_sae": 8}))
    (tmp_path / "sae_weights.safetensors").write_bytes(pickle.dumps(Evil()))
    for make in (lambda: None, lambda: (tmp_path / name).unlink() or os.mkfifo(tmp_path / name)):
        make()
        with pytest.raises(ValueError, match=r"^(path must be an SAE as SAELens saves it|cfg\.json must be)"):
            Pretrained(str(tmp_path), device="cpu").fit(np.zeros((3, 6)))
    assert not Path("owned").exists()
    (tmp_path / name).unlink()
    (tmp_path / "sae_weights.safetensors").touch()
    (tmp_path / "cfg.json").write_text(json.dumps({"architecture": "temporal", "n_attn_layers": 10**9}))
    with pytest.raises(ValueError, match=r"^architecture must be one of standard"):
        Pretrained(str(tmp_path), device="cpu").fit(np.zeros((3, 6)))


def test_only_the_module_that_is_named_is_imported(tmp_path, monkeypatch):
    """A study directory names the module of its networks too; that one is never imported."""
    (tmp_path / "theirs.py").write_text("import os\nos.mkdir('owned')\ndef make(data, seed): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    study(tmp_path)
    claim = tmp_path / "out" / "experiment.json"
    claim.write_text(json.dumps(json.loads(claim.read_text()) | {"network": "theirs:make"}))
    with pytest.raises(FileExistsError, match=r"with network 'theirs:make'$"):
        study(tmp_path)
    assert not Path("owned").exists()
    assert "theirs" not in sys.modules
    with pytest.raises(ValueError, match="network must be a function"):
        declaration.settings(WORLD, only=["neurons"], network="nowhere:make", layer="blocks.0")
