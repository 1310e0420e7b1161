"""Nothing is lost: a store comes to its target whole, and what is there stays unless it was to be replaced."""

import os
import pickle
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import percolab as pl
from percolab.ground import files, locks
from percolab.store import commit, finished, runners, schema, shards, unfinished

OLD = pl.Recipe(400, 3, seeds=1)
NEW = pl.Recipe(500, 3, seeds=2)
CELL = 256


@pytest.fixture(autouse=True)
def small_cells(monkeypatch):
    monkeypatch.setattr(schema, "CELL", CELL)
    monkeypatch.setattr(runners, "run", lambda function, tasks, *_: map(function, tasks))


@pytest.fixture(scope="module")
def old():
    return pl.generate(OLD)


@pytest.fixture(scope="module")
def new():
    return pl.generate(NEW)


@pytest.fixture(scope="module")
def saved(old, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "ds.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CELL", CELL)
        old.save(path)
    return path


@pytest.fixture
def path(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "ds.zarr")


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def save(dataset, path, **options):
    commit.save(dataset, path, **options)


def make(dataset, path, **options):
    shards.generate_store(dataset.recipe, path, shards=2, **options)


WRITERS = pytest.mark.parametrize("write", [save, make])


# ---------------------------------------------------------------------- what appears meanwhile


def a_folder(path, old):
    path.mkdir()
    (path / "notes.txt").write_text("years of work")


def a_file(path, old):
    path.write_text("years of work")


def a_link(path, old):
    path.symlink_to("nowhere")


def a_dataset(path, old):
    old.save(path)


@pytest.mark.parametrize("appear", [a_folder, a_file, a_link, a_dataset])
def test_what_appears_during_a_run_stays(appear, old, new, tmp_path, system):
    path = tmp_path / "ds.zarr"

    def progress(stage, done, total):
        if done == total:
            appear(path, old)

    with pytest.raises(FileExistsError, match="output must not exist unless overwrite is given") as caught:
        save(new, path, progress=progress)
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    (tmp_path / "other").mkdir()
    appear(tmp_path / "other" / "ds.zarr", old)
    if appear is a_dataset:
        assert pl.load(path, verify=True).recipe == OLD
    elif appear is a_link:
        assert os.readlink(path) == "nowhere"
    else:
        assert (path / "notes.txt" if path.is_dir() else path).read_text() == "years of work"
    (kept,) = tmp_path.glob("ds.kept-*.zarr")  # nor is the new one lost
    assert str(kept) in str(caught.value)
    assert pl.load(kept, verify=True).recipe == NEW


@WRITERS
@pytest.mark.parametrize("appear", [a_folder, a_file])
def test_only_datasets_are_overwritten_even_if_they_appear_late(write, appear, old, new, tmp_path, monkeypatch):
    path = tmp_path / "ds.zarr"
    old.save(path)
    put = commit.put

    def late(complete, target, **options):
        shutil.rmtree(path)
        appear(path, old)
        put(complete, target, **options)

    monkeypatch.setattr(commit, "put", late)
    with pytest.raises(FileExistsError, match="output must be a percolab dataset to be overwritten"):
        write(new, path, overwrite=True)
    assert (path / "notes.txt" if path.is_dir() else path).read_text() == "years of work"


def test_an_empty_directory_is_nothing(new, tmp_path, system):
    (tmp_path / "ds.zarr").mkdir()
    save(new, tmp_path / "ds.zarr")
    assert pl.load(tmp_path / "ds.zarr", verify=True).recipe == NEW


# ---------------------------------------------------------------------- killed in the middle


class Killed(BaseException):
    pass


