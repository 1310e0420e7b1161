"""What makes training fast on a GPU: CUDA graphs, weight gradients on streams of their own, bfloat16."""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from percolab.ground.devices import recorded, warmed_up
from percolab.nn.training.checkpoint import restore, snapshot


def record(
    work: Callable[[], None], warm_up: Callable[[], None], model: nn.Module, optimizer: torch.optim.Optimizer
) -> torch.cuda.CUDAGraph:
    """Record work that trains a model. Libraries set themselves up in the warm-up before it, which is then undone."""
    before = snapshot(model, optimizer)
    warmed_up(warm_up)
    optimizer.zero_grad(set_to_none=True)
    graph = recorded(work)
    restore(model, optimizer, before)
    return graph


class Pace:
    """Keeps Python at most this many calls ahead of the GPU: enough to keep it busy, few enough to stop soon."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self._events: deque[torch.cuda.Event] = deque()

    def mark(self) -> None:
        """Note that a call's work has been asked for; wait for the work of an earlier call."""
        event = torch.cuda.Event()
        event.record()
        self._events.append(event)
        if len(self._events) > self.ahead:
            self._events.popleft().synchronize()


# ---------------------------------------------------------------------- overlapped gradients
#
# Weight gradients beside the backward pass, on streams of their own.
# A batch of the paper's size fills half of a large GPU. The backward pass needs the gradient of each layer's input
# before it can go on, but the gradients of weights and biases only before the optimiser's step. So those are computed
# on other CUDA streams meanwhile, and the GPU fills up. One stream for weights and one for biases is best: with more,
# products of matrices slow each other down. An epoch of the paper's one-cluster model on an H200 takes 53 ms without,
# 39 ms with two, 42 ms with three or four. The results are the same to the bit.


class Lanes:
    """Streams that run beside the current one, and what must outlive the work on them."""

    def __init__(self) -> None:
        self.weights, self.biases = torch.cuda.Stream(), torch.cuda.Stream()
        self.kept: list[torch.Tensor] = []

    @contextmanager
    def beside(self, stream: torch.cuda.Stream, *used: torch.Tensor) -> Iterator[None]:
        """Run the block's work on a stream, after all that has been asked of the current one."""
        stream.wait_stream(torch.cuda.current_stream())
        # The allocator knows when the current stream is done with a tensor, not when a lane is.
        self.kept.extend(used)
        with torch.cuda.stream(stream):
            yield

    def join(self) -> None:
        """Let the current stream wait for all lanes."""
        for stream in (self.weights, self.biases):
            torch.cuda.current_stream().wait_stream(stream)
        self.kept.clear()


class _Linear(torch.autograd.Function):
    """x W^T + b, whose backward pass leaves the gradients of W and b to the lanes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, module: nn.Linear, lanes: Lanes, *parameters: torch.Tensor) -> torch.Tensor:
        # The parameters are arguments only so that the result is known to need a gradient.
        ctx.save_for_backward(x)
        ctx.module, ctx.lanes = module, lanes
        return functional.linear(x, module.weight, module.bias)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        module, lanes = ctx.module, ctx.lanes
        flat = g.reshape(-1, g.shape[-1])
        with lanes.beside(lanes.weights, flat, x):
            _add(module.weight, flat.T @ x.reshape(-1, x.shape[-1]), lanes)
        if module.bias is not None:
            with lanes.beside(lanes.biases, flat):
                _add(module.bias, flat.sum(0), lanes)
        gradient = g @ module.weight if ctx.needs_input_grad[0] else None
        return gradient, *[None] * (len(ctx.needs_input_grad) - 1)


def _add(parameter: torch.Tensor, gradient: torch.Tensor, lanes: Lanes) -> None:
    """Put a gradient where the optimiser looks for it."""
    lanes.kept.append(gradient)
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


@contextmanager
def overlapped(model: nn.Module) -> Iterator[Lanes]:
    """Let the linear layers of a model use lanes; `Lanes.join` must follow every backward pass.

    Layers with frozen or shared parameters are left as they are.
    """
    lanes = Lanes()
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    layers = [
        module
        for module in model.modules()
        if type(module) is nn.Linear and all(p.requires_grad and uses[id(p)] == 1 for p in module.parameters())
    ]

    def forward(layer: nn.Linear) -> Any:
        def run(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = _Linear.apply(x, layer, lanes, *layer.parameters(recurse=False))
            return result

        return run

    for layer in layers:
        layer.forward = forward(layer)  # type: ignore[method-assign]
    try:
        yield lanes
    finally:
        for layer in layers:
            del layer.forward


# ---------------------------------------------------------------------- bfloat16
#
# Training in bfloat16: a copy of the network computes, the network itself is stepped, in float32.
# A product of matrices in bfloat16 takes half the time of one in TF32, and everything in between moves half the
# bytes. Weights stay in float32, where a step of the optimiser is not lost to rounding. Two calls per step copy all
# tensors: a cast for each weight and each gradient would take as long as the products of a small network.


class Half:
    """A network's copy in bfloat16; copies weights to bfloat16 and gradients back."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).bfloat16()
        self._weights: list[torch.Tensor] = list(model.parameters())
        self._copies: list[torch.Tensor] = list(self.model.parameters())
        self.refresh()

    def refresh(self) -> None:
        """Copy the weights to the copy."""
        with torch.no_grad():
            torch._foreach_copy_(self._copies, self._weights)

    def hand_back(self) -> None:
        """Move the gradients of the copy to the network."""
        gradients = [torch.empty_like(weight) for weight in self._weights]
        torch._foreach_copy_(gradients, [copied.grad for copied in self._copies if copied.grad is not None])
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient
        for copied in self._copies:
            copied.grad = None
