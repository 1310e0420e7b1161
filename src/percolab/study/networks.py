"""Networks of a study: trained together, and kept as they were after some epochs or steps."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.ground.text import one_line
from percolab.nn.config import AnyTrainConfig, training_from
from percolab.nn.training.history import by_epoch
from percolab.nn.training.subjects import new_mlp, new_transformer
from percolab.nn.training.training import TrainResult, numbers, train
from percolab.study.cells import Here
from percolab.study.measured import TRAINED, UNTRAINED
from percolab.study.sources import Folder, RecordedSource
from percolab.study.subject import AnyData

CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one shape, each after some epochs or steps; 0 is the untrained network. A result of a cell."""

    make: str  #: ``module:function`` of one's own networks; nothing for the paper's, and for transformers
    config: dict[str, Any]  #: how the first was trained, as plain values; the others differ in their seeds
    seeds: list[int]  #: by network, of its initial weights
    factors: list[int]  #: by network, the hierarchy that it was trained on
    epochs: list[int]  #: that are kept, in order
    #: by network, its scores on what was held out; nothing of a network that trains itself
    test: list[dict[str, float]]
    validation: list[dict[str, float]]
    seconds: float  #: that training took
    weights: dict[str, NDArray[Any]]  #: by NETWORK/EPOCH/PARAMETER
    history: dict[str, NDArray[Any]]  #: (networks, epochs) by column

    @classmethod
    def of(cls, results: Sequence[TrainResult], factors: Sequence[int] | None = None, make: str = "") -> Networks:
        """Return trained networks: the epochs that were kept of them, and the last one."""
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
            seconds=sum({result.seconds for result in results}),  # networks trained together have it in common
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
        """How many there are, and how well they predict the test rows."""
        return {"test": self.test, "training_seconds": self.seconds, "networks": len(self)}

    def number(self, seed: int, factor: int = 0) -> int:
        """Return which network was trained from a seed on a hierarchy."""
        return list(zip(self.seeds, self.factors, strict=True)).index((seed, factor))

    def model(self, number: int, data: AnyData, *, epoch: int | None = None, device: torch.device = CPU) -> Any:
        """Return a network as it was after an epoch, None being the last; its shape is that of the data."""
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
    """Networks whose activations were recorded elsewhere: after the last epoch the trained ones, at 0 the untrained."""

    folder: Folder
    draw: int
    seeds: list[int]  #: by network, its place in its list
    factors: list[int | None]
    last: int

    @classmethod
    def of(cls, kept: Folder, draw: int, last: int) -> Recorded:
        """Return the trained networks of a folder: for each place in the lists, those of all hierarchies."""
        places = kept.places(draw)
        own = sorted(
            ((seed, factor) for role, factor, seed in places if role == TRAINED),
            key=lambda place: (place[0], place[1] or 0),
        )
        seeds, factors = [seed for seed, _ in own], [factor for _, factor in own]
        rule = f"manifest.json must have, for draw {draw}, networks of the roles {TRAINED!r} and {UNTRAINED!r}"
        if not own or any((UNTRAINED, None, seed) not in places for seed in seeds):
            raise ValueError(f"{rule} with the same seeds, the untrained ones without a factor")
        if len({seeds.count(seed) for seed in seeds}) > 1:
            raise ValueError(f"{rule}, as many {TRAINED} ones for each factor")
        return cls(kept, draw, seeds, factors, last)

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def scores(self) -> dict[str, Any]:
        """How many there are."""
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


def untrained(config: AnyTrainConfig, data: AnyData, seed: int, make: str = "") -> Any:
    """Return a network with the initial weights of a seed: one's own, a transformer of documents, or the paper's."""
    if make:
        return find_make(make)(data, seed)
    [own] = config.with_seeds([seed])
    if isinstance(data, Corpus):
        return new_transformer(own, data)  # type: ignore[arg-type]
    return new_mlp(own, data.X.shape[1], None)  # type: ignore[arg-type]


def find_make(name: str) -> Callable[[Any, int], nn.Module]:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"network must be a function that can be imported, got {name!r}: {one_line(error)}") from None
    if not callable(found):
        raise ValueError(f"network must be a function make(data, seed), got {name!r}")
    made: Callable[[Any, int], nn.Module] = found
    return made


def own_network(name: str, data: AnyData, seed: int) -> nn.Module:
    """Return the network that ``module:function`` makes: trained elsewhere, or by itself if it has `fit`."""
    model: Any = find_make(name)(data, seed)
    if callable(getattr(model, "fit", None)):
        model.fit(data, seed)
    found: nn.Module = model
    return found


def with_fresh_weights(model: nn.Module, seed: int) -> nn.Module:
    """Return a network of the same shape with fresh weights, by the `reset_parameters` of its modules.

    Weights that no module resets would stay trained, and are refused.
    """
    fresh = copy.deepcopy(model).cpu()
    reset_below: list[str] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, module in fresh.named_modules():
            # nn.MultiheadAttention has the second name.
            reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
            if callable(reset):
                reset()
                reset_below.append(f"{name}." if name else "")
            elif not f"{name}.".startswith(tuple(reset_below)):
                for weight, _ in module.named_parameters(recurse=False):
                    owner = f"{type(module).__name__} {name!r}" if name else type(module).__name__
                    raise ValueError(
                        f"network must have reset_parameters() in every module with weights, for an untrained one "
                        f"beside it, got none for {weight!r} of {owner}"
                    )
    return fresh


def trained(
    here: Here, data: AnyData, configs: Sequence[AnyTrainConfig], models: Any = None, **given: Any
) -> list[TrainResult]:
    """Train networks by `train`, which gets all else, in the scratch directory of a cell, if there is one.

    An interrupted run of the same is resumed. A run in that directory that cannot be resumed, since it is another one
    or damaged, is overwritten.
    """
    measure, run_dir = "excess" if isinstance(data, Corpus) else "r2", here.scratch
    given |= {"model": models, "device": here.device, "progress": by_epoch(here.progress, measure)}
    if run_dir is None:
        return train(data, list(configs), **given)
    try:
        return train(data, list(configs), run_dir=run_dir, resume=True, **given)
    except (FileNotFoundError, ValueError):  # what is wrong with the call itself is said by the next one
        return train(data, list(configs), run_dir=run_dir, overwrite=True, **given)


def self_trained(model: Any, config: AnyTrainConfig, data: AnyData) -> TrainResult:
    """Let a network that has ``fit(data, seed)`` train itself; it has no history and no scores."""
    model.fit(data, config.start)
    return TrainResult(model, config, pandas.DataFrame(), None, None, 0.0, "", None)
