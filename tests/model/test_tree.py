"""The tree at hand: every question about latents and rows against the slow, obvious answer, on any forest."""

import numpy as np
import obvious
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import percolab as pl

SHAPES = ("any", "ragged", "left chain", "right chain", "even")


@st.composite
def forests(draw, most=40):
    sizes = draw(st.lists(st.integers(1, most), min_size=1, max_size=6))
    return obvious.grow_forest(sizes, draw(st.integers(0, 2**32)), draw(st.sampled_from(SHAPES)))


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(2000, 3, seeds=5))


@given(forests(most=12))
@settings(max_examples=50, deadline=None)
def test_common_ancestors_and_paths(forest):
    n, latents = forest.n_points, obvious.rows_of(forest)
    every = np.arange(n)
    table = [[obvious.common_latent(latents, a, b) for b in range(n)] for a in range(n)]
    np.testing.assert_array_equal(forest.lca(every[:, None], every), table)
    np.testing.assert_array_equal(forest.point_parent, np.diag(table))
    paths = forest.path(every)
    assert [part.tolist() for part in paths.parts()] == [forest.path(row).tolist() for row in range(n)]
    assert [set(part.tolist()) for part in paths.parts()] == [
        {i for i, rows in enumerate(latents) if row in rows} for row in range(n)
    ]
    np.testing.assert_array_equal(np.diff(paths.offsets), forest.point_depth)


@given(forests(most=15))
@settings(max_examples=40, deadline=None)
def test_families(forest):
    n, sets, latents = forest.n_points, obvious.node_rows(forest), obvious.rows_of(forest)
    every = np.arange(forest.n_latents)
    parents = obvious.parents(forest)[n:]
    np.testing.assert_array_equal(forest.latent_parent, parents)
    for node, parent, sibling, side in zip(n + every, parents, forest.sibling(every), forest.side(every), strict=True):
        if parent < 0:
            assert (sibling, side) == (-1, -1)
            continue
        assert sets[sibling] == latents[parent] - sets[node]
        assert side == (min(sets[node]) > min(sets[sibling]))
        assert forest.children(parent)[side] == node
    above = forest.ancestors(every).parts()
    for latent in every:
        larger = [i for i, rows in enumerate(latents) if rows >= latents[latent] and i != latent]
        assert above[latent].tolist() == sorted(larger)
    starts, stops = forest.points_of(every)
    first, end = forest.descendants(every)
    for i, rows in enumerate(latents):
        assert set(range(starts[i], stops[i])) == rows
        assert forest.points_of(i) == slice(starts[i], stops[i])
        assert list(range(first[i], end[i])) == [j for j, other in enumerate(latents) if other < rows]
        assert forest.descendants(i) == slice(first[i], end[i])
        assert forest.ancestors(i).tolist() == above[i].tolist()


@given(forests(most=30))
@settings(max_examples=50, deadline=None)
def test_distances_along_bonds(forest):
    n = forest.n_points
    every = np.arange(n)
    reach = [obvious.bonds_from(forest, row) for row in range(n)]
    table = np.array([[reach[a].get(b, -1) for b in range(n)] for a in range(n)])
    np.testing.assert_array_equal(forest.distance(every[:, None], every), table)
    chosen = every[every % 7 == 3]
    far = np.where(table < 0, n, table)
    nearest = far[:, chosen].min(axis=1, initial=n)
    np.testing.assert_array_equal(forest.distance_to(chosen), np.where(nearest == n, -1, nearest))


