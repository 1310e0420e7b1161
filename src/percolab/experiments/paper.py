"""The paper's experiment made again.

Do linear probes read the values of latents from a network's activations, as the paper finds, and better than from
networks that were never trained?

Networks of several seeds are trained on the paper's data and probed beside untrained networks of the same shape, random
ReLU features of the same width, and the raw input. A linear probe is a ridge regression from a layer's activations to
the value z of the latent that a point belongs to at some depth. Its error is taken for each latent by itself. FOM, the
figure of merit, is the size of a latent over the square root of the size of its cluster.

With points held out at random, as in the paper, every latent has points on both sides of the split, so a probe can do
well by learning where each latent is. Controls tell this apart from reading values. Fresh values: every latent gets a
new random z that the network never saw, and the sums are those of fresh values. Held-out subtrees: the probe is scored
on latents none of whose points it has seen. A probe that reads values does worse on fresh values and as well on
held-out subtrees. One that has learned places does as well on fresh values, and no better than the mean on subtrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas
import torch

from percolab.experiments import paper_figures, paper_findings, paper_tables
from percolab.experiments.paper_findings import Findings
from percolab.ground.validation import check_number
from percolab.intervals import Estimate, over_seeds
from percolab.nn.config import FITTED_FOM, UNTRAINED, ProbeConfig, TrainConfig
from percolab.nn.networks.activations import label
from percolab.nn.networks.baseline import baselines
from percolab.nn.networks.objective import RegressionScore
from percolab.nn.probing import controls
from percolab.nn.probing.controls import ByKind
from percolab.nn.probing.errors import ProbeErrors
from percolab.nn.probing.probed_latents import LATENT_TARGETS, TARGETS
from percolab.nn.probing.probed_networks import Source, Sources, listed
from percolab.nn.probing.prober import Prober
from percolab.show import summary
from percolab.study.cells import Cell, Here
from percolab.study.estimates import Line, Row, row, select
from percolab.study.experiment import Details, Found, Results, declared
from percolab.study.material import Array, Material, Networks, cell_of
from percolab.study.pictures import Picture, caption
from percolab.study.settings import HIERARCHY, Settings, network_seeds


@dataclass(frozen=True)
class Options:
    """Options of this experiment besides data and networks."""

    probing: ProbeConfig
    fit_from: float = FITTED_FOM  #: FOM from which the second power law is fitted
    shorter: int | None = None  #: epochs of a second, shorter training, for comparison

    def __post_init__(self) -> None:
        check_number("fit_from", self.fit_from, 0)


def options(scale: str, seeds: int, training: TrainConfig) -> Options:
    """Return the options of a scale; the paper's training on multi-cluster data is compared with a shorter one."""
    if scale == "small":
        return Options(ProbeConfig(depths=tuple(range(0, 201, 20)), min_latent_size=50, subtree_alphas=(1.0, 1e3, 1e5)))
    return Options(ProbeConfig(draws=10), shorter=400 if training.epochs == 2500 else None)


def seeds_of(s: Settings[Options]) -> list[int]:
    """Return the seeds of the networks; the first is the paper's."""
    return network_seeds(s.seeds, s.draw, s.training.seed)


def sources_of(s: Settings[Options]) -> list[Source]:
    """Return all sources of probed representations: the input, random features, untrained and trained networks."""
    return listed(seeds_of(s), UNTRAINED)


# ---------------------------------------------------------------------- cells


@dataclass(frozen=True, eq=False)
class Summary:
    """The summary of the dataset by `percolab.show.summary`."""

    values: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Baselines:
    """The score of each baseline on y."""

    scores: dict[str, RegressionScore]


@dataclass(frozen=True)
class Strength:
    """How often a planted signal of some strength is found, and the error of its probes: median, and 95% of draws."""

    strength: float
    found: float
    error: float
    low: float
    high: float
    draws: int


