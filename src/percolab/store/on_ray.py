"""Tasks on a Ray cluster, whose nodes may die."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from percolab.ground.text import one_line

PATIENCE_S = 3.0
"""Seconds that a cluster has to answer."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of gRPC says first: the preface of HTTP/2, and a frame of settings, which has type 4."""


def check_address(address: str) -> None:
    """Raise ValueError, within seconds and in one line, unless a cluster seems to be at an address.

    Ray itself tries for minutes, and then ends the process.
    """
    known = _resolve(address)
    host, _, port = known.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"address must be HOST:PORT, ray://HOST:PORT or 'auto', got {address!r}")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as line:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                line.settimeout(PATIENCE_S)
                line.sendall(_GREETING)
                if line.recv(4)[3:] != b"\x04":
                    raise OSError("what answers there is not Ray")
    except OSError as fault:
        raise ValueError(
            f"address must be that of a Ray cluster that answers, got {address!r}: {one_line(fault)}"
        ) from None


def _resolve(address: str) -> str:
    """Return the address of the cluster that "auto" means here."""
    if address != "auto":
        return address
    from ray._private import services

    try:
        found = services.canonicalize_bootstrap_address(address)
    except ConnectionError:
        found = None
    if not found:
        raise ValueError("address must be that of a Ray cluster, got 'auto', and none runs on this machine")
    return str(found)


@contextmanager
def connected(workers: int | None, address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster; a connection or cluster that was not there before is ended.

    Parameters
    ----------
    workers
        Processors of a cluster that is started on this machine; None takes all.
    address
        Address of a cluster; None starts one, or takes the one this process is connected to.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else its C++ writes warnings to the terminal
    import ray

    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        check_address(address)
    local: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError) as fault:  # another version of Ray or Python, for one
        raise ValueError(
            f"address must be that of a Ray cluster to be joined, got {address!r}: {one_line(fault)}"
        ) from fault
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass
class _Task:
    value: Any
    deaths: int = 0


def no_gpus(task: Any) -> float:
    """Return the number of GPUs of a task that needs none."""
    return 0.0


def run(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    workers: int | None,
    waiting: int,
    most_deaths: int,
    gpus: Callable[[Any], float] = no_gpus,
) -> Iterator[Any]:
    """Yield function(task) for every task, as they finish, on the cluster that this process is connected to.

    A task whose worker or node dies is given to another here, and not by Ray, whose own count of retries has no end
    where memory is short.

    Parameters
    ----------
    function, tasks
        As in `runners.run`.
    workers
        Tasks at a time; None takes one for each processor of the cluster.
    waiting
        Tasks that are handed over beyond these.
    most_deaths
        `LostError` is raised when this many workers died at the same task.
    gpus
        The number of GPUs that a task needs.
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
                if task.deaths == most_deaths:
                    raise LostError(type(error).__name__) from None
                start(task)

    try:
        for task in map(_Task, tasks):
            start(task)
            while len(running) >= workers + waiting:
                yield from finished()
        while running:
            yield from finished()
    finally:
        for reference in running:
            ray.cancel(reference)


class LostError(Exception):
    """Workers died again and again at the same task: how the last one did."""
