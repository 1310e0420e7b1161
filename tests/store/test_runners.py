"""Runners: tasks done once each by processes that may die, here and on Ray. Processes are really killed."""

import os
import signal
import types
from pathlib import Path

import pytest

from percolab.store import runners


def die_once(flag):
    """Kill the process that runs this, the first time."""
    if not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return flag


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def fail(task):
    raise OSError(28, f"no room for {task}")


@pytest.mark.slow
def test_tasks_of_dead_workers_are_done_by_others(tmp_path):
    flags = [str(tmp_path / str(i)) for i in range(4)]
    Path(flags[1]).touch()
    Path(flags[2]).touch()
    assert sorted(runners.run(die_once, flags, "local", 2)) == flags


@pytest.mark.slow
def test_workers_that_always_die_end_the_run():
    with pytest.raises(runners.WorkerError, match="workers died 3 times"):
        list(runners.run(die, [1, 2], "local", 2))


def test_an_error_in_a_worker_is_raised_here():
    with pytest.raises(OSError, match="no room for 1"):
        list(runners.run(fail, [1], "local", 1))


def cores(_):
    return os.sched_getaffinity(0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_processes_divide_the_cores_where_that_is_asked():
    mine = os.sched_getaffinity(0)
    assert list(runners.run(cores, [1], "local", 1, apart=True)) == [mine]
    kept = [
        runners._least_used([frozenset({0}), frozenset({1})], crew) for crew in ([], [types.SimpleNamespace(cores={0})])
    ]
    assert kept == [{0}, {1}]
    assert all(len(share) == len(mine) // 2 for share in runners.run(cores, [1], "local", 2, apart=True))
    assert list(runners.run(cores, [1], "local", 2)) == [mine]
    assert os.sched_getaffinity(0) == mine


def test_tasks_are_asked_for_as_workers_become_free(tmp_path):
    asked = []

    def tasks():
        for i in range(8):
            asked.append(i)
            yield tmp_path / str(i)

    done = 0
    for _ in runners.run(os.fspath, tasks(), "local", 2):
        done += 1
        assert len(asked) <= done + 4
    assert done == 8


# ---------------------------------------------------------------------- Ray


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_replaces_dead_workers_and_raises_errors(tmp_path, ray_cluster):
    flags = [str(tmp_path / str(i)) for i in range(3)]
    assert sorted(runners.run(by_value(die_once), flags, "ray", 2)) == flags
    with pytest.raises(OSError, match="no room for 1"):
        list(runners.run(by_value(fail), [1], "ray", 1))
    with pytest.raises(runners.WorkerError, match="workers died 3 times"):
        list(runners.run(by_value(die), [1], "ray", 1))


def by_value(function):
    """Return a function that Ray sends whole, since its workers cannot import this module."""
    copy = types.FunctionType(function.__code__, {"Path": Path, "os": os, "signal": signal}, function.__name__)
    copy.__module__ = "__main__"
    return copy
