"""A dataset made in shards, straight into a store, against writing noise into the same kind of store.

    python benchmarks/sharding.py [--n-points 10000000] [--dim 100] [--repeats 3] [--ray] [--directory .] [--json file]
    python benchmarks/sharding.py --table 1000000000      # only: time and memory of the table of clusters

The peer writes an X of the same shape, chunks and codecs, with a digest for every block, from white noise that is drawn
before the clock starts, by as many processes. It draws nothing, and writes no targets, hierarchy or values.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import timing
import zarr
from rich.console import Console
from rich.table import Table
from zarr.codecs import Crc32cCodec

import percolab as pl
from percolab.ground import parallel
from percolab.ground.memory import readable
from percolab.store import chunks, digests, runners, schema
from percolab.store.shards import generate_store

WORKERS = parallel.thread_count(None)
_NOISE: dict[int, np.ndarray] = {}


def write_noise(task: tuple[str, int, int]) -> int:
    """Write a range of rows of noise; return how many."""
    path, lo, hi = task
    X = zarr.open_array(path, mode="r+").with_config({"write_empty_chunks": True})
    if X.shape[1] not in _NOISE:
        _NOISE[X.shape[1]] = np.random.default_rng(lo).standard_normal((schema.CELL, X.shape[1]), dtype=np.float32)
    noise = _NOISE[X.shape[1]]
    for first in range(lo, hi, X.chunks[0]):
        block = noise[: min(X.chunks[0], hi - first)]
        digests.of_block(block)
        X[first : first + len(block)] = block
    return hi - lo


def noise_store(path: Path, n: int, dim: int, shards: int) -> None:
    """Write noise to a store by as many processes as make a dataset."""
    rows = min(schema.CELL, 1 << ((chunks.CHUNK_BYTES // (4 * dim)).bit_length() - 1))
    zarr.create_array(path, shape=(n, dim), dtype=np.float32, chunks=(rows, dim), compressors=[Crc32cCodec()])
    edges = [min(n, -(-n * k // shards // schema.CELL) * schema.CELL) for k in range(shards + 1)]
    tasks = [(str(path), lo, hi) for lo, hi in pairwise(edges) if hi > lo]
    assert sum(runners.run(write_noise, iter(tasks), "local", WORKERS)) == n


def stages(seen: dict[str, float]) -> Iterator[str]:
    """Yield what each stage took."""
    for stage, seconds in seen.items():
        yield f"{stage} {seconds:.1f} s"


def sharding(n: int, dim: int, repeats: int, directory: Path, runner: str) -> list[timing.Row]:
    """Compare both modes with noise."""
    shards = max(WORKERS, -(-n // (5 * schema.CELL)))
    rows = []
    for mode in ("distribution", "one_cluster"):
        recipe = pl.Recipe(n, dim, mode, seeds=1)
        details = []

        def ours(recipe: pl.Recipe = recipe, details: list[dict[str, object]] = details) -> None:
            clock, seen = [time.perf_counter()], {}

            def report(stage: str, done: int, total: int) -> None:
                seen[stage] = time.perf_counter() - clock[0]

            shutil.rmtree(directory / "ours.zarr", ignore_errors=True)
            made = generate_store(recipe, directory / "ours.zarr", shards=shards, runner=runner, progress=report)
            details.append({"peak_bytes_of_a_worker": made.peak_bytes, "shards": made.shards, "done_after_s": seen})

        def theirs() -> None:
            shutil.rmtree(directory / "noise", ignore_errors=True)
            noise_store(directory / "noise", n, dim, shards)

        row = timing.compare(f"{mode}, {runner}, n = {n:,}, d = {dim}", ours, "noise", theirs, "3", repeats)
        row.detail = {**details[-1], "store_bytes": sum(f.stat().st_size for f in (directory / "ours.zarr").rglob("*"))}
        rows.append(row)
    return rows


def table_of_clusters(n: int) -> None:
    """Print time and memory of the table of clusters."""
    code = f"""
import time, percolab as pl
pl.engines.cluster_table(pl.Recipe(1000, 2, seeds=1))
start = time.perf_counter()
table = pl.engines.cluster_table(pl.Recipe({n}, 2, seeds=1)).clusters
print(time.perf_counter() - start)
print(sum(column.nbytes for column in (table.start, table.birth, table.point_id)))
"""
    printed, peak = timing.run_and_peak(code)
    seconds, kept = printed.split()
    print(f"table of {n:,} points: {float(seconds):.1f} s, {readable(int(kept))} kept, {readable(peak)} at peak")


def main() -> None:
    """Run the comparison, or time the table alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-points", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ray", action="store_true", help="run on a Ray cluster on this machine as well")
    parser.add_argument("--directory", default=".", help="where stores are written, and removed again")
    parser.add_argument("--table", type=int, metavar="N", help="only the table of clusters, of N points")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.table:
        table_of_clusters(options.table)
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        for runner in ("local", "ray") if options.ray else ("local",):
            rows += sharding(options.n_points, options.dim, options.repeats, Path(folder), runner)
    timing.show(f"datasets in shards, {WORKERS} workers, {os.cpu_count()} processors", rows, options.json)
    table = Table(title="memory and disk")
    for heading in ("what", "shards", "largest worker", "store", "times at which stages ended"):
        table.add_column(heading, justify="right")
    for row in rows:
        detail = row.detail
        ends = ", ".join(stages(detail["done_after_s"]))
        cells = readable(detail["peak_bytes_of_a_worker"]), readable(detail["store_bytes"])
        table.add_row(row.what, str(detail["shards"]), *cells, ends)
    Console().print(table)


if __name__ == "__main__":
    main()
