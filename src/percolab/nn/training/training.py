"""Training, as in the paper: AdamW, cosine decay once an epoch, mean squared error, the last epoch's weights."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas
import torch
from torch import nn

from percolab.dataset.dataset import Dataset
from percolab.ground import memory
from percolab.ground.progress import bar
from percolab.nn.config import TrainConfig
from percolab.nn.networks.device import Device, choose_device, device_name, on_device, tf32
from percolab.nn.networks.model import ResidualMLP, check_fits, n_weights, predict
from percolab.nn.networks.objective import Objective, objective
from percolab.nn.training import checkpoint, ensemble
from percolab.nn.training.epoch import Data
from percolab.nn.training.progress import EpochProgress, by_epoch
from percolab.nn.training.run import Plan, Run, Weights, check_same, digest, fitting
from percolab.worlds.splits import Split, split_rows

if TYPE_CHECKING:
    from percolab.worlds.superposed import Superposed


WEIGHT_BYTES = 16
"""Memory of a weight while it is trained, with its gradient and its moments."""
MODULE_BYTES = 1 << 14
"""Memory of a block besides its weights: Python objects."""


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model and how it got there."""

    model: nn.Module
    config: TrainConfig
    history: pandas.DataFrame
    """a row per epoch: epoch, lr, train_loss, train_r2, validation_loss, validation_r2; for labels train_loss,
    validation_loss and validation_accuracy"""
    validation: Any
    """`Score` on the validation rows; for labels `LabelScore`"""
    test: Any
    """the same on the test rows"""
    seconds: float
    """wall time of all epochs, the recording of the CUDA graph included, over all parts of a resumed run; networks
    trained together have it in common"""
    device: str
    split: Split
    """the rows it was trained, validated and tested on"""
    kept: dict[int, Weights] = field(default_factory=dict, repr=False)
    """weights after the epochs that were to be kept, on the CPU; 0 is before the first"""

    def model_at(self, epoch: int) -> nn.Module:
        """Return the model with the weights that it had after an epoch that was kept; 0 gives the untrained one."""
        if epoch not in self.kept:
            raise ValueError(f"epoch must be one that was kept ({sorted(self.kept)}), got {epoch!r}")
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.kept[epoch])
        return model

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in dataclasses.asdict(self.test).items())
        return f"TrainResult({len(self.history):,} epochs, test {numbers}, {self.seconds:.1f} s on {self.device})"


@overload
def train(
    dataset: Dataset | Superposed,
    config: TrainConfig | None = ...,
    *,
    seeds: None = ...,
    model: nn.Module | None = ...,
    split: Split | None = ...,
    keep: Iterable[int] = ...,
    run_dir: str | os.PathLike[str] | None = ...,
    resume: bool = ...,
    overwrite: bool = ...,
    device: Device = ...,
    graph: bool = ...,
    progress: bool | EpochProgress = ...,
) -> TrainResult: ...


@overload
def train(
    dataset: Dataset | Superposed,
    config: TrainConfig | None = ...,
    *,
    seeds: Iterable[int],
    split: Split | None = ...,
    keep: Iterable[int] = ...,
    run_dir: str | os.PathLike[str] | None = ...,
    resume: bool = ...,
    overwrite: bool = ...,
    device: Device = ...,
    graph: bool = ...,
    progress: bool | EpochProgress = ...,
) -> list[TrainResult]: ...


def train(
    dataset: Dataset | Superposed,
    config: TrainConfig | None = None,
    *,
    seeds: Iterable[int] | None = None,
    model: nn.Module | None = None,
    split: Split | None = None,
    keep: Iterable[int] = (),
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: Device = "auto",
    graph: bool = True,
    progress: bool | EpochProgress = False,
) -> TrainResult | list[TrainResult]:
    """Train a model on a dataset's y and score it on the test rows.

    All data stay on the device and no Python runs per sample; on CUDA an epoch is one CUDA graph. Batches are the same
    on any device. The same configuration gives the same weights on the same machine.

    Numbers are trained for by their squared error. Labels, a y of integers, are trained for by their cross-entropy.

    Parameters
    ----------
    dataset
        Any dataset, or a superposed world.
    config
        See `TrainConfig`.
    seeds
        Train a network for each seed, all at once, and return a list of results: on a GPU several small networks take
        little longer than one. A seed is that of initial weights and order; the split is the configuration's.
    model
        A module that maps (n, d) to n numbers, or to (n, C) logits, trained in place; None makes the `ResidualMLP` of
        the configuration.
    split
        Rows to train, validate and test on; None splits them as in the paper, see `split_rows`.
    keep
        Epochs whose weights are kept; 0 is before the first.
    run_dir
        Directory for config.json, metrics.csv and checkpoint.pt; made if it is not there.
    resume
        Continue from the checkpoint in `run_dir`; the final weights are those of an uninterrupted run.
    overwrite
        Start again in a `run_dir` that holds a run, which is removed as training begins.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    graph
        Whether to use a CUDA graph; False for models that decide what to do by looking at their data.
    progress
        True shows a bar; a function is called with (epoch, epochs, training loss, validation R² or accuracy) after
        every epoch, in order, though some moments late; of several networks with the means.
    """
    config = config or TrainConfig()
    options: dict[str, Any] = {
        "split": split, "keep": keep, "run_dir": run_dir, "resume": resume, "overwrite": overwrite, "device": device,
        "graph": graph, "progress": progress,
    }  # fmt: skip
    if seeds is None:
        return _train(dataset, [config], None if model is None else [model], None, **options)[0]
    if model is not None:
        raise ValueError(f"model must be left out where seeds are given, got a {type(model).__name__}")
    return train_ensemble(dataset, config.with_seeds(seeds), **options)


