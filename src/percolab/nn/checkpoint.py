"""The state of a training run, in a file that is either complete or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from percolab.ground.files import replacing
from percolab.nn.config import TrainConfig

FORMAT = 1
State = dict[str, Any]
PARTS = {
    "recipe": dict,
    "config": dict,
    "epoch": int,
    "seconds": float,
    "losses": torch.Tensor,
    "generator": torch.Tensor,
    "model": dict,
    "optimizer": list,
}
"""What a checkpoint holds besides its format: recipe and configuration, epochs done and their time, losses (epochs, 2),
state of the generator that shuffles, weights by name, and the optimiser's state by parameter."""


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Return copies of weights and optimiser state; the latter is empty before the first step."""
    steps = [{name: value.clone() for name, value in optimizer.state[p].items()} for p in _parameters(optimizer)]
    return {"model": {k: v.clone() for k, v in model.state_dict().items()}, "optimizer": steps}


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
    """Put a snapshot back. Tensors that are there are written in place, since a CUDA graph knows them by address."""
    model.load_state_dict(state["model"])
    for p, saved in zip(_parameters(optimizer), state["optimizer"], strict=True):
        held = optimizer.state[p]
        for name, value in held.items():
            value.copy_(saved[name]) if saved else value.zero_()
        for name in saved.keys() - held.keys():
            # The fused optimiser keeps its step counts beside the parameter.
            held[name] = saved[name].to(p.device, copy=True)


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def save(path: Path, values: State) -> None:
    """Write a checkpoint in place of what is at `path`."""
    with replacing(path) as partial:
        torch.save({"format": FORMAT, **values}, partial)


def load(path: Path) -> State:
    """Read a checkpoint onto the CPU; nothing in it is executed."""
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint must exist, got {str(path)!r}")
    refused = f"checkpoint must be a file written by percolab train, got {str(path)!r}"
    with path.open("rb") as file:
        try:
            values: State = torch.load(file, map_location="cpu", weights_only=True)
            found = values["format"]
        except MemoryError:
            raise
        except Exception as fault:  # what torch raises for damage is of many kinds
            raise ValueError(refused) from fault
    if found != FORMAT:
        raise ValueError(f"checkpoint must have format {FORMAT}, got {found!r} in {str(path)!r}")
    try:
        _check(values)
    except (KeyError, TypeError, ValueError) as fault:
        raise ValueError(refused) from fault
    return values


def _check(values: State) -> None:
    """Raise unless all parts are there and of their kinds; whether weights fit a model is for the model to say."""
    for name, kind in PARTS.items():
        if not isinstance(values[name], kind):
            raise TypeError(name)
    epochs = TrainConfig(**values["config"]).epochs
    if not 0 <= values["epoch"] <= epochs or values["losses"].shape != (epochs, 2):
        raise ValueError("epoch")
    tensors = [*values["model"].values(), *(value for part in values["optimizer"] for value in part.values())]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise TypeError("model")
