"""Clusters by attachment: which cluster every point joins, and the table of clusters that follows from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from percolab import pcg64
from percolab.recipe import check_integer, check_probability, check_seed

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


@njit(cache=True, nogil=True)
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


@dataclass(frozen=True, eq=False)
class ClusterTable:
    """The clusters that a dataset keeps, in row order: largest first, ties by birth."""

    start: Ints
    """(C+1,) row offsets"""
    birth: Ints
    """(C,) number of the cluster by birth"""
    point_id: Ints
    """(n,) birth number of each point: cluster after cluster, within a cluster in birth order"""
    born_size: Ints
    """sizes of all clusters, kept or not, by birth"""

    @property
    def n_points(self) -> int:
        """Number of points kept."""
        return self.point_id.size

    @property
    def size(self) -> Ints:
        """(C,) number of points of each cluster."""
        return np.diff(self.start)

    @classmethod
    def from_labels(cls, labels: NDArray[np.int32], min_cluster_size: int = 1) -> ClusterTable:
        """Sort the clusters that `labels` describes and keep those of at least `min_cluster_size` points."""
        size = np.bincount(labels)
        order = np.argsort(-size, kind="stable")
        birth = order[: int(np.count_nonzero(size >= min_cluster_size))]
        start = np.concatenate([[0], np.cumsum(size[birth])]).astype(np.int64)
        place = np.full(size.size, -1, np.int64)
        place[birth] = start[:-1]
        point_id = np.empty(start[-1], np.int64)
        _collect(labels, place, point_id)
        return cls(start, birth.astype(np.int64), point_id, size)


@njit(cache=True, nogil=True)
def _collect(labels, place, point_id):
    """Write every point to its cluster's next place; clusters with place -1 are dropped."""
    for i in range(labels.size):
        c = labels[i]
        if place[c] >= 0:
            point_id[place[c]] = i
            place[c] += 1
