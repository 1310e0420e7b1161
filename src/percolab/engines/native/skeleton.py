"""Splitting a stand from the top down to tips that threads and machines grow independently, and the tables of both.

A stand is made of whole clusters, and of *limbs*: parts of clusters that are too large to be grown at once. It is split
into *tips*, parts that threads can grow independently; the latents above tips are the *skeleton*. The tips of a stand
are called *pieces*, and the tips of the largest clusters of a dataset are its limbs.

The bond of a latent has two *ends*, which are numbered: ends e and e ^ 1 are those of one bond, and the row of every
end is kept in one array. Ends 2i and 2i + 1 belong to latent i of the stand, then there is one for each end that enters
a limb from above, then two for each latent of the skeleton. An end that has not found its row is a *token*.

A cluster is split by `splitting.split` until its parts are small enough. A tip needs little from above: its path, its
rows, and the tokens that fall into it; see `pieces` for how it is grown.

Bonds. The bond of a latent joins a uniform row of its left side and a uniform row of its right side. Each end walks
down from its side's top, taking the left child with probability left_size/size, by a coin that is a function of the
bond and of the latent visited alone; so as a dataset grows, an end moves only where the proportions change.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.engines.native.splitting import split
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.rng import philox

#: A node: its path, its latent, first row, number of points, depth, and parent in the skeleton. `parent` is -1 at the
#: top of a cluster and -2 - j at the top of limb j.
_NODE = [("path", "u8"), ("latent", "i8"), ("first", "i8"), ("size", "i8"), ("depth", "i8"), ("parent", "i8")]

#: A limb or a piece, and where its tokens end in the list of tokens.
TIP = np.dtype([*_NODE, ("tokens_end", "i8")], align=True)
#: A latent of the skeleton, and the number of points on its left side.
BRANCH = np.dtype([*_NODE, ("left", "i8")], align=True)
#: The key that decides where the end of a bond goes, and the number of that end.
TOKEN = np.dtype([("bond_key", "u8"), ("end", "i8")], align=True)

Records = NDArray[Any]  #: An array of one of these types.


@dataclass(frozen=True, eq=False)
class Stand:
    """Trees to grow together, in row order: limbs of larger clusters first, then whole clusters.

    Rows and latents are counted from the first of the stand; limb j that starts at row r has the latents from r - j on.
    """

    limb: Records  #: (J,) tips
    token: Records  #: (T,) tokens that enter limbs, limb after limb
    start: NDArray[np.int64]  #: (C+1,) first row of each whole cluster, and the end
    founder: NDArray[np.int64]  #: (C,) founder of each whole cluster

    @classmethod
    def of_clusters(cls, start: NDArray[np.int64], founder: NDArray[np.int64]) -> Stand:
        """Return a stand of whole clusters."""
        return cls(np.empty(0, TIP), np.empty(0, TOKEN), start, founder)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.start[-1])

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.n_rows - self.limb.size - self.founder.size


def end_of(tips: Records) -> int:
    """Return the row after the last of some tips."""
    return int(tips[-1]["first"] + tips[-1]["size"])


@kernel
def last_at_most(rows, row):
    """Return the index of the last entry of an ascending list that is at most `row`; -1 if there is none."""
    low, high = 0, rows.size
    while low < high:
        middle = (low + high) // 2
        if rows[middle] <= row:
            low = middle + 1
        else:
            high = middle
    return low - 1


_NO_SPLITS: Ints = np.empty(0, np.int64)
PIECE = 1024  #: Most points of a piece. Part of the definition of the data: sums over bonds are taken piece by piece.


@dataclass(frozen=True, eq=False)
class Expansion:
    """The tips of a stand in row order, and the skeleton above them in preorder."""

    tip: Records
    skeleton: Records  #: branches: latents with more points than a tip may have
    token: Records  #: tokens that enter tips from above, tip after tip
    first_end: int  #: number of the first end of the skeleton's bonds

    @property
    def n_ends(self) -> int:
        """Number of ends of bonds."""
        return self.first_end + 2 * self.skeleton.size

    def batches(self, rows: int) -> list[tuple[int, int]]:
        """Cut the tips into runs of about this many rows."""
        if not self.tip.size:
            return []
        first = self.tip["first"]
        edges = [*np.searchsorted(first, np.arange(0, first[-1] + 1, rows)).tolist(), first.size]
        return [(lo, hi) for lo, hi in pairwise(edges) if lo < hi]

    def row_ends(self, batches: list[tuple[int, int]]) -> list[int]:
        """Return the row at which each batch ends."""
        return [end_of(self.tip[:hi]) for _, hi in batches]


def expand(
    stand: Stand, key: np.uint64, most: int = PIECE, first_end: int | None = None, known: Ints = _NO_SPLITS
) -> Expansion:
    """Split a stand down to tips of at most `most` points. Ends of the skeleton are numbered from `first_end` on.

    `known` holds the left sizes of whole clusters whose trees are grown already; they are cut in the same way.
    """
    if first_end is None:
        first_end = 2 * stand.n_latents + stand.token.size
        first_end += first_end % 2  # the two ends of a bond differ in the last bit
    size = np.append(stand.limb["size"], np.diff(stand.start))
    room = 64 + int(size[size > most].sum() / most**0.5)  # about one latent in 1.2 √most is larger than a tip
    while True:
        tip, skeleton = np.empty(room + size.size, TIP), np.empty(room, BRANCH)
        entering = np.empty(2 * room + stand.token.size, TOKEN)
        trees = stand.limb, stand.token, stand.start, stand.founder
        tips = _expand(*trees, known, key, most, first_end, tip, skeleton, entering, _Tokens.none(entering.size))
        if tips >= 0:
            branches = tips - size.size
            tokens = entering[: 2 * branches + stand.token.size]
            return Expansion(tip[:tips], skeleton[:branches], tokens, first_end)
        room *= 2


@kernel(error_model="numpy")
def threshold(left, size):
    """Return left/size as a fraction of 63 bits, times two, to compare with a coin of 64 bits."""
    return np.uint64(np.float64(left) / np.float64(size) * 9223372036854775808.0) << np.uint64(1)


@kernel
def land(tip, token, end_row):
    """Write the tip's first row for every token that enters a tip: the tip of a token is known before its row."""
    t = 0
    for p in range(tip.size):
        while t < tip[p].tokens_end:
            end_row[token[t].end] = tip[p].first
            t += 1


