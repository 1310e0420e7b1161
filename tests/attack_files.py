"""Stores with changed files. Crafted, with digests made to match: refused or harmless. Damaged: noticed, always."""

import json
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import google_crc32c
import numpy as np
from attack_forests import exercise, in_one_line

import percolab as pl
from percolab.corpora.collection import COLUMNS
from percolab.show import summary
from percolab.store import byte_sources, metadata, schema

REFUSALS = (FileNotFoundError, MemoryError, pl.StoreError)


def small_stores(folder):
    """Write a dataset, a subsample, a world and documents, in small chunks; return their paths and what is in them."""
    schema.CELL, schema.CELL_POSITIONS = 32, 128
    ds = pl.generate(pl.Recipe(120, 2, seeds=3))
    world = pl.superpose([pl.Recipe(100, 3, seeds=1), pl.Recipe(60, 3, seeds=2)])
    whole = {"plain": ds, "part": ds.with_target("silent", seed=1).take(np.arange(0, 120, 2)), "world": world}
    for name, made in whole.items():
        made.save(folder / name, sync=False)
    corpus = pl.Corpus(pl.Recipe(60, 2, "one_cluster", seeds=1), length=8, min_size=4, seed=2)
    whole["documents"] = pl.DocumentRange(corpus, 5, 45)
    pl.generate_store(whole["documents"], folder / "documents", sync=False)
    return {folder / name: made for name, made in whole.items()}


@contextmanager
def restored(path, files):
    """Put files back as they were."""
    before = {path / file: (path / file).read_bytes() for file in files}
    yield
    for file, content in before.items():
        file.write_bytes(content)


def files_of(path):
    return [str(file.relative_to(path)) for file in sorted(path.rglob("*")) if file.is_file()]


# ---------------------------------------------------------------------- crafted


def signed(packed):
    """Return bytes with the checksum that makes them a chunk."""
    return packed + google_crc32c.value(bytes(packed)).to_bytes(4, "little")


def reseal(path):
    """Make the digest of all metadata match again, as far as they can be read; tell whether it could be done."""
    try:
        source = byte_sources.source(path)
        root = json.loads((path / "zarr.json").read_text())
        found = root["attributes"]["percolab"]
        layouts = {name: metadata.layout(source, name, path) for name in sorted(found["sha256"])}
        found["metadata_sha256"] = metadata.digest(found, layouts)
        (path / "zarr.json").write_text(json.dumps(root))
    except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return False
    return True


WORDS = (None, True, -1, 0, 1, 2**31, 10**18, 10**30, 1.5, "", "\x1b[31m", "X", [], [0], [10**18], {}, {"name": "gzip"})


def spoil_json(value, random):
    """Return JSON with one thing in it changed."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        if random.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: spoil_json(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.integers(len(value))
        return [*value[:at], spoil_json(value[at], random), *value[at + 1 :]]
    return WORDS[random.integers(len(WORDS))]


def spoil_file(file, random):
    """Change a file: a description by a word, a chunk by bits, with a checksum that matches."""
    content = file.read_bytes()
    if file.name == "zarr.json" and random.random() < 0.9:
        file.write_text(json.dumps(spoil_json(json.loads(content), random)))
        return
    inner = bytearray(content[:-4])
    if random.random() < 0.2:
        inner = inner[: random.integers(len(inner) + 1)]
    for _ in range(random.integers(1, 5)):
        if inner:  # the first bytes are a header
            inner[random.integers(min(len(inner), random.choice([16, len(inner)])))] = random.integers(256)
    file.write_bytes(signed(bytes(inner)))


def read_all(loaded, random, folder, counts):
    """Do with a store what the command line does, and all that reads a forest."""
    if isinstance(loaded, pl.StoredDocuments):
        list(columns_of(loaded)), summary.summarise_documents(loaded.recipe)
        try:
            loaded.corpus.beliefs(loaded.tokens[:])
        except ValueError as fault:
            counts["refused later"] += in_one_line(fault)
        return
    for ds in loaded.factors if isinstance(loaded, pl.Superposed) else [loaded]:
        summary.summarise(ds)
        exercise(ds, random, folder, counts)
    np.asarray(loaded.X), loaded.y, repr(loaded), loaded.recipe.to_json()


def attack(count, seed):
    """Read so many stores with a file or two changed, digests made to match; return counts."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, refused=0, harmless=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = {path: files_of(path) for path in small_stores(folder)}
        for _ in range(count):
            whole = list(stores)[random.integers(len(stores))]
            spoilt = random.choice(stores[whole], random.integers(1, 3), replace=False)
            with restored(whole, [*spoilt, "zarr.json"]):
                for file in spoilt:
                    spoil_file(whole / file, random)
                if random.random() < 0.7:
                    reseal(whole)
                try:
                    read_all(pl.load(whole), random, folder, counts)
                    counts["harmless"] += 1
                except REFUSALS as fault:
                    counts["refused"] += in_one_line(fault)
    return counts


