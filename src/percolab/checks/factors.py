"""Checks of superposed worlds: rows, targets, scales, rotations, positions, and the independence of factors.

A factor is itself a dataset, and obeys the laws of a dataset: `suite.verify` checks these too.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from percolab.checks.independence import SEED
from percolab.checks.verdicts import Check, exact, p_of_score, smallest, sound, statistical, too_small
from percolab.dataset.dataset import construct
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_finite, check_shape
from percolab.worlds.superposed import Superposed, superposed_targets

MOST_SAMPLES = 512  #: Samples whose positions are summed again.
FEWEST_SAMPLES = 100
SCALE_TOLERANCE, ROTATION_TOLERANCE = 1e-10, 1e-12
#: The rounding error allowed in a coordinate of X, relative to the spread of all coordinates.
SUM_TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


def checks(world: Superposed) -> Iterator[Check]:
    """Yield the checks of a world; only the failed check of its arrays if they do not fit each other."""
    note = f"{len(world):,} samples, {len(world.factors)} factors"
    first = sound("every array fits", lambda: _validate(world), note)
    yield first
    if first.failed:
        return
    yield rows(world)
    yield targets(world)
    measured = Measured.of(world)
    yield scales(world, measured)
    yield rotations(world)
    yield positions(world, measured)
    yield independence(world)


# ---------------------------------------------------------------------- exact laws


def _validate(world: Superposed) -> None:
    """Check that all arrays fit the recipe and the factors, and are finite."""
    count, n = len(world.recipe.factors), len(world)
    if len(world.factors) != count:
        raise ValueError(f"factors must be {count} as in the recipe, got {len(world.factors)}")
    if n != world.factors[0].forest.n_points:
        raise ValueError(f"X must have {world.factors[0].forest.n_points} rows as factor 0, got {n}")
    shapes = {"X": (n, world.recipe.dim), "y": (n, *world.recipe.y_shape), "rows": (n, count), "sigma": (count,)}
    for name, shape in shapes.items():
        check_shape(name, getattr(world, name), shape)
    for k, factor in enumerate(world.factors):
        outside = (world.rows[:, k] < 0) | (world.rows[:, k] >= factor.forest.n_points)
        if outside.any():
            rule = f"rows of factor {k} must be below {factor.forest.n_points}"
            raise ValueError(f"{rule}, got {world.rows[outside, k][0]}")
    check_finite("y", world.y)
    check_finite("sigma", world.sigma)


def rows(world: Superposed) -> Check:
    """Check that factor 0 is in order, and that each block of samples has every row of another factor once."""
    law, wrong = "rows of factors", int(np.count_nonzero(world.rows[:, 0] != np.arange(len(world))))
    for k in range(1, len(world.factors)):
        length = world.factors[k].forest.n_points
        for lo in range(0, len(world), length):
            block = world.rows[lo : lo + length, k]
            wrong += block.size - np.unique(block).size
    return exact(law, "0, 1, 2, …, then permutations", f"{wrong} out of place", wrong, 0)


def targets(world: Superposed) -> Check:
    """Check that y is the sum, or the product, of the factors' targets, to the bit."""
    y = superposed_targets(world.recipe, [factor.y for factor in world.factors], world.rows)
    error = float(np.abs(world.y - y).max(initial=0.0))
    kind = "their sum" if world.recipe.product is None else "the product of two"
    return exact("y of factors", f"{kind}, to the bit", f"at most {error:.2g} away", error, 0)


@dataclass(frozen=True, eq=False)
class Measured:
    """The quantities that checks need from the positions of the factors; each X is made again and not kept."""

    sigma: Floats  #: (K,) square root of the mean variance of the columns of each factor's X
    samples: Ints  #: some samples
    X: Floats  #: (m, D) the sum of their factors' positions, with the world's scales and rotations

    @classmethod
    def of(cls, world: Superposed) -> Measured:
        """Make every factor again; sums are NumPy's, in double precision."""
        recipe, n = world.recipe, len(world)
        choice = np.random.default_rng([SEED, zlib.crc32(recipe.to_json().encode())])
        samples = np.sort(choice.choice(n, min(n, MOST_SAMPLES), replace=False))
        X, sigma = np.zeros((samples.size, recipe.dim)), np.empty(len(recipe.factors))
        for k, factor in enumerate(recipe.factors):
            positions = np.asarray(construct(factor).X)
            # One column at a time, so that no second copy of X is made.
            sigma[k] = math.sqrt(np.mean([np.var(column, dtype=np.float64) for column in positions.T]))
            part = positions[world.rows[samples, k]].astype(np.float64)
            X += recipe.scales[k] / world.sigma[k] * part @ world.rotation(k).T
        return cls(sigma, samples, X)


