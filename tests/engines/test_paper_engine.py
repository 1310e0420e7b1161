"""The paper engine against the published outputs and against a slow, independent implementation."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracle
import pytest

import percolab as pl

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*_s*.npz"))


def release_columns(ds):
    """Return the columns of a dataset in the row order of the release."""
    forest, order = ds.forest, ds.release_order
    return {
        "X": ds.X[order],
        "y": ds.y[order],
        "point_z": ds.point_z[order],
        "point_id": forest.point_id[order],
        "cluster_id": forest.cluster_id[forest.point_cluster[order]],
        "depth": forest.point_depth[order],
    }


def row_of_release(ds):
    """Return the release row of each of our rows."""
    rows = np.empty(len(ds), np.int64)
    rows[ds.release_order] = np.arange(len(ds))
    return rows


def digest(column, kind):
    return hashlib.sha256(np.asarray(column, kind).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
@pytest.mark.parametrize("threads", [1, 2])
def test_golden(path, threads):
    golden = np.load(path)
    mode = str(golden["mode"])
    recipe = pl.Recipe(
        int(golden["n"]),
        int(golden["d"]),
        mode,
        create_prob=float(golden["create_prob"]) if mode == "custom" else None,
        seeds=pl.Seeds(*golden["seeds"].tolist()),
        engine="paper",
    )
    ds = pl.generate(recipe, threads=threads)
    ds.forest.validate()
    columns = release_columns(ds)
    scale = np.abs(golden["X"]).max()
    np.testing.assert_allclose(columns.pop("X"), golden["X"], rtol=0, atol=1e-12 * scale)
    for name, column in columns.items():
        np.testing.assert_array_equal(column, golden[name], err_msg=name)

    forest, rows = ds.forest, row_of_release(ds)
    edges = np.sort(rows[forest.bond], axis=1)
    np.testing.assert_array_equal(edges[np.lexsort(edges.T[::-1])], golden["edges"])
    assert latent_set(forest, ds.latent_z, rows) == golden_latent_set(golden)


def latent_set(forest, z, rows):
    """Describe each latent by the release rows of its two children, in order, its depth and its value."""
    start, size = forest.latent_start, forest.latent_size
    middle = start + forest.left_size
    return {
        (frozenset(rows[a:m].tolist()), frozenset(rows[m : a + s].tolist()), d, v)
        for a, m, s, d, v in zip(start, middle, size, forest.latent_depth.tolist(), z.tolist(), strict=True)
    }


def golden_latent_set(golden):
    n = int(golden["n"])
    children, depth, z = (
        golden["latent_children"].tolist(),
        golden["latent_depth"].tolist(),
        golden["latent_z"].tolist(),
    )
    below = {row: frozenset([row]) for row in range(n)}
    for i in reversed(range(len(children))):  # within a cluster the last merge comes first
        below[n + i] = below[children[i][0]] | below[children[i][1]]
    return {(below[a], below[b], d, v) for (a, b), d, v in zip(children, depth, z, strict=True)}


@pytest.mark.parametrize(
    ("n", "d", "mode", "p"),
    [
        (1, 2, "distribution", 1 / 3),
        (40, 2, "one_cluster", 0.0),
        (150, 3, "distribution", 1 / 3),
        (60, 5, "custom", 0.0),
        (30, 4, "custom", 1.0),
        (200, 2, "custom", 0.05),
    ],
)
@pytest.mark.parametrize("seed", [0, 3, 2**40])
def test_oracle(n, d, mode, p, seed):
    seeds = pl.Seeds(seed, seed + 1, seed + 2)
    create_prob = p if mode == "custom" else None
    ds = pl.generate(pl.Recipe(n, d, mode, create_prob=create_prob, seeds=seeds, engine="paper"))
    expected = oracle.generate(n, d, p, (seeds.graph, seeds.embed, seeds.value), mode == "one_cluster")
    columns = release_columns(ds)
    np.testing.assert_allclose(columns.pop("X"), expected["X"], atol=1e-12)
    for name, column in columns.items():
        np.testing.assert_array_equal(column, expected[name], err_msg=name)
    ids = ds.forest.point_id[ds.forest.bond]
    assert {frozenset(pair) for pair in ids.tolist()} == expected["bonds"]
    described = zip(map(tuple, ids.tolist()), ds.forest.latent_depth.tolist(), ds.latent_z.tolist(), strict=True)
    assert set(described) == expected["latents"]


def test_paper_one_cluster():
    ds = pl.generate("paper-one-cluster")
    columns = release_columns(ds)
    assert ds.forest.cluster_size.tolist() == [200_000]
    assert columns["depth"].max() == 955
    assert columns["depth"].mean() == pytest.approx(468.700915, abs=5e-7)
    assert columns["y"].mean() == pytest.approx(-0.14649350748691947, rel=1e-14)
    assert columns["y"].var() == pytest.approx(0.397599784256851, rel=1e-14)
    assert digest(columns["y"], "<f8") == "82536476c51f175c"
    assert digest(columns["point_id"], "<i8") == "fb545a85ce37ecb4"
    first = [-0.1218486040377503, 1.8024794771316994, -0.9321705104181338, 0.783592914651713]
    np.testing.assert_allclose(columns["X"][0, :4], first, rtol=0, atol=1e-11)


def test_paper_multi_cluster():
    ds = pl.generate("paper-multi-cluster")
    columns = release_columns(ds)
    assert (ds.forest.n_clusters, len(ds), ds.forest.cluster_size[0]) == (81, 123_672, 19_004)
    assert columns["y"].var() == pytest.approx(0.9677002008516116, rel=1e-14)
    assert digest(columns["y"], "<f8") == "62b3cc2978d98ba1"
    assert digest(columns["point_id"], "<i8") == "3b0c3a6d3b27e81e"
    first = [-1.8708035580909774, 0.8216221124702145, 0.793601048288643, 0.6898251362951858]
    np.testing.assert_allclose(columns["X"][0, :4], first, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dim", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_paper_multi_cluster_before_the_filter(dim):
    ds = pl.generate(replace(pl.PRESETS["paper-multi-cluster"], min_cluster_size=1, dim=dim))
    ds.forest.validate()
    columns = release_columns(ds)
    assert (ds.forest.n_clusters, len(ds), ds.forest.cluster_size[0]) == (665_965, 2_000_000, 19_004)
    assert (columns["depth"].max(), columns["depth"].mean()) == (278, 9.3352885)
    assert columns["y"].mean() == pytest.approx(0.0038854164232190384, rel=1e-12)
    assert columns["y"].var() == pytest.approx(1.0026000623080193, rel=1e-14)
    assert digest(columns["y"], "<f8") == "6e251fb52324dc97"
    assert digest(columns["point_id"], "<i8") == "f0a2f38aba80b27d"


@pytest.mark.parametrize("least", [2, 7, 40, 10_000])
def test_filter_keeps_the_same_rows(least):
    whole = pl.generate(pl.Recipe(3000, 4, seeds=11, engine="paper"))
    kept = pl.generate(replace(whole.recipe, min_cluster_size=least))
    expected = whole.filter(least)
    assert kept.forest.equals(expected.forest)
    assert kept.recipe == expected.recipe
    for name in ("X", "y", "latent_z", "point_z"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(expected, name))


def test_float32_is_the_same_data_rounded():
    recipe = pl.Recipe(5000, 10, "one_cluster", seeds=1, engine="paper")
    double, single = pl.generate(recipe), pl.generate(replace(recipe, dtype="float32"))
    assert single.X.dtype == np.float32
    np.testing.assert_array_equal(single.y, double.y)
    np.testing.assert_allclose(single.X, double.X, atol=1e-4)


@pytest.mark.slow
def test_cyclic_coalescent_is_the_forest_of_the_paper_engine():
    for n in (1, 2, 3, 1000):
        forest = pl.engines.cyclic_coalescent(n, 5)
        forest.validate()
        assert forest.equals(pl.generate(pl.Recipe(n, 2, "one_cluster", seeds=5, engine="paper")).forest)


def test_cyclic_coalescent_samples_every_tree_of_four_points_equally():
    counts = {}
    for seed in range(8000):
        forest = pl.engines.cyclic_coalescent(4, seed)
        tree = frozenset(frozenset(pair) for pair in forest.point_id[forest.bond].tolist())
        counts[tree] = counts.get(tree, 0) + 1
    assert len(counts) == 4**2
    expected = 8000 / 16
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 37.7  # 15 degrees of freedom, p = 0.001
