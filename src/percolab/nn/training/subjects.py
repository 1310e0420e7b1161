"""The data that networks are trained on: rows of a dataset, or documents of a corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.corpora.corpus import HELD_OUT, Corpus
from percolab.ground.arrays import as_array
from percolab.ground.devices import on_device
from percolab.ground.text import one_line
from percolab.nn.config import AnyTrainConfig, CorpusTrainConfig, TrainConfig
from percolab.nn.networks.excess import excess
from percolab.nn.networks.model import ResidualMLP, check_fits, evaluating, predict
from percolab.nn.networks.objective import objective
from percolab.nn.networks.transformer import Transformer
from percolab.nn.training.epoch import Data, Epoch
from percolab.nn.training.steps import Steps
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import AnyDataset

SAME = 1e-3  #: Largest relative difference of logits that is due to rounding.


class Rows:
    """Rows of a dataset: targets (n,), or (E, n), and the rows that each member is trained and tested on."""

    def __init__(
        self,
        dataset: AnyDataset,
        configs: Sequence[TrainConfig],
        targets: Any,
        split: Split | Sequence[Split] | None,
        device: torch.device,
    ) -> None:
        self.dataset, self.configs, self.device = dataset, configs, device
        self.y = _targets(dataset, targets, len(configs))
        self.goal = objective(self.y)
        self.splits = _splits(dataset, configs, split)
        self.recipe = dataset.recipe.to_dict()
        self.digest = _digest(self.y, self.splits)

    @cached_property
    def data(self) -> Data:
        """Points, targets and rows on the device."""
        X = on_device("X", self.dataset.X, self.device, torch.float32)
        y = on_device("y", self.y, self.device, self.goal.dtype)
        return Data(X, y, self._rows("train"), self._rows("validation"))

    def new(self, index: int) -> nn.Module:
        """Return the paper's network with the initial weights of a member."""
        return new_mlp(self.configs[index], self.dataset.recipe.dim, self.goal.outputs)

    def check(self, model: nn.Module) -> None:
        """Raise unless a model maps points to one number each, or to the logits of their labels."""
        check_fits(model, self.data.X.shape[1], self.device, self.goal.outputs)

    def course(self, model: nn.Module, optimizer: torch.optim.Optimizer, *, graph: bool, compiled: bool) -> Epoch:
        """Return the course of epochs."""
        if compiled:
            raise ValueError("compiled must be left out for a dataset, whose epoch is one CUDA graph, got True")
        return Epoch(model, optimizer, self.goal, self.data, self.configs, graph=graph)

    def score(self, model: nn.Module, index: int, part: str) -> Any:
        """Return R² and mean squared error, or accuracy and log loss."""
        y = self.data.y if self.data.y.ndim == 1 else self.data.y[index]
        rows = torch.from_numpy(getattr(self.splits[index], part)).to(self.device)
        return self.goal.score(predict(model, self.data.X[rows]), y[rows])

    def _rows(self, part: str) -> torch.Tensor:
        """Return the rows of a part, (m,) or (E, m)."""
        parts: list[Any] = [getattr(split, part) for split in self.splits]
        if min(map(len, parts)) == 0:
            raise ValueError(f"split must have {part} rows, got none")
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.stack(parts)).to(self.device)


