"""Subsamples: the hierarchy that some rows inherit, against a slow, obvious version."""

import copy
import dataclasses
import json
import pickle
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from sameness import refused

import percolab as pl


@lru_cache(maxsize=16)
def made(n=300, dim=4, mode="distribution", engine="native", seed=3):
    return pl.generate(pl.Recipe(n, dim, mode, seeds=seed, engine=engine))


def slow_latents(forest, kept):
    """Return the latents that keep rows on both sides: which rows on each, and where their bonds end."""
    found = {}
    for latent in range(forest.n_latents):
        rows = forest.points_of(latent)
        middle = rows.start + int(forest.left_size[latent])
        left = [r for r in kept if rows.start <= r < middle]
        right = [r for r in kept if middle <= r < rows.stop]
        if left and right:
            ends = [slow_end(forest, kept, int(end)) for end in forest.bond[latent]]
            found[latent] = (left, right, ends)
    return found


def slow_end(forest, kept, row):
    """Return the nearest kept row of the smallest latent that holds both it and a row."""
    if row in kept:
        return row
    for latent in forest.path(row)[::-1]:
        rows = forest.points_of(int(latent))
        inside = [r for r in kept if rows.start <= r < rows.stop]
        if inside:
            return min(inside, key=lambda r: abs(r - row))
    raise AssertionError


@settings(deadline=None, max_examples=80)
@given(
    n=st.integers(1, 60),
    mode=st.sampled_from(["one_cluster", "distribution"]),
    engine=st.sampled_from(["native", "paper"]),
    seed=st.integers(0, 99),
    chosen=st.integers(0, 2**60 - 1),
)
def test_the_induced_hierarchy(n, mode, engine, seed, chosen):
    ds = pl.generate(pl.Recipe(n, 2, mode, seeds=seed, engine=engine))
    kept = [row for row in range(n) if chosen >> row & 1]
    sub = ds.take(kept)
    sub.forest.validate()
    source = sub.source_row
    assert sorted(source.tolist()) == kept
    expected = slow_latents(ds.forest, kept)
    found = []
    for latent in range(sub.forest.n_latents):
        rows = sub.forest.points_of(latent)
        middle = rows.start + int(sub.forest.left_size[latent])
        sides = source[rows.start : middle].tolist(), source[middle : rows.stop].tolist()
        found.append((*sides, source[sub.forest.bond[latent]].tolist(), sub.latent_z[latent]))
    wanted = [(*parts, ds.latent_z[latent]) for latent, parts in expected.items()]
    assert sorted(found) == sorted(wanted)
    clusters = np.searchsorted(ds.forest.cluster_start, source, side="right")
    np.testing.assert_array_equal(np.diff(clusters)[np.diff(sub.forest.point_cluster) == 0], 0)
    assert sub.forest.n_clusters == len(set(clusters.tolist()))
    np.testing.assert_array_equal(sub.forest.point_id, ds.forest.point_id[source])
    assert sorted(sub.forest.cluster_id.tolist()) == list(range(sub.forest.n_clusters))
    for name in ("X", "y", "point_z"):
        np.testing.assert_array_equal(getattr(sub, name), getattr(ds, name)[source])


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 60), seed=st.integers(0, 99), first=st.integers(0, 2**60), second=st.integers(0, 2**60))
def test_a_subsample_of_a_subsample_is_a_subsample(n, seed, first, second):
    ds = pl.generate(pl.Recipe(n, 2, "one_cluster", seeds=seed))
    some = ds.take([row for row in range(n) if first >> row & 1])
    fewer = some.take([row for row in range(len(some)) if second >> row & 1], y="kept")
    at_once = ds.take(some.source_row[fewer.source_row])
    assert fewer.forest.equals(at_once.forest)
    np.testing.assert_array_equal(fewer.X, at_once.X)
    np.testing.assert_array_equal(fewer.latent_z, at_once.latent_z)


@pytest.mark.parametrize("engine", ["native", "paper"])
def test_all_rows_are_the_dataset(engine):
    ds = made(engine=engine)
    for rows in (np.arange(300), np.ones(300, bool), np.random.default_rng(0).permutation(300)):
        sub = ds.take(rows, y="recomputed")
        assert sub.forest.equals(ds.forest)
        for name in ("X", "y", "latent_z", "point_z"):
            np.testing.assert_array_equal(getattr(sub, name), getattr(ds, name))
        assert sub.source_row.tolist() == list(range(300))
    assert ds.source_row is None


