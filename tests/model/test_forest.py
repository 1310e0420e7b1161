"""The forest: derived columns and views against the obvious way, validation against every kind of damage."""

import dataclasses

import networkx
import numpy as np
import pytest
import scipy.cluster.hierarchy
import scipy.sparse.csgraph

import percolab as pl


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(800, 3, seeds=5, engine="paper"))


@pytest.fixture(scope="module")
def forest(ds):
    return ds.forest


def walk_down(forest):
    """Return (latent, first row, size, depth, parent) of every latent, by following children from the tops."""
    found = []
    for c, (lo, hi) in enumerate(zip(forest.cluster_start[:-1], forest.cluster_start[1:], strict=True)):
        todo = [(lo - c, lo, hi - lo, 0, -1)] if hi - lo > 1 else []
        while todo:
            i, start, size, depth, parent = todo.pop()
            found.append((i, start, size, depth, parent))
            left = forest.left_size[i]
            if left > 1:
                todo.append((i + 1, start, left, depth + 1, i))
            if size - left > 1:
                todo.append((i + left, start + left, size - left, depth + 1, i))
    return np.array(sorted(found)).T


def test_derived_columns(forest):
    latent, start, size, depth, parent = walk_down(forest)
    np.testing.assert_array_equal(latent, np.arange(forest.n_latents))
    np.testing.assert_array_equal(forest.latent_start, start)
    np.testing.assert_array_equal(forest.latent_size, size)
    np.testing.assert_array_equal(forest.latent_depth, depth)
    np.testing.assert_array_equal(forest.latent_parent, parent)
    cluster = np.searchsorted(forest.cluster_start, start, side="right") - 1
    np.testing.assert_array_equal(forest.latent_cluster, cluster)
    np.testing.assert_allclose(forest.figure_of_merit, size / np.sqrt(forest.cluster_size[cluster]))
    holds = (start[:, None] <= np.arange(800)) & (np.arange(800) < (start + size)[:, None])
    np.testing.assert_array_equal(forest.point_depth, holds.sum(axis=0))
    np.testing.assert_array_equal(forest.membership().toarray(), holds.T)


def test_views(ds, forest):
    dense = forest.membership().toarray()
    for row in (0, 1, 57, 799):
        np.testing.assert_array_equal(forest.path(row), np.flatnonzero(dense[row]))
    for depth in (0, 1, 5, 1000):
        expected = [path[depth] if depth < path.size else -1 for path in map(forest.path, range(800))]
        np.testing.assert_array_equal(forest.latent_at_depth(depth), expected)
    for latent in (0, 3, forest.n_latents - 1):
        rows = np.arange(800)[forest.points_of(latent)]
        np.testing.assert_array_equal(rows, np.flatnonzero(dense[:, latent]))
    chosen = [7, 2, 30]
    np.testing.assert_array_equal(forest.membership(chosen).toarray(), dense[:, chosen])
    np.testing.assert_array_equal(forest.values(ds.latent_z, chosen).toarray(), (dense * ds.latent_z)[:, chosen])
    mask = forest.latent_size > 20
    np.testing.assert_array_equal(forest.membership(mask).toarray(), dense[:, mask])
    assert forest.membership([]).shape == (800, 0)
    # The targets are linear in the latents: values @ 1, plus the point's own z, over the root of the depth.
    total = np.asarray(forest.values(ds.latent_z).sum(axis=1)) + ds.point_z
    np.testing.assert_allclose(total / np.sqrt(1 + forest.point_depth), ds.y, atol=1e-12)


def test_children_and_exports(forest):
    children = forest.latent_children
    hierarchy = forest.latents_to_networkx()
    assert networkx.is_forest(hierarchy)
    assert networkx.number_weakly_connected_components(hierarchy) == forest.n_clusters
    below = {row: {row} for row in range(800)}
    for i in reversed(range(forest.n_latents)):
        below[800 + i] = below[children[i, 0]] | below[children[i, 1]]
        rows = forest.points_of(i)
        assert below[800 + i] == set(range(rows.start, rows.stop))

    graph = forest.to_networkx()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (800, forest.n_latents)
    assert networkx.is_forest(graph)
    adjacency = forest.adjacency()
    assert (adjacency != adjacency.T).nnz == 0
    count, label = scipy.sparse.csgraph.connected_components(adjacency)
    assert count == forest.n_clusters
    np.testing.assert_array_equal(label, forest.point_cluster)
    assert {frozenset(edge) for edge in graph.edges} == {frozenset(b) for b in forest.bond.tolist()}


def test_linkage(forest):
    one = forest.cluster(0)
    Z = forest.to_linkage(0)
    assert scipy.cluster.hierarchy.is_valid_linkage(Z, throw=True)
    assert scipy.cluster.hierarchy.is_monotonic(Z)
    leaves = {i: {i} for i in range(one.n_points)}
    for k, (a, b, _, size) in enumerate(Z):
        leaves[one.n_points + k] = leaves[int(a)] | leaves[int(b)]
        assert len(leaves[one.n_points + k]) == size
    ours = {frozenset(range(*one.points_of(i).indices(one.n_points))) for i in range(one.n_latents)}
    assert {frozenset(rows) for at, rows in leaves.items() if at >= one.n_points} == ours
    assert forest.to_linkage(forest.n_clusters - 1).shape == (0, 4)


