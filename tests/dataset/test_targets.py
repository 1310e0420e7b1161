"""Targets: each rule against a slow, obvious version; recorded in the recipe, replayed, stored, checked."""

import dataclasses
import heapq
import json
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sameness import assert_same, refused

import percolab as pl
from percolab import exports
from percolab.model.target import Target
from percolab.show import card
from percolab.show.summary import summarise, table

RULES = {
    "sum": {},
    "silent": {"seed": 4},
    "classes": {"max_size": 20},
    "sign": {},
    "path_tokens": {"levels": 3, "ratio": 4},
}


@lru_cache(maxsize=16)
def made(n=300, dim=4, mode="distribution", engine="native", seed=3):
    return pl.generate(pl.Recipe(n, dim, mode, seeds=seed, engine=engine))


# ---------------------------------------------------------------------- slow versions


def tops(forest):
    """Return the node of every cluster: (first row, size, latent or None)."""
    start = forest.cluster_start.tolist()
    return [(a, b - a, a - c if b - a > 1 else None) for c, (a, b) in enumerate(pairwise(start))]


def children(forest, node):
    first, size, latent = node
    left = int(forest.left_size[latent])
    return [
        (first, left, latent + 1 if left > 1 else None),
        (first + left, size - left, latent + left if size - left > 1 else None),
    ]


def slow_cut(forest, max_size):
    groups, stack = [], tops(forest)
    while stack:
        node = stack.pop()
        if node[1] <= max_size:
            groups.append(node)
        else:
            stack += children(forest, node)
    return sorted(groups)


def slow_groups(forest, count):
    heap = [
        (-size, latent if latent is not None else 10**9, (first, size, latent)) for first, size, latent in tops(forest)
    ]
    heapq.heapify(heap)
    while len(heap) < count:
        _, _, node = heapq.heappop(heap)
        for child in children(forest, node):
            heapq.heappush(heap, (-child[1], child[2] if child[2] is not None else 10**9, child))
    return sorted(node for _, _, node in heap)


def slow_labels(groups, n):
    y = np.empty(n, np.int64)
    for label, (first, size, _) in enumerate(sorted(groups, key=lambda node: (-node[1], node[0]))):
        y[first : first + size] = label
    return y


