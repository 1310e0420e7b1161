"""The data of experiments by name, at the paper's scale and at a small one, and how networks on them are trained.

There is one small scale for each: 10,000 points of one cluster or of each hierarchy of a world, 100,000 points of many
clusters. It takes minutes on a laptop. Needs no torch.
"""

from __future__ import annotations

from dataclasses import replace

from percolab.corpora.corpus import Corpus
from percolab.ground.validation import check_choice
from percolab.model.recipe import Recipe
from percolab.nn.config import SCALES, CorpusTrainConfig, TrainConfig
from percolab.study.settings import AnyRecipe
from percolab.worlds.generation import PRESETS
from percolab.worlds.superposition import Superposition

HIERARCHY = ("one-cluster", "multi-cluster")
WORLDS = ("superposed-2", "superposed-4")
DOCUMENTS = ("documents", "documents-2048")
DATA = (*HIERARCHY, *WORLDS, *DOCUMENTS)

#: Points and least cluster size.
_SMALL = {
    "one-cluster": (10_000, 1),
    "multi-cluster": (100_000, 100),
    "superposed-2": (10_000, 1),
    "superposed-4": (10_000, 1),
}
_SMALL_DIM = 50  #: Of data of one hierarchy: below the width of the small network, as at the paper's scale.
_EPOCHS = {"one-cluster": 500, "multi-cluster": 2500, "superposed-2": 200, "superposed-4": 200}
SMALL_TRAINING = TrainConfig(d_model=64, epochs=60, batch_size=256, lr=1e-3)


#: Tokens, and fewest tokens of a context. Contexts that are smaller than a segment is long are given away by tokens
#: that repeat: `documents-2048` has such contexts.
_TOKENS = {"documents": (8192, 32), "documents-2048": (2048, 8)}


def corpus(data: str, scale: str = "paper") -> Corpus:
    """Return two lexicons over the same tokens, and documents of them."""
    tokens, least = (256, 16) if scale == "small" else _TOKENS[data]
    lexicons = [Recipe(n_points=tokens, dim=2, mode="one_cluster", seeds=1 + k) for k in range(2)]
    return Corpus(lexicons, length=32 if scale == "small" else 64, min_size=least, seed=1)


def corpus_training(data: str, scale: str = "paper") -> CorpusTrainConfig:
    """Return how networks on documents are trained."""
    if scale == "small":
        return CorpusTrainConfig(d_model=64, n_blocks=2, steps=400, batch_size=64, warmup=40, lr=3e-3)
    return CorpusTrainConfig(steps=6000 if data == "documents" else 5000)


def recipe(data: str, scale: str = "paper") -> AnyRecipe:
    """Return the preset of a name, or what is made like it with fewer points."""
    if data in DOCUMENTS:
        return corpus(data, scale)
    found = PRESETS[data if data in WORLDS else f"paper-{check_choice('data', data, DATA)}"]
    if check_choice("scale", scale, SCALES) == "paper":
        return found
    n, least = _SMALL[data]
    if isinstance(found, Superposition):
        return replace(found, factors=tuple(replace(factor, n_points=n) for factor in found.factors))
    return replace(found, n_points=n, dim=_SMALL_DIM, min_cluster_size=least)


def training(data: str, scale: str = "paper") -> TrainConfig:
    """Return how networks on some data are trained."""
    if scale == "small":
        return SMALL_TRAINING
    return TrainConfig(epochs=_EPOCHS[data], d_model=512 if data == "multi-cluster" else 256)
