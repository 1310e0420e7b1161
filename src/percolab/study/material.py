"""The data of one draw, and what experiments on them share: networks, truths, split, and probed latents."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import pandas
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.ground.arrays import Floats, Ints
from percolab.ground.devices import choose_device, on_device
from percolab.ground.progress import Progress
from percolab.intervals import places
from percolab.nn.config import AnyTrainConfig, training_from
from percolab.nn.networks.activations import RAW, activations, representations
from percolab.nn.probing.probed_latents import Places, find_places
from percolab.nn.training.history import by_epoch
from percolab.nn.training.training import TrainResult, numbers, train
from percolab.store.finished import load
from percolab.study.cells import Cell, Here
from percolab.study.measured import TRAINED, UNTRAINED
from percolab.study.networks import find_make, untrained
from percolab.study.settings import AnyRecipe, Settings
from percolab.study.sources import Folder, RecordedSource
from percolab.study.subject import AnyData, PointView, n_factors
from percolab.worlds.generation import generate
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import AnyDataset, Truth, truth

#: In a result, ``Annotated[Array, ("seed", "layer")]`` names the axes of an array for the tidy table.
Array = NDArray[Any]
T = TypeVar("T")
CPU = torch.device("cpu")
MOST_SCORED = 20_000
#: The most recent data: the next cell most likely needs them too.
_LAST: dict[tuple[AnyRecipe, str], AnyDataset] = {}


def cell_of(
    s: Settings[Any], name: str, kind: type[T], make: Callable[..., T], *needs: Cell[Any], on: Any = None, **how: Any
) -> Cell[T]:
    """Return a cell of the settings' draw; `make` is called with the draw's `Material`, or with the type `on`.

    The cell's inputs are all of the settings, unless the keyword arguments have another `made_from`.
    """
    how = {"made_from": how.pop("made_from", None) or s.to_dict(), **how}
    return Cell(f"{s.prefix}{name}", kind, partial(_made, make, s, on or Material), needs=needs, **how)


def networks_cell(
    s: Settings[Any], make: Callable[..., Networks], *needs: Cell[Any], name: str = "networks", **how: Any
) -> Cell[Networks]:
    """Return a cell of networks, which are large and not needed once they are measured."""
    return cell_of(s, name, Networks, make, *needs, lasting=False, stage="training", **how)


def _made(make: Callable[..., T], s: Settings[Any], on: Callable[..., Material], here: Here, *needed: Any) -> T:
    return make(on(s, here), *needed)


# ---------------------------------------------------------------------- networks


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one shape, each after some epochs or steps; epoch 0 is untrained. The result of a cell."""

    make: str  #: ``module:function`` of the user's networks; empty for the paper's and for transformers
    config: dict[str, Any]  #: training of the first network, as plain values; the others differ in their seeds
    seeds: list[int]  #: by network, the seed of its initial weights
    factors: list[int]  #: by network, the hierarchy that it was trained on
    epochs: list[int]  #: epochs whose weights are kept, in order
    #: by network, its scores on held-out rows; empty for a network that trains itself
    test: list[dict[str, float]]
    validation: list[dict[str, float]]
    seconds: float  #: time that training took
    weights: dict[str, Array]  #: by NETWORK/EPOCH/PARAMETER
    history: dict[str, Array]  #: (networks, epochs) by column

    @classmethod
    def of(cls, results: Sequence[TrainResult], factors: Sequence[int] | None = None, make: str = "") -> Networks:
        """Return trained networks with the weights of their kept epochs and of the last one."""
        weights, config = {}, results[0].config
        for number, result in enumerate(results):
            for epoch, state in {**result.kept, config.total: result.model.state_dict()}.items():
                for name, value in state.items():
                    weights[f"{number}/{epoch}/{name}"] = value.detach().cpu().float().numpy()
        columns = results[0].history.columns
        return cls(
            make=make,
            config=asdict(config),
            seeds=[result.config.start for result in results],
            factors=list(factors or [0] * len(results)),
            epochs=sorted({*results[0].kept, config.total}),
            test=[_scores(result.test) for result in results],
            validation=[_scores(result.validation) for result in results],
            seconds=sum({result.seconds for result in results}),  # networks trained together share one time
            weights=weights,
            history={str(name): np.stack([result.history[name].to_numpy() for result in results]) for name in columns},
        )

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def last(self) -> int:
        """The last epoch."""
        return self.epochs[-1]

    @property
    def scores(self) -> dict[str, Any]:
        """The number of networks, and how well they predict the test rows."""
        return {"test": self.test, "training_seconds": self.seconds, "networks": len(self)}

    def number(self, seed: int, factor: int = 0) -> int:
        """Return the number of the network that was trained from a seed on a hierarchy."""
        return list(zip(self.seeds, self.factors, strict=True)).index((seed, factor))

    def model(self, number: int, data: AnyData, *, epoch: int | None = None, device: torch.device = CPU) -> Any:
        """Return a network as it was after an epoch, or after the last one; its shape is that of the data."""
        model = untrained(training_from(self.config), data, self.seeds[number], self.make)
        start = f"{number}/{self.last if epoch is None else epoch}/"
        state = {name[len(start) :]: value for name, value in self.weights.items() if name.startswith(start)}
        model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
        return model.to(device)

    def untrained(self, data: AnyData) -> list[Any]:
        """Return the networks before training, one for each seed."""
        config = training_from(self.config)
        return [untrained(config, data, seed, self.make) for seed in dict.fromkeys(self.seeds)]