def train_ensemble(
    dataset: Dataset | Superposed,
    configs: Sequence[TrainConfig],
    *,
    models: Sequence[nn.Module] | None = None,
    targets: Any = None,
    split: Split | Sequence[Split] | None = None,
    keep: Iterable[int] = (),
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: Device = "auto",
    graph: bool = True,
    progress: bool | EpochProgress = False,
) -> list[TrainResult]:
    """Train several networks at once, each with its own seeds and, if wanted, its own targets for the same points.

    Each member is the network that `train` would give it alone, up to rounding: products of all members are computed in
    one call each.

    Parameters
    ----------
    dataset
        Any dataset, or a superposed world.
    configs
        A configuration for each member; they differ in nothing but their seeds.
    models
        The members, of one shape, trained in place; None makes the `ResidualMLP` of each configuration.
    targets
        (E, n) targets of each member; None is the dataset's y for all.
    split, keep, run_dir, resume, overwrite, device, graph, progress
        As for `train`; `split` is for all members, or one for each, and `run_dir` gets one checkpoint of all of them.
    """
    configs = list(configs)
    _check_members(configs)
    if models is not None and len(models) != len(configs):
        raise ValueError(f"models must be as many as configs, {len(configs)}, got {len(models)}")
    members = None if models is None else list(models)
    return _train(
        dataset, configs, members, targets, split=split, keep=keep, run_dir=run_dir, resume=resume, overwrite=overwrite,
        device=device, graph=graph, progress=progress,
    )  # fmt: skip


def load_model(
    run_dir: str | os.PathLike[str], dataset: Dataset | Superposed, *, member: int = 0, device: Device = "auto"
) -> ResidualMLP:
    """Return the `ResidualMLP` of a finished or interrupted run on this dataset; of several networks, one member."""
    device = choose_device(device)
    state = checkpoint.load(Path(run_dir) / "checkpoint.pt")
    check_same("recipe", state["recipe"], dataset.recipe.to_dict())
    n_members = len(state["configs"])
    if not 0 <= member < n_members:
        raise ValueError(f"member must be from 0 to {n_members - 1}, got {member!r}")
    config = TrainConfig(**state["configs"][member])
    with fitting():
        weights = ensemble.member(state["model"], member) if n_members > 1 else state["model"]
        outputs = len(weights["output.bias"]) if state["losses"].shape[-1] > 2 else None
    model = _new(config, dataset.recipe.dim, outputs, weights)
    with fitting():
        checkpoint.check_like(weights, model.state_dict())
        model.load_state_dict(weights)
    return model.to(device)


def _new(config: TrainConfig, dim: int, outputs: int | None, weights: Weights | None, members: int = 1) -> ResidualMLP:
    """Return the network of a configuration; raise unless it has as many weights as a checkpoint, and memory for it."""
    count = n_weights(dim, config.d_model, config.n_blocks, config.expansion, outputs)
    held = None if weights is None else sum(value.numel() for value in weights.values())
    if held not in (None, members * count):
        raise ValueError(f"checkpoint must have the {members * count} weights of its configuration, got {held}")
    memory.require(WEIGHT_BYTES * count + MODULE_BYTES * config.n_blocks, f"a network of {count} weights needs")
    return ResidualMLP(
        dim, config.d_model, config.n_blocks, config.expansion, seed=config.seeds.weights, outputs=outputs
    )


