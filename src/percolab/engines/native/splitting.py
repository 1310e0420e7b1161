"""The split law of the additive coalescent, inverted: how many points the left side of a latent has.

Cutting a uniform bond of a uniform tree on n points leaves k points on the left with probability

    p_n(k) = C(n,k) k^(k-1) (n-k)^(n-k-1) / (2 (n-1) n^(n-2)),    k = 1 … n-1,

and both sides are again uniform trees of their sizes. Splitting top-down by this law gives the merger tree of the
cyclic coalescent exactly. `split` draws k by inverting the distribution function at a uniform u that belongs to the
node. The laws interlace: for fixed u, k(n+1) - k(n) is 0 or 1, which is what makes datasets of different sizes
refinements of each other. docs/splitting.md derives all of this.

Only +, -, *, / and square roots are used, in a fixed order, so every machine draws the same k.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb

import numpy as np
from numba.extending import register_jitable

from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import divide, multiply, root, two_product

SCAN = 32  #: p_n(1), p_n(2), … are added up to here (86% of draws end there); beyond it an equation is solved.
EXACT_SIZES = 2 * SCAN  #: Up to this n the distribution function is a table of correctly rounded exact values.
TABLE_SIZES = 1024  #: Up to this n a table holds its values for k ≤ `SCAN`, as summation gives them.
#: Above this n, F_n(k) and F_(n+1)(k) can be closer than rounding: close comparisons with u use more precision.
LARGE_SIZE = 2**24
GUESS_ERROR = 0.01  #: Bound on the absolute error of the first guess at a root; the largest found is 0.002.
#: Bounds on the relative error of a root from Newton's method and, times √x, from rounding of the mass. A root this
#: close to a value where k changes is checked against the distribution function itself.
ROOT_ERROR, MASS_ERROR = 1e-10, 1e-14


def _distribution_table() -> np.ndarray:
    """Return F_n(k) at [n, k - 1] for k ≤ min(n/2, `SCAN`), padded with 2 so that counting entries ≤ u gives k - 1."""
    table = np.full((TABLE_SIZES + 1, SCAN + 1), 2.0)
    for n in range(2, EXACT_SIZES + 1):
        total = Fraction(0)
        for k in range(1, n // 2):  # u is folded below 1/2, so the last k needs no bound
            ways = comb(n, k) * k ** (k - 1) * (n - k) ** (n - k - 1)
            total += Fraction(ways, 2 * (n - 1) * n ** (n - 2))
            table[n, k - 1] = float(total)
    larger = np.arange(EXACT_SIZES + 1, TABLE_SIZES + 1, dtype=np.float64)
    scale, added = 2.0 * _ROOT_TWO_PI * _scale(larger), np.zeros(larger.size)
    for k in range(1, SCAN + 1):  # the same operations as in `_split_large`: the same doubles
        added += scale * _LIMIT_LAW[k] * _borel(larger - k)
        table[EXACT_SIZES + 1 :, k - 1] = added
    return table


def _guide(table: np.ndarray, buckets: int) -> np.ndarray:
    """Return, for every row of a table of bounds, the number of entries ≤ the lower edge of each bucket of [0, 1/2]."""
    edges = np.arange(buckets + 1) / (2 * buckets)
    return np.array([np.searchsorted(row, edges, side="right") for row in np.atleast_2d(table)], np.uint8)


def _limit_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return the limit law p(k) = k^(k-1) e^(-k) / (2 k!) at k, half the Borel law, and its sum up to k at k - 1.

    Both are rounded once; the sum comes with its rounding error, in a second row.
    """
    law, total = np.zeros(SCAN + 1), np.zeros((2, SCAN))
    with localcontext() as context:
        context.prec = 50
        factorial, exact = Decimal(1), Decimal(0)
        for k in range(1, SCAN + 1):
            factorial *= k
            mass = Decimal(k) ** (k - 1) * Decimal(-k).exp() / (2 * factorial)
            exact += mass
            law[k] = float(mass)
            total[0, k - 1] = float(exact)
            total[1, k - 1] = float(exact - Decimal(total[0, k - 1]))
    return law, total


@register_jitable
def _exp_small(s):
    """Return e^s for |s| < 0.01, to rounding."""
    return 1.0 + s * (1.0 + s * (1 / 2 + s * (1 / 6 + s * (1 / 24 + s * (1 / 120 + s * (1 / 720))))))


