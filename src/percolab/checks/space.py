"""Checks of the positions: bonds, origins, directions, distances in space and along bonds, dimension."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import Subject
from percolab.checks.verdicts import Check, exact, p_of_score, smallest, statistical, too_small, two_sided
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.model.edits import Turn
from percolab.show import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FEWEST_SINGLETONS = 100
FEWEST_PAIRS = 200
FEWEST_BONDS = 1000
BONDS_AT_A_TIME = 1 << 15
LEAST_CLUSTER = 32  #: Least points of a cluster in the check of isotropy: the direction of its root cannot be seen.
LARGE_CLUSTER, FEWEST_AXES, SAMPLED_PAIRS = 1000, 10, 20_000
ROTATIONS, ROTATED_BONDS = 24, 20_000
#: Square of the least R of the window, in steps: the mean graph distance of points at this distance in space.
NEAREST = 16
WINDOW = 4  #: Least ratio of the graph distances at both ends of the window.
LEAST_SIZE = (4 * NEAREST * WINDOW) ** 2
LEAST_DIM = 10  #: In fewer dimensions branches that are far apart along bonds meet in space too often.
CENTRES = 512
#: Variance of the logarithm of the ratio of C at both ends of the window: of trees, and of positions times d.
TREE_VARIANCE, SPACE_VARIANCE = 0.006, 0.1


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's positions."""
    yield bond_lengths(subject)
    if subject.recipe.mode != "one_cluster":
        yield origins(subject)
    yield isotropy(subject)
    if any(isinstance(edit, Turn) for edit in subject.recipe.edits):
        yield turned(subject)
    if subject.recipe.mode == "random_graph":
        return  # the following checks assume uniform trees
    yield axes(subject)
    yield square_distances(subject)
    yield feature_variance(subject)
    yield fractal_dimension(subject)


def bond_vectors(subject: Subject, most: int | None = None) -> tuple[Floats, Floats]:
    """Return the bonds whose rows were read, as vectors in units of step √d, and the norms of both ends."""
    part, unit = subject.part, subject.recipe.step * math.sqrt(subject.recipe.dim)
    ends = part.place(subject.forest.bond)
    ends = ends[(ends >= 0).all(axis=1)]
    if most is not None and len(ends) > most:
        ends = ends[np.sort(subject.choices("bonds").choice(len(ends), most, replace=False))]
    vectors, reach = [np.empty((0, subject.recipe.dim))], [np.empty(0)]
    for a, b in _both_ends(subject, ends):
        vectors.append((a - b) / unit)
        reach.append((np.linalg.norm(a, axis=1) + np.linalg.norm(b, axis=1)) / unit)
    return np.concatenate(vectors), np.concatenate(reach)


def _both_ends(subject: Subject, ends: Ints) -> Iterator[tuple[Floats, Floats]]:
    """Yield the positions at both ends of bonds, some bonds at a time."""
    for lo in range(0, len(ends), BONDS_AT_A_TIME):
        a, b = ends[lo : lo + BONDS_AT_A_TIME].T
        yield subject.part.X[a].astype(np.float64), subject.part.X[b].astype(np.float64)


def bond_lengths(subject: Subject) -> Check:
    """Check that every bond has length step √d, up to the rounding of X."""
    law, unit = "bond length", subject.recipe.step * math.sqrt(subject.recipe.dim)
    vectors, reach = bond_vectors(subject)
    if not len(vectors):
        return too_small(law, f"{unit:.6g}", "1 bond", "0")
    length = np.linalg.norm(vectors, axis=1)
    precision, granted = subject.precision, subject.granted(reach)
    worst = int(np.argmax(np.abs(length - 1) / granted))
    measured = f"{length.min() * unit:.6g} to {length.max() * unit:.6g}"
    note = f"{length.size:,} bonds; rounding of {subject.part.X.dtype} allows a relative {granted[worst]:.1g}"
    note += f"; {len(subject.moves)} moves taken back" if subject.moves else ""
    deviation = (length - 1) / precision
    draw = verdicts.histogram(np.clip(deviation, -500, 500), "(length / step√d - 1) / precision of the type")
    return exact(law, f"{unit:.6g}", measured, float(abs(length[worst] - 1)), float(granted[worst]), note, draw)