def _train(
    dataset: Dataset | Superposed,
    configs: list[TrainConfig],
    models: list[nn.Module] | None,
    targets: Any,
    *,
    split: Split | Sequence[Split] | None,
    keep: Iterable[int],
    run_dir: str | os.PathLike[str] | None,
    resume: bool,
    overwrite: bool,
    device: Device,
    graph: bool,
    progress: bool | EpochProgress,
) -> list[TrainResult]:
    """Train one network, or several of one shape stacked."""
    device = choose_device(device)
    y = _targets(dataset, targets, len(configs))
    goal = objective(y)
    splits = _splits(dataset, configs, split)
    directory = None if run_dir is None else Path(run_dir)
    plan = Plan(dataset.recipe.to_dict(), configs, digest(y, splits), _epochs(keep, configs[0].epochs), directory)
    state = plan.state(resume=resume, overwrite=overwrite)
    X = on_device("X", dataset.X, device, torch.float32)
    if models is None:
        weights = None if state is None else state["model"]
        models = [_new(config, X.shape[1], goal.outputs, weights, len(configs)) for config in configs]
    for model in models:
        model.to(device)
    check_fits(models[0], X.shape[1], device, goal.outputs)
    data = Data(
        X, on_device("y", y, device, goal.dtype), _rows(splits, "train", device), _rows(splits, "validation", device)
    )
    with tf32(configs[0].tf32):
        stacked = models[0] if len(models) == 1 else ensemble.stack(models)
        run = Run(plan, stacked, goal, data, state, graph)
        if overwrite and state is None:
            plan.clear()  # not before all is known to fit: a run that is refused leaves what was there
        _loop(run, progress, goal)
        return [
            _result(run, i, model, own, goal, device) for i, (model, own) in enumerate(zip(models, splits, strict=True))
        ]


def _splits(
    dataset: Dataset | Superposed, configs: list[TrainConfig], split: Split | Sequence[Split] | None
) -> list[Split]:
    """Return the split of each member: the one given, its own of those given, or that of its seed, which some share."""
    if isinstance(split, Split):
        return [split] * len(configs)
    if split is None:
        drawn = {seed: split_rows(dataset, seed) for seed in {config.seeds.split for config in configs}}
        return [drawn[config.seeds.split] for config in configs]
    if len(split) != len(configs):
        raise ValueError(f"split must be one, or as many as configs, {len(configs)}, got {len(split)}")
    return list(split)


def _loop(run: Run, progress: bool | EpochProgress, goal: Objective) -> None:
    if progress is True:
        with bar() as display:
            run.loop(by_epoch(display, goal.measure_name))
    else:
        run.loop(progress or None)


def _result(run: Run, index: int, model: nn.Module, split: Split, goal: Objective, device: torch.device) -> TrainResult:
    model.load_state_dict(run.weights(index))
    y = run.data.y if run.data.y.ndim == 1 else run.data.y[index]
    scores = {}
    for name in ("validation", "test"):
        rows = torch.from_numpy(getattr(split, name)).to(device)
        scores[name] = goal.score(predict(model, run.data.X[rows]), y[rows])
    return TrainResult(
        model,
        run.plan.configs[index],
        run.history(index),
        scores["validation"],
        scores["test"],
        run.seconds,
        device_name(device),
        split,
        {epoch: run.weights(index, weights) for epoch, weights in sorted(run.kept.items())},
    )


# ---------------------------------------------------------------------- checks


def _check_members(configs: list[TrainConfig]) -> None:
    """Raise unless there are members, and they differ in nothing but their seeds."""
    if not configs:
        raise ValueError("configs must have a member, got none")
    first, *others = ({k: v for k, v in dataclasses.asdict(c).items() if not k.endswith("seed")} for c in configs)
    for i, other in enumerate(others, 1):
        for name, value in other.items():
            if value != first[name]:
                raise ValueError(f"configs must differ in nothing but seeds, got {name} {value!r} in member {i}")


def _targets(dataset: Dataset | Superposed, targets: Any, n_members: int) -> Any:
    """Return the targets, (n,) or (E, n)."""
    y = np.asarray(dataset.y if targets is None else targets)
    n = dataset.X.shape[0]
    wanted = (n,) if targets is None else (n_members, n)
    if y.shape != wanted:
        what = "y must be one number or label a row" if targets is None else "targets must be a row for each member"
        raise ValueError(f"{what}, {wanted}, got shape {y.shape}")
    return y[0] if targets is not None and n_members == 1 else y


def _epochs(keep: Iterable[int], last: int) -> frozenset[int]:
    epochs = frozenset(keep)
    for epoch in epochs:
        if not 0 <= epoch <= last:
            raise ValueError(f"keep must be epochs from 0 to {last}, got {epoch!r}")
    return epochs


def _rows(splits: list[Split], part: str, device: torch.device) -> torch.Tensor:
    """Return the rows of a part, (m,) or (E, m)."""
    parts: list[Any] = [getattr(split, part) for split in splits]
    if min(map(len, parts)) == 0:
        raise ValueError(f"split must have {part} rows, got none")
    return torch.from_numpy(parts[0] if len(parts) == 1 else np.stack(parts)).to(device)
