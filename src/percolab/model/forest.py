"""The forest: clusters, points, bonds and the whole hierarchy of latents in five integer columns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.validation import check_integer
from percolab.model import hierarchy

if TYPE_CHECKING:
    import networkx
    import pandas
    import scipy.sparse

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forest:
    """A forest of nested intervals.

    In the leaf order of a merger tree the points below any latent are contiguous. Points are stored in that order
    (rows 0 … n-1), so one integer per latent holds the hierarchy. Clusters are contiguous, the largest first, ties by
    birth. Latents are stored in preorder (node, left subtree, right subtree), cluster after cluster: the cluster that
    starts at row r and is c-th in order has its latents at r - c, r - c + 1, …; a cluster of s points has s - 1.
    A latent *is* a bond: they are the same row of the same table.

    A forest of n points in C clusters has n - C latents. All columns are int64.
    """

    cluster_start: Ints
    """(C+1,) row offsets of the clusters"""
    cluster_id: Ints
    """(C,) birth order of the cluster in the attachment process"""
    point_id: Ints
    """(n,) birth order of the point in the attachment process"""
    left_size: Ints
    """(n-C,) number of points below the latent's left child"""
    bond: Ints
    """(n-C, 2) the two rows joined: the first inside the left interval, the second inside the right one"""

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _as_column(field.name, getattr(self, field.name)))

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

    @cached_property
    def cluster_size(self) -> Ints:
        """(C,) number of points of each cluster."""
        return np.diff(self.cluster_start)

    def __repr__(self) -> str:
        return f"Forest({self.n_points:,} points, {self.n_clusters:,} clusters, {self.n_latents:,} latents)"

    def equals(self, other: Forest) -> bool:
        """Whether both forests have the same columns."""
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    # ------------------------------------------------------------------ derived columns

    @cached_property
    def _extents(self) -> tuple[Ints, Ints]:
        start, size = np.empty(self.n_latents, np.int64), np.empty(self.n_latents, np.int64)
        hierarchy.extents(self.cluster_start, self.left_size, start, size)
        return start, size

    @property
    def latent_start(self) -> Ints:
        """(n-C,) first row of the latent's interval."""
        return self._extents[0]

    @property
    def latent_size(self) -> Ints:
        """(n-C,) number of points of the latent, the paper's s_latent."""
        return self._extents[1]

    @cached_property
    def _ancestry(self) -> tuple[Ints, Ints]:
        depth, parent = np.empty(self.n_latents, np.int64), np.empty(self.n_latents, np.int64)
        hierarchy.ancestry(self.cluster_start, self.left_size, self.latent_size, depth, parent)
        return depth, parent

    @property
    def latent_depth(self) -> Ints:
        """(n-C,) number of edges from the top latent of the cluster."""
        return self._ancestry[0]

    @property
    def latent_parent(self) -> Ints:
        """(n-C,) the latent above, -1 at the top of a cluster."""
        return self._ancestry[1]

    @cached_property
    def latent_cluster(self) -> Ints:
        """(n-C,) index (not birth order) of the latent's cluster."""
        return np.repeat(np.arange(self.n_clusters), self.cluster_size - 1)

    @cached_property
    def latent_children(self) -> Ints:
        """(n-C, 2) left and right child: row r as r, latent i as n_points + i."""
        codes = np.empty((self.n_latents, 2), np.int64)
        hierarchy.child_codes(self.n_points, self.left_size, self.latent_start, self.latent_size, codes)
        return codes

    @cached_property
    def point_depth(self) -> Ints:
        """(n,) number of latents above the point; 0 for a singleton."""
        depth = np.zeros(self.n_points, np.int64)
        hierarchy.point_depths(self.left_size, self.latent_start, self.latent_size, self.latent_depth, depth)
        return depth

    @cached_property
    def point_cluster(self) -> Ints:
        """(n,) index (not birth order) of the point's cluster."""
        return np.repeat(np.arange(self.n_clusters), self.cluster_size)

    @cached_property
    def figure_of_merit(self) -> NDArray[np.float64]:
        """(n-C,) s_latent / √s_cluster: what a latent contributes to the squared error, up to a constant."""
        return self.latent_size / np.sqrt(self.cluster_size[self.latent_cluster])

    @cached_property
    def release_order(self) -> Ints:
        """(n,) the rows sorted by cluster, then by birth: the row order of the authors' release."""
        order = np.empty(self.n_points, np.int64)
        by_birth = np.argsort(self.point_id, kind="stable")
        hierarchy.births_by_cluster(self.cluster_start, by_birth, self.point_cluster, order)
        return order

    # ------------------------------------------------------------------ views

    def points_of(self, latent: int) -> slice:
        """Return the rows of a latent, as a slice."""
        latent = _check_index("latent", latent, self.n_latents)
        start = int(self.latent_start[latent])
        return slice(start, start + int(self.latent_size[latent]))

    def path(self, point: int) -> Ints:
        """Return the latents above a point, top first, in time proportional to their number."""
        point = _check_index("point", point, self.n_points)
        c = int(np.searchsorted(self.cluster_start, point, side="right")) - 1
        first = int(self.cluster_start[c])
        place = self.left_size, first - c, first, int(self.cluster_start[c + 1]) - first, point
        latents = np.empty(hierarchy.path_length(*place), np.int64)
        hierarchy.path(*place, latents)
        return latents

    def latent_at_depth(self, depth: int) -> Ints:
        """Return, for every point, its latent at this depth, or -1 where it has none. Linear time."""
        depth = check_integer("depth", depth, 0)
        latents = np.full(self.n_points, -1, np.int64)
        hierarchy.paint_depth(self.latent_start, self.latent_size, self.latent_depth, depth, latents)
        return latents

    def membership(self, latents: ArrayLike | None = None) -> scipy.sparse.csr_array:
        """Return which points the latents have, as a boolean CSR array (n_points, number of latents).

        Column j is ``latents[j]``; None means all latents. The cost is the number of memberships: one cluster
        of 200,000 points has 94 million in all, so ask for what you need.
        """
        return self._sparse(latents, None)

    def values(self, latent_z: ArrayLike, latents: ArrayLike | None = None) -> scipy.sparse.csr_array:
        """Return `membership` with each entry replaced by its latent's value."""
        z = np.asarray(latent_z)
        if z.shape != (self.n_latents,):
            raise ValueError(f"latent_z must have shape ({self.n_latents},), got {z.shape}")
        return self._sparse(latents, z)

    def _sparse(self, latents: ArrayLike | None, z: NDArray[Any] | None) -> scipy.sparse.csr_array:
        import scipy.sparse

        chosen = self._choose(latents)
        start, size = self.latent_start[chosen], self.latent_size[chosen]
        indptr = np.empty(self.n_points + 1, np.int64)
        hierarchy.membership_indptr(start, size, indptr)
        index_type = np.int32 if max(indptr[-1], chosen.size) < 2**31 else np.int64
        indices = np.empty(indptr[-1], index_type)
        hierarchy.membership_indices(start, size, indptr, indices)
        data = np.ones(indices.size, np.bool_) if z is None else z[chosen][indices]
        shape = (self.n_points, chosen.size)
        return scipy.sparse.csr_array((data, indices, indptr.astype(index_type)), shape=shape)

    def _choose(self, latents: ArrayLike | None) -> Ints:
        if latents is None:
            return np.arange(self.n_latents)
        chosen = np.atleast_1d(np.asarray(latents))
        if chosen.dtype == np.bool_ and chosen.shape == (self.n_latents,):
            return np.flatnonzero(chosen)
        if (chosen.size and not np.issubdtype(chosen.dtype, np.integer)) or chosen.ndim != 1:
            raise ValueError(f"latents must be indices or a mask of {self.n_latents} latents, got {latents!r}")
        outside = chosen[(chosen < 0) | (chosen >= self.n_latents)]
        if outside.size:
            raise ValueError(f"latents must be between 0 and {self.n_latents - 1}, got {outside[0]}")
        return chosen.astype(np.int64)

    # ------------------------------------------------------------------ parts

    def largest(self, n_clusters: int) -> Forest:
        """Return the forest of the first (largest) clusters; a view, since they are a prefix of every column."""
        c = min(check_integer("n_clusters", n_clusters, 0), self.n_clusters)
        n = int(self.cluster_start[c])
        return Forest(
            self.cluster_start[: c + 1],
            self.cluster_id[:c],
            self.point_id[:n],
            self.left_size[: n - c],
            self.bond[: n - c],
        )

    def cluster(self, index: int) -> Forest:
        """Return one cluster as a forest of its own, its rows numbered from 0."""
        c = _check_index("cluster", index, self.n_clusters)
        lo, hi = self.cluster_start[c : c + 2]
        latents = slice(lo - c, hi - c - 1)
        return Forest(
            np.array([0, hi - lo]),
            self.cluster_id[c : c + 1],
            self.point_id[lo:hi],
            self.left_size[latents],
            self.bond[latents] - lo,
        )

    # ------------------------------------------------------------------ exports

    def adjacency(self) -> scipy.sparse.csr_array:
        """Return the bonds as a symmetric (n, n) CSR array of ones."""
        import scipy.sparse

        rows, columns = np.concatenate([self.bond, self.bond[:, ::-1]]).T
        ones = np.ones(rows.size, np.int64)
        return scipy.sparse.csr_array((ones, (rows, columns)), shape=(self.n_points, self.n_points))

    def latent_table(self, latent_z: ArrayLike | None = None) -> pandas.DataFrame:
        """Return the latents as a pandas table, one row each, in preorder; with their values if given."""
        import pandas

        columns = {
            "cluster": self.latent_cluster,
            "depth": self.latent_depth,
            "parent": self.latent_parent,
            "start": self.latent_start,
            "size": self.latent_size,
            "left_size": self.left_size,
            "bond_left": self.bond[:, 0],
            "bond_right": self.bond[:, 1],
            "cluster_size": self.cluster_size[self.latent_cluster],
            "figure_of_merit": self.figure_of_merit,
        }
        if latent_z is not None:
            columns["z"] = np.asarray(latent_z)
        return pandas.DataFrame(columns, index=pandas.RangeIndex(self.n_latents, name="latent"))

    def to_networkx(self) -> networkx.Graph:
        """Return points and bonds as a NetworkX graph: nodes have `point_id` and `cluster`, edges their `latent`."""
        import networkx

        graph = networkx.Graph()
        ids, clusters = self.point_id.tolist(), self.point_cluster.tolist()
        graph.add_nodes_from((r, {"point_id": ids[r], "cluster": clusters[r]}) for r in range(self.n_points))
        graph.add_edges_from((a, b, {"latent": i}) for i, (a, b) in enumerate(self.bond.tolist()))
        return graph

    def latents_to_networkx(self) -> networkx.DiGraph:
        """Return the hierarchy as a NetworkX digraph, parent to child: rows are 0 … n-1, latent i is n + i."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_nodes_from(range(self.n_points + self.n_latents))
        for i, (left, right) in enumerate(self.latent_children.tolist()):
            graph.add_edge(self.n_points + i, left, side="left")
            graph.add_edge(self.n_points + i, right, side="right")
        return graph

    def to_linkage(self, cluster: int = 0) -> NDArray[np.float64]:
        """Return one cluster's merger tree as a SciPy linkage matrix (s - 1, 4).

        Observations are the cluster's rows, numbered from 0. A merge's height is its number of points, which grows
        from child to parent; merges are sorted by it.
        """
        one = self.cluster(cluster)
        order = np.argsort(one.latent_size, kind="stable")
        codes = np.arange(one.n_points + one.n_latents)
        codes[one.n_points + order] = one.n_points + np.arange(one.n_latents)
        size = one.latent_size[order].astype(np.float64)
        children = np.sort(codes[one.latent_children[order]], axis=1)
        return np.column_stack([children.astype(np.float64), size, size])

    # ------------------------------------------------------------------ validation

    def validate(self) -> None:
        """Check every invariant of the data model; raise ValueError saying which fails and where.

        The order of births is checked by sorting; all else in linear time, as by `check_structure`.
        """
        self._check_sizes()
        self._validate_order()
        self._check_splits()

    def check_structure(self) -> None:
        """Check, in linear time, all that compiled passes rely on: sizes, splits and bonds; raise ValueError if wrong.

        With these right, no pass reads or writes out of bounds, whatever the births are.
        """
        self._check_sizes()
        self._check_splits()

    def _check_sizes(self) -> None:
        n, C = self.n_points, self.n_clusters
        _require_length("cluster_start", self.cluster_start, C + 1)
        _require_length("left_size", self.left_size, n - C)
        _require_length("bond", self.bond, n - C)
        if self.cluster_start[0] != 0:
            raise ValueError(f"cluster_start[0] must be 0, got {self.cluster_start[0]}")
        if self.cluster_start[-1] != n:
            raise ValueError(f"cluster_start[{C}] must be the number of points, {n}, got {self.cluster_start[-1]}")
        # Compared and not subtracted: differences of huge numbers wrap around, and then may look harmless.
        grows = self.cluster_start[:-1] < self.cluster_start[1:]
        _require(grows, "cluster_start", "must grow from one cluster to the next", self.cluster_size)

    def _check_splits(self) -> None:
        bad = hierarchy.first_bad_split(self.cluster_start, self.left_size, np.empty(self.n_latents, np.int64))
        if bad >= 0:
            raise ValueError(f"left_size[{bad}] must split the latent's points in two, got {self.left_size[bad]}")
        lo, hi = self.latent_start, self.latent_start + self.latent_size
        middle = lo + self.left_size
        left, right = self.bond[:, 0], self.bond[:, 1]
        _require((lo <= left) & (left < middle), "bond[:, 0]", "must be a row of the latent's left interval", left)
        _require((middle <= right) & (right < hi), "bond[:, 1]", "must be a row of the latent's right interval", right)

    def _validate_order(self) -> None:
        size, birth = self.cluster_size, self.cluster_id
        _require(size[1:] <= size[:-1], "cluster_size", "must not grow from one cluster to the next", size[1:], 1)
        in_order = (size[1:] < size[:-1]) | (birth[1:] > birth[:-1])
        _require(in_order, "cluster_id", "must grow among clusters of equal size", birth[1:], 1)
        for name, ids in (("cluster_id", birth), ("point_id", self.point_id)):
            _require(ids >= 0, name, "must not be negative", ids)
            order = np.argsort(ids, kind="stable")
            again = np.zeros(ids.size, np.bool_)
            again[order[1:]] = ids[order[1:]] == ids[order[:-1]]
            _require(~again, name, "must not repeat", ids)
        if self.n_clusters:
            first_point = np.minimum.reduceat(self.point_id, self.cluster_start[:-1])
            _require(first_point >= birth, "cluster_id", "must not exceed its first point's birth", birth)
            order = np.argsort(birth)
            grows = np.ones(birth.size, np.bool_)
            grows[order[1:]] = first_point[order[1:]] > first_point[order[:-1]]
            _require(grows, "cluster_id", "must follow the birth of the cluster's first point", birth)


def _as_column(name: str, values: ArrayLike) -> Ints:
    column = np.asarray(values)
    if column.size and not np.issubdtype(column.dtype, np.integer):
        raise ValueError(f"{name} must hold integers, got {column.dtype}")
    shape = (-1, 2) if name == "bond" else (-1,)
    if column.size and (column.ndim != len(shape) or column.shape[1:] != shape[1:]):
        raise ValueError(f"{name} must have shape {'(n, 2)' if name == 'bond' else '(n,)'}, got {column.shape}")
    return np.ascontiguousarray(column.reshape(shape), np.int64)


def _check_index(name: str, index: int, length: int) -> int:
    index = check_integer(name, index, 0)
    if index >= length:
        raise ValueError(f"{name} must be below {length}, got {index}")
    return index


def _require_length(name: str, column: Ints, length: int) -> None:
    if len(column) != length:
        raise ValueError(f"{name} must have {length} rows, got {len(column)}")


def _require(holds: NDArray[np.bool_], name: str, rule: str, values: Ints, offset: int = 0) -> None:
    if not holds.all():
        at = int(np.argmin(holds))
        place = name.replace("[:", f"[{at + offset}") if "[" in name else f"{name}[{at + offset}]"
        raise ValueError(f"{place} {rule}, got {values[at]}")
