"""Checks of the merger trees: how latents split, how deep points lie, whether every small tree is equally likely."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.checks import verdicts
from percolab.checks.independence import LARGEST_BLOCK, Subject
from percolab.checks.verdicts import Check, of_counts, p_of_all_and_some, p_of_uniforms, statistical, too_small
from percolab.engines import paper
from percolab.engines.clusters import Clusters
from percolab.engines.native import growth
from percolab.ground import parallel
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.progress import silent
from percolab.ground.validation import check_choice
from percolab.model.forest import Forest
from percolab.model.recipe import Seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FEWEST_SPLITS = 200
LARGE_SPLIT = 100
FEWEST_BLOCKS = 100
LIMIT_FROM = 256
"""Least size of a block whose depth is compared with the Rayleigh law."""
MOST_SPLITS = 2_000_000
Mask = NDArray[np.bool_]

LEAST_EXPECTED = 3
"""Trees expected per cell, at least."""
LARGEST = 6
"""Most points of a small tree: sets of labels are bits of a 64-bit word."""


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's merger trees."""
    yield splits(subject)
    if subject.recipe.engine == "native":
        yield sides(subject)
    yield depths(subject)
    yield depth_limit(subject)
    yield prufer(subject.forest, (6, 5, 4))
    yield joint(subject.forest, (5, 4))


def splits(subject: Subject) -> Check:
    """Check that every latent splits its points by the law of its own size, as an unordered pair.

    Given its size, a latent's split is independent of everything above it and beside it. So the distribution functions
    at the smaller sides, made continuous by a uniform share, are independent uniforms.
    """
    law, expected, forest = "split law", "p_n(k), every size n", subject.forest
    latent = np.flatnonzero(forest.latent_size >= 4)
    if latent.size < FEWEST_SPLITS:
        return too_small(law, expected, f"{FEWEST_SPLITS} latents of 4 points", f"{latent.size}")
    if latent.size > MOST_SPLITS:
        latent = np.sort(subject.choices("latents").choice(latent, MOST_SPLITS, replace=False))
    size, left = forest.latent_size[latent], forest.left_size[latent]
    places = np.empty(latent.size)
    log_borel = np.log(theory.borel_law(np.maximum(np.arange(size.max() + 1), 1)))
    _split_places(size, np.minimum(left, size - left), log_borel, subject.choices("splits").random(latent.size), places)
    large = places[size >= LARGE_SPLIT]
    p = p_of_all_and_some(places, large, FEWEST_SPLITS)
    note = f"{latent.size:,} latents of 4 points or more, and the {large.size:,} of {LARGE_SPLIT} or more alone"
    single = float(np.mean((left == 1) | (left == size - 1)))
    draw = verdicts.uniforms(places, "distribution function at the smaller side")
    sizes, counts = np.unique(size, return_counts=True)
    ones = sum(c * 2 * float(theory.split_law(1, int(s))) for s, c in zip(sizes, counts, strict=True)) / size.size
    return statistical(law, f"single points {ones:.4f}", f"{single:.4f}", p, note, draw)


@kernel
def _split_places(size, smaller, log_borel, share, places):
    """Fill the distribution function of the smaller side, below it plus a share of its own probability."""
    for i in range(size.size):
        n, k = size[i], smaller[i]
        scale = np.log(n / (n - 1.0)) - log_borel[n]  # the factor 1/2 of p_n goes with the two orders of the sides
        below = 0.0
        for j in range(1, k):
            below += np.exp(scale + log_borel[j] + log_borel[n - j])
        at_side = np.exp(scale + log_borel[k] + log_borel[n - k])
        if 2 * k == n:
            at_side *= 0.5
        places[i] = below + share[i] * at_side


def sides(subject: Subject) -> Check:
    """Check that left and right are alike: the larger side is on the left half of the time (native data)."""
    from scipy.stats import binomtest

    law, forest = "left and right alike", subject.forest
    twice = 2 * forest.left_size
    unequal = int(np.count_nonzero(twice != forest.latent_size))
    if unequal < FEWEST_SPLITS:
        return too_small(law, "½", f"{FEWEST_SPLITS} latents with unequal sides", f"{unequal}")
    heavy = int(np.count_nonzero(twice > forest.latent_size))
    large = forest.latent_size >= 16
    share, edges = np.histogram(forest.left_size[large] / forest.latent_size[large], 40, (0, 1))

    def draw(axes: Axes) -> None:
        axes.stairs(share, edges, color=verdicts.BLUE, label="left")
        axes.stairs(share[::-1], edges, color=verdicts.ORANGE, linestyle="--", label="right")
        axes.set(yscale="log", xlabel="share of the latent's points on that side (16 points or more)", ylabel="latents")
        axes.legend()

    note = f"{unequal:,} latents with unequal sides"
    return statistical(law, "½", f"{heavy / unequal:.4f}", binomtest(heavy, unequal).pvalue, note, draw)


# ---------------------------------------------------------------------- depth


@lru_cache(maxsize=1)
def _depth_laws() -> Floats:
    return theory.depth_laws(LARGEST_BLOCK)


def _block_depths(subject: Subject, least: int) -> tuple[Ints, Ints]:
    """Return the size of every block of at least this many points, and the depth of a random point within it."""
    chosen = subject.blocks.of_size(least)
    row = chosen.start + subject.choices(f"points {least}").integers(chosen.size) if len(chosen) else chosen.start
    return chosen.size, subject.forest.point_depth[row] - subject.forest.latent_depth[chosen.latent]


