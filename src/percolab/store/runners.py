"""Runners of tasks: processes of this machine, or a Ray cluster.

A runner takes tasks one by one and yields their results in any order. It asks for the next task only when a worker is
about to be free, so tasks that carry data never pile up. When a worker dies, its task is given to another worker.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pickle import PicklingError
from typing import Any

from percolab.ground import parallel
from percolab.ground.extras import missing
from percolab.ground.text import one_line
from percolab.ground.validation import check_choice

RUNNERS = ("local", "ray")
MOST_DEATHS = 3  #: A run is given up when this many workers died at the same task.
PATIENCE_S = 10.0  #: Seconds that a worker has to exit by itself.
ANSWER_S = 3.0  #: Seconds that a Ray cluster has to answer.
#: The first bytes that a client of gRPC sends: the preface of HTTP/2, and a frame of settings, which has type 4.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_WAITING = 1  #: Tasks that wait, beyond one for each worker, so that none is idle.

Function = Callable[[Any], Any]


class WorkerError(RuntimeError):
    """Workers died again and again."""


def check(runner: str) -> None:
    """Raise, in one line, unless the runner exists and the packages that it needs are installed."""
    check_choice("runner", runner, RUNNERS)
    if runner == "ray" and find_spec("ray") is None:
        raise missing("runner='ray' needs", "Ray", "ray")


def run(
    function: Function,
    tasks: Iterable[Any],
    runner: str,
    workers: int | None,
    *,
    gpus: Callable[[Any], float] = lambda task: 0.0,
    apart: bool = False,
) -> Iterator[Any]:
    """Yield function(task) for every task, as they finish. With Ray, call it while `connected`.

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
    gpus
        With Ray, the number of GPUs that a task needs.
    apart
        Whether the cores are divided among the processes, for functions that use all cores they find. Ray gives each
        task one core.
    """
    if runner == "ray":
        return _run_on_ray(function, tasks, workers, gpus)
    return _run_in_processes(function, tasks, parallel.thread_count(workers), apart=apart)


# ---------------------------------------------------------------------- processes


@dataclass(eq=False)
class _Task:
    value: Any
    deaths: int = 0  #: workers that died while they had the task


@dataclass(frozen=True)
class _Outcome:
    result: Any = None
    failure: Exception | None = None
    is_ready: bool = False  #: the worker has started, and has done nothing yet


class _Worker:
    """A process that does one task after another, the connection to it, and its current task."""

    def __init__(self, function: Function, task: _Task, cores: frozenset[int]) -> None:
        # A forked child of a process with threads can hang, so each worker is spawned.
        context = multiprocessing.get_context("spawn")
        self.task: _Task | None = task
        self.cores = cores
        self.is_ready = False
        self.line, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        resource_tracker.ensure_running()  # else the first process would start it, and that unblocks signals
        with _no_interrupts(), _only_on(cores):  # the process inherits both, and libraries start as many threads
            self.process.start()
        theirs.close()  # so that the connection closes when the process ends

    def give(self) -> None:
        """Send the task. If the process has died, the next read from the connection shows it."""
        with suppress(ConnectionError):
            self.line.send(None if self.task is None else self.task.value)

    def outcome(self) -> _Outcome | None:
        """Return the outcome that the process sent, or None if it has died."""
        try:
            said: _Outcome = self.line.recv()
        except (EOFError, ConnectionError):
            self.process.join(PATIENCE_S)  # its exit code gives the reason
            self.stop()
            return None
        self.is_ready = True
        return said

    def stop(self) -> None:
        """End the process: the cell that it is writing is not recorded and will be written again."""
        self.line.close()
        self.process.terminate()
        self.process.join(PATIENCE_S)
        self.process.kill()
        self.process.join()


def _run_in_processes(function: Function, tasks: Iterable[Any], workers: int, *, apart: bool) -> Iterator[Any]:
    cores = sorted(os.sched_getaffinity(0))
    shares = [frozenset(cores[i % len(cores) :: workers] if apart else cores) for i in range(workers)]
    remaining = map(_Task, tasks)
    waiting: deque[_Task] = deque()
    crew: dict[Any, _Worker] = {}
    try:
        while True:
            waiting.extend(islice(remaining, max(0, workers + _WAITING - len(crew) - len(waiting))))
            while waiting and len(crew) < workers:
                worker = _Worker(function, waiting.popleft(), _least_used(shares, crew.values()))
                crew[worker.line] = worker
            if not crew:
                return
            for line in wait(list(crew)):
                worker = crew.pop(line)
                outcome = worker.outcome()
                if outcome is None:
                    waiting.appendleft(_after_a_death(worker))
                    continue
                crew[line] = worker
                if outcome.failure is not None:
                    raise outcome.failure
                if not outcome.is_ready:
                    yield outcome.result
                    worker.task = waiting.popleft() if waiting else None
                if worker.task is None:
                    crew.pop(line).stop()
                else:
                    worker.give()
    finally:
        with _no_interrupts():
            for worker in crew.values():
                worker.stop()


def _least_used(shares: list[frozenset[int]], crew: Collection[_Worker]) -> frozenset[int]:
    """Return the share of the cores that has the fewest workers."""
    return min(shares, key=lambda share: sum(worker.cores == share for worker in crew))


def _after_a_death(worker: _Worker) -> _Task:
    """Return the task of a dead worker, for another worker; raise `WorkerError` if that one would die as well."""
    task, code = worker.task, worker.process.exitcode
    assert task is not None  # a worker without a task is stopped at once
    if code and code > 0 and not worker.is_ready:  # it exited by itself, and Python has printed why
        raise WorkerError("workers end as they start: a script must call this under `if __name__ == '__main__':`")
    task.deaths += 1
    if task.deaths == MOST_DEATHS:
        reason = "did they run out of memory?" if code == -signal.SIGKILL else f"exit code {code}"
        raise WorkerError(_died(reason))
    return task


def _died(reason: str) -> str:
    return f"workers died {MOST_DEATHS} times at the same task: {reason}"


def _serve(line: Any, function: Function) -> None:
    """Do the tasks that arrive on the connection until it closes."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    with suppress(EOFError, ConnectionError):
        line.send(_Outcome(is_ready=True))
        while True:
            task = line.recv()
            try:
                outcome = _Outcome(function(task))
            except Exception as error:
                outcome = _Outcome(failure=error)
            try:
                line.send(outcome)
            except (AttributeError, TypeError, PicklingError) as error:  # not every result can be pickled
                line.send(_Outcome(failure=RuntimeError(one_line(error))))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process ends anyway, and releases its locks


