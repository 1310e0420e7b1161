"""The paper's experiments from one command: dataset, baselines, training, probes, figures, report.

    python -m percolab.nn.reproduce one-cluster --scale small --out DIR

does what ``percolab reproduce`` does and needs neither typer nor zarr. Every stage leaves a file that says what it was
made from; a stage whose file is there, made from the same things, is not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import sklearn
import torch

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.files import replacing, write_json, write_table
from percolab.ground.validation import check_choice
from percolab.ground.version import __version__
from percolab.model.recipe import PRESETS, Recipe, Seeds
from percolab.nn import figures, findings, report
from percolab.nn.baseline import baselines
from percolab.nn.device import choose_device
from percolab.nn.probe_rows import LATENT_TARGETS, TARGETS
from percolab.nn.probing import ProbeConfig, probes
from percolab.nn.progress import Ticker
from percolab.nn.recording import activations, label
from percolab.nn.training import TrainConfig, describe_run, load_model, train
from percolab.show import summary

EXPERIMENTS = ("one-cluster", "multi-cluster")
SCALES = ("paper", "small")
_SEEDS = Seeds(graph=0, embed=10_000, value=20_000)
_SMALL_TRAINING = TrainConfig(d_model=128, epochs=40, batch_size=256, lr=1e-3)

PROTOCOL_WORDS = {"random": "points at random", "subtree": "whole subtrees"}
TARGET_WORDS = {
    "z": "z",
    "sum": "sum of z",
    "z_redrawn": "fresh z per latent",
    "z_shuffled": "z, rows shuffled",
    "sum_shuffled": "sum of z, rows shuffled",
}


@dataclass(frozen=True)
class Experiment:
    """What a reproduction is made from."""

    name: str
    scale: str
    recipe: Recipe
    training: TrainConfig
    probing: ProbeConfig

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""
        values = {**asdict(self), "recipe": self.recipe.to_dict(), "percolab": __version__}
        return dict(json.loads(json.dumps(values)))


def experiment(name: str, scale: str = "paper", *, epochs: int | None = None) -> Experiment:
    """Return an experiment of the paper, at its scale or a small one, by name.

    Parameters
    ----------
    name
        ``"one-cluster"`` or ``"multi-cluster"``.
    scale
        ``"paper"``, or ``"small"``: about 20,000 points and a smaller network, minutes on a laptop.
    epochs
        Another number of epochs than the experiment's own.
    """
    check_choice("experiment", name, EXPERIMENTS)
    check_choice("scale", scale, SCALES)
    recipe = PRESETS[f"paper-{name}"]
    training, probing = TrainConfig(), ProbeConfig()
    if name == "multi-cluster":
        training = replace(training, d_model=512, epochs=2500)
    if scale == "small":
        sizes = {"one-cluster": (20_000, 1), "multi-cluster": (200_000, 150)}[name]
        recipe = replace(recipe, n_points=sizes[0], min_cluster_size=sizes[1])
        training, probing = _SMALL_TRAINING, ProbeConfig(min_latent_size=50)
    if epochs is not None:
        training = replace(training, epochs=epochs)
    return Experiment(name, scale, recipe, training, probing)


def reproduce(
    chosen: Experiment,
    out: str | Path,
    *,
    device: str = "auto",
    overwrite: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run an experiment from data to report, going on from what is in `out`; return all its numbers.

    Parameters
    ----------
    chosen
        From `experiment`.
    out
        Directory; it must be empty, new, or hold the same experiment.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    overwrite
        Start again where `out` holds another experiment.
    say
        Called with a line when a stage begins and ends.
    """
    choose_device(device)
    directory = Path(out)
    _claim(directory, chosen, overwrite)
    return _Reproduction(chosen, directory, device, say).run()


def _claim(directory: Path, chosen: Experiment, overwrite: bool) -> None:
    """Make the directory this experiment's, or say why not."""
    file = directory / "experiment.json"
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"out must be a directory, got {str(directory)!r}")
    if not file.exists() and directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"out must be empty or hold an experiment, got {str(directory)!r}")
    if file.exists() and not overwrite:
        found = json.loads(file.read_text())
        wanted = chosen.to_dict()
        for name in wanted:
            if found.get(name) != wanted[name]:
                raise FileExistsError(
                    f"out must hold the same experiment unless overwriting, got {name} {found.get(name)!r} "
                    f"in {str(directory)!r}"
                )
    directory.mkdir(parents=True, exist_ok=True)
    write_json(file, chosen.to_dict())


