"""Cuts across the hierarchy: disjoint groups of rows, each a latent or a single row, that cover all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab.ground.validation import check_integer

if TYPE_CHECKING:
    from percolab.model.forest import Forest

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Groups of rows, in row order: disjoint intervals that cover all rows."""

    nodes: Ints
    """(G,) what each group is: row r as r, latent i as n_points + i"""
    starts: Ints
    """(G,) its first row"""
    sizes: Ints
    """(G,) its number of rows"""
    groups: Ints
    """(n,) the group of each row: what scikit-learn calls groups"""

    def __len__(self) -> int:
        return self.nodes.size

    def __repr__(self) -> str:
        largest = int(self.sizes.max(initial=0))
        return f"Partition({len(self):,} groups of {self.groups.size:,} rows, the largest of {largest:,})"


def cut(forest: Forest, max_size: int | None, n_groups: int | None) -> Partition:
    """Return the groups that are left when every latent above them is split: see `Forest.cut`."""
    if (max_size is None) == (n_groups is None):
        raise ValueError(f"cut needs one of max_size and n_groups, got max_size={max_size} and n_groups={n_groups}")
    if max_size is not None:
        return _groups(forest, forest.latent_size > check_integer("max_size", max_size, 1))
    wanted = check_integer("n_groups", n_groups, 1)
    if wanted > forest.n_points:
        raise ValueError(f"n_groups must be at most the number of points, {forest.n_points}, got {wanted}")
    split = np.zeros(forest.n_latents, np.bool_)
    # A latent has more points than those below it, so the largest are always among those that can be split next.
    largest = np.argsort(-forest.latent_size, kind="stable")
    split[largest[: max(0, wanted - forest.n_clusters)]] = True
    return _groups(forest, split)


def _groups(forest: Forest, split: NDArray[np.bool_]) -> Partition:
    """Return the groups below the latents that are split; these have no latent above them that is not."""
    n = forest.n_points
    begins = np.zeros(n, np.bool_)
    begins[forest.cluster_start[:-1]] = True
    begins[forest.latent_start[split] + forest.left_size[split]] = True
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=n)
    parent = forest.latent_parent
    whole = ~split & ((parent < 0) | split[parent]) if split.size else split
    nodes = starts.copy()
    nodes[sizes > 1] = n + np.flatnonzero(whole)  # disjoint latents follow each other in preorder as in rows
    return Partition(nodes, starts, sizes, np.cumsum(begins) - 1)
