"""Time and memory of the native engine, every number a ratio within one run.

    python benchmarks/native_engine.py [--repeats 5] [--quick] [--json out.json]
    python benchmarks/native_engine.py --huge      # only: time and memory of a tree of 100,000,000 points

What bounds each stage, per point at d = 100 in float32:
    positions   100 Gaussians drawn, 400 bytes written, and for clusters of several pieces read and written once more
    values      2 Gaussians in float64 drawn, 24 bytes written
    trees       0.7 Philox blocks, 0.7 draws of the split law, about 0.6 ln n coins, 32 bytes written
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import fields
from functools import partial

import igraph
import networkx
import numpy as np
import timing
from rich.console import Console
from rich.table import Table

import percolab as pl
from percolab.engines import native
from percolab.engines.clusters import Clusters
from percolab.engines.native import growth, positions, value_draws
from percolab.engines.native.skeleton import Stand
from percolab.ground import parallel
from percolab.ground.memory import readable
from percolab.ground.progress import silent
from percolab.rng import philox

DIM = 100
THREADS = sorted({1, parallel.thread_count(None)})


def forest(n: int, threads: int) -> pl.Forest:
    """Grow one cluster's tree and merger tree on a given number of threads."""
    return growth.grow_forest(Clusters.single(n), np.uint64(1), threads)


def noise(n: int) -> np.ndarray:
    return np.random.default_rng().standard_normal((n, DIM), dtype=np.float32)


def datasets(n: int, repeats: int) -> list[timing.Row]:
    """Full datasets against white noise of the same shape, which NumPy draws on one thread."""
    rows = []
    for mode in ("one_cluster", "distribution"):
        recipe = pl.Recipe(n, DIM, mode, seeds=1, engine="native")
        for threads in THREADS:
            what = f"{mode}, n = {n:,}, d = {DIM}, {threads} thread{'s' * (threads > 1)}"
            made = partial(pl.generate, recipe, threads=threads)
            target = "at most 0.4" if threads > 1 else ""
            rows.append(timing.compare(what, made, "standard_normal float32", partial(noise, n), target, repeats))
    return rows


