"""The report of an experiment: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from percolab.ground.progress import clock
from percolab.intervals import Estimate, verdict
from percolab.nn.frame.frame import Frame
from percolab.nn.frame.table import Row
from percolab.nn.networks.recording import label
from percolab.show import pages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REDUCED = (
    "This is a small run: few points and a small, briefly trained network. It shows that every stage works; what it "
    "finds need not hold at full scale."
)
INTERVALS = (
    "Every number has a 95% interval over networks and units. It comes from leaving out one network after another, "
    "and one block of kin after another, since neighbours in a hierarchy are not independent (jackknife, with "
    "Student's t). An effect is said to be found where its interval leaves out the value that means nothing."
)
TWO_SEEDS = (
    "With two networks for each target it can be twice as many: how far networks differ is then told from one "
    "difference, which makes intervals wide, and too narrow where the two happen to agree. Five are better."
)
"""A slope of nothing is found in about 1 of 10 draws with two seeds, in less than 1 of 20 with five: a test of
responses draws them."""
VERDICTS = ("found", "not found", "found, with the other sign")
LOOKS = {"found": "good", "not found": "mixed", "found, with the other sign": "bad", "not measured": "mixed"}


@dataclass(frozen=True)
class Words:
    """What a report says beside its numbers."""

    title: str
    question: str
    method: str
    control: str
    captions: Mapping[str, str] = field(default_factory=dict)
    """by figure"""
    measured: str = "measures.npz"
    """where in the directory what was measured is"""


@dataclass(frozen=True)
class Line:
    """An answer: an estimate, what it would be if there were nothing, and the same for a control."""

    what: str
    row: Row
    sign: int = 1
    """sign of the effect, if there is one"""
    nothing: float = 0.0
    """what the estimate is where there is no effect"""
    control: Row | None = None
    control_words: str = ""
    note: str = ""
    """what stands in place of a control"""
    answers: tuple[str, str, str] = VERDICTS
    """what is said of an effect with the expected sign, of none, and of one with the other sign"""
    band: bool = False
    """whether the control's interval is where a single draw of nothing falls: an effect must then be outside of it"""

    @property
    def verdict(self) -> str:
        """What the interval says."""
        shift, row = self.nothing, self.row
        if self.band and self.control and self.control["low"] <= row["value"] <= self.control["high"]:
            return "not found"
        value, low, high = (float("nan") if row[n] is None else row[n] - shift for n in ("value", "low", "high"))
        return verdict(Estimate(value, low, high, row["seeds"], row["units"]), self.sign)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "what": self.what,
            "estimate": self.row,
            "control": self.control,
            "note": self.note,
            "verdict": self.verdict,
            "answer": self.answer,
        }

    @property
    def answer(self) -> str:
        """The verdict in the words of this line."""
        return dict(zip(VERDICTS, self.answers, strict=True)).get(self.verdict, self.verdict)


@dataclass(frozen=True)
class Answers:
    """What an experiment found, and how it is told."""

    rows: Sequence[Row]
    """all estimates"""
    headline: Sequence[Line]
    """those that answer the question"""
    training: Mapping[str, Any]
    """what was trained"""
    words: Words


def publish(
    frame: Frame[Any], name: str, answers: Answers, drawn: Mapping[str, Figure], *, begun: float
) -> dict[str, Any]:
    """Write figures, report and results.json; return all numbers."""
    values = {
        "headline": [line.to_dict() for line in answers.headline],
        "estimates": answers.rows,
        "training": answers.training,
        "settings": frame.settings.to_dict(),
    }
    page = partial(make, words=answers.words, headline=answers.headline)
    return frame.report(name, values, frame.draw(drawn), page, begun=begun)


