"""The estimates of an experiment: rows with names, each a number with its interval, alone or over several draws."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from percolab.ground.text import counted
from percolab.intervals import Estimate, over_seeds, verdict

ENOUGH = 3  #: Fewest draws, or networks, for a meaningful interval over them.
LOCAL = ("bin", "at", "concepts")  #: Names that depend on the draw of the data.


VERDICTS = ("found", "not found", "found, with the other sign")


@dataclass(frozen=True)
class Row:
    """An estimate, and names that say what it estimates."""

    estimate: Estimate
    names: dict[str, Any] = field(default_factory=dict)
    band: bool = False  #: whether the interval is the range of single draws of a null
    by_draw: tuple[float, ...] = ()  #: the number in each draw of the data, where there are several
    per: str = ""  #: what has as many networks each, if the interval pairs them over several, such as lexicons

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    @property
    def over(self) -> str:
        """What the interval is taken over, as text."""
        if len(self.by_draw) >= ENOUGH:
            return f"{len(self.by_draw)} draws of the data"
        of = "this dataset" if len(self.by_draw) < 2 else f"these {len(self.by_draw)} datasets"
        return f"{self.networks}, {counted(self.estimate.units, 'unit')} of {of}"

    @property
    def networks(self) -> str:
        """How many networks the estimate is from, as text."""
        return counted(self.estimate.seeds, "network") + (f" per {self.per}" if self.per else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {**self.names, **self.estimate.to_dict(), "by_draw": list(self.by_draw), "interval_over": self.over}


def row(estimate: Estimate, **names: Any) -> Row:
    """Return an estimate with the names that say what it estimates."""
    return Row(estimate, names)


def band(estimate: Estimate, **names: Any) -> Row:
    """Return the range of single draws of a null as a row."""
    return Row(estimate, names, band=True)


def select(rows: Iterable[Row], **names: Any) -> list[Row]:
    """Return the rows that have these names."""
    return [r for r in rows if all(r.names.get(name) == value for name, value in names.items())]


def find(rows: Iterable[Row], **names: Any) -> Row | None:
    """Return the first row that has these names, if there is one."""
    return next(iter(select(rows, **names)), None)


def layers_of(rows: Iterable[Row]) -> list[str]:
    """Return the layers that occur in rows, in order."""
    return list(dict.fromkeys(r["layer"] for r in rows if "layer" in r.names))


@dataclass(frozen=True)
class Line:
    """An answer to the question: an estimate, its null value, and the same estimate for a control."""

    what: str
    row: Row
    sign: int = 1  #: sign of the effect, if there is one
    nothing: float = 0.0  #: the null value of the estimate
    #: if the control's interval is the range of single draws of the null, an effect must lie outside it
    control: Row | None = None
    control_words: str = ""
    note: str = ""  #: text in place of a control
    #: the words for an effect of the expected sign, for no effect, and for one of the opposite sign
    answers: tuple[str, str, str] = VERDICTS
    ruled: str = ""  #: the verdict, where a rule of the experiment's own decides

    @property
    def verdict(self) -> str:
        """The verdict of the interval, or of the experiment's own rule."""
        if self.ruled:
            return self.ruled
        estimate, control = self.row.estimate, self.control
        if control is not None and control.band and control.estimate.low <= estimate.value <= control.estimate.high:
            return "not found"
        return verdict(estimate.through(lambda value: value - self.nothing), self.sign)

    @property
    def answer(self) -> str:
        """The verdict in the words of this line."""
        return dict(zip(VERDICTS, self.answers, strict=True)).get(self.verdict, self.verdict)

    @property
    def beside(self) -> str:
        """The control, the note, or else the null value, as text."""
        if self.control:
            return f"{self.control_words}: {self.control.estimate.text()}"
        return self.note or f"{self.nothing:g} if there is nothing"

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values."""
        control = None if self.control is None else self.control.to_dict()
        numbers = {"what": self.what, "estimate": self.row.to_dict(), "control": control}
        return {**numbers, "note": self.note, "verdict": self.verdict, "answer": self.answer}


def combined(by_draw: Sequence[Iterable[Row]]) -> list[Row]:
    """Return the rows of several draws of the data as one table.

    Rows with the same names become one row; bins, whose ends differ from draw to draw, are matched by their order. The
    value is the mean over draws. With three draws or more, the interval is Student's t over the draws' values. With
    two, it is the interval of a mean of two independent numbers with the draws' intervals, and holds for these datasets
    only. The ends of a null's range are averaged over the draws.
    """
    if len(by_draw) == 1:
        return list(by_draw[0])
    groups: dict[Any, list[Row]] = {}
    for rows in by_draw:
        seen: dict[Any, int] = defaultdict(int)
        for row in rows:
            key = tuple((name, value) for name, value in row.names.items() if name not in LOCAL)
            groups.setdefault((key, seen[key]), []).append(row)
            seen[key] += 1
    return [_combined(rows) for rows in groups.values()]


def _combined(rows: list[Row]) -> Row:
    first, values = rows[0], [row.estimate.value for row in rows]
    ends = np.array([[row.estimate.low, row.estimate.high] for row in rows])
    units = round(float(np.mean([row.estimate.units for row in rows])))
    value = float(np.mean(values))
    if first.band:
        low, high = ends.mean(0)
        estimate = Estimate(value, float(low), float(high), first.estimate.seeds, units)
    elif len(rows) >= ENOUGH:
        estimate = replace(over_seeds(values), seeds=first.estimate.seeds, units=units)
    else:
        below, above = np.sqrt(((ends - np.array(values)[:, None]) ** 2).sum(0)) / len(rows)
        estimate = Estimate(value, value - float(below), value + float(above), first.estimate.seeds, units)
    names = dict(first.names)
    if "at" in names:
        names["at"] = float(np.mean([row["at"] for row in rows]))
    if "bin" in names:
        names["bin"] = f"{names['bin']} in the first draw"
    return replace(first, estimate=estimate, names=names, by_draw=tuple(values))
