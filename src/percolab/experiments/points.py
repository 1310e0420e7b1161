"""Shared parts of experiments on points: measured epochs, concepts and latents; pairs of siblings; bins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.scoring import score
from percolab.ground.arrays import Floats, Ints
from percolab.intervals import log_bins
from percolab.nn.config import TrainConfig
from percolab.nn.probing.siblings import Siblings, find_siblings
from percolab.study.material import Material

#: Options at the small scale.
SMALL: dict[str, Any] = {"min_size": 50, "most_pairs": 100, "depths": tuple(range(0, 101, 10)), "features": 64}
N_BINS = 4


@dataclass(frozen=True)
class Options:
    """Options of an experiment on points besides data and networks."""

    keep: tuple[int, ...]  #: epochs that are measured; 0 is untrained
    min_size: int = 200  #: fewest samples of a concept or a latent
    most_pairs: int = 400  #: most pairs of siblings of a hierarchy
    depths: tuple[int, ...] = tuple(range(0, 201, 10))  #: depths of the latents that are probed
    features: int = 256  #: number of features of k-means
    activations: str = ""  #: folder of activations that replace the networks


def options(scale: str, seeds: int, training: TrainConfig) -> Options:
    """Return the options of a scale."""
    return Options(kept_epochs(training.epochs), **(SMALL if scale == "small" else {}))


def kept_epochs(epochs: int) -> tuple[int, ...]:
    """Return the epochs that are measured: 0, the last, and some between, each several times the one before."""
    between = {max(1, round(epochs * share)) for share in (0.005, 0.02, 0.1, 0.4)}
    return tuple(sorted({0, epochs} | between))


def pairs_of(data: Material) -> list[Siblings]:
    """Return the pairs of siblings of each hierarchy."""
    asked = data.settings.options
    return [find_siblings(t.forest, t.rows, asked.min_size, asked.most_pairs) for t in data.truths]


def columns_of(pairs: list[Siblings]) -> dict[str, Any]:
    """Return size, depth, FOM, place and factor of the pairs, hierarchy after hierarchy."""
    columns = {
        name: np.concatenate([getattr(each, name) for each in pairs]) for name in ("size", "depth", "fom", "place")
    }
    return {**columns, "factor": numbers(pairs)}


def numbers(by_hierarchy: Sequence[Sized]) -> Ints:
    """Return the number of the hierarchy of every unit, hierarchy after hierarchy."""
    return np.repeat(np.arange(len(by_hierarchy)), [len(units) for units in by_hierarchy])


def feature_scores(data: Material, A: torch.Tensor, method: Any, **asked: Any) -> list[Any]:
    """Fit a method to the activations of scored rows; return the scores of its features, one table per hierarchy."""
    rows = data.scored
    values = A[torch.from_numpy(rows).to(A.device)].cpu().numpy()
    codes = method.fit(values).encode(values)
    least = max(10, data.settings.options.min_size * rows.size // len(data.dataset))
    return [
        score(data.dataset, codes, rows, k, min_size=least, draws=1, **asked).concepts for k in range(len(data.truths))
    ]


def fom_bins(fom: Floats) -> Iterator[tuple[NDArray[np.bool_], dict[str, Any]]]:
    """Yield the units of each bin of FOM that has two or more, and the names for a row about them."""
    bins, edges = log_bins(fom, N_BINS)
    for b in np.unique(bins):
        if np.count_nonzero(bins == b) > 1:
            name = f"FOM {edges[b]:.2g} to {edges[b + 1]:.2g}"
            yield bins == b, {"bin": name, "at": float(np.sqrt(edges[b] * edges[b + 1]))}
