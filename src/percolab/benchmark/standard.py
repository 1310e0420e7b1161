"""The methods that are compared unless others are asked for. Imports nothing, so that help pages can name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

READING = "linear-reading"
"""No method but the ceiling beside them: how far siblings are apart, compared with how far each is spread."""
ORACLE = "oracle"

_SAE = ("n_features", "steps", "batch_size", "lr")
METHODS: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {
    "neurons": ("neurons", (), {}),
    "kmeans": ("kmeans", ("n_features",), {"batch_size": 16384, "max_iterations": 50}),
    "pca": ("pca", ("n_components",), {}),
    "ica": ("ica", ("n_components",), {"max_iterations": 100}),
    "random-dictionary": ("random-dictionary", ("n_features", "k"), {}),
    "topk": ("topk", (*_SAE, "k"), {}),
    "batchtopk": ("batchtopk", (*_SAE, "k"), {}),
    "jumprelu": ("jumprelu", (*_SAE, "k"), {}),
    "gated": ("gated", _SAE, {}),
    "matryoshka": ("matryoshka", (*_SAE, "k"), {}),
    "batchtopk-frozen-decoder": ("batchtopk", (*_SAE, "k"), {"frozen": "decoder"}),
    "batchtopk-frozen-encoder": ("batchtopk", (*_SAE, "k"), {"frozen": "encoder"}),
    "oracle": ("oracle", (), {}),
    "oracle-flipped": ("oracle", (), {"flipped": 0.05}),
}
"""By name: the method, what it takes of the budget, and its other options."""
STANDARD = (READING, *METHODS)
