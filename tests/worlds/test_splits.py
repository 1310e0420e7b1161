"""Splits: the paper's permutation without torch, whole groups, margins along bonds."""

import subprocess
import sys

import numpy as np
import obvious
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold

import percolab as pl
from percolab.worlds import splits
from percolab.worlds.splits import PARTS


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(3000, 3, seeds=5))


@pytest.fixture(scope="module")
def one():
    return pl.generate(pl.Recipe(3000, 3, "one_cluster", seeds=6))


@given(st.integers(0, 3000), st.integers(0, 2**63 - 1))
@settings(max_examples=100, deadline=None)
def test_permutation_is_that_of_torch(n, seed):
    expected = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    np.testing.assert_array_equal(splits.permutation(n, seed), expected)


@pytest.mark.parametrize("n", [200_000, 123_672, 1_048_577, 2_100_001])  # the last two take several blocks
def test_long_permutations_are_those_of_torch(n):
    for seed in (0, 42, 2**32 + 1):
        expected = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        np.testing.assert_array_equal(splits.permutation(n, seed), expected)


def test_permutation_with_wide_draws(monkeypatch):
    """Torch takes this path from 214,748,364 on, where the two were compared once; here the rule is checked."""
    monkeypatch.setattr(splits, "WIDE", 0)
    monkeypatch.setattr(splits, "DRAWN_AT_ONCE", 30)
    n, seed = 100, 7
    raw = np.random.RandomState(seed).randint(0, 2**32, 2 * n, dtype=np.uint64).tolist()
    order = []
    for i in range(n):
        at = ((raw[2 * i] << 32) + raw[2 * i + 1]) % (i + 1)
        order.append(i)
        order[i], order[at] = order[at], i
    assert splits.permutation(n, seed).tolist() == order


def test_by_rows_is_the_split_of_the_paper(ds):
    split = pl.split_rows(ds)
    order = ds.release_order[torch.randperm(3000, generator=torch.Generator().manual_seed(42)).numpy()]
    np.testing.assert_array_equal(split.train, order[:2400])
    np.testing.assert_array_equal(split.validation, order[2400:2700])
    np.testing.assert_array_equal(split.test, order[2700:])
    for again in (pl.split_rows(ds, 42), pl.split_rows(ds.forest, seed=42)):
        np.testing.assert_array_equal(again.train, split.train)
    assert not np.array_equal(pl.split_rows(ds, 43).train, split.train)
    assert repr(split) == "Split(2,400 train, 300 validation, 300 test)"


def test_the_experiments_take_the_same_function():
    from percolab import nn

    assert nn.split_rows is pl.split_rows
    assert nn.Split is pl.Split


@pytest.mark.slow
def test_torch_is_not_needed():
    code = "import sys; sys.modules['torch'] = None; import percolab as pl; from percolab.nn import split_rows; \
        print(split_rows(pl.generate(pl.Recipe(100, 2, seeds=0))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Split(80 train, 10 validation, 10 test)"


def parts_of(split):
    return [getattr(split, name) for name in PARTS]


@given(
    st.lists(st.integers(1, 60), min_size=3, max_size=12),
    st.integers(0, 2**32),
    st.sampled_from(["cluster", "subtree"]),
    st.integers(1, 20),
    st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.7, 0.3, 0), (0.6, 0, 0.4), (1, 0, 0)]),
    st.integers(0, 4),
)
@settings(max_examples=80, deadline=None)
@pytest.mark.slow
def test_groups_stay_whole(sizes, seed, by, max_size, fractions, margin):
    forest = obvious.grow_forest(sizes, seed)
    groups = forest.point_cluster if by == "cluster" else forest.cut(max_size).groups
    options = {"by": by, "fractions": fractions, "max_size": max_size if by == "subtree" else None}
    split = pl.split_rows(forest, seed, **options)
    parts = parts_of(split)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(forest.n_points))
    np.testing.assert_array_equal(split.groups, groups)
    assert sum(np.unique(groups[rows]).size for rows in parts) == groups.max() + 1
    assert [rows.size > 0 for rows in parts] == [share > 0 for share in fractions]
    check_margin(forest, split, seed, margin, options)


def check_margin(forest, split, seed, margin, options):
    held = np.concatenate([split.validation, split.test])
    reach = [obvious.bonds_from(forest, row) for row in held]
    near = {row for found in reach for row, bonds in found.items() if bonds <= margin} & set(split.train.tolist())
    if len(near) == split.train.size:
        with pytest.raises(ValueError, match=f"margin must leave training rows, got {margin}"):
            pl.split_rows(forest, seed, margin=margin, **options)
        return
    with_margin = pl.split_rows(forest, seed, margin=margin, **options)
    if margin:
        assert set(with_margin.left_out.tolist()) == near
        assert set(with_margin.train.tolist()) == set(split.train.tolist()) - near
    np.testing.assert_array_equal(with_margin.test, split.test)
    np.testing.assert_array_equal(with_margin.validation, split.validation)
    bonds = with_margin.bonds_to_training(forest)
    assert ((bonds < 0) | (bonds > margin)).all()


def test_fractions_are_met_closely(ds, one):
    for made, options in ((one, {"by": "subtree", "max_size": 100}), (ds, {"by": "cluster"})):
        for seed in range(5):
            sizes = [rows.size for rows in parts_of(pl.split_rows(made, seed, **options))]
            np.testing.assert_allclose(sizes, [2400, 300, 300], atol=1)  # single rows fill the parts