def depths(subject: Subject) -> Check:
    """Check the depth of a random point below each of many independent latents, against its exact law."""
    law, (size, depth) = "depth", _block_depths(subject, 16)
    if size.size < FEWEST_BLOCKS:
        need = f"{FEWEST_BLOCKS} disjoint latents of 16 to 1,024 points"
        return too_small(law, "Σ (1+1/k)(n-1)!/((n-1-k)! n^k)", need, f"{size.size}")
    laws = _depth_laws()
    below = np.cumsum(laws, axis=1) - laws
    places = below[size, depth] + subject.choices("depth").random(size.size) * laws[size, depth]
    expected = np.mean([theory.mean_depth(int(s)) for s in size])
    top = subject.forest.cluster_size[0]
    whole = subject.forest.point_depth[:top].mean()
    note = (
        f"{size.size:,} points, one in each of so many independent latents; largest cluster: mean depth "
        f"{whole:.1f}, expected {theory.mean_depth(int(top)):.1f} over seeds"
    )
    draw = verdicts.uniforms(places, "distribution function at the depth")
    return statistical(law, f"mean {expected:.2f}", f"{depth.mean():.2f}", p_of_uniforms(places), note, draw)


def depth_limit(subject: Subject) -> Check:
    """Check that depth/√n approaches the Rayleigh law.

    At finite n the law is not yet its limit. Its largest distance from the limit, with the mean shifted as the
    asymptotic expansion says, is known from the exact law and is granted; what the data exceed it by is tested.
    """
    from scipy.stats import kstwo

    law, (size, depth) = "depth, Rayleigh limit", _block_depths(subject, LIMIT_FROM)
    if size.size < FEWEST_BLOCKS:
        need = f"{FEWEST_BLOCKS} disjoint latents of {LIMIT_FROM} to {LARGEST_BLOCK:,} points"
        return too_small(law, "1 - exp(-x²/2)", need, f"{size.size}")
    shift = np.array([theory.depth_shift(int(s)) for s in size])
    u = subject.choices("limit").random(size.size)
    places = theory.rayleigh_cdf((depth - shift - 0.5 + u) / np.sqrt(size))
    granted = _distance_to_limit(LIMIT_FROM)
    distance = _kolmogorov(places)
    p = float(kstwo.sf(max(distance - granted, 0.0), size.size))
    scaled = np.sort((depth - shift) / np.sqrt(size))

    def draw(axes: Axes) -> None:
        x = np.linspace(0, 4, 200)
        axes.step(scaled, (np.arange(scaled.size) + 0.5) / scaled.size, color=verdicts.BLUE, label="measured")
        axes.plot(x, theory.rayleigh_cdf(x), ":", color=verdicts.INK, label="Rayleigh law")
        axes.set(xlabel="(depth - shift) / √n", ylabel="distribution function")
        axes.legend()

    sizes = f"{LIMIT_FROM} to {LARGEST_BLOCK:,} points"
    note = f"{size.size:,} latents of {sizes}, where the law is {granted:.3f} from its limit"
    return statistical(law, f"distance ≤ {granted:.3f} + noise", f"{distance:.3f}", p, note, draw)


def _kolmogorov(places: Floats) -> float:
    order = np.sort(places)
    n = order.size
    return float(max(np.max(np.arange(1, n + 1) / n - order), np.max(order - np.arange(n) / n)))


@lru_cache(maxsize=4)
def _distance_to_limit(least: int) -> float:
    """Return the largest distance of the exact depth law, spread over [j - ½, j + ½), from the shifted Rayleigh law."""
    laws = _depth_laws()
    worst = 0.0
    edges = np.arange(laws.shape[1]) + 0.5
    for m in np.unique(np.geomspace(least, LARGEST_BLOCK, 12).astype(int)):
        limit = theory.rayleigh_cdf((edges - theory.depth_shift(int(m))) / np.sqrt(m))
        worst = max(worst, float(np.abs(np.cumsum(laws[m]) - limit).max()))
    return worst


# ---------------------------------------------------------------------- small trees
#
# Checks of small trees: every labelled tree is equally likely, and so is every order of its bonds.
# Disjoint latents of the same size are independent uniform trees on their points, so a dataset holds thousands of
# small trees. `small_forest` grows as many as one likes with either sampler alone.


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
    note = f"{latents.size:,} trees of {n} points, {cells:,} codes"
    return of_counts("Prüfer codes", counts, expected, note, "codes")


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
    seen = Counter(zip(*(codes.tolist() for codes in tree_codes(forest, latents, n)), strict=True))
    expected = np.array(list(cells.values())) * latents.size
    counts = np.array([seen[cell] for cell in cells], np.float64)
    note = f"{latents.size:,} latents of {n} points, {len(cells):,} pairs of a tree and its merger tree"
    return of_counts(law, counts, expected, note, "pairs of trees", latents.size - int(counts.sum()))


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
    table = Clusters(start, np.arange(n_trees), np.arange(n_trees * size))
    if engine == "native":
        return growth.grow_forest(table, np.uint64(seed), parallel.thread_count(None))
    return paper.grow(Seeds.from_int(seed), table, 0, "float64", parallel.thread_count(None), silent)[0].forest
