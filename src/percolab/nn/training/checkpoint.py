"""The state of a training run, in a file that is either complete or not there."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import torch
from torch import nn

from percolab.ground.files import replacing
from percolab.nn.config import training_from

FORMAT = 2
State = dict[str, Any]
PARTS = {
    "recipe": dict,
    "configs": list,
    "data": str,
    "epoch": int,
    "seconds": float,
    "losses": torch.Tensor,
    "generators": list,
    "model": dict,
    "optimizer": list,
}
"""What a checkpoint holds besides its format: recipe, the configuration of each of E members, a digest of targets and
split, epochs or steps done and their time, losses (E, rows of the history, …), states of the generators that shuffle
rows, weights by name (see `ensemble` for several members), and the optimiser's state by parameter."""


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
    values = _read(path)
    found = values.get("format")
    if found != FORMAT:
        raise ValueError(f"checkpoint must have format {FORMAT}, got {found!r} in {str(path)!r}")
    try:
        _check(values)
    except (KeyError, TypeError, ValueError) as fault:
        raise ValueError(_refused(path)) from fault
    return values


def load_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read the weights that were kept of an epoch onto the CPU; nothing in the file is executed."""
    values = _read(path)
    if not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise ValueError(_refused(path))
    return values


def _read(path: Path) -> State:
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint must exist, got {str(path)!r}")
    with path.open("rb") as file:
        try:
            _check_sums(file)
            values: State = torch.load(file, map_location="cpu", weights_only=True)
        except MemoryError:
            raise
        except Exception as fault:  # what torch raises for damage is of many kinds
            raise ValueError(_refused(path)) from fault
    if not isinstance(values, dict):
        raise ValueError(_refused(path))
    return values


def _check_sums(file: IO[bytes]) -> None:
    """Raise unless all parts of a file match their checksums, at which torch does not look."""
    with zipfile.ZipFile(file) as parts:
        if parts.testzip() is not None:
            raise ValueError("a part does not match its checksum")
    file.seek(0)


def _refused(path: Path) -> str:
    return f"checkpoint must be as percolab train writes it, got {str(path)!r}"


def _check(values: State) -> None:
    """Raise unless all parts are there and of their kinds; whether weights fit a model is for the model to say."""
    for name, kind in PARTS.items():
        if not isinstance(values[name], kind):
            raise TypeError(name)
    configs = [training_from(config) for config in values["configs"]]
    rows, total = (-(-configs[0].total // configs[0].every), configs[0].total) if configs else (0, 0)
    if not configs or not 0 <= values["epoch"] <= total or values["losses"].shape[:2] != (len(configs), rows):
        raise ValueError("epoch")
    if len(values["generators"]) not in (0, len(configs)):
        raise ValueError("generators")
    tensors = [*values["generators"]]
    tensors += [*values["model"].values(), *(value for part in values["optimizer"] for value in part.values())]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise TypeError("model")
