"""What methods are fitted to: activations of the networks of a task, of controls, and the raw input.

Roles: `trained` on each hierarchy; `untrained`, with the initial weights; `random norms`, fresh weights whose norms are
those of the trained network, parameter by parameter; `raw`, the input itself; `truth`, for oracles, which read nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.benchmark.tasks import Options
from percolab.corpora.corpus import Corpus
from percolab.ground.devices import choose_device
from percolab.nn.networks.model import ResidualMLP
from percolab.nn.networks.transformer import Transformer
from percolab.study.cells import Here
from percolab.study.material import Material
from percolab.study.measured import RAW, TRAINED, UNTRAINED, Ints
from percolab.study.networks import find_make, trained
from percolab.study.settings import Settings
from percolab.study.sources import Raw, Source, TorchSource, folder
from percolab.study.subject import AnyData, DocumentView, View, n_factors, views
from percolab.worlds.splits import Split, split_rows

RENORMED, TRUTH = "random norms", "truth"
S = Settings[Options]


@dataclass(frozen=True)
class Representation:
    """One network of a draw, or what stands in its place."""

    role: str
    trained_on: int | None = None
    seed: int = 0
    """place of the network in its list"""

    @property
    def name(self) -> str:
        """It as a part of a file's name."""
        on = "" if self.trained_on is None else f"-{self.trained_on}"
        return f"{self.role.replace(' ', '-')}{on}_{self.seed}"


def representations(s: S) -> list[Representation]:
    """Return all that methods are fitted to: the trained networks first."""
    if s.options.activations:
        return list(folder(s.options.activations).by_place(Representation, s.draw))
    count = n_hierarchies(s)
    found = [Representation(TRAINED, k, i) for k in range(count) for i in range(s.seeds)]
    found += [Representation(role, None, i) for role in (UNTRAINED, RENORMED) for i in range(s.seeds)]
    return [*found, Representation(RAW)]


def n_hierarchies(s: S) -> int:
    """Return how many hierarchies the data have."""
    return len(getattr(s.recipe, "factors", getattr(s.recipe, "lexicons", (None,))))


# ---------------------------------------------------------------------- data and rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that methods are fitted on, rows that choose thresholds and settings, and rows that are scored."""

    fit: Ints
    validation: Ints
    scored: Ints


@dataclass(frozen=True, eq=False)
class Subject:
    """The data of one draw, from the side of each hierarchy."""

    data: AnyData
    views: list[View]
    split: Split | None

    @classmethod
    def of(cls, s: S, here: Here) -> Subject:
        """Return the data of the settings' draw."""
        if isinstance(s.recipe, Corpus):
            return cls(s.recipe, views(s.recipe, s.options.documents), None)
        data = Material(s, here).dataset
        split = split_rows(data, s.training.seeds.split)
        return cls(data, views(data, split), split)

    def rows(self, view: View) -> Rows:
        """Return the parts of the rows of a view."""
        if self.split is not None:
            return Rows(view.train, np.sort(self.split.validation), view.test)
        length, documents = view.shape[1], view.train.size // view.shape[1]
        fit = round(0.75 * documents) * length
        return Rows(view.train[:fit], view.train[fit:], view.test)


# ---------------------------------------------------------------------- networks


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """The trained networks of a draw: a result of a cell."""

    seeds: list[int]
    """by network, of its initial weights"""
    factors: list[int]
    """by network, the hierarchy that it was trained on"""
    scores: list[dict[str, float]]
    """by network, on rows that it was not trained on"""
    seconds: float
    weights: dict[str, NDArray[Any]]
    """by NETWORK/PARAMETER"""

    def load(self, model: nn.Module, factor: int, seed: int) -> nn.Module:
        """Return a module with the weights of a network."""
        number = list(zip(self.factors, self.seeds, strict=True)).index((factor, seed))
        start = f"{number}/"
        state = {name.removeprefix(start): value for name, value in self.weights.items() if name.startswith(start)}
        model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
        return model


