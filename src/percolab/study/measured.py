"""Measurements: one value for each unit, by draw of the data, network, layer, reader and measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab.ground.arrays import Floats, Ints

if TYPE_CHECKING:
    import pandas

#: Roles of networks: `permuted` is the raw input with its rows in another order, which carries no information.
ROLES = TRAINED, UNTRAINED, RAW, OTHER, PERMUTED = "trained", "untrained", "raw", "other", "permuted"
#: Measures that are compared by log ratios; all others are compared by differences.
LOGARITHMIC = ("separation", "error")
LOWER_IS_BETTER = ("error",)  #: Measures that are smaller where a network has more.


@dataclass(frozen=True, eq=False)
class Units:
    """The units that a reader gives values for: concepts, latents, or pairs of siblings of one hierarchy."""

    number: Ints  #: (U,) latents; for pairs, the latent above them
    place: Ints  #: (U,) place in leaf order: units at near places are kin, and intervals group them


@dataclass(frozen=True, eq=False)
class Measured:
    """One measure of one network in one layer, for all units of one hierarchy."""

    draw: int
    role: str
    #: factor or lexicon that the network was trained on; None if the network belongs to none
    trained_on: int | None
    seed: int  #: place of the network in its list
    layer: str
    reader: str
    measure: str
    factor: int  #: factor or lexicon that the units belong to
    units: Units
    values: Floats  #: (U,) one value per unit; NaN where a unit has none

    @property
    def role_for_units(self) -> str:
        """The role of the network for these units: a network that was trained on another factor is `other`."""
        apart = self.role == TRAINED and self.trained_on not in (None, self.factor)
        return OTHER if apart else self.role


#: The names of a measurement in a draw, in the order of its fields.
NAMES = ("role", "trained_on", "seed", "layer", "reader", "measure", "factor")


@dataclass(frozen=True, eq=False)
class Columns:
    """The measurements of one draw, as columns: the result of a cell of a study."""

    names: dict[str, list[Any]]  #: for each of `NAMES`, its value in every measurement
    size: list[int]  #: number of units of each measurement
    number: Ints  #: unit numbers, one measurement after another; places and values likewise
    place: Ints
    value: Floats

    @classmethod
    def of(cls, cells: Sequence[Measured]) -> Columns:
        """Return measurements as columns."""
        return cls(
            {name: [getattr(cell, name) for cell in cells] for name in NAMES},
            [cell.values.size for cell in cells],
            np.concatenate([cell.units.number for cell in cells]),
            np.concatenate([cell.units.place for cell in cells]),
            np.concatenate([cell.values for cell in cells]),
        )

    def cells(self, draw: int) -> list[Measured]:
        """Return the measurements of a draw one by one."""
        ends = np.cumsum(self.size)[:-1]
        named = zip(*(self.names[name] for name in NAMES), strict=True)
        parts = zip(*(np.split(column, ends) for column in (self.number, self.place, self.value)), strict=True)
        return [
            Measured(draw, **dict(zip(NAMES, names, strict=True)), units=Units(number, place), values=values)
            for names, (number, place, values) in zip(named, parts, strict=True)
        ]

    def tidy(self) -> pandas.DataFrame:
        """Return one row for each unit and measure."""
        return tidy(self.cells(0))


@dataclass(frozen=True, eq=False)
class Reading:
    """The result of a reader: one measure of all units of a hierarchy."""

    measure: str
    units: Units
    values: Floats


def tidy(cells: Sequence[Measured]) -> pandas.DataFrame:
    """Return one row for each cell, unit and measure."""
    import pandas

    sizes = [cell.values.size for cell in cells]
    columns = {name: [getattr(cell, name) for cell in cells] for name in ("draw", "role", "factor", *NAMES[1:6])}
    columns |= {"role": [cell.role_for_units for cell in cells]}
    columns |= {"trained_on": [-1 if on is None else on for on in columns["trained_on"]]}
    table = {
        name: np.repeat(np.array(v, object if isinstance(v[0], str) else None), sizes) for name, v in columns.items()
    }
    table["unit"] = np.concatenate([cell.units.number for cell in cells])
    table["value"] = np.concatenate([cell.values for cell in cells])
    return pandas.DataFrame(table)
