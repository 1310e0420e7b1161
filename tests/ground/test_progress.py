"""Progress: bars on a terminal, a line now and then elsewhere, nothing where nothing is wanted."""

import io
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from percolab.ground import progress
from percolab.nn.training.history import by_epoch


@pytest.fixture
def moments(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_line_says_stage_share_and_times(moments):
    lines = progress.Display("starting")
    moments[0] += 10
    assert lines.text() == "starting, 0:10 elapsed"
    lines("trees", 0, 200)
    moments[0] += 30
    assert lines.text() == "trees 0%, 0:40 elapsed"
    lines("trees", 50, 200)
    assert lines.text() == "trees 25%, 0:40 elapsed, 1:30 left"
    lines.note("trees", "in the shade")
    lines.note("other", "not shown")
    assert lines.text() == "trees 25%, in the shade, 0:40 elapsed, 1:30 left"
    lines("trees", 200, 200)
    moments[0] += 5
    assert lines.text() == "trees 100%, in the shade, 0:45 elapsed"
    lines("saving", 1, 5)
    assert lines.text() == "saving 20%, 0:45 elapsed"


def test_parts_of_a_stage_neither_restart_the_times_nor_stop_them(moments):
    """Two cells train a network each, then the third is short: the time left is that of the cells."""
    lines, seen = progress.Display("starting"), []
    lines("cells", 0, 3)
    for cell in range(2):
        for epoch in range(5):
            lines("training", epoch, 4)
            seen.append(lines.text())
            moments[0] += 10
        lines("cells", cell + 1, 3)
    assert seen[0] == "cells 0%, training 0%, 0:00 elapsed"
    assert seen[4] == "cells 0%, training 100%, 0:40 elapsed"
    assert seen[5] == "cells 33%, training 0%, 0:50 elapsed, 1:40 left"
    assert seen[9] == "cells 33%, training 100%, 1:30 elapsed, 1:00 left"
    assert lines.text() == "cells 67%, 1:40 elapsed, 0:50 left"
    assert lines.details(lines.stages()[1]) == ""  # the bar of a part


def test_time_left_of_resumed_work_is_that_of_the_rest(moments):
    lines = progress.Display("starting")
    lines("training", 90, 100)
    moments[0] += 10
    lines("training", 95, 100)
    assert lines.text() == "training 95%, 0:10 elapsed, 0:10 left"


def test_time_left_counts_down_between_reports(moments):
    lines = progress.Display("starting")
    lines("probes", 0, 12)
    moments[0] += 10
    lines("probes", 1, 12)
    assert lines.text() == "probes 8%, 0:10 elapsed, 1:50 left"
    moments[0] += 5
    assert lines.text() == "probes 8%, 0:15 elapsed, 1:45 left"
    moments[0] += 15
    assert lines.text() == "probes 8%, 0:30 elapsed, 2:25 left"
    lines("probes", 1, 12)  # a report that moves nothing says nothing about the speed
    moments[0] += 100
    assert lines.text() == "probes 8%, 2:10 elapsed, 9:55 left"  # this step took longer: so may the others
    lines("probes", 2, 12)
    assert lines.text() == "probes 17%, 2:10 elapsed, 10:50 left"


def test_lines_are_written_where_there_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    with progress.bar(label="reading") as display:
        wait_for(lambda: "reading, 0:00 elapsed" in stream.getvalue())
        display("positions", 1, 2)
        wait_for(lambda: "positions 50%, 0:00 elapsed\n" in stream.getvalue())
    written = stream.getvalue()
    time.sleep(0.05)
    assert stream.getvalue() == written  # nothing after the end


def wait_for(condition):
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_short_or_unseen_work_writes_nothing(capfd):
    for visible in (True, False):
        with progress.bar(visible=visible) as display:
            display("positions", 1, 2)
            display.note("positions", "words")
    with progress.shown(False) as tell:
        tell("positions", 1, 2)
    assert capfd.readouterr() == ("", "")


def test_a_notebook_keeps_no_bar_of_work_that_failed_before_it_began(monkeypatch):
    class Area:
        def update(self, html):
            shown.append(html)

    def display(html, display_id):
        shown.append(html)
        return Area()

    shown = []
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))

    def fail(*stages):
        with progress._notebook("starting") as bar:
            for stage in stages:
                bar(stage, 1, 4)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert "starting" in shown[0]
    assert shown[-1] == ""
    with pytest.raises(ValueError, match="no"):
        fail("training")
    assert "training <progress value=0.250>" in shown[-1]  # how far it got


def test_an_argument_may_be_a_function():
    told = []
    with progress.shown(lambda *step: told.append(step)) as tell:
        tell("positions", 1, 2)
    assert told == [("positions", 1, 2)]


def test_epochs_are_counted_work_with_words_beside_it(moments):
    told = []
    by_epoch(lambda *step: told.append(step))(2, 8, 0.25, 0.5)
    assert told == [("training", 2, 8)]
    lines = progress.Display("starting")
    by_epoch(lines)(2, 8, 0.25, 0.5)
    assert lines.text() == "training 25%, loss 0.25, validation R² 0.5000, 0:00 elapsed"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0:00"), (65, "1:05"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min")]
)
def test_clock(seconds, words):
    assert progress.clock(seconds) == words