@dataclass(frozen=True, eq=False)
class Power:
    """The detection of planted signals by probes of held-out subtrees; no strengths if no subtree can be held out."""

    representation: str  #: where signals were planted
    strengths: list[Strength] = field(default_factory=list)
    threshold: float = np.nan
    #: errors for values that were not planted: low end, median and high end
    null: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    width: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the power as plain values."""
        return asdict(self) if self.strengths else {"representation": self.representation}


@dataclass(frozen=True, eq=False)
class Probed:
    """Errors of the probes of one source."""

    arrays: dict[str, Array]  #: of `ProbeErrors`, by PROTOCOL/FIELD, and PROTOCOL/FIELD/REPRESENTATION
    columns: dict[str, list[Any]]  #: targets and draws, by protocol
    skipped: list[str]

    @classmethod
    def of(cls, found: Sequence[ProbeErrors], skipped: Sequence[str]) -> Probed:
        """Return errors as arrays."""
        arrays: dict[str, Array] = {}
        for errors in found:
            for each in fields(errors):
                value, name = getattr(errors, each.name), f"{errors.protocol}/{each.name}"
                parts = {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {}
                arrays |= {name: value} if isinstance(value, np.ndarray) else parts
        arrays = {key: v.astype(np.float32) if "/squared/" in key else v for key, v in arrays.items()}
        return cls(arrays, {errors.protocol: [list(c) for c in errors.columns] for errors in found}, list(skipped))

    def errors(self, protocol: str) -> ProbeErrors | None:
        """Return the errors of a protocol; None if the protocol is not possible for the data."""
        if protocol not in self.columns:
            return None
        values: dict[str, Any] = {"squared": {}, "alpha": {}}
        for key, value in self.arrays.items():
            kind, name, *rest = key.split("/", 2)
            if kind == protocol and rest:
                values[name][rest[0]] = value.astype(np.float64)
            elif kind == protocol:
                values[name] = value
        columns = tuple((str(target), int(draw)) for target, draw in self.columns[protocol])
        return ProbeErrors(protocol, columns, **values)

    def tidy(self) -> pandas.DataFrame:
        """Return the error of every latent, by protocol, representation, target and draw of values."""
        parts = [pandas.DataFrame()]
        for errors in filter(None, map(self.errors, self.columns)):
            targets, drawn = zip(*errors.columns, strict=True)
            names = {"protocol": errors.protocol, "unit": np.repeat(errors.latent, len(targets))}
            names |= {"target": np.tile(targets, errors.latent.size), "values": np.tile(drawn, errors.latent.size)}
            parts += [pandas.DataFrame({**names, "layer": k, "value": errors.mse(k).ravel()}) for k in errors.squared]
        return pandas.concat(parts, ignore_index=True).assign(measure="error")


def cells(s: Settings[Options]) -> list[Cell[Any]]:
    """Return the cells: data, baselines, networks, the probes of each source, power, findings."""
    cell = partial(cell_of, s, made_from=s.to_dict())
    networks = cell("training", Networks, _train)
    probed = [
        cell(f"probes/{source}", Probed, partial(_probe, source), networks, stage="probes") for source in sources_of(s)
    ]
    shorter = [cell("shorter", Networks, partial(_train, epochs=s.options.shorter))] if s.options.shorter else []
    return [
        cell("dataset", Summary, _summarise), cell("baselines", Baselines, _baselines), networks, *shorter, *probed,
        cell("power", Power, _power, networks), cell("findings", Findings, _check, *probed),
    ]  # fmt: skip


def _summarise(data: Material) -> Summary:
    return Summary(summary.summarise(data.dataset))


def _baselines(data: Material) -> Baselines:
    scores: dict[str, Any] = baselines(data.dataset, device=data.device, progress=data.progress)
    return Baselines(scores)


def _train(data: Material, epochs: int | None = None) -> Networks:
    usual = data.settings.training
    config = usual if epochs is None else replace(usual, epochs=epochs)
    return data.train(config.with_seeds(seeds_of(data.settings)))


def _probe(source: Source, data: Material, networks: Networks) -> Probed:
    probes = _prober(data.settings, data.device).run(_sources(data, networks).representations(source))
    return Probed.of(probes.errors, probes.skipped)


@lru_cache(maxsize=1)
def _prober(s: Settings[Options], device: torch.device) -> Prober:
    """Return the prober of the dataset, which the probes of all sources share."""
    return Prober(Material(s).dataset, s.options.probing, device=device)


def _sources(data: Material, networks: Networks) -> Sources:
    configs = data.settings.training.with_seeds(seeds_of(data.settings))
    return Sources(data.dataset, configs, partial(data.model, networks), data.device)


def _power(data: Material, networks: Networks) -> Power:
    """Plant signals in the last block of the first network, and probe for them."""
    first = next(source for source in sources_of(data.settings) if source.kind == controls.TRAINED)
    recorded = _sources(data, networks).representations(first)
    name = paper_findings.blocks(recorded, "residual")[-1]
    how: dict[str, Any] = {"device": data.device, "progress": data.progress}
    curve = controls.planted_power(data.dataset, recorded[name], data.settings.options.probing, **how)
    return Power(name, [Strength(**at) for at in curve.pop("strengths", ())], **curve)


def _check(data: Material, *probed: Probed) -> Findings:
    """Check the paper's findings, and the same for the controls."""
    s = data.settings
    measured = paper_figures.measures(data.truths[0].forest, by_kind(s, probed, "random"))
    check = partial(paper_findings.check, multi_cluster=s.data[0] == "multi-cluster", fit_from=s.options.fit_from)
    return Findings(**{name: check(by[controls.TRAINED], by[controls.UNTRAINED]) for name, by in measured.items()})


