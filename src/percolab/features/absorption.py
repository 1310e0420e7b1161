"""Absorption: a concept's feature is silent on rows where the feature of a smaller concept inside it fires.

On edges: recall of the upper concept's feature on its rows outside the lower one, minus its recall inside.

On rows, where the concept's own F1 is at least 0.5: the share of its rows on which its feature is silent and an
absorber fires. Absorbers of a concept are the other features with F1 of at least 0.5 for a concept inside it of at
most half its size. Independent misses look the same; their expected share is the product of the two shares.

A concept's absorbers are also absorbers of all concepts above it. So for a feature and a row it fires on there is a
deepest concept over that row which the feature absorbs from. With the deepest one over all features, row by row, every
count is a sum over a subtree. Rows are independent of each other, so tasks are ranges of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from percolab.features import bits
from percolab.features.concepts import Concepts
from percolab.features.counting import TASKS_PER_THREAD, Matches, count_pairs, even_ranges
from percolab.features.firing import Firing, decode, place
from percolab.features.pairs import Pairs
from percolab.features.thresholds import GOOD
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.parallel import run


@dataclass(frozen=True, eq=False)
class Absorbers:
    """Where absorbers fire. Concepts are indices; of two on a row's path, the deeper one has the larger index."""

    #: (F+1,) the lowest concepts that feature f absorbs from are lowest[first[f] : first[f + 1]], increasing
    first: Ints
    lowest: Ints
    #: (n,) for each position, the deepest concept over it that a feature firing there absorbs from; -1: none
    deepest: Ints
    feature: Ints  #: (n,) the feature that absorbs from it
    second: Ints  #: (n,) the deepest concept over all other features


def on_edges(firing: Firing, concepts: Concepts, matches: Matches) -> Floats:
    """Return recall of the upper concept's feature outside minus inside each concept; NaN without an upper concept."""
    upper, size = concepts.upper, concepts.size
    feature = np.where(upper < 0, -1, matches.feature[upper])
    inside = count_pairs(firing, feature, concepts.start, concepts.stop)
    outside, room = matches.hits[upper] - inside, size[upper] - size
    edge = np.full(len(concepts), np.nan)
    known = feature >= 0
    edge[known] = outside[known] / room[known] - inside[known] / size[known]
    return edge


def find_absorbers(firing: Firing, concepts: Concepts, pairs: Pairs, threads: int) -> Absorbers:
    """Return which concepts each feature absorbs from, and the deepest such concept on every row."""
    feature = np.repeat(np.arange(firing.fired.size), np.diff(pairs.good_first))
    absorbed = _first_twice_as_large(concepts.upper, concepts.size)[pairs.good]
    absorbed = absorbed[np.lexsort((absorbed, feature))]
    # Only the innermost concepts of a feature count. In preorder the next concept lies inside a concept, if any does.
    innermost = absorbed >= 0
    innermost[:-1] &= (feature[1:] != feature[:-1]) | (absorbed[1:] >= concepts.end[absorbed[:-1]])
    member, lowest = feature[innermost], absorbed[innermost]
    first = np.searchsorted(member, np.arange(firing.fired.size + 1))
    where = deepest, by, second = tuple(np.full(firing.n_rows, -1, np.int64) for _ in range(3))
    common = first, lowest, concepts.start, concepts.stop, concepts.upper, firing, *where
    run([(_cover, (*ends, *common)) for ends in even_ranges(bits.words_for(firing.n_rows), threads)], threads)
    return Absorbers(first, lowest, deepest, by, second)