def _leave(*_: Any) -> None:
    """End this process from within, so that locks are released, and without a message about unfinished work."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(1)


def _end_with_parent() -> None:
    """Make this process end when its parent ends, however that happens."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold back interrupts from the keyboard, which reach all processes: only the driver acts on them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _only_on(cores: frozenset[int]) -> Iterator[None]:
    """Keep this thread, and processes that it starts, on some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---------------------------------------------------------------------- Ray


def _run_on_ray(
    function: Function, tasks: Iterable[Any], workers: int | None, gpus: Callable[[Any], float]
) -> Iterator[Any]:
    """Yield function(task) for every task, as they finish, on the cluster that this process is connected to.

    A task whose worker or node dies is given to another one here, and not by Ray, which would retry without end when
    memory is short.
    """
    import ray

    if workers is None:
        workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
    remote = ray.remote(num_cpus=1, max_retries=0)(function)
    running: dict[Any, _Task] = {}

    def start(task: _Task) -> None:
        running[remote.options(num_gpus=gpus(task.value)).remote(task.value)] = task

    def finished() -> Iterator[Any]:
        done, _ = ray.wait(list(running))
        for reference in done:
            task = running.pop(reference)
            try:
                yield ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                task.deaths += 1
                if task.deaths == MOST_DEATHS:
                    raise WorkerError(_died(type(error).__name__)) from None
                start(task)

    try:
        for task in map(_Task, tasks):
            start(task)
            while len(running) >= workers + _WAITING:
                yield from finished()
        while running:
            yield from finished()
    finally:
        for reference in running:
            ray.cancel(reference)


def check_address(address: str) -> None:
    """Raise ValueError, within seconds and in one line, unless a cluster seems to be at an address.

    Ray itself tries for minutes, and then ends the process.
    """
    host, _, port = _resolve(address).removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"address must be HOST:PORT, ray://HOST:PORT or 'auto', got {address!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_S) as line:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                line.settimeout(ANSWER_S)
                line.sendall(_GREETING)
                if line.recv(4)[3:] != b"\x04":
                    raise OSError("what answers there is not Ray")
    except OSError as fault:
        raise ValueError(
            f"address must be that of a Ray cluster that answers, got {address!r}: {one_line(fault)}"
        ) from None


def _resolve(address: str) -> str:
    """Return the address of the cluster that "auto" means on this machine."""
    if address != "auto":
        return address
    from ray._private import services

    try:
        cluster = services.canonicalize_bootstrap_address(address)
    except ConnectionError:
        cluster = None
    if not cluster:
        raise ValueError("address must be that of a Ray cluster, got 'auto', and none runs on this machine")
    return str(cluster)


@contextmanager
def connected(workers: int | None, address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster; a connection or cluster that this call started is ended.

    Parameters
    ----------
    workers
        Processors of a cluster that is started on this machine; None takes all.
    address
        Address of a cluster; None starts a cluster, or uses the one that this process is connected to.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else Ray's C++ code writes warnings to the terminal
    import ray

    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        check_address(address)
    local: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError) as fault:  # for example another version of Ray or Python
        raise ValueError(
            f"address must be that of a Ray cluster to be joined, got {address!r}: {one_line(fault)}"
        ) from fault
    try:
        yield ray
    finally:
        ray.shutdown()
