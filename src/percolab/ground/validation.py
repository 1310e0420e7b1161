"""What users pass in, checked once, at the edge: each refusal names the field, the rule and the value."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

SEED_LIMIT = 2**64


def check_integer(name: str, value: object, least: int) -> int:
    """Return ``value`` as an int of at least ``least``, or say what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def check_number(name: str, value: object, least: float) -> float:
    """Return ``value`` as a finite float of at least ``least``, or say what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not least <= float(value) < math.inf:
        raise ValueError(f"{name} must be a number of at least {least:g}, got {value}")
    return float(value)


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


def check_numbers(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return an array if it holds booleans, integers or real numbers, or say what is wrong with it."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {values.dtype}")
    return values


def check_seed(name: str, value: object) -> int:
    """Return ``value`` as an int in [0, 2^64), or say what is wrong with it."""
    seed = check_integer(name, value, 0)
    if seed >= SEED_LIMIT:
        raise ValueError(f"{name} must be below 2**64, got {seed}")
    return seed
