"""Experiments on percolation datasets: networks, baselines, activations and linear probes.

Needs the extra ``nn`` (torch, scikit-learn, pandas, matplotlib). Importing this package imports none of them: a name
is looked up when it is first used. The configurations, in `config` and `experiments`, need none of them at all.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from percolab.nn.baseline import baselines, nearest_neighbours
    from percolab.nn.config import ProbeConfig, TrainConfig
    from percolab.nn.experiments import Experiment, experiment
    from percolab.nn.linear import LinearProbe, linear_probe
    from percolab.nn.model import ResidualMLP
    from percolab.nn.probe_errors import ProbeErrors, ProbeResult
    from percolab.nn.probing import probes
    from percolab.nn.recording import activations, representations
    from percolab.nn.replacing import LossRecovered, loss_recovered
    from percolab.nn.reproduction import reproduce
    from percolab.nn.scores import LabelScore, Score
    from percolab.nn.split import Split, split_rows
    from percolab.nn.training import TrainResult, load_model, train, train_ensemble

_HOME = {
    "Experiment": "experiments",
    "LabelScore": "scores",
    "LinearProbe": "linear",
    "LossRecovered": "replacing",
    "ProbeConfig": "config",
    "ProbeErrors": "probe_errors",
    "ProbeResult": "probe_errors",
    "ResidualMLP": "model",
    "Score": "scores",
    "Split": "split",
    "TrainConfig": "config",
    "TrainResult": "training",
    "activations": "recording",
    "baselines": "baseline",
    "experiment": "experiments",
    "linear_probe": "linear",
    "load_model": "training",
    "loss_recovered": "replacing",
    "nearest_neighbours": "baseline",
    "probes": "probing",
    "representations": "recording",
    "reproduce": "reproduction",
    "split_rows": "split",
    "train": "training",
    "train_ensemble": "training",
}

__all__ = [
    "Experiment",
    "LabelScore",
    "LinearProbe",
    "LossRecovered",
    "ProbeConfig",
    "ProbeErrors",
    "ProbeResult",
    "ResidualMLP",
    "Score",
    "Split",
    "TrainConfig",
    "TrainResult",
    "activations",
    "baselines",
    "experiment",
    "linear_probe",
    "load_model",
    "loss_recovered",
    "nearest_neighbours",
    "probes",
    "representations",
    "reproduce",
    "split_rows",
    "train",
    "train_ensemble",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(f"{__name__}.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise ImportError(f"percolab.nn needs {error.name}: pip install 'percolab[nn]'") from error
    return getattr(home, name)