def by_kind(s: Settings[Options], probed: Sequence[Probed], protocol: str) -> ByKind:
    """Return the errors of all sources, by kind; nothing if the protocol is not possible for the data."""
    grouped: dict[str, list[ProbeErrors]] = {}
    for source, probes in zip(sources_of(s), probed, strict=True):
        errors = probes.errors(protocol)
        if errors is not None:
            grouped.setdefault(source.kind, []).append(errors)
    return grouped


# ---------------------------------------------------------------------- estimates


def by_protocol(s: Settings[Options], results: Results) -> dict[str, ByKind]:
    """Return the errors of all sources, by protocol and kind."""
    probed = [results[f"probes/{source}"] for source in sources_of(s)]
    return {protocol: by_kind(s, probed, protocol) for protocol in ("random", "subtree")}


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return Table 1, and the errors of probes by kind, representation and target."""
    for measure in ("r2", "mse"):
        scores = {name: [getattr(score, measure)] for name, score in results["baselines"].scores.items()}
        scores["mlp"] = [score[measure] for score in results["training"].test]
        for model, values in scores.items():
            estimate = over_seeds(values) if model == "mlp" else Estimate(values[0], np.nan, np.nan)
            yield row(estimate, part="table 1", model=model, measure=measure)
    kinds = by_protocol(s, results)
    yield from paper_figures.error_rows(controls.table(kinds["random"], TARGETS), "controls")
    yield from paper_figures.error_rows(controls.table(kinds["subtree"], LATENT_TARGETS), "held out controls")


def networks(s: Settings[Options], results: Results) -> dict[str, Any]:
    """Return the scores of the networks."""
    return results["training"].scores


def headline(rows: Sequence[Row], s: Settings[Options]) -> list[Line]:
    """Return how much easier z is to read from trained networks than from the same networks before training."""
    return [
        Line(f"error on z, trained over untrained, {label(ratio['layer'])}", ratio, -1, 1.0, note="1 before training")
        for ratio in select(rows, part="controls, over untrained", target="z")
        if ratio["layer"] != "input"
    ]


# ---------------------------------------------------------------------- page


def details(analyses: Sequence[Found], s: Settings[Options]) -> Details:
    """Return the paper's Table 1, findings and figures, of the first draw of the data."""
    rows, results, kinds = analyses[0].rows, analyses[0].results, by_protocol(s, analyses[0].results)
    checked: list[Findings] = [analysis.results["findings"] for analysis in analyses]
    values: dict[str, Any] = {
        "experiment": s.data[0],
        "seeds": seeds_of(s),
        "control_seeds": [source.seed for source in sources_of(s) if source.kind == controls.UNTRAINED],
        "fit_from": s.options.fit_from,
        "recipe": s.recipe.to_dict(),
        "probe_config": s.to_dict()["options"]["probing"],
        "dataset": results["dataset"].values,
        "baselines": {name: asdict(score) for name, score in results["baselines"].scores.items()},
        "training": _scores(results["training"]),
        "probes": {"skipped": results[f"probes/{sources_of(s)[-1]}"].skipped},
        "power": results["power"].to_dict(),
        "findings": {target: [each.to_dict() for each in of] for target, of in vars(checked[0]).items()},
        "controls": controls.table(kinds["random"], TARGETS),
        "permuted": controls.permuted(kinds["random"]),
        "held_out": controls.held_out(kinds["subtree"]),
        "held_out_controls": controls.table(kinds["subtree"], LATENT_TARGETS),
        "table_1": paper_tables.table_one(s.data[0], s.scale == "paper", rows),
    }
    if "shorter" in results:
        values["shorter_training"] = _scores(results["shorter"])
    forest = Material(s, Here("cpu")).truths[0].forest
    written = {f"probes/{name}": table for name, table in controls.of_kinds(forest, kinds).items()}
    drawn = paper_figures.of_probes(forest, kinds, _title(s), s.options.fit_from)
    return Details(paper_tables.sections(values, rows, checked), values, _pictures(s, drawn, results, values), written)


