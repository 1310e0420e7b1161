"""Superposed worlds: against the definition in plain NumPy, to the bit where it says so, and refused in one line."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import percolab as pl
from percolab.checks import factors as laws
from percolab.rng import philox
from percolab.worlds import generation, rotations, samples
from percolab.worlds.superposition import recipe_from_dict

FOREST = tuple(field.name for field in fields(pl.Forest))


def clusters(*sizes, dim=6, **how):
    return [pl.Recipe(n, dim, "one_cluster", seeds=seed, **how) for seed, n in enumerate(sizes)]


def small(**how):
    return pl.superpose(clusters(400, 150, 700), seed=5, **how)


# ---------------------------------------------------------------------- the definition, plainly


def keyed_permutation(length, factor, block, seed):
    """Return the rows of a block by Fisher and Yates, one draw at a time, in Python's integers."""
    order = list(range(length))
    for t, i in enumerate(range(length - 1, 0, -1)):
        words = philox.block(samples.node(factor, block), t // 2, philox.WORLD_ROWS, np.uint64(seed))
        j = int(words[t % 2]) * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return order


def expected_rows(recipe, lengths):
    n = lengths[0]
    columns = [np.arange(n)]
    for k, length in enumerate(lengths[1:], 1):
        blocks = [keyed_permutation(length, k, b, recipe.seed) for b in range(-(-n // length))]
        columns.append(np.concatenate(blocks)[:n])
    return np.array(columns).T


def expected_world(recipe):
    """Return rows, X and y from the definition, in double precision."""
    factors = [pl.generate(factor) for factor in recipe.factors]
    rows = expected_rows(recipe, [len(factor) for factor in factors])
    X, y = np.zeros((len(rows), recipe.dim)), None
    for k, factor in enumerate(factors):
        positions = factor.X.astype(np.float64)
        sigma = np.sqrt(positions.var(axis=0).mean())
        Q = expected_rotation(recipe, k) if recipe.rotate else np.eye(recipe.dim)
        X += recipe.scales[k] / sigma * positions[rows[:, k]] @ Q.T
    values = [factor.y[rows[:, k]] for k, factor in enumerate(factors)]
    if recipe.product:
        y = values[recipe.product[0]] * values[recipe.product[1]]
    else:
        terms = [weight * value for weight, value in zip(recipe.weights, values, strict=True) if weight]
        y = sum(terms[1:], terms[0])
    return rows, X, y


def expected_rotation(recipe, k):
    """Return Q_k from its small rotations, column by column of a grid of 4 rows, one vector at a time."""
    d, D = recipe.factors[k].dim, recipe.dim
    small_ones = rotations.Rotation.draw(k, d, D, recipe.seed).columns
    ways, count = small_ones.shape[2], small_ones.shape[1]
    Q = np.empty((D, d))
    for axis in range(d):
        vector = np.zeros(max(d, D))
        vector[axis] = 1
        for round_ in small_ones:
            rest, turned = vector[ways * count :], []
            for c in range(count):
                turned.extend(round_[c] @ vector[c : ways * count : count])
            vector = np.concatenate([rest, turned])
        Q[:, axis] = vector[:D]
    return Q * max(1, d / D) ** 0.5


@st.composite
def superpositions(draw):
    count = draw(st.integers(1, 3))
    same = draw(st.booleans())
    dim = draw(st.integers(2, 9))
    factors = [
        pl.Recipe(
            draw(st.integers(2, 90)),
            dim if same else draw(st.integers(2, 9)),
            draw(st.sampled_from(["one_cluster", "distribution"])),
            seeds=draw(st.integers(0, 2**40)),
            engine=draw(st.sampled_from(["native", "paper"])),
            dtype=draw(st.sampled_from(["float32", "float64"])),
        )
        for _ in range(count)
    ]
    numbers = st.lists(st.floats(-3, 3), min_size=count, max_size=count).filter(any)
    product = draw(st.booleans()) if count > 1 else False
    return pl.Superposition(
        factors,
        weights=None if product else draw(st.none() | numbers),
        product=draw(st.permutations(range(count)))[:2] if product else None,
        scales=draw(st.none() | numbers.map(lambda scales: [abs(scale) for scale in scales])),
        dim=None if same else draw(st.integers(1, 20)),
        rotate=draw(st.none() | st.just(True)),
        seed=draw(st.integers(0, 2**64 - 1)),
    )


@given(superpositions())
@settings(max_examples=80, deadline=None)
@pytest.mark.slow
def test_every_world_is_its_definition(recipe):
    before = repr(np.random.get_state(legacy=False))  # noqa: NPY002
    world = pl.generate(recipe, threads=1)
    assert repr(np.random.get_state(legacy=False)) == before  # noqa: NPY002
    rows, X, y = expected_world(recipe)
    assert np.array_equal(world.rows, rows)
    assert world.X.dtype == recipe.dtype
    tolerance = 3e-5 if "float32" in {factor.dtype for factor in recipe.factors} else 1e-12
    np.testing.assert_allclose(world.X, X, atol=tolerance * max(1, np.abs(X).max()))
    assert world.y.tobytes() == y.tobytes()
    again = pl.generate(pl.Superposition.from_json(recipe.to_json()), threads=3)
    assert again.X.tobytes() == world.X.tobytes()
    assert again.y.tobytes() == world.y.tobytes()


def test_threads_do_not_matter():
    recipe = pl.Superposition(clusters(30_000, 9_000, dim=12), dim=10, seed=1)
    worlds = [pl.generate(recipe, threads=threads) for threads in (1, 2, 5)]
    for world in worlds[1:]:
        for name in ("X", "y", "rows", "sigma"):
            assert getattr(world, name).tobytes() == getattr(worlds[0], name).tobytes()


# ---------------------------------------------------------------------- one factor, swaps, lengths


@pytest.mark.parametrize("mode", ["one_cluster", "distribution"])
@pytest.mark.parametrize("engine", ["native", "paper"])
def test_one_factor_gives_its_dataset(mode, engine):
    recipe = pl.Recipe(500, 7, mode, seeds=3, engine=engine)
    ds, world = pl.generate(recipe), pl.superpose([recipe], seed=8)
    assert np.array_equal(world.rows, np.arange(500)[:, None])
    assert world.y.tobytes() == ds.y.tobytes()
    for name in FOREST:
        assert np.array_equal(getattr(world.forest, name), getattr(ds.forest, name))
    assert world.latent_z.tobytes() == ds.latent_z.tobytes()
    assert world.point_z.tobytes() == ds.point_z.tobytes()
    assert np.array_equal(world.release_order, ds.release_order)
    scaled = ds.X.astype(np.float64) / np.sqrt(ds.X.astype(np.float64).var(axis=0).mean())
    np.testing.assert_allclose(world.X, scaled, rtol=1e-6 if ds.X.dtype == np.float32 else 1e-14)


def test_swapping_changes_y_and_nothing_else():
    world = small(weights=[0.5, 2, 0])
    for k in range(3):
        other = world.swapped(k)
        assert other.y.tobytes() == world.factors[k].y[world.rows[:, k]].tobytes()
        assert other.X is world.X
        assert other.rows is world.rows
        assert other.factors is world.factors
        assert other.relevant == (k,)
        assert other.recipe == replace(world.recipe, weights=[float(k == j) for j in range(3)])
        assert pl.generate(other.recipe).X.tobytes() == world.X.tobytes()
        assert pl.generate(other.recipe).y.tobytes() == other.y.tobytes()
    product = small(product=(2, 0))
    assert product.weights is None
    assert product.relevant == (0, 2)
    assert product.swapped(1).y.tobytes() == world.swapped(1).y.tobytes()


def test_weights_do_not_touch_positions():
    assert small(weights=[1, 0, 0]).X.tobytes() == small(product=(0, 1)).X.tobytes()
    assert small(weights=[0, 1, 0]).relevant == (1,)


def test_each_block_of_samples_has_every_row_once():
    world = small()
    short, long = world.rows[:, 1], world.rows[:, 2]
    assert sorted(short[:150]) == sorted(short[150:300]) == list(range(150))
    assert not np.array_equal(short[:150], short[150:300])
    assert len(set(short[300:])) == 100
    assert len(set(long)) == 400
    assert long.max() < 700
    other = pl.superpose(clusters(400, 150, 700), seed=6)
    assert not np.array_equal(other.rows[:, 1], short)
    longer = pl.superpose(clusters(500, 150, 700), seed=5)
    assert np.array_equal(longer.rows[:400], world.rows)


def test_permutations_are_uniform():
    found = np.empty((24_000, 4), np.int64)
    for block, order in enumerate(found):
        samples.shuffle(order, samples.node(1, block), philox.WORLD_ROWS, np.uint64(9))
    counts = np.unique(found @ 4 ** np.arange(4), return_counts=True)[1]
    assert counts.size == 24
    assert np.sum((counts - 1000) ** 2 / 1000) < 60  # chi-square of 23 degrees of freedom: 1 in 30,000 is above


def test_a_filter_shortens_a_factor():
    kept = pl.Recipe(3000, 5, seeds=2, min_cluster_size=20)
    n = len(pl.generate(kept))
    world = pl.superpose([kept, pl.Recipe(100, 5, seeds=4)], seed=0)
    assert len(world) == n
    assert sorted(world.rows[:100, 1]) == list(range(100))


# ---------------------------------------------------------------------- rotations


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8, 16, 17, 33, 64])
@pytest.mark.parametrize("D", [1, 2, 3, 4, 7, 16, 30, 64, 67])
def test_rotations_are_orthonormal_and_dense(d, D):
    Q = rotations.Rotation.draw(1, d, D, 12).matrix()
    products = Q.T @ Q if d <= D else Q @ Q.T * (D / d)
    assert np.abs(products - np.eye(min(d, D))).max() < 1e-14
    assert (Q != 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "D"), [(2, 2), (3, 2), (5, 1), (7, 9), (16, 16), (64, 64), (70, 33), (33, 70)])
def test_turning_is_multiplying_with_the_matrix(d, D, dtype):
    rotation = rotations.Rotation.draw(0, d, D, 3)
    source = np.random.default_rng(d).normal(size=(23, d)).astype(dtype)
    rows = np.random.default_rng(D).integers(23, size=29)
    X = np.full((29, D), np.nan, dtype)
    samples.add_factor(source, rows, 2.0, rotation, X, fresh=True, threads=1)
    expected = 2 * source[rows].astype(np.float64) @ rotation.matrix().T
    np.testing.assert_allclose(X, expected, atol=2e-5 if dtype == np.float32 else 1e-13)
    samples.add_factor(source, rows, 1.0, rotation, X, fresh=False, threads=2)
    np.testing.assert_allclose(X, 1.5 * expected, atol=3e-5 if dtype == np.float32 else 1e-13)


def test_lengths_are_kept_in_the_mean():
    vector = np.random.default_rng(0).normal(size=24)
    for D in (3, 16, 40):
        lengths = [np.sum((rotations.Rotation.draw(0, 24, D, seed).matrix() @ vector) ** 2) for seed in range(3000)]
        mean, error = np.mean(lengths) / (vector @ vector), np.std(lengths) / (vector @ vector) / 3000**0.5
        assert abs(mean - 1) < 4 * error + 1e-12


def test_rotated_entries_have_the_moments_of_a_uniform_rotation():
    Q = np.array([rotations.Rotation.draw(0, 16, 16, seed).matrix() for seed in range(4000)])
    error = np.std(Q**2, axis=0) / 4000**0.5
    assert np.abs(Q.mean(axis=0)).max() < 5 * 0.25 / 4000**0.5
    assert (np.abs((Q**2).mean(axis=0) - 1 / 16) < 5 * error).all()


def test_factors_may_overlap_in_few_dimensions():
    factors = [*clusters(300, 300, dim=16), pl.Recipe(300, 5, seeds=9)]
    world = pl.superpose(factors, dim=12, seed=2)
    assert world.recipe.rotate
    assert world.X.shape == (300, 12)
    assert [world.rotation(k).shape for k in range(3)] == [(12, 16), (12, 16), (12, 5)]
    assert not np.allclose(world.rotation(0), world.rotation(1))
    assert np.array_equal(small().rotation(2), np.eye(6))


def test_spread_is_the_mean_variance_of_columns():
    X = np.random.default_rng(1).normal(size=(9001, 5)) * [1, 2, 3, 4, 5] + 1e4
    assert samples.spread(X, 2) == pytest.approx(np.sqrt(X.var(axis=0).mean()), rel=1e-12)
    assert samples.spread(X, 1) == samples.spread(X, 3)


BYTES = """
import hashlib
import numpy as np
from percolab.worlds import samples
from percolab.worlds.rotations import Rotation
found = hashlib.sha256()
for dtype in (np.float32, np.float64):
    for d, D in ((7, 7), (64, 64), (30, 11), (11, 30)):
        source = (np.arange(5000 * d) * 2654435761 % 1000003).reshape(-1, d).astype(dtype) / dtype(7)
        rows, X = np.empty(6000, np.int64), np.empty((6000, D), dtype)
        samples.fill_rows(1, 5000, 3, 1, rows)
        sigma = samples.spread(source, 1)
        rotation = Rotation.draw(1, d, D, 4)
        samples.add_factor(source, rows, 1 / sigma, rotation, X, fresh=True, threads=1)
        samples.add_factor(source, rows, 0.3, rotation, X, fresh=False, threads=1)
        for part in (rows, X, rotation.columns, np.float64(sigma)):
            found.update(part.tobytes())
print(found.hexdigest())
"""
GOLDEN = "570de96cbed3e5073898d919cc2a8ab253c837a4405b7d58787e4a6011d24f8d"
"""What version 1 of worlds prints there: rows, rotations and sums must never change."""


def test_worlds_are_those_of_version_1(capsys):
    assert generation.VERSION == 1
    exec(BYTES, {})
    assert capsys.readouterr().out.strip() == GOLDEN


@pytest.mark.slow
def test_the_same_bytes_on_every_machine(tmp_path):
    found = []
    for name, features in {"generic": "", "haswell": "+sse4.2,+avx,+avx2,+fma"}.items():
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / name)}
        environment |= {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
        run = subprocess.run([sys.executable, "-c", BYTES], capture_output=True, text=True, check=True, env=environment)
        found.append(run.stdout.strip())
    assert found == [GOLDEN] * 2


# ---------------------------------------------------------------------- truth


def test_factors_keep_their_truth_and_make_their_positions_again():
    world = small()
    for factor, recipe in zip(world.factors, world.recipe.factors, strict=True):
        ds = pl.generate(recipe)
        assert repr(factor) == repr(ds)
        assert factor.forest.equals(ds.forest)
        assert factor.y.tobytes() == ds.y.tobytes()
        assert factor.X.shape == ds.X.shape
        assert factor.X.nbytes == ds.X.nbytes
        assert factor.X[5:9].tobytes() == ds.X[5:9].tobytes()
        assert factor.in_memory().X.tobytes() == ds.X.tobytes()
        assert np.array_equal(np.asarray(factor.X, np.float64), ds.X)


def test_truth_of_a_factor_follows_the_samples():
    world = small()
    behind = pl.truth(world, 1)
    assert behind.forest is world.factors[1].forest
    assert np.array_equal(behind.rows, world.rows[:, 1])
    assert behind.y is world.factors[1].y
    members = behind.forest.membership()[behind.rows]
    for latent in (0, 3, 40):
        assert np.array_equal(behind.samples_of(latent), members[:, [latent]].nonzero()[0])
    assert np.array_equal(behind.latent_at_depth(2), behind.forest.latent_at_depth(2)[world.rows[:, 1]])
    assert not behind.in_order
    assert pl.truth(world, 0).in_order


def test_truth_of_a_dataset_is_in_its_own_order():
    ds = pl.generate(pl.Recipe(60, 4, seeds=1))
    behind = pl.truth(ds)
    assert behind.forest is ds.forest
    assert behind.latent_z is ds.latent_z
    assert behind.in_order
    assert np.array_equal(behind.samples_of(0), np.arange(60)[ds.forest.points_of(0)])
    assert pl.truth(pl.superpose([ds.recipe])).rows.tolist() == list(range(60))


def test_a_world_changed_by_hand_says_so(tmp_path):
    world = small()
    for same in (world, world.swapped(1), world.in_memory()):
        assert same.modification is None
    changed = replace(world, y=-world.y)
    assert changed.modification == changed.swapped(1).modification == "arrays replaced by hand"
    assert repr(changed).endswith("y from 0 and 1 and 2, modified)")
    changed.save(tmp_path / "changed.zarr")
    found = pl.load(tmp_path / "changed.zarr")
    assert found.modification == found.swapped(1).modification == "arrays replaced by hand"


def test_labels_are_not_added():
    first, second = clusters(5, 5)
    recipes = [replace(first, target=pl.Target("classes", n_groups=2)), second]
    assert (
        pl.superpose(recipes, weights=[1, 0], seed=1).y.dtype == pl.Superposition(recipes, [1, 0]).y_dtype == np.int64
    )
    for how in ({"weights": [1, 1]}, {"weights": [2, 0]}, {"product": (1, 0)}):
        with pytest.raises(
            ValueError, match=r"^targets of factor 0 must be numbers to be added or multiplied, got labels$"
        ):
            pl.Superposition(recipes, **how)


def test_a_world_reads_as_a_dataset():
    world = small(weights=[0, 1, 1])
    assert len(world) == 400
    assert repr(world) == "Superposed(400 samples in R^6, 3 factors, y from 1 and 2)"
    assert sorted(world.release_order) == list(range(400))
    assert world.provenance["engine_version"] == generation.VERSION
    assert world.in_memory().X.tobytes() == world.X.tobytes()


# ---------------------------------------------------------------------- recipes


def test_json_round_trip():
    for recipe in (
        pl.PRESETS["superposed-4"],
        pl.Superposition(clusters(10, 20), product=(1, 0), scales=[1, 0.5], seed=2**63),
        pl.Superposition([pl.Recipe(9, 3, seeds=1), pl.Recipe(9, 4, seeds=2)], [0, 1.5], dim=3),
    ):
        assert pl.Superposition.from_json(recipe.to_json()) == recipe
        assert recipe_from_dict(json.loads(recipe.to_json())) == recipe
        assert hash(recipe) == hash(replace(recipe))
    plain = pl.Recipe(9, 3, seeds=1)
    assert recipe_from_dict(plain.to_dict()) == plain


def test_what_is_left_out_is_filled_in():
    recipe = pl.Superposition(clusters(5, 6))
    assert (recipe.weights, recipe.scales, recipe.dim, recipe.rotate) == ((1.0, 1.0), (1.0, 1.0), 6, False)
    assert recipe.seed != pl.Superposition(clusters(5, 6)).seed
    assert pl.Superposition(clusters(5, 6), dim=6).rotate is False
    assert pl.Superposition(clusters(5, 6), dim=7).rotate is True
    assert pl.Superposition(clusters(5, 6, dtype="float64")).dtype == "float64"
    assert pl.Superposition([*clusters(5), pl.Recipe(5, 6, dtype="float64")]).dtype == "float64"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"factors": []}, "factors must have at least one recipe, got none"),
        ({"factors": pl.Recipe(5, 3, seeds=0)}, r"factors must be a list of recipes, got Recipe\(.*"),
        ({"factors": 3}, "factors must be a list of recipes, got 3"),
        ({"factors": "superposed-2"}, "factors must be a list of recipes, got 'superposed-2'"),
        (
            {"factors": [pl.PRESETS["superposed-2"]]},
            r"factors must be recipes of one dataset each, got Superposition.*",
        ),
        ({"factors": [3]}, "factors must be recipes of one dataset each, got 3"),
        ({"factors": [[3], [4]]}, r"factors must be .*, got \[3\]: name them one by one, or all in one list"),
        ({"weights": [1]}, r"weights must be 2 numbers, one for each factor, got \[1\]"),
        ({"weights": 1}, "weights must be 2 numbers, one for each factor, got 1"),
        ({"weights": [1, float("nan")]}, "weights must be a finite number, got nan"),
        ({"weights": [1, "two"]}, "weights must be a number, got 'two'"),
        ({"weights": [1, True]}, "weights must be a number, got True"),
        ({"weights": [0, 0]}, r"weights must have one that is not 0, got \(0.0, 0.0\)"),
        ({"scales": [1, 1, 1]}, r"scales must be 2 numbers, one for each factor, got \[1, 1, 1\]"),
        ({"scales": [1, -2]}, "scales must be a number of at least 0, got -2"),
        ({"product": (0, 1), "weights": [1, 1]}, r"weights must be left out with a product, got \[1, 1\]"),
        ({"product": (0,)}, r"product must name two factors, got \(0,\)"),
        ({"product": 1}, "product must name two factors, got 1"),
        ({"product": (0, 2)}, r"product must name two different factors out of 2, got \(0, 2\)"),
        ({"product": (1, 1)}, r"product must name two different factors out of 2, got \(1, 1\)"),
        ({"product": (0, -1)}, "product must be at least 0, got -1"),
        ({"product": "ab"}, "product must name two factors, got 'ab'"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"dim": 9, "rotate": False}, "rotate must be True to put factors of 6 dimensions into 9, got False"),
        ({"rotate": "yes"}, "rotate must be True, False or None, got 'yes'"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 2**64}, r"seed must be below 2\*\*64, got 18446744073709551616"),
    ],
)
def test_bad_fields(fields, message):
    for make in (pl.Superposition, pl.superpose):
        if make is pl.superpose and isinstance(fields.get("factors"), pl.Recipe | str):
            continue  # it takes one factor as it is
        with pytest.raises(ValueError, match=f"^{message}$"):
            make(**{"factors": clusters(10, 20), **fields})


