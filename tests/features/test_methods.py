"""Methods to compare with: what they encode, what they decode, and how others add theirs."""

import ast
import subprocess
import sys
import tomllib
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import percolab as pl
from percolab.features import inputs, methods, register, score
from percolab.features import register as lineup
from percolab.features.concepts import by_row
from percolab.features.methods import ICA, PCA, KMeans, Neurons, Oracle, RandomDictionary, TrueDirections
from percolab.features.register import Budget

EXAMPLE = Path(__file__).parents[1] / "example_method"


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(pl.Recipe(1500, 6, "one_cluster", seeds=4))


@pytest.fixture(scope="module", name="X")
def positions(dataset):
    return np.asarray(dataset.X)


def decoded(method, codes):
    return codes @ method.directions + method.bias


LEARNED = [
    *(KMeans(30), KMeans(30, batch_size=200), PCA(4), ICA(4), Neurons()),
    *(RandomDictionary(50, k=5), RandomDictionary(3, k=9)),
]


@pytest.mark.parametrize("method", LEARNED, ids=str)
def test_every_method_scores(method, dataset, X):
    before = repr(np.random.get_state(legacy=False))  # noqa: NPY002
    codes = method.fit(X).encode(X)
    assert repr(np.random.get_state(legacy=False)) == before  # noqa: NPY002
    assert method.directions.shape == (codes.shape[1], 6)
    assert method.bias.shape == (6,)
    found = score(dataset, codes, directions=method.directions, bias=method.bias, activations=X)
    assert len(found.features) == codes.shape[1]
    assert found.summary["explained_variance"] <= 1
    again = type(method)(**{name: getattr(method, name) for name in method.__dataclass_fields__ if name[0] != "_"})
    other = again.fit(X).encode(X)
    assert np.array_equal(_dense(codes), _dense(other))


def _dense(codes):
    return codes.toarray() if scipy.sparse.issparse(codes) else codes


def test_kmeans_has_one_feature_a_row_at_the_nearest_centre(X):
    method = KMeans(20).fit(X)
    codes = method.encode(X[:100])
    centres = method.directions + method.bias
    distance = ((X[:100, None] - centres[None]) ** 2).sum(-1)
    assert np.array_equal(codes.toarray() > 0, np.eye(20)[distance.argmin(1)] > 0)
    np.testing.assert_allclose(decoded(method, codes), centres[distance.argmin(1)], atol=1e-3 * abs(centres).max())


@pytest.mark.parametrize("k", [1, 3])
def test_a_threshold_on_a_feature_of_kmeans_is_a_ball(X, k):
    """Codes were once 1/k whatever the distance, so no threshold could help k-means as it helps other methods."""
    method = KMeans(20, k=k).fit(X)
    codes, distance = method.encode(X).toarray(), np.linalg.norm(X[:, None] - method.directions - method.bias, axis=2)
    for f in range(20):
        fires = codes[:, f] > 0
        order = np.argsort(distance[fires, f])
        assert (np.diff(codes[fires, f][order]) <= 0).all()
        assert len(np.unique(codes[fires, f])) > 0.9 * fires.sum()
    method.fall = 0
    np.testing.assert_array_equal(np.unique(method.encode(X).toarray()), np.float32([0, 1 / k]))
    method.fall = -1
    with pytest.raises(ValueError, match="fall must be"):
        method.encode(X)


def test_kmeans_takes_half_precision():
    """The spread of many wide columns is more than half precision holds; codes were all equal."""
    wide = (10 * np.random.default_rng(0).standard_normal((200, 1000))).astype(np.float16)
    assert np.unique(KMeans(8, k=2, seed=0).fit(wide).encode(wide).data).size > 100


def test_kmeans_on_a_device_is_kmeans(X):
    """Planted clusters are found; of data without clusters, the squares left are those of scikit-learn."""
    torch = pytest.importorskip("torch")
    from sklearn.cluster import KMeans as Theirs

    from percolab.features import on_torch

    rng = np.random.default_rng(0)
    planted = rng.permutation(np.repeat(np.arange(9), 50))
    rows = torch.from_numpy(1000 + 10 * rng.normal(size=(9, 6))[planted] + 0.1 * rng.normal(size=(450, 6))).float()
    centres = on_torch.fit_centres(rows, 9, 1, 20)
    found = on_torch.nearest(rows - 1000, centres - 1000)[:, 0].numpy()
    assert len(set(zip(found.tolist(), planted.tolist(), strict=True))) == 9
    for i in range(9):
        np.testing.assert_allclose(centres[i], rows[found == i].mean(0), rtol=1e-5)
    values = torch.tensor(X).float()
    centres = on_torch.fit_centres(values, 40, 2, 50)
    assert torch.equal(centres, on_torch.fit_centres(values, 40, 2, 50))
    assert not torch.equal(centres, on_torch.fit_centres(values, 40, 3, 50))
    distance = torch.cdist(values, centres)
    assert torch.equal(distance.argmin(1), on_torch.nearest(values, centres)[:, 0])
    nearest = on_torch.nearest(values, centres, 3).sort(1).values
    assert torch.equal(distance.argsort(1)[:, :3].sort(1).values, nearest)
    theirs = Theirs(40, n_init=1, random_state=0).fit(X).inertia_
    assert float(distance.min(1).values.square().sum()) < 1.1 * theirs