def slow_tokens(forest, levels, ratio):
    n, names = forest.n_points, []
    above = [(0, n, None)]
    for level in range(1, levels + 1):
        groups = slow_cut(forest, max(1, n // ratio**level))
        token = np.empty(n, np.int64)
        for first, size, _ in above:
            inside = [g for g in groups if first <= g[0] < first + size]
            token[first : first + size] = slow_labels([(g[0] - first, *g[1:]) for g in inside], size)
        names.append(token)
        above = groups
    return np.stack(names, axis=1)


def slow_sums(ds):
    """Return Σ z / √(1 + depth) over the nodes that carry value."""
    y = np.empty(len(ds))
    for row in range(len(ds)):
        path = ds.forest.path(row)
        z = ds.latent_z[path][ds.latent_active[path]].sum() + ds.point_z[row] * ds.point_active[row]
        y[row] = z / np.sqrt(1 + path.size)
    return y


# ---------------------------------------------------------------------- rules


FORESTS = {
    "n": st.integers(2, 120),
    "mode": st.sampled_from(["one_cluster", "distribution"]),
    "engine": st.sampled_from(["native", "paper"]),
    "seed": st.integers(0, 99),
}


@settings(deadline=None, max_examples=60)
@given(**FORESTS, max_size=st.integers(1, 60))
def test_classes_are_the_groups_of_a_cut(n, mode, engine, seed, max_size):
    ds = pl.generate(pl.Recipe(n, 2, mode, seeds=seed, engine=engine))
    groups = slow_cut(ds.forest, max_size)
    if len(groups) < 2:
        with refused(f"max_size must cut the rows in at least 2 classes, got {len(groups)} with max_size={max_size}"):
            ds.with_target("classes", max_size=max_size)
        return
    cut = ds.with_target("classes", max_size=max_size)
    np.testing.assert_array_equal(cut.y, slow_labels(groups, n))
    assert cut.y.dtype == np.int64
    assert cut.n_classes == len(groups)
    for label, node in enumerate(cut.class_nodes.tolist()):
        rows = [node] if node < n else range(n)[cut.forest.points_of(node - n)]
        assert np.flatnonzero(cut.y == label).tolist() == list(rows)


@settings(deadline=None, max_examples=60)
@given(**FORESTS, share=st.floats(0, 1))
def test_classes_by_number_take_the_largest_apart_first(n, mode, engine, seed, share):
    ds = pl.generate(pl.Recipe(n, 2, mode, seeds=seed, engine=engine))
    least = max(2, ds.forest.n_clusters)
    count = least + int(share * (n - least))
    cut = ds.with_target("classes", n_groups=count)
    np.testing.assert_array_equal(cut.y, slow_labels(slow_groups(ds.forest, count), n))
    assert cut.n_classes == count


@settings(deadline=None, max_examples=60)
@given(**FORESTS, levels=st.integers(1, 5), ratio=st.integers(2, 9))
def test_path_tokens_number_groups_within_groups(n, mode, engine, seed, levels, ratio):
    ds = pl.generate(pl.Recipe(n, 2, mode, seeds=seed, engine=engine)).with_target(
        "path_tokens", levels=levels, ratio=ratio
    )
    np.testing.assert_array_equal(ds.y, slow_tokens(ds.forest, levels, ratio))
    assert ds.y.shape == (n, levels)
    assert ds.vocabulary == tuple(len(set(column)) for column in ds.y.T.tolist())
    assert ds.n_classes is None


def test_the_first_token_is_the_class():
    ds = made(mode="one_cluster")
    tokens = ds.with_target("path_tokens", levels=2, ratio=5).y
    np.testing.assert_array_equal(tokens[:, 0], ds.with_target("classes", max_size=300 // 5).y)


@pytest.mark.parametrize("engine", ["native", "paper"])
@pytest.mark.parametrize("mode", ["one_cluster", "distribution"])
def test_silent_pairs_carry_no_value(engine, mode):
    ds = made(mode=mode, engine=engine)
    silent = ds.with_target("silent", seed=9)
    np.testing.assert_allclose(silent.y, slow_sums(silent), atol=1e-12)
    active = np.append(silent.point_active, silent.latent_active)[silent.forest.latent_children]
    np.testing.assert_array_equal(active[:, 0], active[:, 1])
    assert 0.4 < active[:, 0].mean() < 0.6
    assert silent.latent_active[silent.forest.latent_parent < 0].all()
    assert silent.point_active[silent.forest.point_depth == 0].all()
    np.testing.assert_array_equal(silent.latent_z, ds.latent_z)
    quiet = int(np.flatnonzero(~silent.latent_active)[0])
    loud = int(np.flatnonzero(silent.latent_active)[0])
    np.testing.assert_array_equal(silent.do(z={quiet: 100.0}).y, silent.y)
    assert (silent.do(z={loud: 100.0}).y != silent.y).any()
    assert ds.latent_active.all()
    assert ds.point_active.all()


def test_silence_is_keyed_by_path():
    """The pairs of a smaller dataset of the same seeds are silent in a larger one, and other seeds silence others."""
    small, large = (pl.generate(pl.Recipe(n, 2, "one_cluster", seeds=3)).with_target("silent") for n in (200, 300))
    assert small.target == Target("silent", seed=20_003)
    known = dict(zip(pl.engines.node_paths(large.forest)[0].tolist(), large.latent_active.tolist(), strict=True))
    paths = pl.engines.node_paths(small.forest)[0].tolist()
    assert [known[path] for path in paths] == small.latent_active.tolist()
    assert (small.with_target("silent", seed=1).latent_active != small.latent_active).any()


def test_silence_is_pinned():
    """These bits are part of the definition of the data."""
    silent = made().with_target("silent", seed=0)
    assert np.flatnonzero(~silent.latent_active)[:12].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 16, 18]
    assert np.flatnonzero(~silent.point_active)[:8].tolist() == [0, 1, 4, 5, 11, 12, 13, 17]


def test_sign_is_a_label():
    ds = made().with_target("sign")
    np.testing.assert_array_equal(ds.y, (made().y > 0).astype(np.int64))
    assert ds.y.dtype == np.int64
    assert ds.n_classes == 2


def test_labels_that_are_no_groups_of_the_cut_have_no_nodes():
    ds = made().with_target("classes", n_groups=made().forest.n_clusters + 3)
    spoilt = dataclasses.replace(ds, y=ds.y[::-1].copy())
    with refused(f"y must number the {ds.n_classes} groups of {ds.target}, got other labels"):
        _ = spoilt.class_nodes


def test_numbers_have_no_classes():
    assert made().n_classes is None
    assert made().vocabulary is None
    with refused("target must be 'classes' for classes to be nodes, got 'sum'"):
        _ = made().class_nodes


# ---------------------------------------------------------------------- arrays and functions


def test_arrays_are_kept_as_they_are():
    ds = made()
    numbers = ds.with_target(np.arange(300, dtype=np.float32))
    assert numbers.y.dtype == np.float64
    assert numbers.target == Target("custom", dtype="float64")
    assert numbers.modification == "y given as an array"
    assert numbers.n_classes is None
    labels = ds.with_target((np.arange(300) % 7).astype(np.uint8))
    assert (labels.y.dtype, labels.n_classes) == (np.int64, 7)
    assert ds.with_target(np.arange(300) < 5).n_classes == 2
    assert ds.with_target(np.zeros((300, 2), np.int64)).vocabulary == (1, 1)
    assert ds.with_target([1.0] * 300).y.shape == (300,)
    assert_same(labels.with_target("sum"), ds)


def test_functions_see_the_truth():
    ds = made()

    def largest(forest, latent_z, point_z):
        top = np.full(forest.n_points, -1.0)
        for latent in range(forest.n_latents):
            rows = forest.points_of(latent)
            top[rows] = np.maximum(top[rows], latent_z[latent])
        return top

    custom = ds.with_target(largest)
    np.testing.assert_array_equal(custom.y, largest(ds.forest, ds.latent_z, ds.point_z))
    assert custom.modification == "y given as an array"
    np.testing.assert_array_equal(ds.with_target(lambda f, z, p: pl.engines.targets(f, z, p)).y, ds.y)


def test_given_targets_follow_what_they_can():
    ds = made().with_target(np.arange(300))
    with refused("target must be made by a rule to follow new values, got 'custom'"):
        ds.do(z={1: 1.0})
    with refused("target must be one that a recipe can make, got 'custom'"):
        pl.generate(ds.recipe)
    moved = ds.move(1, by=2.0)  # positions are still the recipe's
    assert_same(moved.with_target("sum"), made().move(1, by=2.0))
    np.testing.assert_array_equal(ds.filter(3).y, np.arange(len(ds.filter(3))))


# ---------------------------------------------------------------------- recipes and stores


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("engine", ["native", "paper"])
def test_targets_are_replayed_and_stored(kind, engine, tmp_path):
    ds = made(engine=engine).do(z={3: 2.0}, point_z={5: 1.0}).with_target(kind, **RULES[kind])
    assert_same(pl.generate(pl.Recipe.from_json(ds.recipe.to_json()), threads=1), ds)
    assert_same(pl.generate(ds.recipe, threads=3), ds)
    assert_same(made(engine=engine).with_target(kind, **RULES[kind]).do(z={3: 2.0}, point_z={5: 1.0}), ds)
    for least in (2, 4):
        assert_same(pl.generate(ds.filter(least).recipe), ds.filter(least))
    assert ds.modification is None
    ds.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr", verify=True)
    assert_same(loaded, ds)
    np.testing.assert_array_equal(loaded.latent_active, ds.latent_active)
    assert (loaded.n_classes, loaded.vocabulary) == (ds.n_classes, ds.vocabulary)
    assert_same(loaded.with_target("sum"), ds.with_target("sum"))


@pytest.mark.parametrize("y", [np.arange(300) % 3, np.linspace(-1, 1, 300), np.ones((300, 2))])
def test_given_targets_survive_the_store(y, tmp_path):
    ds = made().with_target(y)
    ds.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr", verify=True)
    assert_same(loaded, ds)
    assert loaded.provenance["modified"] == "y given as an array"
    assert_same(loaded.with_target("sum"), made())


def test_the_paper_s_target_is_left_out_of_json():
    assert "target" not in json.loads(made().with_target("sum").recipe.to_json())
    cut = made().with_target("classes", max_size=9)
    assert json.loads(cut.recipe.to_json())["target"] == {"kind": "classes", "max_size": 9}
    assert "target=Target(kind='classes', max_size=9)" in repr(cut.recipe)
    assert pl.Recipe(10, 2, target="sign").target == Target("sign")
    assert hash(cut.recipe) == hash(pl.Recipe.from_json(cut.recipe.to_json()))


def test_parts_refuse_other_targets(tmp_path):
    recipe = made().with_target("sign").recipe
    with refused("target must be 'sum' to make a dataset in shards, got 'sign'"):
        pl.generate_store(recipe, tmp_path / "ds.zarr", shards=1)
    with refused("target must be 'sum' to make parts of a dataset, got 'sign'"):
        pl.engines.cluster_table(recipe)


def test_labels_reach_torch_and_parquet(tmp_path):
    torch = pytest.importorskip("torch")
    ds = made().with_target("classes", max_size=20)
    assert exports.to_torch(ds)[3][1].dtype == torch.int64
    assert exports.to_torch(made())[3][1].dtype == torch.float32
    tokens = made().with_target("path_tokens", levels=2)
    exports.to_parquet(tokens, tmp_path / "ds.parquet")
    import pandas

    found = pandas.read_parquet(tmp_path / "ds.parquet/points.parquet")
    np.testing.assert_array_equal(found[["y0", "y1"]].to_numpy(), tokens.y)
    with refused("y must have one number per row for these files, got 2"):
        exports.to_npz(tokens, tmp_path / "ds")


@pytest.mark.parametrize("kind", ["sum", "silent", "path_tokens", "custom"])
def test_cards_and_summaries_of_every_target(kind, tmp_path):
    ds = made().with_target(np.ones((300, 2))) if kind == "custom" else made().with_target(kind, **RULES[kind])
    card(ds, tmp_path / "card.html")
    assert (kind == "sum") == (f"target {kind}" not in (tmp_path / "card.html").read_text())
    rows = table(summarise(ds), "ds").columns[1]._cells
    text = " ".join(str(cell) for cell in rows)
    assert (kind if kind != "sum" else "variance") in text


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("median",), {}, "target must be one of sum, silent, classes, sign, path_tokens, custom, got 'median'"),
        (("custom",), {}, "target must be a rule, an array or a function, got 'custom'"),
        (("classes",), {}, "max_size or n_groups must be given with target 'classes', got neither"),
        (
            ("classes",),
            {"max_size": 3, "n_groups": 4},
            "max_size or n_groups must be given with target 'classes', got max_size=3 and n_groups=4",
        ),
        (("classes",), {"max_size": 0}, "max_size must be at least 1, got 0"),
        (("classes",), {"n_groups": 1}, "n_groups must be at least 2, got 1"),
        (
            ("classes",),
            {"n_groups": 301},
            "n_groups must be between the number of clusters, 104, and of rows, 300, got 301",
        ),
        (
            ("classes",),
            {"n_groups": 5},
            "n_groups must be between the number of clusters, 104, and of rows, 300, got 5",
        ),
        (("sum",), {"max_size": 3}, "max_size must be left out unless target is 'classes', got 3"),
        (("sign",), {"seed": 3}, "seed must be left out unless target is 'silent', got 3"),
        (("sum",), {"colour": 3}, "a target has no option 'colour'"),
        (("silent",), {"seed": -3}, "seed must be at least 0, got -3"),
        (("path_tokens",), {"ratio": 1}, "ratio must be at least 2, got 1"),
        (("path_tokens",), {"levels": 0}, "levels must be at least 1, got 0"),
        ((np.arange(299),), {}, "target must have one row for each of 300 points, got shape (299,)"),
        ((np.ones((300, 0)),), {}, "target must have one row for each of 300 points, got shape (300, 0)"),
        ((np.array(["a"] * 300),), {}, "target must hold numbers or labels, got <U1"),
        ((np.full(300, -1),), {}, "labels must not be negative, got -1; give numbers as floats"),
        ((np.full(300, np.nan),), {}, "target must be finite, got nan"),
        ((np.ones(300),), {"seed": 1}, "seed must be left out unless target is given by its name, got 1"),
    ],
)
def test_bad_targets(arguments, options, message):
    with refused(message):
        made().with_target(*arguments, **options)