@kernel
def settle(skeleton, first_end, left_size, end_row):
    """Write the skeleton's own left sizes and bonds, once all its tokens have found their rows."""
    for s in range(skeleton.size):
        latent, end = skeleton[s].latent, first_end + 2 * s
        left_size[latent] = skeleton[s].left
        end_row[2 * latent], end_row[2 * latent + 1] = end_row[end], end_row[end + 1]


# ---------------------------------------------------------------------- expanding

#: A node that waits to be split: how many tokens are at it, and on top of which stack they are.
_WAITING = np.dtype([*TIP.descr[:-1], ("tokens", "i8"), ("stack", "i8")], align=True)


class _Tokens(NamedTuple):
    """Tokens at the nodes that wait, in two stacks: at every latent some stay and some move to the other stack."""

    bond_key: Any  #: (2, …)
    end: Any  #: (2, …)
    count: Any  #: (2,) number of tokens on each stack
    moves: Any  #: which tokens move; work array
    eight: Any  #: the same, eight at a time

    @classmethod
    def none(cls, room: int) -> _Tokens:
        """Return empty stacks with room for this many tokens."""
        moves = np.empty(room + 8 - room % 8, np.bool_)
        bond_key, end = np.empty((2, room), np.uint64), np.empty((2, room), np.int64)
        return cls(bond_key, end, np.zeros(2, np.int64), moves, moves.view(np.uint64))


@kernel
def _expand(limb, limb_token, start, founder, known, key, most, first_end, tip, skeleton, entering, tokens):
    """Fill the arrays of an `Expansion`; return the number of tips, or -1 if the skeleton has no room.

    If the skeleton fits, everything fits: each of its latents has one bond, and makes one more tip.
    """
    waiting = np.empty(skeleton.size + 1, _WAITING)
    tips = branches = entered = taken = 0
    for root in range(limb.size + founder.size):
        if root < limb.size:
            taken = _start_limb(root, limb[root], limb_token, taken, waiting[0], tokens)
        else:
            c = root - limb.size
            first, size, path = start[c], start[c + 1] - start[c], philox.cluster_path(founder[c])
            if size <= most:  # true of most clusters
                _put(tip[tips], path, first - root, first, size, 0, -1)
                tip[tips].tokens_end = entered
                tips += 1
                continue
            _put(waiting[0], path, first - root, first, size, 0, -1)
            waiting[0].tokens = waiting[0].stack = 0
        top = 0  # of the stack of nodes that wait
        while top >= 0:
            node = waiting[top]
            if node.size <= most:
                entered = _leave_tokens(node, tokens, entering, entered)
                _put(tip[tips], node.path, node.latent, node.first, node.size, node.depth, node.parent)
                tip[tips].tokens_end = entered
                tips, top = tips + 1, top - 1
            elif branches == skeleton.size:
                return -1
            else:
                _split_node(waiting, top, known, key, branches, first_end + 2 * branches, skeleton[branches], tokens)
                branches, top = branches + 1, top + 1
    return tips