def origins(subject: Subject) -> Check:
    """Check the positions of singletons: a uniform point of the unit ball plus one step, all times √d.

    Then E|X|²/d = d/(d+2) + step², and singletons are independent of each other.
    """
    law, d, step = "cluster origins", subject.recipe.dim, subject.recipe.step
    expected = d / (d + 2) + step**2
    text = f"E|X|²/d = {expected:.4f}"
    alone = subject.forest.cluster_start[:-1][subject.forest.cluster_size == 1]
    place = subject.part.place(alone)
    place = place[place >= 0]
    if place.size < FEWEST_SINGLETONS:
        return too_small(law, text, f"{FEWEST_SINGLETONS} singletons", f"{place.size}")
    square = np.einsum("ij,ij->i", subject.part.X[place], subject.part.X[place], dtype=np.float64) / d
    spread = math.sqrt(d / (d + 4) - (d / (d + 2)) ** 2 + 4 * step**2 / (d + 2))
    score = (square.mean() - expected) / spread * math.sqrt(place.size)
    centre = np.asarray(subject.part.X[place], np.float64).mean(axis=0) / math.sqrt(d)
    drift = float(np.sum(centre**2) * place.size * d / expected)
    from scipy.stats import chi2

    p = smallest(p_of_score(score), float(chi2.sf(drift, d)))
    measured = f"{square.mean():.4f} ± {spread / math.sqrt(place.size):.4f}"
    note = f"{place.size:,} singletons; also that they are centred at 0"
    return statistical(law, text, measured, p, note, verdicts.histogram(square, "|X|²/d of singletons", mean=expected))


# ---------------------------------------------------------------------- directions


def isotropy(subject: Subject) -> Check:
    """Check that bonds point equally in all directions of space.

    For M = Σ u uᵀ over the unit vectors of N bonds, rotations do not change the law of M, so M - (N/d) I has the same
    variance in all d(d+1)/2 - 1 dimensions of its space, and its square is a chi-square up to one constant. That
    constant follows from how directions are handed down the latents, see `_direction_variance`.
    """
    from scipy.stats import chi2

    law, d, forest = "isotropy of bonds", subject.recipe.dim, subject.forest
    large = int(np.count_nonzero(forest.cluster_size >= LEAST_CLUSTER))
    rows = int(forest.cluster_start[large])
    bonds = forest.bond[: rows - large]
    ends = subject.part.place(bonds)
    seen = (ends >= 0).all(axis=1)
    if seen.sum() < FEWEST_BONDS:
        need = f"{FEWEST_BONDS} bonds in clusters of {LEAST_CLUSTER} points"
        return too_small(law, "u uᵀ = I/d on average", need, f"{int(seen.sum())}")
    M = _second_moment(subject, ends[seen])
    N = int(seen.sum())
    variance = _direction_variance(subject, large) * seen.mean()
    freedom = d * (d + 1) // 2 - 1
    square = float(np.sum((M - N / d * np.eye(d)) ** 2)) * freedom / variance
    p = two_sided(chi2(freedom), square)
    values = np.linalg.eigvalsh(M) * d / N
    mean = "mean square of bonds, times d"
    draw = verdicts.curve(np.arange(1, d + 1), values, np.ones(d), "principal direction", mean)
    note = f"{N:,} bonds; mean square of bonds by direction is {values[0]:.3f} to {values[-1]:.3f} of 1/d"
    return statistical(law, f"χ² about {freedom:,}", f"χ² = {square:,.0f}", p, note, draw)


def _second_moment(subject: Subject, ends: Ints) -> Floats:
    """Return Σ u uᵀ over bonds, u being their unit vectors."""
    total = np.zeros((subject.recipe.dim, subject.recipe.dim))
    for a, b in _both_ends(subject, ends):
        u = (a - b) / np.linalg.norm(a - b, axis=1, keepdims=True)
        total += u.T @ u
    return total


