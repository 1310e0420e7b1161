"""Experiments in stages: each leaves a file that says what it was made from, and is not run again while that holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from percolab.ground.files import write_json
from percolab.ground.progress import Progress, silent

EXPERIMENT = "experiment.json"
"""File that says which experiment a directory is of."""


def claim(directory: Path, wanted: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Make a directory that of the experiment described by `wanted`, plain values, or say why not."""
    file = directory / EXPERIMENT
    if holds(directory, EXPERIMENT, "an experiment") and not overwrite:
        found = read(file)
        for name in wanted:
            if found.get(name) != wanted[name]:
                raise FileExistsError(
                    f"output must hold the same experiment unless overwrite is given, got {str(directory)!r} "
                    f"with {name} {found.get(name)!r}"
                )
    directory.mkdir(parents=True, exist_ok=True)
    write_json(file, dict(wanted))


def holds(directory: Path, file: str, what: str) -> bool:
    """Return whether a directory has the file that says what it holds; raise unless it has, or is empty or new."""
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"output must be a directory, got {str(directory)!r}")
    if (directory / file).exists():
        return True
    if directory.exists() and any(directory.iterdir()):
        raise FileExistsError(f"output must be empty or hold {what}, got {str(directory)!r}")
    return False


def read(file: Path) -> dict[str, Any]:
    """Return what a file of ours holds, or nothing if it is missing or damaged."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


class Stages:
    """The stages of an experiment in one directory; the values of each are kept in STAGE.json."""

    def __init__(self, output: Path, progress: Progress = silent, device: str = "cpu") -> None:
        self.output, self.progress, self.device = output, progress, device
        self.seconds: dict[str, float] = {}
        """time that each stage took, when it was run"""
        self.devices: dict[str, str] = {}
        """name of the device that each stage was run on, which may be another than that of the report"""

    def has(self, name: str, made_from: Mapping[str, Any], files: Iterable[str] = ()) -> bool:
        """Tell whether a stage is there, made from the same things, with its files."""
        kept = read(self.output / f"{name}.json")
        return kept.get("made_from") == made_from and all((self.output / path).is_file() for path in files)

    def run(
        self,
        name: str,
        made_from: Mapping[str, Any],
        make: Callable[[], dict[str, Any]],
        files: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Return the values of a stage: those kept, if they and its files are there, else made and kept.

        Parameters
        ----------
        name
            Of the stage; its values are kept in NAME.json.
        made_from
            Plain values that decide about the result, equal after a round trip through JSON.
        make
            Makes the values, which are plain, and the files.
        files
            What the stage writes, relative to the directory.
        """
        file = self.output / f"{name}.json"
        if self.has(name, made_from, files):
            kept = read(file)
            self._note(name, kept)
            self.progress(name, 1, 1)
            return dict(kept["values"])
        start = time.perf_counter()
        values = make()
        how = {"seconds": time.perf_counter() - start, "device": self.device}
        write_json(file, {"made_from": made_from, **how, "values": values})
        self._note(name, how)
        return values

    def join(self, name: str, parts: Iterable[str]) -> None:
        """Count stages as one, of another name: the sum of their times, and their devices."""
        parts = list(parts)
        self.seconds[name] = sum(self.seconds.pop(part) for part in parts)
        self.devices[name] = ", ".join(sorted({self.devices.pop(part) for part in parts}))

    def _note(self, name: str, how: Mapping[str, Any]) -> None:
        self.seconds[name] = how["seconds"]
        self.devices[name] = how.get("device", "unknown")