def killed_at_every_step(monkeypatch, write, after):
    """Replace again and again, each time stopped before a later step, and look at what is there."""
    steps = [(os, "rename"), (os, "replace"), (Path, "unlink"), (shutil, "rmtree"), (files, "_renameat2")]
    for survived in range(1000):
        left = survived
        killed = False

        def counted(change):
            def changed(*args, **options):
                nonlocal left, killed
                if killed or left == 0:
                    if change.__name__ == "rmtree" and not killed:  # half of it is gone
                        for file in sorted(file for file in Path(args[0]).rglob("*") if file.is_file())[::2]:
                            os.unlink(file)
                    killed = True
                    raise Killed
                left -= 1
                return change(*args, **options)

            return changed

        with monkeypatch.context() as patch:
            for module, name in steps:
                patch.setattr(module, name, counted(getattr(module, name)))
            with suppress(Killed):
                write()
        after()
        if not killed:
            return survived
    raise AssertionError("never done")


@pytest.mark.slow
def test_killed_at_any_moment_of_replacing(old, new, path, monkeypatch):
    seen = set()
    new.save(path.with_name("new.zarr"))

    def after():
        # At the path is one of the two, whole.
        seen.add(pl.load(path, verify=True).recipe)
        old.save(path, overwrite=True)  # nor is the next one disturbed
        assert pl.load(path, verify=True).recipe == OLD
        assert not [file.name for file in path.parent.iterdir() if file.name.startswith(".")]  # and nothing is left
        shutil.rmtree(path.with_name("new.zarr"), ignore_errors=True)
        new.save(path.with_name("new.zarr"))

    def write():
        commit.put(path.with_name("new.zarr"), path, overwrite=True, sync=False)

    assert killed_at_every_step(monkeypatch, write, after) >= 3
    assert seen == {OLD, NEW}


@WRITERS
def test_where_two_names_cannot_be_exchanged_nothing_is_replaced(write, new, path, monkeypatch):
    monkeypatch.setattr(files, "_system_call", lambda: None)
    before = contents(path)
    with pytest.raises(FileExistsError, match="output must not exist on a file system that cannot exchange two names"):
        write(new, path, overwrite=True)
    assert contents(path) == before
    assert [file.name for file in path.parent.iterdir()] == ["ds.zarr"]  # it was refused before the work
    shutil.rmtree(path)
    write(new, path, overwrite=True)
    assert pl.load(path, verify=True).recipe == NEW


