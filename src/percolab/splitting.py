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
from numba import njit

TABLE_SIZES = 64
"""Up to this n the distribution function is a table of correctly rounded exact values."""
SCAN = 32
"""Above, p_n(1), p_n(2), … are added up to here (86% of draws end there); beyond it an equation is solved."""
ROOT_ERROR, MASS_ERROR = 1e-10, 1e-14
"""Bounds on the relative error of a root from Newton's method and, times √x, from rounding of the mass. A root as close as
that to where k changes is checked against the distribution function itself."""


def _distribution_table() -> np.ndarray:
    """Return F_n(k) at [n, k - 1] for k ≤ n/2, padded with 2 so that counting entries ≤ u gives k - 1."""
    table = np.full((TABLE_SIZES + 1, TABLE_SIZES // 2), 2.0)
    for n in range(2, TABLE_SIZES + 1):
        total = Fraction(0)
        for k in range(1, n // 2 + 1):
            ways = comb(n, k) * k ** (k - 1) * (n - k) ** (n - k - 1)
            total += Fraction(ways, 2 * (n - 1) * n ** (n - 2))
            table[n, k - 1] = float(total)
        table[n, n // 2 - 1] = 2.0  # u is folded below 1/2, so the last k needs no bound
    return table


def _borel_table() -> np.ndarray:
    """Return b(k) = k^(k-1) e^(-k) √(2π) / k! at index k, correctly rounded: √(2π) times the Borel(1) law."""
    table = np.zeros(SCAN + 1)
    with localcontext() as context:
        context.prec = 50
        root = (2 * Decimal("3.14159265358979323846264338327950288419716939937510582")).sqrt()
        factorial = Decimal(1)
        for k in range(1, SCAN + 1):
            factorial *= k
            table[k] = float(Decimal(k) ** (k - 1) * Decimal(-k).exp() * root / factorial)
    return table


_DISTRIBUTION = _distribution_table()
_BOREL = _borel_table()
_ROOT_TWO_PI = 2.5066282746310002
_SCANNED = float(_BOREL.sum() / (2 * _ROOT_TWO_PI))
"""The limit of F_n(`SCAN`), which every F_n(`SCAN`) exceeds: a smaller u is found by adding."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]


@njit(cache=True, nogil=True)
def split(n, u):
    """Return k = min{k : F_n(k) > u}, the left side's number of points, for n ≥ 2 and u in [0, 1)."""
    folded = u if u < 0.5 else 1.0 - u
    if n <= TABLE_SIZES:
        k = _split_small(n, folded)
    else:
        k = _split_large(n, folded)
    return k if u < 0.5 else n - k


@njit(cache=True, nogil=True)
def _split_small(n, u):
    """Count the table's entries ≤ u: no branch to mispredict, and the loop runs in vector registers."""
    k = 1
    for j in range(TABLE_SIZES // 2):
        k += _DISTRIBUTION[n, j] <= u
    return k


@njit(cache=True, nogil=True)
def _split_large(n, u):
    scale = _scale(n)
    beyond = SCAN + 1
    if u > _SCANNED:
        beyond = _solve(n, 1.0 - 2.0 * u, scale)
        if beyond > SCAN + 1:
            return beyond
    total = 0.0
    for k in range(1, SCAN + 1):
        total += scale * _BOREL[k] * _borel(n - k)
        if total > u:
            return k
    return min(beyond, n // 2)


@njit(cache=True, nogil=True)
def _exp_small(s):
    """Return e^s for |s| < 0.01, to rounding."""
    return 1.0 + s * (1.0 + s * (1 / 2 + s * (1 / 6 + s * (1 / 24 + s * (1 / 120 + s * (1 / 720))))))


@njit(cache=True, nogil=True)
def _stirling(m):
    """Return g(m) = m^(m+1/2) e^(-m) √(2π) / m! for m ≥ 32, from Stirling's series."""
    r = 1.0 / m
    r2 = r * r
    return _exp_small(-r * (1.0 / 12.0 - r2 * (1.0 / 360.0 - r2 * (1.0 / 1260.0 - r2 * (1.0 / 1680.0)))))


@njit(cache=True, nogil=True)
def _borel(m):
    """Return b(m) = g(m) m^(-3/2)."""
    return _stirling(m) / (m * np.sqrt(m))


@njit(cache=True, nogil=True)
def _scale(n):
    """Return c_n, for which p_n(k) = c_n b(k) b(n-k)."""
    size = float(n)
    return size * size * np.sqrt(size) / (2.0 * (size - 1.0) * _ROOT_TWO_PI * _stirling(size))


@njit(cache=True, nogil=True)
def middle_mass(n, x, scale):
    """Return Σ p_n(k) over x < k < n - x, for x = k + 1/2 with k ≥ `SCAN`.

    The sum is an integral plus midpoint Euler-Maclaurin terms at its ends. With t = (n - 2y)/√(y(n-y)) the factor
    (y(n-y))^(-3/2) dy of the integrand becomes (2/n²) dt, which leaves g(y) g(n-y): nearly constant.
    """
    size = float(n)
    product = x * (size - x)
    end = (size - 2.0 * x) / np.sqrt(product)
    integral = _smooth_integral(size, end)
    density = scale * _smooth(size, end * end + 4.0) / (product * np.sqrt(product))
    return 4.0 * scale / (size * size) * integral + density * _end_terms(x, size - x)


@njit(cache=True, nogil=True)
def _smooth(n, tau):
    """Return g(y) g(n-y) as a function of τ = t² + 4 = n²/(y(n-y)).

    Its logarithm is Stirling's series in the power sums of 1/y and 1/(n-y), which are polynomials in τ/n.
    """
    a = tau / n
    b = a / n
    a2 = a * a
    third = a * (a2 - 3.0 * b)
    fifth = a * (a2 * a2 - 5.0 * a2 * b + 5.0 * b * b)
    seventh = a * (a2 * a2 * a2 - 7.0 * a2 * a2 * b + 14.0 * a2 * b * b - 7.0 * b * b * b)
    return _exp_small(-(1 / 12) * a + (1 / 360) * third - (1 / 1260) * fifth + (1 / 1680) * seventh)


@njit(cache=True, nogil=True)
def _smooth_integral(n, end):
    """Return the integral of g(y) g(n-y) over t from 0 to `end`, by 8-point Gauss-Legendre: exact to rounding."""
    total = 0.0
    for i in range(_NODES.size):
        t = end * _NODES[i]
        total += _WEIGHTS[i] * _smooth(n, t * t + 4.0)
    return end * total


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _solve(n, mass, scale):
    """Return the smallest k > `SCAN` with `middle_mass` at k + 1/2 below `mass`, by Newton's method in t."""
    size = float(n)
    slope = 4.0 * scale / (size * size)
    t = mass / slope
    t /= _smooth(size, t * t / 3.0 + 4.0)
    x = 0.0
    for _ in range(3):
        root = np.sqrt(t * t + 4.0)
        x = max(2.0 * size / (root * (root + t)), SCAN + 0.5)
        t = (size - 2.0 * x) / np.sqrt(x * (size - x))
        t += (mass - middle_mass(n, x, scale)) / (slope * _smooth(size, t * t + 4.0))
        t = max(t, 0.0)
    root = np.sqrt(t * t + 4.0)
    x = 2.0 * size / (root * (root + t))
    k = min(max(int(x + 0.5), SCAN + 1), n // 2)
    edge = np.rint(x + 0.5)
    if abs(x + 0.5 - edge) < x * (ROOT_ERROR + MASS_ERROR * np.sqrt(x)):
        k = max(int(edge) - 1, SCAN + 1)
        while k < n // 2 and middle_mass(n, k + 0.5, scale) >= mass:
            k += 1
    return k