def test_an_empty_cut_is_refused():
    empty = made().filter(10**6)
    with refused("max_size must cut the rows in at least 2 classes, got 0 with max_size=5"):
        empty.with_target("classes", max_size=5)
    assert empty.with_target("path_tokens").y.shape == (0, 4)
    assert empty.with_target("silent").y.shape == (0,)
    assert empty.with_target("path_tokens").vocabulary == (0, 0, 0, 0)


# ---------------------------------------------------------------------- X as tokens


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 200), seed=st.integers(0, 99), share=st.floats(0, 1))
def test_input_tokens_are_bins_of_equal_mass(n, seed, share):
    ds = pl.generate(pl.Recipe(n, 3, seeds=seed))
    vocabulary = 2 + int(share * (n - 2))
    tokens = ds.input_tokens(vocabulary)
    assert (tokens.shape, tokens.dtype) == ((n, 3), np.int32)
    for column, token in zip(ds.X.T, tokens.T, strict=True):
        rank = np.argsort(np.argsort(column, kind="stable"))
        np.testing.assert_array_equal(token, rank * vocabulary // n)
        count = np.bincount(token, minlength=vocabulary)
        assert count.max() - count.min() <= 1


def test_equal_numbers_share_a_token(tmp_path):
    ds = dataclasses.replace(made(), X=np.tile([1.0, 2.0], (300, 2)).astype(np.float32))
    assert (ds.input_tokens(10) == ds.input_tokens(10)[0]).all()
    made().save(tmp_path / "ds.zarr")
    np.testing.assert_array_equal(pl.load(tmp_path / "ds.zarr").input_tokens(16), made().input_tokens(16))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (1, "vocabulary must be at least 2, got 1"),
        (301, "vocabulary must be at most the number of rows, 300, got 301"),
        (2.5, "vocabulary must be an integer, got 2.5"),
    ],
)
def test_bad_vocabularies(vocabulary, message):
    with refused(message):
        made().input_tokens(vocabulary)


