"""The card of a dataset: what is in it at a glance, in one HTML file that opens offline.

`world_card` has that of a superposed world, `distributions` the figures of depths, sizes and targets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab import theory
from percolab.dataset.dataset import Dataset
from percolab.ground import files
from percolab.ground.memory import readable
from percolab.model.edits import Move, Shift
from percolab.model.recipe import Recipe
from percolab.model.target import Target
from percolab.show import cluster_picture, distributions, pages, style
from percolab.show.distributions import FEWEST_FITTED, FITTED_SIZE
from percolab.show.summary import summarise
from percolab.worlds.generation import PRESETS
from percolab.worlds.superposed import AnyDataset, Superposed, truth

LARGEST = 10
"""Clusters that are listed."""
MOST_DRAWN = 200_000
"""Points of a cluster that is drawn; a larger one makes way for the next that is not."""
DRAWN = 4_000
"""Samples that are drawn."""
SEED = 0
"""What they are drawn with."""


def card(
    dataset: AnyDataset,
    path: str | os.PathLike[str],
    *,
    name: str = "",
    factor: int | None = None,
    explorer: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
) -> None:
    """Write the card of a dataset, of a superposed world, or of one factor of it; with a link to its `explorer`.

    Of a dataset's X only the rows of one cluster are read, of a world's some thousand rows; that of a factor is made
    again.
    """
    files.check_output(path, overwrite=overwrite)
    if isinstance(dataset, Superposed) and factor is None:
        title = name or "superposed world"
        lead, body = _lead_of_world(dataset), _body_of_world(dataset, title)
    else:
        title = (name or "percolation dataset") + ("" if factor is None else f", factor {factor}")
        one = truth(dataset, factor).dataset
        lead, body = _lead(one), _body(one, name if factor is None else "")
    if explorer is not None:
        body = [pages.link("Explore it: points in space beside the hierarchy", Path(explorer), Path(path)), *body]
    page = pages.page(f"Dataset card: {title}", lead, body)
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
            parts += [pages.heading("Distributions"), pages.grid(distributions.panels(dataset))]
            parts += _cluster(dataset)
        parts += [pages.heading("Largest clusters"), _largest(dataset)]
    parts += [
        pages.heading("Recipe"),
        pages.settings(_settings(dataset.recipe)),
        pages.heading("Make it again"),
        *_again(dataset, name),
    ]
    return parts + pages.provenance(dataset.provenance)


def _settings(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as names and values in words."""
    words = {"target": str(recipe.target), "edits": [str(edit) for edit in recipe.edits]}
    return {name: words.get(name, value) for name, value in recipe.to_dict().items()}


def _again(dataset: Dataset, name: str) -> list[str]:
    """Return how to make a dataset again, or what stands in the way."""
    recipe = dataset.recipe
    if dataset.modification:
        told = f"Its recipe does not make it: {dataset.modification}. The recipe is that of the dataset it comes from."
        return [pages.paragraph(told)]
    if recipe.edits:
        return pages.from_json(recipe.to_json(), "Recipe")
    return [
        pages.paragraph("On the command line:"),
        pages.code(f"{command(dataset)} -o {name if name.endswith('.zarr') else 'again.zarr'}"),
        pages.paragraph("In Python:"),
        pages.code(f"import percolab as pl\n\nds = pl.generate(pl.{_qualified(recipe)})"),
    ]


def _qualified(recipe: Recipe) -> str:
    """Return how a recipe is written where percolab is called pl."""
    return repr(recipe).replace("=Seeds(", "=pl.Seeds(").replace("=Target(", "=pl.Target(")


def command(dataset: Dataset) -> str:
    """Return the command that makes a dataset again, but for where to put it."""
    recipe, seeds = dataset.recipe, dataset.recipe.seeds
    words: dict[str, Any] = {
        "--n-points": recipe.n_points,
        "--dim": recipe.dim,
        "--mode": recipe.mode,
        "--create-prob": recipe.create_prob,
        "--mean-degree": recipe.mean_degree,
        "--graph-seed": seeds.graph,
        "--embed-seed": seeds.embed,
        "--value-seed": seeds.value,
        "--engine": recipe.engine,
        "--min-cluster-size": recipe.min_cluster_size,
        "--dtype": recipe.dtype,
        "--target": None if recipe.target == Target() else str(recipe.target),
    }
    return "percolab generate " + " ".join(f"{key} {value}" for key, value in words.items() if value is not None)


