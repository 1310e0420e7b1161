"""The laws that a dataset must obey, each as a check that can fail.

One module for each kind of law: `sizes`, `trees`, `latents`, `small`, `space`, `dimension`, `values`. Every check takes
what it needs from a `Subject` and returns a `Check`. `suite.verify` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from percolab.checks import dimension, latents, sizes, small, space, trees, values
from percolab.checks.independent import Subject
from percolab.checks.result import Check, exact
from percolab.dataset.dataset import Dataset
from percolab.ground.progress import Progress, silent

_KINDS = (sizes, trees, latents, small, space, dimension, values)


def all_checks(dataset: Dataset, progress: Progress = silent, stage: str = "laws") -> Iterator[Check]:
    """Yield every check of a dataset; if its forest breaks the data model, only that."""
    total = 1 + len(_KINDS)
    progress(stage, 0, total)
    subject = Subject(dataset)
    first = _structure(subject)
    yield first
    if first.failed:
        return
    for done, kind in enumerate(_KINDS, 1):
        progress(stage, done, total)
        yield from kind.checks(subject)
    progress(stage, total, total)


def _structure(subject: Subject) -> Check:
    """Check the invariants of the forest, and that all arrays fit it and the recipe, and are finite."""
    law, expected, forest = "data model", "every invariant holds", subject.forest
    try:
        forest.validate()
        _validate_arrays(subject)
    except ValueError as error:
        return exact(law, expected, "broken", 1, 0, f"{error}; no other law was tried")
    return exact(law, expected, "they do", 0, 0, f"{forest.n_points:,} points, {forest.n_clusters:,} clusters")


def _validate_arrays(subject: Subject) -> None:
    dataset, forest, recipe = subject.dataset, subject.forest, subject.recipe
    n, n_latents = forest.n_points, forest.n_latents
    shapes = {"X": (n, recipe.dim), "y": (n,), "latent_z": (n_latents,), "point_z": (n,)}
    for name, shape in shapes.items():
        found = getattr(dataset, name).shape
        if found != shape:
            raise ValueError(f"{name} must have shape {shape}, got {found}")
    least = recipe.min_cluster_size
    if n > recipe.n_points or (least == 1 and n != recipe.n_points):
        raise ValueError(f"n_points must be {recipe.n_points} as in the recipe, got {n}")
    if n and forest.cluster_size[-1] < least:
        raise ValueError(f"cluster sizes must be at least {least} as in the recipe, got {forest.cluster_size[-1]}")
    for name, column in (("y", dataset.y), ("latent_z", dataset.latent_z), ("point_z", dataset.point_z)):
        if not np.isfinite(column).all():
            raise ValueError(f"{name} must be finite, got {column[~np.isfinite(column)][0]}")
    if not all(np.isfinite(subject.part.X[lo : lo + (1 << 15)]).all() for lo in range(0, len(subject.part.X), 1 << 15)):
        raise ValueError("X must be finite, got a row that is not")
