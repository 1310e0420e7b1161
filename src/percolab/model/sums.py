"""Sums: y = (sum of z along the point's latents and its own z) / √(1 + depth)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from percolab.ground.arrays import Floats
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_shape
from percolab.model.forest import Forest


def targets(forest: Forest, latent_z: ArrayLike, point_z: ArrayLike) -> Floats:
    """Return the target of every point for these values of latents and points. Linear time.

    y_x = (z_x + Σ z_i over the d_x latents above x) / √(1 + d_x) (paper, Sec. 4). For independent z ~ N(0, 1), each
    y_x is N(0, 1). Sums run from the top down, so the result equals, to the bit, the y that `generate` returns.
    """
    z, point_values = np.asarray(latent_z, np.float64), np.asarray(point_z, np.float64)
    check_shape("latent_z", z, (forest.n_latents,))
    check_shape("point_z", point_values, (forest.n_points,))
    y = np.empty(forest.n_points)
    sum_down(0, forest.n_clusters, forest.cluster_start, forest.left_size, z, point_values, y)
    return y


@kernel
def sum_down(first_cluster, end_cluster, cluster_start, left_size, latent_z, point_z, y):
    """Fill y for a range of clusters, in one top-down pass each."""
    longest = 1
    for c in range(first_cluster, end_cluster):
        longest = max(longest, cluster_start[c + 1] - cluster_start[c])
    first, size, depth = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    above = np.empty(longest)
    for c in range(first_cluster, end_cluster):
        start, points = cluster_start[c], cluster_start[c + 1] - cluster_start[c]
        if points == 1:
            y[start] = point_z[start]
        first[0], size[0], depth[0], above[0] = start, points, 0, 0.0
        for k in range(points - 1):
            left = left_size[start - c + k]
            right = size[k] - left
            total = latent_z[start - c + k] + above[k]
            for child, at, count in ((k + 1, first[k], left), (k + left, first[k] + left, right)):
                if count == 1:
                    y[at] = (point_z[at] + total) / np.sqrt(depth[k] + 2.0)
                else:
                    first[child], size[child], depth[child], above[child] = at, count, depth[k] + 1, total
