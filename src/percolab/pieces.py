"""Growing clusters from the top down, in pieces that threads and machines can grow apart.

A cluster is split by `splitting.split` until its parts have at most `PIECE` points: these parts are the *pieces*, the
latents above them the *skeleton*. Pieces are grown independently. What a piece needs from above is small: its path, its
rows, and the ends of bonds from above that fall into it. What is expanded is a `Stand`: whole clusters, and limbs,
which are parts of clusters that are too large to be expanded at once (see `limbs`).

Bonds. The bond of a latent joins a uniform row of its left side and a uniform row of its right side. Each end walks
down from its side's top, taking the left child with probability left_size/size, by a coin that is a function of the
bond and of the latent visited alone; so as a dataset grows, an end moves only where the proportions change. An end on
its way is a *token*: the key of its bond, and the place to write its row. In the skeleton, tokens are tossed together
at each latent they visit; inside a piece, several walk down at a time.

Places. Rows where bonds end are kept in one array: places 2i and 2i + 1 for latent i of the stand, then one for each
token that enters a limb, then two for each latent of the skeleton, from place `Pieces.base` on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from percolab import philox
from percolab.splitting import split

PIECE = 1024
"""Most points of a piece. Part of the definition of the data: sums over bonds are taken piece by piece."""

LATENT, FIRST, SIZE, DEPTH, PARENT, TOKENS = range(6)
"""Columns of a node: its latent, first row, number of points, depth, slot of its parent in the skeleton, and where its
tokens end in the list of tokens. `PARENT` is -1 at the top of a cluster and -2 - j at the top of limb j."""
LEFT = TOKENS
"""In a skeleton the last column is the number of points of the left side: its tokens have gone down."""


@dataclass(frozen=True, eq=False)
class Stand:
    """Trees to grow together, in row order: limbs of larger clusters first, then whole clusters.

    Rows and latents are counted from the first of the stand; limb j that starts at row r has the latents from r - j on.
    """

    limb: NDArray[np.int64]
    """(J, 6) nodes"""
    limb_path: NDArray[np.uint64]
    limb_token: NDArray[np.uint64]
    """(T, 2) tokens that enter limbs, limb after limb: the bond's key, a place"""
    start: NDArray[np.int64]
    """(C+1,) first row of each whole cluster, and the end"""
    founder: NDArray[np.int64]
    """(C,) founder of each whole cluster"""

    @classmethod
    def of_clusters(cls, start: NDArray[np.int64], founder: NDArray[np.int64]) -> Stand:
        """Return a stand of whole clusters."""
        none = np.empty((0, 2), np.uint64)
        return cls(np.empty((0, 6), np.int64), np.empty(0, np.uint64), none, start, founder)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.start[-1])

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.n_rows - len(self.limb) - self.founder.size


@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces of a stand in row order, and the skeleton above them in preorder."""

    piece: NDArray[np.int64]
    """(n_pieces, 6) nodes"""
    piece_path: NDArray[np.uint64]
    skeleton: NDArray[np.int64]
    """(n_skeleton, 6) nodes: latents with more points than a piece may have"""
    skeleton_path: NDArray[np.uint64]
    entering: NDArray[np.uint64]
    """(…, 2) tokens that enter pieces from above, piece after piece: the bond's key, a place"""
    base: int
    """place of the first end of the skeleton's bonds"""

    @property
    def n_places(self) -> int:
        """Number of places for ends of bonds."""
        return self.base + 2 * len(self.skeleton)

    def batches(self, rows: int) -> list[tuple[int, int]]:
        """Cut the pieces into runs of about this many rows."""
        if not len(self.piece):
            return []
        first = self.piece[:, FIRST]
        edges = np.searchsorted(first, np.arange(0, first[-1] + 1, rows))
        edges = np.unique(np.concatenate([edges, [len(first)]]))
        return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))

    def row_ends(self, batches: list[tuple[int, int]]) -> list[int]:
        """Return the row at which each batch ends."""
        return [int(self.piece[hi - 1, FIRST] + self.piece[hi - 1, SIZE]) for _, hi in batches]


