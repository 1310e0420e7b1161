"""Crossed values.

Do activations hold the values that a network was trained on, or only where the latents are?

Networks with the same initial weights and the same order of rows are trained on one X, each on the y of another draw of
values. Ridge probes read every draw from every network, with samples held out at random. The log ratio is the mean
logarithm of the error on a network's own values, less that on the other networks' values: below 0 a network holds its
own values. Every network and every draw is in both means equally often. It is taken for the values z and for their sums
down to the latent.

The other networks' values are the control. The null takes values that no network has seen in place of each network's
own, many times: its interval is where 95% of such draws fall, and an effect is said to be found only outside of it.
Before training all networks are one, so the log ratio is 0 by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from percolab.dataset import target_rules
from percolab.dataset.dataset import Dataset
from percolab.experiments import points
from percolab.ground.arrays import Floats, Ints
from percolab.intervals import Estimate, central, jackknife, kin
from percolab.model.target import Target
from percolab.nn.config import TrainConfig
from percolab.nn.networks.activations import label
from percolab.nn.probing.probed_latents import fresh_values, path_sums, read_places
from percolab.study.estimates import Line, Row, band, layers_of, row, select
from percolab.study.experiment import Results, declared
from percolab.study.material import Array, Look, Material, Networks
from percolab.study.pictures import by_layer, by_number, drawn_by
from percolab.study.settings import HIERARCHY, Settings

TARGETS = ("z", "sum")
NULLS = {"": "all", ", null": "null"}
RATIO = "log ratio of errors,\nown over others"
ASSIGNMENTS = 400  #: Draws of the null: assignments of fresh values as each network's own.
LEAST_ERROR = 1e-8


@dataclass(frozen=True)
class Options(points.Options):
    """Options of this experiment besides data and networks."""

    fresh: int = 20  #: draws of values that no network has seen; the null takes one of them for each network


def options(scale: str, seeds: int, training: TrainConfig) -> Options:
    """Return the options of a scale."""
    small = scale == "small"
    return Options((training.epochs,), fresh=max(10 if small else 20, 2 * seeds), **(points.SMALL if small else {}))


# ---------------------------------------------------------------------- statistics


def own_log_ratio(errors: Floats) -> float:
    """Return the mean log ratio of the error on a network's own values to the error on other networks' values.

    Parameters
    ----------
    errors
        (K, K, L) error of network k on draw j, by latent. Every network and every draw is in both means equally often,
        so neither a network that is easy to read nor a draw that is easy to guess shows.
    """
    logs = np.log(np.maximum(errors, LEAST_ERROR))
    K = len(logs)
    on_own = logs[np.arange(K), np.arange(K)]
    others = (logs.sum((0, 1)) - on_own.sum(0)) / (K * (K - 1))
    return float((on_own.mean(0) - others).mean())


def own_interval(errors: Floats, blocks: Ints) -> Estimate:
    """Return `own_log_ratio` with an interval from leaving out networks, each with its draw, and blocks of latents."""

    def statistic(networks: Ints, latents: Ints) -> float:
        return own_log_ratio(errors[np.ix_(networks, networks, latents)])

    return jackknife(statistic, len(errors), blocks)


def null_band(fresh: Floats) -> Estimate:
    """Return the range of the log ratio if fresh values are taken as a network's own.

    Parameters
    ----------
    fresh
        (K, F, L) of network k on values that no network has seen.

    Returns
    -------
    Estimate
        Mean and central 95% of `ASSIGNMENTS` draws. Each takes K of the F fresh columns, one for each network, as if
        they were its own. Own values are left out of it altogether.
    """
    K, F = fresh.shape[:2]
    rng = np.random.default_rng((0, 3))
    ratios = [own_log_ratio(fresh[:, rng.permutation(F)[:K]]) for _ in range(ASSIGNMENTS)]
    return central(ratios, K, fresh.shape[2])


# ---------------------------------------------------------------------- training and measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of every latent."""

    #: of probes; values are those of each network, then fresh ones
    mse: Annotated[Array, ("network", "layer", "target", "values", "latent")]
    place: Ints
    fom: Floats  #: by latent
    layers: list[str]
    targets: list[str]
    training: dict[str, Any]


