"""What determines a study: settings, data by name at the paper's scale and at a small scale, and draws of the data.

The small scale has 10,000 points of one cluster or of each hierarchy of a world, or 100,000 points of many clusters. It
takes minutes on a laptop. This module needs no torch.

Draws are recipes that differ only in their seeds; draw 0 is the unchanged recipe. The seeds of networks are shifted in
the same way, so no two draws share initial weights.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from percolab.corpora.corpus import Corpus
from percolab.ground.validation import check_choice
from percolab.ground.version import __version__
from percolab.model.recipe import Recipe, Seeds
from percolab.nn.config import SCALES, CorpusTrainConfig, TrainConfig
from percolab.worlds.generation import PRESETS
from percolab.worlds.superposition import Superposition

R = TypeVar("R", bound=Recipe | Superposition | Corpus)
AnyRecipe = Recipe | Superposition | Corpus
O = TypeVar("O")  # noqa: E741
#: Added to every seed from one draw to the next: far more than the seeds of one recipe differ, so no seed repeats.
STEP = 1_000_000


# ---------------------------------------------------------------------- data by name

HIERARCHY = ("one-cluster", "multi-cluster")
WORLDS = ("superposed-2", "superposed-4")
DOCUMENTS = ("documents", "documents-2048")
DATA = (*HIERARCHY, *WORLDS, *DOCUMENTS)

_SMALL_DIM = 50  #: Dimension of data with one hierarchy: below the small network's width, as at paper scale.
_EPOCHS = {"one-cluster": 500, "multi-cluster": 2500, "superposed-2": 200, "superposed-4": 200}
SMALL_TRAINING = TrainConfig(d_model=64, epochs=60, batch_size=256, lr=1e-3)
#: Number of tokens, and fewest tokens of a context. In contexts smaller than the length of a segment, repeated tokens
#: reveal the context: `documents-2048` has such contexts.
_TOKENS = {"documents": (8192, 32), "documents-2048": (2048, 8)}


def corpus_of(data: str, scale: str = "paper") -> Corpus:
    """Return two lexicons over the same tokens, and documents of them."""
    tokens, least = (256, 16) if scale == "small" else _TOKENS[data]
    lexicons = [Recipe(n_points=tokens, dim=2, mode="one_cluster", seeds=1 + k) for k in range(2)]
    return Corpus(lexicons, length=32 if scale == "small" else 64, min_size=least, seed=1)


def corpus_training(data: str, scale: str = "paper") -> CorpusTrainConfig:
    """Return the training configuration of networks on documents."""
    if scale == "small":
        return CorpusTrainConfig(d_model=64, n_blocks=2, steps=400, batch_size=64, warmup=40, lr=3e-3)
    return CorpusTrainConfig(steps=6000 if data == "documents" else 5000)


def recipe_of(data: str, scale: str = "paper") -> AnyRecipe:
    """Return the preset of a name, or at the small scale the same recipe with fewer points."""
    if data in DOCUMENTS:
        return corpus_of(data, scale)
    recipe = PRESETS[data if data in WORLDS else f"paper-{check_choice('data', data, DATA)}"]
    if check_choice("scale", scale, SCALES) == "paper":
        return recipe
    n, least = (100_000, 100) if data == "multi-cluster" else (10_000, 1)  # points, and least cluster size
    if isinstance(recipe, Superposition):
        return replace(recipe, factors=tuple(replace(factor, n_points=n) for factor in recipe.factors))
    return replace(recipe, n_points=n, dim=_SMALL_DIM, min_cluster_size=least)


def training_of(data: str, scale: str = "paper") -> TrainConfig:
    """Return the training configuration of networks on points."""
    if scale == "small":
        return SMALL_TRAINING
    return TrainConfig(epochs=_EPOCHS[data], d_model=512 if data == "multi-cluster" else 256)


# ---------------------------------------------------------------------- draws


def redrawn(recipe: R, draw: int) -> R:
    """Return the recipe of a draw: draw 0 is the recipe itself, draw d has every seed larger by d · `STEP`."""
    return recipe if draw == 0 else _shifted(recipe, draw * STEP)


def _shifted(recipe: Any, shift: int) -> Any:
    if isinstance(recipe, Recipe):
        seeds = Seeds(*(seed + shift for seed in (recipe.seeds.graph, recipe.seeds.embed, recipe.seeds.value)))
        target = recipe.target
        if target.seed == recipe.seeds.value:  # the target draws from the seed of values
            target = replace(target, seed=seeds.value)
        return replace(recipe, seeds=seeds, target=target)
    if isinstance(recipe, Superposition):
        factors = tuple(_shifted(factor, shift) for factor in recipe.factors)
        return replace(recipe, factors=factors, seed=recipe.seed + shift)
    for k, lexicon in enumerate(recipe.lexicons):
        if not isinstance(lexicon, Recipe):
            raise ValueError(f"draws need lexicons that are recipes, got a forest for lexicon {k}")
    lexicons = [_shifted(lexicon, shift) for lexicon in recipe.lexicons]
    return recipe.replace(lexicons=lexicons, seed=recipe.seed + shift)


def network_seeds(count: int, draw: int, first: int = 0) -> list[int]:
    """Return the seeds of the networks of a draw; for draw 0, `first` and the numbers after it."""
    return [first + draw * STEP + k for k in range(count)]


# ---------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Settings(Generic[O]):
    """Everything that determines a study."""

    experiment: str
    scale: str
    data: tuple[str, ...]
    recipes: tuple[AnyRecipe, ...]  #: recipes of the data, in draw 0
    training: Any  #: `TrainConfig` of every network, apart from seeds; for documents `CorpusTrainConfig`
    seeds: int  #: number of networks for each target; they differ in initial weights and order of rows
    options: O  #: options of the experiment
    draws: int = 1  #: number of draws of the data
    draw: int = 0  #: the draw that the recipes and seeds belong to
    network: str = ""  #: ``module:function`` of the user's networks: ``make(data, seed)`` returns one
    layers: tuple[str, ...] = ()  #: modules of the user's networks that are read
    store: str = ""  #: where the data are, if they are not made from the recipe
    digest: str = ""  #: of the targets in the store, and of the file that makes networks
    #: which part of the grid is computed now; other parts can be added later, in the same directory
    asked: tuple[str, ...] = ()
    command: str = ""  #: the command that runs the study

    @property
    def recipe(self) -> AnyRecipe:
        """The recipe, for studies with a single one."""
        return self.recipes[0]

    @property
    def network_seeds(self) -> list[int]:
        """The seeds of the networks."""
        return network_seeds(self.seeds, self.draw)

    @property
    def of_networks(self) -> dict[str, Any]:
        """The inputs that networks of a draw are made from, as plain values: without readers and methods."""
        values = self.to_dict()
        return {
            name: values[name] for name in ("percolab", "recipes", "training", "seeds", "draw", "network", "digest")
        }

    @property
    def prefix(self) -> str:
        """The beginning of the names of this draw's cells."""
        return f"draw-{self.draw}/" if self.draw else ""

    def drawn(self, draw: int) -> Settings[O]:
        """Return the settings of a draw."""
        return replace(self, recipes=tuple(redrawn(recipe, draw) for recipe in self.recipes), draw=draw)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings but the number of draws and the part that is asked for, equal after a round trip by JSON.

        A study can therefore be extended, by draws or parts, in the same directory.
        """
        values = {**asdict(self), "recipes": [recipe.to_dict() for recipe in self.recipes], "percolab": __version__}
        for name in ("draws", "asked", "command"):
            del values[name]
        return dict(json.loads(json.dumps(values)))
