"""Places that are not as a writer expects: hidden files of strangers beside its output, and disks that are full.

What was there before is there after, nothing hangs, and what cannot be done is refused in one line. Children are
forked, as for `attack_kills`.
"""

import ctypes
import gc
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas  # noqa: F401  # with pyarrow before the fork, so that children begin to write at once
import pyarrow.parquet  # noqa: F401
from attack_files import spoil_file
from attack_kills import FINE, NEW, NEW_DOCUMENTS, OLD, OLD_DOCUMENTS, REFUSED, digest, dying, fork, outcome, prepare
from attack_kills import save as save_new

import percolab as pl
from percolab import exports
from percolab.cli.export import WRITERS
from percolab.exports.columns import DOCUMENT_TAILS

PATIENCE_S = 600
"""After which a child hangs: on a busy machine what has to be compiled first takes minutes."""
NAMES = ("ds.zarr", "other.zarr", "out.npz", "out.points.csv", "out.h5", "hub", "README.md", "notes.txt")
ENDINGS = (
    "replacing", "naming", "next", "old", "lock", "partial-", "partial-old", "partial-00000000", "partial-deadbeef",
    "partial-0123abcd.old", "partial-0123abcd.npz", "partial-precious", "partial-../x",
)  # fmt: skip
TEXTS = (
    "", "{}", "[" * 100_000, '{"new": "x", "old": "precious"}', '{"new": "precious", "old": "x"}', '{"old": ".."}',
    '{"new": "../precious", "old": "/"}', '{"overwrite": true, "names": {".ds.zarr.partial-0": "precious"}}',
    '{"overwrite": true, "names": {"precious": "x", "..": "y"}}',
)  # fmt: skip


