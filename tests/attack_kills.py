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
from typing import NamedTuple

import numpy as np
import zarr.codecs  # before the fork, so that children begin to write at once
import zarr.storage  # noqa: F401
from attack_files import columns_of

import percolab as pl
from percolab.cli.export import WRITERS, files_of
from percolab.ground import files
from percolab.store import chunks, runners, schema

OLD, NEW = pl.Recipe(700, 3, seeds=1), pl.Recipe(700, 3, seeds=2)  # as many points, so that parts of both fit together
CORPUS = pl.Corpus(pl.Recipe(60, 2, "one_cluster", seeds=1), length=8, min_size=4, seed=2)
OLD_DOCUMENTS, NEW_DOCUMENTS = pl.DocumentRange(CORPUS, 0, 40), pl.DocumentRange(CORPUS, 40, 80)
AGE = {OLD: "old", OLD_DOCUMENTS: "old", NEW: "new", NEW_DOCUMENTS: "new"}
BEFORE = {NEW: OLD, NEW_DOCUMENTS: OLD_DOCUMENTS}
"""What is there before a writer of something new."""
FINE, REFUSED, BROKEN = 0, 2, 70
"""Exit codes of children; any other, but for that of a kill, is a crash too."""


def digest(made):
    return tuple(np.asarray(column).tobytes() for column in columns_of(made))


def prepare():
    """Return datasets and documents. Stores have many small chunks, and shards are made in the process that writes."""
    schema.CELL, chunks.CHUNK_BYTES, schema.CELL_POSITIONS = 256, 1 << 11, 128
    runners.run = lambda function, tasks, *_: map(function, tasks)
    points = {recipe: pl.generate(recipe) for recipe in (OLD, NEW)}
    return points | {recipe: in_memory(recipe) for recipe in (OLD_DOCUMENTS, NEW_DOCUMENTS)}


def in_memory(recipe):
    return pl.StoredDocuments(recipe, **recipe.columns(), provenance={})


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


def one_by_one(made, path, sync):
    pl.generate_store(made.recipe, path, sync=sync)


def export(made, path, sync):
    WRITERS["npz"](made, path.with_name("out"), overwrite=True)


def export_folder(made, path, sync):
    WRITERS["huggingface"](made, path.with_name("out"), overwrite=True)


OVER = (save_over, save_through_a_link, shards_over)
EXPORTS = {export: "npz", export_folder: "huggingface"}
OF_POINTS = (save, save_in_steps, shards, *EXPORTS, *OVER)
OF_DOCUMENTS = (one_by_one, shards, shards_over, *EXPORTS)
JOBS = (*((job, NEW) for job in OF_POINTS), *((job, NEW_DOCUMENTS) for job in OF_DOCUMENTS))
"""What writes, and the recipe of what is written."""


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


class Scene(NamedTuple):
    """What writers write, and where."""

    truth: dict
    """datasets and documents, by recipe"""
    kept: Path
    """what is there before a try, in a folder for each age and kind"""
    exports: dict
    """ages of exports, by their bytes"""
    folder: Path
    """folder of a try"""


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
    is_right = found.recipe in AGE and digest(found) == digest(truth[found.recipe])
    return AGE[found.recipe] if is_right else "wrong"


def exported(job, made, path):
    """Return the bytes of all files of an export."""
    return tuple(file.read_bytes() for file in files_of(EXPORTS[job], made, path.with_name("out")))


ALLOWED = {
    save: {"nothing", "new"},
    save_in_steps: {"nothing", "new"},
    shards: {"nothing", "unfinished", "new"},
    one_by_one: {"nothing", "unfinished", "new"},
    export: {"old", "new", "nothing"},  # files that are missing, never old ones beside new ones
    export_folder: {"old", "new", "nothing"},
}


def look(job, recipe, path, scene):
    """Return the state of what a job writes."""
    if job not in EXPORTS:
        return state(path, scene.truth)
    try:
        return scene.exports.get(exported(job, scene.truth[recipe], path), "wrong")
    except FileNotFoundError:
        return "nothing"


def place(job, recipe, scene):
    """Lay out the folder of a try as it is before."""
    scene.folder.mkdir()
    (scene.folder / "notes.txt").write_text("mine")
    path = scene.folder / "ds.zarr"
    if job in EXPORTS:
        shutil.copytree(scene.kept / kept_name(job, BEFORE[recipe]), scene.folder, dirs_exist_ok=True)
    elif job in OVER:
        shutil.copytree(scene.kept / kept_name(save, BEFORE[recipe]) / "ds.zarr", path)
    if job is save_through_a_link:
        (scene.folder / "link.zarr").symlink_to("ds.zarr")
    return path


