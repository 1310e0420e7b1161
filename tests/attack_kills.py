"""Writers that are killed: nothing is lost, nothing wrong is left, and the next run puts it right.

At a random moment, or before each thing in turn that they do to files: open one for writing, rename, remove, make a
directory. Between two of these nothing changes but the content of a file that has no name yet.

Children are forked, so that a try takes milliseconds. The parent never writes a store itself: Zarr keeps threads, and
these do not survive a fork.
"""

import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import zarr.codecs  # before the fork, so that children begin to write at once
import zarr.storage  # noqa: F401

import percolab as pl
from percolab import exports
from percolab.exports.columns import paths
from percolab.ground import files
from percolab.store import runners, schema

OLD, NEW = pl.Recipe(700, 3, seeds=1), pl.Recipe(700, 3, seeds=2)  # as many points, so that parts of both fit together
FINE, REFUSED, BROKEN = 0, 2, 70
"""Exit codes of children; any other, but for that of a kill, is a crash too."""


def digest(ds):
    return tuple(np.asarray(column).tobytes() for column in (ds.X, ds.y, ds.forest.bond, ds.forest.point_id))


def prepare():
    """Return both datasets; let stores have many small chunks, and shards be made in the process that writes."""
    schema.CELL, schema.CHUNK_BYTES = 256, 1 << 11
    runners.run = lambda function, tasks, *_: map(function, tasks)
    return {recipe: pl.generate(recipe) for recipe in (OLD, NEW)}


# ---------------------------------------------------------------------- what is killed


def without_exchange():
    def unsupported(*_):
        raise files.UnsupportedError

    files._renameat2 = unsupported


def save(made, path, sync):
    made.save(path, sync=sync)


def save_over(made, path, sync):
    made.save(path, overwrite=True, sync=sync)


def save_through_a_link(made, path, sync):
    made.save(path.with_name("link.zarr"), overwrite=True, sync=sync)


def shards(made, path, sync):
    pl.generate_store(made.recipe, path, shards=3, sync=sync)


def shards_over(made, path, sync):
    pl.generate_store(made.recipe, path, shards=3, overwrite=True, sync=sync)


def save_in_steps(made, path, sync):
    without_exchange()
    made.save(path, sync=sync)


def export(made, path, sync):
    exports.to_npz(made, path.with_name("out"), overwrite=True)


OVER = (save_over, save_through_a_link, shards_over)
JOBS = (save, save_in_steps, shards, export, *OVER)


def fork(function, *arguments):
    """Call a function in a child; return its number."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        function(*arguments)
        code = FINE
    except (FileExistsError, pl.StoreError):
        code = REFUSED
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def outcome(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---------------------------------------------------------------------- what must be there after


def state(path, truth):
    """Return which dataset is at a path, whole and right; or "nothing", "unfinished", "wrong"."""
    try:
        found = pl.load(path, verify=True)
    except FileNotFoundError:
        return "nothing"
    except pl.StoreError as fault:
        if "unfinished write" in str(fault) or "not a Zarr group" in str(fault):
            return "unfinished"
        print(f"wrong: {fault}", file=sys.stderr)
        return "wrong"
    recipe = next((recipe for recipe in (OLD, NEW) if digest(found) == digest(truth[recipe])), None)
    return {OLD: "old", NEW: "new", None: "wrong"}[recipe if recipe == found.recipe else None]


def exported(stem, kept):
    """Return the state of an export: the files of one of two exports, all of them."""
    try:
        exports.read_npz(stem)
        return kept.get(files_of(stem), "wrong")
    except FileNotFoundError:
        return "nothing"
    except ValueError as fault:
        print(f"wrong export: {fault}", file=sys.stderr)
        return "wrong"


def files_of(stem):
    return tuple(path.read_bytes() for path in paths("npz", stem))


ALLOWED = {
    save: {"nothing", "new"}, save_in_steps: {"nothing", "new"}, shards: {"nothing", "unfinished", "new"},
    export: {"old", "new", "nothing"},  # files that are missing, never old ones beside new ones
}  # fmt: skip


def look(job, path, truth):
    return exported(path.with_name("out"), truth["exports"]) if job is export else state(path, truth)


def place(folder, job, kept):
    """Lay out a folder as it is before a try."""
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    path = folder / "ds.zarr"
    if job is export:
        for file in kept.glob("out*"):
            shutil.copy(file, folder)
    elif job in OVER:
        shutil.copytree(kept / "old.zarr", path)
    if job is save_through_a_link:
        (folder / "link.zarr").symlink_to("ds.zarr")
    return path


@contextmanager
def begun():
    """Yield both datasets, what is there before a try, and the folder of a try."""
    truth = prepare()
    with tempfile.TemporaryDirectory() as name:
        kept = {which: Path(name) / which for which in ("old", "new")}
        for folder, recipe in zip(kept.values(), (OLD, NEW), strict=True):
            folder.mkdir()
            assert outcome(fork(export, truth[recipe], folder / "ds.zarr", False)) == FINE
        assert outcome(fork(save, truth[OLD], kept["old"] / "old.zarr", False)) == FINE
        truth["exports"] = {files_of(folder / "out"): which for which, folder in kept.items()}
        yield truth, kept["old"], Path(name) / "try"


def attack(count, seed):
    """Kill so many writers at random moments; return what they left, and what was lost, wrong or broken."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, killed=0, lost=0, wrong=0, crashes=0)
    durations: dict = {}
    with begun() as (truth, kept, folder):
        for k in range(count):
            job, sync = JOBS[k % len(JOBS)], bool(random.random() < 0.2)
            path = place(folder, job, kept)
            began = time.monotonic()
            child = fork(job, truth[NEW], path, sync)
            if (job, sync) in durations:  # the first runs whole, to see how long it takes
                time.sleep(random.uniform(0, durations[job, sync]))
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            code = outcome(child)
            durations.setdefault((job, sync), time.monotonic() - began)
            counts["killed"] += code == -signal.SIGKILL
            counts["crashes"] += code not in (FINE, -signal.SIGKILL)
            check(job, path, truth, counts)
            shutil.rmtree(folder)
    return counts


