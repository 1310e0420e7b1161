"""Which of the cells that are there belong together: those made from the task as its truths describe it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from percolab.benchmark.cells import TRUTHS, read_all
from percolab.benchmark.tasks import RAW, TASKS, TRUTH, Task
from percolab.features.concepts import SUMMARY_RATIO
from percolab.features.specs import has_budget
from percolab.ground.files import write_json
from percolab.ground.version import __version__
from percolab.study.directory import read_json as read

Values = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """The cells of a report."""

    truths: dict[str, Values]
    """what is kept of the data of each task, in the order of the tasks; those of others come last"""
    cells: list[Values]
    """sorted by file"""
    left_out: list[str]
    """a line for each task that has others: how many, what differs, and of which methods"""


def write_truths(output: Path, task: Task, factors: list[Values]) -> None:
    """Keep the task with the concepts and siblings of its hierarchies: what its cells are compared with."""
    (output / TRUTHS).mkdir(parents=True, exist_ok=True)
    values = {"percolab": __version__, "ratio": SUMMARY_RATIO, "task": task.to_dict(), "factors": factors}
    write_json(output / TRUTHS / f"{task.name}.json", values)


def has_truths(output: Path, task: Task) -> bool:
    """Return whether the truths that are there are those of this very task."""
    kept = read(output / TRUTHS / f"{task.name}.json")
    same = kept.get("percolab", __version__) == __version__ and kept.get("ratio", SUMMARY_RATIO) == SUMMARY_RATIO
    return same and "factors" in kept and kept.get("task") == task.to_dict()


def read_kept(output: Path) -> Kept:
    """Return the cells that belong to the truths of their tasks, and a word about the others."""
    truths = _truths(output)
    cells = read_all(output)
    sources = _sources(cells)
    kept: list[Values] = []
    others: dict[str, list[tuple[str, list[str]]]] = {}
    for cell in cells:
        made = cell["made_from"]
        differing = differences(made, truths[made["task"]]) if made["task"] in truths else ["task"]
        if made.get("source") != sources.get((made["task"], made["name"])):
            differing.append("source")
        if differing:
            others.setdefault(made["task"], []).append((made["name"], differing))
        else:
            kept.append(cell)
    return Kept(truths, kept, [_said(task, found) for task, found in others.items()])


def differences(made_from: Values, truth: Values) -> list[str]:
    """Return the names of what a cell was made from that the task is not made of.

    The options of a method are compared where it takes them from the task's budget. Truths of old runs know neither
    version nor ratio, which then are not compared.
    """
    task = truth["task"]
    wanted: Values = {name: truth[name] for name in ("percolab", "ratio") if name in truth}
    wanted |= {name: task[name] for name in ("scale", "recipe", "min_size")}
    wanted["training"] = None if made_from["network"] in (RAW, TRUTH) else task["training"]
    found = [name for name, value in wanted.items() if made_from.get(name) != value]
    fits = has_budget(made_from["name"], made_from.get("options", {}), task["budget"])
    return found if fits else [*found, "options"]


def _truths(output: Path) -> dict[str, Values]:
    names = [file.stem for file in sorted((output / TRUTHS).glob("*.json"))]
    order = [name for name in TASKS if name in names] + [name for name in names if name not in TASKS]
    return {name: kept for name in order if "factors" in (kept := read(output / TRUTHS / f"{name}.json"))}


def _sources(cells: list[Values]) -> dict[tuple[str, str], str | None]:
    """Return the source of each method of someone's own on each task: that of the cell made last."""
    order = sorted(cells, key=lambda cell: str(cell.get("ended") or cell.get("provenance", {}).get("created")))
    return {(made["task"], made["name"]): made.get("source") for made in (cell["made_from"] for cell in order)}


def _said(task: str, found: list[tuple[str, list[str]]]) -> str:
    methods = ", ".join(dict.fromkeys(method for method, _ in found))
    differing = ", ".join(dict.fromkeys(name for _, names in found for name in names))
    count = f"{len(found)} cell{'s' if len(found) > 1 else ''}"
    return f"{task}: {count} made from other settings ({differing}), left out, of {methods}"
