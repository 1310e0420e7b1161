"""Draw the pictures that open the pages here, from the JSON files beside them.

    python docs/results/make_pictures.py

The commands on each page make the JSON files; this program computes nothing. The same role has the same colour in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from make_tables import (
    CONFIRMATORY,
    DOCUMENT_ROLES,
    HIDDEN,
    LAYERS,
    LEXICONS,
    NOT_LEARNED,
    SAES,
    STREAM,
    TASKS,
    estimate_of,
    level_of,
    lines,
    read,
)
from matplotlib.figure import Figure

from percolab.intervals import Estimate
from percolab.show import dot_rows, style
from percolab.show.dot_rows import Mark, Panel
from percolab.study.estimates import Row
from percolab.study.pictures import MARKERS, by_number

HERE = Path(__file__).parent
DPI = 150
PHONE = 5.0
"""Width in inches of the picture that opens the README and its page: its text is readable on a phone."""
CARD = 4.2
"""Width in inches of a picture on a card of the first page."""
ROLES = {"trained": "recovery", "untrained": "untrained", "raw input": "raw"}
FEW = ("topk", "kmeans")
"""Methods on a card."""


def main() -> None:
    """Write every picture."""
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    for name, panels in PICTURES.items():
        width = PHONE if name == "documents" else dot_rows.WIDTH
        (folder / f"{name}.png").write_bytes(style.as_png(dot_rows.draw(*panels(), width=width), DPI))
    for name, figure in CURVES.items():
        (folder / f"{name}.png").write_bytes(style.as_png(figure(), DPI))
    for name, panel in CARDS.items():
        (folder / f"card-{name}.png").write_bytes(style.as_png(dot_rows.draw(panel(), width=CARD), DPI))


def mark(found: Mapping[str, Any] | None) -> Mark:
    """Return a value of a file with its interval."""
    value, low, high = ((found or {}).get(key) for key in ("value", "low", "high"))
    return Mark(*(float("nan") if number is None else number for number in (value, low, high)))


def probes(data: str) -> Panel:
    """Return the errors of probes of z by layer, trained beside untrained networks and the raw input."""
    errors, order = errors_of(data), [name for pair in zip(STREAM, HIDDEN, strict=True) for name in pair]
    series = {kind: {LAYERS[name]: mark(errors[kind][name]) for name in order} for kind in ("trained", "untrained")}
    series["raw input"] = {"raw input": mark(errors["raw"]["raw"])}
    title = {"one-cluster": "one cluster", "multi-cluster": "many clusters"}[data]
    words = "error of a linear probe of z (1: no better than the mean)"
    return Panel(["raw input", *(LAYERS[name] for name in order)], series, words, title)


def last_probe(data: str) -> Panel:
    """Return the errors of probes of z in the last layer, trained beside untrained networks and the raw input."""
    errors, row = errors_of(data), "last layer"
    series = {kind: {row: mark(errors[kind][STREAM[-1]])} for kind in ("trained", "untrained")}
    return Panel([row], series | {"raw input": {row: mark(errors["raw"]["raw"])}}, "error of a linear probe of z")


def errors_of(data: str) -> dict[str, dict[str, Any]]:
    """Return the errors of probes of z, by kind of network and by layer."""
    by: dict[str, dict[str, Any]] = {}
    for row in read(f"{data}/results.json")["controls"]:
        by.setdefault(row["kind"], {})[row["representation"]] = row["z"]
    return by


def recovery(task: str, wanted: Sequence[str] = SAES) -> Panel:
    """Return recovery by method in a task: trained and untrained networks, and the raw input."""
    found = {line["method"]: line["values"] for line in lines("results", task)}
    methods = [method for method in wanted if method in found]
    series = {role: {method: mark(found[method].get(key)) for method in methods} for role, key in ROLES.items()}
    return Panel(methods, series, "recovery: mean best F1 of a concept", TASKS[task] if wanted is SAES else "")


def gaps(task: str) -> Panel:
    """Return what trained networks give more than untrained ones, by method."""
    found = {line["method"]: line["values"] for line in lines("results", task)}
    methods = [method for method in SAES if method in found]
    marks = {method: mark(found[method].get("trained_untrained")) for method in methods}
    return Panel(methods, {"trained - untrained": marks}, "recovery, trained less untrained", TASKS[task])


def sizes(task: str) -> Panel:
    """Return recovery in trained networks by size of the concept, for k-means and two SAEs."""
    methods = ["kmeans", "batchtopk", "matryoshka"]
    series = {}
    for line in lines("results", task, methods):
        found = line["by_size"]["trained"]
        names = [
            f"{max(low, 50):,.0f} to {high - 1:,.0f} rows" for low, high in zip(found["from"], found["to"], strict=True)
        ]
        series[line["method"]] = {name: Mark(value) for name, value in zip(names, found["recovery"], strict=True)}
    return Panel(names, series, "recovery in trained networks", TASKS[task])


def contrasts() -> Panel:
    """Return the estimate that answers each experiment's question, beside its control."""
    blocks = "blocks.2"
    slope = {"measure": "slope", "dose": 1.0, "layer": "blocks.1", "direction": "own", "network": "trained"}
    cases = {
        "trained: error on z, log ratio\nto untrained (below 0: easier)": ("trained",
         {"measure": "log ratio, error on z", "layer": blocks, "epoch": 500},
         {"measure": "log ratio, error on fresh z", "layer": blocks, "epoch": 500}),
        "crossed: error on own over others'\nvalues, log ratio (below 0: held)": ("crossed",
         {"part": "all", "target": "z", "layer": blocks}, {"part": "null", "target": "z", "layer": blocks}),
        "relevance: separation, log ratio\nto irrelevant (above 0: seen)": ("relevance-4",
         {"part": "all", "measure": "separation", "layer": blocks, "epoch": 200},
         {"part": "null", "measure": "separation", "layer": blocks, "epoch": 200}),
        "steering: slope of the response\n(1: as the truth says)": ("steering",
         {"case": "relevant", **slope}, {"case": "irrelevant", **slope}),
        "edit: shared cosine of changes,\nslope taken out (above 0: shared)": ("edit",
         {"measure": "shared cosine, rest", "case": "edit", "layer": "blocks.1"},
         {"measure": "shared cosine, rest", "case": "null", "layer": "blocks.1"}),
    }  # fmt: skip
    series = {
        "trained": {words: mark(estimate_of(file, **own)) for words, (file, own, _) in cases.items()},
        "control": {words: mark(estimate_of(file, **control)) for words, (file, _, control) in cases.items()},
    }
    return Panel(list(cases), series, "estimate with its 95% interval")


