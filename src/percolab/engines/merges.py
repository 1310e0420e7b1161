"""Merges of clusters, one after another: which group a point is in, and the merger tree as nested intervals."""

from percolab.ground.compiled import kernel


@kernel
def group_of(point, group):
    """Return the representative of a point's group, with path halving; `group` holds the parent of each point."""
    while group[point] != point:
        group[point] = group[group[point]]
        point = group[point]
    return point


@kernel
def lay_out(merges, ends, below, row, latent, first, left_size, bond):
    """Turn merges into nested intervals: preorder latents, rows in leaf order.

    Merge m joins two nodes, a point as itself and merge k as n + k, by a bond between two points, its `ends`; `below`
    is the number of points under it. `row` gets the row of every point. `latent` and `first` get the latent of every
    merge and its first row; the caller has filled in those of the last merge of each cluster. A merge comes after the
    merges that it joins, so going through the merges backwards is a top-down pass.
    """
    n = row.size
    for m in range(latent.size - 1, -1, -1):
        here, at = latent[m], first[m]
        left, right = merges[m, 0], merges[m, 1]
        count = below[left - n] if left >= n else 1
        left_size[here] = count
        if left < n:
            row[left] = at
        else:
            latent[left - n], first[left - n] = here + 1, at
        if right < n:
            row[right] = at + count
        else:
            latent[right - n], first[right - n] = here + count, at + count
    for m in range(latent.size):
        bond[latent[m], 0], bond[latent[m], 1] = row[ends[m, 0]], row[ends[m, 1]]
