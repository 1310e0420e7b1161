"""Concepts: the latents that differ enough from their parent and their sibling, as intervals of the given rows.

Most latents are one point away from their child, so a best match among all latents means little. In points a concept is
the top of a cluster, or a child of a latent both of whose children have enough rows. In documents it is a context with
enough positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.features.thresholds import SUMMARY_RATIO
from percolab.ground.arrays import Ints
from percolab.model.forest import Forest
from percolab.model.latent_groups import thinned


@dataclass(frozen=True, eq=False)
class Labels:
    """Which latents each row belongs to: row i is in latent l where ``first[l] <= label[i] < stop[l]``.

    The label of a point is its row of the forest. The label of a position of a document is its context, as a latent, or
    -1 for none: latents inside l have the numbers l … l + size(l) - 2. For questions about tokens, it is the row of
    the token.
    """

    forest: Forest
    label: Ints  #: (n,) label of each row, at least -1
    first: Ints  #: (n_latents,) first label of each latent
    stop: Ints  #: (n_latents,) one past its last label
    contexts: Ints | None = None  #: the latents that may be concepts, sorted; None: those of `Forest.concepts`
    place: Ints | None = None  #: (n,) of documents, document · length + position; None: rows are points
    length: int = 1  #: positions of a document

    def __len__(self) -> int:
        return self.label.size

    def take(self, rows: Ints) -> Labels:
        """Return the labels of some rows, in any order, repeats counted."""
        return replace(self, label=self.label[rows], place=None if self.place is None else self.place[rows])

    @cached_property
    def below(self) -> Ints:
        """(labels + 1,) for each number, how many rows have a smaller label."""
        return np.cumsum(np.bincount(self.label + 1, minlength=int(self.stop.max(initial=0)) + 1))

    def intervals(self, latents: Ints) -> tuple[Ints, Ints]:
        """Return the interval of each latent's rows when rows are sorted by label: the first, and one past the last."""
        return self.below[self.first[latents]], self.below[self.stop[latents]]

    @cached_property
    def sizes(self) -> Ints:
        """(n_latents,) how many rows each latent has."""
        return self.below[self.stop] - self.below[self.first]

    def above(self, latents: Ints) -> Ints:
        """Return the latent above each concept: its parent, or the nearest context above; -1 for none."""
        if self.contexts is None:
            return self.forest.latent_parent[latents]
        return self.forest.nearest_above(self.contexts)[np.searchsorted(self.contexts, latents)]


def by_row(forest: Forest, rows: Ints) -> Labels:
    """Return the labels of points: rows of the forest, in any order, repeats counted."""
    return Labels(forest, rows, forest.latent_start, forest.latent_start + forest.latent_size)


@dataclass(frozen=True, eq=False)
class Concepts:
    """The concepts of a forest, in preorder, over the given rows.

    Rows are numbered by *position*: their place when sorted by label. A concept is an interval of positions, and the
    concepts inside concept c are those from c + 1 to ``end[c]`` - 1.
    """

    latent: Ints  #: (C,) the latents, increasing
    start: Ints  #: (C,) first position
    stop: Ints  #: (C,) one past the last position
    upper: Ints  #: (C,) the nearest concept above, as an index into these columns; -1 where there is none
    end: Ints  #: (C,) one past the last concept inside
    #: (C,) whether summaries count it: at most 2/3 of the rows of the counted concept above, and not all rows
    summarised: NDArray[np.bool_]

    @property
    def size(self) -> Ints:
        """(C,) number of rows."""
        return self.stop - self.start

    def __len__(self) -> int:
        return self.latent.size


def find_concepts(labels: Labels, min_size: int, ratio: float) -> Concepts:
    """Return the concepts of the rows that have these labels."""
    forest, size = labels.forest, labels.sizes
    latent = _candidates(labels, size, min_size)
    if not latent.size:
        most = size.max(initial=0)
        raise ValueError(f"min_size must leave a concept: the largest has {most} of the rows, got {min_size}")
    latent = latent[thinned(forest, latent, size, ratio)]
    above, end = forest.nearest_above(latent), np.searchsorted(latent, latent + forest.latent_size[latent] - 1)
    upper = np.where(above < 0, -1, np.searchsorted(latent, above))
    counted = thinned(forest, latent, size, SUMMARY_RATIO) & (size[latent] < len(labels))
    return Concepts(latent, *labels.intervals(latent), upper, end, counted)


def _candidates(labels: Labels, size: Ints, min_size: int) -> Ints:
    """Return the latents of enough rows that may be concepts."""
    if labels.contexts is None:
        return labels.forest.concepts(min_size, 1, rows=labels.label)
    return labels.contexts[size[labels.contexts] >= min_size]


# ---------------------------------------------------------------------- intervals of rows


class Edges(NamedTuple):
    """The distinct ends of the concepts' intervals, and the index of each concept's ends among them.

    Indices are unsigned: numba then skips the test for indices from the end, and loops over them are vectorised.
    """

    at: Ints  #: (E,) increasing positions
    start: NDArray[np.uint32]  #: (C,) index of each concept's first position
    stop: NDArray[np.uint32]  #: (C,) index of one past its last
    bin: NDArray[np.uint32]  #: (n,) for each position, how many edges are not above it


@dataclass(frozen=True, eq=False)
class ConceptIntervals:
    """The concepts over the given rows, as intervals of rows sorted by label."""

    labels: Labels
    order: Ints  #: (n,) the rows of the codes sorted by label: position p is row order[p]
    concepts: Concepts
    edges: Edges


def find_truth(labels: Labels, min_size: int, ratio: float) -> ConceptIntervals:
    """Return the concepts of the rows that have these labels."""
    concepts = find_concepts(labels, min_size, ratio)
    edges, where = np.unique(np.concatenate([concepts.start, concepts.stop]), return_inverse=True)
    start, stop = where.astype(np.uint32).reshape(2, -1)
    bins = np.searchsorted(edges, np.arange(len(labels)), side="right").astype(np.uint32)
    return ConceptIntervals(labels, np.argsort(labels.label, kind="stable"), concepts, Edges(edges, start, stop, bins))