# ---------------------------------------------------------------------- numbers


def _sizes(dataset: Dataset) -> list[tuple[str, str]]:
    found, forest, recipe = summarise(dataset), dataset.forest, dataset.recipe
    before = f", of {recipe.n_points:,} before the filter" if recipe.min_cluster_size > 1 else ""
    rows = [
        ("points", f"{found['n_points']:,}{before}"),
        ("dimensions", f"{found['dim']:,}, {found['dtype']}"),
        ("X", readable(forest.n_points * found["dim"] * np.dtype(found["dtype"]).itemsize)),
        ("clusters", f"{found['n_clusters']:,}, largest {found['largest_cluster']:,}"),
        ("singletons", f"{found['singletons']:,}"),
        ("latents", f"{found['n_latents']:,}"),
        ("length of a bond", f"{recipe.step * np.sqrt(recipe.dim):.6g}{_exceptions(dataset)}"),
    ]
    if forest.n_points:
        rows += [
            ("depth of a point", f"mean {found['depth_mean']:.4g}, largest {found['depth_max']:,}"),
            ("y", _target(dataset, found)),
        ]
    return rows + _laws(dataset)


def _exceptions(dataset: Dataset) -> str:
    """Return which bonds have another length, in words."""
    if dataset.source_row is not None:
        return ", but for bonds that got another end"
    moved = any(isinstance(edit, Shift | Move) for edit in dataset.recipe.edits)
    return ", but for those that were moved" if moved else ""


def _laws(dataset: Dataset) -> list[tuple[str, str]]:
    """Return what theory says of the clusters, beside what they are; of a subsample it says nothing."""
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
    found = f"{forest.n_extra_bonds:,}"
    if c > 1:
        share = int(forest.cluster_size[0]) / n
        rows.append(("giant cluster", f"{theory.giant_share(c):.4f} of the points in theory, {share:.4f} here"))
        found += f"; about {n * theory.cycles_per_point(c):,.0f} in theory"
    elif 0 < c < 1:
        rows.append(("cluster sizes fall off at", f"{1 / (c - 1 - np.log(c)):,.4g} points in theory"))
        found += f"; {theory.cycles_below_threshold(c):.3g} in theory, over seeds"
    elif c == 1:
        rows.append(("exponent of cluster sizes", "2.5 in theory"))
    return [*rows, ("bonds that close a cycle", found)]


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
    least = max(FITTED_SIZE, dataset.recipe.min_cluster_size)
    size = dataset.forest.cluster_size
    size = size[size >= least]
    if size.size < FEWEST_FITTED:
        return f"{expected}; too few clusters of {least} points to fit it"
    # The closed form of the maximum likelihood of a discrete power law, good for sizes such as these.
    alpha = 1 + size.size / np.sum(np.log(size / (least - 0.5)))
    return f"{expected}; {alpha:.3f} ± {(alpha - 1) / np.sqrt(size.size):.3f} fitted to sizes from {least} on"


def _largest(dataset: Dataset) -> str:
    forest, y = dataset.forest, np.asarray(dataset.y)
    is_tree = distributions.trees(dataset)
    rows = []
    for c in range(min(LARGEST, forest.n_clusters)):
        lo, hi = (int(edge) for edge in forest.cluster_start[c : c + 2])
        expected = f" ({theory.mean_depth(hi - lo):.1f} expected)" if is_tree[c] else ""
        rows.append(
            (
                f"{c}",
                f"{forest.cluster_id[c]:,}",
                f"{hi - lo:,}",
                f"{lo:,} to {hi - 1:,}",
                f"{forest.point_depth[lo:hi].mean():.1f}{expected}",
                f"{y[lo:hi].mean():.2f} ± {y[lo:hi].std():.2f}" if y.dtype.kind == "f" else "labels",
            )
        )
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


# ---------------------------------------------------------------------- the card of a superposed world


def _lead_of_world(world: Superposed) -> str:
    """Return what the world is, in a sentence."""
    n, dim = world.X.shape
    told = f"{n:,} samples in {dim} dimensions, each with a point of each of {len(world.factors)} factors; {_y(world)}"
    return told + (f"; modified: {world.modification}" if world.modification else "")


def _y(world: Superposed) -> str:
    names = " and ".join(map(str, world.relevant))
    if world.recipe.product is not None:
        return f"y is the product of factors {names}"
    return f"y from factor{'s' if len(world.relevant) > 1 else ''} {names}"


