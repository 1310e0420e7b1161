"""Matches: F1 of every feature against every concept, from exact counts.

A concept is an interval of positions, so a feature's count in it is a difference of two ranks: a histogram of firing
rows over the concepts' edges and its prefix sums. O(firings + features * concepts) in all, for any depth.
F1 = 2 hits / (fired + size), one division in float64. Ties go to the lowest feature and the lowest latent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from percolab.features import bits
from percolab.features.concepts import ConceptIntervals
from percolab.features.firing import Firing, count_in
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.parallel import Task, run

TASKS_PER_THREAD = 8


@dataclass(frozen=True, eq=False)
class Matches:
    """The best match of every concept and of every feature; -1 if every F1 is 0."""

    feature: Ints  #: (C,) best feature of each concept
    f1: Floats  #: (C,) its F1
    hits: Ints  #: (C,) rows of the concept where the feature fires
    concept: Ints  #: (F,) best concept of each feature, an index
    feature_f1: Floats  #: (F,) its F1
    feature_hits: Ints  #: (F,) rows of the concept where the feature fires
    purity: Floats  #: (F,) best F1 over the concepts that summaries count


def even_ranges(count: int, threads: int) -> list[tuple[int, int]]:
    """Return ranges of features, or of any `count` items, one range per task; no range is empty."""
    tasks = min(count, 1 if threads == 1 else TASKS_PER_THREAD * threads)
    marks = np.linspace(0, count, tasks + 1).astype(np.int64)
    return [(int(lo), int(hi)) for lo, hi in pairwise(marks)]


def match(firing: Firing, truth: ConceptIntervals, threads: int) -> Matches:
    """Return the best feature of every concept and the best concept of every feature."""
    concepts = truth.concepts
    n_features, n_concepts = firing.fired.size, len(concepts)
    ranges = even_ranges(n_features, threads)
    f1 = np.zeros((len(ranges), n_concepts))
    feature = np.full((len(ranges), n_concepts), -1, np.int64)
    concept, feature_f1, purity = np.full(n_features, -1, np.int64), np.zeros(n_features), np.zeros(n_features)
    common = firing, *truth.edges, concepts.size, concepts.summarised
    tasks: list[Task] = [
        (_match, (*ends, *common, f1[i], feature[i], concept, feature_f1, purity)) for i, ends in enumerate(ranges)
    ]
    run(tasks, threads)
    best = np.argmax(f1, axis=0)  # the first range among equals has the lowest feature
    best_feature, best_f1 = (column[best, np.arange(n_concepts)] for column in (feature, f1))
    hits = count_pairs(firing, best_feature, concepts.start, concepts.stop)
    matched = np.where(concept < 0, -1, np.arange(n_features))
    feature_hits = count_pairs(firing, matched, concepts.start[concept], concepts.stop[concept])
    return Matches(best_feature, best_f1, hits, concept, feature_f1, feature_hits, purity)


def count_pairs(firing: Firing, feature: Ints, start: Ints, stop: Ints) -> Ints:
    """Return, for pairs of a feature and an interval, the number of positions where it fires; 0 for feature -1."""
    hits = np.zeros(feature.size, np.int64)
    _count_pairs(feature, start, stop, firing, hits)
    return hits


# ---------------------------------------------------------------------- kernels


@kernel
def _count_pairs(feature, start, stop, firing, hits):
    for i in range(feature.size):
        if feature[i] >= 0:
            hits[i] = count_in(feature[i], start[i], stop[i], firing)


@kernel
def feature_ranks(feature, firing, edges, bin_of, before, out):
    """Write, for each edge, how many firing positions are below it; `before` is scratch."""
    if firing.slot[feature] >= 0:
        bits.ranks(firing.words[firing.slot[feature]], edges, before, out)
        return
    out[:] = 0
    for j in range(firing.first[feature], firing.first[feature] + firing.fired[feature]):
        at = bin_of[firing.positions[j]]
        if at < out.size:  # a position beyond the last edge is below no edge
            out[at] += 1
    total = 0
    for j in range(out.size):
        total += out[j]
        out[j] = total


@kernel
def score_f1(fired, size, start, stop, below, hits, f1):
    """Write the hits and the F1 of one feature against all concepts, from its ranks."""
    for c in range(size.size):
        hits[c] = below[stop[c]] - below[start[c]]
        f1[c] = 2.0 * hits[c] / (fired + size[c])


@kernel
def _match(lo, hi, firing, edges, start, stop, bins, size, counted, best_f1, best_feature, concept, feature_f1, purity):
    before, below = np.empty(firing.words.shape[1] + 1, np.int32), np.empty(edges.size, np.int32)
    hits, f1 = np.empty(size.size, np.int32), np.empty(size.size)
    for f in range(lo, hi):
        if firing.fired[f] == 0:
            continue
        feature_ranks(f, firing, edges, bins, before, below)
        score_f1(firing.fired[f], size, start, stop, below, hits, f1)
        for c in range(size.size):
            if f1[c] > best_f1[c]:
                best_f1[c] = f1[c]
                best_feature[c] = f
        for c in range(size.size):
            if f1[c] > feature_f1[f]:
                feature_f1[f] = f1[c]
                concept[f] = c
            if counted[c] and f1[c] > purity[f]:
                purity[f] = f1[c]
