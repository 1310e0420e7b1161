"""Activations: outputs of a network's modules for every point or position; and the loss where they are replaced."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.ground.devices import Device, choose_device, on_device
from percolab.ground.text import one_line
from percolab.nn.interventions import find_module, hooked
from percolab.nn.networks.model import ResidualMLP, check_fits, evaluating, predict
from percolab.nn.networks.objective import objective
from percolab.nn.networks.transformer import Transformer, check_tokens

RAW = "raw"  #: Name of the input itself as a representation.
POSITIONS = 1 << 14  #: Points, or positions of documents, per forward pass.
PARTS = {"": "residual stream", "hidden": "hidden", "delta": "update"}  #: Names of the parts of a block.


def representations(model: nn.Module) -> list[str]:
    """Return the modules that are read by default: the input layer, each block's hidden layer, and each block."""
    if not isinstance(model, ResidualMLP | Transformer):
        kinds = "ResidualMLP or Transformer"
        raise ValueError(f"names must be given for a model other than {kinds}, got a {type(model).__name__}")
    return ["input", *(f"blocks.{i}{part}" for i in range(len(model.blocks)) for part in (".hidden", ""))]


def activations(
    model: nn.Module,
    X: Any,
    names: str | Sequence[str] | None = None,
    *,
    batch_size: int | None = None,
    device: Device = "auto",
) -> dict[str, torch.Tensor]:
    """Return the outputs of named modules for every row of X, in one pass, as float32 tensors of the outputs' shapes.

    A layer of an MLP gives (n, width). A layer of a transformer, for tokens (n, T), gives (n, T, width): positions are
    kept. For a module that returns a tuple, the tuple's first element is returned: attention and recurrent layers put
    their output there.

    Parameters
    ----------
    model
        Any module; it is put in evaluation mode for the pass and moved to the device.
    X
        (n, …) array or tensor; a stored X is read block by block. Integers stay integers (int64), other numbers
        become float32.
    names
        Module names as in ``model.named_modules()``; None takes those of `representations`. In a `ResidualMLP` or a
        `Transformer` ``"blocks.0"`` is the residual stream after the first block, ``"blocks.0.delta"`` what this block
        adds to it, and ``"blocks.0.hidden"`` its hidden layer after the nonlinearity.
    batch_size
        Rows of a forward pass; None takes 16,384 points or as many positions.
    device
        Where to compute and keep the activations.
    """
    device = choose_device(device)
    chosen = representations(model) if names is None else [names] if isinstance(names, str | int) else list(names)
    modules = {name: find_module(model, name, "names must be modules") for name in chosen}
    inputs = _inputs(model, X, device)
    model.to(device)
    if isinstance(model, ResidualMLP):
        check_fits(model, inputs.shape[1], device, model.outputs)
    outputs: dict[str, torch.Tensor] = {}
    recorded: dict[str, torch.Tensor] = {}
    rows = batch_size or max(1, POSITIONS // (1 if inputs.is_floating_point() else math.prod(inputs.shape[1:])))
    with evaluating(model), hooked(*((modules[name], _store(name, outputs)) for name in chosen)):
        for first, part in zip(range(0, len(inputs), rows), inputs.split(rows), strict=True):
            outputs.clear()
            _run(model, part)
            for name in chosen:
                output = _rows(name, outputs.get(name), len(part))
                if name not in recorded:
                    recorded[name] = torch.empty(len(inputs), *output.shape[1:], device=device)
                recorded[name][first : first + len(part)] = output
    return {name: recorded[name] for name in chosen}


def _inputs(model: nn.Module, X: Any, device: torch.device) -> torch.Tensor:
    """Return X on the device, integers as integers unless the model is known to take points."""
    values = X if hasattr(X, "dtype") and hasattr(X, "shape") else np.asarray(X)
    kind = str(values.dtype).removeprefix("torch.")
    integers = kind.startswith(("int", "uint")) and not isinstance(model, ResidualMLP)
    inputs = on_device("X", values, device, torch.int64 if integers else torch.float32)
    if isinstance(model, Transformer) and integers and inputs.numel():
        check_tokens("X", inputs, model.shape["n_tokens"])
    return inputs


def _store(name: str, outputs: dict[str, torch.Tensor]) -> Any:
    """Return a hook that keeps a module's output."""

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        value = output[0] if isinstance(output, tuple | list) and output else output
        if not isinstance(value, torch.Tensor):
            rule = "names must be modules that give a tensor, or a tuple that begins with one"
            raise ValueError(f"{rule}, got {name!r}, which gives a {type(value).__name__}")
        if name in outputs:
            raise ValueError(f"names must be modules that run once in a pass, got {name!r}, which runs more than once")
        outputs[name] = value

    return hook


def _run(model: nn.Module, part: torch.Tensor) -> None:
    """Run the model; an exception of torch about an input that does not fit becomes one line."""
    try:
        model(part)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError, TypeError) as error:
        given = f"{str(part.dtype).removeprefix('torch.')} of shape (n, {', '.join(map(str, part.shape[1:]))})"
        raise ValueError(f"X must be what the model takes, got {given}: {one_line(error)}") from error