def swap(layers: Sequence[str] = ("input", *STREAM)) -> Panel:
    """Return the log ratio of separation by layer, after training and at its beginning."""
    series = {
        f"epoch {epoch}": {
            LAYERS[layer]: mark(estimate_of("relevance", part="all", measure="separation", layer=layer, epoch=epoch))
            for layer in layers
        }
        for epoch in (1, 20, 200)
    }
    return Panel([LAYERS[layer] for layer in layers], series, "separation, log ratio: relevant over irrelevant")


def steering(layers: Sequence[str] = ("input", "blocks.0", "blocks.1")) -> Panel:
    """Return the slope of the response by layer: where the concept matters, where not, and controls."""
    given = {"measure": "slope", "dose": 1.0, "direction": "own", "case": "relevant", "network": "trained"}
    cases: dict[str, dict[str, str]] = {
        "relevant": {}, "irrelevant": {"case": "irrelevant"}, "untrained": {"network": "untrained"},
        "random direction": {"direction": "random"},
    }  # fmt: skip
    series = {
        name: {LAYERS[layer]: mark(estimate_of("steering", **(given | other), layer=layer)) for layer in layers}
        for name, other in cases.items()
    }
    return Panel([LAYERS[layer] for layer in layers], series, "slope of the response (1: as the truth says)")


def patching(*, short: bool = False) -> Panel:
    """Return the share of the exact divergence that patching each subspace bridges, by role of network."""
    names = {
        "whole": "whole layer", "sibling": "difference of means", "learned": "learned direction",
        "kmeans": "two k-means features", "topk": "two TopK features", "random": "random direction",
        "probe": "linear discriminant",
    }  # fmt: skip
    kept = ("sibling", "random") if short else tuple(names)
    levels = [
        row
        for row in read("causes/causation.json")["estimates"]
        if (row.get("part"), row.get("reader")) == ("level", "interchange")
    ]
    series = {
        role: {
            names[row["measure"].partition("@")[0]]: mark(row)
            for row in levels
            if row["role"] == role and row["measure"].partition("@")[0] in kept
        }
        for role in ("trained", "other", "untrained")
    }
    return Panel([names[name] for name in kept], series, "share of the way to the exact answer")


def documents(file: str) -> list[Panel]:
    """Return what the probe of beliefs and what feature methods find in documents, by role of network."""
    features = {"topk": "TopK", "kmeans": "k-means", "neurons": "neurons"}
    return [
        found_in_documents(file, {"beliefs": "linear probe"}, "exact beliefs: median R² (1: perfect)"),
        found_in_documents(file, features, "contexts: mean best F1 (1: perfect)"),
    ]


