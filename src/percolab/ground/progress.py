"""How long work says how far it is, and what shows it: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done and how much there is."""

RATED = ("shards",)
"""Stages of which the rate, in rows per second, is shown."""
LINE_SECONDS = 10.0
"""How often a line is written where there is no terminal; work that takes less writes none."""


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


class Display:
    """A `Progress` that can also show a few words beside a stage. This one shows nothing."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move a stage on."""

    def note(self, stage: str, text: str) -> None:
        """Show words beside a stage that has begun."""


@contextmanager
def bar(*, visible: bool = True, label: str = "starting") -> Iterator[Display]:
    """Show how far work is, on standard error, and yield the function that moves it on.

    A terminal or a notebook gets a bar for each stage. Anything else, such as a log file, gets a plain line every ten
    seconds. Until the first stage begins, and for work that has none, `label` is shown with the time that has passed.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not visible:
        yield Display()
    elif console.is_terminal or console.is_jupyter:
        with _bars(console, label) as display:
            yield display
    else:
        with _lines(label) as display:
            yield display


@contextmanager
def shown(progress: bool | Progress) -> Iterator[Progress]:
    """Yield what to call for an argument `progress`: a bar for True, nothing for False, or the function given."""
    if progress is True:
        with bar() as display:
            yield display
    else:
        yield progress or silent


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours and minutes."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60}:{whole % 60:02d}"


# ---------------------------------------------------------------------- on a terminal


@contextmanager
def _bars(console: Console, label: str) -> Iterator[Display]:
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description:>10}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("elapsed"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("left"),
        rich.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.Progress(*columns, console=console) as bars:
        waiting = bars.add_task(label, total=None, note="")
        stages: dict[str, rich.TaskID] = {}

        class Bars(Display):
            def __call__(self, stage: str, done: int, total: int) -> None:
                if stage not in stages:
                    bars.update(waiting, visible=False)
                    stages[stage] = bars.add_task(stage, total=total, note="")
                bars.update(stages[stage], completed=done, total=total)
                speed = bars.tasks[stages[stage]].speed if stage in RATED else None
                if speed:
                    self.note(stage, f"{speed:,.0f} rows/s")

            def note(self, stage: str, text: str) -> None:
                bars.update(stages[stage], note=text)

        yield Bars()


# ---------------------------------------------------------------------- elsewhere


@contextmanager
def _lines(label: str) -> Iterator[Display]:
    """Write a line every `LINE_SECONDS` from a thread of its own, so also while the work does not report."""
    lines, ended, stream = _Lines(label), Event(), sys.stderr

    def write() -> None:
        while not ended.wait(LINE_SECONDS):
            try:
                print(lines.text(), file=stream, flush=True)
            except (OSError, ValueError):  # nobody reads it any more
                return

    writer = Thread(target=write, name="percolab-progress", daemon=True)
    with suppress(RuntimeError):  # a system that is short of memory or threads still does the work
        writer.start()
    try:
        yield lines
    finally:
        ended.set()
        if writer.ident is not None:
            writer.join()


class _Lines(Display):
    """Where the work is, in one line of text."""

    def __init__(self, label: str) -> None:
        self._lock = Lock()
        self._begin(label, 0, 0)

    def _begin(self, stage: str, done: int, total: int) -> None:
        self._stage, self._first, self._done, self._total, self._note = stage, done, done, total, ""
        self._start = self._moved_at = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            if stage != self._stage:
                self._begin(stage, done, total)
            if done != self._done:
                self._moved_at = time.monotonic()
            self._done, self._total = done, total

    def note(self, stage: str, text: str) -> None:
        with self._lock:
            if stage == self._stage:
                self._note = text

    def text(self) -> str:
        """Return stage, share done, words beside it, time passed and, where it can be told, time left."""
        with self._lock:
            now = time.monotonic()
            parts = [self._stage if self._total <= 0 else f"{self._stage} {self._done / self._total:.0%}"]
            if self._note:
                parts.append(self._note)
            parts.append(f"{clock(now - self._start)} elapsed")
            if self._done > self._first:
                parts.append(f"{clock(self._left(now))} left")
            return ", ".join(parts)

    def _left(self, now: float) -> float:
        """Return the seconds left: told when `done` last changed, and counted down since."""
        moved = self._done - self._first  # what was there already says nothing about the speed
        told = (self._moved_at - self._start) / moved * (self._total - self._done)
        return max(0.0, told - (now - self._moved_at))
