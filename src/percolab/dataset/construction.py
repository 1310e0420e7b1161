"""Making the dataset of a recipe, by the engine that it names."""

from __future__ import annotations

from percolab.dataset import replay, targets
from percolab.dataset.dataset import Dataset, vouch
from percolab.engines import native, paper
from percolab.ground import parallel
from percolab.ground.progress import Progress, silent
from percolab.ground.version import provenance
from percolab.model.recipe import Recipe
from percolab.model.target import Target

ENGINES = {"native": native, "paper": paper}
"""The modules that make data, by the name of the engine; each has a `VERSION`."""


def construct(recipe: Recipe, *, threads: int | None = None, progress: Progress = silent) -> Dataset:
    """Return the dataset of a recipe: what its engine makes, then its edits, one after another, and its target."""
    if not isinstance(recipe, Recipe):
        raise ValueError(
            f"recipe must be a Recipe or the name of a preset, got {recipe!r}: sizes go by name, n_points=1000"
        )
    if not recipe.target.is_rule:
        raise ValueError(f"target must be one that a recipe can make, got {recipe.target.kind!r}")
    engine = ENGINES[recipe.engine]
    arrays = engine.build(recipe, parallel.thread_count(threads), progress)
    forest, y, values = arrays.forest, arrays.y, (arrays.latent_z, arrays.point_z)
    replay.replay(recipe, forest, arrays.X, *values)
    if recipe.edits or recipe.target != Target():
        y = targets.make(recipe.target, forest, *values)
    return vouch(Dataset(recipe, forest, arrays.X, y, *values, provenance(engine_version=engine.VERSION)))
