"""A training run: its state, the loop that moves it on, and how it is stopped, kept and resumed."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from torch import nn

from percolab.ground import files, memory
from percolab.ground.text import one_line, shown
from percolab.ground.version import provenance
from percolab.nn.config import TrainConfig
from percolab.nn.networks.device import device_name
from percolab.nn.networks.objective import Objective
from percolab.nn.training import checkpoint
from percolab.nn.training.ensemble import member
from percolab.nn.training.epoch import Data, Epoch
from percolab.nn.training.progress import EpochProgress
from percolab.worlds.splits import Split

CHECKPOINT_SECONDS = 30.0
LOOK_SECONDS = 0.2
"""How often losses are fetched from the device; fetching waits for it."""
PACKAGES = ("torch", "numpy", "numba")
"""What decides about the numbers of a run."""
Weights = dict[str, torch.Tensor]


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training: the run stopped after a whole epoch, and can be resumed if it has a directory."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run is made from, besides its data: compared when it is resumed."""

    recipe: dict[str, Any]
    configs: Sequence[TrainConfig]
    """one a member; they differ in nothing but their seeds"""
    data: str
    """digest of targets and splits, which may be others than the recipe's"""
    keep: frozenset[int]
    """epochs whose weights are kept; 0 is before the first"""
    directory: Path | None

    @property
    def config(self) -> TrainConfig:
        """What all members have in common."""
        return self.configs[0]

    def describe(self, device: torch.device) -> dict[str, Any]:
        """Return what makes the run again, and what made it, ready for JSON."""
        configs = [dataclasses.asdict(config) for config in self.configs]
        return {
            "recipe": self.recipe,
            **({"config": configs[0]} if len(configs) == 1 else {"configs": configs}),
            "provenance": provenance(PACKAGES, device=device_name(device), matmul=_precision(self.config, device)),
        }

    def state(self, *, resume: bool, overwrite: bool) -> checkpoint.State | None:
        """Return the checkpoint to start from, or None; raise if the directory may not be written to."""
        if self.directory is None:
            if resume:
                raise ValueError("run_dir must be given to resume, got None")
            return None
        file = self.directory / "checkpoint.pt"
        if resume:
            state = checkpoint.load(file)
            self._check_same(state)
            return state
        if self.directory.exists() and not self.directory.is_dir():
            raise FileExistsError(f"run_dir must be a directory, got {str(self.directory)!r}")
        if file.exists() and not overwrite:
            raise FileExistsError(
                f"run_dir must not hold a run unless resume or overwrite is given, got {str(self.directory)!r}"
            )
        return None

    def clear(self) -> None:
        """Remove what a run in the directory left: its checkpoint, kept epochs and metrics."""
        if self.directory is None:
            return
        # The checkpoint goes first: stopped half way, there is then no run to resume, rather than one of mixed parts.
        for path in (self.directory / "checkpoint.pt", *self.directory.glob(kept_name("*"))):
            path.unlink(missing_ok=True)
        (self.directory / "metrics.csv").unlink(missing_ok=True)

    def _check_same(self, state: checkpoint.State) -> None:
        check_same("recipe", state["recipe"], self.recipe)
        if len(state["configs"]) != len(self.configs):
            raise ValueError(f"checkpoint must have {len(self.configs)} members, got {len(state['configs'])}")
        for found, wanted in zip(state["configs"], self.configs, strict=True):
            check_same("config", found, dataclasses.asdict(wanted))
        if state["data"] != self.data:
            raise ValueError("checkpoint must be of a run with the same targets and split, got others")


