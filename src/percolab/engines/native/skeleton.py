"""Splitting clusters from the top down to pieces that threads and machines can grow apart.

A cluster is split by `splitting.split` until its parts have at most `PIECE` points: these parts are the *pieces*, the
latents above them the *skeleton*. What a piece needs from above is small: its path, its rows, and the ends of bonds
from above that fall into it; see `pieces` for how it is grown. What is split is a `Stand`: whole clusters, and limbs,
which are parts of clusters that are too large to be split at once (see `limbs`).

Bonds. The bond of a latent joins a uniform row of its left side and a uniform row of its right side. Each end walks
down from its side's top, taking the left child with probability left_size/size, by a coin that is a function of the
bond and of the latent visited alone; so as a dataset grows, an end moves only where the proportions change. An end on
its way is a *token*: the key of its bond, and the place to write its row.

Places. Rows where bonds end are kept in one array: places 2i and 2i + 1 for latent i of the stand, then one for each
token that enters a limb, then two for each latent of the skeleton, from place `Pieces.base` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from percolab.engines.native.splitting import split
from percolab.ground.compiled import kernel
from percolab.rng import philox

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
        edges = [*np.searchsorted(first, np.arange(0, first[-1] + 1, rows)).tolist(), len(first)]
        return [(lo, hi) for lo, hi in pairwise(edges) if lo < hi]

    def row_ends(self, batches: list[tuple[int, int]]) -> list[int]:
        """Return the row at which each batch ends."""
        return [int(self.piece[hi - 1, FIRST] + self.piece[hi - 1, SIZE]) for _, hi in batches]


def expand(stand: Stand, key: np.uint64, most: int = PIECE, base: int | None = None) -> Pieces:
    """Split a stand down to pieces of at most `most` points. Skeleton bonds get the places from `base` on."""
    if base is None:
        base = 2 * stand.n_latents + len(stand.limb_token)
        base += base % 2  # the two ends of a bond differ in the last bit
    size = np.append(stand.limb[:, SIZE], np.diff(stand.start))
    room = 64 + int(size[size > most].sum() / most**0.5)  # one latent in 1.2 √most is as large, give or take little
    while True:
        piece, piece_path = np.empty((room + size.size, 6), np.int64), np.empty(room + size.size, np.uint64)
        skeleton, skeleton_path = np.empty((room, 6), np.int64), np.empty(room, np.uint64)
        entering = np.empty((2 * room + len(stand.limb_token), 2), np.uint64)
        tops = stand.limb, stand.limb_path, stand.limb_token, stand.start, stand.founder
        tables = piece, piece_path, skeleton, skeleton_path, entering
        pieces = _expand(*tops, key, most, base, *tables)
        if pieces >= 0:
            slots = pieces - size.size
            tokens = entering[: 2 * slots + len(stand.limb_token)]
            return Pieces(piece[:pieces], piece_path[:pieces], skeleton[:slots], skeleton_path[:slots], tokens, base)
        room *= 2


@kernel(error_model="numpy")
def threshold(left, size):
    """Return left/size as a fraction of 63 bits, times two: what a coin of 64 bits is compared with."""
    return np.uint64(np.float64(left) / np.float64(size) * 9223372036854775808.0) << np.uint64(1)


@kernel
def _toss(keys, places, here, low, high, there, top, path, threshold, left_moves, moves):
    """Toss the tokens low … high - 1 of stack `here` at a latent; return how many move to stack `there`, from `top` on.

    Those that go left move if `left_moves`, else those that go right. They should be few: the last tokens fill their
    places, and eight tokens of which none moves are passed over at once.
    """
    key, place, count = keys[here, low:high], places[here, low:high], high - low
    moved_key, moved_place = keys[there, top:], places[there, top:]
    for t in range(count):
        coin = philox.fold_in_halves(key[t], path)
        moves[t] = (coin < threshold) == left_moves
    moves[count : (count + 7) // 8 * 8] = False
    eight = moves.view(np.uint64)
    moved = 0
    for e in range((count + 7) // 8 - 1, -1, -1):
        if eight[e] == 0:
            continue
        for t in range(8 * e + 7, 8 * e - 1, -1):
            if moves[t]:
                last = count - 1 - moved
                moved_key[moved], moved_place[moved] = key[t], place[t]
                key[t], place[t] = key[last], place[last]
                moved += 1
    return moved


@kernel
def _put(table, at, latent, first, size, depth, parent, tokens):
    """Write a node; a tuple assigned to a row would be an array made and thrown away."""
    table[at, LATENT], table[at, FIRST], table[at, SIZE] = latent, first, size
    table[at, DEPTH], table[at, PARENT], table[at, TOKENS] = depth, parent, tokens


@kernel
def _expand(
    limb, limb_path, limb_token, start, founder, key, most, base, piece, piece_path, skeleton, skeleton_path, entering
):
    """Fill the arrays of `Pieces`; return the number of pieces, or -1 if the skeleton has no room.

    Room for the skeleton is room for all: every latent of it has one bond, and makes one piece more.
    """
    room, limbs = skeleton.shape[0], limb.shape[0]
    stack, stack_path = np.empty((room + 1, 7), np.int64), np.empty(room + 1, np.uint64)
    keys, places = np.empty((2, entering.shape[0]), np.uint64), np.empty((2, entering.shape[0]), np.uint64)
    moves = np.empty(entering.shape[0] + 8 - entering.shape[0] % 8, np.bool_)
    top = np.zeros(2, np.int64)
    pieces = slots = entered = begin = 0
    for r in range(limbs + founder.size):
        waiting = 1
        if r < limbs:
            count = limb[r, TOKENS] - begin
            for t in range(count):
                keys[0, t], places[0, t] = limb_token[begin + t, 0], limb_token[begin + t, 1]
            begin, top[0] = limb[r, TOKENS], count
            _put(stack, 0, limb[r, LATENT], limb[r, FIRST], limb[r, SIZE], limb[r, DEPTH], -2 - r, count)
            stack_path[0] = limb_path[r]
        else:
            first, size = start[r - limbs], start[r - limbs + 1] - start[r - limbs]
            path = philox.cluster_path(founder[r - limbs])
            if size <= most:
                _put(piece, pieces, first - r, first, size, 0, -1, entered)
                piece_path[pieces] = path
                pieces += 1
                continue
            _put(stack, 0, first - r, first, size, 0, -1, 0)
            stack_path[0] = path
        stack[0, 6] = 0
        while waiting > 0:
            waiting -= 1
            latent, first, size = stack[waiting, LATENT], stack[waiting, FIRST], stack[waiting, SIZE]
            depth, parent, count = stack[waiting, DEPTH], stack[waiting, PARENT], stack[waiting, TOKENS]
            here, path = stack[waiting, 6], stack_path[waiting]
            high = top[here]
            low = high - count
            if size <= most:
                for t in range(count):
                    entering[entered + t, 0], entering[entered + t, 1] = keys[here, low + t], places[here, low + t]
                entered += count
                top[here] = low
                _put(piece, pieces, latent, first, size, depth, parent, entered)
                piece_path[pieces] = path
                pieces += 1
                continue
            if slots == room:
                return -1
            choice, bond_key = philox.block(path, 0, philox.SPLIT, key)
            left = split(size, philox.uniform(choice))
            _put(skeleton, slots, latent, first, size, depth, parent, left)
            skeleton_path[slots] = path

            left_moves = 2 * left <= size  # the smaller side, where few tokens go
            there, least = 1 - here, threshold(left, size)
            moved = _toss(keys, places, here, low, high, there, top[there], path, least, left_moves, moves)
            top[there] += moved
            top[here] -= moved
            going_left, left_stack = (moved, there) if left_moves else (count - moved, here)
            right_stack, place = 1 - left_stack, base + 2 * slots
            keys[left_stack, top[left_stack]], places[left_stack, top[left_stack]] = bond_key, place
            keys[right_stack, top[right_stack]], places[right_stack, top[right_stack]] = bond_key, place + 1
            top[0] += 1
            top[1] += 1

            _put(stack, waiting, latent + left, first + left, size - left, depth + 1, slots, count - going_left + 1)
            _put(stack, waiting + 1, latent + 1, first, left, depth + 1, slots, going_left + 1)
            stack[waiting, 6], stack[waiting + 1, 6] = right_stack, left_stack
            stack_path[waiting + 1], stack_path[waiting] = philox.child_paths(path)
            waiting += 2
            slots += 1
    return pieces


@kernel
def land(piece, entering, ends):
    """Write, for every token that enters a piece, the piece's first row: its piece is known before its row is."""
    t = 0
    for p in range(piece.shape[0]):
        while t < piece[p, TOKENS]:
            ends[entering[t, 1]] = piece[p, FIRST]
            t += 1


@kernel
def settle(skeleton, base, left_size, ends):
    """Write the skeleton's own left sizes and bonds, once all its tokens have found their rows."""
    for s in range(skeleton.shape[0]):
        latent = skeleton[s, LATENT]
        left_size[latent] = skeleton[s, LEFT]
        ends[2 * latent], ends[2 * latent + 1] = ends[base + 2 * s], ends[base + 2 * s + 1]
