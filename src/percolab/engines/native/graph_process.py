"""The random graph process: bonds are added one by one between uniform pairs of points, at any mean degree.

Every pair of n points is bonded with probability c/n, and the bonds are added in uniform order (Erdős and Rényi 1960).
This is percolation on the complete graph, the mean-field model itself: below c = 1 all clusters are small, at c = 1
their sizes are critical, above it one of them is a giant. A bond that joins two clusters merges them and makes a
latent. A bond inside a cluster closes a cycle: it changes neither clusters nor latents and is kept separately, with the
latent that was the top of the cluster when the bond was added.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from percolab.engines.merges import group_of, lay_out
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import multiply_high
from percolab.model.forest import Forest
from percolab.rng import philox

_DIGITS = 60  #: Decimal digits for the one probability computed from factorials: terms of 10^24 and more cancel in it.
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_HASH = np.uint64(0x9E3779B97F4A7C15)


def grow_graph(n: int, mean_degree: float, key: np.uint64) -> Forest:
    """Sample the random graph process on n points and return its clusters, latents, bonds and extra bonds.

    There are Binomial(n(n-1)/2, c/n) bonds: distinct pairs, uniform, in uniform order. The bond that merges two
    clusters has its first end on the left. Clusters are numbered by their first point. Near-linear time; some 100 bytes
    for each point and 30 for each bond.

    Parameters
    ----------
    n : number of points
    mean_degree : c, the mean number of bonds of a point, up to a relative 1/n
    key : seed of the graph
    """
    first, second = draw_pairs(n, bond_count(n, mean_degree, key), key)
    merges = np.empty((n, 2), np.int64)
    ends = np.empty((n, 2), np.int64)
    below = np.empty(n, np.int64)
    extra_merge = np.empty(first.size, np.int64)
    group, top = np.arange(n), np.arange(n)
    n_merges = _merge(first, second, group, top, merges, ends, below, extra_merge)
    _settle(group)
    size = np.bincount(group, minlength=n)
    founders = np.flatnonzero(group == np.arange(n))  # the lowest point represents its group
    order = np.lexsort((founders, -size[founders]))
    start = np.concatenate([[0], np.cumsum(size[founders[order]])])
    row, (latent, first_row, left_size) = np.empty(n, np.int64), np.empty((3, n_merges), np.int64)
    bond = np.empty((n_merges, 2), np.int64)
    tops = top[founders[order]]
    single, last = np.flatnonzero(tops < n), np.flatnonzero(tops >= n)
    row[tops[single]] = start[single]
    latent[tops[last] - n], first_row[tops[last] - n] = start[last] - last, start[last]
    lay_out(merges, ends, below, row, latent, first_row, left_size, bond)
    point_id = np.empty(n, np.int64)
    point_id[row] = np.arange(n)
    closing = np.flatnonzero(extra_merge >= 0)
    extra_bond = np.column_stack([row[first[closing]], row[second[closing]]])
    extra_latent = latent[extra_merge[closing]]
    by_cluster = np.argsort(np.searchsorted(start, extra_bond[:, 0], side="right"), kind="stable")
    return Forest(
        start, order.astype(np.int64), point_id, left_size, bond, extra_bond[by_cluster], extra_latent[by_cluster]
    )


# ---------------------------------------------------------------------- how many bonds


def bond_count(n: int, mean_degree: float, key: np.uint64) -> int:
    """Draw a Binomial(n(n-1)/2, c/n) number, by inverting its distribution outward from the mode.

    The probability of the mode is computed in decimals and rounded once; its neighbours follow by ratios. So the law is
    exact to about 10^(-13), and the number is the same on every machine. Time grows with the standard deviation.
    """
    pairs = n * (n - 1) // 2
    chance = min(1.0, mean_degree / n)
    if pairs == 0 or chance == 0:
        return 0
    if chance == 1:
        return pairs
    mode = min(pairs, int((pairs + 1) * Decimal(chance)))
    bits, _ = philox.block(np.uint64(0), 0, philox.GRAPH, key)
    return int(_outward(pairs, chance, mode, _probability(pairs, chance, mode), philox.uniform(np.uint64(bits))))


@lru_cache
def _probability(pairs: int, chance: float, count: int) -> float:
    """Return the probability of `count` successes of `pairs`, in decimal arithmetic, rounded once."""
    with localcontext() as context:
        context.prec = _DIGITS
        p = Decimal(chance)
        log = _log_factorial(pairs) - _log_factorial(count) - _log_factorial(pairs - count)
        return float((log + count * p.ln() + (pairs - count) * (1 - p).ln()).exp())


def _log_factorial(m: int) -> Decimal:
    """Return ln m!: Stirling's series from 1,000 on, where eight terms leave 10^(-45), and a sum below."""
    if m < 1000:
        return sum((Decimal(k).ln() for k in range(2, m + 1)), Decimal(0))
    x = Decimal(m)
    bernoulli = ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510))
    series = sum(
        (Decimal(a) / (b * 2 * k * (2 * k - 1) * x ** (2 * k - 1)) for k, (a, b) in enumerate(bernoulli, 1)), Decimal(0)
    )
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
    return (x + Decimal("0.5")) * x.ln() - x + two_pi.ln() / 2 + series