def _direction_variance(subject: Subject, n_clusters: int) -> float:
    """Return E|M - (N/d) I|² over the points of the largest clusters, given their latents.

    Below a latent with direction v, the sum A of u uᵀ - I/d has mean c (v vᵀ - I/d), with c = 1 for a point and
    c = λ (c_left + c_right), λ = (d-2)/(2(d-1)), for a latent; and since the directions of the two sides are
    orthogonal, E|A|² is the sum of E|A|² of both sides less 2 c_left c_right / d, starting from 1 - 1/d for a point.
    """
    forest = subject.forest
    rows = int(forest.cluster_start[n_clusters])
    total = _hand_down(forest.latent_children[: rows - n_clusters], forest.n_points, subject.recipe.dim)
    tops = forest.cluster_start[:n_clusters] - np.arange(n_clusters)
    return float(total[tops].sum())


@kernel
def _hand_down(children, n_points, d):
    alpha, square = np.empty(len(children)), np.empty(len(children))
    shrink = (d - 2) / (2.0 * (d - 1))
    for i in range(len(children) - 1, -1, -1):
        mean, squares = np.ones(2), np.full(2, 1 - 1 / d)
        for side in range(2):
            child = children[i, side] - n_points
            if child >= 0:
                mean[side], squares[side] = alpha[child], square[child]
        alpha[i] = shrink * (mean[0] + mean[1])
        square[i] = squares[0] + squares[1] - 2 * mean[0] * mean[1] / d
    return square


def axes(subject: Subject) -> Check:
    """Check that the axes are not special: fourth moments of bonds along axes, against random rotations of the data.

    Rotating the data does not change their law, so the moment along the axes is one more draw of the rotated moments.
    """
    law, d = "axes not special", subject.recipe.dim
    vectors, _ = bond_vectors(subject, ROTATED_BONDS)
    expected = 3 / (d + 2)
    text = f"Σ u⁴ = {expected:.4f}"
    if len(vectors) < FEWEST_BONDS:
        return too_small(law, text, f"{FEWEST_BONDS} bonds", f"{len(vectors)}")
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rng = subject.choices("rotations")
    turned = np.array([_fourth(vectors @ _rotation(rng, d)) for _ in range(ROTATIONS)])
    moment = _fourth(vectors)
    score = (moment - turned.mean()) / (turned.std(ddof=1) * math.sqrt(1 + 1 / ROTATIONS))
    p = p_of_score(score, ROTATIONS - 1)

    def draw(axes: Axes) -> None:
        axes.plot(turned, np.arange(ROTATIONS), "o", color=style.BLUE, markersize=4, label="after a random rotation")
        axes.axvline(moment, color=style.VERMILION, label="as they are")
        axes.axvline(expected, color=style.INK, linestyle=":", label="3/(d+2)")
        axes.locator_params(axis="x", nbins=4)
        axes.set(xlabel="mean of Σ u⁴ over bonds", yticks=[])
        axes.legend()

    note = f"{len(vectors):,} bonds; {turned.mean():.5f} on average over {ROTATIONS} random rotations"
    return statistical(law, text, f"{moment:.5f}", p, note, draw)


def _fourth(vectors: Floats) -> float:
    square = vectors * vectors
    return float(np.mean(np.einsum("ij,ij->i", square, square)))


def _rotation(rng: np.random.Generator, d: int) -> Floats:
    """Return a random orthogonal matrix."""
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def turned(subject: Subject) -> Check:
    """Check that rows below turned latents are where the steps drawn from their seeds lead."""
    law, expected, part = "turned directions", "as drawn from their seed", subject.part
    turns = [edit.latent for edit in subject.recipe.edits if isinstance(edit, Turn)]
    rows = np.unique(np.concatenate([np.arange(subject.forest.n_points)[subject.forest.points_of(i)] for i in turns]))
    at = part.place(rows)
    if not (at >= 0).any():
        return too_small(law, expected, "1 row that was read", "0")
    drawn_again = subject.unmoved[rows[at >= 0]].astype(np.float64)
    unit = subject.recipe.step * np.sqrt(subject.recipe.dim)
    error = np.linalg.norm(part.X[at[at >= 0]] - drawn_again, axis=1) / unit
    granted = subject.granted(np.linalg.norm(drawn_again, axis=1) / unit)
    worst = int(np.argmax(error / granted))
    note = f"{error.size:,} rows below turned latents"
    return exact(law, expected, f"within {error.max():.0e}", float(error[worst]), float(granted[worst]), note)


