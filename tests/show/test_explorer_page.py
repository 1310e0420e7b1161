"""The explorer in a real browser: it opens without errors, picks, zooms, links both ways, and runs nothing it shows."""

import re
import threading
from itertools import pairwise

import numpy as np
import pytest

import percolab as pl
from percolab.features import score
from percolab.show import explore

pytestmark = pytest.mark.browser

N, DIM = 3000, 12
HOSTILE = """</title></script><script>window.ran = 1</script><img src=x onerror="window.ran = 1">{{ 7 * 7 }}"""
READY = "document.body.dataset.ready === 'true'"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def planted():
    """A dataset, and codes of two features for one concept: the whole of it but for what is inside, and what is inside.

    The first also fires on ten rows elsewhere and misses five more: it hits, misses, is absorbed, and adds.
    """
    dataset = pl.generate(pl.Recipe(n_points=N, dim=DIM, seeds=5, mode="one_cluster"))
    forest = dataset.forest
    concepts, start, size = forest.concepts(20, 1), forest.latent_start, forest.latent_size
    above = dict(zip(concepts, forest.nearest_above(concepts), strict=True))

    def absorbed_from(inner):
        """Return the nearest concept above that is at least twice as large, -1 for none."""
        outer = above[inner]
        while outer >= 0 and size[outer] < 2 * size[inner]:
            outer = above[outer]
        return outer

    inner, outer = next(
        (inner, outer)
        for inner, outer in ((inner, absorbed_from(inner)) for inner in concepts)
        if outer >= 0 and 3 * size[inner] < size[outer] < 1000 and 5 < start[outer] < N - 5 - size[outer]
    )
    big, small = forest.points_of(int(outer)), forest.points_of(int(inner))
    codes = np.zeros((N, 3), np.float32)
    codes[big, 0] = 2.0
    codes[small, 0] = 0
    codes[small, 1] = 1.0
    outside = [*range(big.start - 5, big.start), *range(big.stop, big.stop + 5)]
    codes[outside, 0] = 0.5
    own = [row for row in range(big.start, big.stop) if not small.start <= row < small.stop][:5]
    codes[own, 0] = 0
    counts = {
        "hits": big.stop - big.start - (small.stop - small.start) - 5,
        "missed": 5,
        "absorbed": small.stop - small.start,
        "added": 10,
    }
    return dataset, codes, score(dataset, codes, ratio=1), int(outer), counts


@pytest.fixture(scope="module")
def file(planted, tmp_path_factory):
    dataset, codes, found, _, _ = planted
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    noisy = dataset.y + np.random.default_rng(0).normal(size=N)
    explore(dataset, prediction=noisy, codes=codes, scores=found, name=HOSTILE, features_name=HOSTILE).save(path)
    return path


class Visit:
    """A page that is open, and what it said and asked for."""

    def __init__(self, browser, address, viewport=None, **options):
        self.context = browser.new_context(viewport=viewport or DESKTOP, **options)
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_function(READY)

    def js(self, code):
        """Return the value of an expression in which `app` is the explorer."""
        return self.page.evaluate(f"() => {{ const app = percolabExplorer.app; return {code} }}")

    def when(self, code):
        """Wait until an expression holds."""
        self.page.wait_for_function(f"() => {{ const app = percolabExplorer.app; return {code} }}")

    def tap_space(self, point):
        """Tap on a point."""
        self.tap("app.space.figure", f"app.space.x[{point}]", f"app.space.y[{point}]")

    def tap(self, figure, x, y):
        view = f"Bokeh.index.get_by_id({figure}.id)"
        at = self.js(f"[{view}.frame.x_scale.compute({x}), {view}.frame.y_scale.compute({y})]")
        left, top = self.js(f"(() => {{ const b = {view}.el.getBoundingClientRect(); return [b.left, b.top] }})()")
        self.page.mouse.click(left + at[0], top + at[1])


@pytest.fixture
def visit(chromium):
    open_visits = []

    def opened(address, **options):
        open_visits.append(Visit(chromium, address, **options))
        return open_visits[-1]

    yield opened
    errors = [error for one in open_visits for error in one.errors]
    for one in open_visits:
        one.context.close()
    assert errors == []


