"""Activations: what chosen modules of a network give for every point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from percolab.nn.networks.device import Device, choose_device, on_device
from percolab.nn.networks.model import ResidualMLP, check_fits

RAW = "raw"
"""Name of the representation that is the input itself."""


def representations(model: ResidualMLP) -> list[str]:
    """Return the module names the paper probes: the input layer, each block's hidden layer, and each block."""
    if not isinstance(model, ResidualMLP):
        raise ValueError(f"names must be given for a model other than ResidualMLP, got a {type(model).__name__}")
    return ["input", *(f"blocks.{i}{part}" for i in range(len(model.blocks)) for part in (".hidden", ""))]


def activations(
    model: nn.Module,
    X: Any,
    names: Sequence[str] | None = None,
    *,
    batch_size: int = 1 << 14,
    device: Device = "auto",
) -> dict[str, torch.Tensor]:
    """Return the outputs of named modules for every row of X, in one pass, each as a float32 tensor (n, width).

    Parameters
    ----------
    model
        Any module; it is put in evaluation mode for the pass and moved to the device.
    X
        (n, d) array or tensor; a stored X is read block by block.
    names
        Module names as in ``model.named_modules()``; None takes those of the paper from a `ResidualMLP`.
        In it ``"blocks.0"`` is the residual stream after the first block and ``"blocks.0.hidden"`` its hidden layer
        after the ReLU.
    batch_size
        Rows of a forward pass.
    device
        Where to compute and keep the activations.
    """
    device = choose_device(device)
    chosen = list(representations(model) if names is None else names)  # type: ignore[arg-type]
    modules = dict(model.named_modules())
    for name in chosen:
        if name not in modules or not name:
            known = ", ".join(key for key in modules if key)
            raise ValueError(f"names must be modules of the model ({known}), got {name!r}")
    inputs = on_device("X", X, device, torch.float32)
    model.to(device)
    if isinstance(model, ResidualMLP):
        check_fits(model, inputs.shape[1], device, model.outputs)
    kept: dict[str, torch.Tensor] = {}
    first = 0

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not isinstance(output, torch.Tensor):
                raise ValueError(f"names must be modules that give a tensor, got {name!r}")
            flat = output.reshape(len(output), -1)
            if name not in kept:
                kept[name] = torch.empty(len(inputs), flat.shape[1], device=device)
            kept[name][first : first + len(flat)] = flat

        return hook

    hooks = [modules[name].register_forward_hook(keep(name)) for name in chosen]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for part in inputs.split(batch_size):
                model(part)
                first += len(part)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return {name: kept[name] for name in chosen}


def label(name: str) -> str:
    """Return a representation's name in words: block 0 is the first."""
    if name == RAW:
        return "raw input"
    if name == "input":
        return "input layer"
    if name.startswith("random."):
        return f"random features, width {name.removeprefix('random.')}"
    block, _, part = name.removeprefix("blocks.").partition(".")
    if not block.isdigit() or part not in ("", "hidden"):
        return name
    return f"block {block}, {'hidden' if part else 'residual stream'}"
