"""A training run: its state, its loop, and how it is stopped, saved and resumed."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from torch import nn

from percolab.ground import files, memory
from percolab.ground.devices import device_name
from percolab.ground.text import one_line, shown
from percolab.ground.version import provenance
from percolab.nn.config import AnyTrainConfig
from percolab.nn.networks.model import member_weights
from percolab.nn.training import checkpoint
from percolab.nn.training.epoch import Epoch
from percolab.nn.training.history import EpochProgress
from percolab.nn.training.steps import Steps

CHECKPOINT_SECONDS = 30.0
LOOK_SECONDS = 0.2  #: Seconds between fetches of losses; a fetch waits for the device.
PACKAGES = ("torch", "numpy", "numba")  #: Packages whose versions a run's numbers depend on.
Weights = dict[str, torch.Tensor]
#: The units of a run, with the model and the optimiser that they move: `advance` trains for the next unit and returns
#: the training loss (…), `measure` returns measures (…, n_measures) on what is held out, and `columns` makes a member's
#: history of both, of which progress shows the last column.
Course = Epoch | Steps


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training: the run stopped after a whole epoch or step, and can be resumed if it has a directory."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The inputs of a run besides its data: compared when it is resumed."""

    recipe: dict[str, Any]
    configs: Sequence[AnyTrainConfig]  #: one per member; they differ in nothing but their seeds
    data: str  #: digest of targets and splits, which may differ from the recipe's
    keep: frozenset[int]  #: epochs, or steps, whose weights are kept; 0 is before the first
    directory: Path | None

    @property
    def config(self) -> AnyTrainConfig:
        """What all members have in common."""
        return self.configs[0]

    def describe(self, device: torch.device) -> dict[str, Any]:
        """Return what reproduces the run, and where it was made, ready for JSON."""
        configs = [dataclasses.asdict(config) for config in self.configs]
        return {
            "recipe": self.recipe,
            **({"config": configs[0]} if len(configs) == 1 else {"configs": configs}),
            "provenance": provenance(PACKAGES, device=device_name(device), matmul=_precision(self.config, device)),
        }

    def kept_name(self, done: int | str) -> str:
        """Return the name of the file with the weights after this many epochs or steps."""
        return f"{self.config.unit}-{done}.pt"

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
            rule = "run_dir must not hold a run unless resume or overwrite is given"
            raise FileExistsError(f"{rule}, got {str(self.directory)!r}")
        return None

    def clear(self) -> None:
        """Remove the files of a run in the directory: its checkpoint, kept weights and metrics."""
        if self.directory is None:
            return
        # The checkpoint goes first: if this stops half way, there is no run to resume, rather than one of mixed parts.
        for path in (self.directory / "checkpoint.pt", *self.directory.glob(self.kept_name("*"))):
            path.unlink(missing_ok=True)
        (self.directory / "metrics.csv").unlink(missing_ok=True)

    def _check_same(self, state: checkpoint.State) -> None:
        check_same("recipe", state["recipe"], self.recipe)
        if len(state["configs"]) != len(self.configs):
            raise ValueError(f"checkpoint must have {len(self.configs)} members, got {len(state['configs'])}")
        for saved, wanted in zip(state["configs"], self.configs, strict=True):
            check_same("config", saved, dataclasses.asdict(wanted))
        if state["data"] != self.data:
            raise ValueError("checkpoint must be of a run with the same targets and split, got others")


