"""Steering, dose and response.

Does steering activations along a concept's direction change the prediction as the truth says it should?

The activations of a concept's samples are steered after some layer, and the rest of the network is run. Along the
concept's own direction, to its sibling's mean activation, the mean change of the prediction is compared with the true
difference of mean y; along the direction of a probe of z, with the law: moved as far as the reading rises where z is
larger by δ, the prediction should change by δ / √(1 + number of latents above the point) where there is a latent of
that depth, and by 0 elsewhere; along a feature of k-means, the part of the own direction that it carries, with the true
difference of mean y again. The slope is that of a line through the origin, over all concepts: 1 is what the truth says,
0 is no response. A probe's direction is the one along which activations vary with its reading. Leakage is the mean size
of the response to the same steering on samples elsewhere, over that on the concept's own: 0 is a response of the
concept alone, 1 is a response that does not depend on where a sample is.

The same is done where the hierarchy is irrelevant to the target, in the network before training, along random
directions of the same length, along directions of probes of fresh values, and along the feature of another concept. Of
fresh values the interval is where 95% of further draws fall, and a probe's slope counts as found only outside of it:
with few latents at a depth, any values go along with y by chance. A feature's slope counts by what it has beyond that
of another concept's feature. After the last block the readout is linear, so the mean response to a difference of means
is right by construction, whatever was learned: the last block is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch

from percolab.experiments import points, relevance, responses
from percolab.experiments.responses import Steer
from percolab.features.methods import KMeans
from percolab.ground.arrays import Floats, Ints
from percolab.intervals import kin, mean_of_known
from percolab.nn.config import TrainConfig
from percolab.nn.networks.activations import RAW, label
from percolab.nn.probing import siblings
from percolab.nn.probing.probed_latents import Places, fresh_values, read_places
from percolab.nn.probing.siblings import Siblings
from percolab.study.estimates import Line, Row, band, layers_of, row, select
from percolab.study.experiment import Results, declared
from percolab.study.material import Array, Look, Material, Networks
from percolab.study.pictures import by_layer, by_number, drawn_by
from percolab.study.settings import STEP, WORLDS, Settings

RANDOM_DRAWS = 3  #: Random directions for each concept.
LEAST_F1 = 0.3  #: A feature of a concept has at least this F1.
#: The response to a concept's own feature less the response to another concept's feature: the specific effect.
LESS_OTHER = "feature less another"
FEATURE_KEYS = ("feature", "other_feature", "feature_leak", "feature_size")
ON_CONCEPTS = ("own", "random", *FEATURE_KEYS)
SLOPE = "slope, response over truth"
#: By direction: the title of its picture, the direction of its control, and the name of the control in the picture.
PICTURED = {
    "own": ("own directions", "random", "random direction"),
    "probe": ("probes' directions", "fresh probe", "fresh values (null)"),
    "feature": ("features' directions", "other feature", "feature of an unrelated concept"),
}
SAME = "1 if it does not matter where a sample is"


@dataclass(frozen=True)
class Options(points.Options):
    """Options of this experiment besides data and networks; `keep` is 0, which is untrained, and the last epoch."""

    rows: int = 64  #: number of steered samples of a concept
    doses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)  #: in units of the difference to the sibling, or of z


def options(scale: str, seeds: int, training: TrainConfig) -> Options:
    """Return the options of a scale."""
    return Options((0, training.epochs), **({**points.SMALL, "rows": 32} if scale == "small" else {}))


# ---------------------------------------------------------------------- measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """Mean changes of the prediction, by direction, and the exact changes."""

    #: on siblings: along own, random and features' directions
    concepts: Annotated[dict[str, Array], ("seed", "trained_on", "epoch", "layer", "side", "pair", "dose")]
    #: on probed latents: along directions of probes of z and of fresh values
    latents: Annotated[dict[str, Array], ("seed", "trained_on", "epoch", "layer", "latent", "dose")]
    true: Annotated[Array, ("side", "pair")]  #: difference of mean y to the sibling
    law: Annotated[Array, ("latent",)]  #: change of y for a change of z by 1
    pairs: dict[str, Ints]  #: size, depth, fom, place and factor of each pair
    latent_factor: Ints
    latent_place: Ints
    layers: list[str]
    epochs: list[int]
    doses: list[float]
    training: dict[str, Any]


class _Hierarchy:
    """One hierarchy, and its samples that are steered: found once, for all networks and layers."""

    def __init__(self, data: Material, number: int, pairs: Siblings, places: Places) -> None:
        s, truth = data.settings, data.truths[number]
        self.number, self.forest, self.pairs, self.places = number, truth.forest, pairs, places
        self.n, self.rows = truth.rows.size, s.options.rows
        self.ready = siblings.ready(pairs, data.device)
        self.samples = responses.sibling_samples(pairs, self.rows)
        self.true = responses.true_differences(pairs, truth.y[truth.rows])
        fresh = fresh_values(truth.forest, responses.FRESH_PROBES, seed=number + s.draw * STEP)
        self.values = np.column_stack([truth.latent_z, fresh])[self.places.latent]
        self.inside, self.outside = responses.place_samples(self.places, self.rows)
        # By the law a change of z by 1 changes y of a point by 1 / √(1 + number of latents above the point).
        self.law = (1 / np.sqrt(1 + truth.forest.point_depth[truth.rows[self.inside]])).mean(1)


def measure(data: Material, networks: Networks) -> Measured:
    """Steer in every layer but the last of every network, before and after training, for every hierarchy."""
    s, probed = data.settings, data.probed(least_depth=responses.LEAST_DEPTH)
    units = zip(points.pairs_of(data), probed, strict=True)
    hierarchies = [_Hierarchy(data, k, *both) for k, both in enumerate(units)]
    epochs, names = (0, networks.last), [RAW, *responses.streams(data.model(networks))]

    def steered(look: Look) -> dict[str, Floats]:
        rest = partial(responses.forward_from, look.model, look.layer)
        steer = partial(responses.steer, look.A, rest, doses=s.options.doses)
        best, units = [np.full((2, len(h.pairs)), -1) for h in hierarchies], look.A
        if look.epoch > 0 and look.layer not in (RAW, "input"):
            best, units = _features(data, look.A, hierarchies)
        parts = [
            _along_own(look.A, h, steer)
            | _along_probes(look.A, h, steer)
            | _along_features(look.A, h, steer, best[h.number], units, len(s.options.doses))
            for h in hierarchies
        ]
        return {key: np.concatenate([part[key] for part in parts], -2) for key in parts[0]}

    measured = data.measured_by_factor(networks, epochs, names, steered)
    return Measured(
        concepts={key: values for key, values in measured.items() if key in ON_CONCEPTS},
        latents={key: values for key, values in measured.items() if key not in ON_CONCEPTS},
        true=np.concatenate([h.true for h in hierarchies], 1),
        law=np.concatenate([h.law for h in hierarchies]),
        pairs=points.columns_of([h.pairs for h in hierarchies]),
        latent_factor=points.numbers([h.places for h in hierarchies]),
        latent_place=data.places(probed),
        layers=names,
        epochs=list(epochs),
        doses=list(s.options.doses),
        training=networks.scores,
    )


def _along_own(A: torch.Tensor, h: _Hierarchy, steer: Steer) -> dict[str, Floats]:
    """Return (2, P, D) responses along own and random directions."""
    vectors, samples = responses.own_directions(A, h.ready), h.samples.reshape(-1, h.rows)

    def response(along: torch.Tensor) -> Floats:
        return steer(samples, along.flatten(0, 1))[0].reshape(2, len(h.pairs), -1)

    drawn = [response(responses.random_like(vectors, seed)) for seed in range(RANDOM_DRAWS)]
    return {"own": response(vectors), "random": np.mean(drawn, 0)}


def _along_probes(A: torch.Tensor, h: _Hierarchy, steer: Steer) -> dict[str, Floats]:
    """Return (L, D) responses along directions of probes of z, their size inside and elsewhere; and of fresh values."""
    along = responses.probe_directions(A, read_places(A, h.places, h.values))
    index = torch.from_numpy(h.places.depth_index).to(A.device)
    there = h.outside[:, 0] >= 0
    (mean, size), *fresh = (steer(h.inside, along[index, t]) for t in range(1 + responses.FRESH_PROBES))
    beyond = np.full((there.size, mean.shape[1]), np.nan)
    beyond[there] = steer(h.outside[there], along[torch.from_numpy(there).to(A.device), 0])[1]
    moved = {"probe_leak": beyond[h.places.depth_index], "probe": mean, "probe_size": size}
    return moved | {f"fresh_{t}": response for t, (response, _) in enumerate(fresh, 1)}


def _features(data: Material, A: torch.Tensor, hierarchies: list[_Hierarchy]) -> tuple[list[Any], torch.Tensor]:
    """Return, by hierarchy, (2, P) the feature of k-means that matches each sibling best, and their directions."""
    method = KMeans(data.settings.options.features, batch_size=4096)
    tables = points.feature_scores(data, A, method, ratio=1.0)
    centres = torch.from_numpy(np.asarray(method.directions) + np.asarray(method.bias))
    centres = centres.to(A.device, torch.float64) - A.double().mean(0)
    best = [_best_features(table, h) for table, h in zip(tables, hierarchies, strict=True)]
    return best, centres / centres.norm(dim=1, keepdim=True)


def _best_features(table: Any, h: _Hierarchy) -> Ints:
    """Return (2, P) the feature that matches each sibling best, -1 if none matches well."""
    children = h.forest.latent_children[h.pairs.parent].T - h.forest.n_points
    good = table[table["f1"] >= LEAST_F1]
    feature = np.full(h.forest.n_latents, -1, np.int64)
    feature[good["latent"].to_numpy()] = good["best_feature"].to_numpy()
    return np.asarray(feature[children], np.int64)


def _along_features(
    A: torch.Tensor, h: _Hierarchy, steer: Steer, best: Ints, units: torch.Tensor, doses: int
) -> dict[str, Floats]:
    """Return (2, P, D) responses along the part of own directions that features carry; NaN without a feature.

    They are responses on a concept, to another concept's feature, and their sizes outside the parent and on it.
    """
    moved = {name: np.full((2, len(h.pairs), doses), np.nan) for name in FEATURE_KEYS}
    side, pair = np.nonzero(best >= 0)
    if not side.size:
        return moved
    chosen = torch.from_numpy(side).to(A.device), torch.from_numpy(pair).to(A.device)
    along, features, samples = responses.own_directions(A, h.ready)[chosen], best[side, pair], h.samples[side, pair]

    def carried(numbers: Ints) -> torch.Tensor:
        unit = units[torch.from_numpy(numbers).to(A.device)]
        return (along * unit).sum(1, keepdim=True) * unit

    start, stop = h.pairs.start[pair], h.pairs.stop[pair]
    outside = h.pairs.order[responses.beyond_rows(start, stop, h.n, h.rows)]
    mean, size = steer(samples, carried(features))
    leak = steer(outside, carried(features))[1]
    leak[stop - start == h.n] = np.nan  # no row is elsewhere
    partner = unrelated(*_extents(h, side, pair), features, np.random.default_rng(h.number))
    other = steer(samples, carried(features[partner]))[0]
    other[partner < 0] = np.nan
    for key, values in zip(FEATURE_KEYS, (mean, other, leak, size), strict=True):
        moved[key][side, pair] = values
    return moved


def _extents(h: _Hierarchy, side: Ints, pair: Ints) -> tuple[Ints, Ints]:
    """Return the first place of the siblings' points, and one past the last."""
    latent = h.forest.latent_children[h.pairs.parent[pair], side] - h.forest.n_points
    start = h.forest.latent_start[latent]
    return start, start + h.forest.latent_size[latent]


