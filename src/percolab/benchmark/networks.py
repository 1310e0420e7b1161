"""The networks of a task: all seeds and hierarchies trained at once, kept, and asked for activations."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.benchmark.tasks import RAW, UNTRAINED, Task, relevant_factor
from percolab.ground import locks
from percolab.ground.devices import on_device
from percolab.ground.files import write_json
from percolab.ground.progress import Progress
from percolab.ground.version import __version__
from percolab.nn.networks.activations import activations
from percolab.nn.networks.model import ResidualMLP
from percolab.nn.training.history import by_epoch
from percolab.nn.training.training import load_model
from percolab.store.schema import StoreError
from percolab.store.worlds import load
from percolab.study.directory import read_json as read
from percolab.study.networks import train_resumed
from percolab.worlds.generation import generate
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import AnyDataset
from percolab.worlds.superposition import Superposition

NETWORKS, DATA = "networks", "data"
DIGITS = 16
"""Of the digest that names a run."""


class Networks:
    """The data of a task and the networks on them, made when they are first asked for."""

    def __init__(
        self, task: Task, output: Path, seeds: Sequence[int], device: torch.device, progress: Progress
    ) -> None:
        self.task, self.seeds, self.device, self.progress = task, list(seeds), device, progress
        self.directory = output / NETWORKS / task.name
        self.dataset = _dataset(task, output)
        self.split: Split = split_rows(self.dataset, task.training.seeds.split)

    def y(self, factor: int) -> NDArray[Any]:
        """Return what the network of a hierarchy is trained for."""
        return np.asarray(_targets(self.dataset, self.task)[factor])

    def activations(self, network: str, layer: str, seed: int) -> torch.Tensor:
        """Return (n, width) activations of a layer, or the data themselves."""
        if network == RAW:
            return on_device("X", self.dataset.X, self.device, torch.float32)
        return activations(self.model(network, seed), self.dataset.X, [layer], device=self.device)[layer]

    def model(self, network: str, seed: int) -> ResidualMLP:
        """Return a network: before its training, or after it."""
        if network == UNTRAINED:
            c, dim = self.task.training, self.dataset.X.shape[1]
            return ResidualMLP(dim, c.d_model, c.n_blocks, c.expansion, seed=seed).to(self.device)
        found = self._trained(seed)
        member = found["members"][relevant_factor(network) or 0]
        return load_model(self.directory / found["run"], self.dataset, member=member, device=self.device)

    def _trained(self, seed: int) -> dict[str, Any]:
        """Return where the networks of a seed are; train them, with those of all other seeds that are missing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with _alone(self.directory / "lock"):
            missing = [s for s in self.seeds if not self._found(s)]
            if seed in missing or seed not in self.seeds:
                self._train(missing if seed in missing else [seed])
        return self._found(seed)

    def _found(self, seed: int) -> dict[str, Any]:
        kept = read(self.directory / f"{seed}.json")
        there = "run" in kept and (self.directory / kept["run"] / "checkpoint.pt").exists()
        return kept if there and kept["made_from"] == self._made_from() else {}

    def _made_from(self) -> dict[str, Any]:
        task = self.task.to_dict()
        return {"percolab": __version__, "recipe": task["recipe"], "training": task["training"]}

    def _run_name(self, seeds: list[int]) -> str:
        """Return the name of a run, another for whatever it is made from: a run is resumed as what it was begun."""
        words = json.dumps({"made_from": self._made_from(), "seeds": seeds}, sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:DIGITS]

    def _train(self, seeds: list[int]) -> None:
        """Train the networks of some seeds on every hierarchy: same initial weights and order for each hierarchy."""
        targets = _targets(self.dataset, self.task)
        configs = [config for config in self.task.training.with_seeds(seeds) for _ in targets]
        run = self.directory / self._run_name(seeds)
        results = train_resumed(
            run, self.dataset, configs, targets=np.tile(targets, (len(seeds), 1)),
            split=self.split, device=self.device, progress=by_epoch(self.progress),
        )  # fmt: skip
        for i, seed in enumerate(seeds):
            members = range(i * len(targets), (i + 1) * len(targets))
            values = {
                "made_from": self._made_from(), "run": run.name, "members": list(members),
                "test": [asdict(results[member].test) for member in members], "seconds": results[0].seconds,
                "device": results[0].device,
            }  # fmt: skip
            write_json(self.directory / f"{seed}.json", values)


def module_names(n_blocks: int) -> list[str]:
    """Return the modules of a network that may be asked for, from its input to its output."""
    named = ResidualMLP(1, 1, n_blocks).named_modules()
    return [name for name, module in named if name and not isinstance(module, torch.nn.ModuleList)]


def check_layers(task: Task, layers: Sequence[str]) -> Sequence[str]:
    """Return the layers, if the networks of a task have them."""
    known = module_names(task.training.n_blocks)
    for name in layers:
        if name not in known:
            raise ValueError(f"layers must be modules of the network ({', '.join(known)}), got {name!r}")
    return layers


def _targets(dataset: AnyDataset, task: Task) -> NDArray[np.float64]:
    """Return (hierarchies, n): the y of each."""
    if not isinstance(task.recipe, Superposition):
        return np.asarray(dataset.y)[None]
    return np.stack([dataset.swapped(k).y for k in range(task.n_factors)])


def _dataset(task: Task, output: Path) -> AnyDataset:
    """Return the data of a task: read where they were saved, else made and saved."""
    store = output / DATA / f"{task.name}.zarr"
    store.parent.mkdir(parents=True, exist_ok=True)
    with _alone(store.parent / f"{task.name}.lock"):
        try:
            kept = load(store)
            if kept.recipe == task.recipe:
                found: AnyDataset = kept.in_memory()
                return found
        except (FileNotFoundError, StoreError):
            pass
        made = generate(task.recipe)
        made.save(store, overwrite=True)
    return made


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process is in here, where the system can tell."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        locks.hold(opened)
        yield
    finally:
        os.close(opened)
