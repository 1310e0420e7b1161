"""Trees of a stand: split, grown piece by piece on all threads, and put together as a forest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines.clusters import Clusters
from percolab.engines.native import births, pieces, skeleton
from percolab.engines.native.pieces import GROUP
from percolab.engines.native.skeleton import Expansion, Stand
from percolab.ground import parallel
from percolab.ground.progress import Progress, silent
from percolab.model.forest import Forest

BATCH = 1 << 15  #: Most rows per task.


@dataclass(frozen=True, eq=False)
class Trees:
    """The trees of a stand. Rows are counted from its first."""

    stand: Stand
    expansion: Expansion  #: its tips are the pieces
    left_size: NDArray[np.int64]  #: (n_latents,) number of points on the left of each latent
    end_row: NDArray[np.int64]  #: (n_ends,) row where each end of a bond is

    @classmethod
    def begin(cls, stand: Stand, key: np.uint64) -> Trees:
        """Expand a stand; `end_row` holds, for each end of the skeleton's bonds, the first row of its piece."""
        expansion = skeleton.expand(stand, key)
        end_row = np.empty(expansion.n_ends, np.int64)
        skeleton.land(expansion.tip, expansion.token, end_row)
        return cls(stand, expansion, np.empty(stand.n_latents, np.int64), end_row)

    @property
    def bond(self) -> NDArray[np.int64]:
        """(n_latents, 2) rows that each latent's bond joins."""
        return self.end_row[: 2 * self.left_size.size].reshape(-1, 2)

    def grow(self, lo: int, hi: int, key: np.uint64) -> None:
        """Grow pieces lo … hi - 1."""
        pieces.grow(lo, hi, self.expansion.tip, self.expansion.token, key, self.left_size, self.end_row)

    def for_pieces(self, stage: str, work: Callable[..., None], *rest: Any, threads: int, progress: Progress) -> None:
        """Call ``work(lo, hi, *rest)`` for runs of pieces that make up the stand, on all threads.

        There are at least two runs per thread, but no run has less than a group of rows.
        """
        rows = min(BATCH, max(GROUP, self.stand.n_rows // (2 * threads)))
        batches = self.expansion.batches(rows)
        tasks = [(work, (lo, hi, *rest)) for lo, hi in batches]
        parallel.run(tasks, threads, parallel.counter(progress, stage, self.expansion.row_ends(batches)))


def grow(stand: Stand, key: np.uint64, threads: int, progress: Progress) -> Trees:
    """Grow every tree and merger tree of a stand."""
    trees = Trees.begin(stand, key)
    trees.for_pieces("trees", trees.grow, key, threads=threads, progress=progress)
    skeleton.settle(trees.expansion.skeleton, trees.expansion.first_end, trees.left_size, trees.end_row)
    return trees


def of_forest(forest: Forest) -> Trees:
    """Return the trees of a forest that is known already, cut into pieces as if they had been grown."""
    # Columns of a dataset are read-only, and kernels would be compiled again for read-only arrays.
    start, left_size = (np.require(column, requirements="W") for column in (forest.cluster_start, forest.left_size))
    stand = Stand.of_clusters(start, forest._founders)
    expansion = skeleton.expand(stand, np.uint64(0), known=left_size)
    end_row = np.concatenate([forest.bond.ravel(), forest.bond[expansion.skeleton["latent"]].ravel()])
    return Trees(stand, expansion, left_size, end_row)


def grow_forest(clusters: Clusters, key: np.uint64, threads: int) -> Forest:
    """Grow whole clusters."""
    trees = grow(Stand.of_clusters(clusters.start, clusters.founder), key, threads, silent)
    return forest_of(clusters, trees, key, threads)


def forest_of(clusters: Clusters, trees: Trees, key: np.uint64, threads: int) -> Forest:
    """Return the forest of whole clusters whose trees are grown, with birth numbers assigned to its rows."""
    n = clusters.n_points
    point_id = np.empty(n, np.int64)
    parts = parallel.ranges(n, max(BATCH, -(-n // (4 * threads))))  # few: each makes tables for a large cluster
    common = (clusters.start, clusters.point_id, key)
    parallel.run([(births.deal, (lo, hi, *common, point_id[lo:hi])) for lo, hi in parts], threads)
    return Forest(clusters.start, clusters.birth.astype(np.int64), point_id, trees.left_size, trees.bond)
