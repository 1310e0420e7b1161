"""Stores in object storage: obstore, which percolab uses, against s3fs, within one run.

    python benchmarks/object_storage.py [--n-points 200000] [--dim 50] [--repeats 3] [--json file]

The server is moto's, in a process of its own on this machine. It is slow and has no latency, so these are ratios of
what the two clients cost, and not what a cloud gives. Both write and read the same objects.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import boto3
import psutil
import timing

import percolab as pl
from percolab.loaders.streams import Stream
from percolab.store import commit, objects

SERVER = """
import logging, sys, time
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel("CRITICAL")
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
"""
BUCKET = "percolab-benchmark"


@contextmanager
def s3() -> Iterator[psutil.Process]:
    """Have an S3 server with an empty bucket, and the environment that leads there; give its process."""
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    endpoint = server.stdout.readline().strip()
    os.environ |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
    try:
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield psutil.Process(server.pid)
    finally:
        server.stdin.close()
        server.wait()


def through(schemes: tuple[str, ...], function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that speaks these protocols through obstore, and all others through fsspec."""

    def call() -> None:
        before, objects.SCHEMES = objects.SCHEMES, schemes
        try:
            function()
        finally:
            objects.SCHEMES = before

    return call


def jobs(dataset: pl.Dataset) -> dict[str, Callable[[], None]]:
    url, count = f"s3://{BUCKET}/read.zarr", iter(range(10**6))

    def stream() -> None:
        for _ in Stream(url, 1024).batches():
            pass

    def interrupted() -> None:
        def stop_at_half(stage: str, done: int, total: int) -> None:
            if 2 * done > total:
                raise InterruptedError

        target = f"s3://{BUCKET}/{next(count)}.zarr"
        with suppress(InterruptedError):
            commit.save(dataset, target, progress=stop_at_half)
        dataset.save(target)  # reads what is there, writes the rest

    dataset.save(url)
    return {
        "save": lambda: dataset.save(f"s3://{BUCKET}/{next(count)}.zarr"),
        "save, stopped at half, resumed": interrupted,
        "open": lambda: [pl.load(url) for _ in range(5)],  # type: ignore[dict-item]
        "verify": lambda: pl.load(url, verify=True),
        "stream": stream,
    }


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--n-points", type=int, default=200_000)
    options.add_argument("--dim", type=int, default=50)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json")
    chosen = options.parse_args()
    ds = pl.generate(pl.Recipe(chosen.n_points, chosen.dim, seeds=1))
    with s3() as server:
        rows = [
            timing.compare(what, through(objects.SCHEMES, job), "s3fs", through((), job), "1", chosen.repeats)
            for what, job in jobs(ds).items()
        ]
        theirs, ours = (sum(process.cpu_times()[:2]) for process in (server, psutil.Process()))
    timing.show(
        f"object storage, {chosen.n_points:,} x {chosen.dim}, {ds.X.nbytes / 1e6:.0f} MB of X", rows, chosen.json
    )
    print(f"processor time: {ours:.0f} s here, with the dataset made, {theirs:.0f} s in the server")


if __name__ == "__main__":
    main()
