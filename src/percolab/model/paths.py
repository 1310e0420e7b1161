"""Ways: from the top of a cluster down to one latent, and from the root of the cluster's walk along the bonds.

The walk that gives a cluster its positions starts at one row, its root, and goes along bonds. It enters every latent's
interval at one row, its *entry*. The bond of a latent leads from the side of the interval that holds the entry, which
is *near*, to the other, which is *far*. Beyond the bond lie the rows of the far side, and all rows that hang on them:
the other side of a latent above hangs on the row where that latent's bond ends, unless the walk comes from that side.
So the rows beyond a bond are not one interval, but one interval for each of some latents above; these are found in
time proportional to the depth, whatever their sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.model.forest import Forest


@dataclass(frozen=True, eq=False)
class Way:
    """The latents from the top of a cluster down to one, which comes last, and where the walk enters them."""

    cluster: int
    latent: Ints
    start: Ints  #: first row of each latent's interval
    size: Ints
    entry: Ints  #: row where the walk enters it

    @property
    def interval(self) -> slice:
        """Rows of the last latent."""
        return slice(int(self.start[-1]), int(self.start[-1] + self.size[-1]))


@dataclass(frozen=True, eq=False)
class Hanging:
    """Intervals that hang on some rows, each listed after the interval that it hangs on."""

    start: Ints
    stop: Ints
    row: Ints  #: row on which the interval hangs by a bond: one of the rows given, or of an interval before


def way_to(forest: Forest, latent: int, root: int) -> Way:
    """Return the way down to a latent, given the root of the walk of its cluster: one step per latent above it."""
    cluster = int(forest.latent_cluster[latent])
    first, end = forest.cluster_start[cluster : cluster + 2].tolist()
    at, entry = first - cluster, root
    steps = [(at, first, end - first, entry)]
    while at != latent:
        middle = first + int(forest.left_size[at])
        left, right = forest.bond[at].tolist()
        if latent < at + middle - first:
            at, end, entry = at + 1, middle, left if entry >= middle else entry
        else:
            at, first, entry = at + middle - first, middle, right if entry < middle else entry
        steps.append((at, first, end - first, entry))
    return Way(cluster, *np.array(steps, np.int64).T.copy())


def ends(forest: Forest, way: Way) -> tuple[int, int, slice]:
    """Return the near and the far end of the bond of the last latent of a way, and the rows of the far side."""
    latent, rows = int(way.latent[-1]), way.interval
    left, right = (int(end) for end in forest.bond[latent])
    middle = rows.start + int(forest.left_size[latent])
    if way.entry[-1] < middle:
        return left, right, slice(middle, rows.stop)
    return right, left, slice(rows.start, middle)


def hanging(forest: Forest, way: Way, rows: slice) -> Hanging:
    """Return the intervals that hang on `rows`: the interval of the last latent of a way, or its far side."""
    most = way.latent.size - 1
    start, stop, row = (np.empty(most, np.int64) for _ in range(3))
    table = way.latent, way.start, way.size, way.entry
    count = _hang(forest.left_size, forest.bond, *table, rows.start, rows.stop, start, stop, row)
    return Hanging(start[:count], stop[:count], row[:count])


@kernel
def _hang(left_size, bond, path, start, size, entry, lo, hi, begin, end, row):
    """Fill the intervals that hang on the rows lo … hi - 1, from the bottom up; return how many."""
    count, last = 0, path.size - 1
    hangs = np.zeros(path.size, np.bool_)
    for k in range(last - 1, -1, -1):
        at, middle, stop = path[k], start[k] + left_size[path[k]], start[k] + size[k]
        came_left = start[k + 1] == start[k]
        end_row = bond[at, 0] if came_left else bond[at, 1]
        first, after = (middle, stop) if came_left else (start[k], middle)
        if first <= entry[k] < after:  # the walk comes from that side
            continue
        # The deepest latent of the way that holds the end: its other side does, unless it is the last.
        low, high = k + 1, last
        while low < high:
            half = (low + high + 1) // 2
            if start[half] <= end_row < start[half] + size[half]:
                low = half
            else:
                high = half - 1
        hangs[k] = lo <= end_row < hi if low == last else hangs[low]
        if hangs[k]:
            begin[count], end[count], row[count] = first, after, end_row
            count += 1
    return count
