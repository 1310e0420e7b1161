"""Threads for compiled kernels that release the interpreter lock."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

from percolab.ground.progress import Progress
from percolab.ground.validation import check_integer

Task = tuple[Callable[..., Any], tuple[Any, ...]]

#: Tasks in flight per thread before the producer waits: enough to keep all threads busy, few enough to bound memory.
WAITING_PER_THREAD = 4


def thread_count(threads: int | None) -> int:
    """Return `threads`, or the number of cores this process may use."""
    if threads is not None:
        return check_integer("threads", threads, 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ranges(n: int, step: int) -> list[tuple[int, int]]:
    """Cut 0 … n - 1 into ranges of length `step`, the last perhaps shorter: each as its start and its end, excluded."""
    return [(lo, min(lo + step, n)) for lo in range(0, n, step)]


def counter(progress: Progress, stage: str, marks: list[int]) -> Callable[[], None]:
    """Return a callback that reports the next mark of a stage each time it is called."""
    remaining = iter(marks)
    return lambda: progress(stage, next(remaining), marks[-1])


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return this many threads, started once: starting them takes as long as making a thousand points."""
    return ThreadPoolExecutor(threads, "percolab")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has only its main thread


def run(tasks: Iterable[Task], threads: int, done: Callable[[], None] | None = None) -> None:
    """Run every task, on this thread and up to `threads` - 1 others, calling `done` as they finish, in order.

    `tasks` is drained by this thread, so a generator may do sequential work between the tasks it yields. The first
    exception stops everything that has not started, and is raised. Tasks must not call `run` themselves.
    """
    finished = done or (lambda: None)
    if threads == 1 or (isinstance(tasks, list) and len(tasks) == 1):
        for function, arguments in tasks:
            function(*arguments)
            finished()
        return
    executor = _pool(threads - 1)
    waiting: deque[tuple[Future[Any], Task]] = deque()

    def settle() -> None:
        """Wait for the oldest task; until it is done, this thread runs tasks that have not started."""
        while not waiting[0][0].done():
            mine = next((task for future, task in waiting if not future.cancelled() and future.cancel()), None)
            if mine is None:
                break
            mine[0](*mine[1])
        oldest, _ = waiting.popleft()
        if not oldest.cancelled():
            oldest.result()
        finished()

    try:
        for task in tasks:
            waiting.append((executor.submit(task[0], *task[1]), task))
            while len(waiting) > WAITING_PER_THREAD * threads:
                settle()
        while waiting:
            settle()
    except BaseException:
        for future, _ in waiting:
            future.cancel()
        wait([future for future, _ in waiting])
        raise
