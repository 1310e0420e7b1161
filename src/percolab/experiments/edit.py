"""Edit and retrain.

When the value of one latent changes and training goes on, do activations change along a direction that is shared by all
latents?

From each trained network training is continued, once for each of several separate latents, with that latent's z raised
and all else as it was. The change of activations is the difference to a continuation without the edit, in the same
order of rows: mean over the latent's samples less mean over all others. The shared cosine is the mean cosine of the
changes of two latents.

The null is retraining with no change, in other orders of rows: differences of two such continuations, other ones for
each latent. A second control is the slope of the prediction. A residual stream is added up to the readout, so whatever
raises the prediction has a part along one direction in every layer: the rest is what is shared once that direction, the
mean gradient of the prediction, has been taken out. After the last block this part is all that matters to the
prediction, by construction, so that block is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch

from percolab.dataset.dataset import Dataset
from percolab.experiments.responses import forward_from, leakage, response_line, streams
from percolab.ground.arrays import Floats, Ints
from percolab.intervals import Estimate, jackknife, mean_interval
from percolab.model.forest import Forest
from percolab.nn.config import TrainConfig
from percolab.nn.networks.activations import activations, label
from percolab.nn.networks.model import ResidualMLP, predict
from percolab.nn.probing.siblings import find_siblings
from percolab.study.cells import Cell
from percolab.study.estimates import Line, Row, layers_of, row, select
from percolab.study.experiment import Results, declared
from percolab.study.material import Array, Material, Networks, cell_of, networks_cell
from percolab.study.pictures import by_layer, drawn_by
from percolab.study.settings import HIERARCHY, Settings

SHARES = (1 / 200, 1 / 4)  #: An edited latent has from the first to the second of these shares of all rows.
SLOPE_ROWS = 4096  #: Number of samples for the mean slope of the prediction.


@dataclass(frozen=True)
class Options:
    """Options of this experiment besides data and networks."""

    latents: int = 16  #: number of edited latents, and of retrainings without an edit
    retraining: int = 40  #: epochs of training after an edit
    #: added to a value by an edit: y changes by this over the root of the number of latents above a point
    change: float = 8.0


def options(scale: str, seeds: int, training: TrainConfig) -> Options:
    """Return the options of a scale."""
    return Options() if scale == "paper" else Options(latents=6, retraining=10, change=4.0)


# ---------------------------------------------------------------------- statistics


def shared_cosine(vectors: Floats) -> float:
    """Return the mean cosine of all pairs of (L, w) vectors: 1 for equal directions, 0 for unrelated ones."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(length > 0, length, 1)
    L = len(unit)
    return float(((unit.sum(0) ** 2).sum() - (unit**2).sum()) / (L * (L - 1))) if L > 1 else np.nan


def without(vectors: Floats, direction: Floats) -> Floats:
    """Return (…, w) vectors without their component along a direction (w,)."""
    unit = direction / np.linalg.norm(direction)
    return vectors - (vectors @ unit)[..., None] * unit


def shared_interval(vectors: Floats) -> Estimate:
    """Return the mean over seeds of `shared_cosine` of (S, L, w) vectors, leaving out seeds and latents in turn."""

    def statistic(seeds: Ints, latents: Ints) -> float:
        return float(np.mean([shared_cosine(vectors[s, latents]) for s in seeds]))

    S, L = vectors.shape[:2]
    return jackknife(statistic, S, np.arange(L))


# ---------------------------------------------------------------------- training and measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """The changes of activations and predictions by edits."""

    edit: Array  #: (S, layers, L, w) the change of activations by each edit
    null: Array  #: (S, layers, L / 2, w) the same without an edit
    slope: Array  #: (S, layers, w) mean gradient of the prediction
    inside: Annotated[Array, ("seed", "latent")]  #: change of the prediction on the latent's own samples
    outside: Annotated[Array, ("seed", "latent")]  #: size of the change on all others
    law: Annotated[Array, ("latent",)]  #: the exact change inside
    layers: list[str]
    latents: list[int]
    training: dict[str, Any]


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
    return np.asarray(dataset.do({int(latent): float(dataset.latent_z[latent]) + change}).y, np.float64)


