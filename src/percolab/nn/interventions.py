"""Interventions on networks: steer, ablate and patch the activations of any layer of any torch module.

Each intervention is a context manager. Inside the block a module's output is changed; after the block, also after an
exception, the network is as before. Interventions nest. On different layers they act where the forward pass meets them;
on the same layer the outer one acts first. If the output is a tuple, its first element is changed. Outputs are (rows,
width) or (rows, positions, width), of any float type; gradients flow through all arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

from percolab.ground.validation import check_number

Change = Callable[[torch.Tensor], torch.Tensor]
Hook = Callable[[nn.Module, Any, Any], Any]

LISTED = 12  #: Most module names in a message.

_CLEAN = ContextVar("_CLEAN", default=False)  #: Whether interventions are suspended, for the run of a source.


def steer(
    model: nn.Module, layer: str, direction: Any, dose: float | torch.Tensor = 1.0, *, positions: Any = None
) -> AbstractContextManager[None]:
    """Add dose times direction to the output of a layer.

    Parameters
    ----------
    model
        Any module.
    layer
        Name of a module in it, as in ``model.named_modules()``.
    direction
        (width,) the vector that is added at dose 1. It is not normalised.
    dose
        Multiple of the direction; 0 changes nothing. A tensor broadcasts against the output: (rows, 1, 1) is one each.
    positions
        Positions to change: a number, a list or a slice of positions, a mask (positions,), or a mask (rows, positions)
        with different positions in every row. None changes all.

    Examples
    --------
    >>> import torch
    >>> from percolab.nn import steer
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(2, 1, bias=False))
    >>> _ = torch.nn.init.ones_(model[1].weight)
    >>> with torch.no_grad(), steer(model, "0", [3.0, 0.0], dose=2):
    ...     model(torch.zeros(1, 2))
    tensor([[6.]])
    """
    vector = _floats("direction", direction, 1)
    times = dose if isinstance(dose, torch.Tensor) else check_number("dose", dose)

    def change(output: torch.Tensor) -> torch.Tensor:
        _check_width("direction", vector, layer, output)
        return output + (times * vector.to(output.device)).to(output.dtype)

    return _changed(model, layer, change, positions)


def ablate(
    model: nn.Module, layer: str, directions: Any, to: Any = "zero", *, positions: Any = None
) -> AbstractContextManager[None]:
    """Remove the component in the span of directions from the output of a layer, or replace it by that of a mean.

    Parameters
    ----------
    model, layer, positions
        As for `steer`.
    directions
        (k, width) or (width,), of any lengths and angles; they may depend on each other.
    to
        ``"zero"``, or the mean activation (width,) whose component in the span replaces that of the output.

    Examples
    --------
    >>> import torch
    >>> from percolab.nn import ablate
    >>> model = torch.nn.Sequential(torch.nn.Identity())
    >>> with ablate(model, "0", [[1.0, 1.0]]):
    ...     model(torch.tensor([[3.0, 1.0]])).round(decimals=4)
    tensor([[ 1., -1.]])
    """
    if isinstance(to, str) and to != "zero":
        raise ValueError(f"to must be 'zero' or a mean activation, got {to!r}")
    span = _Span("directions", directions)
    mean = torch.zeros(span.width) if isinstance(to, str) else _floats("to", to, 1)
    if len(mean) != span.width:
        raise ValueError(f"to must have {span.width} numbers, as directions have, got {len(mean)}")

    def change(output: torch.Tensor) -> torch.Tensor:
        return span.replace(layer, output, mean.to(output))

    return _changed(model, layer, change, positions)


@contextmanager
def patch(model: nn.Module, layer: str, source: Any, subspace: Any = None, positions: Any = None) -> Iterator[None]:
    """Replace the output of a layer by the model's output there for other inputs: an interchange intervention.

    The source runs once, when the block is entered: in the model's present mode (call ``model.eval()`` where it
    matters), without gradients, and clean. Interventions that enclose the block do not act on it, so several layers can
    be patched from different sources at once.

    Parameters
    ----------
    model, layer, positions
        As for `steer`.
    source
        Inputs of the source: a tensor or an array; a tuple of arguments, or a mapping of them by name. They have as
        many rows as the inputs in the block, and as many positions.
    subspace
        (k, width) or (width,), of any lengths and angles: only the component in their span is replaced. A tensor that
        requires gradients can be learned: it is read in every forward pass. None replaces all.

    Examples
    --------
    >>> import torch
    >>> from percolab.nn import patch
    >>> model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Flatten(0))
    >>> with patch(model, "0", torch.tensor([[5.0, 6.0]]), subspace=[0.0, 1.0]):
    ...     model(torch.tensor([[1.0, 2.0]]))
    tensor([1., 6.])
    """
    span = None if subspace is None else _Span("subspace", subspace)
    values = _run_source(model, layer, source)

    def change(output: torch.Tensor) -> torch.Tensor:
        if output.shape != values.shape:
            what = "rows" if len(output) != len(values) else "outputs"
            shapes = f"{tuple(output.shape)} at {layer!r}, got {tuple(values.shape)}"
            raise ValueError(f"source must have the {what} of the input, {shapes}")
        return values.to(output) if span is None else span.replace(layer, output, values.to(output))

    with _changed(model, layer, change, positions):
        yield


# ---------------------------------------------------------------------- outputs of modules


@contextmanager
def _changed(model: nn.Module, layer: str, change: Change, positions: Any) -> Iterator[None]:
    """Change the output of a module inside the block, at some positions or at all of them."""

    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        if _CLEAN.get():
            return None
        before = _first(layer, output)
        changed = change(before)
        if positions is not None:
            changed = torch.where(_mask(positions, before), changed, before)
        if isinstance(output, torch.Tensor):
            return changed
        make = getattr(type(output), "_make", type(output))  # a named tuple's constructor takes its fields one by one
        return make([changed, *output[1:]])

    with hooked((find_module(model, layer), hook)):
        yield


@contextmanager
def hooked(*hooks: tuple[nn.Module, Hook]) -> Iterator[None]:
    """Call a hook after each forward pass of its module, inside the block."""
    handles = [module.register_forward_hook(hook) for module, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _run_source(model: nn.Module, layer: str, source: Any) -> torch.Tensor:
    """Return the clean output of a layer for other inputs."""
    outputs: list[torch.Tensor] = []

    def hook(module: nn.Module, args: Any, output: Any) -> None:
        outputs.append(_first(layer, output))

    def check(module: nn.Module, args: Any) -> None:
        if args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            raise ValueError(f"source must be integers, the tokens that the model embeds, got {args[0].dtype}")

    handles = [part.register_forward_pre_hook(check) for part in model.modules() if isinstance(part, nn.Embedding)]
    suspended = _CLEAN.set(True)
    try:
        with torch.no_grad(), hooked((find_module(model, layer), hook)):
            if isinstance(source, Mapping):
                model(**source)
            else:
                model(*(source if isinstance(source, tuple) else (_on_device(model, source),)))
    finally:
        _CLEAN.reset(suspended)
        for handle in handles:
            handle.remove()
    if len(outputs) != 1:
        raise ValueError(f"layer must run once in a forward pass to be patched, got {len(outputs)} runs of {layer!r}")
    return outputs[0]


def _on_device(model: nn.Module, source: Any) -> torch.Tensor:
    """Return inputs as a tensor on the model's device."""
    parameter = next(model.parameters(), None)
    return torch.as_tensor(source, device=None if parameter is None else parameter.device)