# ---------------------------------------------------------------------- distances


def square_distances(subject: Subject) -> Check:
    """Check E|X_a - X_b|² = d step² · (graph distance), one pair in each of many independent trees."""
    law, text = "|ΔX|² and graph distance", "|ΔX|² = d·step²·distance"
    _, pair, distance = subject.pairs
    place = subject.part.place(pair)
    seen = (place >= 0).all(axis=1)
    if seen.sum() < FEWEST_PAIRS:
        need = f"{FEWEST_PAIRS} disjoint latents of 16 to 1,024 points"
        return too_small(law, text, need, f"{int(seen.sum())}")
    place, distance = place[seen], distance[seen]
    gap = np.asarray(subject.part.X[place[:, 0]], np.float64) - subject.part.X[place[:, 1]]
    unit = theory.expected_square_distance(1, subject.recipe.dim, subject.recipe.step)
    square = np.sum(gap**2, axis=1) / unit
    ratio = square / distance
    far = distance > np.median(distance)
    p_values = [
        _mean_is_one(r) for r in (ratio, ratio[far], ratio[~far & (distance > 1)]) if r.size >= FEWEST_PAIRS / 4
    ]
    error = ratio.std(ddof=1) / math.sqrt(ratio.size)
    note = f"{ratio.size:,} pairs, one in each of so many independent trees; also near and far pairs alone"
    draw = verdicts.curve(distance, square, distance, "graph distance", "|ΔX|² / (d · step²)", log="xy")
    return statistical(law, "1", f"{ratio.mean():.4f} ± {error:.4f}", smallest(*p_values), note, draw)


def _mean_is_one(ratio: Floats) -> float:
    spread = ratio.std(ddof=1) / math.sqrt(ratio.size)
    if spread < 1e-6:  # nearly all pairs are one bond apart, and their ratio is exactly 1
        return 1.0 if abs(ratio.mean() - 1) < 1e-4 else 0.0
    return p_of_score(float((ratio.mean() - 1) / spread), ratio.size - 1)


def feature_variance(subject: Subject) -> Check:
    """Check the variance of features over the largest cluster, given its tree.

    Given the tree, every feature is a random walk along bonds, and its variance has mean step² Σ k (s-k) / s² over
    bonds, where cutting the bond leaves k points on one side. The d features have the same law and are hardly
    correlated, so the mean of their variances is close to a gamma law, whose width also follows from the tree.
    """
    from scipy.stats import gamma

    law, d = "feature variance", subject.recipe.dim
    size, X = subject.largest
    if size < LARGE_CLUSTER or d < FEWEST_AXES or X is None:
        need = f"a cluster of {LARGE_CLUSTER:,} points in {FEWEST_AXES} dimensions"
        return too_small(law, "step² Σ k(s-k)/s²", need, f"{size:,} in {d}")
    mean, relative = _walk_variance(subject, size)
    expected = subject.recipe.step**2 * mean
    variance = np.asarray(X, np.float64).var(axis=0)
    spread = gamma(d / relative, scale=expected * relative / d)
    measured = float(variance.mean())
    p = two_sided(spread, measured)
    note = f"largest cluster, {size:,} points, given its tree"
    if subject.recipe.mode == "one_cluster":
        note += f"; {theory.expected_feature_variance(size):.3f} over seeds, 0.627 for large n"
    draw = verdicts.histogram(variance, "variance of a feature", mean=expected)
    return statistical(law, f"{expected:.3f} ± {spread.std():.3f}", f"{measured:.3f}", p, note, draw)