def test_it_opens_offline_and_asks_for_nothing(visit, file):
    one = visit(file.as_uri(), offline=True)
    assert [url for url in one.requests if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert one.js("app.space.x.length") == N
    assert one.js("app.icicles[0].drawn.length") > 20
    assert "3,000 points in 12 dimensions" in one.page.inner_text("#details")


def test_nothing_that_is_shown_runs(visit, file):
    one = visit(file.as_uri() + "#feature=0&latent=%3Cimg%20src=x%20onerror=window.ran=1%3E&view=<b>")
    assert one.page.evaluate("window.ran") is None
    assert one.page.title() == f"Explorer: {HOSTILE}"
    assert one.page.inner_text("#name").startswith("</title></script>")
    assert one.page.locator("img").count() == 0
    one.page.keyboard.press("Escape")
    one.when("app.state.feature === null")
    assert "{{ 7 * 7 }}: 3, 2 on this page" in one.page.inner_text("#details")
    assert one.page.evaluate("window.ran") is None


def test_a_tap_in_space_picks_a_latent_that_has_the_point(visit, file, planted):
    one = visit(file.as_uri())
    deep = "app.grouped.groups.some((g) => app.trees[0].has(g, p) && app.trees[0].towards(g, p) >= 0)"
    alone = "app.space.near(app.space.x[p], app.space.y[p]) === p"
    point = one.js(f"Array.from(app.space.index).find((p) => p > 500 && {deep} && {alone})")
    one.tap_space(point)
    one.when("app.state.latent !== null")
    latent, row = one.js("[app.state.latent, app.state.row]")
    forest = planted[0].forest
    interval = forest.points_of(latent)
    assert row == point
    assert interval.start <= row < interval.stop
    # Space shows its points, the tree its rectangle, the panel its numbers.
    assert one.js("app.space.model('picked').data.x.length") == forest.latent_size[latent]
    assert one.js("Array.from(app.icicles[0].model('chosen#').data.left)") == [interval.start]
    told = one.page.inner_text("#details")
    assert f"Latent {latent:,}" in told
    assert f"z\t{planted[0].latent_z[latent]:.3f}" in told
    assert f"depth\t{forest.latent_depth[latent]:,}" in told
    one.tap_space(point)  # the same point again: the next concept down towards it
    one.when(f"app.state.latent > {latent}")
    assert forest.latent_size[one.js("app.state.latent")] <= 2 / 3 * forest.latent_size[latent]


def test_a_tap_on_the_tree_picks_the_rectangle(visit, file, planted):
    one = visit(file.as_uri())
    forest = planted[0].forest
    drawn = np.array(one.js("app.icicles[0].drawn.map((i) => app.trees[0].latent[i])"))
    start, size = forest.latent_start[drawn], forest.latent_size[drawn]
    # Over a row of a small rectangle, at the height of a larger one around it.
    row = int(start[-1])
    around = (start <= row) & (row < start + size)
    height = float(np.quantile(size[around], 0.6, method="higher")) * 0.99
    latent = int(drawn[around & (size >= height)].max())
    assert latent < drawn[around].max()
    one.tap("app.icicles[0].figure", f"{row} + 0.5", height)
    one.when(f"app.state.latent === {latent}")
    interval = forest.points_of(latent)
    picked = one.js("app.space.model('picked').data.x.length")
    assert picked == interval.stop - interval.start


def test_a_feature_shows_what_it_hits_misses_and_adds(visit, file, planted):
    _, _, found, outer, counts = planted
    one = visit(file.as_uri())
    one.page.select_option("#kind", "feature")
    one.page.fill("#number", "0")
    one.page.keyboard.press("Enter")
    one.when("app.state.feature === 0")
    assert one.js("app.state.latent") == found.features["latent"][0]
    one.js(f"app.go({{latent: {outer}}})")
    one.when(f"document.getElementById('details').textContent.includes('Against latent {outer:,}')")
    told = {
        kind: int(one.page.locator(f"li[data-kind={kind}] b").inner_text().replace(",", ""))
        for kind in ("hits", "missed", "absorbed", "added")
    }
    assert told == counts
    drawn = {kind: one.js(f"app.space.model('{kind}').data.x.length") for kind in counts}
    assert drawn == counts
    assert set(one.js("Array.from(app.icicles[0].model('strip#').data.colour)")) == {
        "#0072B2", "#E69F00", "#D55E00", "#CC79A7",
    }  # fmt: skip
    assert one.js("Math.max(...app.space.values)") == 2


def test_absorbed_points_are_as_many_as_the_score_says(visit, file):
    one = visit(file.as_uri())
    told = one.js(
        """(() => {
          const { concepts } = app.points.places[0], tree = app.trees[0], found = [];
          concepts.latent.forEach((latent, c) => {
            if (!(concepts.f1[c] >= 0.5)) return;
            const i = tree.find(latent), interval = [tree.start[i], tree.end(i)];
            const kinds = app.features.compare(concepts.best_feature[c], 0, latent, ...interval);
            found.push([kinds.absorbed.length / tree.size[i], concepts.absorption[c]]);
          });
          return found;
        })()"""
    )
    shown, scored = np.array(told).T
    assert (scored > 0).sum() > 1
    np.testing.assert_allclose(shown, scored, rtol=1e-6)


def test_the_tree_gets_finer_as_one_zooms_in(visit, file):
    one = visit(file.as_uri())
    smallest = "Math.min(...app.icicles[0].drawn.map((i) => app.trees[0].size[i]))"
    before = one.js(smallest)
    box = one.page.locator("#trees .figure").bounding_box()
    one.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for _ in range(10):
        one.page.mouse.wheel(0, -240)
    one.when(f"app.icicles[0].range()[1] - app.icicles[0].range()[0] < {N / 3} && {smallest} < {before}")
    # Wheels over space zoom space.
    width = "app.space.range()[1] - app.space.range()[0]"
    before = one.js(width)
    box = one.page.locator("#space .figure").bounding_box()
    one.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    one.page.mouse.wheel(0, -240)
    one.when(f"{width} < {before}")


def test_a_latent_in_its_own_components(visit, file, planted):
    dataset = planted[0]
    one = visit(file.as_uri())
    one.js("app.go({latent: app.trees[0].latent[app.trees[0].groups(6, -1)[0]]})")
    latent = one.js("app.state.latent")
    one.page.click("#own-view")
    one.when("app.state.view !== null && app.space.x.length < 3000")
    found = int(re.search(r"components of latent ([\d,]+)", one.page.inner_text("#plane"))[1].replace(",", ""))
    inside, asked = dataset.forest.points_of(found), dataset.forest.points_of(latent)
    assert inside.start <= asked.start < asked.stop <= inside.stop
    points = dataset.X[inside] - dataset.X[inside].mean(axis=0)
    spread = np.linalg.svd(points, compute_uv=False)
    x = np.array(one.js("Array.from(app.space.x)"))
    assert np.linalg.norm(x) == pytest.approx(spread[0], rel=1e-3)
    one.page.keyboard.press("a")
    one.when(f"app.space.x.length === {N}")


def test_back_and_forward_and_a_link_that_restores(visit, file):
    one = visit(file.as_uri())
    one.page.keyboard.press("ArrowDown")
    one.when("app.state.latent !== null")
    first = one.js("app.state.latent")
    one.page.keyboard.press("ArrowDown")
    one.when(f"app.state.latent !== {first}")
    second = one.js("app.state.latent")
    one.page.click("#back")
    one.when(f"app.state.latent === {first}")
    one.page.click("#forward")
    one.when(f"app.state.latent === {second}")
    one.page.select_option("#colour", "error")
    one.page.keyboard.press("+")
    one.page.wait_for_function("location.hash.includes('space=')")
    again = visit(one.page.url)
    for name in ("latent", "colour", "tree", "view"):
        assert again.js(f"app.state.{name}") == one.js(f"app.state.{name}")
    assert again.js("app.space.range()") == pytest.approx(one.js("app.space.range()"), rel=1e-3)


def test_every_key_does_something(visit, file):
    one = visit(file.as_uri() + "#latent=100&axes=123")
    # Where the picture is comes into the state later, by a timer: ranges are asked for themselves.
    parts = "{...app.state, space: 0, rows: 0}, app.space.range(), app.icicles[0].range(), help.hidden"
    seen = f"JSON.stringify([{parts}])"
    for key in [*"+0-.,][", "ArrowUp", "ArrowRight", "ArrowLeft", *"canp?", "Escape", "Escape"]:
        before = one.js(seen)
        one.page.keyboard.press(key)
        one.when(f"{seen} !== {before!r}")
    assert one.js("[app.state.latent, app.state.feature]") == [None, None]
    one.page.keyboard.press("/")
    assert one.page.evaluate("document.activeElement.id") == "number"


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")]
)
def test_it_fits_the_screen(visit, file, viewport, scheme):
    one = visit(file.as_uri(), viewport=viewport, color_scheme=scheme, has_touch=viewport is PHONE)
    assert one.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for figure in ("#space .figure", "#trees .figure"):
        box = one.page.locator(figure).bounding_box()
        assert box["width"] > 0.4 * viewport["width"] - 120
        assert box["height"] > 120
    ground = one.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 20, 20)"}[scheme]


