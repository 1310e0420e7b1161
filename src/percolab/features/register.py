"""The register of methods: percolab's own by name, those of other packages by an entry point or an import path.

A package makes its class known by an entry point in the group ``percolab.methods``.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from percolab.features import dictionaries, methods, saes

GROUP = "percolab.methods"

METHODS: dict[str, type[Any]] = {
    "neurons": methods.Neurons,
    "kmeans": methods.KMeans,
    "pca": methods.PCA,
    "ica": methods.ICA,
    "random-dictionary": methods.RandomDictionary,
    "topk": saes.TopK,
    "batchtopk": saes.BatchTopK,
    "jumprelu": saes.JumpReLU,
    "gated": saes.Gated,
    "matryoshka": saes.Matryoshka,
    "oracle": methods.Oracle,
    "true-directions": methods.TrueDirections,
    "pretrained": dictionaries.Pretrained,
}
"""Methods that come with percolab, by name."""


def available() -> list[str]:
    """Return the names of all methods: percolab's own, then those of installed packages."""
    return [*METHODS, *sorted({entry.name for entry in metadata.entry_points(group=GROUP)} - set(METHODS))]


def find_method(name: str) -> type[Any]:
    """Return the class of a method by its name or as ``"package.module:Class"``; percolab's own names come first."""
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"method must be a class that can be imported, got {name!r}: {error}") from error
    else:
        entries = metadata.entry_points(group=GROUP, name=name)
        if not entries:
            raise ValueError(f"method must be one of {', '.join(available())} or package.module:Class, got {name!r}")
        found = next(iter(entries)).load()
    if not (callable(getattr(found, "fit", None)) and callable(getattr(found, "encode", None))):
        raise ValueError(f"method must have fit and encode, got {name!r}")
    chosen: type[Any] = found
    return chosen
