"""Dose and response: whether pushing activations along a direction changes the prediction as the truth says.

Three kinds of direction, in the residual stream after a layer, in a superposed world:

- *own*: from a concept's mean to its sibling's. Its samples are pushed by a fraction or a multiple of it, and the mean
  change of the prediction is compared with the true difference of mean y.
- *probe*: along what a ridge probe of z at some depth reads, as far as the reading rises with a change of z by δ. By
  the law this should change the prediction by δ / √(1 + depth) where there is such a latent, and by 0 elsewhere.
- *feature*: the part of a concept's own direction that its best feature of k-means carries.

Each is done where the hierarchy is relevant and where it is not, in trained and untrained networks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.methods import KMeans
from percolab.features.scoring import score
from percolab.nn.recording import RAW, activations
from percolab.nn.represent import reading, relevance
from percolab.nn.represent.dose_report import WORDS, draw, headline
from percolab.nn.represent.networks import forward_from, streams
from percolab.nn.represent.pushing import (
    Rest,
    beyond_rows,
    own_directions,
    place_samples,
    probe_directions,
    push,
    random_like,
    sibling_samples,
    true_differences,
)
from percolab.nn.represent.reading import Places
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.siblings import Siblings
from percolab.nn.represent.statistics import Estimate, jackknife, line_through_origin, prediction
from percolab.nn.represent.work import Arrays, Row, Work, row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANDOM_DRAWS = 3
"""Random directions for each concept."""
FRESH_PROBES = 10
"""Probes of fresh values whose directions are a null."""
LEAST_F1 = 0.3
"""A feature of a concept has at least this F1."""


# ---------------------------------------------------------------------- training and measuring

train = relevance.train


def measure(work: Work) -> Arrays:
    """Push in every layer but the last of every network, before and after training, for every hierarchy."""
    s, K = work.settings, len(work.truths)
    pairs = relevance.pairs_of(work)
    depths = [d for d in s.depths if d > 0]
    places = [reading.find_places(t.forest, t.rows, depths, s.min_size, seed=0) for t in work.truths]
    epochs = (0, work.networks.last)
    names = [RAW, *streams(work.networks.model(0, 0, work.device))]
    parts: dict[str, list[Floats]] = {}
    for _, j, model in work.looks(range(s.seeds * K), epochs):
        model.eval()
        recorded = {RAW: work.inputs, **activations(model, work.inputs, names[1:], device=work.device)}
        for name in names:
            A = recorded[name]

            def rest(h: torch.Tensor, model: Any = model, name: str = name) -> torch.Tensor:
                return forward_from(model, name, h)

            for key, values in _look(work, A, rest, pairs, places).items():
                parts.setdefault(key, []).append(values)
            trained = epochs[j] > 0 and name not in (RAW, "input")
            for key, values in _look_at_features(work, A, rest, pairs, trained).items():
                parts.setdefault(key, []).append(values)
    shape = (s.seeds, K, len(epochs), len(names))
    found: Arrays = {key: np.stack(v).astype(np.float32).reshape(*shape, *v[0].shape) for key, v in parts.items()}
    return {**found, **_truths(work, pairs, places), "layers": np.array(names), "epochs": np.array(epochs)}


def _look(work: Work, A: torch.Tensor, rest: Rest, pairs: list[Siblings], places: list[Places]) -> dict[str, Floats]:
    """Return responses along own, random and probes' directions, hierarchy after hierarchy."""
    s = work.settings
    found: dict[str, list[Floats]] = {}

    def keep(key: str, values: Floats) -> None:
        found.setdefault(key, []).append(values)

    for k, (own, where) in enumerate(zip(pairs, places, strict=True)):
        vectors = own_directions(A, own)
        samples = sibling_samples(own, s.rows).reshape(-1, s.rows)
        keep("own", push(A, rest, samples, vectors.flatten(0, 1), s.doses)[0].reshape(2, len(own), -1))
        drawn = [
            push(A, rest, samples, random_like(vectors, seed).flatten(0, 1), s.doses)[0].reshape(2, len(own), -1)
            for seed in range(RANDOM_DRAWS)
        ]
        keep("random", np.mean(drawn, 0))
        values = np.column_stack(
            [work.truths[k].latent_z, reading.fresh_values(work.truths[k].forest.n_latents, FRESH_PROBES, seed=k)]
        )
        along = probe_directions(A, reading.read(A, where, values[where.latent]))
        inside, outside = place_samples(where, s.rows)
        index = torch.from_numpy(where.depth_index).to(A.device)
        for t in range(1 + FRESH_PROBES):
            key = "probe" if t == 0 else f"fresh_{t}"
            mean, size = push(A, rest, inside, along[index, t], s.doses)
            keep(key, mean)
            keep(f"{key}_size", size)
            there = outside[:, 0] >= 0
            beyond = np.full((len(there), len(s.doses)), np.nan)
            chosen = torch.from_numpy(there).to(A.device)
            beyond[there] = push(A, rest, outside[there], along[chosen, t], s.doses)[1]
            keep(f"{key}_leak", beyond[where.depth_index])
    return {key: np.concatenate(v, axis=1 if key in ("own", "random") else 0) for key, v in found.items()}


