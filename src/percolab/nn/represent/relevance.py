"""Relevance, by the swap: whether a concept is told from its sibling better where the target depends on it.

In a superposed world every sample has a point of each of K hierarchies. K networks with the same initial weights and
the same order of rows are trained on the same X, each on the y of another hierarchy. Each pair of siblings is then
compared with itself: in the network for which its hierarchy is relevant, over those for which it is not. Geometry is
the same in both, so what differs is what training did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.methods import KMeans, Neurons
from percolab.features.scoring import score
from percolab.intervals import kin, mean_interval, share_interval
from percolab.intervals.binning import equal_bins
from percolab.nn.frame.drawing import by_layer, by_number
from percolab.nn.frame.frame import Arrays
from percolab.nn.frame.page import Line, Words
from percolab.nn.frame.table import Row, row, select
from percolab.nn.networks.recording import activations, label
from percolab.nn.probing import siblings
from percolab.nn.probing.siblings import Siblings, find_siblings
from percolab.nn.represent.networks import train_networks
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Work, layer_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HELD_OUT = "held-out separation"
MEASURES = ("separation", HELD_OUT, "accuracy")
METHODS = ("kmeans", "neurons")
SCORES = {"f1": "best F1", "f1_union": "F1 of a union"}
"""Scores of concepts by features, and their names; a union is of the features that `percolab.features.score` takes."""
LEAST_SCORE = 1e-2
LEAST = {"separation": 1e-12, HELD_OUT: 1e-12, "accuracy": 1e-2}
"""What a measure is taken to be at least before its logarithm is."""
LEAST_UNITS = 8
"""Pairs of a bin that is shown."""


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
    logs = np.log(np.maximum(values, least))
    units = np.arange(factor.size)
    own = logs[:, factor, units]
    ratio: Floats = own - (logs.sum(1) - own) / (logs.shape[1] - 1)
    return ratio


def idle_log_ratio(values: Floats, factor: Ints, shift: int, least: float = 1e-12) -> Floats:
    """Return the same as if another network were the relevant one, among those for which a unit is irrelevant: a null.

    For units of factor f that is the network trained on factor f + `shift`, from 1 to K - 1, modulo K; there must be
    three factors at least.
    """
    K = values.shape[1]
    logs = np.log(np.maximum(values, least))
    units = np.arange(factor.size)
    one = logs[:, (factor + shift) % K, units]
    rest = logs.sum(1) - logs[:, factor, units] - one
    ratio: Floats = one - rest / (K - 2)
    return ratio


def nulls(values: Floats, factor: Ints, blocks: Ints, least: float, told: dict[str, Any]) -> list[Row]:
    """Return what each shift gives, and as `null` the one that is farthest from 0; nothing with two factors."""
    shifts = range(1, values.shape[1]) if values.shape[1] > 2 else ()
    found = [mean_interval(idle_log_ratio(values, factor, shift, least), blocks) for shift in shifts]
    rows = [row(one, part="null, by shift", shift=shift, **told) for shift, one in zip(shifts, found, strict=True)]
    farthest = max(found, key=lambda one: abs(one.value), default=None)
    return rows if farthest is None else [*rows, row(farthest, part="null", **told)]


# ---------------------------------------------------------------------- training and measuring


def train(work: Work) -> dict[str, Any]:
    """Train a network for each seed and factor: those of a seed have the same initial weights and order of rows."""
    s, factors = work.settings, range(len(work.truths))
    configs = [config for config in s.training.with_seeds(range(s.seeds)) for _ in factors]
    targets = np.stack([work.dataset.swapped(k).y for k in factors] * s.seeds)
    return train_networks(work.dataset, configs, targets, work.split, s.keep, work.output, work.device, work.progress)


def pairs_of(work: Work) -> list[Siblings]:
    """Return the pairs of siblings of each hierarchy."""
    s = work.settings
    return [find_siblings(t.forest, t.rows, s.min_size, s.most_pairs) for t in work.truths]


def measure(work: Work) -> Arrays:
    """Measure every pair in every network, layer and epoch kept; features at the last epoch, on held-out samples."""
    s, K = work.settings, len(work.truths)
    pairs = pairs_of(work)
    names = layer_names(work.networks.model(0, work.networks.last, work.device))[1:]
    P = sum(map(len, pairs))
    shape = (s.seeds * K, len(s.keep), len(names), P)
    found: Arrays = {name: np.full(shape, np.nan, np.float32) for name in MEASURES}
    looked = _Looked(work, pairs)
    found |= {f"raw_{name}": values for name, values in looked.measures(work.inputs).items()}
    scores: list[dict[str, Floats]] = [{} for _ in range(s.seeds * K)]
    table: dict[str, Ints] = {}
    for i, j, model in work.looks(range(s.seeds * K), s.keep):
        recorded = activations(model, work.inputs, names, device=work.device)
        for k, name in enumerate(names):
            for measured, values in looked.measures(recorded[name]).items():
                found[measured][i, j, k] = values
        if s.keep[j] == work.networks.last:
            scores[i], table = _features(work, recorded, names)
    found = {name: v.reshape(s.seeds, K, *v.shape[1:]) if name in MEASURES else v for name, v in found.items()}
    found |= {key: np.stack([own[key] for own in scores]).reshape(s.seeds, K, -1) for key in scores[0]}
    found |= {f"concept_{name}": column for name, column in table.items()}
    found |= columns_of(pairs)
    return {**found, "layers": np.array(names)}


class _Looked:
    """The pairs of all hierarchies, ready to be measured in any activations."""

    def __init__(self, work: Work, pairs: list[Siblings]) -> None:
        fit = np.zeros(len(work.dataset), np.bool_)
        fit[work.split.train] = True
        self.whole, self.fit, self.held_out = (
            [siblings.ready(own, work.device, used) for own in pairs] for used in (None, fit, ~fit)
        )

    def measures(self, A: torch.Tensor) -> dict[str, Floats]:
        """Return separation, of all samples and of held-out ones, and held-out accuracy of all pairs in a row."""
        factor = siblings.solver(A, self.fit[0])
        accuracy = [
            siblings.reading_accuracy(A, factor, fit, held_out)
            for fit, held_out in zip(self.fit, self.held_out, strict=True)
        ]
        whole, held_out = (
            [siblings.separation(siblings.sums(A, own)) for own in pairs] for pairs in (self.whole, self.held_out)
        )
        parts = {"separation": whole, HELD_OUT: held_out, "accuracy": accuracy}
        return {name: np.concatenate(values) for name, values in parts.items()}


def columns_of(pairs: list[Siblings]) -> Arrays:
    """Return what the pairs are, hierarchy after hierarchy."""
    columns = {
        name: np.concatenate([getattr(own, name) for own in pairs]) for name in ("size", "depth", "fom", "place")
    }
    return {**columns, "factor": np.repeat(np.arange(len(pairs)), [len(own) for own in pairs])}


def _features(
    work: Work, recorded: dict[str, torch.Tensor], names: list[str]
) -> tuple[dict[str, Floats], dict[str, Ints]]:
    """Return scores of every concept by method, and the concepts: k-means on the last block, and its neurons."""
    rows = work.scored
    least = max(10, work.settings.min_size * rows.size // len(work.dataset))
    sources = {"kmeans": names[-1], "neurons": names[-2]}
    makers: dict[str, Any] = {"kmeans": KMeans(work.settings.features, batch_size=4096), "neurons": Neurons()}
    scores: dict[str, list[Floats]] = {}
    table: dict[str, Ints] = {}
    for method, maker in makers.items():
        values = recorded[sources[method]][torch.from_numpy(rows).to(work.device)].cpu().numpy()
        codes = maker.fit(values).encode(values)
        tables = [
            score(work.dataset, codes, rows, k, min_size=least, draws=1).concepts for k in range(len(work.truths))
        ]
        tables = [one[one["summarised"]] for one in tables]
        for name in SCORES:
            scores[f"{name}_{method}"] = [one[name].to_numpy(np.float64) for one in tables]
        starts = [t.forest.latent_start[one["latent"]] for t, one in zip(work.truths, tables, strict=True)]
        table["place"] = np.concatenate(starts)
        table["factor"] = np.repeat(np.arange(len(tables)), [len(one) for one in tables])
    return {key: np.concatenate(parts) for key, parts in scores.items()}, table


# ---------------------------------------------------------------------- estimates


def analyse(found: Arrays, work: Work) -> list[Row]:
    """Return log ratios, relevant over irrelevant: by layer and epoch; by size, depth and factor at the last epoch."""
    s, factor, names = work.settings, found["factor"], [str(name) for name in found["layers"]]
    blocks = kin(found["place"], factor)
    rows: list[Row] = []
    for measured in MEASURES:
        for k, layer in enumerate(names):
            for j, epoch in enumerate(s.keep):
                values = found[measured][:, :, j, k]
                told = {"measure": measured, "layer": layer, "epoch": epoch}
                ratio = swap_log_ratio(values, factor, LEAST[measured])
                rows.append(row(mean_interval(ratio, blocks), part="all", **told))
                if epoch == s.keep[-1]:
                    rows += _parts(ratio, found, blocks, told)
                    rows += _levels(values, found[f"raw_{measured}"], factor, blocks, told)
                    rows += nulls(values, factor, blocks, LEAST[measured], told)
    return rows + _feature_rows(found, s, names)


def _parts(ratio: Floats, found: Arrays, blocks: Ints, told: dict[str, Any]) -> list[Row]:
    """Return the log ratio in bins of size and of depth, and by factor."""
    rows, place, factor = [], found["place"], found["factor"]
    for column in ("size", "depth"):
        bins, edges = equal_bins(found[column])
        for b in np.unique(bins):
            own = bins == b
            if np.count_nonzero(own) < LEAST_UNITS:
                continue
            name = f"{column} {edges[b]:,.0f} to {edges[b + 1]:,.0f}"
            middle = float(np.median(found[column][own]))
            value = mean_interval(ratio[:, own], kin(place[own], factor[own]))
            rows.append(row(value, part=column, bin=name, at=middle, **told))
    for k in np.unique(factor):
        value = mean_interval(ratio[:, factor == k], kin(place[factor == k]))
        rows.append(row(value, part="factor", bin=f"factor {k}", at=int(k), **told))
    share = (np.sign(ratio) + 1) / 2  # ties count one half
    return [*rows, row(share_interval(share, blocks), part="share above 0", **told)]


def _levels(values: Floats, raw: Floats, factor: Ints, blocks: Ints, told: dict[str, Any]) -> list[Row]:
    """Return the means of the measure itself: relevant, irrelevant, and in the raw input."""
    units = np.arange(factor.size)
    relevant = values[:, factor, units].astype(np.float64)
    irrelevant = (values.sum(1) - relevant) / (values.shape[1] - 1)
    cases = {"relevant": relevant, "irrelevant": irrelevant, "raw input": raw[None]}
    return [row(mean_interval(v, blocks), part=f"mean, {name}", **told) for name, v in cases.items()]


def _feature_rows(found: Arrays, s: Settings, names: list[str]) -> list[Row]:
    """Return log ratios of the scores of features, and the scores themselves."""
    factor = found["concept_factor"]
    blocks = kin(found["concept_place"], factor)
    rows = []
    for method, layer in zip(METHODS, (names[-1], names[-2]), strict=True):
        for name, words in SCORES.items():
            values = found[f"{name}_{method}"]
            told = {"measure": f"{words}, {method}", "layer": layer, "epoch": s.keep[-1]}
            rows.append(row(mean_interval(swap_log_ratio(values, factor, LEAST_SCORE), blocks), part="all", **told))
            rows += _levels(values, np.full(factor.size, np.nan), factor, blocks, told)[:2]
            rows += nulls(values, factor, blocks, LEAST_SCORE, told)
    return rows


# ---------------------------------------------------------------------- report

WORDS = Words(
    title="Relevance, by the swap",
    question="Does a network tell the concepts that its target depends on from their siblings better than the "
    "concepts that it does not depend on?",
    method="Several hierarchies are added in one X. Networks with the same initial weights and the same order of rows "
    "are trained on it, each on the y of another hierarchy. For every pair of siblings three things are taken: the "
    "separation, which is the squared distance of the siblings' mean activations over their summed variances, of all "
    "samples and of those alone that the network was not trained on; how "
    "often a linear reading, fitted on the network's training rows, tells the two apart on rows that neither has "
    "seen; and the F1 of features, of the best one and of a union. Each is compared with itself: the logarithm where "
    "the hierarchy is relevant, less the mean logarithm where it is not.",
    control="Both networks see the same X and start from the same weights, so before training the log ratio is 0, and "
    "whatever geometry gives away is in both. With three hierarchies or more there is also a null: the same log ratio "
    "as if another network were the relevant one, among those for which the pair is irrelevant. With K hierarchies "
    "there are K - 1 ways to name the other network; the one farthest from 0 is shown.",
    captions={
        "layers": "Log ratio of separation, of held-out accuracy of the linear reading, and of the best F1 of "
        "features, relevant over irrelevant, after training. 0 is no difference.",
        "epochs": "Log ratio of separation by epoch of training. At epoch 0 it is 0 by construction.",
        "size": "Log ratio of separation by the number of samples of the smaller sibling.",
        "depth": "Log ratio of separation by the depth of the siblings.",
        "accuracy": "Held-out accuracy of the linear reading itself; chance is 0.5.",
        "levels": "Mean separation itself: where the hierarchy is relevant, where it is not, and in the raw input.",
    },
)


def headline(rows: Sequence[Row], s: Settings) -> list[Line]:
    """Return the log ratios of all measures in the last block, and the share of pairs above 0."""
    last = f"blocks.{s.training.n_blocks - 1}"
    end = s.keep[-1]
    lines = []
    for measured in (*MEASURES, *(f"{words}, {method}" for method in METHODS for words in SCORES.values())):
        layer = f"{last}.hidden" if measured.endswith("neurons") else last
        told = {"measure": measured, "layer": layer, "epoch": end}
        null = next(iter(select(rows, part="null", **told)), None)
        what = f"log ratio of {measured}, {label(layer)}"
        own = select(rows, part="all", **told)[0]
        lines.append(Line(what, own, 1, 0.0, null, "irrelevant over irrelevant", "0 before training"))
    told = {"measure": "separation", "layer": last, "epoch": end}
    share = select(rows, part="share above 0", **told)[0]
    return [*lines, Line(f"share of pairs with a separation ratio above 1, {label(last)}", share, 1, 0.5)]


def draw(rows: Sequence[Row], s: Settings) -> dict[str, Figure]:
    """Draw the log ratios by layer, epoch, size and depth, and the separation itself."""
    names = [r["layer"] for r in select(rows, part="share above 0", measure="separation")]
    end, ratio = s.keep[-1], "log ratio,\nrelevant over irrelevant"
    measures = (*MEASURES, *(f"best F1, {method}" for method in METHODS))
    layers = {m: select(rows, part="all", measure=m, epoch=end) for m in measures}
    null = select(rows, part="null", measure="separation", epoch=end)
    if null:
        layers["separation, null"] = null
    streams = [name for name in names if not name.endswith("hidden")]
    one = {"measure": "separation"}
    epochs = {label(n): select(rows, part="all", layer=n, **one) for n in streams}
    drawn = {
        "layers": by_layer(layers, names, f"{s.data}: relevance by layer", ratio),
        "epochs": by_number(
            epochs,
            "epoch",
            f"{s.data}: separation by epoch",
            "epoch",
            ratio,
            symmetric_from=float(s.keep[1]),
            ticks=True,
        ),
    }
    for column, words in (("size", "samples of the smaller sibling"), ("depth", "depth of the siblings")):
        series = {label(n): select(rows, part=column, layer=n, epoch=end, **one) for n in streams}
        drawn[column] = by_number(series, "at", f"{s.data}: separation by {column}", words, ratio)
    cases = ("relevant", "irrelevant", "raw input")
    levels = {case: select(rows, part=f"mean, {case}", epoch=end, **one) for case in cases}
    accuracy = {case: select(rows, part=f"mean, {case}", epoch=end, measure="accuracy") for case in cases}
    drawn["accuracy"] = by_layer(accuracy, names, f"{s.data}: linear reading", "held-out accuracy", zero=None)
    drawn["levels"] = by_layer(levels, names, f"{s.data}: separation of siblings", "mean separation", zero=None)
    return drawn
