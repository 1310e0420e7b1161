"""Splits into training, validation and test rows: by rows as in the paper, or by whole subtrees or clusters.

Neighbouring points are relatives: they share most of their latents, and so most of their targets. If rows are held out
at random, nearly every held-out row has a close relative among the training rows, and the score measures how well the
training rows are memorised. Held-out subtrees and clusters test more than that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from percolab.dataset.dataset import Dataset
from percolab.ground import text
from percolab.ground.arrays import Ints
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_choice, check_integer, check_one_each, check_seed
from percolab.model.forest import Forest
from percolab.worlds.superposed import AnyDataset, Truth, check_samples, truth

SPLIT_KINDS = ("rows", "subtree", "cluster")
PARTS = ("train", "validation", "test")
FRACTIONS = (0.8, 0.1, 0.1)
SPLIT_SEED = 42  #: The paper's fractions and seed.
USUAL_GROUPS = 50  #: Least number of subtrees in a dataset, if `max_size` is not given.
WIDE = (2**32 - 1) // 20  #: Length from which torch takes 64 bits per draw.

DRAWN_AT_ONCE = 1 << 20  #: Draws made at a time.


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of rows: rows of a dataset, in leaf order, or samples of a superposed world."""

    train: Ints
    validation: Ints
    test: Ints
    #: (n,) the group of each row: all rows of a group are in one part, as in scikit-learn's `GroupKFold`
    groups: Ints | None = None
    #: rows that are in no part, because of a margin
    left_out: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    max_size: int | None = None  #: most rows of a group, if the groups are subtrees

    def __repr__(self) -> str:
        parts = [f"{value} {name}" for name, value in self._shown().items()]
        return f"Split({', '.join(parts)}{'' if self.max_size is None else f', subtrees of at most {self.max_size:,}'})"

    def _repr_html_(self) -> str:
        most = {} if self.max_size is None else {"most rows of a subtree": f"{self.max_size:,}"}
        return text.table("Split", self._shown() | most)

    def _shown(self) -> dict[str, str]:
        """Return how many rows each part has."""
        sizes = {name.replace("_", " "): getattr(self, name).size for name in (*PARTS, "left_out")}
        return {name: f"{size:,}" for name, size in sizes.items() if size or name in PARTS}

    def bonds_to_training(self, forest: Forest | Truth, part: str = "test") -> Ints:
        """Return, for each row of a part, the number of bonds to the nearest training row; -1 if its cluster has none.

        Rows at distance 1 touch a training row: their share of the part is the share that leaks. Linear time. In a
        world the bonds are the bonds of one factor: pass ``truth(world, factor)``; distance 0 is a point seen in
        training.
        """
        samples: Ints = getattr(self, check_choice("part", part, PARTS[1:]))
        known = _truth(forest, None)
        return known.forest.distance_to(known.rows[self.train])[known.rows[samples]]


