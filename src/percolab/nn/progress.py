"""Progress of a training run: a line that is rewritten on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

TERMINAL_SECONDS, LOG_SECONDS = 0.2, 10.0


class Watch(Protocol):
    """Told after every epoch how the run goes."""

    def __call__(self, epoch: int, epochs: int, loss: float, r2: float) -> None:
        """Take the number of epochs done, how many there will be, training loss and validation R²."""


class Ticker:
    """Prints loss, validation R² and time left to standard error, without needing any package."""

    def __init__(self) -> None:
        self.start, self.shown = time.perf_counter(), float("-inf")
        self.first: int | None = None
        self.terminal = sys.stderr.isatty()

    def __call__(self, epoch: int, epochs: int, loss: float, r2: float) -> None:
        """Print, unless something was printed a moment ago."""
        now = time.perf_counter()
        if self.first is None:  # a resumed run does not begin at 1
            self.first = epoch - 1
        last = epoch == epochs
        if not last and now - self.shown < (TERMINAL_SECONDS if self.terminal else LOG_SECONDS):
            return
        self.shown = now
        left = (now - self.start) / max(1, epoch - self.first) * (epochs - epoch)
        text = f"epoch {epoch}/{epochs}  loss {loss:.4g}  validation R² {r2:.4f}  {clock(left)} left"
        if self.terminal:
            print(f"\r\x1b[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours and minutes."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60}:{whole % 60:02d}"


def logger(kind: str, run_dir: Any, config: dict[str, Any]) -> Watch:
    """Return what sends every epoch to TensorBoard or Weights & Biases, if installed."""
    try:
        if kind == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(run_dir))

            def log(epoch: int, epochs: int, loss: float, r2: float) -> None:
                writer.add_scalar("loss/train", loss, epoch)
                writer.add_scalar("r2/validation", r2, epoch)
                if epoch == epochs:
                    writer.close()

            return log
        if kind == "wandb":
            import wandb

            run = wandb.init(project="percolab", dir=str(run_dir), config=config)

            def send(epoch: int, epochs: int, loss: float, r2: float) -> None:
                run.log({"loss/train": loss, "r2/validation": r2}, step=epoch)
                if epoch == epochs:
                    run.finish()

            return send
    except ImportError as error:
        raise ImportError(f"log={kind!r} needs {error.name}: pip install {kind}") from error
    raise ValueError(f"log must be tensorboard or wandb, got {kind!r}")
