"""Scaling: how the test error falls with the number of training rows and with the width of the network.

Test rows are the same throughout. Training rows are nested: a chain is a random order of all others, and n rows are its
first n. Each seed has a chain and a network of its own. All networks take the same number of steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import generate
from percolab.ground.progress import Progress
from percolab.intervals import Estimate, jackknife, kin, mean_interval
from percolab.model.recipe import Recipe
from percolab.nn.config import TrainConfig
from percolab.nn.frame import page
from percolab.nn.frame.frame import Arrays, Frame, opened
from percolab.nn.frame.resuming import TRAINING, forget, train_resumed
from percolab.nn.frame.table import Row, row
from percolab.nn.networks.device import Device, on_device
from percolab.nn.networks.model import predict
from percolab.nn.scaling import report
from percolab.nn.scaling.settings import ScalingSettings
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

    def statistic(seeds: Ints, rows: Ints) -> float:
        return _slope(x, errors[seeds][:, :, rows].mean((0, 2)))

    return jackknife(statistic, len(errors), blocks)


def bend(x: Floats, errors: Floats, blocks: Ints) -> Estimate:
    """Return the exponent over the upper half of the numbers less that over the lower half: 0 where one law holds."""
    half = _half(x)

    def statistic(seeds: Ints, rows: Ints) -> float:
        mean = errors[seeds][:, :, rows].mean((0, 2))
        return _slope(x[-half:], mean[-half:]) - _slope(x[:half], mean[:half])

    return jackknife(statistic, len(errors), blocks)


def _slope(x: Floats, y: Floats) -> float:
    """Return the slope of log y on log x by least squares."""
    logs = np.log(x) - np.log(x).mean()
    return float(logs @ np.log(np.maximum(y, 1e-300)) / (logs @ logs))


def _half(x: Floats) -> int:
    """Return how many numbers make a half; the middle one of an odd number is in both."""
    return max(2, -(-len(x) // 2))


def log_ratio(errors: Floats, others: Floats, blocks: Ints) -> Estimate:
    """Return the log ratio of two mean errors (S, T) on the same test rows, leaving out seeds and blocks in turn."""

    def statistic(seeds: Ints, rows: Ints) -> float:
        return float(np.log(errors[seeds][:, rows].mean() / others[seeds][:, rows].mean()))

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
    s, found = frame.settings, {}
    for name, recipe in zip(s.data, s.recipes, strict=True):
        found[name] = Measuring(frame, name, recipe).run()
    begun = time.perf_counter()
    rows = [row for name, own in found.items() for row in analyse(own, name)]
    networks = sum(s.seeds * (own["n"].size + own["width"].size - 1) for own in found.values())
    answers = page.Answers(rows, report.headline(rows), {"networks": networks}, report.WORDS)
    return page.publish(frame, "scaling", answers, report.draw(rows), begun=begun)


class Measuring:
    """What is measured on one dataset, in parts that are kept: the rows, 1NN, and the networks of each size."""

    def __init__(self, frame: Frame[ScalingSettings], name: str, recipe: Recipe) -> None:
        self.frame, self.settings, self.name, self.recipe = frame, frame.settings, name, recipe

    def run(self) -> Arrays:
        """Return squared errors (S, N, T) on the test rows: 1NN and network by rows, network by width."""
        s = self.settings
        rows = self._kept("rows", self._rows, least_rows=s.least_rows)
        counts, most = [int(n) for n in rows["n"]], int(rows["n"][-1])
        usual = [(n, s.training.d_model) for n in counts]
        wide = [(most, width) for width in s.widths]
        jobs = list(dict.fromkeys(usual + wide))  # the widest may be among the first already
        fitted = {}
        for done, (n, width) in enumerate(jobs):
            self.frame.progress(f"networks, {self.name}", done, len(jobs))
            make = partial(self._train, n, width)
            fitted[n, width] = self._kept(f"{n}x{width}", make, rows=n, width=width, steps=s.steps)
            forget(self.frame.output)
        self.frame.progress(f"networks, {self.name}", len(jobs), len(jobs))
        nearest = self._kept("nearest", lambda: self._nearest(counts), counts=counts)
        parts = ["rows", *(f"{n}x{width}" for n, width in jobs), "nearest"]
        self.frame.stages.join(self.name, [f"{self.name}/{part}" for part in parts])
        return {
            **rows,
            **nearest,
            "width": np.array(s.widths),
            "parameters": np.array([_parameters(int(rows["dim"]), replace(s.training, d_model=w)) for w in s.widths]),
            "training": np.stack([fitted[job]["training"] for job in usual], 1),
            "training_width": np.stack([fitted[job]["training"] for job in wide], 1),
            "network": np.stack([fitted[job]["errors"] for job in usual], 1),
            "network_width": np.stack([fitted[job]["errors"] for job in wide], 1),
        }

    def _kept(self, part: str, make: Callable[[], Arrays], **given: Any) -> Arrays:
        """Return a part: read, if it is there and made from the same things, else made."""
        values = self.settings.to_dict()
        shared = {name: values[name] for name in ("percolab", "training", "seeds", "validation_rows")}
        return self.frame.arrays(f"{self.name}/{part}", {**shared, "recipe": self.recipe.to_dict(), **given}, make)

    @cached_property
    def dataset(self) -> Dataset:
        """The data, made when a part is missing."""
        return generate(self.recipe, progress=self.frame.progress)

    @cached_property
    def inputs(self) -> torch.Tensor:
        """(n, d) X on the device."""
        return on_device("X", self.dataset.X, self.frame.device, torch.float32)

    @cached_property
    def split(self) -> Split:
        """Rows to train on, all of them, in order; some to look at; and to test, in order."""
        usual = split_rows(self.dataset, self.settings.training.seeds.split)
        return Split(np.sort(usual.train), usual.validation[: self.settings.validation_rows], np.sort(usual.test))

    @cached_property
    def chains(self) -> list[Ints]:
        """By seed, the rows to train on in a random order."""
        return [np.random.default_rng((seed, 5)).permutation(self.split.train) for seed in range(self.settings.seeds)]

    def _rows(self) -> Arrays:
        test = self.split.test
        return {
            "n": sizes(self.settings.least_rows, self.split.train.size),
            "test": test,
            "variance": np.array(float(self.dataset.y[test].var())),
            "dim": np.array(self.dataset.X.shape[1]),
        }

    def _train(self, n: int, width: int) -> Arrays:
        """Train networks of a width on the first n rows of each chain."""
        s, split = self.settings, self.split
        config = replace(s.training, d_model=width, epochs=s.epochs(n))
        results = train_resumed(
            self.frame.output / TRAINING / f"{self.name}-{n}x{width}",
            self.dataset,
            config.with_seeds(range(s.seeds)),
            split=[Split(chain[:n], split.validation, split.test) for chain in self.chains],
            device=self.frame.device,
        )
        errors = np.stack([_errors(result.model, self.inputs, self.dataset.y, split.test) for result in results])
        losses = np.array([float(result.history["train_loss"].iloc[-1]) for result in results])
        return {"errors": errors.astype(np.float32), "training": losses}

    def _nearest(self, counts: Sequence[int]) -> Arrays:
        X, y, test = self.inputs, self.dataset.y, self.split.test
        errors = [[nearest_errors(X, y, np.sort(chain[:n]), test) for n in counts] for chain in self.chains]
        return {"nearest": np.array(errors, np.float32)}


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
    """Return errors with intervals, and exponents: over all, over the upper half, and what it has beyond the lower."""
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
        numbers, half = x.astype(np.float64), _half(x)
        rows.append(row(exponent(numbers, errors, blocks), part="exponent", **told))
        rows.append(row(exponent(numbers[-half:], errors[:, -half:], blocks), part="upper half", **told))
        rows.append(row(bend(numbers, errors, blocks), part="upper less lower half", **told))
    pair = [found[key].astype(np.float64) for key in ("network", "nearest")]
    for i, at in enumerate(found["n"]):
        ratio = log_ratio(pair[0][:, i], pair[1][:, i], blocks)
        rows.append(row(ratio, part="network over 1NN", data=data, axis="n", at=int(at)))
    rows.append({"data": data, "part": "variance", **mean_interval(found["variance"].reshape(1, 1)).to_dict()})
    return rows
