"""`compare`: any network, any data, any reader; and what it refuses."""

import numpy as np
import pytest
from scipy.sparse import csr_array

torch = pytest.importorskip("torch")

import percolab as pl  # noqa: E402
from percolab.features import KMeans  # noqa: E402
from percolab.study import compare  # noqa: E402

COLUMNS = [
    "contrast", "layer", "reader", "measure", "value", "low", "high", "units", "networks", "draws", "interval_over",
]  # fmt: skip


@pytest.fixture(scope="module")
def points():
    return pl.generate(pl.Recipe(n_points=4000, dim=12, mode="one_cluster", seeds=3))


@pytest.fixture(scope="module")
def world():
    recipes = [pl.Recipe(n_points=3000, dim=16, mode="one_cluster", seeds=seed) for seed in (1, 2)]
    return pl.generate(pl.Superposition(recipes, rotate=True, seed=5))


def two_layers(dim, seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(dim, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))


def keeps(world, factor):
    """Return a function whose output shows one factor of a world and hides the other."""
    X = np.asarray(world.factors[factor].X)[world.rows[:, factor]]
    return lambda inputs: X.astype(np.float32)


def test_a_network_of_ones_own_is_compared_with_untrained_ones_and_the_raw_input(points):
    networks = {"trained": [two_layers(12, s) for s in (0, 1)], "untrained": [two_layers(12, s) for s in (2, 3)]}
    found = compare(points, {**networks, "raw": None}, ["separation", "accuracy"], layers=["1"])
    assert list(found.contrasts.columns) == COLUMNS
    assert list(found.contrasts["contrast"].unique()) == ["trained - untrained", "trained - raw", "raw - permuted"]
    assert set(found.contrasts["reader"]) == {"separation", "accuracy"}
    assert set(found.table["role"]) == {"trained", "untrained", "raw", "permuted"}
    raw = found.contrasts[(found.contrasts["contrast"] == "raw - permuted") & (found.contrasts["reader"] == "accuracy")]
    assert raw["low"].item() > 0.2  # siblings are places, which X gives away
    assert "this dataset only" in found.verdict


def test_what_a_network_keeps_of_one_factor_is_found_by_the_swap(world):
    networks = {
        "trained": {f: [keeps(world, f), keeps(world, f)] for f in range(2)},
        "untrained": [lambda X: np.asarray(X, np.float32), lambda X: np.asarray(X, np.float32)],
    }
    found = compare(world, networks, ["separation"])
    swap = found.contrasts.set_index("contrast").loc["own - other"]
    assert swap["low"] > 1
    assert found.verdict.startswith("Separation at activations: learned, and because it matters.")
    assert set(found.table[found.table["role"] == "other"]["trained_on"]) == {0, 1}


