"""Training in bfloat16: a copy of the network computes, the network itself is stepped, in float32.

A product of matrices in bfloat16 takes half the time of one in TF32, and everything in between moves half the bytes.
Weights stay in float32, where a step of the optimiser is not lost to rounding. Two calls a step copy all tensors: a
cast for each weight and each gradient would take as long as the products of a small network.
"""

from __future__ import annotations

import copy

import torch
from torch import nn


class Half:
    """A network's copy in bfloat16, with the way there for weights and the way back for gradients."""

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
        """Give the gradients of the copy to the network, and take them from the copy."""
        gradients = [torch.empty_like(weight) for weight in self._weights]
        torch._foreach_copy_(gradients, [own.grad for own in self._copies if own.grad is not None])
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient
        for own in self._copies:
            own.grad = None
