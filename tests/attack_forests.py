"""Forests with wrong numbers, through all that reads a forest: refused in one line, or harmless."""

import tempfile
from collections import Counter
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np

import percolab as pl
from percolab import exports
from percolab.dataset.dataset import Dataset
from percolab.show import card, cluster_picture, summary
from percolab.store import finished

HUGE = np.array([-(2**63), -(2**62), -(2**32), -2, -1, 0, 1, 2, 3, 2**31, 2**32, 2**62, 2**63 - 2, 2**63 - 1])


def in_one_line(fault):
    """Tell that a refusal is one line that can be printed; raise it again if it is not."""
    if not str(fault).isprintable() or len(str(fault)) > 2000:
        raise fault
    return True


def spoil(columns, random):
    """Return integer columns with some numbers changed."""
    columns = {name: column.copy() for name, column in columns.items()}
    n = len(columns["point_id"])
    for _ in range(random.integers(1, 4)):
        column = columns[random.choice(list(columns))].reshape(-1)
        if not column.size:
            continue
        count = random.integers(1, min(4, column.size) + 1)
        at = random.choice(column.size, count, replace=False)
        how = random.integers(4)
        if how == 0:
            column[at] = random.choice(HUGE, count).astype(column.dtype)
        elif how == 1:
            column[at] += random.integers(-3, 4, count).astype(column.dtype)
        elif how == 2:
            column[at] = random.permutation(column[at])
        else:
            column[at] = random.integers(-2, n + 2, count).astype(column.dtype)
    return columns


# ---------------------------------------------------------------------- all that reads a forest
#
# Each of these yields calls, so that one that refuses does not keep the next from being tried.


def some(random, end, count=3):
    """Return a few different numbers below an end, none if there are none."""
    return random.choice(end, min(end, count), replace=False) if end else np.empty(0, np.int64)


def derived(ds, random, folder):
    for name in ("latent_depth", "latent_parent", "latent_children", "latent_cluster", "point_depth", "point_parent"):
        yield partial(getattr, ds.forest, name)
    for name in ("parting", "point_cluster", "figure_of_merit", "release_order", "cluster_size"):
        yield partial(getattr, ds.forest, name)


def kinship(ds, random, folder):
    forest = ds.forest
    rows, others, latents = (some(random, end) for end in (forest.n_points, forest.n_points, forest.n_latents))
    for of_pairs in (forest.lca, forest.distance):
        yield partial(of_pairs, rows, others)
    for of_rows in (forest.path, forest.distance_to):
        yield partial(of_rows, rows)
    for of_latents in (forest.points_of, forest.descendants, forest.ancestors, forest.children, forest.side):
        yield partial(of_latents, latents)
    yield partial(forest.sibling, latents)
    yield partial(forest.nearest_above, np.sort(latents))


def groups(ds, random, folder):
    forest = ds.forest
    yield partial(forest.latent_at_depth, int(random.integers(4)))
    yield partial(forest.cut, max_size=5)
    yield partial(forest.cut, n_groups=forest.n_clusters + 3)
    yield lambda: forest.moments(np.asarray(ds.X), forest.concepts(3, 0.8))


def matrices(ds, random, folder):
    forest = ds.forest
    yield from (forest.membership, forest.adjacency, forest.to_networkx, forest.latents_to_networkx)
    yield partial(forest.values, ds.latent_z)
    yield partial(forest.latent_table, ds.latent_z)


def parts(ds, random, folder):
    for cluster in range(min(3, ds.forest.n_clusters)):
        yield partial(ds.forest.cluster, cluster)
        yield partial(ds.forest.to_linkage, cluster)
    yield partial(ds.forest.largest, 2)
    yield ds.forest.validate


def sums(ds, random, folder):
    yield partial(pl.engines.targets, ds.forest, ds.latent_z, ds.point_z)
    yield partial(ds.do, z={int(i): 1.0 for i in some(random, ds.forest.n_latents, 1)}, point_z={0: 2.0})


def aims(ds, random, folder):
    for how in ({}, {"target": "silent", "seed": 1}, {"target": "sign"}):
        yield partial(ds.with_target, **how)
    yield lambda: ds.with_target("path_tokens").vocabulary
    yield lambda: ds.with_target("classes", n_groups=ds.forest.n_clusters + 3).class_nodes
    if ds.target.kind == "classes":
        yield partial(getattr, ds, "class_nodes")


def subsets(ds, random, folder):
    yield partial(ds.filter, 3)
    yield partial(ds.take, some(random, len(ds), 20))
    yield partial(ds.subsamples, [10, 30], seed=1)


def splits(ds, random, folder):
    yield partial(pl.split_rows, ds, by="subtree", max_size=10)
    yield partial(pl.split_rows, ds, by="cluster")


def moved(ds, random, folder):
    for latent in some(random, ds.forest.n_latents, 1).tolist():
        yield partial(ds.move, latent, 1.0)
        yield partial(ds.turn, latent, seed=3)


