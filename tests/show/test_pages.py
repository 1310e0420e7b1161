"""Pages: text stays text, tables carry what a phone needs, and nothing is fetched from elsewhere."""

import re

from percolab.show import pages, style


def test_text_is_never_html():
    wild = '<script>alert("&")</script>'
    parts = [
        pages.heading(wild),
        pages.paragraph(wild),
        pages.code(wild),
        pages.folded(wild, []),
        pages.table([(wild, wild)], (wild, wild), stack=True),
        pages.table([(wild, wild)], (wild, wild), held=True, parts={0: wild}),
        pages.settings({wild: wild, "b": [wild], "c": {wild: wild}}),
        pages.image(b"", wild),
    ]
    page = pages.page(wild, wild, parts).decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 17


def test_a_table_that_stacks_labels_its_cells():
    html = pages.table([("a", "1", "yes")], ("law", "found", "here"), ["good"], numbers=[1], stack=True)
    assert '<td class="number" data-label="found">1</td>' in html
    assert '<td class="good" data-label="here">yes</td>' in html
    assert '<table class="stack">' in html
    assert "data-label" not in pages.table([("a", "1")], ("law", "found"))
    assert pages.table([("a", "1")]).startswith('<div class="scroll">')


def test_a_wide_table_holds_its_names_and_has_parts():
    rows = [("kmeans", "1", "2"), ("pca", "3", "4"), ("kmeans", "5", "6")]
    html = pages.table(rows, ("method", "a", "b"), numbers=[1, 2], held=True, parts={0: "one", 2: "two"})
    assert '<table class="narrow held">' in html
    first = re.findall(r"<tr[^>]*><t[hd][^>]*>(.*?)<", html)
    assert first == ["method", "one", "kmeans", "pca", "two", "kmeans"]
    assert html.count('<td colspan="2"></td>') == 2


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
    assert 'width="300"' in html
    assert 'src="data:image/png;base64,' in html
    assert '<div class="scroll wide" style="--natural: 300px">' in html


def test_a_page_follows_the_readers_choice_and_fetches_nothing():
    page = pages.page("t", "l", []).decode()
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert not re.findall(r"(?:src|href|url\()", page)
