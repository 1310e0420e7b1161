"""`percolab benchmark --check`: checks result files of any origin, and makes the table and the page from them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from percolab.benchmark import envelope
from percolab.benchmark.declaration import EXPERIMENT, table
from percolab.benchmark.endpoints import estimates, tested
from percolab.benchmark.tasks import TASKS, TUNED, task
from percolab.ground.files import replacing
from percolab.ground.text import shown
from percolab.nn.config import SCALES
from percolab.show import pages
from percolab.study.estimates import Row, combined

REPORT = "submissions.html"
#: The tasks of this version.
FROZEN = {f"{scale}/{name}": task(name, scale) for scale in SCALES for name in TASKS}


@dataclass(frozen=True, eq=False)
class Checked:
    """The results of one task at one scale, read from files."""

    name: str
    files: int
    draws: int
    networks: int  #: trained networks, in all draws
    rows: Sequence[Row]

    @property
    def title(self) -> str:
        """The task, and the number of files, draws and networks behind its results."""
        few = "" if self.draws >= 3 else "; intervals hold for these datasets only"
        return f"{self.name}: {self.files} files, draws {self.draws}, trained networks {self.networks}{few}"


def check(directory: str | os.PathLike[str]) -> list[Checked]:
    """Check all result files below a directory, write submissions.html there, and return the results by task.

    Raises ValueError, in one line, for a file that does not follow the schema, whose numbers were changed, whose task
    is not one of this version, whose options are not those of percolab's method of that name, or that is about the
    same method, network and hierarchy as another file.
    """
    root = Path(directory)
    if not root.is_dir():
        raise FileNotFoundError(f"check must be a directory, got {os.fspath(directory)!r}")
    files = sorted(file for file in root.rglob("*.json") if envelope.FOLDER in file.parts or file.parent == root)
    if not files or len(files) > envelope.MOST_FILES:
        most = envelope.MOST_FILES
        raise ValueError(
            f"check must hold 1 to {most:,} result files (.json, or in {envelope.FOLDER}/), got {len(files)}"
        )
    by_task: dict[str, list[dict[str, Any]]] = {}
    seen: dict[Any, str] = {}
    for file in files:
        values = envelope.read(file)
        key = f"{values.get('scale')}/{values['task']}"
        if key not in FROZEN or FROZEN[key].digest != values["task_digest"]:
            raise ValueError(f"{file.name} must be of a task of version 1 (task_digest), got {shown(key)}")
        envelope.check_options(file.name, values, FROZEN[key].options)
        place = key, *(values[name] for name in envelope.PLACE)
        if place in seen:
            raise ValueError(f"a method on a network must have one file, got {seen[place]} and {file.name}")
        seen[place] = file.name
        by_task.setdefault(key, []).append(values)
    checked = [_checked(name, each) for name, each in by_task.items()]
    with replacing(root / REPORT) as partial:
        partial.write_bytes(page(checked))
    return checked


def _checked(name: str, files: list[dict[str, Any]]) -> Checked:
    draws: dict[int, list[Any]] = {}
    concepts: dict[Any, list[Any]] = {}
    for values in files:
        draws.setdefault(values["draw"], []).extend(envelope.to_measured(values))
        about = [(line["concept"], line["place"]) for line in values["eval_result_details"]]
        if concepts.setdefault((values["draw"], values["factor"]), about) != about:
            raise ValueError(f"files of a draw and a factor must have the same concepts, got others in {name}")
    networks = {(v["draw"], v["trained_on"], v["seed"]) for v in files if v["role"] == "trained"}
    rows = combined([estimates(cells, tuned=name.endswith(TUNED)) for _, cells in sorted(draws.items())])
    return Checked(name, len(files), len(draws), len(networks), rows)


def page(tasks: Sequence[Checked]) -> bytes:
    """Return the page of results."""
    body = []
    for checked in tasks:
        head, lines = table(checked.rows)
        ruled = [(t.endpoint, t.method, t.estimate.estimate.text(), t.words, t.verdict) for t in tested(checked.rows)]
        body += [
            pages.heading(checked.title),
            pages.table(ruled, ("endpoint", "method", "estimate and 95% interval", "beside it", "verdict"), stack=True),
            *pages.wide_table(lines, head),
        ]
    body.append(pages.folded("How it is measured", map(pages.paragraph, EXPERIMENT.words.method)))
    files = sum(checked.files for checked in tasks)
    verdict = f"{files:,} result files of {len(tasks)} task{'s' * (len(tasks) > 1)} are as the schema says."
    return pages.page("percolab benchmark: results from files", "", body, verdict=verdict)
