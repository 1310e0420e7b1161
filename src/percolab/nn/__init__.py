"""Experiments on percolation datasets: networks, baselines, activations and linear probes.

Needs the extra ``nn`` (torch, scikit-learn, pandas, matplotlib). Importing this package imports none of them: a name
is looked up when it is first used. The configurations, in `config`, need none of them at all. The experiments
themselves are in `percolab.experiments`.

Each room stands on those after it: `probing`; `training`; `networks`; and `interventions`, on any torch module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import surface

if TYPE_CHECKING:
    from percolab.experiments.runs import experiment, represent, reproduce, scaling
    from percolab.nn.config import CorpusTrainConfig, ProbeConfig, TrainConfig, TrainSeeds
    from percolab.nn.interventions import ablate, patch, steer
    from percolab.nn.networks.activations import LossRecovered, activations, loss_recovered, representations
    from percolab.nn.networks.baseline import baselines, nearest_neighbours
    from percolab.nn.networks.excess import DocumentScore, excess, kl
    from percolab.nn.networks.model import ResidualMLP
    from percolab.nn.networks.objective import LabelScore, RegressionScore
    from percolab.nn.networks.transformer import Transformer
    from percolab.nn.probing.errors import ProbeErrors, ProbeResult
    from percolab.nn.probing.linear import LinearProbe, linear_probe
    from percolab.nn.probing.prober import probes
    from percolab.nn.training.training import TrainResult, load_model, train
    from percolab.study.settings import Settings
    from percolab.worlds.splits import Split, split_rows

_HOMES = {
    "experiments.runs": "experiment represent reproduce scaling",
    "nn.config": "CorpusTrainConfig ProbeConfig TrainConfig TrainSeeds",
    "nn.interventions": "ablate patch steer",
    "nn.networks.activations": "LossRecovered activations loss_recovered representations",
    "nn.networks.baseline": "baselines nearest_neighbours",
    "nn.networks.excess": "DocumentScore excess kl",
    "nn.networks.model": "ResidualMLP",
    "nn.networks.objective": "LabelScore RegressionScore",
    "nn.networks.transformer": "Transformer",
    "nn.probing.errors": "ProbeErrors ProbeResult",
    "nn.probing.linear": "LinearProbe linear_probe",
    "nn.probing.prober": "probes",
    "nn.training.training": "TrainResult load_model train train_ensemble",
    "study.settings": "Settings",
    "worlds.splits": "Split split_rows",
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


_FORMERLY = {"Score": "nn.RegressionScore", "train_ensemble": "nn.train"}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, formerly=_FORMERLY, extra="nn")