def cells(s: Settings[Options]) -> list[Cell[Any]]:
    """Return three cells: networks, their continuations, and the measurements on both."""
    networks = networks_cell(s, Material.train)
    edited = networks_cell(s, retrain, networks, name="edited")
    return [networks, edited, cell_of(s, "measures", Measured, measure, networks, edited)]


def retrain(data: Material, networks: Networks) -> Networks:
    """Continue training each network with each latent's value changed, and with none changed.

    The edits and one continuation without have the same order of rows, that of the seed; as many others without an
    edit as there are latents have orders of their own.
    """
    s, dataset, [first, *_] = data.settings, data.truths[0].dataset, data.settings.network_seeds
    latents = edited_latents(dataset.forest, s.options.latents)
    y = np.stack([_edited(dataset, i, s.options.change) for i in latents])
    members, models, targets = [], [], []
    again = replace(s.training, epochs=s.options.retraining)
    for number, config in enumerate(again.with_seeds(s.network_seeds)):
        others = first + s.seeds + number * latents.size
        orders = [first + number] * (latents.size + 1) + [others + r for r in range(latents.size)]
        members += [replace(config, order_seed=order) for order in orders]
        models += [data.model(networks, number) for _ in orders]
        targets += [*y, *([dataset.y] * (1 + latents.size))]
    return data.train(members, models, targets=np.stack(targets))


