"""Recipes say what is wrong with them, and survive JSON."""

import dataclasses
import json

import numpy as np
import pytest

import percolab as pl
from percolab.model.recipe import PRESETS


def test_a_misspelt_keyword_is_named_with_the_nearest_one():
    for make in (pl.generate, pl.Recipe, pl.make_percolation):
        with pytest.raises(TypeError, match=rf"^{make.__name__} has no argument 'sed': did you mean 'seed'\?$"):
            make(n_points=10, dim=3, sed=1)
    with pytest.raises(TypeError, match=r"^make_percolation has no argument 'n_samples': did you mean 'n_points'\?$"):
        pl.make_percolation(n_samples=10)
    with pytest.raises(TypeError, match=r"^generate has no argument 'random_state': did you mean 'seed'\?$"):
        pl.generate(n_points=10, dim=3, random_state=1)
    with pytest.raises(TypeError, match=r"^Recipe has no argument 'xyzzy': it takes n_points, dim, "):
        pl.Recipe(10, 3, xyzzy=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_points": 0}, "n_points must be at least 1, got 0"),
        ({"n_points": -5}, "n_points must be at least 1, got -5"),
        ({"n_points": 2.5}, "n_points must be an integer, got 2.5"),
        ({"n_points": 10.0}, "n_points must be an integer, got 10.0: write 10"),
        ({"n_points": True}, "n_points must be an integer, got True"),
        ({"n_points": "10"}, "n_points must be an integer, got '10'"),
        ({"dim": 0}, "dim must be at least 2, got 0"),
        ({"dim": 1}, "dim must be at least 2, got 1"),
        ({"mode": "clusters"}, "mode must be one of one_cluster, distribution, custom, random_graph, got 'clusters'"),
        ({"engine": "fast"}, "engine must be one of .*, got 'fast'"),
        ({"mode": "custom", "create_prob": -0.1}, "create_prob must be between 0 and 1, got -0.1"),
        ({"mode": "custom", "create_prob": 1.5}, "create_prob must be between 0 and 1, got 1.5"),
        ({"mode": "custom", "create_prob": float("nan")}, "create_prob must be between 0 and 1, got nan"),
        ({"mode": "custom", "create_prob": "half"}, "create_prob must be a number, got 'half'"),
        ({"mode": "custom"}, "create_prob must be given with mode='custom', got None"),
        ({"create_prob": 0.5}, "create_prob must be left out unless mode='custom', got 0.5"),
        ({"seeds": -1}, "seeds must be at least 0, got -1"),
        ({"seeds": 1.5}, "seeds must be Seeds, an integer or None, got 1.5"),
        ({"seeds": {"graf": 1}}, "seeds must have the keys graph, embed and value, got 'graf'"),
        ({"min_cluster_size": 0}, "min_cluster_size must be at least 1, got 0"),
        ({"dtype": "float16"}, "dtype must be one of float32, float64, got 'float16'"),
        ({"dtype": "floaty"}, "dtype must be one of float32, float64, got 'floaty'"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        pl.Recipe(**{"n_points": 10, "dim": 3, **fields})


@pytest.mark.parametrize(
    ("seed", "message"), [(-1, "at least 0, got -1"), (2**64, "below 2\\*\\*64"), (0.5, "an integer")]
)
def test_bad_seeds(seed, message):
    with pytest.raises(ValueError, match=f"seeds.embed must be {message}"):
        pl.Seeds(graph=0, embed=seed)


def test_integer_seeds_follow_the_authors():
    assert pl.Recipe(10, 3, seeds=7).seeds == pl.Seeds(7, 10_007, 20_007)
    assert pl.Recipe(10, 3, seeds=np.int32(7)).seeds == pl.Seeds(7, 10_007, 20_007)


def test_missing_seeds_are_drawn_and_recorded():
    first, second = pl.Recipe(10, 3), pl.Recipe(10, 3)
    assert first.seeds != second.seeds
    assert first.seeds.embed == first.seeds.graph + 10_000
    partial = pl.Recipe(10, 3, seeds=pl.Seeds(graph=4))
    assert partial.seeds.graph == 4
    assert isinstance(partial.seeds.value, int)
    assert dataclasses.replace(first, dim=4).seeds == first.seeds


@pytest.mark.parametrize("recipe", [*PRESETS.values(), pl.Recipe(9, 2, "custom", create_prob=0.25, seeds=2**63)])
def test_json_round_trip(recipe):
    assert pl.Recipe.from_json(recipe.to_json()) == recipe
    assert json.loads(recipe.to_json())["seeds"]["graph"] == recipe.seeds.graph


def test_json_with_unknown_or_missing_fields():
    with pytest.raises(ValueError, match="a recipe has no field 'colour'"):
        pl.Recipe.from_dict({"n_points": 3, "dim": 2, "colour": "red"})
    with pytest.raises(ValueError, match="dim must be given"):
        pl.Recipe.from_dict({"n_points": 3})


def test_presets_are_the_paper_s():
    one, multi = pl.PRESETS["paper-one-cluster"], pl.PRESETS["paper-multi-cluster"]
    assert (one.n_points, one.dim, one.mode, one.min_cluster_size) == (200_000, 100, "one_cluster", 1)
    assert (multi.n_points, multi.dim, multi.mode, multi.min_cluster_size) == (2_000_000, 100, "distribution", 500)
    assert one.seeds == multi.seeds == pl.Seeds(0, 10_000, 20_000)
    assert one.engine == multi.engine == "paper"


@pytest.mark.parametrize("size", [10**10, 10**15, 10**30])
@pytest.mark.parametrize("least", [1, 500])
def test_too_large_for_memory_is_refused_before_work_starts(size, least):
    with pytest.raises((MemoryError, ValueError), match=r"^n_points must .*(need about|below)"):
        pl.generate(pl.Recipe(size * 100, 100, seeds=0, engine="paper", min_cluster_size=least))


def test_too_large_for_memory_gives_an_estimate():
    recipe = pl.Recipe(2**31 - 1, 1000, seeds=0, engine="paper")
    with pytest.raises(MemoryError, match=r"n_points must fit in memory: 2,147,483,647 points .* need about 17\.\d TB"):
        pl.generate(recipe)


def test_generate_refuses_an_unknown_preset_and_no_threads():
    with pytest.raises(ValueError, match="recipe must be one of paper-one-cluster"):
        pl.generate("paper-two-cluster")
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        pl.generate(pl.Recipe(5, 2), threads=0)
