"""From data to report, in one go and in parts."""

import dataclasses
import json
import re

import numpy as np
import pandas
import pytest
import torch

import percolab as pl
from percolab.experiments import paper
from percolab.ground.files import json_text
from percolab.nn import ProbeConfig, TrainConfig, activations, experiment, reproduce, train
from percolab.study.cells import Cells, InProcess
from percolab.study.material import Material

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

pytestmark = pytest.mark.slow

USUAL = experiment("one-cluster", "small")
TINY = dataclasses.replace(
    USUAL,
    recipes=(pl.Recipe(1200, 8, "one_cluster", seeds=5, engine="paper"),),
    training=TrainConfig(d_model=8, n_blocks=2, epochs=3, batch_size=128, lr=3e-3),
    options=paper.Options(
        ProbeConfig(depths=tuple(range(0, 41, 10)), min_latent_size=15, draws=3, subtree_alphas=(1.0, 1e3)),
        fit_from=1.0,
        shorter=2,
    ),
)
FILES = ("report.html", "results.json", "probes/per_latent.csv", "figures/fig4.png", "cells/training.npz")
STAGES = ("dataset", "baselines", "training", "shorter", "power", "findings", "probes")
SOURCES = ("raw", *(f"{kind}-{seed}" for kind in ("random", "untrained") for seed in range(42, 47)), "trained-42")


