"""Time of several networks trained at once, against the same networks one after another.

    python benchmarks/ensemble.py [--data paper-multi-cluster] [--members 8] [--epochs 50] [--json out.json]

With a CUDA GPU: the paper's data and models, matrix products in TF32 and in bfloat16. Without: 5,000 points and one
epoch. Times of whole runs are scaled up from the epochs that were run, as the name says. `--full` runs them all, and
prints the test R² of every member.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace

import torch
from timing import Row, show

import percolab as pl
from percolab.ground.devices import choose_device, device_name
from percolab.nn import TrainConfig, TrainResult, experiment, train

DATA = {"paper-one-cluster": "one-cluster", "paper-multi-cluster": "multi-cluster"}
AIMS = {"paper-one-cluster": "8 in 80 s on one H200, aim 50", "paper-multi-cluster": "8 in 6 min on one H200"}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--data", choices=DATA, default="paper-one-cluster")
    options.add_argument("--members", type=int, default=8)
    options.add_argument("--epochs", type=int, default=50)
    options.add_argument("--full", action="store_true")
    options.add_argument("--device", default="auto")
    options.add_argument("--json")
    chosen = options.parse_args()
    device = choose_device(chosen.device)
    cuda = device.type == "cuda"
    recipe = pl.PRESETS[chosen.data] if cuda else pl.Recipe(5_000, 100, "one_cluster", seeds=1)
    config = experiment(DATA[chosen.data], "paper").training
    epochs = config.epochs if chosen.full else chosen.epochs if cuda else 1
    dataset = pl.generate(recipe)
    rows = [
        compared(dataset, replace(config, epochs=epochs, bf16=bf16), config.epochs, chosen.members, device, chosen.data)
        for bf16 in ((False, True) if cuda else (False,))
    ]
    show(f"ensembles, {len(dataset):,} points, {device_name(device)}", rows, chosen.json)


def compared(
    dataset: pl.Dataset, config: TrainConfig, epochs: int, members: int, device: torch.device, data: str
) -> Row:
    """Train the members at once, and one alone, after an epoch of each that sets libraries up."""
    for seeds in (range(members), range(1)):
        train(dataset, replace(config, epochs=1), seeds=seeds, device=device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    together = train(dataset, config, seeds=range(members), device=device)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    alone = train(dataset, config, seeds=[0], device=device)[0]
    scale = epochs / config.epochs
    ours, theirs = together[0].seconds * scale, alone.seconds * members * scale
    precision = "bfloat16" if config.bf16 else "TF32" if device.type == "cuda" else "float32"
    print(f"{precision}: {summary(together)}; one alone {alone.seconds * scale:.1f} s; {memory:.1f} GiB on the GPU")
    name = f"{members} networks, {precision}, {config.epochs} epochs scaled to {epochs}"
    return Row(name, "one after another", ours, theirs, ours / theirs, AIMS[data], {"gpu_gib": memory})


def summary(results: list[TrainResult]) -> str:
    """Return the test R² of the members: all, their mean and standard deviation."""
    found = [result.test.r2 for result in results]
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    return f"test R² {statistics.mean(found):.4f} ± {spread:.4f} ({', '.join(f'{r2:.4f}' for r2 in found)})"


if __name__ == "__main__":
    main()
