"""Threads for compiled kernels that release the interpreter lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from percolab.recipe import check_integer

Task = tuple[Callable[..., Any], tuple[Any, ...]]

WAITING_PER_THREAD = 4
"""Tasks in flight per thread before the producer is held back: enough to keep all busy, few enough to bound memory."""


def thread_count(threads: int | None) -> int:
    """Return `threads`, or the number of cores this process may use."""
    if threads is not None:
        return check_integer("threads", threads, 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def counter(report: Callable[[str, int, int], None], stage: str, marks: list[int]) -> Callable[[], None]:
    """Return a callback that reports the next mark of a stage each time it is called."""
    remaining = iter(marks)
    return lambda: report(stage, next(remaining), marks[-1])


def run(tasks: Iterable[Task], threads: int, done: Callable[[], None] | None = None) -> None:
    """Run every task, on up to `threads` threads, calling `done` from this thread as they finish, in order.

    `tasks` is drained by this thread, so a generator may do sequential work between the tasks it yields. The first
    exception stops everything that has not started, and is raised.
    """
    finished = done or (lambda: None)
    if threads == 1:
        for function, arguments in tasks:
            function(*arguments)
            finished()
        return
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(threads) as executor:
        try:
            for function, arguments in tasks:
                waiting.append(executor.submit(function, *arguments))
                while len(waiting) > WAITING_PER_THREAD * threads:
                    waiting.popleft().result()
                    finished()
            while waiting:
                waiting.popleft().result()
                finished()
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
