"""The tasks: which data, which networks, which size of method. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from percolab.features.specs import Budget
from percolab.ground.validation import check_choice
from percolab.model.recipe import Recipe
from percolab.nn.config import SCALES, TrainConfig
from percolab.study import scales
from percolab.study.scales import WORLDS
from percolab.worlds.superposition import Superposition

TASKS = ("paper-one-cluster", "paper-multi-cluster", *WORLDS)
RAW, UNTRAINED, TRAINED, TRUTH = "raw", "untrained", "trained", "truth"


@dataclass(frozen=True)
class Task:
    """Data, the networks trained on them, and what methods and scores are given."""

    name: str
    scale: str
    recipe: Recipe | Superposition
    training: TrainConfig
    """of all networks; their seeds are 0, 1, …"""
    layers: tuple[str, ...]
    """modules whose activations are looked at, unless others are asked for"""
    min_size: int
    """fewest rows of a concept"""
    budget: Budget

    @property
    def n_factors(self) -> int:
        """Number of hierarchies."""
        return len(self.recipe.factors) if isinstance(self.recipe, Superposition) else 1

    @property
    def networks(self) -> tuple[str, ...]:
        """The representations: no network, an untrained one, and one trained on each hierarchy."""
        return RAW, UNTRAINED, *(trained_on(self, k) for k in range(self.n_factors))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""
        values = {**asdict(self), "recipe": self.recipe.to_dict()}
        return dict(json.loads(json.dumps(values)))


def trained_on(task: Task, factor: int) -> str:
    """Return the name of the network trained on a hierarchy."""
    return f"{TRAINED}-{factor}" if task.n_factors > 1 else TRAINED


def relevant_factor(network: str) -> int | None:
    """Return the hierarchy that a network was trained on, None if on none."""
    kind, _, factor = network.partition("-")
    return int(factor or 0) if kind == TRAINED else None


_SMALL_BUDGET = Budget(n_features=256, k=8, steps=400, batch_size=512, lr=5e-3, n_components=16)


def task(name: str, scale: str = "paper") -> Task:
    """Return a task by name; its data and networks are those of `percolab represent`.

    Parameters
    ----------
    name
        One of `TASKS`.
    scale
        ``"paper"``, or ``"small"``: some 10,000 points and small networks, minutes on a laptop.
    """
    check_choice("tasks", name, TASKS)
    check_choice("scale", scale, SCALES)
    data = name.removeprefix("paper-")
    budget, least = (_SMALL_BUDGET, 20) if scale == "small" else (Budget(), 50)
    recipe = scales.recipe(data, scale)
    assert isinstance(recipe, Recipe | Superposition)
    return Task(name, scale, recipe, scales.training(data, scale), ("blocks.2",), least, budget)
