"""The report of a benchmark: one table, pictures for each task, and all numbers as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.benchmark.lineup import READING
from percolab.benchmark.tables import Line, failures, lines, makings
from percolab.benchmark.tasks import RAW, TRAINED, UNTRAINED
from percolab.ground.files import replacing, write_json
from percolab.show import pages, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from percolab.nn.represent.statistics import Estimate

REPORT, RESULTS = "report.html", "results.json"
COLUMNS = (
    ("recovery", "recovery"),
    ("untrained", "untrained"),
    ("raw", "raw input"),
    ("chance", "chance"),
    ("trained_untrained", "trained - untrained"),
    ("relevant_irrelevant", "relevant - irrelevant"),
    ("relevant_irrelevant_share", "better when relevant"),
    ("recovered", "recovered"),
    ("purity", "purity"),
    ("splitting", "splitting"),
    ("absorption_edge", "absorption, edges"),
    ("absorption", "absorption, rows"),
    ("absorption_null", "independent misses"),
    ("explained_variance", "explained variance"),
    ("l0", "L0"),
    ("loss_recovered", "loss recovered"),
)
"""Columns of the table: what they hold, and their headings."""
WITH_INTERVALS = ("recovery", "trained_untrained", "relevant_irrelevant")
WORDS = (
    "Recovery is the mean over concepts of the best F1 of any feature, in networks trained on the concepts' hierarchy. "
    "Beside it the same of an untrained network of the same shape, of the raw input, and of features whose rows are "
    "permuted (chance). Two gaps count. Trained - untrained: each concept's F1 in the trained network minus that in "
    "the untrained one. Relevant - irrelevant, by the swap: each concept's F1 in the network trained on its hierarchy "
    "minus the mean of those trained on another one of the same X. Better when relevant: the share of concepts for "
    "which that difference is positive, ties counted half; 0.5 is no preference."
)
READING_WORDS = (
    "The linear reading is no method but what the activations hold: the separation of siblings, squared distance of "
    "their means over their summed variances. Its gaps are log ratios of separations."
)
INTERVAL_WORDS = (
    "After ± stands half of a 95% interval, from leaving out seeds and blocks of neighbouring concepts (jackknife). "
    "All others are in results.json."
)


def write(output: Path) -> dict[str, Any]:
    """Write report.html and results.json of all cells that are there, and return the numbers."""
    found, failed = lines(output), failures(output)
    results = {"lines": [line.to_dict() for line in found], "failed": failed}
    write_json(output / RESULTS, results)
    with replacing(output / REPORT) as partial:
        partial.write_bytes(page(found, failed, *makings(output)))
    return results


def page(found: list[Line], failed: list[str], tasks: list[dict[str, Any]], provenances: list[dict[str, Any]]) -> bytes:
    """Return the report as one HTML page."""
    seeds = max(map(_seeds, found), default=0)
    lead = f"Methods: {len({line.method for line in found})}, tasks: {len(tasks)}, seeds: {seeds}."
    body = [
        pages.paragraph(WORDS),
        pages.paragraph(READING_WORDS),
        table(found),
        pages.paragraph(INTERVAL_WORDS, quiet=True),
    ]
    for name in dict.fromkeys(line.task for line in found):
        body += [pages.heading(name), *_pictures([line for line in found if line.task == name])]
    if failed:
        body += [pages.heading("Cells that failed"), pages.table([[words] for words in failed])]
    body.append(pages.heading("How it was made"))
    for task in tasks:
        parts = {name: task[name] for name in ("scale", "layers", "min_size", "training", "budget")}
        body.append(pages.folded(task["name"], [pages.settings(parts), pages.code(json.dumps(task["recipe"]))]))
    body += [pages.folded("Versions and machine", [pages.settings(facts)]) for facts in provenances]
    return pages.page("percolab benchmark", lead, body)


def table(found: list[Line]) -> str:
    """Return the table as HTML; columns without any number are left out."""
    columns = [(name, words) for name, words in COLUMNS if any(_known(line, name) for line in found)]
    rows = [
        [line.task, line.layer, line.method, *(_cell(line, name) for name, _ in columns), str(_seeds(line))]
        for line in found
    ]
    head = ["task", "layer", "method", *(words for _, words in columns), "seeds"]
    return pages.table(rows, head, numbers=range(3, len(head)))


def _seeds(line: Line) -> int:
    return max(found.seeds for found in line.values.values())


def _known(line: Line, name: str) -> bool:
    return name in line.values and bool(np.isfinite(line.values[name].value))


def _cell(line: Line, name: str) -> str:
    if not _known(line, name):
        return ""
    return words(line.values[name], interval=name in WITH_INTERVALS)


def words(estimate: Estimate, *, interval: bool = True) -> str:
    """Return a number, and half of its interval if there is one."""
    half = (estimate.high - estimate.low) / 2
    value = f"{estimate.value:.1f}" if abs(estimate.value) >= 10 else f"{estimate.value:.3f}"
    return f"{value}\u00a0±\u00a0{half:.3f}" if interval and np.isfinite(half) else value


# ---------------------------------------------------------------------- pictures


def _pictures(found: list[Line]) -> list[str]:
    shown = []
    for layer in dict.fromkeys(line.layer for line in found):
        own = [line for line in found if line.layer == layer]
        by_size = [line for line in own if line.by_size.get(TRAINED)]
        if by_size:
            caption = (
                f"Recovery by size, layer {layer}. Blue: trained network; orange: untrained; green: raw input; "
                "grey: chance in the trained network."
            )
            shown.append(pages.picture(draw_by_size(by_size), caption, wide=True))
        if any(_known(line, "trained_untrained") for line in own):
            caption = (
                f"The gaps, layer {layer}: difference of best F1, mean over concepts with its 95% interval. The linear "
                "reading is in the table: it has another unit."
            )
            shown.append(pages.picture(draw_gaps(own), caption))
    return shown


def draw_by_size(found: list[Line]) -> Figure:
    """Draw recovery by size, a panel a method."""
    across = min(4, len(found))
    down = -(-len(found) // across)
    with style.sheet():
        figure = style.new_figure(2.3 * across, 1.9 * down + 0.3)
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
        for axes, line in zip(panels, found, strict=False):
            _draw_sizes(axes, line)
        for axes in panels[len(found) :]:
            axes.set_axis_off()
        panels[0].set_ylim(0, 1.05)
        figure.supxlabel("rows of the concept", fontsize=9)
        figure.supylabel("mean best F1", fontsize=9)
    return figure


def _draw_sizes(axes: Axes, line: Line) -> None:
    colours = {TRAINED: style.BLUE, UNTRAINED: style.ORANGE, RAW: style.GREEN}
    for name, colour in colours.items():
        rows = line.by_size[name]
        x = [np.sqrt(row["from"] * row["to"]) for row in rows]
        axes.plot(x, [row["recovery"] for row in rows], "o-", markersize=3, color=colour)
        if name == TRAINED:
            axes.plot(x, [row["chance"] for row in rows], color=style.GREY)
    axes.set_xscale("log")
    axes.set_title(line.method, fontsize=8)


def draw_gaps(found: list[Line]) -> Figure:
    """Draw both gaps of every method."""
    gaps = {"trained_untrained": ("trained - untrained", style.BLUE)}
    gaps["relevant_irrelevant"] = ("relevant - irrelevant", style.VERMILION)
    own = [line for line in found if line.method != READING and _known(line, "trained_untrained")]
    with style.sheet():
        figure = style.new_figure(5.6, 0.28 * len(own) + 1.0)
        axes = figure.subplots()
        for i, (name, (label, colour)) in enumerate(gaps.items()):
            rows = [(y, line.values[name]) for y, line in enumerate(own) if _known(line, name)]
            if not rows:
                continue
            value = np.array([found.value for _, found in rows])
            ends = np.array([[found.value - found.low, found.high - found.value] for _, found in rows]).T
            place = np.array([y for y, _ in rows]) + 0.2 * i - 0.1
            axes.errorbar(value, place, xerr=np.nan_to_num(ends), fmt="o", markersize=4, color=colour, label=label)
        axes.axvline(0, color=style.INK, linewidth=0.8)
        axes.set_yticks(range(len(own)), [line.method for line in own])
        axes.invert_yaxis()
        axes.set_xlabel("difference of best F1")
        axes.legend()
    return figure