# ---------------------------------------------------------------------- damaged


def flip(file, other, random):
    """Flip a bit; return what was done."""
    content = bytearray(file.read_bytes())
    content[random.integers(len(content))] ^= 1 << random.integers(8)
    file.write_bytes(content)
    return "flipped"


def cut_short(file, other, random):
    content = file.read_bytes()
    file.write_bytes(content[: random.integers(len(content))])
    return "cut short"


def lengthen(file, other, random):
    file.write_bytes(file.read_bytes() + bytes([random.integers(256)]))
    return "lengthened"


def lose(file, other, random):
    file.unlink()
    return "removed"


def exchange(file, other, random):
    content = file.read_bytes(), other.read_bytes()
    file.write_bytes(content[1])
    other.write_bytes(content[0])
    return "exchanged"


def columns_of(loaded):
    """Yield every number of a dataset, a world or documents."""
    if isinstance(loaded, pl.StoredDocuments | pl.DocumentRange):
        made = loaded.columns() if isinstance(loaded, pl.DocumentRange) else vars_of(loaded)
        yield from (made[name][:] for name in sorted(COLUMNS))
        return
    if isinstance(loaded, pl.Superposed):
        yield from (loaded.X, loaded.y, loaded.rows)
    for ds in loaded.factors if isinstance(loaded, pl.Superposed) else [loaded]:
        forest = ds.forest
        yield from (ds.y, ds.latent_z, ds.point_z, forest.cluster_start, forest.cluster_id, forest.point_id)
        yield from (forest.left_size, forest.bond, forest.extra_bond, forest.extra_latent)
        yield from (column for _, column in sorted(ds.extra.items()))
        if not isinstance(loaded, pl.Superposed):
            yield ds.X


def vars_of(documents):
    return {name: getattr(documents, name) for name in COLUMNS}


def is_same(loaded, truth):
    pairs = zip(columns_of(loaded), columns_of(truth), strict=True)
    said = (
        loaded.recipe == truth
        if isinstance(truth, pl.DocumentRange)
        else loaded.recipe == truth.recipe and {**truth.provenance, **loaded.provenance} == dict(loaded.provenance)
    )
    return said and all(np.asarray(one).tobytes() == np.asarray(other).tobytes() for one, other in pairs)


def attack_flips(count, seed):
    """Damage so many stores; return how often it was noticed, did no harm, or gave wrong numbers without a word."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, noticed=0, harmless=0, wrong=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truths = small_stores(folder)
        files = {path: files_of(path) for path in truths}
        for _ in range(count):
            whole = list(truths)[random.integers(len(truths))]
            file, other = random.choice(files[whole], 2)
            how = random.choice([flip, flip, flip, cut_short, lengthen, lose, exchange])
            with restored(whole, [file, other]):
                counts[how(whole / file, whole / other, random)] += 1
                try:
                    # Chunks that changed places have right checksums: their digests tell.
                    found = pl.load(whole, verify=how is exchange or random.random() < 0.5)
                    outcome = "harmless" if is_same(found, truths[whole]) else "wrong"
                except REFUSALS as fault:
                    in_one_line(fault)
                    outcome = "noticed"
            counts[outcome] += 1
    return counts
