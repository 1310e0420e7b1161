"""Baselines against scikit-learn and brute force."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

import percolab as pl
from percolab.nn import baselines, nearest_neighbours, split_rows

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
    # All bonds have one length, so the neighbours of a point along its bonds tie, and rounding chooses among them.
    distance = np.linalg.norm(X[:, None] - X[None], axis=2) + np.diag(np.full(len(y), np.inf))
    ties = distance <= distance.min(1, keepdims=True) * (1 + 1e-6)
    errors = np.where(ties, (y[:, None] - y[None]) ** 2, np.nan)
    least, most = np.nanmin(errors, 1).mean(), np.nanmax(errors, 1).mean()
    assert least - 1e-9 <= found["nearest_neighbour"].mse <= most + 1e-9
    assert most < 0.9 * y.var()


def test_bad_input(dataset):
    with pytest.raises(ValueError, match=r"X must have at least 2 rows to have neighbours, got 1"):
        nearest_neighbours(torch.zeros(1, 2))
    X = np.array(dataset.X)
    X[3, 0] = np.inf
    with pytest.raises(ValueError, match=r"X must be finite, got inf in row 3"):
        baselines(dataclasses.replace(dataset, X=X), device="cpu")
