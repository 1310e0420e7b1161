"""Drawing: what the picture of a cluster shows; labels that are whole, and series that are named once."""

import io
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection

import percolab as pl
from percolab.show import cluster_picture, dot_rows, latent_colours, style
from percolab.show.dot_rows import Mark, Panel


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(4000, 8, "one_cluster", seeds=5, engine="paper"))


def lines_of(axes):
    return next(item for item in axes.collections if isinstance(item, LineCollection))


def test_notebooks_show_figures_without_pyplot(ds):
    formatters = pytest.importorskip("IPython.core.formatters")
    figure = cluster_picture.draw(ds)
    shown, _ = formatters.DisplayFormatter().format(figure)
    assert shown["image/png"].startswith(b"\x89PNG")


def test_bonds_and_points_are_all_drawn_where_they_are(ds):
    figure = cluster_picture.draw(ds)
    space = figure.axes[0]
    points = next(item for item in space.collections if isinstance(item, PathCollection)).get_offsets()
    bonds = np.array(lines_of(space).get_segments())
    assert (len(points), len(bonds)) == (4000, 3999)
    # The plane is an orthogonal projection, so no bond is longer than in space, and the two hold the most variance.
    lengths = np.linalg.norm(np.diff(ds.X[ds.forest.bond], axis=1)[:, 0], axis=1)
    drawn = np.linalg.norm(np.diff(bonds, axis=1)[:, 0], axis=1)
    assert drawn.max() <= lengths.max() * (1 + 1e-12)
    centred = ds.X - ds.X.mean(0)
    singular = np.linalg.svd(centred, compute_uv=False)
    np.testing.assert_allclose(np.sqrt((points**2).sum(0)), singular[:2])
    assert set(map(tuple, bonds.reshape(-1, 2))) == set(map(tuple, points))


def test_groups_are_disjoint_and_large(ds):
    groups = latent_colours.disjoint_groups(ds.forest, 6)
    assert 2 <= groups.size <= 6
    covered = np.zeros(4000, int)
    for latent in groups:
        covered[ds.forest.points_of(latent)] += 1
    assert covered.max() == 1
    assert ds.forest.latent_size[groups].min() >= latent_colours.GROUP_SHARE * 4000
    assert (np.diff(ds.forest.latent_start[groups]) > 0).all()


def test_every_latent_is_in_the_group_that_holds_its_rows(ds):
    forest, groups = ds.forest, latent_colours.disjoint_groups(ds.forest, 6)
    held = [set(range(*forest.points_of(latent).indices(4000))) for latent in groups]
    for latent, group in enumerate(latent_colours.latent_groups(forest, groups)):
        rows = set(range(*forest.points_of(latent).indices(4000)))
        inside = [k for k, points in enumerate(held) if rows <= points]
        above = any(points < rows for points in held)
        assert group == (inside[0] if inside else -2 if above else -1)


def test_colours_agree_between_the_panels(ds):
    figure = cluster_picture.draw(ds)
    groups = latent_colours.disjoint_groups(ds.forest, 6)
    space, tree = figure.axes
    used = {tuple(colour) for colour in lines_of(tree).get_colors().round(6)}
    assert len(used & {(*colour[:3], 1.0) for colour in lines_of(space).get_colors().round(6)}) >= groups.size
    for segment, colour in zip(lines_of(tree).get_segments(), lines_of(tree).get_colors(), strict=True):
        inside = [k for k, g in enumerate(groups) if in_rows(segment[-1], ds.forest.points_of(g))]
        if inside and segment[0][1] <= ds.forest.latent_size[groups[inside[0]]]:
            assert to_hex(colour) == style.PALETTE[inside[0]].lower()


def in_rows(corner, rows):
    return rows.start - 0.5 < corner[0] < rows.stop - 0.5


def to_hex(colour):
    from matplotlib.colors import to_hex

    return to_hex(colour)


def test_the_tree_hangs_together(ds):
    segments = lines_of(cluster_picture.draw(ds).axes[1]).get_segments()
    ends = {tuple(segment[-1]) for segment in segments} | {((4000 - 1) / 2, 4000.0)}
    for first, corner, last in segments:
        assert tuple(first) in ends  # every line begins at a latent that is drawn
        assert corner.tolist() == [last[0], first[1]]
        assert last[1] < first[1]
    shown = np.count_nonzero(ds.forest.latent_size >= round(4000 * cluster_picture.SEEN_SHARE))
    assert len(segments) == shown - 1


