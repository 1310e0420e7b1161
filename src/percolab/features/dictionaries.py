"""Autoencoders that were trained elsewhere, as methods: they encode, and `fit` learns nothing.

A folder as SAELens saves an SAE (``cfg.json``), a folder as `dictionary_learning` saves one (``ae.pt`` and
``config.json``), or any object with ``encode``, ``decode`` and ``W_dec``. Files are read as data, and no code in them
runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from percolab.features.methods import Decodes, Floats, check_activations, check_fitted, in_blocks, largest
from percolab.features.saes import SparseAutoencoder
from percolab.ground import foreign_files
from percolab.ground.arrays import as_array
from percolab.ground.validation import check_choice

#: Classes of `dictionary_learning` that can be read.
CLASSES = (
    "AutoEncoder", "AutoEncoderNew", "GatedAutoEncoder", "JumpReluAutoEncoder", "AutoEncoderTopK", "BatchTopKSAE",
    "MatryoshkaBatchTopKSAE",
)  # fmt: skip


@dataclass
class Pretrained(Decodes):
    """An autoencoder from a folder."""

    path: str = ""
    device: str = "auto"
    _encoder: Any = field(default=None, init=False, repr=False, compare=False)

    def fit(self, activations: Any) -> Self:
        """Read the folder; only the width of the activations is used."""
        folder = Path(self.path)
        if (folder / "ae.pt").exists():
            self._encoder = read_dictionary(folder)
        elif (folder / "cfg.json").exists():
            self._encoder = SparseAutoencoder.load(folder, self.device)
        else:
            raise ValueError(f"path must hold cfg.json (SAELens) or ae.pt (dictionary_learning), got {self.path!r}")
        self.directions, self.bias = self._encoder.directions, self._encoder.bias
        if activations.shape[1] != np.shape(self.directions)[1]:
            width = np.shape(self.directions)[1]
            raise ValueError(f"path must hold an autoencoder of width {activations.shape[1]}, got {width}")
        return self

    def encode(self, activations: Any) -> Any:
        """Return the codes."""
        check_fitted(self)
        return self._encoder.encode(activations)


class Wrapped(Decodes):
    """Any object with ``encode``, ``decode`` and ``W_dec`` (features, d), as a method."""

    def __init__(self, coder: Any) -> None:
        for name in ("encode", "decode", "W_dec"):
            if not hasattr(coder, name):
                raise ValueError(f"an autoencoder must have encode, decode and W_dec, got none named {name}")
        self.coder = coder
        shape = tuple(coder.W_dec.shape)
        units = np.concatenate([np.eye(shape[0], dtype=np.float32), np.zeros((1, shape[0]), np.float32)])
        decoded = as_array(coder.decode(self._like(units)))  # some divide codes by the norms of W_dec
        self.bias, self.directions = decoded[-1], decoded[:-1] - decoded[-1]

    def _like(self, values: Any) -> Any:
        """Return values in the form that the coder takes: a tensor if W_dec is one."""
        if not hasattr(self.coder.W_dec, "detach"):
            return as_array(values)
        return self.coder.W_dec.detach().new_tensor(as_array(values))

    def fit(self, activations: Any) -> Self:
        """Return the method, which is already fitted."""
        return self

    def encode(self, activations: Any) -> Any:
        """Return the codes."""
        return as_array(self.coder.encode(self._like(activations)))


# ---------------------------------------------------------------------- dictionary_learning


@dataclass(frozen=True, eq=False)
class Dictionary:
    """An autoencoder of `dictionary_learning`: a linear map, then a rule for which features fire."""

    kind: str
    weight: Floats  #: (d, features) of the encoder
    offset: Floats  #: (features,) of the encoder
    centre: Floats  #: (d,) subtracted before the encoder
    directions: Floats
    bias: Floats
    threshold: Any = 0.0  #: a feature fires above it: a number, or (features,)
    k: int | None = None
    #: for gated autoencoders, the factor and the offset of the magnitudes
    magnitude: tuple[Floats, Floats] | None = None

    def encode(self, activations: Any) -> Any:
        """Return the codes."""
        return in_blocks(check_activations(activations), len(self.directions), self._codes)

    def _codes(self, values: Floats) -> Any:
        linear = (values - self.centre) @ self.weight
        if self.magnitude is not None:
            times, added = self.magnitude
            return np.where(linear + self.offset > 0, np.maximum(times * linear + added, 0), 0)
        before = linear + self.offset
        if self.k is not None:
            return largest(before, self.k)
        return np.where(before > self.threshold, np.maximum(before, 0), 0)


def read_dictionary(folder: str | os.PathLike[str]) -> Dictionary:
    """Return the autoencoder that `dictionary_learning` saved to a folder."""
    config = foreign_files.read_json("config.json", Path(folder) / "config.json").get("trainer", {})
    kind = check_choice("dict_class", config.get("dict_class") if isinstance(config, dict) else None, CLASSES)
    state = foreign_files.read_torch("ae.pt", Path(folder) / "ae.pt")

    def get(name: str, ndim: int = 1) -> Floats:
        try:
            foreign_files.check_tensors([state.get(name)])
            values = as_array(state[name])
        except (TypeError, ValueError):
            values = np.empty(0, object)
        if values.ndim != ndim or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise ValueError(f"ae.pt must have {name}, {ndim} dimensions of finite numbers, as {kind} has")
        return np.asarray(values, np.float64)

    in_rows = kind in ("JumpReluAutoEncoder", "MatryoshkaBatchTopKSAE")
    weight = get("W_enc", 2) if in_rows else get("encoder.weight", 2).T
    directions = get("W_dec", 2) if in_rows else get("decoder.weight", 2).T
    if directions.shape != weight.T.shape:
        raise ValueError(f"ae.pt must have a decoder of shape {weight.T.shape}, got {directions.shape}")
    names = {"AutoEncoder": "bias", "AutoEncoderNew": "decoder.bias", "GatedAutoEncoder": "decoder_bias"}
    bias = get(names.get(kind, "b_dec"))
    offset = get({"GatedAutoEncoder": "gate_bias"}.get(kind, "b_enc" if in_rows else "encoder.bias"))
    rule: dict[str, Any] = {}
    if kind == "AutoEncoderTopK":
        rule = {"k": int(get("k", 0))}
        if not 1 <= rule["k"] <= len(directions):
            raise ValueError(f"ae.pt must have k from 1 to {len(directions)}, got {rule['k']}")
    elif kind in ("BatchTopKSAE", "MatryoshkaBatchTopKSAE"):
        rule = {"threshold": float(get("threshold", 0))}
    elif kind == "JumpReluAutoEncoder":
        rule = {"threshold": get("threshold")}
    elif kind == "GatedAutoEncoder":
        rule = {"magnitude": (np.exp(get("r_mag")), get("mag_bias"))}
    shapes = [bias.shape == (len(weight),), offset.shape == (len(directions),)]
    shapes += [
        np.shape(part) in ((), offset.shape) for part in (rule.get("threshold", 0.0), *rule.get("magnitude", ()))
    ]
    if not all(shapes):
        raise ValueError(f"ae.pt must have vectors of {len(weight)} and {len(directions)} numbers, as {kind} has")
    centre = np.zeros_like(bias) if kind in ("AutoEncoderNew", "JumpReluAutoEncoder") else bias
    return Dictionary(kind, weight, offset, centre, directions, bias, **rule)