def test_rows_far_apart_in_a_deep_tree():
    """Depths of hundreds and a handful of rows: no way through the tree is followed."""
    ds = made(30_000, 2, "one_cluster")
    kept = np.array([3, 29_000, 12_345, 12_346])
    sub = ds.take(kept)
    sub.forest.validate()
    assert sub.source_row.tolist() == sorted(kept.tolist())
    paths = [set(ds.forest.path(int(row)).tolist()) for row in sub.source_row]
    lowest = sorted(max(a & b) for a, b in pairwise(paths))
    np.testing.assert_array_equal(np.sort(sub.latent_z), np.sort(ds.latent_z[lowest]))


# ---------------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("kind", "options"),
    [("sum", {}), ("silent", {}), ("sign", {}), ("classes", {"max_size": 10}), ("path_tokens", {"ratio": 3})],
)
def test_targets_are_kept_or_made_again(kind, options, tmp_path):
    ds = made().with_target(kind, **options)
    rows = np.random.default_rng(1).choice(300, 120, replace=False)
    kept, again = ds.take(rows), ds.take(rows, y="recomputed")
    np.testing.assert_array_equal(kept.y, ds.y[kept.source_row])
    assert kept.target.kind == "custom"
    assert kept.y.dtype == ds.y.dtype
    assert again.target == ds.target
    by_rule = again.with_target(kind, **options)
    if kind == "silent":
        silent = again.latent_z * again.latent_active, again.point_z * again.point_active
        np.testing.assert_array_equal(again.y, pl.engines.targets(again.forest, *silent))
        np.testing.assert_array_equal(again.point_active, ds.point_active[again.source_row])
        assert set(again.latent_z[~again.latent_active]) <= set(ds.latent_z[~ds.latent_active])
    else:
        np.testing.assert_array_equal(again.y, by_rule.y)
    for number, sub in enumerate((kept, again)):
        assert sub.modification == "120 of 300 rows taken"
        assert repr(sub).endswith("modified)")
        sub.save(tmp_path / f"{number}.zarr")
        loaded = pl.load(tmp_path / f"{number}.zarr", verify=True)
        assert loaded.modification == sub.modification
        assert loaded.recipe == sub.recipe
        assert loaded.forest.equals(sub.forest)
        for name in ("X", "y", "latent_z", "point_z", "source_row", "latent_active", "point_active"):
            np.testing.assert_array_equal(np.asarray(getattr(loaded, name)), getattr(sub, name))
        loaded.take(np.arange(10)).forest.validate()


def test_subsamples_of_stored_datasets_read_their_rows(tmp_path):
    made().save(tmp_path / "ds.zarr")
    sub = pl.load(tmp_path / "ds.zarr").take([5, 3, 200])
    np.testing.assert_array_equal(sub.X, made().X[[3, 5, 200]][np.argsort(np.argsort(sub.source_row))])


def test_damaged_sources_are_found(tmp_path):
    made().take(np.arange(0, 300, 2)).save(tmp_path / "ds.zarr")
    zarr.open_group(tmp_path / "ds.zarr", mode="r+")["extra/source_row"][3] = 7
    with pytest.raises(pl.StoreError, match="array extra/source_row does not match its digest"):
        pl.load(tmp_path / "ds.zarr", verify=True)
    for chunk in (tmp_path / "ds.zarr" / "extra" / "source_row" / "c").iterdir():
        chunk.write_bytes(b"nonsense")
    with pytest.raises(pl.StoreError, match="extra/source_row cannot be read"):
        _ = pl.load(tmp_path / "ds.zarr").source_row


def test_datasets_without_extra_columns_are_stored_as_before(tmp_path):
    made().save(tmp_path / "ds.zarr")
    assert not (tmp_path / "ds.zarr" / "extra").exists()
    attributes = json.loads((tmp_path / "ds.zarr" / "zarr.json").read_text())["attributes"]["percolab"]
    assert "modified" not in attributes["provenance"]
    assert set(attributes["recipe"]) == {
        "n_points", "dim", "mode", "create_prob", "seeds", "engine", "min_cluster_size", "dtype",
    }  # fmt: skip


