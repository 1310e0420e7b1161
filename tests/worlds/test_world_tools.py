"""What takes a dataset takes a world, with factor= where a forest is meant: splits, files, pages, streams, commands."""

import json
import pickle
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold

import percolab as pl
from percolab import exports
from percolab.cli import main
from percolab.loaders.streams import Stream
from percolab.show import card, cluster_picture, distributions, latent_colours, summary

FOREST = tuple(field.name for field in fields(pl.Forest))
CYCLES, LONGER = 1, 2
"""Factors: a random graph with cycles and fewer points; a cluster with more points than there are samples."""


@pytest.fixture(scope="module")
def world():
    recipes = [
        pl.Recipe(300, 5, "one_cluster", seeds=1),
        pl.Recipe(120, 5, "random_graph", mean_degree=1.8, seeds=2),
        pl.Recipe(500, 5, "one_cluster", seeds=3, target=pl.Target("classes", n_groups=7)),
    ]
    return pl.superpose(recipes, weights=(1, 0.5, 0), seed=4)


@pytest.fixture(scope="module")
def stored(world, tmp_path_factory):
    path = tmp_path_factory.mktemp("worlds") / "w.zarr"
    world.save(path)
    return path


def same_world(a, b):
    for name in ("X", "y", "rows", "sigma"):
        np.testing.assert_array_equal(np.asarray(getattr(a, name)), np.asarray(getattr(b, name)))
    assert a.recipe == b.recipe
    for one, other in zip(a.factors, b.factors, strict=True):
        for name in FOREST:
            np.testing.assert_array_equal(getattr(one.forest, name), getattr(other.forest, name))
        for name in ("y", "latent_z", "point_z"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            assert getattr(one, name).dtype == getattr(other, name).dtype


# ---------------------------------------------------------------------- on disk


def test_a_stored_world_keeps_the_bonds_that_close_cycles(world, stored):
    assert world.factors[CYCLES].forest.n_extra_bonds > 0
    same_world(pl.load(stored, verify=True), world)


def test_a_stored_world_keeps_labels(world, tmp_path):
    labels = world.swapped(LONGER)
    assert labels.y.dtype == np.int64
    labels.save(tmp_path / "l.zarr")
    same_world(pl.load(tmp_path / "l.zarr"), labels)
    assert pl.verify(labels)["y of factors"].verdict == "pass"


def test_worlds_travel(world, stored):
    same_world(pickle.loads(pickle.dumps(world)), world)
    loaded = pl.load(stored)
    text = pickle.dumps(loaded)
    assert len(text) < 2_000  # by its path
    same_world(pickle.loads(text), world)
    assert {"X", "y", "rows", "factors", "recipe", "sigma"} <= set(dir(loaded))


def test_a_world_that_was_replaced_does_not_arrive(world, tmp_path):
    world.save(tmp_path / "w.zarr")
    text = pickle.dumps(pl.load(tmp_path / "w.zarr"))
    world.swapped(1).save(tmp_path / "w.zarr", overwrite=True)
    with pytest.raises(pl.StoreError, match="was changed after it was loaded"):
        pickle.loads(text)


def test_a_world_streams_its_samples(world, stored):
    stream = Stream(stored, 64, columns=("X", "y", "rows"), seed=3)
    parts = [np.concatenate(column) for column in zip(*stream.batches(0), strict=True)]
    place = np.argsort(parts[2][:, 0])
    np.testing.assert_array_equal(parts[2][place], world.rows)
    np.testing.assert_array_equal(parts[0][place], world.X)
    with pytest.raises(ValueError, match="columns must be one of X, y, rows, got 'point_z'"):
        Stream(stored, 64, columns=("X", "point_z"))


def test_what_worlds_do_not_have_says_where_it_is(world):
    with pytest.raises(AttributeError, match="a superposed world has no 'do': use it on the dataset of a factor"):
        world.do(z={0: 1.0})
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        world.nothing  # noqa: B018
    assert world.input_tokens(4).shape == world.X.shape
    assert "120 points" not in world._repr_html_()  # sizes of factors would have to be read
    assert "random_graph" in world._repr_html_()


# ---------------------------------------------------------------------- splits


@pytest.mark.parametrize("factor", [0, CYCLES, LONGER])
def test_groups_of_a_factor_are_never_divided(world, factor):
    split = pl.split_rows(world, 3, by="subtree", max_size=20, factor=factor)
    forest, rows = world.factors[factor].forest, world.rows[:, factor]
    groups = forest.cut(20).groups[rows]
    part = np.empty(len(world), np.int64)
    for number, name in enumerate(("train", "validation", "test")):
        part[getattr(split, name)] = number
    assert sorted(np.concatenate([split.train, split.validation, split.test]).tolist()) == list(range(len(world)))
    for group in np.unique(groups):
        assert np.unique(part[groups == group]).size == 1
        assert np.unique(split.groups[groups == group]).size == 1
    for train, test in GroupKFold(3).split(world.X, groups=split.groups):
        assert not set(groups[train]) & set(groups[test])


def test_bonds_to_training_are_those_of_the_factor(world):
    known = pl.truth(world, 0)
    split = pl.split_rows(world, 3, by="subtree", max_size=20, factor=0, margin=2)
    assert split.left_out.size
    forest = known.forest
    for sample, bonds in zip(split.test, split.bonds_to_training(known), strict=True):
        assert bonds == min(forest.distance(known.rows[sample], known.rows[split.train]))
        assert bonds > 2


def test_by_rows_a_world_is_split_as_its_first_factor(world):
    split, own = pl.split_rows(world, 5), pl.split_rows(world.factors[0], 5)
    for name in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(split, name), getattr(own, name))