def expand(stand: Stand, key: np.uint64, most: int = PIECE, base: int | None = None) -> Pieces:
    """Split a stand down to pieces of at most `most` points. Skeleton bonds get the places from `base` on."""
    if base is None:
        base = 2 * stand.n_latents + len(stand.limb_token)
        base += base % 2  # the two ends of a bond differ in the last bit
    limbs = (stand.limb, stand.limb_path, stand.limb_token)
    piece, piece_path, skeleton, skeleton_path, entering = _expand(*limbs, stand.start, stand.founder, key, most, base)
    return Pieces(piece, piece_path, skeleton, skeleton_path, entering, base)


@njit(cache=True, nogil=True)
def _threshold(left, size):
    """Return left/size as a 63-bit fraction: what a coin is compared with."""
    return np.uint64(np.float64(left) / np.float64(size) * 9223372036854775808.0)


@njit(cache=True, nogil=True)
def _coin(key, path):
    """Return 63 random bits for a bond and a latent that one of its ends visits."""
    return philox.fold(key, path) >> np.uint64(1)


# ---------------------------------------------------------------------- the skeleton


@njit(cache=True, nogil=True)
def _toss(tokens, here, low, high, there, top, path, threshold):
    """Toss the tokens low … high - 1 of stack `here` at a latent; return how many go left.

    Those that go right close up at `low`; those that go left are put on stack `there`, from `top` on.
    """
    going_left = 0
    stay = low
    for t in range(low, high):
        key, place = tokens[here, t, 0], tokens[here, t, 1]
        tokens[there, top + going_left, 0], tokens[there, top + going_left, 1] = key, place
        tokens[here, stay, 0], tokens[here, stay, 1] = key, place
        turn = np.int64(_coin(key, path) < threshold)
        going_left += turn
        stay += 1 - turn
    return going_left


@njit(cache=True, nogil=True)
def _longer(array, length):
    """Return a copy of `array` with room for at least `length` rows."""
    longer = np.empty((max(length, 2 * array.shape[0]), *array.shape[1:]), array.dtype)
    old, new = array.reshape(-1), longer.reshape(-1)
    for i in range(old.size):  # an assignment of slices would take seconds to compile
        new[i] = old[i]
    return longer


@njit(cache=True, nogil=True)
def _put(table, at, latent, first, size, depth, parent, tokens):
    """Write a node; a tuple assigned to a row would be an array made and thrown away."""
    table[at, LATENT], table[at, FIRST], table[at, SIZE] = latent, first, size
    table[at, DEPTH], table[at, PARENT], table[at, TOKENS] = depth, parent, tokens


