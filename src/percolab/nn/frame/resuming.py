"""Training as a part of an experiment: it goes on where it was interrupted, in a run that is gone once it is used."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from percolab.nn.config import TrainConfig
from percolab.nn.training import checkpoint
from percolab.nn.training.training import TrainResult, train_ensemble
from percolab.worlds.truth import AnyDataset

TRAINING = "training"
"""Directory of runs that have not been used yet."""


def train_resumed(
    run_dir: Path, dataset: AnyDataset, configs: Sequence[TrainConfig], **given: Any
) -> list[TrainResult]:
    """Train networks by `train_ensemble`, which gets all else, from where an interrupted run of the same was.

    What else is in the directory of the run is overwritten.
    """
    resume = _is_begun(run_dir, dataset, configs)
    return train_ensemble(dataset, configs, run_dir=run_dir, resume=resume, overwrite=not resume, **given)


def forget(directory: Path) -> None:
    """Remove the runs in a directory of an experiment, once what they gave is kept elsewhere."""
    shutil.rmtree(directory / TRAINING, ignore_errors=True)


def _is_begun(run_dir: Path, dataset: AnyDataset, configs: Sequence[TrainConfig]) -> bool:
    """Return whether a checkpoint of this very run is there."""
    try:
        state = checkpoint.load(run_dir / "checkpoint.pt")
    except (FileNotFoundError, ValueError):
        return False
    wanted = dataset.recipe.to_dict(), [asdict(config) for config in configs]
    return bool((state["recipe"], state["configs"]) == wanted)
