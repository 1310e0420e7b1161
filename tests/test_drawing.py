"""Drawing: what the picture of a cluster shows."""

import io
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection

import percolab as pl
from percolab.show import drawing


@pytest.fixture(scope="module")
def ds():
    return pl.generate(pl.Recipe(4000, 8, "one_cluster", seeds=5, engine="paper"))


def lines_of(axes):
    return next(item for item in axes.collections if isinstance(item, LineCollection))


def test_bonds_and_points_are_all_drawn_where_they_are(ds):
    figure = drawing.draw_cluster(ds)
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
    groups = drawing.disjoint_groups(ds.forest, 6)
    assert 2 <= groups.size <= 6
    covered = np.zeros(4000, int)
    for latent in groups:
        covered[ds.forest.points_of(latent)] += 1
    assert covered.max() == 1
    assert ds.forest.latent_size[groups].min() >= drawing.GROUP_SHARE * 4000
    assert (np.diff(ds.forest.latent_start[groups]) > 0).all()


def test_every_latent_is_in_the_group_that_holds_its_rows(ds):
    forest, groups = ds.forest, drawing.disjoint_groups(ds.forest, 6)
    held = [set(range(*forest.points_of(latent).indices(4000))) for latent in groups]
    for latent, group in enumerate(drawing.latent_groups(forest, groups)):
        rows = set(range(*forest.points_of(latent).indices(4000)))
        inside = [k for k, points in enumerate(held) if rows <= points]
        above = any(points < rows for points in held)
        assert group == (inside[0] if inside else -2 if above else -1)


def test_colours_agree_between_the_panels(ds):
    figure = drawing.draw_cluster(ds)
    groups = drawing.disjoint_groups(ds.forest, 6)
    space, tree = figure.axes
    used = {tuple(colour) for colour in lines_of(tree).get_colors().round(6)}
    assert len(used & {(*colour[:3], 1.0) for colour in lines_of(space).get_colors().round(6)}) >= groups.size
    for segment, colour in zip(lines_of(tree).get_segments(), lines_of(tree).get_colors(), strict=True):
        inside = [k for k, g in enumerate(groups) if in_rows(segment[-1], ds.forest.points_of(g))]
        if inside and segment[0][1] <= ds.forest.latent_size[groups[inside[0]]]:
            assert to_hex(colour) == drawing.PALETTE[inside[0]].lower()


def in_rows(corner, rows):
    return rows.start - 0.5 < corner[0] < rows.stop - 0.5


def to_hex(colour):
    from matplotlib.colors import to_hex

    return to_hex(colour)


def test_the_tree_hangs_together(ds):
    segments = lines_of(drawing.draw_cluster(ds).axes[1]).get_segments()
    ends = {tuple(segment[-1]) for segment in segments} | {((4000 - 1) / 2, 4000.0)}
    for first, corner, last in segments:
        assert tuple(first) in ends  # every line begins at a latent that is drawn
        assert corner.tolist() == [last[0], first[1]]
        assert last[1] < first[1]
    shown = np.count_nonzero(ds.forest.latent_size >= round(4000 * drawing.SEEN_SHARE))
    assert len(segments) == shown - 1


@pytest.mark.parametrize("n", [2, 3, 12, 300])
def test_small_clusters_are_drawn_to_the_last_point(n):
    made = pl.generate(pl.Recipe(n, 3, "one_cluster", seeds=1, engine="paper"))
    figure = drawing.draw_cluster(made)
    if n < 200:
        assert len(lines_of(figure.axes[1]).get_segments()) == 2 * (n - 1)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=50)
    assert file.getvalue().startswith(b"\x89PNG")


def test_deep_trees_and_stored_datasets(tmp_path):
    made = pl.generate(pl.Recipe(30_000, 4, seeds=2, engine="paper"))
    made.save(tmp_path / "ds.zarr")
    loaded = pl.load(tmp_path / "ds.zarr")
    one, other = (drawing.draw_cluster(dataset, 1).axes[0].collections[1].get_offsets() for dataset in (made, loaded))
    np.testing.assert_array_equal(one, other)
    assert len(one) == made.forest.cluster_size[1]


def test_nothing_is_clipped(ds):
    figure = drawing.draw_cluster(ds)
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
        drawing.draw_cluster(ds, 1)
    with pytest.raises(ValueError, match="n_groups must be at most 6, got 7"):
        drawing.draw_cluster(ds, n_groups=7)
    with pytest.raises(ValueError, match="n_groups must be at least 1, got 0"):
        drawing.draw_cluster(ds, n_groups=0)
    single = pl.generate(pl.Recipe(1, 2, seeds=0, engine="paper"))
    with pytest.raises(ValueError, match="cluster must have at least 2 points to be drawn, got cluster 0 with 1"):
        drawing.draw_cluster(single)


def test_missing_matplotlib_is_named(ds, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"drawing needs matplotlib: pip install 'percolab\[plot\]'"):
        drawing.draw_cluster(ds)
