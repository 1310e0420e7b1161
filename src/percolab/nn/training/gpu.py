"""Fast training on a GPU: CUDA graphs and bfloat16."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable

import torch
from torch import nn

from percolab.ground.devices import recorded, warmed_up
from percolab.nn.training.checkpoint import restore, snapshot


def record(
    work: Callable[[], None], warm_up: Callable[[], None], model: nn.Module, optimizer: torch.optim.Optimizer
) -> torch.cuda.CUDAGraph:
    """Record work that trains a model. Libraries initialise in a warm-up before it, which is then undone."""
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
        """Note that the work of a call was launched; wait for the work of an earlier call."""
        event = torch.cuda.Event()
        event.record()
        self._events.append(event)
        if len(self._events) > self.ahead:
            self._events.popleft().synchronize()


# ---------------------------------------------------------------------- bfloat16
#
# Training in bfloat16: a copy of the network computes, and the network itself is updated in float32. A matrix product
# in bfloat16 takes half the time of one in TF32, and everything in between moves half the bytes. Weights stay in
# float32, where an optimiser step is not lost to rounding. Two calls per step copy all tensors: a cast for each weight
# and each gradient would take as long as the products of a small network.


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
