"""Relations of rows and latents in a `Forest`: ancestors, descendants, siblings, and distances along bonds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_index, indices, listed

if TYPE_CHECKING:
    from percolab.model.forest import Forest


Index = int | np.integer[Any]
Many = Sequence[int] | NDArray[Any]
#: Values per entry of the table of minima: with this many, the table takes less memory than the values.
BLOCK = 64


@overload
def points_of(forest: Forest, latents: Index) -> slice: ...


@overload
def points_of(forest: Forest, latents: Many) -> tuple[Ints, Ints]: ...


def points_of(forest: Forest, latents: Any) -> slice | tuple[Ints, Ints]:
    """Return the rows of a latent as a slice; of many latents, the first row and the end of each. O(1) each."""
    if np.ndim(latents) == 0:
        latent = check_index("latent", latents, forest.n_latents)
        start = int(forest.latent_start[latent])
        return slice(start, start + int(forest.latent_size[latent]))
    chosen = listed("latents", latents, forest.n_latents)
    starts = forest.latent_start[chosen]
    return starts, starts + forest.latent_size[chosen]


@overload
def descendants(forest: Forest, latents: Index) -> slice: ...


@overload
def descendants(forest: Forest, latents: Many) -> tuple[Ints, Ints]: ...


def descendants(forest: Forest, latents: Any) -> slice | tuple[Ints, Ints]:
    """Return the latents below a latent as a slice; of many latents, the first and the end of each. O(1) each.

    The rows below it are those of `points_of`.
    """
    if np.ndim(latents) == 0:
        latent = check_index("latent", latents, forest.n_latents)
        return slice(latent + 1, latent + int(forest.latent_size[latent]) - 1)
    chosen = listed("latents", latents, forest.n_latents)
    return chosen + 1, chosen + forest.latent_size[chosen] - 1


@overload
def path(forest: Forest, rows: Index) -> Ints: ...


@overload
def path(forest: Forest, rows: Many) -> Ragged: ...


def path(forest: Forest, rows: Any) -> Ints | Ragged:
    """Return the latents above a row, top first; for many rows, one list per row, as `Ragged`.

    Time is proportional to the size of the result, after one linear pass on the first call with many rows.
    """
    if np.ndim(rows):
        last = forest.point_parent[listed("rows", rows, forest.n_points)]
        return paths_to(last, forest.latent_parent, forest.latent_depth)
    row = check_index("row", rows, forest.n_points)
    c = int(np.searchsorted(forest.cluster_start, row, side="right")) - 1
    first, end = forest.cluster_start[c : c + 2].tolist()
    latent, latents = first - c, list[int]()
    while end - first > 1:
        latents.append(latent)
        middle = first + int(forest.left_size[latent])
        if row < middle:
            latent, end = latent + 1, middle
        else:
            latent, first = latent + middle - first, middle
    return np.array(latents, np.int64)


@overload
def ancestors(forest: Forest, latents: Index) -> Ints: ...


@overload
def ancestors(forest: Forest, latents: Many) -> Ragged: ...


def ancestors(forest: Forest, latents: Any) -> Ints | Ragged:
    """Return the latents above a latent, top first; for many latents, one list per latent, as `Ragged`.

    Time is proportional to the size of the result.
    """
    chosen = indices("latents", latents, forest.n_latents)
    ways = paths_to(forest.latent_parent[chosen].ravel(), forest.latent_parent, forest.latent_depth)
    return ways if chosen.ndim else ways.values


def side(forest: Forest, latents: ArrayLike) -> Ints:
    """Return 0 for latents that are left children, 1 for right ones, -1 for tops. O(1) each."""
    nodes, pair = _families(forest, latents)
    return np.where(pair[..., 0] < 0, -1, nodes == pair[..., 1])[()]


def sibling(forest: Forest, latents: ArrayLike) -> Ints:
    """Return the other child of the parent of each latent, as a node, -1 for tops. O(1) each."""
    nodes, pair = _families(forest, latents)
    return np.where(nodes == pair[..., 0], pair[..., 1], pair[..., 0])[()]


def lca(forest: Forest, a: ArrayLike, b: ArrayLike) -> Ints:
    """Return the smallest latent that has both rows: their lowest common ancestor.

    -1 for rows of two clusters. For a row with itself it is the row's smallest latent, -1 for a singleton. `a` and `b`
    broadcast. O(1) per pair, after one linear pass on the first call.
    """
    first, second, latents = _pairs(forest, a, b)
    common_latents(forest.parting, forest._parting_minima, first, second, latents.reshape(-1))
    return latents[()]


def distance(forest: Forest, a: ArrayLike, b: ArrayLike) -> Ints:
    """Return the number of bonds on the path from one row to the other, -1 for rows of two clusters.

    Only bonds that made latents count: bonds that close cycles are ignored. `a` and `b` broadcast. O(1) per pair, after
    one linear pass on the first call.
    """
    first, second, bonds = _pairs(forest, a, b)
    walk = forest._walk
    distances(walk.place, walk.depth, walk.minima, first, second, bonds.reshape(-1))
    return bonds[()]


def distance_to(forest: Forest, rows: ArrayLike) -> Ints:
    """Return, for every row, the number of bonds to the nearest of `rows`, -1 if its cluster has none. Linear time."""
    bonds = np.empty(forest.n_points, np.int64)
    nearest(forest._walk.place, forest._walk.above, listed("rows", rows, forest.n_points), bonds)
    return bonds


def _families(forest: Forest, latents: ArrayLike) -> tuple[Ints, Ints]:
    """Return latents as nodes, and both children of their parents, -1 for tops."""
    chosen = indices("latents", latents, forest.n_latents)
    parent = forest.latent_parent[chosen]
    pair = np.full((*chosen.shape, 2), -1, np.int64)
    pair[parent >= 0] = forest.latent_children[parent[parent >= 0]]
    return forest.n_points + chosen, pair


def _pairs(forest: Forest, a: ArrayLike, b: ArrayLike) -> tuple[Ints, Ints, Ints]:
    """Return two arrays of rows, broadcast against each other, and an empty array for the result of each pair."""
    rows = (indices(name, values, forest.n_points) for name, values in (("a", a), ("b", b)))
    first, second = np.broadcast_arrays(*rows)
    return first.flatten(), second.flatten(), np.empty(first.shape, np.int64)


# ---------------------------------------------------------------------- ancestry
#
# Ancestors: paths to the top, common ancestors, and the range minimum that gives them.
# Latent i parts the rows on its left from those on its right, so to each pair of neighbouring rows of a cluster
# belongs exactly one latent, the smallest that has both. Listed row by row (`Forest.parting`), these latents turn
# questions about the tree into questions about ranges. Latents are numbered in preorder, so among the latents listed
# between two rows the one with the lowest number is above all others: it is the smallest latent that has both rows.
# The first row of a cluster is listed with -1, which is lower still: no latent has rows of two clusters.


class Ragged(NamedTuple):
    """Lists of different lengths, one after another."""

    values: Ints  #: all lists, joined
    offsets: Ints  #: (number of lists + 1,) list j is ``values[offsets[j]:offsets[j + 1]]``

    def __repr__(self) -> str:
        return f"Ragged({self.offsets.size - 1:,} lists, {self.values.size:,} values)"

    def parts(self) -> list[Ints]:
        """Return the lists, as views."""
        return np.split(self.values, self.offsets[1:-1]) if self.offsets.size > 1 else []


def paths_to(last: Ints, latent_parent: Ints, latent_depth: Ints) -> Ragged:
    """Return the latents from the top down to each of `last`, itself included; nothing for -1."""
    length = np.where(last >= 0, latent_depth[last] + 1, 0) if latent_depth.size else np.zeros(last.size, np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    values = np.empty(offsets[-1], np.int64)
    climb(last, latent_parent, offsets, values)
    return Ragged(values, offsets)


@kernel
def climb(last, latent_parent, offsets, values):
    """Fill each list from its end: a latent, its parent, and so on to the top."""
    for j in range(last.size):
        latent = last[j]
        for k in range(offsets[j + 1] - 1, offsets[j] - 1, -1):
            values[k] = latent
            latent = latent_parent[latent]


# ---------------------------------------------------------------------- minimum of a range


def minima_table(values: Ints) -> Ints:
    """Return the table that `minimum` uses: its row j has the minimum of every 2^j consecutive blocks of `values`."""
    blocks = -(-values.size // BLOCK)
    table = np.empty((max(1, blocks.bit_length()), blocks), np.int64)
    tabulate(values, table)
    return table


@kernel
def tabulate(values, table):
    """Fill the minima of blocks, and from each row of the table the next."""
    levels, blocks = table.shape
    for b in range(blocks):
        least = values[b * BLOCK]
        for k in range(b * BLOCK + 1, min(values.size, (b + 1) * BLOCK)):
            least = min(least, values[k])
        table[0, b] = least
    for j in range(1, levels):
        half = 1 << (j - 1)
        for b in range(blocks):
            table[j, b] = min(table[j - 1, b], table[j - 1, min(b + half, blocks - 1)])


@kernel
def minimum(values, table, low, high):
    """Return the minimum of values[low … high], ends included, in O(BLOCK + 1) steps."""
    first, last = low // BLOCK, high // BLOCK
    least = values[low]
    if last - first < 2:
        for k in range(low + 1, high + 1):
            least = min(least, values[k])
        return least
    for k in range(low + 1, (first + 1) * BLOCK):
        least = min(least, values[k])
    for k in range(last * BLOCK, high + 1):
        least = min(least, values[k])
    level = 0
    while (2 << level) <= last - first - 1:
        level += 1
    return min(least, min(table[level, first + 1], table[level, last - (1 << level)]))


@kernel
def common_latents(parting, table, a, b, out):
    """Fill the smallest latent that has rows a[j] and b[j], -1 where there is none."""
    n = parting.size
    for j in range(a.size):
        low, high = min(a[j], b[j]), max(a[j], b[j])
        if low < high:
            out[j] = minimum(parting, table, low + 1, high)
        else:
            out[j] = max(parting[low], parting[low + 1] if low + 1 < n else -1)


# ---------------------------------------------------------------------- distances along bonds
#
# Distances along bonds: how many bonds lie between two points of a cluster.
# The bonds of a cluster form a tree. A walk from its first row that follows every bond and comes back meets the rows
# in preorder: every row after its parent in this tree, and all descendants of a row in one run. Between two rows of
# this order, the second included, the least depth is one more than the depth of their lowest common ancestor in this
# tree, so a distance takes one range minimum.


@dataclass(frozen=True, eq=False)
class Walk:
    """The rows in the order of a walk along the bonds, cluster after cluster."""

    place: Ints  #: (n,) place of each row in the walk
    depth: Ints  #: (n,) by place: number of bonds from the first row of the cluster
    above: Ints  #: (n,) by place: the place of the row's parent in the walk, -1 for the first row of a cluster
    minima: Ints  #: minima of `depth` over blocks

    @classmethod
    def along(cls, cluster_start: Ints, bond: Ints, n_points: int) -> Self:
        """Return the walk along these bonds. Linear time."""
        place, depth, above = (np.empty(n_points, np.int64) for _ in range(3))
        follow(cluster_start, bond.ravel(), place, depth, above)
        return cls(place, depth, above, minima_table(depth))


@kernel
def follow(cluster_start, ends, place, depth, above):
    """Fill the walk. Bond k // 2 is taken from row ends[k] to row ends[k ^ 1], so it has two numbers, k and k ^ 1."""
    newest = np.full(place.size, -1, np.int64)  # the last bond that leaves each row; `older` links to the others
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
        # Only the first row of a cluster has depth 0, so a 0 after `low` means that another cluster begins.
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
