"""The card of a dataset: its content at a glance, in one HTML file that opens offline.

`summary` describes the sizes in words, `distributions` draws depths, sizes and targets.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from percolab import theory
from percolab.dataset.dataset import Dataset
from percolab.ground import files
from percolab.ground.memory import readable
from percolab.model.edits import Move, Shift
from percolab.model.recipe import Recipe
from percolab.model.target import Target
from percolab.show import cluster_picture, distributions, pages, style
from percolab.show.distributions import FEWEST_FITTED, FITTED_SIZE
from percolab.show.summary import one_line, size_lines, summarise
from percolab.worlds.generation import PRESETS
from percolab.worlds.superposed import AnyDataset, Superposed, truth
from percolab.worlds.superposition import Superposition

EXPLORE = "Explore it: points in space beside the hierarchy"
LISTED_CLUSTERS = 10  #: Clusters that are listed.
MOST_DRAWN = 200_000  #: Most points of the cluster that is drawn; the largest cluster below this size is taken.
DRAWN_SAMPLES = 4_000  #: Samples shown in a picture.
SAMPLE_SEED = 0  #: Seed of the choice of these samples.


def card(
    dataset: AnyDataset,
    path: files.PathLike = "",
    *,
    name: str = "",
    factor: int | None = None,
    explorer: files.PathLike | None = None,
    overwrite: bool = False,
) -> None:
    """Write the card of a dataset, of a superposed world, or of one factor of it; with a link to its `explorer`.

    `path` is the HTML file to write.

    From the X of a dataset only the rows of one cluster are read, from the X of a world some thousand rows; the X of a
    factor is made again.
    """
    if not path:
        raise ValueError("path must name the file to write, such as 'card.html', got none")
    files.check_output(path, overwrite=overwrite)
    if isinstance(dataset, Superposed) and factor is None:
        data: AnyDataset = dataset
        title, parts = name or "superposed world", _parts_of_world(dataset, name)
    else:
        data = truth(dataset, factor).dataset
        title = (name or "percolation dataset") + ("" if factor is None else f", factor {factor}")
        parts = _parts(data)
    body = [] if explorer is None else [pages.link(EXPLORE, Path(explorer), Path(path))]
    body += [pages.heading("Sizes"), pages.table(_sizes(data)), *parts]
    body += [pages.heading("Recipe"), pages.settings(_settings(data.recipe)), pages.heading("Make it again")]
    body += [*_again(data, name), *pages.provenance(data.provenance)]
    page = pages.page(f"Dataset card: {title}", one_line(summarise(data)), body)
    with files.new_files(Path(path), overwrite=overwrite) as (file,):
        file.write(page)


def _parts(dataset: Dataset) -> list[str]:
    """Return the figures and the largest clusters of a dataset."""
    if not dataset.forest.n_points:
        return []
    with style.sheet():
        parts = [pages.heading("Distributions"), pages.grid(distributions.panels(dataset)), *_cluster(dataset)]
    return [*parts, pages.heading("Largest clusters"), _largest(dataset)]


def _parts_of_world(world: Superposed, name: str) -> list[str]:
    """Return the figures of a world, and how to make the card of a factor."""
    store = name if name.endswith(".zarr") else "world.zarr"
    parts = [pages.paragraph("A factor has a card of its own:")]
    parts += [pages.code(f"percolab info {store} --factor 0 --html factor0.html")]
    with style.sheet():
        parts += [pages.heading("Targets"), _targets(world)]
        parts += [pages.heading("Where factors show in X"), pages.grid(_planes(world))]
    return parts


# ---------------------------------------------------------------------- the recipe


def _settings(recipe: Recipe | Superposition) -> dict[str, Any]:
    """Return a recipe as names and readable values."""
    values = recipe.to_dict()
    if isinstance(recipe, Superposition):
        factors = {f"factor {k}": factor for k, factor in enumerate(values["factors"])}
        return {name: value for name, value in values.items() if name not in ("kind", "factors")} | factors
    written = {"target": str(recipe.target), "edits": [str(edit) for edit in recipe.edits]}
    return {name: written.get(name, value) for name, value in values.items()}


def _again(dataset: AnyDataset, name: str) -> list[str]:
    """Return how to make a dataset again, or why that is not possible."""
    recipe = dataset.recipe
    if dataset.modification:
        return [pages.paragraph(f"Its recipe does not make it: {dataset.modification}.")]
    preset = next((preset for preset, known in PRESETS.items() if known == recipe), None)
    if preset is not None:
        source, how = f'"{preset}"', f"percolab generate {preset}"
    elif isinstance(recipe, Recipe) and not recipe.edits:
        source = "pl." + repr(recipe).replace("=Seeds(", "=pl.Seeds(").replace("=Target(", "=pl.Target(")
        how = command(recipe)
    else:
        return pages.from_json(recipe.to_json(), type(recipe).__name__)
    return [
        pages.paragraph("On the command line, and in Python:"),
        pages.code(f"{how} -o {name if name.endswith('.zarr') else 'again.zarr'}"),
        pages.code(f"import percolab as pl\n\nds = pl.generate({source})"),
    ]


def command(recipe: Recipe) -> str:
    """Return the command that makes a dataset again, without its output."""
    values = {name: value for name, value in recipe.to_dict().items() if name not in ("seeds", "target")}
    values |= {f"{name}_seed": seed for name, seed in asdict(recipe.seeds).items()}
    values["target"] = None if recipe.target == Target() else recipe.target
    options = (f"--{name.replace('_', '-')} {value}" for name, value in values.items() if value is not None)
    return f"percolab generate {' '.join(options)}"


# ---------------------------------------------------------------------- numbers


def _sizes(dataset: AnyDataset) -> list[tuple[str, str]]:
    """Return the sizes that ``percolab info`` prints, the size of X, and the predictions of theory."""
    rows = [*size_lines(summarise(dataset)), ("X", readable(math.prod(dataset.X.shape) * dataset.X.dtype.itemsize))]
    if isinstance(dataset, Superposed):
        world = dataset.recipe
        total = sum(factor.dim for factor in world.factors)
        how = f"each rotated, {total} dimensions into {world.dim}" if world.rotate else "added as they are"
        return [*rows, ("factors in X", how)]
    recipe = dataset.recipe
    length = f"{recipe.step * np.sqrt(recipe.dim):.6g}{_exceptions(dataset)}"
    return [*rows, ("length of a bond", length), *_laws(dataset)]


def _exceptions(dataset: Dataset) -> str:
    """Return in words which bonds have another length."""
    if dataset.source_row is not None:
        return ", but for bonds that got another end"
    moved = any(isinstance(edit, Shift | Move) for edit in dataset.recipe.edits)
    return ", but for those that were moved" if moved else ""


def _laws(dataset: Dataset) -> list[tuple[str, str]]:
    """Return the predictions of theory for the clusters, beside the data; there are none for a subsample."""
    if dataset.source_row is not None or not dataset.forest.n_points:
        return []
    if dataset.recipe.mode == "random_graph":
        return _random_graph(dataset)
    rows = [("fractal dimension", f"{theory.EXPONENTS.fractal_dimension} in theory, for large clusters")]
    if 0 < dataset.recipe.attachment_prob < 1:
        rows.insert(0, ("exponent of cluster sizes", _exponent(dataset)))
    return rows


def _random_graph(dataset: Dataset) -> list[tuple[str, str]]:
    """Return giant, cutoff and cycles of a random graph: in theory, for many points, and in the data."""
    n, c, forest = dataset.recipe.n_points, dataset.recipe.mean_degree or 0.0, dataset.forest
    rows = [("mean degree", f"{c:g}: {distributions.regime(c)}")]
    cycles = f"{forest.n_extra_bonds:,}"
    if c > 1:
        share = int(forest.cluster_size[0]) / n
        rows.append(("giant cluster", f"{theory.giant_share(c):.4f} of the points in theory, {share:.4f} here"))
        cycles += f"; about {n * theory.cycles_per_point(c):,.0f} in theory"
    elif 0 < c < 1:
        rows.append(("cluster sizes fall off at", f"{1 / (c - 1 - np.log(c)):,.4g} points in theory"))
        cycles += f"; {theory.cycles_below_threshold(c):.3g} in theory, over seeds"
    elif c == 1:
        rows.append(("exponent of cluster sizes", "2.5 in theory"))
    return [*rows, ("bonds that close a cycle", cycles)]


def _exponent(dataset: Dataset) -> str:
    """Return the exponent of cluster sizes in theory and, where there are enough large clusters, in the data."""
    expected = f"{theory.size_exponent(dataset.recipe.attachment_prob):.4g} in theory"
    least = max(FITTED_SIZE, dataset.recipe.min_cluster_size)
    size = dataset.forest.cluster_size
    if np.count_nonzero(size >= least) < FEWEST_FITTED:
        return f"{expected}; too few clusters of {least} points to fit it"
    exponent, error = distributions.fit_exponent(size, least)
    return f"{expected}; {exponent:.3f} ± {error:.3f} fitted to sizes from {least} on"


def _largest(dataset: Dataset) -> str:
    forest, y = dataset.forest, np.asarray(dataset.y)
    is_tree = distributions.trees(dataset)
    rows = []
    for c in range(min(LISTED_CLUSTERS, forest.n_clusters)):
        lo, hi = (int(edge) for edge in forest.cluster_start[c : c + 2])
        place = f"{c}", f"{forest.cluster_id[c]:,}", f"{hi - lo:,}", f"{lo:,} to {hi - 1:,}"
        expected = f" ({theory.mean_depth(hi - lo):.1f} expected)" if is_tree[c] else ""
        target = f"{y[lo:hi].mean():.2f} ± {y[lo:hi].std():.2f}" if y.dtype.kind == "f" else "labels"
        rows.append((*place, f"{forest.point_depth[lo:hi].mean():.1f}{expected}", target))
    head = ("cluster", "birth", "points", "rows", "mean depth", "y, mean and spread")
    return pages.table(rows, head, numbers=range(len(head)))


# ---------------------------------------------------------------------- the drawing


def _cluster(dataset: Dataset) -> list[str]:
    """Return the drawing of the largest cluster that can be drawn, beside its latent tree."""
    size = dataset.forest.cluster_size
    cluster = int(np.argmax(size <= MOST_DRAWN))
    if not 2 <= size[cluster] <= MOST_DRAWN:
        return []
    figure = cluster_picture.draw(dataset, cluster)
    caption = f"Cluster {cluster} in the plane of its first two principal components, beside its latent tree."
    return [pages.heading("A cluster and its latents"), pages.picture(figure, caption, wide=True)]


# ---------------------------------------------------------------------- figures of a superposed world


def _targets(world: Superposed) -> str:
    """Return the figure of targets, with the normal law of a weighted sum of the paper's targets."""
    sums = all(world.recipe.factors[k].target == Target() for k in world.relevant)
    if not (world.weights and sums):
        return distributions.target_panel(world.y, None)
    variance = sum(weight**2 for weight in world.weights)
    return distributions.target_panel(world.y, variance, "the normal law that each has over seeds")


