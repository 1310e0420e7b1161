"""The table of estimates that an experiment fills: rows with names, a value and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from percolab.intervals import Estimate

Row = dict[str, Any]


def row(estimate: Estimate, **names: Any) -> Row:
    """Return an estimate as a row of a table, with what it is of."""
    return {**names, **estimate.to_dict()}


def select(rows: Sequence[Row], **names: Any) -> list[Row]:
    """Return the rows of a table that have these names."""
    return [r for r in rows if all(r.get(name) == value for name, value in names.items())]