def test_kmeans_is_where_the_activations_are(X, monkeypatch):
    """No GPU is needed to see where it would compute: tensors without memory have a device of their own."""
    torch = pytest.importorskip("torch")
    from percolab.features import on_torch

    monkeypatch.setattr(on_torch, "as_rows", lambda values, device: torch.empty(values.shape, device=device))
    elsewhere = torch.empty(5, 3, device="meta")
    method = KMeans(4)
    assert method._on_gpu(X) is method._on_gpu(torch.tensor(X)) is None
    assert method._on_gpu(elsewhere).device.type == "meta"
    assert KMeans(4, device="cpu")._on_gpu(elsewhere) is None
    assert method.fit(X)._on_gpu(elsewhere) is None  # the centres are on the CPU
    method._model = elsewhere
    assert method._on_gpu(X).device.type == "meta"


def test_first_centres_are_drawn_by_squared_distance():
    torch = pytest.importorskip("torch")
    from percolab.features import on_torch

    rows = torch.tensor([[0.0], [0.0], [1.0], [3.0]])
    second = [on_torch.plus_plus(rows, 2, torch.Generator().manual_seed(seed))[:, 0].tolist() for seed in range(4000)]
    from_0 = np.array([b for a, b in second if a == 0])
    assert set(from_0) == {1, 3}
    assert abs((from_0 == 3).mean() - 0.9) < 0.025  # 9 / (1 + 9), five deviations


def test_kmeans_on_a_gpu_encodes_its_nearest_centre(X):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    values = torch.tensor(X).cuda()
    method = KMeans(20, device="cuda").fit(values)
    distance = ((X[:, None] - method.directions - method.bias) ** 2).sum(-1)
    codes = method.encode(values).toarray()
    assert np.array_equal(codes > 0, np.eye(20)[distance.argmin(1)] > 0)
    on_cpu = (1 - method.fall * np.sqrt(distance) / (np.sqrt(distance) + method._spread)) * (codes > 0)
    np.testing.assert_allclose(codes, on_cpu, atol=1e-6)


def test_kmeans_takes_arrays_whatever_the_device(X):
    torch = pytest.importorskip("torch")
    method = KMeans(20, device="auto").fit(X)
    assert method.encode(X).shape == (len(X), 20)
    if not torch.cuda.is_available():
        assert np.array_equal(method.directions, KMeans(20).fit(X).directions)
        with pytest.raises(ValueError, match=r"^device must be there, got 'cuda' and torch sees no CUDA GPU$"):
            KMeans(20, device="cuda").fit(X)


def _linear(dataset):
    labels = by_row(dataset.forest, np.arange(len(dataset)))
    return [PCA(4), Neurons(), RandomDictionary(50, k=5), RandomDictionary(3, k=9), TrueDirections(labels, k=3)]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("device", ["as if", "cuda"])
def test_tensors_on_a_gpu_are_computed_on_there(number, device, dataset, X, monkeypatch):
    """The same numbers to rounding, wherever it is fitted and encodes; without a GPU, by the same code on the CPU."""
    torch = pytest.importorskip("torch")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    here, there = _linear(dataset)[number], _linear(dataset)[number]
    wanted = _dense(here.fit(X).encode(X))
    if device == "as if":
        for module in (inputs, methods):
            monkeypatch.setattr(module, "on_gpu", lambda values: hasattr(values, "detach"))
    values = torch.tensor(X, device="cuda" if device == "cuda" else "cpu")
    codes = there.fit(values).encode(values)
    assert isinstance(codes, torch.Tensor)
    assert codes.device == values.device
    np.testing.assert_allclose(there.directions, here.directions, atol=1e-5)
    np.testing.assert_allclose(there.bias, here.bias, atol=1e-5)
    for found in (codes.cpu(), here.encode(values).cpu(), _dense(there.encode(X))):
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    with pytest.raises(ValueError, match=r"^activations must be finite, got NaN or infinity$"):
        there.fit(values * np.nan)
    with pytest.raises(ValueError, match=r"^activations must have shape \(rows, d\), got \(6,\)$"):
        there.fit(values[0])


