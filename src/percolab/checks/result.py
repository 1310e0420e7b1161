"""One law checked: what was expected, what was measured, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]

Floats = NDArray[np.float64]

PASS, FAIL, TOO_SMALL, ELSEWHERE = "pass", "fail", "not enough data", "does not apply"

ALARM = 1e-5
"""A law fails if its p-value is below this. P-values rest on independent parts and on exact or cautious variances; this
leaves room for what is approximate in them, so that correct data fail a law less than once in 10,000 times."""


@dataclass(frozen=True)
class Check:
    """One law, compared with data."""

    law: str
    expected: str
    measured: str
    """empty where the data are too few to measure it"""
    verdict: str
    """"pass", "fail", "not enough data" or "does not apply\""""
    p_value: float | None = None
    """probability of data as far from the law as these, or farther, if the law holds"""
    error: float | None = None
    """for laws that hold exactly: the largest deviation found"""
    note: str = ""
    data: str = ""
    """what was checked"""
    draw: Draw | None = field(default=None, repr=False, compare=False)
    """draws the comparison on a matplotlib Axes"""

    @property
    def failed(self) -> bool:
        """Whether the law is broken."""
        return self.verdict == FAIL

    @property
    def evidence(self) -> str:
        """The p-value or the deviation, in words."""
        if self.p_value is not None:
            return f"p = {self.p_value:.2g}"
        return "" if self.error is None else f"error {self.error:.2g}"


def statistical(
    law: str, expected: str, measured: str, p_value: float, note: str = "", draw: Draw | None = None
) -> Check:
    """Return a check that fails if its p-value is below `ALARM`; a p-value that is not a number fails too."""
    p = float(p_value)
    return Check(law, expected, measured, PASS if p >= ALARM else FAIL, p_value=p, note=note, draw=draw)


def exact(
    law: str, expected: str, measured: str, error: float, tolerance: float, note: str = "", draw: Draw | None = None
) -> Check:
    """Return a check that fails if the deviation is above `tolerance`, or is not a number."""
    verdict = PASS if float(error) <= tolerance else FAIL
    return Check(law, expected, measured, verdict, error=float(error), note=note, draw=draw)


def too_small(law: str, expected: str, need: str, found: str) -> Check:
    """Return the verdict on data that cannot decide: what would be needed, and what there is."""
    return Check(law, expected, "", TOO_SMALL, note=f"needs {need}, has {found}")


def does_not_apply(law: str, expected: str, why: str) -> Check:
    """Return the verdict on data that the law is not about: edited, taken, or with another target."""
    return Check(law, expected, "", ELSEWHERE, note=why)


# ---------------------------------------------------------------------- p-values


def p_of_uniforms(values: Floats) -> float:
    """Return the two-sided Kolmogorov-Smirnov p-value that independent values are uniform on [0, 1]."""
    from scipy.stats import kstest

    return float(kstest(values, "uniform").pvalue)


def p_of_score(score: float, degrees: float = math.inf) -> float:
    """Return the two-sided p-value of a score: normal, or Student's with these degrees of freedom."""
    from scipy.stats import norm, t

    law: Any = norm if math.isinf(degrees) else t(degrees)
    return float(2 * law.sf(abs(score)))


def p_of_quadratic(difference: Floats, covariance: NDArray[np.float64]) -> tuple[float, float, int]:
    """Return chi-square, p-value and degrees of freedom of a normal vector with this covariance, of any rank."""
    from scipy.stats import chi2

    scale = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
    values, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > 1e-9 * values[-1]
    total = float(np.sum((axes[:, kept].T @ (difference / scale)) ** 2 / values[kept]))
    degrees = int(kept.sum())
    return total, float(chi2.sf(total, degrees)), degrees


def smallest(*p_values: float) -> float:
    """Return the p-value of the least of several (Bonferroni)."""
    return min(1.0, len(p_values) * min(p_values))


def p_of_counts(counts: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the p-value of Pearson's chi-square for independent draws among cells."""
    from scipy.stats import chi2

    return float(chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1))