def scales(world: Superposed, measured: Measured) -> Check:
    """Check that the sigma of each factor is the spread of its columns."""
    error = float(np.abs(world.sigma / measured.sigma - 1).max())
    stated = ", ".join(f"{sigma:.4g}" for sigma in world.sigma)
    wanted = ", ".join(f"{sigma:.4g}" for sigma in measured.sigma)
    return exact("scales of factors", wanted, stated, error, SCALE_TOLERANCE)


def rotations(world: Superposed) -> Check:
    """Check that Q_k has orthonormal columns or, if D < d, orthogonal rows of length √(d/D)."""
    error = 0.0
    for k in range(len(world.factors)):
        Q = world.rotation(k)
        dim, factor_dim = Q.shape
        products = Q.T @ Q if dim >= factor_dim else Q @ Q.T * (dim / factor_dim)
        error = max(error, float(np.abs(products - np.eye(min(Q.shape))).max()))
    return exact("rotations", "orthonormal", f"at most {error:.2g} away", error, ROTATION_TOLERANCE)


def positions(world: Superposed, measured: Measured) -> Check:
    """Check that X is the scaled, rotated sum of the factors' positions, on some samples."""
    law, expected = "X of factors", "their scaled, rotated sum"
    X = np.asarray(world.X[measured.samples], np.float64)
    spread = math.sqrt(float(np.mean(measured.X**2))) or 1.0
    error = float(np.abs(X - measured.X).max(initial=0.0)) / spread
    error = math.inf if math.isnan(error) else error
    note = f"{measured.samples.size} samples"
    return exact(law, expected, f"at most {error:.2g} away", error, SUM_TOLERANCE[world.recipe.dtype], note)


# ---------------------------------------------------------------------- independence


def independence(world: Superposed) -> Check:
    """Check that the targets of factors are not correlated over samples.

    Given everything else, the order of a factor's rows within a block of samples is uniform, so the correlation with
    anything else over m samples has mean 0 and variance 1/(m - 1) exactly, whatever the values are.
    """
    law, n = "independent factors", len(world)
    pairs = list(combinations(range(len(world.factors)), 2))
    if n < FEWEST_SAMPLES or not pairs:
        there = f"{n} samples of {len(world.factors)} factors"
        return too_small(law, "no correlation", f"{FEWEST_SAMPLES} samples of 2 factors", there)
    numbers = [factor.y if factor.y.ndim == 1 else factor.y[:, 0] for factor in world.factors]
    ordered = [column[world.rows[:, k]].astype(np.float64) for k, column in enumerate(numbers)]
    scores = [_score(ordered[a], ordered[b], world.factors[b].forest.n_points) for a, b in pairs]
    if not any(map(math.isfinite, scores)):
        return too_small(law, "no correlation", "blocks of 3 samples", "blocks of 2")
    largest = max(filter(math.isfinite, scores), key=abs)
    p = smallest(*(p_of_score(score) for score in scores if math.isfinite(score)))
    note = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'} of factors"
    return statistical(law, "no correlation of y", f"largest score {largest:.2f}", p, note)


def _score(first: Floats, second: Floats, length: int) -> float:
    """Return a score that is standard normal if the order of `second` is uniform within blocks of this length."""
    total, weight = 0.0, 0.0
    for lo in range(0, second.size, length):
        u, v = first[lo : lo + length], second[lo : lo + length]
        u, v = u - u.mean(), v - v.mean()
        scale = math.sqrt(float(u @ u) * float(v @ v))
        if u.size < 3 or scale == 0:
            continue
        total += float(u @ v) / scale * math.sqrt(u.size - 1) * math.sqrt(u.size)
        weight += u.size
    return total / math.sqrt(weight) if weight else math.nan