def contents(folder):
    """Return every name below a folder, with what is in it or where it leads; links are not followed."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(root, name)
            plain = os.path.isfile(path) and not os.path.islink(path)
            found[os.path.relpath(path, folder)] = Path(path).read_bytes() if plain else os.path.islink(path)
    return found


# ---------------------------------------------------------------------- hidden files


def hide(folder, random):
    """Lay something hidden in a folder: a file, a directory, a link, a pipe, a device or a socket."""
    name = folder / f".{NAMES[random.integers(len(NAMES))]}.{ENDINGS[random.integers(len(ENDINGS))]}".replace("/", "_")
    kind = random.integers(7)
    if os.path.lexists(name):
        return
    if kind <= 1:
        name.write_text(TEXTS[random.integers(len(TEXTS))])
    elif kind == 2:
        shutil.copytree(folder / "precious", name)
    elif kind == 3:
        name.symlink_to(
            ("precious", "precious/notes.txt", "precious.zarr", "..", "/dev/zero", "nowhere")[random.integers(6)]
        )
    elif kind == 4:
        os.mkfifo(name)
    elif kind == 5:
        shutil.copytree(folder / "precious.zarr", name)
    else:
        with socket.socket(socket.AF_UNIX) as line:
            here = os.open(folder, os.O_RDONLY)
            line.bind(f"/proc/self/fd/{here}/{name.name}")
            os.close(here)


def use(truth, folder, how):
    signal.alarm(PATIENCE_S)
    os.chdir(folder)
    made, documents, recipe = truth[NEW], truth[NEW_DOCUMENTS], NEW
    {
        "load": lambda: pl.load("ds.zarr", verify=True),
        "load nothing": lambda: pl.load("other.zarr"),
        "read nothing": lambda: exports.read_npz("out"),
        "read no table": lambda: exports.read_csv("out"),
        "save": lambda: made.save("ds.zarr", sync=False),
        "save over": lambda: made.save("ds.zarr", overwrite=True, sync=False),
        "save another": lambda: made.save("other.zarr", sync=False),
        "shards": lambda: pl.generate_store(recipe, "ds.zarr", shards=2, sync=False),
        "shards over": lambda: pl.generate_store(recipe, "ds.zarr", shards=2, overwrite=True, sync=False),
        "shards to another": lambda: pl.generate_store(recipe, "other.zarr", shards=2, overwrite=True, sync=False),
        "export": lambda: exports.to_npz(made, "out"),
        "export over": lambda: exports.to_npz(made, "out", overwrite=True),
        "export a table": lambda: exports.to_csv(made, "out", overwrite=True),
        "export a folder": lambda: exports.to_parquet(made, "hub", overwrite=True),
        "documents": lambda: pl.generate_store(NEW_DOCUMENTS, "ds.zarr", sync=False),
        "documents over": lambda: pl.generate_store(NEW_DOCUMENTS, "ds.zarr", overwrite=True, sync=False),
        "documents to another": lambda: pl.generate_store(NEW_DOCUMENTS, "other.zarr", shards=2, sync=False),
        "export documents": lambda: exports.to_parquet(documents, "hub", overwrite=True),
    }[how]()


READING = ("load", "load nothing", "read nothing", "read no table", "save", "shards", "documents")
"""What must leave everything as it is: there is something at the path, and nobody asked to overwrite it."""
WRITING = (
    "save over", "save another", "shards over", "shards to another", "export", "export over", "export a table",
    "export a folder", "documents over", "documents to another", "export documents",
)  # fmt: skip
OUTPUTS = ("ds.zarr", "other.zarr", "out", "hub")


def attack_hidden(count, seed):
    """Read and write so many times among hidden files; return how it ended."""
    random = np.random.default_rng(seed)
    truth = prepare()
    counts = Counter(tried=count, refused=0, lost=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        kept, folder = Path(name) / "kept", Path(name) / "above" / "here"
        kept.mkdir()
        assert outcome(fork(save_new, truth[OLD], kept / "ds.zarr", False)) == FINE
        (kept / "precious").mkdir()
        (kept / "precious" / "notes.txt").write_text("years of work")
        shutil.copytree(kept / "ds.zarr", kept / "precious.zarr")
        for _ in range(count):
            shutil.copytree(kept, folder)
            (folder.parent / "notes.txt").write_text("years of work")
            for _ in range(random.integers(1, 6)):
                hide(folder, random)
            how = (*READING, *WRITING)[random.integers(len(READING) + len(WRITING))]
            before = contents(folder.parent)
            code = outcome(fork(use_refusing, truth, folder, how))
            counts[how] += 1
            counts["refused"] += code == REFUSED
            counts["crashes"] += code not in (FINE, REFUSED)
            after = contents(folder.parent)
            counts["lost"] += lost(before, after, how)
            shutil.rmtree(folder.parent)
    return counts


def use_refusing(truth, folder, how):
    try:
        use(truth, folder, how)
    except (OSError, ValueError) as fault:  # one line for the user, whatever it is
        if "\n" in str(fault):
            raise
        raise FileExistsError(str(fault)) from fault


def lost(before, after, how):
    """Tell whether anything went away or changed that a writer did not make."""

    def mine(path):
        first = path.removeprefix("here/").split("/")[0]
        if first.startswith(".") and how in WRITING:  # what a killed writer might have left is swept away
            return not any(
                f"{word}" in first for word in ("partial-00000000", "partial-deadbeef", "partial-0123abcd", ".next")
            )
        return not (how in WRITING and first.startswith(OUTPUTS))

    return any(mine(path) and after.get(path, "nothing") != value for path, value in before.items())


# ---------------------------------------------------------------------- unfinished stores


def not_plain(path, random, *elsewhere):
    """Put something that is not a plain file at a path: a pipe, a directory, a link, also to what is elsewhere."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    kind = random.integers(3 + len(elsewhere))
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    else:
        path.symlink_to(("/dev/zero", *elsewhere)[kind - 2])


