"""What methods are fitted to: activations of a task's networks and of controls, and the raw input.

Roles: `trained` on each hierarchy; `untrained`, with the initial weights; `random norms`, fresh weights whose norms are
those of the trained network, parameter by parameter; `raw`, the input itself; `truth`, for oracles, which read nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.benchmark.tasks import Options
from percolab.corpora.corpus import Corpus
from percolab.ground.arrays import Ints
from percolab.study.material import Material, Networks
from percolab.study.measured import RAW, TRAINED, UNTRAINED
from percolab.study.networks import untrained
from percolab.study.settings import Settings
from percolab.study.sources import Raw, RecordedSource, Source, TorchSource, folder
from percolab.study.subject import DocumentView, View, n_factors, views
from percolab.worlds.splits import Split

RENORMED, TRUTH = "random norms", "truth"
RENORMED_SEEDS = 500_000  #: Added to the seeds of random norms: draws of the data add whole millions.
S = Settings[Options]


@dataclass(frozen=True)
class Representation:
    """One network of a draw, or the input or the truth in its place."""

    role: str
    trained_on: int | None = None
    seed: int = 0  #: place of the network in its list

    @property
    def name(self) -> str:
        """The representation as part of a file name."""
        on = "" if self.trained_on is None else f"-{self.trained_on}"
        return f"{self.role.replace(' ', '-')}{on}_{self.seed}"


def representations(s: S) -> list[Representation]:
    """Return all representations that methods are fitted to, the trained networks first."""
    if s.options.activations:
        return [Representation(*place) for place in folder(s.options.activations).places(s.draw)]
    count = n_factors(s.recipe)
    chosen = [Representation(TRAINED, k, i) for k in range(count) for i in range(s.seeds)]
    chosen += [Representation(role, None, i) for role in (UNTRAINED, RENORMED) for i in range(s.seeds)]
    return [*chosen, Representation(RAW)]


# ---------------------------------------------------------------------- data and rows


class Subject(Material):
    """The data of one draw, as each hierarchy sees them."""

    @cached_property
    def views(self) -> list[View]:
        """The data, one view for each hierarchy."""
        documents = isinstance(self.data, Corpus)
        return views(self.data, self.settings.options.documents if documents else self.split)

    def rows(self, view: View) -> dict[str, Ints]:
        """Return the rows that methods are fitted on, those that choose thresholds and settings, and those scored."""
        if not isinstance(view, DocumentView):
            return {"fit": view.train, "validation": np.sort(self.split.validation), "scored": view.test}
        length, documents = view.shape[1], view.train.size // view.shape[1]
        fit = round(0.75 * documents) * length
        return {"fit": view.train[:fit], "validation": view.train[fit:], "scored": view.test}

    def groups(self, *, apart: bool) -> list[list[View]]:
        """Return the views that share their activations: all views of points; each view of documents by itself."""
        if apart or isinstance(self.views[0], DocumentView):
            return [[view] for view in self.views]
        return [self.views]

    @property
    def training_rows(self) -> dict[str, Split]:
        """The rows that networks are trained on, a share of the training rows, as arguments of `percolab.nn.train`."""
        if isinstance(self.data, Corpus):
            return {}
        rows = self.split.train[: max(1, round(self.settings.options.share * self.split.train.size))]
        return {"split": replace(self.split, train=rows)}


# ---------------------------------------------------------------------- networks


def train(number: int, data: Subject) -> Networks:
    """Train one network for each hierarchy, all from the initial weights of one seed."""
    configs = data.configs[number : number + 1]
    return data.train_by_factor(configs=configs, tuned=data.settings.options.tuned, **data.training_rows)


def model_of(data: Subject, which: Representation, networks: Networks | None) -> nn.Module | None:
    """Return the network of a representation; None for representations without a network."""
    s = data.settings
    if which.role not in (TRAINED, UNTRAINED, RENORMED) or s.options.activations:
        return None
    seed, trained = s.network_seeds[which.seed], None
    if networks is not None:
        trained = networks.model(networks.number(seed, which.trained_on or 0), data.data)
    if which.role == TRAINED:
        return trained
    model = untrained(s.training, data.data, seed, s.network)
    return model if which.role == UNTRAINED else with_norms(model, trained, seed)


def with_norms(model: nn.Module, like: Any, seed: int) -> nn.Module:
    """Return a network with random weights whose norms, parameter by parameter, are those of another network."""
    drawn = torch.Generator().manual_seed(seed + RENORMED_SEEDS)  # initial weights come from the seed itself
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), like.parameters(), strict=True):
            fresh = torch.randn(mine.shape, generator=drawn)
            mine.copy_(fresh * theirs.norm().cpu() / fresh.norm().clamp(min=1e-12))
    return model


def read(data: Subject, which: Representation, model: nn.Module | None, views: Sequence[View]) -> torch.Tensor:
    """Return (rows, width) activations of some views that share their rows."""
    asked = data.settings.options
    source: Source = Raw() if model is None else TorchSource(model)
    if asked.activations and which.role != RAW:
        place = which.role, which.trained_on, which.seed, data.settings.draw
        source = RecordedSource(folder(asked.activations), *place)
    return source.read(views[0], [asked.layer], data.device)[asked.layer]
