"""Targets: y made from the forest and the values by the rule that a recipe names; and X as tokens.

    sum          Σ z / √(1 + depth) over the point's latents and the point: the paper's target
    silent       the same, but a keyed half of the sibling pairs carry no value
    sign         1 where the sum is positive, else 0
    classes      the group of a cut through the hierarchy, the largest first
    path_tokens  groups of finer and finer cuts, each numbered within the group before

docs/data-model.md defines them. A *cut* splits the largest latents; its groups are the latents and rows left whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.engines.native.positions import node_paths
from percolab.ground.arrays import Floats, Ints, as_array
from percolab.ground.validation import check_finite, check_integer
from percolab.model import sums
from percolab.model.forest import Forest
from percolab.model.target import Target
from percolab.rng import philox

Bools = NDArray[np.bool_]
Function = Callable[[Forest, Floats, Floats], ArrayLike]


@dataclass(frozen=True, eq=False)
class Active:
    """Which latents and points carry a value."""

    latent: Bools
    point: Bools


def make(target: Target, forest: Forest, latent_z: Floats, point_z: Floats, active: Active | None = None) -> Any:
    """Return y by a rule. `active` are the nodes that carry a value in target ``"silent"``; None computes them."""
    if target.kind == "classes":
        return classes(forest, target.max_size, target.n_groups)
    if target.kind == "path_tokens":
        assert target.levels is not None
        assert target.ratio is not None
        return path_tokens(forest, target.levels, target.ratio)
    if not target.is_rule:
        raise ValueError(f"target must be one that a recipe can make, got {target.kind!r}")
    y = sums.targets(forest, *effective(target, forest, latent_z, point_z, active))
    return (y > 0).astype(np.int64) if target.kind == "sign" else y


# ---------------------------------------------------------------------- silence


def effective(
    target: Target, forest: Forest, latent_z: Floats, point_z: Floats, active: Active | None
) -> tuple[Floats, Floats]:
    """Return the values that a target sums: those of silent nodes are 0."""
    if target.kind != "silent":
        return latent_z, point_z
    carrying = active or silence(forest, target.seed)
    return np.where(carrying.latent, latent_z, 0.0), np.where(carrying.point, point_z, 0.0)


def silence(forest: Forest, seed: int | None) -> Active:
    """Return which nodes carry a value if each sibling pair is silent with probability 1/2, drawn by its parent's path.

    The two sides of a latent are a pair: both are silent, or neither. The top of a cluster has no sibling and carries a
    value; so does a singleton.
    """
    assert seed is not None
    paths, _ = node_paths(forest)
    bits = np.empty((2, paths.size), np.uint64)
    philox.blocks(paths, paths.size, philox.SILENT, np.uint64(seed), *bits)
    active = np.ones(forest.n_points + forest.n_latents, np.bool_)
    active[forest.latent_children[bits[0] % 2 == 1]] = False
    return Active(active[forest.n_points :], active[: forest.n_points])


# ---------------------------------------------------------------------- cuts


def classes(forest: Forest, max_size: int | None = None, n_groups: int | None = None) -> Ints:
    """Return the class of every row: the groups of a cut, numbered by size, the largest first, ties by row.

    The groups are the largest latents and single rows of at most `max_size` rows; or, with `n_groups`, the groups that
    remain after the largest latent is split, again and again, until there are that many.
    """
    starts = _cut(forest, max_size, n_groups)
    if starts.size < 2:
        name, value = ("n_groups", n_groups) if max_size is None else ("max_size", max_size)
        raise ValueError(f"{name} must cut the rows in at least 2 classes, got {starts.size} with {name}={value}")
    size = np.diff(np.append(starts, forest.n_points))
    return np.repeat(_rank(size), size)


def class_nodes(forest: Forest, target: Target, y: Ints) -> Ints:
    """Return the node of every class: row r as r, latent i as n_points + i, as in `Forest.latent_children`."""
    groups = forest.cut(target.max_size, n_groups=target.n_groups)
    label = _rank(groups.sizes)
    if not np.array_equal(y, np.repeat(label, groups.sizes)):  # a dataset on disk may hold any labels
        raise ValueError(f"y must number the {len(groups)} groups of {target}, got other labels")
    nodes = np.empty(len(groups), np.int64)
    nodes[label] = groups.nodes
    return nodes


def path_tokens(forest: Forest, levels: int, ratio: int) -> Ints:
    """Return for every row the groups it is in, from coarse to fine, as (n, levels) tokens.

    Level l = 1, 2, … is the cut at n / ratio^l rows, at least 1. A group's token is its place among the groups inside
    the same group of the level above, by size, the largest first, ties by row. Level 0 is all rows.
    """
    n = forest.n_points
    tokens = np.empty((n, levels), np.int64)
    above = np.zeros(min(n, 1), np.int64)  # where the groups of the level above start
    for level in range(levels):
        starts = _cut(forest, max(1, n // ratio ** (level + 1)), None)
        size = np.diff(np.append(starts, n))
        group = np.searchsorted(above, starts, side="right") - 1
        tokens[:, level] = np.repeat(_rank(size, group), size)
        above = starts
    return tokens


def _cut(forest: Forest, max_size: int | None, n_groups: int | None) -> Ints:
    """Return the first row of every group of a cut, in the order of rows; exactly one of the two is given."""
    C, n = forest.n_clusters, forest.n_points
    if n_groups is not None and not C <= n_groups <= n:
        raise ValueError(f"n_groups must be between the number of clusters, {C}, and of rows, {n}, got {n_groups}")
    return forest.cut(max_size, n_groups=n_groups).starts


def _rank(size: Ints, group: Ints | None = None) -> Ints:
    """Return the place of every entry by size, the largest first, ties in order; within its group if one is given."""
    group = np.zeros(size.size, np.int64) if group is None else group
    order = np.lexsort((np.arange(size.size), -size, group))
    first = np.searchsorted(group[order], group[order], side="left")
    rank = np.empty(size.size, np.int64)
    rank[order] = np.arange(size.size) - first
    return rank


# ---------------------------------------------------------------------- arrays that were given


def given(values: ArrayLike, n_points: int) -> tuple[Target, NDArray[Any]]:
    """Return an array as a target: numbers as float64, labels as int64, one or several per row."""
    y = as_array(values)
    if y.ndim not in (1, 2) or len(y) != n_points or y.shape[1:] == (0,):
        raise ValueError(f"target must have one row for each of {n_points} points, got shape {y.shape}")
    if y.dtype.kind not in "biuf":
        raise ValueError(f"target must hold numbers or labels, got {y.dtype}")
    y = y.astype(np.float64 if y.dtype.kind == "f" else np.int64)
    if y.dtype.kind == "i" and y.size and y.min() < 0:
        raise ValueError(f"labels must not be negative, got {y.min()}; give numbers as floats")
    check_finite("target", y)
    return Target("custom", dtype=y.dtype.name, columns=y.shape[1] if y.ndim == 2 else None), y


# ---------------------------------------------------------------------- X as tokens


def input_tokens(X: NDArray[Any], vocabulary: int) -> NDArray[np.int32]:
    """Return X with each number replaced by its bin among `vocabulary` bins of its column, of equal mass.

    Bin k of a column has the rows from rank ⌈k n / V⌉ on: bins have equally many rows to within one, except that equal
    numbers always share a bin.
    """
    n = len(X)
    if check_integer("vocabulary", vocabulary, 2) > n:
        raise ValueError(f"vocabulary must be at most the number of rows, {n}, got {vocabulary}")
    edge = -(-np.arange(1, vocabulary) * n // vocabulary)
    tokens = np.empty(X.shape, np.int32)
    for j in range(X.shape[1]):
        column = np.ascontiguousarray(X[:, j])
        tokens[:, j] = np.searchsorted(np.sort(column)[edge], column, side="right")
    return tokens
