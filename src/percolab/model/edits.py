"""Edits: records of changes to a dataset after it was made. A recipe keeps them, and they replay to the bit.

`Do` sets values, `Shift` moves the rows of a latent, `Move` the rows beyond a bond, and `Turn` redraws directions.
Latents and rows are numbered as in the dataset that the recipe makes; since a filter keeps a prefix of every column,
they have the same numbers in all of its filtered versions. `percolab.dataset.replay` applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Self

import numpy as np

from percolab.ground.text import shown
from percolab.ground.validation import check_choice, check_index, check_integer, check_number, check_seed, fill, plain

Values = tuple[tuple[int, float], ...]  #: Nodes, sorted, and the value that each is given.


class _Record:
    """A dataclass of one edit, written as its kind and the fields that are set."""

    def to_dict(self) -> dict[str, Any]:
        """Return the edit as plain values, ready for JSON."""
        kind = next(name for name, record in EDIT_KINDS.items() if isinstance(self, record))
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": kind, **{name: plain(value) for name, value in values.items() if value not in (None, ())}}


@dataclass(frozen=True, init=False)
class Do(_Record):
    """Set the values of some latents and points; the target follows.

    Parameters
    ----------
    z : the new value of each latent, by its number
    point_z : the new value of each point, by its row
    """

    z: Values
    point_z: Values

    def __init__(self, z: object = (), point_z: object = ()) -> None:
        fill(self, z=_as_values("z", z), point_z=_as_values("point_z", point_z))
        if not self.z and not self.point_z:
            raise ValueError("z or point_z must name at least one node, got none")

    def __str__(self) -> str:
        lists = {"do": self.z, "point": self.point_z}
        texts = {name: ",".join(f"{node}={value:g}" for node, value in pairs) for name, pairs in lists.items() if pairs}
        return " ".join(f"{name}:{pairs}" for name, pairs in texts.items())

    def within(self, n_points: int, n_latents: int) -> Do | None:
        """Return the part of the edit that concerns the first rows and latents, or None if there is no such part."""
        z = tuple(pair for pair in self.z if pair[0] < n_latents)
        point_z = tuple(pair for pair in self.point_z if pair[0] < n_points)
        return Do(z, point_z) if z or point_z else None

    def check(self, n_points: int, n_latents: int) -> None:
        """Raise, in one line, if the edit names a row or a latent that does not exist."""
        if self.z:
            check_index("latent", self.z[-1][0], n_latents)
        if self.point_z:
            check_index("row", self.point_z[-1][0], n_points)


class _OfLatent(_Record):
    """An edit of one latent."""

    latent: int

    def within(self, n_points: int, n_latents: int) -> Self | None:
        """Return the edit, or None if its latent is not among the first."""
        return self if self.latent < n_latents else None

    def check(self, n_points: int, n_latents: int) -> None:
        """Raise, in one line, if the latent does not exist."""
        check_index("latent", self.latent, n_latents)


@dataclass(frozen=True, init=False)
class Shift(_OfLatent):
    """Move exactly the rows of a latent.

    Parameters
    ----------
    latent : whose rows they are
    by : a vector, or a distance
    seed : with the number of the latent, the seed of the direction, if `by` is a distance; None for a vector
    """

    latent: int
    by: float | tuple[float, ...]
    seed: int | None

    def __init__(self, latent: int, by: object, seed: int | None = None) -> None:
        key = None if seed is None else check_seed("seed", seed)
        fill(self, latent=check_integer("latent", latent, 0), by=_as_shift(by), seed=key)
        if isinstance(self.by, float) and seed is None:
            raise ValueError("seed must be given with a distance, whose direction is drawn from it, got None")
        if isinstance(self.by, tuple) and seed is not None:
            raise ValueError(f"seed must be None if by is a vector, got {seed}")

    def __str__(self) -> str:
        return f"shift:{self.latent}={f'{self.by:g}@{self.seed}' if isinstance(self.by, float) else 'a vector'}"


@dataclass(frozen=True, init=False)
class Move(_OfLatent):
    """Move all rows beyond a latent's bond, seen from the root of the cluster's walk.

    Parameters
    ----------
    latent : whose bond it is
    by : a vector, or a factor of the bond's vector, which leads from its near end to its far end
    """

    latent: int
    by: float | tuple[float, ...]

    def __init__(self, latent: int, by: object) -> None:
        fill(self, latent=check_integer("latent", latent, 0), by=_as_shift(by))
        if self.by == -1:
            raise ValueError("by must not be -1, which would leave the bond without a direction")

    def __str__(self) -> str:
        return f"move:{self.latent}={f'{self.by:g}' if isinstance(self.by, float) else 'a vector'}"


@dataclass(frozen=True, init=False)
class Turn(_OfLatent):
    """Draw the directions below a latent again, its own split included.

    Parameters
    ----------
    latent : whose vector stays, and is split anew
    seed : seed of the new directions, in place of the recipe's embed seed
    """

    latent: int
    seed: int

    def __init__(self, latent: int, seed: int) -> None:
        fill(self, latent=check_integer("latent", latent, 0), seed=check_seed("seed", seed))

    def __str__(self) -> str:
        return f"turn:{self.latent}={self.seed}"


Edit = Do | Shift | Move | Turn  #: A record of one edit.

EDIT_KINDS: Mapping[str, type[Edit]] = {"do": Do, "shift": Shift, "move": Move, "turn": Turn}


def as_edits(edits: object, dim: int, engine: str) -> tuple[Edit, ...]:
    """Return edits, given as records or as results of `to_dict`, checked against the recipe that keeps them."""
    if isinstance(edits, str | Mapping) or not isinstance(edits, Iterable):
        raise ValueError(f"edits must be a list of edits, got {edits!r}")
    records = tuple(_as_edit(edit) for edit in edits)
    for edit in records:
        if isinstance(edit, Shift | Move) and isinstance(edit.by, tuple) and len(edit.by) != dim:
            raise ValueError(f"by must have {dim} numbers, one for each dimension, got {len(edit.by)}")
        if isinstance(edit, Turn) and engine != "native":
            raise ValueError(f"engine must be 'native' to turn a latent, got {engine!r}")
    return records


def _as_edit(edit: object) -> Edit:
    if isinstance(edit, Edit):
        return edit
    if not isinstance(edit, Mapping):
        raise ValueError(f"edits must be a list of edits, got {edit!r} in it")
    values = dict(edit)
    kind = check_choice("kind of an edit", values.pop("kind", None), tuple(EDIT_KINDS))
    try:
        return EDIT_KINDS[kind](**values)
    except TypeError:
        raise ValueError(f"an edit of kind {kind!r} must have its own fields, got {', '.join(values)}") from None


def within(edits: Sequence[Edit], n_points: int, n_latents: int) -> tuple[Edit, ...]:
    """Return the parts of edits that concern the first rows and latents, which a filter keeps."""
    return tuple(left for edit in edits if (left := edit.within(n_points, n_latents)) is not None)


def _as_values(name: str, values: object) -> Values:
    pairs = values.items() if isinstance(values, Mapping) else () if values is None else values
    try:
        assigned = [(node, value) for node, value in pairs]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ValueError(f"{name} must map nodes to values, got {shown(values)}") from None
    nodes = [check_integer(f"node of {name}", node, 0) for node, _ in assigned]
    if len(set(nodes)) < len(nodes):
        raise ValueError(f"{name} must name every node once, got one twice")
    numbers = [check_number(f"{name}[{node}]", value) for node, value in assigned]
    return tuple(sorted(zip(nodes, numbers, strict=True)))


def _as_shift(by: object) -> float | tuple[float, ...]:
    if isinstance(by, Real):
        return check_number("by", by)
    if isinstance(by, str) or not isinstance(by, Sequence | np.ndarray) or np.ndim(by) != 1:
        raise ValueError(f"by must be a number or a vector, got {by!r}")
    return tuple(check_number("by", value) for value in by)