# ---------------------------------------------------------------------- colours


def shade(figure, value):
    """Return the colour that a figure's colour bar gives to a value."""
    return figure.axes[2]._colorbar.mappable.to_rgba(value)


@pytest.fixture(scope="module")
def many():
    return pl.generate(pl.Recipe(3000, 5, seeds=5, engine="paper"))


@pytest.mark.parametrize("cluster", [0, 1])
@pytest.mark.parametrize("colour", ["y", "z", "array"])
def test_values_are_where_they_belong(many, cluster, colour):
    forest = many.forest
    start, end = forest.cluster_start[cluster : cluster + 2]
    values = many.y if colour == "y" else many.point_z if colour == "z" else np.asarray(many.X[:, 0])
    figure = cluster_picture.draw(many, cluster, colour=values if colour == "array" else colour)
    space, tree = figure.axes[:2]
    points = next(item for item in space.collections if isinstance(item, PathCollection))
    plane, _ = cluster_picture.principal_components(many.X[start:end])
    shown = dict(zip(map(tuple, points.get_offsets()), map(tuple, points.get_facecolors()), strict=True))
    for row in range(end - start):
        assert shown[tuple(plane[row])] == pytest.approx(shade(figure, values[start + row]))
    own = forest.cluster(cluster)
    where = {
        ((own.latent_start[i] + (own.latent_size[i] - 1) / 2), own.latent_size[i]): i for i in range(own.n_latents)
    }
    for segment, found in zip(lines_of(tree).get_segments(), lines_of(tree).get_colors(), strict=True):
        x, size = segment[-1]
        if size > 1:
            latent = where[x, size]
            rows = own.points_of(latent)
            mean = values[start + rows.start : start + rows.stop].mean()
            expected = many.latent_z[start - cluster + latent] if colour == "z" else mean
            assert found == pytest.approx(shade(figure, expected), abs=1e-6)
    segments = np.array(lines_of(space).get_segments())
    assert len(segments) == own.n_latents


def test_chosen_latents_are_coloured_and_named(many):
    forest = many.forest
    first = int(forest.cluster_start[1]) - 1
    inner = first + int(forest.cluster(1).path(3)[2])
    figure = cluster_picture.draw(many, 1, latents=[first, inner])
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == [f"latent {i}: {forest.latent_size[i]:,} points" for i in (first, inner)]
    points = next(item for item in figure.axes[0].collections if isinstance(item, PathCollection))
    found = [to_hex(colour) for colour in points.get_facecolors()]
    size = int(forest.latent_size[inner])
    assert found.count(style.PALETTE[1].lower()) == size  # the smaller one counts
    assert found.count(style.PALETTE[0].lower()) == int(forest.cluster_size[1]) - size


def test_signs_and_sizes_have_maps_of_their_own(many):
    signed = cluster_picture.draw(many, colour=many.y).axes[2]._colorbar.mappable
    assert signed.norm.vmin == -signed.norm.vmax
    assert signed.to_rgba(0.0)[:3] == pytest.approx([int(style.MIDDLE[1:3], 16) / 255] * 3, abs=0.01)
    plain = cluster_picture.draw(many, colour=np.exp(many.y), label="exp y")
    assert plain.axes[2]._colorbar.mappable.cmap.name == "viridis"
    assert plain.axes[2].get_ylabel() == "exp y"
    for unit in (np.maximum(many.y, 0), np.zeros(len(many))):  # a unit after a ReLU, and a dead one
        rising = cluster_picture.draw(many, colour=unit).axes[2]._colorbar.mappable
        assert rising.to_rgba(0.0) == pytest.approx(signed.to_rgba(0.0), abs=0.01)


def test_bad_colours(many):
    with pytest.raises(ValueError, match="colour must be one of y, z, got 'x'"):
        cluster_picture.draw(many, colour="x")
    with pytest.raises(ValueError, match=r"colour must have shape \(3000,\), one value per row, got \(3,\)"):
        cluster_picture.draw(many, colour=[1, 2, 3])
    with pytest.raises(ValueError, match="colour must be finite, got nan"):
        cluster_picture.draw(many, colour=np.full(3000, np.nan))
    with pytest.raises(ValueError, match="latents must be left out with colour"):
        cluster_picture.draw(many, colour="y", latents=[0])
    with pytest.raises(ValueError, match="latents must be 1 to 6 latents, got 7"):
        cluster_picture.draw(many, latents=list(range(7)))
    with pytest.raises(ValueError, match="latents must be of cluster 1, got 0 of cluster 0"):
        cluster_picture.draw(many, 1, latents=[0])
    with pytest.raises(ValueError, match="latents must be below"):
        cluster_picture.draw(many, latents=[10**6])


