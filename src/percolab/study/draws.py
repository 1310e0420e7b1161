"""Draws of the data: recipes that differ in nothing but their seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from percolab.corpora.corpus import Corpus
from percolab.model.recipe import Recipe, Seeds
from percolab.worlds.recipe import Superposition

STEP = 1_000_000
"""What each draw adds to every seed: far more than seeds of one recipe are apart, so that no draw shares one."""

R = TypeVar("R", Recipe, Superposition, Corpus)


def redrawn(recipe: R, draw: int) -> R:
    """Return the recipe of a draw: draw 0 is the recipe itself, draw d has every seed larger by d · `STEP`."""
    if draw == 0:
        return recipe
    shift = draw * STEP
    if isinstance(recipe, Recipe):
        seeds = Seeds(*(seed + shift for seed in (recipe.seeds.graph, recipe.seeds.embed, recipe.seeds.value)))
        return replace(recipe, seeds=seeds)
    if isinstance(recipe, Superposition):
        factors = tuple(redrawn(factor, draw) for factor in recipe.factors)
        return replace(recipe, factors=factors, seed=recipe.seed + shift)
    lexicons = []
    for k, lexicon in enumerate(recipe.lexicons):
        if not isinstance(lexicon, Recipe):
            raise ValueError(f"draws need lexicons that are recipes, got a forest for lexicon {k}")
        lexicons.append(redrawn(lexicon, draw))
    return recipe.replace(lexicons=lexicons, seed=recipe.seed + shift)
