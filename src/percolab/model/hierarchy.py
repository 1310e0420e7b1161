"""Compiled passes over nested intervals: what `Forest` derives from its columns.

Latents are stored in preorder. A latent i of m points whose left child has l of them fills the preorder slots
[i, i + m - 1): its left child, if it is a latent, is i + 1, and its right one is i + l. Parents come before children,
so every pass below is a single forward sweep: no recursion, no stack.
"""

from percolab.ground.compiled import kernel


@kernel
def extents(cluster_start, left_size, latent_start, latent_size):
    """Fill the first row and the number of rows of every latent's interval; return -1 if all is well.

    If a `left_size` is not in [1, size - 1], stop and return its latent: so a wrong `left_size` never leads out of
    bounds.
    """
    for c in range(cluster_start.size - 1):
        first, size = cluster_start[c], cluster_start[c + 1] - cluster_start[c]
        top = first - c
        if size > 1:
            latent_start[top] = first
            latent_size[top] = size
        for i in range(top, top + size - 1):
            left = left_size[i]
            right = latent_size[i] - left
            if left < 1 or right < 1:
                return i
            if left > 1:
                latent_start[i + 1] = latent_start[i]
                latent_size[i + 1] = left
            if right > 1:
                latent_start[i + left] = latent_start[i] + left
                latent_size[i + left] = right
    return -1


@kernel
def ancestry(cluster_start, left_size, latent_size, latent_depth, latent_parent):
    """Fill the depth (0 at a cluster's top) and the parent (-1 at the top) of every latent."""
    for c in range(cluster_start.size - 1):
        top = cluster_start[c] - c
        end = cluster_start[c + 1] - c - 1
        if end > top:
            latent_depth[top] = 0
            latent_parent[top] = -1
        for i in range(top, end):
            left = left_size[i]
            if left > 1:
                latent_depth[i + 1] = latent_depth[i] + 1
                latent_parent[i + 1] = i
            if latent_size[i] - left > 1:
                latent_depth[i + left] = latent_depth[i] + 1
                latent_parent[i + left] = i


@kernel
def paint_depth(latent_start, latent_size, latent_depth, depth, out):
    """Write each latent of this depth over its interval: at one depth the intervals are disjoint."""
    for i in range(latent_depth.size):
        if latent_depth[i] == depth:
            for row in range(latent_start[i], latent_start[i] + latent_size[i]):
                out[row] = i


@kernel
def membership_indices(start, size, indptr, indices):
    """Fill CSR columns: row r lists, in increasing order, the intervals that cover it."""
    cursor = indptr[:-1].copy()
    for j in range(start.size):
        for row in range(start[j], start[j] + size[j]):
            indices[cursor[row]] = j
            cursor[row] += 1