# ---------------------------------------------------------------------- any cluster


@pytest.mark.parametrize("n", [2, 3, 12, 300])
def test_small_clusters_are_drawn_to_the_last_point(n):
    made = pl.generate(pl.Recipe(n, 3, "one_cluster", seeds=1, engine="paper"))
    figure = cluster_picture.draw(made)
    if n < 200:
        assert len(lines_of(figure.axes[1]).get_segments()) == 2 * (n - 1)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=50)
    assert file.getvalue().startswith(b"\x89PNG")


def test_deep_trees_and_stored_datasets(tmp_path):
    made = pl.generate(pl.Recipe(30_000, 4, seeds=2, engine="paper"))
    made.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr")
    one, other = (cluster_picture.draw(dataset, 1).axes[0].collections[1].get_offsets() for dataset in (made, loaded))
    np.testing.assert_array_equal(one, other)
    assert len(one) == made.forest.cluster_size[1]


def test_nothing_is_clipped(ds):
    figure = cluster_picture.draw(ds)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    page = figure.bbox
    for axes in figure.axes:
        box = axes.get_tightbbox(renderer)
        assert page.x0 <= box.x0 < box.x1 <= page.x1
        assert page.y0 <= box.y0 < box.y1 <= page.y1


def test_bad_input(ds):
    with pytest.raises(ValueError, match="cluster must be below 1, got 1"):
        cluster_picture.draw(ds, 1)
    with pytest.raises(ValueError, match="n_groups must be at most 6, got 7"):
        cluster_picture.draw(ds, n_groups=7)
    with pytest.raises(ValueError, match="n_groups must be at least 1, got 0"):
        cluster_picture.draw(ds, n_groups=0)
    single = pl.generate(pl.Recipe(1, 2, seeds=0, engine="paper"))
    with pytest.raises(ValueError, match="cluster must have at least 2 points to be drawn, got cluster 0 with 1"):
        cluster_picture.draw(single)


def test_missing_matplotlib_is_named(ds, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"figures need matplotlib: pip install 'percolab\[plot\]'"):
        cluster_picture.draw(ds)


@pytest.mark.parametrize("side", ["x", "y"])
def test_a_label_that_would_be_cut_is_broken(side):
    long = "share of the latent's points on that side (16 points or more)"
    with style.sheet():
        figure = style.new_figure(3.4, 2.4)
        axes = figure.subplots()
        axes.set(**{f"{side}label": long})
        style.as_png(figure, 180)
    label = axes.xaxis.label if side == "x" else axes.yaxis.label
    assert "\n" in label.get_text()
    assert label.get_text().split() == long.split()
    box = label.get_window_extent(dpi=180)
    assert 0 <= box.x0 < box.x1 <= 180 * 3.4
    assert 0 <= box.y0 < box.y1 <= 180 * 2.4
    label.set_text("points")
    style.as_png(figure, 180)
    assert label.get_text() == "points"


def test_series_are_named_beside_their_dots_or_in_a_legend_never_in_both():
    def panel(count):
        rows = [f"row {i}" for i in range(count)]
        return Panel(rows, {name: {row: Mark(0.5) for row in rows} for name in ("trained", "untrained")}, "x")

    roomy, crowded = dot_rows.draw(panel(2), panel(3)), dot_rows.draw(panel(2), panel(20))
    assert [text.get_text() for axes in roomy.axes for text in axes.texts] == ["trained", "untrained"] * 2
    assert not roomy.legends
    assert not [text for axes in crowded.axes for text in axes.texts]
    assert [text.get_text() for text in crowded.legends[0].texts] == ["trained", "untrained"]


def test_a_picture_is_as_wide_as_its_names_need_so_that_its_text_is_large_on_a_phone():
    def drawn(name):
        return dot_rows.draw(Panel([name], {"trained": {name: Mark(0.5)}}, "x"))

    short, long, longest = (drawn("n" * letters).get_figwidth() for letters in (8, 20, 200))
    assert short < long < longest == dot_rows.WIDTH
    smallest = 9.5 / 72 * 390 / short  # pixels of a tick's letters where the picture fills a phone
    assert smallest > 11
