"""Checks of user input, made once, at the edge: each error names the field, the rule and the value."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.arrays import Ints
from percolab.ground.text import shown


def check_integer(name: str, value: object, least: int, bits: int = 63) -> int:
    """Return ``value`` as an int of at least ``least`` that fits in ``bits`` bits, or say what is wrong with it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        whole = isinstance(value, float) and value.is_integer()
        raise ValueError(f"{name} must be an integer, got {shown(value)}{f': write {value:.0f}' if whole else ''}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if int(value) >= 1 << bits:
        raise ValueError(f"{name} must be below 2**{bits}, got {shown(value)}")
    return int(value)


def check_number(name: str, value: object, least: float = -math.inf) -> float:
    """Return ``value`` as a finite float of at least ``least``, or say what is wrong with it."""
    number = _as_float(name, value)
    if not math.isfinite(number) or number < least:
        rule = "a finite number" if least == -math.inf else f"a number of at least {least:g}"
        raise ValueError(f"{name} must be {rule}, got {value}")
    return number


def check_one_each(name: str, values: object, count: int, owner: str, least: float = -math.inf) -> tuple[float, ...]:
    """Return one finite number of at least ``least`` for each of ``count`` owners, or say what is wrong with them."""
    numbers = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | Mapping) else ()
    if len(numbers) != count:
        raise ValueError(f"{name} must be {count} numbers, one for each {owner}, got {shown(values)}")
    return tuple(check_number(name, number, least) for number in numbers)


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float in [0, 1], or say what is wrong with it."""
    number = _as_float(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")
    return number


def _as_float(name: str, value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``, or say what is wrong with it."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {shown(value)}")
    return str(value)


#: scikit-learn's words for some of our keywords.
ELSEWHERE = {"random_state": "seed", "n_samples": "n_points", "n_features": "dim"}


def check_keywords(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise, in one line with the nearest known keyword, if `owner` does not take a keyword."""
    for name in given:
        if name not in known:
            meant = [word for word in known if word == ELSEWHERE.get(name)] or get_close_matches(name, known, 1)
            nearest = [f"did you mean {word!r}?" for word in meant]
            raise TypeError(f"{owner} has no argument {name!r}: {(nearest or ['it takes ' + ', '.join(known)])[0]}")


def check_numbers(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return an array of booleans, integers or real numbers in native byte order, or say what is wrong with it."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {values.dtype}")
    return values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))


def check_shape(name: str, values: Any, shape: tuple[int, ...]) -> None:
    """Raise, in one line, unless an array has this shape."""
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}")


def check_finite(name: str, values: NDArray[Any]) -> None:
    """Raise, in one line, unless all numbers of an array are finite."""
    finite = np.isfinite(values)
    if not finite.all():
        raise ValueError(f"{name} must be finite, got {values[~finite][0]}")


def check_seed(name: str, value: object) -> int:
    """Return ``value`` as an int in [0, 2^64), or say what is wrong with it."""
    return check_integer(name, value, 0, 64)


def fill(instance: Any, **fields: Any) -> None:
    """Give a frozen dataclass its fields, once they are checked."""
    for name, value in fields.items():
        object.__setattr__(instance, name, value)


def plain(value: Any) -> Any:
    """Return a field as plain values, ready for JSON: tuples as lists, and objects with a `to_dict` by that method."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return [plain(part) for part in value] if isinstance(value, tuple) else value


# ---------------------------------------------------------------------- indices
#
# Rows and latents that users name: indices of any shape, or a mask.


def check_index(name: str, index: int | np.integer[Any], length: int) -> int:
    """Return an index in [0, length), or say what is wrong with it."""
    number = check_integer(name, index, 0)
    if number >= length:
        raise ValueError(f"{name} must be below {length}, got {number}")
    return number


def indices(name: str, values: ArrayLike, length: int) -> Ints:
    """Return indices in [0, length), in the shape they came in, or say what is wrong with them."""
    numbers = np.asarray(values)
    if numbers.size and not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(f"{name} must be integers, got {numbers.dtype}")
    outside = numbers[(numbers < 0) | (numbers >= length)]
    if outside.size:
        raise ValueError(f"{name} must be between 0 and {length - 1}, got {outside[0]}")
    return numbers.astype(np.int64)


def listed(name: str, values: ArrayLike | None, length: int) -> Ints:
    """Return a list of indices in [0, length) from indices, a mask, or None for all of them."""
    if values is None:
        return np.arange(length)
    chosen = np.atleast_1d(np.asarray(values))
    if chosen.dtype == np.bool_ and chosen.shape == (length,):
        return np.flatnonzero(chosen)
    if (chosen.size and not np.issubdtype(chosen.dtype, np.integer)) or chosen.ndim != 1:
        raise ValueError(f"{name} must be indices or a mask of {length} {name}, got {shown(values)}")
    return indices(name, chosen, length)
