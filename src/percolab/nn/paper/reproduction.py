"""The paper's experiments, from data to report: dataset, baselines, networks, probes, controls, figures.

Every stage leaves a file that says what it was made from; a stage whose file is there, made from the same things, is
not run again. The probes of each network are a stage of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import Any

import pandas

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.files import replacing, write_table
from percolab.ground.progress import Progress
from percolab.ground.version import __version__
from percolab.intervals import BLOCKS, LEVEL, REDRAWS, over_seeds
from percolab.nn.config import TrainConfig
from percolab.nn.frame.frame import Frame, opened
from percolab.nn.frame.resuming import train_resumed
from percolab.nn.networks.baseline import baselines
from percolab.nn.networks.device import Device
from percolab.nn.networks.recording import RAW
from percolab.nn.paper import curves, figures, findings, report
from percolab.nn.paper.experiments import UNTRAINED, Experiment
from percolab.nn.probing import controls
from percolab.nn.probing.controls import ByKind
from percolab.nn.probing.errors import ProbeErrors
from percolab.nn.probing.latent_values import LATENT_TARGETS, TARGETS, TRUE_TARGETS
from percolab.nn.probing.probed_networks import Source, Sources
from percolab.nn.probing.prober import Prober
from percolab.nn.training import run
from percolab.nn.training.progress import by_epoch
from percolab.show import summary
from percolab.store.reading import load
from percolab.store.schema import StoreError

PROBED = ("training", "seeds", "probing")
"""Parts of the settings that decide about probes."""
PROTOCOLS = "probes/protocols"
DRAWN = ("fig4", "fig5", "fig7", "memorising", "power", "training")


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
    with opened(_Reproduction, chosen, output, device=device, overwrite=overwrite, progress=progress) as work:
        return work.run()


class _Reproduction(Frame[Experiment]):
    """The stages of a reproduction; each returns plain values."""

    def made_from(self, *parts: str) -> dict[str, Any]:
        """Return what a stage is made from: the recipe of the data, and other parts of the settings."""
        values = self.settings.to_dict()
        return {"percolab": __version__, **{name: values[name] for name in ("recipe", *parts)}}

    @property
    def title(self) -> str:
        """What figures are titled with."""
        return f"{self.settings.name.capitalize()} data"

    def run(self) -> dict[str, Any]:
        """Run what has not been run, and write the report."""
        results = {
            "dataset": self.stages.run("dataset", self.made_from(), lambda: summary.summarise(self.dataset)),
            "baselines": self.stages.run("baselines", self.made_from(), self._baselines),
            "training": self._trained("training", self.settings.training),
        }
        if self.settings.shorter:
            config = replace(self.settings.training, epochs=self.settings.shorter)
            results["shorter_training"] = self._trained("shorter", config)
        results["probes"] = self._probes()
        results["power"] = self.stages.run("power", self.made_from(*PROBED), self._power)
        intervals = {"level": LEVEL, "blocks": BLOCKS, "redraws": REDRAWS}
        made_from = {**self.made_from(*PROBED, "fit_from"), "intervals": intervals}
        files = ["probes/per_latent.csv", "probes/per_depth.csv"]
        results |= self.stages.run("findings", made_from, self._findings, files)
        drawn = self.stages.run(
            "figures", made_from, lambda: self._draw(results), [f"figures/{name}.png" for name in DRAWN]
        )
        begun, s = time.perf_counter(), self.settings
        values = {
            "seeds": list(s.seeds),
            "control_seeds": list(s.control_seeds),
            "fit_from": s.fit_from,
            "recipe": s.recipe.to_dict(),
            "probe_config": s.to_dict()["probing"],
            "table_1": report.table_one(s.name, s.scale == "paper", results),
            **results,
        }
        return self.report(s.name, values, drawn, report.page, begun=begun)

    # ------------------------------------------------------------------ data and networks

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset: read where it was saved, else made and saved."""
        store = self.output / "dataset.zarr"
        try:
            kept = load(store)
            if kept.recipe == self.settings.recipe:
                return kept.in_memory()
        except (FileNotFoundError, StoreError):
            pass
        made = generate(self.settings.recipe, progress=self.progress)
        made.save(store, overwrite=True)
        return made

    def _baselines(self) -> dict[str, Any]:
        found = baselines(self.dataset, device=self.device, progress=self.progress)
        return {name: asdict(score) for name, score in found.items()}

    def _trained(self, name: str, config: TrainConfig) -> dict[str, Any]:
        made_from = {**self.made_from("training", "seeds"), "training": asdict(config)}
        files = (f"{name}/checkpoint.pt", f"{name}/history.csv")
        return self.stages.run(name, made_from, lambda: self._train(name, config), files)

    def _train(self, name: str, config: TrainConfig) -> dict[str, Any]:
        run_dir, configs = self.output / name, config.with_seeds(self.settings.seeds)
        found = train_resumed(run_dir, self.dataset, configs, device=self.device, progress=by_epoch(self.progress))
        histories = [one.history.assign(seed=seed) for one, seed in zip(found, self.settings.seeds, strict=True)]
        with replacing(run_dir / "history.csv") as file:
            pandas.concat(histories).to_csv(file, index=False)
        parts = {part: [asdict(getattr(one, part)) for one in found] for part in ("test", "validation")}
        means = {
            part: {measure: asdict(over_seeds([score[measure] for score in scores])) for measure in scores[0]}
            for part, scores in parts.items()
        }
        described = run.Plan(self.settings.recipe.to_dict(), configs[:1], "", frozenset(), None).describe(self.device)
        return {**described, "members": parts, **means, "training_seconds": found[0].seconds}

    # ------------------------------------------------------------------ probes

    @cached_property
    def sources(self) -> Sources:
        """What is probed."""
        return Sources(self.dataset, self.output / "training", self.device)

    @cached_property
    def listed(self) -> list[Source]:
        """Everything that is probed: the input, random features, untrained and trained networks."""
        return self.sources.listed(UNTRAINED)

    @cached_property
    def prober(self) -> Prober:
        """What the probes of all networks share."""
        return Prober(self.dataset, self.settings.probing, device=self.device)

    @cached_property
    def protocols(self) -> list[str]:
        """How rows are held out: as the settings say, but for subtrees where the data have none that can be."""
        found = self.stages.run(
            PROTOCOLS,
            self.made_from(*PROBED),
            lambda: {"protocols": [plan.protocol for plan in self.prober.plans]},
        )
        return list(found["protocols"])

    def _probes(self) -> dict[str, Any]:
        """Probe everything, a stage each; return what was made, in numbers."""
        (self.output / "probes").mkdir(exist_ok=True)
        sources, seconds = self.listed, {}
        skipped: list[str] = []
        for done, source in enumerate(sources):
            self.progress("probes", done, len(sources))
            made_from = {**self.made_from(*PROBED), "source": str(source)}
            files = [f"probes/{source}-{protocol}.npz" for protocol in self.protocols]
            values = self.stages.run(f"probes/{source}", made_from, partial(self._probe, source), files)
            seconds[str(source)] = values["seconds"]
            skipped = values["skipped"]
        self.progress("probes", len(sources), len(sources))
        self.stages.join("probes", [PROTOCOLS, *(f"probes/{source}" for source in sources)])
        return {"skipped": skipped, "seconds": seconds}

    def _probe(self, source: Source) -> dict[str, Any]:
        start = time.perf_counter()
        found = self.prober.run(self.sources.representations(source))
        for errors in found.errors:
            errors.save(self.output / "probes" / f"{source}-{errors.protocol}.npz")
        return {"skipped": list(found.skipped), "seconds": time.perf_counter() - start}

    def by_kind(self, protocol: str) -> ByKind:
        """Return the errors of everything that was probed, by kind."""
        found: dict[str, list[ProbeErrors]] = {}
        for source in self.listed if protocol in self.protocols else ():
            path = self.output / "probes" / f"{source}-{protocol}.npz"
            found.setdefault(source.kind, []).append(ProbeErrors.load(path))
        return found

    def _power(self) -> dict[str, Any]:
        source = next(source for source in self.listed if source.kind == controls.TRAINED)
        recorded = self.sources.representations(source)
        name = findings.blocks(recorded, "residual")[-1]
        planted = recorded[name]
        found = controls.planted_power(
            self.dataset, planted, self.settings.probing, device=self.device, progress=self.progress
        )
        return {"representation": name, **found}

    # ------------------------------------------------------------------ results

    @cached_property
    def measured(self) -> dict[str, dict[str, findings.Measured]]:
        """Errors under the paper's protocol, by target and kind."""
        by_kind, forest = self.by_kind("random"), self.dataset.forest
        raw = by_kind[RAW][0]
        return {
            target: {
                kind: findings.Measured(forest, by_kind[kind], raw, target)
                for kind in (controls.TRAINED, controls.UNTRAINED, controls.RANDOM)
            }
            for target in TRUE_TARGETS
        }

    def _findings(self) -> dict[str, Any]:
        s, options = self.settings, {"multi_cluster": self.settings.name == "multi-cluster"}
        random, subtree = self.by_kind("random"), self.by_kind("subtree")
        checked = {
            target: findings.check(by[controls.TRAINED], by[controls.UNTRAINED], fit_from=s.fit_from, **options)
            for target, by in self.measured.items()
        }
        for name, table in controls.of_kinds(self.dataset.forest, {"random": random, "subtree": subtree}).items():
            write_table(table, self.output / "probes" / name)
        return {
            "findings": checked,
            "controls": controls.table(random, TARGETS),
            "permuted": controls.permuted(random),
            "held_out": controls.held_out(subtree),
            "held_out_controls": controls.table(subtree, LATENT_TARGETS),
        }

    def _draw(self, results: Mapping[str, Any]) -> dict[str, Any]:
        history = pandas.read_csv(self.output / "training" / "history.csv")
        shorter = self.output / "shorter" / "history.csv"
        random = self.by_kind("random")
        drawn = {
            "fig4": figures.probes_by_fom(self.measured["z"], self.title, target="z", fit_from=self.settings.fit_from),
            "fig5": figures.probes_by_depth(random, self.title, target="z"),
            "fig7": figures.probes_by_fom(
                self.measured["sum"], self.title, target="sum", fit_from=self.settings.fit_from
            ),
            "memorising": figures.memorising(results["controls"], results["held_out_controls"], self.title),
            "power": curves.power(results["power"], results["held_out"], self.title),
            "training": curves.learning_curves(
                history, pandas.read_csv(shorter) if shorter.exists() else None, self._levels(results), self.title
            ),
        }
        return dict(self.draw(drawn))

    def _levels(self, results: Mapping[str, Any]) -> dict[str, float]:
        """Return what networks are compared with: R² of 1NN, and the network of the paper at its scale."""
        levels = {"1NN": float(results["baselines"]["nearest_neighbour"]["r2"])}
        if self.settings.scale == "paper":
            levels["MLP as printed in the paper (test rows)"] = float(
                report.PAPER_TABLE[self.settings.name]["mlp"]["r2"]
            )
        return levels
