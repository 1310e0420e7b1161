"""What the card of a superposed world holds: its factors, how X and y are made of them, and how to make it again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.ground.memory import readable
from percolab.model.target import Target
from percolab.show import distributions, pages, style
from percolab.show.summary import summarise
from percolab.worlds.generation import PRESETS
from percolab.worlds.superposed import Superposed

DRAWN = 4_000
"""Samples that are drawn."""
SEED = 0
"""What they are drawn with."""


def lead(world: Superposed) -> str:
    """Return what the world is, in a sentence."""
    n, dim = world.X.shape
    told = f"{n:,} samples in {dim} dimensions, each with a point of each of {len(world.factors)} factors; {_y(world)}"
    return told + (f"; modified: {world.modification}" if world.modification else "")


def _y(world: Superposed) -> str:
    names = " and ".join(map(str, world.relevant))
    if world.recipe.product is not None:
        return f"y is the product of factors {names}"
    return f"y from factor{'s' if len(world.relevant) > 1 else ''} {names}"


def body(world: Superposed, name: str) -> list[str]:
    """Return the parts of the page."""
    parts = [pages.heading("Factors"), _factors(world), pages.heading("Samples"), pages.table(_samples(world))]
    parts += [pages.paragraph("A factor has a card of its own:"), pages.code(_card_of_factor(name))]
    with style.sheet():
        parts += [pages.heading("Targets"), pages.grid(_targets(world))]
        parts += [pages.heading("Where factors show in X"), pages.grid(_planes(world))]
    recipe = world.recipe
    told = {key: value for key, value in recipe.to_dict().items() if key not in ("kind", "factors")}
    told |= {f"factor {k}": repr(factor) for k, factor in enumerate(recipe.factors)}
    parts += [pages.heading("Recipe"), pages.settings(told), pages.heading("Make it again"), *_again(world)]
    return parts + pages.provenance(world.provenance)


def _card_of_factor(name: str) -> str:
    path = name if name.endswith(".zarr") else "world.zarr"
    return f"percolab info {path} --factor 0 --html factor0.html"


def _again(world: Superposed) -> list[str]:
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
