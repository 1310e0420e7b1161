"""Parts of a dataset made alone have the bytes that the whole has there."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import percolab as pl
from percolab.engines.native import large_clusters

POINT_COLUMNS = ("X", "y", "point_z", "point_id")
LATENT_COLUMNS = ("left_size", "bond", "latent_z")

RECIPES = {
    "one_cluster": pl.Recipe(30_000, 3, "one_cluster", seeds=5),
    "distribution": pl.Recipe(200_000, 3, "distribution", seeds=5),
    "two large clusters and small ones": pl.Recipe(50_000, 3, "custom", create_prob=1e-3, seeds=6),
    "filtered, float64": pl.Recipe(
        50_000, 3, "custom", create_prob=1e-3, seeds=6, min_cluster_size=40, dtype="float64"
    ),
    "all single": pl.Recipe(100, 3, "custom", create_prob=1.0, seeds=5),
    "one point": pl.Recipe(1, 3, "one_cluster", seeds=5),
    "nothing kept": pl.Recipe(20, 3, "distribution", seeds=5, min_cluster_size=100),
}


@pytest.fixture(scope="module", autouse=True)
def small_limbs():
    """Cut clusters into limbs of 2,048 points, so that small datasets have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_clusters, "MOST_ROWS", 2048)
        patch.setattr(large_clusters, "LEAST_ROWS", 2048)
        yield


@pytest.fixture(scope="module", params=RECIPES)
def made(request):
    recipe = RECIPES[request.param]
    return pl.generate(recipe), pl.engines.cluster_table(recipe)


def assert_equals_whole(part, ds):
    points, latents = slice(part.lo, part.hi), slice(part.latent_lo, part.latent_hi)
    for names, rows in ((POINT_COLUMNS, points), (LATENT_COLUMNS, latents)):
        for name in names:
            whole = getattr(ds.forest if hasattr(ds.forest, name) else ds, name)[rows]
            got = getattr(part, name)
            assert (got.dtype, got.shape) == (whole.dtype, whole.shape), name
            assert got.tobytes() == whole.tobytes(), name


def awkward_edges(ds, table):
    """Return rows at and around every kind of boundary there is."""
    start, n = ds.forest.cluster_start, len(ds)
    limb_first = table.crown.limb["first"]
    edges = {0, 1, 2, n // 3, n // 2, n - 1, n, 1023, 1024, 1025, 2048, table.crown.n_rows}
    edges |= {int(row) for row in (*start[:4], *start[-4:], *limb_first[:3], *limb_first[-3:])}
    middle = len(limb_first) // 2
    edges |= {int(row) + shift for row in limb_first[middle : middle + 2] for shift in (-1, 0, 1)}
    single = int(np.searchsorted(-ds.forest.cluster_size, -1))  # the first cluster of one point
    edges |= {int(start[single]) + shift for shift in (-1, 0, 1, 2)}
    return sorted(edge for edge in edges if 0 <= edge <= n)


def test_shards_at_awkward_edges_are_the_whole(made):
    ds, table = made
    edges = awkward_edges(ds, table)
    latents = 0
    for lo, hi in pairwise(edges):
        part = pl.engines.generate_rows(table, lo, hi, threads=1)
        assert part.latent_lo == latents
        latents = part.latent_hi
        assert_equals_whole(part, ds)
    assert latents == ds.forest.n_latents


def test_one_row_and_none(made):
    ds, table = made
    for lo in awkward_edges(ds, table):
        assert_equals_whole(pl.engines.generate_rows(table, lo, min(lo + 1, len(ds))), ds)
        assert_equals_whole(pl.engines.generate_rows(table, lo, lo), ds)


def test_whole_range(made):
    ds, table = made
    assert_equals_whole(pl.engines.generate_rows(table, 0, len(ds), threads=2), ds)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6000), st.floats(0, 1), st.integers(0, 2**64 - 20_001), st.data())
def test_any_range_of_any_recipe(n, create_prob, seed, data):
    recipe = pl.Recipe(n, 2, "custom", create_prob=create_prob, seeds=seed)
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, n))
    assert_equals_whole(pl.engines.generate_rows(pl.engines.cluster_table(recipe), lo, hi), pl.generate(recipe))


@pytest.mark.parametrize("rows", [1 << 11, 1 << 12, 1 << 14])
def test_the_size_of_limbs_does_not_show(rows, monkeypatch):
    monkeypatch.setattr(large_clusters, "MOST_ROWS", rows)
    recipe = RECIPES["one_cluster"]
    table = pl.engines.cluster_table(recipe, threads=2)
    assert table.crown.limb.size > 1
    assert_equals_whole(pl.engines.generate_rows(table, 7777, 22_222), pl.generate(recipe))


def test_a_part_is_bounded_by_its_range_not_by_the_cluster():
    recipe = pl.Recipe(300_000, 3, "one_cluster", seeds=1)
    table = pl.engines.cluster_table(recipe)
    part = table.points(150_000, 150_100)
    assert part.stand.n_rows <= 100 + 2 * 2048
    latents = table.latents(150_000, 150_100)
    assert latents.stand.n_rows <= 100 + 2 * 2048


def test_a_table_of_many_points_is_compact():
    table = pl.engines.cluster_table(pl.Recipe(100_000, 3, seeds=1)).clusters
    kept = sum(column.nbytes for column in (table.start, table.birth, table.point_id, table.born_size))
    assert kept / 100_000 < 8.1


@pytest.mark.parametrize(
    ("lo", "hi", "message"),
    [
        (-1, 5, "lo must be at least 0, got -1"),
        (5, 4, "lo and hi must satisfy lo <= hi <= 100, got 5 and 4"),
        (0, 101, "lo and hi must satisfy lo <= hi <= 100, got 0 and 101"),
        (0.5, 1, "lo must be an integer, got 0.5"),
    ],
)
def test_bad_ranges_get_one_line(lo, hi, message):
    recipe = pl.Recipe(100, 3, seeds=1)
    with pytest.raises(ValueError, match=message):
        pl.engines.generate_rows(pl.engines.cluster_table(recipe), lo, hi)


def test_wrong_table_and_engine_are_refused():
    with pytest.raises(ValueError, match=r"^table must be what cluster_table returns, got Recipe\(n_points=100,"):
        pl.engines.generate_rows(pl.Recipe(100, 3, seeds=1), 0, 1)
    with pytest.raises(ValueError, match="engine must be 'native'"):
        pl.engines.cluster_table(pl.Recipe(100, 3, seeds=1, engine="paper"))


def test_tables_and_rows_are_shown_in_one_line():
    recipe = pl.Recipe(5000, 3, "one_cluster", seeds=1)
    table = pl.engines.cluster_table(recipe)
    assert repr(table).startswith("ClusterTable(n_points=5000, n_clusters=1, n_limbs=")
    assert repr(table).endswith(f", recipe={recipe})")
    assert repr(table.clusters) == "Clusters(n_points=5000, n_clusters=1)"
    assert repr(pl.engines.generate_rows(table, 7, 9)) == "GeneratedRows(7 … 9, latents 7 … 9, X: (2, 3) float32)"
