"""The check of the fractal dimension, by the correlation integral.

C(R) is the share of pairs of points closer than R. On a cluster it grows as R^4 where step ≪ R ≪ radius of the cluster:
the number of points within graph distance k of a point grows as k², and k bonds lead as far as √k steps. At any size
that data have the window is narrow, and the slope within it is below 4. But it is known: graph distances have an exact
law, and |ΔX|² after k bonds has mean k and variance 2k(k-1)/d in units of d step², close to a gamma law. So the slope
is compared with the slope that this gives for the same n, d and window.

The tree of a cluster is one draw, and at the far end of the window it shows: from one cluster to the next the slope
varies far more than any resampling of one cluster tells. Over 100 clusters each of 65,536 points in 10, 20, 40 and 100
dimensions, and over 600 trees alone, the logarithm of the ratio of C at both ends has a variance below 0.006 + 0.1/d
and a mean within 0.02 of the one expected; the window ends at a fixed share of √n, so this holds for larger n too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.checks import plots
from percolab.checks.independent import Subject
from percolab.checks.result import Check, Floats, p_of_score, statistical, too_small
from percolab.ground.compiled import kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEAREST = 16
"""Square of the least R of the window, in steps: the graph distance that such a gap in space has on average."""
WINDOW = 4
"""Least ratio of the graph distances at both ends of the window."""
LEAST_SIZE = (4 * NEAREST * WINDOW) ** 2
LEAST_DIM = 10
"""In fewer dimensions branches that are far apart along bonds meet in space too often."""
CENTRES = 512
TREE_VARIANCE, SPACE_VARIANCE = 0.006, 0.1
"""Variance of the logarithm of the ratio of C at both ends of the window: of trees, and of positions times d."""


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the check of the fractal dimension."""
    yield fractal_dimension(subject)


def window(n: int) -> tuple[float, float]:
    """Return both ends of the scaling window, in units of step √d: from 4 to √(√n/4)."""
    return math.sqrt(NEAREST), math.sqrt(math.sqrt(n) / 4)


def fractal_dimension(subject: Subject) -> Check:
    """Check the slope of the correlation integral of the largest cluster in its scaling window.

    Pairs are counted around random centres; the error bar is the spread from one cluster to another.
    """
    law, d = "fractal dimension", subject.recipe.dim
    size = int(subject.forest.cluster_size[0]) if subject.forest.n_clusters else 0
    place = subject.part.place(np.array([0, max(size - 1, 0)])) if size else np.array([-1])
    if size < LEAST_SIZE or d < LEAST_DIM or place.min() < 0:
        need = f"a cluster of {LEAST_SIZE:,} points in {LEAST_DIM} dimensions"
        return too_small(law, f"{theory.EXPONENTS.fractal_dimension}", need, f"{size:,} in {d}")
    low, high = window(size)
    radius = np.geomspace(1.2, 3 * high, 25)
    ends = np.array([low, high])
    unit = subject.recipe.step * math.sqrt(d)
    X = np.asarray(subject.part.X[place[0] : place[1] + 1], np.float32) / np.float32(unit)
    centres = np.sort(subject.choices("centres").choice(size, CENTRES, replace=False))
    counts = pair_counts(X, centres, np.concatenate([radius, ends]))
    near, far = counts[:, -2:].sum(axis=0)
    width = math.log(high / low)
    slope, error = math.log(max(far, 1) / max(near, 1)) / width, math.sqrt(TREE_VARIANCE + SPACE_VARIANCE / d) / width
    expected = expected_slope(size, d)
    p = p_of_score((slope - expected) / error)
    share = counts.mean(axis=0)[:-2] / (size - 1)

    def draw(axes: Axes) -> None:
        axes.axvspan(low, high, color=plots.BLUE, alpha=0.12, linewidth=0, label="scaling window")
        seen = share > 0
        axes.loglog(radius[seen], share[seen], "o", markersize=4, color=plots.BLUE, label="measured")
        axes.loglog(radius, expected_integral(radius, size, d), color=plots.INK, linestyle=":", label="theory, this n")
        guide = np.array([low, high])
        at = float(expected_integral(np.array([math.sqrt(low * high)]), size, d)[0])
        axes.loglog(guide, 2 * at * (guide / math.sqrt(low * high)) ** 4, "--", color=plots.ORANGE, label="slope 4")
        powers = [2**i for i in range(8) if 2**i < radius[-1]]
        axes.set_xticks(powers, [str(power) for power in powers])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("R / (step √d)")
        axes.set_ylabel("share of pairs closer than R")
        axes.legend(frameon=False)

    note = f"slope for {low:.1f} < R/(step√d) < {high:.1f}, {CENTRES} centres; 4 for n → ∞"
    return statistical(law, f"{expected:.2f} at this n", f"{slope:.2f} ± {error:.2f}", p, note, draw)


def pair_counts(X: NDArray[np.float32], centres: NDArray[np.int64], radius: Floats) -> NDArray[np.int64]:
    """Return, for every centre, the number of other points closer than each radius."""
    X = X - X[centres].mean(axis=0)
    square = np.einsum("ij,ij->i", X, X)
    order = np.argsort(radius)
    counts = np.empty((centres.size, radius.size), np.int64)
    for lo in range(0, centres.size, 64):
        some = centres[lo : lo + 64]
        product = X[some] @ X.T
        _count_closer(product, square[some], square, np.float32(radius[order]) ** 2, counts[lo : lo + some.size])
    result = np.empty_like(counts)
    result[:, order] = counts - 1  # a centre is closer than any radius to itself
    return result


@kernel
def _count_closer(product, centre_square, square, limit, counts):
    """Count points by squared distance; `limit` grows."""
    largest = limit[-1]
    for i in range(product.shape[0]):
        counts[i, :] = 0
        for j in range(product.shape[1]):
            gap = centre_square[i] + square[j] - 2 * product[i, j]
            if gap < largest:
                counts[i, np.searchsorted(limit, gap, side="right")] += 1
        for k in range(1, limit.size):
            counts[i, k] += counts[i, k - 1]


def expected_integral(radius: Floats, n: int, d: int) -> Floats:
    """Return C(R) for one cluster of n points, R in units of step √d."""
    from scipy.special import gammainc

    k = np.arange(2, min(n, math.ceil(12 * math.sqrt(n)) + 16))
    shape = k * d / (2 * (k - 1.0))
    within = gammainc(shape, shape * radius[:, None] ** 2 / k)
    one_bond = theory.distance_law(1, n) * (radius > 1)
    return within @ theory.distance_law(k, n) + one_bond


def expected_slope(n: int, d: int) -> float:
    """Return the slope of log C(R) against log R across the scaling window."""
    low, high = window(n)
    near, far = expected_integral(np.array([low, high]), n, d)
    return math.log(far / near) / math.log(high / low)
