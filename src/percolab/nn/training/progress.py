"""Progress of a training run, epoch by epoch, and who may be told of it."""

from __future__ import annotations

import os
from typing import Any, Protocol

from percolab.ground.progress import Display, Progress
from percolab.nn.networks.scores import NAMES

STAGE = "training"


class EpochProgress(Protocol):
    """What `train` takes as `progress`: called after every epoch."""

    def __call__(self, epoch: int, epochs: int, loss: float, score: float, /) -> None:
        """Take the number of epochs done, how many there will be, training loss and validation R², or accuracy."""


def by_epoch(progress: Progress, measure: str = "r2") -> EpochProgress:
    """Return what moves a stage of counted work on by epochs; a display also gets the loss, and the score `measure`."""

    def move(epoch: int, epochs: int, loss: float, score: float) -> None:
        progress(STAGE, epoch, epochs)
        if isinstance(progress, Display):
            progress.note(STAGE, f"loss {loss:.4g}, validation {NAMES[measure]} {score:.4f}")

    return move


def logger(kind: str, run_dir: str | os.PathLike[str], config: dict[str, Any], measure: str = "r2") -> EpochProgress:
    """Return what sends every epoch to TensorBoard or Weights & Biases, if installed: loss, and the score `measure`."""
    try:
        if kind == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(run_dir))

            def write(epoch: int, epochs: int, loss: float, score: float) -> None:
                writer.add_scalar("loss/train", loss, epoch)
                writer.add_scalar(f"{measure}/validation", score, epoch)
                if epoch == epochs:
                    writer.close()

            return write
        if kind == "wandb":
            import wandb

            run = wandb.init(project="percolab", dir=str(run_dir), config=config)

            def send(epoch: int, epochs: int, loss: float, score: float) -> None:
                run.log({"loss/train": loss, f"{measure}/validation": score}, step=epoch)
                if epoch == epochs:
                    run.finish()

            return send
    except ImportError as error:
        raise ImportError(f"log={kind!r} needs {error.name}: pip install {kind}") from error
    raise ValueError(f"log must be tensorboard or wandb, got {kind!r}")
