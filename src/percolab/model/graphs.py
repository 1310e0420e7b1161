"""A forest in the formats of other libraries: SciPy sparse arrays and linkage, NetworkX graphs, a pandas table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.ground.validation import listed
from percolab.model import hierarchy

if TYPE_CHECKING:
    import networkx
    import pandas
    import scipy.sparse

    from percolab.model.forest import Forest


def membership(forest: Forest, latents: ArrayLike | None, z: NDArray[Any] | None) -> scipy.sparse.csr_array:
    """Return which points the latents have, as a CSR array of True or of the latents' values."""
    import scipy.sparse

    chosen = listed("latents", latents, forest.n_latents)
    start, size = forest.latent_start[chosen], forest.latent_size[chosen]
    begin, end = (np.bincount(edges, minlength=forest.n_points + 1) for edges in (start, start + size))
    indptr = np.append(0, np.cumsum(np.cumsum(begin - end)[:-1]))
    index_type = np.int32 if max(indptr[-1], chosen.size) < 2**31 else np.int64
    indices = np.empty(indptr[-1], index_type)
    hierarchy.membership_indices(start, size, indptr, indices)
    data = np.ones(indices.size, np.bool_) if z is None else z[chosen][indices]
    shape = (forest.n_points, chosen.size)
    return scipy.sparse.csr_array((data, indices, indptr.astype(index_type)), shape=shape)


def adjacency(forest: Forest) -> scipy.sparse.csr_array:
    """Return the bonds, those that close cycles included, as a symmetric (n, n) CSR array of ones."""
    import scipy.sparse

    bonds = np.concatenate([forest.bond, forest.extra_bond])
    rows, columns = np.concatenate([bonds, bonds[:, ::-1]]).T
    ones = np.ones(rows.size, np.int64)
    return scipy.sparse.csr_array((ones, (rows, columns)), shape=(forest.n_points, forest.n_points))


def latent_columns(forest: Forest, latent_z: ArrayLike | None) -> dict[str, NDArray[Any]]:
    """Return the columns of the table of latents, by name."""
    columns: dict[str, NDArray[Any]] = {
        "cluster": forest.latent_cluster,
        "depth": forest.latent_depth,
        "parent": forest.latent_parent,
        "start": forest.latent_start,
        "size": forest.latent_size,
        "left_size": forest.left_size,
        "bond_left": forest.bond[:, 0],
        "bond_right": forest.bond[:, 1],
        "cluster_size": forest.cluster_size[forest.latent_cluster],
        "figure_of_merit": forest.figure_of_merit,
    }
    return columns if latent_z is None else columns | {"z": np.asarray(latent_z)}


def latent_table(forest: Forest, latent_z: ArrayLike | None = None) -> pandas.DataFrame:
    """Return the latents as a pandas table, one row each, in preorder; with their values if given."""
    import pandas

    index = pandas.RangeIndex(forest.n_latents, name="latent")
    return pandas.DataFrame(latent_columns(forest, latent_z), index=index)


def to_networkx(forest: Forest) -> networkx.Graph:
    """Return points and bonds as a NetworkX graph: nodes have `point_id` and `cluster`, edges their `latent`.

    A bond that closes a cycle has `closes` instead: the latent that was the top of its cluster when the bond was added.
    """
    import networkx

    graph = networkx.Graph()
    ids, clusters = forest.point_id.tolist(), forest.point_cluster.tolist()
    graph.add_nodes_from((r, {"point_id": ids[r], "cluster": clusters[r]}) for r in range(forest.n_points))
    graph.add_edges_from((a, b, {"latent": i}) for i, (a, b) in enumerate(forest.bond.tolist()))
    closing = zip(forest.extra_bond.tolist(), forest.extra_latent.tolist(), strict=True)
    graph.add_edges_from((a, b, {"closes": i}) for (a, b), i in closing)
    return graph


def latents_to_networkx(forest: Forest) -> networkx.DiGraph:
    """Return the hierarchy as a NetworkX digraph of nodes, parent to child, with the `side` of each child."""
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(forest.n_points + forest.n_latents))
    for i, (left, right) in enumerate(forest.latent_children.tolist()):
        graph.add_edge(forest.n_points + i, left, side="left")
        graph.add_edge(forest.n_points + i, right, side="right")
    return graph


def to_linkage(forest: Forest, cluster: int = 0) -> NDArray[np.float64]:
    """Return one cluster's merger tree as a SciPy linkage matrix (s - 1, 4).

    Observations are the cluster's rows, numbered from 0. A merge's height is its number of points, which grows from
    child to parent; merges are sorted by it.
    """
    tree = forest.cluster(cluster)
    order = np.argsort(tree.latent_size, kind="stable")
    codes = np.arange(tree.n_points + tree.n_latents)
    codes[tree.n_points + order] = tree.n_points + np.arange(tree.n_latents)
    size = tree.latent_size[order].astype(np.float64)
    children = np.sort(codes[tree.latent_children[order]], axis=1)
    return np.column_stack([children.astype(np.float64), size, size])
