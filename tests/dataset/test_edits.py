"""Interventions: the exact new data, nothing else touched, and the same bytes from the recipe that records them."""

import copy
import dataclasses
import html
import io
import json
import pickle
import re
from functools import lru_cache

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from sameness import assert_same, refused

import percolab as pl
from percolab import exports
from percolab.checks.independence import Subject
from percolab.model.edits import Do, Move, Shift, Turn
from percolab.show import card
from percolab.show.summary import summarise, table


@lru_cache(maxsize=16)
def made(n=400, dim=5, mode="one_cluster", engine="native", seed=3, **fields):
    return pl.generate(pl.Recipe(n, dim, mode, seeds=seed, engine=engine, **fields))


def lengths(ds):
    X = np.asarray(ds.X, np.float64)
    return np.linalg.norm(X[ds.forest.bond[:, 1]] - X[ds.forest.bond[:, 0]], axis=1)


def root_of(ds):
    """Return the root of the walk of a single cluster: the row one step away from the origin."""
    stride = ds.recipe.step * np.sqrt(ds.recipe.dim)
    (row,) = np.flatnonzero(np.abs(np.linalg.norm(np.asarray(ds.X, np.float64), axis=1) - stride) < 1e-6)
    return int(row)


def component(forest, start, without):
    """Return the rows reached from one along bonds, but for that of one latent."""
    neighbours = [[] for _ in range(forest.n_points)]
    for latent, (a, b) in enumerate(forest.bond.tolist()):
        if latent != without:
            neighbours[a].append(b)
            neighbours[b].append(a)
    seen, queue = {start}, [start]
    for at in queue:
        new = [to for to in neighbours[at] if to not in seen]
        seen.update(new)
        queue += new
    return seen


def beyond(ds, latent):
    """Return the near and the far end of a latent's bond and the rows beyond it, by cutting the bond."""
    root, (a, b) = root_of(ds), ds.forest.bond[latent].tolist()
    near, far = (a, b) if root in component(ds.forest, a, latent) else (b, a)
    return near, far, np.array(sorted(component(ds.forest, far, latent)))


# ---------------------------------------------------------------------- do


@pytest.mark.parametrize("engine", ["native", "paper"])
@pytest.mark.parametrize("mode", ["one_cluster", "distribution"])
def test_do_equals_a_full_recomputation(engine, mode):
    ds = made(mode=mode, engine=engine)
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 100):
        latents, rows = (rng.choice(k, count, replace=False) for k in (ds.forest.n_latents, len(ds)))
        z = {int(i): float(rng.normal()) for i in latents}
        point_z = {int(r): float(rng.normal()) for r in rows}
        for after in (ds.do(z=z), ds.do(point_z=point_z), ds.do(z=z, point_z=point_z)):
            np.testing.assert_array_equal(after.y, pl.engines.targets(ds.forest, after.latent_z, after.point_z))
        latent_z, own = ds.latent_z.copy(), ds.point_z.copy()
        latent_z[list(z)], own[list(point_z)] = list(z.values()), list(point_z.values())
        np.testing.assert_array_equal(after.latent_z, latent_z)
        np.testing.assert_array_equal(after.point_z, own)
        assert after.X is ds.X
        assert after.forest is ds.forest


def test_do_changes_nothing_outside_the_latent():
    ds = made(mode="distribution")
    before = ds.y.copy(), ds.latent_z.copy()
    for latent in (0, 3, 57, ds.forest.n_latents - 1):
        after = ds.do(z={latent: 5.0})
        rows = ds.forest.points_of(latent)
        changed = np.flatnonzero(after.y != ds.y)
        assert changed.min() >= rows.start
        assert changed.max() < rows.stop
        delta = (5.0 - ds.latent_z[latent]) / np.sqrt(1 + ds.forest.point_depth[rows])
        np.testing.assert_allclose(after.y[rows] - ds.y[rows], delta, atol=1e-12)
    np.testing.assert_array_equal(ds.y, before[0])
    np.testing.assert_array_equal(ds.latent_z, before[1])


