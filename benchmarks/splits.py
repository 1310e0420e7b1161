"""What a split asks of a method: how near test rows are to training rows, what a margin costs, and how scores change.

    python benchmarks/splits.py [--n-points 10000] [--dim 50] [--epochs 30] [--seeds 2] [--clusters]

The first table needs no data but the tree: the share of test rows with a bond to a training row, and the share of
training rows that a margin of 1, 3 or 10 bonds leaves out. The second scores, on the test rows, ridge regression (alpha
1), the nearest training row, and the paper's network (d_model 64, 3 blocks, AdamW at 1e-3 with cosine decay); with
--clusters also on data of many clusters. A few minutes on one core.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsRegressor

import percolab as pl
from percolab.nn import ResidualMLP

MARGINS = (1, 3, 10)
BATCH = 256


def main() -> None:
    options = argparse.ArgumentParser()
    for name, default in (("--n-points", 10_000), ("--dim", 50), ("--epochs", 30), ("--seeds", 2)):
        options.add_argument(name, type=int, default=default)
    options.add_argument("--clusters", action="store_true")
    chosen = options.parse_args()
    Console(width=130).print(nearness(200_000, chosen.seeds))
    scores(chosen.n_points, chosen.dim, chosen.epochs, chosen.seeds, chosen.clusters)


def nearness(n: int, seeds: int) -> Table:
    """Return how many test rows touch training rows, by split, in single clusters of n points."""
    table = Table(title=f"one cluster of {n:,} points, means of {seeds} trees")
    headings = ["split", "groups", "test rows at 1 bond from training", "at most 3 bonds"]
    for heading in [*headings, *(f"left out by margin {m}" for m in MARGINS)]:
        table.add_column(heading, justify="right")
    forests = [pl.engines.split_forest(n, seed) for seed in range(seeds)]
    splits: list[dict[str, Any]] = [{}, *({"by": "subtree", "max_size": size} for size in (10, 100, 1000, 10_000))]
    for options in splits:
        found = []
        for seed, forest in enumerate(forests):
            split = pl.split_rows(forest, seed, **options)
            bonds = split.bonds_to_training(forest)
            held_out = np.concatenate([split.validation, split.test])
            back = forest.distance_to(held_out)[split.train]
            lost = [np.mean((back >= 0) & (back <= margin)) for margin in MARGINS]
            found.append(
                [np.unique(split.groups).size, np.mean(bonds == 1), np.mean((bonds > 0) & (bonds <= 3)), *lost]
            )
        count, *shares = np.mean(found, axis=0)
        table.add_row(name_of(options), f"{count:,.0f}", *(f"{share:.1%}" for share in shares))
    return table


def scores(n: int, dim: int, epochs: int, seeds: int, clusters: bool) -> None:
    """Print the R² of three methods on the test rows, by split, each line when it is known."""
    print(f"R² on test rows, {n:,} points in {dim} dimensions, {epochs} epochs: mean (least to most) of {seeds} seeds")
    print(f"{'data':14}{'split':36}" + "".join(f"{name:>26}" for name in ("ridge", "nearest row", "network")))
    one, many = {"mode": "one_cluster"}, {"mode": "distribution", "min_cluster_size": max(2, n // 500)}
    subtrees = [{"by": "subtree", "max_size": size} for size in (200, 1000)]
    asked = [(one, options) for options in ({}, *subtrees, {**subtrees[0], "margin": 3})]
    if clusters:
        asked += [(many, options) for options in ({}, subtrees[0], {"by": "cluster"})]
    for recipe, options in asked:
        found = []
        for seed in range(seeds):
            dataset = pl.make_percolation(n if recipe is one else 10 * n, dim, random_state=seed, **recipe)
            found.append(score(dataset, pl.split_rows(dataset, seed, **options), epochs, seed))
        columns = [f"{column.mean():.2f} ({column.min():.2f} to {column.max():.2f})" for column in np.array(found).T]
        print(f"{recipe['mode']:14}{name_of(options):36}" + "".join(f"{cell:>26}" for cell in columns), flush=True)


def name_of(options: dict[str, Any]) -> str:
    """Return a split in words."""
    name = options.get("by", "rows")
    size = f" of at most {options['max_size']:,}" if "max_size" in options else ""
    margin = f", margin {options['margin']}" if "margin" in options else ""
    return name + size + margin


def score(dataset: pl.Dataset, split: pl.Split, epochs: int, seed: int) -> list[float]:
    """Return the R² of ridge, nearest neighbour and network on the test rows."""
    X, y = np.asarray(dataset.X, np.float32), dataset.y
    truth = y[split.test]
    fitted = [model.fit(X[split.train], y[split.train]) for model in (Ridge(), KNeighborsRegressor(1))]
    network = trained(X[split.train], y[split.train], epochs, seed)
    with torch.no_grad():
        guess = network(torch.from_numpy(X[split.test])).numpy()
    return [float(r2_score(truth, p)) for p in (*(model.predict(X[split.test]) for model in fitted), guess)]


def trained(X: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> torch.nn.Module:
    """Return the network after this many passes over the training rows."""
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y.astype(np.float32))
    network = ResidualMLP(X.shape[1], 64, 3, seed=seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=generator).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(network(inputs[rows]), targets[rows]).backward()
            optimizer.step()
        schedule.step()
    return network


if __name__ == "__main__":
    main()