def test_splits_name_the_factor(world):
    with pytest.raises(ValueError, match="factor must be given where there are 3, got None"):
        pl.split_rows(world, by="cluster")
    with pytest.raises(ValueError, match="factor must be between 0 and 2, got 3"):
        pl.split_rows(world, by="cluster", factor=3)
    with pytest.raises(ValueError, match="factor must be 0 or left out for a forest, got 1"):
        pl.split_rows(world.factors[0].forest, by="subtree", max_size=5, factor=1)


# ---------------------------------------------------------------------- files


def test_hdf5_holds_a_world(world, tmp_path):
    exports.to_hdf5(world, tmp_path / "w")
    found = exports.read_hdf5(tmp_path / "w")
    same_world(found, world)
    assert found.modification is None
    np.testing.assert_array_equal(found.factors[0].X[:], world.factors[0].X[:])
    with pytest.raises(ValueError, match="factor must be left out with hdf5, which holds all factors, got 1"):
        exports.to_hdf5(world, tmp_path / "v", factor=1)


def test_a_file_that_was_changed_is_not_its_recipes(world, tmp_path):
    import h5py

    for name, data in (("w", world), ("d", pl.generate(world.recipe.factors[0]))):
        exports.to_hdf5(data, tmp_path / name)
        with h5py.File(tmp_path / f"{name}.h5", "r+") as file:
            file["y"][3] = 7.0
        assert exports.read_hdf5(tmp_path / name).modification == "arrays replaced by hand"


def test_tables_hold_samples_with_the_truth_of_a_factor(world, tmp_path):
    pandas = pytest.importorskip("pandas")
    exports.to_parquet(world, tmp_path / "w", factor=LONGER)
    points = pandas.read_parquet(tmp_path / "w/points.parquet")
    latents = pandas.read_parquet(tmp_path / "w/latents.parquet")
    rows, own = world.rows[:, LONGER], world.factors[LONGER]
    np.testing.assert_array_equal(np.stack(points["X"]), world.X)
    np.testing.assert_array_equal(points["y"], world.y)
    np.testing.assert_array_equal(points["row"], rows)
    np.testing.assert_array_equal(points["z"], own.point_z[rows])
    np.testing.assert_array_equal(points["depth"], own.forest.point_depth[rows])
    np.testing.assert_array_equal(latents["size"], own.forest.latent_size)
    for write, read in ((exports.to_csv, exports.read_csv), (exports.to_parquet, exports.read_parquet)):
        write(world, tmp_path / write.__name__, factor=LONGER)
        with pytest.raises(ValueError, match="holds samples of a superposed world, not a dataset"):
            read(tmp_path / write.__name__)
    with pytest.raises(ValueError, match="factor must be given where there are 3"):
        exports.to_parquet(world, tmp_path / "v")
    with pytest.raises(ValueError, match="must have no bonds that close cycles"):
        exports.to_parquet(world, tmp_path / "v", factor=CYCLES)


