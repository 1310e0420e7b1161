"""Activations and linear probes: against scikit-learn and obvious loops."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import percolab as pl
from percolab.nn import ProbeConfig, ResidualMLP, activations, probes
from percolab.nn.probing.errors import LEAST_BASELINE
from percolab.nn.probing.probed_latents import (
    LATENT_TARGETS,
    columns,
    find_places,
    fresh_values,
    random_points,
    targets_of,
    whole_subtrees,
)

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

CONFIG = ProbeConfig(depths=(0, 5, 10, 20, 40, 1000), min_latent_size=25, draws=3)


@pytest.fixture(scope="module", params=["one_cluster", "distribution"])
def dataset(request):
    sizes = {"one_cluster": (2500, 1), "distribution": (8000, 30)}[request.param]
    return pl.generate(pl.Recipe(sizes[0], 6, request.param, seeds=1, min_cluster_size=sizes[1], engine="paper"))


@pytest.fixture(scope="module")
def features(dataset):
    """Random ReLU features, one of them dead and one far from 0."""
    weights = np.random.default_rng(0).standard_normal((6, 40)) / 3
    A = np.maximum(np.asarray(dataset.X) @ weights, 0).astype(np.float32)
    A[:, 0] = 0
    A[:, 1] += 1000
    return A


@pytest.fixture(scope="module")
def result(dataset, features):
    return probes(dataset, {"features": features}, CONFIG, device="cpu")


def rows_at(dataset, depth):
    """Return the rows of a depth and their latents, by the definition."""
    latent = dataset.forest.latent_at_depth(depth)
    rows = np.flatnonzero(latent >= 0)
    rows = rows[dataset.forest.latent_size[latent[rows]] >= CONFIG.min_latent_size]
    return rows, latent[rows]


def plans(dataset, protocol):
    """Return the latents that are probed, and the part of each row."""
    rows, least = np.arange(len(dataset)), CONFIG.min_latent_size
    places = find_places(dataset.forest, rows, CONFIG.depths, least, least=1)
    if protocol == "random":
        return places, random_points(places, rows, CONFIG.train_share, CONFIG.seed)
    return places, whole_subtrees(dataset.forest, places, rows, least, CONFIG.folds)[0]


def held_out_in_turn(places, part):
    """Return, for each part that is held out, who trains and who is held out."""
    inside = places.level >= 0
    return [(inside & (part != fold), inside & (part == fold)) for fold in range(part.max() + 1)]


def targets_at(dataset, places):
    rows = np.arange(len(dataset))
    return targets_of(dataset.forest, dataset.latent_z, places, rows, CONFIG.draws, CONFIG.seed)


def test_rows_and_targets_are_as_defined(dataset):
    places, _ = plans(dataset, "random")
    assert places.depths.tolist() == [0, 5, 10, 20, 40]
    found = targets_at(dataset, places)
    at = {column: k for k, column in enumerate(columns(CONFIG.draws))}
    assert found.shape == (len(dataset), 5, len(at))
    assert list(at) == [("z", 0), ("sum", 0)] + [
        (name, draw)
        for name in ("z_redrawn", "sum_redrawn", "z_shuffled", "sum_shuffled")
        for draw in range(CONFIG.draws)
    ]
    fresh = fresh_values(dataset.forest, CONFIG.draws, CONFIG.seed)
    assert np.abs(np.corrcoef(fresh.T) - np.eye(CONFIG.draws)).max() < 0.1
    for index, depth in enumerate(places.depths):
        expected, latent = rows_at(dataset, depth)
        assert np.array_equal(np.flatnonzero(places.level >= index), expected)
        assert np.array_equal(places.latent[places.where[expected, index]], latent)
        assert not found[places.level < index, index].any()
        targets = found[expected, index]
        assert np.allclose(targets[:, at["z", 0]], dataset.latent_z[latent])
        for draw in range(CONFIG.draws):
            assert np.allclose(targets[:, at["z_redrawn", draw]], fresh[latent, draw])
        for i in range(0, expected.size, 97):
            path = dataset.forest.path(int(expected[i]))[: depth + 1]
            assert targets[i, at["sum", 0]] == pytest.approx(dataset.latent_z[path].sum(), abs=1e-5)
            for draw in range(CONFIG.draws):
                assert targets[i, at["sum_redrawn", draw]] == pytest.approx(fresh[path, draw].sum(), abs=1e-4)
        for name in ("z", "sum"):  # shuffled: the same values elsewhere
            for draw in range(CONFIG.draws):
                shuffled = targets[:, at[f"{name}_shuffled", draw]]
                assert np.array_equal(np.sort(targets[:, at[name, 0]]), np.sort(shuffled))


def test_random_split_has_exact_counts(dataset):
    places, part = plans(dataset, "random")
    [(train, held_out)] = held_out_in_turn(places, part)
    for index in range(places.depths.size):
        inside = places.level >= index
        assert np.count_nonzero(train & inside) == int(0.7 * np.count_nonzero(inside))
        assert np.array_equal(held_out & inside, ~train & inside)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["random", "subtree"])
def test_probes_equal_scikit_learn(dataset, features, result, protocol):
    places, part = plans(dataset, protocol)
    held_out, targets = held_out_in_turn(places, part), targets_at(dataset, places)
    table = result.per_latent[result.per_latent["draw"] < 2]
    alphas = result.penalties.set_index(["protocol", "target", "draw", "representation", "fold"])
    compared = 0
    for name, A in {"raw": np.asarray(dataset.X, np.float32), "features": features}.items():
        for index, depth in enumerate(places.depths):
            at, latent = rows_at(dataset, depth)
            for fold, (trained, held) in enumerate(held_out):
                train = trained[at]
                mean, std = A[at[train]].astype(float).mean(0), A[at[train]].astype(float).std(0) + 1e-6
                standard = (A[at] - mean) / std
                for k, (target, draw) in enumerate(columns(CONFIG.draws)):
                    if target not in LATENT_TARGETS or draw > 1:
                        continue
                    t = targets[at, index, k]
                    alpha = alphas.loc[(protocol, target, draw, name, fold), "alpha"]
                    model = Ridge(alpha=alpha).fit(standard[train], t[train])
                    squared = (model.predict(standard) - t) ** 2
                    own = table[(table["protocol"] == protocol) & (table["representation"] == name)]
                    own = own[(own["target"] == target) & (own["draw"] == draw)]
                    own = own[own["depth"] == depth].set_index("latent")
                    for one in np.unique(latent):
                        scored = (latent == one) & held[at]
                        if protocol == "subtree" and not scored[latent == one].all():
                            continue
                        if scored.any():
                            row = own.loc[one]
                            assert row["n_validation"] == scored.sum()
                            assert row["MSE"] == pytest.approx(squared[scored].mean(), rel=1e-4, abs=1e-7)
                            expected = (t[train].mean(dtype=float) - t[scored][0]) ** 2
                            assert row["baseline"] == pytest.approx(expected, rel=1e-4, abs=1e-7)
                            compared += 1
    assert compared == len(table[table["protocol"] == protocol])


def test_per_depth_is_the_sum_of_its_latents(result):
    latents = result.per_latent
    keys = ["protocol", "target", "draw", "representation", "depth"]
    for (protocol, target, draw, name, depth), group in latents.groupby(keys):
        whole = result.per_depth
        whole = whole[(whole["protocol"] == protocol) & (whole["target"] == target) & (whole["draw"] == draw)]
        [row] = whole[(whole["representation"] == name) & (whole["depth"] == depth)].to_dict("records")
        n = group["n_validation"]
        assert row["n_validation"] == n.sum()
        assert row["n_latents"] == len(group)
        assert row["MSE"] == pytest.approx((group["MSE"] * n).sum() / n.sum(), rel=1e-9)
        assert row["mean_MSE"] == pytest.approx((group["baseline"] * n).sum() / n.sum(), rel=1e-4, abs=1e-9)


def test_columns(dataset, result):
    table = result.per_latent
    expected = ["protocol", "target", "draw", "representation", "depth", "latent", "s_latent", "s_cluster", "FOM"]
    assert list(table) == [*expected, "n_validation", "MSE", "baseline"]
    forest = dataset.forest
    assert np.array_equal(table["s_latent"], forest.latent_size[table["latent"]])
    assert np.array_equal(table["depth"], forest.latent_depth[table["latent"]])
    assert np.allclose(table["FOM"], table["s_latent"] / np.sqrt(table["s_cluster"]))
    assert "from depth 1000 on no latent has 25 points" in result.skipped


def test_shuffled_control_is_near_zero(result):
    table = result.per_depth
    table = table[table["n_train"] > 400]  # ten rows a feature
    own = table[(table["protocol"] == "random") & table["target"].isin(["z_shuffled", "sum_shuffled"])]
    assert own["R2"].dropna().abs().max() < 0.25
    assert own["R2"].median() == pytest.approx(0, abs=0.06)
    true = table[(table["protocol"] == "random") & (table["target"] == "z")]
    assert true["R2"].median() > 0.3


def test_subtree_protocol_shows_no_point_of_a_scored_latent(dataset, result):
    held_out = held_out_in_turn(*plans(dataset, "subtree"))
    assert len(held_out) >= 2
    scored = result.per_latent[result.per_latent["protocol"] == "subtree"]["latent"].unique()
    assert scored.size
    for latent in scored:
        interval = dataset.forest.points_of(int(latent))
        folds = [train for train, held in held_out if held[interval].any()]
        assert len(folds) == 1
        assert not folds[0][interval].any()


def test_activations_by_module_name(dataset):
    model = ResidualMLP(6, 8, 2, seed=0).train()
    X = torch.tensor(np.float32(dataset.X))
    found = activations(model, dataset.X, batch_size=700, device="cpu")
    assert list(found) == ["input", "blocks.0.hidden", "blocks.0", "blocks.1.hidden", "blocks.1"]
    with torch.no_grad():
        stream = model.input(X)
        hidden = torch.relu(model.blocks[0].widen(stream))
        after = stream + model.blocks[0].narrow(hidden)
    for name, expected in {"input": stream, "blocks.0.hidden": hidden, "blocks.0": after}.items():
        assert torch.allclose(found[name], expected, atol=1e-5), name
    assert model.training
    other = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Tanh())
    assert torch.allclose(activations(other, X, ["1"], device="cpu")["1"], other(X).detach())


# ---------------------------------------------------------------------- bad input


def test_too_few_latents_above_the_limit(dataset):
    sizes = dataset.forest.latent_size
    depths = dataset.forest.latent_depth
    second = max((np.sort(sizes[depths == d])[-2] for d in range(0, 201, 5) if np.sum(depths == d) > 1), default=0)
    words = rf"min_latent_size must leave two latents at some depth, got {second + 1} and at these depths no second "
    with pytest.raises(ValueError, match=words + rf"latent has more than {second} points"):
        probes(dataset, {}, ProbeConfig(min_latent_size=second + 1), device="cpu")
    with pytest.raises(ValueError, match=r"min_latent_size must leave two latents .* has more than 0 points"):
        probes(dataset, {}, ProbeConfig(depths=(5000,)), device="cpu")


def test_progress_counts_fits(dataset):
    told = []
    probes(dataset, {}, CONFIG, device="cpu", progress=lambda *step: told.append(step))
    total = told[-1][2]
    assert told == [("probes", done, total) for done in range(total + 1)]


def test_relative_errors_leave_out_what_is_one_by_construction(result):
    table = result.per_depth[result.per_depth["mean_MSE"] >= LEAST_BASELINE]
    for errors in result.errors:
        for target in ("z", "sum_redrawn"):
            own = table[(table["protocol"] == errors.protocol) & (table["target"] == target)]
            own = own[own["representation"] == "features"]
            for draw, found in enumerate(errors.relative("features", target)):
                ratios = own[own["draw"] == draw].set_index("depth").eval("MSE / mean_MSE")
                ratios = ratios[(ratios - 1).abs() > 1e-9]
                there = ~np.isnan(found)
                assert errors.depths[there].tolist() == ratios.index.tolist()
                assert np.allclose(found[there], ratios)


def test_the_penalty_is_chosen_by_holding_out_subtrees_of_the_training_rows(dataset, features, result):
    """Against scikit-learn: fits without a part and one other, scored on that one, each latent counting alike."""
    places, parts = plans(dataset, "subtree")
    forest, targets = dataset.forest, targets_at(dataset, places)
    table = result.per_latent
    table = table[(table["protocol"] == "subtree") & (table["target"] == "z") & (table["representation"] == "features")]
    for part in range(parts.max() + 1):
        errors = np.zeros(len(CONFIG.subtree_alphas))
        for other in set(range(parts.max() + 1)) - {part}:
            for index, depth in enumerate(places.depths):
                at, latent = rows_at(dataset, depth)
                train = ~np.isin(parts[at], [part, other])
                scored = [
                    one for one in table[table["depth"] == depth]["latent"] if parts[forest.latent_start[one]] == other
                ]
                if train.sum() < 2 or not scored:
                    continue
                A, t = features[at].astype(float), targets[at, index, 0]
                standard = (A - A[train].mean(0)) / (A[train].std(0) + 1e-6)
                for i, alpha in enumerate(CONFIG.subtree_alphas):
                    squared = (Ridge(alpha=alpha).fit(standard[train], t[train]).predict(standard) - t) ** 2
                    errors[i] += sum(squared[latent == one].mean() for one in scored)
        chosen = result.penalties.query("protocol == 'subtree' and target == 'z' and representation == 'features'")
        found = chosen.set_index("fold")["alpha"][part]
        assert errors[CONFIG.subtree_alphas.index(found)] == pytest.approx(errors.min(), rel=1e-6)


def test_some_rows_in_any_order(dataset, features):
    """Lines of a subset, in another order, give what the subset in order gives."""
    random = np.random.default_rng(0)
    rows = random.permutation(len(dataset))[: len(dataset) * 2 // 3]
    config = dataclasses.replace(CONFIG, min_latent_size=20, draws=1)
    one = probes(dataset, {"features": features[rows]}, config, rows=rows, device="cpu")
    ordered = np.sort(rows)
    other = probes(dataset, {"features": features[ordered]}, config, rows=ordered, device="cpu")
    assert np.allclose(one.per_latent["MSE"], other.per_latent["MSE"], rtol=1e-5)
    present = np.isin(np.arange(len(dataset)), rows)
    for latent, n in zip(one.per_latent["latent"][:20], one.per_latent["n_validation"][:20], strict=True):
        assert 0 < n < present[dataset.forest.points_of(int(latent))].sum()
    with pytest.raises(ValueError, match=r"activations\['features'\] must have shape \(\d+, width\), got"):
        probes(dataset, {"features": features}, config, rows=rows, device="cpu")


def test_a_factor_of_a_world():
    world = pl.superpose([pl.Recipe(1200, 5, "one_cluster", seeds=seed) for seed in (0, 1)], weights=[1, 0], seed=2)
    config = ProbeConfig(depths=(0, 5, 10), min_latent_size=20, draws=2)
    X = np.asarray(world.X, np.float32)
    for k, factor in enumerate(world.factors):
        found = probes(world, {}, config, factor=k, device="cpu")
        order = np.argsort(world.rows[:, k])
        same = probes(factor, {"raw": X[order]}, config, raw=False, device="cpu")
        assert np.allclose(found.per_latent["MSE"], same.per_latent["MSE"], rtol=1e-5)


def test_how_it_shows(result):
    assert repr(result).startswith("ProbeResult(2 representations, ")
    assert "held out: random and subtree" in repr(result)
    assert "features, random" in result._repr_html_()


def test_activations_that_do_not_fit(dataset):
    n = len(dataset)
    with pytest.raises(ValueError, match=rf"activations\['a'\] must have shape \({n}, width\), got \(3, 2\)"):
        probes(dataset, {"a": np.zeros((3, 2))}, CONFIG, device="cpu")
    bad = np.zeros((n, 2))
    bad[4, 1] = np.inf
    with pytest.raises(ValueError, match=r"activations\['a'\] must be finite, got inf in row 4"):
        probes(dataset, {"a": bad}, CONFIG, raw=False, device="cpu")
    with pytest.raises(ValueError, match=r"model must take points of dimension 6, got one of 7"):
        activations(ResidualMLP(7, 4, 1), dataset.X, device="cpu")
    with pytest.raises(ValueError, match=r"activations must be arrays by name, as {'mine': A}, got a ndarray"):
        probes(dataset, np.zeros((n, 2)), CONFIG, device="cpu")
    with pytest.raises(ValueError, match=r"X must be an array with rows, got Dataset"):
        activations(ResidualMLP(6, 4, 1), dataset, device="cpu")
    with pytest.raises(ValueError, match=r"names must be modules of the model \(input, .*\), got 'nope'"):
        activations(ResidualMLP(6, 4, 1), dataset.X, ["nope"], device="cpu")
    with pytest.raises(ValueError, match=r"names must be modules of the model \(input, .*\), got 1"):
        activations(ResidualMLP(6, 4, 1), dataset.X, 1, device="cpu")
    with pytest.raises(ValueError, match=r"of the model \(none: torch.nn.Sequential\(model\) has '0'\), got 'output'"):
        activations(torch.nn.Linear(6, 1), dataset.X, "output", device="cpu")
    assert list(activations(ResidualMLP(6, 4, 1), dataset.X, "blocks.0", device="cpu")) == ["blocks.0"]
    with pytest.raises(
        ValueError, match=r"names must be given for a model other than ResidualMLP or Transformer, got a Linear"
    ):
        activations(torch.nn.Linear(6, 1), dataset.X, device="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depths": ()}, "depths must not be empty"),
        ({"depths": (-1,)}, "depths must be at least 0, got -1"),
        ({"alpha": 0}, "alpha must be positive, got 0"),
        ({"train_share": 1.0}, "train_share must be between 0 and 1, got 1.0"),
        ({"protocols": ("both",)}, "protocols must be one of random, subtree, got 'both'"),
        ({"min_latent_size": 1}, "min_latent_size must be at least 2, got 1"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"subtree_alphas": (0.0, 1.0)}, r"subtree_alphas must be positive numbers, got \(0.0, 1.0\)"),
    ],
)
def test_bad_configuration(change, message):
    with pytest.raises(ValueError, match=message):
        ProbeConfig(**change)