@register_jitable
def _stirling(m):
    """Return g(m) = m^(m+1/2) e^(-m) √(2π) / m! for m ≥ 32, from Stirling's series."""
    r = 1.0 / m
    r2 = r * r
    return _exp_small(-r * (1.0 / 12.0 - r2 * (1.0 / 360.0 - r2 * (1.0 / 1260.0 - r2 * (1.0 / 1680.0)))))


@register_jitable
def _borel(m):
    """Return b(m) = g(m) m^(-3/2)."""
    return _stirling(m) / (m * np.sqrt(m))


@register_jitable
def _scale(n):
    """Return c_n, for which p_n(k) = c_n b(k) b(n-k)."""
    return n * n * np.sqrt(n) / (2.0 * (n - 1.0) * _ROOT_TWO_PI * _stirling(n))


_ROOT_TWO_PI = 2.5066282746310002
_TWO_OVER_ROOT_TWO_PI = (0.7978845608028654, -4.98465440455546e-17)
_BUCKETS = 128
#: The limits of p_n and F_n for large n; every F_n(k) exceeds its limit.
_LIMIT_LAW, (_LIMIT, _LIMIT_ERROR) = _limit_tables()
_LIMIT_GUIDE = _guide(_LIMIT, _BUCKETS)[0]
_DISTRIBUTION = _distribution_table()
_GUIDE = _guide(_DISTRIBUTION, _BUCKETS)
_ODD = 1.0 / np.arange(3, 19, 2)


@kernel
def split(n, u):
    """Return k = min{k : F_n(k) > u}, the left side's number of points, for n ≥ 2 and u in [0, 1)."""
    if n <= TABLE_SIZES:
        return split_small(n, u)
    k = _split_large(n, min(u, 1.0 - u))
    return k if u < 0.5 else n - k


@kernel
def split_small(n, u):
    """Return the same as `split`, for n ≤ `TABLE_SIZES`: short enough to be inlined into the loop that calls it.

    k is looked up in the table, starting at the place that the guide gives; beyond `SCAN` an equation for k is solved.
    """
    folded = min(u, 1.0 - u)
    k = np.int64(_GUIDE[n, int(folded * (2 * _BUCKETS))])
    while _DISTRIBUTION[n, k] <= folded:
        k += 1
    k = k + 1 if k < SCAN else _solve(n, 1.0 - 2.0 * folded)
    return k if u < 0.5 else n - k


@kernel
def _split_large(n, u):
    """Look k up in the limit law where its bounds decide; else add up p_n; beyond `SCAN` solve for k.

    F_n(k) lies between its limit and the limit times r^(3/2) n/(n-1), r = n/(n-k), which is below 1 + 3(k+1)/(n-k).
    """
    beyond = SCAN + 1
    if u < _LIMIT[SCAN - 1]:
        k = np.int64(_LIMIT_GUIDE[int(u * (2 * _BUCKETS))])
        while _LIMIT[k] <= u:
            k += 1
        if k == 0 or u > _LIMIT[k - 1] * (1.0 + 3.0 * (k + 1) / (n - k)):
            return k + 1
    else:
        k = SCAN
        beyond = _solve(n, 1.0 - 2.0 * u)
        if beyond > SCAN + 1:
            return beyond
    if n > LARGE_SIZE:
        return k if (u - _LIMIT[k - 1]) - _LIMIT_ERROR[k - 1] < _excess(float(n), k) else k + 1
    scale, total = 2.0 * _ROOT_TWO_PI * _scale(float(n)), 0.0
    for k in range(1, SCAN + 1):
        total += scale * _LIMIT_LAW[k] * _borel(n - k)
        if total > u:
            return k
    return beyond


@kernel
def _excess(n, k):
    """Return F_n(k) less its limit, for n > `LARGE_SIZE` and k ≤ `SCAN`: a small number to full relative precision.

    p_n(j) over its limit is n/(n-1) · (n/(n-j))^(3/2) · g(n-j)/g(n).
    """
    v = 1.0 / n
    total = 0.0
    for j in range(1, k + 1):
        x = j * v
        power = v * (1.0 + v / 2.0) + 1.5 * x * (1.0 + x * (1 / 2 + x / 3.0)) - (1 / 12) * x * v
        total += _LIMIT_LAW[j] * power * (1.0 + power * (1 / 2 + power / 6.0))
    return total