def test_a_world_has_a_tree_a_factor(visit, tmp_path):
    recipes = [pl.Recipe(n_points=400, dim=6, seeds=seed, mode="one_cluster") for seed in (1, 2)]
    world = pl.generate(pl.Superposition(recipes, weights=[0, 2], seed=3))
    explore(world, name="two").save(tmp_path / "two.html")
    one = visit((tmp_path / "two.html").as_uri())
    assert one.page.inner_text("#title0") == "Factor 0: irrelevant to y"
    assert one.page.inner_text("#title1") == "Factor 1: relevant to y (weight 2)"
    one.js("app.go({factor: 1, latent: app.trees[1].latent[5]})")
    one.when("app.icicles[1].model('chosen#').data.left.length === 1")
    latent = one.js("app.state.latent")
    below = pl.truth(world, 1).samples_of(latent)
    points = one.js("Array.from(app.points.within(1, app.trees[1].start[5], app.trees[1].end(5)))")
    assert sorted(points) == below.tolist()


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_trees_of_a_world_lie_one_under_the_other(visit, tmp_path, viewport):
    recipes = [pl.Recipe(n_points=400, dim=6, seeds=seed, mode="one_cluster") for seed in (1, 2, 3)]
    explore(pl.generate(pl.Superposition(recipes, seed=3)), name="three").save(tmp_path / "three.html")
    one = visit((tmp_path / "three.html").as_uri(), viewport=viewport)
    boxes = one.js(
        "[...document.querySelectorAll('#trees > *, #details')].map((e) => e.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) == 8
    assert all(lower["top"] >= upper["bottom"] - 1 for upper, lower in pairwise(boxes))
    assert all(box["height"] >= 100 for box in boxes[2::2])


def test_colours_go_to_the_largest_of_many_clusters(visit, tmp_path):
    dataset = pl.generate(pl.Recipe(n_points=2000, dim=4, seeds=7))
    explore(dataset, name="many").save(tmp_path / "many.html")
    one = visit((tmp_path / "many.html").as_uri())
    largest = dataset.forest.latent_size[one.js("app.grouped.groups.map((i) => app.trees[0].latent[i])")]
    sizes = np.diff(dataset.forest.cluster_start)
    assert sorted(largest, reverse=True) == sizes[: len(largest)].tolist()
    assert len(largest) == min(6, (sizes >= 20).sum()) > 1
    assert one.page.inner_text("#space-legend").endswith("others")
    assert one.page.inner_text("#title0").endswith("rows without one are blank or left out")


@pytest.mark.parametrize("kind", ["one point", "clusters", "labels", "cycles"])
def test_odd_datasets_open(visit, tmp_path, kind):
    recipe = pl.Recipe(n_points=1 if kind == "one point" else 600, dim=4, seeds=4)
    if kind == "cycles":
        recipe = pl.Recipe(n_points=600, dim=4, seeds=4, mode="random_graph", mean_degree=1.5)
    dataset = pl.generate(recipe)
    if kind == "labels":
        dataset = dataset.with_target("path_tokens")
    explore(dataset, prediction=dataset.y, name=kind).save(tmp_path / "odd.html")
    one = visit((tmp_path / "odd.html").as_uri() + "#colour=y&tree=latent")
    for key in ("ArrowDown", "c", "a", "Escape"):
        one.page.keyboard.press(key)
    for colour in ("depth", "error", "latent"):
        one.page.select_option("#colour", colour)
    last = len(dataset) - 1  # a cluster of one point, if there is any
    one.page.select_option("#kind", "row")
    one.page.fill("#number", str(last))
    one.page.keyboard.press("Enter")
    one.when(f"app.state.row === {last}")


def test_served_points_of_a_latent_come_from_the_store(visit, tmp_path):
    dataset = pl.generate(pl.Recipe(n_points=N, dim=6, seeds=8, mode="one_cluster"))
    dataset.save(tmp_path / "big.zarr")
    page = explore(pl.load(tmp_path / "big.zarr"), name="big", n_points=500)
    server = page.serve()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        one = visit(server.address)
        assert "500 of 3,000 points, a uniform random sample" in one.page.inner_text("#sample")
        latent = int(dataset.forest.concepts(50, 2 / 3)[2])
        one.js(f"app.go({{latent: {latent}, view: '0:{latent}'}})")
        size = int(dataset.forest.latent_size[latent])
        one.when(f"app.points.total === {size} && app.space.x.length === {min(size, 500)}")
        assert all(url.startswith((server.address, "data:", "blob:")) for url in one.requests)
    finally:
        server.close()
        thread.join()


def test_it_shows_in_a_notebook(visit, file, planted, tmp_path):
    frame = explore(planted[0], name="in a frame")._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<body data-ready=true>{frame}</body>")
    one = visit((tmp_path / "notebook.html").as_uri())
    one.page.frame_locator("iframe").locator("body[data-ready=true]").wait_for()
    assert "in a frame" in one.page.frame_locator("iframe").locator("#details").inner_text()


# ---------------------------------------------------------------------- what people expect of it


def hover(one, figure, x, y):
    view = f"Bokeh.index.get_by_id({figure}.id)"
    at = one.js(f"[{view}.frame.x_scale.compute({x}), {view}.frame.y_scale.compute({y})]")
    left, top = one.js(f"(() => {{ const b = {view}.el.getBoundingClientRect(); return [b.left, b.top] }})()")
    one.page.mouse.move(left + at[0], top + at[1])


def test_a_tooltip_is_the_innermost_concept_in_two_lines(visit, file, planted):
    one = visit(file.as_uri())
    forest = planted[0].forest
    latent = int(one.js("app.trees[0].latent[app.icicles[0].drawn.at(-1)]"))
    hover(one, "app.icicles[0].figure", f"{forest.latent_start[latent]} + 0.5", 0.99 * forest.latent_size[latent])
    one.page.locator("#tip").wait_for()
    assert one.page.inner_text("#tip").startswith(f"latent {latent:,}: {forest.latent_size[latent]:,} points\nz ")
    assert one.page.locator("#tip").bounding_box()["height"] < 60
    point = one.js("app.space.index.find((p) => app.space.near(app.space.x[p], app.space.y[p]) === p)")
    hover(one, "app.space.figure", f"app.space.x[{point}]", f"app.space.y[{point}]")
    one.when(f"document.getElementById('tip').textContent.startsWith('row {point:,}')")
    assert one.page.locator("#tip").bounding_box()["height"] < 60
    one.page.keyboard.press("ArrowDown")
    one.page.locator("#tip").wait_for(state="hidden")


def test_the_concept_beside_never_holds_the_one_that_was_picked(visit, file):
    one = visit(file.as_uri())
    concepts = "[...app.trees[0].latent.keys()].filter((i) => app.trees[0].concept[i])"
    sides = """.flatMap((i) => [-1, 1].map((step) => {
      const tree = app.trees[0], j = tree.beside(i, step);
      return j < 0 ? null : tree.has(j, tree.start[i]);
    }))"""
    held = one.js(concepts + sides)
    assert held.count(False) > 20
    assert not held.count(True)


def test_colours_are_on_top_and_the_same_left_and_right_from_the_start(visit, tmp_path):
    dataset = pl.generate(pl.Recipe(n_points=2000, dim=4, seeds=7))
    explore(dataset, name="many").save(tmp_path / "many.html")
    one = visit((tmp_path / "many.html").as_uri())
    values = np.array(one.js("Array.from(app.space.model('cloud').data.value)"), float)
    grey = np.isnan(values)
    assert grey.any()
    assert not grey[np.flatnonzero(~grey)[0] :].any()
    palettes = one.js("[app.space.mapper.palette, app.icicles[0].model('colours#').palette].map(String)")
    assert palettes[0] == palettes[1]
    concepts = dataset.forest.concepts(20)
    last = int((dataset.forest.latent_start + dataset.forest.latent_size)[concepts].max())
    assert (
        last < one.js("app.icicles[0].range()[1]") < 1.05 * last < 0.95 * len(dataset)
    )  # cropped to rows with concepts
    assert "The same colour is the same group of points" in one.page.inner_text("#what")


def test_the_view_follows_the_pick(visit, file):
    one = visit(file.as_uri())
    shown = "app.space.shows(app.points.within(0, app.trees[0].start[app.chosen()], app.trees[0].end(app.chosen())))"
    for key in ["ArrowDown"] * 5 + ["ArrowRight", "ArrowUp", "ArrowUp", "ArrowLeft"]:
        before = one.js("[app.state.latent]")[0]
        one.page.keyboard.press(key)
        one.when(f"app.shown.latent === app.state.latent && (app.state.latent !== {before or 'null'} || {shown})")
        assert one.js(shown), key
    one.page.keyboard.press("c")
    one.when("app.state.view !== null")
    one.js("app.go({latent: 0})")  # all points: not inside those in view
    one.when("app.state.view === null && app.shown.view === null")
    one.page.keyboard.press("Escape")
    one.when("app.state.latent === null")
    assert one.js("app.icicles[0].range()") == pytest.approx(one.js("app.icicles[0].all()"))
    length = one.page.evaluate("history.length")
    one.page.select_option("#colour", "depth")
    one.when("app.state.colour === 'depth'")
    assert one.page.evaluate("history.length") == length  # back goes from pick to pick


def test_the_caption_counts_the_points_drawn(visit, file):
    one = visit(file.as_uri())
    one.js("app.go({latent: app.trees[0].latent[app.trees[0].groups(6, -1)[0]]})")
    one.page.click("#own-view")
    one.when("app.state.view !== null && app.space.x.length < 3000")
    assert one.page.inner_text("#sample") == f"{one.js('app.space.x.length'):,} points drawn"


def test_a_table_of_features_sorts_and_filters(visit, file, planted):
    found = planted[2].features
    one = visit(file.as_uri())

    def column(number):
        return one.page.locator(f"#feature-table tr td:nth-child({number})").all_inner_texts()

    order = found.sort_values("f1", ascending=False, kind="stable")["feature"]
    assert column(1) == [str(f) for f in order]
    one.page.click("#feature-table [data-sort=fired]")
    assert column(1) == [str(f) for f in found.sort_values("fired", ascending=False, kind="stable")["feature"]]
    one.page.click("#feature-table [data-sort=fired]")
    assert column(3)[0] == "nowhere: dead"
    one.page.select_option("#feature-table select", "dead")
    assert column(1) == ["2"]
    one.page.select_option("#feature-table select", "that fire")
    one.page.fill("#feature-table input", str(round(float(found["f1"].max()) - 0.01, 3)))
    assert len(column(1)) == 1
    one.page.locator("#feature-table tr td:nth-child(2)").first.click()  # anywhere on the line
    one.when("app.state.feature !== null")
    feature = one.js("app.state.feature")
    assert one.page.locator(".bars i").count() == 24
    fired = int(found["fired"][feature])
    titles = one.page.locator(".bars i").evaluate_all("(bars) => bars.map((bar) => bar.title)")
    assert sum(int(title.split(": ")[1].split()[0].replace(",", "")) for title in titles) == fired
    strongest = one.page.locator("h3:has-text('strongest') + p button").first.inner_text()
    row = int(strongest.split(" (")[0].replace(",", ""))
    assert planted[1][row, feature] == planted[1][:, feature].max()


def test_a_lasso_takes_points_and_files_are_saved(visit, file):
    one = visit(file.as_uri())
    one.page.click("#lasso")
    box = one.page.locator("#cover").bounding_box()
    left, top, right, bottom = box["x"] + 60, box["y"] + 10, box["x"] + box["width"] / 2, box["y"] + box["height"] - 40
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    one.page.mouse.move(*corners[0])
    one.page.mouse.down()
    for corner in corners[1:]:
        one.page.mouse.move(*corner)
    one.page.mouse.up()
    one.when("app.lasso.points !== null")
    view = "Bokeh.index.get_by_id(app.space.figure.id)"
    edge = one.js(f"{view}.frame.x_scale.invert({right} - {view}.el.getBoundingClientRect().left)")
    x = np.array(one.js("Array.from(app.space.x)"))
    taken = np.array(one.js("app.lasso.points"))
    assert 0 < taken.size < N
    assert (x[taken] <= edge).all()
    assert f"{taken.size:,} points taken with the lasso" in one.page.inner_text("#details")
    with one.page.expect_download() as table:
        one.page.click("#csv")
    lines = table.value.path().read_text().splitlines()
    assert lines[0] == "row,latent,y,prediction,error"
    assert [int(line.split(",")[0]) for line in lines[1:]] == taken.tolist()
    with one.page.expect_download() as picture:
        one.page.click("#png")
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")


def test_the_legend_shows_one_colour_alone(visit, file):
    one = visit(file.as_uri())
    one.page.locator("#space-legend button").nth(1).click()
    values = set(one.js("Array.from(app.space.model('cloud').data.value).filter((v) => !Number.isNaN(v))"))
    assert values == {1}
    one.page.locator("#space-legend button").nth(1).click()
    assert len(set(one.js("Array.from(app.space.model('cloud').data.value).filter((v) => !Number.isNaN(v))"))) > 3
    size = one.js("app.space.model('cloud_dots').glyph.size.value")
    one.page.locator("#size").fill("1")
    assert one.js("app.space.model('cloud_dots').glyph.size.value") == pytest.approx(2 * size)
    one.page.locator("#opacity").fill("0.3")
    assert one.js("app.space.model('cloud_dots').glyph.fill_alpha.value") == 0.3


def test_a_phone_has_help_and_scrolls_under_a_finger(visit, file):
    one = visit(file.as_uri(), viewport=PHONE, has_touch=True, is_mobile=True)
    one.page.locator("#keys").tap()
    assert "down: the page" in one.page.inner_text("#help")
    one.page.locator("#help").tap()
    assert one.page.locator("#help").is_hidden()
    box = one.page.locator("#space .figure").bounding_box()
    touch = one.context.new_cdp_session(one.page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for step in range(11):
        kind = "touchMove" if step else "touchStart"
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y - 25 * step}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    one.page.wait_for_function("scrollY > 100")


def test_a_drag_turns_three_components(visit, file):
    one = visit(file.as_uri() + "#axes=123")
    box = one.page.locator("#space .figure").bounding_box()
    before, middle = one.js("[app.state.turn, ...app.space.range()]"), box["y"] + box["height"] / 2
    one.page.mouse.move(box["x"] + 200, middle)
    one.page.mouse.down()
    for step in range(1, 7):
        one.page.mouse.move(box["x"] + 200 + 20 * step, middle)
    one.page.mouse.up()
    one.when(f"app.state.turn !== {before[0]}")
    assert one.js("app.space.range()") == pytest.approx(before[1:])  # it turns, and does not move
    one.page.select_option("#axes", "12")
    one.when("app.space.figure.toolbar.tools.find((tool) => tool.type === 'PanTool').active")
