"""Linear probes of any activations: against scikit-learn and obvious loops, with and without a planted effect."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score

import percolab as pl
from percolab.nn import linear_probe
from percolab.nn.probing import ridge
from percolab.nn.probing.ridge import take

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

DRAWS = 4


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(pl.Recipe(1200, 6, "distribution", seeds=3, min_cluster_size=20))


@pytest.fixture(scope="module")
def activations(dataset):
    """Random ReLU features, one of them dead and one far from 0."""
    A = np.maximum(np.asarray(dataset.X) @ np.random.default_rng(0).standard_normal((6, 30)), 0)
    A[:, 0] = 0
    A[:, 1] += 1000
    return A


def fitted(A, train, t, alpha=1.0):
    """Return what scikit-learn reads from all lines, and its weights for activations as they are."""
    mean, std = A[train].mean(0), A[train].std(0) + 1e-6
    model = Ridge(alpha=alpha).fit((A[train] - mean) / std, t[train])
    return model.predict((A - mean) / std), model.coef_ / std


def values_by_walking(dataset, latents, kind):
    """Return the target and the latent of every row, by its path."""
    target, found = np.zeros(len(dataset)), np.full(len(dataset), -1)
    for row in range(len(dataset)):
        path = dataset.forest.path(row)
        for i, latent in enumerate(path):
            if latent in latents:
                found[row] = latent
                target[row] = dataset.latent_z[latent] if kind == "z" else dataset.latent_z[path[: i + 1]].sum()
    return target, found


@pytest.mark.parametrize("kind", ["z", "sum"])
def test_values_equal_scikit_learn(dataset, activations, kind):
    depth = 3
    latents = np.flatnonzero(dataset.forest.latent_depth == depth)
    target, latent = values_by_walking(dataset, set(latents.tolist()), kind)
    split = pl.split_rows(dataset)
    probe = linear_probe(dataset, activations, kind, depth=depth, split=split, draws=DRAWS, device="cpu")
    train, test = (part[latent[part] >= 0] for part in (split.train, split.test))
    predicted, weights = fitted(activations, train, target)
    [row] = probe.table.to_dict("records")
    assert (row["n_train"], row["n_test"]) == (train.size, test.size)
    assert row["score"] == pytest.approx(r2_score(target[test], predicted[test]), abs=1e-8)
    assert np.allclose(probe.weights[:, 0], weights, atol=1e-7)
    assert np.allclose(probe.predict(activations)[:, 0], predicted, atol=1e-6)
    table = probe.per_latent.set_index("latent")
    for one in np.unique(latent[test]):
        lines = test[latent[test] == one]
        assert table.loc[one, "n_test"] == lines.size
        assert table.loc[one, "MSE"] == pytest.approx(np.mean((predicted[lines] - target[lines[0]]) ** 2), abs=1e-9)
        assert table.loc[one, "baseline"] == pytest.approx((target[train].mean() - target[lines[0]]) ** 2, abs=1e-9)
    assert set(table.index) == set(latent[test])
    for name in ("permuted", "fresh"):
        assert probe.draws[name].shape == (DRAWS, 1)
        assert row[name] == pytest.approx(probe.draws[name].mean())
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
    assert row["p"] == (1 + np.sum(probe.draws["fresh"] >= row["score"])) / (1 + DRAWS)
    by_list = linear_probe(dataset, activations, kind, latents=latents, split=split, draws=DRAWS, device="cpu")
    assert by_list.table.equals(probe.table)


def test_membership_equals_scikit_learn(dataset, activations):
    concepts = dataset.forest.concepts(12)  # nested: each has a probe of its own
    split = pl.split_rows(dataset, by="subtree", max_size=8)
    probe = linear_probe(dataset, activations, "membership", latents=concepts, split=split, draws=2, device="cpu")
    assert probe.measure == "AUC"
    assert probe.table["target"].tolist() == concepts.tolist()
    for column, latent in enumerate(concepts):
        inside = np.zeros(len(dataset))
        inside[dataset.forest.points_of(latent)] = 1
        score = probe.table["score"][column]
        if np.ptp(inside[split.test]) == 0:
            assert np.isnan(score)
        else:
            predicted, _ = fitted(activations, split.train, inside)
            assert score == pytest.approx(roc_auc_score(inside[split.test], predicted[split.test]), abs=1e-6)
    assert probe.table["score"].notna().sum() > 3
    assert probe.per_latent is None
    assert "AUC" in repr(probe)


def test_own_targets_on_some_rows_in_any_order(dataset, activations):
    rows = np.random.default_rng(1).permutation(len(dataset))[:700]
    rows = np.append(rows, rows[:50])  # some come twice
    own = np.column_stack([dataset.y[rows], dataset.X[rows, 0] ** 2])
    train, test = np.arange(0, len(dataset), 2), np.arange(1, len(dataset), 2)
    probe = linear_probe(
        dataset, activations[rows], own, rows=rows, split=(train, test), alpha=10, draws=DRAWS, device="cpu"
    )
    even = rows % 2 == 0
    for column in range(2):
        predicted, weights = fitted(activations[rows], even, own[:, column], alpha=10)
        assert probe.table["score"][column] == pytest.approx(r2_score(own[~even, column], predicted[~even]), abs=1e-8)
        assert np.allclose(probe.weights[:, column], weights, atol=1e-7)
    truth_values = linear_probe(dataset, activations, dataset.y > 0, draws=2, device="cpu")
    assert truth_values.measure == "AUC"
    assert truth_values.table["score"][0] > 0.7


def test_the_same_from_array_tensor_and_memory_map(dataset, activations, tmp_path):
    np.save(tmp_path / "a.npy", activations)
    kinds = [activations, torch.from_numpy(activations), np.load(tmp_path / "a.npy", mmap_mode="r")]
    probes = [linear_probe(dataset, A, "z", depth=2, draws=2, device="cpu") for A in kinds]
    for other in probes[1:]:
        assert other.table.equals(probes[0].table)
        assert np.array_equal(other.weights, probes[0].weights)
    half = linear_probe(dataset, torch.from_numpy(activations).to(torch.bfloat16), "z", depth=2, draws=2, device="cpu")
    assert half.table["score"][0] == pytest.approx(probes[0].table["score"][0], abs=0.1)


@pytest.mark.parametrize("validated", [True, False])
def test_of_several_penalties_the_best_is_taken(dataset, activations, validated):
    wide = np.concatenate([activations, np.random.default_rng(0).standard_normal((len(dataset), 150))], 1)
    latent = dataset.forest.latent_at_depth(3)
    used = np.flatnonzero(latent >= 0)
    target = np.where(latent >= 0, dataset.latent_z[latent], 0)
    split = pl.split_rows(dataset)
    given = split if validated else (split.train, split.test)
    alphas = [0.1, 100.0, 1e9]
    probe = linear_probe(dataset, wide, "z", depth=3, split=given, alpha=alphas, draws=2, device="cpu")
    train, validation, test = (np.intersect1d(part, used) for part in (split.train, split.validation, split.test))
    assert probe.alpha.tolist() == [100.0]
    predicted, _ = fitted(wide, train, target, alpha=100.0)
    assert probe.table["score"][0] == pytest.approx(r2_score(target[test], predicted[test]), abs=1e-8)
    errors = [np.mean((fitted(wide, train, target, a)[0] - target)[validation] ** 2) for a in alphas]
    assert np.argmin(errors) == 1


@pytest.mark.parametrize("alpha", [1.0, [0.1, 1]])
@pytest.mark.parametrize("validated", [True, False])
def test_activations_are_read_as_often_as_is_said(dataset, activations, alpha, validated, monkeypatch):
    """Each line that is used once; those that choose a penalty and are fitted too twice."""
    read = np.zeros(len(dataset), int)

    def counted(name, values, rows, *rest):
        read[rows] += name == "activations" and rows.size > 1  # but for the one that moments are about
        return take(name, values, rows, *rest)

    monkeypatch.setattr(ridge, "take", counted)
    split = pl.split_rows(dataset)
    given = split if validated else (split.train, split.test)
    linear_probe(dataset, activations, "z", depth=2, split=given, alpha=alpha, draws=1, device="cpu")
    used = dataset.forest.latent_at_depth(2) >= 0
    tuned = used & np.isin(np.arange(len(dataset)), split.validation)
    assert (read[~used] == 0).all()
    assert (read[np.intersect1d(split.test, np.flatnonzero(used))] == 1).all()
    if validated:
        assert (read[tuned] == (0 if alpha == 1.0 else 1)).all()
    expected = {1} if alpha == 1.0 or validated else {1, 2}
    assert set(read[np.intersect1d(split.train, np.flatnonzero(used))]) == expected


def test_the_same_from_what_only_slices(dataset, activations, monkeypatch):
    class Sliced:
        shape = activations.shape

        def __len__(self):
            return len(activations)

        def __getitem__(self, rows):
            assert isinstance(rows, slice)
            assert rows.stop - rows.start <= 100
            return activations[rows]

    whole = linear_probe(dataset, activations, "z", depth=2, alpha=[0.1, 1], draws=1, device="cpu")
    monkeypatch.setitem(ridge.CHUNK_ROWS, "cpu", 100)
    sliced = linear_probe(dataset, Sliced(), "z", depth=2, alpha=[0.1, 1], draws=1, device="cpu")
    assert np.allclose(sliced.weights, whole.weights)
    assert np.allclose(sliced.table["score"], whole.table["score"])


def test_a_factor_of_a_world():
    world = pl.superpose([pl.Recipe(600, 5, "one_cluster", seeds=seed) for seed in (0, 1)], weights=[1, 0], seed=2)
    X = np.asarray(world.X)
    for k, factor in enumerate(world.factors):
        even = world.rows[:, k] % 2 == 0
        probe = linear_probe(world, X, "sum", depth=4, factor=k, split=(even, ~even), draws=2, device="cpu")
        in_order = X[np.argsort(world.rows[:, k])]
        halves = np.arange(0, 600, 2), np.arange(1, 600, 2)
        same = linear_probe(factor, in_order, "sum", depth=4, split=halves, draws=2, device="cpu")
        assert np.allclose(probe.weights, same.weights)
        assert np.allclose(probe.per_latent, same.per_latent)
        assert np.allclose(probe.table[["score", "fresh"]], same.table[["score", "fresh"]])
    with pytest.raises(ValueError, match="factor must be"):
        linear_probe(world, np.asarray(world.X), "z", depth=4, device="cpu")


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(30, 120),
    mode=st.sampled_from(["one_cluster", "distribution"]),
    data=st.data(),
)
def test_any_forest(seed, n, mode, data):
    """Every line in a chosen latent is used, others are not; planted values are read back exactly."""
    ds = pl.generate(pl.Recipe(n, 3, mode, seeds=seed))
    if not ds.forest.n_latents:
        return
    cut = ds.forest.cut(max_size=data.draw(st.integers(2, 20)))
    nodes = np.unique(cut.nodes)
    latents = nodes[nodes >= n] - n
    inside = np.isin(cut.nodes[cut.groups], latents + n) if latents.size else np.zeros(n, bool)
    if inside.sum() < 5:
        return
    kind = data.draw(st.sampled_from(["z", "sum"]))
    target, _ = values_by_walking(ds, set(latents.tolist()), kind)
    A = np.column_stack([2 * target + 1, np.random.default_rng(seed).standard_normal(n)])
    probe = linear_probe(ds, A, kind, latents=latents, alpha=1e-9, draws=2, device="cpu")
    assert probe.table["n_train"][0] + probe.table["n_test"][0] == inside.sum()
    assert probe.table["n_train"][0] == int(0.7 * inside.sum())
    if np.ptp(target[inside]) > 0.5 and probe.table["n_train"][0] > 4:
        assert np.allclose(probe.per_latent["MSE"], 0, atol=1e-4)


def test_planted_values_are_found_and_none_where_there_are_none():
    """Held-out subtrees: activations with z in them are told from fresh values; without, at the rate of chance."""
    ds = pl.generate(pl.Recipe(4000, 4, "distribution", seeds=5, min_cluster_size=8))
    latents = np.flatnonzero((ds.forest.latent_depth == 0) & (ds.forest.latent_size >= 8))
    split = pl.split_rows(ds, by="cluster")
    found, nothing = [], []
    for draw in range(20):
        rng = np.random.default_rng(draw)
        noise = rng.standard_normal((len(ds), 5))
        top = ds.latent_z[ds.forest.latent_at_depth(0)]
        planted = noise.copy()
        planted[:, 2] += 3 * top
        for A, seen in ((planted, found), (noise, nothing)):
            seen.append(
                linear_probe(ds, A, "z", latents=latents, split=split, draws=19, seed=draw, device="cpu").table["p"][0]
            )
    assert np.max(found) <= 0.05
    # p ≤ 0.05 has probability 1/20 in each of 20 draws: 5 or more have probability 0.003.
    assert np.count_nonzero(np.array(nothing) <= 0.05) <= 4


def test_how_it_shows(dataset, activations):
    probe = linear_probe(dataset, activations, "z", depth=3, draws=3, device="cpu")
    assert repr(probe).startswith("LinearProbe(z: R2 0.")
    assert len(repr(probe)) < 80
    assert "on held-out rows, with fresh values " in repr(probe)
    assert "with fresh values" in probe._repr_html_()
    own = linear_probe(dataset, activations, np.column_stack([dataset.y, dataset.y]), draws=3, device="cpu")
    assert repr(own).startswith("LinearProbe(your target, 2 columns: R2 ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "y"}, "target must be one of z, sum, membership, got 'y'"),
        ({"depth": None}, "latents or depth must be given with target 'z', got neither"),
        ({"latents": [1]}, "latents or depth must be given with target 'z', got both"),
        ({"depth": None, "latents": [0, 1]}, r"latents must share no row for target 'z', got 0 and 1"),
        ({"depth": None, "latents": []}, "latents must not be empty, got none"),
        ({"depth": None, "latents": [10**6]}, r"latents must be between 0 and \d+, got 1000000"),
        ({"depth": 5000}, "depth must be one that some latent has, got 5000"),
        ({"target": np.zeros(3), "depth": None}, r"target must have shape \(\d+,\) or \(\d+, k\), got \(3,\)"),
        ({"target": np.zeros(1200)}, "latents and depth must be left out with a target of one's own"),
        ({"activations": np.zeros(5)}, r"activations must be an array or tensor of shape \(lines, width\), got \(5,\)"),
        ({"activations": [[1.0]]}, "activations must be an array or tensor .* got list"),
        ({"activations": np.zeros((7, 2))}, r"activations must have a line for each row of the dataset, \d+, got 7"),
        ({"rows": [0, 1]}, r"activations must have a line for each of the rows, 2, got \d+"),
        ({"rows": [[0]]}, "rows must be indices or a mask"),
        ({"alpha": 0}, "alpha must be a positive number or several, got 0"),
        ({"alpha": []}, r"alpha must be a positive number or several, got \[\]"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"factor": 1}, "factor must be 0 or left out"),
        ({"split": 0.7}, "split must be a Split or a pair of training and test rows, got float"),
        ({"split": ([0, 1], [1, 2])}, "split must have parts that share no row, got row 1 twice"),
        ({"split": ([], [0])}, "split must leave lines to train on and lines to test on"),
    ],
)
def test_bad_input(dataset, activations, change, message):
    arguments = {"activations": activations, "target": "z", "depth": 2, "draws": 2, "device": "cpu"} | change
    with pytest.raises(ValueError, match=message) as error:
        linear_probe(dataset, **arguments)
    assert "\n" not in str(error.value)


def test_bad_numbers(dataset, activations):
    A = activations.copy()
    A[77, 2] = np.nan
    with pytest.raises(ValueError, match="activations must be finite, got NaN or infinity in line 77"):
        linear_probe(dataset, A, "z", depth=2, draws=2, device="cpu")
    with pytest.raises(ValueError, match="target must be finite, got nan"):
        linear_probe(dataset, activations, np.full(len(dataset), np.nan), device="cpu")
    with pytest.raises(ValueError, match="target must be numbers or truth values, got <U1"):
        linear_probe(dataset, activations, np.full(len(dataset), "a"), device="cpu")