def spoil_unfinished(store, random, precious):
    """Change a file or two of an unfinished store: descriptions, records, chunks; or let a name lead elsewhere."""
    for _ in range(random.integers(1, 3)):
        paths = [path for path in sorted(store.rglob("*")) if not any(up.is_symlink() for up in path.parents)]
        plain = [path for path in paths if path.is_file() and not path.is_symlink()]
        if not plain or random.random() < 0.15:
            not_plain(paths[random.integers(len(paths))], random, precious, precious / "notes.txt", precious / "new")
            continue
        roots = [path for path in plain if path.name == "zarr.json"]
        records = [path for path in plain if "unfinished" in path.parts]
        for_choice = (roots, roots, records, plain)[random.integers(4)] or plain
        file = for_choice[random.integers(len(for_choice))]
        if random.random() < 0.1:
            file.unlink()
        else:
            with suppress(ValueError):  # it was spoilt before
                spoil_file(file, random)


def resume(made, path, said):
    """Go on with a store; what is then there is whole and right, or one line says why not."""
    signal.alarm(PATIENCE_S)
    try:
        pl.generate_store(made.recipe, path, shards=3, sync=False)
    except (OSError, ValueError) as fault:
        said.write_text(str(fault))
        if "\n" in str(fault):
            raise
        raise FileExistsError(str(fault)) from fault
    if digest(pl.load(path, verify=True)) != digest(made):
        os._exit(WRONG)


WRONG = 71


