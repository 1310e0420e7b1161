"""The check of one law: the expectation, the measurement, the verdict, and the figure that shows it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Floats
from percolab.show import style
from percolab.store.schema import StoreError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Draw = Callable[[Axes], None]


PASS, FAIL, TOO_SMALL, ELSEWHERE = "pass", "fail", "not enough data", "does not apply"

#: A law fails if its p-value is below this. P-values use independent parts and exact or conservative variances; the
#: threshold leaves room for their approximations, so that correct data fail a law less than once in 10,000 times.
ALARM = 1e-5

BAND = 2.23  #: Kolmogorov's statistic times √n stays below this with probability 0.9999.


@dataclass(frozen=True)
class Check:
    """One law, compared with data."""

    law: str
    expected: str
    measured: str  #: empty if there are too few data to measure it
    verdict: str  #: "pass", "fail", "not enough data" or "does not apply"
    p_value: float | None = None  #: probability of data as far from the law as these, or farther, if the law holds
    error: float | None = None  #: for laws that hold exactly: the largest deviation found
    note: str = ""
    data: str = ""  #: what was checked
    draw: Draw | None = field(default=None, repr=False, compare=False)  #: draws the comparison on a matplotlib Axes

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


def sound(expected: str, validate: Callable[[], None], note: str, law: str = "data model") -> Check:
    """Return whether data obey the data model: `validate` raises ValueError where they do not."""
    try:
        validate()
    except StoreError:  # data that cannot be read do not break a law
        raise
    except ValueError as error:
        return exact(law, expected, "broken", 1, 0, f"{error}; no other law was tried")
    return exact(law, expected, "they do", 0, 0, note)


def too_small(law: str, expected: str, need: str, have: str) -> Check:
    """Return the verdict for too few data: how much the law needs, and how much there is."""
    return Check(law, expected, "", TOO_SMALL, note=f"needs {need}, has {have}")


def does_not_apply(law: str, expected: str, why: str) -> Check:
    """Return the verdict for a law that does not apply: the data are edited, subsampled or have another target."""
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


def p_of_quadratic(difference: Floats, covariance: Floats) -> tuple[float, float, int]:
    """Return chi-square, p-value and degrees of freedom of a normal vector with this covariance, of any rank."""
    from scipy.stats import chi2

    scale = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
    values, axes = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > 1e-9 * values[-1]
    total = float(np.sum((axes[:, kept].T @ (difference / scale)) ** 2 / values[kept]))
    degrees = int(kept.sum())
    return total, float(chi2.sf(total, degrees)), degrees


def two_sided(law: Any, value: float, *, counted: bool = False) -> float:
    """Return the two-sided p-value of a number by its law, a distribution of SciPy's; `counted` if it is an integer."""
    return min(1.0, 2 * float(min(law.cdf(value), law.sf(value - counted))))


def p_of_all_and_some(values: Floats, some: Floats, fewest: int) -> float:
    """Return the p-value that all values are uniform and, if there are enough, that `some` of them are."""
    p = p_of_uniforms(values)
    return smallest(p, p_of_uniforms(some)) if some.size >= fewest else p


def smallest(*p_values: float) -> float:
    """Return the p-value of the least of several (Bonferroni)."""
    return min(1.0, len(p_values) * min(p_values))


def p_of_counts(counts: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the p-value of Pearson's chi-square for independent draws among cells."""
    from scipy.stats import chi2

    return float(chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1))


# ---------------------------------------------------------------------- figures, each on an Axes it is given


def uniforms(values: Floats, what: str) -> Draw:
    """Draw how the distribution function of values that should be uniform differs from the diagonal."""
    n = values.size
    level = np.quantile(values, np.linspace(0, 1, 201))
    gap = np.searchsorted(np.sort(values), level, side="right") / n - level

    def draw(axes: Axes) -> None:
        axes.axhspan(-BAND / np.sqrt(n), BAND / np.sqrt(n), color=style.BLUE, alpha=0.15, linewidth=0)
        axes.axhline(0, color=style.INK, linestyle=":", linewidth=1)
        axes.plot(level, gap, color=style.BLUE)
        axes.set(xlabel=what, ylabel="observed share - expected", title=f"{n:,} independent values; band: 99.99%")

    return draw


def curve(
    x: NDArray[Any],
    measured: NDArray[Any],
    expected: NDArray[Any] | None,
    xlabel: str,
    ylabel: str = "count",
    *,
    error: NDArray[Any] | None = None,
    log: str = "",
) -> Draw:
    """Draw the measurements, with error bars if there are any, beside the expected line."""
    order = np.argsort(x, kind="stable")

    def draw(axes: Axes) -> None:
        axes.errorbar(x, measured, yerr=error, fmt="o", markersize=3, color=style.BLUE, capsize=2, label="measured")
        if expected is not None:
            axes.plot(x[order], expected[order], color=style.INK, linestyle=":", label="expected")
        axes.set(xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if "x" in log:
            style.plain_numbers(axes.xaxis)
        axes.legend()

    return draw


def histogram(values: Floats, xlabel: str, *, mean: float | None = None, normal: bool = False) -> Draw:
    """Draw a histogram with the expected mean or the standard normal law, whose outer bins at ±5 hold all beyond."""
    low, high = (-5.0, 5.0) if normal else (float(np.min(values)), float(np.max(values)))
    within = low, high if high > low else low + 1
    count, edges = np.histogram(np.clip(values, low, high), bins=60, range=within, density=True)

    def draw(axes: Axes) -> None:
        axes.stairs(count, edges, fill=True, color=style.BLUE, alpha=0.7, label="measured")
        if normal:
            x = np.linspace(-5, 5, 201)
            axes.plot(x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), color=style.INK, linestyle=":", label="normal law")
        if mean is not None:
            axes.axvline(mean, color=style.INK, linestyle=":", label="expected mean")
            axes.axvline(float(values.mean()), color=style.VERMILION, label="measured mean")
        axes.set(xlabel=xlabel, ylabel="density")
        axes.legend()

    return draw