@pytest.mark.parametrize("factor", [0, CYCLES, LONGER])
def test_authors_files_hold_samples_with_the_latents_of_a_factor(world, factor, tmp_path):
    exports.to_npz(world, tmp_path / "w", factor=factor)
    found, forest, own = exports.read_npz(tmp_path / "w"), world.factors[factor].forest, world.factors[factor]
    rank = np.argsort(forest.release_order)[world.rows[:, factor]]
    order = np.argsort(rank, kind="stable")
    rows = world.rows[order, factor]
    np.testing.assert_array_equal(found.X, world.X[order])
    np.testing.assert_array_equal(found.y, world.y[order])
    np.testing.assert_array_equal(found.cluster_size, forest.cluster_size[forest.point_cluster[rows]])
    np.testing.assert_array_equal(found.latent_tree_height, forest.point_depth[rows])
    sums = np.array([own.latent_z[forest.path(int(row))].sum() for row in rows])
    np.testing.assert_allclose(found.latent_values.sum(axis=1), sums, atol=1e-12)


def test_subsamples_are_read_back_with_their_rows(world, tmp_path):
    part = pl.generate(world.recipe.factors[0]).take(np.arange(0, 300, 2))
    for name in ("parquet", "csv", "hdf5"):
        getattr(exports, f"to_{name}")(part, tmp_path / name)
        found = getattr(exports, f"read_{name}")(tmp_path / name)
        np.testing.assert_array_equal(found.source_row, part.source_row)
        assert found.modification == part.modification


# ---------------------------------------------------------------------- pages and pictures


def test_a_drawing_is_of_a_factor_in_its_own_space(world):
    figure = cluster_picture.draw(world, factor=CYCLES)
    assert "of factor 1: " in figure.get_suptitle()
    closing = [c for c in figure.axes[0].collections if getattr(c, "get_segments", None)][-1]
    assert len(closing.get_segments()) == world.factors[CYCLES].forest.cluster(0).n_extra_bonds
    with pytest.raises(ValueError, match="factor must be given where there are 3"):
        cluster_picture.draw(world)


def test_activations_of_samples_are_averaged_over_the_samples_of_a_point(world):
    values = np.random.default_rng(0).normal(size=len(world))
    for factor in range(3):
        rows, found = world.rows[:, factor], latent_colours.of_rows(pl.truth(world, factor), values)
        for row in range(world.factors[factor].forest.n_points):
            mean = values[rows == row].mean() if (rows == row).any() else np.nan
            np.testing.assert_allclose(found[row], mean)
    cluster_picture.draw(world, factor=LONGER, colour=values)  # some points have no sample
    with pytest.raises(ValueError, match=r"colour must have shape \(300,\), one value per row, got \(500,\)"):
        cluster_picture.draw(world, factor=LONGER, colour=np.ones(500))


def page_of(dataset, tmp_path, **how):
    card(dataset, tmp_path / "card.html", overwrite=True, **how)
    return (tmp_path / "card.html").read_text()


@pytest.mark.slow
def test_cards_of_worlds_and_of_their_factors(world, tmp_path):
    page = page_of(world, tmp_path, name="w.zarr")
    assert "300 samples in R^5 of 3 factors, y from 0 and 1; seed 4" in page
    assert page.count("data:image/png") == 1 + 3
    assert "irrelevant" in page
    assert "percolab generate --recipe recipe.json" in page
    assert "120 points in R^5" in page_of(world, tmp_path, factor=CYCLES)
    changed = replace(world, y=world.y + 1)
    assert "Its recipe does not make it: arrays replaced by hand." in page_of(changed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("degree", "words"),
    [
        (0.0, ["mean degree", "0: below the critical point"]),
        (0.6, ["cluster sizes fall off at", "in theory, over seeds"]),
        (1.0, ["at the critical point", "2.5 in theory"]),
        (2.0, ["giant cluster", "0.7968 of the points in theory", "--mean-degree 2.0"]),
    ],
)
def test_cards_of_random_graphs(degree, words, tmp_path):
    page = page_of(pl.generate(pl.Recipe(200, 3, "random_graph", mean_degree=degree, seeds=1)), tmp_path)
    for word in words:
        assert word in page


