"""The paper's two experiments: which data, which network, which probes. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from percolab.ground.validation import check_choice
from percolab.ground.version import __version__
from percolab.model.recipe import PRESETS, Recipe
from percolab.nn.config import ProbeConfig, TrainConfig

EXPERIMENTS = ("one-cluster", "multi-cluster")
SCALES = ("paper", "small")

_SMALL_SIZES = {"one-cluster": (20_000, 1), "multi-cluster": (200_000, 150)}
"""Points and least cluster size of the small scale."""
_SMALL_TRAINING = TrainConfig(d_model=128, epochs=40, batch_size=256, lr=1e-3)
_SMALL_PROBING = ProbeConfig(min_latent_size=50)


@dataclass(frozen=True)
class Experiment:
    """What a reproduction is made from."""

    name: str
    scale: str
    recipe: Recipe
    training: TrainConfig
    probing: ProbeConfig

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""
        values = {**asdict(self), "recipe": self.recipe.to_dict(), "percolab": __version__}
        return dict(json.loads(json.dumps(values)))

    @property
    def command(self) -> str:
        """The command that runs it."""
        usual = experiment(self.name, self.scale).training.epochs
        epochs = "" if self.training.epochs == usual else f" --epochs {self.training.epochs}"
        return f"percolab reproduce {self.name} --scale {self.scale}{epochs}"


def experiment(name: str, scale: str = "paper", *, epochs: int | None = None) -> Experiment:
    """Return an experiment of the paper, at its scale or a small one, by name.

    Parameters
    ----------
    name
        ``"one-cluster"`` or ``"multi-cluster"``.
    scale
        ``"paper"``, or ``"small"``: about 20,000 points and a smaller network, minutes on a laptop.
    epochs
        Another number of epochs than the experiment's own.
    """
    check_choice("experiment", name, EXPERIMENTS)
    check_choice("scale", scale, SCALES)
    recipe = PRESETS[f"paper-{name}"]
    training, probing = TrainConfig(), ProbeConfig()
    if name == "multi-cluster":
        training = replace(training, d_model=512, epochs=2500)
    if scale == "small":
        n_points, min_cluster_size = _SMALL_SIZES[name]
        recipe = replace(recipe, n_points=n_points, min_cluster_size=min_cluster_size)
        training, probing = _SMALL_TRAINING, _SMALL_PROBING
    if epochs is not None:
        training = replace(training, epochs=epochs)
    return Experiment(name, scale, recipe, training, probing)
