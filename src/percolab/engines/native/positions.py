"""Positions of native data: directions drawn by path, walks inside pieces, pieces put in place.

The walk from a cluster's root enters a piece at one row, its entry, from a row of another piece. Inside the piece,
positions are summed from there: they are *displacements* from the place where the walk left the other piece, the
*anchor*. Anchors follow from each other along the tree of pieces; adding a piece's anchor to its displacements gives
positions. So pieces are filled independently. Anchors are integers, multiples of `UNIT`, whose sums do not depend on
their order: positions are the same however a cluster is shared out.
"""

from __future__ import annotations

import numpy as np

from percolab.engines import embedding
from percolab.engines.native.pieces import GROUP, next_group, trace
from percolab.engines.native.skeleton import FIRST, LATENT, LEFT, PARENT, SIZE
from percolab.ground.compiled import kernel
from percolab.rng import philox

WORDS_AT_ONCE = 512
"""About how many Philox blocks are drawn at once: vector registers need many, the cache holds few."""
UNIT = 2.0**-42
"""Unit of anchors."""
AT_ROOT = -1
"""Entry of an interval in which the walk starts, in place of the place of a bond's end."""


@kernel
def gaussians(paths, lo, hi, words, purpose, key, nodes, indices, bits, out):
    """Fill float32 normals for the nodes paths[lo:hi]: 4 · `words` each, one after another."""
    for i in range(lo, hi):
        for j in range(words):
            nodes[(i - lo) * words + j] = paths[i]
    count = (hi - lo) * words
    philox.bits_of_nodes(nodes[:count], indices[:count], purpose, key, bits[: 4 * count])
    philox.normals_of_bits(bits[: 4 * count], out[: 4 * count])