def test_do_on_a_stored_dataset_leaves_positions_on_disk(tmp_path):
    made().save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr")
    after = loaded.do(z={4: 1.0})
    assert isinstance(after.X, pl.StoredArray)
    assert_same(after, made().do(z={4: 1.0}))


# ---------------------------------------------------------------------- move


@pytest.mark.parametrize("engine", ["native", "paper"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_move_shifts_what_falls_off_when_the_bond_is_cut(engine, dtype):
    ds = made(150, engine=engine, dtype=dtype)
    for latent in range(ds.forest.n_latents):
        near, far, rows = beyond(ds, latent)
        vector = np.arange(5) / 4
        shifted = np.asarray(ds.X).copy()
        shifted[rows] = (shifted[rows].astype(np.float64) + vector).astype(dtype)
        np.testing.assert_array_equal(ds.move(latent, by=vector).X, shifted)
        bond = np.asarray(ds.X, np.float64)[far] - np.asarray(ds.X, np.float64)[near]
        shifted = np.asarray(ds.X).copy()
        shifted[rows] = (shifted[rows].astype(np.float64) + 2.5 * bond).astype(dtype)
        np.testing.assert_array_equal(ds.move(latent, by=2.5).X, shifted)


def test_what_a_move_shifts_is_not_always_an_interval():
    ds = made(150)
    rows = [beyond(ds, latent)[2] for latent in range(ds.forest.n_latents)]
    assert any(found[-1] - found[0] + 1 > found.size for found in rows)


@pytest.mark.parametrize("mode", ["one_cluster", "distribution"])
@pytest.mark.parametrize("engine", ["native", "paper"])
def test_moved_points_keep_all_bond_lengths_but_one(engine, mode):
    ds = made(mode=mode, engine=engine)
    before, step = lengths(ds), ds.recipe.step * np.sqrt(ds.recipe.dim)
    for latent in range(0, ds.forest.n_latents, 7):
        after = ds.move(latent, by=1.5)
        np.testing.assert_allclose(np.delete(lengths(after) - before, latent), 0, atol=1e-5)
        np.testing.assert_allclose(lengths(after)[latent], 2.5 * step, rtol=1e-5)
        assert after.y is ds.y
        assert after.latent_z is ds.latent_z


@pytest.mark.parametrize("engine", ["native", "paper"])
def test_rows_beyond_a_bond_are_those_that_a_move_moves(engine):
    ds = made(150, engine=engine)
    for latent in range(ds.forest.n_latents):
        np.testing.assert_array_equal(ds.beyond(latent), beyond(ds, latent)[2])
    with refused("latent must be below 149, got 149"):
        ds.beyond(149)


# ---------------------------------------------------------------------- shift


@pytest.mark.parametrize("engine", ["native", "paper"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_shift_moves_exactly_the_rows_of_the_latent(engine, dtype):
    ds = made(150, engine=engine, dtype=dtype)
    vector = np.arange(5) / 4
    for latent in range(ds.forest.n_latents):
        rows = ds.forest.points_of(latent)
        shifted = np.asarray(ds.X).copy()
        shifted[rows] = (shifted[rows].astype(np.float64) + vector).astype(dtype)
        after = ds.shift(latent, by=vector)
        np.testing.assert_array_equal(after.X, shifted)
        assert after.y is ds.y
        assert after.latent_z is ds.latent_z


def test_a_distance_has_a_direction_that_seed_and_latent_determine():
    ds = made(150, 200, dtype="float64")

    def unit(latent, by, seed):
        rows = ds.forest.points_of(latent)
        moved = ds.shift(latent, by=by, seed=seed).X[rows] - ds.X[rows]
        np.testing.assert_allclose(np.linalg.norm(moved, axis=1), abs(by), rtol=1e-12)
        np.testing.assert_allclose(moved - moved[0], 0, atol=1e-12)
        return moved[0] / by

    first = unit(7, 2.5, 3)
    np.testing.assert_allclose(unit(7, -0.5, 3), first, atol=1e-12)
    others = np.array([unit(8, 2.5, 3), unit(7, 2.5, 4), unit(7, 2.5, 2**64 - 1)])
    assert np.abs(others @ first).max() < 0.35  # five standard deviations of the cosine in 200 dimensions
    drawn = np.array([unit(7, 1.0, seed) for seed in range(200)])
    np.testing.assert_allclose(drawn.T @ drawn, np.eye(200), atol=0.5)  # 7 of 1/√200


# ---------------------------------------------------------------------- turn


def steps_of(ds):
    """Return the unit vector of every row of a single cluster, from its position and that of the row before it."""
    X, root = np.asarray(ds.X, np.float64), root_of(ds)
    neighbours = [[] for _ in range(len(ds))]
    for a, b in ds.forest.bond.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    vectors, queue, seen = X.copy(), [root], {root}
    for at in queue:
        for to in neighbours[at]:
            if to not in seen:
                seen.add(to)
                queue.append(to)
                vectors[to] = X[to] - X[at]
    return vectors / (ds.recipe.step * np.sqrt(ds.recipe.dim))


def node_vectors(ds):
    """Return the unit vectors of rows and latents: a latent's is the sum of its children's over √2."""
    n = len(ds)
    vectors = np.concatenate([steps_of(ds), np.empty((ds.forest.n_latents, ds.recipe.dim))])
    for latent in range(ds.forest.n_latents - 1, -1, -1):
        vectors[n + latent] = vectors[ds.forest.latent_children[latent]].sum(axis=0) / np.sqrt(2)
    return vectors[:n], vectors[n:]


@pytest.mark.parametrize("latent", [0, 1, 2, 5, 31, 64, 120])
def test_a_turn_draws_the_directions_below_a_latent_and_no_others(latent):
    ds = made(150, dtype="float64")
    after = ds.turn(latent, seed=11)
    (rows, latents), (new_rows, new_latents) = node_vectors(ds), node_vectors(after)
    size, interval = int(ds.forest.latent_size[latent]), ds.forest.points_of(latent)
    inside = np.zeros(len(ds), bool)
    inside[interval] = True
    below = slice(latent + 1, latent + size - 1)
    np.testing.assert_allclose(new_rows[~inside], rows[~inside], atol=1e-10)
    np.testing.assert_allclose(np.delete(new_latents, below, axis=0), np.delete(latents, below, axis=0), atol=1e-10)
    assert np.abs(new_rows[inside] - rows[inside]).max(axis=1).min() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(new_latents, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(lengths(after), lengths(ds), atol=1e-6)
    children = np.concatenate([new_rows, new_latents])[ds.forest.latent_children]
    np.testing.assert_allclose(np.einsum("ij,ij->i", children[:, 0], children[:, 1]), 0, atol=1e-6)


def test_rows_that_do_not_hang_on_the_latent_stay_where_they_are():
    ds = made(80)
    far_and_beyond = [beyond(ds, latent)[1:] for latent in range(ds.forest.n_latents)]
    kept = 0
    for latent in np.flatnonzero(ds.forest.latent_size == 3).tolist():
        rows = np.arange(len(ds))[ds.forest.points_of(latent)]
        hanging = set(rows.tolist())
        hanging.update(*(below.tolist() for far, below in far_and_beyond if far in rows))
        if root_of(ds) in hanging:
            continue
        moved = np.flatnonzero((ds.turn(latent, seed=2).X != ds.X).any(axis=1))
        assert set(moved.tolist()) == hanging
        kept += len(ds) - moved.size
    assert kept > 0


def test_the_seed_of_the_recipe_turns_back():
    for mode in ("one_cluster", "distribution"):
        ds = made(mode=mode)
        for latent in (0, 2, 30):
            turned = ds.turn(latent, seed=5)
            assert np.abs(turned.X - ds.X).max() > 0.1
            np.testing.assert_allclose(turned.turn(latent, seed=ds.recipe.seeds.embed).X, ds.X, atol=1e-5)


def test_turns_follow_turns_above_them():
    """A latent below a turned one keeps the vector that the turn gave it, however its own directions are drawn."""
    ds = made(150, dtype="float64").turn(0, seed=5)
    below = next(i for i in range(1, ds.forest.n_latents) if ds.forest.latent_size[i] > 10)
    _, before = node_vectors(ds)
    _, after = node_vectors(ds.turn(below, seed=6))
    np.testing.assert_allclose(after[below], before[below], atol=1e-10)


def test_a_turn_forgets_moves_of_the_steps_it_draws():
    ds = made(150, dtype="float64")
    for latent in range(1, ds.forest.n_latents, 11):
        far = beyond(ds, latent)[1]
        after = ds.move(latent, by=1.0).turn(1, seed=4)
        rows = ds.forest.points_of(1)
        ratio = lengths(after)[latent] / lengths(ds)[latent]
        np.testing.assert_allclose(ratio, 1 if rows.start <= far < rows.stop else 2, rtol=1e-6)


# ---------------------------------------------------------------------- recipes


EDITS = st.one_of(
    st.tuples(st.just("do"), st.integers(0, 10**6), st.floats(-9, 9), st.integers(0, 10**6)),
    st.tuples(st.just("move"), st.integers(0, 10**6), st.floats(-0.9, 9)),
    st.tuples(st.just("move"), st.integers(0, 10**6), st.lists(st.floats(-9, 9), min_size=3, max_size=3)),
    st.tuples(st.just("shift"), st.integers(0, 10**6), st.floats(-9, 9), st.integers(0, 2**64 - 1)),
    st.tuples(st.just("turn"), st.integers(0, 10**6), st.integers(0, 2**64 - 1)),
)


def edit(ds, kind, node, value, seed=0):
    latent, row = node % ds.forest.n_latents, seed % len(ds)
    if kind == "do":
        return ds.do(z={latent: value}, point_z={row: -value})
    if kind == "turn":
        return ds.turn(latent, seed=value) if ds.recipe.engine == "native" else ds
    if kind == "shift":
        return ds.shift(latent, by=value, seed=seed)
    return ds.move(latent, by=value)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 80),
    mode=st.sampled_from(["one_cluster", "distribution"]),
    engine=st.sampled_from(["native", "paper"]),
    seed=st.integers(0, 99),
    least=st.integers(1, 6),
    edits=st.lists(EDITS, max_size=6),
    target=st.sampled_from(["sum", "silent", "sign"]),
)
def test_a_recipe_with_edits_makes_the_same_bytes(n, mode, engine, seed, least, edits, target):
    ds = pl.generate(pl.Recipe(n, 3, mode, seeds=seed, engine=engine))
    for one in edits if ds.forest.n_latents else []:
        ds = edit(ds, *one)
    ds = ds.with_target(target)
    assert_same(pl.generate(pl.Recipe.from_json(ds.recipe.to_json()), threads=2), ds)
    assert_same(pl.generate(ds.filter(least).recipe), ds.filter(least))
    assert ds.modification is None


def test_edits_are_left_out_of_json_when_there_are_none():
    assert set(json.loads(made().recipe.to_json())) == {
        "n_points", "dim", "mode", "create_prob", "seeds", "engine", "min_cluster_size", "dtype",
    }  # fmt: skip
    after = made().do(z={3: 1}).move(2, by=[0, 1, 2, 3, 4]).move(5, by=2).turn(7, seed=2**64 - 1)
    after = after.shift(8, by=np.arange(5)).shift(9, by=2, seed=4)
    assert json.loads(after.recipe.to_json())["edits"] == [
        {"kind": "do", "z": [[3, 1.0]]},
        {"kind": "move", "latent": 2, "by": [0.0, 1.0, 2.0, 3.0, 4.0]},
        {"kind": "move", "latent": 5, "by": 2.0},
        {"kind": "turn", "latent": 7, "seed": 2**64 - 1},
        {"kind": "shift", "latent": 8, "by": [0.0, 1.0, 2.0, 3.0, 4.0]},
        {"kind": "shift", "latent": 9, "by": 2.0, "seed": 4},
    ]
    moved = Do({3: 1}), Move(2, range(5)), Move(5, 2), Turn(7, 2**64 - 1)
    assert after.recipe.edits == (*moved, Shift(8, range(5)), Shift(9, 2, 4))
    assert [str(edit) for edit in after.recipe.edits[-2:]] == ["shift:8=a vector", "shift:9=2@4"]
    assert hash(after.recipe) == hash(pl.Recipe.from_json(after.recipe.to_json()))
    assert "edits=(Do(z=((3, 1.0),), point_z=())" in repr(after.recipe)
    assert "edits" not in repr(made().recipe)


def test_a_filter_drops_the_edits_of_what_it_removes():
    ds = made(mode="distribution")
    least = int(ds.forest.cluster_size[3])
    kept = ds.filter(least)
    last, first_gone = kept.forest.n_latents - 1, kept.forest.n_latents
    after = ds.do(z={last: 1, first_gone: 2}, point_z={len(ds) - 1: 3}).do(z={first_gone: 4}).move(first_gone, by=1)
    after = after.shift(first_gone, by=1, seed=0).shift(last, by=1, seed=0)
    after = after.turn(first_gone, seed=1).turn(last, seed=2)
    assert after.filter(least).recipe.edits == (Do({last: 1}), Shift(last, 1, 0), Turn(last, 2))
    assert_same(pl.generate(after.filter(least).recipe), after.filter(least))
    np.testing.assert_array_equal(after.filter(least).X, after.X[: len(kept)])


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ds: ds.do(z={399: 1}), "latent must be below 399, got 399"),
        (lambda ds: ds.do(z={-1: 1}), "node of z must be at least 0, got -1"),
        (lambda ds: ds.do(z={"a": 1}), "node of z must be an integer, got 'a'"),
        (lambda ds: ds.do(z={1: float("nan")}), "z[1] must be a finite number, got nan"),
        (lambda ds: ds.do(z={1: "x"}), "z[1] must be a number, got 'x'"),
        (lambda ds: ds.do(point_z={400: 1}), "row must be below 400, got 400"),
        (lambda ds: ds.do(), "z or point_z must name at least one node, got none"),
        (lambda ds: ds.do(z=3), "z must map nodes to values, got 3"),
        (lambda ds: ds.do(z=np.zeros(2)), "z must map nodes to values, got array([0., 0.])"),
        (lambda ds: ds.move(399, by=1), "latent must be below 399, got 399"),
        (lambda ds: ds.move(-1, by=1), "latent must be at least 0, got -1"),
        (lambda ds: ds.move(1.5, by=1), "latent must be an integer, got 1.5"),
        (lambda ds: ds.move(0, by=[1, 2]), "by must have 5 numbers, one for each dimension, got 2"),
        (lambda ds: ds.move(0, by=float("inf")), "by must be a finite number, got inf"),
        (lambda ds: ds.move(0, by=-1), "by must not be -1, which would leave the bond without a direction"),
        (lambda ds: ds.move(0, by="far"), "by must be a number or a vector, got 'far'"),
        (lambda ds: ds.shift(399, by=1, seed=1), "latent must be below 399, got 399"),
        (lambda ds: ds.shift(0, by=[1, 2]), "by must have 5 numbers, one for each dimension, got 2"),
        (
            lambda ds: ds.shift(0, by=2),
            "seed must be given with a distance, whose direction is drawn from it, got None",
        ),
        (lambda ds: ds.shift(0, by=range(5), seed=3), "seed must be None if by is a vector, got 3"),
        (lambda ds: ds.shift(0, by="far", seed=3), "by must be a number or a vector, got 'far'"),
        (lambda ds: ds.turn(399, seed=1), "latent must be below 399, got 399"),
        (lambda ds: ds.turn(0, seed=-1), "seed must be at least 0, got -1"),
    ],
)
def test_bad_edits(call, message):
    with refused(message):
        call(made())


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([{"kind": "twist"}], "kind of an edit must be one of do, shift, move, turn, got 'twist'"),
        ([{"kind": "turn", "latent": 1}], "an edit of kind 'turn' must have its own fields, got latent"),
        ([{"kind": "do", "z": [[1, 2], [1, 3]]}], "z must name every node once, got one twice"),
        ([3], "edits must be a list of edits, got 3 in it"),
        (3, "edits must be a list of edits, got 3"),
        ([{"kind": "move", "latent": 1, "by": [1]}], "by must have 2 numbers, one for each dimension, got 1"),
    ],
)
def test_bad_recipes(edits, message):
    with refused(message):
        pl.Recipe(10, 2, edits=edits)


