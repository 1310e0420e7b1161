"""The truth that features are scored against: the concepts over the rows that are there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.features.concepts import Concepts, Labels, find_concepts
from percolab.model.forest import Forest

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Edges:
    """The distinct ends of the concepts' intervals, and where each concept's are among them.

    Indices are unsigned: numba then asks of none whether it counts from the end, and loops over them run in lanes.
    """

    edges: Ints
    """(E,) increasing positions"""
    start: NDArray[np.uint32]
    """(C,) index of each concept's first position"""
    stop: NDArray[np.uint32]
    """(C,) index of one past its last"""
    bin: NDArray[np.uint32]
    """(n,) for each position, how many edges are not above it"""


@dataclass(frozen=True, eq=False)
class ConceptIntervals:
    """The concepts over the rows that are there, as intervals of rows sorted by label."""

    labels: Labels
    order: Ints
    """(n,) the rows of the codes sorted by label: position p is row order[p]"""
    concepts: Concepts
    edges: Edges

    @property
    def forest(self) -> Forest:
        """The hierarchy."""
        return self.labels.forest


def find_truth(labels: Labels, min_size: int, ratio: float) -> ConceptIntervals:
    """Return the concepts of the rows that have these labels."""
    concepts = find_concepts(labels, min_size, ratio)
    edges, where = np.unique(np.concatenate([concepts.start, concepts.stop]), return_inverse=True)
    start, stop = where.astype(np.uint32).reshape(2, -1)
    bins = np.searchsorted(edges, np.arange(len(labels)), side="right").astype(np.uint32)
    return ConceptIntervals(labels, np.argsort(labels.label, kind="stable"), concepts, Edges(edges, start, stop, bins))
