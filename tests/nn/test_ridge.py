"""Ridge regression by normal equations: against scikit-learn, in blocks, from any kind of array."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import percolab as pl
from percolab.nn.probing.ridge import CHUNK_ROWS, CrossFit, NormalEquations, Samples, ridge

torch.set_num_threads(1)  # threads that wait for each other are slow where tests share cores

CPU = torch.device("cpu")


def fitted(A, t, train, alpha):
    """Return scikit-learn's predictions of all rows."""
    mean, std = A[train].mean(0), A[train].std(0) + 1e-6
    return Ridge(alpha=alpha).fit((A[train] - mean) / std, t[train]).predict((A - mean) / std)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 60),
    width=st.integers(1, 8),
    k=st.integers(1, 4),
    step=st.integers(1, 70),
)
def test_any_regression_equals_scikit_learn(seed, n, width, k, step):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, width)) * 10.0 ** rng.integers(-2, 3, width) + 10.0 ** rng.integers(-1, 4)
    T = rng.standard_normal((n, k)) + rng.integers(0, 100)
    T[:, 0] = 3.7  # a constant has no R²
    order = rng.permutation(n)
    train, test = order[: n // 2], order[n // 2 : n - 1]
    alpha = 10.0 ** rng.integers(-1, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CHUNK_ROWS, "cpu", step)
        found = ridge(A, torch.from_numpy(T), train, test, alpha, device="cpu")
    predicted = fitted(A, T, train, alpha).reshape(n, k)
    assert np.allclose(A @ found.weights + found.intercept, predicted, atol=1e-6)
    assert np.allclose(found.mse, ((predicted - T)[test] ** 2).mean(0), rtol=1e-6, atol=1e-9)
    assert np.allclose(found.baseline, ((T[train].mean(0) - T[test]) ** 2).mean(0), atol=1e-9)
    assert np.isnan(found.r2[0])
    for column in range(1, k):
        if test.size > 1:
            assert found.r2[column] == pytest.approx(r2_score(T[test, column], predicted[test, column]), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("validated", [True, False])
def test_each_target_takes_its_best_penalty(validated):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((400, 150))
    T = np.column_stack([A[:, 0], A[:, 0] + 30 * rng.standard_normal(400)])
    train, validation, test = np.arange(200), np.arange(200, 300), np.arange(300, 400)
    alphas = [0.1, 10.0, 1e5]
    found = ridge(A, T, train, test, alphas, validation=validation if validated else None, device="cpu")
    chooses = validation if validated else train[::5]
    first = train if validated else np.setdiff1d(train, chooses)
    for column in range(2):
        errors = [((fitted(A, T[:, column], first, alpha) - T[:, column])[chooses] ** 2).mean() for alpha in alphas]
        best = alphas[int(np.argmin(errors))]
        assert found.alpha[column] == best
        predicted = fitted(A, T[:, column], train, best)
        assert found.r2[column] == pytest.approx(r2_score(T[test, column], predicted[test]), abs=1e-8)
    assert found.alpha[0] < found.alpha[1]


def test_documents_are_held_out_whole_from_any_kind_of_array(tmp_path):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 7, 5)).astype(np.float32)
    T = np.concatenate([A[..., :2] @ [[1.0], [2.0]] + 0.1 * rng.standard_normal((30, 7, 1)), np.ones((30, 7, 1))], 2)
    train, test = np.arange(0, 30, 2), np.arange(1, 30, 2)
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "t.npy", T)
    read = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "at"}
    flat_A, flat_T, in_train = A.reshape(-1, 5), T.reshape(-1, 2), np.repeat(np.arange(30) % 2 == 0, 7)
    predicted = fitted(flat_A.astype(float), flat_T[:, 0], in_train, 1.0)
    for activations, targets in ((A, T), (torch.from_numpy(A), torch.from_numpy(T)), (read["a"], read["t"])):
        found = ridge(activations, targets, train, test, device="cpu")
        assert found.r2[0] == pytest.approx(r2_score(flat_T[~in_train, 0], predicted[~in_train]), abs=1e-8)
        assert np.isnan(found.r2[1])
    masks = ridge(A, T, np.arange(30) % 2 == 0, np.arange(30) % 2 == 1, device="cpu")
    assert np.array_equal(masks.weights, ridge(A, T, train, test, device="cpu").weights)


def test_beliefs_are_read_off_what_holds_them_and_not_off_noise():
    corpus = pl.Corpus(pl.Recipe(256, 2, "one_cluster", seeds=1), length=16, seed=3)
    documents = corpus.documents(0, 60)
    beliefs = corpus.beliefs(documents.tokens).inside(corpus.contexts(0))
    rng = np.random.default_rng(0)
    mixed = beliefs @ rng.standard_normal((beliefs.shape[2], beliefs.shape[2])) + 5
    train, test = np.arange(40), np.arange(40, 60)
    held = ridge(mixed, beliefs, train, test, 1e-6, device="cpu")
    assert np.isnan(held.r2).sum() == (np.ptp(beliefs[40:].reshape(-1, beliefs.shape[2]), axis=0) < 1e-9).sum() > 0
    assert np.nanmin(held.r2) > 0.99
    noise = ridge(rng.standard_normal((60, 16, 10)), beliefs, train, test, device="cpu")
    assert np.nanmax(noise.r2) < 0.1