def test_what_cannot_follow_edits_refuses_them(tmp_path):
    with refused("engine must be 'native' to turn a latent, got 'paper'"):
        made(engine="paper").turn(0, seed=1)
    with refused("engine must be 'native' to turn a latent, got 'paper'"):
        pl.Recipe(10, 2, engine="paper", edits=[Turn(0, 1)])
    recipe = made().do(z={0: 1}).recipe
    with refused("edits must be empty to make a dataset in shards, got 1"):
        pl.generate_store(recipe, tmp_path / "ds.zarr", shards=2)
    with refused("edits must be empty to make a dataset in shards, got 1"):
        pl.generate_store(recipe, tmp_path / "ds.zarr", shards=2, runner="ray")
    assert not (tmp_path / "ds.zarr").exists()
    with refused("edits must be empty to make parts of a dataset, got 1"):
        pl.engines.cluster_table(recipe)
    with refused("latent must be below 399, got 5000"):
        pl.generate(dataclasses.replace(made().recipe, edits=[Move(5000, 1)]))


# ---------------------------------------------------------------------- on disk


def test_edited_datasets_survive_the_store(tmp_path):
    after = made().do(z={3: 1}).move(2, by=[0, 1, 2, 3, 4]).turn(7, seed=8).shift(9, by=2, seed=1)
    after.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr", verify=True)
    assert_same(loaded, after)
    assert_same(pl.generate(loaded.recipe), after)
    assert_same(loaded.move(1, by=1), after.move(1, by=1))
    with pytest.raises(FileExistsError, match=r"edits of the store .* must be \(\) to resume"):
        pl.generate_store(made().recipe, tmp_path / "ds.zarr", shards=1)