def test_what_appears_where_names_cannot_be_exchanged_stays(old, new, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_system_call", lambda: None)
    path = tmp_path / "ds.zarr"

    def progress(stage, done, total):
        if done == total and not path.exists():
            a_dataset(path, old)

    with pytest.raises(FileExistsError, match=r"cannot exchange two names .*; the new dataset is kept at"):
        save(new, path, overwrite=True, progress=progress)
    (kept,) = tmp_path.glob("ds.kept-*.zarr")
    assert [pl.load(there, verify=True).recipe for there in (path, kept)] == [OLD, NEW]


# ---------------------------------------------------------------------- locks


HOLDER = """
import sys, time
from percolab.ground import locks
with locks.alone(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def held(path):
    """A store that another process writes to, or says so."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    yield path
    holder.kill()
    holder.wait()
    holder.stdout.close()


def test_nothing_changes_before_the_lock_is_held(held, old, new):
    chunk = next(file for file in (held / "X" / "c").rglob("*") if file.is_file())
    chunk.write_bytes(b"damaged")
    before = contents(held)
    with pytest.raises(pl.StoreError, match="is being written by another process"):
        make(old, held)  # which would repair it
    for write in (save, make):
        with pytest.raises(pl.StoreError, match="is being written by another process"):
            write(new, held, overwrite=True)
    assert contents(held) == before


def test_a_run_that_comes_to_nothing_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("percolab.ground.memory.available", lambda: 1000)
    with pytest.raises(MemoryError):
        shards.generate_store(replace(NEW, n_points=10**6), tmp_path / "ds.zarr", shards=1)
    assert not any(tmp_path.iterdir())


def test_two_that_begin_at_once(new, tmp_path):
    path = tmp_path / "ds.zarr"

    def second(stage, done, total):
        with pytest.raises(pl.StoreError, match="is being written by another process"):
            make(new, path)

    make(new, path, progress=second)
    assert pl.load(path, verify=True).recipe == NEW


# ---------------------------------------------------------------------- links


@WRITERS
def test_a_link_stays_and_what_it_leads_to_is_replaced(write, new, path):
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    link = elsewhere / "link.zarr"
    link.symlink_to(path)
    with pytest.raises(FileExistsError):
        write(new, link)
    write(new, link, overwrite=True)
    assert link.is_symlink()
    assert not path.is_symlink()
    assert pl.load(path, verify=True).recipe == pl.load(link, verify=True).recipe == NEW
    assert [file.name for file in elsewhere.iterdir()] == ["link.zarr"]
    assert sorted(file.name for file in path.parent.iterdir()) == ["ds.zarr", "elsewhere"]


# ---------------------------------------------------------------------- a store that is replaced while it is loaded


@pytest.mark.parametrize("how", ["replaced", "removed", "repaired", "copied"])
def test_a_loaded_dataset_notices_that_its_store_is_another(how, old, new, path):
    loaded, columns = pl.load(path), finished.Complete(path)
    y = loaded.y
    if how == "replaced":
        new.save(path, overwrite=True)
    elif how == "removed":
        shutil.rmtree(path)
    elif how == "repaired":  # which makes it unfinished for a while
        unfinished.begin(path, OLD, old.forest.n_points, old.forest.n_clusters)
    else:  # the same bytes, in other files: nothing to complain of
        shutil.copytree(path, path.with_name("copy"))
        shutil.rmtree(path)
        path.with_name("copy").rename(path)
        assert (loaded.X[:] == old.X).all()
        assert (columns.array("y")[:] == y).all()
        return
    said = r"ds.zarr was changed after it was loaded: load it again$"
    for read in (lambda: loaded.X[3], lambda: loaded.forest, lambda: columns.array("y")[:], lambda: loaded.X[[5, 3]]):
        with pytest.raises(pl.StoreError, match=said):
            read()


def test_a_loaded_world_notices_it_too_and_travels_by_its_path(tmp_path, monkeypatch):
    one, other = (pl.superpose([replace(OLD, seeds=seed) for seed in seeds]) for seeds in ((1, 2), (3, 2)))
    monkeypatch.chdir(tmp_path)
    one.save("world.zarr")
    loaded = pl.load("world.zarr")
    assert (loaded.y == one.y).all()
    small = [pickle.dumps(part) for part in (loaded, loaded.factors[1])]
    assert all(len(part) < 1000 for part in small)
    monkeypatch.chdir("/")
    world, factor = map(pickle.loads, small)
    assert (world.X[:] == one.X).all()
    assert factor.forest.equals(one.factors[1].forest)
    assert (loaded.factors[1].filter(3).X == one.factors[1].filter(3).X).all()
    other.save(tmp_path / "world.zarr", overwrite=True)
    said = r"world.zarr was changed after it was loaded: load it again$"
    for read in (lambda: loaded.X[3], lambda: factor.latent_z, lambda: pickle.loads(small[0])):
        with pytest.raises(pl.StoreError, match=said):
            read()


def test_a_world_that_finds_its_target_taken_is_kept(tmp_path):
    world = pl.superpose([OLD, NEW])

    def take_the_target(stage, done, total):
        (tmp_path / "world.zarr").mkdir(exist_ok=True)
        (tmp_path / "world.zarr" / "notes").touch()

    with pytest.raises(FileExistsError, match=r"output must not exist unless .*; the new dataset is kept at") as caught:
        commit.save(world, tmp_path / "world.zarr", progress=take_the_target)
    kept = str(caught.value).rsplit("'", 2)[1]
    assert (pl.load(kept, verify=True).X[:] == world.X).all()
    assert [file.name for file in (tmp_path / "world.zarr").iterdir()] == ["notes"]


def test_an_empty_directory_makes_way_unless_another_run_is_about_to_write_to_it(new, tmp_path):
    for is_locked in (False, True):
        target = tmp_path / f"{is_locked}.zarr"
        target.mkdir()
        if not is_locked:
            new.save(target)
            assert pl.load(target, verify=True).recipe == NEW
            continue
        with locks.alone(target), pytest.raises(FileExistsError, match="the new dataset is kept at"):
            new.save(target)
        assert list(target.iterdir()) == []
