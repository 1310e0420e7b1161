"""What the scaling experiment is made from, at the paper's scale and at a small one. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from percolab.ground.validation import check_choice, check_integer
from percolab.ground.version import __version__
from percolab.model.recipe import PRESETS, Recipe
from percolab.nn.config import SCALES, TrainConfig

DATA = ("one-cluster", "multi-cluster")
LEAST_SEEDS = 2

_SMALL = {"one-cluster": (8_000, 1), "multi-cluster": (80_000, 100)}
"""Points and least cluster size of the small scale."""


@dataclass(frozen=True)
class ScalingSettings:
    """Everything that determines the scaling experiment."""

    scale: str
    data: tuple[str, ...]
    recipes: tuple[Recipe, ...]
    training: TrainConfig
    """of every network, but for its seeds, width and epochs"""
    seeds: int
    """nested chains of training rows, each with a network of its own"""
    least_rows: int
    """fewest training rows; then twice as many, and so on up to all"""
    widths: tuple[int, ...]
    """d_model of the networks trained on all rows"""
    steps: int
    """of the optimiser, the same for every number of rows"""
    validation_rows: int = 500
    """rows that are looked at after every epoch; nothing depends on them"""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"recipes": [recipe.to_dict() for recipe in self.recipes], "training": asdict(self.training)}
        return dict(json.loads(json.dumps({**values, "percolab": __version__})))

    @property
    def command(self) -> str:
        """The command that runs it."""
        data = "" if self.data == DATA else f" --data {','.join(self.data)}"
        seeds = "" if self.seeds == scaling_settings(self.scale).seeds else f" --seeds {self.seeds}"
        return f"percolab scaling --scale {self.scale}{data}{seeds}"

    def epochs(self, n_rows: int) -> int:
        """Return the epochs that give the number of steps with so many training rows."""
        return max(1, round(self.steps / -(-n_rows // self.training.batch_size)))


def scaling_settings(scale: str = "paper", *, seeds: int = 5, data: Sequence[str] = DATA) -> ScalingSettings:
    """Return the settings of the scaling experiment.

    Parameters
    ----------
    scale
        ``"paper"``, or ``"small"``: some thousand points and small networks, minutes on a laptop.
    seeds
        Nested chains of training rows, and networks for each number of rows, at least 2.
    data
        Some of `DATA`.
    """
    check_choice("scale", scale, SCALES)
    chosen = tuple(check_choice("data", name, DATA) for name in data)
    count = check_integer("seeds", seeds, LEAST_SEEDS)
    recipes = [PRESETS[f"paper-{name}"] for name in chosen]
    training = TrainConfig(batch_size=512, lr=5e-4)
    if scale == "paper":
        widths = (8, 16, 32, 64, 128, 256)
        return ScalingSettings(scale, chosen, tuple(recipes), training, count, 1000, widths, steps=30_000)
    sizes = [_SMALL[name] for name in chosen]
    recipes = [
        replace(recipe, n_points=n, dim=30, min_cluster_size=least)
        for recipe, (n, least) in zip(recipes, sizes, strict=True)
    ]
    training = replace(training, d_model=64, batch_size=128, lr=1e-3)
    return ScalingSettings(scale, chosen, tuple(recipes), training, count, 250, (4, 16, 64), 400, validation_rows=100)