# ---------------------------------------------------------------------- datasets that are not their recipe's


def test_arrays_replaced_by_hand_are_not_passed_off(tmp_path):
    ds = made()
    assert ds.modification is None
    by_hand = dataclasses.replace(ds, y=ds.y + 1)
    assert by_hand.modification == "arrays replaced by hand"
    assert repr(by_hand).endswith(", modified)")
    assert "modified" not in repr(ds)
    by_hand.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr", verify=True)
    assert loaded.modification == loaded.provenance["modified"] == "arrays replaced by hand"
    np.testing.assert_array_equal(loaded.y, ds.y + 1)
    with pytest.raises(FileExistsError, match="must be as its recipe makes it to resume, got a modified one"):
        pl.generate_store(ds.recipe, tmp_path / "ds.zarr", shards=1)
    for dataset in (by_hand, loaded, by_hand.filter(2), loaded.in_memory()):
        assert dataset.modification == "arrays replaced by hand"
        assert summarise(dataset)["modified"] == "arrays replaced by hand"
    assert pl.Dataset(ds.recipe, ds.forest, ds.X, ds.y, ds.latent_z, ds.point_z, {}).modification is not None


def test_what_is_known_of_a_dataset_goes_with_it(tmp_path):
    ds = made()
    ds.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr")
    again = (pickle.loads(pickle.dumps(ds)), copy.copy(ds), copy.deepcopy(ds), loaded, loaded.in_memory(), ds.filter(2))
    for dataset in again:
        assert dataset.modification is None
    assert dataclasses.replace(loaded, X=ds.X).modification == "arrays replaced by hand"