def draws_of(dataset: Dataset, count: int, draw: int = 0) -> list[tuple[Floats, Floats]]:
    """Return `count` draws of the latents' values with their y: the dataset's values, then standard normal ones."""
    forest, draws = dataset.forest, [(dataset.latent_z, dataset.y)]
    for k in range(1, count):
        rng = np.random.default_rng((k, 4, draw) if draw else (k, 4))
        latent_z, point_z = rng.standard_normal(forest.n_latents), rng.standard_normal(forest.n_points)
        draws.append((latent_z, target_rules.make(Target(), forest, latent_z, point_z)))
    return draws


def train(data: Material) -> Networks:
    """Train a network on each draw of values, all from the same initial weights and with the same order of rows."""
    s = data.settings
    y = np.stack([y for _, y in draws_of(data.truths[0].dataset, s.seeds, s.draw)])
    return data.train(data.configs[:1] * s.seeds, targets=y)


def measure(data: Material, networks: Networks) -> Measured:
    """Read every draw of values, and fresh ones, from every layer of every network."""
    s, [truth], [probed] = data.settings, data.truths, data.probed()
    drawn = [z for z, _ in draws_of(truth.dataset, s.seeds, s.draw)]
    z = np.column_stack([*drawn, fresh_values(truth.forest, s.options.fresh, seed=s.draw)])
    values = np.concatenate([z, path_sums(truth.forest, z)], axis=1)[probed.latent]
    names = data.layers(networks)[1:]

    def errors(look: Look) -> dict[str, Floats]:
        return {"mse": read_places(look.A, probed, values).mse.T.reshape(len(TARGETS), -1, len(probed))}

    mse = data.measured(networks, (networks.last,), names, errors)["mse"][:, 0]
    fom = truth.forest.figure_of_merit[probed.latent]
    return Measured(mse, data.places([probed]), fom, names, list(TARGETS), networks.scores)


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return log ratios of errors, own over others, by layer and figure of merit, and their range under the null."""
    measured: Measured = results["measures"]
    usable = np.isfinite(measured.mse).all((0, 1, 2, 3))
    place, fom = measured.place[usable], measured.fom[usable]
    for k, layer in enumerate(measured.layers):
        for t, target in enumerate(TARGETS):
            table = measured.mse[:, k, t][:, :, usable].astype(np.float64)
            on_own, fresh = table[:, : s.seeds], table[:, s.seeds :]
            names = {"layer": layer, "target": target}
            yield row(own_interval(on_own, kin(place)), part="all", **names)
            yield band(null_band(fresh), part="null", **names)
            for here, where in points.fom_bins(fom):
                yield row(own_interval(on_own[:, :, here], kin(place[here])), part="fom", **where, **names)
                yield band(null_band(fresh[:, :, here]), part="fom null", **where, **names)


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return the log ratios in all layers but the input layer, each with its null."""
    for target in TARGETS:
        for ratio in select(rows, part="all", target=target):
            if ratio["layer"] != "input":
                null = select(rows, part="null", target=target, layer=ratio["layer"])[0]
                what = f"error on own {target} over others', log ratio, {label(ratio['layer'])}"
                yield Line(what, ratio, -1, 0.0, null, "95% of fresh draws")


def layers(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratio of the error on own values to that on the others', by layer; grey: 95% of draws of fresh values."""
    parts = {target + null: {"part": part, "target": target} for target in TARGETS for null, part in NULLS.items()}
    series = {name: select(rows, **part) for name, part in parts.items()}
    return by_layer(series, layers_of(rows), f"{s.data[0]}: crossed values", RATIO)


def fom(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """The same for z, by figure of merit."""
    return _by_fom(select(rows, target="z"), s, "z")


def fom_sum(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """The same for sums of z, by figure of merit."""
    return _by_fom(select(rows, target="sum"), s, "sum")


def _by_fom(rows: Sequence[Row], s: Settings[Options], target: str) -> Any:
    shown = s.layers or [name for name in layers_of(rows) if name.endswith("hidden")]
    series = {label(name): select(rows, part="fom", layer=name) for name in shown}
    series["null, " + label(shown[-1])] = select(rows, part="fom null", layer=shown[-1])
    return by_number(series, "at", f"{s.data[0]}: {target} by FOM", "FOM", RATIO)


draw = drawn_by(layers, fom, fom_sum)
EXPERIMENT = declared(__name__, data=HIERARCHY, own_networks=True, least_seeds=3)