def split_rows(
    dataset: AnyDataset | Forest,
    seed: int = SPLIT_SEED,
    *,
    by: str = "rows",
    max_size: int | None = None,
    fractions: Sequence[float] = FRACTIONS,
    margin: int = 0,
    factor: int | None = None,
) -> Split:
    """Split the rows of a dataset, or the samples of a superposed world, into training, validation and test rows.

    By rows: the rows in release order are put in the order of ``torch.randperm`` with this seed (torch is not needed);
    the first int(0.8 n) train, the next int(0.1 n) validate, the rest test. This is the paper's split.

    By subtree or cluster: groups are assigned from the largest to the smallest. Each goes to one of the parts that
    still lack at least as many rows, with probability proportional to the number they lack; if there is no such part,
    to the part that lacks most. So a group of any size is in the test part with probability equal to that part's share,
    as long as it fits, and the small groups, which come last, bring every part to its size. When only as many groups
    are left as there are empty parts, these parts get them.

    Held-out subtrees still touch training rows: each is joined to the rest of its cluster by bonds. In a cluster of
    200,000 points 12% of the test rows are bonded to a training row with `max_size` 100, and 3.5% with 1,000; a margin
    of 3 bonds then leaves out 14% and 5% of the training rows (benchmarks/splits.py). Clusters do not touch.

    Parameters
    ----------
    dataset
        A dataset, or its forest, or a superposed world. X is not read.
    seed
        Seed of the order. Seeds with the same lower 32 bits give the same split, as in torch.
    by
        ``"rows"``; ``"subtree"``: whole groups of ``forest.cut(max_size)``; ``"cluster"``: whole clusters.
    max_size
        Most rows of a subtree. None takes a fiftieth of the rows; the result has the number.
    fractions
        Shares of the training, validation and test rows, which add up to 1. A part with share 0 is empty.
    margin
        Leave out the training rows within this many bonds of a validation or test row.
    factor
        The factor whose subtrees, clusters and bonds are used, if a world has several; unused by rows without a margin.

    Returns
    -------
    Split
        By rows each part is in random order, else in the order of the rows.
    """
    if not isinstance(dataset, Forest):
        check_samples(dataset)
    check_choice("by", by, SPLIT_KINDS)
    check_seed("seed", seed)
    check_integer("margin", margin, 0)
    shares = _shares(fractions)
    if max_size is not None and by != "subtree":
        raise ValueError(f"max_size must be left out unless by='subtree', got {max_size} with by={by!r}")
    if by == "rows":
        split = _by_rows(dataset.release_order, seed, shares)
    else:
        split = _by_groups(_truth(dataset, factor), seed, shares, by, max_size)
    return _with_margin(_truth(dataset, factor), split, margin) if margin else split


def _truth(dataset: AnyDataset | Forest | Truth, factor: int | None) -> Truth:
    """Return the hierarchy that defines a split, with the row of each sample; the samples of a forest are its rows."""
    if isinstance(dataset, Forest):
        if factor not in (None, 0):
            raise ValueError(f"factor must be 0 or left out for a forest, got {factor!r}")
        # A copy, since a dataset locks its columns, and the caller's columns must stay writable.
        dataset = Dataset.lazy({"forest": copy.copy(dataset)}.__getitem__)
    return dataset if isinstance(dataset, Truth) else truth(dataset, factor)


def _shares(fractions: Sequence[float]) -> tuple[float, float, float]:
    train, validation, test = check_one_each("fractions", fractions, 3, "part", 0)
    if not train > 0 or abs(train + validation + test - 1) > 1e-9:
        raise ValueError(f"fractions must add up to 1, and train must be above 0, got {fractions!r}")
    return train, validation, test


def _by_rows(release_order: Ints, seed: int, shares: tuple[float, float, float]) -> Split:
    n = release_order.size
    train, validation = int(shares[0] * n), int(shares[1] * n)
    if not shares[2]:
        validation = n - train if shares[1] else 0
        train = n - validation
    sizes = (train, validation, n - train - validation)
    if any(share > 0 and not size for share, size in zip(shares, sizes, strict=True)):
        least = max(int(np.ceil(1 / share)) for share in shares if share > 0)
        raise ValueError(f"dataset must have at least {least} points to be split, got {n}")
    rows = release_order[permutation(n, seed)]
    return Split(rows[:train], rows[train : train + validation], rows[train + validation :], np.arange(n))


