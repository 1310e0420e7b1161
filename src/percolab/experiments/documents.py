"""Documents.

Do networks learn the contexts of their documents, and because these contexts matter?

Two lexicons share their tokens. Transformers with the same initial weights are trained on documents of one lexicon
each. On held-out documents of either lexicon four kinds of networks are read: trained on this lexicon (own), trained on
the other one (other), untrained, and the raw input, which is a bag of the tokens so far in which older tokens count
less. Every concept, or pair of siblings, is compared with itself.

Beliefs: R² of a ridge regression from activations to the exact probability that the present context is inside each
context of the tree, on documents that it was not fitted on. Separation: the squared distance of sibling contexts' mean
activations over their summed variances, compared by log ratios. Features: the best F1 of any feature for each context,
on documents that the method was not fitted on. Features and separation are read at positions six or more into a
segment, by the true context.

Excess: the loss of a network above the floor, which is the mean loss of the exact predictor; no predictor can be below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from percolab.intervals import Estimate, over_seeds
from percolab.nn.networks.activations import label
from percolab.nn.networks.excess import excess
from percolab.nn.training.training import numbers
from percolab.study.cells import Cell
from percolab.study.comparison import listed, read_draw
from percolab.study.contrasts import OWN_OTHER, TRAINED_RAW, TRAINED_UNTRAINED, contrasts
from percolab.study.estimates import ENOUGH, Line, Row, layers_of, row, select
from percolab.study.experiment import Results, declared, of_recorded
from percolab.study.material import Material, Networks, Recorded, cell_of, networks_cell
from percolab.study.measured import OTHER, RAW, TRAINED, UNTRAINED, Columns, Measured
from percolab.study.pictures import by_layer, drawn_by
from percolab.study.readers import as_reader
from percolab.study.settings import DOCUMENTS, Settings, corpus_training
from percolab.study.subject import n_factors

INTO = "since=6+truth=true"  #: Positions six or more into a segment, by the true context.
ROLES = (TRAINED, OTHER, UNTRAINED, RAW)
MEASURES = {"r2": "R²", "f1": "F1", "separation": "log ratio"}  #: What the report calls the measures of readers.
CONTRASTS = (OWN_OTHER, TRAINED_UNTRAINED, TRAINED_RAW)


@dataclass(frozen=True)
class Options:
    """Options of this experiment besides data and networks."""

    readers: tuple[str, ...]  #: the usual readers; the verdict is about the first
    layers: tuple[str, ...]  #: the verdict is about the first, and only the first has features
    documents: int = 2000  #: held-out documents of each lexicon that are read
    activations: str = ""  #: folder of activations that replace the networks


def options(scale: str, seeds: int, training: Any) -> Options:
    """Return the options of a scale."""
    if scale == "small":
        readers = ("beliefs", f"separation@{INTO}", f"kmeans@n_features=64+{INTO}", f"neurons@{INTO}")
        return Options(readers, ("blocks.1", "input"), 400)
    sae = f"topk@n_features=2048+k=16+steps=3000+batch_size=4096+lr=0.001+{INTO}"
    methods = (sae, f"kmeans@n_features=512+{INTO}", f"neurons@{INTO}")
    return Options(("beliefs", f"separation@{INTO}", *methods), ("blocks.1", "blocks.3", "input"))


# ---------------------------------------------------------------------- cells


def cells(s: Settings[Options]) -> list[Cell[Any]]:
    """Return the cells of a draw: the networks, their excess, and the measures of each reader."""
    made_from, recorded = s.of_networks, s.options.activations
    networks = networks_cell(s, Material.train_by_factor, made_from=made_from)
    reading = []
    for reader in _readers(s):
        asked = {"reader": reader, "layers": _layers(s, reader), "documents": s.options.documents}
        how: dict[str, Any] = {"made_from": made_from | asked, "stage": "reading"}
        name, make = "reader-" + re.sub(r"[^\w=.-]+", "-", reader), partial(read, reader)
        given = (partial(of_recorded, make),) if recorded else (make, networks)
        reading.append(cell_of(s, name, Columns, *given, **how))
    if recorded:  # recorded activations give no predictions, so no excess
        return reading
    return [networks, cell_of(s, "excess", Excess, measure_excess, networks, made_from=made_from), *reading]


def layers_read(s: Settings[Options]) -> tuple[str, ...]:
    """Return the modules that are read: for the user's networks, those that are named."""
    return s.layers or s.options.layers


def _readers(s: Settings[Options]) -> tuple[str, ...]:
    """Return the readers that are asked for, or the usual ones."""
    return s.asked or s.options.readers


@dataclass(frozen=True, eq=False)
class Excess:
    """Losses above the floor, by network: a result of a cell."""

    own: list[float]
    other: list[float]
    untrained: list[float]
    floor: list[float]
    seconds: float


def measure_excess(data: Material, networks: Networks) -> Excess:
    """Return the excess of trained networks on their own lexicon and on the next, and of untrained ones."""

    def losses(model: Any, k: int) -> dict[str, float]:
        return numbers(excess(model, data.target(k), device=data.here.device))

    each = list(enumerate(networks.factors))
    on_own = [networks.test[i] or losses(data.model(networks, i), k) for i, k in each]
    others = [losses(data.model(networks, i), (k + 1) % n_factors(data.data)) for i, k in each]
    fresh = [losses(model, 0) for model in networks.untrained(data.data)]
    return Excess(
        own=[score["excess"] for score in on_own],
        other=[score["excess"] for score in others],
        untrained=[score["excess"] for score in fresh],
        floor=[score["floor"] for score in on_own],
        seconds=networks.seconds,
    )