def attack_steps(count, seed):
    """Kill writers before each change that they make, or before about so many of these, chosen evenly."""
    counts = Counter(tried=0, killed=0, changes=0, lost=0, wrong=0, crashes=0)
    with begun() as (truth, kept, folder):
        changes = {}
        for job in JOBS:
            path = place(folder, job, kept)
            assert outcome(fork(counting, folder / "changes", job, truth[NEW], path, False)) == FINE
            changes[job] = int((folder / "changes").read_text())
            shutil.rmtree(folder)
        tries = [(job, change) for job, number in changes.items() for change in range(number)]
        counts["changes"] = len(tries)
        for job, change in tries[seed % max(1, len(tries) // count) :: max(1, len(tries) // count)]:
            path = place(folder, job, kept)
            code = outcome(fork(dying, change, job, truth[NEW], path, False))
            counts["tried"] += 1
            counts["killed"] += code == -signal.SIGKILL
            counts["crashes"] += code not in (FINE, -signal.SIGKILL)
            check(job, path, truth, counts)
            shutil.rmtree(folder)
    return counts


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMING = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"}


def before_changes(call):
    """Have a function called before each thing that this process does to files."""

    def hook(event, arguments):
        if event in NAMING or (event == "open" and arguments[2] & WRITING):
            call()

    def renamed(*arguments):  # which is not Python's own
        call()
        return rename(*arguments)

    rename, files._renameat2 = files._renameat2, renamed
    sys.addaudithook(hook)


def counting(where, job, *arguments):
    seen = []
    before_changes(lambda: seen.append(1))
    job(*arguments)
    number = len(seen)
    where.write_text(str(number))


def dying(change, job, *arguments):
    left = itertools.count(-change)
    before_changes(lambda: next(left) == 0 and os.kill(os.getpid(), signal.SIGKILL))
    job(*arguments)


def check(job, path, truth, counts):
    """Look at what a killed writer left; then run the same again, and look again."""
    found = look(job, path, truth)
    counts[f"left {found}"] += 1
    allowed = ALLOWED.get(job, {"old", "new"})
    counts["lost"] += found in ("nothing", "unfinished") and found not in allowed
    counts["wrong"] += found == "wrong"
    if found == "wrong":
        print(f"left by a killed {job.__name__}", file=sys.stderr)
    if found == "new" and job in (save, save_in_steps):  # it would be refused
        shutil.rmtree(path)
    code = outcome(fork(job, truth[NEW], path, False))
    counts["crashes"] += code != FINE
    counts["wrong"] += look(job, path, truth) != "new"
    counts["lost"] += (path.parent / "notes.txt").read_text() != "mine"
    expected = {"notes.txt", "ds.zarr"} | ({"link.zarr"} if job is save_through_a_link else set())
    if job is export:
        expected = {"notes.txt", *(file.name for file in paths("npz", path.with_name("out")))}
    counts["left over"] += sorted(os.listdir(path.parent)) != sorted(expected)
    counts["lost"] += job is save_through_a_link and not path.with_name("link.zarr").is_symlink()
