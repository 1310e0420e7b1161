"""Text for a terminal: one line without control characters; and small tables for notebooks."""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Mapping
from html import escape

#: Unicode categories of characters that control a terminal, hide or reverse text, or cannot be encoded.
_OBEYED = frozenset(("Cc", "Cf", "Co", "Cs", "Zl", "Zp"))

LONGEST = 1000  #: Characters of one line; an exception may quote a whole file.
LONG_LIST = 6  #: Values of the longest list that is shown whole.


def printable(text: str) -> str:
    r"""Return text with every unprintable character written as an escape, such as ``\x1b``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(letter)[1:-1] if unicodedata.category(letter) in _OBEYED else letter for letter in text)


def shown(value: object) -> str:
    """Return a value as Python writes it, shortened if it is long, and safe to print."""
    return printable(reprlib.repr(value))


def one_line(said: BaseException | str) -> str:
    """Return the message of an exception, or a text, as one line that is safe to print and of bounded length."""
    line = printable(" ".join(str(said).split())) or type(said).__name__
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a docstring, each in one line."""
    return [" ".join(part.split()) for part in (text or "").split("\n\n") if part.strip()]


# ---------------------------------------------------------------------- for notebooks
#
# How notebooks show an object: as a small table, in the notebook's own style.


def plain(value: object) -> str:
    """Return a value as words and numbers; of a long list, its beginning and its end."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list | tuple):
        cells = [plain(item) for item in value]
        return ", ".join(cells if len(cells) <= LONG_LIST else [*cells[:3], "…", cells[-1]])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(title: str, lines: Mapping[str, object]) -> str:
    """Return a table of names and plain values under a title, as HTML. All text is escaped."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align: left">{escape(name)}</th>'
        f'<td style="text-align: left">{escape(plain(value))}</td></tr>'
        for name, value in lines.items()
    )
    return f'<table><caption style="text-align: left">{escape(title)}</caption><tbody>{rows}</tbody></table>'


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