def kept_name(job, recipe):
    return f"{AGE[recipe]}-{type(recipe).__name__}-{job.__name__}"


@contextmanager
def begun():
    """Yield a scene: old stores are there, and exports of old and new."""
    truth = prepare()
    with tempfile.TemporaryDirectory() as name:
        scene = Scene(truth, Path(name), {}, Path(name) / "try")
        for (recipe, made), job in itertools.product(truth.items(), (save, *EXPORTS)):
            folder = scene.kept / kept_name(job, recipe)
            folder.mkdir()
            write = one_by_one if job is save and recipe in (OLD_DOCUMENTS, NEW_DOCUMENTS) else job
            assert outcome(fork(write, made, folder / "ds.zarr", False)) == FINE
            if job in EXPORTS:
                scene.exports[exported(job, made, folder / "ds.zarr")] = AGE[recipe]
        yield scene


def attack(count, seed):
    """Kill so many writers at random moments; return what they left, and what was lost, wrong or broken."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, killed=0, lost=0, wrong=0, crashes=0)
    durations: dict = {}
    with begun() as scene:
        for k in range(count):
            (job, recipe), sync = JOBS[k % len(JOBS)], bool(random.random() < 0.2)
            path = place(job, recipe, scene)
            began = time.monotonic()
            child = fork(job, scene.truth[recipe], path, sync)
            # The first one runs whole, to see how long it takes; others are taken to be as long as the longest so far.
            if durations:
                usual = durations.get((job, recipe, sync), max(durations.values()))
                time.sleep(random.uniform(0, usual))
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            code = outcome(child)
            if code == FINE:
                durations[job, recipe, sync] = time.monotonic() - began
            check(job, recipe, code, scene, counts)
    return counts


def attack_steps(count, seed):
    """Kill writers before each change that they make, or before about so many of these, chosen evenly."""
    counts = Counter(tried=0, killed=0, changes=0, lost=0, wrong=0, crashes=0)
    with begun() as scene:
        tries = [(*job, change) for job in JOBS for change in range(number_of_changes(*job, scene))]
        counts["changes"] = len(tries)
        step = max(1, len(tries) // count)
        for job, recipe, change in tries[seed % step :: step]:
            path = place(job, recipe, scene)
            code = outcome(fork(dying, change, job, scene.truth[recipe], path, False))
            counts["tried"] += 1
            check(job, recipe, code, scene, counts)
    return counts


def number_of_changes(job, recipe, scene):
    """Return how many things a writer does to files."""
    path, counted = place(job, recipe, scene), scene.kept / "changes"
    assert outcome(fork(counting, counted, job, scene.truth[recipe], path, False)) == FINE
    shutil.rmtree(scene.folder)
    return int(counted.read_text())


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


def check(job, recipe, code, scene, counts):
    """Look at what a killed writer left; run the same again, look again, and leave nothing."""
    counts["killed"] += code == -signal.SIGKILL
    counts["crashes"] += code not in (FINE, -signal.SIGKILL)
    path, made = scene.folder / "ds.zarr", scene.truth[recipe]
    found = look(job, recipe, path, scene)
    counts[f"left {found}"] += 1
    allowed = ALLOWED.get(job, {"old", "new"})
    counts["lost"] += found in ("nothing", "unfinished") and found not in allowed
    counts["wrong"] += found == "wrong"
    if found == "wrong":
        print(f"left by a killed {job.__name__}", file=sys.stderr)
    if found == "new" and job in (save, save_in_steps):  # it would be refused
        shutil.rmtree(path)
    counts["crashes"] += outcome(fork(job, made, path, False)) != FINE
    counts["wrong"] += look(job, recipe, path, scene) != "new"
    counts["lost"] += (scene.folder / "notes.txt").read_text() != "mine"
    counts["lost"] += job is save_through_a_link and not path.with_name("link.zarr").is_symlink()
    counts["left over"] += names_below(scene.folder) != expected_names(job, recipe, scene)
    shutil.rmtree(scene.folder)


def names_below(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir() or file.is_symlink()}


def expected_names(job, recipe, scene):
    """Return the names of all files that are there after a job that nobody disturbed."""
    kept = scene.kept / kept_name(job if job in EXPORTS else save, recipe)
    return names_below(kept) | {"notes.txt"} | ({"link.zarr"} if job is save_through_a_link else set())
