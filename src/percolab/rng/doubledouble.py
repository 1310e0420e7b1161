"""Numbers of 106 bits as unevaluated sums of two doubles (Dekker 1971): the few operations that `splitting` needs."""

from __future__ import annotations

import numpy as np

from percolab.ground.compiled import kernel


@kernel
def two_sum(a, b):
    """Return a + b rounded, and what rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel
def _halves(a):
    """Return two doubles of at most 26 bits each whose sum is a."""
    scaled = 134217729.0 * a
    high = scaled - (scaled - a)
    return high, a - high


@kernel
def two_product(a, b):
    """Return a · b rounded, and what rounding lost."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def multiply(a, b):
    """Return the product of two pairs."""
    high, low = two_product(a[0], b[0])
    return two_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


@kernel
def divide(a, b):
    """Return the quotient of two pairs."""
    high = a[0] / b[0]
    back = multiply((high, 0.0), b)
    return two_sum(high, ((a[0] - back[0]) + (a[1] - back[1])) / b[0])


@kernel
def root(a):
    """Return the square root of a positive pair."""
    high = np.sqrt(a[0])
    square = two_product(high, high)
    return two_sum(high, ((a[0] - square[0]) + (a[1] - square[1])) / (2.0 * high))
