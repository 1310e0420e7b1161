"""The native engine: same bytes for any threads, refinement as n grows, the laws, the extremes."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import networkx
import numpy as np
import pytest
from scipy import stats
from scipy.sparse.csgraph import breadth_first_order, dijkstra

import percolab as pl
from percolab.engines.clusters import Clusters
from percolab.engines.native import growth, skeleton
from percolab.engines.native.skeleton import Stand
from percolab.engines.native.splitting import split
from percolab.rng import philox

MODES = ["one_cluster", "distribution"]
COLUMNS = ("X", "y", "latent_z", "point_z")


def recipe(n, mode="one_cluster", dim=3, seeds=1, **fields):
    return pl.Recipe(n, dim, mode, seeds=seeds, engine="native", **fields)


def same_bytes(a, b):
    return a.forest.equals(b.forest) and all(getattr(a, c).tobytes() == getattr(b, c).tobytes() for c in COLUMNS)


# ---------------------------------------------------------------------- exactness


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n", [1, 2, 3, 1023, 1024, 1025, 2049, 60_000])
def test_threads_do_not_matter(n, mode):
    one = pl.generate(recipe(n, mode), threads=1)
    one.forest.validate()
    for threads in (2, 3, 7):
        assert same_bytes(one, pl.generate(recipe(n, mode), threads=threads))


def descend(path, first, size, key, splits, ends):
    """Grow a cluster the obvious way: recursion, one coin at a time. Fills latents in preorder."""
    todo = [(path, first, size)]
    nodes = {}
    while todo:
        path, first, size = todo.pop()
        if size == 1:
            nodes[path] = (first, 1, None)
            continue
        choice, bond_key = (int(bits) for bits in _block(path, key))
        left = int(split(size, (choice >> 11) * 2.0**-53))
        left_path, right_path = (int(p) for p in philox.child_paths(np.uint64(path)))
        nodes[path] = (first, size, (left, left_path, right_path, bond_key))
        splits.append((first, size, left, path))
        todo.append((right_path, first + left, size - left))
        todo.append((left_path, first, left))
    for _, _, _, path in splits:
        _, _, (_, left_path, right_path, bond_key) = nodes[path]
        ends.append([_fall(nodes, side, bond_key) for side in (left_path, right_path)])


def _block(path, key):
    first, second = np.empty(1, np.uint64), np.empty(1, np.uint64)
    philox.blocks(np.array([path], np.uint64), 1, philox.SPLIT, np.uint64(key), first, second)
    return first[0], second[0]


def _fall(nodes, path, bond_key):
    while True:
        first, size, below = nodes[path]
        if below is None:
            return first
        left, left_path, right_path, _ = below
        product = bond_key * path
        coin = ((product >> 64) ^ (product & (2**64 - 1))) >> 1
        path = left_path if coin < int(left / size * 2.0**63) else right_path


@pytest.mark.parametrize("n", [2, 3, 17, 500, 1024, 1500, 5000])
def test_kernels_against_the_obvious_way(n):
    forest = pl.engines.split_forest(n, 11)
    splits, ends = [], []
    descend(int(philox.cluster_path(0)), 0, n, 11, splits, ends)
    assert [left for _, _, left, _ in splits] == forest.left_size.tolist()
    assert ends == forest.bond.tolist()


def test_split_forest_is_the_forest_of_the_native_engine():
    for n in (1, 2, 3000):
        assert pl.engines.split_forest(n, 5).equals(pl.generate(recipe(n, seeds=5)).forest)


def test_cluster_of():
    r = recipe(4000, "distribution", seeds=3)
    forest = pl.generate(r).forest
    founder = np.minimum.reduceat(forest.point_id, forest.cluster_start[:-1])[forest.point_cluster]
    found = np.array([pl.engines.cluster_of(r, int(point)) for point in forest.point_id])
    np.testing.assert_array_equal(found, founder)
    for bad, message in [(-1, "at least 0"), (4000, "below 4000"), (0.5, "an integer")]:
        with pytest.raises(ValueError, match=f"point must be {message}"):
            pl.engines.cluster_of(r, bad)
    with pytest.raises(ValueError, match="engine must be 'native', got 'paper'"):
        pl.engines.cluster_of(replace(r, engine="paper"), 0)


@pytest.mark.parametrize("least", [2, 5, 50, 2000, 10**6])
def test_filter_keeps_the_same_rows(least):
    whole = pl.generate(recipe(30_000, "distribution"))
    assert same_bytes(pl.generate(replace(whole.recipe, min_cluster_size=least)), whole.filter(least))


def test_double_precision_is_the_same_data_finer():
    single = pl.generate(recipe(20_000, "distribution", dim=30))
    double = pl.generate(replace(single.recipe, dtype="float64"))
    assert (single.X.dtype, double.X.dtype) == (np.float32, np.float64)
    assert single.y.tobytes() == double.y.tobytes()
    np.testing.assert_allclose(single.X, double.X, atol=2e-5)


# ---------------------------------------------------------------------- refinement


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "m"), [(1, 2), (2, 3), (7, 8), (500, 501), (1000, 2000), (1024, 1025), (3000, 30_000)])
def test_a_larger_dataset_refines_a_smaller_one(mode, n, m):
    small, large = pl.generate(recipe(n, mode, seeds=9)), pl.generate(recipe(m, mode, seeds=9))
    (small_latents, small_points), (large_latents, large_points) = map(
        pl.engines.node_paths, (small.forest, large.forest)
    )
    latent_z = dict(zip(large_latents.tolist(), large.latent_z.tolist(), strict=True))
    rows = {path: row for row, path in enumerate(large_points.tolist())}
    for path, z in zip(small_latents.tolist(), small.latent_z.tolist(), strict=True):
        assert latent_z[path] == z
    stayed = 0
    for row, path in enumerate(small_points.tolist()):
        if path in rows:
            other = rows[path]
            stayed += 1
            assert small.point_z[row] == large.point_z[other]
            assert small.forest.point_depth[row] == large.forest.point_depth[other]
            assert small.y[row] == large.y[other]
        else:
            assert latent_z[path] == small.point_z[row]
    if m == n + 1:
        assert stayed >= n - 1


def moved_bonds(small, large):
    """Count the bonds of the small forest whose end in the large one left the place of the small end."""
    (small_latents, small_points), (large_latents, large_points) = map(pl.engines.node_paths, (small, large))
    latent = {path: i for i, path in enumerate(large_latents.tolist())}
    row = {path: r for r, path in enumerate(large_points.tolist())}
    moved = 0
    for path, ends in zip(small_latents.tolist(), small.bond, strict=True):
        for end, other in zip(ends, large.bond[latent[path]], strict=True):
            name = int(small_points[end])
            rows = large.points_of(latent[name]) if name in latent else slice(row[name], row[name] + 1)
            if not rows.start <= other < rows.stop:
                moved += 1
                break
    return moved


def test_few_bonds_move_as_n_grows():
    by_one = np.mean(
        [moved_bonds(pl.engines.split_forest(2000 + k, 4), pl.engines.split_forest(2001 + k, 4)) for k in range(40)]
    )
    assert 0.5 < by_one < 5  # about two, whatever n
    doubled = moved_bonds(pl.engines.split_forest(5000, 4), pl.engines.split_forest(10_000, 4)) / 5000
    assert 0.12 < doubled < 0.30  # the best possible coupling moves 20%


# ---------------------------------------------------------------------- laws


def many_clusters(size, count, seed=0):
    """Grow `count` clusters of `size` points at once and yield their forests."""
    founder = np.arange(count) * 1000
    start = np.arange(count + 1) * size
    points = (founder[:, None] + np.arange(size)).reshape(-1)
    clusters = Clusters(start, np.arange(count), points)
    forest = growth.grow_forest(clusters, np.uint64(seed), 2)
    return replace(forest, point_id=forest.point_id % 1000)


@pytest.mark.parametrize("n", [4, 5])
def test_joint_law_of_tree_and_merger_tree(n):
    """Every labelled tree equally likely; given it, merger trees as often as uniform orders of its bonds make them."""
    count = 40_000
    forest = many_clusters(n, count)
    observed = Counter()
    for c in range(count):
        lo, top = c * n, c * (n - 1)
        ids = forest.point_id
        sets = []
        for i in range(top, top + n - 1):
            rows = range(forest.latent_start[i], forest.latent_start[i] + forest.latent_size[i])
            sets.append(frozenset(ids[rows].tolist()))
        bonds = frozenset(frozenset(ids[pair].tolist()) for pair in forest.bond[top : top + n - 1])
        observed[bonds, frozenset(sets)] += 1
        assert ids[lo : lo + n].min() == 0
    expected = joint_law(n)
    assert set(observed) <= set(expected)
    keys = list(expected)
    f_obs = np.array([observed[key] for key in keys])
    f_exp = count * np.array([expected[key] for key in keys])
    assert stats.chisquare(f_obs, f_exp).pvalue > 1e-4


def joint_law(n):
    """Enumerate all labelled trees and all orders of merging their bonds."""
    law = Counter()
    trees = [networkx.from_prufer_sequence(list(code)) for code in np.ndindex(*[n] * (n - 2))]
    for tree in trees:
        edges = list(tree.edges)
        orders = list(permutations(edges))
        for order in orders:
            block = {node: frozenset([node]) for node in tree}
            sets = []
            for a, b in order:
                union = block[a] | block[b]
                sets.append(union)
                for node in union:
                    block[node] = union
            law[frozenset(map(frozenset, edges)), frozenset(sets)] += 1 / (len(trees) * len(orders))
    return law


def test_every_labelled_tree_of_six_points_is_equally_likely():
    forest = many_clusters(6, 60_000, seed=3)
    ids = forest.point_id[forest.bond].reshape(-1, 5, 2)
    codes = np.sort(ids, axis=2) @ [6, 1]
    trees = np.sort(codes, axis=1) @ 36 ** np.arange(5)
    counts = np.unique(trees, return_counts=True)[1]
    assert counts.size == 6**4
    assert stats.chisquare(counts).pvalue > 1e-4


def test_degrees():
    n = 200_000
    degree = np.bincount(pl.engines.split_forest(n, 8).bond.ravel(), minlength=n)
    observed = np.bincount(degree)[1:9]
    expected = n * stats.binom.pmf(np.arange(8), n - 2, 1 / n)
    # The degrees of one tree have a fixed sum, so counts vary a little less than Poisson's: five sigma is safe.
    assert np.all(np.abs(observed - expected) < 5 * np.sqrt(expected))


@pytest.mark.parametrize(("n", "count"), [(50, 2000), (2000, 400)])
def test_mean_depth(n, count):
    k = np.arange(1, n)
    expected = np.sum((1 + 1 / k) * np.exp(np.cumsum(np.log((n - k) / n))))  # Σ (1 + 1/k) (n-1)!/((n-1-k)! n^k)
    depths = np.array([pl.engines.split_forest(n, seed).point_depth.mean() for seed in range(count)])
    assert abs(depths.mean() - expected) < 4 * depths.std() / np.sqrt(count)


def test_graph_distances():
    """P(distance = k) = (k+1) (n-2)! / ((n-1-k)! n^k) for two distinct random points; mean over many trees."""
    n, count = 300, 400
    k = np.arange(1, n)
    law = np.exp(np.log(k + 1) + np.array([np.log(np.arange(n - j, n - 1)).sum() for j in k]) - k * np.log(n))
    assert abs(law.sum() - 1) < 1e-9
    means = []
    for seed in range(count):
        forest = pl.engines.split_forest(n, seed)
        start = int(np.flatnonzero(forest.point_id == 0)[0])  # rows are not exchangeable, labels are
        means.append(dijkstra(forest.adjacency(), indices=start, unweighted=True).sum() / (n - 1))
    assert abs(np.mean(means) - (k * law).sum()) < 4 * np.std(means) / np.sqrt(count)


def test_labels_say_nothing_about_the_tree():
    forest = pl.engines.split_forest(50_000, 2)
    assert abs(stats.spearmanr(forest.point_id, np.arange(50_000)).statistic) < 5 / np.sqrt(50_000)
    neighbours = np.abs(np.diff(forest.point_id))
    assert abs(neighbours.mean() / 50_000 - 1 / 3) < 0.01
    small = many_clusters(3, 30_000)
    order = small.point_id.reshape(-1, 3) @ [9, 3, 1]
    assert stats.chisquare(np.unique(order, return_counts=True)[1]).pvalue > 1e-4


def test_cluster_sizes():
    forest = pl.generate(recipe(400_000, "distribution", dim=2)).forest
    n, size = 400_000, forest.cluster_size
    assert abs(size.size - (1 + (n - 1) / 3)) < 5 * np.sqrt(n * 2 / 9)
    from scipy.special import beta

    s = np.arange(1, 30)
    expected = n * beta(s, 2.5) / 2
    observed = np.bincount(size)[1:30]
    assert np.all(np.abs(observed - expected) < 5 * np.sqrt(expected))


def test_directions_and_positions():
    """E|X_a - X_b|² = d step² distance; vectors of different points are uncorrelated; origins fill the ball."""
    n, dim = 3000, 40
    ratio = []
    for seed in range(20):
        ds = pl.generate(recipe(n, dim=dim, seeds=seed))
        start = int(np.flatnonzero(ds.forest.point_id == 0)[0])
        order, parent = breadth_first_order(ds.forest.adjacency(), start)
        distance = np.zeros(n)
        for row in order[1:]:
            distance[row] = distance[parent[row]] + 1
        square = ((ds.X - ds.X[start]) ** 2).sum(axis=1)
        ratio.append(square[order[1:]].sum() / distance.sum() / (dim * ds.recipe.step**2))
    assert abs(np.mean(ratio) - 1) < 4 * np.std(ratio) / np.sqrt(20)

    ds = pl.generate(recipe(20_000, "distribution", dim=6))
    alone = ds.forest.cluster_size == 1
    X = ds.X[ds.forest.cluster_start[:-1][alone]] / np.sqrt(6)
    # origin + step · vector: |origin|² has mean d/(d+2), the vector is independent of it.
    expected = 6 / 8 + ds.recipe.step**2
    square = (X**2).sum(axis=1)
    assert abs(square.mean() - expected) < 5 * square.std() / np.sqrt(square.size)
    assert np.all(np.abs(X.mean(axis=0)) < 5 * X.std() / np.sqrt(len(X)))


@pytest.mark.slow
def test_targets_are_standard_normal_over_seeds():
    y = np.array([pl.generate(recipe(50, dim=2, seeds=seed)).y[[0, 25]] for seed in range(2000)])
    for column in y.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_equal_in_law_to_the_paper_engine(mode):
    """Two-sample tests over independent datasets of both engines, on statistics that are exchangeable in both."""
    n, dim, count = 400, 5, 250
    columns = {}
    for engine in ("native", "paper"):
        rows = []
        for seed in range(count):
            ds = pl.generate(pl.Recipe(n, dim, mode, seeds=seed, engine=engine), threads=1)
            forest = ds.forest
            degree = np.bincount(forest.bond.ravel(), minlength=n)
            top = forest.left_size[0] if forest.n_latents else 0
            start = int(np.flatnonzero(forest.point_id == forest.point_id[: forest.cluster_size[0]].min())[0])
            distance = dijkstra(forest.adjacency(), indices=start, unweighted=True)
            rows.append([
                forest.point_depth.mean(), forest.point_depth.max(), (degree == 1).sum(), (degree == 3).sum(),
                min(top, forest.cluster_size[0] - top), distance[np.isfinite(distance)].mean(), ds.y.mean(), ds.y.var(),
                ds.X.var(axis=0).mean(), ds.X[:, 0].mean(), np.abs(ds.X).max(), forest.cluster_size[0],
                np.abs(np.linalg.eigvalsh(np.cov(ds.X.T))).max(),
            ])  # fmt: skip
        columns[engine] = np.array(rows).T
    for native_values, paper_values in zip(columns["native"], columns["paper"], strict=True):
        assert stats.ks_2samp(native_values, paper_values).pvalue > 1e-4


# ---------------------------------------------------------------------- extremes


@pytest.mark.parametrize("dim", [2, 3, 7, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_dimensions(dim, mode):
    ds = pl.generate(recipe(1500, mode, dim=dim))
    a, b = ds.forest.bond.T
    length = np.linalg.norm(ds.X[a].astype(float) - ds.X[b], axis=1)
    np.testing.assert_allclose(length, ds.recipe.step * np.sqrt(dim), rtol=1e-4)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_extreme_probabilities(p):
    ds = pl.generate(pl.Recipe(3000, 4, "custom", create_prob=p, seeds=0))
    ds.forest.validate()
    assert ds.forest.n_clusters == (1 if p == 0 else 3000)
    assert np.isfinite(ds.X).all()


@pytest.mark.slow
def test_custom_clusters_at_probability_zero_lie_at_an_origin():
    """`custom` draws an origin and steps by n^(-1/6), however many clusters there are."""
    ds = pl.generate(pl.Recipe(3000, 4, "custom", create_prob=0.0, seeds=0))
    one = pl.generate(recipe(3000, dim=4, seeds=0))
    assert ds.forest.equals(one.forest)
    scaled = (one.X - one.X[0]) * (ds.recipe.step / one.recipe.step)
    np.testing.assert_allclose(ds.X - ds.X[0], scaled, atol=1e-3)


def test_pieces_tile_the_rows():
    forest = pl.engines.split_forest(100_000, 1)
    expansion = skeleton.expand(Stand.of_clusters(forest.cluster_start, np.zeros(1, np.int64)), np.uint64(1))
    piece, above = expansion.tip, expansion.skeleton
    np.testing.assert_array_equal(piece["first"][1:], (piece["first"] + piece["size"])[:-1])
    assert piece["size"].max() <= skeleton.PIECE
    assert piece.size == above.size + 1
    np.testing.assert_array_equal(above["left"], forest.left_size[above["latent"]])