@dataclass(frozen=True, eq=False)
class Recorded:
    """Networks whose activations were recorded elsewhere: trained ones at the last epoch, untrained ones at epoch 0."""

    folder: Folder
    draw: int
    seeds: list[int]  #: by network, its place in its list
    factors: list[int | None]
    last: int

    @classmethod
    def of(cls, folder: Folder, draw: int, last: int) -> Recorded:
        """Return the trained networks of a folder: for each place in the lists, the networks of all hierarchies."""
        places = folder.places(draw)
        pairs = sorted(
            ((seed, factor) for role, factor, seed in places if role == TRAINED),
            key=lambda place: (place[0], place[1] or 0),
        )
        seeds, factors = [seed for seed, _ in pairs], [factor for _, factor in pairs]
        rule = f"manifest.json must have, for draw {draw}, networks of the roles {TRAINED!r} and {UNTRAINED!r}"
        if not pairs or any((UNTRAINED, None, seed) not in places for seed in seeds):
            raise ValueError(f"{rule} with the same seeds, the untrained ones without a factor")
        if len({seeds.count(seed) for seed in seeds}) > 1:
            raise ValueError(f"{rule}, as many {TRAINED} ones for each factor")
        return cls(folder, draw, seeds, factors, last)

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def scores(self) -> dict[str, Any]:
        """The number of networks."""
        return {"test": [], "training_seconds": 0.0, "networks": len(self)}

    def model(self, number: int, data: AnyData, *, epoch: int | None = None, device: torch.device = CPU) -> Any:
        """Return the activations of a network."""
        role, factor = (UNTRAINED, None) if epoch == 0 else (TRAINED, self.factors[number])
        return RecordedSource(self.folder, role, factor, self.seeds[number], self.draw)

    def untrained(self, data: AnyData) -> list[Any]:
        """Return the activations of the untrained networks, one for each seed."""
        return [self.model(self.seeds.index(seed), data, epoch=0) for seed in dict.fromkeys(self.seeds)]


def _scores(score: Any) -> dict[str, float]:
    return {} if score is None else numbers(score)


def trained(
    here: Here, data: AnyData, configs: Sequence[AnyTrainConfig], models: Any = None, **given: Any
) -> list[TrainResult]:
    """Train networks by `train` in the scratch directory of a cell, if there is one; `train` gets all other arguments.

    An interrupted run with the same settings is resumed. A run in that directory that cannot be resumed, because it is
    damaged or has other settings, is overwritten.
    """
    measure, run_dir = "excess" if isinstance(data, Corpus) else "r2", here.scratch
    given |= {"model": models, "device": here.device, "progress": by_epoch(here.progress, measure)}
    if run_dir is None:
        return train(data, list(configs), **given)
    try:
        return train(data, list(configs), run_dir=run_dir, resume=True, **given)
    except (FileNotFoundError, ValueError):  # an invalid call fails again below
        return train(data, list(configs), run_dir=run_dir, overwrite=True, **given)


def self_trained(model: Any, config: AnyTrainConfig, data: AnyData) -> TrainResult:
    """Let a network that has ``fit(data, seed)`` train itself; it has no history and no scores."""
    model.fit(data, config.start)
    return TrainResult(model, config, pandas.DataFrame(), None, None, 0.0, "", None)


# ---------------------------------------------------------------------- data