def _by_groups(known: Truth, seed: int, shares: tuple[float, float, float], by: str, max_size: int | None) -> Split:
    forest = known.forest
    if by == "subtree" and max_size is None:
        max_size = max(1, forest.n_points // USUAL_GROUPS)
    groups = (forest.point_cluster if by == "cluster" else forest.cut(max_size).groups)[known.rows]
    groups = np.unique(groups, return_inverse=True)[1]  # a factor may have groups without samples
    sizes = np.bincount(groups)
    parts = np.array([share > 0 for share in shares])
    if sizes.size < parts.sum():
        name = {"cluster": "clusters", "subtree": f"subtrees of at most {max_size} points"}[by]
        raise ValueError(f"dataset must have at least {parts.sum()} {name} to be split by them, got {sizes.size}")
    part_of = np.empty(sizes.size, np.int64)
    largest_first = np.argsort(-sizes, kind="stable")
    uniforms = np.random.RandomState(seed % 2**32).random_sample(sizes.size)
    deal(largest_first, sizes, np.array(shares) * groups.size, uniforms, part_of)
    train, validation, test = (np.flatnonzero(part_of[groups] == k) for k in range(3))
    return Split(train, validation, test, groups, max_size=max_size)


@kernel
def deal(order, sizes, wanted, uniforms, part_of):
    """Assign each group, in this order, to a part that lacks rows; the last groups go to empty parts."""
    # Loops, not array expressions on three numbers, which take seconds to compile.
    lacks, n_parts = wanted.copy(), wanted.size
    is_open = np.empty(n_parts, np.bool_)
    for at in range(order.size):
        size, n_empty = sizes[order[at]], 0
        for k in range(n_parts):
            is_open[k] = lacks[k] == wanted[k] and wanted[k] > 0
            n_empty += is_open[k]
        if order.size - at > n_empty:
            for k in range(n_parts):
                is_open[k] = wanted[k] > 0
        total = 0.0
        for k in range(n_parts):
            if is_open[k] and lacks[k] >= size:
                total += lacks[k]
        part, passed = -1, 0.0
        for k in range(n_parts):
            if is_open[k] and lacks[k] >= size and part < 0:
                passed += lacks[k]
                if uniforms[at] * total < passed:
                    part = k
        if part < 0:  # no part fits, or the sums were rounded
            for k in range(n_parts):
                if is_open[k] and (part < 0 or lacks[k] > lacks[part]):
                    part = k
        lacks[part] -= size
        part_of[order[at]] = part


def _with_margin(known: Truth, split: Split, margin: int) -> Split:
    """Return the split without the training rows that are within `margin` bonds of a row that is held out."""
    held_out = known.rows[np.concatenate([split.validation, split.test])]
    bonds = known.forest.distance_to(held_out)[known.rows[split.train]]
    near = (bonds >= 0) & (bonds <= margin)
    if near.all():
        raise ValueError(f"margin must leave training rows, got {margin}")
    return replace(split, train=split.train[~near], left_out=np.sort(split.train[near]))


# ---------------------------------------------------------------------- the permutation of torch
#
# MT19937 as torch and NumPy seed it, and the permutation that ``torch.randperm`` draws with it, without torch.
# The permutation is a Fisher-Yates shuffle. Below a length of `WIDE` entry i is exchanged with entry
# i + (draw mod (n - i)), for i = 0 … n - 2. For longer lists the remainder of 32 bits would favour low places too
# much, so two draws make one of 64 bits, the first its upper half, and the shuffle runs inside out: i is put at place
# j = draw mod (i + 1), and the entry that was at j goes to i.


def permutation(n: int, seed: int) -> Ints:
    """Return the permutation of 0 … n - 1 that ``torch.randperm`` gives with a CPU generator of this seed."""
    stream = np.random.RandomState(seed % 2**32)  # NumPy promises never to change this stream
    order = np.arange(n)
    for lo in range(0, n, DRAWN_AT_ONCE):
        count = min(DRAWN_AT_ONCE, n - lo)
        if n < WIDE:
            shuffle(order, lo, np.frombuffer(stream.bytes(4 * count), "<u4"))
        else:
            halves = np.frombuffer(stream.bytes(8 * count), "<u4").astype(np.uint64).reshape(-1, 2)
            shuffle_inside_out(order, lo, halves[:, 0] << np.uint64(32) | halves[:, 1])
    return order


@kernel
def shuffle(order, first, draws):
    """Exchange entries first, first + 1, … each with itself or a later entry."""
    for k in range(draws.size):
        i = first + k
        j = i + np.int64(draws[k]) % (order.size - i)
        order[i], order[j] = order[j], order[i]


@kernel
def shuffle_inside_out(order, first, draws):
    """Put first, first + 1, … each at its own place or an earlier place."""
    for k in range(draws.size):
        i = first + k
        j = np.int64(draws[k] % np.uint64(i + 1))
        order[i] = order[j]
        order[j] = i