def unrelated(start: Ints, stop: Ints, feature: Ints, rng: np.random.Generator) -> Ints:
    """Return for each concept another one, drawn at random among those that share no point and no feature with it.

    -1 where there is none.
    """
    apart = (start[:, None] >= stop) | (stop[:, None] <= start)
    able = apart & (feature[:, None] != feature)
    chosen: Ints = np.where(able, rng.random(able.shape), -1.0).argmax(1)
    return np.where(able.any(1), chosen, -1)


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return slopes, r² and leakage by direction, layer and dose: relevant, irrelevant, untrained, and the nulls."""
    data: Measured = results["measures"]
    pairs = kin(data.pairs["place"], data.pairs["factor"])
    latents = kin(data.latent_place, data.latent_factor)
    for e, epoch in enumerate(data.epochs):
        for k, layer in enumerate(data.layers):
            for d, dose in enumerate(data.doses):
                names = {"network": "trained" if epoch else "untrained", "layer": layer, "dose": dose}
                moved = {key: v[:, :, e, k, ..., d] for key, v in (data.concepts | data.latents).items()}
                yield from _own_rows(data, moved, pairs, names)
                yield from _probe_rows(data, moved, latents, names)
                if dose == 1.0 and epoch:
                    yield from _leak_rows(data, moved, pairs, latents, names)


def _own_rows(data: Measured, moved: dict[str, Array], blocks: Ints, names: dict[str, Any]) -> Iterator[Row]:
    """Return slopes along own, random and features' directions, and of the right feature less another."""
    by_direction = {name: moved[name] for name in ("own", "random", "feature", "other_feature")}
    by_direction[LESS_OTHER] = by_direction["feature"] - by_direction["other_feature"]
    for direction, values in by_direction.items():
        for case, response in responses.by_relevance(values, data.pairs["factor"]).items():
            if not np.isfinite(response).any():
                continue
            slope, r2 = responses.response_line(names["dose"] * data.true, response, blocks)
            here = {"direction": direction.replace("_", " "), "case": case, **names}
            here["concepts"] = round(np.isfinite(response).sum() / len(response))  # of which a mean network has one
            yield row(slope, measure="slope", **here)
            yield row(r2, measure="r2", **here)