class _Reproduction:
    """The stages of a reproduction; each returns plain values, kept in STAGE.json."""

    def __init__(self, chosen: Experiment, out: Path, device: str, say: Callable[[str], None]) -> None:
        self.chosen, self.out, self.device, self.say = chosen, out, device, say
        self.title = f"{chosen.name.capitalize()} data"
        self.seconds: dict[str, float] = {}
        parts = chosen.to_dict()
        self.made_from = {"percolab": __version__, "recipe": parts["recipe"]}
        self.made_from_training = {**self.made_from, "training": parts["training"]}
        self.made_from_all = {**self.made_from_training, "probing": parts["probing"]}

    def run(self) -> dict[str, Any]:
        """Run what has not been run, and write the report."""
        data = self._stage("dataset", self.made_from, self._describe_dataset)
        scores = self._stage("baselines", self.made_from, self._baselines)
        trained = self._stage("training", self.made_from_training, self._train)
        probed = self._stage("probes", self.made_from_all, self._probe)
        drawn = self._stage("figures", self.made_from_all, self._draw)
        start = time.perf_counter()
        results = self._results(data, scores, trained, probed)
        self.seconds["report"] = results["seconds"]["report"] = time.perf_counter() - start
        page = report.html_report(results, {name: self.out / path for name, path in drawn.items()})
        with replacing(self.out / "report.html") as partial:
            partial.write_text(page, encoding="utf-8")
        write_json(self.out / "results.json", results)
        self.say(f"report: {self.out / 'report.html'}")
        return results

    def _stage(self, name: str, made_from: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        file = self.out / f"{name}.json"
        if file.exists():
            kept = json.loads(file.read_text())
            if kept.get("made_from") == made_from:
                self.seconds[name] = kept["seconds"]
                self.say(f"{name}: there already")
                return dict(kept["values"])
        self.say(f"{name} ...")
        start = time.perf_counter()
        values = make()
        self.seconds[name] = time.perf_counter() - start
        write_json(file, {"made_from": made_from, "seconds": self.seconds[name], "values": values})
        self.say(f"{name}: {self.seconds[name]:.1f} s")
        return values

    # ------------------------------------------------------------------ stages

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset: read where it was saved, else made, and saved where zarr is installed."""
        store = self.out / "dataset.zarr"
        try:
            import zarr  # noqa: F401
        except ImportError:
            return generate(self.chosen.recipe)
        from percolab.store.reading import load
        from percolab.store.schema import StoreError

        try:
            kept = load(store)
            if kept.recipe == self.chosen.recipe:
                return kept.in_memory()
        except (FileNotFoundError, StoreError):
            pass
        made = generate(self.chosen.recipe)
        made.save(store, overwrite=True)
        return made

    def _describe_dataset(self) -> dict[str, Any]:
        return summary.summarise(self.dataset)

    def _baselines(self) -> dict[str, Any]:
        return {name: asdict(found) for name, found in baselines(self.dataset, device=self.device).items()}

    def _train(self) -> dict[str, Any]:
        run_dir = self.out / "training"
        resume = self._can_resume(run_dir)
        result = train(
            self.dataset,
            self.chosen.training,
            run_dir=run_dir,
            resume=resume,
            overwrite=not resume,
            device=self.device,
            watch=Ticker(),
        )
        described = describe_run(self.chosen.recipe, self.chosen.training, choose_device(self.device))
        scores = {"test": asdict(result.test), "validation": asdict(result.validation)}
        return {**described, **scores, "training_seconds": result.seconds}

    def _can_resume(self, run_dir: Path) -> bool:
        """Tell whether a checkpoint of this very run is there."""
        from percolab.nn import checkpoint

        try:
            state = checkpoint.load(run_dir / "checkpoint.pt")
        except (FileNotFoundError, ValueError):
            return False
        wanted = self.chosen.to_dict()
        return bool(state["recipe"] == wanted["recipe"] and state["config"] == wanted["training"])

    def _probe(self) -> dict[str, Any]:
        model = load_model(self.out / "training", self.dataset, device=self.device)
        start = time.perf_counter()
        recorded = activations(model, self.dataset.X, device=self.device)
        recording_seconds = time.perf_counter() - start
        result = probes(self.dataset, recorded, self.chosen.probing, device=self.device)
        folder = self.out / "probes"
        folder.mkdir(exist_ok=True)
        write_table(result.per_depth, folder / "per_depth")
        write_table(result.per_latent, folder / "per_latent")
        return {
            "skipped": list(result.skipped),
            "rows": {"per_latent": len(result.per_latent), "per_depth": len(result.per_depth)},
            "recording_seconds": recording_seconds,
            "seconds_by_representation": result.seconds,
            "probing_seconds": sum(result.seconds.values()),
        }

    @cached_property
    def _tables(self) -> tuple[pandas.DataFrame, pandas.DataFrame]:
        folder = self.out / "probes"
        return pandas.read_csv(folder / "per_latent.csv"), pandas.read_csv(folder / "per_depth.csv")

    def _draw(self) -> dict[str, Any]:
        per_latent, per_depth = self._tables
        drawn = {
            "fig4": figures.probes_by_fom(per_latent, self.title, target="z"),
            "fig5": figures.probes_by_depth(per_depth, self.title),
            "fig7": figures.probes_by_fom(per_latent, self.title, target="sum"),
            "memorising": figures.memorising(per_latent, self.title),
            "training": figures.training_curve(
                pandas.read_csv(self.out / "training" / "metrics.csv"), f"{self.title}: training"
            ),
        }
        folder = self.out / "figures"
        folder.mkdir(exist_ok=True)
        for name, figure in drawn.items():
            with replacing(folder / f"{name}.png") as partial:
                figure.savefig(partial, dpi=160)
        return {name: f"figures/{name}.png" for name in drawn}

    # ------------------------------------------------------------------ results

    def _results(
        self, data: dict[str, Any], scores: dict[str, Any], trained: dict[str, Any], probed: dict[str, Any]
    ) -> dict[str, Any]:
        per_latent, per_depth = self._tables
        checked = {
            protocol: {target: findings.check(per_latent, per_depth, protocol, target) for target in ("z", "sum")}
            for protocol in self.chosen.probing.protocols
        }
        table = report.table_one(self.chosen.name, self.chosen.scale == "paper", {**scores, "mlp": trained["test"]})
        command = f"percolab reproduce {self.chosen.name} --scale {self.chosen.scale}"
        return {
            "experiment": self.chosen.name,
            "scale": self.chosen.scale,
            "command": command,
            "recipe": self.chosen.recipe.to_dict(),
            "dataset": data,
            "table_1": table,
            "baselines": scores,
            "training": trained,
            "probe_config": self.chosen.to_dict()["probing"],
            "probes": probed,
            "findings": checked,
            "controls": _controls(per_depth),
            "skipped": probed["skipped"],
            "seconds": dict(self.seconds),
            "versions": {
                "percolab": __version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
                "scikit-learn": sklearn.__version__,
                "pandas": pandas.__version__,
            },
        }


def _controls(per_depth: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return how each target fares under each protocol: on the raw input and on the last block's hidden layer."""
    names = per_depth["representation"].unique()
    shown = ["raw", *findings.blocks(names, "residual")[-1:], *findings.blocks(names, "hidden")[-1:]]
    rows = []
    table = per_depth[per_depth["mean_MSE"] >= findings.LEAST_BASELINE]
    for protocol in table["protocol"].unique():
        # Shuffled rows are a control of the fit; where the fit is on other latents they say nothing.
        for target in TARGETS if protocol == "random" else LATENT_TARGETS:
            for name in shown:
                own = table[(table["protocol"] == protocol) & (table["target"] == target)]
                own = own[own["representation"] == name]
                if own.empty:
                    continue
                rows.append({
                    "protocol": protocol, "protocol_words": PROTOCOL_WORDS[protocol],
                    "target": target, "target_words": TARGET_WORDS[target],
                    "representation": name, "representation_words": label(name),
                    "median_r2": float(own["R2"].median()),
                    "median_relative_mse": float((own["MSE"] / own["mean_MSE"]).median()),
                })  # fmt: skip
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run from the shell without typer; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m percolab.nn.reproduce", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--out", help="directory; default: EXPERIMENT-SCALE")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--epochs", type=int, help="another number of epochs than the experiment's own")
    parser.add_argument("--overwrite", action="store_true", help="start again where DIR holds another experiment")
    given = parser.parse_args(arguments)
    out = given.out or f"{given.experiment}-{given.scale}"
    try:
        chosen = experiment(given.experiment, given.scale, epochs=given.epochs)
        reproduce(chosen, out, device=given.device, overwrite=given.overwrite, say=lambda line: print(line, flush=True))
    except KeyboardInterrupt as stop:
        print(f"error: {stop or 'interrupted'}; the same command continues", file=sys.stderr)
        return 130
    except (ValueError, OSError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