@kernel
def _put(node, path, latent, first, size, depth, parent):
    """Write a node."""
    node.path, node.latent, node.first, node.size, node.depth, node.parent = path, latent, first, size, depth, parent


@kernel
def _start_limb(j, limb, limb_token, taken, node, tokens):
    """Let limb j wait, with its tokens; return how many tokens of limbs are taken."""
    _put(node, limb.path, limb.latent, limb.first, limb.size, limb.depth, -2 - j)
    node.tokens, node.stack = limb.tokens_end - taken, 0
    for t in range(taken, limb.tokens_end):
        _push(tokens, 0, limb_token[t].bond_key, limb_token[t].end)
    return limb.tokens_end


@kernel
def _leave_tokens(node, tokens, entering, entered):
    """Move the tokens of a node that is a tip to the list of entering tokens; return the length of the list."""
    stack = node.stack
    low = tokens.count[stack] - node.tokens
    for t in range(node.tokens):
        entering[entered + t].bond_key = tokens.bond_key[stack, low + t]
        entering[entered + t].end = tokens.end[stack, low + t]
    tokens.count[stack] = low
    return entered + node.tokens


@kernel
def _split_node(waiting, top, known, key, index, end, branch, tokens):
    """Move the top node of the stack to the skeleton, and push its right side and then its left side."""
    right, left = waiting[top], waiting[top + 1]
    path, latent, first, size, depth = right.path, right.latent, right.first, right.size, right.depth
    choice, bond_key = philox.block(path, 0, philox.SPLIT, key)
    on_left = known[latent] if known.size else split(size, philox.uniform(choice))
    _put(branch, path, latent, first, size, depth, right.parent)
    branch.left = on_left

    stack, count = right.stack, right.tokens
    left_is_smaller = 2 * on_left <= size  # few tokens go to the smaller side, so these are moved
    moved = _toss(tokens, stack, count, path, threshold(on_left, size), left_is_smaller)
    left.stack, left.tokens = (1 - stack, moved + 1) if left_is_smaller else (stack, count - moved + 1)
    right.stack, right.tokens = 1 - left.stack, count + 2 - left.tokens
    _push(tokens, left.stack, bond_key, end)
    _push(tokens, right.stack, bond_key, end + 1)

    left_path, right_path = philox.child_paths(path)
    _put(left, left_path, latent + 1, first, on_left, depth + 1, index)
    _put(right, right_path, latent + on_left, first + on_left, size - on_left, depth + 1, index)


@kernel
def _push(tokens, stack, bond_key, end):
    """Put a token on top of a stack."""
    at = tokens.count[stack]
    tokens.bond_key[stack, at], tokens.end[stack, at] = bond_key, end
    tokens.count[stack] = at + 1


@kernel
def _toss(tokens, stack, count, path, least, left_moves):
    """Toss a coin for each of the `count` tokens on top of a stack; return how many move to the other stack.

    The tokens that go left move if `left_moves`, else the tokens that go right. They should be few: the last tokens
    fill the gaps, and eight tokens of which none moves are skipped at once.
    """
    high, other = tokens.count[stack], 1 - stack
    low, beyond = high - count, tokens.count[1 - stack]
    bond_key, end, moves = tokens.bond_key[stack, low:high], tokens.end[stack, low:high], tokens.moves
    moved_key, moved_end = tokens.bond_key[other, beyond:], tokens.end[other, beyond:]
    for t in range(count):
        coin = philox.fold_in_halves(bond_key[t], path)
        moves[t] = (coin < least) == left_moves
    moves[count : (count + 7) // 8 * 8] = False
    moved = 0
    for e in range((count + 7) // 8 - 1, -1, -1):
        if tokens.eight[e] == 0:
            continue
        for t in range(8 * e + 7, 8 * e - 1, -1):
            if moves[t]:
                last = count - 1 - moved
                moved_key[moved], moved_end[moved] = bond_key[t], end[t]
                bond_key[t], end[t] = bond_key[last], end[last]
                moved += 1
    tokens.count[stack] -= moved
    tokens.count[other] += moved
    return moved
