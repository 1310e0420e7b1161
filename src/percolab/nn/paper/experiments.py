"""The paper's two experiments: which data, which network, which probes. Needs no torch."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from percolab.ground.validation import check_choice, check_integer, check_number
from percolab.ground.version import __version__
from percolab.model.recipe import PRESETS, Recipe
from percolab.nn.config import SCALES, ProbeConfig, TrainConfig

EXPERIMENTS = ("one-cluster", "multi-cluster")

_SMALL_SIZES = {"one-cluster": (20_000, 1), "multi-cluster": (200_000, 150)}
"""Points and least cluster size of the small scale."""
_SMALL_DIM = 50
"""Below the width of the small network, as at the paper's scale."""
_SMALL_TRAINING = TrainConfig(d_model=64, epochs=30, batch_size=256, lr=1e-3)
_SMALL_PROBING = ProbeConfig(depths=tuple(range(0, 201, 20)), min_latent_size=50, subtree_alphas=(1.0, 1e3, 1e5))
_SEEDS = {"paper": 5, "small": 2}
UNTRAINED = 5
"""Least number of untrained networks and of draws of random features."""
FIT_FROM = 10.0
"""FOM from which a second power law is fitted: below it, the smallest clusters are missing from multi-cluster data."""


@dataclass(frozen=True)
class Experiment:
    """What a reproduction is made from."""

    name: str
    scale: str
    recipe: Recipe
    training: TrainConfig
    probing: ProbeConfig
    seeds: tuple[int, ...] = (42,)
    """of the networks that are trained: their initial weights and the order of their rows"""
    fit_from: float = FIT_FROM
    """FOM from which the second power law is fitted"""
    shorter: int | None = None
    """epochs of a second, shorter training, for comparison"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if not self.seeds:
            raise ValueError("seeds must not be empty, got ()")
        check_number("fit_from", self.fit_from, 0)

    @property
    def control_seeds(self) -> tuple[int, ...]:
        """Seeds of the untrained networks: those that the trained ones started from, and more up to five."""
        more = itertools.count(max(self.seeds) + 1)
        return (*self.seeds, *(next(more) for _ in range(UNTRAINED - len(self.seeds))))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""
        values = {**asdict(self), "recipe": self.recipe.to_dict(), "percolab": __version__}
        return dict(json.loads(json.dumps(values)))

    @property
    def command(self) -> str:
        """The command that runs it."""
        usual = experiment(self.name, self.scale)
        given = {
            "epochs": self.training.epochs != usual.training.epochs and self.training.epochs,
            "seeds": len(self.seeds) != len(usual.seeds) and len(self.seeds),
            "fit-from": self.fit_from != usual.fit_from and f"{self.fit_from:g}",
        }
        options = "".join(f" --{name} {value}" for name, value in given.items() if value)
        return f"percolab reproduce {self.name} --scale {self.scale}{options}"


def experiment(
    name: str, scale: str = "paper", *, epochs: int | None = None, seeds: int | None = None, fit_from: float = FIT_FROM
) -> Experiment:
    """Return an experiment of the paper, at its scale or a small one, by name.

    Parameters
    ----------
    name
        ``"one-cluster"`` or ``"multi-cluster"``.
    scale
        ``"paper"``, or ``"small"``: about 20,000 points and a smaller network, minutes on a laptop.
    epochs
        Another number of epochs than the experiment's own.
    seeds
        How many networks are trained; None: 5 at the paper's scale, 2 at the small one. The first has the paper's seed.
    fit_from
        FOM from which a second power law is fitted, beside the one of all latents.
    """
    check_choice("experiment", name, EXPERIMENTS)
    check_choice("scale", scale, SCALES)
    n_seeds = check_integer("seeds", _SEEDS[scale] if seeds is None else seeds, 1)
    recipe, shorter = PRESETS[f"paper-{name}"], None
    training, probing = TrainConfig(), ProbeConfig(draws=10)
    if name == "multi-cluster":
        training, shorter = replace(training, d_model=512, epochs=2500), 400
    if scale == "small":
        n_points, min_cluster_size = _SMALL_SIZES[name]
        recipe = replace(recipe, n_points=n_points, dim=_SMALL_DIM, min_cluster_size=min_cluster_size)
        training, probing, shorter = _SMALL_TRAINING, _SMALL_PROBING, None
    if epochs is not None:
        training, shorter = replace(training, epochs=epochs), None
    members = tuple(range(training.seed, training.seed + n_seeds))
    return Experiment(name, scale, recipe, training, probing, members, fit_from, shorter)