def test_arrays_and_memory_maps_are_networks(points, tmp_path):
    X = np.asarray(points.X, np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    found = compare(points, {"trained": [mapped], "untrained": [np.ones_like(X)], "raw": None}, "separation")
    levels = found.table.groupby("role")["value"].mean()
    assert levels["trained"] == pytest.approx(levels["raw"], rel=1e-5)
    assert found.contrasts.set_index("contrast").loc["trained - raw", "value"] == pytest.approx(0, abs=1e-4)


def test_methods_are_fitted_on_training_rows_and_scored_on_test_rows(points):
    seen = []

    class Spy:
        name = None

        def fit(self, values):
            seen.append(("fit", len(values)))
            self.centres = values[:8]
            return self

        def encode(self, values):
            seen.append(("encode", len(values)))
            nearest = ((values[:, None] - self.centres) ** 2).sum(2).argmin(1)
            return np.eye(8)[nearest]

    split = pl.split_rows(points)
    found = compare(points, {"trained": [np.asarray(points.X, np.float32)], "raw": None}, [Spy(), "kmeans"], rows=split)
    assert seen[0] == ("fit", split.train.size)
    assert seen[1] == ("encode", split.test.size)
    assert set(found.contrasts["reader"]) == {"Spy", "kmeans"}
    assert set(found.contrasts["measure"]) == {"f1"}


def test_a_position_is_named_and_never_flattened_in_silence(points):
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.spread = torch.nn.Unflatten(1, (3, 4))

        def forward(self, x):
            return self.spread(x)

    with pytest.raises(ValueError, match=r"spread must name a position, as spread\[-1\] does"):
        compare(points, {"trained": Positions(), "raw": None}, layers=["spread"])
    with pytest.raises(ValueError, match=r"names must be modules of the model \(spread\), got 0"):
        compare(points, {"trained": Positions(), "raw": None}, layers=[0])
    found = compare(points, {"trained": Positions(), "raw": None}, layers="spread[-1]")
    assert set(found.contrasts["layer"]) == {"spread[-1]"}


def test_draws_make_data_and_networks_and_give_intervals_over_draws():
    class SelfMade(torch.nn.Module):
        """A network whose training is to look at the data."""

        def __init__(self, dim, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.line = torch.nn.Linear(dim, 6)
            self.trained_on = None

        def fit(self, data, seed):
            self.trained_on = (data.recipe.seeds.graph, seed)

        def forward(self, x):
            return self.line(x)

    made = []

    def make(data, seed):
        made.append(SelfMade(data.X.shape[1], seed))
        return made[-1]

    recipe = pl.Recipe(n_points=1500, dim=8, mode="one_cluster", seeds=1)
    found = compare(recipe, {"trained": make, "untrained": make, "raw": None}, layers=["line"], draws=3, seeds=2)
    assert set(found.contrasts["draws"]) == {3}
    assert set(found.contrasts["interval_over"]) == {"draws"}
    fitted = [network.trained_on for network in made if network.trained_on]
    assert len(fitted) == 6
    assert len({graph for graph, _ in fitted}) == 3
    assert "3 draws" in found.verdict


def test_a_list_of_datasets_comes_with_a_list_of_networks(points):
    arrays = [np.asarray(points.X, np.float32)] * 3
    found = compare([points] * 3, [{"trained": a, "raw": None} for a in arrays])
    assert set(found.contrasts["draws"]) == {3}


HALF = np.ones((3000, 2))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"networks": {}}, "networks must be a mapping from role"),
        ({"networks": {"trained": {0: "no", 1: "no"}}}, "a network must be a torch module, a function, an array"),
        ({"networks": {"untrained": csr_array(HALF)}}, "a network must be a torch module, .*, got csr_array"),
        ({"networks": {"trained": np.ones((7, 3))}}, r"must give \(rows, width\) for 3000 inputs, got \(7, 3\)"),
        ({"networks": {"trained": [np.ones((3000, 2))]}}, "networks must say which of the 2 factors the trained ones"),
        ({"networks": {"trained": {5: np.ones((3000, 2))}}}, "factors of networks must be below 2, got 5"),
        ({"networks": {"untrained": [HALF, HALF]}}, "networks must differ, .*, got the same one twice as 'untrained'"),
        ({"readers": ["nonsense"]}, r"readers must be names \(separation, accuracy.*got 'nonsense': method must"),
        ({"readers": []}, "readers must not be empty"),
        ({"readers": [KMeans]}, r"readers must be names or objects, got the class KMeans: give KMeans\(…\)"),
        ({"networks": {"Untrained": np.ones((3000, 2))}}, "networks must have the role 'untrained', got 'Untrained'"),
        ({"draws": 3}, "data must be a recipe if draws are given"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(world, change, words):
    given = {
        "networks": {"trained": {0: np.ones((3000, 2)), 1: np.ones((3000, 2))}},
        "readers": ["separation"],
        **change,
    }
    if given["networks"].get("trained") is not None and isinstance(given["networks"]["trained"], np.ndarray):
        given["networks"] = {"trained": {0: given["networks"]["trained"], 1: given["networks"]["trained"]}}
    with pytest.raises(ValueError, match=words) as told:
        compare(world, given.pop("networks"), given.pop("readers"), **given)
    assert "\n" not in str(told.value)


def test_a_comparison_is_shown_and_saved(points, tmp_path):
    import json

    import pandas

    X = np.asarray(points.X, np.float32)
    found = compare(points, {"trained": [X, X * 2], "untrained": [X[:, :3]], "raw": None}, ["separation", "accuracy"])
    assert found.verdict in repr(found)
    page = found._repr_html_()
    assert page.index("Separation at activations") < page.index("<img") < page.index("<table")
    found.save(tmp_path / "saved")
    results = json.loads((tmp_path / "saved" / "results.json").read_text())
    assert results["schema"] == "percolab.comparison/1"
    assert results["verdict"] == found.verdict
    table = pandas.read_parquet(tmp_path / "saved" / "table.parquet")
    assert table.equals(found.table)
    with pytest.raises(FileExistsError, match="must be new or empty"):
        found.save(tmp_path / "saved")