def measure(data: Material, networks: Networks, edited: Networks) -> Measured:
    """Measure the changes of activations and predictions by edits, on the latent's samples and on all others."""
    s, dataset, forest = data.settings, data.truths[0].dataset, data.truths[0].forest
    latents = edited_latents(forest, s.options.latents)
    names = streams(data.model(networks))
    each, indices = 2 * latents.size + 1, range(latents.size)
    spans = [forest.points_of(int(i)) for i in latents]
    columns: dict[str, list[Any]] = {"edit": [], "null": [], "slope": [], "inside": [], "outside": []}
    means: list[list[Floats]] = []
    predictions: list[Floats] = []
    for m, _, model in data.looks(edited, (edited.last,)):
        recorded = activations(model, data.inputs, names, device=data.device)
        means.append([_contrasts(recorded[name], forest, latents) for name in names])
        predictions.append(predict(model, data.inputs).double().cpu().numpy())
        if len(means) < each:
            continue
        edits, plain, others = means[: latents.size], means[latents.size], means[latents.size + 1 :]
        columns["edit"].append([[edits[i][k][i] - plain[k][i] for i in indices] for k in range(len(names))])
        # Two continuations with different orders, none used twice, so that nulls of two latents are independent.
        pairs = [(2 * i, 2 * i + 1) for i in range(latents.size // 2)]
        null = [[others[a][k][i] - others[b][k][i] for i, (a, b) in enumerate(pairs)] for k in range(len(names))]
        columns["null"].append(null)
        base = data.model(networks, m // each)
        columns["slope"].append([mean_slope(base, name, data.inputs) for name in names])
        moved = [predictions[i] - predictions[latents.size] for i in indices]
        columns["inside"].append([moved[i][spans[i]].mean() for i in indices])
        columns["outside"].append([np.abs(np.delete(moved[i], spans[i])).mean() for i in indices])
        means, predictions = [], []
    law = [float((_edited(dataset, i, s.options.change) - dataset.y)[forest.points_of(int(i))].mean()) for i in latents]
    return Measured(
        **{name: np.array(values, np.float32) for name, values in columns.items()}, law=np.array(law), layers=names,
        latents=latents.tolist(), training={**networks.scores, "networks": len(networks) + len(edited)},
    )  # fmt: skip


def _contrasts(A: torch.Tensor, forest: Forest, latents: Ints) -> Floats:
    """Return (L, w): the mean over each latent's rows less the mean over all other rows."""
    total, n = A.double().sum(0), len(A)
    parts = []
    for latent in latents:
        rows = forest.points_of(int(latent))
        inside = A[rows].double().sum(0)
        count = rows.stop - rows.start
        parts.append(inside / count - (total - inside) / (n - count))
    return np.asarray(torch.stack(parts).cpu(), np.float64)


def mean_slope(model: ResidualMLP, layer: str, X: torch.Tensor) -> Floats:
    """Return (w,) the mean gradient of the prediction with respect to the residual stream after a layer."""
    some = X[:: max(1, len(X) // SLOPE_ROWS)]
    h = activations(model, some, [layer], device=X.device)[layer].requires_grad_()
    forward_from(model, layer, h).sum().backward()
    assert h.grad is not None
    return np.asarray(h.grad.double().mean(0).cpu(), np.float64)


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return how much of a direction edits share, with and without the slope of the prediction, and the null."""
    measured: Measured = results["measures"]
    for k, layer in enumerate(measured.layers):
        slope = measured.slope[:, k].astype(np.float64)
        for case, moved in (("edit", measured.edit), ("null", measured.null)):
            vectors = moved[:, k].astype(np.float64)
            rest = np.stack([without(change, along) for change, along in zip(vectors, slope, strict=True)])
            yield row(shared_interval(vectors), measure="shared cosine", case=case, layer=layer)
            yield row(shared_interval(rest), measure="shared cosine, rest", case=case, layer=layer)
            yield row(_along(vectors, slope), measure="cosine with the slope", case=case, layer=layer)
    inside, outside = measured.inside.astype(np.float64), measured.outside.astype(np.float64)
    each = np.arange(inside.shape[1])  # edited latents are disjoint: each is a block
    learned, _ = response_line(measured.law, inside, each)
    yield row(learned, measure="learned")
    yield row(leakage(np.abs(inside), outside, each), measure="leakage")


def networks(s: Settings[Options], results: Results) -> dict[str, Any]:
    """Return the scores of the networks, and the edited latents."""
    return {**results["measures"].training, "edited": results["measures"].latents}


def _along(vectors: Floats, slope: Floats) -> Estimate:
    """Return the mean cosine of (S, L, w) vectors with a direction (S, w)."""
    unit = slope / np.linalg.norm(slope, axis=1, keepdims=True)
    length = np.linalg.norm(vectors, axis=2)
    cosine = np.einsum("slw,sw->sl", vectors, unit) / np.where(length > 0, length, 1)
    return mean_interval(cosine)


# ---------------------------------------------------------------------- page


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return how well edits were learned, and the direction that they share in every layer."""
    learned, leak = (select(rows, measure=name)[0] for name in ("learned", "leakage"))
    yield Line("change of the prediction on the edited latent, over what the law says", learned)
    yield Line("size of the change elsewhere, over that on the latent", leak, -1, 1.0)
    for measured, what in SHARED.items():
        for cosine in select(rows, measure=measured, case="edit"):
            null = select(rows, measure=measured, case="null", layer=cosine["layer"])[0]
            yield Line(f"{what}, {label(cosine['layer'])}", cosine, 1, 0.0, null, "no change")


SHARED = {"shared cosine": "shared cosine", "shared cosine, rest": "shared cosine, slope taken out"}
CASES = (("edits", "edit", ""), ("no change", "null", " (null)"))  #: Text, case, and the mark of a null.


def shared(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Mean cosine of the changes of two latents, by layer.

    As they are, and without the part along the slope of the prediction.
    """
    series = {
        f"{what}{taken}{null}": select(rows, measure=f"shared cosine{rest}", case=case)
        for what, case, null in CASES
        for taken, rest in (("", ""), (", slope taken out", ", rest"))
    }
    title = f"{s.data[0]}: directions that edits share"
    return by_layer(series, layers_of(rows), title, "mean cosine of two latents")


def slope(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Mean cosine of the changes with the slope of the prediction."""
    cosines = select(rows, measure="cosine with the slope")
    series = {f"{what}{null}": select(cosines, case=case) for what, case, null in CASES}
    title = f"{s.data[0]}: along the slope of the prediction"
    return by_layer(series, layers_of(rows), title, "mean cosine with the slope")


draw = drawn_by(shared, slope)
EXPERIMENT = declared(__name__, data=HIERARCHY)
