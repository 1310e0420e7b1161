"""Linear probes: how well a representation gives the value of a point's latent at each depth.

At each depth the activations of its training rows are standardised and a ridge regression is fitted for each target;
`ridge` does it for all depths at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas
import torch

from percolab.dataset.dataset import Dataset
from percolab.ground.progress import Progress, shown
from percolab.nn.config import ProbeConfig
from percolab.nn.device import Device, choose_device, on_device
from percolab.nn.probe_rows import (
    LATENT_TARGETS,
    TARGETS,
    HoldOut,
    ProbeRows,
    probe_rows,
    random_points,
    whole_subtrees,
)
from percolab.nn.recording import RAW
from percolab.nn.ridge import CHUNK_ROWS, ridge_by_level

K = len(TARGETS)


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Tidy tables of probe errors."""

    per_latent: pandas.DataFrame
    """protocol, target, representation, depth, latent, s_latent, s_cluster, FOM, n_validation, MSE, baseline"""
    per_depth: pandas.DataFrame
    """protocol, target, representation, depth, n_train, n_validation, n_latents, MSE, R2, mean_MSE"""
    skipped: tuple[str, ...]
    """what could not be probed, each in a sentence"""
    seconds: dict[str, float] = field(default_factory=dict)
    """time by representation"""


