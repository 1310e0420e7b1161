"""What all experiments share while they run: data, split and networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.intervals import places
from percolab.nn.frame.frame import Frame
from percolab.nn.networks.device import on_device
from percolab.nn.networks.model import ResidualMLP
from percolab.nn.networks.recording import RAW, representations
from percolab.nn.probing.places import Places, find_places
from percolab.nn.represent.networks import Networks, load_networks
from percolab.nn.represent.settings import Settings
from percolab.worlds.generation import generate
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.truth import AnyDataset, Truth, truth

MOST_SCORED = 20_000


class Work(Frame[Settings]):
    """One experiment while it runs: its data and networks."""

    @cached_property
    def dataset(self) -> AnyDataset:
        """The dataset or world."""
        return generate(self.settings.recipe, progress=self.progress)

    @cached_property
    def inputs(self) -> torch.Tensor:
        """(n, d) X on the device."""
        return on_device("X", self.dataset.X, self.device, torch.float32)

    @cached_property
    def truths(self) -> list[Truth]:
        """The hierarchies behind the samples."""
        count = len(getattr(self.dataset.recipe, "factors", (None,)))
        return [truth(self.dataset, k) for k in range(count)]

    def probed(self, least_depth: int = 0) -> list[Places]:
        """Return the latents of each hierarchy that are probed."""
        s = self.settings
        depths = [depth for depth in s.depths if depth >= least_depth]
        return [find_places(t.forest, t.rows, depths, s.min_size) for t in self.truths]

    def latent_places(self, least_depth: int = 0) -> NDArray[np.int64]:
        """Return where the probed latents are, hierarchy after hierarchy, for blocks of kin."""
        probed = zip(self.truths, self.probed(least_depth), strict=True)
        return np.concatenate([places(one.forest, found.latent) for one, found in probed])

    @cached_property
    def split(self) -> Split:
        """The rows that networks were trained on, and the others."""
        return split_rows(self.truths[0].forest, self.settings.training.seeds.split)

    @cached_property
    def scored(self) -> NDArray[np.int64]:
        """Samples that no network was trained on, and features are scored on: at most `MOST_SCORED`, evenly spread."""
        rows = np.sort(np.concatenate([self.split.validation, self.split.test]))
        return rows[:: -(-rows.size // MOST_SCORED)]

    @cached_property
    def networks(self) -> Networks:
        """The trained networks."""
        return load_networks(self.output)

    def looks(self, numbers: Sequence[int], epochs: Sequence[int]) -> Iterator[tuple[int, int, ResidualMLP]]:
        """Yield, for networks and epochs in turn, their places in the two lists and the network, telling progress."""
        total = len(numbers) * len(epochs)
        for i, number in enumerate(numbers):
            for j, epoch in enumerate(epochs):
                self.progress("measures", i * len(epochs) + j, total)
                yield i, j, self.networks.model(number, epoch, self.device)
        self.progress("measures", total, total)


def layer_names(model: ResidualMLP) -> list[str]:
    """Return the representations that are looked at: the input itself, and all that the paper probes."""
    return [RAW, *representations(model)]
