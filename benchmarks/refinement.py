"""How a native dataset changes as it grows: bonds that move, and how well positions and targets are kept.

    python benchmarks/refinement.py

A bond of the smaller dataset has moved if, in the larger one, one of its ends is no longer at the place (the point, or
the latent that the point became) where it was. Positions are compared as they are, and rescaled so that bonds have the
same length in both: each point of the smaller dataset is predicted by its nearest neighbour in the larger one, and R²
is that of its target.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.neighbors import NearestNeighbors

import percolab as pl


def moved(small: pl.Forest, large: pl.Forest) -> int:
    """Count the bonds of the small forest that moved."""
    (small_latents, small_points), (large_latents, large_points) = (
        pl.engines.node_paths(small),
        pl.engines.node_paths(large),
    )
    by_path = np.argsort(large_latents)
    latent = by_path[np.searchsorted(large_latents[by_path], small_latents)]
    # The interval of rows of the large forest that each point of the small one became.
    start, size = np.empty(small.n_points, np.int64), np.ones(small.n_points, np.int64)
    order = np.argsort(large_points)
    at = np.minimum(np.searchsorted(large_points[order], small_points), order.size - 1)
    stayed = large_points[order[at]] == small_points
    start[stayed] = order[at[stayed]]
    grown = by_path[np.searchsorted(large_latents[by_path], small_points[~stayed])]
    start[~stayed], size[~stayed] = large.latent_start[grown], large.latent_size[grown]
    low, ends = start[small.bond], large.bond[latent]
    kept = (low <= ends) & (ends < low + size[small.bond])
    return int(np.count_nonzero(~kept.all(axis=1)))


def predicted(small: pl.Dataset, large: pl.Dataset, scale: float) -> float:
    """Return the R² of the small dataset's y, predicted by the nearest point of the large one, scaled."""
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(np.asarray(large.X) * scale)
    found = large.y[nearest.kneighbors(np.asarray(small.X), return_distance=False)[:, 0]]
    return 1 - float(np.mean((found - small.y) ** 2) / small.y.var())


def main() -> None:
    table = Table(title="bonds that move")
    for heading in ("n", "to n + 1, bonds (mean of 40)", "to 2n, share of bonds (seeds 0 to 7)"):
        table.add_column(heading, justify="right")
    for n in (300, 3000, 30_000, 300_000):
        by_one = [moved(pl.engines.split_forest(n + k, 1), pl.engines.split_forest(n + k + 1, 1)) for k in range(40)]
        doubled = [
            moved(pl.engines.split_forest(n, seed), pl.engines.split_forest(2 * n, seed)) / n for seed in range(8)
        ]
        spread = f"{np.mean(doubled):.3f} ({min(doubled):.3f} to {max(doubled):.3f})"
        table.add_row(f"{n:,}", f"{np.mean(by_one):.2f}", spread)
    Console().print(table)
    table = Table(title="R² of y of n points predicted by the nearest of m points, d = 50, one cluster (seeds 0 to 4)")
    for heading in ("n", "m", "same seeds", "same seeds, rescaled", "other seeds"):
        table.add_column(heading, justify="right")
    for n, m in ((2000, 2001), (2000, 2020), (2000, 2200), (2000, 4000), (2000, 20_000)):
        columns = []
        for shift, rescaled in ((0, False), (0, True), (1000, False)):
            scores = []
            for seed in range(5):
                small = pl.generate(pl.Recipe(n, 50, "one_cluster", seeds=seed, engine="native"))
                large = pl.generate(pl.Recipe(m, 50, "one_cluster", seeds=seed + shift, engine="native"))
                scores.append(predicted(small, large, small.recipe.step / large.recipe.step if rescaled else 1.0))
            columns.append(f"{np.mean(scores):.2f} ({min(scores):.2f} to {max(scores):.2f})")
        table.add_row(f"{n:,}", f"{m:,}", *columns)
    Console().print(table)


if __name__ == "__main__":
    main()
