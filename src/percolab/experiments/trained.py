"""Trained over untrained.

Does training make the latents easier to read from a network's activations, and in which layers?

Networks are looked at before the first step and at some epochs after it. The error of ridge probes of z, of the sum of
z down to the latent, and of fresh values that no network has seen, is taken on held-out samples, for each latent. The
separation of siblings is the squared distance of their mean activations over their summed variances. Each is compared
with the same of the same network before training: a log ratio below 0 for errors, above 0 for separation, is what
training improves.

The control is the untrained network: the same initial weights, the same probes, the same split. Fresh values ask
whether what training changes has to do with the values at all: a probe of a fresh value can only know where a latent
is. The raw input is the same at every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from percolab.experiments.points import Options, fom_bins, options, pairs_of
from percolab.ground.arrays import Floats, Ints
from percolab.intervals import Estimate, jackknife, kin, mean_interval
from percolab.nn.networks.activations import RAW, label
from percolab.nn.probing import siblings
from percolab.nn.probing.errors import LEAST_BASELINE
from percolab.nn.probing.probed_latents import fresh_values, path_sums, read_places
from percolab.study.estimates import Line, Row, layers_of, row, select
from percolab.study.experiment import Results, declared
from percolab.study.material import Array, Look, Material, Networks
from percolab.study.pictures import by_layer, by_number, drawn_by
from percolab.study.settings import HIERARCHY, Settings

TARGETS = ("z", "sum", "fresh z")
RELATIVE, RATIO = "error over that of the mean", "log ratio,\ntrained over untrained"


# ---------------------------------------------------------------------- statistics


def log_change(values: Floats) -> Floats:
    """Return the logarithm of (S, E, …) positive measures, less its value for the same seed at the first epoch."""
    logs: Floats = np.log(np.maximum(values.astype(np.float64), 1e-300))
    return logs - logs[:, :1]


# ---------------------------------------------------------------------- training and measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of every pair of siblings and every latent."""

    separation: Annotated[Array, ("seed", "epoch", "layer", "pair")]
    mse: Annotated[Array, ("seed", "epoch", "layer", "latent", "target")]  #: of probes, on held-out samples
    baseline: Annotated[Array, ("latent", "target")]  #: the same of the mean
    pair_place: Ints
    latent_place: Ints
    fom: Floats  #: by latent
    layers: list[str]
    epochs: list[int]
    targets: list[str]
    training: dict[str, Any]


def train(data: Material) -> Networks:
    """Train a network for each seed, all on the dataset's y."""
    return data.train(keep=data.settings.options.keep)


