"""Splitting: how many features it takes to cover a concept, by a greedy union.

Start with the best feature; add the feature that raises F1 of the union most, the lowest among equals; stop when the
raise is below `LEAST_RAISE`. The result is exact: a candidate is left out only if a bound shows that it cannot win.

Many concepts have the same best feature, and then often the same second one. Each round adds one feature to
every union. Concepts with the same union are handled together: a feature is counted once, between their edges.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse

from percolab.features import bits
from percolab.features.concepts import Concepts
from percolab.features.counting import TASKS_PER_THREAD, Matches
from percolab.features.firing import Firing, place
from percolab.features.pairs import SLACK, Pairs
from percolab.features.thresholds import LEAST_RAISE
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.parallel import Task, run


def unions(firing: Firing, concepts: Concepts, matches: Matches, pairs: Pairs, threads: int) -> tuple[Ints, Floats]:
    """Return, for every concept, the number of features in its union (0 if the best F1 is 0) and the union's F1."""
    f1, hits, chosen = matches.f1.copy(), matches.hits.copy(), matches.feature
    held = np.where(chosen >= 0, firing.fired[chosen], 0)
    taken, members = np.zeros(len(concepts), np.int64), np.empty((len(concepts), 0), np.int64)
    feature, concept, within = pairs.candidate.T
    by_concept = scipy.sparse.coo_array((within, (feature, concept)), shape=(firing.fired.size, len(concepts))).tocsc()
    candidate = np.column_stack([by_concept.indices, by_concept.data])
    first, count = by_concept.indptr[:-1].astype(np.int64), np.diff(by_concept.indptr).astype(np.int64)
    while True:
        taken += chosen >= 0
        members = np.sort(np.column_stack([members, chosen]), axis=1)  # the order of features does not matter
        growing = np.flatnonzero((chosen >= 0) & (count > 0))
        if not growing.size:
            return taken, f1
        growing, starts = _by_union(growing, members)
        members_of = members[growing[starts[:-1]]]
        common = *_edges(growing, starts, concepts), concepts.size[growing], firing, candidate
        chosen = np.full(len(concepts), -1, np.int64)
        state = tuple(column[growing] for column in (first, count, hits, held, f1, chosen))
        work = np.maximum.reduceat(count[growing], starts[:-1])
        marks = _even_shares(work, TASKS_PER_THREAD * threads)
        tasks: list[Task] = [
            (_grow, (starts[lo : hi + 1], members_of[lo:hi], *common, *state)) for lo, hi in pairwise(marks)
        ]
        run(tasks, threads)
        for column, grown in zip((count, hits, held, f1, chosen), state[1:], strict=True):
            column[growing] = grown


def _by_union(growing: Ints, members: Ints) -> tuple[Ints, Ints]:
    """Return the concepts sorted by the members of their unions, and the first concept of each union; then the end."""
    growing = growing[np.lexsort(members[growing].T)]
    same = (members[growing[1:]] == members[growing[:-1]]).all(axis=1)
    return growing, np.concatenate([[0], 1 + np.flatnonzero(~same), [growing.size]])


def _edges(growing: Ints, starts: Ints, concepts: Concepts) -> tuple[Ints, Ints, Ints]:
    """Return the edges of each union's concepts, two per concept, increasing; and the left and right edge of each."""
    union = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    edges = np.concatenate([concepts.start[growing], concepts.stop[growing]])
    order = np.lexsort((edges, np.tile(union, 2)))
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    left, right = rank.reshape(2, -1) - 2 * starts[union]
    return edges[order], left, right


def _even_shares(work: Ints, n_tasks: int) -> Ints:
    """Return marks that cut a list of amounts of work into at most `n_tasks` tasks of about equal work."""
    done = np.cumsum(work)
    return np.unique([0, *np.searchsorted(done, np.arange(1, n_tasks) * (done[-1] / n_tasks)), work.size])


# ---------------------------------------------------------------------- kernels


@kernel
def join(union, feature, firing):
    """Add a feature's rows to the union."""
    if firing.slot[feature] >= 0:
        row = firing.words[firing.slot[feature]]
        for w in range(union.size):
            union[w] |= row[w]
    else:
        for j in range(firing.first[feature], firing.first[feature] + firing.fired[feature]):
            bits.add(union, firing.positions[j])


@kernel
def new_in(union, feature, start, stop, firing):
    """Return the number of positions of [start, stop) where the feature fires and that are not in the union."""
    if firing.slot[feature] >= 0:
        return bits.count_outside(firing.words[firing.slot[feature]], union, start, stop)
    lo = place(firing.positions, firing.first[feature], firing.first[feature] + firing.fired[feature], start)
    hi = place(firing.positions, lo, firing.first[feature] + firing.fired[feature], stop)
    new = 0
    for j in range(lo, hi):
        new += not bits.has(union, firing.positions[j])
    return new