def test_edits_and_filters_of_a_subsample():
    sub = made().take(np.arange(0, 300, 2), y="recomputed")
    after = sub.do(z={4: 3.0})
    np.testing.assert_array_equal(after.y, pl.engines.targets(sub.forest, after.latent_z, after.point_z))
    assert after.recipe == sub.recipe
    assert after.modification == "150 of 300 rows taken; values set by hand"
    with pytest.raises(ValueError, match="must be as its recipe makes it to be moved or turned, got 150 of 300 rows"):
        sub.move(4, by=1)
    with refused("target must be made by a rule to follow new values, got 'custom'"):
        made().take(np.arange(10)).do(z={0: 1.0})
    large = sub.filter(3)
    large.forest.validate()
    assert large.recipe == sub.recipe
    np.testing.assert_array_equal(large.X, made().X[large.source_row])
    assert large.modification == sub.modification


# ---------------------------------------------------------------------- nested subsamples


def test_nested_subsamples():
    ds = made()
    small, large, all_rows = ds.subsamples([20, 100, 300], seed=5)
    assert set(small.source_row) < set(large.source_row)
    assert all_rows.forest.equals(ds.forest)
    assert [len(sub) for sub in ds.subsamples((7, 3, 7), seed=5)] == [7, 3, 7]
    again = ds.subsamples([100], seed=5)[0]
    np.testing.assert_array_equal(again.source_row, large.source_row)
    other = ds.subsamples([100], seed=6)[0]
    assert set(other.source_row) != set(large.source_row)
    points = set(ds.filter(4).subsamples([10], seed=5)[0].forest.point_id)  # the same points come first in parts
    assert points == set(sorted(set(ds.filter(4).forest.point_id), key=order_of(ds, 5).index)[:10])


def order_of(ds, seed):
    """Return the birth numbers of all points in the order in which subsamples take them."""
    order, before = [], set()
    for sub in ds.subsamples(range(1, len(ds) + 1), seed=seed):
        (new,) = set(sub.forest.point_id.tolist()) - before
        order.append(new)
        before.add(new)
    return order


def test_nested_subsamples_are_uniform():
    """Each row is taken in half of the draws of half of the rows, within five standard errors."""
    ds = made(40)
    count = sum(np.bincount(ds.subsamples([20], seed=seed)[0].source_row, minlength=40) for seed in range(400))
    assert np.abs(count - 200).max() < 5 * np.sqrt(400 / 4)


def test_nested_subsamples_are_pinned():
    """Which points come first is part of the definition."""
    assert made().subsamples([6], seed=0)[0].forest.point_id.tolist() == [28, 10, 54, 182, 233, 241]


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ds: ds.take([1, 5, 1]), "rows must not repeat, got 1 more than once"),
        (lambda ds: ds.take([0, 300]), "rows must be between 0 and 299, got 300"),
        (lambda ds: ds.take([-1]), "rows must be between 0 and 299, got -1"),
        (lambda ds: ds.take([0.5]), "rows must be indices or a mask of 300 rows, got [0.5]"),
        (lambda ds: ds.take(np.ones(2, bool)), "rows must be indices or a mask of 300 rows, got array([ True,  True])"),
        (lambda ds: ds.take([1], y="new"), "y must be one of kept, recomputed, got 'new'"),
        (lambda ds: ds.subsamples([301], seed=0), "sizes must be at most the number of rows, 300, got 301"),
        (lambda ds: ds.subsamples([0], seed=0), "sizes must be at least 1, got 0"),
        (lambda ds: ds.subsamples([5], seed=-1), "seed must be at least 0, got -1"),
        (
            lambda ds: ds.take([1, 2]).take([0], y="recomputed"),
            "target must be one that a recipe can make, got 'custom'",
        ),
    ],
)
def test_bad_rows(call, message):
    with refused(message):
        call(made())


def test_no_rows_are_a_dataset():
    sub = made().take([])
    sub.forest.validate()
    assert (len(sub), sub.forest.n_latents) == (0, 0)


# ---------------------------------------------------------------------- laws


def flagged(dataset):
    return {check.law for check in pl.verify(dataset).failures}


def test_subsamples_obey_what_laws_they_have():
    rows = np.arange(0, 3000, 3)
    ds = made(3000, seed=5)
    for sub in (ds.take(rows), ds.take(rows, y="recomputed"), ds.with_target("silent").take(rows, y="recomputed")):
        outcome = pl.verify(sub)
        assert outcome.passed, str(outcome)
        assert outcome["clusters, trees and positions"].verdict == "does not apply"
        assert outcome["z is N(0, 1)"].verdict == "pass"
    assert pl.verify(ds.do(z={1: 900.0}).take(rows))["z is N(0, 1)"].verdict == "does not apply"


