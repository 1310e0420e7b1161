"""An attack on stores, as a program: forests and chunks made to break the code that reads them.

    python tests/attack.py forests 10000 [seed]     # forests with wrong numbers, through all that reads a forest
    python tests/attack.py files 1000 [seed]        # stores with chunks and metadata changed, digests made to match

It prints how many were refused and how many were harmless. A crash ends it; anything but a one-line refusal is raised.
"""

import json
import shutil
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import google_crc32c
import numpy as np

import percolab as pl
from percolab.show import summary
from percolab.store import metadata, reading, schema, sources

HUGE = np.array([-(2**63), -(2**62), -(2**32), -2, -1, 0, 1, 2, 3, 2**31, 2**32, 2**62, 2**63 - 2, 2**63 - 1])


def in_one_line(fault):
    """Tell that a refusal is one line that can be printed; raise it again if it is not."""
    if not str(fault).isprintable() or len(str(fault)) > 2000:
        raise fault
    return True


# ---------------------------------------------------------------------- forests


def spoil(forest, random):
    """Return the columns of a forest with some numbers changed."""
    columns = {field.name: getattr(forest, field.name).copy() for field in fields(forest)}
    for _ in range(random.integers(1, 4)):
        column = columns[random.choice(list(columns))].reshape(-1)
        if not column.size:
            continue
        count = random.integers(1, min(4, column.size) + 1)
        at = random.choice(column.size, count, replace=False)
        how = random.integers(4)
        if how == 0:
            column[at] = random.choice(HUGE, count)
        elif how == 1:
            column[at] += random.integers(-3, 4, count)
        elif how == 2:
            column[at] = random.permutation(column[at])
        else:
            column[at] = random.integers(-2, len(forest.point_id) + 2, count)
    return columns


def exercise(dataset, rows):
    """Do all that reads a forest."""
    forest = dataset.forest
    for name in ("latent_depth", "latent_parent", "latent_children", "point_depth", "release_order", "figure_of_merit"):
        getattr(forest, name)
    forest.latent_at_depth(1)
    forest.adjacency()
    forest.values(dataset.latent_z)
    pl.targets(forest, dataset.latent_z, dataset.point_z)
    for row in rows:
        forest.path(int(row))
    for cluster in range(min(3, forest.n_clusters)):
        forest.cluster(cluster)
        forest.to_linkage(cluster)
    dataset.filter(3)


class Crafted(reading.Complete):
    """A store whose forest is replaced by another, as if that were on the disk."""

    def array(self, name):
        return self.crafted[name] if name in self.crafted else super().array(name)


def attack_forests(count, seed):
    """Read so many forests with wrong numbers; return how many were refused."""
    random = np.random.default_rng(seed)
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        stores = []
        for mode, least in (("distribution", 1), ("one_cluster", 1), ("distribution", 2)):
            ds = pl.generate(pl.Recipe(120, 2, mode, seeds=3, min_cluster_size=least))
            ds.save(Path(folder) / f"{mode}{least}", sync=False)
            stores.append((ds, Crafted(Path(folder) / f"{mode}{least}")))
        for _ in range(count):
            ds, store = stores[random.integers(len(stores))]
            store.crafted = spoil(ds.forest, random)
            crafted = pl.Dataset.lazy(store.field)
            try:
                crafted.forest  # noqa: B018
            except pl.StoreError as fault:
                refused += in_one_line(fault)
                continue
            exercise(crafted, random.integers(0, len(ds), 3))
            if random.random() < 0.02:
                pl.verify(crafted)
    return refused


# ---------------------------------------------------------------------- files


def signed(packed):
    """Return bytes with the checksum that makes them a chunk."""
    return packed + google_crc32c.value(bytes(packed)).to_bytes(4, "little")


def reseal(path):
    """Make the digest of all metadata match again, as far as they can be read; tell whether it could be done."""
    try:
        source = sources.source(path)
        root = json.loads((path / "zarr.json").read_text())
        found = root["attributes"]["percolab"]
        layouts = {name: metadata.layout(source, name, path) for name in schema.COLUMNS}
        found["metadata_sha256"] = metadata.digest(found, layouts)
        (path / "zarr.json").write_text(json.dumps(root))
    except (AttributeError, KeyError, TypeError, ValueError):
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


def attack_files(count, seed):
    """Read so many stores with a file or two changed; return how many were refused."""
    random = np.random.default_rng(seed)
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        whole, path = Path(folder) / "whole", Path(folder) / "spoilt"
        pl.generate(pl.Recipe(120, 2, seeds=3)).save(whole, sync=False)
        names = [str(file.relative_to(whole)) for file in sorted(whole.rglob("*")) if file.is_file()]
        for _ in range(count):
            shutil.copytree(whole, path)
            for name in random.choice(names, random.integers(1, 3), replace=False):
                spoil_file(path / name, random)
            if random.random() < 0.7:
                reseal(path)
            try:
                loaded = pl.load(path)
                summary.summarise(loaded)
                np.asarray(loaded.X)
                exercise(loaded, [0])
            except (FileNotFoundError, MemoryError, pl.StoreError) as fault:
                refused += in_one_line(fault)
            shutil.rmtree(path)
    return refused


if __name__ == "__main__":
    what, count, seed = sys.argv[1], int(sys.argv[2]), int((*sys.argv, "0")[3])
    refused = {"forests": attack_forests, "files": attack_files}[what](count, seed)
    print(f"{what}: {count} tried, {refused} refused, {count - refused} harmless, 0 crashes")
