"""Growing pieces: parts of clusters small enough for the cache, each grown independently.

A piece is split down to its points, many latents at a time. Then the tokens that start in it, and those that enter it
from above, walk down to the points where their bonds end, all tokens one step at a time; see `skeleton` for the rule.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from percolab.engines.native import skeleton
from percolab.engines.native.skeleton import PIECE
from percolab.engines.native.splitting import split_small
from percolab.ground.compiled import kernel
from percolab.rng import philox

_ONE, _32, _63 = np.uint64(1), np.uint64(32), np.uint64(63)
_LOW = np.uint64(0xFFFFFFFF)
_LANES = 64  #: Nodes whose random numbers are drawn at once, in vector registers.
GROUP = 2 * PIECE  #: Most rows that are grown together, in work arrays that stay in cache.
_NOWHERE = GROUP  #: A slot that belongs to no latent: writing to it is cheaper than an unpredictable branch.
_GUESTS = GROUP + 1  #: The slot of the first token that enters from above; it holds the key of a bond, not a latent.


class _Slots(NamedTuple):
    """The latents of a group of pieces, as columns.

    The latent i-th in preorder in a piece whose first row is r-th in the group has *slot* r + i. Token 2 slot + side is
    an end of the slot's bond.
    """

    size: Any  #: number of points
    left: Any  #: number of points on the left
    first: Any  #: first row, counted from the first row of the group
    path: Any
    bond_key: Any
    threshold: Any  #: the number that coins tossed at this latent are compared with
    child: Any  #: (…, 2) a slot, or -1 - r for the r-th row of the group
    at: Any  #: (…, 2) where the ends of the bond are now, in the same way


# In these kernels, loops that look things up and loops that store at slots just found are kept apart: a store whose
# address is not known yet holds up all loads after it. Slots are unsigned, which saves the test for negative indices.


@kernel
def grow(lo, hi, piece, entering, key, left_size, end_row):
    """Grow pieces lo … hi - 1: fill their part of `left_size` and the rows of the ends that fall there."""
    begin = piece[lo - 1].tokens_end if lo > 0 else 0
    guests = piece[hi - 1].tokens_end - begin
    latents, all_slots = GROUP + 1, _GUESTS + guests
    slots = _Slots(
        size=np.empty(latents, np.uint32),
        left=np.empty(latents, np.uint32),
        first=np.empty(latents, np.uint32),
        path=np.empty(latents, np.uint64),
        bond_key=np.empty(all_slots, np.uint64),
        threshold=np.empty(latents, np.uint64),
        child=np.empty((latents, 2), np.int32),
        at=np.empty((all_slots, 2), np.int32),
    )
    slots.size[:], slots.first[:] = 1, 0
    walking = np.empty(2 * all_slots, np.uint64)
    while lo < hi:
        stop = next_group(lo, hi, piece)
        count = _split_group(lo, stop, piece, key, slots, walking)
        _link_slots(slots)
        count = _enter_tokens(lo, stop, piece, begin, entering, slots, walking, count)
        _walk_tokens(count, walking, slots)
        _write_group(lo, stop, piece, begin, entering, slots, left_size, end_row)
        begin, lo = piece[stop - 1].tokens_end, stop


@kernel
def _split_group(lo, hi, piece, key, slots, walking):
    """Split pieces lo … hi - 1 down to their points, many nodes at a time; return how many tokens have to walk.

    A token that starts on a side of several points is put in `walking`: the slot where it is, in the high half of a
    word, and its number in the low half.
    """
    size, left, first, path, bond_key = slots.size, slots.left, slots.first, slots.path, slots.bond_key
    queue, waiting, count = np.empty(GROUP + 1, np.uint32), np.uint64(0), np.uint64(0)
    for p in range(lo, hi):
        slot = np.uint32(piece[p].first - piece[lo].first)
        size[slot], first[slot], path[slot] = piece[p].size, slot, piece[p].path
        queue[waiting] = slot
        waiting += np.uint64(piece[p].size > 2)
    left[:] = 1  # a latent of two points needs no draw
    drawn, lefts = np.empty(_LANES, np.uint32), np.empty(_LANES, np.uint32)
    nodes, left_path = np.empty(_LANES, np.uint64), np.empty(_LANES, np.uint64)
    choice, bond_keys = np.empty(_LANES, np.uint64), np.empty(_LANES, np.uint64)
    while waiting > 0:
        taken = min(np.int64(waiting), _LANES)
        waiting -= np.uint64(taken)
        for j in range(taken):
            drawn[j] = queue[waiting + np.uint64(j)]
            nodes[j] = path[drawn[j]]
        whole = (taken + 7) // 8 * 8
        philox.blocks(nodes, whole, philox.SPLIT, key, choice, bond_keys)
        for j in range(whole):
            left_path[j], _ = philox.child_paths(nodes[j])
        for j in range(taken):
            lefts[j] = split_small(np.int64(size[drawn[j]]), philox.uniform(choice[j]))
        for j in range(taken):
            slot, on_left = np.int64(drawn[j]), np.int64(lefts[j])
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
def _link_slots(slots):
    """Fill the threshold and the children of every slot, and where the ends of its bond start."""
    child, at = slots.child, slots.at
    for slot in range(GROUP):
        points, on_left, row = np.int32(slots.size[slot]), np.int32(slots.left[slot]), np.int32(slots.first[slot])
        slots.threshold[slot] = skeleton.threshold(on_left, points)
        child[slot, 0] = at[slot, 0] = slot + 1 if on_left > 1 else -1 - row
        child[slot, 1] = at[slot, 1] = slot + on_left if points - on_left > 1 else -1 - row - on_left


@kernel
def _enter_tokens(lo, hi, piece, begin, entering, slots, walking, count):
    """Give a slot to each token that enters pieces lo … hi - 1, and add the tokens that walk; return how many walk."""
    slot = _GUESTS
    for p in range(lo, hi):
        top = piece[p].first - piece[lo].first
        for t in range(begin, piece[p].tokens_end):
            slots.bond_key[slot], slots.at[slot, 0] = entering[t].bond_key, -1 - top
            walking[count] = np.uint64(top << 32 | 2 * slot)
            count += piece[p].size > 1
            slot += 1
        begin = piece[p].tokens_end
    return count


@kernel
def _walk_tokens(count, walking, slots):
    """Walk tokens down to points, all tokens one step at a time, and fill where each of them ends.

    The steps of different tokens do not wait for each other. The tokens still walking are compacted. Branch-free: the
    branch would be unpredictable.
    """
    bond_key, path, threshold = slots.bond_key, slots.path, slots.threshold
    child, at = slots.child.reshape(-1), slots.at.reshape(-1)
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
def _write_group(lo, hi, piece, begin, entering, slots, left_size, end_row):
    """Write the sizes of left sides and the ends of bonds of pieces lo … hi - 1."""
    left, at, origin = slots.left, slots.at, piece[lo].first
    for p in range(lo, hi):
        base, latent, latents = piece[p].first - origin, piece[p].latent, piece[p].size - 1
        for i in range(latents):
            left_size[latent + i] = left[base + i]
        for i in range(latents):
            end_row[2 * (latent + i)] = origin - 1 - at[base + i, 0]
            end_row[2 * (latent + i) + 1] = origin - 1 - at[base + i, 1]
    for t in range(begin, piece[hi - 1].tokens_end):
        end_row[entering[t].end] = origin - 1 - at[_GUESTS + t - begin, 0]


# ---------------------------------------------------------------------- passes over grown pieces


@kernel
def next_group(lo, hi, piece):
    """Return the end of the longest run of pieces from `lo` on that fits in `GROUP` rows."""
    stop = lo + 1
    while stop < hi and piece[stop].first + piece[stop].size - piece[lo].first <= GROUP:
        stop += 1
    return stop


class Trace(NamedTuple):
    """The nodes of a group of grown pieces: latents by slot, as in `_Slots`, and rows, counted from the first."""

    first: Any
    size: Any
    path: Any
    row_path: Any


@kernel
def trace_work():
    """Return the arrays of a trace."""
    first, size = np.empty(GROUP, np.int64), np.empty(GROUP, np.int64)
    path, row_path = np.empty(GROUP, np.uint64), np.empty(GROUP, np.uint64)
    path[:] = 0
    return Trace(first, size, path, row_path)


@kernel
def trace(lo, hi, piece, left_size, nodes):
    """Fill the trace of pieces lo … hi - 1, which are a group."""
    first, size, path, row_path = nodes
    for p in range(lo, hi):
        base = piece[p].first - piece[lo].first
        first[base], size[base], path[base], row_path[base] = base, piece[p].size, piece[p].path, piece[p].path
        for i in range(piece[p].size - 1):
            slot, left = base + i, left_size[piece[p].latent + i]
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
