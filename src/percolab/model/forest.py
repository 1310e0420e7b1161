"""The forest: clusters, points, bonds and the whole hierarchy of latents in five integer columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from percolab.ground import text
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_index, check_integer, check_shape, indices
from percolab.model import graphs, hierarchy, invariants, kinship, latent_groups
from percolab.model.kinship import Walk, minima_table
from percolab.model.moments import moments

if TYPE_CHECKING:
    import scipy.sparse

Column = TypeVar("Column")


def locked(values: Any) -> Any:
    """Return arrays as read-only views of the same memory; values without arrays are returned unchanged."""
    if isinstance(values, dict):
        return {name: locked(column) for name, column in values.items()}
    if isinstance(values, Forest):
        values.__dict__.update({field.name: locked(getattr(values, field.name)) for field in fields(values)})
    if isinstance(values, np.ndarray) and values.flags.writeable:
        values = values.view()
        values.setflags(write=False)
    return values


def _column(compute: Callable[[Forest], Column]) -> cached_property[Column]:
    """Make a column that is computed when it is first read: read-only, since all its readers share it."""
    return cached_property(wraps(compute)(lambda forest: locked(compute(forest))))


@dataclass(frozen=True, eq=False)
class Forest:
    """A forest of nested intervals.

    In the leaf order of a merger tree the points below any latent are contiguous. Points are stored in that order
    (rows 0 … n-1), so one integer per latent holds the hierarchy. Clusters are contiguous, the largest first, ties by
    birth. Latents are stored in preorder (node, left subtree, right subtree), cluster after cluster: the cluster that
    starts at row r and is c-th in order has its latents at r - c, r - c + 1, …; a cluster of s points has s - 1.
    A latent *is* a bond: they are the same row of the same table.

    A forest of n points in C clusters has n - C latents. Bonds that close cycles, which the random graph has, make no
    latent: they are kept in two separate columns. All columns are int64.

    A *node* is a row or a latent, as one number: row r is r, latent i is n_points + i. Arguments and results that are
    always rows, or always latents, are plain indices; those that can be either are nodes. -1 means that there is none.
    """

    cluster_start: Ints  #: (C+1,) row offsets of the clusters
    cluster_id: Ints  #: (C,) birth order of the cluster in the attachment process
    point_id: Ints  #: (n,) birth order of the point in the attachment process
    left_size: Ints  #: (n-C,) number of points below the latent's left child
    bond: Ints  #: (n-C, 2) the two rows joined: the first inside the left interval, the second inside the right one
    #: (E, 2) rows joined by bonds that close a cycle, cluster after cluster; none in a forest of trees
    extra_bond: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    #: (E,) the top of the cluster when each of these bonds was added: the smallest latent known to hold both ends
    extra_latent: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        for column in fields(self):
            object.__setattr__(self, column.name, _as_column(column.name, getattr(self, column.name)))

    # ------------------------------------------------------------------ sizes

    @property
    def n_points(self) -> int:
        """Number of points n."""
        return self.point_id.size

    @property
    def n_clusters(self) -> int:
        """Number of clusters C."""
        return self.cluster_id.size

    @property
    def n_latents(self) -> int:
        """Number of latents, n - C."""
        return self.left_size.size

    @property
    def n_extra_bonds(self) -> int:
        """Number of bonds that close a cycle."""
        return self.extra_latent.size

    @_column
    def cluster_size(self) -> Ints:
        """(C,) number of points of each cluster."""
        return np.diff(self.cluster_start)

    def __repr__(self) -> str:
        named = ("point", self.n_points), ("cluster", self.n_clusters), ("latent", self.n_latents)
        return f"Forest({', '.join(text.counted(number, noun) for noun, number in named)})"

    def _repr_html_(self) -> str:
        size = self.cluster_size
        sizes = {"largest cluster": int(size.max(initial=0)), "singletons": int(np.count_nonzero(size == 1))}
        counts = {"points": self.n_points, "clusters": self.n_clusters, **sizes, "latents": self.n_latents}
        return text.table("Forest", counts)

    def equals(self, other: Forest) -> bool:
        """Whether both forests have the same columns."""
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    # ------------------------------------------------------------------ derived columns

    @cached_property
    def _extents(self) -> tuple[Ints, Ints, int]:
        """First rows and sizes of latents, and the first whose `left_size` does not split its points in two, or -1."""
        columns = np.empty((2, self.n_latents), np.int64)
        fault = hierarchy.extents(self.cluster_start, self.left_size, *columns)
        return *locked(columns), int(fault)

    @property
    def latent_start(self) -> Ints:
        """(n-C,) first row of the latent's interval."""
        return self._extents[0]

    @property
    def latent_size(self) -> Ints:
        """(n-C,) number of points of the latent, the paper's s_latent."""
        return self._extents[1]

    @_column
    def _ancestry(self) -> Ints:
        """Depth and parent of every latent."""
        columns = np.empty((2, self.n_latents), np.int64)
        hierarchy.ancestry(self.cluster_start, self.left_size, self.latent_size, *columns)
        return columns

    @property
    def latent_depth(self) -> Ints:
        """(n-C,) number of edges from the top latent of the cluster."""
        return self._ancestry[0]

    @property
    def latent_parent(self) -> Ints:
        """(n-C,) the latent above, -1 at the top of a cluster."""
        return self._ancestry[1]

    @_column
    def latent_cluster(self) -> Ints:
        """(n-C,) index (not birth order) of the latent's cluster."""
        return np.repeat(np.arange(self.n_clusters), self.cluster_size - 1)

    @_column
    def latent_children(self) -> Ints:
        """(n-C, 2) left and right child, as nodes."""
        node, left, size = self.n_points + np.arange(self.n_latents), self.left_size, self.latent_size
        lower = np.where(left > 1, node + 1, self.latent_start)
        upper = np.where(size - left > 1, node + left, self.latent_start + size - 1)
        return np.stack([lower, upper], axis=1)

    @_column
    def point_depth(self) -> Ints:
        """(n,) number of latents above the point; 0 for a singleton."""
        depth, last = np.zeros(self.n_points, np.int64), self.latent_start + self.latent_size - 1
        for row, count in ((self.latent_start, self.left_size), (last, self.latent_size - self.left_size)):
            depth[row[count == 1]] = self.latent_depth[count == 1] + 1
        return depth

    @_column
    def point_parent(self) -> Ints:
        """(n,) the smallest latent that has the point, -1 for a singleton."""
        # Of the two latents that part a row from its neighbours, both above it, the lower one comes later in preorder.
        after = np.append(self.parting[1:], -1)[: self.n_points]
        return np.maximum(self.parting, after)

    @_column
    def parting(self) -> Ints:
        """(n,) the latent that parts the row from the one before it, -1 at the first row of a cluster."""
        latents = np.full(self.n_points, -1, np.int64)
        latents[self.latent_start + self.left_size] = np.arange(self.n_latents)
        return latents

    @_column
    def point_cluster(self) -> Ints:
        """(n,) index (not birth order) of the point's cluster."""
        return np.repeat(np.arange(self.n_clusters), self.cluster_size)

    @_column
    def figure_of_merit(self) -> Floats:
        """(n-C,) s_latent / √s_cluster: what a latent contributes to the squared error, up to a constant."""
        return self.latent_size / np.sqrt(self.cluster_size[self.latent_cluster])

    @_column
    def release_order(self) -> Ints:
        """(n,) the rows sorted by cluster, then by birth: the row order of the authors' release."""
        return np.lexsort((self.point_id, self.point_cluster))

    @cached_property
    def _founders(self) -> Ints:
        """(C,) the point that started each cluster: the first of it that was born."""
        return np.minimum.reduceat(self.point_id, self.cluster_start[:-1]) if self.n_clusters else self.cluster_id

    @cached_property
    def _parting_minima(self) -> Ints:
        """Minima of `parting` over blocks, for finding common ancestors; they take no more memory than `parting`."""
        return minima_table(self.parting)

    @cached_property
    def _walk(self) -> Walk:
        """The rows in the order of a walk along the bonds, for computing distances; four columns."""
        return Walk.along(self.cluster_start, self.bond, self.n_points)

    # ------------------------------------------------------------------ the tree
    #
    # Functions of other modules whose first argument is a forest are its methods: see their docstrings.

    points_of = kinship.points_of
    descendants = kinship.descendants
    path = kinship.path
    ancestors = kinship.ancestors
    side = kinship.side
    sibling = kinship.sibling
    lca = kinship.lca
    distance = kinship.distance
    distance_to = kinship.distance_to

    def children(self, latents: ArrayLike) -> Ints:
        """Return the left and right child of latents, as nodes, along a new last axis of length 2. O(1) each."""
        return self.latent_children[indices("latents", latents, self.n_latents)]

    def latent_at_depth(self, depth: int) -> Ints:
        """Return, for every point, its latent at this depth, or -1 where it has none. Linear time."""
        depth = check_integer("depth", depth, 0)
        latents = np.full(self.n_points, -1, np.int64)
        hierarchy.paint_depth(self.latent_start, self.latent_size, self.latent_depth, depth, latents)
        return latents

    # ------------------------------------------------------------------ groups and concepts

    cut = latent_groups.cut
    concepts = latent_groups.concepts
    nearest_above = latent_groups.nearest_above
    moments = moments

    def membership(self, latents: ArrayLike | None = None) -> scipy.sparse.csr_array:
        """Return which points the latents have, as a boolean CSR array (n_points, number of latents).

        Column j is ``latents[j]``; None means all latents. The cost is the number of memberships: one cluster
        of 200,000 points has 94 million in all, so ask for what you need.
        """
        return graphs.membership(self, latents, None)

    def values(self, latent_z: ArrayLike, latents: ArrayLike | None = None) -> scipy.sparse.csr_array:
        """Return `membership` with each entry replaced by its latent's value."""
        z = np.asarray(latent_z)
        check_shape("latent_z", z, (self.n_latents,))
        return graphs.membership(self, latents, z)

    # ------------------------------------------------------------------ parts

    def largest(self, n_clusters: int) -> Forest:
        """Return the forest of the first (largest) clusters; a view, since they are a prefix of every column."""
        return self._between(0, min(check_integer("n_clusters", n_clusters, 0), self.n_clusters))

    def cluster(self, index: int | np.integer[Any]) -> Forest:
        """Return one cluster as a separate forest, its rows numbered from 0."""
        c = check_index("cluster", index, self.n_clusters)
        return self._between(c, c + 1)

    def _between(self, first: int, end: int) -> Forest:
        """Return clusters first … end - 1 as a separate forest; it is a view if it starts at row 0."""
        lo, hi = int(self.cluster_start[first]), int(self.cluster_start[end])
        latents = slice(lo - first, hi - end)
        start, bond = self.cluster_start[first : end + 1], self.bond[latents]
        columns = self.cluster_id[first:end], self.point_id[lo:hi], self.left_size[latents]
        here = (self.extra_bond[:, 0] >= lo) & (self.extra_bond[:, 0] < hi)
        extras = self.extra_bond[here] - lo, self.extra_latent[here] - latents.start
        return Forest(start - lo if lo else start, *columns, bond - lo if lo else bond, *extras)

    # ------------------------------------------------------------------ exports

    adjacency = graphs.adjacency
    latent_table = graphs.latent_table
    to_networkx = graphs.to_networkx
    latents_to_networkx = graphs.latents_to_networkx
    to_linkage = graphs.to_linkage

    validate = invariants.validate
    check_structure = invariants.check_structure


def _as_column(name: str, values: ArrayLike) -> Ints:
    column = np.asarray(values)
    if column.size and not np.issubdtype(column.dtype, np.integer):
        raise ValueError(f"{name} must hold integers, got {column.dtype}")
    shape = (-1, 2) if name.endswith("bond") else (-1,)
    if column.size and (column.ndim != len(shape) or column.shape[1:] != shape[1:]):
        raise ValueError(f"{name} must have shape {'(n, 2)' if len(shape) == 2 else '(n,)'}, got {column.shape}")
    return np.ascontiguousarray(column.reshape(shape), np.int64)
