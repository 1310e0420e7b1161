"""Recipes by name: the paper's two datasets, and two superposed worlds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from percolab.model.recipe import PRESETS as PAPER_PRESETS
from percolab.model.recipe import Recipe
from percolab.worlds.recipe import Superposition


def _clusters(count: int, n_points: int, dim: int) -> list[Recipe]:
    return [Recipe(n_points, dim, "one_cluster", seeds=seed, engine="native") for seed in range(count)]


PRESETS: Mapping[str, Recipe | Superposition] = MappingProxyType(
    {
        **PAPER_PRESETS,
        "superposed-2": Superposition(_clusters(2, 100_000, 32), seed=0),
        "superposed-4": Superposition(_clusters(4, 200_000, 64), rotate=True, seed=0),
    }
)
"""Recipes by name: the paper's two datasets (Sec. 5 and App. B); two clusters added; four, each rotated first."""
