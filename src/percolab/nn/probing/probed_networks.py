"""The representations that are probed: the raw input, random features, untrained networks and trained ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from percolab.ground.devices import Device, choose_device, on_device
from percolab.ground.progress import Progress, shown
from percolab.nn.config import ProbeConfig, TrainConfig
from percolab.nn.networks.activations import RAW, activations
from percolab.nn.networks.model import seeded
from percolab.nn.probing.controls import RANDOM, TRAINED, UNTRAINED, ByKind
from percolab.nn.probing.errors import ProbeErrors
from percolab.nn.probing.prober import Prober
from percolab.nn.training import checkpoint
from percolab.nn.training.subjects import new_mlp
from percolab.nn.training.training import load_model
from percolab.worlds.superposed import AnyDataset


def random_features(X: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Return relu(W x + b) with W and b initialised as PyTorch's linear layer: an untrained layer."""
    with seeded(seed):
        layer = nn.Linear(X.shape[1], width)
    with torch.no_grad():
        features: torch.Tensor = torch.relu(layer.to(X.device)(X))
    return features


@dataclass(frozen=True)
class Source:
    """A network, random features or the raw input, whose representations are probed."""

    kind: str
    seed: int = 0
    member: int = 0  #: number of the network in the run, for a trained one

    def __str__(self) -> str:
        return self.kind if self.kind == RAW else f"{self.kind}-{self.seed}"


def listed(seeds: Sequence[int], controls: int) -> list[Source]:
    """Return all sources for networks with these seeds: also `controls` untrained ones, at least as many as trained.

    There are as many draws of random features. The first untrained networks have the trained ones' initial weights.
    """
    more = [*seeds, *range(max(seeds) + 1, max(seeds) + 1 + controls - len(seeds))]
    return [
        Source(RAW),
        *(Source(RANDOM, seed) for seed in more),
        *(Source(UNTRAINED, seed) for seed in more),
        *(Source(TRAINED, seed, member) for member, seed in enumerate(seeds)),
    ]


@dataclass(frozen=True, eq=False)
class Sources:
    """The representations of sources: of the points of a dataset, on the device."""

    dataset: AnyDataset
    configs: Sequence[TrainConfig]  #: of the trained networks
    trained: Callable[[int], nn.Module]  #: returns a trained network by its number
    device: torch.device

    @cached_property
    def inputs(self) -> torch.Tensor:
        """The points."""
        return on_device("X", self.dataset.X, self.device, torch.float32)

    @classmethod
    def of_run(cls, dataset: AnyDataset, run_dir: str | os.PathLike[str], device: torch.device) -> Sources:
        """Return the sources of a run on a dataset, of one network or several."""
        configs = checkpoint.load(Path(run_dir) / "checkpoint.pt")["configs"]

        def trained(member: int) -> nn.Module:
            return load_model(run_dir, dataset, member=member, device=device)

        trained(0)  # raises if the run is on another dataset
        return cls(dataset, [TrainConfig(**config) for config in configs], trained, device)

    def representations(self, source: Source) -> dict[str, torch.Tensor]:
        """Return the representations of every point by a source, by name."""
        config, dim = self.configs[0], self.inputs.shape[1]
        if source.kind == RAW:
            return {RAW: self.inputs}
        if source.kind == RANDOM:
            widths = (config.d_model, config.expansion * config.d_model)
            return {f"random.{width}": random_features(self.inputs, width, source.seed) for width in widths}
        if source.kind == TRAINED:
            model = self.trained(source.member)
        else:
            model = new_mlp(replace(config, weight_seed=source.seed), dim, None)
        return activations(model, self.inputs, device=self.device)


@dataclass(frozen=True, eq=False)
class ProbedRun:
    """Errors of the probes of a run and of its controls."""

    by_protocol: Mapping[str, ByKind]
    networks: int
    skipped: tuple[str, ...]
    seconds: float


def probe_run(
    dataset: AnyDataset,
    run_dir: str | os.PathLike[str],
    config: ProbeConfig,
    controls: int,
    *,
    factor: int | None = None,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> ProbedRun:
    """Probe the networks of a run, untrained ones of the same shape, random features and the raw input."""
    by_protocol: dict[str, dict[str, list[ProbeErrors]]] = {}
    sources = Sources.of_run(dataset, run_dir, choose_device(device))
    prober = Prober(dataset, config, factor=factor, device=device)
    start = time.perf_counter()
    every = listed([of_network.seeds.weights for of_network in sources.configs], controls)
    with shown(progress) as tell:
        for done, source in enumerate(every):
            tell("probes", done, len(every))
            for errors in prober.run(sources.representations(source)).errors:
                by_protocol.setdefault(errors.protocol, {}).setdefault(source.kind, []).append(errors)
        tell("probes", len(every), len(every))
    seconds = time.perf_counter() - start
    return ProbedRun(by_protocol, len(sources.configs), tuple(prober.skipped), seconds)