@kernel
def _middle_mass(n, x, scale, series):
    """Return Σ p_n(k) over x < k < n - x, for x = k + 1/2 with k ≥ `SCAN`.

    The sum is an integral plus midpoint Euler-Maclaurin terms at its ends. With t = (n - 2y)/√(y(n-y)) the factor
    (y(n-y))^(-3/2) dy of the integrand becomes (2/n²) dt, which leaves g(y) g(n-y): nearly constant.
    """
    product = x * (n - x)
    product_root = np.sqrt(product)
    end = (n - 2.0 * x) / product_root
    density = scale * _smooth(n / product, series) / (product * product_root)
    integral = end * (1.0 + _mean_excess(n / product, 1.0 / n, series))
    return 4.0 * scale / (n * n) * integral + density * _end_terms(x, n - x)


@kernel
def _smooth_series(v):
    """Return the coefficients, up to the eighth power, of g(y) g(n-y) as a power series in a = 1/y + 1/(n-y); v is 1/n.

    Its logarithm is Stirling's series -P1/12 + P3/360 - P5/1260 + P7/1680 in the power sums Pm = y^-m + (n-y)^-m, which
    are polynomials in a and v since 1/(y(n-y)) = a v. The exponential of a power series has a simple recurrence.
    """
    v2 = v * v
    s1, s2, s3, s4 = -1 / 12, -v / 120, 1 / 360 - v2 / 252, v / 252 - v * v2 / 240
    s5, s6, s7 = -1 / 1260 + v2 / 120, -v / 240, 1 / 1680
    e1 = s1
    e2 = (s1 * e1 + 2 * s2) * (1 / 2)
    e3 = (s1 * e2 + 2 * s2 * e1 + 3 * s3) * (1 / 3)
    e4 = (s1 * e3 + 2 * s2 * e2 + 3 * s3 * e1 + 4 * s4) * (1 / 4)
    e5 = (s1 * e4 + 2 * s2 * e3 + 3 * s3 * e2 + 4 * s4 * e1 + 5 * s5) * (1 / 5)
    e6 = (s1 * e5 + 2 * s2 * e4 + 3 * s3 * e3 + 4 * s4 * e2 + 5 * s5 * e1 + 6 * s6) * (1 / 6)
    e7 = (s1 * e6 + 2 * s2 * e5 + 3 * s3 * e4 + 4 * s4 * e3 + 5 * s5 * e2 + 6 * s6 * e1 + 7 * s7) * (1 / 7)
    e8 = (s1 * e7 + 2 * s2 * e6 + 3 * s3 * e5 + 4 * s4 * e4 + 5 * s5 * e3 + 6 * s6 * e2 + 7 * s7 * e1) * (1 / 8)
    return e1, e2, e3, e4, e5, e6, e7, e8


@kernel
def _smooth(a, series):
    """Return g(y) g(n-y) at a = 1/y + 1/(n-y)."""
    e1, e2, e3, e4, e5, e6, e7, e8 = series
    return 1.0 + a * (e1 + a * (e2 + a * (e3 + a * (e4 + a * (e5 + a * (e6 + a * (e7 + a * e8)))))))


@kernel
def _mean_excess(a, v, series):
    """Return the mean of g(y) g(n-y) - 1 over t from 0 to the end where 1/y + 1/(n-y) is a; v is 1/n.

    With a(t) = (t² + 4)/n, the means K_j of its powers follow from each other by parts:
    (2j + 1) K_j = a^j + (8 j/n) K_(j-1). All terms are positive, so nothing cancels.
    """
    power, mean, total = 1.0, 1.0, 0.0
    for j in range(8):
        power *= a
        mean = (power + 8.0 * (j + 1) * v * mean) * _ODD[j]
        total += series[j] * mean
    return total


@kernel
def _end_terms(y, z):
    """Return f'/12 - 7f'''/2880 + 31f⁗'/483840 over f at y, for f(y) = p_n(y) and z = n - y.

    L, L1, … are the logarithmic derivative of f and its derivatives.
    """
    a, b = 1.0 / y, 1.0 / z
    a2, b2 = a * a, b * b
    a3, b3, a4, b4 = a2 * a, b2 * b, a2 * a2, b2 * b2
    L = -1.5 * (a - b) + (a2 - b2) / 12.0 - (a4 - b4) / 120.0
    L1 = 1.5 * (a2 + b2) - (a3 + b3) / 6.0 + (a4 * a + b4 * b) / 30.0
    L2 = -3.0 * (a3 - b3) + (a4 - b4) / 2.0
    L3 = 9.0 * (a4 + b4) - 2.0 * (a4 * a + b4 * b)
    L4 = -36.0 * (a4 * a - b4 * b)
    third = L * L * L + 3.0 * L * L1 + L2
    fifth = L * L * (L * L * L + 10.0 * L * L1 + 10.0 * L2) + 15.0 * L * L1 * L1 + 5.0 * L * L3 + 10.0 * L1 * L2 + L4
    return L / 12.0 - 7.0 / 2880.0 * third + 31.0 / 483840.0 * fifth


