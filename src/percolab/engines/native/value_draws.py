"""Values of latents and points by path, and the targets they sum to."""

from __future__ import annotations

import numpy as np

from percolab.engines.native import pieces
from percolab.engines.native.growth import Trees
from percolab.engines.native.pieces import GROUP
from percolab.ground.arrays import Floats
from percolab.ground.compiled import kernel
from percolab.ground.progress import Progress
from percolab.rng import philox


def draw_values(
    trees: Trees, limb_above: Floats, key: np.uint64, threads: int, progress: Progress
) -> tuple[Floats, Floats, Floats]:
    """Return the targets of a stand and the z of its latents and points; `limb_above` is the sum of z above each limb.

    Every z is drawn, and summed to targets.
    """
    skeleton, n = trees.expansion.skeleton, trees.stand.n_rows
    y, latent_z, point_z = np.empty(n), np.empty(trees.stand.n_latents), np.empty(n)
    above = np.zeros(skeleton.size + limb_above.size + 1)
    above[skeleton.size : -1] = limb_above[::-1]  # `parent` is -1 at the top of a cluster and -2 - j of limb j
    latent_z[skeleton["latent"]] = draw_skeleton(skeleton, key, above)
    rest = trees.expansion.tip, trees.left_size, above, key, latent_z, point_z, y
    trees.for_pieces("values", _draw_pieces, *rest, threads=threads, progress=progress)
    return y, latent_z, point_z


@kernel
def draw_skeleton(skeleton, key, above):
    """Return the z of a skeleton and fill the sum of z down to each of its latents."""
    z = np.empty(skeleton.size)
    philox.normals(skeleton.path.copy(), philox.VALUE, key, np.empty(2 * z.size, np.uint64), z)
    for s in range(z.size):
        above[s] = z[s] + above[skeleton[s].parent]
    return z


@kernel
def _draw_pieces(lo, hi, piece, left_size, above, key, latent_z, point_z, y):
    """Draw the z of pieces lo … hi - 1 and fill their targets."""
    nodes, bits, z = pieces.trace_work(), np.empty(2 * GROUP, np.uint64), np.empty(GROUP)
    depth, total = np.empty(GROUP, np.int64), np.empty(GROUP)
    while lo < hi:
        stop = pieces.next_group(lo, hi, piece)
        start = piece[lo].first
        rows = piece[stop - 1].first + piece[stop - 1].size - start
        pieces.trace(lo, stop, piece, left_size, nodes)
        philox.normals(nodes.path[:rows], philox.VALUE, key, bits, z)
        philox.normals(nodes.row_path[:rows], philox.VALUE, key, bits, point_z[start : start + rows])
        for p in range(lo, stop):
            top = above[piece[p].parent]
            _sum_piece(piece[p], top, start, left_size, nodes, depth, z, total, latent_z, point_z, y)
        lo = stop


@kernel
def _sum_piece(piece, above, start, left_size, nodes, depth, z, total, latent_z, point_z, y):
    """Sum z from the top of a piece down, in the order of `sums.sum_down`; slots count rows from `start`."""
    latent, base = piece.latent, piece.first - start
    depth[base], total[base] = piece.depth, above
    if piece.size == 1:
        y[piece.first] = (point_z[piece.first] + above) / np.sqrt(piece.depth + 1.0)
    for i in range(piece.size - 1):
        slot, left = base + i, left_size[latent + i]
        right, row = nodes.size[slot] - left, start + nodes.first[slot]
        latent_z[latent + i] = z[slot]
        down = z[slot] + total[slot]
        root = np.sqrt(depth[slot] + 2.0)
        if left > 1:
            depth[slot + 1], total[slot + 1] = depth[slot] + 1, down
        else:
            y[row] = (point_z[row] + down) / root
        if right > 1:
            depth[slot + left], total[slot + left] = depth[slot] + 1, down
        else:
            y[row + left] = (point_z[row + left] + down) / root
