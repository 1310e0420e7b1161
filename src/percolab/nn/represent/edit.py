"""Edit and retrain: whether a change of one value, once it is learned, moves activations along a shared direction.

From a trained network, training is continued once for each of several latents, with that latent's z changed and all
else as it was. What an edit does to activations is the difference to the same continuation without it: on the latent's
own samples, less the others. If z is held along some direction, these point the same way for all latents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.intervals import Estimate, jackknife, mean_interval
from percolab.intervals.lines import line_through_origin
from percolab.model.forest import Forest
from percolab.nn.frame.drawing import by_layer
from percolab.nn.frame.frame import Arrays
from percolab.nn.frame.page import Line, Words
from percolab.nn.frame.table import Row, row, select
from percolab.nn.networks.model import ResidualMLP, predict
from percolab.nn.networks.recording import activations, label
from percolab.nn.probing.siblings import find_siblings
from percolab.nn.represent.networks import forward_from, load_networks, streams, train_networks
from percolab.nn.represent.settings import Settings
from percolab.nn.represent.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EDITED = "edited.pt"
"""File of the networks after the edits."""
SHARES = (1 / 200, 1 / 4)
"""An edited latent has from the first to the second of these shares of all rows."""
SLOPE_ROWS = 4096
"""Samples that the mean slope of the prediction is taken over."""


# ---------------------------------------------------------------------- statistics


def shared_cosine(vectors: Floats) -> float:
    """Return the mean cosine of all pairs of (L, w) vectors: 1 if they point the same way, 0 if they share nothing."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, 1)
    L = len(unit)
    return float(((unit.sum(0) ** 2).sum() - (unit**2).sum()) / (L * (L - 1))) if L > 1 else np.nan


def without(vectors: Floats, direction: Floats) -> Floats:
    """Return (…, w) vectors without their part along a direction (w,)."""
    unit = direction / np.linalg.norm(direction)
    return vectors - (vectors @ unit)[..., None] * unit


def shared_interval(vectors: Floats) -> Estimate:
    """Return the mean over seeds of `shared_cosine` of (S, L, w) vectors, leaving out seeds and latents in turn."""

    def statistic(seeds: Ints, latents: Ints) -> float:
        return float(np.mean([shared_cosine(vectors[s, latents]) for s in seeds]))

    S, L = vectors.shape[:2]
    return jackknife(statistic, S, np.arange(L))


# ---------------------------------------------------------------------- training and measuring


def edited_latents(forest: Forest, count: int) -> Ints:
    """Return latents to edit: disjoint, of middle size, each the smaller of two siblings, the least deep first."""
    n = forest.n_points
    low, high = (max(2, int(share * n)) for share in SHARES)
    pairs = find_siblings(forest, np.arange(n), low)
    children = forest.latent_children[pairs.parent] - n
    chosen = children[np.arange(len(pairs)), forest.latent_size[children].argmin(1)]
    chosen = chosen[forest.latent_size[chosen] <= high]
    taken: list[int] = []
    used = np.zeros(n, np.bool_)
    for latent in chosen[np.argsort(forest.latent_depth[chosen], kind="stable")]:
        rows = forest.points_of(int(latent))
        if not used[rows].any() and len(taken) < count:
            used[rows] = True
            taken.append(int(latent))
    if len(taken) < 2:
        raise ValueError(f"dataset must have at least two separate latents of {low} to {high} rows, got {len(taken)}")
    return np.array(taken)


def _edited(dataset: Dataset, latent: Any, change: float) -> Floats:
    """Return y after a latent's value has been raised."""
    edited: Floats = dataset.do({int(latent): float(dataset.latent_z[latent]) + change}).y
    return edited


def train(work: Work) -> dict[str, Any]:
    """Train a network for each seed; then go on from it with each latent's value changed, and with none changed.

    The edits and one continuation without have the same order of rows, that of the seed; as many others without an
    edit as there are latents have orders of their own.
    """
    s, dataset = work.settings, work.truths[0].dataset
    configs = s.training.with_seeds(range(s.seeds))
    scores = train_networks(dataset, configs, None, work.split, s.keep, work.output, work.device, work.progress)
    latents = edited_latents(dataset.forest, s.latents)
    y = np.stack([_edited(dataset, i, s.change) for i in latents])
    members, models, targets = [], [], []
    again = replace(s.training, epochs=s.retraining)
    for number, config in enumerate(again.with_seeds(range(s.seeds))):
        orders = [number] * (latents.size + 1) + [s.seeds + number * latents.size + r for r in range(latents.size)]
        members += [replace(config, order_seed=order) for order in orders]
        models += [work.networks.model(number, work.networks.last, work.device) for _ in orders]
        targets += [*y, *([dataset.y] * (1 + latents.size))]
    train_networks(
        dataset, members, np.stack(targets), work.split, (s.retraining,), work.output, work.device, work.progress,
        models=models, file=EDITED,
    )  # fmt: skip
    return {**scores, "networks": len(configs) + len(members), "edited": latents.tolist()}