@pytest.mark.slow
def test_cards_of_what_was_edited_taken_or_given_another_target(tmp_path):
    ds = pl.generate(pl.Recipe(150, 3, "one_cluster", seeds=1))
    page = page_of(ds.do(z={3: 2.0}).move(4, by=0.5).turn(6, seed=9), tmp_path)
    for word in ("do:3=2", "move:4=0.5", "turn:6=9", "percolab generate --recipe recipe.json", "that were moved"):
        assert word in page
    assert "--target classes:n_groups=9" in page_of(ds.with_target("classes", n_groups=9), tmp_path)
    page = page_of(ds.take(np.arange(60)), tmp_path)
    assert "expected)" not in page  # laws of whole clusters say nothing of a part of one
    assert "fractal dimension" not in page
    assert "60 of 150 rows taken" in page


def test_summaries_of_worlds_are_plain(world):
    found = json.loads(json.dumps(summary.summarise(world)))
    assert found["n_samples"] == 300
    assert [part["weight"] for part in found["factors"]] == [1, 0.5, 0]
    np.testing.assert_allclose(
        found["factors"][0]["correlation"], np.corrcoef(world.factors[0].y, world.y)[0, 1], rtol=1e-12
    )
    assert summary.one_line(found) == "300 samples in R^5 of 3 factors, y from 0 and 1; seed 4"


# ---------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A dataset, and where it is."""
    ds, path = pl.generate(pl.Recipe(100, 4, "one_cluster", seeds=1)), tmp_path_factory.mktemp("one") / "a.zarr"
    ds.save(path)
    return ds, path


