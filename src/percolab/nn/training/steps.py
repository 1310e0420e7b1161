"""Training on the documents of a corpus, step by step; on a GPU a step is one CUDA graph."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pandas
import torch
from torch import nn
from torch.nn import functional

from percolab.corpora.corpus import Corpus
from percolab.ground.arrays import Floats
from percolab.nn.config import CorpusTrainConfig
from percolab.nn.networks.excess import token_losses
from percolab.nn.networks.model import Members
from percolab.nn.training.gpu import Pace, record

AHEAD = 8  #: Steps whose documents are made in advance, and steps that Python may be ahead of a GPU.
WARM_UP = 3  #: Steps before a CUDA graph is recorded.


class Stream:
    """The documents of each step in turn, made by a separate thread during the steps before it."""

    def __init__(self, corpus: Corpus, config: CorpusTrainConfig, device: torch.device) -> None:
        self.corpus, self.config, self.pinned = corpus, config, device.type == "cuda"
        self.waited = 0.0  #: seconds that training waited for documents
        self._maker = ThreadPoolExecutor(1, "percolab-documents")
        self._coming: deque[tuple[int, Future[torch.Tensor]]] = deque()

    def tokens(self, step: int) -> torch.Tensor:
        """Return the tokens (batch_size, length) of a step; steps are asked for in their order."""
        first, end = self._coming[-1][0] + 1 if self._coming else step, min(step + AHEAD, self.config.steps)
        self._coming.extend((s, self._maker.submit(self._make, s)) for s in range(first, end))
        start = time.perf_counter()
        tokens = self._coming.popleft()[1].result()
        self.waited += time.perf_counter() - start
        return tokens

    def _make(self, step: int) -> torch.Tensor:
        first = self.config.first + step * self.config.batch_size
        tokens = torch.from_numpy(self.corpus.documents(first, first + self.config.batch_size, threads=1).tokens)
        return tokens.pin_memory() if self.pinned else tokens


class Steps:
    """Steps on documents, the same for all members, and the loss on held-out documents.

    The documents have one more token than the corpus' documents, so that the last position is trained too, for the
    token after it; all other tokens are the same. Members compute one after another: one step of a network of the size
    that documents are meant for fills a GPU.

    Parameters
    ----------
    model
        The network, or `Members`.
    optimizer
        Its learning rate is a tensor; on CUDA it is capturable.
    corpus, config
        What the documents come from, and how many there are.
    held_out
        (n, T) tokens of the held-out documents, on the device of the model.
    floor
        Mean floor of their positions 1 to T - 1.
    graph
        Whether to record a CUDA graph; ignored on the CPU.
    compiled
        Whether to compile the loss with `torch.compile`.
    """

    n_measures = 1
    measure_name = "excess"
    generators: Sequence[torch.Generator] = ()

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        corpus: Corpus,
        config: CorpusTrainConfig,
        held_out: torch.Tensor,
        floor: float,
        *,
        graph: bool = True,
        compiled: bool = False,
    ) -> None:
        self.members = list(model.members) if isinstance(model, Members) else [model]
        self.model, self.optimizer, self.held_out, self.floor = model, optimizer, held_out, floor
        device, self._cuda = held_out.device, held_out.is_cuda
        self.bf16 = config.bf16 and self._cuda
        self._loss: Callable[..., torch.Tensor] = torch.compile(mean_loss) if compiled else mean_loss
        longer = corpus.replace(length=corpus.length + 1)
        self.documents = Stream(longer, config, device)
        self.tokens = torch.zeros(config.batch_size, longer.length, dtype=torch.int32, device=device)
        self.losses = torch.zeros(len(self.members), device=device)
        self._pace = Pace(AHEAD)
        self._graph = record(self._step, self._warm_up, model, optimizer) if graph and self._cuda else None

    @property
    def waited(self) -> float:
        """Seconds that training waited for documents."""
        return self.documents.waited

    def advance(self, done: int, lr: float) -> torch.Tensor:
        """Take one step; return the training loss (E,)."""
        self.tokens.copy_(self.documents.tokens(done), non_blocking=True)
        for group in self.optimizer.param_groups:
            group["lr"].fill_(lr)
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()
        if self._cuda:
            self._pace.mark()
        return self.losses

    def measure(self) -> torch.Tensor:
        """Return the loss (E, 1) on the held-out documents, in float32."""
        losses = [token_losses(member, self.held_out).double().mean() for member in self.members]
        return torch.stack(losses)[:, None]

    def columns(self, index: int, losses: Floats) -> pandas.DataFrame:
        """Return training and held-out loss, the floor of the held-out loss, and the excess over the floor."""
        train, held_out = losses.T
        values = {"train_loss": train, "validation_loss": held_out, "floor": self.floor}
        return pandas.DataFrame({**values, "excess": held_out - self.floor})

    def _step(self) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        tokens = self.tokens.long()
        for i, member in enumerate(self.members):
            # The cache of casts would hold memory that is unknown to the graph of another step.
            with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
                loss = self._loss(member, tokens)
            loss.backward()
            self.losses[i] = loss.detach()
        self.optimizer.step()

    def _warm_up(self) -> None:
        for _ in range(WARM_UP):
            self._step()


def mean_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean of -log of the probability that a model gives to each token (n, T) but the first."""
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
