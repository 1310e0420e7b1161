"""Time of the experiments: training against a loop over a DataLoader, probes and neighbours against scikit-learn.

    python benchmarks/experiments.py [--json out.json]

With a CUDA GPU: the paper's one-cluster data and model, 500 epochs. Without: 20,000 points and a few epochs. What would
take many minutes is timed in part and scaled up, as the name of the peer says.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestNeighbors
from timing import Row, show
from torch.utils.data import DataLoader, TensorDataset

import percolab as pl
from percolab.ground.devices import choose_device, device_name
from percolab.nn import (
    ProbeConfig,
    ResidualMLP,
    TrainConfig,
    activations,
    nearest_neighbours,
    probes,
    split_rows,
    train,
)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--json")
    options.add_argument("--device", default="auto")
    chosen = options.parse_args()
    device = choose_device(chosen.device)
    full = device.type == "cuda"
    recipe = pl.PRESETS["paper-one-cluster"]
    dataset = pl.generate(recipe if full else replace(recipe, n_points=20_000))
    config = TrainConfig() if full else TrainConfig(epochs=3)
    rows = [
        training(dataset, config, device, full),
        probing(dataset, config, device),
        neighbours(dataset, device, full),
    ]
    show(f"experiments, {len(dataset):,} points, {device_name(device)}", rows, chosen.json)


def clocked(function: Any) -> tuple[Any, float]:
    """Return what the function returns and the seconds it took, the GPU's work included."""
    start = time.perf_counter()
    result = function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def training(dataset: pl.Dataset, config: TrainConfig, device: torch.device, full: bool) -> Row:
    result, ours = clocked(lambda: train(dataset, config, device=str(device)))
    loop = EagerLoop(dataset, config, device)
    loop.epoch()  # the first epoch sets libraries up
    _, epoch = clocked(loop.epoch)
    target = "under 30 s on one H200, aim 15" if full else ""
    peer = f"DataLoader loop, one epoch x {config.epochs}"
    detail = {"epoch_s": epoch, "test_r2": result.test.r2, "epochs": config.epochs}
    print(f"training: {ours:.2f} s, test R² {result.test.r2:.4f}; an epoch of the DataLoader loop: {epoch:.2f} s")
    return Row(
        f"train, {config.epochs} epochs",
        peer,
        ours,
        epoch * config.epochs,
        ours / epoch / config.epochs,
        target,
        detail,
    )


class EagerLoop:
    """Training as most people write it: batches from a DataLoader, moved to the device one by one."""

    def __init__(self, dataset: pl.Dataset, config: TrainConfig, device: torch.device) -> None:
        train_rows = split_rows(dataset).train
        X, y = (torch.from_numpy(np.asarray(a, np.float32)[train_rows]) for a in (dataset.X, dataset.y))
        self.loader = DataLoader(TensorDataset(X, y), batch_size=config.batch_size, shuffle=True)
        self.model = ResidualMLP(X.shape[1], config.d_model, config.n_blocks, config.expansion).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.device = device

    def epoch(self) -> float:
        """Train for one epoch and return the sum of losses, which waits for the device at every step."""
        total = 0.0
        for X, y in self.loader:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(X.to(self.device)), y.to(self.device))
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(y)
        return total


def probing(dataset: pl.Dataset, config: TrainConfig, device: torch.device) -> Row:
    model = ResidualMLP(dataset.recipe.dim, config.d_model, config.n_blocks, seed=0)
    recorded = activations(model, dataset.X, device=str(device))
    result, ours = clocked(lambda: probes(dataset, recorded, ProbeConfig(protocols=("random",)), device=str(device)))
    _, both = clocked(lambda: probes(dataset, recorded, ProbeConfig(), device=str(device)))
    counts = result.per_depth[result.per_depth["target"] == "z"]
    A = recorded["blocks.0.hidden"].cpu().numpy()[: int(counts["n_train"].max())]
    t = np.random.default_rng(0).standard_normal(len(A))
    _, one = clocked(lambda: Ridge(alpha=1.0).fit(A, t))
    # Cost grows as rows x width²; two targets.
    widths = {"raw": dataset.recipe.dim, **{name: part.shape[1] for name, part in recorded.items()}}
    work = sum(n * widths[name] ** 2 for name, n in zip(counts["representation"], counts["n_train"], strict=True))
    theirs = 2 * one * work / (len(A) * A.shape[1] ** 2)
    print(f"probes: {ours:.2f} s, with held-out subtrees too: {both:.2f} s")
    target = "under 30 s on a GPU, 5 min on 2 cores"
    name = f"probes, {counts['depth'].nunique()} depths x {len(widths)} representations"
    return Row(name, "scikit-learn Ridge, one fit scaled up", ours, theirs, ours / theirs, target, {"both_s": both})


def neighbours(dataset: pl.Dataset, device: torch.device, full: bool) -> Row:
    X = torch.tensor(dataset.X, device=device)
    nearest_neighbours(X[:1000])
    _, ours = clocked(lambda: nearest_neighbours(X))
    array = np.asarray(dataset.X)
    share = 0.01 if full else 0.1
    search = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(array)
    _, part = clocked(lambda: search.kneighbors(array[: int(share * len(array))]))
    target = "under 2 s on one H200" if full else ""
    name = f"1NN, {len(array):,} points"
    return Row(
        name, f"scikit-learn brute force, {share:.0%} scaled up", ours, part / share, ours * share / part, target
    )


if __name__ == "__main__":
    main()