def _look_at_features(
    work: Work, A: torch.Tensor, rest: Rest, pairs: list[Siblings], wanted: bool
) -> dict[str, Floats]:
    """Return responses along the part of own directions that the best feature of k-means carries, and another one."""
    s = work.settings
    P = sum(map(len, pairs))
    shape = (2, P, len(s.doses))
    found = {name: np.full(shape, np.nan) for name in ("feature", "other_feature", "feature_leak", "feature_size")}
    if not wanted:
        return found
    rows = work.held_out
    values = A[torch.from_numpy(rows).to(A.device)].cpu().numpy()
    method = KMeans(s.features, batch_size=4096).fit(values)
    codes = method.encode(values)
    centres = torch.from_numpy(np.asarray(method.directions)).to(A.device, torch.float64) - A.double().mean(0)
    units = centres / centres.norm(dim=1, keepdim=True)
    least = max(10, s.min_size * rows.size // len(work.dataset))
    first = 0
    for k, own in enumerate(pairs):
        table = score(work.dataset, codes, rows, k, min_size=least, draws=1, ratio=1.0).concepts
        best = _best_features(table, work.truths[k].forest, own)
        here = slice(first, first + len(own))
        first += len(own)
        responses = _feature_responses(A, rest, own, best, units, s.rows, s.doses, work.truths[k].rows.size)
        for name, response in responses.items():
            found[name][:, here] = response
    return found


def _best_features(table: Any, forest: Any, pairs: Siblings) -> Ints:
    """Return (2, P) the feature that matches each sibling best, -1 where none matches well."""
    children = forest.latent_children[pairs.parent].T - forest.n_points
    good = table[table["f1"] >= LEAST_F1]
    feature = np.full(forest.n_latents, -1, np.int64)
    feature[good["latent"].to_numpy()] = good["best_feature"].to_numpy()
    found: Ints = feature[children]
    return found


def _feature_responses(
    A: torch.Tensor, rest: Rest, pairs: Siblings, best: Ints, units: torch.Tensor, count: int, doses: Any, n: int
) -> dict[str, Floats]:
    """Return (2, P, D) responses on a concept, on samples outside its parent, and to another concept's feature."""
    vectors = own_directions(A, pairs)
    samples = sibling_samples(pairs, count)
    side, pair = np.nonzero(best >= 0)
    blank = np.full((*best.shape, len(doses)), np.nan)
    found = {name: blank.copy() for name in ("feature", "other_feature", "feature_leak", "feature_size")}
    if not side.size:
        return found
    own = vectors[torch.from_numpy(side).to(A.device), torch.from_numpy(pair).to(A.device)]

    def carried(features: Ints) -> torch.Tensor:
        unit = units[torch.from_numpy(features).to(A.device)]
        return (own * unit).sum(1, keepdim=True) * unit

    features = best[side, pair]
    mean, size = push(A, rest, samples[side, pair], carried(features), doses)
    found["feature"][side, pair], found["feature_size"][side, pair] = mean, size
    outside = pairs.order[beyond_rows(pairs.start[pair], pairs.stop[pair], n, count)]
    leak = push(A, rest, outside, carried(features), doses)[1]
    leak[pairs.stop[pair] - pairs.start[pair] == n] = np.nan  # there is no elsewhere
    found["feature_leak"][side, pair] = leak
    found["other_feature"][side, pair] = push(A, rest, samples[side, pair], carried(np.roll(features, 1)), doses)[0]
    return found


def _truths(work: Work, pairs: list[Siblings], places: list[Places]) -> Arrays:
    """Return what the truth says, and what the units are."""
    y = [t.y[t.rows] for t in work.truths]
    true = np.concatenate([true_differences(own, y[k]) for k, own in enumerate(pairs)], axis=1)
    depth = np.concatenate([where.depths[where.depth_index] for where in places])
    columns = relevance.columns_of(pairs)
    return {
        **columns,
        "true": true,
        "law": 1 / np.sqrt(1 + depth),
        "latent_depth": depth,
        "latent_factor": np.repeat(np.arange(len(places)), [len(where) for where in places]),
        "latent_place": np.concatenate([where.start for where in places]),
    }


# ---------------------------------------------------------------------- estimates


def response_line(truth: Floats, response: Floats, blocks: Ints) -> tuple[Estimate, Estimate]:
    """Return slope and r² of responses over what the truth says, through the origin, with intervals.

    Parameters
    ----------
    truth
        (…, U) what the change should be.
    response
        (S, …, U) what it is, by seed; NaN are left out.
    blocks
        (U,) blocks of kin.
    """

    def line(part: str) -> Any:
        def statistic(seeds: Ints, units: Ints) -> float:
            y = response[seeds][..., units]
            x = np.broadcast_to(truth[..., units], y.shape)
            known = np.isfinite(y)
            return float(getattr(line_through_origin(x[known], y[known]), part))

        return statistic

    axes = [np.arange(len(response)), blocks]
    return jackknife(line("slope"), axes), jackknife(line("r2"), axes)


def leakage(inside: Floats, outside: Floats, blocks: Ints) -> Estimate:
    """Return the mean size of the response elsewhere over that on the concept, (S, U) each, with its interval."""

    def statistic(seeds: Ints, units: Ints) -> float:
        there, here = outside[np.ix_(seeds, units)], inside[np.ix_(seeds, units)]
        known = np.isfinite(there) & np.isfinite(here)
        return float(there[known].mean() / here[known].mean()) if known.any() else np.nan

    return jackknife(statistic, [np.arange(len(inside)), blocks])


def by_relevance(values: Floats, factor: Ints) -> dict[str, Floats]:
    """Return (S, …, U) responses where a unit's hierarchy is relevant, and the mean of those where it is not.

    Parameters
    ----------
    values
        (S, K, …, U) by seed and by the factor that the network was trained on.
    factor
        (U,) the factor of each unit.
    """
    K = values.shape[1]
    own = np.stack([values[:, factor[u], ..., u] for u in range(factor.size)], axis=-1).astype(np.float64)
    return {"relevant": own, "irrelevant": (values.sum(1) - own) / (K - 1)}


def analyse(found: Arrays, s: Settings) -> list[Row]:
    """Return slopes, r² and leakage by direction, layer and dose: relevant, irrelevant, untrained, and the nulls."""
    names = [str(name) for name in found["layers"]]
    rows: list[Row] = []
    for e, epoch in enumerate(found["epochs"]):
        for k, layer in enumerate(names):
            for d, dose in enumerate(s.doses):
                told = {"network": "trained" if epoch else "untrained", "layer": layer, "dose": dose}
                rows += _own_rows(found, (e, k, d), dose, told)
                rows += _probe_rows(found, (e, k, d), dose, told)
                if dose == 1.0 and epoch:
                    rows += _leak_rows(found, (e, k, d), told)
    return rows


def _own_rows(found: Arrays, at: tuple[int, int, int], dose: float, told: dict[str, Any]) -> list[Row]:
    """Return slopes along own, random and features' directions."""
    factor = found["factor"]
    blocks = relevance.blocks_of(factor, found["place"])
    e, k, d = at
    rows = []
    for direction in ("own", "random", "feature", "other_feature"):
        cases = by_relevance(found[direction][:, :, e, k, :, :, d], factor)
        for case, response in cases.items():
            if not np.isfinite(response).any():
                continue
            slope, r2 = response_line(dose * found["true"], response, blocks)
            here = {"direction": direction.replace("_", " "), "case": case, **told}
            rows += [row(slope, measure="slope", **here), row(r2, measure="r2", **here)]
    return rows


def _probe_rows(found: Arrays, at: tuple[int, int, int], dose: float, told: dict[str, Any]) -> list[Row]:
    """Return slopes along probes' directions, and of those of fresh values, all draws of them together."""
    factor = found["latent_factor"]
    blocks = relevance.blocks_of(factor, found["latent_place"])
    e, k, d = at
    rows = []
    for case in ("relevant", "irrelevant"):
        own = by_relevance(found["probe"][:, :, e, k, :, d], factor)[case]
        slope, r2 = response_line(dose * found["law"], own, blocks)
        here = {"direction": "probe", "case": case, **told}
        rows += [row(slope, measure="slope", **here), row(r2, measure="r2", **here)]
        draws = [found[f"fresh_{t}"][:, :, e, k, :, d] for t in range(1, FRESH_PROBES + 1)]
        fresh = np.stack([by_relevance(values, factor)[case] for values in draws])
        null = _fresh_slope(dose * found["law"], fresh)
        rows.append(row(null, measure="slope", direction="fresh probe", case=case, **told))
    return rows


def _fresh_slope(law: Floats, fresh: Floats) -> Estimate:
    """Return the mean slope of fresh draws (F, S, L), and where 95% of further draws fall."""
    slopes = [line_through_origin(np.broadcast_to(law, draw.shape), draw).slope for draw in fresh]
    return prediction(slopes, law.size)


def _leak_rows(found: Arrays, at: tuple[int, int, int], told: dict[str, Any]) -> list[Row]:
    """Return leakage of probes' and features' directions where the hierarchy is relevant."""
    e, k, d = at
    rows = []
    latents, pairs = found["latent_factor"], found["factor"]
    for direction, factor, place in (("probe", latents, "latent_place"), ("feature", pairs, "place")):
        parts = []
        for part in ("size", "leak"):
            values = found[f"{direction}_{part}"][:, :, e, k, ..., d]
            own = by_relevance(values, factor)["relevant"]
            parts.append(own if own.ndim == 2 else _mean_of_known(own))
        if np.isfinite(parts[0]).any():
            value = leakage(parts[0], parts[1], relevance.blocks_of(factor, found[place]))
            rows.append(row(value, measure="leakage", direction=direction, case="relevant", **told))
    return rows


def _mean_of_known(values: Floats) -> Floats:
    """Return (S, U) means over the two siblings (S, 2, U) of what is not NaN."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0).sum(1) / known.sum(1)
    return mean


__all__ = ["WORDS", "analyse", "draw", "headline", "measure", "train"]
