"""Cells: computed once, kept whole in one file, by any runner; failures; time limits; what strangers leave."""

import json
import pickle
import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from percolab.ground import memory
from percolab.ground.files import write_json
from percolab.study import cells as module
from percolab.study.cells import Cell, Cells, Here, InOthers, InProcess, connected


@dataclass(frozen=True, eq=False)
class Numbers:
    """A result of every kind of field."""

    values: np.ndarray
    parts: dict[str, np.ndarray]
    name: str
    counts: list[int]


CALLS = []


def make(here, *needed, size=3):
    CALLS.append(size)
    total = sum(int(one.values.sum()) for one in needed)
    return Numbers(np.arange(size) + total, {"a/b": np.eye(2), "c": np.zeros(0)}, "é", [1, 2])


def fail(here, *needed):
    raise ValueError("no\nsuch thing")


class TwoError(Exception):
    """An exception that pickle writes and cannot read."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def fail_unread(here):
    raise TwoError("no", "way")


def fail_unwritten(here):
    fault = ValueError("no")
    fault.made = lambda: None
    raise fault


def cell(name="one", make=make, needs=(), **given):
    return Cell(name, Numbers, make, {"recipe": [1, None]}, tuple(needs), **given)


@pytest.fixture
def kept(tmp_path):
    CALLS.clear()
    return Cells(tmp_path / "cells", InProcess(), Here("cpu"))


def test_a_cell_is_computed_once_and_read_as_it_was(kept):
    assert kept.compute([cell()]) == []
    found = kept.read(cell())
    assert found.values.tolist() == [0, 1, 2]
    assert found.parts["a/b"].tolist() == [[1, 0], [0, 1]]
    assert (found.parts["c"].size, found.name, found.counts) == (0, "é", [1, 2])
    assert [path.name for path in kept.directory.iterdir()] == ["one.npz"]
    assert replace(kept, _known={}).compute([cell()]) == []
    assert CALLS == [3]
    other = replace(cell(), made_from={"recipe": [2, None]})
    assert not kept.has(other)
    kept.compute([other])
    assert CALLS == [3, 3]
    assert not kept.has(cell())


def test_what_is_needed_is_computed_first_and_only_if_it_is_needed(kept):
    deep = cell("deep", lasting=False)
    middle = cell("a/middle", needs=[deep], lasting=False)
    last = cell("last", needs=[middle, deep])
    assert [one.name for one in kept.missing([last, middle])] == ["deep", "a/middle", "last"]
    kept.compute([last])
    assert kept.read(last).values.tolist() == [15, 16, 17]  # 3 + 12, and 0 to 2
    kept.file(deep).unlink()
    kept.file(middle).unlink()
    assert kept.compute([last, middle, deep]) == []
    assert len(CALLS) == 3


def test_progress_begins_before_the_first_cell_is_computed(kept):
    told = []
    kept.here = Here("cpu", lambda *report: told.append((*report, len(CALLS))))
    kept.compute([cell(), cell("two")])
    kept.compute([cell()])
    assert told == [("cells", 0, 2, 0), ("cells", 1, 2, 1), ("cells", 2, 2, 2)]


def test_lower_ranks_come_first_with_what_they_need(kept):
    late, deep = cell("late", partial(make, size=1), rank=1), cell("deep", partial(make, size=2), lasting=False)
    first, second = cell("first", partial(make, size=3), [deep]), cell("second", partial(make, size=4))
    kept.compute([late, deep, first, second])
    assert CALLS == [2, 3, 4, 1]


def test_a_fault_is_raised_or_kept_with_its_reason(kept):
    bad, after, good = cell("bad", fail), cell("after"), cell("good")
    after = replace(after, needs=(bad,))
    with pytest.raises(ValueError, match="no\nsuch thing"):
        kept.compute([bad, good])
    kept.keep_failures = True
    left = kept.compute([bad, after, good])
    assert [one.name for one in left] == ["bad", "after"]
    assert kept.made(bad).failed == "ValueError: no such thing"
    assert kept.has(good)
    assert not kept.has(bad)
    assert [one.name for one in kept.missing([bad])] == ["bad"]


def test_no_cell_is_begun_when_time_is_over(kept):
    kept.until = time.monotonic() - 1
    assert [one.name for one in kept.compute([cell(), cell("two")])] == ["one", "two"]
    assert CALLS == []


def test_cells_are_computed_again_where_that_is_asked(kept):
    kept.compute([cell()])
    kept.again = frozenset(["one"])
    kept.compute([cell(), cell("two")])
    assert len(CALLS) == 3


def damaged(file, how):
    content = file.read_bytes()
    if how == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        file.write_bytes(content[:120] + bytes([content[120] ^ 1]) + content[121:])
    elif how == "json":
        write_json(file, {"made_from": {}})
    elif how == "link":
        file.rename(file.with_name("elsewhere"))
        file.symlink_to("elsewhere")
    elif how == "pickle":
        np.savez(file, **{module.RECORD: np.array([{}], object), "values": np.zeros(1)}, allow_pickle=True)
    else:
        with np.load(file) as stored:
            parts = dict(stored)
        record = json.loads(str(parts[module.RECORD]))
        if how == "version":
            record["version"] += 1
        elif how == "seconds":
            record["seconds"] = "long"
        elif how == "values":
            record["values"] = []
        elif how == "list":
            record = [record]
        elif how == "a field less":
            del parts["values"]
        parts[module.RECORD] = np.array(json.dumps(record))
        np.savez(file, **parts)


HOW = ("cut", "flipped", "json", "link", "pickle", "version", "seconds", "values", "list", "a field less")


@pytest.mark.parametrize("how", HOW)
def test_a_file_that_is_not_whole_and_ours_is_not_there(kept, how):
    kept.compute([cell()])
    damaged(kept.file(cell()), how)
    fresh = replace(kept, _known={})
    assert not fresh.has(cell())
    assert fresh.compute([cell()]) == []
    assert fresh.read(cell()).values.tolist() == [0, 1, 2]


def test_what_is_larger_than_memory_is_not_read(kept, monkeypatch):
    kept.compute([cell()])
    monkeypatch.setattr(memory, "available", lambda: 100)
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    assert not replace(kept, _known={}).has(cell())


@pytest.mark.slow
def test_hundreds_of_small_cells(kept):
    many = [cell(f"task/{k}") for k in range(300)]
    assert kept.compute(many) == []
    assert replace(kept, _known={}).missing(many) == []


def test_other_processes_give_the_same_results(kept, tmp_path):
    planned = [cell("deep", lasting=False), cell("bad", fail)]
    planned += [cell(f"after-{k}", partial(make, size=k + 1), planned[:1]) for k in range(3)]
    kept.compute(planned[2:])
    with connected(None, 2) as runner:
        others = replace(kept, directory=tmp_path / "others", runner=runner, keep_failures=True, _known={})
        assert [left.name for left in others.compute(planned)] == ["bad"]
    assert others.made(planned[1]).failed == "ValueError: no such thing"
    for each in planned[2:]:
        assert others.read(each).values.tolist() == kept.read(each).values.tolist()


@pytest.mark.parametrize(
    ("address", "workers", "said"), [(None, 0, "at least 1, got 0"), ("auto", 2, "left out with ray")]
)
def test_numbers_of_workers_that_cannot_be(address, workers, said):
    with pytest.raises(ValueError, match=f"^workers must be {said}"), connected(address, workers):
        pass


@pytest.mark.ray
def test_a_bad_address_is_one_line():
    with (
        pytest.raises(ValueError, match=r"^address must be HOST:PORT, ray://HOST:PORT or 'auto', got 'here'$"),
        connected("here"),
    ):
        pass


@pytest.mark.parametrize(
    ("make", "said"),
    [(fail_unread, "TwoError: no way"), (fail_unwritten, "ValueError: no"), (fail, "ValueError: no such thing")],
)
def test_failures_that_cannot_be_sent_are_sent_as_text(make, said):
    name, outcome = pickle.loads(pickle.dumps(module._named((cell(make=make), Here("cpu"), ()))))
    assert (name, outcome.made.failed) == ("one", said)
    assert isinstance(outcome.error, ValueError if make is fail else RuntimeError)


def test_gpus_are_asked_for_where_there_are_any():
    task = (cell(gpus=0.5), Here("auto"), ())
    assert InOthers("ray", has_gpus=True)._gpus(task) == 0.5
    assert InOthers("ray")._gpus(task) == 0
    assert InOthers("ray", has_gpus=True)._gpus((cell(), Here("cpu"), ())) == 0
