"""Draws of the data: recipes that differ in nothing but their seeds. Draw 0 is the recipe as it is.

Draw d adds d times `OFFSET` to the seeds of graph, positions and values of every hierarchy, and to the seed that a
superposed world is put together by. The networks of a draw have seeds of their own in the same way, so no two draws
share initial weights.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from percolab.model.recipe import Recipe, Seeds
from percolab.worlds.recipe import Superposition

OFFSET = 1_000_000
"""Between the seeds of two draws: beyond the 10,000 and 20,000 by which the seeds of one dataset differ."""
AnyRecipe = Recipe | Superposition


def reseeded(recipe: AnyRecipe, draw: int) -> AnyRecipe:
    """Return the recipe of a draw."""
    if not draw:
        return recipe
    if isinstance(recipe, Superposition):
        factors = [_reseeded(factor, draw) for factor in recipe.factors]
        return replace_world(recipe, factors, recipe.seed + draw * OFFSET)
    return _reseeded(recipe, draw)


def replace_world(world: Superposition, factors: list[Recipe], seed: int) -> Superposition:
    """Return a world with other factors and another seed."""
    return Superposition(factors, world.weights, world.product, world.scales, world.dim, world.rotate, seed)


def _reseeded(recipe: Recipe, draw: int) -> Recipe:
    before = recipe.seeds
    seeds = Seeds(**{name: seed + draw * OFFSET for name, seed in asdict(before).items()})
    target = recipe.target
    if getattr(target, "seed", None) == before.value:  # the target draws from the seed of values
        target = replace(target, seed=seeds.value)
    return replace(recipe, seeds=seeds, target=target)


def network_seeds(count: int, draw: int, first: int = 0) -> list[int]:
    """Return the seeds of the networks of a draw: `first` and those after it, for draw 0."""
    return [first + draw * OFFSET + k for k in range(count)]
