"""The cyclic coalescent (paper, Algorithm 1): a uniform random tree and its merger tree, together."""

from __future__ import annotations

import numpy as np

from percolab.engines.merges import group_of, lay_out
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_integer, check_seed
from percolab.model.forest import Forest
from percolab.rng import pcg64

FIRST_CLUSTER_CHILD = 2  #: Spawn key of cluster 0 below the graph seed; 0 and 1 belong to the attachment process.

SIZE_LIMIT = 2**31  #: Cluster size from which the kernel's 32-bit work arrays would overflow.


def cyclic_coalescent(n: int, seed: int) -> Forest:
    """Sample a uniform random labelled tree on n points with its merger tree, as a forest of one cluster.

    All n^(n-2) trees are equally likely, and given the tree the order in which its bonds merge blocks is uniform over
    the (n-1)! orders (paper, Theorem on the cyclic coalescent; Pitman 1999). Time O(n alpha(n)), memory O(n).
    The forest equals that of a `Recipe` with ``mode="one_cluster"``, ``engine="paper"`` and this graph seed.

    Parameters
    ----------
    n
        Number of points.
    seed
        Seed of the graph.
    """
    n = check_integer("n", n, 1)
    if n >= SIZE_LIMIT:
        raise ValueError(f"n must be below 2**31, got {n}")
    root = pcg64.root_pool(check_seed("seed", seed))
    left_size, bond, row = np.empty(n - 1, np.int64), np.empty((n - 1, 2), np.int64), np.zeros(n, np.int64)
    if n > 1:
        grow(n, pcg64.spawn(root, FIRST_CLUSTER_CHILD), left_size, bond, row)
    point_id = np.empty(n, np.int64)
    point_id[row] = np.arange(n)
    return Forest(np.array([0, n]), np.zeros(1, np.int64), point_id, left_size, bond)


@kernel
def grow(size, pool, left_size, bond, row):
    """Run `coalesce` and `arrange` for one cluster that starts at row 0."""
    work = work_arrays(size)
    coalesce(size, pool, work)
    arrange(size, 0, work, left_size, bond, row, np.empty((size - 1, 2), np.int32), np.empty(size - 1, np.int32))


@kernel
def work_arrays(size):
    """Return scratch for a cluster of up to `size` points: children, bond ends and sizes of merges; cycle; blocks."""
    children, ends = np.empty((size, 2), np.int32), np.empty((size, 2), np.int32)
    below, cycle, blocks = np.empty(size, np.int32), np.empty(size, np.int32), np.empty((size, 5), np.int32)
    return children, ends, below, cycle, blocks


@kernel
def coalesce(size, pool, work):
    """Run Algorithm 1 on a cluster of `size` ≥ 2 points, numbered 0, 1, … by birth.

    Merge m gets `children[m]` (a point as itself, merge k as size + k), the bond's `ends[m]` on the same sides, and
    the number of points `below[m]`. A block is an arc of the cycle; `blocks` holds its union-find parent, rank, first
    position, length and current top. The first child is the lower-numbered of two points, a point before a merge, the
    later of two merges: the order of the published datasets.
    """
    children, ends, below, cycle, blocks = work
    block = blocks[:, 0]
    position_stream = pcg64.make_stream(pcg64.spawn(pool, 0))
    u_stream = pcg64.make_stream(pcg64.spawn(pool, 1))
    v_stream = pcg64.make_stream(pcg64.spawn(pool, 2))
    for i in range(size):
        cycle[i] = i
    pcg64.shuffle(position_stream, cycle[:size])
    for i in range(size):
        blocks[i, 0] = i
        blocks[i, 1] = 0
        blocks[i, 2] = i
        blocks[i, 3] = 1
        blocks[i, 4] = cycle[i]
    for m in range(size - 1):
        u = pcg64.integer_below(u_stream, size)
        a = group_of(u, block)
        after = blocks[a, 2] + blocks[a, 3]
        b = group_of(after - size if after >= size else after, block)
        v = blocks[b, 2] + int(pcg64.random(v_stream) * blocks[b, 3])
        if v >= size:
            v -= size
        top_a, top_b = blocks[a, 4], blocks[b, 4]
        a_first = top_a < top_b if top_a < size or top_b < size else top_a > top_b
        left, right = (0, 1) if a_first else (1, 0)
        children[m, left], children[m, right] = top_a, top_b
        ends[m, left], ends[m, right] = cycle[u], cycle[v]
        below[m] = blocks[a, 3] + blocks[b, 3]
        first = blocks[a, 2]
        if blocks[a, 1] < blocks[b, 1]:
            a, b = b, a
        elif blocks[a, 1] == blocks[b, 1]:
            blocks[a, 1] += 1
        blocks[b, 0] = a
        blocks[a, 2], blocks[a, 3], blocks[a, 4] = first, below[m], size + m


@kernel
def arrange(size, first_row, work, left_size, bond, row, split_rows, merge_order):
    """Turn the merges of a cluster into nested intervals, as `lay_out` does.

    `row[i]` is the row of the point i-th by birth. For the latent merged k-th from the end, `merge_order[k]` is its
    number in preorder and `split_rows[k]` the first rows of its two children.
    """
    children, ends, below, _, blocks = work
    latent, first = blocks[: size - 1, 0], blocks[: size - 1, 2]
    latent[size - 2], first[size - 2] = 0, first_row
    lay_out(children, ends, below, row[:size], latent, first, left_size, bond)
    for k in range(size - 1):
        m = size - 2 - k
        merge_order[k] = latent[m]
        split_rows[k, 0], split_rows[k, 1] = first[m], first[m] + left_size[latent[m]]
