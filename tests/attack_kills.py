"""Writers that are killed at a random moment: nothing is lost, nothing wrong is left, and the next run puts it right.

Children are forked, so that a try takes milliseconds. The parent never writes a store itself: Zarr keeps threads, and
these do not survive a fork.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import zarr.codecs  # before the fork, so that children begin to write at once
import zarr.storage  # noqa: F401

import percolab as pl
from percolab import exports
from percolab.ground import moves
from percolab.store import runners, schema

OLD, NEW = pl.Recipe(700, 3, seeds=1), pl.Recipe(900, 3, seeds=2)
FINE, REFUSED, BROKEN = 0, 2, 70
"""Exit codes of children; any other, but for that of a kill, is a crash too."""


def digest(ds):
    return tuple(np.asarray(column).tobytes() for column in (ds.X, ds.y, ds.forest.bond, ds.forest.point_id))


def prepare():
    """Return both datasets; let stores have many small chunks, and shards be made in the process that writes."""
    schema.CELL, schema.BLOCK_BYTES = 256, 1 << 11
    runners.run = lambda function, tasks, *_: map(function, tasks)
    return {recipe: pl.generate(recipe) for recipe in (OLD, NEW)}


# ---------------------------------------------------------------------- what is killed


def without_exchange():
    def unsupported(*_):
        raise moves.UnsupportedError

    moves._renameat2 = unsupported


def save(made, path, sync):
    made.save(path, sync=sync)


def save_over(made, path, sync):
    made.save(path, overwrite=True, sync=sync)


def save_over_in_steps(made, path, sync):
    without_exchange()
    made.save(path, overwrite=True, sync=sync)


def save_through_a_link(made, path, sync):
    made.save(path.with_name("link.zarr"), overwrite=True, sync=sync)


def shards(made, path, sync):
    pl.generate_store(made.recipe, path, shards=3, sync=sync)


def shards_over(made, path, sync):
    pl.generate_store(made.recipe, path, shards=3, overwrite=True, sync=sync)


def shards_over_in_steps(made, path, sync):
    without_exchange()
    pl.generate_store(made.recipe, path, shards=3, overwrite=True, sync=sync)


def export(made, path, sync):
    exports.to_npz(made, path.with_name("out"), overwrite=True)


OVER = (save_over, save_over_in_steps, save_through_a_link, shards_over, shards_over_in_steps)
JOBS = (save, shards, export, *OVER)


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
    recipe = next((recipe for recipe, ds in truth.items() if digest(found) == digest(ds)), None)
    return {OLD: "old", NEW: "new", None: "wrong"}[recipe if recipe == found.recipe else None]


def exported(stem):
    """Return the state of an export: files come one by one, but each is whole."""
    try:
        found = exports.read_npz(stem)
    except FileNotFoundError:
        return "nothing"
    except ValueError as fault:
        print(f"wrong export: {fault}", file=sys.stderr)
        return "wrong"
    return {700: "old", 900: "new"}.get(len(found.y), "wrong")


ALLOWED = {save: {"nothing", "new"}, shards: {"nothing", "unfinished", "new"}, export: {"old", "new"}}


def look(job, path, truth):
    return exported(path.with_name("out")) if job is export else state(path, truth)


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


def attack(count, seed):
    """Kill so many writers; return what they left, and how often something was lost, wrong or broken."""
    random = np.random.default_rng(seed)
    truth = prepare()
    counts = Counter(tried=count, killed=0, lost=0, wrong=0, crashes=0)
    durations: dict = {}
    with tempfile.TemporaryDirectory() as name:
        kept, folder = Path(name) / "kept", Path(name) / "try"
        kept.mkdir()
        assert outcome(fork(save, truth[OLD], kept / "old.zarr", False)) == FINE
        assert outcome(fork(export, truth[OLD], kept / "old.zarr", False)) == FINE
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


def check(job, path, truth, counts):
    """Look at what a killed writer left; then run the same again, and look again."""
    found = look(job, path, truth)
    counts[f"left {found}"] += 1
    allowed = ALLOWED.get(job, {"old", "new"})
    counts["lost"] += found in ("nothing", "unfinished") and found not in allowed
    counts["wrong"] += found == "wrong"
    if found == "wrong":
        print(f"left by a killed {job.__name__}", file=sys.stderr)
    if found == "new" and job is save:  # it would be refused
        shutil.rmtree(path)
    code = outcome(fork(job, truth[NEW], path, False))
    counts["crashes"] += code != FINE
    counts["wrong"] += look(job, path, truth) != "new"
    counts["lost"] += (path.parent / "notes.txt").read_text() != "mine"
    expected = {"notes.txt", "ds.zarr"} | ({"link.zarr"} if job is save_through_a_link else set())
    if job is export:
        expected = {"notes.txt", *(file.name for file in exports.release.npz_paths(path.with_name("out")))}
    counts["left over"] += sorted(os.listdir(path.parent)) != sorted(expected)
    counts["lost"] += job is save_through_a_link and not path.with_name("link.zarr").is_symlink()