def test_large_groups_are_held_out_as_often_as_small_ones(one):
    cut = one.forest.cut(100)
    held = np.zeros(len(cut))
    for seed in range(400):
        held[np.unique(cut.groups[pl.split_rows(one, seed, by="subtree", max_size=100).test])] += 1
    large = cut.sizes > 50
    assert held[large].mean() / 400 == pytest.approx(0.1, abs=0.02)
    assert held[~large].mean() / 400 == pytest.approx(0.1, abs=0.01)


def test_huge_clusters_leave_something_for_every_part():
    forest = obvious.grow_forest([900, 50, 30, 20], 0)
    for seed in range(20):
        split = pl.split_rows(forest, seed, by="cluster")
        assert split.train.size == 900
        assert sorted((split.validation.size, split.test.size)) in ([20, 80], [30, 70], [50, 50])
    for seed in range(20):
        parts = parts_of(pl.split_rows(obvious.grow_forest([10, 10, 10], 0), seed, by="cluster"))
        assert [rows.size for rows in parts] == [10, 10, 10]


def test_a_margin_keeps_test_rows_away_from_training_rows(one):
    split = pl.split_rows(one, by="subtree", max_size=100)
    touching = np.mean(split.bonds_to_training(one.forest) == 1)
    assert 0.05 < touching < 0.25
    apart = pl.split_rows(one, by="subtree", max_size=100, margin=3)
    assert apart.bonds_to_training(one.forest).min() == 4
    assert apart.bonds_to_training(one.forest, "validation").min() >= 4
    assert apart.train.size + apart.left_out.size == split.train.size
    assert repr(apart).endswith(f"{apart.left_out.size:,} left out, subtrees of at most 100)")
    by_cluster = pl.split_rows(pl.generate(pl.Recipe(3000, 3, seeds=5)), by="cluster", margin=10)
    assert by_cluster.left_out.size == 0


def test_a_size_of_subtrees_is_chosen_and_said(one):
    split = pl.split_rows(one, by="subtree")
    same = pl.split_rows(one, by="subtree", max_size=60)
    assert (len(one), split.max_size) == (3000, 60)
    np.testing.assert_array_equal(split.test, same.test)
    assert repr(split).endswith(", subtrees of at most 60)")
    assert "most rows of a subtree" in split._repr_html_()
    assert "subtree" not in pl.split_rows(one)._repr_html_()


def test_groups_serve_scikit_learn(ds):
    groups = pl.split_rows(ds, by="subtree", max_size=50).groups
    for train, test in GroupKFold(3).split(ds.X, ds.y, groups):
        assert not set(groups[train]) & set(groups[test])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "row"}, "by must be one of rows, subtree, cluster, got 'row'"),
        ({"max_size": 5}, "max_size must be left out unless by='subtree', got 5 with by='rows'"),
        ({"by": "subtree", "max_size": 0}, "max_size must be at least 1, got 0"),
        ({"by": "cluster"}, "dataset must have at least 3 clusters to be split by them, got 1"),
        (
            {"by": "subtree", "max_size": 3000},
            "dataset must have at least 3 subtrees of at most 3000 points to be split by them, got 1",
        ),
        ({"fractions": (0.8, 0.2)}, r"fractions must be 3 numbers, one for each part, got \(0.8, 0.2\)"),
        ({"fractions": ("a", 0, 1)}, "fractions must be a number, got 'a'"),
        ({"fractions": (0.8, 0.3, -0.1)}, "fractions must be a number of at least 0, got -0.1"),
        ({"fractions": (0.8, 0.1, 0.2)}, "fractions must add up to 1"),
        ({"fractions": (0, 0.5, 0.5)}, "train must be above 0"),
        ({"fractions": (1 - 2e-4, 1e-4, 1e-4)}, "dataset must have at least 10000 points to be split, got 3000"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"margin": -1}, "margin must be at least 0, got -1"),
        ({"margin": 3000}, "margin must leave training rows, got 3000"),
    ],
)
def test_bad_input(one, options, message):
    with pytest.raises(ValueError, match=message):
        pl.split_rows(one, **options)


@pytest.mark.parametrize(
    "call",
    [
        pl.split_rows,
        pl.truth,
        pl.show.draw,
        pl.show.explore,
        pl.exports.to_torch,
        lambda wrong: pl.exports.to_npz(wrong, "never"),
        lambda wrong: pl.exports.to_hdf5(wrong, "never"),
        lambda wrong: pl.compare(wrong, {"raw": None}),
        lambda wrong: pl.nn.linear_probe(wrong, np.ones((3, 2)), depth=1),
    ],
)
def test_what_is_no_dataset_is_named(one, call):
    for wrong, name in (("one.zarr", "str"), (one.X, "ndarray")):
        with pytest.raises(ValueError, match=rf"^dataset must be a dataset or a world, got {name}$"):
            call(wrong)


def test_too_few_rows():
    with pytest.raises(ValueError, match="dataset must have at least 10 points to be split, got 9"):
        pl.split_rows(obvious.grow_forest([9], 0))
    with pytest.raises(ValueError, match="part must be one of validation, test, got 'train'"):
        pl.split_rows(obvious.grow_forest([10], 0)).bonds_to_training(obvious.grow_forest([10], 0), "train")


def test_a_forest_that_is_split_stays_as_it_is(ds):
    names = ("cluster_start", "cluster_id", "point_id", "left_size", "bond")
    forest = pl.Forest(*(np.array(getattr(ds.forest, name)) for name in names))
    split = pl.split_rows(forest, by="cluster", seed=0)
    assert all(getattr(forest, name).flags.writeable for name in names)
    assert np.array_equal(split.test, pl.split_rows(ds, by="cluster", seed=0).test)
    with pytest.raises(ValueError, match=r"^factor must be 0 or left out for a forest, got 1$"):
        pl.split_rows(forest, by="cluster", seed=0, factor=1)