def _planes(world: Superposed) -> list[str]:
    """Return the samples in the plane of X's first two principal components, coloured by the y of each factor."""
    n = len(world)
    samples = np.sort(np.random.default_rng(SAMPLE_SEED).choice(n, min(n, DRAWN_SAMPLES), replace=False))
    X = np.asarray(world.X[samples], np.float64)
    plane, _ = cluster_picture.principal_components(X)
    pictures = []
    for k, factor in enumerate(world.factors):
        y = np.asarray(factor.y)[world.rows[samples, k]]
        values = (y if y.ndim == 1 else y[:, 0]).astype(np.float64)
        figure = style.new_figure(4.6, 3.6)
        axes = figure.subplots()
        low, high = (float(edge) for edge in np.quantile(values, [0.01, 0.99]))
        scale = style.colour_scale(low, high)
        axes.scatter(plane[:, 0], plane[:, 1], c=scale.to_rgba(values), s=4, linewidths=0, rasterized=True)
        figure.colorbar(scale, ax=axes, label=f"y of factor {k}", fraction=0.05)
        axes.set_xlabel("first principal component of X")
        axes.set_ylabel("second")
        role = "relevant" if k in world.relevant else "irrelevant"
        pictures.append(pages.picture(figure, f"{len(samples):,} samples, coloured by the y of factor {k}, {role}."))
    return pictures
