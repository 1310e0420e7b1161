"""Concepts: the latents that can be told from their parent and their sibling, as intervals of the rows that are there.

Most latents are one point away from their child, so a best match among all of them says little. A concept is the top
of a cluster, or a child of a latent both of whose children have enough rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.model.concepts import thin
from percolab.model.forest import Forest

Ints = NDArray[np.int64]

SUMMARY_RATIO = 2 / 3
"""Of the concepts listed, a summary keeps those with at most this share of the rows of the nearest kept one above."""


@dataclass(frozen=True, eq=False)
class Concepts:
    """The concepts of a forest, in preorder, over the rows that are there.

    Rows are numbered by *position*: their place when sorted in leaf order. A concept is an interval of positions, and
    the concepts inside concept c are those from c + 1 to ``end[c]`` - 1.
    """

    latent: Ints
    """(C,) the latents, increasing"""
    start: Ints
    """(C,) first position"""
    stop: Ints
    """(C,) one past the last position"""
    upper: Ints
    """(C,) the nearest concept above, as an index into these columns; -1 where there is none"""
    end: Ints
    """(C,) one past the last concept inside"""
    summarised: NDArray[np.bool_]
    """(C,) whether summaries count it: it has at most 2/3 of the one above that they count, and not all rows"""

    @property
    def size(self) -> Ints:
        """(C,) number of rows."""
        return self.stop - self.start

    def __len__(self) -> int:
        return self.latent.size


def rows_below(forest: Forest, rows: Ints) -> Ints:
    """(n+1,) how many of the rows that are there come before each row of the forest, repeats counted."""
    below = np.zeros(forest.n_points + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=forest.n_points), out=below[1:])
    return below


def find_concepts(forest: Forest, rows: Ints, min_size: int, ratio: float) -> Concepts:
    """Return the concepts of a forest over rows of it, in any order, repeats counted."""
    latent, below = forest.concepts(min_size, ratio, rows=rows), rows_below(forest, rows)
    if not latent.size:
        most = int(np.diff(below[forest.cluster_start])[forest.cluster_size > 1].max(initial=0))
        raise ValueError(f"min_size must leave a concept: the largest cluster has {most} of the rows, got {min_size}")
    first, size = forest.latent_start, forest.latent_size
    start, stop = below[first[latent]], below[first[latent] + size[latent]]
    above, end = forest.nearest_above(latent), np.searchsorted(latent, latent + size[latent] - 1)
    upper = np.where(above < 0, -1, np.searchsorted(latent, above))
    counted = np.empty(latent.size, np.bool_)
    thin(latent, size, below[first + size] - below[first], SUMMARY_RATIO, counted)
    return Concepts(latent, start, stop, upper, end, counted & (stop - start < rows.size))


def sibling_intervals(forest: Forest, below: Ints, latent: Ints) -> tuple[Ints, Ints]:
    """Return the positions of each latent's sibling, first and one past the last; an empty interval at tops."""
    parent = forest.latent_parent[latent]
    first, last = forest.latent_start[parent], forest.latent_start[parent] + forest.latent_size[parent]
    middle = first + forest.left_size[parent]
    on_left = forest.latent_start[latent] < middle
    start, stop = np.where(on_left, middle, first), np.where(on_left, last, middle)
    return below[start], np.where(parent < 0, below[start], below[stop])
