"""The directory of a study: one process at a time, one study, and nothing of anyone else's is touched."""

import json
import os
import subprocess
import sys

import pytest

from percolab.study.directory import CLAIM, MADE, claimed, read_json

WANTED = {"experiment": "one", "seeds": 2, "recipes": [{"n_points": 3}]}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_directory_is_claimed_for_one_study(tmp_path):
    folder = tmp_path / "a" / "b"
    with claimed(folder, WANTED):
        assert json.loads((folder / CLAIM).read_text()) == {"schema": "percolab study", "version": 1, **WANTED}
    with claimed(folder, WANTED):
        assert names(folder) == [CLAIM]
    (folder / "report.html").write_text("old")
    (folder / "submission").mkdir()
    (folder / "submission" / "old.json").write_text("{}")
    (folder / "notes.txt").write_text("mine")
    other = {**WANTED, "seeds": 3}
    message = r"^output must hold the same experiment unless overwrite is given, got '.*' with seeds 2$"
    with pytest.raises(FileExistsError, match=message), claimed(folder, other):
        pass
    with claimed(folder, other, overwrite=True):
        assert names(folder) == [CLAIM, "notes.txt"]
        assert json.loads((folder / CLAIM).read_text())["seeds"] == 3


@pytest.mark.slow
def test_two_at_once_are_refused(tmp_path):
    code = f"""
from pathlib import Path
from percolab.study.directory import claimed
try:
    with claimed(Path({str(tmp_path)!r}), {WANTED!r}):
        print("held")
except FileExistsError as fault:
    print(fault)
"""
    with claimed(tmp_path, WANTED):
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"output must not be in use by another process, got {str(tmp_path)!r}\n"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "held\n"


def test_what_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with (
        pytest.raises(FileExistsError, match=r"^output must be empty or hold an experiment, got"),
        claimed(tmp_path, WANTED, overwrite=True),
    ):
        pass
    assert names(tmp_path) == ["notes.txt"]
    file = tmp_path / "notes.txt"
    with pytest.raises(FileExistsError, match=r"^output must be a directory, got"), claimed(file, WANTED):
        pass


def test_nothing_is_removed_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    folder = tmp_path / "study"
    with claimed(folder, WANTED):
        pass
    for name in MADE:
        (folder / name).symlink_to(outside)
    with claimed(folder, {**WANTED, "seeds": 3}, overwrite=True):
        assert names(folder) == [CLAIM]
    assert (outside / "precious").read_text() == "mine"


@pytest.mark.parametrize("claim", ["", "[" * 100_000, "[]", '{"experiment": "one"}', '{"schema": 1, "version": {}}'])
def test_a_claim_of_a_stranger_is_another_study(tmp_path, claim):
    (tmp_path / CLAIM).write_text(claim)
    with pytest.raises(FileExistsError, match="must hold the same experiment"), claimed(tmp_path, WANTED):
        pass
    with claimed(tmp_path, WANTED, overwrite=True):
        pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_or_an_endless_device_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert read_json(tmp_path / "pipe") == read_json(tmp_path / "zero") == {}