def read(reader: str, data: Material, networks: Networks | Recorded) -> Columns:
    """Return the measures of a reader for every network, layer and lexicon."""
    s = data.settings
    by_lexicon: dict[int | None, list[Any]] = {}
    for i, k in enumerate(networks.factors):
        by_lexicon.setdefault(k, []).append(networks.model(i, data.data))
    roles = {TRAINED: by_lexicon, UNTRAINED: networks.untrained(data.data), RAW: None}
    asked = listed(roles, n_factors(data.data))
    rows, layers = s.options.documents, _layers(s, reader)
    measured = read_draw(s.draw, data.data, asked, [as_reader(reader)], layers, rows, data.device, data.progress)
    return Columns.of(list(measured))


def _layers(s: Settings[Options], reader: str) -> list[str]:
    """Return the layers of a reader: feature methods read only the first."""
    linear = reader.partition("@")[0] in ("beliefs", "separation", "accuracy")
    return list(layers_read(s) if linear else layers_read(s)[:1])


# ---------------------------------------------------------------------- estimates


def analyse(s: Settings[Options], results: Results) -> Iterator[Row]:
    """Return contrasts, the mean of each role, and the excess of the networks."""
    measured = _measured(s, results)
    for c in contrasts(measured):
        names = {"contrast": c.contrast, "layer": c.layer, "reader": _short(c.reader), "measure": c.measure}
        yield replace(row(c.estimate, part="contrast", **names), per="lexicon")
    losses: Excess | None = results.get("excess")
    if losses is not None:
        for role, values in ((TRAINED, losses.own), (OTHER, losses.other), (UNTRAINED, losses.untrained)):
            yield row(over_seeds(values), part="excess", role=role)
        yield row(over_seeds(losses.floor), part="floor")
    yield from _levels(measured)


def _measured(s: Settings[Options], results: Results) -> list[Measured]:
    return [cell for name, columns in results.items() if name.startswith("reader-") for cell in columns.cells(s.draw)]


def networks(s: Settings[Options], results: Results) -> dict[str, Any]:
    """Return the number of networks, in all and per lexicon, and the time that their training took."""
    trained = {(cell.trained_on, cell.seed) for cell in _measured(s, results) if cell.role == TRAINED}
    each, seconds = len({seed for _, seed in trained}), results["excess"].seconds if "excess" in results else 0.0
    return {"networks": len(trained), "each": f"{each} per lexicon", "training_seconds": seconds}


def _levels(measured: Sequence[Measured]) -> list[Row]:
    """Return the mean of each measure by role and layer, over units, with its interval over networks."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for cell in measured:
        key = cell.role_for_units, cell.layer, _short(cell.reader), cell.measure
        middle = np.nanmedian if cell.measure == "r2" else np.nanmean
        groups.setdefault(key, []).append(float(middle(cell.values)))
    names = ("role", "layer", "reader", "measure")
    return [row(mean_of(values), part="level", **dict(zip(names, key, strict=True))) for key, values in groups.items()]


def mean_of(values: Sequence[float]) -> Estimate:
    """Return a mean over networks, with an interval where there are enough of them."""
    if len(values) >= ENOUGH:
        return over_seeds(values)
    return Estimate(float(np.mean(values)), float("nan"), float("nan"), len(values), 1)


def _short(reader: str) -> str:
    return reader.partition("@")[0]


# ---------------------------------------------------------------------- report


def headline(rows: Sequence[Row], s: Settings[Options]) -> Iterator[Line]:
    """Return the contrasts of every reader in the first layer, and the excess of the trained networks."""
    for reader in map(_short, _readers(s)):
        for contrast in CONTRASTS:
            for r in select(rows, part="contrast", reader=reader, contrast=contrast, layer=layers_read(s)[0]):
                what = f"{MEASURES.get(r['measure'], r['measure'])} of {reader}, {contrast}, {label(r['layer'])}"
                yield Line(what, r)
    for r in select(rows, part="excess"):
        note = {TRAINED: "own lexicon", OTHER: "the other lexicon's documents"}.get(r["role"], "never trained")
        what = f"excess over the floor, nats, {r['role']} network"
        yield Line(what, r, note=note, answers=("above 0", "not above 0", "below 0"))


def readers(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """What each role of network shows in the layer that the title names.

    Median R² of beliefs over contexts, mean best F1 of features over contexts.
    """
    first, bounded = layers_read(s)[0], [name for name in map(_short, _readers(s)) if name != "separation"]
    levels = [r for r in select(rows, part="level") if r["layer"] in (first, r["role"]) and r["reader"] in bounded]
    series = {role: select(levels, role=role) for role in ROLES}
    unit = "R² of beliefs (median),\nF1 of features (mean)"
    return by_layer(series, bounded, f"{s.data[0]}: {label(first)}", unit, along="reader") if bounded else None


def beliefs(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Contrasts of beliefs by layer."""
    return _contrasts(select(rows, reader="beliefs"), s, "beliefs", "difference of R²")


def separation(rows: Sequence[Row], s: Settings[Options]) -> Any:
    """Contrasts of separation by layer."""
    return _contrasts(select(rows, reader="separation"), s, "separation", "log ratio")


def _contrasts(rows: Sequence[Row], s: Settings[Options], reader: str, unit: str) -> Any:
    chosen = select(rows, part="contrast")
    series = {name: select(chosen, contrast=name) for name in CONTRASTS}
    return by_layer(series, layers_of(chosen), f"{s.data[0]}: {reader}", unit) if chosen else None


training, draw = corpus_training, drawn_by(readers, beliefs, separation)
EXPERIMENT = declared(__name__, data=DOCUMENTS, own_networks=True, recorded=True, usual_seeds={"paper": 2, "small": 2})
