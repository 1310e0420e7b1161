"""One epoch of training with all data on the device: plain on the CPU, one CUDA graph on a GPU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from percolab.nn.checkpoint import restore, snapshot
from percolab.nn.model import predict
from percolab.nn.overlap import Lanes, overlapped


class Epoch:
    """All steps of an epoch, then the validation loss.

    On CUDA the whole epoch, some thousands of kernels, is recorded once and then replayed with a single call: a step
    of the paper's model is a fifth of a millisecond of work, less than Python needs to launch it. What changes from
    epoch to epoch, the order of the rows and the learning rate, is in tensors that the graph reads. Gradients of
    weights are computed beside the backward pass; see `percolab.nn.overlap`.

    Parameters
    ----------
    model, optimizer
        On the device of the data. The optimiser's learning rate is a tensor; on CUDA it is capturable.
    train, validation
        Pairs (X, y) of tensors.
    batch_size
        Rows of a step; the last one may have fewer.
    graph
        Whether to record a CUDA graph; ignored on the CPU.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        train: tuple[torch.Tensor, torch.Tensor],
        validation: tuple[torch.Tensor, torch.Tensor],
        batch_size: int,
        graph: bool = True,
    ) -> None:
        self.model, self.optimizer, self.batch_size = model, optimizer, batch_size
        self.X, self.y = train
        self.validation = validation
        self.order = torch.arange(len(self.y), device=self.y.device)
        self.losses = torch.zeros(2, dtype=torch.float64, device=self.y.device)
        """mean training loss over the epoch's steps, and validation loss after it"""
        self._graph = self._record() if graph and self.y.is_cuda else None
        self._done: torch.cuda.Event | None = None

    def run(self, order: torch.Tensor, lr: float) -> torch.Tensor:
        """Train for one epoch on the rows in this order; return `losses`, which the next epoch writes over."""
        self.order.copy_(order, non_blocking=True)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(lr)
        if self._graph is None:
            self._steps()
            return self.losses
        self._graph.replay()
        # Stay one epoch ahead of the GPU, no more: enough to keep it busy, little enough to stop soon.
        if self._done is not None:
            self._done.synchronize()
        self._done = torch.cuda.Event()
        self._done.record()
        return self.losses

    def _steps(self, lanes: Lanes | None = None, *, shapes_only: bool = False) -> None:
        """Take the steps of an epoch, or only the first and the last, whose batch may be shorter."""
        self.model.train()
        self.losses.zero_()
        X, y = self.X[self.order], self.y[self.order]
        batches = list(zip(X.split(self.batch_size), y.split(self.batch_size), strict=True))
        for features, target in [batches[0], batches[-1]] if shapes_only else batches:
            self.optimizer.zero_grad(set_to_none=True)
            loss = functional.mse_loss(self.model(features).reshape(-1), target)
            loss.backward()
            if lanes is not None:
                lanes.join()
            self.optimizer.step()
            self.losses[0].add_(loss.detach(), alpha=len(target) / len(y))
        X, y = self.validation
        self.losses[1].copy_(functional.mse_loss(predict(self.model, X), y))

    def _record(self) -> torch.cuda.CUDAGraph:
        """Record an epoch. Libraries set themselves up in two steps before it, which are then undone."""
        before = snapshot(self.model, self.optimizer)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        graph = torch.cuda.CUDAGraph()
        with overlapped(self.model) as lanes:
            with torch.cuda.stream(side):
                self._steps(lanes, shapes_only=True)
            torch.cuda.current_stream().wait_stream(side)
            self.optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                self._steps(lanes)
        restore(self.model, self.optimizer, before)
        return graph
