"""Several networks of one shape as one: their weights stacked, their products batched.

A step of one small network leaves most of a GPU idle, and most of its time is the launching of kernels; stacked, E
networks launch as many as one. They share nothing else: each has its own weights, rows and optimiser state, and the
gradient of the summed loss with respect to a member's weights is that of its own loss. Only the paper's networks are
stacked; networks of other kinds stay as they are and compute one after another.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from percolab.nn.networks.model import ResidualMLP, shaped


class StackedLinear(nn.Module):
    """x W^T + b for each of E members: (E, n, in) to (E, n, out).

    Weights are kept as W^T, (E, in, out): their gradient then comes out in their own layout, as the optimiser wants it.
    """

    def __init__(self, members: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([member.weight.detach().T for member in members]))
        self.bias = nn.Parameter(torch.stack([member.bias.detach() for member in members]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return every member's output for its own rows."""
        return torch.baddbmm(self.bias[:, None], x, self.weight)


class Members(nn.Module):
    """Networks of any kind side by side: each maps its own rows, one network after another."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return every member's output for its own rows (E, n, …)."""
        outputs = [shaped(member(rows), rows) for member, rows in zip(self.members, x, strict=True)]
        return torch.stack(outputs)


def joined(members: Sequence[nn.Module]) -> nn.Module:
    """Return one module of all members: itself if it is one, a stack of the paper's networks, others side by side."""
    if len(members) == 1:
        return members[0]
    return stack(members) if all(type(member) is ResidualMLP for member in members) else Members(members)


def stack(members: Sequence[nn.Module]) -> nn.Module:
    """Return a module that maps (E, n, d) as the members map (n, d) each; weights are copied.

    Members have the same layers: linear ones with a bias, and others that act on each number alone. The weights have
    the members' names, and one dimension more; see `member`.
    """
    stacked = copy.deepcopy(members[0])
    for name, layer in members[0].named_modules():
        if isinstance(layer, nn.Linear):
            parent, _, own = name.rpartition(".")
            layers = [member.get_submodule(name) for member in members]
            setattr(stacked.get_submodule(parent), own, StackedLinear(layers))  # type: ignore[arg-type]
    return stacked


def member(weights: Mapping[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """Return a copy of the weights of one member of several; matrices from a stack are transposed back."""
    prefix = f"members.{index}."
    alone = {name.removeprefix(prefix): value.clone() for name, value in weights.items() if name.startswith(prefix)}
    if alone:
        return alone
    own = {name: value[index] for name, value in weights.items()}
    return {name: value.T.contiguous() if value.ndim == 2 else value.clone() for name, value in own.items()}
