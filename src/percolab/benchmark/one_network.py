"""Methods on one network: each scored on the trained network, and on an untrained one of the same shape."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from percolab.features.register import MODEST, TRUTHFUL, Entry, fitted, make, on_device
from percolab.features.register import entry as as_entry
from percolab.features.result import MEANINGS, Score, number
from percolab.features.scoring import score
from percolab.ground.devices import Device, choose_device
from percolab.ground.progress import Display, Progress, shown
from percolab.nn.networks.activations import activations, label
from percolab.nn.networks.model import ResidualMLP
from percolab.show import dot_rows, pages
from percolab.study.measured import TRAINED, UNTRAINED
from percolab.worlds.superposed import AnyDataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGE = "methods"
COLUMNS = (
    "recovery", "chance", "recovered", "purity", "splitting", "absorption_edge", "explained_variance", "l0", "features",
)  # fmt: skip
ONE_EACH = "One network each, so there are no intervals: percolab benchmark has them."


@dataclass(frozen=True)
class Compared:
    """The score of a method on a network."""

    method: str
    network: str
    score: Score


def compare(
    dataset: AnyDataset,
    model: ResidualMLP,
    methods: Iterable[str],
    *,
    layer: str | None = None,
    seed: int = 0,
    device: Device = "auto",
    progress: bool | Progress = False,
    **options: Any,
) -> list[Compared]:
    """Score methods on a trained network and on an untrained one of the same shape.

    Parameters
    ----------
    dataset
        What the network was trained on.
    model
        The network.
    methods
        As for the benchmark: names, ``"package.module:Class"``, with options after ``@``.
    layer
        Module whose activations are looked at; None: the last block.
    seed
        Of the methods, of the untrained weights, and of the draws.
    device
        Where to compute.
    progress
        True shows a bar; a function is called with (stage, done, total).
    options
        Of `score`: factor, min_size, threshold, draws.
    """
    place, entries = choose_device(device), [as_entry(spec, MODEST) for spec in methods]
    for entry in entries:
        if entry.method in TRUTHFUL:
            raise ValueError(f"method must make features of activations, got {entry.name!r}")
    name = layer or f"blocks.{len(model.blocks) - 1}"
    networks = {TRAINED: model, UNTRAINED: untrained(model, seed)}
    found: list[Compared] = []
    total = len(networks) * len(entries)
    with shown(progress) as tell:
        for network, one in networks.items():
            A = activations(one, dataset.X, [name], device=place)[name]
            for entry in entries:
                tell(STAGE, len(found), total)
                if isinstance(tell, Display):
                    tell.note(STAGE, f"{entry.name}, {network}")
                result = _scored(dataset, entry, A, place, seed, options)
                found.append(Compared(entry.name, network, result))
        tell(STAGE, total, total)
    return found


def _scored(
    dataset: AnyDataset, entry: Entry, A: torch.Tensor, place: torch.device, seed: int, options: dict[str, Any]
) -> Score:
    """Return the score of a method fitted to activations."""
    given: Any = A if on_device(entry) else A.cpu().numpy()
    method = fitted(make(entry, seed, str(place), A.shape[1]), given)
    decoder: dict[str, Any] = {}
    if getattr(method, "directions", None) is not None:
        decoder = {"directions": method.directions, "bias": method.bias, "activations": A}
    return score(dataset, method.encode(given), seed=seed, **options, **decoder)


def untrained(model: ResidualMLP, seed: int) -> ResidualMLP:
    """Return a network of the same shape with fresh weights, by PyTorch's default initialisation."""
    fresh = copy.deepcopy(model).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in fresh.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
    return fresh


def rows(found: Sequence[Compared]) -> list[list[str]]:
    """Return a table as text: a heading, then each method, on the trained network first."""
    order = {one.method: i for i, one in reversed(list(enumerate(found)))}
    body = [
        [one.method, one.network, *(number(name, one.score.summary.get(name, float("nan"))) for name in COLUMNS)]
        for one in sorted(found, key=lambda one: (order[one.method], one.network != TRAINED))
    ]
    return [["method", "network", *(name.replace("_", " ") for name in COLUMNS)], *body]


def page(found: Sequence[Compared], title: str, layer: str) -> bytes:
    """Return a page with the recovery of every method, the table, and the plots of every method."""
    head, *body = rows(found)
    lead = (
        f"{found[0].score.settings['rows']:,} rows, {label(layer)}. Each method on the trained network and on one of "
        f"the same shape that was never trained. {ONE_EACH}"
    )
    best = max((one for one in found if one.network == TRAINED), key=lambda one: one.score.summary["recovery"])
    control = next(one for one in found if (one.method, one.network) == (best.method, UNTRAINED))
    numbers = [one.score.summary["recovery"] for one in (best, control)]
    verdict = (
        f"The best method, {best.method}, recovers {numbers[0]:.3f} of the concepts' F1 from the trained network and "
        f"{numbers[1]:.3f} from an untrained one."
    )
    parts = [pages.picture(_recovery(found), "Recovery by method, chance in grey: mean best F1 of a concept.")]
    parts += [*pages.wide_table(body, head, names=2), pages.definitions(MEANINGS)]
    for one in found:
        if one.network == TRAINED:
            caption = f"{one.method}: recovery by size over chance, purity, splitting by size, absorption by depth."
            figure = pages.picture(one.score.plot(), caption, wide=True)
            parts.append(pages.folded(f"{one.method} on the trained network, in pictures", [figure]))
    return pages.page(title, lead, parts, verdict=verdict)


def _recovery(found: Sequence[Compared]) -> Figure:
    """Draw recovery by method: the trained network, the untrained one, and chance."""
    series: dict[str, dict[str, dot_rows.Mark]] = {TRAINED: {}, UNTRAINED: {}, "chance": {}}
    for one in found:
        series[one.network][one.method] = dot_rows.Mark(one.score.summary["recovery"])
        if one.network == TRAINED:
            series["chance"][one.method] = dot_rows.Mark(one.score.summary["chance"])
    methods = list(dict.fromkeys(one.method for one in found))
    return dot_rows.draw(dot_rows.Panel(methods, series, "recovery: mean best F1 of a concept"))
