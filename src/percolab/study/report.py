"""The page of an experiment: one HTML file that needs nothing else. Its finding comes first, then a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from percolab.ground.progress import clock
from percolab.ground.text import counted, paragraphs
from percolab.nn.networks.activations import label
from percolab.show import pages
from percolab.study.estimates import ENOUGH, Line, Row

REDUCED = (
    "This is a small run: few points and a small, briefly trained network. It shows that every stage works; what it "
    "finds need not hold at full scale."
)
OF_THIS = (
    "Every number has a 95% interval over networks and units of {of}: it says nothing about another draw of the data "
    "(--draws 3 or more does). It comes from leaving out one network after another, and one block of kin after "
    "another, since neighbours in a hierarchy are not independent (jackknife, with Student's t). An effect is said to "
    "be found where its interval leaves out the null value."
)
OF_DRAWS = (
    "Every number is the mean over {draws} draws of the data, which differ in nothing but their seeds, with a 95% "
    "interval over these draws (Student's t). The number of each draw is beside it. An effect is said to be found "
    "where its interval leaves out the null value."
)
#: A slope of nothing is found in about 1 of 10 draws with two seeds, in less than 1 of 20 with five: a test of
#: responses draws them.
TWO_SEEDS = (
    "With two networks for each target it can be twice as many: how far networks differ is then told from one "
    "difference, which makes intervals wide, and too narrow where the two happen to agree. Five are better."
)
LOOKS = {"found": "good", "found, with the other sign": "bad", "above 0": "good", "below 0": "bad"}


@dataclass(frozen=True, eq=False)
class Words:
    """The text of an experiment: the paragraphs of its module's docstring."""

    title: str
    question: str
    method: tuple[str, ...]

    @classmethod
    def of(cls, text: str | None) -> Words:
        """Return the title, the question, and how it is measured."""
        title, question, *method = paragraphs(text) or ("An experiment.", "?")
        return cls(title.removesuffix("."), question, tuple(method))


@dataclass(frozen=True, eq=False)
class Report:
    """The contents of a page."""

    words: Words
    results: Mapping[str, Any]  #: all numbers, as in results.json
    #: number of networks, and their scores; in results.json an experiment may say it in its own way
    networks: Mapping[str, Any]
    rows: Sequence[Row]
    headline: Sequence[Line]
    images: Mapping[str, tuple[bytes, str]]  #: PNGs and captions by name, the one that answers the question first
    sections: Sequence[str] = ()  #: HTML of the experiment's own tables
    finding: tuple[str, str] | None = None  #: the experiment's own answer and its colour, else the first line's


def make(report: Report) -> bytes:
    """Return the page: verdict, one picture, table; the method is folded, and other figures and the making follow."""
    text, results = report.words, report.results
    first, *others = [pages.image(png, caption, wide=True) for png, caption in report.images.values()] or [""]
    lead = [_lead(results, report.networks), *([] if results["scale"] == "paper" else [REDUCED])]
    body = [
        first,
        *_table(report.headline),
        pages.folded("How it is measured", map(pages.paragraph, text.method)),
        *report.sections,
        *([pages.heading("More figures"), *others] if others else []),
        pages.heading("How it was made"),
        *_making(report),
    ]
    verdict, look = report.finding or _finding(report.headline)
    verdict = f"{text.question} {verdict}".strip()
    title = f"{text.title}, {results['scale']} scale"
    return pages.page(title, " ".join(lead), body, verdict=verdict, look=look, banner=unfinished(results["missing"]))


def section(make: Callable[..., Iterable[str]], *given: Any) -> list[str]:
    """Return a section of a page: `make` gives its tables; its docstring gives the heading and the text below it."""
    title, *rest = paragraphs(make.__doc__)
    said = [pages.definitions(" ".join(rest))] if rest else []
    return [pages.heading(title.removesuffix(".")), *said, *make(*given)]


def unfinished(missing: Sequence[str]) -> str:
    """Return the warning of an unfinished run, which comes first on the page; empty for a finished run."""
    if not missing:
        return ""
    shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return f"This run is not finished. Missing: {shown}. The same command resumes it."


def _finding(lines: Sequence[Line]) -> tuple[str, str]:
    """Return the first answer as a sentence, and its colour."""
    if not lines:
        return "", ""
    line = lines[0]
    answer = line.answer[:1].upper() + line.answer[1:]
    text = f"{answer}: {line.what}: {line.row.estimate.text()}. The interval is over {line.row.over}."
    return text, LOOKS.get(line.verdict, "mixed")


