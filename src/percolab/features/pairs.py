"""Pairs of a feature and a concept that matter: good matches, and features that could extend a concept's union.

The F1 of every feature with every concept is too much to keep. Once the best matches are known, it is computed again,
and only these pairs are kept.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.features.concepts import ConceptIntervals
from percolab.features.counting import Matches, even_ranges, feature_ranks, score_f1
from percolab.features.firing import Firing
from percolab.features.thresholds import GOOD, LEAST_RAISE, RECOVERED
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.parallel import Task, run

Table = NDArray[np.int32]

FIRST_ROOM = 1 << 14
SLACK = 1e-9  # slack of bounds in float64: an extra pair costs time, a missing pair would be an error


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a feature and a concept, sorted by feature, then concept."""

    candidate: Table  #: (P, 3) feature, concept and hits, where the feature could extend the concept's union
    #: (F+1,) the concepts that feature f matches with F1 of at least `GOOD` are those from good_first[f] on
    good_first: Ints
    good: Ints  #: these concepts, as indices
    recovering: Ints  #: (C,) number of features that recover each concept
    recovered: Ints  #: (F,) number of summarised concepts that each feature recovers


def find_pairs(firing: Firing, truth: ConceptIntervals, matches: Matches, threads: int) -> Pairs:
    """Return the pairs, in the time that counting takes.

    A feature can raise the F1 of a concept's union by δ only if it has at least δ (u + z) / 2 of its z rows, u being
    the rows that the best feature fires on, and if 2 z / (fired + z) is at least δ above the best F1. Later unions
    fire on more rows and have a higher F1, so a pair that fails here fails for good.
    """
    concepts, size = truth.concepts, truth.concepts.size
    spread = np.where(matches.feature < 0, 0, firing.fired[matches.feature]) + size
    least_hits = np.ceil(LEAST_RAISE / 2 * spread * (1 - SLACK)).astype(np.int64)
    most_fired = np.floor(2 * size / (matches.f1 + LEAST_RAISE) * (1 + SLACK)).astype(np.int64) - size
    most_fired[matches.feature < 0] = -1
    recovered = np.zeros(firing.fired.size, np.int64)
    ranges = even_ranges(firing.fired.size, threads)
    recovering = np.zeros((len(ranges), len(concepts)), np.int64)
    limits = least_hits, most_fired, matches.feature, concepts.summarised
    tables_of: list[list[tuple[Table, Table]]] = [[] for _ in ranges]
    tasks: list[Task] = [
        (_collect, (tables_of[i], *ends, firing, *truth.edges, size, *limits, recovering[i], recovered))
        for i, ends in enumerate(ranges)
    ]
    run(tasks, threads)
    candidate, good = (np.concatenate(tables) for tables in zip(*itertools.chain(*tables_of), strict=True))
    return Pairs(
        candidate=candidate,
        good_first=np.concatenate([[0], np.cumsum(np.bincount(good[:, 0], minlength=firing.fired.size))]),
        good=good[:, 1].astype(np.int64),
        recovering=recovering.sum(axis=0),
        recovered=recovered,
    )


def _collect(tables: list[tuple[Table, Table]], lo: int, hi: int, *columns: Any) -> None:
    """Append tables of candidates (feature, concept, hits) and of good matches (feature, concept)."""
    room = max(FIRST_ROOM, columns[5].size)
    while lo < hi:
        candidate, good = np.empty((room, 3), np.int32), np.empty((room, 2), np.int32)
        lo, candidates, goods = _write_pairs(lo, hi, *columns, candidate, good)
        tables.append((candidate[:candidates].copy(), good[:goods].copy()))
        room *= 2


@kernel
def _write_pairs(
    lo, hi, firing, edges, start, stop, bin_of, size, least_hits, most_fired, best, counted,
    recovering, recovered, candidate, good,
):  # fmt: skip
    """Write pairs of features from `lo` on while there is room for one more; return the feature it stopped at."""
    before, below = np.empty(firing.words.shape[1] + 1, np.int32), np.empty(edges.size, np.int32)
    hits, f1 = np.empty(size.size, np.int32), np.empty(size.size)
    candidates = goods = 0
    for f in range(lo, hi):
        if firing.fired[f] == 0:
            continue
        if candidate.shape[0] - max(candidates, goods) < size.size:
            return f, candidates, goods
        feature_ranks(f, firing, edges, bin_of, before, below)
        score_f1(firing.fired[f], size, start, stop, below, hits, f1)
        for c in range(size.size):
            if f1[c] >= GOOD:
                good[goods, 0], good[goods, 1] = f, c
                goods += 1
                if f1[c] > RECOVERED:
                    recovering[c] += 1
                    recovered[f] += counted[c]
            if hits[c] >= least_hits[c] and firing.fired[f] <= most_fired[c] and best[c] != f:
                candidate[candidates, 0], candidate[candidates, 1], candidate[candidates, 2] = f, c, hits[c]
                candidates += 1
    return hi, candidates, goods
