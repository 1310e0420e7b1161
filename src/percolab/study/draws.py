"""Draws of the data: recipes that differ in nothing but their seeds. Draw 0 is the recipe as it is.

The networks of a draw have seeds of their own in the same way, so no two draws share initial weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from percolab.corpora.corpus import Corpus
from percolab.model.recipe import Recipe, Seeds
from percolab.worlds.superposition import Superposition

STEP = 1_000_000
"""What each draw adds to every seed: far more than seeds of one recipe are apart, so that no draw shares one."""

R = TypeVar("R", bound=Recipe | Superposition | Corpus)
AnyRecipe = Recipe | Superposition | Corpus


def redrawn(recipe: R, draw: int) -> R:
    """Return the recipe of a draw: draw 0 is the recipe itself, draw d has every seed larger by d · `STEP`."""
    found: R = recipe if draw == 0 else _redrawn(recipe, draw)
    return found


def _redrawn(recipe: Any, draw: int) -> Any:
    shift = draw * STEP
    if isinstance(recipe, Recipe):
        seeds = Seeds(*(seed + shift for seed in (recipe.seeds.graph, recipe.seeds.embed, recipe.seeds.value)))
        target = recipe.target
        if target.seed == recipe.seeds.value:  # the target draws from the seed of values
            target = replace(target, seed=seeds.value)
        return replace(recipe, seeds=seeds, target=target)
    if isinstance(recipe, Superposition):
        factors = tuple(redrawn(factor, draw) for factor in recipe.factors)
        return replace(recipe, factors=factors, seed=recipe.seed + shift)
    lexicons = []
    for k, lexicon in enumerate(recipe.lexicons):
        if not isinstance(lexicon, Recipe):
            raise ValueError(f"draws need lexicons that are recipes, got a forest for lexicon {k}")
        lexicons.append(redrawn(lexicon, draw))
    return recipe.replace(lexicons=lexicons, seed=recipe.seed + shift)


def network_seeds(count: int, draw: int, first: int = 0) -> list[int]:
    """Return the seeds of the networks of a draw: `first` and those after it, for draw 0."""
    return [first + draw * STEP + k for k in range(count)]
