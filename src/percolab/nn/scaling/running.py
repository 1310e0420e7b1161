"""Scaling: how the test error falls with the number of training rows and with the width of the network.

Test rows are the same throughout. Training rows are nested: a chain is a random order of all others, and n rows are its
first n. Each seed has a chain and a network of its own. All networks take the same number of steps.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.progress import Progress
from percolab.model.recipe import Recipe
from percolab.nn.config import TrainConfig
from percolab.nn.frame import page
from percolab.nn.frame.frame import Arrays, Frame, opened
from percolab.nn.frame.table import Row, row
from percolab.nn.intervals import Estimate, jackknife, kin, mean_interval
from percolab.nn.networks.device import Device, on_device
from percolab.nn.networks.model import predict
from percolab.nn.scaling import report
from percolab.nn.scaling.settings import ScalingSettings
from percolab.nn.training.training import train_ensemble
from percolab.worlds.splits import Split, split_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIED = 1e-6
"""Relative difference of distances that counts as none."""
BLOCK_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31}


# ---------------------------------------------------------------------- statistics


def exponent(x: Floats, errors: Floats, blocks: Ints) -> Estimate:
    """Return the slope of log mean error on log x by least squares, leaving out seeds and blocks of kin in turn.

    Parameters
    ----------
    x
        (N,) numbers of rows or of parameters.
    errors
        (S, N, T) squared errors by seed and test row.
    blocks
        (T,) blocks of kin among the test rows.
    """
    logs = np.log(x) - np.log(x).mean()

    def statistic(seeds: Ints, rows: Ints) -> float:
        mean = errors[seeds][:, :, rows].mean((0, 2))
        return float(logs @ np.log(np.maximum(mean, 1e-300)) / (logs @ logs))

    return jackknife(statistic, len(errors), blocks)


def nearest_errors(X: torch.Tensor, y: Floats, train: Ints, test: Ints, block_bytes: int | None = None) -> Floats:
    """Return the squared error of every test row predicted by the nearest training row; of ties, the mean.

    All bonds have one length, so nearest rows tie: those within a relative 1e-6 of the least distance all count.
    """
    X = X.double()
    X = X - X.mean(0)
    others, square = X[torch.from_numpy(train).to(X.device)], (X * X).sum(1)
    target = torch.from_numpy(y).to(X.device, torch.float64)
    known = target[torch.from_numpy(train).to(X.device)]
    step = max(1, (block_bytes or BLOCK_BYTES[X.device.type]) // (8 * max(1, train.size)))
    parts = []
    for rows in torch.from_numpy(test).to(X.device).split(step):
        squared = square[rows, None] + (others * others).sum(1) - 2 * X[rows] @ others.T
        squared.clamp_(min=0)
        least = squared.min(1, keepdim=True).values
        tied = (squared <= least * (1 + TIED) ** 2).double()
        count = tied.sum(1)
        first, second = tied @ known / count, tied @ known**2 / count
        wanted = target[rows]
        parts.append(second - 2 * wanted * first + wanted**2)  # the mean of (y - known)² over ties
    found: Floats = torch.cat(parts).clamp(min=0).cpu().numpy()
    return found


def sizes(least: int, most: int) -> Ints:
    """Return least, twice that, and so on below `most`, and `most` itself."""
    doubling = least * 2 ** np.arange(max(0, int(np.log2(max(1.0, (most - 1) / least)))) + 1)
    return np.append(doubling[doubling < most], most)


# ---------------------------------------------------------------------- the experiment


def scaling(
    chosen: ScalingSettings,
    output: str | os.PathLike[str],
    *,
    device: Device = "auto",
    overwrite: bool = False,
    progress: bool | Progress = False,
) -> dict[str, Any]:
    """Measure how errors scale, resuming what is in `output`; return all its numbers.

    Parameters
    ----------
    chosen
        From `scaling_settings`.
    output, device, overwrite, progress
        As for `percolab.nn.reproduce`.
    """
    with opened(Frame[ScalingSettings], chosen, output, device=device, overwrite=overwrite, progress=progress) as frame:
        return _run(frame)


def _run(frame: Frame[ScalingSettings]) -> dict[str, Any]:
    s, tell, found = frame.settings, frame.progress, {}
    for name, recipe in zip(s.data, s.recipes, strict=True):
        make = partial(_measure, recipe, s, frame.device, tell)
        found[name] = frame.arrays(name, {**s.to_dict(), "of": name}, make)
    begun = time.perf_counter()
    rows = [row for name, own in found.items() for row in analyse(own, name)]
    networks = sum(s.seeds * (own["n"].size + own["width"].size - 1) for own in found.values())
    answers = page.Answers(rows, report.headline(rows), {"networks": networks}, report.WORDS)
    return page.publish(frame, "scaling", answers, report.draw(rows), begun=begun)


def _measure(recipe: Recipe, s: ScalingSettings, device: torch.device, progress: Progress) -> Arrays:
    return measure(generate(recipe, progress=progress), s, device, progress)


def measure(dataset: Dataset, s: ScalingSettings, device: torch.device, progress: Progress) -> Arrays:
    """Return squared errors (S, N, T) on the test rows: 1NN and network by rows, network by width."""
    usual = split_rows(dataset, s.training.seeds.split)
    test, pool = np.sort(usual.test), np.sort(usual.train)
    validation = usual.validation[: s.validation_rows]
    chains = [np.random.default_rng((seed, 5)).permutation(pool) for seed in range(s.seeds)]
    X = on_device("X", dataset.X, device, torch.float32)
    counts = sizes(s.least_rows, pool.size)
    jobs = [(int(n), s.training.d_model) for n in counts] + [(pool.size, w) for w in s.widths]
    jobs = list(dict.fromkeys(jobs))  # the widest may be among the first already
    network: dict[tuple[int, int], Floats] = {}
    fitted: dict[tuple[int, int], list[float]] = {}
    for done, (n, width) in enumerate(jobs):
        progress("training", done, len(jobs))
        config = replace(s.training, d_model=width, epochs=s.epochs(n))
        splits = [Split(chain[:n], validation, test) for chain in chains]
        results = train_ensemble(dataset, config.with_seeds(range(s.seeds)), split=splits, device=device)
        network[n, width] = np.stack([_errors(result.model, X, dataset.y, test) for result in results])
        fitted[n, width] = [float(result.history["train_loss"].iloc[-1]) for result in results]
    progress("training", len(jobs), len(jobs))
    nearest = np.stack([[nearest_errors(X, dataset.y, np.sort(chain[:n]), test) for n in counts] for chain in chains])
    return {
        "n": counts,
        "width": np.array(s.widths),
        "parameters": np.array([_parameters(dataset.X.shape[1], replace(s.training, d_model=w)) for w in s.widths]),
        "test": test,
        "variance": np.array(float(dataset.y[test].var())),
        "nearest": nearest.astype(np.float32),
        "training": np.array([fitted[int(n), s.training.d_model] for n in counts]).T,
        "training_width": np.array([fitted[pool.size, w] for w in s.widths]).T,
        "network": np.stack([network[int(n), s.training.d_model] for n in counts], 1).astype(np.float32),
        "network_width": np.stack([network[pool.size, w] for w in s.widths], 1).astype(np.float32),
    }


def _errors(model: nn.Module, X: torch.Tensor, y: Floats, test: Ints) -> Floats:
    """Return the squared errors of a network on the test rows."""
    predicted = predict(model, X[torch.from_numpy(test).to(X.device)]).double().cpu().numpy()
    errors: Floats = (predicted - y[test]) ** 2
    return errors


def _parameters(dim: int, config: TrainConfig) -> int:
    """Return the number of parameters of the network of a configuration."""
    d, hidden = config.d_model, config.expansion * config.d_model
    return (dim + 1) * d + config.n_blocks * ((d + 1) * hidden + (hidden + 1) * d) + d + 1


def analyse(found: Arrays, data: str) -> list[Row]:
    """Return errors with intervals, and exponents: over all, and between neighbouring numbers of rows."""
    blocks = kin(found["test"])
    rows: list[Row] = []
    cases = (
        ("nearest", "1NN", "n", found["n"]),
        ("network", "network", "n", found["n"]),
        ("network_width", "network", "parameters", found["parameters"]),
    )
    for key, model, axis, x in cases:
        errors = found[key].astype(np.float64)
        told = {"data": data, "model": model, "axis": axis}
        for i, at in enumerate(x):
            rows.append(row(mean_interval(errors[:, i], blocks), part="error", at=int(at), **told))
            if model == "network":
                fitted = found[key.replace("network", "training")][:, i, None]
                rows.append(row(mean_interval(fitted), part="training error", at=int(at), **told))
        rows.append(row(exponent(x.astype(float), errors, blocks), part="exponent", **told))
        upper = max(2, -(-len(x) // 2))
        rows.append(row(exponent(x[-upper:].astype(float), errors[:, -upper:], blocks), part="upper half", **told))
    rows.append({"data": data, "part": "variance", **mean_interval(found["variance"].reshape(1, 1)).to_dict()})
    return rows
