"""The register of methods: percolab's by name, others by an entry point or an import path; and specs with options.

A package registers its class by an entry point in the group ``percolab.methods``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from percolab.features import dictionaries, methods, saes
from percolab.features.saes import SparseAutoencoder
from percolab.ground.arrays import as_array
from percolab.ground.extras import missing

GROUP = "percolab.methods"

#: Methods that come with percolab, by name.
CLASSES: dict[str, type[Any]] = {
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


def available() -> list[str]:
    """Return the names of all methods: percolab's own, then those of installed packages."""
    return [*CLASSES, *sorted({entry.name for entry in metadata.entry_points(group=GROUP)} - set(CLASSES))]


def find_method(name: str) -> type[Any]:
    """Return the class of a method by its name or as ``"package.module:Class"``; percolab's own names come first."""
    if name in CLASSES:
        return CLASSES[name]
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            kind = getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"method must be a class that can be imported, got {name!r}: {error}") from error
    else:
        entries = metadata.entry_points(group=GROUP, name=name)
        if not entries:
            raise ValueError(f"method must be one of {', '.join(available())} or package.module:Class, got {name!r}")
        kind = next(iter(entries)).load()
    if not (callable(getattr(kind, "fit", None)) and callable(getattr(kind, "encode", None))):
        raise ValueError(f"method must have fit and encode, got {name!r}")
    return kind


# ---------------------------------------------------------------------- specs: a name with options


TRUTHFUL = ("oracle", "true-directions")  #: Methods that know the truth: ceilings and positive controls.

_SAE = ("n_features", "steps", "batch_size", "lr")
#: By name: the method, the fields of the budget that it takes, and its other options.
METHODS: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {
    "neurons": ("neurons", (), {}),
    "kmeans": ("kmeans", ("n_features",), {"batch_size": 16384, "max_iterations": 50, "fall": 1e-3}),
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
    "batchtopk-soft-frozen-decoder": ("batchtopk", (*_SAE, "k"), {"frozen": "soft"}),
    "true-directions": ("true-directions", ("k",), {}),
    "oracle": ("oracle", (), {}),
    "oracle-flipped": ("oracle", (), {"flipped": 0.05}),
    "oracle-absorbed": ("oracle", (), {"absorbed": 0.3}),
    "oracle-split": ("oracle", (), {"split": 3}),
}

CONSTANTS = {"True": True, "False": False, "None": None}  #: Options that are neither numbers nor text.


@dataclass(frozen=True)
class Budget:
    """The size and the training length of methods that have such options."""

    n_features: int = 4096
    k: int = 32  #: features that fire on a row
    steps: int = 2000
    batch_size: int = 4096
    lr: float = 1e-3
    n_components: int = 64  #: of PCA and ICA; each gives two features


#: For methods given by name without sizes, outside the benchmark.
MODEST = Budget(n_features=512, k=16, steps=1000, batch_size=1024, lr=2e-3, n_components=32)


@dataclass(frozen=True)
class Entry:
    """A method with its options, without seed and device."""

    name: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name of the method as part of a file name."""
        return re.sub(r"[^A-Za-z0-9.@=+-]", "-", self.name)


def entry(spec: str, budget: Budget) -> Entry:
    """Return a method by its spec: NAME, package.module:Class, or either with @option=value+option=value.

    Values are numbers, True, False, None, or else text.
    A user's class gets those fields of the budget that its constructor has.
    """
    name, asked = take_options(spec)
    method, taken, fixed = METHODS.get(name, (name, None, {}))
    accepted, values = inspect.signature(find_method(method)).parameters, asdict(budget)
    options = {key: values[key] for key in (values if taken is None else taken) if key in accepted} | dict(fixed)
    for key in asked:
        if key not in accepted:
            raise ValueError(f"method must have the option it is given, got {key!r} for {name!r}")
    return Entry(spec, method, options | asked)


def has_sae_lens() -> bool:
    """Return whether SAELens is installed."""
    return importlib.util.find_spec("sae_lens") is not None


def needs_sae_lens(asked: Entry) -> bool:
    """Return whether SAELens trains the method."""
    return issubclass(find_method(asked.method), SparseAutoencoder)


def check_installed(asked: Entry) -> Entry:
    """Return the method; raise ImportError if it needs SAELens, which is not installed."""
    if needs_sae_lens(asked) and not has_sae_lens():
        raise missing(f"{asked.name} needs", "SAELens", "sae")
    return asked


def make(asked: Entry, seed: int, device: Any, width: int | None = None) -> Any:
    """Return the method; the seed and the device are passed if its constructor takes them.

    There are at most `width` components: the raw input may have fewer columns than the budget has components.
    """
    kind, here = find_method(asked.method), {"seed": seed, "device": str(device)}
    here = {name: value for name, value in here.items() if name in inspect.signature(kind).parameters}
    options = dict(asked.options)
    if width is not None and "n_components" in options:
        options["n_components"] = min(options["n_components"], width)
    return kind(**here | options)


def source(asked: Entry) -> str | None:
    """Return the sha256 of the file that defines a user's method; None for percolab's methods, known by its version."""
    kind: Any = find_method(asked.method)
    return None if asked.method in CLASSES else _file_digest(kind)


@cache
def _file_digest(kind: Any) -> str | None:
    """Return the sha256 of the file of a class, None if it has none; cached: an imported class does not change."""
    try:
        file = inspect.getsourcefile(kind)
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except (TypeError, OSError):  # the class is from a notebook or a compiled module
        return None


def as_taken(method: Any, activations: Any) -> Any:
    """Return a tensor of activations in the form that a method takes: as it is if the method is made for a device."""
    return activations if "device" in inspect.signature(type(method).__init__).parameters else as_array(activations)


def fitted(asked: Entry, seed: int, activations: Any) -> Any:
    """Return the method, made on the device of a tensor of activations and fitted to them."""
    method = make(asked, seed, activations.device, activations.shape[1])
    method.fit(as_taken(method, activations))
    return method


def decoder_of(method: Any, activations: Any) -> dict[str, Any]:
    """Return a method's decoder, and the activations that it decodes, as `score` takes them; nothing without one."""
    if getattr(method, "directions", None) is None:
        return {}
    return {"directions": method.directions, "bias": method.bias, "activations": activations}


def take_options(spec: str, names: Collection[str] | None = None) -> tuple[str, dict[str, Any]]:
    """Return a spec without the options of these names, or without any, and these options."""
    name, _, changes = spec.partition("@")
    texts = changes.split("+") if changes else []
    rest = [text for text in texts if names is not None and text.partition("=")[0] not in names]
    return "@".join([name, *(["+".join(rest)] if rest else [])]), dict(_option(t, spec) for t in texts if t not in rest)


def _option(text: str, spec: str) -> tuple[str, Any]:
    name, equals, word = text.partition("=")
    if not equals or not name:
        raise ValueError(f"method must be NAME or NAME@option=value+option=value, got {spec!r}")
    if word in CONSTANTS:
        return name, CONSTANTS[word]
    for kind in (int, float):
        try:
            return name, kind(word)
        except ValueError:
            continue
    return name, word