def measure(data: Material, networks: Networks) -> Measured:
    """Probe latents and separate siblings in every layer of every network, at every kept epoch, and in the input."""
    asked, [truth], [probed], [pairs] = data.settings.options, data.truths, data.probed(), pairs_of(data)
    whole = siblings.ready(pairs, data.device)
    z = np.column_stack([truth.latent_z, fresh_values(truth.forest, 1, seed=data.settings.draw)])
    values = np.column_stack([z[:, 0], path_sums(truth.forest, z[:, :1])[:, 0], z[:, 1]])[probed.latent]
    names = data.layers(networks)
    raw = read_places(data.inputs, probed, values)

    def measures(look: Look) -> dict[str, Floats]:
        read = raw if look.layer == RAW else read_places(look.A, probed, values)
        return {"separation": siblings.separation(siblings.sums(look.A, whole)), "mse": read.mse}

    return Measured(
        **data.measured(networks, asked.keep, names, measures), baseline=raw.baseline, pair_place=pairs.place,
        latent_place=data.places([probed]), fom=truth.forest.figure_of_merit[probed.latent], layers=names,
        epochs=list(asked.keep), targets=list(TARGETS), training=networks.scores,
    )  # fmt: skip


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return log ratios, trained over untrained, and the measures themselves, by layer and epoch."""
    data: Measured = results["measures"]
    usable = (data.baseline >= LEAST_BASELINE).all(1) & np.isfinite(data.mse).all((0, 1, 2, 4))
    baseline, mse = data.baseline[usable], data.mse[:, :, :, usable].astype(np.float64)
    place = data.latent_place[usable]
    blocks, pair_blocks = kin(place), kin(data.pair_place)
    for k, layer in enumerate(data.layers):
        separation = log_change(data.separation[:, :, k])
        change = log_change(mse[:, :, k])
        for j, epoch in enumerate(data.epochs):
            names = {"layer": layer, "epoch": epoch}
            yield row(mean_interval(separation[:, j], pair_blocks), measure="log ratio, separation", **names)
            level = data.separation[:, j, k].astype(np.float64)
            yield row(mean_interval(level, pair_blocks), measure="separation", **names)
            apart = change[:, j, :, TARGETS.index("z")] - change[:, j, :, TARGETS.index("fresh z")]
            yield row(mean_interval(apart, blocks), measure="log ratio, z less fresh z", **names)
            for t, target in enumerate(TARGETS):
                ratio = mean_interval(change[:, j, :, t], blocks)
                yield row(ratio, measure=f"log ratio, error on {target}", **names)
                error = _relative(mse[:, j, k, :, t], baseline[:, t], blocks)
                yield row(error, measure=f"error on {target}", **names)
        names = {"measure": "log ratio by FOM, error on z", "layer": layer, "epoch": data.epochs[-1]}
        for here, where in fom_bins(data.fom[usable]):
            yield row(mean_interval(change[:, -1, here, 0], kin(place[here])), **names, **where)


def _relative(mse: Floats, baseline: Floats, blocks: Ints) -> Estimate:
    """Return the error of probes over the error of the mean, all latents together, with its interval."""

    def statistic(seeds: Ints, latents: Ints) -> float:
        return float(mse[np.ix_(seeds, latents)].mean(0).sum() / baseline[latents].sum())

    return jackknife(statistic, len(mse), blocks)


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return the log ratios after training in every hidden layer and the last residual stream."""
    end, n = s.options.keep[-1], s.training.n_blocks
    for layer in s.layers or (*(f"blocks.{i}.hidden" for i in range(n)), f"blocks.{n - 1}"):
        names = {"layer": layer, "epoch": end}
        fresh = select(rows, measure="log ratio, error on fresh z", **names)[0]
        on_z = select(rows, measure="log ratio, error on z", **names)[0]
        yield Line(f"error on z, log ratio to untrained, {label(layer)}", on_z, -1, 0.0, fresh, "fresh z")
        apart = select(rows, measure="log ratio, separation", **names)[0]
        yield Line(f"separation, log ratio to untrained, {label(layer)}", apart, note="0 before training")


def change(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratio, trained over untrained, by layer after the last epoch.

    Errors: below 0 is better. Separation: above 0 is better.
    """
    names = [name for name in layers_of(rows) if name != RAW]
    last = [r for r in select(rows, epoch=s.options.keep[-1]) if r["layer"] in names]
    measures = ("error on z", "error on sum", "error on fresh z", "separation")
    series = {m: select(last, measure=f"log ratio, {m}") for m in measures}
    return by_layer(series, names, f"{s.data[0]}: trained over untrained", RATIO)


def error(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Error of probes of z over that of the mean, by layer: before training, after it, and on fresh values."""
    levels = {
        "untrained": select(rows, measure="error on z", epoch=0),
        "trained": select(rows, measure="error on z", epoch=s.options.keep[-1]),
        "trained, fresh z": select(rows, measure="error on fresh z", epoch=s.options.keep[-1]),
    }
    return by_layer(levels, layers_of(rows), f"{s.data[0]}: error on z", RELATIVE, zero=1.0, log=True)


def epochs(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Error of probes of z over that of the mean, by epoch; epoch 0 is the untrained network."""
    return _by_epoch(rows, s, "error on z", RELATIVE)


def separation(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Mean separation of siblings by epoch."""
    return _by_epoch(rows, s, "separation", "mean separation")


def fom(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratio of the error on z, trained over untrained, by figure of merit."""
    ratios = select(rows, measure="log ratio by FOM, error on z")
    series = {label(name): select(ratios, layer=name) for name in _shown(rows, s)}
    return by_number(series, "at", f"{s.data[0]}: error on z by FOM", "FOM", RATIO)


def _by_epoch(rows: Sequence[Row], s: Settings[Options], measure: str, unit: str) -> Any:
    series = {label(name): select(rows, measure=measure, layer=name) for name in (RAW, *_shown(rows, s))}
    how: dict[str, Any] = {"zero": None, "symmetric_from": float(s.options.keep[1]), "ticks": True}
    return by_number(series, "epoch", f"{s.data[0]}: {measure}", "epoch", unit, **how)


def _shown(rows: Sequence[Row], s: Settings[Options]) -> Sequence[str]:
    return s.layers or [name for name in layers_of(rows) if name.endswith("hidden")]


draw = drawn_by(change, error, epochs, separation, fom)
EXPERIMENT = declared(__name__, options=options, data=HIERARCHY, own_networks=True, recorded=True)
