"""Fair scores against slow, obvious oracles: thresholds, AUC, one to one, directions, edges, trees, probes."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import percolab as pl
from percolab.features import fairness
from percolab.features.concepts import by_row, find_truth
from percolab.features.methods import KMeans, Oracle, TrueDirections
from percolab.features.scoring import score
from percolab.features.thresholds import SUMMARY_RATIO


@pytest.fixture(scope="module")
def labels():
    forest = pl.generate(pl.Recipe(400, 3, "one_cluster", seeds=5)).forest
    return by_row(forest, np.arange(400))


def members_of(labels, min_size=20):
    known = find_truth(labels, min_size, SUMMARY_RATIO)
    return fairness.Members.of(labels, known.concepts.latent), known


@pytest.mark.slow
def test_counts_are_those_of_score(labels):
    codes = scipy.sparse.random_array((400, 30), density=0.2, rng=np.random.default_rng(0), format="csr")
    threshold = np.linspace(0, 0.7, 30)
    members, _ = members_of(labels)
    counts = fairness.Counts.of(codes, threshold, members)
    table = score(labels, codes, threshold=threshold, draws=1)
    np.testing.assert_allclose(counts.f1.max(1), table.concepts["f1"])
    assert counts.l0 / 400 == pytest.approx(table.summary["l0"])


@pytest.mark.parametrize("levels", [3, 40, None])
def test_thresholds_are_the_best_of_all(labels, levels):
    rng = np.random.default_rng(1)
    members, known = members_of(labels)
    dense = members.matrix.toarray().T * 0.5 + rng.random((400, members.size.size))  # fires everywhere, stronger inside
    dense[rng.random(dense.shape) < 0.3] = 0
    dense[:, 1] = 0  # dead
    if levels is not None:
        dense = np.ceil(dense * levels) / levels  # with ties
    codes, counted = scipy.sparse.csr_array(dense), known.concepts.summarised
    codes.data[0] = 0  # a stored zero does not fire
    chosen, recovery = fairness.choose_thresholds(members, known.concepts.upper, counted, codes)
    inside = members.matrix.toarray()[counted]
    for f in range(dense.shape[1]):
        values = codes.toarray()[:, f]
        limits = np.unique(np.append(values, 0))[:-1] if values.any() else np.zeros(1)
        fires = values[:, None] > limits
        best = (2 * (inside @ fires) / (fires.sum(0) + inside.sum(1)[:, None])).max(0)
        assert chosen[f] == limits[np.flatnonzero(best == best.max())[0]]  # the lowest of equally good ones
    f1 = fairness.Counts.of(codes, chosen, members).f1[counted]
    assert recovery == pytest.approx(f1.max(1).mean())
    assert recovery > fairness.Counts.of(codes, 0.0, members).f1[counted].max(1).mean()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=12), st.data())
def test_auc_counts_pairs(values, data):
    inside = np.array(sorted(data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=len(values) - 1))))
    outside = np.setdiff1d(np.arange(len(values)), inside)
    v = np.array(values, float)
    pairs = [(v[i] > v[j]) + (v[i] == v[j]) / 2 for i, j in itertools.product(inside, outside)]
    assert fairness.auc(v, inside) == pytest.approx(np.mean(pairs))


def test_planted_effects_correct_a_share_of_the_errors_of_each_concepts_feature(labels):
    shares, limit = (0.0, 0.3, 0.6, 1.0), np.array([0.0, 0.4, 0.0])
    codes = scipy.sparse.random_array((400, 3), density=0.4, rng=np.random.default_rng(3), format="csr")
    codes.data += 0.01
    members, _ = members_of(labels)
    feature = np.arange(members.size.size) % 3
    made = fairness.planted(codes, limit, members, feature, shares, 0).toarray().reshape(400, -1, len(shares))
    for c, f in enumerate(feature):
        inside = np.isin(np.arange(400), members.rows(c))
        fires, before = made[:, c] > 0, codes[:, [f]].toarray().ravel() > limit[f]
        assert (fires[:, 0] == before).all()
        assert (fires[:, -1] == inside).all()
        wrong = before != inside
        corrected = fires != before[:, None]
        assert not corrected[~wrong].any()
        assert (corrected[:, 1] <= corrected[:, 2]).all()  # larger effects correct the same errors, and more
        for s, share in enumerate(shares):
            spread = 4 * np.sqrt(share * (1 - share) / wrong.sum())
            assert corrected[wrong, s].mean() == pytest.approx(share, abs=spread + 1e-9)
    kept = (made[..., 1] > 0) & (codes.toarray()[:, feature] > limit[feature])
    np.testing.assert_array_equal(made[..., 1][kept], codes.toarray()[:, feature][kept])


def test_one_to_one_is_the_best_assignment():
    f1 = np.random.default_rng(2).random((4, 5))
    best = max(sum(f1[c, f] for c, f in enumerate(order)) for order in itertools.permutations(range(5), 4))
    assert fairness.one_to_one(f1).sum() == pytest.approx(best)
    assert (fairness.one_to_one(f1[:, :2]) == 0).sum() == 2  # more concepts than features


@pytest.mark.sae
def test_mcc_and_uniqueness_are_those_of_saelens():
    torch = pytest.importorskip("torch")
    evals = pytest.importorskip("sae_lens.synthetic.evals")
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((12, 6)), rng.standard_normal((9, 6))
    codes = rng.random((50, 12)) * (rng.random((50, 12)) < 0.3)
    true = (rng.random((50, 9)) < 0.4).astype(float)
    counts = fairness.Counts(true.T @ (codes > 0), (codes > 0).sum(0).astype(float), true.sum(0).astype(int))
    # SAELens takes absolute cosines: the two agree where cosines are positive.
    found = fairness.by_direction(np.abs(a), np.abs(b), counts, np.arange(9))
    given_ = [torch.from_numpy(part) for part in (codes, true, np.abs(a), np.abs(b))]
    theirs = evals.compute_classification_metrics(*given_)
    assert found["mcc"] == pytest.approx(evals.mean_correlation_coefficient(*given_[2:]), rel=1e-6)
    assert found["uniqueness"] == pytest.approx(evals.feature_uniqueness(*given_[2:]))
    assert found["latent_precision"] == pytest.approx(theirs.precision, rel=1e-6)
    assert found["latent_recall"] == pytest.approx(theirs.recall, rel=1e-6)


def test_directions_of_siblings_are_opposites_and_not_the_same():
    true = np.array([[1.0, 0.0], [-1.0, 0.0]])
    counts = fairness.Counts(np.array([[8.0, 1.0], [1.0, 8.0]]), np.array([9.0, 9.0]), np.array([10, 10]))
    found = fairness.by_direction(np.array([[2.0, 0.1], [-3.0, 0.1]]), true, counts, np.arange(2))
    assert found["uniqueness"] == 1
    assert found["latent_recall"] == pytest.approx(0.8)
    one_sided = fairness.by_direction(np.array([[2.0, 0.1], [3.0, 0.1]]), true, counts, np.arange(2))
    assert one_sided["mcc"] == pytest.approx(0, abs=0.05)  # one of them points away from its direction


def test_a_linear_reading_has_the_recall_that_it_is_asked_for(labels):
    rng = np.random.default_rng(4)
    members, known = members_of(labels)
    values = (members.matrix.toarray().T + 0.1 * rng.standard_normal((400, members.size.size))).astype(np.float32)
    readings = values @ fairness.discriminants(values, members)
    assert np.nanmin(fairness.reading_auc(readings, members)[known.concepts.summarised]) > 0.99
    upper = known.concepts.upper
    full = fairness.reading_edges(readings, members, upper, np.ones(upper.size))
    assert np.isnan(full[upper < 0]).all()
    assert (full[upper >= 0] == 0).all()  # recall 1 is 1 inside and outside


def test_planted_absorption_is_found_and_independent_misses_are_not(labels):
    nothing = np.empty((400, 0))
    planted = Oracle(labels, absorbed=0.5, min_size=20).fit(nothing).encode(nothing)
    concepts = score(labels, planted, draws=1).concepts
    members, known = members_of(labels)
    upper = known.concepts.upper
    dense = planted.toarray().T.astype(np.float64)
    edges = concepts["absorption_edge"].to_numpy()
    for c in np.flatnonzero(upper >= 0):
        inside, outside = members.rows(c), np.setdiff1d(members.rows(upper[c]), members.rows(c))
        feature = dense[concepts["best_feature"][upper[c]]]
        assert edges[c] == pytest.approx(feature[outside].mean() - feature[inside].mean())
    assert np.nanmean(edges) > 0.05  # 0.08 with this seed
    missed = Oracle(labels, flipped=0.05, min_size=20).fit(nothing).encode(nothing)
    assert abs(np.nanmean(score(labels, missed, draws=1).concepts["absorption_edge"])) < 0.05


def test_a_split_oracle_needs_all_its_parts(labels):
    nothing = np.empty((400, 0))
    codes = Oracle(labels, split=3, min_size=20).fit(nothing).encode(nothing)
    table = score(labels, codes, draws=1).concepts
    table = table[table["summarised"]]
    assert (table["k"] == 3).mean() > 0.9  # the greedy union may begin with a part of a concept above
    assert table["f1_union"].median() == 1


def test_trees_against_a_slow_reading(labels):
    _, known = members_of(labels)
    upper = known.concepts.upper
    f1 = np.eye(upper.size)
    perfect = fairness.tree_scores(upper, f1, upper)
    assert perfect == {"tree_edges": 1.0, "tree_ancestors": 1.0, "tree_recall": 1.0}
    skipped = np.array([u if u < 0 or upper[u] < 0 else upper[u] for u in upper])  # two steps up where there are two
    found = fairness.tree_scores(skipped, f1, upper)
    direct = [skipped[c] == upper[c] for c in range(upper.size) if skipped[c] >= 0]
    assert found["tree_edges"] == pytest.approx(np.mean(direct))
    assert found["tree_ancestors"] == 1.0
    with pytest.raises(ValueError, match="parents must be one number"):
        fairness.tree_scores(np.full(3, 7), f1, upper)


def test_sparse_probes_find_what_one_feature_says(labels):
    members, known = members_of(labels)
    codes = scipy.sparse.csr_array(members.matrix.T)
    counted = known.concepts.summarised
    one, five = fairness.sparse_probes((codes, members), (codes, members), (1, 5))
    np.testing.assert_allclose(one[counted], 1.0)
    assert (five[counted] > 0.95).all()


def test_nearest_centres_fire_and_decode_to_their_mean():
    rows = np.random.default_rng(6).standard_normal((200, 4))
    method = KMeans(10, k=3).fit(rows)
    codes = method.encode(rows).toarray()
    centres = method.directions + method.bias
    distance = np.square(rows[:, None] - centres).sum(2)
    nearest = np.argsort(distance, axis=1)[:, :3]
    assert all(set(np.flatnonzero(code)) == set(near) for code, near in zip(codes, nearest, strict=True))
    np.testing.assert_allclose(codes @ method.directions + method.bias, centres[nearest].mean(1), atol=3e-3)
    method.k = 11
    with pytest.raises(ValueError, match="k must be at most n_features, 10, got 11"):
        method.encode(rows)


def test_true_directions_are_a_ceiling_where_concepts_are_directions(labels):
    members, known = members_of(labels)
    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((members.size.size, 60))
    values = members.matrix.T @ vectors + 0.05 * rng.standard_normal((400, 60))
    codes = TrueDirections(labels, k=4, min_size=20).fit(values).encode(values)
    assert (np.diff(codes.indptr) <= 4).all()
    _, recovery = fairness.choose_thresholds(members, known.concepts.upper, known.concepts.summarised, codes)
    assert recovery > 0.8


def test_stability_has_arbitrary_rows_beside_it():
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((300, 30))
    first = rng.standard_normal((12, 30))
    again, purity = np.concatenate([first[:6], rng.standard_normal((4, 30))]), np.linspace(1, 0, 12)
    found = fairness.stability(first, again, purity, rows, 0)
    assert np.isfinite(fairness.matched_cosines(first, again)).sum() == 10
    np.testing.assert_allclose(fairness.matched_cosines(first, again)[:6], 1)
    assert found["stability"] == pytest.approx(fairness.mcc(first, again))
    assert 0.1 < found["stability_rows"] < 0.6 < found["stability"]
    assert found["stability_purity"] > 0.5  # the six that both have are the purest
