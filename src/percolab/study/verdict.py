"""The verdict: one sentence on what was found, from two contrasts read together.

An effect is *above 0* where its interval is, and *not above 0* where the interval ends below δ, the smallest effect of
interest; otherwise the word is *undecided*. Of errors it is their fall that counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from percolab.ground.text import counted
from percolab.study.contrasts import OWN_OTHER, RAW_PERMUTED, TRAINED_RAW, TRAINED_UNTRAINED, Contrast
from percolab.study.estimates import ENOUGH
from percolab.study.measured import LOWER_IS_BETTER

DELTA_LOG, DELTA = 0.05, 0.01  #: The smallest effects of interest: in log ratios, and in F1, R² and accuracy.

LEARNED = "learned, and because it matters"
KEPT = "kept while the rest was discarded"
WHATEVER = "training helps whatever the target"
GIVEN = "given by the data"
NOWHERE = "not found at all"
UNDECIDED = "undecided"
AS_RAW = "no more than in the raw input"


#: What is said, by the contrasts there are and whether each is above 0; nothing where the raw input decides.
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
    """Return whether an effect is above 0; None where the data do not decide, or it was not measured."""
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
    found = tuple(is_above(by_name.get(name), delta) for name in asked)
    if None in found:
        return UNDECIDED
    raw = is_above(by_name.get(RAW_PERMUTED), delta)
    return READINGS[tuple(asked)][found] or {True: GIVEN, False: NOWHERE, None: "not learned"}[raw]


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
        return "Nothing to compare: networks of the role 'trained' and a control are needed."
    what = first.measure if first.measure == first.reader else f"{first.measure} of {first.reader}"
    where = f"{what[0].upper()}{what[1:]} at {first.layer}"
    ratios = " (log ratios)" if first.is_logarithmic else ""
    ratios = " (log ratios of errors: below 0 is better)" if first.measure in LOWER_IS_BETTER else ratios
    return f"{where}: {reading(same, delta)}. {'; '.join(numbers)}{ratios}; {behind(first)}."


def behind(contrast: Contrast) -> str:
    """Return what is behind a number: networks and draws, and whether they are few."""
    draws = contrast.by_draw.size
    many = f"{counted(contrast.networks, 'network')}, {counted(draws, 'draw')} of the data"
    return many if draws >= ENOUGH else f"{many}, so the interval is for this dataset only"