def test_faults_of_subsamples_are_caught():
    sub = made(3000, seed=5).take(np.arange(0, 3000, 3), y="recomputed")
    y = sub.y.copy()
    y[40] += 1e-5
    assert "targets are sums of z" in flagged(dataclasses.replace(sub, y=y))
    bond = sub.forest.bond.copy()
    bond[3, 0] = bond[3, 1]
    assert flagged(dataclasses.replace(sub, forest=dataclasses.replace(sub.forest, bond=bond))) == {"data model"}
    for change in (lambda source: source.__setitem__(4, source[5]), lambda source: source.__setitem__(0, 2999)):
        source = sub.source_row.copy()
        change(source)
        assert flagged(dataclasses.replace(sub, extra={"source_row": source})) == {"data model"}
    assert flagged(dataclasses.replace(sub, extra={"source_row": sub.source_row[:-1]})) == {"data model"}


def test_clusters_of_at_most_a_size():
    ds = pl.generate(pl.Recipe(3000, 3, seeds=5))
    for least, most in ((1, 40), (5, 40), (2, 2), (1, 10**6)):
        kept = ds.filter(least, max_cluster_size=most)
        size = ds.forest.cluster_size[ds.forest.point_cluster]
        rows = np.flatnonzero((size >= least) & (size <= most))
        np.testing.assert_array_equal(np.sort(kept.source_row), rows)
        np.testing.assert_array_equal(kept.X, ds.X[kept.source_row])
        np.testing.assert_array_equal(kept.y, ds.y[kept.source_row])
        kept.forest.validate()
        assert kept.modification == f"{rows.size:,} of {len(ds.filter(least)):,} rows taken"
    with pytest.raises(ValueError, match="max_cluster_size must be at least 1, got 0"):
        ds.filter(max_cluster_size=0)
    with pytest.raises(ValueError, match="max_cluster_size must be at least min_cluster_size, 50, got 5"):
        ds.filter(50, max_cluster_size=5)


DERIVED = (
    "cluster_size", "latent_start", "latent_size", "latent_depth", "latent_parent", "latent_cluster", "latent_children",
    "point_depth", "point_parent", "point_cluster", "parting", "figure_of_merit", "release_order",
)  # fmt: skip


def test_arrays_that_a_recipe_makes_are_read_only(tmp_path):
    ds = pl.generate(pl.Recipe(300, 3, seeds=5))
    ds.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr")
    copies = (copy.deepcopy(ds), pickle.loads(pickle.dumps(ds)), ds.do(z={3: 1.0}), ds.take(range(9)))
    for made in (ds, *copies, loaded, loaded.in_memory(), pl.superpose(ds, ds, seed=1)):
        names = ("X", "y", "rows") if isinstance(made, pl.Superposed) else ("X", "y", "latent_z", "point_z")
        forests = [each.forest for each in getattr(made, "factors", [made])]
        structure = [getattr(forest, field.name) for forest in forests for field in dataclasses.fields(forest)]
        # Columns that a forest computes are shared as well: with other sizes, `score` would find other concepts.
        structure += [getattr(forest, name) for forest in forests for name in DERIVED]
        for column in (*(getattr(made, name) for name in names), *(column for column in structure if column.size)):
            with pytest.raises((ValueError, TypeError), match=r"read-only|does not support item assignment"):
                column[0] = 0  # that of a store has no assignment at all
    mine = np.zeros(300)
    ds.with_target(mine)
    mine[0] = 1  # an array that was given is still its owner's
    for column in pl.make_percolation(50, 3, seed=1, return_X_y=True):
        column[0] = 0  # as in scikit-learn
    changed = dataclasses.replace(ds, X=np.array(ds.X))
    changed.X[0] = 0
    assert changed.modification == "arrays replaced by hand"


def test_a_stored_array_becomes_a_tensor_in_one_reading(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    ds = pl.generate(pl.Recipe(300, 3, seeds=5))
    ds.save(tmp_path / "ds.zarr")
    stored, read = pl.load(tmp_path / "ds.zarr").X, []
    real = type(stored).__getitem__
    monkeypatch.setattr(type(stored), "__getitem__", lambda self, index: read.append(index) or real(self, index))
    for make in (torch.tensor, torch.as_tensor, torch.asarray, np.from_dlpack):
        read.clear()
        np.testing.assert_array_equal(np.asarray(make(stored)), ds.X)
        assert read == [slice(None)]
