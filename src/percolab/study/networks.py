"""Networks of a study: trained together, and kept as they were after some epochs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.ground.text import one_line
from percolab.nn.config import TrainConfig
from percolab.nn.networks.model import ResidualMLP
from percolab.nn.training.history import by_epoch
from percolab.nn.training.training import TrainResult, train
from percolab.study.cells import Here
from percolab.worlds.splits import Split
from percolab.worlds.superposed import AnyDataset


@dataclass(frozen=True, eq=False)
class Networks:
    """Networks of one shape, each after some epochs; epoch 0 is the untrained network. A result of a cell."""

    dim: int
    make: str
    """``module:function`` of one's own networks; nothing for the paper's"""
    config: dict[str, Any]
    """`TrainConfig` of the first, as plain values; the others differ in their seeds"""
    seeds: list[int]
    """by network, of its initial weights"""
    factors: list[int]
    """by network, the hierarchy that it was trained on"""
    epochs: list[int]
    """that are kept, in order"""
    test: list[dict[str, float]]
    """by network, its scores on the test rows"""
    validation: list[dict[str, float]]
    seconds: float
    """that training took"""
    weights: dict[str, NDArray[Any]]
    """by NETWORK/EPOCH/PARAMETER"""
    history: dict[str, NDArray[Any]]
    """(networks, epochs) by column"""

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def last(self) -> int:
        """The last epoch."""
        return self.epochs[-1]

    @property
    def shape(self) -> TrainConfig:
        """What the networks are like."""
        return TrainConfig(**self.config)

    @property
    def scores(self) -> dict[str, Any]:
        """How many there are, and how well they predict the test rows."""
        return {"test": self.test, "training_seconds": self.seconds, "networks": len(self)}

    def number(self, seed: int, factor: int = 0) -> int:
        """Return which network was trained from a seed on a hierarchy."""
        return list(zip(self.seeds, self.factors, strict=True)).index((seed, factor))

    def model(self, number: int, epoch: int, device: torch.device, data: AnyDataset | None = None) -> Any:
        """Return a network as it was after an epoch; networks of one's own are made from the data."""
        start = f"{number}/{epoch}/"
        state = {name[len(start) :]: value for name, value in self.weights.items() if name.startswith(start)}
        config = self.shape
        model: nn.Module = ResidualMLP(self.dim, config.d_model, config.n_blocks, config.expansion)
        if self.make:
            model = find_make(self.make)(data, self.seeds[number])
        model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
        return model.to(device)


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


def train_networks(
    here: Here,
    dataset: AnyDataset,
    configs: Sequence[TrainConfig],
    *,
    targets: Any = None,
    factors: Sequence[int] | None = None,
    split: Split | None = None,
    keep: Sequence[int] = (),
    models: Sequence[ResidualMLP] | None = None,
    make: str = "",
) -> Networks:
    """Train networks together and return them after the epochs of `keep` and the last one.

    They start from `models`, or from the initial weights of their seeds; an interrupted training is then resumed.
    """
    given: dict[str, Any] = {"targets": targets, "split": split, "keep": tuple(keep)}
    own = partial(find_make(make), dataset) if make else models
    results = trained(here if models is None else Here(here.device, here.progress), dataset, configs, own, **given)
    weights = {}
    for number, result in enumerate(results):
        states = {**result.kept, configs[0].epochs: result.model.state_dict()}
        for epoch, state in states.items():
            for name, value in state.items():
                weights[f"{number}/{int(epoch)}/{name}"] = value.detach().cpu().float().numpy()
    history = {
        str(column): np.stack([result.history[column].to_numpy() for result in results])
        for column in results[0].history
    }
    return Networks(
        dim=int(dataset.X.shape[1]),
        make=make,
        config=asdict(configs[0]),
        seeds=[config.seeds.weights for config in configs],
        factors=list(factors or [0] * len(configs)),
        epochs=sorted({*map(int, keep), configs[0].epochs}),
        test=[asdict(result.test) for result in results],
        validation=[asdict(result.validation) for result in results],
        seconds=results[0].seconds,
        weights=weights,
        history=history,
    )


def trained(
    here: Here, dataset: AnyDataset | Corpus, configs: Sequence[Any], models: Any = None, **given: Any
) -> list[TrainResult]:
    """Train networks by `train`, which gets all else, in the scratch directory of a cell, if there is one."""
    measure = "excess" if isinstance(dataset, Corpus) else "r2"
    given |= {"model": models, "device": here.device, "progress": by_epoch(here.progress, measure)}
    if here.scratch is None:
        return train(dataset, list(configs), **given)
    return train_resumed(here.scratch, dataset, configs, **given)


def train_resumed(
    run_dir: Path, dataset: AnyDataset | Corpus, configs: Sequence[Any], **given: Any
) -> list[TrainResult]:
    """Train networks by `train`, which gets all else, from where an interrupted run of the same was.

    A run in that directory that cannot be resumed, since it is another one or damaged, is overwritten.
    """
    try:
        return train(dataset, list(configs), run_dir=run_dir, resume=True, **given)
    except (FileNotFoundError, ValueError):  # what is wrong with the call itself is said by the next one
        return train(dataset, list(configs), run_dir=run_dir, overwrite=True, **given)
