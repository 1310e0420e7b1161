"""Splitting: how many features it takes to say a concept, by a greedy union.

Start with the best feature; add, of all features, the one that raises F1 of the union most, ties to the lowest; stop
when the raise is below 0.03. Exact: candidates are left out only where a bound shows that they cannot win.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from percolab.features import bits
from percolab.features.concepts import Concepts
from percolab.features.counting import Matches
from percolab.features.firing import Firing, place
from percolab.features.pairs import LEAST_RAISE, Pairs
from percolab.ground.compiled import kernel
from percolab.ground.parallel import Task, run

TOGETHER = 16
"""Concepts whose unions grow together: while a feature's rows are in the cache, all of them look at it."""


def unions(
    firing: Firing, concepts: Concepts, matches: Matches, pairs: Pairs, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return, for every concept, how many features its union takes (0 if the best F1 is 0) and the F1 it reaches."""
    taken, f1 = (matches.feature >= 0).astype(np.int64), matches.f1.copy()
    feature, concept, hits = pairs.candidate.T
    # Concepts with many candidates together: they share most of them.
    count = np.bincount(concept, minlength=len(concepts))
    rank = np.empty(len(concepts), np.int64)
    rank[np.argsort(-count, kind="stable")] = np.arange(len(concepts))
    order = np.argsort(rank[concept] // TOGETHER, kind="stable")  # within a batch by feature, as they were
    table = np.column_stack([feature, rank[concept] % TOGETHER, hits, concept])[order]
    marks = np.searchsorted((rank[concept] // TOGETHER)[order], np.arange(-(-np.count_nonzero(count) // TOGETHER) + 1))
    given = concepts.start, concepts.stop, matches.feature, matches.hits
    tasks: list[Task] = [
        (_grow, (table[lo:hi], *given, firing.n_rows, *firing.columns, taken, f1)) for lo, hi in pairwise(marks)
    ]
    run(tasks, threads)
    return taken, f1


# ---------------------------------------------------------------------- kernels


@kernel
def join(union, feature, fired, slot, first, positions, words):
    """Add a feature's rows to the union."""
    if slot[feature] >= 0:
        row = words[slot[feature]]
        for w in range(union.size):
            union[w] |= row[w]
    else:
        for j in range(first[feature], first[feature] + fired[feature]):
            bits.add(union, positions[j])


@kernel
def new_in(union, feature, start, stop, fired, slot, first, positions, words):
    """Return how many positions of [start, stop) the feature fires on and the union does not have."""
    if slot[feature] >= 0:
        return bits.count_outside(words[slot[feature]], union, start, stop)
    lo = place(positions, first[feature], first[feature] + fired[feature], start)
    hi = place(positions, lo, first[feature] + fired[feature], stop)
    new = 0
    for j in range(lo, hi):
        new += not bits.has(union, positions[j])
    return new


@kernel
def _grow(table, start, stop, best, best_hits, n_rows, fired, slot, first, positions, words, taken, reached):
    """Grow the unions of up to `TOGETHER` concepts, a feature a round.

    `table` lists their candidates: feature, which of the concepts here, hits, concept. Bounds: the union will have at
    most min(z, hits + h) hits, h being the feature's own or, once counted, its new ones, and hold at least as many
    rows as it does now, as the feature fires on, and as it gains inside.
    """
    union = np.zeros((TOGETHER, (n_rows + 63) // 64), np.uint64)
    concept = np.full(TOGETHER, -1, np.int64)
    hits, held = np.zeros(TOGETHER, np.int64), np.zeros(TOGETHER, np.int64)
    for j in range(table.shape[0]):
        m, c = table[j, 1], table[j, 3]
        if concept[m] < 0:
            concept[m] = c
            join(union[m], best[c], fired, slot, first, positions, words)
            hits[m], held[m] = best_hits[c], fired[best[c]]
    growing = concept >= 0
    chosen, f1 = np.empty(TOGETHER, np.int64), np.empty(TOGETHER)
    new_hits, new_rows = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    while growing.any():
        chosen[:] = -1
        for j in range(table.shape[0]):
            f, m, c = table[j, 0], table[j, 1], table[j, 3]
            if not growing[m]:
                continue
            lo, hi = start[c], stop[c]
            size = hi - lo
            bound = 2.0 * min(size, hits[m] + table[j, 2]) / (max(held[m], fired[f]) + size)
            if _loses(bound, f, reached[c], f1[m], chosen[m]):
                continue
            inside = new_in(union[m], f, lo, hi, fired, slot, first, positions, words)
            bound = 2.0 * (hits[m] + inside) / (max(held[m] + inside, fired[f]) + size)
            if _loses(bound, f, reached[c], f1[m], chosen[m]):
                continue
            rows = inside + new_in(union[m], f, 0, lo, fired, slot, first, positions, words)
            rows += new_in(union[m], f, hi, n_rows, fired, slot, first, positions, words)
            new = 2.0 * (hits[m] + inside) / (held[m] + rows + size)
            if not _loses(new, f, reached[c], f1[m], chosen[m]):
                chosen[m], f1[m], new_hits[m], new_rows[m] = f, new, inside, rows
        for m in range(TOGETHER):
            if chosen[m] < 0:
                growing[m] = False
                continue
            join(union[m], chosen[m], fired, slot, first, positions, words)
            hits[m] += new_hits[m]
            held[m] += new_rows[m]
            reached[concept[m]] = f1[m]
            taken[concept[m]] += 1


@kernel
def _loses(new, feature, f1, best_f1, best):
    """Return whether an F1, or a bound on it, is no raise to speak of or no better than the best so far."""
    if new - f1 < LEAST_RAISE:
        return True
    return best >= 0 and (new < best_f1 or (new == best_f1 and feature > best))
