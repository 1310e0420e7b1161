"""What the experiments are made from, at the paper's scale and at a small one. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from percolab.ground.validation import check_choice, check_integer
from percolab.ground.version import __version__
from percolab.model.recipe import Recipe
from percolab.nn.config import SCALES, TrainConfig
from percolab.worlds.presets import PRESETS
from percolab.worlds.recipe import Superposition

EXPERIMENTS = ("trained", "crossed", "relevance", "dose", "edit")
HIERARCHY = ("one-cluster", "multi-cluster")
WORLDS = ("superposed-2", "superposed-4")
DATA = {"trained": HIERARCHY, "crossed": HIERARCHY, "relevance": WORLDS, "dose": WORLDS, "edit": HIERARCHY}
"""Data that each experiment can be run on; the first is the default."""
LEAST_SEEDS = {"trained": 2, "crossed": 3, "relevance": 2, "dose": 2, "edit": 2}
"""Fewest seeds: one is left out at a time, and others' values take two networks."""

_SMALL_SIZES = {"one-cluster": 10_000, "multi-cluster": 100_000, "superposed-2": 10_000, "superposed-4": 10_000}
_SMALL_TRAINING = TrainConfig(d_model=64, epochs=60, batch_size=256, lr=1e-3)
_PAPER_EPOCHS = {"one-cluster": 500, "multi-cluster": 2500, "superposed-2": 200, "superposed-4": 200}


@dataclass(frozen=True)
class Settings:
    """Everything that determines an experiment. What one does not use has no effect on it."""

    experiment: str
    scale: str
    data: str
    recipe: Recipe | Superposition
    training: TrainConfig
    """of every network, but for its seeds"""
    seeds: int
    """networks for each target: their initial weights and order of rows come from seeds 0, 1, …; in `crossed`, draws of
    values"""
    keep: tuple[int, ...]
    """epochs that are looked at; 0 is untrained"""
    min_size: int
    """fewest samples of a concept or a latent"""
    most_pairs: int = 400
    """most pairs of siblings of a hierarchy"""
    depths: tuple[int, ...] = tuple(range(0, 201, 10))
    """depths of the latents that are probed"""
    fresh: int = 20
    """draws of values that no network has seen; the null of `crossed` takes as many of them as there are seeds"""
    rows: int = 64
    """samples of a concept that are pushed"""
    doses: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    """pushes, in units of the difference to the sibling, or of z"""
    latents: int = 16
    """latents whose value is edited, and retrainings without an edit"""
    retraining: int = 40
    """epochs of training after an edit"""
    change: float = 8.0
    """what an edit adds to a value: y changes by this over the root of the number of latents above a point"""
    features: int = 256
    """features of k-means"""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, equal after a round trip through JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values |= {"recipe": self.recipe.to_dict(), "training": asdict(self.training), "percolab": __version__}
        return dict(json.loads(json.dumps(values)))

    @property
    def command(self) -> str:
        """The command that runs it."""
        usual = settings(self.experiment, self.scale)
        data = "" if self.data == usual.data else f" --data {self.data}"
        seeds = "" if self.seeds == usual.seeds else f" --seeds {self.seeds}"
        plain = settings(self.experiment, self.scale, data=self.data).training.epochs
        epochs = "" if self.training.epochs == plain else f" --epochs {self.training.epochs}"
        return f"percolab represent {self.experiment} --scale {self.scale}{data}{seeds}{epochs}"


def settings(
    experiment: str, scale: str = "paper", *, data: str | None = None, seeds: int = 5, epochs: int | None = None
) -> Settings:
    """Return the settings of an experiment by name.

    Parameters
    ----------
    experiment
        One of `EXPERIMENTS`.
    scale
        ``"paper"``, or ``"small"``: about 10,000 points and a smaller network, minutes on a laptop.
    data
        One of ``DATA[experiment]``; None takes the first.
    seeds
        Networks for each target, at least two; in `crossed`, draws of values, at least three.
    epochs
        Another number of epochs than the usual.
    """
    check_choice("experiment", experiment, EXPERIMENTS)
    check_choice("scale", scale, SCALES)
    chosen = check_choice("data", DATA[experiment][0] if data is None else data, DATA[experiment])
    count = check_integer("seeds", seeds, LEAST_SEEDS[experiment])
    small = scale == "small"
    training = _SMALL_TRAINING if small else TrainConfig(epochs=_PAPER_EPOCHS[chosen])
    if chosen == "multi-cluster" and not small:
        training = replace(training, d_model=512)
    if epochs is not None:
        training = replace(training, epochs=epochs)
    found = Settings(
        experiment=experiment,
        scale=scale,
        data=chosen,
        recipe=_recipe(chosen, small),
        training=training,
        seeds=count,
        keep=kept_epochs(training.epochs) if experiment in ("trained", "relevance") else (0, training.epochs),
        min_size=50 if small else 200,
        fresh=max(10 if small else Settings.fresh, 2 * count),
    )
    if small:
        found = replace(
            found, most_pairs=100, depths=tuple(range(0, 101, 10)), rows=32, latents=6, retraining=10, change=4.0,
            features=64,
        )  # fmt: skip
    return found


def kept_epochs(epochs: int) -> tuple[int, ...]:
    """Return the epochs that are looked at: none, the last, and some between, each several times the one before."""
    between = {max(1, round(epochs * share)) for share in (0.005, 0.02, 0.1, 0.4)}
    return tuple(sorted({0, epochs} | between))


def _recipe(data: str, small: bool) -> Recipe | Superposition:
    """Return the preset, or what is made like it with fewer points."""
    recipe = PRESETS[data if data in WORLDS else f"paper-{data}"]
    if not small:
        return recipe
    n = _SMALL_SIZES[data]
    if isinstance(recipe, Superposition):
        factors = [replace(factor, n_points=n) for factor in recipe.factors]
        return Superposition(factors, dim=recipe.dim, rotate=recipe.rotate, seed=recipe.seed)
    return replace(recipe, n_points=n, min_cluster_size=1 if data == "one-cluster" else 100)
