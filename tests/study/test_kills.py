"""Studies that are killed at any change to files go on with the same command; two at once are refused."""

import json
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from attack_kills import FINE, REFUSED, counting, dying, fork, outcome

import percolab as pl
from percolab.intervals import Estimate
from percolab.nn import TrainConfig
from percolab.study.cells import Array, Cell
from percolab.study.estimates import row
from percolab.study.experiment import Experiment, Found
from percolab.study.report import Line, Words
from percolab.study.settings import Settings

torch.set_num_threads(1)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@dataclass(frozen=True)
class Options:
    """Options."""

    size: int = 3


@dataclass(frozen=True)
class Numbers:
    """A result."""

    values: Array


def make(here, *needed, add=0):
    here.scratch.mkdir(parents=True, exist_ok=True)
    (here.scratch / "begun.txt").write_text("half")  # as training leaves a checkpoint
    return Numbers(np.arange(3.0) + add + sum(one.values.sum() for one in needed))


def cells(s):
    networks = Cell(f"{s.prefix}networks", Numbers, make, s.to_dict(), lasting=False)
    own = [Cell(f"{s.prefix}part/{k}", Numbers, partial(make, add=k), s.to_dict(), (networks,)) for k in range(2)]
    return [networks, *own]


def analyse(s, results):
    values = [one.values.mean() for one in results.values()]
    return Found([row(Estimate(float(np.mean(values)), 0.5, 9.0, 2, 3), part="all")], {"networks": 2})


EXPERIMENT = Experiment(
    name="kills",
    words=Words.of("A study.\n\nIs it whole?\n\nBy killing it."),
    data=("one-cluster",),
    options=lambda scale, seeds, training: Options(),
    cells=cells,
    analyse=analyse,
    headline=lambda rows, s: [Line("the mean", rows[0])],
    draw=lambda rows, s: {},
)
SETTINGS = Settings("kills", "small", ("one-cluster",), (pl.Recipe(10, 2, seeds=1),), TrainConfig(), 2, Options())


def study(folder):
    EXPERIMENT.run(SETTINGS, folder / "out", device="cpu")


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def numbers(folder):
    results = json.loads((folder / "out" / "results.json").read_text())
    return results["estimates"], results["headline"], results["missing"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files and numbers of a study that nobody killed, and how many things it did to files."""
    folder = tmp_path_factory.mktemp("whole")
    assert outcome(fork(counting, folder / "changes", study, folder)) == FINE
    changes = int((folder / "changes").read_text())
    (folder / "changes").unlink()
    return files(folder), numbers(folder), changes


@pytest.mark.parametrize("tries", [8, pytest.param(None, marks=pytest.mark.slow)])
def test_a_study_that_is_killed_at_any_step_goes_on(whole, tmp_path, tries):
    expected, found, changes = whole
    assert changes > 20
    killed, chosen = 0, range(changes) if tries is None else range(0, changes, changes // tries)
    for change in chosen:
        folder = tmp_path / str(change)
        folder.mkdir()
        code = outcome(fork(dying, change, study, folder))
        killed += code == -signal.SIGKILL
        if (folder / "out" / "report.html").exists() and code == -signal.SIGKILL and change < changes - 5:
            page = (folder / "out" / "report.html").read_text()
            assert "This run is not finished. Missing: part/0" in page or "the mean" in page
        assert outcome(fork(study, folder)) == FINE, change
        assert numbers(folder) == found, change
        assert files(folder) == expected, change
    assert killed == len(chosen)


def slow_study(folder):
    def wait(stage, done, total):
        (folder / "working").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)

    EXPERIMENT.run(SETTINGS, folder / "out", device="cpu", progress=wait)


def second(folder):
    try:
        study(folder)
    except FileExistsError as fault:
        (folder / "said").write_text(str(fault))
        raise


def test_two_at_once_are_refused_and_nothing_is_lost(whole, tmp_path):
    expected, found, _ = whole
    first = fork(slow_study, tmp_path)
    while not (tmp_path / "working").exists():
        time.sleep(0.01)
    assert outcome(fork(second, tmp_path)) == REFUSED
    said = (tmp_path / "said").read_text()
    assert said == f"output must not be in use by another process, got {str(tmp_path / 'out')!r}"
    (tmp_path / "go").touch()
    assert outcome(first) == FINE
    assert numbers(tmp_path) == found
    made = files(tmp_path / "out")
    assert made == [str(Path(name).relative_to("out")) for name in expected]