def find_module(model: nn.Module, layer: str, rule: str = "layer must be a module") -> nn.Module:
    """Return a module of a model by its name; an error message begins with the rule."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch module, got {type(model).__name__}")
    modules: dict[str, nn.Module] = {name: module for name, module in model.named_modules() if name}
    if layer not in modules:
        raise ValueError(f"{rule} of the model ({module_names(model)}), got {layer!r}")
    return modules[layer]


def module_names(model: nn.Module) -> str:
    """Return the names of a model's modules, the first ones of many, for a message."""
    names = [name for name, _ in model.named_modules() if name]
    return ", ".join(names[:LISTED] + ["…"] * (len(names) > LISTED)) or "none: torch.nn.Sequential(model) has '0'"


def _first(layer: str, output: Any) -> torch.Tensor:
    """Return the output of a module, or the first element of a tuple."""
    value = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.ndim not in (2, 3):
        is_tensor = isinstance(value, torch.Tensor)
        kind = f"{value.dtype} of shape {tuple(value.shape)}" if is_tensor else type(value).__name__
        rule = "layer must give (rows, width) or (rows, positions, width) of floats, or a tuple that begins with it"
        raise ValueError(f"{rule}, got {kind} from {layer!r}")
    return value


def _mask(positions: Any, output: torch.Tensor) -> torch.Tensor:
    """Return (…, positions, 1) the mask of positions to replace."""
    if output.ndim != 3:
        raise ValueError(f"positions must be None where a layer has none, got an output of shape {tuple(output.shape)}")
    chosen = positions if isinstance(positions, slice | int) else torch.as_tensor(positions, device=output.device)
    if isinstance(chosen, torch.Tensor) and chosen.ndim == 2:
        if chosen.shape != output.shape[:2] or chosen.dtype != torch.bool:
            shapes = f"{tuple(output.shape[:2])}, got {chosen.dtype} of shape {tuple(chosen.shape)}"
            raise ValueError(f"positions must be a mask of the input's rows and positions, {shapes}")
        return chosen[..., None]
    mask = torch.zeros(output.shape[1], dtype=torch.bool, device=output.device)
    try:
        mask[chosen] = True
    except (IndexError, TypeError):
        raise ValueError(f"positions must be among the {len(mask)} of the input, got {positions!r}") from None
    return mask[:, None]


