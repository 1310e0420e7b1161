"""What the explorer sends to the browser: packs, components, listings, firing points; the command and the server."""

import http.client
import threading

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from packs import unpack

import percolab as pl
from percolab.cli import main
from percolab.features import score
from percolab.features.inputs import read_codes
from percolab.ground.progress import silent
from percolab.show import explore
from percolab.show.cluster_picture import principal_components
from percolab.show.explorer import data, shown_features
from percolab.show.explorer.packing import pack

N = 400
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def dataset():
    return pl.generate(pl.Recipe(n_points=N, dim=5, seeds=3, mode="one_cluster"))


@pytest.fixture(scope="module")
def codes(dataset):
    """Features that are concepts, and one that is dead."""
    concepts = dataset.forest.concepts(20, 2 / 3)[1:6]
    return scipy.sparse.hstack([dataset.forest.membership(concepts) * 2.0, scipy.sparse.csr_array((N, 1))]).tocsr()


def overview(page):
    return unpack(page._packed)


# ---------------------------------------------------------------------- packs


@settings(max_examples=30)
@given(
    st.lists(st.integers(-(2**40), 2**40)),
    st.lists(st.floats(width=32, allow_nan=False)),
    st.lists(st.integers(0, 255)),
    st.text(),
)
def test_a_pack_is_what_was_packed(whole, numbers, small, text):
    columns = np.array(whole, np.int64), np.array(numbers, np.float32), np.array(small, np.uint8)
    found = unpack(
        pack({"a": [{"b": columns[0]}, columns[1]], "c": columns[2], "d": text, "e": float("nan"), "f": None})
    )
    for column, back in zip(columns, (found["a"][0]["b"], found["a"][1], found["c"]), strict=True):
        np.testing.assert_array_equal(back, column)
    assert (found["d"], found["e"], found["f"]) == (text, None, None)


def test_the_same_values_pack_to_the_same_bytes(dataset):
    assert explore(dataset)._packed == explore(dataset)._packed


@given(st.lists(st.integers(0, 2**31)))
def test_varints_are_read_back(numbers):
    found, left = [], bytearray(shown_features.varints(np.array(numbers, np.int64)))
    while left:
        value, shift = 0, 0
        while True:
            byte = left.pop(0)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        found.append(value)
    assert found == numbers


# ---------------------------------------------------------------------- components


@pytest.mark.parametrize("shape", [(50, 7), (6, 20), (9, 2), (1, 4)])
def test_components_are_those_of_a_singular_value_decomposition(shape):
    X = np.random.default_rng(0).normal(size=shape) * np.arange(1, shape[1] + 1)
    places, share = principal_components(X, 3)
    centred = X - X.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    wanted = np.zeros(3)
    wanted[: min(3, values.size)] = values[:3]
    np.testing.assert_allclose(np.linalg.norm(places, axis=0), wanted, atol=1e-9)
    if shape[0] > 1:
        np.testing.assert_allclose(share, wanted**2 / (centred**2).sum(), atol=1e-12)
    product = places.T @ places
    np.testing.assert_allclose(product - np.diag(np.diag(product)), 0, atol=1e-7)


def test_steps_are_finer_than_a_screen():
    places = np.random.default_rng(0).normal(size=(100, 3))
    steps, low, step = data.in_steps(places)
    back = low + step * steps.reshape(3, -1).T
    assert np.abs(back - places).max() <= step.max() / 2 * (1 + 1e-9)
    assert (step < np.ptp(places, axis=0) / 65_000).all()


def test_components_of_latents_are_those_of_their_points(dataset):
    found = overview(explore(dataset))["planes"]
    assert found["latent"][0] == -1
    assert found["latent"].size == 5
    for p in range(1, 5):
        inside = dataset.forest.points_of(int(found["latent"][p]))
        n, first = int(found["count"][p]), 3 * int(found["first"][p])
        assert n == inside.stop - inside.start
        scale = found["scale"][9 * p : 9 * p + 9]
        x = scale[0] + scale[3] * found["values"][first : first + n]
        np.testing.assert_allclose(x, principal_components(dataset.X[inside], 3)[0][:, 0], atol=2 * scale[3])