def _table(lines: Sequence[Line]) -> Iterable[str]:
    if not lines:
        return
    rows = [(line.what, line.row.estimate.text(), line.beside, _over(line.row), line.answer) for line in lines]
    head = ("measured", "estimate and 95% interval", "control or test", "over", "verdict")
    yield pages.table(rows, head, [LOOKS.get(line.verdict, "mixed") for line in lines], stack=True)
    draws = max(len(line.row.by_draw) for line in lines)
    seeds = min((line.row for line in lines), key=lambda row: row.estimate.seeds or ENOUGH)
    few = [f"as few as {seeds.networks}"] if 0 < seeds.estimate.seeds < ENOUGH else []
    few += [f"only {counted(max(1, draws), 'draw')} of the data"] if draws < ENOUGH else []
    if few:
        yield pages.paragraph(f"These numbers are from {' and '.join(few)}.", quiet=True)
    of = "this dataset" if draws < 2 else f"these {draws} datasets"
    text = OF_DRAWS.format(draws=draws) if draws >= ENOUGH else OF_THIS.format(of=of)
    yield pages.definitions(f"{text} {_by_chance(lines)}")


def _over(row: Row) -> str:
    """Return what an interval is taken over, with the numbers of the draws."""
    values = ", ".join(f"{value:{row.estimate.form}}" for value in row.by_draw)
    return f"{row.over}: {values}" if len(row.by_draw) >= ENOUGH else row.over


def _by_chance(lines: Sequence[Line]) -> str:
    """Return how many of these lines are expected by chance, and a note on intervals from two networks."""
    count = len(lines)
    text = f"If there were nothing at all, about {count / 20:.1f} of these {count} lines would be said to be found."
    return f"{text} {TWO_SEEDS}" if any(line.row.estimate.seeds == 2 for line in lines) else text


def _lead(results: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Return what was trained, on which data, and how long it took."""
    chosen = results["settings"]
    each = f" ({scores['each']})" if "each" in scores else ""
    lead = f"{counted(scores.get('networks', 0), 'network')}{each} on {' and '.join(chosen['data'])} data"
    known = [score["r2"] for score in scores.get("test", ()) if score.get("r2") == score.get("r2")]
    if known:
        r2 = f"{min(known):.3f}" if min(known) == max(known) else f"{min(known):.3f} to {max(known):.3f}"
        lead += f", {chosen['training']['epochs']:,} epochs, test R² {r2}"
    seconds = clock(sum(results["seconds"].values()))
    devices = " and ".join(dict.fromkeys(results["devices"].values())) or results["provenance"]["device"]
    made = f"Made on {devices} in {seconds}{'' if 'h' in seconds else ' (minutes:seconds)'}."
    return f"{lead}. Draws of the data: {results['draws']}. {made}"


def _making(report: Report) -> Iterable[str]:
    results = report.results
    yield pages.code(results["command"])
    devices = results["devices"]
    yield pages.table((name, f"{value:.1f} s", devices.get(name, "")) for name, value in results["seconds"].items())
    chosen = results["settings"]
    plain = ("recipes", "training", "options")
    parts = {
        "Settings": {name: value for name, value in chosen.items() if name not in plain} | chosen["options"],
        **{f"Recipe of {data}": recipe for data, recipe in zip(chosen["data"], chosen["recipes"], strict=True)},
        "Training": chosen["training"],
        "Versions and machine": results["provenance"],
    }
    for name, values in parts.items():
        yield pages.folded(name, [pages.settings(values)])
    if report.rows:
        yield pages.folded("All estimates", [_estimates(report.rows)])
    yield pages.paragraph(
        "All numbers are in results.json, and what was measured of every network and unit in cells/.", quiet=True
    )


def _estimates(rows: Sequence[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row.names if name != "at"))
    named = [[label(r[n]) if n == "layer" and n in r.names else str(r.names.get(n, "")) for n in names] for r in rows]
    cells = [(*texts, r.estimate.text(), str(r.estimate.units)) for texts, r in zip(named, rows, strict=True)]
    return pages.table(cells, (*names, "estimate and interval", "units"), numbers=[len(names) + 1])
