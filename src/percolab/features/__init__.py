"""The judge: features of any method scored against the concepts of a forest, and simple methods to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.extras import surface

if TYPE_CHECKING:
    from percolab.features.dictionaries import Pretrained
    from percolab.features.methods import ICA, PCA, KMeans, Method, Neurons, Oracle, RandomDictionary
    from percolab.features.register import available, find_method
    from percolab.features.result import Score
    from percolab.features.saes import BatchTopK, Gated, JumpReLU, Matryoshka, SparseAutoencoder, TopK
    from percolab.features.scoring import score

__all__ = [
    "ICA",
    "PCA",
    "BatchTopK",
    "Gated",
    "JumpReLU",
    "KMeans",
    "Matryoshka",
    "Method",
    "Neurons",
    "Oracle",
    "Pretrained",
    "RandomDictionary",
    "Score",
    "SparseAutoencoder",
    "TopK",
    "available",
    "find_method",
    "score",
]

_HOMES = {
    "features.dictionaries": "Pretrained",
    "features.methods": "ICA KMeans Method Neurons Oracle PCA RandomDictionary",
    "features.register": "available find_method",
    "features.result": "Score",
    "features.saes": "BatchTopK Gated JumpReLU Matryoshka SparseAutoencoder TopK",
    "features.scoring": "score",
}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, extra="features")