def on_rows(
    firing: Firing, concepts: Concepts, matches: Matches, absorbers: Absorbers, threads: int
) -> tuple[Floats, Floats]:
    """Return the share of rows absorbed and the share expected of independent misses; NaN where F1 is below 0.5."""
    under = np.bincount(absorbers.deepest + 1, minlength=len(concepts) + 1)
    total = np.concatenate([[0], np.cumsum(under[1:])])
    covered = total[concepts.end] - total[:-1]
    on_own, on_own_by_others = np.zeros(len(concepts), np.int64), np.zeros(len(concepts), np.int64)
    asked = matches.f1 >= GOOD
    where = absorbers.deepest, absorbers.feature, absorbers.second
    most = int(firing.fired.max())
    common = most, concepts.start, concepts.stop, matches.feature, firing, *where, on_own, on_own_by_others
    # Large concepts are next to each other in the list, so each task takes every `step`-th concept.
    step = TASKS_PER_THREAD * threads
    shares = (np.ascontiguousarray(np.flatnonzero(asked)[i::step]) for i in range(step))
    run([(_covered_by_own, (share, *common)) for share in shares], threads)
    size = concepts.size
    absorbed = covered - on_own  # where the concept's own feature is silent, absorbers are others
    silent, fires = (size - matches.hits) / size, (absorbed + on_own_by_others) / size
    return np.where(asked, absorbed / size, np.nan), np.where(asked, silent * fires, np.nan)


def deepest_latent(absorbers: Absorbers, concepts: Concepts, order: Ints) -> Ints:
    """Return `Absorbers.deepest` as latents, by row of the codes: position p is row order[p]."""
    latents = np.full(order.size, -1, np.int64)
    known = absorbers.deepest >= 0
    latents[order[known]] = concepts.latent[absorbers.deepest[known]]
    return latents


def _first_twice_as_large(upper: Ints, size: Ints) -> Ints:
    """Return, for each concept, the lowest concept above it with at least twice its rows, or -1."""
    above = upper.copy()
    small = np.arange(size.size)
    while small.size:
        small = small[(above[small] >= 0) & (size[above[small]] < 2 * size[small])]
        above[small] = upper[above[small]]
    return above


# ---------------------------------------------------------------------- kernels


@kernel
def _cover(w0, w1, absorbs_first, lowest, start, stop, upper, firing, deepest, feature, second):
    """Find the deepest and the second concept on the positions of words w0 … w1 - 1, one feature after another.

    A row outside the lowest concept that a feature absorbs from counts for the lowest concept above that contains it.
    """
    listed = np.empty(64 * (w1 - w0), np.int32)
    for f in range(firing.fired.size):
        if absorbs_first[f] == absorbs_first[f + 1]:
            continue
        positions, begin, end = firing.positions, firing.first[f], firing.first[f] + firing.fired[f]
        if firing.slot[f] >= 0:
            begin, end = 0, bits.list_positions(firing.words[firing.slot[f], w0:w1], listed)
            positions = listed
            listed[:end] += 64 * w0
        begin = place(positions, begin, end, 64 * w0)
        end = place(positions, begin, end, 64 * w1)
        for j in range(absorbs_first[f], absorbs_first[f + 1]):
            c = lowest[j]
            right = place(positions, begin, end, start[c])
            left = right - 1
            while c >= 0 and (left >= begin or right < end):
                while right < end and positions[right] < stop[c]:
                    _offer(positions[right], f, c, deepest, feature, second)
                    right += 1
                while left >= begin and positions[left] >= start[c]:
                    _offer(positions[left], f, c, deepest, feature, second)
                    left -= 1
                c = upper[c]


@kernel
def _offer(p, f, c, deepest, feature, second):
    """Update the deepest and the second concept on a row, which are of different features, by one feature's concept."""
    if feature[p] == f:
        deepest[p] = max(deepest[p], c)
    elif c > deepest[p]:
        second[p] = deepest[p]
        deepest[p], feature[p] = c, f
    elif c > second[p]:
        second[p] = c


@kernel
def _covered_by_own(asked, most, start, stop, best, firing, deepest, feature, second, on_own, by_others):
    """Count the rows where a concept's feature fires and any feature absorbs from it, and where any other one does."""
    positions = np.empty(most, np.int32)
    for c in asked:
        f = best[c]
        fires_on = positions[: firing.fired[f]]
        decode(f, firing, fires_on)
        for j in range(place(fires_on, 0, fires_on.size, start[c]), place(fires_on, 0, fires_on.size, stop[c])):
            p = fires_on[j]
            on_own[c] += deepest[p] >= c
            by_others[c] += (second[p] if feature[p] == f else deepest[p]) >= c