def found_in_documents(file: str, readers: Mapping[str, str], xlabel: str) -> Panel:
    """Return what readers find: own lexicon, other lexicon, untrained networks, raw input, chance."""
    found = read(f"documents/{file}.json")
    first = found["settings"]["options"]["layers"][0]
    levels = [row for row in found["estimates"] if row["part"] == "level" and row["layer"] in (first, row["role"])]
    series = {
        name: {readers[row["reader"]]: mark(row) for row in levels if row["role"] == role and row["reader"] in readers}
        for role, name in DOCUMENT_ROLES.items()
    }
    return Panel(list(readers.values()), series, xlabel, limits=(-0.1, 1))


def dictionaries(task: str, methods: Sequence[str] = (*CONFIRMATORY, *NOT_LEARNED)) -> Panel:
    """Return recovery by method in documents, by role of network, from the raw input, and of permuted rows."""
    roles = {name: (role, "f1") for name, role in LEXICONS.items()} | {"chance": ("trained", "chance")}
    series = {
        name: {method: mark(level_of(task, role, method, measure)) for method in methods}
        for name, (role, measure) in roles.items()
    }
    return Panel(list(methods), series, "recovery: mean best F1 of a context", limits=(0, 1))


def curves(task: str, measure: str, words: str) -> Figure:
    """Draw a measure of every method in networks of the concepts' lexicon against its sparsity."""
    series = {name: [row for row in rows if row["setting"] != "k=1"] for name, rows in curve(task, "trained", measure)}
    return by_number(series, "at", "", "L0: features that fire on a row", words)


def curve(task: str, role: str, measure: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield the methods of a picture with a measure at all their settings."""
    rows = read(f"benchmark/{task}.json")["curves"]
    for method in LINES:
        places = [r for r in rows if (r["role"], r["method"], r["measure"]) == (role, method, measure)]
        estimates = [Estimate(r["value"], r["low"], r["high"]) for r in places]
        yield method, [Row(e, r, by_draw=tuple(r["by_draw"])) for e, r in zip(estimates, places, strict=True)]


def sparsity(task: str) -> Figure:
    """Draw recovery against sparsity, one panel for what methods read: own and other lexicon, untrained, raw input."""
    with style.sheet():
        figure = style.new_figure(7.2, 6.4)
        panels = figure.subplots(2, 2, sharex=True, sharey=True)
        for axes, (title, role) in zip(panels.flat, LEXICONS.items(), strict=True):
            colours = style.series_colours(LINES)
            for (method, rows), colour, marker in zip(curve(task, role, "f1"), colours, MARKERS, strict=False):
                value, low, high = np.transpose([(r.estimate.value, r.estimate.low, r.estimate.high) for r in rows])
                at = [row["at"] for row in rows]
                axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
                axes.plot(at, value, f"-{marker}", color=colour, markersize=4, label=method)
            axes.set_title(title, loc="left")
            axes.set_xscale("log")
            axes.set_ylim(0, 1)
            axes.grid(axis="y")
            style.plain_numbers(axes.xaxis)
        figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
        figure.supxlabel("L0: features that fire on a row", fontsize="medium")
        figure.supylabel("recovery: mean best F1 of a context", fontsize="medium")
    return figure


LINES = (*CONFIRMATORY, "kmeans@fall=0", "random-dictionary")
CURVES = {
    "sparsity": lambda: sparsity("documents-small"),
    "absorption": lambda: curves("documents", "absorption_edge", "recall outside minus inside the lower context"),
}
PICTURES = {
    "dictionaries": lambda: [dictionaries("documents-small")],
    "documents": lambda: documents("full"),
    "probes": lambda: [probes("one-cluster")],
    "probes-many": lambda: [probes("multi-cluster")],
    "recovery": lambda: [recovery("paper-one-cluster")],
    "recovery-superposed": lambda: [recovery("superposed-2")],
    "recovery-others": lambda: [recovery("paper-multi-cluster"), recovery("superposed-4")],
    "gaps": lambda: [gaps(task) for task in TASKS],
    "sizes": lambda: [sizes("paper-one-cluster")],
    "contrasts": lambda: [contrasts()],
    "swap": lambda: [swap()],
    "steering": lambda: [steering()],
    "patching": lambda: [patching()],
}
CARDS = {
    "documents": lambda: documents("full")[0],
    "probes": lambda: last_probe("one-cluster"),
    "dictionaries": lambda: dictionaries("documents-small", FEW),
    "swap": lambda: swap(STREAM[-1:]),
    "steering": lambda: steering(("blocks.1",)),
    "patching": lambda: patching(short=True),
}

if __name__ == "__main__":
    main()
