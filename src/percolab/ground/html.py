"""What notebooks show of an object: a small table, in the notebook's own style."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def table(title: str, lines: Mapping[str, object]) -> str:
    """Return a table of names and values under a title, as HTML. All text is escaped; whole numbers get commas."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align: left">{escape(name)}</th>'
        f'<td style="text-align: left">{escape(_text(value))}</td></tr>'
        for name, value in lines.items()
    )
    return f'<table><caption style="text-align: left">{escape(title)}</caption><tbody>{rows}</tbody></table>'


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
