"""Where tasks run: in processes of this machine, or on a Ray cluster.

A runner takes tasks one by one and yields their results in any order. It asks for the next task only when a worker is
about to be free, so tasks that carry data never pile up. When a worker dies, tasks that were under way are given to
others.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import util
from typing import Any

from percolab.ground import parallel
from percolab.ground.validation import check_choice

RUNNERS = ("local", "ray")
MOST_DEATHS = 3
"""A run is given up when workers died this many times with no task finished in between."""
_WAITING = 1
"""Tasks that wait, beyond one for each worker, so that none is idle."""

_REASONS = "did they run out of memory, or does a script call this without `if __name__ == '__main__':`?"

Function = Callable[[Any], Any]


class WorkerError(RuntimeError):
    """Workers died again and again."""


def check(runner: str) -> None:
    """Raise, in one line, unless there is such a runner and what it needs is installed."""
    check_choice("runner", runner, RUNNERS)
    if runner == "ray" and find_spec("ray") is None:
        raise ImportError("runner='ray' needs Ray: pip install 'percolab[ray]'")


def run(
    function: Function, tasks: Iterable[Any], runner: str, workers: int | None, address: str | None = None
) -> Iterator[Any]:
    """Yield function(task) for every task, as they finish.

    Parameters
    ----------
    function
        A function of a module, so that other processes can find it.
    tasks
        Taken one by one as workers become free.
    runner
        One of `RUNNERS`.
    workers
        Number of processes, or of Ray tasks at a time; None takes one for each processor of the machine or the cluster.
    address
        Address of a Ray cluster; None starts one on this machine, or takes the one this process is connected to.
    """
    if runner == "ray":
        return _run_on_ray(function, tasks, workers, address)
    return _run_in_processes(function, tasks, parallel.thread_count(workers))


# ---------------------------------------------------------------------- processes


def _run_in_processes(function: Function, tasks: Iterable[Any], workers: int) -> Iterator[Any]:
    remaining = iter(tasks)
    waiting: list[Any] = []
    running: dict[Future[Any], Any] = {}
    deaths = 0
    executor = _processes(workers)
    try:
        while True:
            try:
                while len(running) < workers + _WAITING and (waiting or _take(remaining, waiting)):
                    with _no_interrupts():  # which workers inherit
                        running[executor.submit(function, waiting[-1])] = waiting[-1]
                    waiting.pop()
                if not running:
                    break
                for result in _finished(running):
                    deaths = 0
                    yield result
            except BrokenProcessPool:
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise WorkerError(f"workers died {deaths} times; {_REASONS}") from None
                waiting += running.values()
                running.clear()
                executor.shutdown()  # waits until all of them are gone
                executor = _processes(workers)
    except BaseException:
        with _no_interrupts():
            _stop(executor)
        raise
    finally:
        executor.shutdown()


def _take(remaining: Iterator[Any], waiting: list[Any]) -> bool:
    """Move the next task, if there is one, to those that wait."""
    for task in remaining:
        waiting.append(task)
        return True
    return False


def _finished(running: dict[Future[Any], Any]) -> Iterator[Any]:
    """Wait until some tasks are done and yield their results; a task leaves `running` when its result is there."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        result = future.result()
        del running[future]
        yield result


def _processes(workers: int) -> ProcessPoolExecutor:
    # A forked child of a process with threads can hang, so each starts afresh.
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_obey_parent)


def _obey_parent() -> None:
    """Let a worker end when the process that started it says so, or ends itself, in whatever way."""
    parent = multiprocessing.parent_process()
    signal.signal(signal.SIGTERM, _leave)

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _leave(*_: Any) -> None:
    """End a worker at once; an exception would be taken for the outcome of its task."""
    util._run_finalizers(0)  # type: ignore[attr-defined]  # gives back locks, or Python warns
    os._exit(1)


def _stop(executor: ProcessPoolExecutor) -> None:
    """End the workers: what they are writing is not recorded and will be written again."""
    for process in list((executor._processes or {}).values()):
        process.terminate()
    executor.shutdown(cancel_futures=True)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold back interrupts from the keyboard, which reach all processes; what they mean is for the driver to decide."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---------------------------------------------------------------------- Ray


def _run_on_ray(function: Function, tasks: Iterable[Any], workers: int | None, address: str | None) -> Iterator[Any]:
    with _ray(workers, address) as ray:
        if workers is None:
            workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(num_cpus=1, max_retries=MOST_DEATHS - 1)(function)
        running: list[Any] = []
        try:
            for task in tasks:
                running.append(remote.remote(task))
                if len(running) >= workers + _WAITING:
                    yield from _finished_on_ray(ray, running)
            while running:
                yield from _finished_on_ray(ray, running)
        finally:
            for reference in running:
                ray.cancel(reference)


@contextmanager
def _ray(workers: int | None, address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster; a connection or cluster that was not there before is ended."""
    check("ray")
    import ray

    if ray.is_initialized():
        yield ray
        return
    local: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
    ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        yield ray
    finally:
        ray.shutdown()


def _finished_on_ray(ray: Any, running: list[Any]) -> Iterator[Any]:
    done, running[:] = ray.wait(running)
    for reference in done:
        try:
            yield ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise WorkerError(f"workers died {MOST_DEATHS} times at the same task: {type(error).__name__}") from None
