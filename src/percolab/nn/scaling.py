"""Scaling: how the test error falls with the number of training rows and with the width of the network.

Test rows are the same throughout. Training rows are nested: a chain is a random order of all others, and n rows are its
first n. Each seed has a chain and a network of its own. All networks take the same number of steps.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.files import replacing, write_json
from percolab.ground.progress import Progress, shown
from percolab.ground.version import provenance
from percolab.nn import figures, run, scaling_page
from percolab.nn.config import TrainConfig
from percolab.nn.device import Device, choose_device, device_name, on_device
from percolab.nn.intervals import Estimate, jackknife, kin, mean_interval
from percolab.nn.model import predict
from percolab.nn.represent import page
from percolab.nn.represent.work import Row, row
from percolab.nn.scaling_settings import ScalingSettings
from percolab.nn.split import Split, split_rows
from percolab.nn.stages import Stages, claim
from percolab.nn.training import train_ensemble

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PACKAGES = (*run.PACKAGES, "scikit-learn", "pandas")
REPORT, RESULTS = "report.html", "results.json"
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
    output
        Directory; it must be empty, new, or hold the same experiment.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    overwrite
        Start again where `output` holds another experiment.
    progress
        True shows bars; a function is called with (stage, done, total).
    """
    place, directory = choose_device(device), Path(output)
    claim(directory, chosen.to_dict(), overwrite=overwrite)
    with shown(progress) as tell:
        return _run(chosen, directory, place, tell)


def _run(s: ScalingSettings, output: Path, device: torch.device, progress: Progress) -> dict[str, Any]:
    stages, rows = Stages(output, progress), []
    networks = 0
    for name, recipe in zip(s.data, s.recipes, strict=True):
        made_from = {**s.to_dict(), "of": name}
        file = f"{name}.npz"

        def make(recipe: Any = recipe, file: str = file) -> dict[str, Any]:
            found = measure(generate(recipe, progress=progress), s, device, progress)
            with replacing(output / file) as partial, partial.open("wb") as out:
                np.savez_compressed(out, **found)  # type: ignore[arg-type]
            return {key: list(values.shape) for key, values in found.items()}

        stages.run(name, made_from, make, [file])
        with np.load(output / file) as kept:
            own = analyse(dict(kept), name)
            networks += s.seeds * (kept["n"].size + kept["width"].size - 1)
        rows += own
    start = time.perf_counter()
    drawn = scaling_page.draw(rows)
    (output / "figures").mkdir(exist_ok=True)
    figures.write(drawn, output / "figures", progress)
    headline = scaling_page.headline(rows)
    results = {
        "experiment": "scaling",
        "scale": s.scale,
        "command": s.command,
        "headline": [line.to_dict() for line in headline],
        "estimates": rows,
        "training": {"networks": networks},
        "settings": s.to_dict(),
        "seconds": {**stages.seconds, "report": time.perf_counter() - start},
        "provenance": provenance(PACKAGES, device=device_name(device)),
    }
    images = {name: (output / "figures" / f"{name}.png").read_bytes() for name in drawn}
    with replacing(output / REPORT) as partial:
        partial.write_bytes(page.make(results, scaling_page.WORDS, headline, images))
    write_json(output / RESULTS, results)
    progress("report", 1, 1)
    return results


def measure(dataset: Dataset, s: ScalingSettings, device: torch.device, progress: Progress) -> dict[str, NDArray[Any]]:
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


def analyse(found: dict[str, NDArray[Any]], data: str) -> list[Row]:
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
