"""Self-contained HTML pages: text, tables and figures in one file that opens offline.

Pages follow the reader's choice of light or dark. Figures are drawn once, dark on white; on a dark page the browser
inverts their greys and keeps their colours. Wide tables wrap their numbers, small; wider content scrolls in its own
box, with a shade where there is more, or its parts stack. On paper nothing scrolls, and folded parts are shown, except
for tables of many pages.
"""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from percolab.ground.text import plain
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 7  #: Columns of numbers that fit side by side on a sheet of paper.
DPI = 180
#: Pixels of an image per pixel of the page, so that it is also sharp on a phone: an inch is 120 pixels on the page.
DOTS = 1.5
FITS = 800  #: Widest image whose text is still readable when it is scaled to the width of a phone.


def page(title: str, lead: str, body: Iterable[str], *, verdict: str = "", look: str = "", banner: str = "") -> bytes:
    """Return a page of HTML: title, banner, verdict, lead, body.

    Parameters
    ----------
    title, lead
        Text; the lead says what was done, in grey.
    body
        Parts in HTML: a picture, the table, folded definitions.
    verdict, look
        The result, in one sentence, and its colour: good, bad, mixed or none.
    banner
        What a reader must know before the verdict, for example that the run is not finished.
    """
    above = [
        f'<p class="{kind}">{escape(text)}</p>\n'
        for kind, text in (("banner", banner), (f"verdict {look}".strip(), verdict), ("lead", lead))
        if text
    ]
    html = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style.css()}{style.text('report.css')}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{''.join(above)}" + "\n".join(body) + f"\n{style.DARK_FIGURES}</body>\n</html>\n"
    )
    return html.encode()


def heading(text: str) -> str:
    """Return a heading."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, *, quiet: bool = False) -> str:
    """Return a paragraph of plain text; a quiet one is greyed."""
    return f"<p{' class=quiet' if quiet else ''}>{escape(text)}</p>"


def code(text: str) -> str:
    """Return verbatim text, in a fixed-width font."""
    return f"<pre>{escape(text)}</pre>"


def link(text: str, file: Path, page: Path) -> str:
    """Return a paragraph that links to another file, by a path relative to the page, so that both can move together."""
    way = Path(os.path.relpath(file, page.absolute().parent)).as_posix()
    return f'<p><a href="{escape(quote(way))}">{escape(text)}</a></p>'


def folded(title: str, body: Iterable[str]) -> str:
    """Return HTML that is folded under a title and opens on a click."""
    return f"<details><summary>{escape(title)}</summary>\n" + "\n".join(body) + "\n</details>"


def definitions(text: str) -> str:
    """Return the meanings of the words and columns of a table, folded."""
    return folded("What this means", [paragraph(text)])


# ---------------------------------------------------------------------- tables


def table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    verdicts: Sequence[str] = (),
    *,
    numbers: Collection[int] = (),
    stack: bool = False,
    small: bool = False,
) -> str:
    """Return a table of text.

    Parameters
    ----------
    rows
        Cells, as text.
    head
        Names of the columns.
    verdicts
        For each row the style of its last cell: good, bad or mixed.
    numbers
        Columns that are right-aligned.
    stack
        Whether a row becomes a block of labelled lines on a phone, which suits rows with sentences; otherwise the table
        scrolls.
    small
        Whether to use small letters for any number of columns, as in the other parts of a wide table.
    """
    lines = [_row("th", head, numbers)] if head else []
    for i, row in enumerate(rows):
        lines.append(_row("td", row, numbers, verdicts[i] if verdicts else "", head if stack else ()))
    look = "stack" if stack else "narrow small" if small else "narrow"
    return f'<div class="scroll"><table class="{look}">\n' + "\n".join(lines) + "\n</table></div>"


def wide_table(rows: Sequence[Sequence[str]], head: Sequence[str], *, names: int = 1) -> list[str]:
    """Return many columns of numbers as tables that fit a sheet of paper, each with the first `names` columns."""
    count = len(head) - names
    parts = -(-count // WIDEST) or 1
    edges = [names + count * part // parts for part in range(parts + 1)]
    return [
        table(
            [(*row[:names], *row[lo:hi]) for row in rows],
            (*head[:names], *head[lo:hi]),
            numbers=range(names, names + hi - lo),
            small=parts > 1,
        )
        for lo, hi in itertools.pairwise(edges)
    ]


def settings(values: Mapping[str, Any]) -> str:
    """Return plain values as a table of names and text; None is left out."""
    return table((name, plain(value)) for name, value in values.items() if value is not None)


def provenance(made: Mapping[str, Any]) -> list[str]:
    """Return versions, platform and time of making, under a heading; nothing if nothing is known."""
    shown = {key: value for key, value in made.items() if key not in ("loaded_from", "modified")}
    return [heading("Provenance"), settings(shown)] if shown else []


def from_json(recipe: str, kind: str) -> list[str]:
    """Return how to make data again from a recipe that is best kept as JSON."""
    return [
        paragraph("With this recipe in the file recipe.json:"),
        code(recipe),
        paragraph("On the command line, and in Python:"),
        code("percolab generate --recipe recipe.json -o again.zarr"),
        code(f'import percolab as pl\n\nds = pl.generate(pl.{kind}.from_json(open("recipe.json").read()))'),
    ]


def _row(tag: str, row: Sequence[str], numbers: Collection[int], verdict: str = "", names: Sequence[str] = ()) -> str:
    """Return a row of a table; the verdict is the style of its last cell, and names label the cells."""
    kinds = ["number" if j in numbers else "" for j in range(len(row))]
    kinds[-1] = verdict or kinds[-1]
    # An estimate may break before its interval in brackets, and on a screen only there.
    texts = [escape(cell).replace(" (", " <wbr>(") if j in numbers else escape(cell) for j, cell in enumerate(row)]
    cells = (
        f"<{tag}{_attribute('class', kind)}{_attribute('data-label', name)}>{cell}</{tag}>"
        for cell, kind, name in itertools.zip_longest(texts, kinds, names, fillvalue="")
    )
    return f"<tr>{''.join(cells)}</tr>"


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""


# ---------------------------------------------------------------------- figures


def picture(figure: Figure, caption: str, *, wide: bool = False) -> str:
    """Return a figure with its image inside the page; see `image`."""
    return image(style.as_png(figure, DPI), caption, wide=wide)


def image(png: bytes, caption: str, *, wide: bool = False) -> str:
    """Return a PNG inside the page; a wide one keeps a readable size, and scrolls on a phone."""
    data, text = base64.b64encode(png).decode(), escape(caption)
    width = int(int.from_bytes(png[16:20]) / DOTS)  # the first field of a PNG's header
    box = f' class="scroll wide" style="--natural: {width}px"' if wide and width > FITS else ""
    return (
        f'<figure><div{box}><img alt="{text}" width="{width}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{text}</figcaption></figure>"
    )


def grid(pictures: Iterable[str]) -> str:
    """Return pictures side by side, as many as fit."""
    return '<div class="grid">' + "\n".join(pictures) + "</div>"
