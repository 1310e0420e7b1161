"""Experiments on percolation datasets: networks, baselines, activations and linear probes.

Needs the extra ``nn`` (torch, scikit-learn, pandas, matplotlib). Importing this package imports none of them: a name
is looked up when it is first used. The configurations, in `config`, need none of them at all. The experiments
themselves are in `percolab.experiments`.

Each room stands on those after it: `probing`; `training`; `networks`; and `interventions`, on any torch module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from percolab.experiments.running import experiment, represent, reproduce, scaling
    from percolab.nn.config import CorpusTrainConfig, ProbeConfig, TrainConfig
    from percolab.nn.interventions import ablate, patch, steer
    from percolab.nn.networks.activations import LossRecovered, activations, loss_recovered, representations
    from percolab.nn.networks.baseline import baselines, nearest_neighbours
    from percolab.nn.networks.excess import DocumentScore, excess, kl
    from percolab.nn.networks.model import ResidualMLP
    from percolab.nn.networks.objective import LabelScore, Score
    from percolab.nn.networks.transformer import Transformer
    from percolab.nn.probing.errors import ProbeErrors, ProbeResult
    from percolab.nn.probing.linear import LinearProbe, linear_probe
    from percolab.nn.probing.prober import probes
    from percolab.nn.training.training import TrainResult, load_model, train
    from percolab.study.settings import Settings
    from percolab.worlds.splits import Split, split_rows

_HOME = {
    "CorpusTrainConfig": "nn.config",
    "DocumentScore": "nn.networks.excess",
    "LabelScore": "nn.networks.objective",
    "LinearProbe": "nn.probing.linear",
    "LossRecovered": "nn.networks.activations",
    "ProbeConfig": "nn.config",
    "ProbeErrors": "nn.probing.errors",
    "ProbeResult": "nn.probing.errors",
    "ResidualMLP": "nn.networks.model",
    "Score": "nn.networks.objective",
    "Split": "worlds.splits",
    "TrainConfig": "nn.config",
    "TrainResult": "nn.training.training",
    "Transformer": "nn.networks.transformer",
    "ablate": "nn.interventions",
    "activations": "nn.networks.activations",
    "baselines": "nn.networks.baseline",
    "experiment": "experiments.running",
    "excess": "nn.networks.excess",
    "kl": "nn.networks.excess",
    "linear_probe": "nn.probing.linear",
    "load_model": "nn.training.training",
    "loss_recovered": "nn.networks.activations",
    "nearest_neighbours": "nn.networks.baseline",
    "patch": "nn.interventions",
    "probes": "nn.probing.prober",
    "representations": "nn.networks.activations",
    "represent": "experiments.running",
    "reproduce": "experiments.running",
    "scaling": "experiments.running",
    "Settings": "study.settings",
    "split_rows": "worlds.splits",
    "steer": "nn.interventions",
    "train": "nn.training.training",
    "train_ensemble": "nn.training.training",
}

__all__ = [
    "CorpusTrainConfig",
    "DocumentScore",
    "LabelScore",
    "LinearProbe",
    "LossRecovered",
    "ProbeConfig",
    "ProbeErrors",
    "ProbeResult",
    "ResidualMLP",
    "Score",
    "Settings",
    "Split",
    "TrainConfig",
    "TrainResult",
    "Transformer",
    "ablate",
    "activations",
    "baselines",
    "excess",
    "experiment",
    "kl",
    "linear_probe",
    "load_model",
    "loss_recovered",
    "nearest_neighbours",
    "patch",
    "probes",
    "represent",
    "representations",
    "reproduce",
    "scaling",
    "split_rows",
    "steer",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(f"percolab.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("percolab"):
            raise
        raise ImportError(f"percolab.nn needs {error.name}: pip install 'percolab[nn]'") from error
    return getattr(home, name)
