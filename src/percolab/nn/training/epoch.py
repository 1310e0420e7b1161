"""Training on a dataset, epoch by epoch, with all data on the device: plain on the CPU, one CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.ground.arrays import Floats
from percolab.nn.config import TrainConfig
from percolab.nn.networks.model import predict, shaped
from percolab.nn.networks.objective import Objective
from percolab.nn.training.gpu import Half, Pace, record


@dataclass(frozen=True)
class Data:
    """Points, targets, and the rows that each member trains and validates on; … is () or (E,) throughout."""

    X: torch.Tensor  #: (n, d), shared by all members
    y: torch.Tensor  #: (n,) shared, or (E, n)
    train: torch.Tensor  #: (…, n_train) rows
    validation: torch.Tensor  #: (…, n_validation) rows

    def targets(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the targets (…, m) of rows (…, m)."""
        return self.y[rows] if self.y.ndim == 1 else self.y.gather(1, rows)


class Epoch:
    """All steps of an epoch, then the validation loss, for one network or several stacked ones.

    On CUDA the whole epoch, some thousands of kernels, is recorded once and then replayed with a single call: a step
    of the paper's model is a fifth of a millisecond of work, less than Python needs to launch it. The order of the rows
    and the learning rate change from epoch to epoch; they are in tensors that the graph reads.

    Parameters
    ----------
    model, optimizer
        On the device of the data. The optimiser's learning rate is a tensor; on CUDA it is capturable.
    objective
        The objective of training.
    data
        Points, targets and rows.
    configs
        The configuration of each member.
    graph
        Whether to record a CUDA graph; ignored on the CPU.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        objective: Objective,
        data: Data,
        configs: Sequence[TrainConfig],
        *,
        graph: bool = True,
    ) -> None:
        self.model, self.optimizer, self.objective = model, optimizer, objective
        self.data, self.batch_size = data, configs[0].batch_size
        self.n_measures, self.measure_name, self.waited = objective.n_measures, objective.measure_name, 0.0
        self._cuda = cuda = data.y.is_cuda
        # On the CPU for any device, so that batches are the same everywhere; a GPU computes in the meantime.
        self.generators = [torch.Generator().manual_seed(config.seeds.order % 2**63) for config in configs]
        self.half = Half(model) if configs[0].bf16 and cuda else None
        self.order = torch.zeros_like(data.train)
        members = data.train.shape[:-1]
        #: (…, 1 + measures) mean training loss over the epoch's steps, and measures on the validation rows after it
        self.losses = torch.zeros(*members, 1 + objective.n_measures, dtype=torch.float64, device=data.y.device)
        self._validation = (data.X[data.validation], data.targets(data.validation))
        self._graph = self._record() if graph and cuda else None
        self._pace = Pace(1)

    def advance(self, done: int, lr: float) -> torch.Tensor:
        """Train for one epoch on the training rows in a fresh order; return the mean training loss (…)."""
        self.order.copy_(self._order(), non_blocking=True)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(lr)
        if self._graph is None:
            self._steps()
            return self.losses[..., 0]
        self._graph.replay()
        self._pace.mark()
        return self.losses[..., 0]

    def measure(self) -> torch.Tensor:
        """Return measures (…, n_measures) on the validation rows, taken at the end of the last epoch."""
        return self.losses[..., 1:]

    def columns(self, index: int, losses: Floats) -> pandas.DataFrame:
        """Return the columns of a member's history."""
        return self.objective.columns(losses, *(targets[index] for targets in self._targets))

    @cached_property
    def _targets(self) -> list[NDArray[Any]]:
        """The targets of training and validation rows, (E, rows) each."""
        parts = (self.data.train, self.data.validation)
        return [self.data.targets(rows).reshape(len(self.generators), -1).cpu().numpy() for rows in parts]

    def _order(self) -> torch.Tensor:
        """Draw the order of the rows of an epoch, for each member from its own generator."""
        # Pinned, so that the GPU copies it when it gets there, while the next order is drawn.
        order = torch.empty(len(self.generators), self.order.shape[-1], dtype=torch.int64, pin_memory=self._cuda)
        for drawn, generator in zip(order, self.generators, strict=True):
            torch.randperm(len(drawn), generator=generator, out=drawn)
        return order.reshape(self.order.shape)

    def _steps(self, *, shapes_only: bool = False) -> None:
        """Take the steps of an epoch; or only the first and the last one, whose batch may be shorter."""
        self.model.train()
        self.losses.zero_()
        rows = self.data.train.gather(-1, self.order)
        n = rows.shape[-1]
        batches = list(rows.split(self.batch_size, -1))
        for batch in [batches[0], batches[-1]] if shapes_only else batches:
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.objective.loss(self._output(self.data.X[batch]), self.data.targets(batch))
            loss.sum().backward()
            if self.half is not None:
                self.half.hand_back()
            self.optimizer.step()
            if self.half is not None:
                self.half.refresh()
            self.losses[..., 0].add_(loss.detach(), alpha=batch.shape[-1] / n)
        X, y = self._validation
        self.losses[..., 1:].copy_(self.objective.measures(self._output(X, learn=False), y))

    def _output(self, points: torch.Tensor, *, learn: bool = True) -> torch.Tensor:
        """Return the network's output in float32."""
        model = self.model if self.half is None else self.half.model
        points = points if self.half is None else points.bfloat16()
        return (shaped(model(points), points) if learn else predict(model, points)).float()

    def _record(self) -> torch.cuda.CUDAGraph:
        """Record an epoch, after two steps of it."""
        graph = record(self._steps, lambda: self._steps(shapes_only=True), self.model, self.optimizer)
        if self.half is not None:
            self.half.refresh()
        return graph
