"""Contrasts: each unit compared with itself, in a trained network and in a control.

- ``own - other``: a unit of factor f in the network trained on f, less the mean over the networks trained on the other
  factors, at the same place of their lists.
- ``trained - ROLE``: a unit of factor f in the networks trained on f, less the same unit in a control. Lists of equal
  length pair by place; otherwise the control's mean is subtracted.
- ``raw - permuted``: what the input itself shows, less what it shows when its rows are in another order.

Measures named in `LOGARITHMIC` are compared by the difference of their logarithms, all others by their difference.

**Interval.** With three draws of the data or more it is Student's t over the draws' means: units are averaged, then
networks, and every draw weighs the same. With fewer draws it is the law of `percolab.intervals`, over networks and
blocks of kin, and holds for these datasets only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from percolab.ground.arrays import Floats, Ints
from percolab.intervals import Estimate, kin, mean_interval, mean_of_known, over_seeds
from percolab.study.estimates import ENOUGH
from percolab.study.measured import LOGARITHMIC, LOWER_IS_BETTER, OTHER, PERMUTED, RAW, TRAINED, UNTRAINED, Measured

OWN_OTHER = "own - other"
TRAINED_UNTRAINED = f"{TRAINED} - {UNTRAINED}"
TRAINED_RAW = f"{TRAINED} - {RAW}"
RAW_PERMUTED = f"{RAW} - {PERMUTED}"
LEAST = 1e-12  #: Smaller values are taken to be this before their logarithm is.
OVER_DRAWS, OF_THIS_DATA = "draws", "networks and units of this dataset"


@dataclass(frozen=True, eq=False)
class Contrast:
    """A difference between networks, mean over units and networks, with its interval."""

    contrast: str
    layer: str
    reader: str
    measure: str
    estimate: Estimate
    by_draw: Floats  #: (D,) the mean of each draw
    networks: int  #: trained networks behind it, in all draws; for ``raw - permuted``, inputs

    @property
    def interval_over(self) -> str:
        """What the interval is over."""
        return OVER_DRAWS if self.by_draw.size >= ENOUGH else OF_THIS_DATA

    @property
    def is_logarithmic(self) -> bool:
        """Whether it is a log ratio."""
        return self.measure in LOGARITHMIC

    @property
    def ends(self) -> tuple[float, float]:
        """The interval of what is gained: that of the estimate, with its sign changed for errors."""
        low, high = self.estimate.low, self.estimate.high
        return (-high, -low) if self.measure in LOWER_IS_BETTER else (low, high)

    def row(self) -> dict[str, object]:
        """Return it as one row of a table."""
        e = self.estimate
        return {
            "contrast": self.contrast, "layer": self.layer, "reader": self.reader, "measure": self.measure,
            "value": e.value, "low": e.low, "high": e.high, "units": e.units, "networks": self.networks,
            "draws": self.by_draw.size, "interval_over": self.interval_over,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Difference:
    """A contrast in one draw."""

    values: Floats  #: (networks, units) differences, factor after factor; NaN where a network or a unit has none
    place: Ints
    factor: Ints
    networks: int

    @property
    def mean(self) -> float:
        """Units averaged, then networks."""
        return float(mean_of_known(mean_of_known(self.values, 1), 0))


def contrasts(cells: Sequence[Measured]) -> list[Contrast]:
    """Return all contrasts that the cells allow, in the order of their layers, readers and measures."""
    draws = sorted({cell.draw for cell in cells})
    found = []
    trained = [cell for cell in cells if cell.role == TRAINED] or cells
    for layer, reader, measure in dict.fromkeys((cell.layer, cell.reader, cell.measure) for cell in trained):
        same = [cell for cell in cells if (cell.reader, cell.measure) == (reader, measure)]
        here = [cell for cell in same if cell.layer == layer or is_everywhere(cell)]
        for name in _names(here):
            parts = [_difference(name, [cell for cell in here if cell.draw == draw]) for draw in draws]
            known = [part for part in parts if part is not None]
            if known:
                found.append(_combine(name, layer, reader, measure, known))
    return found


def is_everywhere(cell: Measured) -> bool:
    """Return whether a cell is of something without layers, which is compared with every layer."""
    return cell.layer == cell.role


def _names(cells: Sequence[Measured]) -> list[str]:
    """Return the contrasts that the roles allow."""
    roles = list(dict.fromkeys(cell.role_for_units for cell in cells))
    names = [f"{TRAINED} - {role}" for role in roles if role not in (TRAINED, OTHER, PERMUTED)]
    first = [OWN_OTHER] if OTHER in roles else []
    last = [RAW_PERMUTED] if RAW in roles and PERMUTED in roles else []
    return [*first, *(names if TRAINED in roles else []), *last]


def _difference(name: str, cells: Sequence[Measured]) -> _Difference | None:
    """Return a contrast in one draw; None where one side is missing."""
    role, control = (OTHER if part == "other" else part for part in name.replace("own", TRAINED).split(" - "))
    tables, places, factors, count = [], [], [], 0
    for factor in sorted({cell.factor for cell in cells}):
        about = [cell for cell in cells if cell.factor == factor]
        mine = _by_seed([cell for cell in about if cell.role_for_units == role])
        theirs = [cell for cell in about if cell.role_for_units == control]
        if mine is None or not theirs:
            continue
        others = [
            _by_seed([c for c in theirs if c.trained_on == g]) for g in dict.fromkeys(c.trained_on for c in theirs)
        ]
        against = mean_of_known(np.stack([_paired(table, len(mine)) for table in others if table is not None]), 0)
        tables.append(mine - against)
        places.append(about[0].units.place)
        factors.append(np.full(mine.shape[1], factor))
        count += len(mine)
    if not tables:
        return None
    return _Difference(_side_by_side(tables), np.concatenate(places), np.concatenate(factors), count)


def _by_seed(cells: Sequence[Measured]) -> Floats | None:
    """Return (networks, units) values, or their logarithms, in the order of the lists; None for no network."""
    if not cells:
        return None
    values = np.stack([cell.values for cell in sorted(cells, key=lambda cell: cell.seed)]).astype(np.float64)
    return np.log(np.maximum(values, LEAST)) if cells[0].measure in LOGARITHMIC else values


def _paired(table: Floats, count: int) -> Floats:
    """Return the control's networks one by one where there are as many as trained ones, else their mean for each."""
    return table if len(table) == count else np.repeat(mean_of_known(table, 0)[None], count, axis=0)


def _side_by_side(tables: Sequence[Floats]) -> Floats:
    """Return tables (networks, units) side by side; a shorter one is filled up with NaN."""
    most = max(map(len, tables))
    return np.concatenate([np.pad(t, ((0, most - len(t)), (0, 0)), constant_values=np.nan) for t in tables], axis=1)


def _combine(name: str, layer: str, reader: str, measure: str, parts: Sequence[_Difference]) -> Contrast:
    """Return a contrast over all draws."""
    means = np.array([part.mean for part in parts])
    units = sum(part.values.shape[1] for part in parts)
    if len(parts) >= ENOUGH:
        estimate = replace(over_seeds(means), units=units)
    else:
        table = _side_by_side([part.values for part in parts])
        hierarchy = np.concatenate([part.factor + 1000 * i for i, part in enumerate(parts)])
        estimate = mean_interval(table, kin(np.concatenate([part.place for part in parts]), hierarchy))
    return Contrast(name, layer, reader, measure, estimate, means, sum(part.networks for part in parts))
