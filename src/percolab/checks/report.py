"""The report of a verification: one HTML page with a figure for each law."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from percolab.ground import files
from percolab.ground.version import __version__
from percolab.show import pages, style

if TYPE_CHECKING:
    from percolab.checks.result import Check
    from percolab.checks.suite import Verification

FILE_NAME = "verify.html"
NO_BREAK = "\u00a0"
LOOKS = {"pass": "good", "fail": "bad", "not enough data": "mixed", "does not apply": "mixed"}
"""How a page shows each verdict."""
WORDS = (
    "One line for each law: what theory expects, what was measured, and how likely data as far off would be if the law "
    "holds (p), or the largest deviation from a law that holds exactly (error). A law fails below p = 0.00001. A law "
    "that these data are too few for says what it would need. Below the table, a figure for each law."
)


def report_path(path: str | os.PathLike[str]) -> Path:
    """Return the file of a report: `path` itself if it ends in .html, else a file in that folder."""
    place = Path(path)
    return place if place.suffix == ".html" else place / FILE_NAME


def write_report(outcome: Verification, path: str | os.PathLike[str]) -> Path:
    """Write the page into a folder, or to a file that ends in .html; return where it is."""
    target = report_path(path)
    with style.sheet():
        body = [
            html for data, group in groupby(outcome.checks, lambda check: check.data) for html in _part(data, [*group])
        ]
    lead = f"{outcome.subject or 'data without a name'}. percolab {__version__}: {outcome.summary}."
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.new_files(target, overwrite=True) as (file,):
        file.write(pages.page("Laws that the data obey", lead, [pages.paragraph(WORDS), *body]))
    return target


def as_html(outcome: Verification) -> str:
    """Return the outcome for a notebook: a table for each dataset, without figures."""
    groups = groupby(outcome.checks, lambda check: check.data)
    return "".join(
        [pages.paragraph(outcome.summary), *(part for data, group in groups for part in _table(data, [*group]))]
    )


def _part(data: str, checks: list[Check]) -> list[str]:
    """Return the table and the figures of one dataset."""
    return [*_table(data, checks), pages.grid(_picture(check) for check in checks if check.draw is not None)]


def _table(data: str, checks: list[Check]) -> list[str]:
    """Return the heading and the table of one dataset."""
    head = ("law", "expected", "measured", "p or error", "note", "verdict")
    rows = [
        (check.law, check.expected, check.measured, check.evidence.replace(" ", NO_BREAK), check.note, check.verdict)
        for check in checks
    ]
    table = pages.table(rows, head, [LOOKS[check.verdict] for check in checks], stack=True)
    return [*([pages.heading(data)] if data else []), table]


def _picture(check: Check) -> str:
    assert check.draw is not None
    figure = style.new_figure(4.6, 3.2)
    check.draw(figure.subplots())
    return pages.picture(figure, f"{check.law}: {check.verdict}. {check.note}")
