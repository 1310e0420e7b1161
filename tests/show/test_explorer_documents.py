"""The explorer of documents: what it sends is exact, and in a real browser it moves along documents."""

import numpy as np
import pytest
import scipy.sparse
from packs import unpack
from sameness import refused

import percolab as pl
from percolab.cli import main
from percolab.features import score
from percolab.show import explore
from percolab.show.belief_map import row_probability
from percolab.show.explorer.passages import Probed

HOSTILE = """</title></script><script>window.ran = 1</script><img src=x onerror="window.ran = 1">"""
FIRST, COUNT, T = 1 << 40, 12, 24


@pytest.fixture(scope="module")
def corpus():
    lexicons = [pl.Recipe(128, 2, "one_cluster", seeds=seed) for seed in (1, 2)]
    return pl.Corpus(lexicons, length=T, min_size=12, renewal=1 / 8, seed=3)


@pytest.fixture(scope="module")
def codes(corpus):
    """Features that are beliefs above a half."""
    inside = corpus.beliefs(corpus.documents(FIRST, FIRST + COUNT).tokens).inside(corpus.contexts(0), 0)
    return np.where(inside > 0.5, inside, 0)


@pytest.fixture(scope="module")
def page(corpus, codes):
    shown = corpus.documents(FIRST, FIRST + COUNT)
    scores = [score(corpus, codes, factor=k, documents=shown, min_size=2) for k in (0, 1)]
    return explore(corpus, codes=codes, scores=scores, name=HOSTILE)


def test_what_is_sent_is_what_is_true(corpus, codes, page):
    sent, documents = unpack(page._packed), corpus.documents(FIRST, FIRST + COUNT)
    beliefs = corpus.beliefs(documents.tokens)
    for name in ("tokens", "context", "number", "lexicon", "renewed"):
        assert np.array_equal(sent[name], getattr(documents, name).ravel()), name
    np.testing.assert_allclose(sent["floor"], beliefs.floor.ravel(), rtol=1e-6)
    for k, tree in enumerate(sent["trees"]):
        contexts = corpus.contexts(k)
        exact = beliefs.inside(contexts, k).ravel()
        np.testing.assert_allclose(sent["inside"][k] / 255, exact, atol=0.5 / 255 + 1e-9)
        assert np.array_equal(tree["row"][corpus.token_ids(k)], np.arange(corpus.n_tokens))
        assert np.array_equal(
            np.where(tree["upper"] < 0, -1, contexts[tree["upper"]]), corpus.forest(k).nearest_above(contexts)
        )
    (coder,) = sent["features"]
    table = scipy.sparse.csr_array((coder["level"], coder["feature"], coder["end"]), (COUNT * T, codes.shape[2]))
    assert np.array_equal(table.toarray() > 0, codes.reshape(-1, codes.shape[2]) > 0)


def readings(corpus):
    """Return networks that know everything, half of it, and nothing: by name."""
    exact = corpus.beliefs(corpus.documents(FIRST, FIRST + COUNT).tokens)
    inside = [exact.inside(corpus.contexts(k), k).reshape(COUNT * T, -1) for k in (0, 1)]
    parts = {"first": ([0], 1.0), "second": ([1], 0.5), "fresh": ([], 0.0)}
    return {name: Probed(lexicons, [part * values for values in inside]) for name, (lexicons, part) in parts.items()}


def test_networks_are_sent_as_they_are_read(corpus):
    sent, given = unpack(explore(corpus, beliefs=readings(corpus))._packed), readings(corpus)
    assert [(network["name"], network["trained_on"]) for network in sent["networks"]] == [
        ("first", [0]), ("second", [1]), ("fresh", [])
    ]  # fmt: skip
    for network in sent["networks"]:
        for k in (0, 1):
            expected = given[network["name"]].inside[k].ravel()
            np.testing.assert_allclose(network["inside"][k] / 255, expected, atol=0.5 / 255 + 1e-9)
    wild = {"wild": Probed([0], [np.full((COUNT * T, corpus.contexts(k).size), 7.0) for k in (0, 1)])}
    assert unpack(explore(corpus, beliefs=wild)._packed)["networks"][0]["inside"][0].max() == 255
    count = corpus.contexts(0).size
    with refused(f"beliefs must have one column for each of the {count} contexts of lexicon 0, got shape (288, 1)"):
        explore(corpus, beliefs={"few": Probed([0], [np.zeros((COUNT * T, 1))] * 2)})
    with refused("beliefs must be left out for points"):
        explore(pl.generate(pl.Recipe(50, 3, seeds=1)), beliefs=wild)


