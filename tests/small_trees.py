"""Small trees: every labelled tree is equally likely, and so is every order of its bonds.

Disjoint latents of the same size are independent uniform trees on their points, so a forest holds thousands of them.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np
from scipy.stats import chi2, chisquare


def names(forest, n, among=None):
    """Return, for latents of n ≤ 5 points, numbers that name the tree, and the groups that were merged.

    Labels are the ranks of birth numbers. `among` tells which latents count.
    """
    latents = np.flatnonzero(forest.latent_size == n if among is None else among & (forest.latent_size == n))
    first = forest.latent_start[latents][:, None]
    label = np.argsort(np.argsort(forest.point_id[first + np.arange(n)]))
    merges = latents[:, None] + np.arange(n - 1)
    ends = np.take_along_axis(label, (forest.bond[merges] - first[..., None]).reshape(len(latents), -1), 1)
    bonds = np.sort(np.sort(ends.reshape(-1, n - 1, 2)) @ [n, 1])
    before = np.cumsum(np.pad(1 << label, ((0, 0), (1, 0))), axis=1)
    start = forest.latent_start[merges] - first
    group = np.take_along_axis(before, start + forest.latent_size[merges], 1) - np.take_along_axis(before, start, 1)
    return bonds @ (n * n) ** np.arange(n - 1), (1 << group).sum(axis=1)


def p_of_trees(forest, n, among=None):
    """Return the p-value that all n^(n-2) trees of the latents of n points are equally likely."""
    counts = np.unique(names(forest, n, among)[0], return_counts=True)[1]
    return chisquare(np.pad(counts, (0, n ** (n - 2) - counts.size))).pvalue


def p_of_pairs(forest, n, among=None):
    """Return the p-value that all n^(n-2) (n-1)! pairs of a tree and an order of its bonds are equally likely.

    Orders that merge the same groups are one cell, with as much more probability.
    """
    seen, law = Counter(zip(*map(np.ndarray.tolist, names(forest, n, among)), strict=True)), pair_law(n)
    assert seen.keys() <= law.keys()
    expected = np.array(list(law.values())) * seen.total()
    counts = np.array([seen[cell] for cell in law])
    return chi2.sf(np.sum((counts - expected) ** 2 / expected), len(law) - 1)


@lru_cache
def pair_law(n):
    """Return the probability of every pair of a tree and its merger tree on n points, named as by `names`."""
    ways = Counter()
    for bonds in combinations(combinations(range(n), 2), n - 1):
        for order in permutations(bonds):
            group, merged = [1 << i for i in range(n)], 0
            for a, b in order:
                union = group[a] | group[b]
                merged |= 1 << union
                group = [union if g & union else g for g in group]
            if group[0] == 2**n - 1:
                ways[sum((a * n + b) * (n * n) ** i for i, (a, b) in enumerate(bonds)), merged] += 1
    return {cell: count / ways.total() for cell, count in ways.items()}


def free_of_cycles(forest):
    """Tell for each latent whether no bond closed a cycle in its points before it came to be.

    Then its points were joined by a tree, all trees and all orders of their bonds equally likely. A bond that came
    under a latent i that was the top closes a cycle in all latents above i.
    """
    below = np.zeros(forest.n_latents + 1, np.int64)
    np.add.at(below, forest.extra_latent + 1, 1)
    before, first = np.cumsum(below), np.arange(forest.n_latents)
    # The latents below latent i are i + 1 … i + size - 2.
    return before[first + forest.latent_size - 1] == before[first + 1]
