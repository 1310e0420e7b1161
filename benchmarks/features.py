"""Time and memory of `percolab.features.score` on 200,000 rows and about 7,000 concepts, against products of matrices.

    python benchmarks/features.py [--n-points 200000] [--features 4096] [--repeats 3] [--gpu] [--json out.json]

Codes are structured and sparse (32 of 4,096 features a row: memberships of latents, some missed, random ones beside)
or dense: neurons of a random layer, on for half of the rows or a fifth, and coins, which are hardest to tell apart.
The peer counts hits alone, by a product of firings and memberships, without best matches, chance, unions or absorption;
of dense codes it takes a few features and is scaled up. With a CUDA GPU, codes that lie on it are scored as well,
beside the same codes in memory; with --gpu, those alone.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from timing import Row, seconds, show

import percolab as pl
from percolab.features import score
from percolab.ground.memory import readable

FIRING = 32
PEER_FEATURES = 16


def structured(forest: pl.Forest, latents: Any, n_features: int, seed: int = 0) -> scipy.sparse.csr_array:
    """Return codes with 32 nonzeros a row: memberships of random latents, a tenth missed, then random features."""
    rng = np.random.default_rng(seed)
    member = forest.membership(rng.choice(latents, n_features)).tocoo()
    kept = rng.random(member.nnz) > 0.1
    row, feature = member.row[kept], member.col[kept]
    order = np.lexsort((rng.random(row.size), row))
    row, feature = row[order], feature[order]
    among = np.arange(row.size) - np.searchsorted(row, row)
    row, feature = row[among < FIRING], feature[among < FIRING]
    more = np.repeat(np.arange(forest.n_points), FIRING - np.bincount(row, minlength=forest.n_points))
    row, feature = np.concatenate([row, more]), np.concatenate([feature, rng.integers(0, n_features, more.size)])
    values = rng.random(row.size, np.float32) + np.float32(0.1)
    codes = scipy.sparse.csr_array((values, (row, feature)), shape=(forest.n_points, n_features))
    codes.sum_duplicates()
    return codes


def dense(dataset: pl.Dataset, n_features: int, kind: str) -> Any:
    """Return dense codes, float32."""
    rng = np.random.default_rng(1)
    if kind == "coins":
        codes = rng.random((len(dataset), n_features), np.float32)
        return np.multiply(codes, codes > 0.5, out=codes)
    X = np.asarray(dataset.X)
    X = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    codes = X @ rng.normal(size=(X.shape[1], n_features)).astype(np.float32)
    codes -= 0 if kind == "half" else 0.85 * codes.std()
    return np.maximum(codes, 0, out=codes)


def hits_by_product(codes: Any, member: scipy.sparse.csr_array) -> float:
    """Return the seconds that the counts of hits take as a product of matrices."""
    if scipy.sparse.issparse(codes):
        fires = (codes > 0).astype(np.int32).T.tocsr()
        return seconds(lambda: fires @ member)
    some = np.ascontiguousarray((codes[:, :PEER_FEATURES] > 0).T, np.int32)
    return seconds(lambda: some @ member) * codes.shape[1] / PEER_FEATURES


def extra_memory(function: Callable[[], Any]) -> int | None:
    """Return the most bytes held during a call beyond those before it (Linux)."""
    status = Path("/proc/self/status")
    if not os.access("/proc/self/clear_refs", os.W_OK):
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)  # memory that was freed but kept would hide what is taken
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before = int(status.read_text().split("VmRSS:")[1].split()[0])
    function()
    return (int(status.read_text().split("VmHWM:")[1].split()[0]) - before) * 1024


def timed(name: str, dataset: Any, codes: Any, member: Any, target: str, repeats: int) -> Row:
    """Time a score; the first call compiles and measures memory."""
    run = lambda: score(dataset, codes, ratio=1)  # noqa: E731
    memory = extra_memory(run)
    cpu, wall = [], []
    for _ in range(repeats):
        start = time.process_time()
        wall.append(seconds(run))
        cpu.append(time.process_time() - start)
    detail = {"cpu_s": statistics.median(cpu), "extra_bytes": memory, "runs_s": wall}
    held = "" if memory is None else f", {readable(memory)} beside the codes"
    peer = hits_by_product(codes, member)
    mine = statistics.median(wall)
    what = f"{name} ({statistics.median(cpu):.2f} s of processors{held})"
    return Row(what, "SciPy product, hits alone", mine, peer, mine / peer, target, detail)


def on_gpu(dataset: Any, codes: Any, name: str, repeats: int) -> Row:
    """Time a score of codes that lie on a GPU, against the same codes in memory."""
    import torch

    held = torch.from_numpy(codes).cuda()
    wanted = score(dataset, codes, ratio=1)
    assert score(dataset, held, ratio=1).concepts.equals(wanted.concepts), "the GPU must give the same integers"
    theirs = statistics.median(seconds(lambda: score(dataset, codes, ratio=1)) for _ in range(repeats))
    mine = statistics.median(seconds(lambda: score(dataset, held, ratio=1)) for _ in range(repeats))
    return Row(f"{name}, on {torch.cuda.get_device_name()}", "in memory", mine, theirs, mine / theirs, "1 s")


def has_gpu() -> bool:
    """Return whether torch is installed and sees a CUDA GPU."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--n-points", type=int, default=200_000)
    options.add_argument("--features", type=int, default=4096)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--gpu", action="store_true", help="time codes on the GPU alone")
    options.add_argument("--json")
    chosen = options.parse_args()
    dataset = pl.generate(pl.Recipe(chosen.n_points, 32, "one_cluster", seeds=1))
    concepts = score(dataset, np.ones((chosen.n_points, 1), np.float32), ratio=1, draws=1).concepts
    member = dataset.forest.membership(concepts["latent"].to_numpy()).astype(np.int32)
    codes = structured(dataset.forest, concepts["latent"].to_numpy(), chosen.features)
    rows = []
    for kind in (f"sparse, {FIRING} a row", "dense, half", "dense, fifth", "dense, coins"):
        sparse = kind.startswith("sparse")
        values = codes if sparse else dense(dataset, chosen.features, kind.removeprefix("dense, "))
        if not chosen.gpu:
            rows.append(timed(kind, dataset, values, member, "5 s" if sparse else "15 s", chosen.repeats))
        if has_gpu():
            rows.append(on_gpu(dataset, values.toarray() if sparse else values, kind, chosen.repeats))
        del values
    show(
        f"score, {chosen.n_points:,} rows, {chosen.features:,} features, {len(concepts):,} concepts", rows, chosen.json
    )


if __name__ == "__main__":
    main()
