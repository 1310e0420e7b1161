"""Result files that others can read: one per draw, role, hierarchy, seed, and method with its options and setting.

The envelope is that of SAEBench; `result.schema.json` beside this module is its JSON Schema. Every mean over concepts
in `eval_result_metrics` can be computed again from `eval_result_details`, and `checksum` covers everything else, so a
changed file is detected.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from sys import float_info
from typing import Any

import numpy as np

from percolab.benchmark.judgement import AT, SCALARS, SUBTREES, UNITS, WHOLE, rated, settings_of
from percolab.benchmark.tasks import VERSION, Options, Task
from percolab.features.register import entry
from percolab.ground.files import replacing
from percolab.ground.text import printable, shown
from percolab.ground.version import __version__
from percolab.study import directory as directory_of_study
from percolab.study.measured import Measured, Units
from percolab.study.settings import Settings

TYPE = "percolab_concept_recovery"
SCHEMA_VERSION = 1
#: Measures that have a name in SAEBench or SAELens: category and name. All others are in `recovery`, by our names, and
#: so is what differs from a measure there: probes have an AUC, not an accuracy; loss is recovered from the mean, not 0.
CATEGORIES: Mapping[str, tuple[str, str]] = {
    "l0_zero": ("sparsity", "l0"),
    "explained_variance": ("reconstruction_quality", "explained_variance"),
    "shrinkage": ("shrinkage", "l2_ratio"),
    "mcc": ("sae_lens", "mcc"),
    "uniqueness": ("sae_lens", "uniqueness"),
    "latent_precision": ("sae_lens", "precision"),
    "latent_recall": ("sae_lens", "recall"),
}
PLAIN = "recovery"
#: What tells the files of a task apart: one method at one setting, on one network, for one hierarchy.
PLACE = ("draw", "role", "trained_on", "seed", "layer", "factor", "method")
TOLERANCE = 1e-6
DIGITS = 7
MOST_BYTES = 1 << 24
MOST_FILES = 100_000
SCHEMA: Mapping[str, Any] = json.loads(files("percolab.benchmark").joinpath("result.schema.json").read_text())


def write(directory: Path, s: Settings[Options], cells: Sequence[Measured], task: Task) -> None:
    """Write the files of a draw; a file that already has these numbers is not written again."""
    folder = directory / directory_of_study.SUBMISSION
    folder.mkdir(exist_ok=True)
    groups: dict[Any, list[Measured]] = {}
    for cell in cells:
        key = cell.role, cell.trained_on, cell.seed, cell.layer, cell.factor, cell.reader
        groups.setdefault(key, []).append(cell)
    for measured in groups.values():
        values = made(s, measured, task)
        file = folder / f"{values['eval_id']}.json"
        if directory_of_study.read_json(file).get("checksum") != values["checksum"]:
            with replacing(file) as partial:
                partial.write_text(json.dumps(values))


def made(s: Settings[Options], cells: Sequence[Measured], task: Task) -> dict[str, Any]:
    """Return the contents of one file: all measures of a method at a setting, on a representation, for a hierarchy."""
    first = cells[0]
    by_name = {cell.measure: cell for cell in cells}
    values: dict[str, Any] = {
        "eval_type_id": TYPE,
        "eval_config": config(s),
        "eval_result_metrics": metrics(by_name),
        "eval_result_details": _details(by_name),
        "sae_cfg_dict": options_of(first.reader, first.role, s.options),
        "percolab": __version__, "schema_version": SCHEMA_VERSION,
        "benchmark_version": VERSION, "task": task.name, "task_digest": task.digest, "scale": s.scale,
        "draw": first.draw, "role": first.role, "seed": first.seed, "layer": first.layer, "factor": first.factor,
        "trained_on": -1 if first.trained_on is None else first.trained_on, "method": first.reader,
    }  # fmt: skip
    where = [values[name] for name in ("task", "scale", *PLACE)]
    values["eval_id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(where)))
    values["checksum"] = checksum(values)
    return {**values, "datetime_epoch_millis": time.time_ns() // 1_000_000}


def config(s: Settings[Options]) -> dict[str, Any]:
    """Return what the results of a draw are made from, as plain values."""
    plain = s.to_dict()
    return {
        "recipe": plain["recipes"][0], "training": plain["training"], "budget": plain["options"]["budget"],
        "min_size": s.options.min_size, "scale": s.scale, "network": s.network, "data_digest": s.digest,
    }  # fmt: skip


def options_of(reader: str, role: str, task: Options) -> dict[str, Any]:
    """Return the options of a method at a setting, in networks of a role, as plain values."""
    readers = dict(settings_of(rated(task, role, entry(reader.partition(AT)[0], task.budget))))
    if reader not in readers:
        raise ValueError(f"method must be {' or '.join(readers)}, got {shown(reader)}")
    return dict(json.loads(json.dumps(readers[reader].options)))


def checksum(values: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything but the time and the checksum itself."""
    hashed = {name: value for name, value in values.items() if name not in ("checksum", "datetime_epoch_millis")}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def metrics(by_name: Mapping[str, Measured]) -> dict[str, dict[str, float | None]]:
    """Return numbers by category: means over concepts, and measures of the whole method."""
    by_category: dict[str, dict[str, float | None]] = {}
    for name in (*UNITS, SUBTREES, *SCALARS):
        if name in by_name:
            category, metric = CATEGORIES.get(name, (PLAIN, name))
            known = by_name[name].values[np.isfinite(by_name[name].values)]
            by_category.setdefault(category, {})[metric] = _plain(known.mean()) if known.size else None
    return by_category


