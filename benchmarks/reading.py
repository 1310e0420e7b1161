"""How fast shuffled batches come from a store, as ratios to reading its files raw, within one run.

    python benchmarks/reading.py [--n-points 1000000] [--dim 100] [--directory .] [--repeats 5] [--no-ray] [--json file]
    python benchmarks/reading.py --only "torch, 0" "torch, 2" Ray           # readers whose names begin like that
    python benchmarks/reading.py --once 2000000000 --n-points 70000000      # only: one epoch, in so many bytes

The peer reads every chunk file of X by `os.read` into the same few megabytes, one file after another, on one thread,
and looks at nothing: no checksum, no y, no order, no batches. "cached" has all files in the page cache, so the peer is
a copy in memory; "disk" drops them from it before each run (a disk's own cache, or a host's, may still have them).
Ratios are of times: 2 means half the raw rate. An epoch includes what it takes to start workers or tasks, so the
larger the store, the less that counts. Workers of torch pass each batch from process to process, so these are
also set against workers that pass constants of the same shape.

`--once` makes a store in shards, drops it from the page cache, and takes one shuffled epoch of it in a process that may
not have more addresses than that (RLIMIT_AS: all of its memory, shared or not, but not the page cache). Choose more
points than the machine has memory for: 70 million of 100 dimensions are 28 GB.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import timing
import torch
from torch.utils.data import DataLoader, IterableDataset

import percolab as pl
from percolab import exports
from percolab.ground import parallel
from percolab.ground.memory import readable
from percolab.loaders.streams import Stream

BATCH = 1024
READ_BYTES = 1 << 22
RAY_TASKS, RAY_BLOCK_BYTES = 200, 1 << 27
"""Read tasks that Ray takes at least, and the size of its blocks, if it is told neither."""


def chunk_files(store: Path) -> list[Path]:
    return [file for name in ("X", "y") for file in (store / name / "c").rglob("*") if file.is_file()]


def forget(store: Path) -> None:
    """Drop the chunks of a store from the page cache."""
    for file in chunk_files(store):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_raw(store: Path) -> None:
    for file in (store / "X" / "c").rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            while os.read(descriptor, READ_BYTES):
                pass
            os.close(descriptor)


def exhaust(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


class Constants(IterableDataset):
    """As many batches as a store gives, of the same shape, that cost nothing to make."""

    def __init__(self, count: int, dim: int) -> None:
        self.count, self.dim = count, dim

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        workers = torch.utils.data.get_worker_info().num_workers
        for _ in range(self.count // workers):
            yield torch.zeros(BATCH, self.dim), torch.zeros(BATCH)


def passing(store: Path, repeats: int) -> timing.Row:
    """Compare two workers that read with two that do not."""
    data = exports.to_torch_stream(store, BATCH)
    constants = Constants(len(data), pl.load(store).X.shape[1])
    ours, theirs = (DataLoader(source, batch_size=None, num_workers=2) for source in (data, constants))
    args = partial(exhaust, ours), "2 workers that pass constants", partial(exhaust, theirs)
    return timing.compare("torch, 2 workers", *args, "", repeats)


def readers(store: Path) -> dict[str, Callable[[], None]]:
    """Return what is timed, by name."""
    data, rows = exports.to_torch_stream(store, BATCH), exports.to_torch(pl.load(store))
    return {
        "blocks in order": lambda: exhaust(Stream(store, BATCH, shuffle=False).batches()),
        "shuffled": lambda: exhaust(Stream(store, BATCH).batches()),
        "shuffled, small pool": lambda: exhaust(Stream(store, BATCH, buffer_rows=1 << 16).batches()),
        "torch, 0 workers": lambda: exhaust(DataLoader(data, batch_size=None)),
        "torch, 2 workers": lambda: exhaust(DataLoader(data, batch_size=None, num_workers=2)),
        "torch, rows at random": lambda: exhaust(DataLoader(rows, batch_size=BATCH, shuffle=True)),
    }


def ray_readers(store: Path) -> dict[str, Callable[[], None]]:
    """Return what is timed in Ray, by name: our number of tasks, and as many as Ray takes if it is not told.

    Tasks of zeros read nothing and pass blocks of the same size, so they take the time that is Ray's own.
    """
    import ray
    import ray.data
    from ray.data.block import BlockAccessor, BlockMetadata

    logging.getLogger("ray.data").setLevel("ERROR")
    ray.init(include_dashboard=False, logging_level="error", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    n, dim = pl.load(store).X.shape

    class Zeros(ray.data.Datasource):
        def estimate_inmemory_data_size(self) -> int:
            return n * (dim + 1) * 4

        def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ray.data.ReadTask]:
            rows = n // parallelism
            described = BlockMetadata(rows, rows * (dim + 1) * 4, None, None)
            return [ray.data.ReadTask(partial(zeros, rows), described) for _ in range(parallelism)]

    def zeros(rows: int) -> Iterator[Any]:
        for lo, hi in parallel.ranges(rows, max(1, RAY_BLOCK_BYTES // (4 * dim))):
            columns = {"X": np.zeros((hi - lo, dim), np.float32), "y": np.zeros(hi - lo, np.float32)}
            yield BlockAccessor.batch_to_block(columns)

    def read(make: Callable[..., Any], tasks: int) -> None:
        data = make(override_num_blocks=tasks)
        exhaust(data.iter_batches(batch_size=BATCH, batch_format="numpy"))

    sources = {
        "tasks": partial(exports.to_ray, store, shuffle=True),
        "tasks of zeros": partial(ray.data.read_datasource, Zeros()),
    }
    usual = 2 * int(ray.cluster_resources()["CPU"])
    return {f"Ray, {t} {what}": partial(read, make, t) for t in (usual, RAY_TASKS) for what, make in sources.items()}


def compare(store: Path, what: str, ours: Callable[[], None], cached: bool, repeats: int) -> timing.Row:
    """Time a reader and the raw files alternately, after one pass that compiles and starts what is needed."""

    def timed(function: Callable[[], None]) -> float:
        if not cached:
            forget(store)
        return timing.seconds(function)

    raw = partial(read_raw, store)
    for function in (ours, raw):
        function()
    pairs = [(timed(ours), timed(raw)) for _ in range(repeats)]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    size = pl.load(store).X.nbytes
    detail = {"ours_bytes_per_s": size / mine, "peer_bytes_per_s": size / other, "pairs": pairs}
    state = "cached" if cached else "disk"
    what = f"{what}: {readable(size / mine)}/s"
    return timing.Row(what, f"{state}, raw: {readable(size / other)}/s", mine, other, mine / other, "", detail)


def memory(store: Path, pool: int) -> None:
    """Print the memory of an epoch, beyond that of opening the store."""
    begin = f"from percolab.streaming import Stream\nstream = Stream({str(store)!r}, {BATCH}, buffer_rows={pool})\n"
    warm = "next(Stream(stream.path, 1, columns=['y']).batches())\n"
    peak = timing.peak_bytes(begin + warm + "for _ in stream.batches(): pass") - timing.peak_bytes(begin + warm)
    X = pl.load(store).X
    held = pool * X.nbytes // len(X)
    print(f"X of {readable(X.nbytes)} through a pool of {readable(held)}: peak {readable(peak)} beyond opening")


def stream_once(store: Path, limit: int) -> None:
    """Print time and memory of an epoch in a process that may have `limit` bytes of addresses."""
    code = f"""
