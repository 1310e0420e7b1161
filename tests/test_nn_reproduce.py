"""From data to report, in one go and in parts."""

import dataclasses
import json
import re

import pandas
import pytest
import torch

import percolab as pl
from percolab.nn import Experiment, ProbeConfig, TrainConfig, experiment, reproduce

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

TINY = Experiment(
    "one-cluster",
    "small",
    pl.Recipe(1500, 8, "one_cluster", seeds=5, engine="paper"),
    TrainConfig(d_model=8, n_blocks=2, epochs=3, batch_size=128, lr=3e-3),
    ProbeConfig(depths=tuple(range(0, 41, 5)), min_latent_size=15),
)
FILES = ("report.html", "results.json", "probes/per_latent.csv", "figures/fig4.png", "training/checkpoint.pt")


STAGES = ("dataset", "baselines", "training", "probes", "figures")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "out"
    told = []
    results = reproduce(TINY, output, device="cpu", progress=lambda *step: told.append(step))
    return output, results, told


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
    csv, parquet = (
        pandas.read_csv(out / "probes/per_latent.csv"),
        pandas.read_parquet(out / "probes/per_latent.parquet"),
    )
    pandas.testing.assert_frame_equal(csv, parquet, check_dtype=False)


def test_progress_is_counted_work(run):
    _, _, told = run
    assert ("training", 3, 3) in told
    assert {"positions", "neighbours", "training", "probes", "figures", "report"} <= {stage for stage, _, _ in told}
    assert all(0 <= done <= total for _, done, total in told)


def test_the_report_explains_before_it_shows(run):
    output, _, _ = run
    page = (output / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)  # no raw dictionary
    for table in re.findall(r"(<p>[^<]*</p>|</h2>)\s*<div class=\"scroll\"><table.*?</table>", page, re.DOTALL):
        assert table != "</h2>"


@pytest.mark.parametrize("damage", ["missing", "broken", "no file"])
def test_a_stage_that_is_there_is_not_run_again(run, damage):
    output, results, _ = run
    file = output / "probes.json"
    if damage == "missing":
        file.unlink()
    elif damage == "broken":
        file.write_text("{")
    else:
        (output / "probes" / "per_depth.csv").unlink()
    before = {stage: (output / f"{stage}.json").read_bytes() for stage in STAGES if stage != "probes"}
    again = reproduce(TINY, output, device="cpu")
    assert {stage: (output / f"{stage}.json").read_bytes() for stage in before} == before
    assert json.loads(file.read_text())["values"]["rows"]["per_latent"] > 0
    assert again["findings"] == results["findings"]
    assert again["seconds"]["training"] == results["seconds"]["training"]


def test_another_experiment_does_not_overwrite(run, tmp_path):
    out, _, _ = run
    before = (out / "results.json").read_bytes()
    other = dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, epochs=4))
    with pytest.raises(FileExistsError, match=r"output must hold the same experiment unless overwrite is given, got"):
        reproduce(other, out, device="cpu")
    assert (out / "results.json").read_bytes() == before
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"output must be empty or hold an experiment, got"):
        reproduce(TINY, tmp_path, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_names():
    assert experiment("one-cluster").recipe == pl.PRESETS["paper-one-cluster"]
    multi = experiment("multi-cluster")
    assert (multi.training.d_model, multi.training.n_blocks, multi.training.epochs) == (512, 3, 2500)
    assert multi.probing.depths == tuple(range(0, 201, 5))
    with pytest.raises(ValueError, match=r"experiment must be one of one-cluster, multi-cluster, got 'two'"):
        experiment("two")
    with pytest.raises(ValueError, match=r"scale must be one of paper, small, got 'huge'"):
        experiment("one-cluster", "huge")


def test_the_command_of_an_experiment():
    assert experiment("one-cluster", "small").command == "percolab reproduce one-cluster --scale small"
    assert experiment("multi-cluster", epochs=7).command == "percolab reproduce multi-cluster --scale paper --epochs 7"