def shown(ds, random, folder):
    yield partial(summary.summarise, ds)
    yield from (ds._repr_html_, ds.forest._repr_html_, ds.__repr__)


def written(ds, random, folder):
    how = random.choice([exports.to_npz, exports.to_parquet, exports.to_hdf5, exports.to_csv])
    yield partial(how, ds, folder / "out", overwrite=True)


def drawn(ds, random, folder):
    yield partial(card, ds, folder / "card.html", overwrite=True)
    yield partial(cluster_picture.draw, ds, 0)


def verified(ds, random, folder):
    yield partial(pl.verify, ds)


READERS = {derived: 1, kinship: 1, groups: 1, matrices: 0.3, parts: 0.5, sums: 1, aims: 0.3, subsets: 0.5, splits: 0.3}
READERS |= {moved: 0.5, shown: 0.5, written: 0.05, drawn: 0.004, verified: 0.01}
"""How often each is tried: what takes long is tried less."""
THOROUGH = 1000
"""Tries from which on it is worth compiling all that there is."""


def exercise(ds, random, folder, counts, always=()):
    """Do what reads a forest. Refusals are ValueErrors of one line; anything else is raised."""
    for read, share in READERS.items():
        if read not in always and random.random() > share:
            continue
        for call in read(ds, random, folder):
            counts["readings"] += 1
            try:
                call()
            except (ValueError, MemoryError) as fault:
                counts["refused later"] += in_one_line(fault)


# ---------------------------------------------------------------------- the attack


class Crafted:
    """A complete store with some columns replaced, as if those were on the disk. Made anew for each try."""

    def __init__(self, store, columns):
        self.store, self.columns = store, columns

    def __enter__(self):
        whole = type(self.store).array
        self.store.array = lambda name: self.columns[name] if name in self.columns else whole(self.store, name)
        return self.store

    def __exit__(self, *_):
        del self.store.array


FOREST = tuple(field.name for field in fields(pl.Forest))


def datasets():
    """Return datasets of every kind of forest and of every extra column."""
    base = pl.Recipe(120, 2, seeds=3)
    plain = [
        pl.generate(replace(base, **how))
        for how in (
            {},
            {"mode": "one_cluster"},
            {"min_cluster_size": 2},
            {"mode": "random_graph", "mean_degree": 1.5},
            {"engine": "paper", "dtype": "float64"},
        )
    ]
    silent = plain[0].with_target("silent", seed=1)
    return [
        *plain,
        plain[0].take(np.arange(0, 120, 2)),
        silent.take(np.arange(60)),
        plain[1].with_target("classes", n_groups=5),
    ]


def stored(folder):
    """Yield for each kind of store the columns to spoil, and a function that reads the store with others."""
    for k, ds in enumerate(datasets()):
        ds.save(folder / f"{k}.zarr", sync=False)
        store = finished.Complete(folder / f"{k}.zarr")
        names = [name for name in store.layouts if name.rpartition("/")[2] in (*FOREST, "source_row", "latent_active")]
        columns = {name: store.array(name)[:] for name in names}
        if store.layouts["y"].dtype.kind == "i":
            columns["y"] = store.array("y")[:]
        yield columns, partial(read_dataset, store)
    world = pl.superpose([pl.Recipe(100, 3, seeds=1), pl.Recipe(60, 3, seeds=2)])
    world.save(folder / "world.zarr", sync=False)
    store = finished.Complete(folder / "world.zarr")
    names = ["rows", *(f"factors/1/{name}" for name in FOREST if f"factors/1/{name}" in store.layouts)]
    columns = {name: store.array(name)[:] for name in names}
    yield columns | {"point_id": columns["factors/1/point_id"]}, partial(read_world, store)


def read_dataset(store, columns):
    with Crafted(store, columns) as crafted:
        ds = Dataset.lazy(crafted.field)
        _ = ds.forest, ds.extra, ds.y, ds.X, ds.latent_z, ds.point_z, ds.recipe, ds.provenance
    return ds


def read_world(store, columns):
    with Crafted(store, columns) as crafted:
        world = pl.Superposed.lazy(crafted.field)
        factor = world.factors[1]
        _ = world.rows, factor.forest, factor.y, factor.latent_z, factor.point_z
        truth = pl.truth(world, 1)
        truth.latent_at_depth(1), truth.y, truth.samples_of(0)
    return factor


def attack(count, seed):
    """Read so many forests with wrong numbers; return counts."""
    random = np.random.default_rng(seed)
    counts = Counter(tried=count, refused=0, harmless=0, crashes=0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = list(stored(folder))
        for _, read in stores if count >= THOROUGH else ():  # all that there is, with what is not spoilt
            exercise(read({}), random, folder, Counter(), always=READERS)
        for _ in range(count):
            columns, read = stores[random.integers(len(stores))]
            try:
                ds = read(spoil(columns, random))
            except pl.StoreError as fault:
                counts["refused"] += in_one_line(fault)
                continue
            counts["harmless"] += 1
            exercise(ds, random, folder, counts)
    return counts
