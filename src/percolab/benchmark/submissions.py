"""`percolab benchmark --check`: checks result files of any origin, and makes the table and the page from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from percolab.benchmark import envelope
from percolab.benchmark.declaration import EXPERIMENT, settings, table
from percolab.benchmark.endpoints import ONE_CENTRE, estimates, tested
from percolab.benchmark.judgement import AT, DEAD_AT_MIDDLE, ORACLES, reads, settings_of
from percolab.benchmark.networks_and_controls import TRUTH
from percolab.benchmark.tasks import TASKS, TUNED, Task, task
from percolab.features.register import METHODS, entry
from percolab.ground.files import replacing
from percolab.ground.foreign_files import read_json
from percolab.ground.text import printable, shown
from percolab.nn.config import SCALES
from percolab.show import pages
from percolab.study.directory import MOST_BYTES, SUBMISSION
from percolab.study.estimates import Row, combined
from percolab.study.measured import RAW, TRAINED
from percolab.study.subject import n_factors

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
    lacking: Sequence[str]  #: one line for draws or networks that were left out, and for each method without results

    @property
    def title(self) -> str:
        """The task, and the number of files, draws and networks behind its results."""
        few = "" if self.draws >= 3 else "; intervals hold for these datasets only"
        return f"{self.name}: {self.files} files, draws {self.draws}, trained networks {self.networks}{few}"


def check(directory: str | os.PathLike[str]) -> list[Checked]:
    """Check all result files below a directory, write submissions.html there, and return the results by task.

    Raises ValueError, in one line that names the file, for a file that does not follow the schema, whose numbers were
    changed, that is not about a task of this version as it is frozen, whose setting or options are not those of
    percolab's method of that name, that is about the same method, network and hierarchy as another file, or that has
    other concepts than another file about that hierarchy.
    """
    root = Path(directory)
    if not root.is_dir():
        raise FileNotFoundError(f"check must be a directory, got {os.fspath(directory)!r}")
    files = [file for each in sorted(root.rglob("*.json")) if _is_result(root, file := each.relative_to(root))]
    if not 0 < len(files) <= envelope.MOST_FILES:
        raise ValueError(f"check must hold 1 to {envelope.MOST_FILES:,} result files (.json), got {len(files)}")
    by_task: dict[str, list[dict[str, Any]]] = {}
    seen: dict[Any, str] = {}
    concepts: dict[Any, tuple[str, Any]] = {}
    for file in files:
        name = printable(str(file))
        key, values = _read(name, root / file)
        place = key, *(values[part] for part in envelope.PLACE)
        if place in seen:
            raise ValueError(f"a method on a network must have one file, got {seen[place]} and {name}")
        seen[place] = name
        about = [(line["concept"], line["place"]) for line in values["eval_result_details"]]
        first, known = concepts.setdefault((key, values["draw"], values["factor"]), (name, about))
        if about != known:
            raise ValueError(f"files of a draw and a factor must have the same concepts, got {first} and {name}")
        by_task.setdefault(key, []).append(values)
    checked = [_checked(name, each) for name, each in by_task.items()]
    with replacing(root / REPORT) as partial:
        partial.write_bytes(page(checked))
    return checked


def _is_result(root: Path, file: Path) -> bool:
    """Return whether a file, by its path below the directory, is to be checked: a study has other JSON files, too."""
    loose = len(file.parts) == 1 and "eval_type_id" in read_json(printable(file.name), root / file, MOST_BYTES)
    return loose or SUBMISSION in file.parts[:-1]


def _read(name: str, file: Path) -> tuple[str, dict[str, Any]]:
    """Return the scale and task of a file, and what it holds; raise ValueError, with its name, if it is no result."""
    values = read_json(name, file, envelope.MOST_BYTES)
    try:
        envelope.check(values)
        key = f"{values['scale']}/{values['task']}"
        if key not in FROZEN or FROZEN[key].digest != values["task_digest"]:
            raise ValueError(f"it must be of a task of version 1 (task_digest), got {shown(key)}")
        check_frozen(values, FROZEN[key])
    except ValueError as fault:
        raise ValueError(f"{name} must be a result of the benchmark: {fault}") from None
    return key, values


# ---------------------------------------------------------------------- tasks as they are frozen


def check_frozen(values: Mapping[str, Any], frozen: Task) -> None:
    """Raise ValueError unless a file is about data, networks, hierarchies and settings of a task as it is frozen."""
    role, method = values["role"], values["method"]
    family = method.partition(AT)[0].partition("@")[0]
    if (role == TRUTH) != (family in METHODS and METHODS[family][0] in ORACLES):
        raise ValueError(f"role must be {TRUTH!r} for percolab's oracles alone, got {role!r} for {shown(method)}")
    everywhere, hierarchies = role in (RAW, TRUTH), range(n_factors(frozen.recipe))
    asked = envelope.config(settings(frozen, only=()).drawn(values["draw"]))
    _check_same("eval_config", values["eval_config"], asked)
    _check_same("layer", values["layer"], role if everywhere else frozen.options.layer)
    if family.strip().lower() in (*METHODS, ONE_CENTRE):  # these names are percolab's, however they are written
        _check_same("sae_cfg_dict", values["sae_cfg_dict"], envelope.options_of(method, role, frozen.options))
    allowed = {"factor": hierarchies, "trained_on": hierarchies if role == TRAINED else [-1]}
    allowed["seed"] = [0] if everywhere else [values["seed"]]
    for name, known in allowed.items():
        if values[name] not in known:
            raise ValueError(f"{name} must be {' or '.join(map(str, known))} for role {role!r}, got {values[name]}")
    given = values["eval_result_metrics"][envelope.PLAIN]
    for name, needed in (("dead", role != TRUTH), (DEAD_AT_MIDDLE, "bridged" in given)):
        if needed and name not in given:
            raise ValueError(f"{envelope.PLAIN} must have {name}")


def _check_same(where: str, given: Any, frozen: Any) -> None:
    """Raise ValueError, with the name of the first field that differs, unless plain values are those of the task."""
    given, frozen = (dict(enumerate(value)) if isinstance(value, list) else value for value in (given, frozen))
    if isinstance(given, dict) and isinstance(frozen, dict) and given.keys() == frozen.keys():
        for name in frozen:
            _check_same(f"{where}.{name}", given[name], frozen[name])
    elif given != frozen:
        raise ValueError(f"{where} must be {shown(frozen)}, as the task is frozen, got {shown(given)}")


# ---------------------------------------------------------------------- results of a task


def _checked(name: str, files: list[dict[str, Any]]) -> Checked:
    draws: dict[int, list[Any]] = {}
    for values in files:
        draws.setdefault(values["draw"], []).extend(envelope.to_measured(values))
    networks = {(v["draw"], v["trained_on"], v["seed"]) for v in files if v["role"] == TRAINED}
    rows = combined([estimates(cells, tuned=name.endswith(TUNED)) for _, cells in sorted(draws.items())])
    return Checked(name, len(files), len(draws), len(networks), rows, [*lacking(files, FROZEN[name])])


def lacking(files: Sequence[Mapping[str, Any]], frozen: Task) -> Iterator[str]:
    """Yield a line for draws and networks left out before others, and for each method that lacks results.

    A method should have results at all of its settings, on every hierarchy of the task, in all trained networks, and
    in every control, draw and seed for which any method has results. Oracles read the truth instead of networks.
    """
    draws, seeds = ({v[name] for v in files} for name in ("draw", "seed"))
    for given, word in ((draws, "draws"), (seeds, "networks")):
        if left_out := max(given) + 1 - len(given):
            yield f"{left_out} of {word} 0 to {max(given)} have no results"
    each = len(draws) * n_factors(frozen.recipe)
    places = {role: each * (1 if role in (RAW, TRUTH) else len(seeds)) for role in {v["role"] for v in files}}
    places[TRAINED] = places.get(TRAINED, 0) * n_factors(frozen.recipe)
    held: dict[str, list[str]] = {}
    for v in files:
        held.setdefault(v["method"].partition(AT)[0], []).append(v["method"])
    for family, readers in held.items():
        ours = entry(family, frozen.options.budget) if family.partition("@")[0] in METHODS else None
        count = len(settings_of(ours) if ours else set(readers))
        asked = count * sum(n for role, n in places.items() if (reads(ours, role) if ours else role != TRUTH))
        if len(readers) < asked:
            missing = f"{asked - len(readers)} of {asked} results"
            yield f"{family} lacks {missing}, its settings on all draws, networks and hierarchies of the task"


def page(tasks: Sequence[Checked]) -> bytes:
    """Return the page of results."""
    body = []
    for checked in tasks:
        head, lines = table(checked.rows)
        ruled = [(t.endpoint, t.method, t.estimate.estimate.text(), t.words, t.verdict) for t in tested(checked.rows)]
        body += [
            pages.heading(checked.title),
            *map(pages.paragraph, checked.lacking),
            pages.table(ruled, ("endpoint", "method", "estimate and 95% interval", "beside it", "verdict"), stack=True),
            *pages.wide_table(lines, head),
        ]
    body.append(pages.folded("How it is measured", map(pages.paragraph, EXPERIMENT.words.method)))
    files = sum(checked.files for checked in tasks)
    verdict = f"{files:,} result files of {len(tasks)} task{'s' * (len(tasks) > 1)} are as the schema says."
    return pages.page("percolab benchmark: results from files", "", body, verdict=verdict)
