"""Attachment: every point starts a cluster or joins the cluster of an earlier point."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import prefetch
from percolab.ground.validation import check_integer, check_probability, check_seed
from percolab.rng import pcg64, philox

CREATE_CHILD, GROW_CHILD = 0, 1
CHUNK = 1 << 22  #: Points that threads share at a time: few enough to stay in cache from one step to the next.
_BLOCK = 1024


# ---------------------------------------------------------------------- the streams of the published datasets


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


# ---------------------------------------------------------------------- keyed, in parallel


def attach_keyed(create_prob: float, key: np.uint64, labels: NDArray[np.signedinteger[Any]], threads: int = 1) -> int:
    """Fill the cluster of every point; return the number of clusters. The same for any number of threads.

    Every point has two uniform draws: one decides whether it starts a cluster, the other which earlier point it follows
    if not. For each chunk, threads first write the decision of each point, then number the clusters that start in the
    chunk, and then look up the clusters of the points that are followed, nearly all of which lie in earlier chunks.

    Parameters
    ----------
    create_prob
        Probability of a new cluster.
    key
        Key of the random numbers.
    labels
        (n,) signed integers, to be filled.
    threads
        Number of threads.
    """
    born = 0
    for lo in range(0, labels.size, CHUNK):
        edges = np.linspace(lo, min(lo + CHUNK, labels.size), threads + 1).astype(np.int64).tolist()
        started = np.zeros(threads, np.int64)
        shares = list(enumerate(pairwise(edges)))
        parallel.run([(draw, (create_prob, key, *share, labels, started[k : k + 1])) for k, share in shares], threads)
        before = born + np.cumsum(started) - started
        parallel.run([(number, (*share, int(before[k]), labels)) for k, share in shares if before[k]], threads)
        parallel.run([(follow, (*share, labels)) for _, share in shares], threads)
        born += int(started.sum())
    return born


@kernel
def draw(create_prob, key, lo, hi, labels, started):
    """Write for points lo … hi - 1 a number among the clusters that start here, or -1 - the point followed."""
    nodes, create, follow = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64)
    for first in range(lo, hi, _BLOCK):
        for j in range(_BLOCK):
            nodes[j] = np.uint64(first + j)
        philox.blocks(nodes, _BLOCK, philox.CLUSTER, key, create, follow)
        for j in range(min(_BLOCK, hi - first)):
            i = first + j
            new = i == 0 or philox.uniform(create[j]) < create_prob
            followed = int(philox.uniform(follow[j]) * i)
            labels[i] = started[0] if new else -1 - followed
            started[0] += new


@kernel
def number(lo, hi, before, labels):
    """Add the number of clusters that started before to the numbers of those that start at points lo … hi - 1."""
    for i in range(lo, hi):
        labels[i] += before if labels[i] >= 0 else 0


@kernel
def follow(lo, hi, labels):
    """Replace points that are followed by their clusters.

    Other threads do the same to their points at the same time. An entry read from their points is either the point
    followed or already its cluster, and both lead to the same cluster.
    """
    points = np.empty(_BLOCK, np.int64)
    for first in range(lo, hi, _BLOCK):
        n = min(_BLOCK, hi - first)
        for j in range(n):
            label = np.int64(labels[first + j])
            points[j] = -1 - label if label < 0 else first + j
            prefetch(labels, points[j])
        for j in range(n):
            cluster = labels[points[j]]
            while cluster < 0:
                cluster = labels[-1 - cluster]
            labels[first + j] = cluster


@kernel
def follow_to_founder(point, create_prob, key):
    """Return the founder of a point's cluster, by following O(log n) points back."""
    while point > 0:
        create, follow = philox.block(np.uint64(point), 0, philox.CLUSTER, key)
        if philox.uniform(create) < create_prob:
            break
        point = int(philox.uniform(follow) * point)
    return point