def test_modified_datasets_say_so_wherever_they_are_shown(tmp_path):
    ds = dataclasses.replace(made(), y=made().y + 1)
    card(ds, tmp_path / "card.html")
    page = (tmp_path / "card.html").read_text()
    assert "modified: arrays replaced by hand" in page
    assert "Its recipe does not make it" in page
    assert "percolab generate" not in page
    text = io.StringIO()
    Console(file=text, width=120).print(table(summarise(ds), "ds"))
    assert "arrays replaced by hand: the recipe does not make this" in text.getvalue()
    exports.to_parquet(ds, tmp_path / "ds.parquet")
    told = json.loads(pq.read_schema(tmp_path / "ds.parquet/points.parquet").metadata[b"percolab.provenance"])
    assert told["modified"] == "arrays replaced by hand"


def test_the_card_of_an_edited_dataset_makes_it_again(tmp_path):
    ds = made().do(z={3: 1.5}).turn(4, seed=2)
    card(ds, tmp_path / "card.html")
    page = html.unescape((tmp_path / "card.html").read_text())
    assert "edits 1 do, 1 turn" in page
    assert "percolab generate --recipe recipe.json" in page
    (text,) = re.findall(r"<pre>({.*})</pre>", page)
    assert pl.Recipe.from_json(text) == ds.recipe