def test_factors_come_one_by_one_or_in_a_list_as_recipes_or_datasets():
    first, second = clusters(30, 20)
    world = pl.superpose([first, second], weights=(1, 0), seed=3)
    made = pl.generate(second)
    for again in (
        pl.superpose(first, second, weights=(1, 0), seed=3),
        pl.superpose(first, made, weights=(1, 0), seed=3),
        pl.superpose(iter([pl.generate(first), made]), weights=(1, 0), seed=3),
    ):
        assert again.recipe == world.recipe
        assert np.array_equal(again.X, world.X)
    assert pl.superpose(made, seed=1).recipe == pl.superpose([second], seed=1).recipe
    with pytest.raises(ValueError, match=r"^factors must be as their recipes make them, got 5 of 20 rows taken$"):
        pl.superpose(first, made.take(range(5)))


def test_factors_of_different_dimensions_need_a_rotation():
    factors = [pl.Recipe(9, 3, seeds=0), pl.Recipe(9, 8, seeds=1)]
    with pytest.raises(ValueError, match=r"^dim must be given where factors have different dimensions, got 3 and 8$"):
        pl.superpose(factors)
    with pytest.raises(
        ValueError, match=r"^rotate must be True to put factors of 3 and 8 dimensions into 8, got False$"
    ):
        pl.superpose(factors, dim=8, rotate=False)