# ---------------------------------------------------------------------- trees and points


def test_few_latents_are_all_listed_and_many_by_concepts(dataset, monkeypatch):
    listing = data.list_latents(dataset.forest, 20)
    np.testing.assert_array_equal(listing.latent, np.arange(dataset.forest.n_latents))
    np.testing.assert_array_equal(listing.latent[listing.concept], dataset.forest.concepts(20, 1))
    monkeypatch.setattr(data, "MOST_LISTED", 100)
    monkeypatch.setattr(data, "MOST_CONCEPTS", 10)
    listing = data.list_latents(dataset.forest, 4)
    assert listing.min_size > 4
    assert listing.latent.size <= 10
    np.testing.assert_array_equal(listing.latent, dataset.forest.concepts(listing.min_size, 1))
    part = data.list_latents(dataset.forest, 2, 7)
    assert part.latent[0] == 7
    assert part.latent.max() < dataset.forest.descendants(7).stop


def test_a_sample_is_uniform_without_repeats_and_stated(dataset):
    found = overview(explore(dataset, n_points=150, seed=4))
    assert found["total"] == N
    assert found["seed"] == 4
    assert np.unique(found["samples"]).size == 150
    assert (np.diff(found["samples"]) > 0).all()
    count = np.zeros(N)
    for seed in range(300):
        count[data.Subject(dataset, "", None, None, 20, 40, seed).sample()[0]] += 1
    # Each row is drawn 30 times in expectation, with a variance of 27; of 400 rows none is far off.
    assert np.abs(count - 30).max() < 5 * np.sqrt(27)