# ---------------------------------------------------------------------- laws


def flagged(dataset):
    return {check.law for check in pl.verify(dataset).failures}


@lru_cache(maxsize=2)
def large():
    return made(3000, 6, seed=5)


@pytest.mark.parametrize(
    ("kind", "options", "law"),
    [
        ("silent", {}, "silent siblings"),
        ("classes", {"max_size": 50}, "classes"),
        ("classes", {"n_groups": 1500}, "classes"),
        ("sign", {}, "labels are signs of sums"),
        ("path_tokens", {}, "path tokens"),
    ],
)
def test_every_target_obeys_its_laws(kind, options, law):
    outcome = pl.verify(large().with_target(kind, **options))
    assert outcome.passed, str(outcome)
    assert outcome[law].verdict == "pass"


def test_given_targets_have_no_law():
    outcome = pl.verify(large().with_target(np.ones(3000)))
    assert outcome.passed
    assert outcome["targets"].verdict == "does not apply"
    assert "y was given as an array" in str(outcome)


def test_silence_that_goes_wrong_is_caught():
    ds = large().with_target("silent")
    loud = dataclasses.replace(ds, y=large().y)
    assert flagged(loud) == {"targets are sums of z"}
    active = {"latent_active": ds.latent_active.copy(), "point_active": ds.point_active.copy()}
    one = int(np.flatnonzero(~active["latent_active"])[0])
    active["latent_active"][one] = True
    assert "silent siblings" in flagged(dataclasses.replace(ds, extra=active))
    nobody = {name: np.ones_like(column) for name, column in active.items()}
    assert flagged(dataclasses.replace(ds, extra=nobody, y=large().y)) == {"share of silent pairs"}


