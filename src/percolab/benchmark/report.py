"""The report of a benchmark: one table, pictures for each task, and all numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from percolab.benchmark.drawing import Picture, pictures
from percolab.benchmark.keeping import read_kept
from percolab.benchmark.tables import Line, failures, lines_of, makings
from percolab.ground.files import replacing, write_json
from percolab.intervals import Estimate
from percolab.show import pages
from percolab.study import pictures as drawing

REPORT, RESULTS, FIGURES = "report.html", "results.json", "figures"
COLUMNS = (
    ("recovery", "recovery"),
    ("untrained", "untrained"),
    ("raw", "raw input"),
    ("chance", "chance"),
    ("trained_untrained", "trained - untrained"),
    ("relevant_irrelevant", "relevant - irrelevant"),
    ("relevant_irrelevant_share", "better when relevant"),
    ("relevant_irrelevant_ratio", "log ratio"),
    ("relevant_irrelevant_ratio_over_kmeans", "over that of k-means"),
    ("recovered", "recovered"),
    ("purity", "purity"),
    ("splitting", "splitting"),
    ("absorption_edge", "absorption, edges"),
    ("absorption", "absorption, rows"),
    ("absorption_null", "independent misses"),
    ("absorption_excess", "rows - independent misses"),
    ("explained_variance", "explained variance"),
    ("l0", "L0"),
    ("loss_recovered", "loss recovered"),
)
"""Columns of the table: what they hold, and their headings."""
BARE = ("untrained", "raw", "chance", "absorption_null")
"""Controls, shown without their intervals: those of the gaps to them stand beside."""
BRIEF = ("recovery", "untrained", "trained_untrained", "relevant_irrelevant")
"""Those that the terminal shows."""
WORDS = (
    "Recovery is the mean over concepts of the best F1 of any feature, in networks trained on the concepts' hierarchy. "
    "Beside it the same of an untrained network of the same shape, of the raw input, and of features whose rows are "
    "permuted (chance). Two gaps count. Trained - untrained: each concept's F1 in the trained network minus that in "
    "the untrained one. Relevant - irrelevant, by the swap: each concept's F1 in the network trained on its hierarchy "
    "minus the mean of those trained on another one of the same X. Better when relevant: the share of concepts for "
    "which that difference is positive, ties counted half; 0.5 is no preference. Methods of unequal recovery are "
    "compared by the log ratio of the two means, relevant over irrelevant, and by its difference to that of k-means."
)
READING_WORDS = (
    "The linear reading is no method but what the activations hold: the separation of siblings, squared distance of "
    "their means over their summed variances. Its gaps are log ratios of separations."
)
INTERVAL_WORDS = (
    "The table scrolls sideways. After ± stands half of a 95% interval: of gaps and ratios over seeds and blocks of "
    "neighbouring concepts (jackknife), of all others over seeds. Those of the controls are in results.json."
)


def write(output: Path) -> dict[str, Any]:
    """Write report.html and results.json of the cells that are there, and return the numbers.

    Cells made from other settings than those of their task's truths are left out, which is said in both.
    """
    kept = read_kept(output)
    found, failed = lines_of(kept), failures(kept)
    results = {"lines": [line.to_dict() for line in found], "failed": failed, "left_out": kept.left_out}
    write_json(output / RESULTS, results)
    drawn = {
        name: pictures([line for line in found if line.task == name])
        for name in dict.fromkeys(line.task for line in found)
    }
    (output / FIGURES).mkdir(exist_ok=True)
    for task, own in drawn.items():
        drawing.write({f"{task}-{name}": one.figure for name, one in own.items()}, output / FIGURES)
    with replacing(output / REPORT) as partial:
        partial.write_bytes(page(found, drawn, failed, kept.left_out, *makings(kept)))
    return results


def page(
    found: list[Line],
    drawn: Mapping[str, Mapping[str, Picture]],
    failed: list[str],
    left_out: list[str],
    tasks: list[dict[str, Any]],
    provenances: list[dict[str, Any]],
) -> bytes:
    """Return the report as one HTML page; `drawn` has the pictures by task and name."""
    seeds = max(map(_seeds, found), default=0)
    lead = f"Methods: {len({line.method for line in found})}, tasks: {len(tasks)}, seeds: {seeds}."
    body = [
        pages.paragraph(WORDS),
        pages.paragraph(READING_WORDS),
        table(found),
        pages.paragraph(INTERVAL_WORDS, quiet=True),
    ]
    for name, own in drawn.items():
        body += [pages.heading(name), *(pages.picture(one.figure, one.caption, wide=one.wide) for one in own.values())]
    if failed:
        body += [pages.heading("Cells that failed"), pages.table([[words] for words in failed])]
    body.append(pages.heading("How it was made"))
    body += [pages.paragraph(words, quiet=True) for words in left_out]
    for task in tasks:
        parts = {name: task[name] for name in ("scale", "layers", "min_size", "training", "budget")}
        body.append(pages.folded(task["name"], [pages.settings(parts), pages.code(json.dumps(task["recipe"]))]))
    body += [pages.folded("Versions and machine", [pages.settings(facts)]) for facts in provenances]
    return pages.page("percolab benchmark", lead, body)


def table(found: list[Line]) -> str:
    """Return the table as HTML, a part for each task and layer; columns without any number are left out."""
    columns = [(name, words) for name, words in COLUMNS if any(line.knows(name) for line in found)]
    rows = [[line.method, *(_cell(line, name) for name, _ in columns), str(_seeds(line))] for line in found]
    head = ["method", *(words for _, words in columns), "seeds"]
    places = [f"{line.task}, {line.layer}" for line in found]
    parts = {i: place for i, place in enumerate(places) if place not in places[:i]}
    return pages.table(rows, head, numbers=range(1, len(head)), held=True, parts=parts)


def _seeds(line: Line) -> int:
    return max(found.seeds for found in line.values.values())


def _cell(line: Line, name: str) -> str:
    if not line.knows(name):
        return ""
    return words(line.values[name], interval=name not in BARE)


def words(estimate: Estimate, *, interval: bool = True) -> str:
    """Return a number, and half of its interval if there is one."""
    half = (estimate.high - estimate.low) / 2
    digits = 1 if abs(estimate.value) >= 10 else 3
    value = f"{estimate.value:.{digits}f}"
    return f"{value}\u00a0±\u00a0{half:.{digits}f}" if interval and np.isfinite(half) else value


def brief(results: Mapping[str, Any]) -> list[list[str]]:
    """Return what counts of the numbers that `write` returns, as rows of text; each task and layer has a heading."""
    rows: list[list[str]] = []
    place = None
    for line in results["lines"]:
        known = {name: found for name, found in line["values"].items() if np.isfinite(found["value"])}
        if (line["task"], line["layer"]) != place:
            place = line["task"], line["layer"]
            rows.append([", ".join(place), *(title for name, title in COLUMNS if name in BRIEF)])
        numbers = {name: Estimate(*(known[name][part] for part in ("value", "low", "high"))) for name in known}
        rows.append([line["method"], *(words(numbers[name]) if name in numbers else "" for name in BRIEF)])
    return rows