def check_same(part: str, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raise, in one line, unless a part of a checkpoint has these values."""
    for name in dict.fromkeys([*wanted, *saved]):
        if saved.get(name) != wanted.get(name):
            raise ValueError(f"checkpoint must have {part} {name} {wanted.get(name)!r}, got {shown(saved.get(name))}")


def _precision(config: AnyTrainConfig, device: torch.device) -> str:
    if device.type != "cuda":
        return "float32"
    return "bfloat16" if config.bf16 else "TF32" if config.tf32 else "float32"


class Run:
    """The state of a training run of one network or several: the contents of a checkpoint, and the loop.

    Parameters
    ----------
    plan
        The inputs of the run.
    model
        The network, or several joined, on its device.
    begin
        Makes the course from model and optimiser.
    state
        A checkpoint to continue from, or None.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        begin: Callable[[nn.Module, torch.optim.Optimizer], Course],
        state: checkpoint.State | None,
    ) -> None:
        self.plan, self.config, self.model = plan, plan.config, model
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=torch.tensor(self.config.lr, device=self.device),
            weight_decay=self.config.weight_decay,
            fused=True,
            capturable=self.device.type == "cuda",
        )
        if state is not None:
            with fitting():
                checkpoint.restore(model, self.optimizer, state)
        start = time.perf_counter()
        self.course = begin(model, self.optimizer)
        self.done, self.seconds = 0, time.perf_counter() - start
        self.kept: dict[int, Weights] = {}
        shape = (len(plan.configs), -(-self.config.total // self.config.every), 1 + self.course.n_measures)
        memory.require(8 * math.prod(shape), f"losses of {self.config.total} {self.config.unit}s need")
        #: (members, rows of the history, 1 + measures); the training loss is the mean over the row's units
        self.losses = torch.full(shape, math.nan, dtype=torch.float64, device=self.device)
        self.losses[..., 0] = 0
        if state is not None:
            self._restore(state)

    def loop(self, progress: EpochProgress | None) -> None:
        """Train until the end; write checkpoints regularly, at the end, and at Ctrl-C."""
        self._write_config()
        self._keep()
        reported = self.rows
        looked = saved = resumed = time.perf_counter()
        before, total = self.seconds, self.config.total
        with stoppable() as stopped:
            while self.done < total:
                self._advance()
                self._keep()
                now, stopping, last = time.perf_counter(), stopped.is_set(), self.done == total
                if last or stopping or now - looked > LOOK_SECONDS:
                    reported = self._tell(progress, reported)
                    looked = time.perf_counter()
                    self.seconds = before + looked - resumed
                if last or stopping or now - saved > CHECKPOINT_SECONDS:
                    self._save()
                    saved = time.perf_counter()
                if stopping and not last:
                    rest = "resume to continue" if self.plan.directory else "without a run_dir nothing was kept"
                    raise TrainingInterrupted(f"stopped after {self.config.unit} {self.done} of {total}; {rest}")

    def _advance(self) -> None:
        """Train for one unit, and measure if the unit ends a row of the history."""
        row, every, total = self.done // self.config.every, self.config.every, self.config.total
        loss = self.course.advance(self.done, self.config.lr_at(self.done))
        self.losses[:, row, 0] += loss / min(every, total - row * every)
        self.done += 1
        if self.done % every == 0 or self.done == total:
            self.losses[:, row, 1:] = self.course.measure()

    @property
    def rows(self) -> int:
        """Number of complete rows of the history."""
        return self.losses.shape[1] if self.done == self.config.total else self.done // self.config.every

    def history(self, index: int) -> pandas.DataFrame:
        """Return the losses of a member so far, one row per epoch or per some steps."""
        ends = np.minimum(np.arange(1, self.rows + 1) * self.config.every, self.config.total)
        units = pandas.DataFrame({self.config.unit: ends, "lr": [self.config.lr_at(end - 1) for end in ends.tolist()]})
        losses = self.losses[index, : self.rows].cpu().numpy()
        return pandas.concat([units, self.course.columns(index, losses)], axis=1)

    def weights(self, index: int, weights: Weights | None = None) -> Weights:
        """Return the weights of a member, now or as they were kept."""
        now = self.model.state_dict() if weights is None else weights
        return member_weights(now, index) if len(self.plan.configs) > 1 else now

    def _tell(self, progress: EpochProgress | None, reported: int) -> int:
        """Fetch the unreported losses, which waits for the device, and report their means over members."""
        losses = self.losses[:, reported : self.rows].cpu()
        if not torch.isfinite(losses[..., :2]).all():
            worst = losses[:, -1, 0].max().item()
            raise ValueError(f"loss must stay finite, got {worst} by {self.config.unit} {self.done}: lower lr")
        if progress is not None and self.rows > reported:
            histories = [self.history(i)[reported:] for i in range(len(self.losses))]
            means = np.mean([history[["train_loss", history.columns[-1]]].to_numpy() for history in histories], axis=0)
            for end, (loss, measure) in zip(histories[0][self.config.unit].tolist(), means.tolist(), strict=True):
                progress(end, self.config.total, loss, measure)
        return self.rows

    # ------------------------------------------------------------------ what is kept

    def _keep(self) -> None:
        """Keep the present weights if they are asked for: in memory, and in a separate file."""
        if self.done not in self.plan.keep or self.done in self.kept:
            return
        self.kept[self.done] = {name: value.to("cpu", copy=True) for name, value in self.model.state_dict().items()}
        if self.plan.directory is not None:
            with files.replacing(self.plan.directory / self.plan.kept_name(self.done)) as partial:
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
            "generators": [generator.get_state() for generator in self.course.generators],
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
            for generator, saved in zip(self.course.generators, state["generators"], strict=True):
                checkpoint.check_like({"generator": saved}, {"generator": generator.get_state()})
                generator.set_state(saved)
            begun = -(-state["epoch"] // self.config.every)
            self.losses[:, :begun] = state["losses"][:, :begun].to(self.device)
        self.done, self.seconds = state["epoch"], self.seconds + state["seconds"]
        assert self.plan.directory is not None
        for done in self.plan.keep:
            if done <= self.done:
                self.kept[done] = checkpoint.load_weights(self.plan.directory / self.plan.kept_name(done), self.model)

    def _write_config(self) -> None:
        if self.plan.directory is None:
            return
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        files.write_json(self.plan.directory / "config.json", self.plan.describe(self.device))


@contextmanager
def fitting() -> Iterator[None]:
    """Raise, in one line, for a checkpoint whose state does not fit this model."""
    try:
        yield
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"checkpoint must fit the model, got {one_line(error)}") from error


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event, so that the present unit is finished; the second one interrupts at once."""
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
