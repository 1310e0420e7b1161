"""Power cuts: of what was not synced nothing is left, and there is a whole dataset all the same, the old or the new."""

import itertools
import os
import shutil
import threading
from pathlib import Path

import pytest

import percolab as pl
from percolab import exports
from percolab.ground import files, moves
from percolab.store import runners, shards

OLD, NEW = pl.Recipe(300, 3, seeds=1), pl.Recipe(300, 3, seeds=2)

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs Linux")


class Disk:
    """What a power cut leaves of a folder: of each file and each directory what it held when it was last synced.

    That of a directory is names. A system may write names before they are synced, and before what they lead to: so
    those of the uppermost directories are as they are now, of as many levels as one says.
    """

    def __init__(self, root, patch):
        self.root = root
        self._content, self._names = {}, {}
        self._held = []  # so that the system gives no number of a file to another
        self._lock = threading.RLock()
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self.fsync)
        for folder, _, names in os.walk(root, topdown=False):
            for path in (*(os.path.join(folder, name) for name in names), folder):
                opened = os.open(path, os.O_RDONLY)
                self.fsync(opened)
                os.close(opened)

    def fsync(self, opened):
        with self._lock:
            number = os.fstat(opened).st_ino
            self._held.append(os.dup(opened))
            path = f"/proc/self/fd/{opened}"
            if os.path.isdir(path):
                self._names[number] = _entries(path)
            else:
                self._content[number] = Path(path).read_bytes()

    def left(self, copy, levels):
        """Write what is left to a folder."""
        with self._lock:
            self._write(copy, True, os.stat(self.root).st_ino, self.root, levels)
        return copy

    def _write(self, copy, is_folder, number, now, levels):
        if not is_folder:
            copy.write_bytes(self._content.get(number, b""))
            return
        copy.mkdir()
        found = _entries(now) if levels else self._names.get(number, {})
        for name, (of, kind) in found.items():
            self._write(copy / name, kind, of, os.path.join(now, name), max(0, levels - 1))

    def forget(self):
        for opened in self._held:
            os.close(opened)


def _entries(path):
    return {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in os.scandir(path)}


# ---------------------------------------------------------------------- what is written, and what is left of it


def save(dataset, folder, **options):
    dataset.save(folder / "ds.zarr", **options)


def make(dataset, folder, **options):
    shards.generate_store(dataset.recipe, folder / "ds.zarr", shards=1, **options)


def export(dataset, folder, overwrite):
    exports.to_npz(dataset, folder / "out", overwrite=overwrite)


def state(write, folder):
    """Return which dataset is there, whole; or "nothing", "unfinished", "refused"."""
    try:
        if write is export:
            return {(OLD.seeds,): "old", (NEW.seeds,): "new"}.get(tuple(exported(folder)), "wrong")
        return {OLD: "old", NEW: "new"}[pl.load(folder / "ds.zarr", verify=True).recipe]
    except FileNotFoundError:
        return "nothing"
    except (pl.StoreError, ValueError) as fault:
        return "unfinished" if "unfinished write" in str(fault) else f"refused: {fault}"


def exported(folder):
    """Return the seeds of the datasets whose files are there."""
    exports.read_npz(folder / "out")
    there = [path.read_bytes() for path in exports.release.npz_paths(folder / "out")]
    return {seeds for seeds, known in EXPORTED.items() if known == there}


EXPORTED = {}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    found = {recipe: pl.generate(recipe) for recipe in (OLD, NEW)}
    for recipe, dataset in found.items():
        folder = tmp_path_factory.mktemp("exported")
        export(dataset, folder, False)
        EXPORTED[recipe.seeds] = [path.read_bytes() for path in exports.release.npz_paths(folder / "out")]
    return found


def cut_at_every_change(write, overwrite, made, folder, patch, **options):
    """Return what is left, at any level, by a power cut after each change of a name; and when all is done."""
    patch.setattr(runners, "run", lambda function, tasks, *_: map(function, tasks))
    (folder / "now").mkdir()
    if overwrite:
        write(made[OLD], folder / "now", overwrite=False)
    disk, found, number, looking = Disk(folder / "now", patch), [], itertools.count(), []

    def look():
        looking.append(1)
        cuts = [disk.left(folder / f"cut {next(number)}", levels) for levels in (0, 1, 2, 99)]
        found.append([state(write, cut) for cut in cuts])
        for cut in cuts:
            shutil.rmtree(cut)
        looking.pop()

    def watched(change):
        def changed(*args, **more):
            result = change(*args, **more)
            if not looking and not str(args[0]).endswith(".partial"):  # the name of a chunk says nothing yet
                look()
            return result

        return changed

    with pytest.MonkeyPatch.context() as watching:
        for module, name in ((os, "rename"), (os, "replace"), (os, "link"), (moves, "_renameat2")):
            watching.setattr(module, name, watched(getattr(module, name)))
        write(made[NEW], folder / "now", overwrite=overwrite, **options)
    look()
    disk.forget()
    return found


def bad(write, overwrite, found):
    """Return what must not be left."""
    allowed = {"old" if overwrite else "nothing", "new"} | (
        {"unfinished"} if write is make and not overwrite else set()
    )
    return [here for here in itertools.chain(*found) if here not in allowed] + [
        end for end in found[-1] if end != "new"
    ]


CASES = [(write, overwrite) for write in (save, make, export) for overwrite in (False, True)]


@pytest.fixture(params=["exchange", "steps"])
def system(request, monkeypatch):
    if request.param == "steps":

        def unsupported(*_):
            raise moves.UnsupportedError

        monkeypatch.setattr(moves, "_renameat2", unsupported)
    return request.param


@pytest.mark.parametrize(("write", "overwrite"), CASES)
def test_a_power_cut_leaves_a_whole_dataset(write, overwrite, made, tmp_path, monkeypatch, system):
    found = cut_at_every_change(write, overwrite, made, tmp_path, monkeypatch)
    assert bad(write, overwrite, found) == []
    assert len(found) >= 2


def all_but(kind):
    """Return a sync that leaves out files or directories."""
    sync = files.sync

    def without(path):
        if kind not in ("both", "directory" if os.path.isdir(path) else "file"):
            sync(path)

    return without


@pytest.mark.parametrize("kind", ["file", "directory", "both"])
@pytest.mark.parametrize(("write", "overwrite"), CASES[:4])
def test_what_is_not_synced_is_missed(write, overwrite, kind, made, tmp_path, monkeypatch):
    """So the test above can fail."""
    monkeypatch.setattr(files, "sync", all_but(kind))
    assert bad(write, overwrite, cut_at_every_change(write, overwrite, made, tmp_path, monkeypatch))
