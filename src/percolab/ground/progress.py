"""Progress: how long-running work reports it, and how it is displayed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from html import escape
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from percolab.ground import compiled

if TYPE_CHECKING:
    from rich.console import Console

Progress = Callable[[str, int, int], None]  #: Called with a stage, how much of it is done and how much there is.

RATED = ("shards",)  #: Stages of which the rate, in rows per second, is shown.
LINE_SECONDS = 10.0  #: How often a line is written where there is no terminal; work that takes less writes none.
NOTEBOOK_SECONDS = 0.5  #: How often the bar of a notebook is drawn again.


def silent(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def bar(*, visible: bool = True, label: str = "starting") -> Iterator[Display]:
    """Show the progress of work on standard error, and yield the function that reports progress.

    A terminal or a notebook gets a bar for each stage. Anything else, such as a log file, gets a plain line every ten
    seconds. Until the first stage begins, and for work without stages, `label` is shown with the time that has passed.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not visible:
        with compiled.on_compiling(lambda: None):  # without a bar there is no notice of compiling either
            yield Display()
        return
    show = _bars(console, label) if console.is_terminal else _notebook(label) if console.is_jupyter else _lines(label)
    with show as display, compiled.on_compiling(lambda: compiled.tell(display.say)):
        yield display


@contextmanager
def shown(progress: bool | Progress) -> Iterator[Progress]:
    """Yield the function for an argument `progress`: a bar for True, a silent one for False, or the function given."""
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


# ---------------------------------------------------------------------- how far, and how long


class _Stage:
    """The progress of a stage, and the time that the rest of it will take.

    The speed is the average over all rounds of the stage, so the estimate of the time left does not start again when
    another round begins or when the work returns to the stage.
    """

    def __init__(self, name: str, done: int = 0, total: int = 0) -> None:
        self.name, self.done, self.total, self.note = name, done, total, ""
        self._moved, self._seconds = 0, 0.0
        self._moved_at = time.monotonic()

    def move(self, done: int, total: int) -> None:
        """Take in a report."""
        now = time.monotonic()
        if done > self.done:
            self._moved, self._seconds = self._moved + done - self.done, self._seconds + now - self._moved_at
        if done != self.done:
            self._moved_at = now
        self.done, self.total = done, total

    def resume(self) -> None:
        """Exclude the time that other stages took, unless they are parts of this one, which was not finished."""
        if self.is_finished:
            self._moved_at = time.monotonic()

    @property
    def is_finished(self) -> bool:
        """Whether all of it is done, until another round begins."""
        return self.done >= self.total

    @property
    def share(self) -> float:
        """Share of the stage that is done."""
        return self.done / self.total if self.total > 0 else 0.0

    def words(self) -> list[str]:
        """Return its share done, the words beside it and its rate."""
        parts = [f"{self.name} {self.share:.0%}" if self.total > 0 else self.name, *([self.note] if self.note else [])]
        if self.name in RATED and self._moved:
            parts.append(f"{self._moved / max(self._seconds, 1e-9):,.0f} rows/s")
        return parts

    def left(self) -> float:
        """Return the seconds that the rest will take, NaN if nothing has moved; a step that is overdue is slower."""
        if not self._moved:
            return float("nan")
        waiting = time.monotonic() - self._moved_at
        a_step = max(self._seconds / self._moved, (self._seconds + waiting) / (self._moved + 1))
        return max(0.0, a_step * (self.total - self.done) - waiting)


