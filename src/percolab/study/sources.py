"""Sources of activations: any network, a function, arrays, or the raw input, all with one interface.

A source gives one activation vector per row of a view: per point, or per position of a document.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from percolab.ground.devices import on_device
from percolab.ground.foreign_files import read_array, read_json
from percolab.ground.text import printable, shown
from percolab.nn.interventions import module_names
from percolab.nn.networks.activations import activations
from percolab.study.measured import PERMUTED, RAW
from percolab.study.subject import DocumentView, View

#: Layer and position: ``blocks.1[-1]`` is the last position of ``blocks.1``.
_POSITION = re.compile(r"(.+)\[(-?\d+)\]")


class Source(Protocol):
    """Anything that gives activations."""

    def layers(self) -> list[str]:
        """Return the layers that are read unless others are asked for."""

    def read(self, view: View, layers: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
        """Return (rows, width) activations by layer; a source without layers gives the same for every name."""


@dataclass(frozen=True, eq=False)
class TorchSource:
    """A torch module, whose layers are the names of its modules."""

    model: nn.Module

    def layers(self) -> list[str]:
        """Return the last block, for networks of this package."""
        blocks = getattr(self.model, "blocks", None)
        if blocks is None:
            raise ValueError(f"layers must name modules of the network ({module_names(self.model)}), got None")
        return [f"blocks.{len(blocks) - 1}"]

    def read(self, view: View, layers: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
        """Run the network once for all layers."""
        asked = {layer: _POSITION.fullmatch(str(layer)) for layer in layers}
        names = {layer: match[1] if match else layer for layer, match in asked.items()}
        recorded = activations(self.model, view.inputs, list(dict.fromkeys(names.values())), device=device)
        by_layer = {}
        for layer, match in asked.items():
            values = recorded[names[layer]]
            by_layer[layer] = as_rows(values[:, int(match[2])] if match else values, view, layer)
        return by_layer


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """A function from inputs to an array of activations."""

    function: Callable[[Any], Any]

    def layers(self) -> list[str]:
        """Return no name: there is one layer."""
        return []

    def read(self, view: View, layers: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
        """Call the function once."""
        values = on_device("activations", self.function(view.inputs), device, torch.float32)
        return dict.fromkeys(layers, as_rows(values, view, "the function"))


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Activations that were recorded before: one array, or one per layer."""

    arrays: Mapping[str, Any]
    documents: int | None = None  #: lexicon of the held-out documents, where there are several

    def layers(self) -> list[str]:
        """Return the names of the layers."""
        return [name for name in self.arrays if name]

    def read(self, view: View, layers: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
        """Return the arrays that are asked for."""
        if isinstance(view, DocumentView) and len(view.data.lexicons) > 1 and self.documents != view.factor:
            rule = "a network must be a module or a function for a corpus of several lexicons, each with its documents"
            raise ValueError(f"{rule}, got an array")
        by_layer = {}
        for layer in layers:
            name = layer if layer in self.arrays else ""
            if name not in self.arrays:
                raise ValueError(f"layers must be those of the arrays ({', '.join(self.arrays)}), got {layer!r}")
            by_layer[layer] = as_rows(on_device("activations", self.arrays[name], device, torch.float32), view, layer)
        return by_layer


@dataclass(frozen=True, eq=False)
class Raw:
    """The input itself; for documents, the decayed bag of tokens, which takes 4 n T V bytes on the device."""

    #: whether inputs are in another order, drawn once: readings are then unrelated to the truth
    permuted: bool = False

    def layers(self) -> list[str]:
        """Return no name: there is one layer."""
        return []

    def read(self, view: View, layers: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
        """Return the input as rows."""
        count = view.shape[0]
        order = np.random.default_rng(0).permutation(count) if self.permuted else np.arange(count)
        values = on_device("X", view.raw(order), device, torch.float32)
        return dict.fromkeys(layers, as_rows(values, view, PERMUTED if self.permuted else RAW))


@dataclass(frozen=True, eq=False)
class Folder:
    """Activations in a folder: ``.npy`` files, and ``manifest.json``, which lists what each file contains."""

    path: Path
    entries: tuple[dict[str, Any], ...]

    def places(self, draw: int = 0) -> list[tuple[str, int | None, int]]:
        """Return role, factor and place in its list of every network of a draw."""
        networks = [(e["role"], e.get("factor"), e.get("seed", 0)) for e in self.entries if e.get("draw", 0) == draw]
        return list(dict.fromkeys(networks))

    @property
    def layers(self) -> list[str]:
        """The layers, by their names."""
        return list(dict.fromkeys(e.get("layer", "activations") for e in self.entries))

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with the manifest's list, and with the files' sizes and times."""
        files = [(self.path / e["file"]).stat() for e in self.entries]
        known = [self.entries, [(file.st_size, file.st_mtime_ns) for file in files]]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]

    def networks(self, factor: int | None) -> dict[str, list[RecordedSource]]:
        """Return the networks of the first draw by role: those of the factor, and those without a factor."""
        by_role: dict[str, list[RecordedSource]] = {}
        for role, on, seed in self.places():
            if on in (None, factor or 0):
                by_role.setdefault(role, []).append(RecordedSource(self, role, on, seed))
        return by_role

    def source(
        self, role: str, factor: int | None, seed: int, draw: int = 0, documents: int | None = None
    ) -> ArraySource:
        """Return the arrays of a network, by layer; those for the documents of a lexicon, if one is named."""
        wanted = {"role": role, "factor": factor, "seed": seed, "draw": draw, "documents": documents}
        usual = {"seed": 0, "draw": 0}
        files = {
            e.get("layer", ""): e["file"]
            for e in self.entries
            if all(e.get(name, usual.get(name)) == value for name, value in wanted.items())
        }
        if not files:
            raise ValueError(f"manifest.json must have activations with {shown(wanted)}")
        return ArraySource({layer: read_array(name, self.path / name) for layer, name in files.items()}, documents)


@dataclass(frozen=True, eq=False)
class RecordedSource:
    """A network of a folder: activations for the points, or for the documents of each lexicon."""

    folder: Folder
    role: str
    factor: int | None
    seed: int
    draw: int = 0

    def layers(self) -> list[str]:
        """Return the names of the layers."""
        return self.folder.layers

    def read(self, view: View, layers: Sequence[str], device: torch.device) -> dict[str, torch.Tensor]:
        """Return the arrays for the view's points or documents."""
        documents = view.factor if isinstance(view, DocumentView) else None
        source = self.folder.source(self.role, self.factor, self.seed, self.draw, documents)
        return source.read(view, layers, device)


def folder(path: str | os.PathLike[str]) -> Folder:
    """Return the activations in a folder, checked: every file is a plain ``.npy`` in it, with a role."""
    root = Path(path)
    listed = read_json("manifest.json", root / "manifest.json").get("activations")
    if not isinstance(listed, list) or not listed:
        raise ValueError("manifest.json must have a list named activations, of {file, role, factor, seed, draw, layer}")
    kinds = {"file": str, "role": str, "layer": str, "factor": int, "seed": int, "draw": int}
    kinds |= {"rows": int, "documents": int}
    for entry in listed:
        if not isinstance(entry, dict) or not {"file", "role"} <= set(entry):
            raise ValueError(f"activations of manifest.json must have file and role, got {shown(entry)}")
        for name, value in entry.items():
            if name not in kinds or not (isinstance(value, kinds[name]) or (name == "factor" and value is None)):
                raise ValueError(f"activations of manifest.json must not have {shown(name)}: {shown(value)}")
        file = entry["file"]
        if Path(file).name != file or not file.endswith(".npy") or printable(file) != file:
            raise ValueError(f"file must be the name of an .npy in the folder, got {shown(entry['file'])}")
        values = read_array(file, root / file)
        if values.ndim < 2 or values.dtype.kind not in "fiu" or entry.get("rows", len(values)) != len(values):
            rule = f"{entry.get('rows', 'some')} rows of numbers, as manifest.json says"
            raise ValueError(f"{file} must have {rule}, got {values.dtype} of shape {values.shape}")
    return Folder(root, tuple(listed))


def as_source(network: Any) -> Source:
    """Return a source of activations: of a torch module, a function, an array, arrays by layer, or None (raw input)."""
    if network is None:
        return Raw()
    if isinstance(network, nn.Module):
        return TorchSource(network)
    if isinstance(network, Mapping):
        return ArraySource({str(name): values for name, values in network.items()})
    if hasattr(network, "__array__"):
        return ArraySource({"": network})
    if isinstance(network, Raw | FunctionSource | ArraySource | TorchSource | RecordedSource):
        return network
    if callable(network):
        return FunctionSource(network)
    kinds = "a torch module, a function, an array, arrays by layer or None"
    raise ValueError(f"a network must be {kinds}, got {type(network).__name__}")


def as_rows(values: torch.Tensor, view: View, layer: str) -> torch.Tensor:
    """Return activations as (rows, width); raise if their shape does not fit the view's inputs."""
    wanted, shape = view.shape, tuple(values.shape)
    by_input = shape[:-1] == wanted or (len(wanted) > 1 and len(shape) == 2 and shape[0] == int(np.prod(wanted)))
    if by_input and shape[-1]:
        return values.reshape(-1, shape[-1])
    if shape[:1] == wanted[:1] and len(shape) == len(wanted) + 2:
        rule = f"{layer} must name a position, as {layer}[-1] does"
        raise ValueError(f"{rule}: it gives (rows, positions, width), {shape}")
    form = "(rows, width)" if len(wanted) == 1 else "(documents, positions, width)"
    raise ValueError(f"{layer} must give {form} for {' x '.join(map(str, wanted))} inputs, got {shape}")
