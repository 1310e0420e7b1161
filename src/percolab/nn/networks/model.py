"""The paper's network, a residual multilayer perceptron (Sec. 5); predictions of any network; several as one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.ground.text import one_line
from percolab.ground.validation import check_integer, check_seed


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw weights from a seed, on the CPU for any device; leave torch's generators unchanged.

    None draws from the global generator.
    """
    with torch.random.fork_rng(devices=[], enabled=seed is not None), torch.device("cpu"):
        if seed is not None:
            torch.default_generator.manual_seed(check_seed("seed", seed))
        yield


class Block(nn.Module):
    """x + W2 relu(W1 x + b1) + b2, with W1 widening by the expansion factor; another activation can replace the ReLU.

    The activation is a separate module, `hidden`, so that its output can be read by name; so is `delta`, whose output
    is the sum that the block adds.
    """

    def __init__(self, d_model: int, expansion: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.widen = nn.Linear(d_model, expansion * d_model)
        self.hidden = activation()
        self.narrow = nn.Linear(expansion * d_model, d_model)
        self.delta = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream after this block."""
        return x + self.delta(self.narrow(self.hidden(self.widen(x))))


class ResidualMLP(nn.Module):
    """Linear input, residual blocks, linear output to one number or several; PyTorch's default initialisation.

    Parameters
    ----------
    dim
        Dimension d of the points.
    d_model
        Width of the residual stream.
    n_blocks
        Number of blocks N.
    expansion
        Width of the hidden layer of a block, in units of d_model.
    seed
        Seed of the initial weights; torch's global generator stays unchanged. None uses the global generator.
    outputs
        None gives one number per point; C gives the logits of C classes.
    activation
        The nonlinearity of a block's hidden layer: a class of torch, such as ``torch.nn.GELU``, or any function that
        returns a module. The paper's is the ReLU.
    """

    def __init__(
        self,
        dim: int,
        d_model: int = 256,
        n_blocks: int = 3,
        expansion: int = 4,
        *,
        seed: int | None = None,
        outputs: int | None = None,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        sizes = {"dim": dim, "d_model": d_model, "n_blocks": n_blocks, "expansion": expansion, "outputs": outputs or 1}
        for name, value in sizes.items():
            check_integer(name, value, 1)
        try:
            is_made = not isinstance(activation, nn.Module) and isinstance(activation(), nn.Module)
        except TypeError:  # it is no function, or one of numbers
            is_made = False
        if not is_made:
            raise ValueError(f"activation must be a class of modules, such as torch.nn.GELU, got {activation!r}")
        self.outputs = outputs
        with seeded(seed):
            self.input = nn.Linear(dim, d_model)
            self.blocks = nn.ModuleList(Block(d_model, expansion, activation) for _ in range(n_blocks))
            self.output = nn.Linear(d_model, outputs or 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return predictions (n,), or logits (n, C), for points (n, d)."""
        x = self.input(x)
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = self.output(x)
        return y.squeeze(-1) if self.outputs is None else y


def predict(model: nn.Module, X: torch.Tensor, batch_size: int = 1 << 14) -> torch.Tensor:
    """Return a model's output for points (…, n, d), without gradients, in batches: (…, n), or (…, n, C)."""
    with evaluating(model):
        return torch.cat([shaped(model(part), part) for part in X.split(batch_size, X.ndim - 2)], X.ndim - 2)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode and without gradients; restore its mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def shaped(output: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Return a model's output for points (…, n, d), without the trailing 1 if each point has one number as a column."""
    if not isinstance(output, torch.Tensor):
        raise ValueError(f"model must give a tensor, got a {type(output).__name__}")
    return output.squeeze(-1) if output.shape == (*points.shape[:-1], 1) else output


def check_fits(model: nn.Module, dim: int, device: torch.device, outputs: int | None = None) -> None:
    """Raise, in one line, unless the model maps points of this dimension to one number each, or to C logits."""
    try:
        out = predict(model, torch.zeros(2, dim, device=device))
    except RuntimeError as error:
        wanted = next((m.in_features for m in model.modules() if isinstance(m, nn.Linear)), None)
        takes = f"one of {wanted}" if wanted not in (None, dim) else one_line(error)
        raise ValueError(f"model must take points of dimension {dim}, got {takes}") from error
    if out.shape != ((2,) if outputs is None else (2, outputs)):
        rule = "one number per point" if outputs is None else f"{outputs} numbers per point, one per class"
        raise ValueError(f"model must give {rule}, got {out.numel() // 2}")


# ---------------------------------------------------------------------- for callers without torch


def predictor(model: nn.Module) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function from rows of X to predictions: numbers, or the labels of the largest logits."""
    device = next(model.parameters()).device

    def predicted(X: NDArray[Any]) -> NDArray[Any]:
        out = predict(model, torch.from_numpy(np.require(X, np.float32, ("C", "W"))).to(device))
        return (out.argmax(dim=1) if out.ndim > 1 else out).cpu().numpy()

    return predicted


# ---------------------------------------------------------------------- several networks as one
#
# Several networks of one shape as one module: their weights stacked, their products batched. A step of one small
# network leaves most of a GPU idle, since most of its time goes to launching kernels; E stacked networks launch as many
# kernels as one. They share nothing else: each has its own weights, rows and optimiser state, and the gradient of the
# summed loss with respect to a member's weights is the gradient of the member's loss. Only the paper's networks are
# stacked; networks of other kinds compute one after another.


class StackedLinear(nn.Module):
    """x W^T + b for each of E members: (E, n, in) to (E, n, out).

    Weights are kept as W^T, (E, in, out): their gradient then has the same layout, as the optimiser needs it.
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
    """Return one module of all members: a single one unchanged, the paper's networks stacked, others side by side."""
    if len(members) == 1:
        return members[0]
    return stack(members) if all(type(member) is ResidualMLP for member in members) else Members(members)


def stack(members: Sequence[nn.Module]) -> nn.Module:
    """Return a module that maps (E, n, d) as each member maps (n, d); weights are copied.

    Members have the same layers: linear ones with a bias, and elementwise ones. The weights have the members' names and
    one more dimension; see `member_weights`.
    """
    stacked = copy.deepcopy(members[0])
    for name, layer in members[0].named_modules():
        if isinstance(layer, nn.Linear):
            parent, _, attribute = name.rpartition(".")
            layers = [member.get_submodule(name) for member in members]
            setattr(stacked.get_submodule(parent), attribute, StackedLinear(layers))  # type: ignore[arg-type]
    return stacked


def member_weights(weights: Mapping[str, torch.Tensor], index: int) -> dict[str, torch.Tensor]:
    """Return a copy of the weights of one member of several; matrices from a stack are transposed back."""
    prefix = f"members.{index}."
    alone = {name.removeprefix(prefix): value.clone() for name, value in weights.items() if name.startswith(prefix)}
    if alone:
        return alone
    of_member = {name: value[index] for name, value in weights.items()}
    return {name: value.T.contiguous() if value.ndim == 2 else value.clone() for name, value in of_member.items()}
