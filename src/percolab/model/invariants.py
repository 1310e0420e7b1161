"""The invariants of the data model, each checked in linear time: the conditions for five columns to be a forest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Ints

if TYPE_CHECKING:
    from percolab.model.forest import Forest


def validate(forest: Forest) -> None:
    """Check every invariant of the data model; raise ValueError saying which fails and where.

    The order of births is checked by sorting; everything else takes linear time, as in `check_structure`.
    """
    _check_sizes(forest)
    _check_order(forest)
    _check_splits(forest)
    _check_extras(forest)


def check_structure(forest: Forest) -> None:
    """Check, in linear time, the sizes, splits and bonds that compiled passes rely on; raise ValueError if wrong.

    If they are right, no pass reads or writes out of bounds, whatever the births are.
    """
    _check_sizes(forest)
    _check_splits(forest)
    _check_extras(forest)


def _check_sizes(forest: Forest) -> None:
    n, C = forest.n_points, forest.n_clusters
    _require_length("cluster_start", forest.cluster_start, C + 1)
    _require_length("left_size", forest.left_size, n - C)
    _require_length("bond", forest.bond, n - C)
    if forest.cluster_start[0] != 0:
        raise ValueError(f"cluster_start[0] must be 0, got {forest.cluster_start[0]}")
    if forest.cluster_start[-1] != n:
        raise ValueError(f"cluster_start[{C}] must be the number of points, {n}, got {forest.cluster_start[-1]}")
    # Compared and not subtracted: differences of huge numbers wrap around, and may then look valid.
    grows = forest.cluster_start[:-1] < forest.cluster_start[1:]
    _require(grows, "cluster_start", "must grow from one cluster to the next", forest.cluster_size)


def _check_splits(forest: Forest) -> None:
    _, _, bad = forest._extents
    if bad >= 0:
        raise ValueError(f"left_size[{bad}] must split the latent's points in two, got {forest.left_size[bad]}")
    lo, hi = forest.latent_start, forest.latent_start + forest.latent_size
    middle = lo + forest.left_size
    left, right = forest.bond[:, 0], forest.bond[:, 1]
    _require((lo <= left) & (left < middle), "bond[:, 0]", "must be a row of the latent's left interval", left)
    _require((middle <= right) & (right < hi), "bond[:, 1]", "must be a row of the latent's right interval", right)


def _check_extras(forest: Forest) -> None:
    _require_length("extra_bond", forest.extra_bond, forest.n_extra_bonds)
    latent, ends = forest.extra_latent, forest.extra_bond
    _require((latent >= 0) & (latent < forest.n_latents), "extra_latent", "must be a latent", latent)
    lo = forest.latent_start[latent]
    hi = lo + forest.latent_size[latent]
    for side in (0, 1):
        row = ends[:, side]
        _require((lo <= row) & (row < hi), f"extra_bond[:, {side}]", "must be a row of its extra_latent", row)
    _require(ends[:, 0] != ends[:, 1], "extra_bond[:, 1]", "must not be the row at its other end", ends[:, 1])
    cluster = forest.latent_cluster[latent]
    _require(cluster[1:] >= cluster[:-1], "extra_latent", "must not be of an earlier cluster", latent[1:], 1)


def _check_order(forest: Forest) -> None:
    size, birth = forest.cluster_size, forest.cluster_id
    _require(size[1:] <= size[:-1], "cluster_size", "must not grow from one cluster to the next", size[1:], 1)
    in_order = (size[1:] < size[:-1]) | (birth[1:] > birth[:-1])
    _require(in_order, "cluster_id", "must grow among clusters of equal size", birth[1:], 1)
    for name, ids in (("cluster_id", birth), ("point_id", forest.point_id)):
        _require(ids >= 0, name, "must not be negative", ids)
        order = np.argsort(ids, kind="stable")
        again = np.zeros(ids.size, np.bool_)
        again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
        _require(~again, name, "must not repeat", ids)
    founder, order = forest._founders, np.argsort(birth)
    _require(founder >= birth, "cluster_id", "must not exceed its first point's birth", birth)
    grows = np.ones(birth.size, np.bool_)
    grows[order[1:]] = founder[order[1:]] > founder[order[:-1]]
    _require(grows, "cluster_id", "must follow the birth of the cluster's first point", birth)


def _require_length(name: str, column: Ints, length: int) -> None:
    if len(column) != length:
        raise ValueError(f"{name} must have {length} rows, got {len(column)}")


def _require(holds: NDArray[np.bool_], name: str, rule: str, values: Ints, offset: int = 0) -> None:
    if not holds.all():
        at = int(np.argmin(holds))
        place = name.replace("[:", f"[{at + offset}") if "[" in name else f"{name}[{at + offset}]"
        raise ValueError(f"{place} {rule}, got {values[at]}")
