"""Stores written cell by cell: in any order, by several processes, with interruptions, damage and repairs."""

import multiprocessing
import os
import pickle
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import zarr

import percolab as pl
from percolab.engines import paper
from percolab.store import chunks, commit, finished, schema, unfinished
from percolab.store.schema import COLUMNS, ROW_KINDS
from percolab.store.unfinished import Unfinished

CELL = 128
CHUNK_BYTES = 8 * CELL
"""No block of any array has more rows than a cell."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", CHUNK_BYTES)


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(500, 2, seeds=2, engine="paper"))


@pytest.fixture(scope="module")
def saved(ds, tmp_path_factory):
    """Return where the dataset is as `save` writes it."""
    path = tmp_path_factory.mktemp("saved") / "saved.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_BYTES", CHUNK_BYTES)
        ds.save(path)
    return path


@pytest.fixture(scope="module")
def files(saved):
    """Return its files."""
    return contents(saved)


def contents(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def begin(ds, location, n_points=None, cell=CELL):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CELL", cell)
        return unfinished.begin(location, ds.recipe, n_points or ds.forest.n_points, ds.forest.n_clusters)


def column(ds, name):
    return getattr(ds.forest if name in schema.FOREST_COLUMNS else ds, name)


def write(store, ds, kind, index):
    lo, hi = store.span(kind, index)
    store.write(kind, lo, {name: column(ds, name)[lo:hi] for name in ROW_KINDS[kind]})


def all_cells(store):
    return [(kind, index) for kind in ROW_KINDS for index in range(store.n_cells(kind))]


def write_missing(store, ds):
    for kind, indices in store.missing().items():
        for index in indices:
            write(store, ds, kind, index)


def complete(ds, location):
    """Resume what is there, as a second run of the same command does."""
    store = begin(ds, location)
    write_missing(store, ds)
    assert not any(store.missing().values())
    store.finish(ds.provenance)


def only(kind, *indices):
    return {k: list(indices) if k == kind else [] for k in ROW_KINDS}


# ---------------------------------------------------------------------- the same store however it is made


def test_cells_in_any_order_give_the_same_files(ds, files, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    cells = all_cells(store)
    assert len(cells) > 9
    np.random.default_rng(0).shuffle(cells)
    for kind, index in cells:
        write(store, ds, kind, int(index))
    store.finish(ds.provenance)
    assert contents(tmp_path / "ds.zarr") == files
    assert pl.load(tmp_path / "ds.zarr", verify=True).forest.equals(ds.forest)


def test_several_cells_in_one_call(ds, files, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    for kind, names in ROW_KINDS.items():
        store.write(kind, CELL, {name: column(ds, name)[CELL:] for name in names})
        store.write(kind, 0, {name: column(ds, name)[:CELL] for name in names})
    store.finish(ds.provenance)
    assert contents(tmp_path / "ds.zarr") == files


def test_a_cell_written_twice(ds, files, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    for kind, index in all_cells(store) * 2:
        write(store, ds, kind, index)
    store.finish(ds.provenance)
    assert contents(tmp_path / "ds.zarr") == files


def test_chunks_lie_in_cells_and_do_not_depend_on_the_data(ds, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 22)
    recipe = replace(ds.recipe, n_points=10**9, dim=100, dtype="float32")
    for name, cell in (("a.zarr", schema.CELL), ("b.zarr", 1 << 10)):
        monkeypatch.setattr(schema, "CELL", cell)
        group = zarr.open_group(unfinished.begin(tmp_path / name, recipe, 10**9, 10**8).location)
        rows = {array: group[array].chunks[0] for array in COLUMNS}
        assert all(cell % r == 0 for r in rows.values())
        assert rows["X"] == min(cell, 8192)
        assert rows["y"] == cell


def test_an_empty_dataset(tmp_path):
    empty = pl.generate(pl.Recipe(20, 3, seeds=0, engine="paper", min_cluster_size=1000))
    empty.save(tmp_path / "saved.zarr")
    store = begin(empty, tmp_path / "ds.zarr")
    assert store.missing() == only("cluster_edge", 0)
    complete(empty, tmp_path / "ds.zarr")
    assert contents(tmp_path / "ds.zarr") == contents(tmp_path / "saved.zarr")


# ---------------------------------------------------------------------- what is refused


def test_cells_that_are_not_whole_are_refused(ds, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    ids = ds.forest.cluster_id
    for lo, hi in ((0, 100), (1, CELL + 1), (-CELL, 0), (CELL * 100, CELL * 101)):
        with pytest.raises(ValueError, match=f"rows must fill cells of {CELL} out of {ids.size} rows"):
            store.write("cluster", lo, {"cluster_id": np.zeros(hi - lo, np.int64)})
    with pytest.raises(ValueError, match="columns must be latent_z, left_size, bond, got bond"):
        store.write("latent", 0, {"bond": ds.forest.bond[:CELL]})
    with pytest.raises(ValueError, match=rf"cluster_id must be int64 \({CELL},\), got int32 \({CELL},\)"):
        store.write("cluster", 0, {"cluster_id": ids[:CELL].astype(np.int32)})
    with pytest.raises(ValueError, match="kind must be one of point, latent, cluster, cluster_edge, got 'row'"):
        store.write("row", 0, {})
    assert store.missing() == {kind: list(range(store.n_cells(kind))) for kind in ROW_KINDS}


def test_what_is_not_whole_is_not_finished(ds, files, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    for kind, index in all_cells(store):
        if (kind, index) != ("latent", 1):
            write(store, ds, kind, index)
    assert store.missing() == only("latent", 1)
    with pytest.raises(pl.StoreError, match="is not complete: latent cell 1 is not written"):
        store.finish(ds.provenance)
    with pytest.raises(pl.StoreError, match="unfinished write: run the same command again to resume, or delete it"):
        pl.load(tmp_path / "ds.zarr")
    complete(ds, tmp_path / "ds.zarr")
    assert contents(tmp_path / "ds.zarr") == files


@pytest.mark.parametrize("status", ["writing", "complete"])
def test_another_recipe_engine_or_format_is_refused(ds, tmp_path, monkeypatch, status):
    path = tmp_path / "ds.zarr"
    store = begin(ds, path)
    write(store, ds, "point", 0)
    if status == "complete":
        complete(ds, path)
    before = contents(path)
    other = replace(ds, recipe=replace(ds.recipe, dim=7))
    with pytest.raises(FileExistsError, match=r"dim of the store at '.*ds.zarr' must be 7 to resume, got 2"):
        begin(other, path)
    for module, name, message in (
        (paper, "VERSION", r"engine_version of the store at .* must be 99 to resume, got 1"),
        (unfinished, "FORMAT", r"format of the store at .* must be 99 to resume, got 1"),
        (chunks, "CHUNK_BYTES", r"array X of .* must be .* in blocks of \(4, 2\) to resume, got .* of \(64, 2\)"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, 99)
            with pytest.raises(FileExistsError, match=message):
                begin(ds, path)
    with pytest.raises(FileExistsError, match=r"array X of .* must be float64 \(499, 2\) .* got float64 \(500, 2\)"):
        begin(ds, path, n_points=499)
    if status == "writing":
        with pytest.raises(FileExistsError, match=r"cell of the store at .* must be 512 to resume, got 128"):
            begin(ds, path, cell=512)
    after = contents(path)
    assert {name: after[name] for name in before} == before
    complete(ds, path)
    pl.load(path, verify=True)


def test_other_things_are_refused_and_stay(ds, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "download").mkdir()
    (tmp_path / "download" / "film.partial").write_text("hours of waiting")
    (tmp_path / "notes.txt").write_text("hello")
    zarr.create_group(tmp_path / "other.zarr")
    before = contents(tmp_path)
    for name in ("thesis", "download", "notes.txt", "other.zarr"):
        with pytest.raises(FileExistsError, match="output must be new or a dataset of the same recipe"):
            begin(ds, tmp_path / name)
        with pytest.raises(pl.StoreError, match="is not a percolab dataset"):
            Unfinished(tmp_path / name, CELL).n_rows("point")
    with pytest.raises(FileNotFoundError, match="output must be in an existing directory"):
        begin(ds, tmp_path / "no" / "ds.zarr")
    assert contents(tmp_path) == before
    (tmp_path / "empty").mkdir()
    complete(ds, tmp_path / "empty")  # an empty directory holds nothing that could be lost


def test_only_unfinished_stores_are_opened_for_writing(ds, tmp_path):
    with pytest.raises(FileNotFoundError, match="dataset must exist, got"):
        Unfinished(tmp_path / "ds.zarr", CELL).n_rows("point")
    assert not (tmp_path / "ds.zarr").exists()
    ds.save(tmp_path / "ds.zarr")
    before = contents(tmp_path)
    with pytest.raises(pl.StoreError, match="is not an unfinished store: array unfinished/point is missing"):
        write(Unfinished(tmp_path / "ds.zarr", CELL), ds, "point", 0)
    assert contents(tmp_path) == before


# ---------------------------------------------------------------------- damage


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


DAMAGES = {
    "flipped": flip,
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "emptied": lambda file: os.truncate(file, 0),
    "deleted": lambda file: file.unlink(),
}


def chunk(path, name, block):
    return path / name / "c" / str(block) / "0" if name in ("X", "bond") else path / name / "c" / str(block)


@pytest.mark.slow
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_chunks_are_found_and_written_again(ds, files, tmp_path, damage, finished):
    path = tmp_path / "ds.zarr"
    store = begin(ds, path)
    write_missing(store, ds)
    if finished:
        store.finish(ds.provenance)
    for kind, names in ROW_KINDS.items():
        for name in names:
            array = zarr.open_group(path)[name]
            blocks = {0, array.nchunks // 2, array.nchunks - 1}
            for block in blocks:
                DAMAGES[damage](chunk(path, name, block))
            cells = sorted({block * array.chunks[0] // CELL for block in blocks})
            again = begin(ds, path)
            assert again.missing() == only(kind, *cells)
            for index in cells:
                write(again, ds, kind, index)
            if finished:
                again.finish(ds.provenance)
                assert contents(path) == files
    if not finished:
        store.finish(ds.provenance)
    assert contents(path) == files


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_make_their_cells_missing(ds, files, tmp_path, damage):
    path = tmp_path / "ds.zarr"
    store = begin(ds, path)
    write_missing(store, ds)
    for kind in ROW_KINDS:
        for index in {0, store.n_cells(kind) - 1}:
            DAMAGES[damage](path / "unfinished" / kind / "c" / str(index))
            assert begin(ds, path).missing() == only(kind, index)
            with pytest.raises(pl.StoreError, match=f"{kind} cell {index} is not written"):
                store.finish(ds.provenance)
            write(store, ds, kind, index)
    store.finish(ds.provenance)
    assert contents(path) == files


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_digests_of_a_complete_store(ds, files, tmp_path, damage):
    path = tmp_path / "ds.zarr"
    complete(ds, path)
    DAMAGES[damage](path / "digests" / "bond" / "c" / "0" / "0")
    store = begin(ds, path)
    assert store.missing() == only("latent", *range(store.n_cells("latent")))  # nothing else vouches for them
    complete(ds, path)
    assert contents(path) == files


def test_an_array_that_is_gone_is_made_again(ds, files, tmp_path):
    complete(ds, tmp_path / "ds.zarr")
    shutil.rmtree(tmp_path / "ds.zarr" / "y")
    shutil.rmtree(tmp_path / "ds.zarr" / "digests")
    complete(ds, tmp_path / "ds.zarr")
    assert contents(tmp_path / "ds.zarr") == files


def test_a_complete_store_is_unfinished_while_it_is_repaired(ds, files, tmp_path):
    path = tmp_path / "ds.zarr"
    complete(ds, path)
    # What a writer that came too late left behind, here with other cells, vouches for nothing.
    late = begin(ds, tmp_path / "late.zarr", cell=2 * CELL)
    write(late, ds, "point", 0)
    shutil.copytree(tmp_path / "late.zarr" / "unfinished", path / "unfinished")
    assert pl.load(path, verify=True).recipe == ds.recipe
    begin(ds, path)
    with pytest.raises(pl.StoreError, match="is not a dataset but an unfinished write"):
        pl.load(path)
    store = Unfinished(path, CELL)
    assert not any(store.missing().values())
    store.finish(ds.provenance)
    assert contents(path) == files


def test_checking_reports_every_cell(ds, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    seen = []
    store.missing(lambda *args: seen.append(args))
    total = len(all_cells(store))
    assert seen == [("checking", done, total) for done in range(1, total + 1)]


# ---------------------------------------------------------------------- interruptions


class Killed(BaseException):
    pass


def killed_at_every_change(monkeypatch, make, resume):
    """Run `make` again and again, each time stopped before a later change to the disk, and resume from there."""
    from zarr.storage import LocalStore

    replaced = os.replace
    for survived in range(10_000):
        left, under_way = survived, 0

        def count():
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1

        def counted(change):
            async def changed(self, *args, **kwargs):
                nonlocal under_way
                count()
                under_way += 1
                try:
                    return await change(self, *args, **kwargs)
                finally:
                    under_way -= 1

            return changed

        def changed_by_us(*args):
            if not under_way and str(args[1]).endswith("zarr.json"):  # noqa: B023  # what Zarr does not write
                count()
            return replaced(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", changed_by_us)
            for name in ("set", "set_if_not_exists", "delete", "delete_dir"):
                patch.setattr(LocalStore, name, counted(getattr(LocalStore, name)))
            try:
                make()
            except Killed:
                stopped = True
            else:
                stopped = False
            while under_way:
                time.sleep(0.001)
        resume()
        if not stopped:
            return survived
    raise AssertionError("never done")


@pytest.mark.slow
def test_killed_at_any_moment_of_beginning(ds, files, tmp_path, monkeypatch):
    path = tmp_path / "ds.zarr"

    def resume():
        with pytest.raises((pl.StoreError, FileNotFoundError)):
            pl.load(path)
        begin(ds, path)
        shutil.rmtree(path)

    assert killed_at_every_change(monkeypatch, lambda: begin(ds, path), resume) > 22
    complete(ds, path)
    assert contents(path) == files


@pytest.mark.slow
def test_killed_at_any_moment_of_finishing(ds, files, tmp_path, monkeypatch):
    path, written = tmp_path / "ds.zarr", tmp_path / "written.zarr"
    write_missing(begin(ds, written), ds)
    shutil.copytree(written, path)

    def resume():
        store = begin(ds, path)
        assert not any(store.missing().values())  # what was written is not lost
        store.finish(ds.provenance)
        assert contents(path) == files
        shutil.rmtree(path)
        shutil.copytree(written, path)

    assert killed_at_every_change(monkeypatch, lambda: begin(ds, path).finish(ds.provenance), resume) > 10


def test_killed_while_half_of_the_records_are_removed(ds, files, tmp_path, monkeypatch):
    path = tmp_path / "ds.zarr"
    store = begin(ds, path)
    write_missing(store, ds)

    def half(directory):
        for name in ("point", "cluster"):
            rmtree(os.path.join(directory, name))
        raise Killed

    rmtree = shutil.rmtree
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", half)
        with pytest.raises(Killed):
            store.finish(ds.provenance)
    assert not (path / "unfinished" / "point").exists()
    assert (path / "unfinished" / "latent").exists()
    store = begin(ds, path)
    assert not any(store.missing().values())
    store.finish(ds.provenance)
    assert contents(path) == files


@pytest.mark.slow
def test_killed_at_any_moment_of_a_repair(ds, files, tmp_path, monkeypatch):
    path, whole = tmp_path / "ds.zarr", tmp_path / "whole.zarr"
    complete(ds, whole)
    shutil.copytree(whole, path)
    chunk(path, "X", 3).unlink()

    def resume():
        store = begin(ds, path)
        assert store.missing() == only("point", 1)
        write(store, ds, "point", 1)
        store.finish(ds.provenance)
        assert contents(path) == files
        chunk(path, "X", 3).unlink()

    assert killed_at_every_change(monkeypatch, lambda: begin(ds, path), resume) > 15


def test_what_killed_writers_left_is_swept(ds, files, tmp_path):
    path = tmp_path / "ds.zarr"
    path.mkdir()

    def leave(directory, name):
        (path / directory / f"{name}.{secrets.token_hex(16)}.partial").write_bytes(b"half a chunk")

    leave(".", "zarr")
    store = begin(ds, path)
    write_missing(store, ds)
    for directory, name in (("X/c/2", "0"), ("y/c", "1"), ("digests/y", "zarr"), ("unfinished/point/c", "0")):
        leave(directory, name)
    store.finish(ds.provenance)
    assert contents(path) == files


WRITER = """
import sys, time, percolab as pl
from percolab.store.schema import FOREST_COLUMNS, ROW_KINDS
from percolab.store.unfinished import Unfinished
store = Unfinished(sys.argv[1], CELL)
ds = pl.load(sys.argv[2])
print("ready", flush=True)
for line in sys.stdin:
    kind, index = line.split()
    lo, hi = store.span(kind, int(index))
    columns = {name: getattr(ds.forest if name in FOREST_COLUMNS else ds, name)[lo:hi] for name in ROW_KINDS[kind]}
    store.write(kind, lo, columns)
    print("written", flush=True)
