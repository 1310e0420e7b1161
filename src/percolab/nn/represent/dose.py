"""Dose and response: whether pushing activations along a direction changes the prediction as the truth says.

Three kinds of direction, in the residual stream after a layer, in a superposed world:

- *own*: from a concept's mean to its sibling's. Its samples are pushed by a fraction or a multiple of it, and the mean
  change of the prediction is compared with the true difference of mean y.
- *probe*: along what a ridge probe of z at some depth reads, as far as the reading rises with a change of z by δ. By
  the law this should change the prediction by δ / √(1 + latents above the sample's point) where there is such a latent,
  and by 0 elsewhere.
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
from percolab.nn.frame.frame import Arrays
from percolab.nn.networks.recording import RAW, activations
from percolab.nn.probing import siblings
from percolab.nn.probing.latent_values import fresh_values
from percolab.nn.probing.places import Places, read_places
from percolab.nn.probing.siblings import Siblings
from percolab.nn.represent import relevance
from percolab.nn.represent.dose_estimates import analyse
from percolab.nn.represent.dose_report import WORDS, draw, headline
from percolab.nn.represent.networks import forward_from, streams
from percolab.nn.represent.pushing import (
    FRESH_PROBES,
    LEAST_DEPTH,
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
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANDOM_DRAWS = 3
"""Random directions for each concept."""
LEAST_F1 = 0.3
"""A feature of a concept has at least this F1."""


# ---------------------------------------------------------------------- training and measuring

train = relevance.train


class _Hierarchy:
    """One hierarchy, and the samples of it that are pushed: found once, for all networks and layers."""

    def __init__(self, work: Work, number: int, pairs: Siblings, places: Places) -> None:
        s, truth = work.settings, work.truths[number]
        self.number, self.forest, self.pairs, self.places = number, truth.forest, pairs, places
        self.n = truth.rows.size
        self.ready = siblings.ready(pairs, work.device)
        self.samples = sibling_samples(pairs, s.rows)
        self.true = true_differences(pairs, truth.y[truth.rows])
        fresh = fresh_values(truth.forest, FRESH_PROBES, seed=number)
        self.values = np.column_stack([truth.latent_z, fresh])[self.places.latent]
        self.inside, self.outside = place_samples(self.places, s.rows)
        # By the law a change of z by 1 changes y of a point by 1 / √(1 + number of latents above the point).
        self.law = (1 / np.sqrt(1 + truth.forest.point_depth[truth.rows[self.inside]])).mean(1)

    @property
    def latent_depth(self) -> Ints:
        """(L,) depth of the latents that are probed."""
        return self.places.depths[self.places.depth_index]


def measure(work: Work) -> Arrays:
    """Push in every layer but the last of every network, before and after training, for every hierarchy."""
    s, K = work.settings, len(work.truths)
    units = zip(relevance.pairs_of(work), work.probed(LEAST_DEPTH), strict=True)
    hierarchies = [_Hierarchy(work, k, *own) for k, own in enumerate(units)]
    epochs = (0, work.networks.last)
    names = [RAW, *streams(work.networks.model(0, 0, work.device))]
    parts: dict[str, list[Floats]] = {}
    for _, j, model in work.looks(range(s.seeds * K), epochs):
        model.eval()
        recorded = {RAW: work.inputs, **activations(model, work.inputs, names[1:], device=work.device)}
        for name in names:

            def rest(h: torch.Tensor, model: Any = model, name: str = name) -> torch.Tensor:
                return forward_from(model, name, h)

            A, with_features = recorded[name], epochs[j] > 0 and name not in (RAW, "input")
            pushed = [
                _push_own(A, rest, hierarchies, s),
                _push_probes(A, rest, hierarchies, s),
                _push_features(A, rest, hierarchies, work, with_features),
            ]
            for key, values in (item for part in pushed for item in part.items()):
                parts.setdefault(key, []).append(values)
    shape = (s.seeds, K, len(epochs), len(names))
    found: Arrays = {key: np.stack(v).astype(np.float32).reshape(*shape, *v[0].shape) for key, v in parts.items()}
    return {**found, **_truths(hierarchies), "layers": np.array(names), "epochs": np.array(epochs)}


def _push_own(A: torch.Tensor, rest: Rest, hierarchies: list[_Hierarchy], s: Settings) -> dict[str, Floats]:
    """Return (2, P, D) responses along own and random directions."""
    own, random = [], []
    for h in hierarchies:
        vectors, samples = own_directions(A, h.ready), h.samples.reshape(-1, s.rows)
        chosen = [vectors, *(random_like(vectors, seed) for seed in range(RANDOM_DRAWS))]
        first, *drawn = (
            push(A, rest, samples, v.flatten(0, 1), s.doses)[0].reshape(2, len(h.pairs), -1) for v in chosen
        )
        own.append(first)
        random.append(np.mean(drawn, 0))
    return {"own": np.concatenate(own, 1), "random": np.concatenate(random, 1)}


def _push_probes(A: torch.Tensor, rest: Rest, hierarchies: list[_Hierarchy], s: Settings) -> dict[str, Floats]:
    """Return (L, D) responses along directions of probes of z, their size there and elsewhere; and of fresh values."""
    found: dict[str, list[Floats]] = {}
    for h in hierarchies:
        along = probe_directions(A, read_places(A, h.places, h.values))
        index = torch.from_numpy(h.places.depth_index).to(A.device)
        there = h.outside[:, 0] >= 0
        beyond = np.full((there.size, len(s.doses)), np.nan)
        beyond[there] = push(A, rest, h.outside[there], along[torch.from_numpy(there).to(A.device), 0], s.doses)[1]
        found.setdefault("probe_leak", []).append(beyond[h.places.depth_index])
        for t in range(1 + FRESH_PROBES):
            mean, size = push(A, rest, h.inside, along[index, t], s.doses)
            found.setdefault(f"fresh_{t}" if t else "probe", []).append(mean)
            if t == 0:
                found.setdefault("probe_size", []).append(size)
    return {key: np.concatenate(values) for key, values in found.items()}


FEATURE_KEYS = ("feature", "other_feature", "feature_leak", "feature_size")


def _push_features(
    A: torch.Tensor, rest: Rest, hierarchies: list[_Hierarchy], work: Work, wanted: bool
) -> dict[str, Floats]:
    """Return (2, P, D) responses along the part of own directions that features of k-means carry; NaN if not wanted."""
    s = work.settings
    if not wanted:
        shape = (2, sum(len(h.pairs) for h in hierarchies), len(s.doses))
        return {key: np.full(shape, np.nan) for key in FEATURE_KEYS}
    rows = work.scored
    values = A[torch.from_numpy(rows).to(A.device)].cpu().numpy()
    method = KMeans(s.features, batch_size=4096).fit(values)
    codes = method.encode(values)
    centres = torch.from_numpy(np.asarray(method.directions)).to(A.device, torch.float64) - A.double().mean(0)
    units = centres / centres.norm(dim=1, keepdim=True)
    least = max(10, s.min_size * rows.size // len(work.dataset))
    parts = []
    for h in hierarchies:
        table = score(work.dataset, codes, rows, h.number, min_size=least, draws=1, ratio=1.0).concepts
        parts.append(_feature_responses(A, rest, h, _best_features(table, h), units, s))
    return {key: np.concatenate([part[key] for part in parts], 1) for key in FEATURE_KEYS}


def _best_features(table: Any, h: _Hierarchy) -> Ints:
    """Return (2, P) the feature that matches each sibling best, -1 where none matches well."""
    children = h.forest.latent_children[h.pairs.parent].T - h.forest.n_points
    good = table[table["f1"] >= LEAST_F1]
    feature = np.full(h.forest.n_latents, -1, np.int64)
    feature[good["latent"].to_numpy()] = good["best_feature"].to_numpy()
    found: Ints = feature[children]
    return found


def _feature_responses(
    A: torch.Tensor, rest: Rest, h: _Hierarchy, best: Ints, units: torch.Tensor, s: Settings
) -> dict[str, Floats]:
    """Return (2, P, D) responses on a concept, on samples outside its parent, and to another concept's feature."""
    side, pair = np.nonzero(best >= 0)
    found = {name: np.full((*best.shape, len(s.doses)), np.nan) for name in FEATURE_KEYS}
    if not side.size:
        return found
    chosen = torch.from_numpy(side).to(A.device), torch.from_numpy(pair).to(A.device)
    own, features, samples = own_directions(A, h.ready)[chosen], best[side, pair], h.samples[side, pair]

    def carried(numbers: Ints) -> torch.Tensor:
        unit = units[torch.from_numpy(numbers).to(A.device)]
        return (own * unit).sum(1, keepdim=True) * unit

    start, stop = h.pairs.start[pair], h.pairs.stop[pair]
    outside = h.pairs.order[beyond_rows(start, stop, h.n, s.rows)]
    mean, size = push(A, rest, samples, carried(features), s.doses)
    leak = push(A, rest, outside, carried(features), s.doses)[1]
    leak[stop - start == h.n] = np.nan  # there is no elsewhere
    partner = unrelated(*_extents(h, side, pair), features, np.random.default_rng(h.number))
    other = push(A, rest, samples, carried(features[partner]), s.doses)[0]
    other[partner < 0] = np.nan
    for key, values in zip(FEATURE_KEYS, (mean, other, leak, size), strict=True):
        found[key][side, pair] = values
    return found


