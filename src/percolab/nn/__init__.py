"""Experiments on percolation datasets: networks, baselines, activations and linear probes.

Needs the extra ``nn`` (torch, scikit-learn, pandas, matplotlib). Importing this package imports none of them: a name
is looked up when it is first used. The configurations, in `config`, need none of them at all. The experiments
themselves are in `percolab.experiments`.

Each room stands on those after it: `probing`; `training`; `networks`; and `interventions`, on any torch module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.surface import surface

if TYPE_CHECKING:
    from percolab.experiments.running import experiment, represent, reproduce, scaling
    from percolab.nn.config import CorpusTrainConfig, ProbeConfig, TrainConfig, TrainSeeds
    from percolab.nn.interventions import ablate, patch, steer
    from percolab.nn.networks.baseline import baselines, nearest_neighbours
    from percolab.nn.networks.excess import DocumentScore, excess, kl
    from percolab.nn.networks.model import ResidualMLP
    from percolab.nn.networks.recording import activations, representations
    from percolab.nn.networks.replacing import LossRecovered, loss_recovered
    from percolab.nn.networks.scores import LabelScore, RegressionScore
    from percolab.nn.networks.transformer import Transformer
    from percolab.nn.probing.errors import ProbeErrors, ProbeResult
    from percolab.nn.probing.linear import LinearProbe, linear_probe
    from percolab.nn.probing.prober import probes
    from percolab.nn.training.training import TrainResult, load_model, train
    from percolab.study.settings import Settings
    from percolab.worlds.splits import Split, split_rows

_HOMES = {
    "CorpusTrainConfig": "nn.config",
    "DocumentScore": "nn.networks.excess",
    "LabelScore": "nn.networks.scores",
    "LinearProbe": "nn.probing.linear",
    "LossRecovered": "nn.networks.replacing",
    "ProbeConfig": "nn.config",
    "ProbeErrors": "nn.probing.errors",
    "ProbeResult": "nn.probing.errors",
    "RegressionScore": "nn.networks.scores",
    "ResidualMLP": "nn.networks.model",
    "Split": "worlds.splits",
    "TrainConfig": "nn.config",
    "TrainSeeds": "nn.config",
    "TrainResult": "nn.training.training",
    "Transformer": "nn.networks.transformer",
    "ablate": "nn.interventions",
    "activations": "nn.networks.recording",
    "baselines": "nn.networks.baseline",
    "experiment": "experiments.running",
    "excess": "nn.networks.excess",
    "kl": "nn.networks.excess",
    "linear_probe": "nn.probing.linear",
    "load_model": "nn.training.training",
    "loss_recovered": "nn.networks.replacing",
    "nearest_neighbours": "nn.networks.baseline",
    "patch": "nn.interventions",
    "probes": "nn.probing.prober",
    "representations": "nn.networks.recording",
    "represent": "experiments.running",
    "reproduce": "experiments.running",
    "scaling": "experiments.running",
    "Settings": "study.settings",
    "split_rows": "worlds.splits",
    "steer": "nn.interventions",
    "train": "nn.training.training",
    "train_ensemble": "nn.training.training",
}
_FORMERLY = {"Score": "nn.RegressionScore", "train_ensemble": "nn.train"}

__all__ = [
    "CorpusTrainConfig",
    "DocumentScore",
    "LabelScore",
    "LinearProbe",
    "LossRecovered",
    "ProbeConfig",
    "ProbeErrors",
    "ProbeResult",
    "RegressionScore",
    "ResidualMLP",
    "Settings",
    "Split",
    "TrainConfig",
    "TrainResult",
    "TrainSeeds",
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

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, formerly=_FORMERLY, extra="nn")
