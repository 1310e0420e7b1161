"""What commands print: JSON for programs, columns of text, and which files they wrote."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from percolab.ground import files


def print_json(values: Any) -> None:
    """Print values as JSON, with null for what is not a number."""
    print(files.json_text(values).decode(), end="")


def print_wrote(path: object, *, as_json: bool = False) -> None:
    """Say which file was written; beside JSON, on standard error."""
    print(f"wrote {path}", file=sys.stderr if as_json else sys.stdout)


def write(path: Path, content: bytes, *, overwrite: bool, as_json: bool = False) -> None:
    """Write a file and say so; what appeared there meanwhile stays unless `overwrite`."""
    with files.new_files(path, overwrite=overwrite) as (file,):
        file.write(content)
    print_wrote(path, as_json=as_json)


def aligned(rows: Sequence[Sequence[str]], left: int) -> str:
    """Return rows as text in columns; the first `left` are set flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            word.ljust(width) if i < left else word.rjust(width)
            for i, (word, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