@pytest.mark.parametrize("options", [{"max_size": 50}, {"n_groups": 1500}])
def test_labels_that_go_wrong_are_caught(options):
    ds = large().with_target("classes", **options)

    def planted(change):
        y = ds.y.copy()
        change(y)
        return flagged(dataclasses.replace(ds, y=y))

    assert planted(lambda y: y.__setitem__(0, y[-1])) == {"classes"}
    largest = np.flatnonzero(ds.y == 0)
    assert planted(lambda y: y.__setitem__(largest[: largest.size // 2], ds.n_classes)) == {"classes"}
    second = np.flatnonzero(ds.y == 1)

    def swap(y):
        y[largest], y[second] = 1, 0

    if largest.size != second.size:
        assert planted(swap) == {"classes"}
    finer = large().with_target("classes", max_size=20).y
    assert flagged(dataclasses.replace(ds, y=finer)) == {"classes"}
    assert flagged(dataclasses.replace(ds, y=ds.y.astype(float))) == {"data model"}


def test_tokens_and_signs_that_go_wrong_are_caught():
    ds = large().with_target("path_tokens")
    y = ds.y.copy()
    y[:, 1] = y[::-1, 1]
    assert flagged(dataclasses.replace(ds, y=y)) == {"path tokens"}
    y = ds.y.copy()
    y[y[:, 0] == 0, 0], y[y[:, 0] == 1, 0] = 1, 0
    assert flagged(dataclasses.replace(ds, y=y)) == {"path tokens"}
    signs = large().with_target("sign")
    y = signs.y.copy()
    y[17] ^= 1
    assert flagged(dataclasses.replace(signs, y=y)) == {"labels are signs of sums"}