@pytest.fixture
def one(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("percolab.ground.progress.LINE_SECONDS", 1e6)
    shutil.copytree(saved[1], "a.zarr")
    return saved[0]


def test_edits_and_targets_on_the_command_line(one, capsys):
    words = ["do:7=2.5,8=0", "point:3=-1", "move:7=0.5", "turn:9=3", "shift:5=1.5@8", "--target", "silent:seed=5"]
    assert main.run(["edit", "a.zarr", *words, "-o", "e.zarr"]) == 0
    assert f"move:7=0.5 moved {len(one.beyond(7))} of 100 rows\n" in capsys.readouterr().out
    found = pl.load("e.zarr")
    expected = one.do(z={7: 2.5, 8: 0.0}).do(point_z={3: -1.0}).move(7, by=0.5).turn(9, seed=3)
    expected = expected.shift(5, by=1.5, seed=8).with_target("silent", seed=5)
    assert found.recipe == expected.recipe
    assert found.modification is None
    np.testing.assert_array_equal(found.X[:], expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    words = [
        "generate",
        "--n-points",
        "100",
        "--dim",
        "4",
        "--mode",
        "one_cluster",
        "--seed",
        "1",
        "-q",
        "-o",
        "t.zarr",
    ]
    assert main.run([*words, "--target", "path_tokens:levels=2,ratio=4"]) == 0
    np.testing.assert_array_equal(pl.load("t.zarr").y, one.with_target("path_tokens", levels=2, ratio=4).y)


def test_subsamples_on_the_command_line(one):
    assert main.run(["take", "a.zarr", "--size", "30", "--seed", "2", "-o", "p.zarr", "-q"]) == 0
    np.testing.assert_array_equal(pl.load("p.zarr").source_row, one.subsamples([30], 2)[0].source_row)
    np.save("rows.npy", np.arange(10, 20))
    words = ["take", "a.zarr", "--rows", "rows.npy", "--y", "recomputed", "-o", "r.zarr", "-q"]
    assert main.run(words) == 0
    np.testing.assert_array_equal(pl.load("r.zarr").y, one.take(np.arange(10, 20), y="recomputed").y)


@pytest.mark.slow
def test_worlds_on_the_command_line(one, capfd):
    Path("b.json").write_text(pl.Recipe(80, 4, "one_cluster", seeds=2).to_json())
    words = ["superpose", "a.zarr", "b.json", "--weights", "1,0", "--seed", "3", "--dim", "6", "-o", "w.zarr"]
    assert main.run(words) == 0
    assert "w.zarr: 100 samples in R^6 of 2 factors, y from 0; seed 3" in capfd.readouterr().out
    recipes = [one.recipe, pl.Recipe(80, 4, "one_cluster", seeds=2)]
    same_world(pl.load("w.zarr"), pl.superpose(recipes, weights=(1, 0), seed=3, dim=6))
    for words in (
        ["info", "w.zarr", "--html", "w.html"],
        ["info", "w.zarr", "--verify", "--factor", "1"],
        ["draw", "w.zarr", "--factor", "1", "--colour", "y", "-o", "w.png"],
        ["export", "w.zarr", "--format", "npz", "--factor", "1", "-o", "w"],
        ["verify", "w.zarr"],
    ):
        assert main.run(words) == 0
    assert "factor 1" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["edit", "a.zarr", "-o", "x.zarr"], "EDIT or --target must be given"),
        (["edit", "a.zarr", "do:3", "-o", "x.zarr"], "EDIT must be such as do:LATENT=VALUE"),
        (["edit", "a.zarr", "fix:3=1", "-o", "x.zarr"], "EDIT must be such as do:LATENT=VALUE"),
        (["edit", "a.zarr", "shift:3=1", "-o", "x.zarr"], "EDIT must be such as do:LATENT=VALUE"),
        (["edit", "a.zarr", "shift:3=1@-1", "-o", "x.zarr"], "seed must be at least 0, got -1"),
        (["edit", "a.zarr", "move:3=1,4=1", "-o", "x.zarr"], "EDIT must move one latent at a time"),
        (["edit", "a.zarr", "do:99=1", "-o", "x.zarr"], "latent must be below 99, got 99"),
        (["edit", "a.zarr", "--target", "classes", "-o", "x.zarr"], "max_size or n_groups must be given"),
        (["edit", "a.zarr", "--target", "classes:n_groups=x", "-o", "x.zarr"], "--target must be such as"),
        (["edit", "a.zarr", "--target", "custom", "-o", "x.zarr"], "--target must be one of sum, silent"),
        (["take", "a.zarr", "-o", "x.zarr"], "--size or --rows must be given, and not both"),
        (["take", "a.zarr", "--size", "101", "-o", "x.zarr"], "--size must be at most the number of rows, 100"),
        (["superpose", "a.zarr", "a.zarr", "--weights", "1", "-o", "x.zarr"], "--weights must be 2 numbers"),
        (["superpose", "a.zarr", "a.zarr", "--weights", "1,y", "-o", "x.zarr"], "--weights must be numbers with"),
        (["superpose", "a.zarr", "nothing", "-o", "x.zarr"], "FACTOR must exist, got 'nothing'"),
        (["superpose", "a.zarr", "-o", "x.zarr"], "FACTOR must be at least two, got 1"),
        (["info", "a.zarr", "--factor", "1"], "--factor must be 0 or left out for a dataset of one hierarchy"),
    ],
)
def test_bad_words_are_one_line(one, words, message, capfd):
    capfd.readouterr()
    assert main.run(words) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("x.zarr").exists()


def test_the_store_of_a_world_is_told_from_that_of_a_dataset(one, stored):
    assert isinstance(pl.load(stored), pl.Superposed)
    assert isinstance(pl.load("a.zarr"), pl.Dataset)


def test_the_law_of_depths_is_exact_for_small_clusters():
    sizes = np.array([1, 1, 2, 3, 3, 3])
    edges = np.arange(5) - 0.5
    # A pair: both at depth 1. Three points: the top splits one off at depth 1, the others are at 2.
    np.testing.assert_allclose(distributions._depth_law(sizes, edges), [2, 2 + 3, 6, 0])