def forests(sizes: list[int], repeats: int) -> list[timing.Row]:
    """Tree and merger tree against trees alone by others, and against our own coalescent."""
    rows = []
    for n in sizes:
        for threads in THREADS:
            what = f"forest, n = {n:,}, {threads} thread{'s' * (threads > 1)}"
            game = partial(igraph.Graph.Tree_Game, n, method="prufer")
            ours = partial(forest, n, threads)
            against = "igraph Tree_Game, tree only", game, "at most 0.25", repeats
            rows.append(timing.compare(what, ours, *against))
            rows.append(timing.compare(f"{what}, warm memory", ours, *against, warm=True))
    n = sizes[0]
    peers = [
        (n, "our cyclic coalescent", partial(pl.engines.cyclic_coalescent, n, 1)),
        (n // 10, "networkx, tree only", partial(networkx.random_labeled_tree, n // 10, seed=1)),
    ]
    for size, peer, theirs in peers:
        what = f"forest, n = {size:,}, 1 thread"
        rows.append(timing.compare(what, partial(forest, size, 1), peer, theirs, "", 3))
    return rows


def stages(n: int, repeats: int) -> None:
    """Print what each stage takes on one thread, and the time of drawing its Gaussians alone."""
    table = Table(title=f"stages on one thread, n = {n:,}, d = {DIM}, nanoseconds per point")
    for heading in ("mode", "clusters", "trees", "values", "positions", "Gaussians alone"):
        table.add_column(heading, justify="right")
    for mode in ("one_cluster", "distribution"):
        recipe = pl.Recipe(n, DIM, mode, seeds=1, engine="native")
        runs = []
        for _ in range(repeats + 1):
            clock = [time.perf_counter()]
            clusters = native.find_clusters(recipe, 1)
            clock.append(time.perf_counter())
            key, stand = np.uint64(1), Stand.of_clusters(clusters.start, clusters.founder)
            grown = growth.grow(stand, key, 1, silent)
            growth.forest_of(clusters, grown, key, 1)
            clock.append(time.perf_counter())
            value_draws.draw_values(grown, np.empty(0), key, 1, silent)
            clock.append(time.perf_counter())
            positions.embed(recipe, grown, positions.Entries.none(recipe), 1, silent)
            clock.append(time.perf_counter())
            drawn = DIM * stand.n_latents + (DIM + (DIM + 2) * (mode != "one_cluster")) * stand.founder.size
            runs.append([*np.diff(clock), gaussians_alone(drawn)])
        cells = [f"{statistics.median(column) / n * 1e9:.0f}" for column in zip(*runs[1:], strict=True)]
        table.add_row(mode, *cells)
    Console().print(table)


def gaussians_alone(count: int) -> float:
    """Time drawing as many float32 Gaussians as Philox words, in cache: the floor of the positions."""
    nodes, words = np.repeat(np.arange(16, dtype=np.uint64), 25), np.tile(np.arange(25, dtype=np.uint64), 16)
    bits, out = np.empty(1600, np.int32), np.empty(1600, np.float32)
    start = time.perf_counter()
    for _ in range(200):
        philox.bits_of_nodes(nodes, words, philox.DIRECTION, np.uint64(1), bits)
        philox.normals_of_bits(bits, out)
    return (time.perf_counter() - start) / (200 * 1600) * count


def print_growth(sizes: list[int], repeats: int) -> None:
    """Print time and peak memory per point as n grows; both should stay flat."""
    table = Table(title=f"growth, d = 10, float32, {THREADS[-1]} threads; memory beyond that of making 5,000 points")
    for heading in (
        "mode",
        "n",
        "ns per point",
        "returned, bytes per point",
        "peak, bytes per point",
        "peak / returned",
    ):
        table.add_column(heading, justify="right")
    base = timing.peak_bytes("import percolab as pl\npl.generate(pl.Recipe(5000, 10, 'one_cluster', seeds=1))")
    for mode in ("one_cluster", "distribution"):
        for n in sizes:
            recipe = pl.Recipe(n, 10, mode, seeds=1, engine="native")
            returned = bytes_of(pl.generate(recipe))
            calls = max(1, 10**6 // n)  # of small datasets, so many one after another
            taken = statistics.median(timing.seconds(partial(repeat, calls, recipe)) for _ in range(repeats)) / calls
            code = f"import percolab as pl\nds = pl.generate(pl.Recipe.from_json({recipe.to_json()!r}))"
            peak = timing.peak_bytes(code) - base
            memory = [f"{peak / n:.0f}", f"{peak / returned:.2f}"] if n >= 10**6 else ["", ""]
            table.add_row(mode, f"{n:,}", f"{taken / n * 1e9:.0f}", f"{returned / n:.0f}", *memory)
    Console().print(table)


def repeat(calls: int, recipe: pl.Recipe) -> None:
    for _ in range(calls):
        pl.generate(recipe)


def bytes_of(ds: pl.Dataset) -> int:
    """Return the bytes of a dataset's columns."""
    columns = [getattr(ds.forest, field.name) for field in fields(ds.forest)]
    return sum(int(column.nbytes) for column in [ds.X, ds.y, ds.latent_z, ds.point_z, *columns])


def huge() -> None:
    """Print time and memory of a tree of 100,000,000 points, in a process of its own."""
    code = "import time, percolab as pl\npl.split_forest(5000, 1)\nstart = time.perf_counter()\n"
    code += "forest = pl.engines.split_forest(10**8, 1)\nprint(time.perf_counter() - start)"
    taken, peak = timing.run_and_peak(code)
    print(f"split_forest(10**8): {float(taken):.1f} s, peak {readable(peak)}")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    options.add_argument("--huge", action="store_true", help="only a tree of 100,000,000 points")
    options.add_argument("--json")
    chosen = options.parse_args()
    if chosen.huge:
        huge()
        return
    shrink = 10 if chosen.quick else 1
    rows = datasets(10**6 // shrink, chosen.repeats) + forests([10**6 // shrink, 10**7 // shrink], chosen.repeats)
    timing.show("native engine", rows, chosen.json)
    stages(10**6 // shrink, 3)
    print_growth([10**4, 10**5, 10**6, 10**7 // shrink, 3 * 10**7 // shrink], 3)


if __name__ == "__main__":
    main()