import resource, time
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
from percolab.streaming import Stream
stream = Stream({str(store)!r}, {BATCH})
start = time.perf_counter()
print(sum(len(X) for X, y in stream.batches()), time.perf_counter() - start)
"""
    forget(store)
    printed, peak = timing.run_and_peak(code)
    rows, seconds = printed.split()
    forget(store)
    raw = timing.seconds(partial(read_raw, store))
    X = pl.load(store).X
    assert int(rows) == len(X)
    print(
        f"memory of this machine: {readable(psutil.virtual_memory().total)}, of the process: {readable(limit)} at most"
    )
    print(f"X of {readable(X.nbytes)}, shuffled, once: {float(seconds):.1f} s, {readable(peak)} at peak")
    print(f"{readable(X.nbytes / float(seconds))}/s, {raw / float(seconds):.2f} of raw, {readable(X.nbytes / raw)}/s")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--n-points", type=int, default=10**6)
    options.add_argument("--dim", type=int, default=100)
    options.add_argument("--directory", help="where to make the store; a new temporary one by default")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--once", type=int, metavar="BYTES", help="only one epoch, in so many bytes of addresses")
    options.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="beginnings of the readers' names")
    options.add_argument("--no-ray", dest="ray", action="store_false")
    options.add_argument("--json")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
        store = Path(directory) / "store.zarr"
        if chosen.once:
            recipe = pl.Recipe(chosen.n_points, chosen.dim, seeds=1)
            pl.generate_store(recipe, store, shards=max(2, chosen.n_points // 330_000))
            stream_once(store, chosen.once)
            return
        pl.generate(pl.Recipe(chosen.n_points, chosen.dim, seeds=1)).save(store)
        timed = readers(store) | (ray_readers(store) if chosen.ray else {})
        rows = [
            compare(store, what, ours, cached, chosen.repeats)
            for cached in (True, False)
            for what, ours in timed.items()
            if what.startswith(tuple(chosen.only))
        ]
        rows.append(passing(store, chosen.repeats))
        timing.show(f"reading {chosen.n_points:,} x {chosen.dim}, batches of {BATCH}", rows, chosen.json)
        memory(store, 1 << 16)


if __name__ == "__main__":
    main()
