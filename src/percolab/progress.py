"""A progress bar for long work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from percolab.arrays import Report


@contextmanager
def bar() -> Iterator[Report]:
    """Show one bar per stage, on standard error, and yield the function that moves them."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        stages: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = progress.add_task(stage, total=total)
            progress.update(stages[stage], completed=done, total=total)

        yield report