def results_of(output):
    """Return the results of all cells of a run."""
    kept = Cells(output / "cells", InProcess())
    return {cell.name: kept.read(cell) for cell in paper.cells(TINY)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "out"
    told = []
    results = reproduce(TINY, output, device="cpu", progress=lambda *step: told.append(step))
    return output, results, told


def test_everything_is_there(run):
    out, results, _ = run
    for name in (*FILES, *(f"cells/probes/{source}.npz" for source in SOURCES), "probes/per_latent.parquet"):
        assert (out / name).exists(), name
    assert json.loads((out / "results.json").read_text())["table_1"] == json.loads(json_text(results["table_1"]))
    assert set(results["seconds"]) == {*STAGES, "report"}
    table = pandas.read_parquet(out / "table.parquet")
    assert {"draw", "cell", "protocol", "layer", "target", "unit", "measure", "value"} <= set(table.columns)
    assert set(table["cell"]) >= {f"probes/{source}" for source in SOURCES}
    assert set(results["devices"]) == set(STAGES)
    assert all(device.startswith("CPU") for device in results["devices"].values())
    assert [row["model"] for row in results["table_1"]] == [
        "mean", "ridge", "1NN, ties averaged", "1NN, release order", "MLP",
    ]  # fmt: skip
    assert len(results["findings"]["z"]) == len(results["findings"]["sum"]) == 6
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 6
    csv, parquet = (
        pandas.read_csv(out / "probes/per_latent.csv"),
        pandas.read_parquet(out / "probes/per_latent.parquet"),
    )
    pandas.testing.assert_frame_equal(csv, parquet, check_dtype=False)


def test_every_number_has_its_control(run):
    _, results, _ = run
    kinds = {row["kind"]: row["n"] for row in results["controls"]}
    assert kinds == {"raw": 1, "random": 5, "untrained": 5, "trained": 2}
    for row in results["controls"]:
        for target in ("z", "z_redrawn", "sum", "sum_redrawn"):
            assert row[target]["low"] <= row[target]["value"] <= row[target]["high"] or row["kind"] == "raw"
        assert ("over_untrained" in row) == (row["kind"] == "trained")
    assert {row["representation"] for row in results["controls"] if row["kind"] == "random"} == {
        "random.8",
        "random.32",
    }
    assert results["permuted"]["n"] > 100
    for finding in results["findings"]["z"]:
        assert finding["untrained_verdict"]
        assert all(case["low"] <= case["high"] for case in finding["cases"])
    assert {row["kind"] for row in results["held_out"]} == set(kinds)
    assert [row["strength"] for row in results["power"]["strengths"]] == [0.1, 0.2, 0.5, 1, 2]
    scores = [score["r2"] for score in results["training"]["members"]["test"]]
    assert len(scores) == 2
    assert results["training"]["test"]["r2"]["value"] == pytest.approx(np.mean(scores))


def test_tables_are_means_over_networks(run):
    out, _, _ = run
    table = pandas.read_csv(out / "probes/per_latent.csv")
    own = table[(table["kind"] == "trained") & (table["protocol"] == "random") & (table["target"] == "z_redrawn")]
    own = own[own["representation"] == "blocks.1"]
    members = [results_of(out)[f"probes/trained-{seed}"].errors("random") for seed in (42, 43)]
    each = np.stack([one.mse("blocks.1")[:, one.at("z_redrawn")].mean(1) for one in members])
    assert own["latent"].tolist() == members[0].latent.tolist()
    assert np.allclose(own["MSE"], each.mean(0))
    assert np.allclose(own["MSE_sd"], each.std(0, ddof=1))


def test_the_first_untrained_networks_are_what_the_trained_ones_started_as(run):
    out, _, _ = run
    data = Material(TINY)
    networks = results_of(out)["training"]
    sources = paper._sources(data, networks)
    untrained = next(source for source in paper.sources_of(TINY) if source.kind == "untrained")
    started = train(data.dataset, sources.configs[0], keep=[0], device="cpu").model_at(0)
    found = sources.representations(untrained)["blocks.1"]
    assert torch.allclose(found, activations(started, data.dataset.X, device="cpu")["blocks.1"], atol=1e-6)
    assert len({str(source) for source in paper.sources_of(TINY)}) == len(paper.sources_of(TINY))


def test_progress_is_counted_work(run):
    _, _, told = run
    assert ("training", 3, 3) in told
    assert {"positions", "neighbours", "training", "cells", "figures", "report"} <= {stage for stage, _, _ in told}
    assert all(0 <= done <= total for _, done, total in told)


def test_the_report_explains_before_it_shows(run):
    output, _, _ = run
    page = (output / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)  # no raw dictionary
    for table in re.findall(r"(<p>[^<]*</p>|</h2>)\s*<div class=\"scroll\"><table.*?</table>", page, re.DOTALL):
        assert table != "</h2>"


@pytest.mark.parametrize("damage", ["missing", "broken", "a flipped byte"])
def test_a_cell_that_is_there_is_not_computed_again(run, damage):
    output, results, _ = run
    file = output / "cells" / "probes" / "untrained-44.npz"
    if damage == "missing":
        file.unlink()
    elif damage == "broken":
        file.write_text("{")
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    others = [path for path in (output / "cells").rglob("*.npz") if path != file]
    before = {path: path.read_bytes() for path in others}
    again = reproduce(TINY, output, device="cpu")
    assert {path: path.read_bytes() for path in others} == before
    assert again["findings"] == json.loads((output / "results.json").read_text())["findings"]
    assert again["findings"]["z"][0]["numbers"] == results["findings"]["z"][0]["numbers"]
    assert again["seconds"]["training"] == results["seconds"]["training"]


def test_what_cannot_be_held_out_is_left_out_for_all(run):
    probed = [results_of(run[0])[f"probes/{source}"] for source in paper.sources_of(TINY)]
    kinds = {"raw": 1, "random": 5, "untrained": 5, "trained": 2}
    assert {kind: len(found) for kind, found in paper.by_kind(TINY, probed, "subtree").items()} == kinds
    for own in probed:
        del own.columns["subtree"]
    assert paper.by_kind(TINY, probed, "subtree") == {}
    assert len(paper.by_kind(TINY, probed, "random")) == 4


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
    assert experiment("one-cluster").options.shorter is None
    multi = experiment("multi-cluster")
    assert (multi.training.d_model, multi.training.n_blocks, multi.training.epochs) == (512, 3, 2500)
    assert multi.options.probing.depths == tuple(range(0, 201, 5))
    with pytest.raises(ValueError, match=r"experiment must be one of one-cluster, multi-cluster, got 'two'"):
        experiment("two")
    assert multi.options.shorter == 400
    assert experiment("one-cluster").seeds == 5
    with pytest.raises(ValueError, match=r"seeds must be at least 1, got 0"):
        experiment("one-cluster", seeds=0)
    with pytest.raises(ValueError, match=r"fit_from must be a number of at least 0, got -1"):
        experiment("one-cluster", fit_from=-1)
    with pytest.raises(ValueError, match=r"scale must be one of paper, small, got 'huge'"):
        experiment("one-cluster", "huge")


def test_the_command_of_an_experiment():
    assert experiment("one-cluster", "small").command == "percolab reproduce one-cluster --scale small"
    assert experiment("multi-cluster", epochs=7).command == "percolab reproduce multi-cluster --scale paper --epochs 7"
    other = experiment("one-cluster", seeds=8, fit_from=3)
    assert other.command == "percolab reproduce one-cluster --scale paper --seeds 8 --fit-from 3"
    assert paper.seeds_of(other) == list(range(42, 50))
    untrained = [s.seed for s in paper.sources_of(experiment("one-cluster", seeds=2)) if s.kind == "untrained"]
    assert untrained == [42, 43, 44, 45, 46]
