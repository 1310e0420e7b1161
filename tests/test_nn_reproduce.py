"""From data to report, in one go, in parts, and without the packages that a GPU machine may lack."""

import dataclasses
import json
import subprocess
import sys

import pandas
import pytest
import torch

import percolab as pl
from percolab.nn import ProbeConfig, TrainConfig, reproduce

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

TINY = reproduce.Experiment(
    "one-cluster",
    "small",
    pl.Recipe(1500, 8, "one_cluster", seeds=5, engine="paper"),
    TrainConfig(d_model=8, n_blocks=2, epochs=3, batch_size=128, lr=3e-3),
    ProbeConfig(depths=tuple(range(0, 41, 5)), min_latent_size=15),
)
FILES = ("report.html", "results.json", "probes/per_latent.csv", "figures/fig4.png", "training/checkpoint.pt")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    said = []
    return out, reproduce.reproduce(TINY, out, device="cpu", say=said.append), said


def test_everything_is_there(run):
    out, results, _ = run
    for name in (*FILES, "probes/per_latent.parquet", "dataset.zarr"):
        assert (out / name).exists(), name
    assert json.loads((out / "results.json").read_text())["table_1"] == results["table_1"]
    assert set(results["seconds"]) == {"dataset", "baselines", "training", "probes", "figures", "report"}
    assert [row["model"] for row in results["table_1"]] == ["mean", "ridge", "1NN", "MLP"]
    assert len(results["findings"]["random"]["z"]) == 5
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 5
    assert "http" not in page.replace("http-equiv", "")
    csv, parquet = (
        pandas.read_csv(out / "probes/per_latent.csv"),
        pandas.read_parquet(out / "probes/per_latent.parquet"),
    )
    pandas.testing.assert_frame_equal(csv, parquet, check_dtype=False)


def test_a_stage_that_is_there_is_not_run_again(run):
    out, results, _ = run
    (out / "probes.json").unlink()
    said = []
    again = reproduce.reproduce(TINY, out, device="cpu", say=said.append)
    assert [line for line in said if "there already" in line] == [
        f"{stage}: there already" for stage in ("dataset", "baselines", "training", "figures")
    ]
    assert again["findings"] == results["findings"]
    assert again["seconds"]["training"] == results["seconds"]["training"]


def test_another_experiment_does_not_overwrite(run, tmp_path):
    out, _, _ = run
    before = (out / "results.json").read_bytes()
    other = dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, epochs=4))
    with pytest.raises(FileExistsError, match=r"out must hold the same experiment unless overwriting, got training"):
        reproduce.reproduce(other, out, device="cpu")
    assert (out / "results.json").read_bytes() == before
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"out must be empty or hold an experiment, got"):
        reproduce.reproduce(TINY, tmp_path, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_names():
    assert reproduce.experiment("one-cluster").recipe == pl.PRESETS["paper-one-cluster"]
    multi = reproduce.experiment("multi-cluster")
    assert (multi.training.d_model, multi.training.n_blocks, multi.training.epochs) == (512, 3, 2500)
    assert multi.probing.depths == tuple(range(0, 201, 5))
    with pytest.raises(ValueError, match=r"experiment must be one of one-cluster, multi-cluster, got 'two'"):
        reproduce.experiment("two")
    with pytest.raises(ValueError, match=r"scale must be one of paper, small, got 'huge'"):
        reproduce.experiment("one-cluster", "huge")


def test_without_zarr_typer_rich_and_pyarrow(tmp_path):
    code = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("zarr", "typer", "rich", "pyarrow"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import percolab as pl
from percolab.nn import ProbeConfig, TrainConfig, reproduce
chosen = reproduce.Experiment("one-cluster", "small", pl.Recipe(1000, 6, "one_cluster", seeds=5, engine="paper"),
    TrainConfig(d_model=8, n_blocks=2, epochs=1), ProbeConfig(depths=(0, 5, 10, 20), min_latent_size=15))
reproduce.reproduce(chosen, {str(tmp_path / "out")!r}, device="cpu")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in FILES:
        assert (tmp_path / "out" / name).exists(), name
    assert not (tmp_path / "out" / "dataset.zarr").exists()


def test_program_says_what_is_wrong_in_one_line(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert reproduce.main(["one-cluster", "--scale", "small", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: out must be empty or hold an experiment, got")
    assert reproduce.main(["one-cluster", "--epochs", "0", "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == "error: epochs must be at least 1, got 0\n"
    assert not (tmp_path / "new").exists()
