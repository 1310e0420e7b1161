"""Baselines against scikit-learn and brute force."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import percolab as pl
from percolab.nn import baselines, nearest_neighbours, split_rows
from percolab.nn.networks.baseline import neighbours

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(pl.Recipe(700, 50, "one_cluster", seeds=2, engine="paper"))


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
def test_nearest_neighbours_equal_brute_force(rows):
    X = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)) + 1e4  # far from 0, where squares lose digits
    distance = torch.cdist(X.double(), X.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(torch.inf)
    found = nearest_neighbours(X, block_bytes=8 * 300 * rows)
    assert np.array_equal(found, distance.argmin(1).numpy())


def test_a_copy_of_a_point_is_its_neighbour():
    X = torch.tensor([[0.0], [5.0], [5.0], [9.0]])
    assert nearest_neighbours(X)[1:3].tolist() == [2, 1]


def test_baselines_are_as_defined(dataset):
    found = baselines(dataset, device="cpu")
    split = split_rows(dataset)
    X, y = np.asarray(dataset.X), dataset.y
    ridge = Ridge(alpha=1.0).fit(X[split.train], y[split.train])
    assert found["ridge"].r2 == pytest.approx(ridge.score(X[split.test], y[split.test]), abs=1e-9)
    assert found["mean"].mse == pytest.approx(np.mean((y[split.test] - y[split.train].mean()) ** 2))
    assert found["nearest_neighbour"].mse == pytest.approx(np.mean(errors_of_ties(dataset)), rel=1e-9)
    assert found["nearest_neighbour"].r2 == pytest.approx(1 - found["nearest_neighbour"].mse / y.var())
    # Which of the neighbours that tie has the least distance as computed is up to the processor.
    ranges = [(one.min(), one.max()) for one in map(np.array, tied_errors(dataset))]
    least, most = np.mean(ranges, 0)
    assert least - 1e-9 <= found["nearest_neighbour_release"].mse <= most + 1e-9
    assert most < 0.9 * y.var()
    assert list(found) == ["mean", "ridge", "nearest_neighbour", "nearest_neighbour_release"]


def tied_errors(dataset):
    """Return, for each row, the squared errors of its nearest other points: those within a relative 1e-6."""
    X, y = np.asarray(dataset.X), dataset.y
    distance = np.linalg.norm(X[:, None] - X[None], axis=2) + np.diag(np.full(len(y), np.inf))
    return [(y[i] - y[row <= row.min() * (1 + 1e-6)]) ** 2 for i, row in enumerate(distance)]


def errors_of_ties(dataset):
    return [errors.mean() for errors in tied_errors(dataset)]


def test_ties_are_found_in_any_order_and_any_block(dataset):
    X = torch.tensor(dataset.X)
    found = neighbours(X)
    order = np.random.default_rng(0).permutation(len(X))
    moved = neighbours(X[order], block_bytes=8 * len(X) * 13)
    pairs = sorted(zip(found.row, found.neighbour, strict=True))
    assert pairs == sorted(zip(order[moved.row], order[moved.neighbour], strict=True))
    bonds = dataset.forest.bond
    # In 50 dimensions the nearest points of a point are those it is bonded to.
    assert pairs == sorted([*map(tuple, bonds.tolist()), *map(tuple, bonds[:, ::-1].tolist())])
    assert np.array_equal(found.nearest, nearest_neighbours(X))


def test_points_that_coincide_tie():
    found = neighbours(torch.tensor([[0.1, 7.3], [5.7, 1.1], [5.7, 1.1], [5.7, 1.1], [9.0, 0.0]]) / 3)
    assert found.neighbour[found.row == 1].tolist() == [2, 3]
    assert found.neighbour[found.row == 4].tolist() == [1, 2, 3]
    assert found.mean(np.arange(found.row.size, dtype=float)).shape == (5,)


def test_own_split(dataset):
    split = pl.split_rows(dataset, by="subtree", max_size=100)
    found = baselines(dataset, split=split, device="cpu")
    assert found["mean"].mse == pytest.approx(np.mean((dataset.y[split.test] - dataset.y[split.train].mean()) ** 2))


def test_labels(dataset):
    labelled = dataset.with_target("classes", max_size=200)
    y, split = labelled.y, split_rows(dataset)
    found = baselines(labelled, device="cpu")
    assert list(found) == ["frequencies", "logistic", "nearest_neighbour", "nearest_neighbour_release"]
    n_classes, n = y.max() + 1, split.train.size
    p = (np.bincount(y[split.train], minlength=n_classes) + 1) / (n + n_classes)
    assert found["frequencies"].log_loss == pytest.approx(-np.log(p[y[split.test]]).mean())
    assert found["frequencies"].accuracy == np.mean(y[split.test] == p.argmax())
    X = np.asarray(dataset.X)
    distance = np.linalg.norm(X[:, None] - X[None], axis=2) + np.diag(np.full(len(y), np.inf))
    right, losses = [], []
    for i, row in enumerate(distance):
        ties = y[row <= row.min() * (1 + 1e-6)]
        right.append(np.mean(ties == y[i]))
        losses.append(-np.log((np.sum(ties == y[i]) + np.mean(y == y[i])) / (ties.size + 1)))
    assert found["nearest_neighbour"].accuracy == pytest.approx(np.mean(right))
    assert found["nearest_neighbour"].log_loss == pytest.approx(np.mean(losses))
    assert found["frequencies"].accuracy < found["logistic"].accuracy
    assert found["frequencies"].log_loss > found["logistic"].log_loss


def test_bad_input(dataset):
    with pytest.raises(ValueError, match=r"X must have at least 2 rows to have neighbours, got 1"):
        nearest_neighbours(torch.zeros(1, 2))
    X = np.array(dataset.X)
    X[3, 0] = np.inf
    with pytest.raises(ValueError, match=r"X must be finite, got inf in row 3"):
        baselines(dataclasses.replace(dataset, X=X), device="cpu")
    with pytest.raises(ValueError, match=r"y must be one number or label per row, \(700,\), got shape \(700, 2\)"):
        baselines(dataset.with_target("path_tokens", levels=2, ratio=4), device="cpu")
