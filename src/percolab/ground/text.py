"""Text for a terminal: one line, and nothing in it that a terminal would obey."""

from __future__ import annotations

import reprlib
import unicodedata

_OBEYED = frozenset(("Cc", "Cf", "Co", "Cs", "Zl", "Zp"))
"""Unicode categories of what steers a terminal, hides or turns text round, or cannot be encoded."""

LONGEST = 1000
"""Characters of one line; an exception may quote a whole file."""


def printable(text: str) -> str:
    r"""Return text with every character that is not for reading written as an escape, as ``\x1b``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(letter) if unicodedata.category(letter) in _OBEYED else letter for letter in text)


def _escaped(letter: str) -> str:
    return ascii(letter)[1:-1]


def shown(value: object) -> str:
    """Return a value as Python writes it, shortened if it is long, and safe to print."""
    return printable(reprlib.repr(value))


def one_line(said: BaseException | str) -> str:
    """Return what an exception or a text says, in one line that is safe to print and not endless."""
    line = printable(" ".join(str(said).split())) or type(said).__name__
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
