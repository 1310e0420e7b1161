"""The tasks of version 1: data, networks, sizes of methods, rules. They are frozen: a test compares their digests.

A change of a task, of a rule or of a score makes another version. This module needs no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from percolab.features.register import METHODS, Budget
from percolab.ground.validation import check_choice
from percolab.nn.config import SCALES, CorpusTrainConfig, TrainConfig
from percolab.study.settings import AnyRecipe, corpus_of, corpus_training, recipe_of, training_of

VERSION = 1  #: Version of the benchmark.
REVISION = 4  #: Of the rules: methods, thresholds, scores, endpoints. Every change of them raises it.
TENTH = "-tenth"
POINTS = ("superposed-2", "superposed-4", "paper-one-cluster", "paper-multi-cluster")
TUNED = "documents-tuned"
TASKS = ("documents", TUNED, *POINTS, *(f"{name}{TENTH}" for name in POINTS))
#: Methods of the endpoints; statements about all other methods are exploratory.
CONFIRMATORY = ("topk", "batchtopk", "matryoshka", "kmeans")
PLAIN = "kmeans"  #: The method that the others are compared with.
#: Mean number of features that fire on a row: the five settings of a method that can choose it.
SPARSITIES = (4, 8, 24, 64, 128)
MIDDLE = 24  #: The setting at which stability, causes and held-out subtrees are measured.
#: The sparsity option of a method and its settings, where it is not k at `SPARSITIES`.
KNOBS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "gated": ("l1_coefficient", (0.3, 1.0, 3.0, 10.0, 30.0)),
    "kmeans": ("k", (1, *SPARSITIES)),
}
MATCHED = 32.0  #: L0 at which methods are compared.
#: Share of dead features above which a cell is unhealthy, and share of dropped pairs above which there is no verdict.
MOST_DEAD, MOST_DROPPED = 0.5, 0.2
NETWORKS = {"paper": 3, "small": 1}  #: Number of networks for each target and draw.


@dataclass(frozen=True)
class Options:
    """Everything that determines a task besides data and training."""

    layer: str  #: module whose activations are read
    min_size: int  #: fewest scored rows of a concept
    budget: Budget
    #: learning rates of sparse autoencoders by role, chosen on a draw used for nothing else; others take the budget's
    rates: Mapping[str, float] = field(default_factory=dict)
    #: held-out documents of each lexicon: 60% are fitted on, 20% choose thresholds and settings, 20% are scored
    documents: int = 0
    share: float = 1.0  #: share of the training rows that networks are trained on
    tuned: bool = False  #: whether the second network starts from the first, with half of its documents of each lexicon
    activations: str = ""  #: folder of activations that take the place of networks


@dataclass(frozen=True, eq=False)
class Task:
    """Data, the networks trained on them, and the options of methods and scores."""

    name: str
    scale: str
    recipe: AnyRecipe
    training: TrainConfig | CorpusTrainConfig
    options: Options

    def to_dict(self) -> dict[str, Any]:
        """Return the task as plain values, equal after a round trip through JSON."""
        values: dict[str, Any] = {
            "version": VERSION,
            "rules": [REVISION, SPARSITIES, MIDDLE, KNOBS, MATCHED, MOST_DEAD, MOST_DROPPED, METHODS],
            "name": self.name,
            "scale": self.scale,
            "recipe": self.recipe.to_dict(),
        }
        values |= {"training": asdict(self.training), "options": asdict(self.options)}
        return dict(json.loads(json.dumps(values)))

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that identify the task."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


_SMALL = Budget(n_features=128, k=8, steps=100, batch_size=512, lr=1e-2, n_components=16)
_DOCUMENTS = {"trained": 3e-3, "untrained": 3e-2, "raw": 3e-4}
_FULL_DOCUMENTS = {"trained": 3e-3, "untrained": 1e-2, "raw": 3e-4}
#: By task and scale, chosen by benchmarks/learning_rates.py; other tasks take the learning rate of the budget.
_RATES: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("documents", "small"): _DOCUMENTS,
    (TUNED, "small"): _DOCUMENTS,
    ("documents", "paper"): _FULL_DOCUMENTS,
    (TUNED, "paper"): _FULL_DOCUMENTS,
    ("superposed-2", "paper"): {"trained": 3e-3, "untrained": 3e-3, "raw": 1e-2},
    ("superposed-4", "paper"): {"trained": 3e-3, "untrained": 3e-3, "raw": 1e-2},
    ("paper-one-cluster", "paper"): {"trained": 3e-3, "untrained": 3e-3, "raw": 3e-3},
    ("superposed-2", "small"): {"trained": 1e-3, "untrained": 1e-2, "raw": 3e-2},
    ("superposed-4", "small"): {"trained": 1e-2, "untrained": 3e-2, "raw": 3e-2},
    ("paper-one-cluster", "small"): {"trained": 1e-3, "untrained": 1e-3, "raw": 3e-3},
    ("paper-multi-cluster", "small"): {"trained": 1e-2, "untrained": 1e-2, "raw": 1e-2},
}


def task(name: str, scale: str = "paper") -> Task:
    """Return a task by name.

    Parameters
    ----------
    name
        One of `TASKS`.
    scale
        ``"paper"``, or ``"small"``: minutes on a laptop.
    """
    check_choice("tasks", name, TASKS)
    small = check_choice("scale", scale, SCALES) == "small"
    budget = _SMALL if small else Budget(steps=1000)
    rates = _RATES.get((name.removesuffix(TENTH), scale), {})
    if name.removesuffix(TENTH) not in POINTS:
        budget = budget if small else replace(budget, n_features=2048)
        options = Options("blocks.1", 20, budget, rates, 400 if small else 4000, tuned=name == TUNED)
        return Task(name, scale, corpus_of("documents", scale), corpus_training("documents", scale), options)
    data = name.removesuffix(TENTH).removeprefix("paper-")
    options = Options("blocks.2", 20, budget, rates, share=0.1 if name.endswith(TENTH) else 1.0)
    return Task(name, scale, recipe_of(data, scale), training_of(data, scale), options)
