"""The table of clusters: all clusters in row order, and the points of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import parallel
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import prefetch

Labels = NDArray[np.signedinteger[Any]]

MOST_SCANS = 8  #: The most threads that share a pass over labels: each reads all labels.
LARGE_CLUSTER = 1 << 16  #: Clusters from this size on are sorted one by one; there are few.
_BUFFER = 512
_NEAR = 16  #: Sizes that are tried one by one: nearly all clusters are smaller.


@dataclass(frozen=True, eq=False, repr=False)
class Clusters:
    """The clusters that a dataset keeps, in row order: largest first, ties by birth."""

    start: Ints  #: (C+1,) row offsets
    birth: NDArray[np.integer[Any]]  #: (C,) number of the cluster by birth
    #: (n,) birth number of each point, cluster after cluster, in birth order; empty if that is 0, 1, 2, …
    point_id: NDArray[np.integer[Any]]
    #: sizes of all clusters, kept or not, by birth; empty unless requested
    born_size: NDArray[np.integer[Any]] = field(default_factory=lambda: np.empty(0, np.int64))

    def __repr__(self) -> str:
        return f"Clusters(n_points={self.n_points}, n_clusters={self.birth.size})"

    @property
    def n_points(self) -> int:
        """Number of points kept."""
        return int(self.start[-1])

    @property
    def size(self) -> Ints:
        """(C,) number of points of each cluster."""
        return np.diff(self.start)

    @property
    def founder(self) -> Ints:
        """(C,) first point of each cluster."""
        return self.founder_of(0, self.birth.size)

    def founder_of(self, lo: int, hi: int) -> Ints:
        """Return the first point of clusters lo … hi - 1."""
        if not self.point_id.size:
            return np.zeros(hi - lo, np.int64)
        return self.point_id[self.start[lo:hi]].astype(np.int64)

    @classmethod
    def single(cls, n_points: int, keep: bool = True) -> Clusters:
        """Return one cluster of all points, or none."""
        start = np.array([0, n_points] if keep else [0])
        return cls(start, np.zeros(int(keep), np.int64), np.empty(0, np.int64))

    @classmethod
    def from_labels(
        cls,
        labels: list[Labels],
        min_cluster_size: int = 1,
        dtype: type[np.integer[Any]] = np.int64,
        *,
        threads: int = 1,
        with_born_size: bool = False,
    ) -> Clusters:
        """Sort the clusters that labels describe and keep those of at least `min_cluster_size` points. Linear time.

        With labels of type `dtype` and the critical size law, the peak is 2.3 numbers of that type per point, labels
        included: each array is freed, or reused, before the next is made.

        Parameters
        ----------
        labels
            A list that holds the cluster of every point, numbered by birth without gaps. It is emptied.
        min_cluster_size
            The least size to keep.
        dtype
            Type of births and points.
        threads
            Number of threads.
        with_born_size
            Keep the sizes of all clusters.
        """
        cluster_of = labels.pop()
        size = count(cluster_of, dtype, threads)
        born_size = size.copy() if with_born_size else np.empty(0, dtype)
        order = Order.of(size, min_cluster_size)
        shares = pairwise(equal_shares(size, min(threads, MOST_SCANS)))
        order.place(size)
        point_id = np.empty(order.n_rows, dtype)
        parallel.run([(collect, (cluster_of, lo, hi, size, point_id)) for lo, hi in shares], threads)
        del cluster_of
        start, birth = np.empty(order.n_clusters + 1, np.int64), np.empty(order.n_clusters, dtype)
        parallel.run([(order.fill_start, (start,)), (order.fill_birth, (size, birth))], threads)
        return cls(start, birth, point_id, born_size)


def batches(size: Ints, points: int) -> list[tuple[int, int]]:
    """Cut clusters of these sizes into runs of about this many points; a larger cluster is a run by itself."""
    edges: list[tuple[int, int]] = []
    total = np.concatenate([[0], np.cumsum(size)])
    lo = 0
    while lo < size.size:
        hi = max(lo + 1, int(np.searchsorted(total, total[lo] + points, side="right")) - 1)
        edges.append((lo, hi))
        lo = hi
    return edges


# ---------------------------------------------------------------------- passes over labels


def count(labels: Labels, dtype: type[np.integer[Any]], threads: int) -> NDArray[np.integer[Any]]:
    """Return the number of points of every cluster."""
    n_clusters, parts = int(labels.max()) + 1, min(threads, MOST_SCANS)
    size = np.zeros(n_clusters, dtype)
    # The first share f of the clusters has about a share f^p of the points; p is the probability of a new cluster.
    edges = (n_clusters * (np.arange(parts + 1) / parts) ** (labels.size / n_clusters)).astype(np.int64)
    parallel.run([(count_between, (labels, lo, hi, size)) for lo, hi in pairwise(edges.tolist())], threads)
    return size


@kernel
def count_between(labels, lo, hi, size):
    """Count the points of clusters lo … hi - 1."""
    mine = np.empty(_BUFFER, labels.dtype)
    for first in range(0, labels.size, _BUFFER):
        n_mine = 0
        for i in range(first, min(first + _BUFFER, labels.size)):
            mine[n_mine] = labels[i]
            n_mine += (labels[i] >= lo) & (labels[i] < hi)  # no branch: it would be mispredicted half of the time
        for k in range(n_mine):
            size[mine[k]] += 1


def equal_shares(size: NDArray[np.integer[Any]], parts: int) -> list[int]:
    """Return edges between clusters that give each part about as many points."""
    edges = np.full(parts + 1, size.size)
    edges[0] = 0
    if parts > 1:
        _fill_shares(size, int(size.sum()), edges)
    return edges.tolist()


@kernel
def _fill_shares(size, total, edges):
    """Fill the inner edges of equal shares."""
    part, before, parts = 0, 0, edges.size - 1
    for c in range(size.size):
        while before * parts >= total * (part + 1):
            part += 1
            edges[part] = c
        before += size[c]


@kernel
def collect(labels, lo, hi, next_row, point_id):
    """Write the points of clusters lo … hi - 1 to the next rows of their clusters; a negative row drops the cluster."""
    mine, points = np.empty(_BUFFER, labels.dtype), np.empty(_BUFFER, labels.dtype)
    rows = np.empty(_BUFFER, labels.dtype)
    for first in range(0, labels.size, _BUFFER):
        n_mine = 0
        for i in range(first, min(first + _BUFFER, labels.size)):
            mine[n_mine] = labels[i]
            points[n_mine] = i
            n_mine += (labels[i] >= lo) & (labels[i] < hi)
        for k in range(n_mine):
            prefetch(next_row, np.int64(mine[k]))
        for k in range(n_mine):
            cluster, rows[k] = mine[k], next_row[mine[k]]
            next_row[cluster] += rows[k] >= 0
            prefetch(point_id, np.int64(max(rows[k], 0)))
        for k in range(n_mine):
            if rows[k] >= 0:
                point_id[rows[k]] = points[k]


# ---------------------------------------------------------------------- the order of clusters


@dataclass(frozen=True, eq=False)
class Order:
    """Where clusters go: the largest first, ties by birth. Small ones are sorted by counting, the few large ones apart.

    One array holds, in turn, the sizes of clusters, their next free rows, and, when all points are placed, the row
    after the last of each. The size of a cluster can be derived from it at each stage.
    """

    large: Ints  #: clusters of at least `LARGE_CLUSTER` points that are kept, in order
    large_start: Ints  #: their first rows, and the row after the last
    least: int  #: the least size that is kept
    n_of: Ints  #: number of clusters of each smaller size that are kept

    @classmethod
    def of(cls, size: NDArray[np.integer[Any]], least: int) -> Order:
        """Return the order of clusters by their sizes."""
        n_of = np.zeros(min(int(size.max()) + 1, LARGE_CLUSTER), np.int64)
        large = (
            np.flatnonzero(size >= max(LARGE_CLUSTER, least)) if n_of.size == LARGE_CLUSTER else np.empty(0, np.int64)
        )
        large = large[np.argsort(-size[large], kind="stable")]
        large_start = np.concatenate([[0], np.cumsum(size[large], dtype=np.int64)])
        histogram(size, n_of)
        n_of[:least] = 0
        return cls(large, large_start, least, n_of)

    @property
    def n_clusters(self) -> int:
        """Number of clusters kept."""
        return int(self.large.size + self.n_of.sum())

    @property
    def n_rows(self) -> int:
        """Number of points kept."""
        return int(self.large_start[-1] + self.n_of @ np.arange(self.n_of.size))

    def _first_row(self) -> Ints:
        """Return for each size below `LARGE_CLUSTER` the first row of its clusters: larger ones come before."""
        rows_of = self.n_of * np.arange(self.n_of.size)
        return self.large_start[-1] + np.cumsum(rows_of[::-1])[::-1] - rows_of

    def place(self, size: NDArray[np.integer[Any]]) -> None:
        """Replace the sizes of clusters by their first rows; a dropped cluster gets its negative size."""
        place_small(size, self.least, self._first_row())
        size[self.large] = self.large_start[:-1]

    def fill_start(self, start: Ints) -> None:
        """Fill the row offsets of clusters."""
        start[: self.large_start.size] = self.large_start
        start_small(self.n_of, self.large.size, start)

    def fill_birth(self, ends: NDArray[np.integer[Any]], birth: NDArray[np.integer[Any]]) -> None:
        """Fill the births of clusters in order, given the row after the last of each."""
        birth[: self.large.size] = self.large
        first_cluster = self.large.size + np.cumsum(self.n_of[::-1])[::-1] - self.n_of
        birth_small(ends, self.large_start[-1], self._first_row(), first_cluster, birth)


@kernel
def histogram(size, n_of):
    """Count the clusters of every size that `n_of` has a place for."""
    for c in range(size.size):
        if size[c] < n_of.size:
            n_of[size[c]] += 1


@kernel
def place_small(size, least, first_row):
    """Replace sizes by first rows, except for large clusters; dropped clusters get their negative size."""
    for c in range(size.size):
        s = size[c]
        if s < least:
            size[c] = -s
        elif s < first_row.size:
            size[c] = first_row[s]
            first_row[s] += s


@kernel
def start_small(n_of, n_large, start):
    """Fill the row offsets of clusters that are not large."""
    k, row = n_large, start[n_large]
    for s in range(n_of.size - 1, 0, -1):
        for _ in range(n_of[s]):
            k += 1
            row += s
            start[k] = row


@kernel
def birth_small(ends, large_end, first_row, next_cluster, birth):
    """Fill the births of clusters that are not large. The row where a cluster ends determines its size."""
    for c in range(ends.size):
        end = ends[c]
        if end <= large_end:  # large, or dropped
            continue
        s = 1
        while s < _NEAR and first_row[s] >= end:
            s += 1
        high = first_row.size
        while s < high:  # binary search: rows fall as sizes rise
            middle = (s + high) // 2
            if first_row[middle] >= end:
                s = middle + 1
            else:
                high = middle
        birth[next_cluster[s]] = c
        next_cluster[s] += 1
