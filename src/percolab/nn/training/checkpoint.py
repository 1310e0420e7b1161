"""The state of a training run, in a file that is either complete or not there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from percolab.ground import foreign_files
from percolab.ground.files import replacing
from percolab.ground.text import one_line, shown
from percolab.nn.config import training_from

FORMAT = 2
MOST_VALUES = 1 << 20  #: Most numbers and strings in a checkpoint's recipe and configurations.
State = dict[str, Any]
#: What a checkpoint holds besides its format: recipe, the configuration of each of E members, a digest of targets and
#: split, epochs or steps done and their time, losses (E, rows of the history, …), states of the generators that shuffle
#: rows, weights by name (see `networks.model.joined` for several members), and the optimiser's state by parameter.
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


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Return copies of weights and optimiser state, which is empty before the first step."""
    steps = [{name: value.clone() for name, value in optimizer.state[p].items()} for p in _parameters(optimizer)]
    return {"model": {k: v.clone() for k, v in model.state_dict().items()}, "optimizer": steps}


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
    """Put a snapshot back. Existing tensors are written in place, since a CUDA graph knows them by address.

    Raises ValueError, before anything is written, unless everything fits: the fused optimiser does not check its state.
    """
    check_like(state["model"], model.state_dict())
    parameters = _parameters(optimizer)
    if len(state["optimizer"]) != len(parameters):
        raise ValueError(f"the optimiser must have {len(parameters)} parts, got {len(state['optimizer'])}")
    for p, saved in zip(parameters, state["optimizer"], strict=True):
        if saved:
            check_like(saved, {"step": torch.zeros(()), "exp_avg": p, "exp_avg_sq": p})
            if not 0 <= saved["step"].item() < math.inf:
                raise ValueError(f"the optimiser's steps must be at least 0, got {saved['step'].item()}")
    model.load_state_dict(state["model"])
    for p, saved in zip(parameters, state["optimizer"], strict=True):
        held = optimizer.state[p]
        for name, value in held.items():
            value.copy_(saved[name]) if saved else value.zero_()
        for name in saved.keys() - held.keys():
            # The fused optimiser keeps its step counts beside the parameter.
            held[name] = saved[name].to(p.device, copy=True, memory_format=torch.contiguous_format)


def check_like(given: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> None:
    """Raise ValueError, in one line, unless tensors have the names, shapes and types of others."""
    if given.keys() != wanted.keys():
        raise ValueError(f"its parts must be {shown(sorted(wanted))}, got {shown(sorted(map(str, given)))}")
    for name, like in wanted.items():
        value = given[name]
        if value.shape != like.shape or value.dtype != like.dtype:
            mismatch = f"must be {like.dtype} {tuple(like.shape)}, got {value.dtype} {tuple(value.shape)}"
            raise ValueError(f"{name} {mismatch}")


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def save(path: Path, values: State) -> None:
    """Write a checkpoint, replacing any file at `path`."""
    with replacing(path) as partial:
        torch.save({"format": FORMAT, **values}, partial)


def load(path: Path) -> State:
    """Read a checkpoint onto the CPU, and check what does not depend on the model; no code in it is executed."""
    values = foreign_files.read_torch("checkpoint", path)
    form = values.get("format")
    if type(form) is not int or form != FORMAT:
        raise ValueError(f"checkpoint must have format {FORMAT}, got {shown(form)} in {str(path)!r}")
    with _as_written(path):
        _check(values)
    return values


def load_weights(path: Path, model: nn.Module) -> dict[str, torch.Tensor]:
    """Read the kept weights of a model at an epoch onto the CPU; no code in the file is executed."""
    values = foreign_files.read_torch("checkpoint", path)
    with _as_written(path):
        foreign_files.check_tensors(values.values())
        check_like(values, model.state_dict())
    return values


@contextmanager
def _as_written(path: Path) -> Iterator[None]:
    """Raise, in one line, for a checkpoint that percolab would not write."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        rule = "checkpoint must be as percolab writes it"
        raise ValueError(f"{rule}, got {str(path)!r}: {one_line(fault)}") from fault


def _check(values: State) -> None:
    """Raise unless all parts are present and of their types; the model checks whether weights fit it."""
    for name, kind in PARTS.items():
        if type(values[name]) is not kind:
            raise TypeError(f"{name} must be a {kind.__name__}, got a {type(values[name]).__name__}")
    if not _is_plain([values["recipe"], values["configs"]]):
        raise ValueError("recipe and configs must be plain JSON values")
    configs = [training_from(config) for config in values["configs"]]
    rows, total = (-(-configs[0].total // configs[0].every), configs[0].total) if configs else (0, 0)
    if not configs or not 0 <= values["epoch"] <= total or values["losses"].shape[:2] != (len(configs), rows):
        raise ValueError(f"epoch and losses must be those of {len(configs)} members and {rows} rows of their history")
    if not 0 <= values["seconds"] < math.inf:
        raise ValueError(f"seconds must be at least 0, got {values['seconds']}")
    if len(values["generators"]) not in (0, len(configs)):
        raise ValueError(f"generators must be one for each member or none, got {len(values['generators'])}")
    if not all(isinstance(part, dict) for part in values["optimizer"]):
        raise TypeError("the optimiser must have a dictionary for each parameter")
    states = [value for part in (values["model"], *values["optimizer"]) for value in part.values()]
    foreign_files.check_tensors([values["losses"], *values["generators"], *states])


def _is_plain(value: object) -> bool:
    """Return whether a value can be written as JSON, without cycles and of a bounded size."""
    left, count = [value], 0
    while left and count < MOST_VALUES:
        part, count = left.pop(), count + 1
        if isinstance(part, dict):
            left += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            left += part
        elif not isinstance(part, str | int | float | None):
            return False
    return not left
