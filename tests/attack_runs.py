"""Several runs at once on one path, beside readers and strangers: one wins, and nobody sees half a dataset."""

import os
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import attack_kills
import numpy as np
from attack_kills import BROKEN, FINE, NEW, OLD, REFUSED, digest, fork, outcome

import percolab as pl

RECIPES = (OLD, NEW, replace(NEW, seeds=3), replace(NEW, seeds=4))


def later(function, delay, *arguments):
    time.sleep(delay)
    function(*arguments)


def stranger(path):
    """Make a folder with notes where others want to write."""
    path.mkdir()
    (path / "notes.txt").write_text("mine")


def reader(path, until, known):
    """Read again and again: all of one dataset, or a refusal."""
    while time.monotonic() < until:
        try:
            found = pl.load(path)
            if digest(found) not in known:
                os._exit(BROKEN)
        except (FileNotFoundError, pl.StoreError):
            time.sleep(0.001)


def run(job, made, path, said):
    try:
        job(made, path, False)
    except (FileExistsError, pl.StoreError) as fault:
        said.write_text(str(fault))
        raise


def attack(count, seed):
    """Let so many groups of runs meet; return how they ended."""
    random = np.random.default_rng(seed)
    made = attack_kills.prepare() | {recipe: pl.generate(recipe) for recipe in RECIPES[2:]}
    known = {digest(ds): recipe for recipe, ds in made.items()}
    counts = Counter(tried=count, runs=0, refused=0, lost=0, wrong=0, crashes=0)
    jobs = [attack_kills.save, attack_kills.save_over, attack_kills.shards, attack_kills.shards_over]
    with tempfile.TemporaryDirectory() as name:
        kept, folder = Path(name) / "old.zarr", Path(name) / "try"
        assert outcome(fork(attack_kills.save, made[OLD], kept, False)) == FINE
        for _ in range(count):
            folder.mkdir()
            path = folder / "ds.zarr"
            began_with = OLD if random.random() < 0.5 else None
            if began_with:
                shutil.copytree(kept, path)
            chosen = [
                (jobs[random.integers(len(jobs))], RECIPES[1 + random.integers(3)])
                for _ in range(random.integers(2, 4))
            ]
            children = [
                fork(later, run, random.uniform(0, 0.1), job, made[recipe], path, Path(name) / f"said{k}")
                for k, (job, recipe) in enumerate(chosen)
            ]
            looking = fork(reader, path, time.monotonic() + 0.4, known)
            notes = fork(later, stranger, random.uniform(0, 0.2), path) if random.random() < 0.3 else None
            codes = [outcome(child) for child in children]
            counts["runs"] += len(codes)
            counts["refused"] += codes.count(REFUSED)
            counts["crashes"] += sum(code not in (FINE, REFUSED) for code in codes)
            counts["wrong"] += outcome(looking) != FINE
            has_notes = notes is not None and outcome(notes) == FINE
            ended = [(job, recipe) for (job, recipe), code in zip(chosen, codes, strict=True) if code == FINE]
            check(path, began_with, ended, has_notes, known, counts)
            for k, code in enumerate(codes):
                if code == REFUSED:
                    check_refusal((Path(name) / f"said{k}").read_text(), chosen[k][1], known, counts)
            shutil.rmtree(folder)
    return counts


def check(path, began_with, ended, has_notes, known, counts):
    """Compare what is at the path with what the runs say that they did."""
    if has_notes:
        counts["notes kept"] += 1
        counts["lost"] += not (path / "notes.txt").is_file()
        return
    new_alone = [recipe for job, recipe in ended if job in (attack_kills.save, attack_kills.shards)]
    # Without overwrite, two runs that both succeed have made the same dataset, and nothing was there before.
    counts["lost"] += len(set(new_alone)) > 1 or (began_with is not None and bool(new_alone))
    try:
        found = known.get(digest(pl.load(path, verify=True)))
    except FileNotFoundError:
        counts["lost"] += began_with is not None or bool(ended)
        return
    except pl.StoreError:
        counts["wrong"] += 1
        return
    counts["wrong"] += found is None or found not in ([recipe for _, recipe in ended] or [began_with])
    counts["as the last run says"] += 1


def check_refusal(said, recipe, known, counts):
    """A refusal is one line; if it says that the dataset is kept elsewhere, it is."""
    counts["crashes"] += "\n" in said
    if "is kept at" in said:
        counts["kept elsewhere"] += 1
        counts["lost"] += known.get(digest(pl.load(said.rsplit("'", 2)[1], verify=True))) != recipe
