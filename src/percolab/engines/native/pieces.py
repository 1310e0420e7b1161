"""Growing pieces: parts of clusters small enough for the cache, each on its own.

A piece is split down to its points, many latents at a time. Then the tokens that start in it, and those that enter it
from above, walk down to the points where their bonds end, all by one step at a time; see `skeleton` for the rule.
"""

from __future__ import annotations

import numpy as np

from percolab.engines.native import skeleton
from percolab.engines.native.skeleton import FIRST, LATENT, PIECE, SIZE, TOKENS
from percolab.engines.native.splitting import split_small
from percolab.ground.compiled import kernel
from percolab.rng import philox

_ONE, _32, _63 = np.uint64(1), np.uint64(32), np.uint64(63)
_LOW = np.uint64(0xFFFFFFFF)
_LANES = 64
"""Nodes whose random numbers are drawn at once, in vector registers."""
GROUP = 2 * PIECE
"""Most rows that are grown together, in work arrays that stay in cache."""
_NOWHERE = GROUP
"""A slot that belongs to no latent: writing there is cheaper than a branch that cannot be predicted."""
_GUESTS = GROUP + 1
"""The slot of the first token that enters from above; it holds a bond's key, no latent."""

# In these kernels, loops that look things up and loops that store at places just found are kept apart: a store whose
# address is not known yet holds up all loads after it. Slots are unsigned, which saves the test for negative indices.


@kernel
def grow(lo, hi, piece, piece_path, entering, key, left_size, ends):
    """Grow pieces lo … hi - 1: fill their part of `left_size` and the rows of bonds that end there.

    The latent i-th in preorder in a piece whose first row is r-th in the group has slot r + i. For every slot there are
    its number of points, that of its left side, its first row in the group, its path, its bond's key, the threshold of
    coins tossed there, and its children: a slot, or -1 - r for the r-th row of the group. Token 2 slot + side is an end
    of the slot's bond; `at` is where it has come to.
    """
    begin = piece[lo - 1, TOKENS] if lo > 0 else 0
    slots, room = GROUP + 1, _GUESTS + piece[hi - 1, TOKENS] - begin
    size, left, first = np.ones(slots, np.uint32), np.ones(slots, np.uint32), np.zeros(slots, np.uint32)
    path, threshold, bond_key = np.empty(slots, np.uint64), np.empty(slots, np.uint64), np.empty(room, np.uint64)
    child, at, walking = np.empty((slots, 2), np.int32), np.empty((room, 2), np.int32), np.empty(2 * room, np.uint64)
    queue, lanes = np.empty(slots, np.uint32), np.empty((4, _LANES), np.uint64)
    while lo < hi:
        end = next_group(lo, hi, piece)
        count = _split_group(lo, end, piece, piece_path, key, size, left, first, path, bond_key, queue, lanes, walking)
        _link_slots(size, left, first, threshold, child, at)
        count = _enter_tokens(lo, end, piece, begin, entering, bond_key, at, walking, count)
        _walk_tokens(count, walking, bond_key, path, threshold, child.reshape(-1), at.reshape(-1))
        _write_group(lo, end, piece, begin, entering, left, at, left_size, ends)
        begin, lo = piece[end - 1, TOKENS], end


@kernel
def _split_group(lo, hi, piece, piece_path, key, size, left, first, path, bond_key, queue, lanes, walking):
    """Split pieces lo … hi - 1 down to their points, many nodes at a time; return how many tokens have to walk.

    A token that starts on a side of several points is put in `walking`: the slot where it is, in the high half of a
    word, and its number in the low half.
    """
    waiting = count = np.uint64(0)
    for p in range(lo, hi):
        slot = np.uint32(piece[p, FIRST] - piece[lo, FIRST])
        size[slot], first[slot], path[slot] = piece[p, SIZE], slot, piece_path[p]
        queue[waiting] = slot
        waiting += np.uint64(piece[p, SIZE] > 2)
    left[:] = 1  # pairs are not drawn
    slots, lefts = np.empty(_LANES, np.uint32), np.empty(_LANES, np.uint32)
    nodes, choice, bond_keys, left_path = lanes[0], lanes[1], lanes[2], lanes[3]
    while waiting > 0:
        taken = min(np.int64(waiting), _LANES)
        waiting -= np.uint64(taken)
        for j in range(taken):
            slots[j] = queue[waiting + np.uint64(j)]
            nodes[j] = path[slots[j]]
        whole = (taken + 7) // 8 * 8
        philox.blocks(nodes, whole, philox.SPLIT, key, choice, bond_keys)
        for j in range(whole):
            left_path[j], _ = philox.child_paths(nodes[j])
        for j in range(taken):
            lefts[j] = split_small(np.int64(size[slots[j]]), philox.uniform(choice[j]))
        for j in range(taken):
            slot, on_left = np.int64(slots[j]), np.int64(lefts[j])
            on_right, row = np.int64(size[slot]) - on_left, np.int64(first[slot])
            left[slot], bond_key[slot] = on_left, bond_keys[j]
            right_slot = slot + on_left if on_right > 1 else _NOWHERE
            size[slot + 1], first[slot + 1], path[slot + 1] = on_left, row, left_path[j]
            size[right_slot], first[right_slot] = on_right, row + on_left
            path[right_slot] = philox.right_of(left_path[j])
            queue[waiting] = slot + 1
            waiting += np.uint64(on_left > 2)
            queue[waiting] = right_slot
            waiting += np.uint64(on_right > 2)
            walking[count] = np.uint64((slot + 1) << 32 | 2 * slot)
            count += np.uint64(on_left > 1)
            walking[count] = np.uint64(right_slot << 32 | 2 * slot + 1)
            count += np.uint64(on_right > 1)
    return np.int64(count)


