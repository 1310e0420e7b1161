"""Sums: y = (sum of z along the point's latents and its own z) / √(1 + depth)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_shape
from percolab.model.forest import Forest
from percolab.model.paths import cluster_of_latent


def targets(forest: Forest, latent_z: ArrayLike, point_z: ArrayLike) -> Floats:
    """Return the target of every point for these values of latents and points. Linear time.

    y_x = (z_x + Σ z_i over the d_x latents above x) / √(1 + d_x) (paper, Sec. 4). For independent z ~ N(0, 1), each
    y_x is N(0, 1). Sums run from the top down, so the result equals, to the bit, the y that `generate` returns; to
    intervene on a few latents, `Dataset.do` gives the same in less time.
    """
    z, point_values = np.asarray(latent_z, np.float64), np.asarray(point_z, np.float64)
    check_shape("latent_z", z, (forest.n_latents,))
    check_shape("point_z", point_values, (forest.n_points,))
    y = np.empty(forest.n_points)
    sum_down(0, forest.n_clusters, forest.cluster_start, forest.left_size, z, point_values, y)
    return y


def update_targets(forest: Forest, latent_z: Floats, point_z: Floats, latents: Ints, rows: Ints, y: Floats) -> None:
    """Bring the targets up to date where the values of these latents and rows changed; both are sorted.

    The result equals `targets` to the bit. Time is that of the ways from the top down to the latents and rows, and of
    the rows below them, or linear if that is less.
    """
    arrays = forest.cluster_start, forest.left_size, latent_z, point_z, y
    if not _sum_parts(latents, rows, *arrays):
        sum_down(0, forest.n_clusters, *arrays)


@kernel
def sum_down(first_cluster, end_cluster, cluster_start, left_size, latent_z, point_z, y):
    """Fill y for a range of clusters, in one top-down pass each."""
    longest = 1
    for c in range(first_cluster, end_cluster):
        longest = max(longest, cluster_start[c + 1] - cluster_start[c])
    scratch = _scratch(longest)
    for c in range(first_cluster, end_cluster):
        start, points = cluster_start[c], cluster_start[c + 1] - cluster_start[c]
        if points == 1:
            y[start] = point_z[start]
        else:
            _sum_below(start - c, start, points, 0, 0.0, left_size, latent_z, point_z, y, scratch)


@kernel
def _scratch(size):
    """Return work arrays for latents of at most this many points."""
    return np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)


@kernel
def _sum_below(top, start, points, level, total_above, left_size, latent_z, point_z, y, scratch):
    """Fill y below a latent, given its interval, its depth and the sum of z above it."""
    first, size, depth, above = scratch
    first[0], size[0], depth[0], above[0] = start, points, level, total_above
    for k in range(points - 1):
        left = left_size[top + k]
        right = size[k] - left
        total = latent_z[top + k] + above[k]
        for child, at, count in ((k + 1, first[k], left), (k + left, first[k] + left, right)):
            if count == 1:
                y[at] = (point_z[at] + total) / np.sqrt(depth[k] + 2.0)
            else:
                first[child], size[child], depth[child], above[child] = at, count, depth[k] + 1, total


@kernel
def _sum_parts(latents, rows, cluster_start, left_size, latent_z, point_z, y):
    """Fill y below latents, and of rows; return False, with y half done, if that takes more steps than all of y."""
    steps, done = 0, 0
    for latent in latents:
        if latent < done:  # below one that is done
            continue
        cluster = cluster_of_latent(cluster_start, latent)
        first, size, depth, above = _sum_to(latent, -1, cluster, cluster_start, left_size, latent_z)
        steps += depth + size
        if steps > y.size:
            return False
        _sum_below(latent, first, size, depth, above, left_size, latent_z, point_z, y, _scratch(size))
        done = latent + size - 1
    for row in rows:
        cluster = np.searchsorted(cluster_start, row, side="right") - 1
        _, _, depth, above = _sum_to(-1, row, cluster, cluster_start, left_size, latent_z)
        steps += depth
        if steps > y.size:
            return False
        y[row] = point_z[row] if depth == 0 else (point_z[row] + above) / np.sqrt(depth + 1.0)
    return True


@kernel
def _sum_to(latent, row, cluster, cluster_start, left_size, latent_z):
    """Return the first row, the size and the depth of a latent, and the sum of z above it.

    With latent -1 the same of a row, whose size is 1.
    """
    at, first = cluster_start[cluster] - cluster, cluster_start[cluster]
    size, depth, above = cluster_start[cluster + 1] - first, 0, 0.0
    while size > 1 and at != latent:
        left = left_size[at]
        above = latent_z[at] + above
        depth += 1
        if latent < at + left if latent >= 0 else row < first + left:
            at, size = at + 1, left
        else:
            at, first, size = at + left, first + left, size - left
    return first, size, depth, above