def test_components_are_at_most_as_many_as_columns_wherever_the_tensor_is(X, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(inputs, "on_gpu", lambda values: hasattr(values, "detach"))
    monkeypatch.setattr(methods, "on_gpu", lambda values: hasattr(values, "detach"))
    with pytest.raises(ValueError, match=r"^n_components must be at most 6 for activations of shape "):
        PCA(7).fit(torch.tensor(X))


UNFITTED = [KMeans(2), PCA(2), ICA(2), Neurons(), RandomDictionary(2)]


@pytest.mark.parametrize("method", UNFITTED, ids=lambda method: type(method).__name__)
def test_what_is_not_fitted_says_so(method, X):
    with pytest.raises(ValueError, match=rf"^{type(method).__name__} must be fitted before it encodes$"):
        method.encode(X)


@pytest.mark.parametrize("method", [KMeans(2, seed=-1), PCA(2, seed=-1), ICA(2, seed=-1)], ids=["kmeans", "pca", "ica"])
def test_a_seed_is_not_negative(method, X):
    with pytest.raises(ValueError, match=r"^seed must be .*got -1$"):
        method.fit(X)


@pytest.mark.parametrize("method", [PCA(6), ICA(6), Neurons()], ids=["pca", "ica", "neurons"])
def test_all_components_in_halves_give_the_activations_back(method):
    rng = np.random.default_rng(0)
    X = rng.laplace(size=(1500, 6)) @ rng.normal(size=(6, 6)) + 1  # independent sources, as ICA wants them
    codes = method.fit(X).encode(X)
    assert codes.shape == (1500, 12)
    assert (codes >= 0).all()
    assert not ((codes[:, :6] > 0) & (codes[:, 6:] > 0)).any()
    np.testing.assert_allclose(decoded(method, codes), X, atol=1e-4)


def test_neurons_that_are_not_signed_are_as_they_are(X):
    active = np.maximum(X, 0)
    method = Neurons().fit(active)
    assert method.encode(active) is active
    assert np.array_equal(method.directions, np.eye(6))
    assert Neurons(signed=True).fit(active).encode(active).shape == (1500, 12)


def test_a_random_dictionary_keeps_the_largest_projections(X):
    method = RandomDictionary(40, k=3, seed=2).fit(X)
    np.testing.assert_allclose(np.linalg.norm(method.directions, axis=1), 1)
    codes = method.encode(X).toarray()
    full = np.maximum((X - X.mean(0)) @ method.directions.T, 0)
    wanted = np.where(full >= np.sort(full, axis=1)[:, [-3]], full, 0)
    np.testing.assert_allclose(codes, wanted, rtol=1e-4, atol=1e-6)
    assert (np.count_nonzero(codes, axis=1) <= 3).all()
    assert not np.array_equal(method.directions, RandomDictionary(40, seed=3).fit(X).directions)


def test_the_oracle_is_the_ceiling(dataset, X):
    rows = np.random.default_rng(0).integers(0, 1500, 900)
    method = Oracle(dataset, rows).fit(X[rows])
    found = score(dataset, method.encode(X[rows]), rows)
    assert (found.concepts["f1"] == 1).all()
    assert (found.concepts["latent"] == method.latent).all()
    with pytest.raises(ValueError, match=r"^activations must have the 900 rows that the oracle knows, got 899$"):
        method.encode(X[rows][:899])


def test_flipped_rows_are_the_share_asked_for(dataset, X):
    exact, noisy = (Oracle(dataset, flipped=share).fit(X) for share in (0, 0.05))
    a, b = exact.encode(X).toarray(), noisy.encode(X).toarray()
    assert ((a != b).sum(axis=0) == 75).all()
    assert set(np.unique(b)) == {0, 1}
    columns = (a != b).T
    assert len({tuple(np.flatnonzero(column)) for column in columns}) == len(columns)
    found = score(dataset, b).concepts
    share = found["size"] / 1500
    expected = 2 * 0.95 * share / (0.95 * share + 0.05 * (1 - share) + share)
    large = found["size"] > 200
    np.testing.assert_allclose(found["f1"][large], expected[large], atol=0.05)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (KMeans(2000), "n_features must be at most 1500 for activations of shape (1500, 6), got 2000"),
        (PCA(7), "n_components must be at most 6 for activations of shape (1500, 6), got 7"),
        (ICA(0), "n_components must be at least 1, got 0"),
        (RandomDictionary(0), "n_features must be at least 1, got 0"),
        (RandomDictionary(5, k=0), "k must be at least 1, got 0"),
        (Oracle(pl.engines.split_forest(1500, 1), min_size=1), "min_size must be at least 2, got 1"),
        (
            Oracle(pl.engines.split_forest(40, 1)),
            "codes must have a row for each of the 40 rows, unless rows are given, got 1500",
        ),
        (Oracle(pl.engines.split_forest(1500, 1), flipped=2), "flipped must be between 0 and 1, got 2"),
    ],
    ids=str,
)
def test_bad_parameters_are_one_line(method, message, X):
    with pytest.raises(ValueError) as error:
        method.fit(X).encode(X)
    assert str(error.value) == message