@njit(cache=True, nogil=True)
def _expand(limb, limb_path, limb_token, cluster_start, founder, key, most, base):
    """Return the arrays of `Pieces`."""
    limbs = limb.shape[0]
    capacity = max(16, limbs + founder.size)
    piece, piece_path = np.empty((capacity, 6), np.int64), np.empty(capacity, np.uint64)
    skeleton, skeleton_path, entering = (
        np.empty((16, 6), np.int64),
        np.empty(16, np.uint64),
        np.empty((16, 2), np.uint64),
    )
    stack, stack_path, tokens = np.empty((64, 7), np.int64), np.empty(64, np.uint64), np.empty((2, 64, 2), np.uint64)
    pieces = slots = entered = begin = 0
    top = np.zeros(2, np.int64)
    for r in range(limbs + founder.size):
        if r < limbs:
            count = limb[r, TOKENS] - begin
            if count > tokens.shape[1]:
                tokens = np.empty((2, 2 * count, 2), np.uint64)
            for t in range(count):
                tokens[0, t, 0], tokens[0, t, 1] = limb_token[begin + t, 0], limb_token[begin + t, 1]
            begin, top[0] = limb[r, TOKENS], count
            _put(stack, 0, limb[r, LATENT], limb[r, FIRST], limb[r, SIZE], limb[r, DEPTH], -2 - r, count)
            stack_path[0] = limb_path[r]
        else:
            start, end = cluster_start[r - limbs], cluster_start[r - limbs + 1]
            _put(stack, 0, start - r, start, end - start, 0, -1, 0)
            stack_path[0] = philox.cluster_path(founder[r - limbs])
        stack[0, 6] = 0
        waiting = 1
        while waiting > 0:
            waiting -= 1
            latent, first, size = stack[waiting, LATENT], stack[waiting, FIRST], stack[waiting, SIZE]
            depth, parent, count, here = (
                stack[waiting, DEPTH],
                stack[waiting, PARENT],
                stack[waiting, TOKENS],
                stack[waiting, 6],
            )
            path = stack_path[waiting]
            high = top[here]
            low = high - count
            if size <= most:
                if pieces == piece.shape[0]:
                    piece, piece_path = _longer(piece, 0), _longer(piece_path, 0)
                if entered + count > entering.shape[0]:
                    entering = _longer(entering, entered + count)
                for t in range(count):
                    entering[entered + t, 0] = tokens[here, low + t, 0]
                    entering[entered + t, 1] = tokens[here, low + t, 1]
                entered += count
                top[here] = low
                _put(piece, pieces, latent, first, size, depth, parent, entered)
                piece_path[pieces] = path
                pieces += 1
                continue
            if slots == skeleton.shape[0]:
                skeleton, skeleton_path = _longer(skeleton, 0), _longer(skeleton_path, 0)
            choice, bond_key = philox.block(path, 0, philox.SPLIT, key)
            left = split(size, philox.uniform(choice))
            _put(skeleton, slots, latent, first, size, depth, parent, left)
            skeleton_path[slots] = path

            there = 1 - here
            if max(high, top[there] + count) + 1 > tokens.shape[1]:
                longer = np.empty((2, 2 * tokens.shape[1] + count, 2), np.uint64)
                for stack_of in range(2):
                    for t in range(top[stack_of]):
                        longer[stack_of, t, 0], longer[stack_of, t, 1] = tokens[stack_of, t, 0], tokens[stack_of, t, 1]
                tokens = longer
            going_left = _toss(tokens, here, low, high, there, top[there], path, _threshold(left, size))
            top[there] += going_left
            top[here] -= going_left
            place = np.uint64(base + 2 * slots)
            tokens[there, top[there], 0], tokens[there, top[there], 1] = bond_key, place
            tokens[here, top[here], 0], tokens[here, top[here], 1] = bond_key, place + np.uint64(1)
            top += 1

            if waiting + 2 > stack.shape[0]:
                stack, stack_path = _longer(stack, 0), _longer(stack_path, 0)
            _put(stack, waiting, latent + left, first + left, size - left, depth + 1, slots, count - going_left + 1)
            stack[waiting, 6] = here
            _put(stack, waiting + 1, latent + 1, first, left, depth + 1, slots, going_left + 1)
            stack[waiting + 1, 6] = there
            stack_path[waiting + 1], stack_path[waiting] = philox.child_paths(path)
            waiting += 2
            slots += 1
    return piece[:pieces], piece_path[:pieces], skeleton[:slots], skeleton_path[:slots], entering[:entered]


@njit(cache=True, nogil=True)
def land(piece, entering, ends):
    """Write, for every token that enters a piece, the piece's first row: its piece is known before its row is."""
    t = 0
    for p in range(piece.shape[0]):
        while t < piece[p, TOKENS]:
            ends[entering[t, 1]] = piece[p, FIRST]
            t += 1


@njit(cache=True, nogil=True)
def settle(skeleton, base, left_size, ends):
    """Write the skeleton's own left sizes and bonds, once all its tokens have found their rows."""
    for s in range(skeleton.shape[0]):
        latent = skeleton[s, LATENT]
        left_size[latent] = skeleton[s, LEFT]
        ends[2 * latent], ends[2 * latent + 1] = ends[base + 2 * s], ends[base + 2 * s + 1]


