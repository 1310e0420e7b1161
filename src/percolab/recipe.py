"""Recipes: everything that determines a dataset, checked once, written down as JSON."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Self

import numpy as np

MODES = ("one_cluster", "distribution", "custom")
DEFAULT_DTYPE = {"native": "float32", "paper": "float64"}
ENGINES = tuple(DEFAULT_DTYPE)
DEFAULT_ENGINE = "native"

CRITICAL_CREATE_PROB = 1 / 3
"""Probability of a new cluster at which attachment gives the critical exponent 5/2 (paper, Sec. 4)."""

SEED_LIMIT = 2**64
DRAWN_SEED_BITS = 48
"""Seeds drawn for the user stay below 2^48: exact in any JSON reader, even after the offsets below."""


def check_integer(name: str, value: object, least: int) -> int:
    """Return ``value`` as an int of at least ``least``, or say what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float in [0, 1], or say what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return float(value)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``, or say what is wrong with it."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return str(value)


def check_seed(name: str, value: object) -> int:
    """Return ``value`` as an int in [0, 2^64), or say what is wrong with it."""
    seed = check_integer(name, value, 0)
    if seed >= SEED_LIMIT:
        raise ValueError(f"{name} must be below 2**64, got {seed}")
    return seed


@dataclass(frozen=True)
class Seeds:
    """The three independent seeds of a dataset. A seed left as None is drawn when a `Recipe` takes it.

    Parameters
    ----------
    graph : clusters, bonds and latents
    embed : positions
    value : the z of latents and points, hence the targets
    """

    graph: int | None = None
    embed: int | None = None
    value: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            seed = getattr(self, field.name)
            if seed is not None:
                object.__setattr__(self, field.name, check_seed(f"seeds.{field.name}", seed))

    @classmethod
    def from_int(cls, seed: int) -> Self:
        """Seeds S, S + 10,000 and S + 20,000: the convention of the published datasets."""
        seed = check_integer("seeds", seed, 0)
        return cls(graph=seed, embed=seed + 10_000, value=seed + 20_000)

    def drawn(self) -> Self:
        """Return the same seeds with fresh entropy in place of each None."""
        chosen = {name: secrets.randbits(DRAWN_SEED_BITS) if s is None else s for name, s in asdict(self).items()}
        return type(self)(**chosen)


def _as_seeds(seeds: object) -> Seeds:
    if seeds is None:
        return Seeds.from_int(secrets.randbits(DRAWN_SEED_BITS))
    if isinstance(seeds, Seeds):
        return seeds.drawn()
    if isinstance(seeds, Mapping):
        unknown = sorted(set(seeds) - {field.name for field in fields(Seeds)})
        if unknown:
            raise ValueError(f"seeds must have the keys graph, embed and value, got {unknown[0]!r}")
        return Seeds(**seeds).drawn()
    if isinstance(seeds, Integral) and not isinstance(seeds, bool):
        return Seeds.from_int(int(seeds))
    raise ValueError(f"seeds must be Seeds, an integer or None, got {seeds!r}")


def _as_dtype(dtype: object, engine: str) -> str:
    if dtype is None:
        return DEFAULT_DTYPE[engine]
    try:
        name = np.dtype(dtype).name  # type: ignore[call-overload]
    except TypeError:
        name = str(dtype)
    return check_choice("dtype", name, ("float32", "float64"))


@dataclass(frozen=True)
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
        at probability 1/3, which gives the critical size law s^(-5/2). ``"custom"``: the same with `create_prob`.
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
    mode: str = "distribution"
    create_prob: float | None = None
    seeds: Seeds = None  # type: ignore[assignment]  # None is replaced by drawn seeds
    engine: str = DEFAULT_ENGINE
    min_cluster_size: int = 1
    dtype: str = None  # type: ignore[assignment]  # None is replaced by the engine's own

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("n_points", check_integer("n_points", self.n_points, 1))
        put("dim", check_integer("dim", self.dim, 2))
        put("mode", check_choice("mode", self.mode, MODES))
        if self.mode == "custom":
            if self.create_prob is None:
                raise ValueError("create_prob must be given with mode='custom', got None")
            put("create_prob", check_probability("create_prob", self.create_prob))
        elif self.create_prob is not None:
            raise ValueError(f"create_prob must be left out unless mode='custom', got {self.create_prob!r}")
        put("seeds", _as_seeds(self.seeds))
        put("engine", check_choice("engine", self.engine, ENGINES))
        put("min_cluster_size", check_integer("min_cluster_size", self.min_cluster_size, 1))
        put("dtype", _as_dtype(self.dtype, self.engine))

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
