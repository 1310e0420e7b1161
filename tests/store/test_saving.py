"""Saving: round trips, what is there stays, interruptions."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
import zarr
from sameness import assert_same

import percolab as pl
from percolab.ground import files
from percolab.store import chunks, commit, finished, unfinished

CHUNK_BYTES = 1 << 12
"""Many blocks, as in a large dataset."""


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(3000, 6, seeds=2, engine="paper", min_cluster_size=3))


@pytest.fixture(scope="module")
def saved(ds, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "ds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", CHUNK_BYTES)
        ds.save(path)
    return path


@pytest.fixture
def path(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", CHUNK_BYTES)
    return shutil.copytree(saved, tmp_path / "ds.zarr")


def test_round_trip(ds, path):
    loaded = pl.load(path, verify=True)
    assert_same(loaded, ds)
    loaded.forest.validate()
    assert loaded.provenance.pop("loaded_from") == str(path)
    assert loaded.provenance == ds.provenance
    loaded.save(path.with_name("again.zarr"))
    assert_same(pl.load(path.with_name("again.zarr"), verify=True), ds)
    assert finished.Complete(path).sha256 == finished.Complete(path.with_name("again.zarr")).sha256


def test_what_is_loaded_makes_itself_again(ds, path):
    assert_same(pl.generate(pl.load(path).recipe), ds)


def test_an_empty_dataset_is_a_dataset(tmp_path):
    empty = pl.generate(pl.Recipe(20, 3, seeds=0, engine="paper", min_cluster_size=1000))
    empty.forest.validate()
    assert len(empty) == 0
    empty.save(tmp_path / "empty.zarr")
    assert_same(pl.load(tmp_path / "empty.zarr", verify=True), empty)


def test_existing_output_is_refused(ds, path):
    before = finished.Complete(path).sha256
    with pytest.raises(FileExistsError, match="output must not exist unless overwrite is given"):
        ds.save(path)
    smaller = ds.filter(20)
    smaller.save(path, overwrite=True)
    assert finished.Complete(path).sha256 != before
    assert_same(pl.load(path, verify=True), smaller)
    assert sorted(p.name for p in path.parent.iterdir()) == ["ds.zarr"]


def test_only_datasets_are_overwritten(ds, tmp_path):
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="output must be a percolab dataset to be overwritten"):
        ds.save(precious, overwrite=True)
    assert (precious / "chapter.tex").read_text() == "years of work"
    zarr.create_group(tmp_path / "other.zarr")
    with pytest.raises(FileExistsError, match="output must be a percolab dataset"):
        ds.save(tmp_path / "other.zarr", overwrite=True)


def test_missing_and_unwritable_directories(ds, tmp_path):
    with pytest.raises(FileNotFoundError, match="output must be in an existing directory"):
        ds.save(tmp_path / "no" / "ds.zarr")
    if os.path.isdir("/proc/self"):  # where not even a superuser may write
        with pytest.raises(PermissionError, match="output must be in a writable directory"):
            ds.save("/proc/ds.zarr")


def test_a_failed_write_leaves_what_was_there(ds, path, monkeypatch):
    before = finished.Complete(path).sha256

    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    for module, broken in ((unfinished, "_put_record"), (unfinished.Unfinished, "finish"), (commit, "put")):
        with monkeypatch.context() as patch:
            patch.setattr(module, broken, disk_full)
            with pytest.raises(OSError, match="No space left"):
                ds.filter(20).save(path, overwrite=True)
        assert finished.Complete(path).sha256 == before
        assert_same(pl.load(path, verify=True), ds)
        assert [p.name for p in path.parent.iterdir()] == ["ds.zarr"]


KILLED = """
import sys, time, percolab as pl
from percolab.store import chunks, commit
chunks.CHUNK_BYTES = 1 << 12
def report(stage, done, total):
    if done > total / 2:
        print("half", flush=True)
        time.sleep(60)
ds = pl.generate(pl.Recipe(3000, 6, seeds=3, engine="paper"))
commit.save(ds, sys.argv[1], overwrite=True, progress=report)
"""


@pytest.mark.slow
def test_killed_in_the_middle_of_a_write(ds, path):
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "half\n"
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    assert_same(pl.load(path, verify=True), ds)
    (half_written,) = path.parent.glob(".ds.zarr.partial-*")
    with pytest.raises(pl.StoreError, match="not a dataset but an unfinished write"):
        pl.load(half_written)
    ds.save(path, overwrite=True)  # the next writer clears it away
    assert [p.name for p in path.parent.iterdir()] == ["ds.zarr"]


SLEEPER = """
import sys, time
from pathlib import Path
from percolab.ground import locks
with locks.alone(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_running_writer_is_left_alone(ds, path):
    theirs = files.partial(path)
    theirs.mkdir()
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER, str(theirs)], stdout=subprocess.PIPE, text=True)
    try:
        assert sleeper.stdout.readline() == "locked\n"
        ds.save(path, overwrite=True)
        assert theirs.exists()
    finally:
        sleeper.kill()
        sleeper.wait()
        sleeper.stdout.close()
    ds.save(path, overwrite=True)
    assert not theirs.exists()