# ---------------------------------------------------------------------- growing pieces

_LANES = 64
"""Nodes whose random numbers are drawn at once, in vector registers."""
_WALKERS = 8
"""Ends that walk down at once: each waits for its last step, so one alone would leave the core idle."""
GROUP = 2 * PIECE
"""Most rows that are grown together, in work arrays that stay in cache."""
_NOWHERE = GROUP
"""A slot that belongs to no latent: writing there is cheaper than a branch that cannot be predicted."""


@njit(cache=True, nogil=True)
def grow(lo, hi, piece, piece_path, entering, key, left_size, ends):
    """Grow pieces lo … hi - 1: fill their part of `left_size` and the rows of bonds that end there."""
    ints, words = np.empty((3, GROUP + 1), np.int32), np.empty((3, GROUP + 1), np.uint64)
    size, left, first = ints[0], ints[1], ints[2]
    path, bond_key, threshold = words[0], words[1], words[2]
    child, queue, lanes = (
        np.empty((GROUP + 1, 2), np.int32),
        np.empty(GROUP + 1, np.int32),
        np.empty((3, _LANES), np.uint64),
    )
    child[_NOWHERE, 0], child[_NOWHERE, 1], path[_NOWHERE], threshold[_NOWHERE] = _NOWHERE, _NOWHERE, 0, 0
    while lo < hi:
        end = next_group(lo, hi, piece)
        _split_group(lo, end, piece, piece_path, key, size, left, first, path, bond_key, queue, lanes)
        begin = piece[lo - 1, TOKENS] if lo > 0 else 0
        room = piece[end - 1, TOKENS] - begin + 2 * GROUP + _WALKERS + 1
        tokens, at = np.empty((room, 2), np.uint64), np.empty(room, np.int32)
        count = _start_tokens(
            lo, end, piece, begin, entering, size, left, first, threshold, child, bond_key, tokens, at, left_size, ends
        )
        _walk_tokens(count, tokens, at, path, threshold, child)
        origin = piece[lo, FIRST]
        for t in range(count):
            ends[tokens[t, 1]] = origin + at[t]
        lo = end


