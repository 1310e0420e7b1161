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

**Verdict.** One sentence on what was found, from two contrasts read together. An effect is *above 0* where its interval
is, and *not above 0* where the interval ends below δ, the smallest effect of interest; otherwise the verdict is
*undecided*. For errors, a fall counts as the effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from percolab.ground.arrays import Floats, Ints
from percolab.ground.text import counted
from percolab.intervals import Estimate, kin, mean_interval, mean_of_known, over_seeds
from percolab.study.estimates import ENOUGH
from percolab.study.measured import LOGARITHMIC, LOWER_IS_BETTER, OTHER, PERMUTED, RAW, TRAINED, UNTRAINED, Measured

OWN_OTHER = "own - other"
TRAINED_UNTRAINED = f"{TRAINED} - {UNTRAINED}"
TRAINED_RAW = f"{TRAINED} - {RAW}"
RAW_PERMUTED = f"{RAW} - {PERMUTED}"
LEAST = 1e-12  #: Smaller values are raised to this before the logarithm is taken.
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
    networks: int  #: number of trained networks in all draws; for ``raw - permuted``, inputs

    @property
    def interval_over(self) -> str:
        """What the interval is taken over: draws, or networks and units."""
        return OVER_DRAWS if self.by_draw.size >= ENOUGH else OF_THIS_DATA

    @property
    def is_logarithmic(self) -> bool:
        """Whether it is a log ratio."""
        return self.measure in LOGARITHMIC

    @property
    def ends(self) -> tuple[float, float]:
        """The interval of the gain: that of the estimate, with its sign changed for errors."""
        low, high = self.estimate.low, self.estimate.high
        return (-high, -low) if self.measure in LOWER_IS_BETTER else (low, high)

    def row(self) -> dict[str, object]:
        """Return the contrast as one row of a table."""
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
        """The mean over units, then over networks."""
        return float(mean_of_known(mean_of_known(self.values, 1), 0))


def contrasts(cells: Sequence[Measured]) -> list[Contrast]:
    """Return all contrasts that the cells allow, in the order of their layers, readers and measures."""
    draws = sorted({cell.draw for cell in cells})
    results = []
    trained = [cell for cell in cells if cell.role == TRAINED] or cells
    for layer, reader, measure in dict.fromkeys((cell.layer, cell.reader, cell.measure) for cell in trained):
        same = [cell for cell in cells if (cell.reader, cell.measure) == (reader, measure)]
        here = [cell for cell in same if cell.layer == layer or is_everywhere(cell)]
        for name in _names(here):
            parts = [_difference(name, [cell for cell in here if cell.draw == draw]) for draw in draws]
            known = [part for part in parts if part is not None]
            if known:
                results.append(_combine(name, layer, reader, measure, known))
    return results


def is_everywhere(cell: Measured) -> bool:
    """Return whether a cell has no layer of its own; it is then compared with every layer."""
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
        ours, theirs = ([cell for cell in about if cell.role_for_units == side] for side in (role, control))
        if not ours or not theirs:
            continue
        mine = _by_seed(ours)
        groups = dict.fromkeys(cell.trained_on for cell in theirs)
        others = [_by_seed([cell for cell in theirs if cell.trained_on == group]) for group in groups]
        tables.append(mine - mean_of_known(np.stack([_paired(table, len(mine)) for table in others]), 0))
        places.append(about[0].units.place)
        factors.append(np.full(mine.shape[1], factor))
        count += len(mine)
    if not tables:
        return None
    return _Difference(_side_by_side(tables), np.concatenate(places), np.concatenate(factors), count)


def _by_seed(cells: Sequence[Measured]) -> Floats:
    """Return (networks, units) values, or their logarithms, in the order of the lists."""
    values = np.stack([cell.values for cell in sorted(cells, key=lambda cell: cell.seed)]).astype(np.float64)
    return np.log(np.maximum(values, LEAST)) if cells[0].measure in LOGARITHMIC else values