@given(forests(most=12), st.integers(1, 15), st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_cuts(forest, max_size, n_groups):
    sets, n = obvious.node_rows(forest), forest.n_points
    by_size = forest.cut(max_size)
    assert by_size.nodes.tolist() == obvious.cut_by_size(forest, max_size)
    by_number = forest.cut(n_groups=min(n_groups, n))
    assert by_number.nodes.tolist() == obvious.cut_by_number(forest, min(n_groups, n))
    assert len(by_number) == max(min(n_groups, n), forest.n_clusters)
    for cut in (by_size, by_number):
        assert [set(range(s, s + m)) for s, m in zip(cut.starts, cut.sizes, strict=True)] == [
            sets[v] for v in cut.nodes
        ]
        np.testing.assert_array_equal(cut.groups, np.repeat(np.arange(len(cut)), cut.sizes))
        assert cut.groups.size == n


@given(forests(most=25), st.integers(2, 6), st.sampled_from([1, 2 / 3, 0.5, 0.1]), st.data())
@settings(max_examples=60, deadline=None)
def test_concepts(forest, min_size, ratio, data):
    assert forest.concepts(min_size, ratio).tolist() == obvious.concepts(forest, min_size, ratio)
    rows = data.draw(st.lists(st.integers(0, forest.n_points - 1), max_size=60))
    found = forest.concepts(min_size, ratio, rows=rows)
    assert found.tolist() == obvious.concepts(forest, min_size, ratio, rows)
    latents = obvious.rows_of(forest)
    expected = [
        min((k for k in found if latents[k] > latents[i]), key=lambda k: len(latents[k]), default=-1) for i in found
    ]
    assert forest.nearest_above(found).tolist() == expected
    backwards = np.repeat(found[::-1], 2)
    assert forest.nearest_above(backwards).tolist() == [e for e in reversed(expected) for _ in range(2)]


def test_all_rows_named_are_all_rows(ds):
    forest = ds.forest
    np.testing.assert_array_equal(forest.concepts(5, 2 / 3, rows=np.arange(2000)[::-1]), forest.concepts(5, 2 / 3))
    np.testing.assert_array_equal(forest.concepts(10, rows=np.repeat(np.arange(2000), 2)), forest.concepts(5))
    np.testing.assert_array_equal(forest.concepts(5, rows=np.ones(2000, bool)), forest.concepts(5))
    np.testing.assert_array_equal(forest.concepts(), forest.concepts(20, 2 / 3))


@given(forests(most=15), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_moments(forest, seed):
    rng = np.random.default_rng(seed)
    n = forest.n_points
    offset = 10.0 ** rng.integers(-3, 7)
    values = offset + rng.standard_normal((n, 3)) * 10.0 ** rng.integers(-3, 4, 3)
    found = forest.moments(values)
    for i, rows in enumerate(obvious.rows_of(forest)):
        assert found.count[i] == len(rows)
        for j in range(3):
            total, mean, variance = obvious.moments(values[:, j], rows)
            scale = float(np.abs(values[:, j]).max())
            assert abs(float(total) - found.total[i, j]) <= 1e-15 * scale * len(rows)
            assert abs(float(mean) - found.mean[i, j]) <= 1e-15 * scale
            assert found.variance[i, j] == pytest.approx(float(variance), rel=1e-11)


def test_moments_far_from_zero_in_a_long_table():
    """The errors that the docstring names: 200,000 rows, latents that spread 10^-4 and 10^-6 of all values."""
    forest = pl.engines.split_forest(200_000, 3)
    rng = np.random.default_rng(0)
    cut = forest.cut(200)
    latents = rng.choice(np.flatnonzero(forest.latent_size <= 200), 60)
    for ratio, bound in ((1e4, 1e-11), (1e6, 1e-7)):
        values = (ratio * rng.standard_normal(len(cut)))[cut.groups] + rng.standard_normal(200_000) + 1e6
        found = forest.moments(values, latents)
        for k, latent in enumerate(latents):
            _, mean, variance = obvious.moments(values, range(200_000)[forest.points_of(latent)])
            assert abs(found.mean[k] - float(mean)) < 3e-16 * np.abs(values).max()
            assert found.variance[k] == pytest.approx(float(variance), rel=bound)


@pytest.mark.slow
def test_moments_of_any_kind_of_array(ds, tmp_path, monkeypatch):
    forest, latents = ds.forest, ds.forest.concepts(5)
    expected = forest.moments(ds.X, latents)
    ds.save(tmp_path / "ds.zarr")
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=ds.X.shape)
    mapped[:] = ds.X
    monkeypatch.setattr("percolab.model.moments.MOMENT_BYTES", 999)
    monkeypatch.setattr("percolab.model.moments.KEPT_BYTES", 1)
    for values in (ds.X, pl.load(tmp_path / "ds.zarr").X, mapped, torch.tensor(ds.X), scipy.sparse.csr_array(ds.X)):
        again = forest.moments(values, latents)
        for name in ("count", "total", "mean", "variance"):
            np.testing.assert_array_equal(getattr(again, name), getattr(expected, name))
    np.testing.assert_array_equal(forest.moments(ds.X[:, 1].tolist(), latents).mean, expected.mean[:, 1])
    member = forest.membership(latents).astype(float)
    np.testing.assert_allclose(expected.total, member.T @ ds.X.astype(float), atol=1e-10)


@pytest.mark.parametrize("shape", ["left chain", "right chain"])
def test_a_chain_of_thousands(shape):
    n = 5000
    forest = obvious.grow_forest([n, 1], 0, shape)
    a, b = np.random.default_rng(1).integers(0, n, (2, 3000))
    # Latent i of a chain has all rows but i: the first ones, or the last ones.
    low, high = np.minimum(a, b), np.maximum(a, b)
    top = n - 1 - high if shape == "left chain" else low
    np.testing.assert_array_equal(forest.lca(a, b), np.minimum(top, n - 2))
    assert forest.lca(0, n) == forest.lca(n, n) == -1
    reach = obvious.bonds_from(forest, 7)
    np.testing.assert_array_equal(forest.distance(7, np.arange(n)), [reach[row] for row in range(n)])
    assert forest.cut(10).sizes.tolist() == (
        [10] + [1] * (n - 10) if shape == "left chain" else [1] * (n - 10) + [10]
    ) + [1]
    assert forest.concepts(2).tolist() == [0]
    assert forest.path([0, n - 1]).values.size == n


def test_long_ranges():
    """Rows that are many blocks of the table of minima apart, against their paths and their distances in space."""
    forest = pl.engines.split_forest(20_000, 3)
    a, b = np.random.default_rng(0).integers(0, 20_000, (2, 300))
    first, second = forest.path(a).parts(), forest.path(b).parts()
    for pair, latent in enumerate(forest.lca(a, b)):
        assert latent == max(set(first[pair].tolist()) & set(second[pair].tolist()))
    for row in a[:3]:
        reach = obvious.bonds_from(forest, int(row))
        np.testing.assert_array_equal(forest.distance(row, b), [reach[other] for other in b.tolist()])


def test_a_cluster_without_latents():
    forest = obvious.grow_forest([1, 1, 1], 0)
    assert forest.lca([0, 1], [0, 2]).tolist() == [-1, -1]
    assert forest.distance([0, 1], [0, 2]).tolist() == [0, -1]
    assert forest.distance_to([1]).tolist() == [-1, 0, -1]
    assert forest.path([0, 2]).offsets.tolist() == [0, 0, 0]
    assert forest.cut(5).nodes.tolist() == [0, 1, 2]
    assert forest.concepts(2).tolist() == forest.nearest_above([]).tolist() == []
    assert forest.moments(np.zeros((3, 2))).mean.shape == (0, 2)
    nothing = pl.Forest([0], [], [], [], [])
    assert len(nothing.cut(3)) == nothing.concepts(2).size == nothing.distance_to([]).size == 0
    assert nothing.lca([], []).tolist() == []
    assert nothing.path([]).parts() == []


def test_answers_have_the_shape_of_the_question(ds):
    forest = ds.forest
    assert forest.lca(3, 4) == forest.lca([3], [4])[0]
    assert np.ndim(forest.lca(3, 4)) == np.ndim(forest.distance(3, 4)) == np.ndim(forest.side(2)) == 0
    assert forest.lca([[1], [2]], [3, 4, 5]).shape == forest.distance([[1], [2]], [3, 4, 5]).shape == (2, 3)
    assert forest.children(0).shape == (2,)
    assert forest.children([[0, 1, 2]]).shape == (1, 3, 2)
    assert forest.path(np.arange(2000) < 3).offsets.size == 4
    assert repr(forest.cut(50)).startswith("Partition(")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda f: f.path(2000), "row must be below 2000, got 2000"),
        (lambda f: f.path(-1), "row must be at least 0, got -1"),
        (lambda f: f.path([0, 2000]), "rows must be between 0 and 1999, got 2000"),
        (lambda f: f.path(["a"]), "rows must be indices or a mask of 2000 rows, got"),
        (lambda f: f.lca(0, 2000), "b must be between 0 and 1999, got 2000"),
        (lambda f: f.lca(0.5, 1), "a must be integers, got float64"),
        (lambda f: f.distance(-1, 1), "a must be between 0 and 1999, got -1"),
        (lambda f: f.distance_to([2000]), "rows must be between 0 and 1999, got 2000"),
        (lambda f: f.points_of([-1]), "latents must be between 0 and"),
        (lambda f: f.descendants(10**6), "latent must be below"),
        (lambda f: f.children(10**6), "latents must be between 0 and"),
        (lambda f: f.sibling(10**6), "latents must be between 0 and"),
        (lambda f: f.ancestors(10**6), "latents must be between 0 and"),
        (lambda f: f.cut(), "cut needs one of max_size and n_groups, got max_size=None and n_groups=None"),
        (lambda f: f.cut(5, n_groups=5), "cut needs one of max_size and n_groups, got max_size=5 and n_groups=5"),
        (lambda f: f.cut(0), "max_size must be at least 1, got 0"),
        (lambda f: f.cut(n_groups=2001), "n_groups must be at most the number of points, 2000, got 2001"),
        (lambda f: f.concepts(1), "min_size must be at least 2, got 1"),
        (lambda f: f.concepts(2, 0), "ratio must be above 0 and at most 1, got 0"),
        (lambda f: f.concepts(2, "x"), "ratio must be above 0 and at most 1, got 'x'"),
        (lambda f: f.concepts(2, rows=[2000]), "rows must be between 0 and 1999, got 2000"),
        (lambda f: f.nearest_above([-1]), "latents must be between 0 and"),
        (lambda f: f.moments(np.zeros(5)), r"values must have shape \(2000,\) or \(2000, w\), got \(5,\)"),
        (lambda f: f.moments(np.full(2000, np.nan)), "values must be finite, and so must"),
        (lambda f: f.moments(np.tile([1e200, 0.0], 1000), [0]), "values must be finite, and so must"),
        (lambda f: f.moments(np.zeros(2000), [10**6]), "latents must be between 0 and"),
    ],
)  # fmt: skip
def test_bad_questions(ds, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(ds.forest)
