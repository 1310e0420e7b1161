"""Recipes: everything that determines a dataset, checked once and written as JSON."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Context, Decimal
from functools import lru_cache
from inspect import signature
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from percolab.ground import text, validation
from percolab.ground.foreign_files import parse_json
from percolab.ground.validation import check_choice, check_integer, check_seed
from percolab.model.edits import Edit, as_edits
from percolab.model.target import Target

MODES = ("one_cluster", "distribution", "custom", "random_graph")
DEFAULT_DTYPE = {"native": "float32", "paper": "float64"}
ENGINE_NAMES = tuple(DEFAULT_DTYPE)
DEFAULT_ENGINE = "native"

#: Probability of a new cluster at which attachment gives the critical exponent 5/2 (paper, Sec. 4).
CRITICAL_CREATE_PROB = 1 / 3

#: Seeds drawn for the user stay below 2^48: exact in any JSON reader, even after the offsets below.
DRAWN_SEED_BITS = 48


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
            validation.fill(self, **{name: known})

    def _lines(self) -> dict[str, object]:
        return {name: str(seed) for name, seed in self.to_dict().items()}  # as text, so without commas

    def to_dict(self) -> dict[str, int]:
        """Return the seeds by name."""
        return asdict(self)

    @classmethod
    def from_int(cls, seed: int) -> Self:
        """Seeds S, S + 10,000 and S + 20,000: the convention of the published datasets."""
        seed = check_seed("seeds", seed)
        return cls(graph=seed, embed=seed + 10_000, value=seed + 20_000)


SeedsLike = Seeds | int | np.integer[Any] | Mapping[str, int | None] | None  #: What a `Recipe` takes as seeds.


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


def _is_given(name: str, value: object, mode: str, owner: str) -> bool:
    """Return whether a field was given; raise, in one line, unless it is given exactly in the mode that has it."""
    if (value is None) == (mode == owner):
        rule = "given with" if mode == owner else "left out unless"
        raise ValueError(f"{name} must be {rule} mode={owner!r}, got {value!r}")
    return value is not None


def _as_create_prob(create_prob: object, mode: str) -> float | None:
    given = _is_given("create_prob", create_prob, mode, "custom")
    return validation.check_probability("create_prob", create_prob) if given else None


def _as_mean_degree(mean_degree: object, mode: str, engine: str) -> float | None:
    if not _is_given("mean_degree", mean_degree, mode, "random_graph"):
        return None
    if engine != "native":
        raise ValueError(f"engine must be 'native' with mode='random_graph', got {engine!r}")
    return validation.check_number("mean_degree", mean_degree, 0)


def _as_dtype(dtype: DTypeLike | None, engine: str) -> str:
    if dtype is None:
        return DEFAULT_DTYPE[engine]
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    return check_choice("dtype", name, ("float32", "float64"))


@lru_cache
def _power(base: int, exponent: float) -> float:
    """Return a power, rounded once: the last bit of the C library's power depends on the processor."""
    return float(Context(prec=40).power(Decimal(base), Decimal(exponent)))


def _as_target(target: object, seeds: Seeds) -> Target:
    known = Target.of(target)
    return Target("silent", seed=seeds.value) if known == Target("silent") else known


class Written:
    """A dataclass that can be written as JSON and read back; `kind` is the value of ``kind`` in the JSON."""

    _kind: str | None

    def __new__(cls, *values: Any, **fields: Any) -> Self:
        """Return an empty instance; an unknown keyword is refused with a message that names the nearest known one."""
        validation.check_keywords(cls.__name__, fields, [*signature(cls).parameters])
        return super().__new__(cls)

    def __init_subclass__(cls, kind: str | None = None) -> None:
        cls._kind = kind

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON; all but the recipe of one dataset include ``kind``."""
        values = {field.name: validation.plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        return values if self._kind is None else {"kind": self._kind, **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the object whose `to_dict` returned these values, which may come from an untrusted source."""
        plain = dict(values)
        if cls._kind is not None and (kind := plain.pop("kind", cls._kind)) != cls._kind:
            raise ValueError(f"kind must be {cls._kind!r}, got {kind!r}")
        unknown = sorted(set(plain) - {field.name for field in fields(cls)})  # type: ignore[arg-type]
        if unknown:
            noun = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()
            raise ValueError(f"a {noun} has no field {unknown[0]!r}")
        return cls._of_plain(plain)

    @classmethod
    def _of_plain(cls, given: dict[str, Any]) -> Self:
        """Return an instance with these fields, given as plain values."""
        return cls(**given)

    @staticmethod
    def _parts(given: Mapping[str, Any], name: str, what: str, make: Callable[[Mapping[str, Any]], Any]) -> list[Any]:
        """Return a field that is a list of objects, each made from its plain values."""
        parts = given.get(name)
        if not isinstance(parts, list | tuple) or not all(isinstance(part, Mapping) for part in parts):
            raise ValueError(f"{name} must be a list of {what}, got {parts!r}")
        return [make(part) for part in parts]

    def _repr_html_(self) -> str:
        return text.table(type(self).__name__, self._lines())

    def _lines(self) -> dict[str, object]:
        """Return the fields that are set, one per line, and recipes among them by their own fields."""
        lines: dict[str, object] = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, tuple) and not all(isinstance(part, Real) for part in value):
                lines |= {f"{field.name[:-1]} {k}": part for k, part in enumerate(value)}
            elif value not in (None, ()):
                lines[field.name] = str(value) if field.name == "seed" else value
        return {name: value._lines() if isinstance(value, Written | Seeds) else value for name, value in lines.items()}

    def to_json(self) -> str:
        """Return the fields as one line of JSON."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the object whose `to_json` returned this text."""
        return cls.from_dict(parse_json(text))


