"""Figures and cards: they are drawn from what they claim, every one of them renders, and pages open offline."""

import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import percolab as pl
from percolab import figures
from percolab.cli import main
from percolab.figures import samplers, schematics
from percolab.show import card, dataset_card, style

# ---------------------------------------------------------------------- the paper's figures


@pytest.mark.slow
@pytest.mark.parametrize("number", figures.FIGURES)
def test_every_figure_is_written(number, tmp_path):
    paths = figures.write(tmp_path, [number], quick=True)
    assert [path.suffix for path in paths] == [".png", ".pdf"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert all(path.stat().st_size > 10_000 for path in paths)


@pytest.mark.parametrize("number", figures.FIGURES)
def test_nothing_is_clipped(number):
    """All text lies inside the page, and titles do not run into each other."""
    figure = figures.draw(number, quick=True)
    with style.sheet():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    renderer, page = canvas.get_renderer(), figure.bbox
    titles = []
    for axes in figure.axes:
        texts = [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title]
        for text in texts:
            if text.get_text() and text.get_visible():
                box = text.get_window_extent(renderer)
                assert box.x0 >= page.x0 - 1, text
                assert box.x1 <= page.x1 + 1, text
                assert box.y0 >= page.y0 - 1, text
                assert box.y1 <= page.y1 + 1, text
        titles += [t.get_window_extent(renderer) for t in (axes.title, axes._left_title) if t.get_text()]
    assert not any(a.overlaps(b) for i, a in enumerate(titles) for b in titles[:i])


def test_drawing_leaves_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.draw(6, quick=True)
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("n", [1, 2, 6, 40])
@pytest.mark.parametrize("seed", [0, 3, 17])
def test_the_run_is_the_cyclic_coalescent(n, seed):
    states = schematics.run(n, seed)
    assert [len(state.blocks) for state in states] == list(range(n, 0, -1))
    forest = pl.engines.cyclic_coalescent(n, seed)
    bonds = {frozenset(pair) for pair in forest.point_id[forest.bond].tolist()}
    assert bonds == {frozenset(pair) for pair in states[-1].bonds}
    groups = {frozenset(forest.point_id[forest.points_of(i)].tolist()) for i in range(forest.n_latents)}
    merged = {frozenset(state.cycle[i] for i in block) for state in states for block in state.blocks if len(block) > 1}
    assert groups == merged


def test_the_bethe_lattice_is_one():
    parent, shell, _ = schematics.lattice(6)
    degree = np.bincount(parent[1:], minlength=parent.size) + (parent >= 0)
    assert np.all(degree[shell < 6] == 3)
    assert parent.size == 1 + 3 * (2**6 - 1)
    occupied, infinite = schematics.percolate(parent, shell, 0.6, np.random.default_rng(0))
    joined = occupied[1:] & occupied[parent[1:]]
    assert np.array_equal(infinite[1:][joined], infinite[parent[1:]][joined])
    assert not infinite[~occupied].any()
    # Every infinite cluster has a node in the last shell, every finite one has none.
    assert infinite[occupied & (shell == 6)].all()


def test_the_plain_loop_builds_a_graph():
    graph = samplers.plain_loop(50, 0)
    assert graph.number_of_nodes() == 50
    assert samplers.networkx_tree(50, 0).number_of_edges() == 49
    assert samplers.measure(samplers.plain_loop, np.array([10, 20]), 3).shape == (2, 3)


@pytest.mark.slow
def test_figures_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main.run(["figures", "--only", "3", "--only", "6", "--output", "f", "--quick"]) == 0
    assert capfd.readouterr().out.count("wrote ") == 4
    assert main.run(["figures", "--only", "4"]) == 2
    message = "only must be one of 1, 2, 3, 6, 8, 9, 10, 11, got 4, which percolab reproduce draws"
    assert message in capfd.readouterr().err
    (tmp_path / "file").write_text("")
    assert main.run(["figures", "-o", "file"]) == 2


# ---------------------------------------------------------------------- cards


@pytest.mark.parametrize(
    "recipe",
    [
        pl.Recipe(3000, 6, seeds=1),
        pl.Recipe(2000, 6, "one_cluster", seeds=1, engine="paper"),
        pl.Recipe(40_000, 3, "custom", 0.2, seeds=1, min_cluster_size=5),
        pl.Recipe(50, 3, "custom", 1.0, seeds=1),
        pl.Recipe(1, 2, seeds=1),
        pl.Recipe(10, 2, seeds=1, min_cluster_size=50),
    ],
    ids=["distribution", "one cluster", "filtered", "singletons", "one point", "empty"],
)
def test_cards(recipe, tmp_path):
    ds = pl.generate(recipe)
    card(ds, tmp_path / "card.html", name="a.zarr")
    page = (tmp_path / "card.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert f"{ds.forest.n_clusters:,} cluster" in page
    if ds.forest.n_latents:
        assert page.count("data:image/png;base64,") >= 3
    with pytest.raises(FileExistsError, match="output must not exist"):
        card(ds, tmp_path / "card.html")


def test_a_card_says_how_to_make_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for recipe in (pl.Recipe(300, 4, "custom", 0.25, seeds=3, min_cluster_size=2, dtype="float64"), pl.Recipe(99, 3)):
        ds = pl.generate(recipe)
        assert main.run([*dataset_card.command(ds.recipe).split()[1:], "-q", "-o", "again.zarr", "--overwrite"]) == 0
        again = pl.load("again.zarr")
        assert again.recipe == recipe
        assert np.array_equal(np.asarray(again.X), ds.X)


@pytest.mark.slow
def test_card_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    pl.generate(pl.Recipe(500, 4, seeds=1)).save("a.zarr")
    assert main.run(["info", "a.zarr", "--html", "card.html"]) == 0
    assert "wrote card.html" in capfd.readouterr().out
    assert main.run(["info", "a.zarr", "--html", "card.html"]) == 2
    assert main.run(["info", "a.zarr", "--html", "card.html", "--overwrite", "--json"]) == 0
    assert main.run(["info", "a.zarr", "--html", "no/card.html"]) == 2


@pytest.mark.slow
def test_a_card_draws_a_cluster_that_is_not_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_card, "MOST_DRAWN", 100)
    ds = pl.generate(pl.Recipe(3000, 6, seeds=1))
    card(ds, tmp_path / "card.html")
    drawn = int(re.search(r"Cluster (\d+) in the plane", (tmp_path / "card.html").read_text())[1])
    assert 2 <= ds.forest.cluster_size[drawn] <= 100 < ds.forest.cluster_size[drawn - 1]
    card(replace(ds, provenance={}), tmp_path / "other.html")
    with pytest.raises(ValueError, match=r"path must name the file to write, such as 'card.html', got none"):
        card(ds)