@pytest.mark.parametrize("activations", [np.ones(5), np.full((5, 2), "a"), np.full((5, 2), np.nan)])
def test_bad_activations_are_one_line(activations):
    with pytest.raises(ValueError, match=r"^activations must be (numbers of shape \(rows, d\)|finite), got [^\n]*$"):
        Neurons().fit(activations)


def test_a_method_must_be_fitted(X):
    with pytest.raises(ValueError, match=r"^RandomDictionary must be fitted before it encodes$"):
        RandomDictionary(5).encode(X)


# ---------------------------------------------------------------------- methods of others


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the example package as an installer leaves it: its wheel, built and unpacked."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=EXAMPLE, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()
    return folder


def test_a_package_adds_its_method(site, monkeypatch, dataset, X):
    monkeypatch.syspath_prepend(site)
    assert register.available() == [*register.CLASSES, "far-out"]
    found = register.find_method("far-out")
    assert register.find_method("example_method:FarOut") is found
    codes = found().fit(X).encode(X)
    assert score(dataset, codes).summary["features"] == 6
    compared = lineup.entry("far-out", Budget())  # as in `percolab benchmark --method far-out`
    assert (compared.name, compared.options) == ("far-out", {})
    assert type(lineup.make(compared, 0, "cpu")) is found


def test_the_example_package_is_ten_lines():
    """The module without docstrings and blank lines, and the entry point."""
    tree = ast.parse((EXAMPLE / "example_method.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    assert len([line for line in ast.unparse(tree).splitlines() if line]) + 1 <= 10
    (entry,) = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"][
        register.GROUP
    ].items()
    assert entry == ("far-out", "example_method:FarOut")


def test_methods_are_found_by_name():
    assert "far-out" not in register.available()
    assert register.find_method("kmeans") is KMeans
    assert register.find_method("percolab.features.methods:PCA") is PCA
    assert all(register.find_method(name) is kind for name, kind in register.CLASSES.items())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sae", r"^method must be one of neurons, kmeans, .* or package\.module:Class, got 'sae'$"),
        ("no_such_module:Thing", r"^method must be a class that can be imported, got 'no_such_module:Thing': .*$"),
        ("percolab:Nothing", r"^method must be a class that can be imported, got 'percolab:Nothing': .*$"),
        ("percolab:Forest", r"^method must have fit and encode, got 'percolab:Forest'$"),
        (":", r"^method must be a class that can be imported, got ':': .*$"),
    ],
)
def test_unknown_methods_are_one_line(name, message):
    with pytest.raises(ValueError, match=message):
        register.find_method(name)


def test_a_dataset_in_place_of_its_x_is_named():
    with pytest.raises(ValueError, match=r"^activations must be numbers of shape \(rows, d\), got Dataset of object"):
        KMeans(2).fit(pl.generate(n_points=20, dim=3, seed=0))


@pytest.mark.parametrize("method", [KMeans(8), PCA(3), ICA(3), Neurons()], ids=lambda method: type(method).__name__)
def test_tensors_with_gradients_are_taken(method, X):
    torch = pytest.importorskip("torch")
    rows = torch.tensor(X).requires_grad_()
    codes = method.fit(rows).encode(rows)
    assert abs(codes - method.encode(X)).max() == 0


def test_what_a_method_takes_is_read_from_its_constructor():
    """An object may be of a class without a signature, such as a namespace of functions."""
    torch = pytest.importorskip("torch")
    rows = torch.ones(3, 2)
    assert register.as_taken(KMeans(2), rows) is rows
    for method in (PCA(2), types.SimpleNamespace(fit=None, encode=None)):
        assert isinstance(register.as_taken(method, rows), np.ndarray)