def train(s: S, here: Here) -> TrainedWeights:
    """Train one network for each hierarchy and seed; those of a seed start from the same weights."""
    data = Subject.of(s, here).data
    make = partial(find_make(s.network), data) if s.network else None
    results: Sequence[Any]
    if make is not None and callable(getattr(make(s.network_seeds[0]), "fit", None)):
        results = [_self_trained(make(seed), _target(data, k), seed) for k, seed in _grid(s, data)]
    elif isinstance(data, Corpus):
        results = _on_documents(s, here, data, make)
    else:
        configs = [config for _ in range(n_factors(data)) for config in s.training.with_seeds(s.network_seeds)]
        y = np.stack([np.asarray(_target(data, k).y) for k, _ in _grid(s, data)])
        results = trained(here, data, configs, make, targets=y, split=_training_split(s, data))
    kept = {}
    for number, result in enumerate(results):
        for name, value in result.model.state_dict().items():
            kept[f"{number}/{name}"] = value.detach().cpu().float().numpy()
    factors, seeds = (list(column) for column in zip(*_grid(s, data), strict=True))
    plain = [{n: v for n, v in asdict(result.test).items() if isinstance(v, float)} for result in results]
    return TrainedWeights(seeds, factors, plain, sum({id(result): result.seconds for result in results}.values()), kept)


def _grid(s: S, data: AnyData) -> list[tuple[int, int]]:
    return [(k, seed) for k in range(n_factors(data)) for seed in s.network_seeds]


def _target(data: Any, k: int) -> Any:
    return data.swapped(k) if n_factors(data) > 1 else data


@dataclass(frozen=True)
class _Untested:
    """Scores of a network that trains itself: none."""


@dataclass(frozen=True, eq=False)
class _SelfTrained:
    model: nn.Module
    test: _Untested = _Untested()
    seconds: float = 0.0


def _self_trained(model: Any, data: AnyData, seed: int) -> _SelfTrained:
    model.fit(data, seed)
    return _SelfTrained(model)


def _on_documents(s: S, here: Here, corpus: Corpus, make: Any) -> list[Any]:
    results: list[Any] = []
    for k in range(n_factors(corpus)):
        part = replace(here, scratch=None if here.scratch is None else here.scratch / f"lexicon-{k}")
        configs = s.training.with_seeds(s.network_seeds)
        if k and s.options.tuned:
            later = [replace(config, first=config.steps * config.batch_size) for config in configs]
            models = [copy.deepcopy(result.model) for result in results[: s.seeds]]
            mixed = corpus.replace(shares=[1 / n_factors(corpus)] * n_factors(corpus))
            results += trained(replace(part, scratch=None), mixed, later, models)
        else:
            results += trained(part, corpus.swapped(k), configs, make)
    return results


def _training_split(s: S, data: Any) -> Split:
    """Return the rows that networks are trained on: a share of the training rows."""
    split = split_rows(data, s.training.seeds.split)
    return replace(split, train=split.train[: max(1, round(s.options.share * split.train.size))])


def untrained(s: S, data: AnyData, seed: int) -> nn.Module:
    """Return a network with its initial weights."""
    if s.network:
        return find_make(s.network)(data, seed)
    c = s.training
    if isinstance(data, Corpus):
        return Transformer(data.n_tokens, data.length, c.d_model, c.n_blocks, c.n_heads, c.expansion, seed=seed)
    return ResidualMLP(data.X.shape[1], c.d_model, c.n_blocks, c.expansion, seed=seed)


def model_of(s: S, data: AnyData, which: Representation, weights: TrainedWeights | None) -> nn.Module | None:
    """Return the network of a representation; None where there is none."""
    if which.role not in (TRAINED, UNTRAINED, RENORMED) or s.options.activations:
        return None
    seed = s.network_seeds[which.seed]
    model = untrained(s, data, seed)
    if which.role == UNTRAINED:
        return model
    assert weights is not None, "a trained network has weights"
    if which.role == TRAINED:
        return weights.load(model, which.trained_on or 0, seed)
    return with_norms(model, weights.load(copy.deepcopy(model), 0, seed), seed)


def with_norms(model: nn.Module, like: nn.Module, seed: int) -> nn.Module:
    """Return a network with random weights whose norms, parameter by parameter, are those of another network."""
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), like.parameters(), strict=True):
            fresh = torch.randn(mine.shape, generator=drawn)
            mine.copy_(fresh * theirs.norm().cpu() / fresh.norm().clamp(min=1e-12))
    return model


def read(s: S, here: Here, which: Representation, model: nn.Module | None, views: Sequence[View]) -> torch.Tensor:
    """Return (rows, width) activations for some views that have the same rows."""
    device, layer = choose_device(here.device), s.options.layer
    source: Source = Raw() if model is None else TorchSource(model)
    if s.options.activations and which.role != RAW:
        source = folder(s.options.activations).source(which.role, which.trained_on, which.seed, s.draw)
    return source.read(views[0], [layer], device)[layer]


def groups(subject: Subject, *, apart: bool) -> list[list[View]]:
    """Return the views that share their activations: all views of points; each view of documents by itself."""
    if apart or isinstance(subject.views[0], DocumentView):
        return [[view] for view in subject.views]
    return [subject.views]