def _paired(table: Floats, count: int) -> Floats:
    """Return the control's networks, paired with as many trained ones; otherwise repeat their mean for each."""
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


# ---------------------------------------------------------------------- the verdict

DELTA_LOG, DELTA = 0.05, 0.01  #: The smallest effects of interest: in log ratios, and in F1, R² and accuracy.

LEARNED = "learned, and because it matters"
KEPT = "kept while the rest was discarded"
WHATEVER = "training helps whatever the target"
GIVEN = "given by the data"
NOWHERE = "not found at all"
UNDECIDED = "undecided"
AS_RAW = "no more than in the raw input"


#: The sentence for each set of contrasts, by whether each is above 0; empty where the raw input decides.
READINGS: dict[tuple[str, ...], dict[tuple[bool | None, ...], str]] = {
    (TRAINED_UNTRAINED, OWN_OTHER): {
        (True, True): LEARNED, (False, True): KEPT, (True, False): WHATEVER, (False, False): "",
    },
    (TRAINED_UNTRAINED,): {(True,): "found more in trained networks than in untrained ones", (False,): ""},
    (OWN_OTHER,): {(True,): "found more where it matters", (False,): "found as much where it does not matter"},
    (TRAINED_RAW,): {
        (True,): "more than in the raw input; untrained networks would tell whether by training", (False,): AS_RAW,
    },
}  # fmt: skip


def is_above(contrast: Contrast | None, delta: float | None = None) -> bool | None:
    """Return whether an effect is above 0; None if the data do not decide, or the effect was not measured."""
    if contrast is None:
        return None
    low, high = contrast.ends
    if low > 0:
        return True
    smallest = (DELTA_LOG if contrast.is_logarithmic else DELTA) if delta is None else delta
    return False if high < smallest else None


def reading(contrasts: Sequence[Contrast], delta: float | None = None) -> str:
    """Return what the contrasts of one layer, reader and measure say together."""
    by_name = {contrast.contrast: contrast for contrast in contrasts}
    asked = [name for name in (TRAINED_UNTRAINED, OWN_OTHER) if name in by_name] or [TRAINED_RAW]
    answers = tuple(is_above(by_name.get(name), delta) for name in asked)
    if None in answers:
        return UNDECIDED
    raw = is_above(by_name.get(RAW_PERMUTED), delta)
    return READINGS[tuple(asked)][answers] or {True: GIVEN, False: NOWHERE, None: "not learned"}[raw]


def sentence(contrasts: Sequence[Contrast], delta: float | None = None) -> str:
    """Return the verdict: the reading of the first layer, reader and measure, and the numbers behind it."""
    if not contrasts:
        return "Nothing to compare: there is no control."
    first = contrasts[0]
    same = [c for c in contrasts if (c.layer, c.reader, c.measure) == (first.layer, first.reader, first.measure)]
    wanted = (TRAINED_UNTRAINED, OWN_OTHER, TRAINED_RAW)
    numbers = [
        f"{c.contrast} {str(c.estimate) or 'has no value'}" for name in wanted for c in same if c.contrast == name
    ]
    if not numbers:
        return "Nothing to compare: networks of the role 'trained' and 'untrained', 'other' or 'raw' are needed."
    what = first.measure if first.measure == first.reader else f"{first.measure} of {first.reader}"
    where = f"{what[0].upper()}{what[1:]} at {first.layer}"
    ratios = " (log ratios)" if first.is_logarithmic else ""
    ratios = " (log ratios of errors: below 0 is better)" if first.measure in LOWER_IS_BETTER else ratios
    return f"{where}: {reading(same, delta)}. {'; '.join(numbers)}{ratios}; {behind(first)}."


def behind(contrast: Contrast) -> str:
    """Return the number of networks and draws that a result is from, and a warning if they are few."""
    draws = contrast.by_draw.size
    many = f"{counted(contrast.networks, 'network')}, {counted(draws, 'draw')} of the data"
    return many if draws >= ENOUGH else f"{many}, so the interval is for this dataset only"