@kernel(error_model="numpy")
def _link_slots(size, left, first, threshold, child, at):
    """Fill the threshold and the children of every slot, and where the ends of its bond start."""
    for slot in range(GROUP):
        points, on_left, row = np.int32(size[slot]), np.int32(left[slot]), np.int32(first[slot])
        threshold[slot] = skeleton.threshold(on_left, points)
        child[slot, 0] = at[slot, 0] = slot + 1 if on_left > 1 else -1 - row
        child[slot, 1] = at[slot, 1] = slot + on_left if points - on_left > 1 else -1 - row - on_left


@kernel
def _enter_tokens(lo, hi, piece, begin, entering, bond_key, at, walking, count):
    """Give the tokens that enter pieces lo … hi - 1 a slot, and add those that have to walk; return how many walk."""
    slot = _GUESTS
    for p in range(lo, hi):
        top = piece[p, FIRST] - piece[lo, FIRST]
        for t in range(begin, piece[p, TOKENS]):
            bond_key[slot], at[slot, 0] = entering[t, 0], -1 - top
            walking[count] = np.uint64(top << 32 | 2 * slot)
            count += piece[p, SIZE] > 1
            slot += 1
        begin = piece[p, TOKENS]
    return count


@kernel
def _walk_tokens(count, walking, bond_key, path, threshold, child, at):
    """Walk tokens down to points, all by one step at a time, and fill where each of them ends.

    Their steps do not wait for each other. Those that have not arrived close up, without a branch, which nobody could
    predict.
    """
    while count > 0:
        for t in range(count):
            slot, token = walking[t] >> _32, walking[t] & _LOW
            right = np.uint64(philox.fold(bond_key[token >> _ONE], path[slot]) >= threshold[slot])
            walking[t] = np.uint64(child[slot + slot + right]) << _32 | token
        walk_on = np.uint64(0)
        for t in range(count):
            walker = walking[t]
            at[walker & _LOW] = np.int64(walker) >> 32
            walking[walk_on] = walker
            walk_on += _ONE - (walker >> _63)
        count = np.int64(walk_on)


@kernel
def _write_group(lo, hi, piece, begin, entering, left, at, left_size, ends):
    """Write the sizes of left sides and the ends of bonds of pieces lo … hi - 1."""
    origin = piece[lo, FIRST]
    for p in range(lo, hi):
        base, latent, latents = piece[p, FIRST] - origin, piece[p, LATENT], piece[p, SIZE] - 1
        for i in range(latents):
            left_size[latent + i] = left[base + i]
        for i in range(latents):
            ends[2 * (latent + i)] = origin - 1 - at[base + i, 0]
            ends[2 * (latent + i) + 1] = origin - 1 - at[base + i, 1]
    for t in range(begin, piece[hi - 1, TOKENS]):
        ends[entering[t, 1]] = origin - 1 - at[_GUESTS + t - begin, 0]


# ---------------------------------------------------------------------- passes over grown pieces


@kernel
def next_group(lo, hi, piece):
    """Return the end of the longest run of pieces from `lo` on that fits in `GROUP` rows."""
    end = lo + 1
    while end < hi and piece[end, FIRST] + piece[end, SIZE] - piece[lo, FIRST] <= GROUP:
        end += 1
    return end


@kernel
def trace(lo, hi, piece, piece_path, left_size, first, size, path, row_path):
    """Fill, for a group of grown pieces, each latent's first row, size and path, by slot, and the path of each row.

    Rows are counted from the group's first. The latent i-th in preorder in a piece whose first row is r has slot r + i.
    """
    for p in range(lo, hi):
        base = piece[p, FIRST] - piece[lo, FIRST]
        first[base], size[base], path[base], row_path[base] = base, piece[p, SIZE], piece_path[p], piece_path[p]
        for i in range(piece[p, SIZE] - 1):
            slot, left = base + i, left_size[piece[p, LATENT] + i]
            row, right = first[slot], size[slot] - left
            left_path, right_path = philox.child_paths(path[slot])
            if left > 1:
                first[slot + 1], size[slot + 1], path[slot + 1] = row, left, left_path
            else:
                row_path[row] = left_path
            if right > 1:
                first[slot + left], size[slot + left], path[slot + left] = row + left, right, right_path
            else:
                row_path[row + left] = right_path
