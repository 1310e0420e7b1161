"""Pages: text stays text, tables carry what a phone needs, and nothing is fetched from elsewhere."""

import re
from io import BytesIO

import pytest
from matplotlib.colors import rgb_to_hsv
from matplotlib.image import imread

from percolab.show import pages, style


def test_text_is_never_html():
    wild = '<script>alert("&")</script>'
    parts = [
        pages.heading(wild),
        pages.paragraph(wild),
        pages.code(wild),
        pages.folded(wild, []),
        pages.table([(wild, wild)], (wild, wild), stack=True),
        *pages.wide_table([(wild, wild)], (wild, wild)),
        pages.definitions(wild),
        pages.settings({wild: wild, "b": [wild], "c": {wild: wild}}),
        pages.image(b"", wild),
    ]
    page = pages.page(wild, wild, parts, verdict=wild, banner=wild).decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 20


def test_a_table_that_stacks_labels_its_cells():
    html = pages.table([("a", "1", "yes")], ("law", "found", "here"), ["good"], numbers=[1], stack=True)
    assert '<td class="number" data-label="found">1</td>' in html
    assert '<td class="good" data-label="here">yes</td>' in html
    assert '<table class="stack">' in html
    assert "data-label" not in pages.table([("a", "1")], ("law", "found"))
    estimate = pages.table([("a b", "0.2 (0.1 to 0.3)")], numbers=[1])
    assert "<td>a b</td>" in estimate
    assert "0.2 <wbr>(0.1 to 0.3)" in estimate  # breaks only before the interval
    assert pages.table([("a", "1")]).startswith('<div class="scroll">')


def test_a_wide_table_is_cut_into_parts_that_repeat_its_names():
    head = ["method", *(f"c{j}" for j in range(17))]
    rows = [[name, *(f"{name}{j}" for j in range(17))] for name in ("kmeans", "pca")]
    tables = pages.wide_table(rows, head)
    heads = [re.findall(r"<th[^>]*>(.*?)</th>", html) for html in tables]
    assert [names[0] for names in heads] == ["method"] * 3
    assert [name for names in heads for name in names[1:]] == head[1:]
    assert max(map(len, heads)) <= pages.WIDEST + 1
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", html) for html in tables]
    assert sorted(set(cells[0] + cells[1] + cells[2])) == sorted({cell for row in rows for cell in row})
    assert len(pages.wide_table([], ["method", "a"])) == 1


def test_a_page_says_first_that_it_is_unfinished_and_then_what_was_found():
    html = pages.page("title", "lead", ["<p>body</p>"], verdict="found", look="good", banner="not finished").decode()
    places = [html.index(part) for part in ("<h1>title", ">not finished<", 'verdict good">found<', ">lead<", ">body<")]
    assert places == sorted(places)
    assert 'class="verdict' not in pages.page("title", "lead", []).decode()


def test_settings_are_words():
    html = pages.settings({"n": 20_000, "seeds": {"graph": 1, "embed": 2}, "depths": list(range(41)), "none": None})
    cells = re.findall(r"<td>(.*?)</td>", html)
    assert cells == ["n", "20,000", "seeds", "graph 1, embed 2", "depths", "0, 1, 2, …, 40"]
    assert "<td>yes</td>" in pages.settings({"tf32": True})


def test_a_figure_is_inside_the_page_at_a_readable_size():
    with style.sheet():
        figure = style.new_figure(3, 2)
        figure.subplots().plot([0, 1])
        html = pages.picture(figure, "a line", wide=True)
        wide = pages.picture(style.new_figure(9, 2), "wide", wide=True)
    assert 'width="360"' in html
    assert 'src="data:image/png;base64,' in html
    assert "scroll wide" not in html  # it fits a phone
    assert '<div class="scroll wide" style="--natural: 1080px">' in wide


def test_a_page_follows_the_readers_choice_and_fetches_nothing():
    page = pages.page("t", "l", []).decode()
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert re.findall(r"(?:src|href|url\()[^;]*", page) == ["url(#dark)"]  # a filter in the page itself


# ---------------------------------------------------------------------- in a browser


def coloured(colour):
    """Return an image of one colour as it stands in a page."""
    figure = style.new_figure(1, 1)
    figure.set_facecolor(colour)
    return pages.picture(figure, "")


@pytest.mark.browser
def test_colours_of_figures_are_kept_in_the_dark_and_greys_inverted(chromium, tmp_path):
    colours = [*style.ROLES.values(), "#ffffff", style.INK]
    (tmp_path / "page.html").write_bytes(pages.page("t", "", map(coloured, colours)))
    shown = {}
    for scheme in ("light", "dark"):
        tab = chromium.new_page(color_scheme=scheme)
        tab.goto((tmp_path / "page.html").as_uri())
        pngs = [image.screenshot() for image in tab.locator("img").all()]
        shown[scheme] = [255 * imread(BytesIO(png))[40, 40, :3] for png in pngs]
        tab.close()
    for light, dark, role in zip(shown["light"], shown["dark"], style.ROLES, strict=False):
        if role != "permuted":
            hues = [rgb_to_hsv(shade / 255)[0] for shade in (light, dark)]
            assert abs(hues[0] - hues[1]) < 0.03, role
            assert abs(light - dark).max() < 60, role
    ground, ink = shown["dark"][-2:]
    assert ground.tolist() == [20, 20, 20]  # the ground of the page
    assert ink.min() > 200


@pytest.mark.browser
def test_nothing_is_cut_on_paper(chromium, tmp_path):
    head = ["representation", *(f"measure {j}" for j in range(9))]
    rows = [["block 0, residual stream", *["0.157 (0.144 to 0.169)"] * 9]] * 3
    tall = style.new_figure(6.4, 20)
    tall.subplots().plot([0, 1])
    folded = pages.folded("more", [pages.paragraph("what is folded")])
    body = [pages.picture(tall, "tall", wide=True), pages.table(rows, head, numbers=range(1, 10)), folded]
    (tmp_path / "page.html").write_bytes(pages.page("t", "lead", body, verdict="found " * 30))
    tab = chromium.new_page(viewport={"width": 680, "height": 1000})  # A4 less its margins
    tab.emulate_media(media="print")
    tab.goto((tmp_path / "page.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 680
    assert tab.evaluate("document.querySelector('table').scrollWidth") <= 680
    assert tab.locator("img").bounding_box()["height"] < 0.7 * 297 * 96 / 25.4  # on one sheet, below the verdict
    assert tab.get_by_text("what is folded").is_visible()
    tab.close()


@pytest.mark.browser
def test_a_phone_is_told_what_scrolls(chromium, tmp_path):
    with style.sheet():
        wide = pages.picture(style.new_figure(9, 2), "wide", wide=True)
    (tmp_path / "page.html").write_bytes(pages.page("t", "", [wide]))
    tab = chromium.new_page(viewport={"width": 390, "height": 844})
    tab.goto((tmp_path / "page.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    said = tab.evaluate("getComputedStyle(document.querySelector('figcaption'), '::before').content")
    assert "sideways" in said
    tab.close()
