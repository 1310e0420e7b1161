"""Numbers on the command line, refused in the words that the library uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def integer(text: str) -> int:
    """Read an integer."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be an integer, got {text!r}") from None


def number(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be a number, got {text!r}") from None


def number_option(name: str, text: str, parser: Callable[[str], float] = integer) -> Any:
    """Return an option that takes a number; its default is in the help text."""
    metavar = "INTEGER" if parser is integer else "NUMBER"
    return typer.Option(name, parser=parser, metavar=metavar, help=text, show_default=False)