@kernel
def _outward(pairs, chance, mode, at_mode, u):
    """Return the outcome at which the sum of probabilities, added outward from the mode, exceeds u."""
    odds = chance / (1.0 - chance)
    up, down, above, below = mode, mode, at_mode, at_mode
    u -= at_mode
    while u >= 0.0:
        if up == pairs and down == 0:
            return mode  # only rounding errors of the total probability are left
        if up < pairs:
            above *= (pairs - up) / (up + 1.0) * odds
            up += 1
            u -= above
            if u < 0.0:
                return up
        if down > 0:
            below *= down / (pairs - down + 1.0) / odds
            down -= 1
            u -= below
            if u < 0.0:
                return down
        if above + below == 0.0:
            return mode
    return mode


# ---------------------------------------------------------------------- which bonds


def draw_pairs(n: int, count: int, key: np.uint64) -> tuple[Ints, Ints]:
    """Draw `count` distinct pairs of different points: uniform, in uniform order, and so are the two ends of each."""
    first, second = np.empty(count, np.int64), np.empty(count, np.int64)
    room = 64
    while room < 2 * count:
        room *= 2
    _draw_distinct(n, key, np.full(room, _EMPTY), first, second)
    return first, second


@kernel
def _draw_distinct(n, key, seen, first, second):
    """Fill distinct pairs: the pairs that counters 1, 2, … give, without those that came before."""
    mask = np.uint64(seen.size - 1)
    index = np.uint64(0)
    filled = 0
    while filled < first.size:
        index += np.uint64(1)
        a_bits, b_bits = philox.block(index, 0, philox.GRAPH, key)
        a = np.int64(multiply_high(a_bits, np.uint64(n)))
        b = np.int64(multiply_high(b_bits, np.uint64(n - 1)))
        b += b >= a
        name = np.uint64(min(a, b)) * np.uint64(n) + np.uint64(max(a, b))
        at = (name * _HASH) >> np.uint64(20) & mask
        while seen[at] != _EMPTY and seen[at] != name:
            at = (at + np.uint64(1)) & mask
        if seen[at] == _EMPTY:
            seen[at] = name
            first[filled], second[filled] = a, b
            filled += 1


# ---------------------------------------------------------------------- clusters and latents


@kernel
def _merge(first, second, group, top, merges, ends, below, extra_merge):
    """Add the bonds in order; return the number of merges.

    `group` leads every point to the lowest point of its group, and `top` gives a group's node: a point as itself, merge
    m as n + m. A merge gets its two nodes, the bond's ends and the number of points below it. A bond inside a group
    gets the top merge of the group in `extra_merge`; other bonds get -1. Linking to the lower point with path halving
    costs O(log n) per bond at worst, and next to nothing on average.
    """
    n, count = group.size, 0
    for t in range(first.size):
        a, b = group_of(first[t], group), group_of(second[t], group)
        if a == b:
            extra_merge[t] = top[a] - n
            continue
        extra_merge[t] = -1
        merges[count, 0], merges[count, 1] = top[a], top[b]
        ends[count, 0], ends[count, 1] = first[t], second[t]
        below[count] = (below[top[a] - n] if top[a] >= n else 1) + (below[top[b] - n] if top[b] >= n else 1)
        low, high = min(a, b), max(a, b)
        group[high] = low
        top[low] = n + count
        count += 1
    return count


@kernel
def _settle(group):
    """Point every entry directly to the lowest point of its group, in order: lower points are settled first."""
    for point in range(group.size):
        group[point] = group[group[point]]
