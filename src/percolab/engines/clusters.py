"""Clusters by attachment: which cluster every point joins, and the clusters in row order that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
from percolab.ground.validation import check_integer, check_probability, check_seed
from percolab.rng import pcg64, philox

Ints = NDArray[np.int64]

CREATE_CHILD, GROW_CHILD = 0, 1


def attachment(n_points: int, create_prob: float, seed: int) -> NDArray[np.int32]:
    """Sample the attachment process and return the cluster of every point, numbered by birth.

    Point 0 starts cluster 0. Point i > 0 starts a new cluster with probability p = `create_prob`; otherwise it joins
    the cluster of a uniform earlier point, so a cluster is chosen with probability proportional to its size. The
    expected share of clusters of size s tends to a power law s^(-(2-p)/(1-p)): s^(-5/2) at p = 1/3, as for critical
    mean-field percolation (paper, App. A). Linear time; 4 bytes per point.

    The streams are those of the published datasets: children 0 and 1 of ``SeedSequence(seed)``.
    """
    n = check_integer("n_points", n_points, 1)
    p = check_probability("create_prob", create_prob)
    root = pcg64.root_pool(check_seed("seed", seed))
    labels = np.empty(n, np.int32)
    create = pcg64.make_stream(pcg64.spawn(root, CREATE_CHILD))
    grow = pcg64.make_stream(pcg64.spawn(root, GROW_CHILD))
    attach(p, create, grow, labels)
    return labels


@kernel
def attach(create_prob, create, grow, labels):
    """Fill the cluster of every point; return the number of clusters."""
    born = 0
    for i in range(labels.size):
        new = pcg64.random(create) < create_prob
        u = pcg64.random(grow)
        if new or i == 0:
            labels[i] = born
            born += 1
        else:
            labels[i] = labels[int(u * i)]
    return born


_BLOCK = 1024


@kernel
def attach_keyed(create_prob, key, labels):
    """Fill the cluster of every point; return the number of clusters.

    Every point has two uniforms of its own: whether it starts a cluster, and which earlier point it follows if not.
    """
    nodes, create, follow = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    born = 0
    for lo in range(0, labels.size, _BLOCK):
        for j in range(_BLOCK):
            nodes[j] = np.uint64(lo + j)
        philox.blocks(nodes, _BLOCK, philox.CLUSTER, key, create, follow)
        for j in range(min(_BLOCK, labels.size - lo)):
            i = lo + j
            if i == 0 or philox.uniform(create[j]) < create_prob:
                labels[i] = born
                born += 1
            else:
                labels[i] = labels[int(philox.uniform(follow[j]) * i)]
    return born


@kernel
def follow_to_founder(point, create_prob, key):
    """Return the founder of a point's cluster, by following O(log n) points back."""
    while point > 0:
        create, follow = philox.block(np.uint64(point), 0, philox.CLUSTER, key)
        if philox.uniform(create) < create_prob:
            break
        point = int(philox.uniform(follow) * point)
    return point


@dataclass(frozen=True, eq=False, repr=False)
class Clusters:
    """The clusters that a dataset keeps, in row order: largest first, ties by birth."""

    start: Ints
    """(C+1,) row offsets"""
    birth: NDArray[np.integer[Any]]
    """(C,) number of the cluster by birth"""
    point_id: NDArray[np.integer[Any]]
    """(n,) birth number of each point, cluster after cluster, in birth order; empty if that is 0, 1, 2, …"""
    born_size: NDArray[np.integer[Any]]
    """sizes of all clusters, kept or not, by birth"""

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

    def batches(self, points: int) -> list[tuple[int, int]]:
        """Cut the clusters into runs of about this many points."""
        return batches(self.size, points)

    @classmethod
    def single(cls, n_points: int, keep: bool = True) -> Clusters:
        """Return one cluster of all points, or none."""
        start = np.array([0, n_points] if keep else [0])
        return cls(start, np.zeros(int(keep), np.int64), np.empty(0, np.int64), np.array([n_points]))

    @classmethod
    def from_labels(
        cls, labels: NDArray[np.integer[Any]], min_cluster_size: int = 1, dtype: type[np.integer[Any]] = np.int64
    ) -> Clusters:
        """Sort the clusters that `labels` describes and keep those of at least `min_cluster_size` points.

        Births and points have type `dtype`; at its peak this takes 3.3 numbers of that type for a point.
        """
        size = np.zeros(int(labels.max()) + 1, dtype)
        _count(labels, size)
        birth = np.empty(int(np.count_nonzero(size >= min_cluster_size)), dtype)
        _sort_by_size(size, min_cluster_size, birth)
        start = np.zeros(birth.size + 1, np.int64)
        np.cumsum(size[birth], out=start[1:])
        next_row = np.full(size.size, -1, dtype)
        next_row[birth] = start[:-1]
        point_id = np.empty(start[-1], dtype)
        _collect(labels, next_row, point_id)
        return cls(start, birth, point_id, size)


def batches(size: Ints, points: int) -> list[tuple[int, int]]:
    """Cut clusters of these sizes into runs of about this many points; a larger cluster is a run of its own."""
    edges: list[tuple[int, int]] = []
    total = np.concatenate([[0], np.cumsum(size)])
    lo = 0
    while lo < size.size:
        hi = max(lo + 1, int(np.searchsorted(total, total[lo] + points, side="right")) - 1)
        edges.append((lo, hi))
        lo = hi
    return edges


@kernel
def _count(labels, size):
    """Count the points of every cluster."""
    for i in range(labels.size):
        size[labels[i]] += 1


@kernel
def _sort_by_size(size, least, birth):
    """Fill the clusters of at least `least` points, the largest first, ties by birth: a counting sort."""
    largest = 0
    for c in range(size.size):
        largest = max(largest, size[c])
    after = np.zeros(largest + 2, np.int64)
    for c in range(size.size):
        after[size[c]] += 1
    for s in range(largest, -1, -1):
        after[s] += after[s + 1]
    for c in range(size.size):
        if size[c] >= least:
            birth[after[size[c] + 1]] = c
            after[size[c] + 1] += 1


@kernel
def _collect(labels, next_row, point_id):
    """Write every point to the next row of its cluster; clusters whose next row is -1 are dropped."""
    for i in range(labels.size):
        c = labels[i]
        if next_row[c] >= 0:
            point_id[next_row[c]] = i
            next_row[c] += 1