def _extents(h: _Hierarchy, side: Ints, pair: Ints) -> tuple[Ints, Ints]:
    """Return where the points of siblings begin and end."""
    latent = h.forest.latent_children[h.pairs.parent[pair], side] - h.forest.n_points
    start = h.forest.latent_start[latent]
    return start, start + h.forest.latent_size[latent]


def unrelated(start: Ints, stop: Ints, feature: Ints, rng: np.random.Generator) -> Ints:
    """Return for each concept the number of another, at random among those that share no point and no feature with it.

    -1 where there is none.
    """
    apart = (start[:, None] >= stop) | (stop[:, None] <= start)
    able = apart & (feature[:, None] != feature)
    chosen: Ints = np.where(able, rng.random(able.shape), -1.0).argmax(1)
    return np.where(able.any(1), chosen, -1)


def _truths(hierarchies: list[_Hierarchy]) -> Arrays:
    """Return what the truth says, and what the units are."""
    sizes = [len(h.places) for h in hierarchies]
    return {
        **relevance.columns_of([h.pairs for h in hierarchies]),
        "true": np.concatenate([h.true for h in hierarchies], 1),
        "law": np.concatenate([h.law for h in hierarchies]),
        "latent_depth": np.concatenate([h.latent_depth for h in hierarchies]),
        "latent_factor": np.repeat(np.arange(len(hierarchies)), sizes),
        "latent_place": np.concatenate([h.places.start for h in hierarchies]),
    }


__all__ = ["WORDS", "analyse", "draw", "headline", "measure", "train"]