def test_edits_of_modified_datasets():
    ds = made()
    by_hand = dataclasses.replace(ds, X=ds.X * 2)
    after = by_hand.do(z={3: 1.0})
    np.testing.assert_array_equal(after.y, ds.do(z={3: 1.0}).y)
    assert after.modification == "arrays replaced by hand; values set by hand"
    assert after.recipe == ds.recipe
    with pytest.raises(ValueError, match="y must be what its target makes of z to follow new values, got one with"):
        dataclasses.replace(ds, y=ds.y + 1).do(z={3: 1.0})
    for call in (
        lambda: by_hand.move(0, by=1),
        lambda: by_hand.shift(0, by=1, seed=1),
        lambda: by_hand.turn(0, seed=1),
    ):
        with pytest.raises(ValueError, match="must be as its recipe makes it to be moved or turned, got arrays repl"):
            call()


# ---------------------------------------------------------------------- laws


def flagged(dataset):
    return {check.law for check in pl.verify(dataset).failures}


@lru_cache(maxsize=2)
def edited(engine):
    ds = made(6000, 8, "distribution", engine, seed=5)
    ds = ds.do(z={5: 200.0, 100: -90.0}, point_z={3: 50.0}).move(5, by=3.0).move(0, by=np.arange(8)).move(5, by=-2)
    ds = ds.shift(4, by=20.0, seed=1).move(6, by=0.5)
    return ds.turn(3, seed=7).turn(40, seed=2).move(15, by=1).shift(41, by=3.0, seed=2) if engine == "native" else ds


