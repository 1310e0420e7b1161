"""Checks of small trees: every labelled tree is equally likely, and so is every order of its bonds.

Disjoint latents of the same size are independent uniform trees on their points, so a dataset holds thousands of small
trees. `small_forest` grows as many as one likes with either sampler alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.checks import plots
from percolab.checks.independent import Subject
from percolab.checks.result import Check, p_of_counts, statistical, too_small
from percolab.engines.clusters import Clusters
from percolab.engines.native import trees
from percolab.engines.paper import coalescent
from percolab.ground import parallel
from percolab.ground.compiled import kernel
from percolab.ground.validation import check_choice
from percolab.model.forest import Forest
from percolab.rng import pcg64

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST_EXPECTED = 3
"""Trees expected per cell, at least."""
LARGEST = 6
"""Most points of a small tree: sets of labels are bits of a 64-bit word."""


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of the small latents of a dataset."""
    yield prufer(subject.forest, (6, 5, 4))
    yield joint(subject.forest, (5, 4))


def prufer(forest: Forest, sizes: tuple[int, ...], among: Mask | None = None) -> Check:
    """Check that all n^(n-2) trees of the latents of n points are equally likely, for the first n with enough of them.

    A tree is named by its Prüfer code; labels are the ranks of birth numbers. `among` tells which latents count.
    """
    for n in sizes:
        latents = _of_size(forest, n, among)
        cells = theory.tree_count(n)
        if latents.size >= LEAST_EXPECTED * cells:
            break
    else:
        need = f"{LEAST_EXPECTED * cells} latents of {n} points"
        return too_small("Prüfer codes", "uniform", need, f"{latents.size}")
    code, _ = tree_codes(forest, latents, n)
    counts = np.bincount(code, minlength=cells)
    expected = np.full(cells, latents.size / cells)
    square = float(np.sum((counts - expected) ** 2 / expected))
    note = f"{latents.size:,} trees of {n} points, {cells:,} codes"
    draw = plots.pulls(counts, expected, "codes")
    return statistical(
        "Prüfer codes", f"χ² about {cells - 1:,}", f"χ² = {square:,.0f}", p_of_counts(counts, expected), note, draw
    )


def joint(forest: Forest, sizes: tuple[int, ...], among: Mask | None = None) -> Check:
    """Check that all n^(n-2) (n-1)! pairs of a tree and an order of its bonds are equally likely.

    Orders that merge the same groups are one cell, with as much more probability. `among` tells which latents count.
    """
    law = "tree and merger tree"
    for n in sizes:
        latents = _of_size(forest, n, among)
        cells = joint_law(n)
        least = min(cells.values())
        if latents.size * least >= LEAST_EXPECTED:
            break
    else:
        need = f"{round(LEAST_EXPECTED / least)} latents of {n} points"
        return too_small(law, "uniform orders of bonds", need, f"{latents.size}")
    found = Counter(zip(*(codes.tolist() for codes in tree_codes(forest, latents, n)), strict=True))
    expected = np.array(list(cells.values())) * latents.size
    counts = np.array([found[cell] for cell in cells], np.float64)
    square = float(np.sum((counts - expected) ** 2 / expected))
    impossible = latents.size - int(counts.sum())
    p = 0.0 if impossible else p_of_counts(counts, expected)
    note = f"{latents.size:,} latents of {n} points, {len(cells):,} pairs of a tree and its merger tree"
    draw = plots.pulls(counts, expected, "pairs of trees")
    return statistical(law, f"χ² about {len(cells) - 1:,}", f"χ² = {square:,.0f}", p, note, draw)


def _of_size(forest: Forest, size: int, among: Mask | None) -> Ints:
    return np.flatnonzero(forest.latent_size == size if among is None else among & (forest.latent_size == size))


# ---------------------------------------------------------------------- names of trees


def tree_codes(forest: Forest, latents: Ints, n: int) -> tuple[Ints, NDArray[np.uint64]]:
    """Return, for latents of n ≤ 6 points, the Prüfer code as a number and the groups merged as a set of bits."""
    code, groups = np.empty(latents.size, np.int64), np.empty(latents.size, np.uint64)
    _name_trees(n, latents, forest.latent_start, forest.latent_size, forest.point_id, forest.bond, code, groups)
    return code, groups


