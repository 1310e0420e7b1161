"""The data of one draw, and what experiments on them share: truths, split, and the latents that are probed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.ground.devices import choose_device, on_device
from percolab.ground.progress import Progress
from percolab.intervals import places
from percolab.nn.networks.activations import RAW, activations, representations
from percolab.nn.probing.places import Places, find_places
from percolab.store.worlds import load
from percolab.study.cells import Here
from percolab.study.draws import AnyRecipe
from percolab.study.networks import Networks
from percolab.study.settings import Settings
from percolab.worlds.generation import generate
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import AnyDataset, Truth, truth

Ints = NDArray[np.int64]

MOST_SCORED = 20_000


_LAST: dict[tuple[AnyRecipe, str], AnyDataset] = {}
"""The data that were made last, which the next cell most likely wants too."""


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one draw, made when they are first asked for; cells of one process share them."""

    settings: Settings[Any]
    here: Here = Here()  # noqa: RUF009  # frozen
    number: int = 0
    """which of the study's data"""

    @property
    def progress(self) -> Progress:
        """What shows how far a cell is."""
        return self.here.progress

    @cached_property
    def dataset(self) -> AnyDataset:
        """The dataset or world."""
        recipe, store = self.settings.recipes[self.number], self.settings.store
        if (recipe, store) not in _LAST:
            _LAST.clear()
            assert not isinstance(recipe, Corpus), "documents are not made of points"
            _LAST[recipe, store] = load(store) if store else generate(recipe, progress=self.progress)
        return _LAST[recipe, store]

    @cached_property
    def device(self) -> torch.device:
        """Where to compute."""
        return choose_device(self.here.device)

    @cached_property
    def inputs(self) -> torch.Tensor:
        """(n, d) X on the device."""
        return on_device("X", self.dataset.X, self.device, torch.float32)

    @cached_property
    def truths(self) -> list[Truth]:
        """The hierarchies behind the samples."""
        count = len(getattr(self.dataset.recipe, "factors", (None,)))
        return [truth(self.dataset, k) for k in range(count)]

    @cached_property
    def split(self) -> Split:
        """The rows that networks were trained on, and the others."""
        return split_rows(self.truths[0].forest, self.settings.training.seeds.split)

    @cached_property
    def scored(self) -> Ints:
        """Samples that no network was trained on, and features are scored on: at most `MOST_SCORED`, evenly spread."""
        rows = np.sort(np.concatenate([self.split.validation, self.split.test]))
        return rows[:: -(-rows.size // MOST_SCORED)]

    def probed(self, depths: Sequence[int], min_size: int) -> list[Places]:
        """Return the latents of each hierarchy that are probed."""
        return [find_places(t.forest, t.rows, depths, min_size) for t in self.truths]

    def places(self, probed: Sequence[Places]) -> Ints:
        """Return where probed latents are, hierarchy after hierarchy, for blocks of kin."""
        return np.concatenate([places(t.forest, own.latent) for t, own in zip(self.truths, probed, strict=True)])

    def looks(self, networks: Networks, epochs: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
        """Yield, for networks and epochs in turn, their places and the network, telling progress."""
        total = len(networks) * len(epochs)
        for i in range(len(networks)):
            for j, epoch in enumerate(epochs):
                self.progress("measures", i * len(epochs) + j, total)
                yield i, j, networks.model(i, epoch, self.device, self.dataset)
        self.progress("measures", total, total)

    def layers(self, networks: Networks) -> list[str]:
        """Return the representations that are looked at: the input, and all that the paper probes or that are named."""
        if self.settings.layers:
            return [RAW, *self.settings.layers]
        return [RAW, *representations(networks.model(0, networks.epochs[0], self.device))]

    def record(self, model: nn.Module, layers: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return (n, width) activations of every row, by layer."""
        recorded = activations(model, self.inputs, list(layers), device=self.device)
        for name, values in recorded.items():
            if values.ndim != 2:
                raise ValueError(f"layers must give (rows, width), got {tuple(values.shape)} for {name!r}")
        return recorded