def test_columns_are_those_of_the_points(dataset):
    found = overview(explore(dataset, prediction=lambda X: X[:, 0], n_points=100))
    rows = found["samples"]
    columns = {column["name"]: column["values"] for column in found["columns"]}
    np.testing.assert_allclose(columns["y"], dataset.y[rows], rtol=1e-6)
    np.testing.assert_allclose(columns["prediction"], dataset.X[rows, 0], rtol=1e-6)
    np.testing.assert_allclose(columns["error"], dataset.X[rows, 0] - dataset.y[rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["places"][0]["depth"], dataset.forest.point_depth[rows])


def test_a_networks_predictions(dataset):
    from percolab.nn import ResidualMLP
    from percolab.nn.networks.model import predict, predictor

    torch = pytest.importorskip("torch")
    X = torch.tensor(dataset.X, dtype=torch.float32)
    model = ResidualMLP(5, 8, 1, 2, seed=0)
    columns = {
        column["name"]: column["values"]
        for column in overview(explore(dataset, prediction=predictor(model)))["columns"]
    }
    np.testing.assert_allclose(columns["prediction"], predict(model, X).numpy(), rtol=1e-5)
    labels = predictor(ResidualMLP(5, 8, 1, 2, seed=0, outputs=3))(dataset.X)
    assert set(labels.tolist()) <= {0, 1, 2}


def test_labels_are_right_or_wrong(dataset):
    labelled = dataset.with_target("classes", max_size=100)
    guess = labelled.y.copy()
    guess[:7] += 1
    columns = {column["name"]: column for column in overview(explore(labelled, prediction=guess))["columns"]}
    assert columns["y"]["kind"] == "label"
    assert columns["error"]["values"].sum() == 7


# ---------------------------------------------------------------------- features


def test_where_features_fire_is_sent(dataset, codes):
    found = overview(explore(dataset, codes=codes, scores=score(dataset, codes)))
    sent, place = found["features"], found["places"][0]
    assert sent["total"] == 6
    assert sorted(sent["shown"]) == [0, 1, 2, 3, 4]
    assert sent["count"].sum() == codes.nnz == sent["levels"].size
    assert (sent["levels"] == 255).all()
    np.testing.assert_array_equal(sent["top"], 2)
    np.testing.assert_allclose(place["features"]["f1"], [1, 1, 1, 1, 1, 0])


def test_features_that_match_best_are_kept_where_there_is_no_room(dataset, codes, monkeypatch):
    noisy = codes.toarray()
    noisy[:, 5] = np.random.default_rng(0).random(N) > 0.5
    monkeypatch.setattr(shown_features, "BYTES_OF_TREE", 0)
    monkeypatch.setattr(shown_features, "MOST_BYTES", 2 * int((noisy[:, :5] > 0).sum()))
    sent = overview(explore(dataset, codes=noisy, scores=score(dataset, noisy)))["features"]
    assert sorted(sent["shown"]) == [0, 1, 2, 3, 4]


def test_only_rows_with_codes_are_drawn(dataset, codes):
    rows = np.random.default_rng(0).permutation(N)[:120]
    found = overview(explore(dataset, codes=codes[rows], rows=rows, scores=score(dataset, codes[rows], rows)))
    np.testing.assert_array_equal(found["samples"], np.sort(rows))
    sent = found["features"]
    fired = np.array([(codes[rows].toarray()[:, f] > 0).sum() for f in sent["shown"]])
    np.testing.assert_array_equal(sent["count"], fired)


def test_absorbed_rows_are_those_that_the_score_counts(dataset):
    forest = dataset.forest
    concepts = forest.concepts(20, 2 / 3)
    outer = next(c for c in concepts[1:] if forest.latent_size[c] > 60)
    inner = next(
        (c for c in concepts if outer < c < outer + forest.latent_size[outer] - 1
         and 2 * forest.latent_size[c] <= forest.latent_size[outer]), None,
    )  # fmt: skip
    assert inner is not None
    codes = forest.membership([int(outer), int(inner)]).toarray().astype(float)
    codes[codes[:, 1] > 0, 0] = 0
    found = score(dataset, codes)
    table = found.concepts.set_index("latent")
    own = codes[:, int(table.loc[outer, "best_feature"])]
    rows = np.arange(N)[forest.points_of(int(outer))]
    absorbed = (own[rows] == 0) & (found.absorbed_from[rows] >= outer)
    assert absorbed.mean() == pytest.approx(table.loc[outer, "absorption"])
    assert absorbed.sum() == forest.latent_size[inner]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prediction": np.zeros(3)}, "prediction must have a number for each of the 400 rows, got float64 of shape"),
        ({"codes": np.ones((N, 2))}, "codes and scores must be given together, got no scores"),
        ({"n_points": 0}, "n_points must be at least 1, got 0"),
        ({"min_size": 1}, "min_size must be at least 2, got 1"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_shown_is_refused(dataset, changes, message):
    with pytest.raises(ValueError, match=message):
        explore(dataset, **changes)


def test_scores_must_be_of_the_codes(dataset, codes):
    with pytest.raises(ValueError, match="scores must be of the 2 features of the codes, got 6 features"):
        explore(dataset, codes=codes[:, :2], scores=score(dataset, codes))
    with pytest.raises(ValueError, match="codes must have a row for each of the 400 rows, got 5"):
        explore(dataset, codes=codes[:5], scores=score(dataset, codes))


# ---------------------------------------------------------------------- the page, the command, the server


def test_text_from_a_dataset_is_in_the_pack_alone(dataset):
    html = explore(dataset, name=HOSTILE).html
    assert HOSTILE not in html
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html  # the title
    assert "default-src 'none'" in html
    assert "connect-src 'none'" in html
    assert HOSTILE not in explore(dataset, name=HOSTILE)._repr_html_()


@pytest.fixture(scope="module")
def store(dataset, codes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    dataset.save(folder / "data.zarr")
    scipy.sparse.save_npz(folder / "codes.npz", codes)
    np.savez(folder / "some.npz", codes=codes.toarray()[:50], rows=np.arange(50))
    np.save(folder / "codes.npy", codes.toarray())
    (folder / "text.npz").write_text("no codes")
    return folder


@pytest.mark.parametrize("name", ["codes.npz", "codes.npy", "some.npz"])
def test_codes_are_read_from_files(store, codes, name):
    found, rows = map(read_codes("features", store / name).get, ("codes", "rows"))
    n = 50 if name == "some.npz" else N
    np.testing.assert_array_equal(scipy.sparse.csr_array(found).toarray(), codes.toarray()[:n])
    assert rows is None if n == N else rows.tolist() == list(range(50))


def test_the_command_writes_a_page(store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(store)
    target = tmp_path / "explorer.html"
    assert main.run(["explore", "data.zarr", "-o", str(target), "--features", "codes.npz"]) == 0
    assert capsys.readouterr().out == f"wrote {target}\n"
    assert target.stat().st_size > 1_000_000
    assert main.run(["info", "data.zarr", "--html", str(tmp_path / "card.html"), "--explorer", str(target)]) == 0
    assert '<a href="explorer.html">' in (tmp_path / "card.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--output must be given unless --serve"),
        (["--serve", "-o", "x.html"], "--output must be left out with --serve, got x.html"),
        (["-o", "x.html", "--features", "none.npz"], "--features must exist, got 'none.npz'"),
        (
            ["-o", "x.html", "--features", "text.npz"],
            "--features must be a file as NumPy or SciPy save arrays, got 'text.npz'",
        ),
        (["-o", "x.html", "--points", "0"], "--points must be at least 1, got 0"),
        (["-o", "none/x.html"], "--output must be in an existing directory, got 'none/x.html'"),
    ],
)
def test_bad_input_is_one_line(store, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(store)
    assert main.run(["explore", "data.zarr", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {message}")
    assert said.count("\n") == 1
    assert not (store / "x.html").exists()


@pytest.fixture
def server(store):
    made = explore(pl.load(store / "data.zarr"), name=HOSTILE, n_points=50).serve()
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join()


def ask(server, path, method="GET", **headers):
    host, port = server.address.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port))
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_server_reads_what_is_asked_for(server, dataset):
    assert server.address.startswith("http://127.0.0.1:")
    status, body = ask(server, "/")
    assert status == 200
    assert HOSTILE.encode() not in body
    assert b"connect-src 'self'" in body
    latent = int(dataset.forest.concepts(20, 2 / 3)[1])
    status, body = ask(server, f"/latent?factor=0&latent={latent}")
    found = unpack(body)
    inside = dataset.forest.points_of(latent)
    assert found["total"] == inside.stop - inside.start
    assert ((found["samples"] >= inside.start) & (found["samples"] < inside.stop)).all()


@pytest.mark.parametrize(
    ("path", "method", "host", "status"),
    [
        ("/latent?factor=0&latent=99999", "GET", None, 400),
        ("/latent?factor=1&latent=0", "GET", None, 400),
        ("/latent?factor=0", "GET", None, 400),
        ("/latent?factor=0&latent=x", "GET", None, 400),
        ("/../data.zarr/zarr.json", "GET", None, 404),
        ("/", "POST", None, 501),
        ("/", "PUT", None, 501),
        ("/", "DELETE", None, 501),
        ("/", "GET", "elsewhere.example", 403),
    ],
)
def test_the_server_refuses_all_else(server, path, method, host, status):
    assert ask(server, path, method, **({} if host is None else {"Host": host}))[0] == status


def test_progress_is_told(dataset):
    told = []
    explore(dataset, progress=lambda *now: told.append(now))
    assert {stage for stage, _, _ in told} == {"reading", "components"}
    assert data.overview(data.Subject(dataset, "", None, None, 20, 10, 0), silent)["total"] == N