def _probe_rows(data: Measured, moved: dict[str, Array], blocks: Ints, names: dict[str, Any]) -> Iterator[Row]:
    """Return slopes along directions of probes, and of probes of fresh values, all draws together."""
    law = names["dose"] * data.law
    for case in ("relevant", "irrelevant"):

        def response(name: str, case: str = case) -> Floats:
            return responses.by_relevance(moved[name], data.latent_factor)[case]

        slope, r2 = responses.response_line(law, response("probe"), blocks)
        here = {"direction": "probe", "case": case, **names}
        yield row(slope, measure="slope", **here)
        yield row(r2, measure="r2", **here)
        fresh = np.stack([response(f"fresh_{t}") for t in range(1, responses.FRESH_PROBES + 1)])
        null = responses.fresh_slope(law, fresh)
        yield band(null, measure="slope", direction="fresh probe", case=case, **names)


def _leak_rows(
    data: Measured, moved: dict[str, Array], pairs: Ints, latents: Ints, names: dict[str, Any]
) -> Iterator[Row]:
    """Return leakage of probes' and features' directions where the hierarchy is relevant."""
    for direction, factor, blocks in (
        ("probe", data.latent_factor, latents),
        ("feature", data.pairs["factor"], pairs),
    ):
        both = [moved[f"{direction}_{part}"] for part in ("size", "leak")]
        relevant = [responses.by_relevance(values, factor)["relevant"] for values in both]
        inside, outside = (values if values.ndim == 2 else mean_of_known(values, 1) for values in relevant)
        if np.isfinite(inside).any():
            value = responses.leakage(inside, outside, blocks)
            yield row(value, measure="leakage", direction=direction, case="relevant", **names)


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return slopes along own, probe and feature directions in every layer, each with a control."""
    for layer in (name for name in layers_of(rows) if name != RAW):
        here = select(rows, network="trained", layer=layer, dose=1.0)
        slopes = {(r["direction"], r["case"]): r for r in select(here, measure="slope")}
        where = label(layer)
        for direction, along, control, versus in (
            ("own", "the own direction", ("own", "irrelevant"), "irrelevant"),
            ("probe", "the probe direction", ("fresh probe", "relevant"), "fresh values"),
            (LESS_OTHER, "the feature's direction less another's", ("other feature", "relevant"), "another feature"),
        ):
            if (direction, "relevant") in slopes:
                what = f"slope along {along}, {where}"
                yield Line(what, slopes[direction, "relevant"], 1, 0.0, slopes[control], versus)
        for leak in select(here, measure="leakage"):
            yield Line(f"leakage of the {leak['direction']} direction, {where}", leak, -1, 1.0, note=SAME)


def own(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Slope of the response along a concept's own direction by layer, at dose 1: the whole way to the sibling."""
    return _by_layer(rows, s, "own")