@kernel
def _new_below(union, feature, edges, firing, below):
    """Write, for each edge, the number of positions below it where the feature fires and that are not in the union."""
    for k in range(1, edges.size):
        below[k] = below[k - 1] + new_in(union, feature, edges[k - 1], edges[k], firing)


@kernel
def _grow(starts, members, edges, left, right, size, firing, candidate, begin, count, hits, held, f1, chosen):
    """Grow unions by one feature each; concepts starts[g] … starts[g + 1] - 1 share union g."""
    union, state = np.empty((firing.n_rows + 63) // 64, np.uint64), (candidate, begin, count, hits, held, f1, chosen)
    for g in range(starts.size - 1):
        union[:] = bits.ZERO
        for f in members[g]:
            join(union, f, firing)
        part = edges[2 * starts[g] : 2 * starts[g + 1]]
        _grow_together(starts[g], starts[g + 1], part, left, right, union, size, firing, *state)


@kernel
def _grow_together(lo, hi, edges, left, right, union, size, firing, candidate, begin, count, hits, held, f1, chosen):
    """Choose the feature that each of concepts lo … hi - 1 adds to their union; write hits, rows and F1 of the new one.

    A feature can raise F1 by δ only if δ (u + z) / 2 of its rows in the concept are new to the union. New rows get
    fewer and the union larger, so a candidate that fails is dropped for good. Other bounds hold for one round: at most
    min(z, hits + new) hits, and at least as many rows as now, as the feature fires on, and as it gains inside.
    """
    below, new = np.empty(edges.size, np.int64), np.empty(hi - lo, np.int64)  # new, -1: the feature cannot win
    read, write = np.empty(hi - lo, np.int64), np.empty(hi - lo, np.int64)
    now, had, rows = np.empty(hi - lo), np.empty(hi - lo, np.int64), held[lo]
    for m in range(hi - lo):
        read[m], write[m], now[m], had[m] = begin[lo + m], begin[lo + m], f1[lo + m], hits[lo + m]
    below[0] = 0
    f = _next_feature(lo, candidate, begin, count, read)
    while f >= 0:
        can_win = False
        for m in range(hi - lo):
            new[m] = -1
            if read[m] < begin[lo + m] + count[lo + m] and candidate[read[m], 0] == f:
                most = candidate[read[m], 1]
                read[m] += 1
                if most >= _least_new(rows, size[lo + m]):
                    candidate[write[m], 0], candidate[write[m], 1] = f, most
                    write[m] += 1
                    bound = 2.0 * min(size[lo + m], had[m] + most) / (max(rows, firing.fired[f]) + size[lo + m])
                    if _wins(bound, now[m], f1[lo + m]):
                        new[m], can_win = most, True
        if can_win:
            can_win = False
            _new_below(union, f, edges, firing, below)
            for m in range(hi - lo):
                if new[m] >= 0:
                    inside = below[right[lo + m]] - below[left[lo + m]]
                    candidate[write[m] - 1, 1] = inside
                    write[m] -= 1 if inside < _least_new(rows, size[lo + m]) else 0
                    bound = 2.0 * (had[m] + inside) / (max(rows + inside, firing.fired[f]) + size[lo + m])
                    wins = _wins(bound, now[m], f1[lo + m])
                    new[m] = inside if wins else -1
                    can_win |= wins
        if can_win:
            outside = new_in(union, f, 0, edges[0], firing)
            outside += new_in(union, f, edges[-1], firing.n_rows, firing)
            total = rows + below[-1] + outside
            for m in range(hi - lo):
                reached = 2.0 * (had[m] + new[m]) / (total + size[lo + m])
                if new[m] >= 0 and _wins(reached, now[m], f1[lo + m]):
                    f1[lo + m], chosen[lo + m] = reached, f
                    hits[lo + m], held[lo + m] = had[m] + new[m], total
        f = _next_feature(lo, candidate, begin, count, read)
    for m in range(hi - lo):
        count[lo + m] = write[m] - begin[lo + m]


@kernel
def _least_new(rows, size):
    """Return the fewest new rows of a concept by which a feature can raise the F1 of its union."""
    return LEAST_RAISE / 2 * (1 - SLACK) * (rows + size)


@kernel
def _next_feature(lo, candidate, begin, count, read):
    """Return the lowest feature that any concept from `lo` on has not read yet, or -1."""
    lowest = -1
    for m in range(read.size):
        if read[m] < begin[lo + m] + count[lo + m] and (lowest < 0 or candidate[read[m], 0] < lowest):
            lowest = candidate[read[m], 0]
    return lowest


@kernel
def _wins(new, f1, best):
    """Return whether an F1, or a bound on it, is a large enough raise and above the best; the first of equals wins."""
    return new - f1 >= LEAST_RAISE and new > best