@pytest.mark.slow
def test_probed_beliefs_of_a_network_that_holds_them_are_the_exact_ones(corpus):
    torch = pytest.importorskip("torch")
    from percolab.study import probed_beliefs

    class Knowing(torch.nn.Module):
        """A network whose last block holds the exact beliefs."""

        def __init__(self, knows):
            super().__init__()
            self.blocks, self.knows = torch.nn.ModuleList([torch.nn.Identity()]), knows

        def forward(self, tokens):
            exact = corpus.beliefs(tokens.cpu().numpy())
            inside = np.concatenate([exact.inside(corpus.contexts(k), k) for k in (0, 1)], axis=2)
            values = torch.from_numpy(inside if self.knows else np.ones_like(inside))
            return self.blocks[0](values.float())

    shown = corpus.documents(FIRST, FIRST + COUNT)
    found = probed_beliefs(corpus, {"own": (Knowing(True), [0]), "none": (Knowing(False), [])}, shown, device="cpu")
    exact = corpus.beliefs(shown.tokens).inside(corpus.contexts(0), 0).reshape(COUNT * T, -1)
    assert found["own"].inside[0].shape == exact.shape
    assert np.abs(found["own"].inside[0] - exact).max() < 0.02
    assert np.ptp(found["none"].inside[0], axis=0).max() < 1e-3


@pytest.mark.slow
def test_stored_documents_and_codes_of_several_networks(corpus, codes, tmp_path, capsys):
    pl.generate_store(pl.DocumentRange(corpus, FIRST, FIRST + 30), tmp_path / "docs.zarr", sync=False)
    np.save(tmp_path / "codes.npy", codes.reshape(-1, codes.shape[2]))
    command = ["explore", str(tmp_path / "docs.zarr"), "-o", str(tmp_path / "page.html")]
    assert main.run([*command, "--features", str(tmp_path / "codes.npy")]) == 0
    assert "wrote" in capsys.readouterr().out
    assert main.run([*command[:2], "--serve"]) == 2
    assert "must be left out for documents" in capsys.readouterr().err
    stored = pl.load(tmp_path / "docs.zarr")
    sent = unpack(explore(stored, codes={"own": codes, "other": codes[:4]})._packed)
    assert [coder["name"] for coder in sent["features"]] == ["own", "other"]
    assert len(sent["number"]) == 4  # those that all codes are of
    assert len(unpack(explore(stored)._packed)["number"]) == 30
    assert len(unpack(explore(stored, n_points=5 * T)._packed)["number"]) == 5
    with refused(f"codes must have {T} rows for each document, got {T + 1} rows"):
        explore(stored, codes=np.ones((T + 1, 2)))


# ---------------------------------------------------------------------- in a browser


@pytest.fixture
def visit(chromium, page, tmp_path):
    page.save(tmp_path / "page.html")
    contexts = []

    def open_page(fragment="", width=1280, **options):
        context = chromium.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.errors = []
        tab.on("pageerror", lambda error: tab.errors.append(str(error)))
        tab.on("console", lambda message: tab.errors.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: tab.errors.append(request.url) if request.url.startswith("http") else None)
        tab.goto(f"file://{tmp_path / 'page.html'}{fragment}")
        tab.wait_for_function("document.body.dataset.ready === 'true'")
        return tab

    yield open_page
    for context in contexts:
        for tab in context.pages:
            assert tab.errors == []
            assert tab.evaluate("window.ran") is None
        context.close()


@pytest.mark.browser
def test_beliefs_move_along_a_document(corpus, visit):
    tab = visit(f"#document={FIRST + 2}&at=3")
    document = corpus.documents(FIRST + 2, FIRST + 3)
    k, beliefs = int(document.lexicon[0]), corpus.beliefs(document.tokens)
    inside = beliefs.inside(corpus.contexts(k), k)[0]

    def shades():
        return np.array(tab.evaluate("percolabExplorer.app.rects.map((r) => +r.getAttribute('fill-opacity'))"))

    def check(t):
        np.testing.assert_allclose(shades(), 0.04 + 0.96 * inside[t], atol=0.003)
        assert f"{beliefs.floor[0, t]:.2f} nats" in tab.inner_text("#details")
        assert f"context {document.context[0, t]} (" in tab.inner_text("#details")

    check(3)
    tab.keyboard.press("ArrowRight")
    check(4)
    tab.locator("#strip button").nth(9).click()
    check(9)
    tab.locator("#position").fill("15")
    check(15)
    tab.locator("#position").blur()
    tab.keyboard.press("End")
    check(T - 1)
    tab.keyboard.press("ArrowDown")
    assert tab.input_value("#number") == str(FIRST + 3)
    assert tab.url.endswith(f"#document={FIRST + 3}&at=0")
    tab.fill("#number", str(FIRST + 1))
    tab.keyboard.press("Enter")
    assert tab.url.endswith(f"#document={FIRST + 1}&at=0")
    tab.fill("#number", "7")
    tab.keyboard.press("Enter")
    assert "Document 7 is not on this page" in tab.inner_text("#status")


@pytest.mark.browser
def test_the_field_is_the_probability_of_every_row(corpus, visit):
    tab = visit(f"#document={FIRST + 2}")
    document = corpus.documents(FIRST + 2, FIRST + 3)
    k = int(document.lexicon[0])
    exact = row_probability(corpus, document.tokens, k)[0]
    rows = [5, 60, 100]
    alpha = tab.evaluate(
        """(rows) => {
          const field = document.getElementById("field"), pen = field.getContext("2d");
          const step = field.height / percolabExplorer.app.tree.row.length;
          const y = (row) => field.height - Math.floor((row + 0.5) * step) - 1;
          const read = (t, row) => pen.getImageData(8 * t, y(row), 1, 1).data[3];
          return rows.map((row) => Array.from({ length: field.width / 8 }, (_, t) => read(t, row) / 255));
        }""",
        rows,
    )
    np.testing.assert_allclose(alpha, exact.T[rows], atol=0.03)