def test_bad_json():
    good = pl.Superposition(clusters(10, 20), seed=1).to_dict()
    for change, message in (
        ({"colour": 1}, "a superposition has no field 'colour'"),
        ({"kind": "tower"}, "kind must be 'superposed', got 'tower'"),
        ({"factors": [1]}, r"factors must be a list of recipes, got \[1\]"),
        ({"factors": None}, "factors must be a list of recipes, got None"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            recipe_from_dict({**good, **change})


def test_a_factor_must_be_chosen_and_known():
    world = small()
    for name in ("forest", "latent_z", "point_z"):
        with pytest.raises(ValueError, match=f"^{name} must be that of a chosen factor where there are 3: take"):
            getattr(world, name)
    with pytest.raises(ValueError, match=r"^factor must be given where there are 3, got None$"):
        pl.truth(world)
    for call in (world.swapped, world.rotation, lambda k: pl.truth(world, k)):
        with pytest.raises(ValueError, match=r"^factor must be between 0 and 2, got 3$"):
            call(3)
        with pytest.raises(ValueError, match=r"^factor must be at least 0, got -1$"):
            call(-1)
        with pytest.raises(ValueError, match=r"^factor must be an integer, got 'a'$"):
            call("a")
    with pytest.raises(ValueError, match=r"^factor must be 0 or left out for a dataset of one hierarchy, got 1$"):
        pl.truth(world.factors[0], 1)


def test_factors_without_extent_are_refused():
    with pytest.raises(ValueError, match=r"^factor 1 must have points at two places or more, got 1 of them$"):
        pl.superpose(clusters(10, 1))
    empty = pl.Recipe(10, 6, seeds=2, min_cluster_size=100)
    with pytest.raises(ValueError, match=r"^factor 0 must have points at two places or more, got 0 of them$"):
        pl.superpose([empty, *clusters(10)])


def test_too_large_for_memory_is_refused_before_work_starts():
    with pytest.raises(
        MemoryError, match=r"^factors must fit in memory: 2 of 10,000,000,000 points or less need about"
    ):
        pl.superpose(clusters(10**10, 5))


def test_worlds_are_not_made_in_parts(tmp_path):
    recipe = pl.Superposition(clusters(10, 20))
    with pytest.raises(
        ValueError, match=r"^recipe must be that of one dataset to be made in shards, got Superposition"
    ):
        pl.generate_store(recipe, tmp_path / "world.zarr", shards=2)
    with pytest.raises(
        ValueError, match=r"^recipe.engine must be 'native' to make parts of a dataset, got 'superposed'$"
    ):
        pl.engines.cluster_table(recipe)


# ---------------------------------------------------------------------- presets and progress


def test_presets():
    two, four = pl.PRESETS["superposed-2"], pl.PRESETS["superposed-4"]
    assert [(f.n_points, f.dim, f.mode, f.engine) for f in two.factors] == [(100_000, 32, "one_cluster", "native")] * 2
    assert [(f.n_points, f.dim, f.mode, f.engine) for f in four.factors] == [(200_000, 64, "one_cluster", "native")] * 4
    assert (two.dim, two.rotate, two.weights) == (32, False, (1.0, 1.0))
    assert (four.dim, four.rotate, four.weights) == (64, True, (1.0,) * 4)
    assert len({f.seeds for f in four.factors}) == 4
    world = pl.generate("superposed-2")
    assert world.X.shape == (100_000, 32)
    with pytest.raises(
        ValueError, match=r"recipe must be one of paper-one-cluster, .*superposed-4, got 'superposed-3'"
    ):
        pl.generate("superposed-3")
    with pytest.raises(ValueError, match=r"factors must be one of paper-one-cluster, .*, got 'one'"):
        pl.superpose(["one"])


def test_progress_reports_every_stage_to_its_end():
    seen = {}
    pl.superpose(clusters(20_000, 9000), progress=lambda stage, done, total: seen.update({stage: (done, total)}))
    assert {"positions 1/2", "positions 2/2", "sum"} <= set(seen)
    for done, total in seen.values():
        assert done == total


PEAK = """
import re, sys, percolab as pl
from percolab.ground import memory
how = dict(rotate=sys.argv[1] == "rotate", seed=0)
pl.superpose([pl.Recipe(5000, 32, "one_cluster", seeds=s) for s in range(2)], **how)
before = memory.peak()
world = pl.superpose([pl.Recipe(1_000_000, 32, "one_cluster", seeds=s) for s in range(2)], **how)
returned = world.X.nbytes + world.y.nbytes + world.rows.nbytes
columns = "point_id", "left_size", "bond", "cluster_start", "cluster_id"
for f in world.factors:
    returned += f.y.nbytes + f.latent_z.nbytes + f.point_z.nbytes
    returned += sum(getattr(f.forest, column).nbytes for column in columns)
print(memory.peak() - before, returned, world.X.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("how", ["added", "rotate"])
def test_peak_memory_is_what_is_returned_and_the_positions_of_one_factor(how):
    run = subprocess.run([sys.executable, "-c", PEAK, how], capture_output=True, text=True, check=True)
    taken, returned, positions = map(int, run.stdout.split())
    assert taken < returned + positions + (16 << 20)  # what threads and blocks take, whatever the number of rows


# ---------------------------------------------------------------------- on disk


@pytest.mark.slow
def test_save_and_load(tmp_path):
    for world in (fair(), small(product=(1, 2)), small().swapped(1), pl.superpose(clusters(30), seed=1)):
        world.save(tmp_path / "world.zarr", overwrite=True)
        found = pl.load(tmp_path / "world.zarr", verify=True)
        assert found.recipe == world.recipe
        assert repr(found) == repr(world)
        assert found.X[3:9].tobytes() == world.X[3:9].tobytes()
        assert found.in_memory().X.tobytes() == world.X.tobytes()
        for name in ("y", "sigma"):
            assert getattr(found, name).tobytes() == getattr(world, name).tobytes()
        assert np.array_equal(found.rows, world.rows)
        assert found.rows[:, -1].flags.c_contiguous
        assert found.swapped(0).y.tobytes() == world.swapped(0).y.tobytes()
        for ours, theirs in zip(found.factors, world.factors, strict=True):
            assert ours.recipe == theirs.recipe
            assert ours.provenance == theirs.provenance
            assert repr(ours) == repr(theirs)
            assert ours.forest.equals(theirs.forest)
            for name in ("y", "latent_z", "point_z"):
                assert getattr(ours, name).tobytes() == getattr(theirs, name).tobytes()
            assert ours.X[:].tobytes() == np.asarray(theirs.X).tobytes()
        assert {**world.provenance, "loaded_from": str(tmp_path / "world.zarr")} == found.provenance
        assert flagged(found) == set()
    assert [path.name for path in tmp_path.iterdir()] == ["world.zarr"]


def test_loading_a_dataset_is_as_before(tmp_path):
    ds = pl.generate(pl.Recipe(50, 3, seeds=1))
    ds.save(tmp_path / "ds.zarr")
    assert isinstance(pl.load(tmp_path / "ds.zarr"), pl.Dataset)


def test_saving_replaces_nothing_unless_told(tmp_path):
    world = small()
    world.save(tmp_path / "world.zarr")
    with pytest.raises(FileExistsError, match=r"^output must not exist unless overwrite is given, got '.*'$"):
        world.save(tmp_path / "world.zarr")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"^output must be a percolab dataset to be overwritten, got '.*'$"):
        world.save(tmp_path / "notes.txt", overwrite=True)
    world.factors[0].save(tmp_path / "world.zarr", overwrite=True)
    assert isinstance(pl.load(tmp_path / "world.zarr"), pl.Dataset)


def test_damage_is_named(tmp_path):
    place = tmp_path / "world.zarr"
    small().save(place)
    group = zarr.open_group(place, mode="r+")
    group["factors/1/point_z"][7] = 0.5
    with pytest.raises(pl.StoreError, match=r"^array factors/1/point_z does not match its digest in rows 0 to 149$"):
        pl.load(place, verify=True)
    pl.load(place)
    del group["rows"]
    with pytest.raises(pl.StoreError, match=r"is damaged: array rows is missing$"):
        pl.load(place)
    said = dict(group.attrs["percolab"])
    for change, message in (
        ({"recipe": {**said["recipe"], "weights": [1]}}, "has a damaged recipe: weights must be 3 numbers"),
        ({"recipe": {"kind": "superposed"}}, "has a damaged recipe: factors must be a list of recipes, got None"),
        (
            {"status": "writing"},
            "is not a dataset but an unfinished write: run the same command again to resume, or delete it",
        ),
        ({"format": 99}, "has format 99; this version of percolab reads 1"),
    ):
        group.attrs["percolab"] = {**said, **change}
        with pytest.raises(pl.StoreError, match=message):
            pl.load(place)


def test_a_save_that_fails_leaves_what_was_there(tmp_path):
    world = small()
    world.save(tmp_path / "world.zarr")
    broken = replace(world, y=np.array([object()] * len(world)))
    with pytest.raises(KeyError):
        broken.save(tmp_path / "world.zarr", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["world.zarr"]
    pl.load(tmp_path / "world.zarr", verify=True)


# ---------------------------------------------------------------------- laws, and faults that break them


def flagged(world):
    return {check.law for check in laws.checks(world) if check.failed}


def rebuilt(world, rows=None, sigma=None, rotation=None):
    """Return a world whose X and y follow from other rows, scales or rotations than its recipe's."""
    rows = world.rows if rows is None else rows
    sigma = world.sigma if sigma is None else sigma
    rotate = rotation or (lambda k: world.rotation(k))
    recipe = world.recipe
    X = sum(
        recipe.scales[k] / sigma[k] * np.asarray(factor.X, float)[rows[:, k]] @ rotate(k).T
        for k, factor in enumerate(world.factors)
    )
    y = sum(recipe.weights[k] * factor.y[rows[:, k]] for k, factor in enumerate(world.factors))
    made = replace(world, X=X.astype(recipe.dtype), y=y, rows=rows, sigma=sigma)
    object.__setattr__(made, "rotation", rotate)
    return made


def fair(**how):
    return pl.superpose(clusters(3000, 1000, 5000), seed=4, **{"dim": 5, **how})


def test_correct_worlds_pass():
    for world in (fair(), fair(dim=None), fair(product=(0, 2)), rebuilt(fair())):
        assert flagged(world) == set()
        assert all(check.verdict == "pass" for check in laws.checks(world))
    assert flagged(fair(dim=None).swapped(1)) == set()
    assert flagged(pl.superpose(clusters(40, 7))) == set()


def test_rows_that_repeat_are_flagged():
    world = fair()
    rows = world.rows.copy()
    rows[17, 1] = rows[18, 1]
    assert flagged(rebuilt(world, rows=rows)) == {"rows of factors"}
    rows = world.rows.copy()
    rows[[3, 4], 0] = [4, 3]
    assert flagged(rebuilt(world, rows=rows)) == {"rows of factors"}


def test_rows_outside_a_factor_are_flagged():
    world = fair()
    rows = world.rows.copy()
    rows[5, 1] = 1000
    assert flagged(replace(world, rows=rows)) == {"data model"}


def test_a_wrong_target_is_flagged():
    world = fair()
    y = world.y.copy()
    y[100] = np.nextafter(y[100], np.inf)
    assert flagged(replace(world, y=y)) == {"y of factors"}
    assert flagged(replace(world, y=world.swapped(1).y)) == {"y of factors"}


def test_a_wrong_scale_is_flagged():
    world = fair()
    assert flagged(rebuilt(world, sigma=world.sigma * [1, 1, 1 + 1e-6])) == {"scales of factors"}


def test_a_rotation_that_is_none_is_flagged():
    world = fair()
    skewed = rebuilt(world, rotation=lambda k: world.rotation(k) + 1e-6 * (k == 2))
    assert flagged(skewed) == {"rotations"}


def test_positions_that_are_not_the_sum_are_flagged():
    world = fair()
    for X in (world.X - world.X.mean(axis=0), world.X * np.float32(1.001), world.X[::-1]):
        assert flagged(replace(world, X=X)) == {"X of factors"}


def test_factors_that_follow_each_other_are_flagged():
    world = pl.superpose(clusters(4000, 4000), seed=4)
    rows = np.column_stack([world.rows[:, 0], np.argsort(np.argsort(world.factors[0].y))])
    rows[:, 1] = np.argsort(world.factors[1].y)[rows[:, 1]]
    assert flagged(rebuilt(world, rows=rows)) == {"independent factors"}
    identity = np.column_stack([np.arange(4000)] * 2)
    assert flagged(rebuilt(world, rows=identity)) == {"independent factors"}


def test_verify_checks_the_world_and_every_factor():
    outcome = pl.verify(pl.superpose(clusters(2000, 1500), seed=1))
    assert outcome.passed, str(outcome)
    assert {check.data for check in outcome} == {"world", "factor 0", "factor 1"}
    broken = pl.superpose(clusters(2000, 1500), seed=1)
    broken = replace(broken, factors=(replace(broken.factors[0], y=broken.factors[0].y * 2), broken.factors[1]))
    assert {check.data for check in pl.verify(broken).failures} == {"world", "factor 0"}
