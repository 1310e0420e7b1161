"""`percolab.features.score`: every column against a slow oracle, planted truths, invariances, bad input."""

import subprocess
import sys
import tracemalloc
import warnings
from types import SimpleNamespace

import numpy as np
import pandas.testing
import pytest
import scipy.sparse
from features_oracle import Oracle, concepts, differing, f1, is_inside, scenario, structured_codes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, hypergeom

import percolab as pl
from percolab.features import bits, firing, pairs, score
from percolab.features.chance import permuted
from percolab.features.codes import DenseCodes
from percolab.features.firing import pack
from percolab.features.methods import Oracle as Truth

LAYOUTS = {"lists": 1, "mixed": 32, "bits": 10**9}


def same(a, b, *, tolerance=0.0):
    for name in ("concepts", "features"):
        pandas.testing.assert_frame_equal(
            getattr(a, name), getattr(b, name), check_exact=not tolerance, **({"rtol": tolerance} if tolerance else {})
        )
    assert a.summary.keys() == b.summary.keys()
    np.testing.assert_allclose(list(a.summary.values()), list(b.summary.values()), rtol=1e-9)


@pytest.fixture(scope="module")
def cluster():
    """One cluster of 3,000 points in 8 dimensions."""
    return pl.generate(pl.Recipe(3000, 8, "one_cluster", seeds=3))


