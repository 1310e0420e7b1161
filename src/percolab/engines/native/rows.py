"""Rows of a dataset without the rest: exactly the bytes that these rows have in the whole dataset.

All parts of a dataset share a `ClusterTable`: the clusters, and the solved limbs of the largest ones. It is made once.
A *part* is cut out of it for a range of rows or of latents. A part is small and can be sent to another machine, and
the rows or latents made from it are a pure function of recipe and part.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines import generated
from percolab.engines.clusters import Clusters
from percolab.engines.native import births, find_clusters, growth, large_clusters
from percolab.engines.native.large_clusters import Crown
from percolab.engines.native.positions import Entries, embed
from percolab.engines.native.skeleton import Stand, end_of
from percolab.engines.native.value_draws import draw_values
from percolab.ground import parallel
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_integer
from percolab.model.recipe import Recipe


@dataclass(frozen=True, eq=False, repr=False)
class GeneratedRows:
    """Rows lo … hi - 1 of a dataset, and the latents that go with them.

    Every row but the last of each cluster is paired with the latent of the same number within the cluster: row r of
    cluster c goes with latent r - c. So consecutive ranges of rows have consecutive latents, and together they are the
    dataset.
    """

    lo: int
    hi: int
    X: NDArray[Any]
    y: NDArray[np.float64]
    point_z: NDArray[np.float64]
    point_id: NDArray[np.int64]
    latent_lo: int
    latent_hi: int
    left_size: NDArray[np.int64]
    bond: NDArray[np.int64]  #: rows of the whole dataset, which need not be among these
    latent_z: NDArray[np.float64]

    def __repr__(self) -> str:
        shape = f"X: {self.X.shape} {self.X.dtype}"
        return f"GeneratedRows({self.lo} … {self.hi}, latents {self.latent_lo} … {self.latent_hi}, {shape})"


def generate_rows(table: ClusterTable, lo: int, hi: int, *, threads: int | None = None) -> GeneratedRows:
    """Make the rows lo … hi - 1 of a dataset, byte for byte, without the rest.

    Clusters that the range cuts are made whole and trimmed; of clusters larger than a limb (65,536 points or less, see
    `large_clusters`) only the limbs that the range touches. Time and memory depend on hi - lo and on the limbs' size.

    Parameters
    ----------
    table
        The result of `cluster_table` for the recipe of the dataset.
    lo, hi
        Range of rows; empty if equal.
    threads
        Number of threads; None takes all cores.
    """
    if not isinstance(table, ClusterTable):
        raise ValueError(f"table must be what cluster_table returns, got {table!r}")
    lo, hi = check_integer("lo", lo, 0), check_integer("hi", hi, 0)
    if not lo <= hi <= table.n_points:
        raise ValueError(f"lo and hi must satisfy lo <= hi <= {table.n_points}, got {lo} and {hi}")
    count = parallel.thread_count(threads)
    latent_lo, latent_hi = table.latents_before(lo), table.latents_before(hi)
    points = make_points(table.recipe, table.points(lo, hi), count)
    latents = make_latents(table.recipe, table.latents(latent_lo, latent_hi), count)
    return GeneratedRows(lo=lo, hi=hi, latent_lo=latent_lo, latent_hi=latent_hi, **points, **latents)


def cluster_table(recipe: Recipe, *, threads: int | None = None, progress: Progress = silent) -> ClusterTable:
    """Find the clusters of a recipe and solve the limbs of the largest: the table that all parts of its dataset share.

    Clusters by attachment with the critical size law keep 8 bytes per point, and take 9.4 while they are found, below
    2^31 points. A limb takes 12 d + 150 bytes with float32, and a cluster of n points has 0.8 n/√`limb_rows` of them.

    Parameters
    ----------
    recipe
        A recipe of the native engine.
    threads
        Number of threads; None takes all cores.
    progress
        Called with (stage, rows done, rows in all).
    """
    if recipe.engine != "native":
        raise ValueError(f"recipe.engine must be 'native' to make parts of a dataset, got {recipe.engine!r}")
    recipe.require_plain("to make parts of a dataset")
    generated.require_memory(generated.bytes_of_table(recipe, large_clusters.limb_rows(recipe)), recipe)
    count = parallel.thread_count(threads)
    clusters = find_clusters(recipe, count)
    return ClusterTable(recipe, clusters, large_clusters.cut(recipe, clusters, count, progress))


@dataclass(frozen=True, eq=False)
class _Part:
    """A range of rows or latents of the dataset, and the stand that it is made from."""

    lo: int
    hi: int
    first_row: int  #: row of the dataset at which the stand starts
    stand: Stand


@dataclass(frozen=True, eq=False)
class Points(_Part):
    """The input for making a range of rows: X, y, point_z and point_id."""

    entries: Entries
    limb_above: NDArray[np.float64]
    point_id: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Latents(_Part):
    """The input for making a range of latents: left_size, bond and latent_z."""

    #: number in the dataset of the first latent of each limb, and of the whole clusters that follow
    stand_latent: NDArray[np.int64]
    crown_latent: NDArray[np.int64]  #: latents above limbs that are in the range, and their columns
    crown_left: NDArray[np.int64]
    crown_bond: NDArray[np.int64]
    crown_z: NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ClusterTable:
    """The table that all parts of a dataset share; see `cluster_table`."""

    recipe: Recipe
    clusters: Clusters
    crown: Crown

    def __repr__(self) -> str:
        numbers = f"n_points={self.n_points}, n_clusters={self.n_clusters}, n_limbs={self.crown.limb.size}"
        return f"ClusterTable({numbers}, recipe={self.recipe})"

    @property
    def n_points(self) -> int:
        """Number of points that the recipe keeps."""
        return self.clusters.n_points

    @property
    def n_clusters(self) -> int:
        """Number of clusters that the recipe keeps."""
        return self.clusters.birth.size

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.n_points - self.n_clusters

    def latents_before(self, row: int) -> int:
        """Return the number of the first latent that goes with `row` or a later row."""
        if row == self.n_points:
            return self.n_latents
        return row - int(np.searchsorted(self.clusters.start, row, side="right")) + 1

    def points(self, lo: int, hi: int) -> Points:
        """Return the part for making the rows lo … hi - 1."""
        limb, start = self.crown.limb, self.clusters.start
        limb_range = _overlap(limb["first"], limb["first"] + limb["size"], lo, hi)
        cluster_range = _overlap(start[:-1], start[1:], max(lo, self.crown.n_rows), hi)
        first_row, stand, entries = self._stand(limb_range, cluster_range)
        point_id = np.empty(hi - lo, np.int64)
        births.deal(lo, hi, start, self.clusters.point_id, np.uint64(self.recipe.seeds.graph), point_id)
        return Points(lo, hi, first_row, stand, entries, self.crown.limb_above[slice(*limb_range)], point_id)

    def latents(self, lo: int, hi: int) -> Latents:
        """Return the part for making the latents lo … hi - 1."""
        limb, above = self.crown.limb, self.crown.expansion.skeleton
        limb_range = _overlap(limb["latent"], limb["latent"] + limb["size"] - 1, lo, hi)
        cluster_range = self._clusters_of_latents(lo, hi)
        first_row, stand, _ = self._stand(limb_range, cluster_range)
        stand_latent = np.append(limb["latent"][slice(*limb_range)], self._first_latent(cluster_range[0]))
        chosen = slice(*np.searchsorted(above["latent"], [lo, hi]))
        return Latents(
            lo, hi, first_row, stand, stand_latent, above["latent"][chosen], above["left"][chosen],
            self.crown.end_row.reshape(-1, 2)[chosen], self.crown.z[chosen],
        )  # fmt: skip

    def _first_latent(self, cluster: int) -> int:
        return int(self.clusters.start[cluster]) - cluster

    def _clusters_of_latents(self, lo: int, hi: int) -> tuple[int, int]:
        """Return the range of whole clusters that have latents in [lo, hi)."""
        start = self.clusters.start
        whole = range(int(np.searchsorted(start, self.crown.n_rows, side="left")), self.n_clusters)
        first = whole.start + bisect(whole, lo, key=lambda c: self._first_latent(c + 1))
        return first, max(first, whole.start + bisect_left(whole, hi, key=self._first_latent))

    def _stand(self, limb_range: tuple[int, int], cluster_range: tuple[int, int]) -> tuple[int, Stand, Entries]:
        """Return the first row of a stand of limbs and whole clusters, the stand, and its entries."""
        (lo, hi), limb = cluster_range, self.crown.limb[slice(*limb_range)]
        start = self.clusters.start[lo : hi + 1]
        if lo == hi and limb.size:  # the stand ends with a limb
            start = np.array([end_of(limb)])
        first_row = int(limb["first"][0] if limb.size else start[0])
        return first_row, *self.crown.stand(*limb_range, start - first_row, self.clusters.founder_of(lo, hi))


def _overlap(start: NDArray[np.int64], end: NDArray[np.int64], lo: int, hi: int) -> tuple[int, int]:
    """Return the range of intervals, which are in order, that overlap [lo, hi)."""
    first = int(np.searchsorted(end, lo, side="right"))
    return first, max(first, int(np.searchsorted(start, hi, side="left")))


def make_points(recipe: Recipe, part: Points, threads: int) -> dict[str, NDArray[Any]]:
    """Make the columns of a range of rows."""
    grown = growth.grow(part.stand, np.uint64(recipe.seeds.graph), threads, silent)
    y, _, point_z = draw_values(grown, part.limb_above, np.uint64(recipe.seeds.value), threads, silent)
    X = embed(recipe, grown, part.entries, threads, silent)
    rows = slice(part.lo - part.first_row, part.hi - part.first_row)
    return {"X": X[rows], "y": y[rows], "point_z": point_z[rows], "point_id": part.point_id}


def make_latents(recipe: Recipe, part: Latents, threads: int) -> dict[str, NDArray[Any]]:
    """Make the columns of a range of latents."""
    stand, n = part.stand, part.hi - part.lo
    grown = growth.grow(stand, np.uint64(recipe.seeds.graph), threads, silent)
    _, z, _ = draw_values(grown, np.zeros(stand.limb.size), np.uint64(recipe.seeds.value), threads, silent)
    first = np.append(stand.limb["latent"], stand.start[0] - stand.limb.size)
    count = np.diff(np.append(first, stand.n_latents))
    number = np.arange(stand.n_latents) + np.repeat(part.stand_latent - first, count) - part.lo
    kept = (number >= 0) & (number < n)
    left_size, bond, latent_z = np.empty(n, np.int64), np.empty((n, 2), np.int64), np.empty(n)
    for whole, mine, crown in (
        (left_size, grown.left_size, part.crown_left),
        (bond, grown.bond + part.first_row, part.crown_bond),
        (latent_z, z, part.crown_z),
    ):
        whole[number[kept]] = mine[kept]
        whole[part.crown_latent - part.lo] = crown
    return {"left_size": left_size, "bond": bond, "latent_z": latent_z}
