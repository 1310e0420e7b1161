"""Distances along bonds: how many bonds lie between two points of a cluster.

The bonds of a cluster form a tree. A walk from its first row that follows every bond and comes back meets the rows in
preorder: every row after the one it hangs on, and all that hang on a row in one run. Between two rows of this order,
the second included, the least depth is one more than the depth of the row where their ways from the root part, so a
distance takes one minimum of a range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
from percolab.model.ancestry import minima_table, minimum

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Walk:
    """The rows in the order of a walk along the bonds, cluster after cluster."""

    place: Ints
    """(n,) place of each row in the walk"""
    depth: Ints
    """(n,) by place: number of bonds from the first row of the cluster"""
    above: Ints
    """(n,) by place: the place of the row it hangs on, -1 for the first of a cluster"""
    minima: Ints
    """minima of `depth` over blocks"""

    @classmethod
    def along(cls, cluster_start: Ints, bond: Ints, n_points: int) -> Self:
        """Return the walk along these bonds. Linear time."""
        place, depth, above = (np.empty(n_points, np.int64) for _ in range(3))
        follow(cluster_start, bond.ravel(), place, depth, above)
        return cls(place, depth, above, minima_table(depth))


@kernel
def follow(cluster_start, ends, place, depth, above):
    """Fill the walk. Bond k // 2 is taken from row ends[k] to row ends[k ^ 1], so it has two numbers, k and k ^ 1."""
    newest = np.full(place.size, -1, np.int64)  # of the bonds that leave a row; `older` has the others
    older = np.empty(ends.size, np.int64)
    for k in range(ends.size):
        older[k] = newest[ends[k]]
        newest[ends[k]] = k
    open_bonds = np.empty(ends.size, np.int64)
    at = 0
    for c in range(cluster_start.size - 1):
        row, came, count = cluster_start[c], -1, 0
        place[row], depth[at], above[at] = at, 0, -1
        at += 1
        while True:
            k = newest[row]
            while k >= 0:
                if k != came:
                    open_bonds[count] = k
                    count += 1
                k = older[k]
            if count == 0:
                break
            count -= 1
            k = open_bonds[count]
            row, came = ends[k ^ 1], k ^ 1
            place[row], above[at] = at, place[ends[k]]
            depth[at] = depth[above[at]] + 1
            at += 1


@kernel
def distances(place, depth, table, a, b, out):
    """Fill the number of bonds between rows a[j] and b[j], -1 across clusters."""
    for j in range(a.size):
        low, high = min(place[a[j]], place[b[j]]), max(place[a[j]], place[b[j]])
        if low == high:
            out[j] = 0
            continue
        # The first row of a cluster alone has depth 0, so that a 0 past `low` tells of another cluster.
        least = minimum(depth, table, low + 1, high)
        out[j] = depth[low] + depth[high] - 2 * (least - 1) if least else -1


@kernel
def nearest(place, above, rows, out):
    """Fill the number of bonds from every row to the nearest of `rows`, -1 where its cluster has none."""
    n = place.size
    far = n + 1
    bonds = np.full(n, far, np.int64)
    for row in rows:
        bonds[place[row]] = 0
    for at in range(n - 1, -1, -1):
        if above[at] >= 0:
            bonds[above[at]] = min(bonds[above[at]], bonds[at] + 1)
    for at in range(n):
        if above[at] >= 0:
            bonds[at] = min(bonds[at], bonds[above[at]] + 1)
    for row in range(n):
        out[row] = bonds[place[row]] if bonds[place[row]] < far else -1
