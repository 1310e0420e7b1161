"""The paper's experiments, from data to report: dataset, baselines, training, probes, figures.

A stage that is there already, made from the same things, is not run again: see `stages`.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas
import torch

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.files import replacing, write_json, write_table
from percolab.ground.progress import Progress, shown
from percolab.ground.version import __version__, provenance
from percolab.nn import checkpoint, figures, findings, report, run
from percolab.nn.baseline import baselines
from percolab.nn.device import Device, choose_device, device_name
from percolab.nn.experiments import Experiment
from percolab.nn.probing import probes
from percolab.nn.progress import by_epoch
from percolab.nn.recording import activations
from percolab.nn.stages import Stages, claim
from percolab.nn.training import load_model, train
from percolab.show import summary
from percolab.store.reading import load
from percolab.store.schema import StoreError

PACKAGES = (*run.PACKAGES, "scikit-learn", "pandas")
REPORT, RESULTS = "report.html", "results.json"
FIGURES = ("fig4", "fig5", "fig7", "memorising", "training")


def reproduce(
    chosen: Experiment,
    output: str | os.PathLike[str],
    *,
    device: Device = "auto",
    overwrite: bool = False,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Run an experiment from data to report, resuming what is in `output`; return all its numbers.

    Parameters
    ----------
    chosen
        From `experiment`.
    output
        Directory; it must be empty, new, or hold the same experiment.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    overwrite
        Start again where `output` holds another experiment.
    progress
        True shows bars; a function is called with (stage, done, total).
    """
    device = choose_device(device)
    directory = Path(output)
    claim(directory, chosen.to_dict(), overwrite=overwrite)
    with shown(progress) as tell:
        return _Reproduction(chosen, directory, device, tell).run()


class _Reproduction:
    """The stages of a reproduction; each returns plain values, kept in STAGE.json."""

    def __init__(self, chosen: Experiment, output: Path, device: torch.device, progress: Progress) -> None:
        self.chosen, self.output, self.device, self.progress = chosen, output, device, progress
        self.title = f"{chosen.name.capitalize()} data"
        self.stages = Stages(output, progress)
        self.seconds = self.stages.seconds
        parts = chosen.to_dict()
        self.made_from = {"percolab": __version__, "recipe": parts["recipe"]}
        self.made_from_training = {**self.made_from, "training": parts["training"]}
        self.made_from_all = {**self.made_from_training, "probing": parts["probing"]}

    def run(self) -> dict[str, Any]:
        """Run what has not been run, and write the report."""
        data = self.stages.run("dataset", self.made_from, self._describe_dataset)
        scores = self.stages.run("baselines", self.made_from, self._baselines)
        weights = ("training/checkpoint.pt", "training/metrics.csv")
        trained = self.stages.run("training", self.made_from_training, self._train, weights)
        tables = ("probes/per_latent.csv", "probes/per_depth.csv")
        probed = self.stages.run("probes", self.made_from_all, self._probe, tables)
        drawn = self.stages.run("figures", self.made_from_all, self._draw, [f"figures/{name}.png" for name in FIGURES])
        start = time.perf_counter()
        results = self._results(data, scores, trained, probed)
        self.seconds["report"] = results["seconds"]["report"] = time.perf_counter() - start
        page = report.page(results, {name: (self.output / path).read_bytes() for name, path in drawn.items()})
        with replacing(self.output / REPORT) as partial:
            partial.write_bytes(page)
        write_json(self.output / RESULTS, results)
        self.progress("report", 1, 1)
        return results

    # ------------------------------------------------------------------ stages

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset: read where it was saved, else made and saved."""
        store = self.output / "dataset.zarr"
        try:
            kept = load(store)
            if kept.recipe == self.chosen.recipe:
                return kept.in_memory()
        except (FileNotFoundError, StoreError):
            pass
        made = generate(self.chosen.recipe, progress=self.progress)
        made.save(store, overwrite=True)
        return made

    def _describe_dataset(self) -> dict[str, Any]:
        return summary.summarise(self.dataset)

    def _baselines(self) -> dict[str, Any]:
        found = baselines(self.dataset, device=self.device, progress=self.progress)
        return {name: asdict(score) for name, score in found.items()}

    def _train(self) -> dict[str, Any]:
        run_dir = self.output / "training"
        resume = self._can_resume(run_dir)
        result = train(
            self.dataset,
            self.chosen.training,
            run_dir=run_dir,
            resume=resume,
            overwrite=not resume,
            device=self.device,
            progress=by_epoch(self.progress),
        )
        described = json.loads((run_dir / "config.json").read_text(encoding="utf-8"))
        scores = {"test": asdict(result.test), "validation": asdict(result.validation)}
        return {**described, **scores, "training_seconds": result.seconds}

    def _can_resume(self, run_dir: Path) -> bool:
        """Tell whether a checkpoint of this very run is there."""
        try:
            state = checkpoint.load(run_dir / "checkpoint.pt")
        except (FileNotFoundError, ValueError):
            return False
        wanted = self.chosen.to_dict()
        return bool(state["recipe"] == wanted["recipe"] and state["configs"] == [wanted["training"]])

    def _probe(self) -> dict[str, Any]:
        model = load_model(self.output / "training", self.dataset, device=self.device)
        start = time.perf_counter()
        recorded = activations(model, self.dataset.X, device=self.device)
        recording_seconds = time.perf_counter() - start
        result = probes(self.dataset, recorded, self.chosen.probing, device=self.device, progress=self.progress)
        folder = self.output / "probes"
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
        folder = self.output / "probes"
        return pandas.read_csv(folder / "per_latent.csv"), pandas.read_csv(folder / "per_depth.csv")

    def _draw(self) -> dict[str, Any]:
        per_latent, per_depth = self._tables
        history = pandas.read_csv(self.output / "training" / "metrics.csv")
        drawn = figures.of_probes(per_latent, per_depth, self.title)
        drawn["training"] = figures.training_curve(history, f"{self.title}: training")
        (self.output / "figures").mkdir(exist_ok=True)
        figures.write(drawn, self.output / "figures", self.progress)
        return {name: f"figures/{name}.png" for name in drawn}

    # ------------------------------------------------------------------ results

    def _results(
        self, data: dict[str, Any], scores: dict[str, Any], trained: dict[str, Any], probed: dict[str, Any]
    ) -> dict[str, Any]:
        per_latent, per_depth = self._tables
        chosen = self.chosen
        checked = {
            protocol: {target: findings.check(per_latent, per_depth, protocol, target) for target in ("z", "sum")}
            for protocol in chosen.probing.protocols
        }
        return {
            "experiment": chosen.name,
            "scale": chosen.scale,
            "command": chosen.command,
            "recipe": chosen.recipe.to_dict(),
            "dataset": data,
            "table_1": report.table_one(chosen.name, chosen.scale == "paper", {**scores, "mlp": trained["test"]}),
            "baselines": scores,
            "training": trained,
            "probe_config": chosen.to_dict()["probing"],
            "probes": probed,
            "findings": checked,
            "controls": findings.controls(per_depth),
            "skipped": probed["skipped"],
            "seconds": dict(self.seconds),
            "provenance": provenance(PACKAGES, device=device_name(self.device)),
        }