# ---------------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("seed", range(30))
def test_every_column_is_the_oracles(seed, monkeypatch):
    monkeypatch.setattr(firing, "LISTED", list(LAYOUTS.values())[seed // 10])
    monkeypatch.setattr(firing, "PACKED_BYTES", 150)  # several blocks of features
    monkeypatch.setattr(pairs, "FIRST_ROOM", 1)
    forest, codes, rows, options = scenario(seed)
    given = scipy.sparse.csr_array(codes) if seed % 2 else codes
    assert differing(score(forest, given, rows, **options), Oracle(forest, codes, rows, **options)) == []


def test_all_pairs_of_many_features(monkeypatch):
    rng = np.random.default_rng(5)
    forest = pl.generate(pl.Recipe(500, 2, seeds=9)).forest
    codes = structured_codes(forest, np.arange(500), 60, rng)
    options = {"min_size": 3, "ratio": 1, "draws": 1}
    assert differing(score(forest, codes, **options), Oracle(forest, codes, **options)) == []


@given(
    st.integers(2, 60), st.integers(0, 10**6), st.floats(0, 1), st.integers(2, 5), st.floats(0.05, 1),
    st.integers(1, 5), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_forest_any_rows(n, seed, p, min_size, ratio, n_features, repeats):
    rng = np.random.default_rng(seed)
    forest = pl.generate(pl.Recipe(n, 2, "custom", create_prob=p / 4, seeds=seed)).forest
    rows = rng.integers(0, n, 2 * n) if repeats else rng.permutation(n)[: rng.integers(1, n + 1)]
    codes = (rng.random((rows.size, n_features)) < rng.random(n_features)) * 1.0
    codes[0, 0] = 1.0
    options = {"min_size": min_size, "ratio": ratio, "draws": 1, "seed": seed}
    latents, _, _ = concepts(forest, rows.tolist(), min_size, ratio)
    if latents:
        assert differing(score(forest, codes, rows, **options), Oracle(forest, codes, rows, **options)) == []
    else:
        with pytest.raises(ValueError, match=r"^min_size must leave a concept: "):
            score(forest, codes, rows, **options)


# ---------------------------------------------------------------------- kinds of input


def test_codes_of_every_kind_score_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    forest, codes, rows, options = scenario(5)
    wanted = score(forest, codes, rows, **options)
    mapped = np.memmap(tmp_path / "codes", np.float32, "w+", shape=codes.shape)
    mapped[:] = codes
    row, column = np.nonzero(codes)
    halves = np.concatenate([codes[row, column] / 2] * 2), (np.tile(row, 2), np.tile(column, 2))
    kinds = [
        mapped,
        np.asfortranarray(codes),
        codes.astype(np.float64),
        codes.astype(np.float16),
        codes.astype(np.uint8),
        codes.astype(np.int64),
        scipy.sparse.csr_matrix(codes),
        scipy.sparse.csc_array(codes),
        scipy.sparse.coo_array(codes),
        scipy.sparse.csr_array(codes.astype(np.int32)),
        scipy.sparse.coo_array(halves, shape=codes.shape),
        torch.from_numpy(codes).requires_grad_(),
        torch.from_numpy(codes).bfloat16(),
        torch.from_numpy(codes).to_sparse(),
    ]
    for kind in kinds:
        same(score(forest, kind, torch.from_numpy(rows), **options), wanted)
    read_only = codes.copy()
    read_only.flags.writeable = False
    same(score(forest, read_only, rows.astype(np.int32), **options), wanted)
    assert (codes > 0).tolist() == (read_only > 0).tolist()


def test_booleans_fire_where_they_are_true():
    forest, codes, rows, options = scenario(3)
    given = score(forest, codes > 0, rows, min_size=options["min_size"])
    same(given, score(forest, (codes > 0) * 1.0, rows, min_size=options["min_size"]))


@pytest.mark.parametrize("seed", range(6))
def test_torch_gives_the_same_integers(seed, monkeypatch):
    torch = pytest.importorskip("torch")
    from percolab.features import on_torch

    monkeypatch.setitem(on_torch.DEVICE_BYTES, "cpu", 5000)  # several blocks of features
    forest, codes, rows, options = scenario(seed, n=190)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        held = on_torch.TorchCodes(torch.from_numpy(codes).to(dtype))
        same(score(forest, held, rows, **options), score(forest, codes, rows, **options))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 200])
def test_torch_packs_like_the_kernels(n):
    torch = pytest.importorskip("torch")
    from percolab.features import on_torch

    rng = np.random.default_rng(n)
    codes, order = rng.integers(0, 3, (n, 5)), rng.permutation(n)
    codes[:, 0] = 2  # all bits, the sign among them
    wanted = np.packbits(codes[order].T > 1, axis=1, bitorder="little")
    for dtype in (torch.float32, torch.float16, torch.uint8, torch.int64):
        (packed,) = on_torch.TorchCodes(torch.from_numpy(codes).to(dtype)).packed(order, np.ones(5))
        assert packed.dtype == np.uint64
        assert np.array_equal(packed.view(np.uint8)[:, : wanted.shape[1]], wanted)
        assert not packed.view(np.uint8)[:, wanted.shape[1] :].any()


def test_codes_on_a_gpu_score_the_same():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    for seed in range(6):
        forest, codes, rows, options = scenario(seed, n=190)
        same(score(forest, torch.from_numpy(codes).cuda(), rows, **options), score(forest, codes, rows, **options))


def test_thresholds_are_exact_between_floats():
    codes = np.array([[0.1, 0.1], [0.5, 0.5]], np.float32)
    between = np.array([0.1, np.nextafter(float(np.float32(0.1)), 0)])  # 0.1 is below its float32
    packed = pack(DenseCodes(codes), np.arange(2), between, 1)
    assert packed.fired.tolist() == [2, 2]
    assert pack(DenseCodes(codes), np.arange(2), np.full(2, float(np.float32(0.1))), 1).fired.tolist() == [1, 1]


def test_memory_is_bounded_by_a_block_of_features(monkeypatch):
    """Codes that must be copied to be read take a bit a cell and a block, where a whole copy takes 32 bits a cell."""
    forest = pl.engines.split_forest(20_000, 1)
    codes = (np.random.default_rng(0).random((20_000, 512), np.float32) < 0.3).astype(np.float16)
    wanted = score(forest, codes, draws=1)  # a block for each thread is in memory: the bound is for two
    monkeypatch.setattr("percolab.features.codes.COPY_BYTES", 1 << 19)
    monkeypatch.setattr(firing, "PACKED_BYTES", 1 << 17)
    same(score(forest, codes, draws=1, threads=2), wanted)  # once without counting: what compiles takes memory too
    tracemalloc.start()
    score(forest, codes, draws=1, threads=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * codes.size / 8


def test_threads_and_datasets_make_no_difference(cluster):
    rng = np.random.default_rng(0)
    codes = structured_codes(cluster.forest, np.arange(3000), 40, rng)
    before = repr(np.random.get_state(legacy=False))  # noqa: NPY002
    one = score(cluster, codes, threads=1)
    same(one, score(cluster.forest, codes, threads=3))
    assert repr(np.random.get_state(legacy=False)) == before  # noqa: NPY002
    assert not one.concepts["chance"].equals(score(cluster, codes, seed=1).concepts["chance"])


def test_a_world_is_scored_by_factor():
    rng = np.random.default_rng(1)
    factors = [pl.generate(pl.Recipe(200, 2, seeds=seed)) for seed in (1, 2)]
    world = SimpleNamespace(factors=factors, rows=np.column_stack([np.arange(200), rng.permutation(200)]))
    codes = rng.random((200, 5)) < 0.3
    for k in (0, 1):
        same(score(world, codes, factor=k, min_size=5), score(factors[k], codes, world.rows[:, k], min_size=5))
    chosen = rng.permutation(200)[:150]
    wanted = score(factors[1], codes[:150], world.rows[chosen, 1], min_size=5)
    same(score(world, codes[:150], chosen, factor=1, min_size=5), wanted)
    with pytest.raises(ValueError, match=r"^factor must be given for a world of 2 hierarchies, got None$"):
        score(world, codes)
    with pytest.raises(ValueError, match=r"^factor must be below 2, got 2$"):
        score(world, codes, factor=2)
    with pytest.raises(ValueError, match=r"^factor must be None or 0 for a dataset of one hierarchy, got 1$"):
        score(factors[0], codes, factor=1)


# ---------------------------------------------------------------------- planted truths


def test_the_membership_matrix_scores_one_everywhere(cluster):
    oracle = Truth(cluster, min_size=10, ratio=1).fit(cluster.X)
    found = score(cluster, oracle.encode(cluster.X), min_size=10, ratio=1)
    table = found.concepts
    assert (table["latent"] == oracle.latent).all()
    assert (table["best_feature"] == np.arange(len(table))).all()
    for name in ("f1", "k", "f1_union"):
        assert (table[name] == 1).all()
    for name in ("absorption", "absorption_null"):
        assert (table[name] == 0).all()
    assert (table["absorption_edge"].dropna() == 0).all()
    assert (found.features[["f1", "precision", "recall"]] == 1).all(axis=None)
    assert found.summary["recovery"] == found.summary["recovered"] == found.summary["splitting"] == 1


def test_permuted_rows_score_chance(cluster):
    rng = np.random.default_rng(2)
    codes = structured_codes(cluster.forest, np.arange(3000), 60, rng)
    shuffled = np.column_stack([rng.permutation(column) for column in codes.T])
    draws = [score(cluster, rng.permuted(shuffled, axis=0), draws=1).summary["recovery"] for _ in range(20)]
    many = score(cluster, codes, draws=40)
    means = many.chance_draws[:, many.concepts["summarised"]].mean(axis=1)
    error = np.hypot(np.std(draws, ddof=1) / np.sqrt(20), means.std(ddof=1) / np.sqrt(40))
    assert abs(np.mean(draws) - many.summary["chance"]) < 4 * error
    assert score(cluster, codes).summary["recovery"] > many.summary["chance"] + 40 * error


def test_chance_has_the_law_of_permuted_rows():
    """The mean of the best F1 of independent hypergeometric counts, from their distribution functions."""
    forest = pl.engines.split_forest(300, 4)
    rng = np.random.default_rng(0)
    fired = np.array([1, 4, 9, 20, 60, 150, 250, 299])
    codes = np.column_stack([rng.permutation(np.arange(300) < count) for count in fired])
    found = score(forest, codes, min_size=10, draws=4000, seed=8)
    errors = []
    for size, draws in zip(found.concepts["size"], found.chance_draws.T, strict=True):
        hits = [np.arange(min(size, count) + 1) for count in fired]
        values = np.unique(np.concatenate([2 * h / (size + count) for h, count in zip(hits, fired, strict=True)]))
        below = np.ones(values.size)
        for count in fired:
            below *= hypergeom(300, size, count).cdf(np.floor(values * (size + count) / 2 + 1e-9))
        expected = (values * np.diff(below, prepend=0)).sum()
        if size < 300:
            errors.append((draws.mean() - expected) / (draws.std() / np.sqrt(4000)))
    assert len(errors) > 10
    assert np.abs(errors).max() < 4.5
    assert np.std(errors) < 2


@pytest.mark.parametrize(("n", "count"), [(6, 3), (7, 5), (70, 2), (70, 68), (5, 0), (5, 5), (130, 1)])
def test_drawn_sets_are_uniform(n, count):
    draws = 20_000
    drawn = np.array([permuted(count, n, seed=1, draw=t, feature=3) for t in range(draws)])
    assert drawn.shape == (draws, count)
    assert (np.diff(drawn) > 0).all()
    kinds, seen = np.unique(drawn, axis=0, return_counts=True)
    total = hypergeom(n, count, count).pmf(count) ** -1  # number of sets of this size
    expected = draws / total
    statistic = ((seen - expected) ** 2 / expected).sum() + (total - len(kinds)) * expected
    assert total == 1 or chi2.sf(statistic, total - 1) > 1e-4


def test_large_drawn_sets_have_each_row_equally_often():
    n, count = 1000, 300
    seen = np.zeros(n)
    for t in range(3000):
        seen[permuted(count, n, seed=2, draw=t, feature=0)] += 1
    variance = 3000 * 0.3 * 0.7 * n / (n - 1)  # rows of one set are dependent: their sum is fixed
    assert 1e-4 < chi2.sf(((seen - 900) ** 2).sum() / variance, n - 1) < 1 - 1e-4


def rows_of(cluster, latent):
    here = np.zeros(len(cluster), np.bool_)
    here[cluster.forest.points_of(latent)] = True
    return here


def concept_of(found, latent):
    return found.concepts.set_index("latent").loc[latent]


def a_concept(cluster, least, most, min_size=10):
    latents = cluster.forest.concepts(min_size)
    size = cluster.forest.latent_size[latents]
    return int(latents[(size >= least) & (size <= most)][0])


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_a_concept_over_some_features_takes_as_many(cluster, parts):
    rng = np.random.default_rng(0)
    latent = a_concept(cluster, 200, 800)
    rows = np.flatnonzero(rows_of(cluster, latent))
    codes = rng.random((3000, 10)) < 0.02
    codes[:, :parts] = False
    for f, own in enumerate(np.array_split(rng.permutation(rows), parts)):
        codes[own, f] = True
    found = concept_of(score(cluster, codes, min_size=10, ratio=1), latent)
    assert found["k"] == parts
    assert found["f1_union"] == 1
    assert found["f1"] == pytest.approx(2 / (parts + 1), abs=0.01)


def nested(cluster):
    """Return a concept and one inside it of at most half its size, with their rows."""
    tables = score(cluster, np.ones((3000, 1)), min_size=20).concepts
    size = tables.set_index("latent")["size"]
    for latent, above, rows in tables[["latent", "upper", "size"]].itertuples(index=False):
        if above > 0 and 2 * rows <= size[above] <= 4 * rows and rows > 100:
            return above, latent, rows_of(cluster, above), rows_of(cluster, latent)
    raise AssertionError("no such pair")


def test_planted_absorption_is_found_with_its_rate(cluster):
    rng = np.random.default_rng(1)
    upper, lower, outer, inner = nested(cluster)
    absorbed = rng.choice(np.flatnonzero(inner), round(0.7 * inner.sum()), replace=False)
    general = outer.copy()
    general[absorbed] = False
    table = score(cluster, np.column_stack([general, inner]), min_size=20)
    assert concept_of(table, upper)["best_feature"] == 0
    assert concept_of(table, upper)["absorption"] == absorbed.size / outer.sum()
    expected = absorbed.size / outer.sum() * inner.sum() / outer.sum()
    assert concept_of(table, upper)["absorption_null"] == pytest.approx(expected)
    assert concept_of(table, lower)["absorption_edge"] == pytest.approx(absorbed.size / inner.sum())


def test_independent_misses_are_not_absorption(cluster):
    rng = np.random.default_rng(2)
    upper, lower, outer, inner = nested(cluster)
    share = 0.7 * inner.sum() / outer.sum()  # as many misses as are absorbed above
    rows, edges = [], []
    for _ in range(30):
        general = outer & (rng.random(3000) >= share)
        table = score(cluster, np.column_stack([general, inner]), min_size=20, draws=1)
        found = concept_of(table, upper)
        rows.append(found["absorption"] - found["absorption_null"])
        edges.append(concept_of(table, lower)["absorption_edge"])
        assert found["absorption"] > 0.02
    for values in (rows, edges):
        error = np.std(values) / np.sqrt(30)
        assert abs(np.mean(values)) < 4 * error
        assert error < 0.015  # planted absorption of the same size is 0.7 on the edge and ten errors on rows


def test_features_that_exclude_each_other_absorb_by_construction(cluster):
    """As clusters of k-means do: where an absorber fires the concept's feature is silent, so misses are not free."""
    _, _, outer, inner = nested(cluster)
    rng = np.random.default_rng(3)
    taken = inner & (rng.random(3000) < 0.8)  # by the feature of the concept inside
    codes = np.column_stack([outer & ~taken & (rng.random(3000) < 0.9), taken, ~outer])
    found = score(cluster, codes, min_size=20).concepts
    found = found[found["absorption"] > 0]
    assert len(found)
    recall = [codes[rows_of(cluster, row.latent), row.best_feature].mean() for row in found.itertuples()]
    np.testing.assert_allclose(found["absorption"] - found["absorption_null"], found["absorption"] * recall)


def test_an_absorber_must_carry_the_direction(cluster):
    upper, _, outer, inner = nested(cluster)
    parent = rows_of(cluster, int(cluster.forest.latent_parent[upper]))
    activations = np.outer(outer * 1.0 - (parent & ~outer), [1.0, 0.0])  # the direction is (2, 0)
    everywhere = np.ones(3000)  # it fires with the absorber, but is none
    codes = np.column_stack([outer & ~inner, inner, everywhere]).astype(float)
    for carried, total, wanted in [(0.41, 1, 1), (0.39, 1, 0), (1, 1, 1), (-0.1, -1, 0), (0.1, -1, 0)]:
        vectors = np.array([[1, 5], [carried, 5], [total - carried, 5]])
        table = score(cluster, codes, min_size=20, directions=vectors, activations=activations)
        assert concept_of(table, upper)["absorption"] == inner.sum() / outer.sum()
        assert concept_of(table, upper)["absorption_carried"] == wanted * inner.sum() / outer.sum()


def test_directions_and_explained_variance(cluster):
    rng = np.random.default_rng(3)
    codes = rng.random((3000, 20)) * (rng.random((3000, 20)) < 0.2)
    vectors, bias = rng.normal(size=(20, 8)), rng.normal(size=8)
    exact = score(cluster, codes, directions=vectors, bias=bias, activations=codes @ vectors + bias)
    assert exact.summary["explained_variance"] == pytest.approx(1)
    none = score(cluster, codes, directions=0 * vectors, bias=np.asarray(cluster.X).mean(0), activations=cluster.X)
    assert none.summary["explained_variance"] == pytest.approx(0, abs=1e-6)
    assert none.concepts["cosine"].isna().all()
    assert exact.concepts["cosine"].isna().to_numpy().tolist() == (exact.concepts["upper"] < 0).tolist()


# ---------------------------------------------------------------------- invariances


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_the_order_of_rows_is_free(seed):
    forest, codes, rows, options = scenario(seed % 400)
    places = np.arange(forest.n_points) if rows is None else rows
    order = np.random.default_rng(seed).permutation(places.size)
    moved = options | {"activations": options["activations"][order]} if "activations" in options else options
    same(
        score(forest, codes[order], places[order], **moved),
        score(forest, codes, places, **options),
        tolerance=1e-6,  # sums of activations are in another order
    )


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_the_order_of_features_is_free_up_to_ties(seed):
    """Chance alone is not compared: its draws are keyed by the number of the feature."""
    forest, codes, rows, options = scenario(seed % 400)
    order = np.random.default_rng(seed).permutation(codes.shape[1])
    moved = {**options, "threshold": np.broadcast_to(options["threshold"], codes.shape[1])[order]}
    if "directions" in options:
        moved["directions"] = options["directions"][order]
    a, b = score(forest, codes, rows, **options), score(forest, codes[:, order], rows, **moved)
    for name in ("latent", "size", "depth", "fom", "f1", "recovering", "upper", "summarised"):
        assert a.concepts[name].equals(b.concepts[name])
    same_features = a.features.drop(columns="feature").iloc[order].reset_index(drop=True)
    pandas.testing.assert_frame_equal(same_features, b.features.drop(columns="feature"))
    assert np.array_equal(a.absorbed_from, b.absorbed_from)
    oracle = Oracle(forest, codes, rows, **options)
    lone, settled = lone_features(oracle), settled_unions(oracle)
    assert (a.concepts["best_feature"][lone] == order[b.concepts["best_feature"][lone]]).all()
    above = lone[np.searchsorted(a.concepts["latent"], a.concepts["upper"]).clip(0)] & (a.concepts["upper"] >= 0)
    for name, where in {
        **dict.fromkeys(("absorption", "absorption_null", "absorption_carried", "cosine"), lone),
        **dict.fromkeys(("k", "f1_union"), settled),
        "absorption_edge": above.to_numpy(),
    }.items():
        np.testing.assert_allclose(a.concepts[name][where], b.concepts[name][where], rtol=1e-9, atol=1e-12)


def lone_features(oracle):
    """Return, of each concept, whether one feature alone has its best F1."""
    return np.array([scores.count(max(scores)) == 1 and max(scores) > 0 for scores in oracle.scores.values()])


def settled_unions(oracle):
    """Return, of each concept, whether its union grows by the best feature alone at every step: no two are level."""
    settled = []
    for latent in oracle.latent:
        members, union, reached, alone = oracle.members[latent], set(), 0.0, True
        while True:
            scores = [f1(union | fires, members) for fires in oracle.fires]
            best = max(scores)
            if best == 0 or (union and best - reached < 0.03):
                break
            alone &= scores.count(best) == 1
            union, reached = union | oracle.fires[scores.index(best)], best
        settled.append(alone)
    return np.array(settled)


@pytest.mark.parametrize("seed", range(8))
def test_absorbed_from_is_the_oracles(seed):
    """Row by row: the deepest concept from which a feature that fires there may absorb."""
    forest, codes, rows, options = scenario(seed)
    found, oracle = score(forest, codes, rows, **options), Oracle(forest, codes, rows, **options)
    wanted = np.full(oracle.n, -1)
    for latent in oracle.latent:  # those inside come later
        inside = [
            j for j in oracle.latent
            if is_inside(j, latent, oracle.latents) and 2 * oracle.size(j) <= oracle.size(latent)
        ]  # fmt: skip
        for f, fires in enumerate(oracle.fires):
            if any(oracle.scores[j][f] >= 0.5 for j in inside):
                wanted[sorted(fires & oracle.members[latent])] = latent
    assert found.absorbed_from.tolist() == wanted.tolist()


@given(st.integers(0, 10**6), st.integers(2, 3))
@settings(max_examples=20, deadline=None)
def test_repeated_rows_count_as_often_as_they_come(seed, times):
    forest, codes, rows, options = scenario(seed % 400)
    places = np.arange(forest.n_points) if rows is None else rows
    given_once = {"min_size": options["min_size"], "ratio": options["ratio"]}
    once = score(forest, codes, places, **given_once)
    again = score(
        forest,
        np.tile(codes, (times, 1)),
        np.tile(places, times),
        **given_once | {"min_size": options["min_size"] * times},
    )
    assert (again.concepts["size"] == times * once.concepts["size"]).all()
    assert (again.features["fired"] == times * once.features["fired"]).all()
    for name in ("latent", "best_feature", "f1", "k", "f1_union", "absorption", "absorption_edge", "recovering"):
        np.testing.assert_allclose(again.concepts[name], once.concepts[name], rtol=1e-12)


def test_bits_of_all_lengths():
    rng = np.random.default_rng(0)
    for n in (1, 63, 64, 65, 127, 128, 200):
        chosen = rng.random(n) < 0.4
        words, other = np.zeros(bits.words_for(n), np.uint64), np.zeros(bits.words_for(n), np.uint64)
        also = rng.random(n) < 0.5
        for p in np.flatnonzero(chosen):
            bits.add(words, p)
        for p in np.flatnonzero(also):
            bits.add(other, p)
        out = np.empty(chosen.sum(), np.int64)
        assert bits.list_positions(words, out) == chosen.sum()
        assert out.tolist() == np.flatnonzero(chosen).tolist()
        edges = np.arange(n + 1)
        below = np.empty(n + 1, np.int32)
        bits.ranks(words, edges, np.empty(words.size + 1, np.int32), below)
        assert below.tolist() == [0, *np.cumsum(chosen)]
        for start, stop in rng.integers(0, n + 1, (30, 2)):
            assert bits.count(words, start, stop) == chosen[start:stop].sum()
            assert bits.count_outside(words, other, start, stop) == (chosen & ~also)[start:stop].sum()


# ---------------------------------------------------------------------- views


def test_bins_hold_every_concept_that_is_summarised(cluster):
    rng = np.random.default_rng(4)
    found = score(cluster, structured_codes(cluster.forest, np.arange(3000), 40, rng), ratio=1)
    table = found.concepts[found.concepts["summarised"]]
    assert table["size"].max() < 3000
    for column, shift in (("size", 0), ("depth", 1), ("fom", 0)):
        bins = found.by(column)
        assert bins["concepts"].sum() == len(table) == found.summary["concepts"]
        np.testing.assert_allclose((bins["recovery"] * bins["concepts"]).sum() / len(table), found.summary["recovery"])
        np.testing.assert_allclose((bins["to"] + shift) / (bins["from"] + shift), 2)
        assert (bins["chance_low"] <= bins["chance"] + 1e-12).all()
        assert (bins["chance_high"] >= bins["chance"] - 1e-12).all()
        for line in bins.itertuples():
            own = table[(table[column] >= line[1]) & (table[column] < line[2])]
            assert len(own) == line.concepts
            assert own["f1"].mean() == pytest.approx(line.recovery)
    with pytest.raises(ValueError, match=r"^column must be one of size, depth, fom, got 'width'$"):
        found.by("width")


def test_a_score_shows_itself(cluster):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(4)
    found = score(cluster, structured_codes(cluster.forest, np.arange(3000), 40, rng))
    assert repr(found).startswith("Score(40 features, ")
    assert "; chance is not the control: the control is the same method on an untrained network" in repr(found)
    assert "Chance is not the control: the control is the same" in found._repr_html_()
    html = found._repr_html_()
    assert "<table" in html
    assert "<td>absorption null</td>" in html
    assert '<td>features</td><td class="number">40</td>' in html
    assert found.concepts["size"].min() == 20
    assert found.size_table()[1][0] == "20 to 31"
    assert "cosine" not in html  # no directions were given
    assert found.settings == {"rows": 3000, "min_size": 20, "ratio": 2 / 3, "threshold": 0, "draws": 5, "seed": 0}
    dead, dense = found.features["dead"].sum(), found.features["dense"].sum()
    counts = f"{40 - dead} live, {dead} dead, {dense} dense"
    panels = found.plot().axes
    assert all(tick == round(tick) for tick in panels[1].get_yticks())
    assert [axes.get_xlabel() for axes in panels] == [
        "rows of the concept",
        f"best F1 of a feature over concepts\n{counts}",
        "rows of the concept",
        "depth of the concept + 1",
    ]
    recovery = panels[0].get_lines()[1].get_ydata()
    np.testing.assert_allclose(recovery, found.by("size")["recovery"])
    assert len(panels[0].collections) == 1  # the band of chance


def test_a_score_of_one_concept_shows_itself():
    pytest.importorskip("matplotlib")
    forest = pl.engines.split_forest(30, 1)
    found = score(forest, np.ones((30, 1)), min_size=30)
    assert found.summary["concepts"] == 0
    assert np.isnan(found.summary["recovery"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "<table" in found._repr_html_()
        found.plot().canvas.draw()


def test_importing_the_judge_brings_nothing_heavy():
    code = "import percolab.features, sys; print(*{'torch', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_progress_is_told(cluster):
    seen = []
    score(cluster, np.eye(3000)[:, :3], progress=lambda *parts: seen.append(parts))
    assert seen == [("scoring", i, 6) for i in range(1, 7)]


def test_progress_may_be_a_bar(cluster, capsys):
    codes = np.eye(3000)[:, :3]
    same(score(cluster, codes, progress=True), score(cluster, codes))
    assert "Traceback" not in capsys.readouterr().err


# ---------------------------------------------------------------------- bad input

OK = np.ones((30, 2))
SIGNED = "; features.Neurons makes codes of signed activations"
HERE = np.arange(60).reshape(30, 2)
LABELS = "; labels of k groups become codes by np.eye(k)[labels]"
VECTORS, ACTIVATIONS = np.ones((2, 4)), np.ones((30, 4))
BAD = [
    (
        {"codes": np.where(HERE == 7, -0.5, 1)},
        f"codes must be finite and not negative, got -0.5 in row 3 of feature 1{SIGNED}",
    ),
    ({"codes": np.where(HERE == 2, np.nan, 1)}, "codes must be finite and not negative, got nan in row 1 of feature 0"),
    ({"codes": np.where(HERE == 2, np.inf, 1)}, "codes must be finite and not negative, got inf in row 1 of feature 0"),
    (
        {"codes": scipy.sparse.csr_array(([-2.0], ([4], [1])), shape=(30, 2))},
        f"codes must be finite and not negative, got -2.0 in row 4 of feature 1{SIGNED}",
    ),
    ({"codes": np.ones(30)}, f"codes must have shape (rows, features), at least 1 of each, got (30,){LABELS}"),
    ({"codes": OK[:, :0]}, "codes must have shape (rows, features), at least 1 of each, got (30, 0)"),
    ({"codes": np.full((30, 2), "a")}, "codes must be numbers, got <U1"),
    ({"codes": np.ones((30, 2), complex)}, "codes must be numbers, got complex128"),
    ({"codes": pl.features.KMeans(2)}, "codes must be what a method's encode returns, got the method, KMeans"),
    ({"codes": OK[:29]}, "codes must have a row for each of the 30 rows, unless rows are given, got 29"),
    ({"rows": np.arange(29)}, "rows must name the row of each of the 30 rows of the codes, got 29"),
    ({"rows": np.arange(1, 31)}, "rows must be between 0 and 29, got 30"),
    ({"rows": np.arange(-1, 29)}, "rows must be between 0 and 29, got -1"),
    ({"rows": np.arange(30.0)}, "rows must be a list of integers, got float64 of shape (30,)"),
    ({"min_size": 31}, "min_size must leave a concept: the largest has 30 of the rows, got 31"),
    ({"min_size": 1}, "min_size must be at least 2, got 1"),
    ({"ratio": 0}, "ratio must be above 0 and at most 1, got 0"),
    ({"ratio": 1.5}, "ratio must be above 0 and at most 1, got 1.5"),
    ({"codes": 0 * OK}, "codes must be above the threshold somewhere, got none in 2 features"),
    ({"threshold": 5}, "codes must be above the threshold somewhere, got none in 2 features"),
    ({"threshold": [1, 2, 3]}, "threshold must be a number or one for each of 2 features, got shape (3,)"),
    ({"threshold": -1.0}, "threshold must be at least 0, got -1.0"),
    ({"threshold": [0, np.nan]}, "threshold must be at least 0, got nan"),
    (
        {"directions": np.ones((3, 4)), "activations": ACTIVATIONS},
        "directions must have shape (2, 4), (features, d), got (3, 4)",
    ),
    (
        {"directions": VECTORS, "activations": ACTIVATIONS[:29]},
        "activations must have shape (30, d), a row for each of the codes, got (29, 4)",
    ),
    ({"directions": VECTORS}, "directions and activations must be given together, got no activations"),
    ({"activations": ACTIVATIONS}, "directions and activations must be given together, got no directions"),
    (
        {"directions": VECTORS, "activations": ACTIVATIONS, "bias": np.ones(3)},
        "bias must have shape (4,), got (3,)",
    ),
    ({"bias": np.ones(3)}, "bias must come with directions and activations, got neither"),
    (
        {"directions": VECTORS * np.nan, "activations": ACTIVATIONS},
        "directions must be finite, got nan",
    ),
    ({"draws": 0}, "draws must be at least 1, got 0"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"dataset": "one.zarr"}, "dataset must be a Dataset, a Forest, a world of factors or a Corpus, got str"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_bad_input_is_one_line(changed, message):
    given_all = {"dataset": pl.engines.split_forest(30, 1), "codes": OK} | {"min_size": 5} | changed
    with pytest.raises(ValueError) as error:
        score(**given_all)
    assert str(error.value) == message


@pytest.mark.parametrize("value", [-2.0, np.nan, np.inf])
def test_codes_of_every_kind_are_refused_alike(value, tmp_path):
    torch = pytest.importorskip("torch")
    codes = np.ones((30, 2), np.float32)
    codes[4, 1] = value
    mapped = np.memmap(tmp_path / "codes", np.float32, "w+", shape=codes.shape)
    mapped[:] = codes
    kinds = [
        mapped, np.asfortranarray(codes), codes.astype(np.float16), scipy.sparse.csc_array(codes),
        torch.from_numpy(codes), torch.from_numpy(codes).bfloat16(), torch.from_numpy(codes).to_sparse(),
    ]  # fmt: skip
    for kind in kinds:
        with pytest.raises(ValueError) as error:
            score(pl.engines.split_forest(30, 1), kind, min_size=5)
        said = f"codes must be finite and not negative, got {value} in row 4 of feature 1"
        assert str(error.value) == said + (SIGNED if value < 0 else "")


def test_bad_tensors_are_one_line():
    torch = pytest.importorskip("torch")
    from percolab.features import on_torch

    codes = torch.ones(30, 2)
    codes[3, 1] = -1
    with pytest.raises(
        ValueError, match=f"^codes must be finite and not negative, got -1.0 in row 3 of feature 1{SIGNED}$"
    ):
        score(pl.engines.split_forest(30, 1), on_torch.TorchCodes(codes), min_size=5)


def test_negative_zero_is_zero():
    codes = np.where(np.arange(60).reshape(30, 2) % 3 == 0, -0.0, 1.0)
    same(
        score(pl.engines.split_forest(30, 1), codes, min_size=5),
        score(pl.engines.split_forest(30, 1), abs(codes), min_size=5),
    )