@pytest.mark.browser
def test_a_context_is_followed_and_features_fire_where_they_do(corpus, codes, visit):
    shown = corpus.documents(FIRST, FIRST + COUNT)
    i = int(np.flatnonzero(shown.lexicon == 0)[0])
    tab = visit(f"#document={FIRST + i}")
    top = int(codes[i].sum(0).argmax())
    lane = tab.locator(f"#features .lane[data-feature='{top}'] i")
    opacity = lane.evaluate_all("(cells) => cells.map((cell) => +cell.style.opacity)")
    np.testing.assert_allclose(opacity, codes[i, :, top] / codes[:, :, top].max(), atol=0.01)
    tab.evaluate("percolabExplorer.app.rects[2].dispatchEvent(new MouseEvent('click'))")
    latent = int(corpus.contexts(0)[2])
    assert f"Belief in context {latent}" in tab.inner_text("#followed")
    held = np.isin(shown.tokens[i], corpus.token_ids(0)[corpus.forest(0).points_of(latent)])
    marked = tab.locator("#strip button").evaluate_all("(all) => all.map((b) => b.classList.contains('inside'))")
    assert marked == held.tolist()
    tab.keyboard.press("Escape")
    assert tab.inner_text("#followed") == ""
    tab.select_option("#lexicon", "1")
    assert len(tab.locator("#tree rect:not(.frame)").all()) == corpus.contexts(1).size


@pytest.fixture
def networks_page(corpus):
    return explore(corpus, beliefs=readings(corpus))


@pytest.mark.browser
def test_networks_stand_below_the_exact_belief_in_the_colours_of_their_roles(corpus, networks_page, chromium, tmp_path):
    networks_page.save(tmp_path / "networks.html")
    tab = chromium.new_context(viewport={"width": 300, "height": 800}, has_touch=True).new_page()
    lexicon = corpus.documents(FIRST, FIRST + COUNT).lexicon
    for k, roles in ((0, ["trained", "other", "untrained"]), (1, ["other", "trained", "untrained"])):
        i = int(np.flatnonzero(lexicon == k)[0])
        tab.goto(f"file://{tmp_path / 'networks.html'}#document={FIRST + i}&at={T - 1}")
        tab.reload()
        tab.wait_for_function("document.body.dataset.ready === 'true'")
        assert tab.locator("canvas.network").evaluate_all("(all) => all.map((field) => field.dataset.role)") == roles
        seen = """(all) => all.map((field) => {
          const data = field.getContext("2d").getImageData(0, 0, field.width, field.height).data;
          return data.reduce((sum, value, at) => sum + (at % 4 === 3 ? value : 0), 0);
        })"""
        shade = tab.locator("canvas.network").evaluate_all(seen)
        assert shade[0] > 1.5 * shade[1] > 3 * shade[2]
        assert "belief in the true context" in tab.inner_text("#details")
    # Headings can be read whole on a phone, wherever the lanes are scrolled to.
    assert tab.evaluate("document.querySelector('.scroll').scrollLeft") > 0
    for box in tab.locator("#lanes h3").evaluate_all("(all) => all.map((h) => h.getBoundingClientRect().toJSON())"):
        assert box["left"] >= 0
        assert box["right"] <= 300
    tab.context.close()


@pytest.mark.browser
def test_all_networks_are_seen_at_once_beside_the_exact_belief(networks_page, chromium, tmp_path):
    networks_page.save(tmp_path / "networks.html")
    tab = chromium.new_page(viewport={"width": 1440, "height": 900})
    tab.goto((tmp_path / "networks.html").as_uri())
    tab.wait_for_function("document.body.dataset.ready === 'true'")
    fields = [field.bounding_box() for field in tab.locator("#field, canvas.network").all()]
    assert len(fields) == 4
    assert len({field["height"] for field in fields}) == 1
    assert fields[-1]["y"] + fields[-1]["height"] < tab.locator("#details").bounding_box()["y"]
    # What is true has a colour that no role of a network has.
    frame = tab.evaluate("getComputedStyle(percolabExplorer.app.rects[percolabExplorer.app.truth(0)]).stroke")
    assert frame == "rgb(204, 121, 167)"
    tab.close()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_the_page_down_and_the_document_sideways(visit, scheme):
    tab = visit(width=390, color_scheme=scheme, has_touch=True)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.evaluate("document.documentElement.scrollHeight") > 800
    tab.locator("#right").tap()
    tab.evaluate("percolabExplorer.app.go({ at: 23 })")
    box = tab.locator("#strip button").nth(23).bounding_box()
    assert 0 <= box["x"] < 390
