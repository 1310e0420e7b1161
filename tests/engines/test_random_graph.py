"""The random graph process: against a slow replay, against its laws, with planted faults."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from small_trees import free_of_cycles, p_of_pairs, p_of_trees

import percolab as pl
from percolab import theory
from percolab.checks import random_graph as checks
from percolab.engines import native
from percolab.engines.native import graph_process, growth
from percolab.ground.progress import silent
from percolab.model.forest import Forest


def key(seed):
    return np.uint64(seed)


def replayed(n, pairs):
    """Let bonds come one by one; return the groups merged, in order, and the group each extra bond found itself in."""
    groups = {point: frozenset([point]) for point in range(n)}
    merged, extra = [], []
    for a, b in pairs:
        if groups[a] is groups[b]:
            extra.append(((a, b), groups[a]))
            continue
        merged.append(((a, b), groups[a], groups[b]))
        both = groups[a] | groups[b]
        for point in both:
            groups[point] = both
    return merged, extra, set(groups.values())


@pytest.mark.parametrize(("n", "c"), [(1, 2.0), (2, 1.0), (30, 0.0), (40, 0.5), (60, 1.0), (80, 2.5), (12, 12.0)])
@pytest.mark.parametrize("seed", range(5))
def test_forest_is_the_history_of_the_bonds(n, c, seed):
    forest = graph_process.grow_graph(n, c, key(seed))
    forest.validate()
    count = graph_process.bond_count(n, c, key(seed))
    pairs = list(zip(*(ends.tolist() for ends in graph_process.draw_pairs(n, count, key(seed))), strict=True))
    assert len({frozenset(pair) for pair in pairs}) == count
    merged, extra, clusters = replayed(n, pairs)
    ids = forest.point_id
    points = [frozenset(ids[forest.points_of(i)].tolist()) for i in range(forest.n_latents)]
    assert {
        frozenset(ids[a:b].tolist()) for a, b in zip(forest.cluster_start, forest.cluster_start[1:], strict=False)
    } == clusters
    expected = {left | right: (bond, left) for bond, left, right in merged}
    for i, group in enumerate(points):
        bond, left = expected.pop(group)
        assert tuple(ids[forest.bond[i]].tolist()) == bond
        assert forest.left_size[i] == len(left)
    assert not expected
    found = {(tuple(ids[b].tolist()), points[i]) for b, i in zip(forest.extra_bond, forest.extra_latent, strict=True)}
    assert found == set(extra)


def test_complete_graph_and_no_bonds():
    assert graph_process.bond_count(10, 10.0, key(0)) == 45
    assert graph_process.bond_count(10, 25.0, key(0)) == 45
    assert graph_process.bond_count(10, 0.0, key(0)) == 0
    assert graph_process.grow_graph(10, 0.0, key(0)).n_clusters == 10


def test_number_of_bonds_is_binomial():
    n, c, runs = 40, 1.0, 4000
    counts = np.bincount([graph_process.bond_count(n, c, key(seed)) for seed in range(runs)], minlength=60)[:60]
    expected = scipy.stats.binom.pmf(np.arange(60), n * (n - 1) // 2, c / n) * runs
    enough = expected > 10
    observed = np.append(counts[enough], counts[~enough].sum())
    law = np.append(expected[enough], runs - expected[enough].sum())
    assert scipy.stats.chisquare(observed, law).pvalue > 1e-4


@pytest.mark.parametrize("n", [1000, 10**6, 2 * 10**9])
def test_the_mode_has_its_probability(n):
    pairs = n * (n - 1) // 2
    mode = int((pairs + 1) * (1.5 / n))
    assert graph_process._probability(pairs, 1.5 / n, mode) == pytest.approx(
        scipy.stats.binom.pmf(mode, pairs, 1.5 / n), rel=1e-6
    )


def test_pairs_are_uniform():
    first, second = graph_process.draw_pairs(8, 28, key(1))
    assert {frozenset(p) for p in zip(first.tolist(), second.tolist(), strict=True)} == {
        frozenset((a, b)) for a in range(8) for b in range(a)
    }
    ends = [graph_process.draw_pairs(8, 1, key(seed)) for seed in range(5600)]
    counts = np.zeros((8, 8))
    for a, b in ends:
        counts[a[0], b[0]] += 1
    assert (np.diag(counts) == 0).all()
    assert scipy.stats.chisquare(counts[~np.eye(8, dtype=bool)]).pvalue > 1e-4


# ---------------------------------------------------------------------- laws


def subject(forest, n, c):
    return SimpleNamespace(forest=forest, recipe=SimpleNamespace(n_points=n, mean_degree=c, min_cluster_size=1))


@pytest.mark.parametrize("n", [100_000, pytest.param(10**6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("c", [0.5, 1.0, 2.0])
def test_graphs_obey_the_laws(n, c):
    forest = graph_process.grow_graph(n, c, key(7))
    assert p_of_trees(forest, 4, free_of_cycles(forest)) > 1e-5
    assert p_of_pairs(forest, 4, free_of_cycles(forest)) > 1e-5
    found = list(checks.checks(subject(forest, n, c)))
    assert not [check for check in found if check.failed]
    decided = {check.law for check in found if check.verdict == "pass"}
    assert {"number of bonds", "clusters without cycles, by size", "number of clusters"} <= decided
    assert ("giant cluster" in decided) == (c > 1)
    assert ("bonds that close cycles" in decided) == (c != 1)


def verdicts(forest, n, c):
    return {check.law: check.verdict for check in checks.checks(subject(forest, n, c))}


def test_planted_faults_are_found():
    n, c = 200_000, 2.0
    right = graph_process.grow_graph(n, c, key(3))
    assert "fail" not in verdicts(right, n, c).values()
    few = graph_process.grow_graph(n, 1.97, key(3))
    assert {law for law, verdict in verdicts(few, n, c).items() if verdict == "fail"} >= {
        "number of bonds", "number of clusters", "giant cluster", "bonds that close cycles"
    }  # fmt: skip
    lost = replace(right, extra_bond=right.extra_bond[::2], extra_latent=right.extra_latent[::2])
    assert verdicts(lost, n, c)["bonds that close cycles"] == "fail"
    sizes = np.maximum(right.cluster_size, 1)
    paired = np.concatenate([[right.n_points - 2 * (sizes.size - 1)], np.full(sizes.size - 1, 2)])
    flat = Forest(
        np.concatenate([[0], np.cumsum(paired)]), np.arange(sizes.size), np.arange(n), _chains(paired), _ladder(paired)
    )
    assert verdicts(flat, n, c)["clusters without cycles, by size"] == "fail"


def _chains(sizes):
    return np.ones(int((sizes - 1).sum()), np.int64)


def _ladder(sizes):
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    left = np.concatenate([np.arange(s, s + k - 1) for s, k in zip(start, sizes, strict=True)])
    return np.column_stack([left, left + 1])


def test_merger_trees_in_a_wrong_order_are_found():
    """Bonds that come in the order of their ends, and not in uniform order, give other merger trees."""
    n, c = 200_000, 1.0
    first, second = graph_process.draw_pairs(n, n // 2, key(2))
    order = np.argsort(np.minimum(first, second))
    patch = pytest.MonkeyPatch()
    with patch.context() as planted:
        planted.setattr(graph_process, "draw_pairs", lambda *_: (first[order], second[order]))
        planted.setattr(graph_process, "bond_count", lambda *_: n // 2)
        wrong = graph_process.grow_graph(n, c, key(2))
    assert p_of_pairs(wrong, 4, free_of_cycles(wrong)) < 1e-5


# ---------------------------------------------------------------------- theory


@pytest.mark.parametrize("c", [0.2, 0.9, 1.0, 1.1, 3.0])
def test_theory_is_consistent(c):
    s = np.arange(1, 200_000)
    law = theory.cluster_law(s, c)
    share = theory.giant_share(c)
    assert share == pytest.approx(1 - np.exp(-c * share), abs=1e-12)
    if c != 1:
        assert law.sum() == pytest.approx(1 - share, abs=1e-4)
        assert (law / s).sum() == pytest.approx(theory.clusters_per_point(c), abs=1e-4)
    n = 10**7
    assert theory.tree_clusters(s[:20], n, c) == pytest.approx(n * law[:20] / s[:20], rel=1e-3)
    assert all(variance >= 0 for variance in theory.random_graph_variances(c))


def test_critical_sizes_fall_as_they_should():
    assert theory.cluster_law(10**6, 1.0) * 10**9 == pytest.approx(1 / np.sqrt(2 * np.pi), rel=1e-5)
    assert theory.cluster_law(7, 1.0) == pytest.approx(theory.borel_law(7))


# ---------------------------------------------------------------------- datasets


def recipe(n=3000, c=1.5, **fields):
    return pl.Recipe(n, 6, "random_graph", mean_degree=c, seeds=4, **fields)


def test_known_trees_are_filled_as_grown_ones():
    """The same forest, grown or given, has the same values and positions."""
    for mode in ("one_cluster", "distribution"):
        ds = pl.generate(pl.Recipe(6000, 5, mode, seeds=2))
        again = native._fill(ds.recipe, ds.forest, growth.of_forest(ds.forest), 2, silent)
        assert np.array_equal(again.X, ds.X)
        assert np.array_equal(again.y, ds.y)
        assert np.array_equal(again.latent_z, ds.latent_z)


def test_datasets_on_random_graphs():
    ds = pl.generate(recipe())
    ds.forest.validate()
    assert ds.forest.n_extra_bonds > 0
    assert np.array_equal(ds.X, pl.generate(recipe(), threads=1).X)
    assert np.array_equal(ds.y, pl.engines.targets(ds.forest, ds.latent_z, ds.point_z))
    ends = np.asarray(ds.X, np.float64)[ds.forest.bond]
    length = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    assert np.allclose(length, ds.recipe.step * np.sqrt(6), rtol=1e-4)
    assert pl.Recipe.from_json(ds.recipe.to_json()) == ds.recipe


def test_a_filter_keeps_the_rest_and_its_cycles():
    ds, kept = pl.generate(recipe()), pl.generate(recipe(min_cluster_size=3))
    assert kept.forest.equals(ds.filter(3).forest)
    assert kept.forest.n_extra_bonds == ds.forest.n_extra_bonds
    assert np.array_equal(kept.X, ds.X[: len(kept)])
    one = ds.forest.cluster(0)
    one.validate()
    assert one.n_extra_bonds > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mean_degree": -1}, "mean_degree must be a number of at least 0, got -1"),
        ({"mean_degree": float("nan")}, "mean_degree must be a number of at least 0, got nan"),
        ({"mean_degree": "two"}, "mean_degree must be a number, got 'two'"),
        ({"mean_degree": None}, "mean_degree must be given with mode='random_graph', got None"),
        ({"mode": "distribution"}, "mean_degree must be left out unless mode='random_graph', got 1.5"),
        ({"engine": "paper"}, "engine must be 'native' with mode='random_graph', got 'paper'"),
    ],
)
def test_bad_recipes_get_one_line(fields, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        pl.Recipe(**{"n_points": 10, "dim": 3, "mode": "random_graph", "mean_degree": 1.5, **fields})


def test_parts_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"^mode must be one of one_cluster, distribution, custom .*, got 'random_graph'$"
    ):
        pl.engines.cluster_table(recipe())
    with pytest.raises(
        ValueError, match=r"^mode must be one of one_cluster, distribution, custom .*, got 'random_graph'$"
    ):
        pl.generate_store(recipe(), tmp_path / "a.zarr", shards=2)
    with pytest.raises(ValueError, match=r"got 'random_graph'$"):
        pl.engines.cluster_of(recipe(), 3)


def test_a_subsample_keeps_cycles_between_its_rows():
    ds = pl.generate(recipe(c=2.5))
    rows = np.sort(np.random.default_rng(0).choice(len(ds), 1200, replace=False))
    part = ds.take(rows)
    part.forest.validate()
    pairs = {frozenset(pair) for pair in ds.forest.extra_bond.tolist() if set(pair) <= set(rows.tolist())}
    assert {frozenset(pair) for pair in part.source_row[part.forest.extra_bond].tolist()} == pairs
    assert len(pairs) > 10


def test_the_store_keeps_cycles(tmp_path):
    ds = pl.generate(recipe())
    ds.save(tmp_path / "graph.zarr")
    again = pl.load(tmp_path / "graph.zarr", verify=True)
    assert again.forest.equals(ds.forest)
    assert again.recipe == ds.recipe
