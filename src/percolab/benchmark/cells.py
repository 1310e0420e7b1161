"""Cells: one method on one representation with one seed. Each is a file that says what it was made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from percolab.benchmark.tasks import RAW, TRUTH, Task
from percolab.features.concepts import SUMMARY_RATIO
from percolab.features.specs import ORACLE, Entry, source
from percolab.ground.version import __version__
from percolab.study.directory import read_json as read

CELLS, TRUTHS = "cells", "truths"


@dataclass(frozen=True)
class Cell:
    """A method on what a network makes of the data."""

    task: Task
    network: str
    """raw, untrained, trained or trained-K; truth for the oracles, which look at no activations"""
    layer: str
    entry: Entry
    seed: int
    """of the network and of the method"""

    @property
    def name(self) -> str:
        """The cell in words, and its file."""
        return f"{self.network}_{self.layer}_{self.entry.slug}_{self.seed}"

    def file(self, output: Path) -> Path:
        """Return where it is kept."""
        return output / CELLS / self.task.name / f"{self.name}.json"

    def made_from(self) -> dict[str, Any]:
        """Return all that decides about its numbers, as plain values.

        Of a method of someone else that is the file of its class too, but not what that imports.
        """
        task = self.task.to_dict()
        training = None if self.network in (RAW, TRUTH) else task["training"]
        values = {
            "percolab": __version__, "task": self.task.name, "scale": self.task.scale, "recipe": task["recipe"],
            "training": training, "network": self.network, "layer": self.layer, "name": self.entry.name,
            "method": self.entry.method, "options": self.entry.options, "seed": self.seed,
            "min_size": self.task.min_size, "ratio": SUMMARY_RATIO,
        }  # fmt: skip
        if (digest := source(self.entry)) is not None:
            values["source"] = digest
        return dict(json.loads(json.dumps(values)))

    def is_done(self, output: Path) -> bool:
        """Return whether its file is there, made from the same things, and holds no failure."""
        kept = read(self.file(output))
        return "values" in kept and kept.get("made_from") == self.made_from()


def grid(
    task: Task, entries: Sequence[Entry], seeds: Sequence[int], networks: Sequence[str], layers: Sequence[str]
) -> list[Cell]:
    """Return the cells of a task, those on the same activations together."""
    return [
        Cell(task, network, layer, entry, seed)
        for seed in seeds
        for network in networks
        for layer in ((network,) if network in (RAW, TRUTH) else layers)
        for entry in entries
        if (entry.method == ORACLE) == (network == TRUTH) and not (network == TRUTH and seed)
    ]


def read_all(output: Path) -> list[dict[str, Any]]:
    """Return the contents of all cells that are there, sorted by file."""
    return [kept for file in sorted((output / CELLS).glob("*/*.json")) if (kept := read(file)).get("made_from")]