def r2(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """r² of the same lines."""
    return _by_layer(rows, s, "own", "r2", "r²")


def dose(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Slope by dose where the hierarchy is relevant. A constant slope is a response in proportion."""
    slopes = select(rows, measure="slope", direction="own", case="relevant", network="trained")
    series = {label(name): select(slopes, layer=name) for name in layers_of(rows)}
    return by_number(series, "dose", f"{s.data[0]}: own directions by dose", "dose", SLOPE, ticks=True)


def probe(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Slope of the response along a probe's direction, over what the law predicts, at dose 1."""
    return _by_layer(rows, s, "probe")


def feature(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Slope of the response along the part of the own direction that the concept's feature carries."""
    return _by_layer(rows, s, "feature")


def _by_layer(
    rows: Sequence[Row], s: Settings[Options], direction: str, measure: str = "slope", unit: str = SLOPE
) -> Any:
    """Draw slopes or r² along a direction, with its controls, in the layers that have any."""
    here = select(rows, measure=measure, dose=1.0)
    along, after = select(here, direction=direction), {"case": "relevant", "network": "trained"}
    title, control, beside = PICTURED[direction]
    series = {
        "relevant": select(along, **after),
        "irrelevant": select(along, **{**after, "case": "irrelevant"}),
        beside: select(here, direction=control, **after),
        "untrained": select(along, **{**after, "network": "untrained"}),
    }
    if not series["relevant"]:
        return None
    return by_layer(series, layers_of(along), f"{s.data[0]}: {title}", unit)


train, draw = relevance.train, drawn_by(own, r2, dose, probe, feature)
EXPERIMENT = declared(__name__, data=WORLDS)