def measure(work: Work) -> Arrays:
    """Measure by how much edits move activations and predictions of the latents' own samples, and of all others."""
    s, dataset = work.settings, work.truths[0].dataset
    forest, networks = dataset.forest, load_networks(work.output, EDITED)
    latents = edited_latents(forest, s.latents)
    names = streams(work.networks.model(0, 0, work.device))
    each = 2 * latents.size + 1
    found: dict[str, list[Any]] = {"edit": [], "null": [], "slope": [], "inside": [], "outside": []}
    for number in range(s.seeds):
        means, predictions = [], []
        for m in range(each):
            work.progress("measures", number * each + m, s.seeds * each)
            model = networks.model(number * each + m, networks.last, work.device)
            recorded = activations(model, work.inputs, names, device=work.device)
            means.append([_contrasts(recorded[name], forest, latents) for name in names])
            predictions.append(predict(model, work.inputs).double().cpu().numpy())
        edits, plain, others = means[: latents.size], means[latents.size], means[latents.size + 1 :]
        own = range(latents.size)
        found["edit"].append([[edits[i][k][i] - plain[k][i] for i in own] for k in range(len(names))])
        # Two continuations with other orders, and none of them twice, so that nulls of two latents are independent.
        pairs = [(2 * i, 2 * i + 1) for i in range(latents.size // 2)]
        null = [[others[a][k][i] - others[b][k][i] for i, (a, b) in enumerate(pairs)] for k in range(len(names))]
        found["null"].append(null)
        base = work.networks.model(number, work.networks.last, work.device)
        found["slope"].append([mean_slope(base, name, work.inputs) for name in names])
        moved = [predictions[i] - predictions[latents.size] for i in own]
        spans = [forest.points_of(int(i)) for i in latents]
        found["inside"].append([moved[i][spans[i]].mean() for i in own])
        found["outside"].append([np.abs(np.delete(moved[i], spans[i])).mean() for i in own])
    work.progress("measures", s.seeds * each, s.seeds * each)
    law = [float((_edited(dataset, i, s.change) - dataset.y)[forest.points_of(int(i))].mean()) for i in latents]
    arrays = {name: np.array(values, np.float32) for name, values in found.items()}
    return {**arrays, "layers": np.array(names), "law": np.array(law), "latents": latents}


def _contrasts(A: torch.Tensor, forest: Forest, latents: Ints) -> Floats:
    """Return (L, w): the mean of each latent's rows, less that of all others."""
    total, n = A.double().sum(0), len(A)
    parts = []
    for latent in latents:
        rows = forest.points_of(int(latent))
        inside = A[rows].double().sum(0)
        count = rows.stop - rows.start
        parts.append(inside / count - (total - inside) / (n - count))
    result: Floats = torch.stack(parts).cpu().numpy()
    return result


def mean_slope(model: ResidualMLP, layer: str, X: torch.Tensor) -> Floats:
    """Return (w,) the mean gradient of the prediction by the residual stream after a layer, over some samples."""
    some = X[:: max(1, len(X) // SLOPE_ROWS)]
    h = activations(model, some, [layer], device=X.device)[layer].requires_grad_()
    forward_from(model, layer, h).sum().backward()
    assert h.grad is not None
    result: Floats = h.grad.double().mean(0).cpu().numpy()
    return result


# ---------------------------------------------------------------------- estimates


def analyse(found: Arrays, work: Work) -> list[Row]:
    """Return how much of a direction edits share, with and without that of the prediction's slope, and the null."""
    rows: list[Row] = []
    for k, layer in enumerate(str(name) for name in found["layers"]):
        slope = found["slope"][:, k].astype(np.float64)
        for case in ("edit", "null"):
            vectors = found[case][:, k].astype(np.float64)
            rest = np.stack([without(own, along) for own, along in zip(vectors, slope, strict=True)])
            rows.append(row(shared_interval(vectors), measure="shared cosine", case=case, layer=layer))
            rows.append(row(shared_interval(rest), measure="shared cosine, rest", case=case, layer=layer))
            rows.append(row(_along(vectors, slope), measure="cosine with the slope", case=case, layer=layer))
    inside = found["inside"].astype(np.float64)
    across = len(inside), np.arange(inside.shape[1])  # edited latents are disjoint: each is a block
    learned = jackknife(
        lambda seeds, units: (
            line_through_origin(
                np.broadcast_to(found["law"][units], (len(seeds), len(units))), inside[np.ix_(seeds, units)]
            ).slope
        ),
        *across,
    )
    outside = found["outside"].astype(np.float64)
    leak = jackknife(
        lambda seeds, units: float(outside[np.ix_(seeds, units)].mean() / np.abs(inside[np.ix_(seeds, units)]).mean()),
        *across,
    )
    return [*rows, row(learned, measure="learned"), row(leak, measure="leakage")]


def _along(vectors: Floats, slope: Floats) -> Estimate:
    """Return the mean cosine of (S, L, w) vectors with a direction (S, w)."""
    unit = slope / np.linalg.norm(slope, axis=1, keepdims=True)
    length = np.linalg.norm(vectors, axis=2)
    cosine = np.einsum("slw,sw->sl", vectors, unit) / np.where(length > 0, length, 1)
    return mean_interval(cosine)


# ---------------------------------------------------------------------- report

WORDS = Words(
    title="Edit and retrain",
    question="When the value of one latent changes and training goes on, do activations change along a direction that "
    "is shared by all latents?",
    method="From each trained network training is continued, once for each of several separate latents, with that "
    "latent's z raised and all else as it was. The change of activations is the difference to a continuation without "
    "the edit, in the same order of rows: mean over the latent's samples less mean over all others. The shared cosine "
    "is the mean cosine of the changes of two latents.",
    control="The null is retraining with no change, in other orders of rows: differences of two such continuations, "
    "other ones for each latent. A second control is the slope of the prediction. A residual stream is added up to "
    "the readout, so whatever raises the prediction has a part along one direction in every layer: the rest is what "
    "is shared once that direction, the mean gradient of the prediction, has been taken out. After the last block "
    "this part is all that matters to the prediction, by construction, so that block is left out.",
    captions={
        "shared": "Mean cosine of the changes of two latents, by layer: as they are, and without the part along the "
        "slope of the prediction.",
        "slope": "Mean cosine of the changes with the slope of the prediction.",
    },
)


def headline(rows: Sequence[Row], s: Settings) -> list[Line]:
    """Return how well edits were learned, and what they share in every layer."""
    lines = [
        Line(
            "change of the prediction on the edited latent, over what the law says", select(rows, measure="learned")[0]
        ),
        Line("size of the change elsewhere, over that on the latent", select(rows, measure="leakage")[0], -1, 1.0),
    ]
    for measure, words in (
        ("shared cosine", "shared cosine"),
        ("shared cosine, rest", "shared cosine, slope taken out"),
    ):
        for own in select(rows, measure=measure, case="edit"):
            null = select(rows, measure=measure, case="null", layer=own["layer"])[0]
            lines.append(Line(f"{words}, {label(own['layer'])}", own, 1, 0.0, null, "no change"))
    return lines


def draw(rows: Sequence[Row], s: Settings) -> dict[str, Figure]:
    """Draw shared cosines by layer, and cosines with the slope of the prediction."""
    names = list(dict.fromkeys(r["layer"] for r in rows if "layer" in r))
    shared = {
        "edits": select(rows, measure="shared cosine", case="edit"),
        "edits, slope taken out": select(rows, measure="shared cosine, rest", case="edit"),
        "no change (null)": select(rows, measure="shared cosine", case="null"),
        "no change, slope taken out (null)": select(rows, measure="shared cosine, rest", case="null"),
    }
    slope = {
        "edits": select(rows, measure="cosine with the slope", case="edit"),
        "no change (null)": select(rows, measure="cosine with the slope", case="null"),
    }
    title = f"{s.data}: "
    return {
        "shared": by_layer(shared, names, title + "directions that edits share", "mean cosine of two latents"),
        "slope": by_layer(slope, names, title + "along the slope of the prediction", "mean cosine with the slope"),
    }