@njit(cache=True, nogil=True)
def _split_group(lo, hi, piece, piece_path, key, size, left, first, path, bond_key, queue, lanes):
    """Split pieces lo … hi - 1 down to their points, many nodes at a time.

    The latent i-th in preorder in a piece whose first row is r-th in the group has slot r + i. Filled for every slot:
    its number of points, that of its left side, its first row in the group, its path and the key of its bond.
    """
    waiting = 0
    for p in range(lo, hi):
        if piece[p, SIZE] > 1:
            slot = piece[p, FIRST] - piece[lo, FIRST]
            size[slot], left[slot], first[slot], path[slot] = piece[p, SIZE], 1, slot, piece_path[p]
            queue[waiting] = slot
            waiting += piece[p, SIZE] > 2
    nodes, choice, bond_keys = lanes[0], lanes[1], lanes[2]
    while waiting > 0:
        count = min(waiting, _LANES)
        waiting -= count
        for j in range(count):
            nodes[j] = path[queue[waiting + j]]
        philox.blocks(nodes, (count + 7) // 8 * 8, philox.SPLIT, key, choice, bond_keys)
        for j in range(count):
            nodes[j] = np.uint64(queue[waiting + j])  # their children take their places in the queue
        for j in range(count):
            slot = np.int64(nodes[j])
            points = np.int64(size[slot])
            on_left = split(points, philox.uniform(choice[j]))
            on_right = points - on_left
            left[slot] = on_left
            bond_key[slot] = bond_keys[j]
            right_slot = slot + on_left if on_right > 1 else _NOWHERE
            size[slot + 1], left[slot + 1], first[slot + 1] = on_left, 1, first[slot]
            path[slot + 1], path_right = philox.child_paths(path[slot])
            size[right_slot], left[right_slot], first[right_slot] = on_right, 1, first[slot] + on_left
            path[right_slot] = path_right
            queue[waiting] = slot + 1
            waiting += on_left > 2
            queue[waiting] = right_slot
            waiting += on_right > 2


@njit(cache=True, nogil=True)
def _start_tokens(
    lo, hi, piece, begin, entering, size, left, first, threshold, child, bond_key, tokens, at, left_size, ends
):
    """Collect the tokens that start in these pieces, or enter them, and still have to walk; return how many.

    `at` gets the slot where each starts. Ends on a side of one point are set at once. `child` gets, for every slot, its
    left and right child: a slot, or -1 - r for the r-th row of the group.
    """
    origin = piece[lo, FIRST]
    count = 0
    for p in range(lo, hi):
        base, latent = piece[p, FIRST] - origin, piece[p, LATENT]
        for t in range(begin, piece[p, TOKENS]):
            tokens[count, 0], tokens[count, 1] = entering[t, 0], entering[t, 1]
            at[count] = base
            ends[entering[t, 1]] = origin + base
            count += piece[p, SIZE] > 1
        begin = piece[p, TOKENS]
        for slot in range(base, base + piece[p, SIZE] - 1):
            on_left, on_right, row = np.int64(left[slot]), np.int64(size[slot] - left[slot]), np.int64(first[slot])
            left_size[latent] = on_left
            threshold[slot] = _threshold(on_left, size[slot])
            ends[2 * latent], ends[2 * latent + 1] = origin + row, origin + row + on_left
            child[slot, 0] = slot + 1 if on_left > 1 else -1 - row
            child[slot, 1] = slot + on_left if on_right > 1 else -1 - row - on_left
            tokens[count, 0], tokens[count, 1] = bond_key[slot], np.uint64(2 * latent)
            at[count] = slot + 1
            count += on_left > 1
            tokens[count, 0], tokens[count, 1] = bond_key[slot], np.uint64(2 * latent + 1)
            at[count] = slot + on_left
            count += on_right > 1
            latent += 1
    return count


@njit(cache=True, nogil=True)
def _walk_tokens(count, tokens, at, path, threshold, child):
    """Walk tokens down to points: `at` holds where each starts and gets the row of the group where it ends.

    A walker that arrives takes the next token. Masks choose, not branches, which nobody could predict; when no token is
    left, walkers take tokens that go round in `_NOWHERE` for ever.
    """
    for t in range(count, count + _WALKERS):
        at[t], tokens[t, 0] = _NOWHERE, 0
    walker = np.empty((3, _WALKERS), np.uint64)
    for w in range(_WALKERS):
        walker[0, w], walker[1, w], walker[2, w] = np.uint64(at[w]), np.uint64(w), tokens[w, 0]
    following = np.uint64(_WALKERS)
    while following < np.uint64(count + _WALKERS):
        for w in range(_WALKERS):
            slot, token, key = walker[0, w], walker[1, w], walker[2, w]
            side = np.uint64(_coin(key, path[slot]) >= threshold[slot])
            step = np.int64(child[slot, side])
            at[token] = -1 - step
            arrived = np.uint64(step) >> np.uint64(63)
            change = np.uint64(0) - arrived
            walker[0, w] = np.uint64(step) ^ ((np.uint64(step) ^ np.uint64(at[following])) & change)
            walker[1, w] = token ^ ((token ^ following) & change)
            walker[2, w] = key ^ ((key ^ tokens[following, 0]) & change)
            following += arrived


# ---------------------------------------------------------------------- passes over grown pieces


@njit(cache=True, nogil=True)
def next_group(lo, hi, piece):
    """Return the end of the longest run of pieces from `lo` on that fits in `GROUP` rows."""
    end = lo + 1
    while end < hi and piece[end, FIRST] + piece[end, SIZE] - piece[lo, FIRST] <= GROUP:
        end += 1
    return end


@njit(cache=True, nogil=True)
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
