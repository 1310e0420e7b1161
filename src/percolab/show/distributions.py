"""Figures of the distributions of sizes, depths and targets of a dataset, each with its law if there is one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.dataset.dataset import Dataset
from percolab.ground.arrays import Floats, Ints
from percolab.model.target import Target
from percolab.show import pages, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Least size in the fit of the power law, as in the paper, since the size law is a power law only for large s; and the
#: fewest clusters in the fit.
FITTED_SIZE, FEWEST_FITTED = 35, 50
EXACT_TO = 200  #: Up to this many points of a cluster the law of depths is exact; beyond, the limit is used.
PAPERS = "the normal law of the paper's targets for comparison"
FEW_LABELS = 12  #: Most labels that are drawn as bars.
#: Largest size in sums of the law of a random graph's clusters; there are hardly any larger clusters.
LARGEST_SUMMED = 1 << 22


def panels(dataset: Dataset) -> list[str]:
    """Return the figures, as HTML."""
    law = "" if dataset.source_row is not None else ", with the law of each cluster's size added up"
    cycles = " Clusters with a cycle have no known law and are left out of it." if dataset.forest.n_extra_bonds else ""
    pictures = [
        panel(partial(_draw_depths, dataset=dataset), f"Depth of points{law}.{cycles}"),
        target_panel(dataset.y, 1.0, "the normal law of each over seeds" if dataset.target == Target() else PAPERS),
    ]
    if dataset.forest.n_clusters > 1:
        law = "" if dataset.source_row is not None else ", with the theory of large n"
        draw = partial(draw_sizes, size=dataset.forest.cluster_size, law=partial(size_law, dataset))
        pictures.insert(0, panel(draw, f"Share of clusters with at least s points{law}."))
    return pictures


def panel(draw: Callable[[Axes], None], caption: str) -> str:
    """Return one figure, as HTML."""
    figure = style.new_figure(4.6, 3.2)
    draw(figure.subplots())
    return pages.picture(figure, caption)


def trees(dataset: Dataset) -> NDArray[np.bool_]:
    """Return for each cluster whether its tree and depths have the law of uniform trees.

    They do not if a bond closed a cycle in the cluster, or if a subsample took only some of its points.
    """
    forest = dataset.forest
    is_tree = np.full(forest.n_clusters, dataset.source_row is None)
    is_tree[forest.latent_cluster[forest.extra_latent]] = False
    return is_tree


def regime(mean_degree: float) -> str:
    """Return in words on which side of the critical point a random graph is."""
    side = "below" if mean_degree < 1 else "above" if mean_degree > 1 else "at"
    return f"{side} the critical point"


# ---------------------------------------------------------------------- sizes and depths


def size_law(dataset: Dataset, sizes: Ints) -> Floats | None:
    """Return the share of clusters of at least these sizes, among those of at least the first; None without a law."""
    recipe = dataset.recipe
    if dataset.source_row is not None:
        return None
    if recipe.mode != "random_graph":
        if not 0 < recipe.attachment_prob < 1:
            return None
        law = theory.size_ccdf(sizes, recipe.attachment_prob)
        return np.asarray(law / law[0])
    c, top = recipe.mean_degree or 0.0, min(recipe.n_points, LARGEST_SUMMED)
    every = np.arange(1, top + 1)
    above = np.append(np.cumsum((theory.cluster_law(every, c) / every)[::-1])[::-1], 0.0) * recipe.n_points
    expected = above[np.minimum(sizes, top + 1) - 1] + (c > 1) * (sizes <= recipe.n_points * theory.giant_share(c))
    return np.asarray(expected / expected[0])


def fit_exponent(size: Ints, least: int) -> tuple[float, float]:
    """Return the exponent of a discrete power law for sizes from `least` on, by maximum likelihood, and its error.

    The closed form 1 + n / Σ ln(s / (s_min - ½)) of Clauset, Shalizi and Newman (2009, Eq. 3.7), good for large s_min.
    The error assumes independent clusters.
    """
    fitted = size[size >= least]
    exponent = 1 + fitted.size / float(np.sum(np.log(fitted / (least - 0.5))))
    return exponent, (exponent - 1) / np.sqrt(fitted.size)


def draw_sizes(axes: Axes, size: Ints, law: Callable[[Ints], Floats | None], fit_from: int | None = None) -> None:
    """Draw the share of clusters with at least s points beside its law, and the power law fitted to large clusters."""
    s, count = np.unique(size, return_counts=True)
    share = np.cumsum(count[::-1])[::-1] / size.size
    axes.loglog(s, share, "o", markersize=3, color=style.BLUE, label=f"{size.size:,} clusters")
    grid = np.unique(np.concatenate([s, np.geomspace(s[0], s[-1], 100).astype(np.int64)]))
    expected = law(grid)
    if expected is not None:
        seen = expected > 0.1 / size.size
        axes.loglog(grid[seen], expected[seen], color=style.BLACK, linewidth=1.1, label="theory")
    if fit_from is not None:
        exponent, error = fit_exponent(size, fit_from)
        tail = grid[grid >= fit_from]
        power = share[np.searchsorted(s, fit_from)] * (tail / tail[0]) ** (1 - exponent)
        text = f"fit for s ≥ {fit_from}: slope {exponent - 1:.3f} ± {error:.3f}"
        axes.loglog(tail, power, "--", color=style.VERMILION, linewidth=2, label=text)
    axes.set(xlabel="cluster size s", ylabel="share of clusters with size ≥ s")
    axes.legend(loc="lower left")


def _draw_depths(axes: Axes, dataset: Dataset) -> None:
    forest = dataset.forest
    depth = forest.point_depth
    width = max(1, int(depth.max()) // 60)
    edges = np.arange(0, depth.max() + 2 * width, width) - 0.5
    axes.stairs(np.histogram(depth, edges)[0], edges, fill=True, color=style.SKY, label="this dataset")
    known = forest.cluster_size[trees(dataset)]
    if known.size:
        law = _depth_law(known, edges)
        axes.plot((edges[1:] + edges[:-1]) / 2, law, color=style.BLACK, linewidth=1.1, label="over seeds")
    axes.set_yscale("log" if forest.n_clusters > 1 else "linear")
    axes.set_ylim(bottom=0.5 if forest.n_clusters > 1 else 0)
    axes.set_xlabel("depth of a point")
    axes.set_ylabel("number of points")
    axes.legend()


def _depth_law(sizes: Ints, edges: Floats) -> Floats:
    """Return the expected number of points between depths, for clusters of these sizes."""
    expected = np.zeros(edges.size - 1)
    laws = theory.depth_laws(min(int(sizes.max()), EXACT_TO))
    depth = np.arange(laws.shape[1])
    for s, clusters in zip(*np.unique(sizes, return_counts=True), strict=True):
        if s < len(laws):
            share = np.histogram(depth, edges, weights=laws[s])[0]
        else:
            share = np.diff(theory.rayleigh_cdf((edges - theory.depth_shift(int(s))) / np.sqrt(s)))
        expected += clusters * s * share
    return expected


# ---------------------------------------------------------------------- targets


def target_panel(y: Any, variance: float | None, law: str = "") -> str:
    """Return the figure of targets as HTML: labels, or numbers beside a normal law of this variance."""
    values = np.asarray(y)
    if values.dtype.kind != "f":
        caption = "Rows of each label, the most frequent first; of sequences, by level."
        return panel(partial(draw_labels, y=values), caption)
    return panel(partial(draw_targets, y=values.ravel(), variance=variance), f"Targets{', with ' * bool(law)}{law}.")


def draw_labels(axes: Axes, y: Ints) -> None:
    """Draw how many rows have each label, the most frequent first."""
    counts = [np.sort(np.bincount(labels))[::-1] for labels in np.atleast_2d(y.T)]
    if len(counts) == 1 and counts[0].size <= FEW_LABELS:
        axes.bar(np.arange(1, counts[0].size + 1), counts[0], color=style.SKY)
        axes.set_xticks(np.arange(1, counts[0].size + 1))
        counts = []
    for level, count in enumerate(counts):
        axes.loglog(np.arange(1, count.size + 1), count, ".", markersize=3, label=f"level {level + 1}")
    axes.set_xlabel("label, by frequency")
    axes.set_ylabel("rows")
    if y.ndim > 1:
        axes.legend()


def draw_targets(axes: Axes, y: Floats, variance: float | None = 1.0) -> None:
    """Draw a histogram of targets, beside a normal law of mean 0 and this variance if there is one."""
    deviation = np.sqrt(variance or 1.0)
    reach = max(4.0 * deviation, float(np.abs(y).max()))
    edges = np.linspace(-reach, reach, 81)
    axes.stairs(np.histogram(y, edges, density=True)[0], edges, fill=True, color=style.SKY, label="this dataset")
    if variance is not None:
        x = np.linspace(-reach, reach, 200)
        density = np.exp(-((x / deviation) ** 2) / 2) / np.sqrt(2 * np.pi) / deviation
        axes.plot(x, density, color=style.BLACK, linewidth=1.1, label=f"N(0, {variance:g})")
    axes.set_xlabel("y")
    axes.set_ylabel("density")
    axes.legend()
