"""The truth that features are scored against: the concepts over the rows that are there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.features.concepts import Concepts, find_concepts
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
class Truth:
    """A forest, the rows of it that are there, and their concepts."""

    forest: Forest
    rows: Ints
    """(n,) the forest's row of each row of the codes"""
    order: Ints
    """(n,) the rows of the codes in leaf order: position p is row order[p]"""
    concepts: Concepts
    edges: Edges


def find_truth(forest: Forest, rows: Ints, min_size: int, ratio: float) -> Truth:
    """Return the concepts of a forest over some rows of it, any order, repeats counted."""
    concepts = find_concepts(forest, rows, min_size, ratio)
    edges, where = np.unique(np.concatenate([concepts.start, concepts.stop]), return_inverse=True)
    start, stop = where.astype(np.uint32).reshape(2, -1)
    bins = np.searchsorted(edges, np.arange(rows.size), side="right").astype(np.uint32)
    return Truth(forest, rows, np.argsort(rows, kind="stable"), concepts, Edges(edges, start, stop, bins))
