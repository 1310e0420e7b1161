"""Relevance, by the swap.

Does a network tell the concepts that its target depends on from their siblings better than the concepts that it does
not depend on?

Several hierarchies are added in one X. Networks with the same initial weights and the same order of rows are trained on
it, each on the y of another hierarchy. For every pair of siblings three things are taken: the separation, which is the
squared distance of the siblings' mean activations over their summed variances, of all samples and of those alone that
the network was not trained on; how often a linear reading, fitted on the network's training rows, tells the two apart
on rows that neither has seen; and the F1 of features, of the best one and of a union. Each is compared with itself: the
logarithm where the hierarchy is relevant, less the mean logarithm where it is not.

Both networks see the same X and start from the same weights, so before training the log ratio is 0, and whatever
geometry gives away is in both. With three hierarchies or more there is also a null: the same log ratio as if another
network were the relevant one, among those for which the pair is irrelevant. With K hierarchies there are K - 1 ways to
name the other network; the one farthest from 0 is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch

from percolab.experiments.points import Options, columns_of, feature_scores, numbers, options, pairs_of
from percolab.experiments.responses import by_relevance
from percolab.features.methods import KMeans, Neurons
from percolab.ground.arrays import Floats, Ints
from percolab.intervals import equal_bins, kin, mean_interval, share_interval
from percolab.nn.networks.activations import label
from percolab.nn.probing import siblings
from percolab.nn.probing.siblings import Ready, Siblings
from percolab.study.estimates import Line, Row, find, layers_of, row, select
from percolab.study.experiment import Results, declared
from percolab.study.material import Array, Material, Networks
from percolab.study.pictures import by_layer, by_number, drawn_by
from percolab.study.settings import WORLDS, Settings

MEASURES = ("separation", "held-out separation", "accuracy")
METHODS = ("kmeans", "neurons")
#: Scores of concepts by features, and their names; a union is of the features that `percolab.features.score` takes.
SCORES = {"f1": "best F1", "f1_union": "F1 of a union"}
RATIO = "log ratio,\nrelevant over irrelevant"
LEAST_SCORE = 1e-2
#: Smaller values of a measure are raised to this before the logarithm is taken.
LEAST = {"separation": 1e-12, "held-out separation": 1e-12, "accuracy": 1e-2}
LEAST_UNITS = 8  #: Fewest pairs of a bin that is shown.


# ---------------------------------------------------------------------- statistics


def swap_log_ratio(values: Floats, factor: Ints, least: float = 1e-12) -> Floats:
    """Return (S, P) log ratios of a measure: relevant over irrelevant, for each unit by itself.

    Parameters
    ----------
    values
        (S, K, P) by seed, by the factor that the network was trained on, and by unit.
    factor
        (P,) the factor that each unit belongs to.
    least
        Smaller values are taken to be this.

    Returns
    -------
    ndarray
        The logarithm in the network of the unit's own factor, less the mean logarithm in the others.
    """
    logs = by_relevance(np.log(np.maximum(values, least)), factor)
    return logs["relevant"] - logs["irrelevant"]


def idle_log_ratio(values: Floats, factor: Ints, shift: int, least: float = 1e-12) -> Floats:
    """Return log ratios with another network in place of the relevant one, which is irrelevant for a unit too: a null.

    For units of factor f that is the network trained on factor f + `shift`, from 1 to K - 1, modulo K; there must be
    three factors at least.
    """
    K = values.shape[1]
    logs = np.log(np.maximum(values, least))
    units = np.arange(factor.size)
    other = logs[:, (factor + shift) % K, units]
    rest = logs.sum(1) - logs[:, factor, units] - other
    return np.asarray(other - rest / (K - 2), np.float64)


def nulls(values: Floats, factor: Ints, blocks: Ints, least: float, names: dict[str, Any]) -> list[Row]:
    """Return the null of each shift, and as `null` the one farthest from 0; nothing with two factors."""
    shifts = range(1, values.shape[1]) if values.shape[1] > 2 else ()
    each = [mean_interval(idle_log_ratio(values, factor, shift, least), blocks) for shift in shifts]
    rows = [row(mean, part="null, by shift", shift=shift, **names) for shift, mean in zip(shifts, each, strict=True)]
    farthest = max(each, key=lambda mean: abs(mean.value), default=None)
    return rows if farthest is None else [*rows, row(farthest, part="null", **names)]


# ---------------------------------------------------------------------- training and measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of every pair of siblings and every concept."""

    values: Annotated[dict[str, Array], ("seed", "trained_on", "epoch", "layer", "pair")]  #: by measure
    raw: Annotated[dict[str, Array], ("pair",)]  #: the same in the raw input
    #: of features, by score and method, after the last epoch, on held-out samples
    scores: Annotated[dict[str, Array], ("seed", "trained_on", "concept")]
    pairs: dict[str, Ints]  #: size, depth, fom, place and factor of each pair
    concepts: dict[str, Ints]  #: place and factor of each concept
    layers: list[str]
    epochs: list[int]
    training: dict[str, Any]


