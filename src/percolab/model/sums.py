"""Targets: y = (sum of z along the point's latents and its own z) / √(1 + depth)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.compiled import kernel
from percolab.model.forest import Forest


def targets(forest: Forest, latent_z: ArrayLike, point_z: ArrayLike) -> NDArray[np.float64]:
    """Return the target of every point for these values of latents and points. Linear time.

    y_x = (z_x + Σ z_i over the d_x latents above x) / √(1 + d_x) (paper, Sec. 4). For independent z ~ N(0, 1), each
    y_x is N(0, 1). Sums run from the top down, so the result equals, to the bit, the y that `generate` returns; to
    intervene on a latent, change its z and call this again.
    """
    z, own = np.asarray(latent_z, np.float64), np.asarray(point_z, np.float64)
    if z.shape != (forest.n_latents,):
        raise ValueError(f"latent_z must have shape ({forest.n_latents},), got {z.shape}")
    if own.shape != (forest.n_points,):
        raise ValueError(f"point_z must have shape ({forest.n_points},), got {own.shape}")
    y = np.empty(forest.n_points)
    sum_down(0, forest.n_clusters, forest.cluster_start, forest.left_size, z, own, y)
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
        top = start - c
        if points == 1:
            y[start] = point_z[start]
            continue
        first[0], size[0], depth[0], above[0] = start, points, 0, 0.0
        for k in range(points - 1):
            left = left_size[top + k]
            right = size[k] - left
            total = latent_z[top + k] + above[k]
            for child, at, count in ((k + 1, first[k], left), (k + left, first[k] + left, right)):
                if count == 1:
                    y[at] = (point_z[at] + total) / np.sqrt(depth[k] + 2.0)
                else:
                    first[child], size[child], depth[child], above[child] = at, count, depth[k] + 1, total