@kernel
def gaussian_scratch(dim):
    """Return how many nodes to draw at once for vectors of this length, and work arrays for them."""
    words = (dim + 3) // 4
    at_once = max(8, WORDS_AT_ONCE // words // 8 * 8)
    count = at_once * words
    nodes, indices = np.empty(count, np.uint64), np.empty(count, np.uint64)
    for i in range(count):
        indices[i] = i % words
    return at_once, words, nodes, indices, np.empty(4 * count, np.int32), np.empty(4 * count, np.float32)


@kernel
def unit_vectors(paths, rows, count, X, purpose, key, scratch):
    """Put a uniform unit vector for each path in its row of X."""
    at_once, words, nodes, indices, bits, gauss = scratch
    dim = X.shape[1]
    for lo in range(0, count, at_once):
        hi = min(lo + at_once, count)
        gaussians(paths, lo, hi, words, purpose, key, nodes, indices, bits, gauss)
        for i in range(lo, hi):
            vector, first = X[rows[i]], 4 * words * (i - lo)
            for j in range(dim):
                vector[j] = gauss[first + j]
            embedding.normalise(vector)


@kernel
def split_vectors(paths, left_rows, right_rows, count, X, key, scratch):
    """Split the vectors of latents, in an order that has parents before children."""
    at_once, words, nodes, indices, bits, gauss = scratch
    draw = np.empty(X.shape[1], X.dtype)
    for lo in range(0, count, at_once):
        hi = min(lo + at_once, count)
        gaussians(paths, lo, hi, words, philox.DIRECTION, key, nodes, indices, bits, gauss)
        for i in range(lo, hi):
            first, left, right = 4 * words * (i - lo), X[left_rows[i]], X[right_rows[i]]
            if not embedding.split_far(gauss[first : first + draw.size], left, right):
                for j in range(draw.size):
                    draw[j] = gauss[first + j]
                embedding.split_direction(draw, left, right)


# ---------------------------------------------------------------------- the skeleton


@kernel
def _root_is_right(path, key):
    """Return whether the walk's root, if it is below a latent, is on its right side: probability 1/2."""
    bits, _ = philox.block(path, 0, philox.ROOT, key)
    return bits & np.uint64(1) != 0


@kernel
def choose_root(top, size, path, left_size, key):
    """Walk down from a top latent, left or right with probability 1/2 each; return the row reached, from its first."""
    i, row = top, 0
    while size > 1:
        left = left_size[i]
        left_path, right_path = philox.child_paths(path)
        if _root_is_right(path, key):
            i, row, size, path = i + left, row + left, size - left, right_path
        else:
            i, size, path = i + 1, left, left_path
    return row


@kernel
def open_skeleton(parent, path, rows, right_rows, X, key):
    """Hand vectors down a skeleton; those of clusters are drawn, those of limbs are in X already.

    A latent's vector is in X at `rows`; splitting it puts the left child's there and the right child's at `right_rows`.
    """
    scratch = gaussian_scratch(X.shape[1])
    tops, top_rows, count = np.empty(path.size, np.uint64), np.empty(path.size, np.int64), 0
    for s in range(path.size):
        if parent[s] == -1:
            tops[count], top_rows[count] = path[s], rows[s]
            count += 1
    unit_vectors(tops, top_rows, count, X, philox.VECTOR, key, scratch)
    split_vectors(path, rows, right_rows, path.size, X, key, scratch)


@kernel
def enter_pieces(piece, skeleton, skeleton_path, base, limb_entry, ends, key, entry):
    """Fill the place of the bond's end where the walk enters each piece, or `AT_ROOT`.

    The walk enters a latent's interval at one row; the bond leads from the side that holds this row into the other. It
    is enough that `ends` tells the piece where a bond from above ends.
    """
    at = np.empty(skeleton.shape[0], np.int64)
    for s in range(at.size):
        at[s] = _enter(skeleton[s], skeleton, skeleton_path, base, limb_entry, ends, key, at)
    for p in range(entry.size):
        entry[p] = _enter(piece[p], skeleton, skeleton_path, base, limb_entry, ends, key, at)


@kernel
def _enter(node, skeleton, skeleton_path, base, limb_entry, ends, key, at):
    """Return where the walk enters a node, given where it enters the latent above."""
    parent = node[PARENT]
    if parent == -1:
        return AT_ROOT
    if parent < -1:
        return limb_entry[-2 - parent]
    middle = skeleton[parent, FIRST] + skeleton[parent, LEFT]
    is_right = node[FIRST] == middle
    came = at[parent]
    entered_right = _root_is_right(skeleton_path[parent], key) if came == AT_ROOT else ends[came] >= middle
    if is_right == entered_right:
        return came
    return base + 2 * parent + np.int64(is_right)


@kernel
def fixed(x):
    """Return a coordinate as a multiple of `UNIT`."""
    return np.int64(np.rint(np.float64(x) / UNIT))


@kernel
def draw_origins(paths, key, scale, anchor):
    """Fill the scaled origins of clusters, in units of anchors.

    An origin is uniform in the unit ball: d coordinates of a uniform point of the sphere in R^(d+2).
    """
    dim = anchor.shape[1]
    point, scratch = np.empty((1, dim + 2)), gaussian_scratch(dim + 2)
    row = np.zeros(1, np.int64)
    for i in range(anchor.shape[0]):
        unit_vectors(paths[i : i + 1], row, 1, point, philox.ORIGIN, key, scratch)
        for j in range(dim):
            anchor[i, j] = fixed(scale * point[0, j])


@kernel
def start_anchors(piece, skeleton, inside, entry, base, limb_anchor, origin_of, origin, anchor):
    """Fill the anchor of each piece listed in `inside` where the walk enters its limb or starts.

    `origin_of` tells, for the top of a cluster in the skeleton, which of the origins is its own.
    """
    for i in range(inside.size):
        if entry[inside[i]] >= base:
            continue
        top, parent = -1, piece[inside[i], PARENT]
        while parent >= 0:
            top, parent = parent, skeleton[parent, PARENT]
        for j in range(anchor.shape[1]):
            if parent < -1:
                anchor[i, j] = limb_anchor[-2 - parent, j]
            else:
                anchor[i, j] = origin[origin_of[top], j] if origin.shape[0] else 0


@kernel
def anchors(piece, inside, entry, base, ends, X, anchor):
    """Fill the anchors of the pieces listed in `inside`, in row order; those of `start_anchors` are there already.

    X holds displacements. The walk comes to a piece from the other end of the bond by which it enters.
    """
    before, order = np.empty(inside.size, np.int64), np.empty(inside.size, np.int64)
    starts = piece[:, FIRST][inside]
    for i in range(inside.size):
        place = entry[inside[i]]
        before[i] = -1 if place < base else np.searchsorted(starts, ends[place ^ 1], side="right") - 1
    embedding.walk_order(before, order, np.empty(inside.size, np.bool_))
    for i in order:
        if before[i] >= 0:
            row = ends[entry[inside[i]] ^ 1]
            for j in range(X.shape[1]):
                anchor[i, j] = anchor[before[i], j] + fixed(X[row, j])


@kernel
def shift(lo, hi, inside, piece, anchor, X):
    """Add its anchor to every row of pieces inside[lo:hi]."""
    offset = np.empty(X.shape[1])
    for i in range(lo, hi):
        for j in range(offset.size):
            offset[j] = anchor[i, j] * UNIT
        first, size = piece[inside[i], FIRST], piece[inside[i], SIZE]
        for row in range(first, first + size):
            for j in range(offset.size):
                X[row, j] += offset[j]


# ---------------------------------------------------------------------- inside pieces


@kernel
def place(lo, hi, piece, piece_path, entry, left_size, bond, ends, X, key, step, scale, has_origin):
    """Fill the rows of pieces lo … hi - 1 of X: positions where a piece is a cluster, else displacements."""
    dim = X.shape[1]
    scratch, origin_scratch = gaussian_scratch(dim), gaussian_scratch(dim + 2)
    ints, words = np.empty((8, GROUP), np.int64), np.empty((3, GROUP), np.uint64)
    centres = np.zeros((GROUP if has_origin else 1, dim + 2), X.dtype)
    nowhere, work = np.zeros(dim + 2, X.dtype), embedding.walk_work(GROUP)
    stride, scale = X.dtype.type(step * scale), X.dtype.type(scale)
    while lo < hi:
        end = next_group(lo, hi, piece)
        start = piece[lo, FIRST]
        first, size, left_row, right_row = ints[0], ints[1], ints[2], ints[3]
        path, row_path, listed = words[0], words[1], words[2]
        trace(lo, end, piece, piece_path, left_size, first, size, path, row_path)

        tops = 0
        for p in range(lo, end):
            if piece[p, PARENT] == -1:
                listed[tops], left_row[tops], right_row[tops] = piece_path[p], piece[p, FIRST], tops
                tops += 1
        unit_vectors(listed, left_row, tops, X, philox.VECTOR, key, scratch)
        if has_origin:
            unit_vectors(listed, right_row, tops, centres, philox.ORIGIN, key, origin_scratch)
            for t in range(tops):
                for j in range(dim):
                    centres[t, j] *= scale

        latents = 0
        for p in range(lo, end):
            base = piece[p, FIRST] - start
            for slot in range(base, base + piece[p, SIZE] - 1):
                listed[latents] = path[slot]
                left_row[latents] = start + first[slot]
                right_row[latents] = start + first[slot] + left_size[piece[p, LATENT] + slot - base]
                latents += 1
        split_vectors(listed, left_row, right_row, latents, X, key, scratch)

        tops = 0
        for p in range(lo, end):
            first_row = piece[p, FIRST]
            if entry[p] == AT_ROOT:
                enter = choose_root(piece[p, LATENT], piece[p, SIZE], piece_path[p], left_size, key)
            else:
                enter = ends[entry[p]] - first_row
            is_cluster = piece[p, PARENT] == -1
            centre = centres[tops] if is_cluster and has_origin else nowhere
            tops += is_cluster
            rows = X[first_row : first_row + piece[p, SIZE]]
            latent = piece[p, LATENT]
            latents = slice(latent, latent + piece[p, SIZE] - 1)
            order, parent = embedding.plan_walk(first_row, left_size[latents], bond[latents], enter, work)
            embedding.walk(rows, order, parent, centre, stride)
        lo = end
