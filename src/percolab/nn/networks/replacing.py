"""What a network loses when a layer's activations are replaced by what a method makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.nn.networks.device import Device, choose_device, on_device
from percolab.nn.networks.model import predict
from percolab.nn.networks.objective import objective
from percolab.nn.networks.recording import RAW, activations


@dataclass(frozen=True)
class LossRecovered:
    """The network's own loss, mean squared error or cross-entropy, with a layer as it is and replaced."""

    loss: float
    """as it is"""
    replaced: float
    """by reconstructions"""
    ablated: float
    """by the mean of the activations, the same on every row"""

    @property
    def share(self) -> float:
        """Share of what the mean loses that reconstructions keep; NaN where the mean loses nothing."""
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
    """Return the loss of a network on some rows: as it is, and with one module's output replaced.

    Parameters
    ----------
    model
        A module that maps (n, d) to n numbers, or to (n, C) logits where y are labels.
    X
        (n, d) points.
    y
        (n,) what the network was trained for.
    name
        The module, as in ``model.named_modules()``, or ``"raw"`` for X itself.
    reconstructions
        (n, width) what its output is replaced by.
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
    found = inputs if name == RAW else activations(model, inputs, [name], batch_size=batch_size, device=device)[name]
    if given.shape != found.shape:
        raise ValueError(f"reconstructions must have shape {tuple(found.shape)}, got {tuple(given.shape)}")
    module = None if name == RAW else dict(model.named_modules())[name]

    def loss(values: torch.Tensor | None) -> float:
        output = _predict(model, inputs, module, values, batch_size)
        return float(goal.loss(output.double(), wanted.double() if wanted.is_floating_point() else wanted))

    return LossRecovered(loss(None), loss(given), loss(found.double().mean(0).float().expand_as(found)))


def _predict(
    model: nn.Module, X: torch.Tensor, module: nn.Module | None, values: torch.Tensor | None, batch_size: int
) -> torch.Tensor:
    """Return predictions with the output of a module, or X where there is none, replaced by values if there are any."""
    if values is None or module is None:
        return predict(model, X if values is None else values, batch_size)
    parts = iter(values.split(batch_size))

    def replace(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return torch.reshape(next(parts), output.shape)

    hook = module.register_forward_hook(replace)
    try:
        return predict(model, X, batch_size)
    finally:
        hook.remove()