def attack_unfinished(count, seed):
    """Go on with so many unfinished stores in which files were changed; return how it ended."""
    random = np.random.default_rng(seed)
    truth = prepare()
    counts = Counter(tried=count, resumed=0, refused=0, lost=0, wrong=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        folder, precious, kept = Path(name) / "here", Path(name) / "precious", []
        precious.mkdir()
        (precious / "notes.txt").write_text("years of work")
        for recipe, change in [(recipe, change) for recipe in (NEW, NEW_DOCUMENTS) for change in (20, 60, 120, 160)]:
            path = Path(name) / f"{len(kept)}" / "ds.zarr"
            path.parent.mkdir()
            assert outcome(fork(dying, change, shards, truth[recipe], path.parent)) == -signal.SIGKILL
            kept.append((recipe, path))
        for number in range(count):
            shutil.rmtree(folder, ignore_errors=True)
            recipe, path = kept[random.integers(len(kept))]
            shutil.copytree(path, folder / "ds.zarr")
            spoil_unfinished(folder / "ds.zarr", random, precious)
            before = contents(precious)
            code = outcome(fork(resume, truth[recipe], folder / "ds.zarr", Path(name) / "said"))
            counts["resumed"] += code == FINE
            counts["refused"] += code == REFUSED
            counts["wrong"] += code == WRONG
            counts["crashes"] += code not in (FINE, REFUSED, WRONG)
            if code not in (FINE, REFUSED):
                print(f"unfinished: try {number} ended with {code}", file=sys.stderr, flush=True)
            counts["lost"] += contents(precious) != before
    return counts


# ---------------------------------------------------------------------- full disks


def save(made, folder):
    made.save(folder / "ds.zarr", overwrite=True, sync=False)


def shards(made, folder):
    pl.generate_store(made.recipe, folder / "ds.zarr", shards=3, overwrite=True, sync=False)


def export(form):
    def write(made, folder):
        WRITERS[form](made, folder / f"out-{type(made).__name__}-{form}", overwrite=True)

    return write


def limited(limit, write, made, folder):
    """Write where no file may be larger than a limit, and end as a program ends."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    code = FINE
    try:
        write(made, folder)
    except OSError as fault:
        if "\n" in str(fault):
            raise
        code = REFUSED
    gc.collect()
    ctypes.CDLL(None).exit(code)  # with what libraries do at the end of a program, where some crash


def attack_disks(count, seed):
    """Write so many times to a disk that is full at some point; return how it ended."""
    random = np.random.default_rng(seed)
    truth = prepare()
    writers = [(save, OLD, NEW), *((export(form), OLD, NEW) for form in WRITERS)]
    writers += [(export(form), OLD_DOCUMENTS, NEW_DOCUMENTS) for form in DOCUMENT_TAILS]
    writers += [(shards, OLD, NEW), (shards, OLD, NEW_DOCUMENTS)]
    counts = Counter(tried=count, refused=0, written=0, lost=0, crashes=0, **{"left over": 0})
    with tempfile.TemporaryDirectory() as name:
        kept, folder = Path(name) / "kept", Path(name) / "here"
        kept.mkdir()
        for write, old, _ in writers:
            assert outcome(fork(write, truth[old], kept)) == FINE
        for k in range(count):
            shutil.copytree(kept, folder)
            before = contents(folder)
            limit = int(10 ** random.uniform(1, 5))
            write, _, new = writers[k % len(writers)]
            code = outcome(fork(limited, limit, write, truth[new], folder))
            counts["written"] += code == FINE
            counts["refused"] += code == REFUSED
            counts["crashes"] += code not in (FINE, REFUSED)
            if code == REFUSED:
                after = contents(folder)
                counts["lost"] += any(after.get(path) != value for path, value in before.items())
                # A run in shards is resumed.
                counts["left over"] += any(path not in before and ".next" not in path for path in after)
            shutil.rmtree(folder)
    return counts


# ---------------------------------------------------------------------- interrupts


COMMANDS = (
    ["generate", "--n-points", "60000", "--dim", "20", "--seed", "1", "-o", "new.zarr"],
    ["generate", "--n-points", "60000", "--dim", "20", "--seed", "1", "-o", "ds.zarr", "--overwrite"],
    ["generate", "--n-points", "60000", "--dim", "20", "--seed", "1", "-o", "new.zarr", "--shards", "2"],
    ["documents", "--tokens", "256", "--count", "10000", "-o", "new.zarr"],
    ["documents", "--tokens", "256", "--count", "10000", "-o", "new.zarr", "--shards", "2"],
    *(["export", "ds.zarr", "--format", form, "-o", "out"] for form in WRITERS),
    ["info", "ds.zarr", "--verify"],
    ["verify", "ds.zarr"],
)
USUAL_S = 2.0
"""How long a command takes, until one has finished."""
USUAL_LINES = re.compile("elapsed|^compiling")
"""What commands say on the way."""


def wait_until_begun(process):
    """Wait until a command has loaded NumPy, or has ended: before percolab is loaded, what is said is Python's own."""
    loaded = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None:
        with suppress(OSError):  # it ends just then
            if "numpy" in loaded.read_text():
                return
        time.sleep(0.002)


def attack_interrupts(count, seed):
    """Press Ctrl-C at a random moment of so many commands; return how they ended."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, interrupted=0, finished=0, lost=0, crashes=0)
    durations = {}
    with tempfile.TemporaryDirectory() as name:
        kept, folder = Path(name) / "kept", Path(name) / "here"
        kept.mkdir()
        assert outcome(fork(pl.Dataset.save, pl.generate(pl.Recipe(60_000, 20, seeds=3)), kept / "ds.zarr")) == FINE
        for k in range(count):
            words = COMMANDS[k % len(COMMANDS)]
            shutil.copytree(kept, folder)
            before = contents(folder)
            command = [sys.executable, "-m", "percolab", *words]
            pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)
            wait_until_begun(process)
            began = time.monotonic()
            time.sleep(random.uniform(0, durations.get(k % len(COMMANDS), USUAL_S)))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            # A command may say how far it is, and that it compiles: neither is a complaint.
            said = [line for line in process.communicate()[1].splitlines() if not USUAL_LINES.search(line)]
            code = process.returncode
            interrupted = code == -signal.SIGINT or (code == 130 and len(said) == 1 and "interrupted" in said[0])
            # A worker that is started just then may say that it was a process: multiprocessing prints that on its own.
            finished = code in (0, 1) and not [line for line in said if not line.startswith("Process Spawn")]
            counts["interrupted"] += interrupted
            counts["finished"] += finished
            if finished:
                durations[k % len(COMMANDS)] = time.monotonic() - began
            if not interrupted and not finished:
                counts["crashes"] += 1
                print(words, code, "\n".join(said), file=sys.stderr)
            if interrupted and "--overwrite" not in words:
                after = contents(folder)
                counts["lost"] += any(after.get(path) != value for path, value in before.items())
            shutil.rmtree(folder)
    return counts
