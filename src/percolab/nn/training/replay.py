"""CUDA graphs: work recorded once and replayed with a single call, and how far Python may run ahead of the GPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import nn

from percolab.nn.training.checkpoint import restore, snapshot


def record(
    work: Callable[[], None], warm_up: Callable[[], None], model: nn.Module, optimizer: torch.optim.Optimizer
) -> torch.cuda.CUDAGraph:
    """Record work that trains a model. Libraries set themselves up in the warm-up before it, which is then undone."""
    before = snapshot(model, optimizer)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        warm_up()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        work()
    restore(model, optimizer, before)
    return graph


class Pace:
    """Python stays this many calls ahead of the GPU, no more: enough to keep it busy, little enough to stop soon."""

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
