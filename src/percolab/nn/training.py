"""Training, as in the paper: AdamW, cosine decay once an epoch, mean squared error, the last epoch's weights."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from torch import nn

from percolab.dataset.dataset import Dataset
from percolab.ground import files, text
from percolab.ground.progress import bar
from percolab.ground.version import provenance
from percolab.model.recipe import Recipe
from percolab.nn import checkpoint
from percolab.nn.config import TrainConfig
from percolab.nn.device import Device, choose_device, device_name, on_device, tf32
from percolab.nn.epoch import Epoch
from percolab.nn.model import ResidualMLP, check_fits, predict
from percolab.nn.progress import EpochProgress, by_epoch
from percolab.nn.scores import Score, r_squared, score
from percolab.nn.split import Split, split_rows

CHECKPOINT_SECONDS = 30.0
LOOK_SECONDS = 0.2
"""How often losses are fetched from the device; fetching waits for it."""
PACKAGES = ("torch", "numpy", "numba")
"""What decides about the numbers of a run."""


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model and how it got there."""

    model: nn.Module
    config: TrainConfig
    history: pandas.DataFrame
    """a row per epoch: epoch, lr, train_loss, train_r2, validation_loss, validation_r2"""
    validation: Score
    test: Score
    seconds: float
    """wall time of all epochs, the recording of the CUDA graph included, over all parts of a resumed run"""
    device: str


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training: the run stopped after a whole epoch, and can be resumed if it has a directory."""


def train(
    dataset: Dataset,
    config: TrainConfig | None = None,
    *,
    model: nn.Module | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: Device = "auto",
    graph: bool = True,
    progress: bool | EpochProgress = False,
) -> TrainResult:
    """Train a model on a dataset's y and score it on the test rows.

    All data stay on the device and no Python runs per sample; on CUDA an epoch is one CUDA graph. Batches are the same
    on any device. The same configuration gives the same weights on the same machine.

    Parameters
    ----------
    dataset
        Any dataset. Rows are split as in the paper, see `split_rows`.
    config
        See `TrainConfig`.
    model
        A module that maps (n, d) to n numbers, trained in place; None makes the `ResidualMLP` of the configuration.
    run_dir
        Directory for config.json, metrics.csv and checkpoint.pt; made if it is not there.
    resume
        Continue from the checkpoint in `run_dir`; the final weights are those of an uninterrupted run.
    overwrite
        Start again in a `run_dir` that holds a run.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    graph
        Whether to use a CUDA graph; False for models that decide what to do by looking at their data.
    progress
        True shows a bar; a function is called with (epoch, epochs, training loss, validation R²) after every epoch, in
        order, though some moments late.
    """
    config = config or TrainConfig()
    device = choose_device(device)
    directory = None if run_dir is None else Path(run_dir)
    state = _state_to_resume(directory, dataset.recipe, config, resume=resume, overwrite=overwrite)
    split = split_rows(dataset, config.seed)
    X = on_device("X", dataset.X, device, torch.float32)
    y = on_device("y", dataset.y, device, torch.float32)
    if model is None:
        model = ResidualMLP(X.shape[1], config.d_model, config.n_blocks, config.expansion, seed=config.seed)
    model.to(device)
    check_fits(model, X.shape[1], device)
    with tf32(config.tf32):
        run = _Run(dataset.recipe, config, model, X, y, split, directory, state, graph)
        if progress is True:
            with bar() as display:
                run.loop(by_epoch(display))
        else:
            run.loop(progress or None)
        parts = {name: torch.from_numpy(rows).to(device) for name, rows in dataclasses.asdict(split).items()}
        scores = {
            name: score(y[parts[name]].cpu(), predict(model, X[parts[name]]).cpu()) for name in ("validation", "test")
        }
    return TrainResult(
        model, config, run.history(), scores["validation"], scores["test"], run.seconds, device_name(device)
    )


def load_model(run_dir: str | os.PathLike[str], dataset: Dataset, *, device: Device = "auto") -> ResidualMLP:
    """Return the `ResidualMLP` of a finished or interrupted run on this dataset."""
    device = choose_device(device)
    state = checkpoint.load(Path(run_dir) / "checkpoint.pt")
    _check_same("checkpoint", "recipe", state["recipe"], dataset.recipe.to_dict())
    config = TrainConfig(**state["config"])
    model = ResidualMLP(dataset.recipe.dim, config.d_model, config.n_blocks, config.expansion)
    with _fitting():
        model.load_state_dict(state["model"])
    return model.to(device)


class _Run:
    """The state of a training run: what a checkpoint holds, and the loop that moves it on."""

    def __init__(
        self,
        recipe: Recipe,
        config: TrainConfig,
        model: nn.Module,
        X: torch.Tensor,
        y: torch.Tensor,
        split: Split,
        directory: Path | None,
        state: checkpoint.State | None,
        graph: bool,
    ) -> None:
        self.recipe, self.config, self.model, self.directory = recipe, config, model, directory
        cuda = y.is_cuda
        lr = torch.tensor(config.lr, device=y.device)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=lr, weight_decay=config.weight_decay, fused=True, capturable=cuda
        )
        # On the CPU whatever the device, so that batches are the same everywhere; a GPU is busy in the meantime.
        self.generator = torch.Generator().manual_seed(config.seed % 2**63)
        self.done, self.seconds = 0, 0.0
        self.losses = torch.full((config.epochs, 2), math.nan, dtype=torch.float64, device=y.device)
        if state is not None:
            with _fitting():
                model.load_state_dict(state["model"])
                checkpoint.restore(model, self.optimizer, state)
                self.generator.set_state(state["generator"])
            self.done, self.seconds = state["epoch"], state["seconds"]
            self.losses[: self.done] = state["losses"][: self.done].to(y.device)
        start = time.perf_counter()
        train, validation = torch.from_numpy(split.train).to(y.device), torch.from_numpy(split.validation).to(y.device)
        train_data, validation_data = (X[train], y[train]), (X[validation], y[validation])
        self.variances = [float(part.double().var(correction=0)) for _, part in (train_data, validation_data)]
        self.n_train, self.pin = len(train), cuda
        self.epoch = Epoch(model, self.optimizer, train_data, validation_data, config.batch_size, graph)
        self.seconds += time.perf_counter() - start

    def loop(self, progress: EpochProgress | None) -> None:
        """Train until the last epoch, writing a checkpoint now and then, at the end, and at Ctrl-C."""
        self._write_config()
        told = self.done
        looked = saved = resumed = time.perf_counter()
        before = self.seconds
        with _stoppable() as stopped:
            while self.done < self.config.epochs:
                order = torch.randperm(self.n_train, generator=self.generator, pin_memory=self.pin)
                self.losses[self.done] = self.epoch.run(order, self.config.lr_at(self.done))
                self.done += 1
                now, stopping, last = time.perf_counter(), stopped.is_set(), self.done == self.config.epochs
                if last or stopping or now - looked > LOOK_SECONDS:
                    told = self._tell(progress, told)
                    looked = time.perf_counter()
                    self.seconds = before + looked - resumed
                if last or stopping or now - saved > CHECKPOINT_SECONDS:
                    self._save()
                    saved = time.perf_counter()
                if stopping and not last:
                    rest = "resume to continue" if self.directory else "without a run_dir nothing was kept"
                    raise TrainingInterrupted(f"stopped after epoch {self.done} of {self.config.epochs}; {rest}")

    def history(self) -> pandas.DataFrame:
        """Return the losses so far, a row per epoch."""
        losses = self.losses[: self.done].cpu().numpy()
        return pandas.DataFrame(
            {
                "epoch": np.arange(1, self.done + 1),
                "lr": [self.config.lr_at(e) for e in range(self.done)],
                "train_loss": losses[:, 0],
                "train_r2": [r_squared(loss, self.variances[0]) for loss in losses[:, 0]],
                "validation_loss": losses[:, 1],
                "validation_r2": [r_squared(loss, self.variances[1]) for loss in losses[:, 1]],
            }
        )

    def _tell(self, progress: EpochProgress | None, told: int) -> int:
        """Fetch the losses of the epochs not told yet, which waits for the device, and tell them."""
        losses = self.losses[told : self.done].cpu()
        if not torch.isfinite(losses).all():
            raise ValueError(f"loss must stay finite, got {losses[-1, 0].item()} by epoch {self.done}: lower lr")
        if progress is not None:
            for i, (train_loss, validation_loss) in enumerate(losses.tolist(), told + 1):
                progress(i, self.config.epochs, train_loss, r_squared(validation_loss, self.variances[1]))
        return self.done

    def _save(self) -> None:
        if self.directory is None:
            return
        values = {
            "recipe": self.recipe.to_dict(),
            "config": dataclasses.asdict(self.config),
            "epoch": self.done,
            "seconds": self.seconds,
            "losses": self.losses,
            "generator": self.generator.get_state(),
            **checkpoint.snapshot(self.model, self.optimizer),
        }
        checkpoint.save(self.directory / "checkpoint.pt", values)
        with files.replacing(self.directory / "metrics.csv") as partial:
            self.history().to_csv(partial, index=False)

    def _write_config(self) -> None:
        if self.directory is None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        files.write_json(self.directory / "config.json", describe_run(self.recipe, self.config, self.losses.device))


def describe_run(recipe: Recipe, config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """Return what makes a run again, and what made it, ready for JSON."""
    return {
        "recipe": recipe.to_dict(),
        "config": dataclasses.asdict(config),
        "provenance": provenance(
            PACKAGES,
            device=device_name(device),
            matmul="TF32" if config.tf32 and device.type == "cuda" else "float32",
        ),
    }


# ---------------------------------------------------------------------- resuming and stopping


def _state_to_resume(
    directory: Path | None, recipe: Recipe, config: TrainConfig, *, resume: bool, overwrite: bool
) -> checkpoint.State | None:
    """Return the checkpoint to start from, or None; raise if the directory may not be written to."""
    if directory is None:
        if resume:
            raise ValueError("run_dir must be given to resume, got None")
        return None
    file = directory / "checkpoint.pt"
    if resume:
        state = checkpoint.load(file)
        _check_same("checkpoint", "recipe", state["recipe"], recipe.to_dict())
        _check_same("checkpoint", "config", state["config"], dataclasses.asdict(config))
        return state
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"run_dir must be a directory, got {str(directory)!r}")
    if file.exists() and not overwrite:
        raise FileExistsError(
            f"run_dir must not hold a run unless resume or overwrite is given, got {str(directory)!r}"
        )
    return None


def _check_same(what: str, part: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name in wanted.keys() | found.keys():
        if found.get(name) != wanted.get(name):
            raise ValueError(f"{what} must have {part} {name} {wanted.get(name)!r}, got {found.get(name)!r}")


@contextmanager
def _fitting() -> Iterator[None]:
    """Say in one line that a checkpoint's state is not that of this model."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError, AttributeError) as error:
        raise ValueError(f"checkpoint must fit the model, got {text.one_line(error)}") from error


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event, so that an epoch is finished; the second one interrupts at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
