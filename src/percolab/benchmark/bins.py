"""Scores in bins of size or depth: means over seeds, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.intervals import Estimate, over_seeds

EXCESS = "absorption_excess"
"""Rows that are absorbed, beyond what independent misses give."""
BINNED = {
    "size": ("recovery", "recovered", "chance", "splitting", "f1_union"),
    "depth": ("absorption_edge", "absorption", "absorption_null", EXCESS, "recovery"),
}
"""What is kept of the bins of a score."""
Kept = Mapping[str, Sequence[Any]]
"""The bins of one score, as a cell keeps them: columns of equal length, None for what is not known."""


@dataclass(frozen=True)
class Bin:
    """The concepts whose size, or depth, is at least `start` and below `stop`."""

    start: float
    stop: float
    concepts: float
    """how many there are, a mean over hierarchies"""
    values: dict[str, Estimate]
    """means over seeds; an interval needs two that know the number"""


def columns(found: Sequence[Bin]) -> dict[str, list[float | None]]:
    """Return bins as plain columns: each mean by its name, and `NAME_low`, `NAME_high` and `NAME_seeds` beside it."""
    table: dict[str, list[float | None]] = {"from": [one.start for one in found], "to": [one.stop for one in found]}
    table["concepts"] = [one.concepts for one in found]
    for name in found[0].values if found else ():
        own = [one.values[name] for one in found]
        for ending, part in (("", "value"), ("_low", "low"), ("_high", "high")):
            table[name + ending] = [_known(getattr(one, part)) for one in own]
        table[f"{name}_seeds"] = [one.seeds for one in own]
    return table


def bins(by_seed: Sequence[Sequence[Kept]], names: Sequence[str]) -> list[Bin]:
    """Return the bins of several seeds: of each, the mean over the hierarchies that know it, then over seeds.

    Parameters
    ----------
    by_seed
        For each seed, the bins of its score against each hierarchy.
    names
        Of the numbers that are wanted.
    """
    found: dict[tuple[float, float], list[list[dict[str, float]]]] = {}
    for i, tables in enumerate(by_seed):
        for table in tables:
            for at, ends in enumerate(zip(table["from"], table["to"], strict=True)):
                row = {name: number(values[at]) for name, values in table.items()}
                found.setdefault(ends, [[] for _ in by_seed])[i].append(row)
    return [_bin(*ends, rows, names) for ends, rows in sorted(found.items())]


def _bin(start: float, stop: float, by_seed: list[list[dict[str, float]]], names: Sequence[str]) -> Bin:
    counts = _mean(row["concepts"] for rows in by_seed for row in rows)
    values = {name: over_seeds([_mean(_value(row, name) for row in rows) for rows in by_seed]) for name in names}
    return Bin(start, stop, counts, values)


def _value(row: Mapping[str, float], name: str) -> float:
    return row["absorption"] - row["absorption_null"] if name == EXCESS else row[name]


def _mean(values: Any) -> float:
    """Return the mean of what is known."""
    known: NDArray[np.float64] = np.array([value for value in values if np.isfinite(value)])
    return float(known.mean()) if known.size else float("nan")


def number(value: Any) -> float:
    """Return a number that a cell keeps, NaN where it keeps none."""
    return float("nan") if value is None else float(value)


def _known(value: float) -> float | None:
    """Return a number as it is written, to the digits that cells have; None for one that is not known."""
    return round(value, 5) if np.isfinite(value) else None