@kernel
def guess_root(n, mass):
    """Return an x at which `_middle_mass` is close to `mass`.

    It is the root of the integral alone, with the integrand replaced by its mean. The neglected terms are of relative
    order 1/x², which is an error of order 1/x.
    """
    t = mass * (n - 1.0) * (_ROOT_TWO_PI / 2.0) / np.sqrt(n) * (1.0 - (1 / 12) / n)
    t *= 1.0 + (t * t / 3.0 + 4.0) / n * (1 / 12)
    r = np.sqrt(t * t + 4.0)
    return 2.0 * n / (r * (r + t))


@kernel
def _solve(n, mass):
    """Return the smallest k > `SCAN` with `_middle_mass` at k + 1/2 below `mass`: a guess decides 98 of 100 draws."""
    x = guess_root(float(n), mass)
    if abs(x + 0.5 - np.rint(x + 0.5)) > GUESS_ERROR + x * (ROOT_ERROR + MASS_ERROR * np.sqrt(x)):
        return min(max(int(x + 0.5), SCAN + 1), n // 2)
    return _solve_closely(n, mass)


@kernel
def _solve_closely(n, mass):
    """Return the same as `_solve`, by Newton's method in t.

    The slope leaves out the end terms, which costs a relative 2e-4 at most, and the first guess is off by less than
    that: two steps reach 1e-11.
    """
    size = float(n)
    scale, series = _scale(size), _smooth_series(1.0 / size)
    slope = 4.0 * scale / (size * size)
    t = mass / slope
    t /= _smooth((t * t / 3.0 + 4.0) / size, series)
    x = 0.0
    for _ in range(2):
        r = np.sqrt(t * t + 4.0)
        x = max(2.0 * size / (r * (r + t)), SCAN + 0.5)
        product = x * (size - x)
        t = (size - 2.0 * x) / np.sqrt(product)
        t += (mass - _middle_mass(size, x, scale, series)) / (slope * _smooth(size / product, series))
        t = max(t, 0.0)
    r = np.sqrt(t * t + 4.0)
    x = 2.0 * size / (r * (r + t))
    k = min(max(int(x + 0.5), SCAN + 1), n // 2)
    edge = np.rint(x + 0.5)
    if abs(x + 0.5 - edge) < x * (ROOT_ERROR + MASS_ERROR * np.sqrt(x)):
        k = max(int(edge) - 1, SCAN + 1)
        while k < n // 2 and _mass_less(size, k + 0.5, scale, series, mass) >= 0.0:
            k += 1
    return k


@kernel
def _mass_less(n, x, scale, series, mass):
    """Return `_middle_mass` less `mass`; in twice the precision where they are close and n is large.

    The leading term of the middle mass is √Q · 2/√(2π) with Q = n (n-2x)² / ((n-1)² x (n-x)). It is computed as a sum
    of two doubles; all others are smaller by a factor of a hundred or more.
    """
    middle = _middle_mass(n, x, scale, series)
    if n <= LARGE_SIZE or abs(middle - mass) > 1e-13:
        return middle - mass
    inner = n - 2.0 * x
    above = multiply(two_product(inner, inner), (n, 0.0))
    below = multiply(two_product(n - 1.0, n - 1.0), two_product(x, n - x))
    leading = multiply(root(divide(above, below)), _TWO_OVER_ROOT_TWO_PI)
    product, v = x * (n - x), 1.0 / n
    stirling = -v * (1 / 12 - v / 288.0)  # g(n) - 1
    small = leading[0] * (_mean_excess(n / product, v, series) - stirling) / (1.0 + stirling)
    small += scale * _smooth(n / product, series) / (product * np.sqrt(product)) * _end_terms(x, n - x)
    return (leading[0] - mass) + (leading[1] + small)