@dataclass(frozen=True, eq=False)
class Look:
    """One layer of a network, as it was after an epoch."""

    model: Any
    epoch: int
    layer: str
    A: torch.Tensor  #: (n, width) activations of every row


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one draw, made on first use; cells of one process share them."""

    settings: Settings[Any]
    here: Here = Here()  # noqa: RUF009  # frozen
    number: int = 0  #: which of the study's data

    @property
    def progress(self) -> Progress:
        """The function that reports the progress of a cell."""
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
        """At most `MOST_SCORED` samples, evenly spread, that no network was trained on; features are scored on them."""
        rows = np.sort(np.concatenate([self.split.validation, self.split.test]))
        return rows[:: -(-rows.size // MOST_SCORED)]

    def probed(self, least_depth: int = 0) -> list[Places]:
        """Return the probed latents of each hierarchy, by the experiment's options."""
        asked = self.settings.options
        depths = [depth for depth in asked.depths if depth >= least_depth]
        return [find_places(t.forest, t.rows, depths, asked.min_size) for t in self.truths]

    def places(self, probed: Sequence[Places]) -> Ints:
        """Return the places of probed latents, hierarchy after hierarchy, for blocks of kin."""
        return np.concatenate([places(t.forest, chosen.latent) for t, chosen in zip(self.truths, probed, strict=True)])

    # ------------------------------------------------------------------ networks

    @cached_property
    def make(self) -> Any:
        """The function that makes the user's networks from a seed; None for the paper's networks and transformers."""
        return partial(find_make(self.settings.network), self.data) if self.settings.network else None

    @property
    def configs(self) -> list[Any]:
        """The training configurations, one for each seed."""
        return list(self.settings.training.with_seeds(self.settings.network_seeds))

    def target(self, k: int) -> Any:
        """Return the data with the target, or the documents, of one hierarchy."""
        several: Any = self.data
        return several.swapped(k) if n_factors(self.data) > 1 else self.data

    def train(
        self, configs: Sequence[AnyTrainConfig] | None = None, models: Sequence[nn.Module] | None = None, **given: Any
    ) -> Networks:
        """Train networks together: one for each seed, unless `configs` says otherwise.

        They start from `models`, or from the initial weights of their seeds; only in the second case is an interrupted
        training resumed. `given` is passed to `percolab.nn.train`.
        """
        here, start = (self.here, self.make) if models is None else (replace(self.here, scratch=None), models)
        given = given if isinstance(self.data, Corpus) else {"split": self.split, **given}
        results = trained(here, self.data, configs or self.configs, start, **given)
        return Networks.of(results, make=self.settings.network)

    def train_by_factor(
        self, *, configs: Sequence[AnyTrainConfig] | None = None, tuned: bool = False, **given: Any
    ) -> Networks:
        """Train one network for each hierarchy and seed; networks of the same seed start from the same weights.

        Parameters
        ----------
        configs
            One for each seed; None takes all seeds.
        tuned
            Whether the networks of later lexicons go on from those of the first, with documents of all lexicons.
        given
            Passed to `percolab.nn.train`.
        """
        chosen = self.configs if configs is None else configs
        grid = [(k, config) for config in chosen for k in range(n_factors(self.data))]
        if self.make is not None and callable(getattr(self.make(grid[0][1].start), "fit", None)):
            results = [self_trained(self.make(config.start), config, self.target(k)) for k, config in grid]
        elif isinstance(self.data, Corpus):
            results = self._on_documents(self.data, chosen, tuned)
        else:
            y = np.stack([np.asarray(self.target(k).y) for k, _ in grid])
            results = trained(self.here, self.data, [config for _, config in grid], self.make, targets=y, **given)
        return Networks.of(results, [k for k, _ in grid], self.settings.network)

    def _on_documents(self, corpus: Corpus, configs: Sequence[Any], tuned: bool) -> list[TrainResult]:
        by_lexicon: list[list[TrainResult]] = []
        for k in range(n_factors(corpus)):
            scratch = None if self.here.scratch is None else self.here.scratch / f"lexicon-{k}"
            if k and tuned:
                later = [replace(config, first=config.steps * config.batch_size) for config in configs]
                models = [copy.deepcopy(result.model) for result in by_lexicon[0]]
                mixed = corpus.replace(shares=[1 / n_factors(corpus)] * n_factors(corpus))
                by_lexicon.append(trained(replace(self.here, scratch=None), mixed, later, models))
            else:
                here = replace(self.here, scratch=scratch)
                by_lexicon.append(trained(here, corpus.swapped(k), configs, self.make))
        return [result for of_seed in zip(*by_lexicon, strict=True) for result in of_seed]

    def looks(self, networks: Networks | Recorded, epochs: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
        """Yield the places of each network and epoch, and the network; report progress."""
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
        """Return (networks, epochs, layers, …) the measures of every network, epoch and layer."""
        columns: dict[str, list[Floats]] = {}
        for _, j, model in self.looks(networks, epochs):
            recorded = {RAW: self.inputs, **self.record(model, [name for name in layers if name != RAW])}
            for name in layers:
                for key, values in measure(Look(model, epochs[j], name, recorded[name])).items():
                    columns.setdefault(key, []).append(values)
        shape = len(networks), len(epochs), len(layers)
        return {key: np.stack(v).astype(np.float32).reshape(*shape, *v[0].shape) for key, v in columns.items()}

    def measured_by_factor(self, networks: Networks | Recorded, *of: Any) -> dict[str, Array]:
        """Return (seeds, hierarchies, epochs, layers, …) the measures of networks that `train_by_factor` made."""
        shape = self.settings.seeds, len(self.truths)
        return {key: v.reshape(*shape, *v.shape[1:]) for key, v in self.measured(networks, *of).items()}

    def model(self, networks: Networks | Recorded, number: int = 0, epoch: int | None = None) -> Any:
        """Return a network on the device, as it was after an epoch; None takes the last."""
        return networks.model(number, self.data, epoch=epoch, device=self.device)

    def layers(self, networks: Networks | Recorded) -> list[str]:
        """Return the representations that are read: the input, and the paper's probed layers or the layers named."""
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