class DocumentsOf:
    """Documents of a corpus, the same for all members. They are not split: held-out ones begin at 2^40."""

    digest = ""

    def __init__(self, corpus: Corpus, configs: Sequence[CorpusTrainConfig], device: torch.device) -> None:
        self.corpus, self.configs, self.config, self.device = corpus, configs, configs[0], device
        self.recipe = corpus.to_dict()
        self.splits = [None] * len(configs)

    def new(self, index: int) -> nn.Module:
        """Return a transformer with the initial weights of a member."""
        return new_transformer(self.configs[index], self.corpus)

    def check(self, model: nn.Module) -> None:
        """Raise unless a model maps tokens to logits of the token after each, which it must not see."""
        shape = (2, self.corpus.length, self.corpus.n_tokens)
        tokens = torch.zeros(shape[:2], dtype=torch.int64, device=self.device)
        tokens[1, -1] = self.corpus.n_tokens - 1  # otherwise the documents are the same
        try:
            with evaluating(model):
                output = model(tokens)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ValueError(f"model must take tokens (n, {self.corpus.length}), got {one_line(error)}") from error
        got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        if got != shape:
            raise ValueError(f"model must give logits {shape} for tokens {shape[:2]}, got {got}")
        seen = float((output[0, :-1] - output[1, :-1]).abs().max() / output.abs().max().clamp(min=1e-12))
        if seen > SAME:
            raise ValueError("model must not see the tokens that it predicts, got logits that depend on later tokens")

    def course(self, model: nn.Module, optimizer: torch.optim.Optimizer, *, graph: bool, compiled: bool) -> Steps:
        """Return the course of steps."""
        documents = self.corpus.documents(HELD_OUT, HELD_OUT + self.config.held_out)
        floor = float(self.corpus.beliefs(documents.tokens).floor[:, 1:].mean())
        tokens = torch.from_numpy(documents.tokens).to(self.device).long()
        return Steps(model, optimizer, self.corpus, self.config, tokens, floor, graph=graph, compiled=compiled)

    def score(self, model: nn.Module, index: int, part: str) -> Any:
        """Return loss, floor and excess on held-out documents."""
        count = self.config.held_out
        first = HELD_OUT if part == "validation" else HELD_OUT + count
        return excess(model, self.corpus, first=first, count=count, device=self.device)


def subject(
    data: Any, configs: Sequence[AnyTrainConfig], targets: Any, split: Any, device: torch.device
) -> Rows | DocumentsOf:
    """Return the data to train on; raise if configurations, targets or splits do not fit them."""
    wanted, what = (CorpusTrainConfig, "corpus") if isinstance(data, Corpus) else (TrainConfig, "dataset")
    for config in configs:
        if not isinstance(config, wanted):
            raise ValueError(f"config must be a {wanted.__name__} for a {what}, got a {type(config).__name__}")
    if not isinstance(data, Corpus):
        return Rows(data, configs, targets, split, device)  # type: ignore[arg-type]
    for name, value in (("targets", targets), ("split", split)):
        if value is not None:
            raise ValueError(f"{name} must be left out for a corpus, got a {type(value).__name__}")
    return DocumentsOf(data, configs, device)  # type: ignore[arg-type]


def new_mlp(config: TrainConfig, dim: int, outputs: int | None) -> ResidualMLP:
    """Return the untrained network of a configuration."""
    return ResidualMLP(dim, config.d_model, config.n_blocks, config.expansion, seed=config.start, outputs=outputs)


def new_transformer(config: CorpusTrainConfig, corpus: Corpus) -> Transformer:
    """Return the untrained transformer of a configuration."""
    shape = (config.d_model, config.n_blocks, config.n_heads, config.expansion)
    return Transformer(corpus.n_tokens, corpus.length, *shape, seed=config.start)


def _splits(dataset: AnyDataset, configs: Sequence[TrainConfig], split: Split | Sequence[Split] | None) -> list[Split]:
    """Return the split of each member: the one given, the member's own of several, or one drawn from its seed."""
    if isinstance(split, Split):
        return [split] * len(configs)
    if split is None:
        drawn = {seed: split_rows(dataset, seed) for seed in {config.seeds.split for config in configs}}
        return [drawn[config.seeds.split] for config in configs]
    if len(split) != len(configs):
        raise ValueError(f"split must be one, or as many as configs, {len(configs)}, got {len(split)}")
    return list(split)


def _targets(dataset: AnyDataset, targets: Any, n_members: int) -> Any:
    """Return the targets, (n,) or (E, n)."""
    y = as_array(dataset.y if targets is None else targets)
    n = dataset.X.shape[0]
    wanted = (n,) if targets is None else (n_members, n)
    if y.shape != wanted:
        what = "y must be one number or label per row" if targets is None else "targets must be a row for each member"
        raise ValueError(f"{what}, {wanted}, got shape {y.shape}")
    return y[0] if targets is not None and n_members == 1 else y


def _digest(y: Any, splits: Sequence[Split]) -> str:
    """Return a digest of targets and of the rows that members train and validate on."""
    digest = hashlib.sha256()
    for values in (y, *(part for split in splits for part in (split.train, split.validation))):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