def _details(by_name: Mapping[str, Measured]) -> list[dict[str, Any]]:
    names = [name for name in UNITS if name in by_name]
    units = by_name["f1"].units
    return [
        {"concept": int(number), "place": int(place), **{name: _plain(by_name[name].values[i]) for name in names}}
        for i, (number, place) in enumerate(zip(units.number, units.place, strict=True))
    ]


def _plain(value: Any) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None


# ---------------------------------------------------------------------- reading


def check(values: Mapping[str, Any]) -> None:
    """Raise ValueError, in one line, unless a file follows the schema, its means its details, and its checksum both."""
    check_schema(values, SCHEMA)
    if values["checksum"] != checksum(values):
        raise ValueError("checksum must be that of the file: the file was changed")
    numbers = [row["concept"] for row in values["eval_result_details"]]
    if len(set(numbers)) < len(numbers):
        raise ValueError("eval_result_details must have each concept once")
    _check_means(values)


def _check_means(values: Mapping[str, Any]) -> None:
    reported = values["eval_result_metrics"]
    for name in UNITS:
        category, metric = CATEGORIES.get(name, (PLAIN, name))
        stated = reported.get(category, {}).get(metric)
        numbers = [row[name] for row in values["eval_result_details"] if row.get(name) is not None]
        mean = float(np.mean(numbers)) if numbers else None
        if (stated is None) != (mean is None) or (
            mean is not None and abs(stated - mean) > TOLERANCE * max(1, abs(mean))
        ):
            raise ValueError(f"{category}.{metric} must be the mean of its details, {mean}, got {shown(stated)}")


def to_measured(values: Mapping[str, Any]) -> Iterator[Measured]:
    """Return the measures that a file holds."""
    on = None if values["trained_on"] < 0 else int(values["trained_on"])
    where = values["draw"], values["role"], on, values["seed"], values["layer"], values["method"]
    rows = values["eval_result_details"]
    units = Units(*(np.array([row[name] for row in rows], np.int64) for name in ("concept", "place")))
    for name in UNITS:
        if any(name in row for row in rows):
            numbers = np.array([np.nan if row.get(name) is None else row[name] for row in rows], np.float64)
            yield Measured(*where, name, values["factor"], units, numbers)
    for name in (SUBTREES, *SCALARS):
        category, metric = CATEGORIES.get(name, (PLAIN, name))
        number = values["eval_result_metrics"].get(category, {}).get(metric)
        if number is not None:
            yield Measured(*where, name, values["factor"], WHOLE, np.full(1, float(number)))


_KINDS: Mapping[str, Any] = {
    "object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "null": type(None),
}  # fmt: skip


def check_schema(value: Any, schema: Mapping[str, Any], where: str = "it") -> None:
    """Raise ValueError, in one line, unless a value follows a JSON Schema; only what `SCHEMA` uses is supported."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, _KINDS[kind]) and not isinstance(value, bool) for kind in kinds):
        raise ValueError(f"{where} must be {' or '.join(kinds)}, got {shown(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{where} must be {' or '.join(map(repr, schema['enum']))}, got {shown(value)}")
    if isinstance(value, int | float):
        low, high = schema.get("minimum", -float_info.max), schema.get("maximum", float_info.max)
        if not low <= value <= high:
            raise ValueError(f"{where} must be from {low:g} to {high:g}, got {shown(value)}")
    if isinstance(value, str) and (len(value) > schema.get("maxLength", MOST_BYTES) or printable(value) != value):
        raise ValueError(f"{where} must be printable and not too long, got {shown(value)}")
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                raise ValueError(f"{where} must have {name}")
        known = schema.get("properties", {})
        for name, part in value.items():
            check_schema(part, known.get(name, schema.get("additionalProperties", {})), shown(name))
    if isinstance(value, list):
        for i, part in enumerate(value):
            check_schema(part, schema.get("items", {}), f"{where}[{i}]")