@pytest.mark.parametrize("engine", ["native", "paper"])
def test_edited_datasets_obey_the_laws(engine):
    outcome = pl.verify(edited(engine))
    assert outcome.passed, str(outcome)
    assert "3 that edits set are left out" in outcome["z is N(0, 1)"].note
    assert "moves taken back" in outcome["bond length"].note
    assert outcome["values set by edits"].verdict == "pass"
    if engine == "native":
        assert outcome["turned directions"].verdict == "pass"


def with_fields(ds, **fields):
    return dataclasses.replace(ds, **fields)


def test_a_wrong_target_after_do_is_caught():
    ds = edited("native")
    y = ds.y.copy()
    y[ds.forest.points_of(5)] -= 1e-3
    assert flagged(with_fields(ds, y=y)) == {"targets are sums of z"}
    stale = made(6000, 8, "distribution", "native", seed=5).y
    assert "targets are sums of z" in flagged(with_fields(ds, y=stale))


def test_a_value_that_was_not_set_is_caught():
    ds = edited("native")
    z = ds.latent_z.copy()
    z[100] = 1.0
    assert flagged(with_fields(ds, latent_z=z, y=pl.engines.targets(ds.forest, z, ds.point_z))) == {
        "values set by edits"
    }


def test_a_move_that_was_not_made_or_went_wrong_is_caught():
    ds = made(6000, 8, "distribution", seed=5)
    moved = ds.move(9, by=0.3)
    assert flagged(moved) == set()
    assert flagged(with_fields(moved, X=ds.X)) == {"bond length"}
    assert flagged(with_fields(ds, X=moved.X)) == {"bond length"}