def _scores(networks: Networks) -> dict[str, Any]:
    """Return the training configuration of networks, and their scores with means over networks."""
    members = {"test": networks.test, "validation": networks.validation}
    means = {
        part: {measure: asdict(over_seeds([score[measure] for score in scores])) for measure in scores[0]}
        for part, scores in members.items()
    }
    return {"config": networks.config, "members": members, **means, "training_seconds": networks.seconds}


def _title(s: Settings[Options]) -> str:
    return f"{s.data[0].capitalize()} data"


def _pictures(
    s: Settings[Options], of_probes: Mapping[str, Any], results: Results, values: Mapping[str, Any]
) -> dict[str, Picture]:
    levels = {"1NN": float(values["baselines"]["nearest_neighbour"]["r2"])}
    if s.scale == "paper":
        printed = paper_tables.PAPER_TABLE[s.data[0]]["mlp"]["r2"]
        levels["MLP as printed in the paper (test rows)"] = float(printed)
    shorter = _history(results["shorter"]) if "shorter" in results else None
    drawn = {
        **of_probes,
        "power": paper_figures.power(values["power"], values["held_out"], _title(s)),
        "training": paper_figures.training(_history(results["training"]), shorter, levels, _title(s)),
    }
    captions = {name: caption(getattr(paper_figures, name), fit_from=s.options.fit_from) for name in drawn}
    return {name: Picture(figure, captions[name]) for name, figure in drawn.items()}


def _history(networks: Networks) -> pandas.DataFrame:
    """Return losses and scores by epoch, with the networks one below the other."""
    columns = {name: values.ravel() for name, values in networks.history.items()}
    epochs = len(networks.history["epoch"][0])
    return pandas.DataFrame({**columns, "seed": np.repeat(networks.seeds, epochs)})


EXPERIMENT = declared(
    __name__, data=HIERARCHY, least_seeds=1, usual_seeds={"paper": 5, "small": 2}, call="reproduce {data}"
)