def train(data: Material) -> Networks:
    """Train a network for each seed and factor: networks of a seed have the same initial weights and order of rows."""
    return data.train_by_factor(keep=data.settings.options.keep, split=data.split)


def measure(data: Material, networks: Networks) -> Measured:
    """Measure every pair in every network, layer and epoch kept; features at the last epoch, on held-out samples."""
    s = data.settings
    pairs, names, by_target = pairs_of(data), data.layers(networks)[1:], (s.seeds, len(data.truths))
    looked = _Looked(data, pairs)
    values = data.measured_by_factor(networks, s.options.keep, names, lambda look: looked.measures(look.A))
    tables = [_features(data, model, names) for _, _, model in data.looks(networks, (networks.last,))]
    scores = {f"{kind}_{method}": np.stack([np.concatenate([table[kind] for table in each[method]]) for each in tables])
              for method in METHODS for kind in SCORES}  # fmt: skip
    latents = [table["latent"].to_numpy() for table in tables[0][METHODS[0]]]  # the same for all
    starts = [truth.forest.latent_start[each] for truth, each in zip(data.truths, latents, strict=True)]
    return Measured(
        values=values,
        raw=looked.measures(data.inputs),
        scores={name: v.reshape(*by_target, -1) for name, v in scores.items()},
        pairs=columns_of(pairs),
        concepts={"place": np.concatenate(starts), "factor": numbers(latents)},
        layers=names,
        epochs=list(s.options.keep),
        training=networks.scores,
    )


class _Looked:
    """The pairs of all hierarchies, ready to be measured in any activations."""

    def __init__(self, data: Material, pairs: list[Siblings]) -> None:
        fit = np.zeros(len(data.dataset), np.bool_)
        fit[data.split.train] = True
        self.whole, self.fit, self.held_out = (
            [siblings.ready(each, data.device, used) for each in pairs] for used in (None, fit, ~fit)
        )

    def measures(self, A: torch.Tensor) -> dict[str, Floats]:
        """Return the separation of all pairs, on all samples and on held-out ones, and the held-out accuracy."""

        def separation(pairs: list[Ready]) -> Floats:
            return np.concatenate([siblings.separation(siblings.sums(A, each)) for each in pairs])

        factor = siblings.solver(A, self.fit[0])
        accuracy = [siblings.reading_accuracy(A, factor, *both) for both in zip(self.fit, self.held_out, strict=True)]
        values = separation(self.whole), separation(self.held_out), np.concatenate(accuracy)
        return dict(zip(MEASURES, values, strict=True))