def _walk_variance(subject: Subject, size: int) -> tuple[float, float]:
    """Return mean and relative variance, over walks of unit steps, of the variance of a walk on the largest tree.

    The positions have covariance K_ab = (m_a + m_b - m - D_ab)/2 about their centre, with D the graph distance and m
    its means over one or both points. The variance has mean tr K / s, and relative variance 2 tr K² / (tr K)² for a
    Gaussian walk; tr K² is estimated from random pairs.
    """
    m_a = subject.distance_sums(size) / size
    m = float(m_a.mean())
    pair = subject.choices("walks").integers(size, size=(SAMPLED_PAIRS, 2))
    K = (m_a[pair].sum(axis=1) - m - subject.forest.distance(*pair.T)) / 2
    return m / 2, float(2 * np.mean(K**2) / (m / 2) ** 2)


# ---------------------------------------------------------------------- the fractal dimension
#
# The check of the fractal dimension, by the correlation integral.
# C(R) is the share of pairs of points closer than R. On a cluster it grows as R^4 where step ≪ R ≪ radius of the
# cluster: the number of points within graph distance k of a point grows as k², and k bonds lead as far as √k steps.
# At all practical sizes the window is narrow, and the slope within it is below 4. But the slope is known: graph
# distances have an exact law, and |ΔX|² after k bonds has mean k and variance 2k(k-1)/d in units of d step², close to
# a gamma law. So the slope is compared with the slope that these laws give for the same n, d and window.
# The tree of a cluster is one draw, which matters at the far end of the window: from one cluster to the next the slope
# varies far more than any resampling of one cluster shows. Over 100 clusters each of 65,536 points in 10, 20, 40 and
# 100 dimensions, and over 600 trees alone, the logarithm of the ratio of C at both ends has a variance below 0.006 +
# 0.1/d and a mean within 0.02 of the expected one; the window ends at a fixed share of √n, so this holds for larger n
# too.


def window(n: int) -> tuple[float, float]:
    """Return both ends of the scaling window, in units of step √d: from 4 to √(√n/4)."""
    return math.sqrt(NEAREST), math.sqrt(math.sqrt(n) / 4)


def fractal_dimension(subject: Subject) -> Check:
    """Check the slope of the correlation integral of the largest cluster in its scaling window.

    Pairs are counted around random centres; the error bar is the spread from one cluster to another.
    """
    law, d = "fractal dimension", subject.recipe.dim
    size, X = subject.largest
    if size < LEAST_SIZE or d < LEAST_DIM or X is None:
        need = f"a cluster of {LEAST_SIZE:,} points in {LEAST_DIM} dimensions"
        return too_small(law, f"{theory.EXPONENTS.fractal_dimension}", need, f"{size:,} in {d}")
    low, high = window(size)
    radius = np.geomspace(1.2, 3 * high, 25)
    ends = np.array([low, high])
    unit = subject.recipe.step * math.sqrt(d)
    centres = np.sort(subject.choices("centres").choice(size, CENTRES, replace=False))
    scaled = np.asarray(X, np.float32) / np.float32(unit)
    counts = pair_counts(scaled, centres, np.concatenate([radius, ends]))
    near, far = counts[:, -2:].sum(axis=0)
    width = math.log(high / low)
    slope, error = math.log(max(far, 1) / max(near, 1)) / width, math.sqrt(TREE_VARIANCE + SPACE_VARIANCE / d) / width
    expected = expected_slope(size, d)
    p = p_of_score((slope - expected) / error)
    share = counts.mean(axis=0)[:-2] / (size - 1)
    expected_share = expected_integral(radius, size, d)
    curve = verdicts.curve(radius, share, expected_share, "R / (step √d)", "share of pairs closer than R", log="xy")

    def draw(axes: Axes) -> None:
        curve(axes)
        axes.axvspan(low, high, color=style.BLUE, alpha=0.12, linewidth=0, label="scaling window")
        middle = expected_integral(np.array([math.sqrt(low * high)]), size, d)
        axes.plot(ends, 2 * middle * (ends / math.sqrt(low * high)) ** 4, "--", color=style.VERMILION, label="slope 4")
        axes.legend()

    note = f"slope for {low:.1f} < R/(step√d) < {high:.1f}, {CENTRES} centres; 4 for n → ∞"
    return statistical(law, f"{expected:.2f} at this n", f"{slope:.2f} ± {error:.2f}", p, note, draw)


def pair_counts(X: NDArray[np.float32], centres: Ints, radius: Floats) -> Ints:
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