def test_a_shift_that_was_not_made_or_went_wrong_is_caught():
    ds = made(6000, 8, "distribution", seed=5)
    shifted = ds.shift(9, by=0.3, seed=1)
    assert flagged(shifted) == set()
    assert flagged(with_fields(shifted, X=ds.X)) == {"bond length"}
    assert flagged(with_fields(shifted, X=ds.shift(9, by=0.3, seed=2).X)) == {"bond length"}
    assert flagged(with_fields(ds, X=shifted.X)) == {"bond length"}


POSITION_EDITS = st.one_of(
    st.tuples(st.just("move"), st.integers(0, 10**6), st.floats(-0.5, 4)),
    st.tuples(st.just("shift"), st.integers(0, 10**6), st.floats(0, 9), st.integers(0, 99)),
    st.tuples(st.just("turn"), st.integers(0, 10**6), st.integers(0, 99)),
)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 9), st.lists(POSITION_EDITS, min_size=2, max_size=8))
def test_shifts_moves_and_turns_in_any_order_are_taken_back(seed, edits):
    """After all that edits added is taken back, every bond of a small cluster has its length."""
    ds = made(14, 3, dtype="float64", seed=seed)
    for one in edits:
        ds = edit(ds, *one)
    subject = Subject(ds)
    X = np.array(subject.part.X)
    steps = np.linalg.norm(X[ds.forest.bond[:, 1]] - X[ds.forest.bond[:, 0]], axis=1)
    np.testing.assert_allclose(steps, ds.recipe.step * np.sqrt(3), rtol=1e-5)


def outside(ds, after, latent):
    """Return which rows outside a latent an edit of it moved."""
    rows = ds.forest.points_of(latent)
    moved = np.flatnonzero((after.X != ds.X).any(axis=1))
    return moved[(moved < rows.start) | (moved >= rows.stop)]


@pytest.mark.parametrize("make", [lambda ds, i: ds.move(i, by=0.3), lambda ds, i: ds.turn(i, seed=3)])
def test_an_edit_that_leaves_behind_what_hangs_on_it_is_caught(make):
    ds = made(6000, 8, "distribution", seed=5)
    after, left_behind = next(
        (after, rows)
        for latent in range(20, 200)
        if (rows := outside(ds, after := make(ds, latent), latent)).size > 0 and ds.forest.latent_size[latent] < 50
    )
    X = after.X.copy()
    X[left_behind] = ds.X[left_behind]
    assert {"bond length"} <= flagged(with_fields(after, X=X)) <= {"bond length", "turned directions"}


def test_a_turn_that_was_not_made_or_from_another_seed_is_caught():
    ds = made(6000, 8, "distribution", seed=5)
    turned = ds.turn(2, seed=3).turn(9, seed=4).move(12, by=2.0)
    assert flagged(turned) == set()
    for other in (ds, ds.turn(2, seed=3).turn(9, seed=5)):  # the bond that moves has another direction in these
        found = flagged(with_fields(turned, X=other.move(12, by=2.0).X))
        assert {"turned directions"} <= found <= {"turned directions", "bond length"}


def test_edits_out_of_range_are_caught():
    ds = made(engine="native")
    broken = with_fields(ds, recipe=dataclasses.replace(ds.recipe, edits=[Turn(5000, 1)]))
    assert flagged(broken) == {"data model"}