def make(results: Mapping[str, Any], figures: Mapping[str, bytes], *, words: Words, headline: Sequence[Line]) -> bytes:
    """Return the report as one HTML page with its figures, PNGs by name, inside."""
    lead = (
        f"{_networks(results)}. Made on {results['provenance']['device']} in "
        f"{clock(sum(results['seconds'].values()))} (minutes:seconds)."
    )
    body = [
        *([] if results["scale"] == "paper" else [pages.paragraph(REDUCED)]),
        pages.paragraph(words.question),
        pages.heading("What was found"),
        _headline(headline),
        pages.paragraph(f"{INTERVALS} {_by_chance(headline)}", quiet=True),
        pages.heading("How it is measured"),
        pages.paragraph(words.method),
        pages.paragraph(words.control),
        pages.heading("Figures"),
        *(pages.image(figures[name], words.captions.get(name, ""), wide=True) for name in figures),
        pages.heading("How it was made"),
        *_making(results, words),
    ]
    return pages.page(f"{words.title}, {results['scale']} scale", lead, body)


def _by_chance(lines: Sequence[Line]) -> str:
    """Say how many of these lines are found by chance, and what it costs to have two networks."""
    count = len(lines)
    words = f"If there were nothing at all, about {count / 20:.1f} of these {count} lines would be said to be found."
    return f"{words} {TWO_SEEDS}" if any(line.row["seeds"] == 2 for line in lines) else words


def _networks(results: Mapping[str, Any]) -> str:
    """Return what was trained, in words."""
    scores, chosen = results["training"], results["settings"]
    data = " and ".join(chosen["data"]) if isinstance(chosen["data"], list) else chosen["data"]
    words = f"{scores['networks']} networks on {data} data"
    if "test" not in scores:
        return words
    r2 = _span([score["r2"] for score in scores["test"]])
    return f"{words}, {chosen['training']['epochs']:,} epochs, test R² {r2}"


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None and value == value]
    if not known:
        return "not known"
    return f"{min(known):.3f}" if min(known) == max(known) else f"{min(known):.3f} to {max(known):.3f}"


def number(row: Mapping[str, Any] | None) -> str:
    """Return an estimate with its interval, as text."""
    if row is None or row["value"] is None or row["value"] != row["value"]:
        return ""
    if row["low"] is None or row["low"] != row["low"]:
        return f"{row['value']:.3g}"
    return f"{row['value']:.3g} [{row['low']:.3g}, {row['high']:.3g}]"


def _headline(lines: Sequence[Line]) -> str:
    rows = [
        (
            line.what,
            number(line.row),
            f"{line.control_words}: {number(line.control)}"
            if line.control
            else line.note or f"{line.nothing:g} if there is nothing",
            f"{line.row['seeds']}, {line.row['units']}",
            line.answer,
        )
        for line in lines
    ]
    head = ("question", "estimate and interval", "control", "seeds, units", "here")
    return pages.table(rows, head, [LOOKS[line.verdict] for line in lines], stack=True)


def times(results: Mapping[str, Any]) -> str:
    """Return a table of the stages: how long each took, and on which device."""
    devices = results["devices"]
    return pages.table((name, f"{value:.1f} s", devices.get(name, "")) for name, value in results["seconds"].items())


def _making(results: Mapping[str, Any], words: Words) -> Iterable[str]:
    yield pages.code(results["command"])
    yield times(results)
    chosen = results["settings"]
    parts = {
        "Settings": {name: value for name, value in chosen.items() if name not in ("recipe", "training")},
        "Recipe of the data": chosen.get("recipe", {}),
        "Training": chosen["training"],
        "Versions and machine": results["provenance"],
    }
    for name, values in ((name, values) for name, values in parts.items() if values):
        yield pages.folded(name, [pages.settings(values)])
    yield pages.folded("All estimates", [_estimates(results["estimates"])])
    yield pages.paragraph(
        f"All numbers are in results.json, what was measured of every network and unit in {words.measured}.", quiet=True
    )


def _estimates(rows: Sequence[Row]) -> str:
    plain = ("value", "low", "high", "seeds", "units", "leaves_out_0", "at")
    names = list(dict.fromkeys(name for row in rows for name in row if name not in plain))
    cells = [
        (*(label(r[n]) if n == "layer" and n in r else str(r.get(n, "")) for n in names), number(r), str(r["units"]))
        for r in rows
    ]
    return pages.table(cells, (*names, "estimate and interval", "units"), numbers=[len(names) + 1])