def test_latent_table(ds, forest):
    table = forest.latent_table(ds.latent_z)
    assert len(table) == forest.n_latents
    row = table.loc[5]
    assert (row["size"], row["parent"], row["z"]) == (forest.latent_size[5], forest.latent_parent[5], ds.latent_z[5])


def test_parts(forest):
    for part in (forest.largest(3), forest.cluster(2), forest.largest(0), forest.largest(10**6)):
        part.validate()
    assert forest.largest(10**6).equals(forest)
    one = forest.cluster(2)
    np.testing.assert_array_equal(one.left_size, forest.left_size[forest.latent_cluster == 2])


def test_a_deep_tree_is_ordinary():
    n = 6000  # a caterpillar: every latent splits off one point
    start = np.array([0, n])
    bond = np.column_stack([np.arange(n - 1), np.arange(1, n)])
    forest = pl.Forest(start, [0], np.arange(n), np.ones(n - 1, int), bond)
    forest.validate()
    assert forest.point_depth.max() == n - 1
    assert forest.path(n - 1).size == n - 1
    assert forest.latent_at_depth(5000)[-1] == 5000
    assert forest.membership([0, 5000]).sum() == n + n - 5000
    assert forest.to_linkage().shape == (n - 1, 4)
    assert forest.latents_to_networkx().number_of_edges() == 2 * (n - 1)
    y = pl.engines.targets(forest, np.ones(n - 1), np.zeros(n))
    assert y[0] == pytest.approx(1 / np.sqrt(2))


def damaged(forest, column, at, value):
    values = getattr(forest, column).copy()
    values[at] = value
    return dataclasses.replace(forest, **{column: values})


@pytest.mark.parametrize(
    ("column", "at", "value", "message"),
    [
        ("cluster_start", 0, 1, r"cluster_start\[0\] must be 0, got 1"),
        ("cluster_start", -1, 801, r"cluster_start\[\d+\] must be the number of points, 800, got 801"),
        ("cluster_start", 2, 0, r"cluster_start\[1\] must grow"),
        ("cluster_start", 1, 20, r"cluster_size\[1\] must not grow"),
        ("cluster_id", -1, 0, r"cluster_id\[\d+\] must (grow among|not repeat)"),
        ("cluster_id", 0, -3, r"cluster_id\[0\] must not be negative, got -3"),
        ("cluster_id", 0, 700, r"cluster_id\[0\] must not exceed its first point's birth"),
        ("point_id", 4, -1, r"point_id\[4\] must not be negative, got -1"),
        ("left_size", 9, 0, r"left_size\[9\] must split the latent's points in two, got 0"),
        ("left_size", 0, 10**6, r"left_size\[0\] must split the latent's points in two, got 1000000"),
        ("bond", (3, 0), 799, r"bond\[3, 0\] must be a row of the latent's left interval, got 799"),
        ("bond", (3, 1), -1, r"bond\[3, 1\] must be a row of the latent's right interval, got -1"),
    ],
)
def test_validation_names_what_is_wrong(forest, column, at, value, message):
    with pytest.raises(ValueError, match=message):
        damaged(forest, column, at, value).validate()


def test_validation_of_repeats_and_lengths(forest):
    with pytest.raises(ValueError, match=r"point_id\[\d+\] must not repeat"):
        damaged(forest, "point_id", 10, forest.point_id[11]).validate()
    with pytest.raises(ValueError, match=r"left_size must have .* rows"):
        dataclasses.replace(forest, left_size=forest.left_size[:-1]).validate()
    swapped = forest.cluster_id.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    with pytest.raises(ValueError, match="cluster_id"):
        dataclasses.replace(forest, cluster_id=swapped).validate()
    with pytest.raises(ValueError, match="left_size must hold integers, got float64"):
        dataclasses.replace(forest, left_size=forest.left_size * 0.5)
    with pytest.raises(ValueError, match=r"bond must have shape \(n, 2\)"):
        dataclasses.replace(forest, bond=forest.left_size)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.path(800), "row must be below 800, got 800"),
        (lambda f: f.path(-1), "row must be at least 0, got -1"),
        (lambda f: f.points_of(10**6), "latent must be below"),
        (lambda f: f.latent_at_depth(-1), "depth must be at least 0, got -1"),
        (lambda f: f.membership([10**6]), "latents must be between 0 and"),
        (lambda f: f.membership([0.5]), "latents must be indices or a mask"),
        (lambda f: f.values([1.0]), "latent_z must have shape"),
        (lambda f: f.cluster(10**6), "cluster must be below"),
        (lambda f: pl.engines.targets(f, [0.0], np.zeros(800)), "latent_z must have shape"),
        (lambda f: pl.engines.targets(f, np.zeros(f.n_latents), [0.0]), "point_z must have shape"),
    ],
)
def test_bad_questions(forest, call, message):
    with pytest.raises(ValueError, match=message):
        call(forest)


def test_an_intervention_reaches_the_latent_s_points_and_no_others(ds, forest):
    latent = int(np.argmax((forest.latent_size > 5) & (forest.latent_depth == 2)))
    z = ds.latent_z.copy()
    z[latent] += 1.5
    change = pl.engines.targets(forest, z, ds.point_z) - ds.y
    rows = forest.points_of(latent)
    np.testing.assert_allclose(change[rows], 1.5 / np.sqrt(1 + forest.point_depth[rows]), atol=1e-12)
    change[rows] = 0
    assert not change.any()