@dataclass(frozen=True, init=False, repr=False)
class Recipe(Written):
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
        ``"random_graph"``: every pair of points is bonded with probability `mean_degree` / n, in uniform order.
    create_prob
        Probability that a point starts a new cluster; for mode ``"custom"`` only.
    seed
        An integer S, for seeds S, S + 10,000 and S + 20,000. None draws them. Drawn seeds are recorded in `seeds`, so a
        recipe is always complete.
    seeds
        Instead of `seed`: `Seeds`, to choose each of the three; or the integer.
    engine
        ``"native"``: any size, any number of workers; datasets of different sizes refine each other.
        ``"paper"``: the random streams of the published datasets.
    min_cluster_size
        Keep only clusters of at least this many points. The kept rows are the same as without it.
    dtype
        Type of X, ``"float32"`` or ``"float64"``; None takes the engine's own.
    edits
        What is done to the dataset after it is made, in this order: see `Dataset.do`, `move` and `turn`.
    target
        What y is, after all edits: see `Dataset.with_target`.
    mean_degree
        Mean number of bonds of a point, for mode ``"random_graph"`` only: below 1 all clusters are small, at 1 they are
        critical, above 1 one of them is a giant.
    """

    n_points: int
    dim: int
    mode: str
    create_prob: float | None
    seeds: Seeds
    engine: str
    min_cluster_size: int
    dtype: str
    edits: tuple[Edit, ...]
    target: Target
    mean_degree: float | None

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
        edits: Iterable[Edit | Mapping[str, Any]] = (),
        target: Target | Mapping[str, Any] | str = "sum",
        mean_degree: float | None = None,
        *,
        seed: int | np.integer[Any] | None = None,
    ) -> None:
        if seed is not None and seeds is not None:
            raise ValueError(f"seed and seeds are the same, and only one may be given, got {seed!r} and {seeds!r}")
        known = _as_seeds(seeds) if seed is None else Seeds.from_int(check_seed("seed", seed))
        validation.fill(
            self,
            n_points=check_integer("n_points", n_points, 1),
            dim=check_integer("dim", dim, 2),
            mode=check_choice("mode", mode, MODES),
            create_prob=_as_create_prob(create_prob, mode),
            seeds=known,
            engine=check_choice("engine", engine, ENGINE_NAMES),
            min_cluster_size=check_integer("min_cluster_size", min_cluster_size, 1),
            dtype=_as_dtype(dtype, engine),
            edits=as_edits(edits, dim, engine),
            target=_as_target(target, known),
            mean_degree=_as_mean_degree(mean_degree, mode, engine),
        )

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in self._usual}
        return f"Recipe({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def _usual(self) -> set[str]:
        """The rarely used fields that this recipe does not set."""
        usual = {"edits": not self.edits, "target": self.target == Target(), "mean_degree": self.mean_degree is None}
        return {name for name, holds in usual.items() if holds}

    def require_plain(self, purpose: str) -> None:
        """Raise, in one line, if the recipe has edits, a target or a mode that `purpose` cannot follow."""
        if self.edits:
            raise ValueError(f"edits must be empty {purpose}, got {len(self.edits)}")
        if self.target != Target():
            raise ValueError(f"target must be 'sum' {purpose}, got {self.target.kind!r}")
        if self.mode == "random_graph":
            raise ValueError(f"mode must be one of {', '.join(MODES[:-1])} {purpose}, got 'random_graph'")

    @property
    def attachment_prob(self) -> float:
        """Probability p that a point starts a new cluster (the first always does); a random graph has none."""
        if self.mode == "random_graph":
            raise ValueError("mode must have an attachment probability, got 'random_graph'")
        if self.create_prob is not None:
            return self.create_prob
        return 0.0 if self.mode == "one_cluster" else CRITICAL_CREATE_PROB

    @property
    def step(self) -> float:
        """Length of a bond before the final scaling by √d: n^(-1/4) for one cluster, else n^(-1/6)."""
        return _power(self.n_points, -1 / 4 if self.mode == "one_cluster" else -1 / 6)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain values, ready for JSON, without the rarely used fields that are not set."""
        return {name: value for name, value in super().to_dict().items() if name not in self._usual}

    @classmethod
    def _of_plain(cls, given: dict[str, Any]) -> Self:
        missing = sorted({"n_points", "dim"} - set(given))
        if missing:
            raise ValueError(f"{missing[0]} must be given")
        return cls(**given)


_PAPER_SEEDS = Seeds(graph=0, embed=10_000, value=20_000)

#: The recipes of the paper's two datasets (Sec. 5 and App. B), by name.
PRESETS: Mapping[str, Recipe] = MappingProxyType(
    {
        "paper-one-cluster": Recipe(200_000, 100, "one_cluster", seeds=_PAPER_SEEDS, engine="paper"),
        "paper-multi-cluster": Recipe(
            2_000_000, 100, "distribution", seeds=_PAPER_SEEDS, engine="paper", min_cluster_size=500
        ),
    }
)
