"""Training as a part of an experiment: it goes on where it was interrupted, in a run that is gone once it is used."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from percolab.nn.config import TrainConfig
from percolab.nn.training.training import TrainResult, train
from percolab.worlds.truth import AnyDataset

TRAINING = "training"
"""Directory of runs that have not been used yet."""


def train_resumed(
    run_dir: Path, dataset: AnyDataset, configs: Sequence[TrainConfig], **given: Any
) -> list[TrainResult]:
    """Train networks by `train`, which gets all else, from where an interrupted run of the same was.

    A run in that directory that cannot be resumed, since it is another one or damaged, is overwritten.
    """
    try:
        return train(dataset, configs, run_dir=run_dir, resume=True, **given)
    except (FileNotFoundError, ValueError):  # what is wrong with the call itself is said by the next one
        return train(dataset, configs, run_dir=run_dir, overwrite=True, **given)


def forget(directory: Path) -> None:
    """Remove the runs in a directory of an experiment, once what they gave is kept elsewhere."""
    shutil.rmtree(directory / TRAINING, ignore_errors=True)
