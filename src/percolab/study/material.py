"""The data of one draw, and what experiments on them share: truths, split, the latents that are probed, networks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.ground.arrays import Floats, Ints
from percolab.ground.devices import choose_device, on_device
from percolab.ground.progress import Progress
from percolab.intervals import places
from percolab.nn.config import AnyTrainConfig
from percolab.nn.networks.activations import RAW, activations, representations
from percolab.nn.probing.probed_latents import Places, find_places
from percolab.nn.training.training import TrainResult
from percolab.store.finished import load
from percolab.study.cells import Array, Here
from percolab.study.networks import Networks, Recorded, find_make, self_trained, trained
from percolab.study.settings import AnyRecipe, Settings
from percolab.study.sources import RecordedSource
from percolab.study.subject import AnyData, PointView, n_factors
from percolab.worlds.generation import generate
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import AnyDataset, Truth, truth

MOST_SCORED = 20_000


#: The data that were made last, which the next cell most likely wants too.
_LAST: dict[tuple[AnyRecipe, str], AnyDataset] = {}


@dataclass(frozen=True, eq=False)
class Look:
    """One layer of a network, as it was after an epoch."""

    model: Any
    epoch: int
    layer: str
    A: torch.Tensor  #: (n, width) activations of every row


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one draw, made when they are first asked for; cells of one process share them."""

    settings: Settings[Any]
    here: Here = Here()  # noqa: RUF009  # frozen
    number: int = 0  #: which of the study's data

    @property
    def progress(self) -> Progress:
        """What shows how far a cell is."""
        return self.here.progress

    @cached_property
    def data(self) -> AnyData:
        """The dataset, the world or the corpus."""
        recipe = self.settings.recipes[self.number]
        return recipe if isinstance(recipe, Corpus) else self.dataset

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
        return [truth(self.dataset, k) for k in range(n_factors(self.dataset))]

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

    # ------------------------------------------------------------------ networks

    @cached_property
    def make(self) -> Any:
        """What makes networks of one's own from a seed; None where they are the paper's, or transformers."""
        return partial(find_make(self.settings.network), self.data) if self.settings.network else None

    @property
    def configs(self) -> list[Any]:
        """How networks are trained, one for each seed."""
        return list(self.settings.training.with_seeds(self.settings.network_seeds))

    def target(self, k: int) -> Any:
        """Return the data with the target, or the documents, of one hierarchy."""
        several: Any = self.data
        return several.swapped(k) if n_factors(self.data) > 1 else self.data

    def train(
        self, configs: Sequence[AnyTrainConfig] | None = None, models: Sequence[nn.Module] | None = None, **given: Any
    ) -> Networks:
        """Train networks together, one for each seed unless told otherwise.

        They start from `models`, or from the initial weights of their seeds; an interrupted training is then resumed.
        `given` is for `percolab.nn.train`.
        """
        here, start = (self.here, self.make) if models is None else (replace(self.here, scratch=None), models)
        given = given if isinstance(self.data, Corpus) else {"split": self.split, **given}
        results = trained(here, self.data, configs or self.configs, start, **given)
        return Networks.of(results, make=self.settings.network)

    def train_by_factor(self, *, tuned: bool = False, **given: Any) -> Networks:
        """Train one network for each hierarchy and seed; those of a seed start from the same weights.

        Parameters
        ----------
        tuned
            Whether the networks of later lexicons go on from those of the first, with documents of all lexicons.
        given
            For `percolab.nn.train`.
        """
        grid = [(k, config) for config in self.configs for k in range(n_factors(self.data))]
        if self.make is not None and callable(getattr(self.make(self.configs[0].start), "fit", None)):
            results = [self_trained(self.make(config.start), config, self.target(k)) for k, config in grid]
        elif isinstance(self.data, Corpus):
            results = self._on_documents(self.data, tuned)
        else:
            y = np.stack([np.asarray(self.target(k).y) for k, _ in grid])
            results = trained(self.here, self.data, [config for _, config in grid], self.make, targets=y, **given)
        return Networks.of(results, [k for k, _ in grid], self.settings.network)

    def _on_documents(self, corpus: Corpus, tuned: bool) -> list[TrainResult]:
        by_lexicon: list[list[TrainResult]] = []
        for k in range(n_factors(corpus)):
            scratch = None if self.here.scratch is None else self.here.scratch / f"lexicon-{k}"
            if k and tuned:
                later = [replace(config, first=config.steps * config.batch_size) for config in self.configs]
                models = [copy.deepcopy(result.model) for result in by_lexicon[0]]
                mixed = corpus.replace(shares=[1 / n_factors(corpus)] * n_factors(corpus))
                by_lexicon.append(trained(replace(self.here, scratch=None), mixed, later, models))
            else:
                here = replace(self.here, scratch=scratch)
                by_lexicon.append(trained(here, corpus.swapped(k), self.configs, self.make))
        return [result for of_seed in zip(*by_lexicon, strict=True) for result in of_seed]

    def looks(self, networks: Networks | Recorded, epochs: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
        """Yield, for networks and epochs in turn, their places and the network, telling progress."""
        total = len(networks) * len(epochs)
        for i in range(len(networks)):
            for j, epoch in enumerate(epochs):
                self.progress("measures", i * len(epochs) + j, total)
                yield i, j, self.model(networks, i, epoch)
        self.progress("measures", total, total)

    def measured(
        self,
        networks: Networks | Recorded,
        epochs: Sequence[int],
        layers: Sequence[str],
        measure: Callable[[Look], Mapping[str, Floats]],
    ) -> dict[str, Array]:
        """Return (networks, epochs, layers, …) what is measured of every network, epoch and layer."""
        found: dict[str, list[Floats]] = {}
        for _, j, model in self.looks(networks, epochs):
            recorded = {RAW: self.inputs, **self.record(model, [name for name in layers if name != RAW])}
            for name in layers:
                for key, values in measure(Look(model, epochs[j], name, recorded[name])).items():
                    found.setdefault(key, []).append(values)
        shape = len(networks), len(epochs), len(layers)
        return {key: np.stack(v).astype(np.float32).reshape(*shape, *v[0].shape) for key, v in found.items()}

    def measured_by_factor(self, networks: Networks | Recorded, *of: Any) -> dict[str, Array]:
        """Return (seeds, hierarchies, epochs, layers, …) the same for networks that `train_by_factor` made."""
        shape = self.settings.seeds, len(self.truths)
        return {key: v.reshape(*shape, *v.shape[1:]) for key, v in self.measured(networks, *of).items()}

    def model(self, networks: Networks | Recorded, number: int = 0, epoch: int | None = None) -> Any:
        """Return a network on the device, as it was after an epoch, None being the last."""
        return networks.model(number, self.data, epoch=epoch, device=self.device)

    def layers(self, networks: Networks | Recorded) -> list[str]:
        """Return the representations that are looked at: the input, and all that the paper probes or that are named."""
        return [RAW, *(self.settings.layers or representations(self.model(networks)))]

    def record(self, model: nn.Module | RecordedSource, layers: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return (n, width) activations of every row, by layer."""
        if isinstance(model, RecordedSource):
            return model.read(PointView(self.dataset, 0, self.split.train, self.split.test), layers, self.device)
        recorded = activations(model, self.inputs, list(layers), device=self.device)
        for name, values in recorded.items():
            if values.ndim != 2:
                raise ValueError(f"layers must give (rows, width), got {tuple(values.shape)} for {name!r}")
        return recorded