def probes(
    dataset: Dataset,
    activations: Mapping[str, Any],
    config: ProbeConfig | None = None,
    *,
    raw: bool = True,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> ProbeResult:
    """Fit and score linear probes on any representations of a dataset's points.

    Protocol ``"random"`` is the paper's: points are held out at random, so every latent has points on both sides
    and a probe may learn where each latent is. Protocol ``"subtree"`` holds out whole subtrees, so a probe is scored on
    latents none of whose points it has seen. Besides z and its sum, three controls are fitted: see
    `percolab.nn.probe_rows.TARGETS`.

    Parameters
    ----------
    dataset
        Any dataset.
    activations
        Arrays or tensors (n, width) by name, rows as in the dataset; see `percolab.nn.activations`.
    config
        See `ProbeConfig`.
    raw
        Whether to probe X itself too, under the name ``"raw"``.
    device
        Where to compute.
    progress
        True shows a bar; a function is called with ("probes", fits done, fits in all), a fit being of one
        representation with one way of holding rows out.
    """
    config = config or ProbeConfig()
    device = choose_device(device)
    sources: dict[str, Any] = {RAW: dataset.X, **activations} if raw else dict(activations)
    for name, values in sources.items():
        if len(values.shape) != 2 or len(values) != len(dataset):
            shape = tuple(values.shape)
            raise ValueError(f"activations[{name!r}] must have shape ({len(dataset)}, width), got {shape}")
    rows = probe_rows(dataset, np.array(config.depths, np.int64), config.min_latent_size, config.seed)
    plans, skipped = _plans(dataset, rows, config, device)
    done, total, seconds = 0, len(sources) * len(plans), {}
    with shown(progress) as tell:
        for name, values in sources.items():
            start = time.perf_counter()
            A = on_device(f"activations[{name!r}]" if name != RAW else "X", values, device, torch.float32)
            for _, plan in plans:
                tell("probes", done, total)
                plan.add(name, A, config.alpha)
                done += 1
            seconds[name] = time.perf_counter() - start
        tell("probes", total, total)
    return ProbeResult(_per_latent(plans, dataset, rows), _per_depth(plans, rows), tuple(skipped), seconds)


def _plans(
    dataset: Dataset, rows: ProbeRows, config: ProbeConfig, device: torch.device
) -> tuple[list[tuple[str, _Plan]], list[str]]:
    """Return the ways of holding rows out, each with its protocol, and what cannot be probed, each in a sentence."""
    skipped = []
    if rows.skipped.size:  # a latent's ancestors are at least as large, so these are the last depths
        skipped.append(f"from depth {rows.skipped[0]} on no latent has {config.min_latent_size} points")
    plans: list[tuple[str, _Plan]] = []
    for protocol in config.protocols:
        if protocol == "random":
            held = [random_points(rows, config.train_share, config.seed)]
        else:
            held = whole_subtrees(dataset.forest, rows, config.min_latent_size, config.folds)
            if not held:
                skipped.append(f"no subtree of at least {config.min_latent_size} points can be held out")
        plans += [(protocol, _Plan(dataset, rows, hold_out, device)) for hold_out in held]
    return plans, skipped


# ---------------------------------------------------------------------- one way of holding out


class _Plan:
    """Rows to fit and rows to score, on the device, and the errors found so far."""

    def __init__(self, dataset: Dataset, rows: ProbeRows, held: HoldOut, device: torch.device) -> None:
        J = rows.depths.size
        self.shape = (J, K)
        flat = rows.targets.reshape(len(dataset), J * K)
        self.targets = torch.from_numpy(flat).to(device)
        order = [np.flatnonzero(held.train & (rows.level == j)) for j in range(J)]
        self.train_rows = [torch.from_numpy(part).to(device) for part in order]
        self.n_train = np.cumsum([part.size for part in order[::-1]])[::-1]
        self.held_rows = np.flatnonzero(held.held_out)
        forest = dataset.forest
        start, size = forest.latent_start[rows.latent], forest.latent_size[rows.latent]
        lo, hi = np.searchsorted(self.held_rows, start), np.searchsorted(self.held_rows, start + size)
        # A latent counts from the depth on at which all its points are held out alike; see `HoldOut`.
        counts = (hi > lo) & (held.first_index[start] <= rows.depth_index) & (self.n_train[rows.depth_index] > 1)
        if held.first_index.any():
            counts &= held.held_out[start]
        self.scored = np.flatnonzero(counts)
        self.n = (hi - lo)[self.scored]
        self.at = tuple(torch.from_numpy(a[self.scored]).to(device) for a in (lo, hi, rows.depth_index))
        held_targets = self.targets[torch.from_numpy(self.held_rows).to(device)].double()
        self.sum = self._by_latent(held_targets)
        self.squares = self._by_latent(held_targets**2)
        self.held_targets = held_targets
        self.errors: dict[str, Any] = {}
        self.train_mean: Any = None

    def _by_latent(self, values: torch.Tensor) -> Any:
        """Return (latents, K) sums over each scored latent's held-out rows: a difference of running sums."""
        lo, hi, j = self.at
        running = torch.zeros(len(values) + 1, values.shape[1], dtype=torch.float64, device=values.device)
        torch.cumsum(values, 0, out=running[1:])
        running = running.view(-1, *self.shape)
        return (running[hi, j] - running[lo, j]).cpu().numpy()

    def add(self, name: str, A: torch.Tensor, alpha: float) -> None:
        """Fit the probes of all depths and targets on a representation; keep the squared errors by latent."""
        weight, bias, mean = ridge_by_level(A, self.targets, self.train_rows, alpha)
        self.train_mean = mean.view(self.shape).cpu().numpy()
        held = torch.from_numpy(self.held_rows).to(A.device)
        squared = torch.empty_like(self.held_targets)
        first = 0
        for part in held.split(CHUNK_ROWS[A.device.type]):
            here = slice(first, first + len(part))
            squared[here] = (A[part].double() @ weight + bias - self.held_targets[here]) ** 2
            first += len(part)
        self.errors[name] = self._by_latent(squared)


# ---------------------------------------------------------------------- tables


def _per_latent(plans: list[tuple[str, _Plan]], dataset: Dataset, rows: ProbeRows) -> pandas.DataFrame:
    forest = dataset.forest
    parts = []
    for protocol, plan in plans:
        latent, j = rows.latent[plan.scored], rows.depth_index[plan.scored]
        for name, errors in plan.errors.items():
            for k, target in enumerate(LATENT_TARGETS):
                value = plan.sum[:, k] / plan.n  # the same for all rows of a latent
                parts.append(
                    pandas.DataFrame(
                        {
                            "protocol": protocol,
                            "target": target,
                            "representation": name,
                            "depth": rows.depths[j],
                            "latent": latent,
                            "s_latent": forest.latent_size[latent],
                            "s_cluster": forest.cluster_size[forest.latent_cluster[latent]],
                            "FOM": forest.figure_of_merit[latent],
                            "n_validation": plan.n,
                            "MSE": errors[:, k] / plan.n,
                            "baseline": (plan.train_mean[j, k] - value) ** 2,
                        }
                    )
                )
    return pandas.concat(parts, ignore_index=True)


def _per_depth(plans: list[tuple[str, _Plan]], rows: ProbeRows) -> pandas.DataFrame:
    J = rows.depths.size

    def by_depth(plan: _Plan, values: Any) -> Any:
        return np.stack(
            [np.bincount(rows.depth_index[plan.scored], column, J) for column in np.atleast_2d(values.T)], -1
        )

    parts = []
    for protocol in dict.fromkeys(name for name, _ in plans):
        own = [plan for name, plan in plans if name == protocol]
        n = sum(by_depth(plan, plan.n) for plan in own)
        total, squares = (sum(by_depth(plan, getattr(plan, field)) for plan in own) for field in ("sum", "squares"))
        latents = sum(by_depth(plan, np.ones(plan.scored.size)) for plan in own)
        # Squares of the mean predictor, from the moments: Σ (t - m)² = Σ t² - 2 m Σ t + n m².
        mean_squares = sum(
            by_depth(plan, plan.squares)
            - 2 * plan.train_mean * by_depth(plan, plan.sum)
            + by_depth(plan, plan.n) * plan.train_mean**2
            for plan in own
        )
        n_train = np.mean([plan.n_train for plan in own], 0).astype(np.int64)
        there = np.flatnonzero(n[:, 0] > 0)
        for name in own[0].errors:
            errors = sum(by_depth(plan, plan.errors[name]) for plan in own)
            for k, target in enumerate(TARGETS):
                spread = squares[there, k] - total[there, k] ** 2 / n[there, 0]
                constant = spread <= 1e-12 * np.maximum(squares[there, k], 1)
                parts.append(
                    pandas.DataFrame(
                        {
                            "protocol": protocol,
                            "target": target,
                            "representation": name,
                            "depth": rows.depths[there],
                            "n_train": n_train[there],
                            "n_validation": n[there, 0].astype(np.int64),
                            "n_latents": latents[there, 0].astype(np.int64),
                            "MSE": errors[there, k] / n[there, 0],
                            "R2": np.where(constant, np.nan, 1 - errors[there, k] / np.where(constant, 1, spread)),
                            "mean_MSE": np.maximum(mean_squares[there, k], 0) / n[there, 0],
                        }
                    )
                )
    return pandas.concat(parts, ignore_index=True)
