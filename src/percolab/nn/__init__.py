"""Experiments on percolation datasets: networks, baselines, activations and linear probes.

Needs the extra ``nn`` (torch, scikit-learn, pandas, matplotlib). Importing this package imports none of them: a name
is looked up when it is first used. The configurations, in `config`, need none of them at all. The experiments
themselves are in `percolab.experiments`.

Each module stands on those after it: `probing`; `training`; `networks`; and `interventions`, on any torch module.
"""

from percolab.ground.extras import stubbed

_FORMERLY = {"Score": "nn.RegressionScore", "train_ensemble": "nn.train"}

__getattr__, __dir__, __all__ = stubbed(__name__, formerly=_FORMERLY, extra="nn")