def _features(data: Material, model: Any, names: list[str]) -> dict[str, list[Any]]:
    """Return scores of concepts, by method and hierarchy: k-means on the last block, and its neurons."""
    recorded = data.record(model, names[-2:])
    methods = KMeans(data.settings.options.features, batch_size=4096), Neurons()
    layers = names[-1], names[-2:][0]
    tables = [feature_scores(data, recorded[at], how) for at, how in zip(layers, methods, strict=True)]
    return {name: [table[table["summarised"]] for table in each] for name, each in zip(METHODS, tables, strict=True)}


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return log ratios, relevant over irrelevant: by layer and epoch; by size, depth and factor at the last epoch."""
    data: Measured = results["measures"]
    factor = data.pairs["factor"]
    blocks = kin(data.pairs["place"], factor)
    for measured in MEASURES:
        for k, layer in enumerate(data.layers):
            for j, epoch in enumerate(data.epochs):
                values = data.values[measured][:, :, j, k]
                names = {"measure": measured, "layer": layer, "epoch": epoch}
                ratio = swap_log_ratio(values, factor, LEAST[measured])
                yield row(mean_interval(ratio, blocks), part="all", **names)
                if epoch == data.epochs[-1]:
                    yield from _parts(ratio, data.pairs, blocks, names)
                    yield from _levels(values, data.raw[measured], factor, blocks, names)
                    yield from nulls(values, factor, blocks, LEAST[measured], names)
    yield from _feature_rows(data)


def _parts(ratio: Floats, pairs: dict[str, Ints], blocks: Ints, names: dict[str, Any]) -> Iterator[Row]:
    """Return the log ratio in bins of size and of depth, and by factor."""
    place, factor = pairs["place"], pairs["factor"]
    for column in ("size", "depth"):
        bins, edges = equal_bins(pairs[column])
        for b in np.unique(bins):
            inside = bins == b
            if np.count_nonzero(inside) < LEAST_UNITS:
                continue
            name = f"{column} {edges[b]:,.0f} to {edges[b + 1]:,.0f}"
            middle = float(np.median(pairs[column][inside]))
            value = mean_interval(ratio[:, inside], kin(place[inside], factor[inside]))
            yield row(value, part=column, bin=name, at=middle, **names)
    for k in np.unique(factor):
        value = mean_interval(ratio[:, factor == k], kin(place[factor == k]))
        yield row(value, part="factor", bin=f"factor {k}", at=int(k), **names)
    share = (np.sign(ratio) + 1) / 2  # ties count one half
    yield row(share_interval(share, blocks), part="share above 0", **names)


def _levels(values: Floats, raw: Floats | None, factor: Ints, blocks: Ints, names: dict[str, Any]) -> list[Row]:
    """Return the means of the measure itself: relevant, irrelevant, and in the raw input if measured there."""
    cases = by_relevance(values, factor) | ({} if raw is None else {"raw input": raw[None]})
    return [row(mean_interval(v, blocks), part=f"mean, {name}", **names) for name, v in cases.items()]


def _feature_rows(data: Measured) -> Iterator[Row]:
    """Return log ratios of the scores of features, and the scores themselves."""
    factor = data.concepts["factor"]
    blocks = kin(data.concepts["place"], factor)
    for method, layer in zip(METHODS, (data.layers[-1], data.layers[-2:][0]), strict=True):
        for name, what in SCORES.items():
            values = data.scores[f"{name}_{method}"]
            names = {"measure": f"{what}, {method}", "layer": layer, "epoch": data.epochs[-1]}
            yield row(mean_interval(swap_log_ratio(values, factor, LEAST_SCORE), blocks), part="all", **names)
            yield from _levels(values, None, factor, blocks, names)
            yield from nulls(values, factor, blocks, LEAST_SCORE, names)


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return the log ratios of all measures in the last block, and the share of pairs above 0."""
    last, end = layers_of(rows)[-1], s.options.keep[-1]
    for measured in (*MEASURES, *(f"{score}, {method}" for method in METHODS for score in SCORES.values())):
        layer = layers_of(select(rows, measure=measured, part="all"))[-1]
        names = {"measure": measured, "layer": layer, "epoch": end}
        null = find(rows, part="null", **names)
        what = f"log ratio of {measured}, {label(layer)}"
        ratio = select(rows, part="all", **names)[0]
        yield Line(what, ratio, 1, 0.0, null, "irrelevant over irrelevant", "0 before training")
    names = {"measure": "separation", "layer": last, "epoch": end}
    share = select(rows, part="share above 0", **names)[0]
    yield Line(f"share of pairs with a separation ratio above 1, {label(last)}", share, 1, 0.5)


def layers(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratios, relevant over irrelevant, after training; 0 is no difference.

    They are of separation, of held-out accuracy of the linear reading, and of the best F1 of features.
    """
    end, measures = s.options.keep[-1], (*MEASURES, *(f"best F1, {method}" for method in METHODS))
    series = {m: select(rows, part="all", measure=m, epoch=end) for m in measures}
    series["separation, null"] = select(rows, part="null", measure="separation", epoch=end)
    return by_layer(series, _measured_layers(rows), f"{s.data[0]}: relevance by layer", RATIO)


def epochs(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratio of separation by epoch of training. At epoch 0 it is 0 by construction."""
    how: dict[str, Any] = {"symmetric_from": float(s.options.keep[1]), "ticks": True}
    return by_number(_separation(rows, "all"), "epoch", f"{s.data[0]}: separation by epoch", "epoch", RATIO, **how)


def size(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratio of separation by the number of samples of the smaller sibling."""
    axis = "number of samples of the smaller sibling"
    return by_number(_separation(rows, "size"), "at", f"{s.data[0]}: separation by size", axis, RATIO)


def depth(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Log ratio of separation by the depth of the siblings."""
    axis = "depth of the siblings"
    return by_number(_separation(rows, "depth"), "at", f"{s.data[0]}: separation by depth", axis, RATIO)


def accuracy(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Held-out accuracy of the linear reading itself; chance is 0.5."""
    return _by_case(rows, s, "accuracy", "held-out accuracy")


def levels(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Mean separation itself, where the hierarchy is relevant or not."""
    return _by_case(rows, s, "separation", "mean separation")


def _measured_layers(rows: Sequence[Row]) -> list[str]:
    return layers_of(select(rows, part="share above 0", measure="separation"))


def _separation(rows: Sequence[Row], part: str) -> dict[str, list[Row]]:
    streams = [name for name in _measured_layers(rows) if not name.endswith("hidden")]
    return {label(name): select(rows, measure="separation", part=part, layer=name) for name in streams}


def _by_case(rows: Sequence[Row], s: Settings[Options], measured: str, words: str) -> Any:
    here = select(rows, epoch=s.options.keep[-1], measure=measured)
    series = {case: select(here, part=f"mean, {case}") for case in ("relevant", "irrelevant", "raw input")}
    return by_layer(series, _measured_layers(rows), f"{s.data[0]}: {words}", words, zero=None)


draw = drawn_by(layers, epochs, size, depth, accuracy, levels)
EXPERIMENT = declared(__name__, options=options, data=WORLDS, own_networks=True, recorded=True)