@kernel
def _name_trees(n, latents, latent_start, latent_size, point_id, bond, code, groups):
    label, a, b = np.empty(n, np.int64), np.empty(n - 1, np.int64), np.empty(n - 1, np.int64)
    for t in range(latents.size):
        top = latents[t]
        first = latent_start[top]
        for i in range(n):
            label[i] = 0
            for j in range(n):
                label[i] += point_id[first + j] < point_id[first + i]
        merged = np.uint64(0)
        for i in range(n - 1):
            a[i], b[i] = label[bond[top + i, 0] - first], label[bond[top + i, 1] - first]
            group = 0
            for r in range(latent_start[top + i], latent_start[top + i] + latent_size[top + i]):
                group |= 1 << label[r - first]
            merged |= np.uint64(1) << np.uint64(group)
        code[t], groups[t] = _prufer(n, a, b), merged


@kernel
def _prufer(n, a, b):
    """Return the Prüfer code of a tree with bonds a[i] - b[i] as a number in base n."""
    degree = np.zeros(n, np.int64)
    for i in range(n - 1):
        degree[a[i]] += 1
        degree[b[i]] += 1
    code = 0
    for _ in range(n - 2):
        leaf = 0
        while degree[leaf] != 1:
            leaf += 1
        for i in range(n - 1):
            other = b[i] if a[i] == leaf else a[i]
            if (a[i] == leaf or b[i] == leaf) and degree[other] > 0:
                code = code * n + other
                degree[other] -= 1
                degree[leaf] = 0
                break
    return code


@lru_cache(maxsize=4)
def joint_law(n: int) -> dict[tuple[int, int], float]:
    """Return the probability of every pair of a tree and its merger tree on n points, named as by `tree_codes`."""
    ways: Counter[tuple[int, int]] = Counter()
    for number, code in enumerate(product(range(n), repeat=n - 2)):
        bonds = _decode(code, n)
        for order in permutations(bonds):
            group, merged = [1 << i for i in range(n)], 0
            for a, b in order:
                union = group[a] | group[b]
                merged |= 1 << union
                group = [union if g & union else g for g in group]
            ways[number, merged] += 1
    total = sum(ways.values())
    return {cell: count / total for cell, count in ways.items()}


def _decode(code: tuple[int, ...], n: int) -> list[tuple[int, int]]:
    """Return the bonds of the tree with this Prüfer code."""
    degree = [1 + code.count(i) for i in range(n)]
    bonds = []
    for label in code:
        leaf = degree.index(1)
        bonds.append((leaf, label))
        degree[leaf] -= 1
        degree[label] -= 1
    last = [i for i in range(n) if degree[i] == 1]
    return [*bonds, (last[0], last[1])]


# ---------------------------------------------------------------------- many small trees


def small_forest(engine: str, size: int, n_trees: int, seed: int) -> Forest:
    """Return a forest of many clusters of the same size, grown by the sampler of an engine as it would in a dataset."""
    check_choice("engine", engine, ("native", "paper"))
    start = np.arange(n_trees + 1) * size
    births = np.arange(n_trees)
    if engine == "native":
        table = Clusters(start, births, np.arange(n_trees * size))
        return trees.grow_forest(table, np.uint64(seed), parallel.thread_count(None))
    n_latents = n_trees * (size - 1)
    left_size, bond = np.empty(n_latents, np.int64), np.empty((n_latents, 2), np.int64)
    point_id = np.empty(n_trees * size, np.int64)
    _coalesce_many(size, n_trees, pcg64.root_pool(seed), left_size, bond, point_id)
    return Forest(start, births, point_id, left_size, bond)


@kernel
def _coalesce_many(size, n_trees, root, left_size, bond, point_id):
    """Run the cyclic coalescent for many clusters of one size."""
    work = coalescent.work_arrays(size)
    row, split_rows, order = np.empty(size, np.int64), np.empty((size, 2), np.int32), np.empty(size, np.int32)
    for c in range(n_trees):
        coalescent.coalesce(size, pcg64.spawn(root, c + coalescent.FIRST_CLUSTER_CHILD), work)
        top, end = c * (size - 1), (c + 1) * (size - 1)
        coalescent.lay_out(size, c * size, work, left_size[top:end], bond[top:end], row, split_rows, order)
        for i in range(size):
            point_id[row[i]] = c * size + i