# ---------------------------------------------------------------------- directions


class _Span:
    """The span of some directions, by an orthonormal basis."""

    def __init__(self, name: str, directions: Any) -> None:
        self.name, self.directions = name, torch.atleast_2d(_floats(name, directions, 1, 2))
        self.width = self.directions.shape[1]
        learned = self.directions.requires_grad
        if learned and len(self.directions) > self.width:
            rule = f"{name} must be at most {self.width} directions to be learned"
            raise ValueError(f"{rule}, got {len(self.directions)}")
        if not learned and not bool(self.directions.any(1).all()):
            raise ValueError(f"{name} must be nonzero, got zeros in row {int(self.directions.any(1).int().argmin())}")
        self.fixed = None if learned else _basis(self.directions.cpu())

    def replace(self, layer: str, output: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        """Return an output with its component in the span replaced by the component of `by`."""
        _check_width(self.name, self.directions, layer, output)
        # A basis that is learned changes between passes; QR has gradients where singular vectors have none.
        basis = torch.linalg.qr(self.directions.double().T)[0].T if self.fixed is None else self.fixed
        basis = basis.to(output)
        return output + (by - output) @ basis.T @ basis


def _basis(directions: torch.Tensor) -> torch.Tensor:
    """Return (rank, width) an orthonormal basis of the span of directions of any lengths."""
    unit = nn.functional.normalize(directions.double(), dim=1)
    _, values, basis = torch.linalg.svd(unit, full_matrices=False)
    return basis[values > max(unit.shape) * torch.finfo(directions.dtype).eps]


def _floats(name: str, values: Any, *n_dims: int) -> torch.Tensor:
    """Return finite numbers as a tensor of floats, with its gradients."""
    tensor = torch.as_tensor(values)
    tensor = tensor if tensor.is_floating_point() else tensor.double()
    if tensor.ndim not in n_dims or not tensor.numel():
        shapes = " or ".join(["(width,)", "(k, width)"][n - 1] for n in n_dims)
        raise ValueError(f"{name} must have shape {shapes}, got {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    return tensor


def _check_width(name: str, values: torch.Tensor, layer: str, output: torch.Tensor) -> None:
    if values.shape[-1] != output.shape[-1]:
        raise ValueError(f"{name} must have {output.shape[-1]} numbers, the width of {layer!r}, got {values.shape[-1]}")
