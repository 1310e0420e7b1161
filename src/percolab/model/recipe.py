"""Recipes: everything that determines a dataset, checked once, written down as JSON."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from percolab.ground.validation import check_choice, check_integer, check_probability, check_seed

MODES = ("one_cluster", "distribution", "custom")
DEFAULT_DTYPE = {"native": "float32", "paper": "float64"}
ENGINE_NAMES = tuple(DEFAULT_DTYPE)
DEFAULT_ENGINE = "native"

CRITICAL_CREATE_PROB = 1 / 3
"""Probability of a new cluster at which attachment gives the critical exponent 5/2 (paper, Sec. 4)."""

DRAWN_SEED_BITS = 48
"""Seeds drawn for the user stay below 2^48: exact in any JSON reader, even after the offsets below."""


@dataclass(frozen=True, init=False)
class Seeds:
    """The three independent seeds of a dataset. A seed left out is drawn.

    Parameters
    ----------
    graph
        Of clusters, bonds and latents.
    embed
        Of positions.
    value
        Of the z of latents and points, hence of the targets.
    """

    graph: int
    embed: int
    value: int

    def __init__(self, graph: int | None = None, embed: int | None = None, value: int | None = None) -> None:
        for name, seed in (("graph", graph), ("embed", embed), ("value", value)):
            known = secrets.randbits(DRAWN_SEED_BITS) if seed is None else check_seed(f"seeds.{name}", seed)
            object.__setattr__(self, name, known)

    @classmethod
    def from_int(cls, seed: int) -> Self:
        """Seeds S, S + 10,000 and S + 20,000: the convention of the published datasets."""
        seed = check_integer("seeds", seed, 0)
        return cls(graph=seed, embed=seed + 10_000, value=seed + 20_000)


SeedsLike = Seeds | int | np.integer[Any] | Mapping[str, int | None] | None
"""What a `Recipe` takes as seeds."""


def _as_seeds(seeds: object) -> Seeds:
    if seeds is None:
        return Seeds.from_int(secrets.randbits(DRAWN_SEED_BITS))
    if isinstance(seeds, Seeds):
        return seeds
    if isinstance(seeds, Mapping):
        unknown = sorted(set(seeds) - {field.name for field in fields(Seeds)})
        if unknown:
            raise ValueError(f"seeds must have the keys graph, embed and value, got {unknown[0]!r}")
        return Seeds(**seeds)
    if isinstance(seeds, Integral) and not isinstance(seeds, bool):
        return Seeds.from_int(int(seeds))
    raise ValueError(f"seeds must be Seeds, an integer or None, got {seeds!r}")


def _as_create_prob(create_prob: object, mode: str) -> float | None:
    if mode == "custom":
        if create_prob is None:
            raise ValueError("create_prob must be given with mode='custom', got None")
        return check_probability("create_prob", create_prob)
    if create_prob is not None:
        raise ValueError(f"create_prob must be left out unless mode='custom', got {create_prob!r}")
    return None


def _as_dtype(dtype: DTypeLike | None, engine: str) -> str:
    if dtype is None:
        return DEFAULT_DTYPE[engine]
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    return check_choice("dtype", name, ("float32", "float64"))


@dataclass(frozen=True, init=False)
class Recipe:
    """Everything that determines a dataset. The same recipe gives the same data.

    Parameters
    ----------
    n_points
        Number of points before any filter.
    dim
        Dimension d of the space they lie in, at least 2: in one dimension a latent has no direction
        orthogonal to its own to split along.
    mode
        ``"one_cluster"``: a single cluster. ``"distribution"``: clusters grown by attachment with a new cluster
        at probability 1/3, which gives the critical size law s^(-5/2). ``"custom"``: the same with `create_prob`, which
        changes the sizes of clusters and nothing else.
    create_prob
        Probability that a point starts a new cluster; for mode ``"custom"`` only.
    seeds
        `Seeds`, or an integer S for seeds S, S + 10,000 and S + 20,000, or None to draw them. Drawn seeds are
        recorded here, so a recipe is always complete.
    engine
        ``"native"``: any size, any number of workers; datasets of different sizes refine each other.
        ``"paper"``: the random streams of the published datasets.
    min_cluster_size
        Keep only clusters of at least this many points. The kept rows are the same as without it.
    dtype
        Type of X, ``"float32"`` or ``"float64"``; None takes the engine's own.
    """

    n_points: int
    dim: int
    mode: str
    create_prob: float | None
    seeds: Seeds
    engine: str
    min_cluster_size: int
    dtype: str

    def __init__(
        self,
        n_points: int,
        dim: int,
        mode: str = "distribution",
        create_prob: float | None = None,
        seeds: SeedsLike = None,
        engine: str = DEFAULT_ENGINE,
        min_cluster_size: int = 1,
        dtype: DTypeLike | None = None,
    ) -> None:
        checked = {
            "n_points": check_integer("n_points", n_points, 1),
            "dim": check_integer("dim", dim, 2),
            "mode": check_choice("mode", mode, MODES),
            "create_prob": _as_create_prob(create_prob, mode),
            "seeds": _as_seeds(seeds),
            "engine": check_choice("engine", engine, ENGINE_NAMES),
            "min_cluster_size": check_integer("min_cluster_size", min_cluster_size, 1),
            "dtype": _as_dtype(dtype, engine),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def attachment_prob(self) -> float:
        """Probability p that a point starts a new cluster (the first always does)."""
        if self.create_prob is not None:
            return self.create_prob
        return 0.0 if self.mode == "one_cluster" else CRITICAL_CREATE_PROB

    @property
    def step(self) -> float:
        """Length of a bond before the final scaling by √d: n^(-1/4) for one cluster, else n^(-1/6)."""
        return math.pow(self.n_points, -1 / 4 if self.mode == "one_cluster" else -1 / 6)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a recipe from what `to_dict` returned."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"a recipe has no field {unknown[0]!r}")
        missing = sorted({"n_points", "dim"} - set(values))
        if missing:
            raise ValueError(f"{missing[0]} must be given")
        return cls(**values)

    def to_json(self) -> str:
        """Return the recipe as one line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Make a recipe from what `to_json` returned."""
        return cls.from_dict(json.loads(text))


_PAPER_SEEDS = Seeds(graph=0, embed=10_000, value=20_000)

PRESETS: Mapping[str, Recipe] = MappingProxyType(
    {
        "paper-one-cluster": Recipe(200_000, 100, "one_cluster", seeds=_PAPER_SEEDS, engine="paper"),
        "paper-multi-cluster": Recipe(
            2_000_000, 100, "distribution", seeds=_PAPER_SEEDS, engine="paper", min_cluster_size=500
        ),
    }
)
"""The recipes of the paper's two datasets (Sec. 5 and App. B), by name."""
