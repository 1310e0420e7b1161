"""Objectives of training and scores of predictions: squared error for numbers, cross-entropy for labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import NDArray
from sklearn.metrics import mean_squared_error, r2_score
from torch.nn import functional

_WORDS = {"r2": "R²", "mse": "MSE", "log_loss": "log loss"}


def in_words(score: str) -> str:
    """Return the name of a score for readers."""
    return _WORDS.get(score, score)


class Numbers:
    """One number per point, by mean squared error."""

    #: numbers that a network gives per point; None is one number, without a dimension for it
    outputs: int | None = None
    dtype = torch.float32  #: dtype of the target on the device
    n_measures = 1
    measure_name = "r2"  #: field of the score that progress shows

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the mean squared error over rows (…, n) of each member (…)."""
        return functional.mse_loss(output, target, reduction="none").mean(-1)

    def measures(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return (…, n_measures) measures, the loss first."""
        return self.loss(output, target)[..., None]

    def columns(self, losses: NDArray[np.float64], train: Any, validation: Any) -> pandas.DataFrame:
        """Return the columns of a history: losses and R² of training and validation rows.

        The columns come from training loss and measures (epochs, 1 + n_measures), and the targets of these rows.
        Progress shows the last column.
        """
        history: dict[str, Any] = {}
        for i, (name, target) in enumerate((("train", train), ("validation", validation))):
            variance = float(np.var(target, dtype=np.float64))
            history[f"{name}_loss"] = losses[:, i]
            history[f"{name}_r2"] = [r_squared(loss, variance) for loss in losses[:, i]]
        return pandas.DataFrame(history)

    def score(self, output: torch.Tensor, target: torch.Tensor) -> RegressionScore:
        """Return R² and mean squared error."""
        return score(target.cpu(), output.cpu())


class Labels:
    """One of C labels per point, by the cross-entropy of C logits."""

    dtype = torch.int64
    n_measures = 2
    measure_name = "accuracy"

    def __init__(self, n_classes: int) -> None:
        self.outputs: int | None = n_classes

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return mean log losses."""
        flat = functional.cross_entropy(output.flatten(0, -2), target.flatten(), reduction="none")
        return flat.reshape(target.shape).mean(-1)

    def measures(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return mean log losses and accuracies."""
        accuracy = (output.argmax(-1) == target).to(output.dtype).mean(-1)
        return torch.stack([self.loss(output, target), accuracy], -1)

    def columns(self, losses: NDArray[np.float64], train: Any, validation: Any) -> pandas.DataFrame:
        """Return losses of training and validation rows, and the accuracy on validation rows."""
        names = ("train_loss", "validation_loss", "validation_accuracy")
        return pandas.DataFrame(dict(zip(names, losses.T, strict=True)))

    def score(self, output: torch.Tensor, target: torch.Tensor) -> LabelScore:
        """Return accuracy and log loss."""
        return label_score(target.cpu(), output.double().log_softmax(-1).cpu())


#: A loss, the measures on the validation rows, and the score of a finished run.
Objective = Numbers | Labels


def objective(y: NDArray[Any]) -> Objective:
    """Return the objective for the type of y: integers are labels, from 0; other types are numbers."""
    if y.dtype.kind not in "biu":
        return Numbers()
    if y.size and y.min() < 0:
        raise ValueError(f"labels must not be negative, got {y.min()}; give numbers as floats")
    return Labels(int(y.max()) + 1 if y.size else 1)


# ---------------------------------------------------------------------- scores
#
# Scores of predictions: R² and mean squared error of numbers; accuracy and log loss of labels.


@dataclass(frozen=True)
class RegressionScore:
    """Score of a prediction of numbers on some rows."""

    r2: float  #: 1 - MSE / variance of the targets of these rows; NaN where they are all equal
    mse: float  #: mean squared error


@dataclass(frozen=True)
class LabelScore:
    """Score of a prediction of labels on some rows."""

    accuracy: float  #: share of rows whose most probable label is the true one
    log_loss: float  #: mean of -log of the probability given to a row's label, in nats


def score(target: Any, prediction: Any) -> RegressionScore:
    """Return R² and MSE, in float64."""
    t, p = np.asarray(target, np.float64), np.asarray(prediction, np.float64)
    r2 = float(r2_score(t, p, force_finite=False)) if np.ptp(t) > 0 else math.nan
    return RegressionScore(r2, float(mean_squared_error(t, p)))


def label_score(label: Any, log_probability: Any) -> LabelScore:
    """Return accuracy and log loss of (n,) labels, given the logarithms (n, C) of the classes' probabilities.

    Among classes of equal probability the lowest counts as predicted.
    """
    labels, logs = np.asarray(label, np.int64), np.asarray(log_probability, np.float64)
    of_label = logs[np.arange(labels.size), labels]
    return LabelScore(float(np.mean(logs.argmax(1) == labels)), float(-of_label.mean()))


def r_squared(mse: float, variance: float) -> float:
    """Return R² from a mean squared error; NaN where the target is constant."""
    return 1 - mse / variance if variance > 0 else math.nan
