"""The card of a dataset: what is in it at a glance, in one HTML file that opens offline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from percolab import theory
from percolab.dataset.dataset import Dataset
from percolab.ground import files
from percolab.ground.memory import readable
from percolab.model.target import Target
from percolab.show import drawing, pages, style
from percolab.show.summary import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LARGEST = 10
"""Clusters that are listed."""
FEWEST_FITTED = 50
FIT_FROM = 35
MOST_DRAWN = 200_000
"""Points of a cluster that is drawn; a larger one makes way for the next that is not."""


def write_card(dataset: Dataset, path: str | os.PathLike[str], *, name: str = "", overwrite: bool = False) -> None:
    """Write the card of a dataset. Of X only the rows of one cluster are read."""
    title = name or "percolation dataset"
    files.check_output(path, overwrite=overwrite)
    page = pages.page(f"Dataset card: {title}", _lead(dataset), _body(dataset, title))
    with files.new_files(Path(path), overwrite=overwrite) as (file,):
        file.write(page)


def _lead(dataset: Dataset) -> str:
    forest, recipe = dataset.forest, dataset.recipe
    lead = (
        f"{forest.n_points:,} points in {recipe.dim} dimensions, "
        f"{forest.n_clusters:,} cluster{'' if forest.n_clusters == 1 else 's'}, "
        f"{forest.n_latents:,} latents; mode {recipe.mode}, engine {recipe.engine}"
    )
    if recipe.edits:
        lead += f"; {len(recipe.edits)} edit{'' if len(recipe.edits) == 1 else 's'}"
    if recipe.target != Target():
        lead += f"; target {recipe.target.kind}"
    return lead + (f"; modified: {dataset.modification}" if dataset.modification else "")


def _body(dataset: Dataset, name: str) -> list[str]:
    forest = dataset.forest
    parts = [pages.heading("Sizes"), pages.table(_sizes(dataset))]
    if forest.n_points:
        with style.sheet():
            parts += [pages.heading("Distributions"), pages.grid(_distributions(dataset))]
            parts += _cluster(dataset)
        parts += [pages.heading("Largest clusters"), _largest(dataset)]
    parts += [
        pages.heading("Recipe"),
        pages.settings(dataset.recipe.to_dict()),
        pages.heading("Make it again"),
        *_again(dataset, name),
    ]
    if dataset.provenance:
        made = {key: value for key, value in dataset.provenance.items() if key != "loaded_from"}
        parts += [pages.heading("Provenance"), pages.settings(made)]
    return parts


def _again(dataset: Dataset, name: str) -> list[str]:
    """Return how to make a dataset again, or what stands in the way."""
    recipe = dataset.recipe
    if dataset.modification:
        told = f"Its recipe does not make it: {dataset.modification}. The recipe is that of the dataset it comes from."
        return [pages.paragraph(told)]
    if recipe.edits or recipe.target != Target():
        return [
            pages.paragraph("In Python:"),
            pages.code(f"import percolab as pl\n\nds = pl.generate(pl.Recipe.from_json({recipe.to_json()!r}))"),
        ]
    return [
        pages.paragraph("On the command line:"),
        pages.code(f"{command(dataset)} -o {name if name.endswith('.zarr') else 'again.zarr'}"),
        pages.paragraph("In Python:"),
        pages.code(f"import percolab as pl\n\nds = pl.generate(pl.{recipe!r})".replace("=Seeds(", "=pl.Seeds(")),
    ]


def command(dataset: Dataset) -> str:
    """Return the command that makes a dataset again, but for where to put it."""
    recipe, seeds = dataset.recipe, dataset.recipe.seeds
    words: dict[str, Any] = {
        "--n-points": recipe.n_points,
        "--dim": recipe.dim,
        "--mode": recipe.mode,
        "--create-prob": recipe.create_prob,
        "--graph-seed": seeds.graph,
        "--embed-seed": seeds.embed,
        "--value-seed": seeds.value,
        "--engine": recipe.engine,
        "--min-cluster-size": recipe.min_cluster_size,
        "--dtype": recipe.dtype,
    }
    return "percolab generate " + " ".join(f"{key} {value}" for key, value in words.items() if value is not None)


# ---------------------------------------------------------------------- numbers


def _sizes(dataset: Dataset) -> list[tuple[str, str]]:
    found, forest, p = summarise(dataset), dataset.forest, dataset.recipe.attachment_prob
    rows = [
        ("points", f"{found['n_points']:,}, of {dataset.recipe.n_points:,} before the filter"),
        ("dimensions", f"{found['dim']:,}, {found['dtype']}"),
        ("X", readable(forest.n_points * found["dim"] * np.dtype(found["dtype"]).itemsize)),
        ("clusters", f"{found['n_clusters']:,}, largest {found['largest_cluster']:,}"),
        ("singletons", f"{found['singletons']:,}"),
        ("latents", f"{found['n_latents']:,}"),
        ("length of a bond", f"{dataset.recipe.step * np.sqrt(dataset.recipe.dim):.6g}"),
    ]
    if forest.n_points:
        rows += [
            ("depth of a point", f"mean {found['depth_mean']:.4g}, largest {found['depth_max']:,}"),
            ("y", _target(dataset, found)),
        ]
    if 0 < p < 1:
        rows.append(("exponent of cluster sizes", _exponent(dataset)))
    rows.append(("fractal dimension", f"{theory.EXPONENTS.fractal_dimension} in theory, for large clusters"))
    return rows


def _target(dataset: Dataset, found: dict[str, Any]) -> str:
    """Return what y holds, in a few words."""
    if dataset.vocabulary is not None:
        return f"tokens, of {', '.join(f'{count:,}' for count in dataset.vocabulary)} by level"
    if dataset.n_classes is not None:
        return f"labels of {dataset.n_classes:,} classes"
    return f"mean {found['y_mean']:.3f}, variance {found['y_variance']:.3f}"


def _exponent(dataset: Dataset) -> str:
    """Return the exponent of cluster sizes in theory and, where there are enough large clusters, in the data."""
    expected = f"{theory.size_exponent(dataset.recipe.attachment_prob):.4g} in theory"
    least = max(FIT_FROM, dataset.recipe.min_cluster_size)
    size = dataset.forest.cluster_size
    size = size[size >= least]
    if size.size < FEWEST_FITTED:
        return f"{expected}; too few clusters of {least} points to fit it"
    # The closed form of the maximum likelihood of a discrete power law, good for sizes such as these.
    alpha = 1 + size.size / np.sum(np.log(size / (least - 0.5)))
    return f"{expected}; {alpha:.3f} ± {(alpha - 1) / np.sqrt(size.size):.3f} fitted to sizes from {least} on"


def _largest(dataset: Dataset) -> str:
    forest, y = dataset.forest, np.asarray(dataset.y)
    is_number = y.dtype.kind == "f"
    rows = []
    for c in range(min(LARGEST, forest.n_clusters)):
        lo, hi = (int(edge) for edge in forest.cluster_start[c : c + 2])
        depth = forest.point_depth[lo:hi]
        rows.append(
            (
                f"{c}",
                f"{forest.cluster_id[c]:,}",
                f"{hi - lo:,}",
                f"{lo:,} to {hi - 1:,}",
                f"{depth.mean():.1f} ({theory.mean_depth(hi - lo):.1f} expected)",
                f"{y[lo:hi].mean():.2f} ± {y[lo:hi].std():.2f}" if is_number else "labels",
            )
        )
    head = ("cluster", "birth", "points", "rows", "mean depth", "y, mean and spread")
    return pages.table(rows, head, numbers=range(len(head)))


# ---------------------------------------------------------------------- figures


def _distributions(dataset: Dataset) -> list[str]:
    pictures = [
        _panel(dataset, _draw_depths, "Depth of points, with the limit law of each cluster's size added up."),
        _panel(dataset, *_target_panel(dataset)),
    ]
    if dataset.forest.n_clusters > 1:
        what = "Share of clusters with at least s points, with the theory of large n."
        pictures.insert(0, _panel(dataset, _draw_sizes, what))
    return pictures


def _panel(dataset: Dataset, draw: Any, caption: str) -> str:
    figure = style.new_figure(4.6, 3.2)
    draw(figure.subplots(), dataset)
    return pages.picture(figure, caption)


def _draw_sizes(axes: Axes, dataset: Dataset) -> None:
    s, count = np.unique(dataset.forest.cluster_size, return_counts=True)
    share = np.cumsum(count[::-1])[::-1] / count.sum()
    axes.loglog(s, share, "o", markersize=3, color=style.BLUE, label="this dataset")
    p = dataset.recipe.attachment_prob
    if 0 < p < 1:
        law = theory.size_ccdf(s, p)
        axes.loglog(s, law / law[0], color=style.BLACK, linewidth=1.1, label="theory")
    axes.set_xlabel("cluster size s")
    axes.set_ylabel("share of clusters with size ≥ s")
    axes.legend()


def _draw_depths(axes: Axes, dataset: Dataset) -> None:
    forest = dataset.forest
    depth = forest.point_depth
    width = max(1, int(depth.max()) // 60)
    edges = np.arange(0, depth.max() + 2 * width, width) - 0.5
    axes.stairs(np.histogram(depth, edges)[0], edges, fill=True, color=style.SKY, label="this dataset")
    expected = np.zeros(edges.size - 1)
    for s, clusters in zip(*np.unique(forest.cluster_size[forest.cluster_size > 1], return_counts=True), strict=True):
        below = theory.rayleigh_cdf((edges - theory.depth_shift(int(s))) / np.sqrt(s))
        expected += clusters * s * np.diff(below)
    expected[0] += np.count_nonzero(forest.cluster_size == 1)
    axes.plot((edges[1:] + edges[:-1]) / 2, expected, color=style.BLACK, linewidth=1.1, label="over seeds")
    axes.set_yscale("log" if forest.n_clusters > 1 else "linear")
    axes.set_ylim(bottom=0.5 if forest.n_clusters > 1 else 0)
    axes.set_xlabel("depth of a point")
    axes.set_ylabel("number of points")
    axes.legend()


def _target_panel(dataset: Dataset) -> tuple[Any, str]:
    if dataset.y.dtype.kind != "f":
        return _draw_labels, "Rows of each label, the most frequent first; of sequences, by level."
    if dataset.target == Target():
        return _draw_targets, "Targets, with the normal law that each has over seeds."
    return _draw_targets, "Targets, with the normal law of the paper's for comparison."


def _draw_labels(axes: Axes, dataset: Dataset) -> None:
    for level, labels in enumerate(np.atleast_2d(np.asarray(dataset.y).T)):
        count = np.sort(np.bincount(labels))[::-1]
        axes.loglog(np.arange(1, count.size + 1), count, ".", markersize=3, label=f"level {level + 1}")
    axes.set_xlabel("label, by frequency")
    axes.set_ylabel("rows")
    if dataset.y.ndim > 1:
        axes.legend()


def _draw_targets(axes: Axes, dataset: Dataset) -> None:
    y = np.asarray(dataset.y).ravel()
    reach = max(4.0, float(np.abs(y).max()))
    edges = np.linspace(-reach, reach, 81)
    axes.stairs(np.histogram(y, edges, density=True)[0], edges, fill=True, color=style.SKY, label="this dataset")
    x = np.linspace(-reach, reach, 200)
    axes.plot(x, np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), color=style.BLACK, linewidth=1.1, label="N(0, 1)")
    axes.set_xlabel("y")
    axes.set_ylabel("density")
    axes.legend()


def _cluster(dataset: Dataset) -> list[str]:
    """Return the drawing of the largest cluster that can be drawn, beside its latent tree."""
    size = dataset.forest.cluster_size
    cluster = int(np.argmax(size <= MOST_DRAWN))
    if not 2 <= size[cluster] <= MOST_DRAWN:
        return []
    figure = drawing.draw_cluster(dataset, cluster)
    caption = f"Cluster {cluster} in the plane of its first two principal components, beside its latent tree."
    return [pages.heading("A cluster and its latents"), pages.picture(figure, caption, wide=True)]
