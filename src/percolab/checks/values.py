"""Checks of the values: z of latents and points, targets, interventions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from percolab.checks import plots
from percolab.checks.independent import Subject
from percolab.checks.result import Check, exact, p_of_score, p_of_uniforms, smallest, statistical, too_small
from percolab.model.sums import targets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_VALUES = 100
FEWEST_CLUSTERS = 100
MOST_VALUES = 4_000_000
INTERVENTIONS = 12
TOLERANCE = 1e-8
"""What rounding may do to a target: a sum of thousands of values, in another order."""


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of a dataset's values and targets."""
    yield values(subject)
    yield sums(subject)
    yield interventions(subject)
    yield targets_over_clusters(subject)


def values(subject: Subject) -> Check:
    """Check that z are independent N(0, 1): the law of all, and that latents do not follow their parents."""
    from scipy.special import ndtr

    law, dataset = "z is N(0, 1)", subject.dataset
    z = np.concatenate([dataset.latent_z[:MOST_VALUES], dataset.point_z[:MOST_VALUES]])
    if z.size < FEWEST_VALUES:
        return too_small(law, "0 ± 1", f"{FEWEST_VALUES} values", f"{z.size}")
    p_values = [p_of_uniforms(ndtr(z))]
    parent = subject.forest.latent_parent
    below = np.flatnonzero(parent >= 0)[:MOST_VALUES]
    if below.size >= FEWEST_VALUES:
        product = dataset.latent_z[below] * dataset.latent_z[parent[below]]
        p_values.append(p_of_score(float(product.sum()) / math.sqrt(below.size)))
    note = f"{z.size:,} values; also that latents do not follow their parents"
    measured = f"{z.mean():.4f} ± {z.std():.4f}"
    return statistical(law, "0 ± 1", measured, smallest(*p_values), note, plots.histogram(z, "z", normal=True))


def sums_above(subject: Subject) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the sum of z over each point's latents, and their number.

    Each latent adds z where its interval starts and takes it away where it ends. Nothing is shared with `targets`.
    """
    forest, z = subject.forest, subject.dataset.latent_z
    start, stop = forest.latent_start, forest.latent_start + forest.latent_size
    change = np.bincount(start, z, forest.n_points + 1) - np.bincount(stop, z, forest.n_points + 1)
    number = np.bincount(start, minlength=forest.n_points + 1) - np.bincount(stop, minlength=forest.n_points + 1)
    return np.cumsum(change)[:-1], np.cumsum(number)[:-1]


def sums(subject: Subject) -> Check:
    """Check that every target is the sum of its point's values over √(1 + depth)."""
    law, y = "targets are sums of z", np.asarray(subject.dataset.y)
    if not y.size:
        return too_small(law, "y = Σz/√(1+depth)", "1 point", "0")
    above, depth = sums_above(subject)
    expected = (above + subject.dataset.point_z) / np.sqrt(1.0 + depth)
    error = float(np.max(np.abs(y - expected)))
    shown = subject.choices("sums").choice(y.size, min(y.size, 2000), replace=False)

    def draw(axes: Axes) -> None:
        axes.plot(expected[shown], y[shown], ".", markersize=2, color=plots.BLUE)
        axes.axline((0, 0), slope=1, color=plots.INK, linestyle=":")
        axes.set_xlabel("Σ z / √(1 + depth)")
        axes.set_ylabel("y")

    measured = f"{np.mean(np.abs(y - expected) <= TOLERANCE):.2%} of points"
    return exact(law, "100% of points", measured, error, TOLERANCE, "y = Σz/√(1+depth), recomputed", draw)


def interventions(subject: Subject) -> Check:
    """Check that adding 1 to one latent's z adds 1/√(1 + depth) to the targets of its points, and nothing elsewhere."""
    law, dataset, forest = "intervention on a latent", subject.dataset, subject.forest
    if not forest.n_latents:
        return too_small(law, "Δy = δ/√(1+depth)", "1 latent", "0")
    before = np.asarray(dataset.y)
    scale = 1 / np.sqrt(1.0 + forest.point_depth)
    order = np.argsort(forest.latent_size, kind="stable")
    chosen = np.unique(order[np.linspace(0, order.size - 1, INTERVENTIONS).astype(int)])
    error, effect = 0.0, []
    for latent in chosen:
        z = dataset.latent_z.copy()
        z[latent] += 1
        found = targets(forest, z, dataset.point_z) - before
        expected = np.zeros(forest.n_points)
        rows = forest.points_of(int(latent))
        expected[rows] = scale[rows]
        error = max(error, float(np.max(np.abs(found - expected))))
        effect.append((int(forest.latent_size[latent]), int(np.count_nonzero(np.abs(found) > TOLERANCE))))
    sizes, moved = np.array(effect).T

    def draw(axes: Axes) -> None:
        axes.loglog(sizes, moved, "o", color=plots.BLUE)
        axes.axline((1, 1), (10, 10), color=plots.INK, linestyle=":")
        axes.set_xlabel("points of the latent changed")
        axes.set_ylabel("targets that moved")

    note = f"inside the latent, 0 outside; {chosen.size} latents of {sizes.min():,} to {sizes.max():,} points"
    return exact(law, "Δy = δ/√(1+depth)", f"within {error:.0e}", error, TOLERANCE, note, draw)


def targets_over_clusters(subject: Subject) -> Check:
    """Check that y is N(0, 1): one random point of each cluster, since targets within a cluster are dependent."""
    from scipy.special import ndtr

    law, forest = "y is N(0, 1)", subject.forest
    if forest.n_clusters < FEWEST_CLUSTERS:
        return too_small(law, "0 ± 1", f"{FEWEST_CLUSTERS} clusters", f"{forest.n_clusters}")
    row = forest.cluster_start[:-1] + subject.choices("y").integers(forest.cluster_size)
    y = np.asarray(subject.dataset.y)[row]
    several = y[forest.cluster_size > 1]
    p_values = [p_of_uniforms(ndtr(y))]
    if several.size >= FEWEST_CLUSTERS:
        p_values.append(p_of_uniforms(ndtr(several)))
    note = f"one point of each of {y.size:,} clusters, and of the {several.size:,} with latents alone"
    measured = f"{y.mean():.4f} ± {y.std():.4f}"
    return statistical(law, "0 ± 1", measured, smallest(*p_values), note, plots.histogram(y, "y", normal=True))