class Display:
    """A `Progress` of several stages, with notes beside them; the stage that moved last is the current one.

    The first stage that is not finished is the whole work, of which later ones are parts: the time left is that of the
    first, and the time passed is counted from the beginning. This class only keeps the state: a terminal, a notebook or
    a log reads it from time to time and displays it.
    """

    def __init__(self, label: str = "starting") -> None:
        self.lock, self.said, self._begun = Lock(), list[str](), time.monotonic()
        self.current = _Stage(label)
        self._stages: dict[str, _Stage] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move a stage on."""
        with self.lock:
            if stage not in self._stages:
                self._stages[stage] = _Stage(stage, done, total)
            if self.current is not self._stages[stage]:
                self.current = self._stages[stage]
                self.current.resume()
            self.current.move(done, total)

    def note(self, stage: str, text: str) -> None:
        """Show words beside a stage that has begun."""
        with self.lock:
            if stage == self.current.name:
                self.current.note = text

    def say(self, text: str) -> None:
        """Show a separate line."""
        with self.lock:
            self.said.append(text)

    @property
    def _whole(self) -> _Stage:
        return next((stage for stage in self._stages.values() if not stage.is_finished), self.current)

    def _times(self) -> list[str]:
        """Return the time passed and the time left."""
        left = self._whole.left()
        passed = f"{clock(time.monotonic() - self._begun)} elapsed"
        return [passed, f"{clock(left)} left"] if left > 0 else [passed]

    def details(self, stage: _Stage) -> str:
        """Return the words beside the bar of a stage; the bar of the whole work has the times."""
        with self.lock:
            return ", ".join([*stage.words()[1:], *(self._times() if stage is self._whole else [])])

    def text(self) -> str:
        """Return the whole work, its part that moved last, and the times, in one line."""
        with self.lock:
            stages = dict.fromkeys((self._whole, self.current))
            return ", ".join([word for stage in stages for word in stage.words()] + self._times())

    def stages(self) -> list[_Stage]:
        """Return the stages that have begun, or else one stage with the label."""
        with self.lock:
            return list(self._stages.values()) or [self.current]


@contextmanager
def _repeated(seconds: float, show: Callable[[], None]) -> Iterator[None]:
    """Call `show` every few seconds from a separate thread, so that it also runs while the work does not report."""
    ended = Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            try:
                show()
            except (OSError, ValueError):  # the other end of the stream is closed
                return

    writer = Thread(target=repeat, name="percolab-progress", daemon=True)
    with suppress(RuntimeError):  # a system that is short of memory or threads still does the work
        writer.start()
    try:
        yield
    finally:
        ended.set()
        if writer.ident is not None:
            writer.join()


# ---------------------------------------------------------------------- on a terminal


@contextmanager
def _bars(console: Console, label: str) -> Iterator[Display]:
    from rich import progress as rich
    from rich.text import Text

    class Details(rich.ProgressColumn):
        def render(self, task: rich.Task) -> Text:
            return Text(task.fields["details"]())

    columns = rich.TextColumn("{task.description:>10}"), rich.BarColumn(), rich.TaskProgressColumn(), Details()
    with rich.Progress(*columns, console=console) as bars:
        tasks: dict[str, rich.TaskID] = {}

        class Bars(Display):
            def __call__(self, stage: str, done: int, total: int) -> None:
                super().__call__(stage, done, total)
                if stage not in tasks:
                    bars.update(waiting, visible=False)
                    tasks[stage] = bars.add_task(stage, total=total, details=partial(self.details, self.current))
                bars.update(tasks[stage], completed=done, total=total)

            def say(self, text: str) -> None:
                bars.console.print(text, markup=False, highlight=False)

        stages = Bars(label)
        waiting = bars.add_task(label, total=None, details=partial(stages.details, stages.current))
        yield stages


# ---------------------------------------------------------------------- in a notebook


@contextmanager
def _notebook(label: str) -> Iterator[Display]:
    """Draw bars as HTML, in place, with nothing but IPython."""
    from IPython.display import HTML, display

    stages = Display(label)
    area = display(HTML(_html(stages)), display_id=True)  # type: ignore[no-untyped-call, unused-ignore]

    def draw(*_: Any) -> None:
        area.update(HTML(_html(stages)))

    try:
        with _repeated(NOTEBOOK_SECONDS, draw):
            yield stages
    finally:  # a label without stages would look like work that goes on
        area.update(HTML(_html(stages) if stages.current.total else ""))


def _html(stages: Display) -> str:
    """Return the stages as HTML: one line per stage."""
    lines = [f"<div>{escape(text)}</div>" for text in stages.said]
    for stage in stages.stages():
        share = f" value={stage.share:.3f}" if stage.total > 0 else ""
        lines.append(f"<div>{escape(stage.name)} <progress{share}></progress> {escape(stages.details(stage))}</div>")
    return "".join(lines)


# ---------------------------------------------------------------------- elsewhere


@contextmanager
def _lines(label: str) -> Iterator[Display]:
    """Write a line every `LINE_SECONDS`."""
    stream = sys.stderr

    class Lines(Display):
        def say(self, text: str) -> None:
            print(text, file=stream, flush=True)

    lines = Lines(label)

    def write() -> None:
        lines.say(lines.text())

    with _repeated(LINE_SECONDS, write):
        yield lines
