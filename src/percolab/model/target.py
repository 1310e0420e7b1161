"""Targets: y is made by one of a few rules from the forest and the values, or it is an array given by the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from percolab.ground.validation import check_choice, check_integer, fill

#: The options of each kind of target.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "sum": (),
    "silent": ("seed",),
    "classes": ("max_size", "n_groups"),
    "sign": (),
    "path_tokens": ("levels", "ratio"),
    "custom": ("dtype", "columns"),
}
TARGET_KINDS = tuple(OPTIONS)
RULES = tuple(kind for kind in TARGET_KINDS if kind != "custom")  #: The kinds that a recipe can make.

_DEFAULTS: Mapping[str, dict[str, Any]] = {"path_tokens": {"levels": 4, "ratio": 8}, "custom": {"dtype": "float64"}}
#: The least value of every option that is an integer.
_LEAST = {"seed": 0, "max_size": 1, "n_groups": 2, "levels": 1, "ratio": 2, "columns": 1}


@dataclass(frozen=True, init=False)
class Target:
    """A kind of target and its options. docs/data-model.md defines them.

    Parameters
    ----------
    kind
        ``"sum"``, ``"silent"``, ``"classes"``, ``"sign"``, ``"path_tokens"``, or ``"custom"``: an array.
    seed
        For ``"silent"``: chooses the silent sibling pairs. In a recipe, None takes the recipe's value seed.
    max_size, n_groups
        For ``"classes"``, one of the two: the most rows of a class, or the number of classes.
    levels, ratio
        For ``"path_tokens"``: the length of the sequence, and how much smaller groups get from level to level.
    dtype, columns
        For ``"custom"``: the type of y, and how many columns it has; None if it has one number per row.
    """

    kind: str
    seed: int | None
    max_size: int | None
    n_groups: int | None
    levels: int | None
    ratio: int | None
    dtype: str | None
    columns: int | None

    def __init__(self, kind: str = "sum", **options: Any) -> None:
        kind = check_choice("target", kind, TARGET_KINDS)
        for name, value in options.items():
            if name not in {field.name for field in fields(Target)}:
                raise ValueError(f"a target has no option {name!r}")
            if value is not None and name not in OPTIONS[kind]:
                owner = next(other for other, names in OPTIONS.items() if name in names)
                raise ValueError(f"{name} must be left out unless target is {owner!r}, got {value!r}")
        fill(self, kind=kind, **dict.fromkeys(_OPTION_NAMES) | _check_options(kind, options))

    def __repr__(self) -> str:
        return f"Target({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    def __str__(self) -> str:
        """Return the target as a word: its kind, and after a colon the options that are set."""
        options = ",".join(f"{name}={value}" for name, value in self.to_dict().items() if name != "kind")
        return f"{self.kind}:{options}" if options else self.kind

    @classmethod
    def from_word(cls, word: str) -> Self:
        """Make a target from its text, as `str` returns it, such as ``classes:n_groups=20``."""
        kind, _, rest = word.partition(":")
        options: dict[str, Any] = {}
        for part in rest.split(",") if rest else ():
            name, _, value = part.partition("=")
            if not value.isdecimal():
                raise ValueError(f"target must be such as classes:n_groups=20, got {word!r}")
            options[name] = int(value)
        return cls(kind, **options)

    @property
    def is_rule(self) -> bool:
        """Whether a recipe can make it."""
        return self.kind in RULES

    @property
    def y_dtype(self) -> np.dtype[Any]:
        """Type of y: float64 for numbers, int64 for labels and tokens."""
        if self.dtype is not None:
            return np.dtype(self.dtype)
        return np.dtype(np.float64 if self.kind in ("sum", "silent") else np.int64)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of y for one row: () or (columns,)."""
        columns = self.levels if self.kind == "path_tokens" else self.columns
        return () if columns is None else (columns,)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, and the options that are set, as plain values, ready for JSON."""
        options = {name: getattr(self, name) for name in OPTIONS[self.kind]}
        return {"kind": self.kind, **{name: value for name, value in options.items() if value is not None}}

    @classmethod
    def of(cls, target: object) -> Self:
        """Return a target, given as a `Target`, its kind, or a result of `to_dict`."""
        if isinstance(target, cls):
            return target
        if isinstance(target, Mapping):
            return cls(**target)
        if isinstance(target, str):
            return cls(target)
        raise ValueError(f"target must be one of {', '.join(TARGET_KINDS)}, got {target!r}")


_OPTION_NAMES = tuple(field.name for field in fields(Target) if field.name != "kind")


def _check_options(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    if kind == "classes" and len(given) != 1:
        raise ValueError(f"max_size or n_groups must be given with target 'classes', got {_listed(given)}")
    values = _DEFAULTS.get(kind, {}) | given
    if "dtype" in values:
        check_choice("dtype", values["dtype"], ("float64", "int64"))
    bounds = {name: (least, 64 if name == "seed" else 63) for name, least in _LEAST.items() if name in values}
    return values | {name: check_integer(name, values[name], *bound) for name, bound in bounds.items()}


def _listed(given: Mapping[str, Any]) -> str:
    return " and ".join(f"{name}={value!r}" for name, value in given.items()) or "neither"