def _rows(name: str, output: torch.Tensor | None, n: int) -> torch.Tensor:
    """Return a module's output for n rows with a dimension of rows and one of width, at least."""
    if output is None:
        raise ValueError(f"names must be modules that run in a pass, got {name!r}, which does not")
    if output.ndim == 0 or len(output) != n:
        rule = "names must be modules that give one row for each row of X"
        raise ValueError(f"{rule}, got {name!r}, which gives shape {tuple(output.shape)} for {n} rows")
    return output[:, None] if output.ndim == 1 else output


def label(name: str) -> str:
    """Return the name of a representation for readers: block 0 is the first."""
    if name == RAW:
        return "raw input"
    if name == "input":
        return "input layer"
    if name.startswith("random."):
        return f"random features, width {name.removeprefix('random.')}"
    block, _, part = name.removeprefix("blocks.").partition(".")
    return f"block {block}, {PARTS[part]}" if block.isdigit() and part in PARTS else name


# ---------------------------------------------------------------------- activations replaced
#
# The loss of a network when a method's reconstructions replace the activations of a layer.


@dataclass(frozen=True)
class LossRecovered:
    """The network's own loss, mean squared error or cross-entropy, with a layer unchanged and replaced."""

    loss: float  #: with the layer unchanged
    replaced: float  #: with the layer replaced by reconstructions
    ablated: float  #: with the layer replaced by its mean activation on every row

    @property
    def share(self) -> float:
        """Share of the loss that the mean adds and reconstructions avoid; NaN where the mean adds none."""
        lost = self.ablated - self.loss
        return (self.ablated - self.replaced) / lost if lost > 0 else float("nan")


def loss_recovered(
    model: nn.Module,
    X: Any,
    y: Any,
    name: str,
    reconstructions: Any,
    *,
    batch_size: int = 1 << 14,
    device: Device = "auto",
) -> LossRecovered:
    """Return the loss of a network on some rows: unchanged, and with one module's output replaced.

    Parameters
    ----------
    model
        A module that maps (n, d) to n numbers, or to (n, C) logits where y are labels.
    X
        (n, d) points.
    y
        (n,) the targets that the network was trained for.
    name
        The module, as in ``model.named_modules()``, or ``"raw"`` for X itself.
    reconstructions
        (n, width) the replacement of the module's output.
    batch_size
        Rows of a forward pass.
    device
        Where to compute.
    """
    device, target = choose_device(device), np.asarray(y)
    goal = objective(target)
    inputs = on_device("X", X, device, torch.float32)
    wanted = on_device("y", target, device, goal.dtype)
    given = on_device("reconstructions", reconstructions, device, torch.float32)
    model.to(device)
    recorded = inputs if name == RAW else activations(model, inputs, [name], batch_size=batch_size, device=device)[name]
    if given.shape != recorded.shape:
        raise ValueError(f"reconstructions must have shape {tuple(recorded.shape)}, got {tuple(given.shape)}")

    def loss(values: torch.Tensor | None) -> float:
        if name == RAW and values is not None:
            output = predict(model, values, batch_size)
        else:
            with replaced(model, name, values):
                output = predict(model, inputs, batch_size)
        return float(goal.loss(output.double(), wanted.double() if wanted.is_floating_point() else wanted))

    return LossRecovered(loss(None), loss(given), loss(recorded.double().mean(0).float().expand_as(recorded)))


@contextmanager
def replaced(model: nn.Module, name: str, values: torch.Tensor | None) -> Iterator[None]:
    """Replace the output of a module by values, whose next rows are used in every pass; None replaces nothing."""
    if values is None:
        yield
        return
    given, at = values, 0

    def replace(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        nonlocal at
        at += len(output)
        return torch.reshape(given[at - len(output) : at], output.shape).to(output)

    with hooked((model.get_submodule(name), replace)):
        yield