def check_same(part: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise, in one line, unless a part of a checkpoint has these values."""
    for name in dict.fromkeys([*wanted, *found]):
        if found.get(name) != wanted.get(name):
            raise ValueError(f"checkpoint must have {part} {name} {wanted.get(name)!r}, got {shown(found.get(name))}")


def digest(y: Any, splits: Sequence[Split]) -> str:
    """Return a digest of targets and of the rows that members train and validate on."""
    found = hashlib.sha256()
    for values in (y, *(part for split in splits for part in (split.train, split.validation))):
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def _precision(config: TrainConfig, device: torch.device) -> str:
    if device.type != "cuda":
        return "float32"
    return "bfloat16" if config.bf16 else "TF32" if config.tf32 else "float32"


class Run:
    """The state of a training run of one network or several stacked ones: what a checkpoint holds, and the loop.

    Parameters
    ----------
    plan
        What the run is made from.
    model
        The network, or the stack of them.
    objective
        What is trained for.
    data
        On the device.
    state
        A checkpoint to go on from, or None.
    graph
        Whether to record a CUDA graph.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        objective: Objective,
        data: Data,
        state: checkpoint.State | None,
        graph: bool,
    ) -> None:
        self.plan, self.config, self.model, self.objective, self.data = plan, plan.config, model, objective, data
        device, self.cuda = data.y.device, data.y.is_cuda
        lr = torch.tensor(self.config.lr, device=device)
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=lr, weight_decay=self.config.weight_decay, fused=True, capturable=self.cuda
        )
        # On the CPU whatever the device, so that batches are the same everywhere; a GPU is busy in the meantime.
        self.generators = [torch.Generator().manual_seed(config.seeds.order % 2**63) for config in plan.configs]
        self.done, self.seconds = 0, 0.0
        self.kept: dict[int, Weights] = {}
        shape = (len(plan.configs), self.config.epochs, 1 + objective.n_measures)
        memory.require(8 * math.prod(shape), f"losses of {shape[1]} epochs need")
        self.losses = torch.full(shape, math.nan, dtype=torch.float64, device=device)
        if state is not None:
            self._restore(state)
        start = time.perf_counter()
        self.targets = [data.targets(rows).cpu().numpy() for rows in (data.train, data.validation)]
        self.epoch = Epoch(
            model, self.optimizer, objective, data, self.config.batch_size, bf16=self.config.bf16, graph=graph
        )
        self.seconds += time.perf_counter() - start

    def loop(self, progress: EpochProgress | None) -> None:
        """Train until the last epoch, writing a checkpoint now and then, at the end, and at Ctrl-C."""
        self._write_config()
        self._keep()
        told = self.done
        looked = saved = resumed = time.perf_counter()
        before = self.seconds
        with stoppable() as stopped:
            while self.done < self.config.epochs:
                losses = self.epoch.run(self._order(), self.config.lr_at(self.done))
                self.losses[:, self.done] = losses.reshape(len(self.losses), -1)
                self.done += 1
                self._keep()
                now, stopping, last = time.perf_counter(), stopped.is_set(), self.done == self.config.epochs
                if last or stopping or now - looked > LOOK_SECONDS:
                    told = self._tell(progress, told)
                    looked = time.perf_counter()
                    self.seconds = before + looked - resumed
                if last or stopping or now - saved > CHECKPOINT_SECONDS:
                    self._save()
                    saved = time.perf_counter()
                if stopping and not last:
                    rest = "resume to continue" if self.plan.directory else "without a run_dir nothing was kept"
                    raise TrainingInterrupted(f"stopped after epoch {self.done} of {self.config.epochs}; {rest}")

    def history(self, index: int) -> pandas.DataFrame:
        """Return the losses of a member so far, a row an epoch."""
        train, validation = (targets.reshape(len(self.losses), -1)[index] for targets in self.targets)
        lr = [self.config.lr_at(e) for e in range(self.done)]
        epochs = pandas.DataFrame({"epoch": np.arange(1, self.done + 1), "lr": lr})
        losses = self.losses[index, : self.done].cpu().numpy()
        return pandas.concat([epochs, self.objective.columns(losses, train, validation)], axis=1)

    def weights(self, index: int, weights: Weights | None = None) -> Weights:
        """Return the weights of a member, now or as they were kept."""
        now = self.model.state_dict() if weights is None else weights
        return member(now, index) if len(self.plan.configs) > 1 else now

    def _order(self) -> torch.Tensor:
        """Draw the order of the rows of an epoch, for each member from its own generator."""
        # Pinned, so that the GPU takes it when it gets there and the next one is drawn in the meantime.
        order = torch.empty(len(self.generators), self.data.train.shape[-1], dtype=torch.int64, pin_memory=self.cuda)
        for own, generator in zip(order, self.generators, strict=True):
            torch.randperm(len(own), generator=generator, out=own)
        return order.reshape(self.data.train.shape)

    def _tell(self, progress: EpochProgress | None, told: int) -> int:
        """Fetch the losses of the epochs not told yet, which waits for the device, and tell their mean over members."""
        losses = self.losses[:, told : self.done].cpu()
        if not torch.isfinite(losses[..., :2]).all():
            raise ValueError(
                f"loss must stay finite, got {losses[:, -1, 0].max().item()} by epoch {self.done}: lower lr"
            )
        if progress is not None:
            histories = [self.history(i)[told:] for i in range(len(self.losses))]
            shown = np.mean([history[["train_loss", history.columns[-1]]].to_numpy() for history in histories], axis=0)
            for epoch, (loss, measure) in enumerate(shown.tolist(), told + 1):
                progress(epoch, self.config.epochs, loss, measure)
        return self.done

    # ------------------------------------------------------------------ what is kept

    def _keep(self) -> None:
        """Keep the weights of this epoch if that is wanted: in memory, and in a file of their own."""
        if self.done not in self.plan.keep or self.done in self.kept:
            return
        self.kept[self.done] = {name: value.to("cpu", copy=True) for name, value in self.model.state_dict().items()}
        if self.plan.directory is not None:
            with files.replacing(self.plan.directory / kept_name(self.done)) as partial:
                torch.save(self.kept[self.done], partial)

    def _save(self) -> None:
        if self.plan.directory is None:
            return
        values = {
            "recipe": self.plan.recipe,
            "configs": [dataclasses.asdict(config) for config in self.plan.configs],
            "data": self.plan.data,
            "epoch": self.done,
            "seconds": self.seconds,
            "losses": self.losses,
            "generators": [generator.get_state() for generator in self.generators],
            **checkpoint.snapshot(self.model, self.optimizer),
        }
        checkpoint.save(self.plan.directory / "checkpoint.pt", values)
        histories = [self.history(i) for i in range(len(self.losses))]
        if len(histories) > 1:
            for i, history in enumerate(histories):
                history.insert(0, "member", i)
        with files.replacing(self.plan.directory / "metrics.csv") as partial:
            pandas.concat(histories).to_csv(partial, index=False)

    def _restore(self, state: checkpoint.State) -> None:
        with fitting():
            checkpoint.check_like({"losses": state["losses"]}, {"losses": self.losses})
            for generator, kept in zip(self.generators, state["generators"], strict=True):
                checkpoint.check_like({"generator": kept}, {"generator": generator.get_state()})
                generator.set_state(kept)
            checkpoint.restore(self.model, self.optimizer, state)
            self.losses[:, : state["epoch"]] = state["losses"][:, : state["epoch"]].to(self.losses.device)
        self.done, self.seconds = state["epoch"], state["seconds"]
        assert self.plan.directory is not None
        for epoch in self.plan.keep:
            if epoch <= self.done:
                self.kept[epoch] = checkpoint.load_weights(self.plan.directory / kept_name(epoch), self.model)

    def _write_config(self) -> None:
        if self.plan.directory is None:
            return
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        files.write_json(self.plan.directory / "config.json", self.plan.describe(self.losses.device))


def kept_name(epoch: int | str) -> str:
    """Return the name of the file with the weights that an epoch had at its end; 0 is before the first."""
    return f"epoch-{epoch}.pt"


@contextmanager
def fitting() -> Iterator[None]:
    """Say in one line that a checkpoint's state is not that of this model."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"checkpoint must fit the model, got {one_line(error)}") from error


@contextmanager
def stoppable() -> Iterator[threading.Event]:
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
