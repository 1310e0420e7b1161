"""The history of a training run: reports of each epoch, and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pandas

from percolab.ground.progress import Display, Progress
from percolab.nn.networks.excess import DocumentScore
from percolab.nn.networks.objective import in_words
from percolab.show import style
from percolab.show.style import GREY, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STAGE = "training"


class EpochProgress(Protocol):
    """The type of `train`'s `progress`: called after every epoch."""

    def __call__(self, epoch: int, epochs: int, loss: float, score: float, /) -> None:
        """Take the number of epochs done, the number in all, training loss, and validation R² or accuracy."""


def by_epoch(progress: Progress, measure: str = "r2") -> EpochProgress:
    """Return a function that reports epochs as counted work; a display also gets the loss and the score `measure`."""

    def move(epoch: int, epochs: int, loss: float, score: float) -> None:
        progress(STAGE, epoch, epochs)
        if isinstance(progress, Display):
            progress.note(STAGE, f"loss {loss:.4g}, validation {in_words(measure)} {score:.4f}")

    return move


# ---------------------------------------------------------------------- pictures


def training_curve(history: pandas.DataFrame, title: str) -> Figure:
    """Draw training and validation loss by epoch or step: squared errors of numbers, log losses of labels and tokens.

    The floor, if there is one, is a line that no loss is below on average.
    """
    unit, documents = history.columns[0], "floor" in history
    with style.sheet():
        figure = style.new_figure(6.4, 3.6)
        axes = figure.subplots()
        axes.plot(history[unit], history["train_loss"], color=PALETTE[0], label="training")
        axes.plot(history[unit], history["validation_loss"], color=PALETTE[5], label="validation")
        if documents:
            axes.axhline(history["floor"].iloc[0], color=GREY, linestyle=":", label="floor")
        else:
            axes.set_yscale("log")
        axes.set_xlabel(unit)
        axes.set_ylabel("log loss" if documents or "validation_accuracy" in history else "mean squared error")
        axes.set_title(title, loc="left")
        axes.legend()
    return figure


def excess_curve(score: DocumentScore, title: str) -> Figure:
    """Draw loss and floor by position, and by the size of the context that the token was drawn from."""
    with style.sheet():
        figure = style.new_figure(9.2, 3.6)
        figure.suptitle(f"{title}: excess {score.excess:.4f} nats", x=0.02, ha="left", fontsize=10)
        left, right = figure.subplots(1, 2)
        for axes, table in ((left, score.by_position), (right, score.by_size)):
            name = table.columns[0]
            axes.plot(table[name], table["loss"], "o-", markersize=3, color=PALETTE[5], label="loss")
            axes.plot(table[name], table["floor"], ":", color=GREY, label="floor")
            axes.set_ylabel("nats per token")
        left.set_xlabel("position")
        right.set_xlabel("size of the context, from")
        right.set_xscale("log", base=2)
        left.legend()
    return figure
