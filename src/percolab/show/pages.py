"""Self-contained HTML pages: text, tables and figures in one file that opens offline."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p.lead { color: #555; margin-top: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td.pass { color: #006b4f; } td.fail { color: #b00020; font-weight: bold; } td.few { color: #8a5a00; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; font-size: .85rem; white-space: pre-wrap; }
img { max-width: 100%; height: auto; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)); gap: 1.2rem; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: .85rem; color: #444; }
"""


def page(title: str, lead: str, body: Iterable[str]) -> bytes:
    """Return a page of HTML; `body` is HTML already, the rest is text."""
    parts = "\n".join(body)
    html = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n{parts}\n</body>\n</html>\n'
    )
    return html.encode()


def heading(text: str) -> str:
    """Return a heading."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """Return text as it is, in a fixed-width font."""
    return f"<pre>{escape(text)}</pre>"


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), classes: Sequence[str] = ()) -> str:
    """Return a table of text; `classes` names the style of each row's last cell."""
    lines = ["<table>"]
    if head:
        lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
    for i, row in enumerate(rows):
        kind = f' class="{classes[i]}"' if classes else ""
        cells = [f"<td>{escape(cell)}</td>" for cell in row[:-1]] + [f"<td{kind}>{escape(row[-1])}</td>"]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return "\n".join([*lines, "</table>"])


def picture(figure: Figure, caption: str, *, dpi: int = 110) -> str:
    """Return a figure with its image inside the page."""
    image = BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    data = base64.b64encode(image.getvalue()).decode()
    text = escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def grid(pictures: Iterable[str]) -> str:
    """Return pictures side by side, as many as fit."""
    return '<div class="grid">' + "\n".join(pictures) + "</div>"