def test_rows_that_grow_by_group_and_are_held_out_in_turn():
    """Two groups of columns, of which some rows have the first alone; three parts; errors by unit."""
    rng = np.random.default_rng(1)
    n, T = 300, 2
    A, targets = rng.standard_normal((n, 6)), rng.standard_normal((n, 2 * T))
    part, level = rng.integers(-1, 3, n), rng.integers(-1, 2, n)
    unit = np.column_stack([rng.integers(0, 3, n), rng.integers(3, 5, n)])
    where = np.where(np.arange(2) <= level[:, None], unit, 5)
    samples = Samples(part, level, where, 5, scored=3)
    alphas, importance = [1.0, 1e4], rng.random((5, T))
    fit = CrossFit(A, targets, samples, alphas, CPU, importance)
    alpha, found = fit.alpha, fit.scores()
    squared = np.zeros((len(alphas), 3, 5, T))

    def errors(held_out, scored, i):
        """Return (units, T) squared errors on one part, fitted without some."""
        sums = np.zeros((5, T))
        for group in range(2):
            inside = level >= group
            train = inside & ~np.isin(part, held_out)
            for t in range(T):
                column = group * T + t
                predicted = fitted(A, targets[:, column], train, alphas[i])
                rows = np.flatnonzero(inside & (part == scored))
                np.add.at(sums[:, t], unit[rows, group], (predicted - targets[:, column])[rows] ** 2)
        return sums

    for one in range(3):
        inner = [sum(errors([one, other], other, i) * importance for other in {0, 1, 2} - {one}) for i in range(2)]
        best = np.argmin([cost.sum(0) for cost in inner], 0)
        assert alpha[one].tolist() == np.array(alphas)[best].tolist()
        for i in range(2):
            squared[i, one] = errors([one], one, i)
    chosen = sum(np.where(alpha[one] == alphas[0], squared[0, one], squared[1, one]) for one in range(3))
    assert np.allclose(found.squared, chosen)
    assert found.n[:, 0].tolist() == np.bincount(where[part >= 0].ravel(), minlength=6)[:5].tolist()


def test_units_that_are_constant_on_some_rows_do_no_harm():
    """Units that are constant, nearly so, or copies of each other on the rows that are fitted, and far from 0."""
    random = np.random.default_rng(0)
    A = random.standard_normal((3000, 12))
    A[1:, 3] = A[1:, 4] = 7.0  # another value on the row that moments are about
    A[:, 5] = A[:, 6] = 100 + 1e-4 * random.standard_normal(3000)
    A[0, 5:7] = 0
    t = A[:, :1] + 0.1 * random.standard_normal((3000, 1))
    equations = NormalEquations(torch.from_numpy(A[0]), 1)
    equations.add(torch.from_numpy(A[1:]), torch.from_numpy(t[1:]))
    [(weight, intercept, mean)] = equations.solve([1.0])
    standard = (A[1:] - A[1:].mean(0)) / (A[1:].std(0) + 1e-6)
    expected = Ridge(alpha=1.0).fit(standard, t[1:, 0]).predict(standard)
    assert np.allclose(A[1:] @ weight.numpy()[:, 0] + intercept.item(), expected, atol=2e-3)
    assert mean.item() == pytest.approx(t[1:].mean())
    twice = equations + equations
    assert twice.n == 2 * equations.n
    assert torch.allclose(twice.solve([2.0])[0].weight, weight, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alphas": 0}, "alphas must be a positive number or several, got 0"),
        ({"alphas": []}, r"alphas must be a positive number or several, got \[\]"),
        ({"targets": np.zeros((5, 1))}, r"activations and targets must have the same rows and positions, got shapes"),
        ({"targets": np.zeros((9, 1, 1))}, r"activations and targets must have the same rows and positions, got"),
        ({"targets": np.full((9, 1), np.nan)}, "targets must be finite, got NaN or infinity in line"),
        ({"train": [0, 9]}, "rows of split must be between 0 and 8, got 9"),
        ({"train": []}, "split must leave lines to train on and lines to test on"),
        ({"test": [1, 7]}, "split must have parts that share no row, got row 1 twice"),
    ],
)
def test_bad_input(change, message):
    given = {"activations": np.eye(9), "targets": np.zeros((9, 1)), "train": [0, 1], "test": [7, 8]} | change
    with pytest.raises(ValueError, match=message) as error:
        ridge(**given, device="cpu")
    assert "\n" not in str(error.value)
