"""k-means on a GPU, which scikit-learn does not use: k-means++ (Arthur and Vassilvitskii 2007), then Lloyd's steps.

The same seed gives the same clusters on the same machine. Nothing imports this module until a GPU is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

BLOCK_CELLS = 1 << 28
"""Distances that are held at once."""
TOLERANCE = 1e-4
"""Steps end when centres have moved by less than this share of the variance of the rows, as in scikit-learn."""


def as_rows(activations: Any, device: torch.device) -> torch.Tensor:
    """Return activations, an array or a tensor, as a tensor on the device, float32."""
    values = activations if isinstance(activations, torch.Tensor) else np.require(activations, requirements="W")
    return torch.as_tensor(values).to(device, torch.float32)


def fit(values: torch.Tensor, n_clusters: int, seed: int, iterations: int) -> torch.Tensor:
    """Return (clusters, d) centres of rows (n, d)."""
    mean = values.mean(0)
    rows = values - mean  # distances from products lose digits to a large mean
    generator = torch.Generator(values.device).manual_seed(seed)
    centres = plus_plus(rows, n_clusters, generator)
    limit = TOLERANCE * float(rows.var(0, correction=0).mean())
    for _ in range(iterations):
        moved = _means(rows, nearest(rows, centres)[:, 0], centres)
        shift = float((moved - centres).square().sum())
        centres = moved
        if shift <= limit:
            break
    return centres + mean


def plus_plus(rows: torch.Tensor, n_clusters: int, generator: torch.Generator) -> torch.Tensor:
    """Return rows as first centres, each drawn by its squared distance from the nearest one before it."""
    chosen = torch.empty(n_clusters, dtype=torch.int64, device=rows.device)
    chosen[0] = torch.randint(len(rows), (), generator=generator, device=rows.device)
    distance = torch.full((len(rows),), torch.inf, device=rows.device)
    draws = torch.rand(n_clusters, generator=generator, device=rows.device, dtype=torch.float64)
    for i in range(1, n_clusters):
        distance = torch.minimum(distance, (rows - rows[chosen[i - 1]]).square().sum(1))
        total = distance.double().cumsum(0)
        chosen[i] = torch.searchsorted(total, draws[i] * total[-1]).clamp(max=len(rows) - 1)
    return rows[chosen]


def nearest(rows: torch.Tensor, centres: torch.Tensor, k: int = 1) -> torch.Tensor:
    """Return (n, k) the nearest centres of each row; of one, the lowest of equals."""
    squares = centres.square().sum(1)
    step = max(1, BLOCK_CELLS // len(centres))
    distances = (torch.addmm(squares, part, centres.T, alpha=-2) for part in rows.split(step))
    if k == 1:
        return torch.cat([part.argmin(1, keepdim=True) for part in distances])
    return torch.cat([part.topk(k, largest=False).indices for part in distances])


def _means(rows: torch.Tensor, cluster: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return the mean of each cluster's rows, and the centre as it is where there are none.

    Sums over sorted rows are the same every time, unlike sums that many threads add to.
    """
    counts = torch.bincount(cluster, minlength=len(centres))
    sums = torch.segment_reduce(rows[cluster.argsort(stable=True)], "sum", lengths=counts)
    return torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
