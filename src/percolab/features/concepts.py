"""Concepts: the latents that can be told from their parent and their sibling, as intervals of the rows that are there.

Most latents are one point away from their child, so a best match among all of them says little. A concept is the top
of a cluster, or a child of a latent both of whose children have enough rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
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


def concept_latents(forest: Forest, below: Ints, min_size: int, ratio: float) -> Ints:
    """Return the latents that are concepts, increasing.

    They are the tops of clusters with at least `min_size` rows, and both children of every latent whose smaller child
    has that many; of these, going down, the ones with at most `ratio` times the rows of the nearest kept one above.
    Sizes count rows that are there (`below`). A child that is a single row, repeated, is no latent and not listed.
    """
    start, size, left = forest.latent_start, forest.latent_size, forest.left_size
    middle, stop = start + left, start + size
    in_left, in_right = below[middle] - below[start], below[stop] - below[middle]
    split = np.minimum(in_left, in_right) >= min_size
    index = np.arange(forest.n_latents)
    lefts, rights = index[split & (left > 1)] + 1, (index + left)[split & (size - left > 1)]
    tops = (forest.cluster_start[:-1] - np.arange(forest.n_clusters))[forest.cluster_size > 1]
    tops = tops[(below[stop] - below[start])[tops] >= min_size]
    found = np.unique(np.concatenate([tops, lefts, rights]))
    kept, _, _ = _nested(forest, below, found, ratio)
    return found[kept]


def find_concepts(forest: Forest, rows: Ints, min_size: int, ratio: float) -> Concepts:
    """Return the concepts of a forest over rows of it, in any order, repeats counted."""
    below = rows_below(forest, rows)
    latent = concept_latents(forest, below, min_size, ratio)
    if not latent.size:
        most = int(np.diff(below[forest.cluster_start])[forest.cluster_size > 1].max(initial=0))
        raise ValueError(f"min_size must leave a concept: the largest cluster has {most} of the rows, got {min_size}")
    _, upper, end = _nested(forest, below, latent, 1.0)
    start, stop = _positions(forest, below, latent)
    counted, _, _ = _nested(forest, below, latent, SUMMARY_RATIO)
    return Concepts(latent, start, stop, upper, end, counted & (stop - start < rows.size))


def sibling_intervals(forest: Forest, below: Ints, latent: Ints) -> tuple[Ints, Ints]:
    """Return the positions of each latent's sibling, first and one past the last; an empty interval at tops."""
    parent = forest.latent_parent[latent]
    first, last = forest.latent_start[parent], forest.latent_start[parent] + forest.latent_size[parent]
    middle = first + forest.left_size[parent]
    on_left = forest.latent_start[latent] < middle
    start, stop = np.where(on_left, middle, first), np.where(on_left, last, middle)
    return below[start], np.where(parent < 0, below[start], below[stop])


def _positions(forest: Forest, below: Ints, latent: Ints) -> tuple[Ints, Ints]:
    start = forest.latent_start[latent]
    return below[start], below[start + forest.latent_size[latent]]


def _nested(forest: Forest, below: Ints, latent: Ints, ratio: float) -> tuple[NDArray[np.bool_], Ints, Ints]:
    first = forest.latent_start[latent]
    last = first + forest.latent_size[latent]
    kept = np.empty(latent.size, np.bool_)
    upper, end = np.empty(latent.size, np.int64), np.empty(latent.size, np.int64)
    _nest(first, last, below[last] - below[first], ratio, kept, upper, end)
    return kept, upper, end


@kernel
def _nest(first, last, size, ratio, kept, upper, end):
    """Sweep nested intervals in preorder, with the open kept ones on a stack.

    `upper` is the nearest kept interval above, -1 if none; `end` one past the last interval inside a kept one.
    """
    stack = np.empty(first.size + 1, np.int64)
    height = 0
    for i in range(first.size):
        while height > 0 and last[stack[height - 1]] <= first[i]:
            height -= 1
            end[stack[height]] = i
        above = stack[height - 1] if height > 0 else -1
        upper[i] = above
        end[i] = i + 1
        kept[i] = above < 0 or size[i] <= ratio * size[above]
        if kept[i]:
            stack[height] = i
            height += 1
    while height > 0:
        height -= 1
        end[stack[height]] = first.size