def _body_of_world(world: Superposed, name: str) -> list[str]:
    """Return the parts of the page."""
    parts = [pages.heading("Factors"), _factors(world), pages.heading("Samples"), pages.table(_samples(world))]
    parts += [pages.paragraph("A factor has a card of its own:"), pages.code(_card_of_factor(name))]
    with style.sheet():
        parts += [pages.heading("Targets"), pages.grid(_targets(world))]
        parts += [pages.heading("Where factors show in X"), pages.grid(_planes(world))]
    recipe = world.recipe
    told = {key: value for key, value in recipe.to_dict().items() if key not in ("kind", "factors")}
    told |= {f"factor {k}": repr(factor) for k, factor in enumerate(recipe.factors)}
    parts += [pages.heading("Recipe"), pages.settings(told), pages.heading("Make it again"), *_world_again(world)]
    return parts + pages.provenance(world.provenance)


def _card_of_factor(name: str) -> str:
    path = name if name.endswith(".zarr") else "world.zarr"
    return f"percolab info {path} --factor 0 --html factor0.html"


def _world_again(world: Superposed) -> list[str]:
    if world.modification:
        return [pages.paragraph(f"Its recipe does not make it: {world.modification}.")]
    for name, preset in PRESETS.items():
        if preset == world.recipe:
            return [
                pages.code(f"percolab generate {name} -o again.zarr"),
                pages.code(f'import percolab as pl\n\nworld = pl.generate("{name}")'),
            ]
    return pages.from_json(world.recipe.to_json(), "Superposition")


# ---------------------------------------------------------------------- numbers


def _factors(world: Superposed) -> str:
    found = summarise(world)
    rows = [
        (
            f"{k}",
            part["mode"],
            f"{part['n_points']:,}",
            f"{part['dim']:,}",
            f"{part['n_clusters']:,}",
            f"{part['n_latents']:,}",
            f"{part['scale']:g}",
            "product" if part["weight"] is None and k in world.relevant else f"{part['weight'] or 0:g}",
            f"{part['correlation']:.3f}" if part["correlation"] is not None else "",
        )
        for k, part in enumerate(found["factors"])
    ]
    head = ("factor", "mode", "points", "dimensions", "clusters", "latents", "scale", "weight", "correlation with y")
    return pages.table(rows, head, numbers=[0, *range(2, len(head))])


def _samples(world: Superposed) -> list[tuple[str, str]]:
    found, recipe = summarise(world), world.recipe
    total = sum(factor.dim for factor in recipe.factors)
    how = f"each rotated, {total} dimensions into {recipe.dim}" if recipe.rotate else "added as they are"
    rows = [
        ("samples", f"{found['n_samples']:,}"),
        ("dimensions", f"{found['dim']:,}, {found['dtype']}"),
        ("X", readable(int(world.X.nbytes))),
        ("factors in X", how),
    ]
    if found["y_mean"] is not None:
        rows.append(("y", f"mean {found['y_mean']:.3f}, variance {found['y_variance']:.3f}"))
    return rows


# ---------------------------------------------------------------------- figures


def _targets(world: Superposed) -> list[str]:
    figure = style.new_figure(4.6, 3.2)
    y = np.asarray(world.y)
    if y.dtype.kind != "f":
        distributions.draw_labels(figure.subplots(), y)
        return [pages.picture(figure, "Samples of each label, the most frequent first; of sequences, by level.")]
    sums = all(world.recipe.factors[k].target == Target() for k in world.relevant)
    variance = sum(weight**2 for weight in world.weights) if world.weights and sums else None
    distributions.draw_targets(figure.subplots(), y, variance)
    return [pages.picture(figure, "Targets" + (", with the normal law that each has over seeds." if variance else "."))]


def _planes(world: Superposed) -> list[str]:
    """Return the samples in the plane of X's first two principal components, coloured by the y of each factor."""
    n = len(world)
    samples = np.sort(np.random.default_rng(SEED).choice(n, min(n, DRAWN), replace=False))
    X = np.asarray(world.X[samples], np.float64)
    plane = _plane(X)
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


def _plane(X: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = X - X.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, [-1, -2]]
    # An axis has no sign of its own; this choice makes the picture the same everywhere.
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), [0, 1]])
    return np.asarray(centred @ axes)