""".replace("CELL", str(CELL))


class Writer:
    """Another process that writes the cells it is told to."""

    def __init__(self, location, source):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, str(location), str(source)], **pipes)

    def __enter__(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def tell(self, kind, index):
        self.process.stdin.write(f"{kind} {index}\n")
        self.process.stdin.flush()

    def wait(self):
        assert self.process.stdout.readline() == "written\n"

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def local_urls(monkeypatch):
    """Let fsspec make directories on the local disk, as object stores need none."""
    import fsspec

    monkeypatch.setitem(fsspec.config.conf, "local", {"auto_mkdir": True})
    monkeypatch.setenv("FSSPEC_LOCAL_AUTO_MKDIR", "1")


@pytest.mark.slow
@pytest.mark.usefixtures("local_urls")
@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_two_processes_write_at_once(ds, saved, files, tmp_path, scheme):
    location = f"{scheme}{tmp_path / 'ds.zarr'}"
    store = begin(ds, location)
    cells = all_cells(store)
    with Writer(location, saved) as one, Writer(location, saved) as two:
        for i, (kind, index) in enumerate(cells):
            (one, two)[i % 2].tell(kind, index)
        for i, _ in enumerate(cells):
            (one, two)[i % 2].wait()
    store.finish(ds.provenance)
    assert contents(tmp_path / "ds.zarr") == files
    assert pl.load(location, verify=True).forest.equals(ds.forest)


@pytest.mark.slow
@pytest.mark.usefixtures("local_urls")
@pytest.mark.parametrize("scheme", ["", "local://"])
def test_a_writer_is_killed(ds, saved, files, tmp_path, scheme):
    location = f"{scheme}{tmp_path / 'ds.zarr'}"
    store = begin(ds, location)
    with Writer(location, saved) as writer:
        for kind, index in all_cells(store):
            writer.tell(kind, index)
        writer.wait()
        writer.wait()
        writer.process.send_signal(signal.SIGKILL)
        writer.process.wait()
    left = sum(len(indices) for indices in store.missing().values())
    assert 0 < left <= len(all_cells(store)) - 2
    complete(ds, location)
    assert contents(tmp_path / "ds.zarr") == files


def write_and_check(store, ds, kind, index):
    write(store, ds, kind, index)
    assert index not in store.missing()[kind]


@pytest.mark.slow
def test_an_unfinished_store_can_be_sent_to_another_process(ds, tmp_path):
    store = begin(ds, tmp_path / "ds.zarr")
    write(store, ds, "point", 1)
    again = pickle.loads(pickle.dumps(store))
    assert repr(again) == repr(store) == f"Unfinished({str(tmp_path / 'ds.zarr')!r}, cell={CELL})"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(write_and_check, (store, ds, "point", 0))
    assert {0, 1}.isdisjoint(again.missing()["point"])


# ---------------------------------------------------------------------- URLs


@pytest.fixture
def memory():
    """Return a URL in memory where nothing is."""
    import fsspec

    url = f"memory://{secrets.token_hex(8)}/ds.zarr"
    yield url
    fsspec.filesystem("memory").rm(url.rsplit("/", 1)[0], recursive=True)


def contents_at(url):
    import fsspec

    return {name.lstrip("/"): data for name, data in fsspec.get_mapper(url).items()}


def test_a_store_in_memory(ds, files, memory):
    ds.save(memory)
    assert contents_at(memory) == files
    loaded = pl.load(memory, verify=True)
    np.testing.assert_array_equal(loaded.X[5:90], ds.X[5:90])
    assert finished.Complete(memory).sha256 == {name: finished.Complete(memory).sha256[name] for name in COLUMNS}
    assert loaded.provenance["loaded_from"] == memory
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="output must not exist, since URLs are not overwritten"):
            ds.save(memory, overwrite=overwrite)
    assert contents_at(memory) == files


def test_damage_at_a_url_is_repaired(ds, files, memory):
    import fsspec

    store = begin(ds, memory)
    write(store, ds, "point", 2)
    assert begin(ds, memory).missing() == {
        kind: [index for index in range(store.n_cells(kind)) if (kind, index) != ("point", 2)] for kind in ROW_KINDS
    }
    with pytest.raises(pl.StoreError, match="unfinished write"):
        pl.load(memory)
    complete(ds, memory)
    files_at = fsspec.get_mapper(memory)
    files_at["X/c/3/0"] = files_at["X/c/3/0"][:-9]
    del files_at["bond/c/1/0"]
    with pytest.raises(pl.StoreError, match="X cannot be read"):
        pl.load(memory, verify=True)
    missing = begin(ds, memory).missing()
    assert [len(missing[kind]) for kind in ROW_KINDS] == [1, 1, 0, 0]
    complete(ds, memory)
    assert contents_at(memory) == files


def test_an_interrupted_save_to_a_url_is_resumed(ds, files, memory):
    def stop(stage, done, total):
        raise Killed

    with pytest.raises(Killed):
        commit.save(ds, memory, progress=stop)
    with pytest.raises(FileExistsError, match="cell of the store at"):
        begin(ds, memory)
    with pytest.raises(FileExistsError, match="min_cluster_size of the store at"):
        ds.filter(20).save(memory)
    ds.save(memory)
    assert contents_at(memory) == files


def test_other_things_at_a_url_are_refused(ds, memory):
    import fsspec

    with pytest.raises(FileNotFoundError, match=f"dataset must exist, got '{memory}'"):
        pl.load(memory)
    fsspec.filesystem("memory").pipe(f"{memory}/chapter.tex", b"years of work")
    with pytest.raises(FileExistsError, match="output must be new or a dataset of the same recipe"):
        begin(ds, memory)
    with pytest.raises(FileExistsError, match="URLs are not overwritten"):
        ds.save(memory, overwrite=True)
    with pytest.raises(pl.StoreError, match="is not a percolab dataset: it is not a Zarr group"):
        pl.load(memory)
    assert contents_at(memory) == {"chapter.tex": b"years of work"}


def test_urls_that_cannot_be_followed(monkeypatch):
    with pytest.raises(
        ValueError, match=r"location must be a path or a URL that fsspec knows, got 'nowhere://ds.zarr'"
    ):
        pl.load("nowhere://ds.zarr")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "obstore", None)
        patch.setitem(sys.modules, "s3fs", None)
        said = "s3://bucket/ds.zarr needs obstore: pip install 'percolab[url]'"
        with pytest.raises(ImportError, match=re.escape(said)):
            pl.load("s3://bucket/ds.zarr")
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "fsspec"]:
            patch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=re.escape("a store at a URL needs fsspec: pip install fsspec")):
            pl.load("memory://ds.zarr")


def test_a_file_url_is_a_path(ds, files, tmp_path):
    ds.save(f"file://{tmp_path}/ds.zarr")
    assert contents(tmp_path / "ds.zarr") == files
    ds.filter(20).save(f"file://{tmp_path}/ds.zarr", overwrite=True)
    assert len(pl.load(f"file://{tmp_path}/ds.zarr", verify=True)) == ds.filter(20).forest.n_points
