"""Files that are either complete or not there, and the state of a training run in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from percolab.ground.files import replacing

FORMAT = 1
State = dict[str, Any]


# ---------------------------------------------------------------------- the state of a run


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
    try:
        values: State = torch.load(path, map_location="cpu", weights_only=True)
        found = values["format"]
    except Exception as fault:
        raise ValueError(f"checkpoint must be a file written by percolab train, got {str(path)!r}") from fault
    if found != FORMAT:
        raise ValueError(f"checkpoint must have format {FORMAT}, got {found!r} in {str(path)!r}")
    return values
