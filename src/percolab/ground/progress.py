"""How long work says how far it is, and what shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done and how much there is."""


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


RATED = ("shards",)
"""Stages of which the rate, in rows per second, is shown."""


@contextmanager
def bar(*, visible: bool = True) -> Iterator[Progress]:
    """Show one bar per stage, on standard error, and yield the function that moves them.

    Nothing is shown where standard error is neither a terminal nor a notebook.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    seen = visible and (console.is_terminal or console.is_jupyter)
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed"),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=console, disable=not seen) as progress:
        stages: dict[str, TaskID] = {}
        # The first run on a machine compiles for some seconds.
        starting = progress.add_task("starting", total=None, rate="")

        def report(stage: str, done: int, total: int) -> None:
            progress.update(starting, visible=False)
            if stage not in stages:
                stages[stage] = progress.add_task(stage, total=total, rate="")
            speed = progress.tasks[stages[stage]].speed
            rate = f"{speed:,.0f} rows/s" if stage in RATED and speed else ""
            progress.update(stages[stage], completed=done, total=total, rate=rate)

        yield report


@contextmanager
def line(*, visible: bool = True) -> Iterator[Callable[[str], None]]:
    """Show one changing line on standard error, with the same rule as `bar`, and yield the function that changes it."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (visible and (console.is_terminal or console.is_jupyter)):
        yield lambda text: None
        return
    with console.status("") as status:
        yield status.update
