"""The laws that a dataset must obey, each as a check that can fail.

One module for each kind of law: `sizes`, `trees`, `latents`, `small`, `space`, `dimension`, `values`; `random_graph` in
place of the first four where clusters have cycles, `labels` for targets that are not sums, `edited` for what edits set.
Every check takes what it needs from a `Subject` and returns a `Check`. `suite.verify` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.checks import dimension, edited, labels, latents, random_graph, sizes, small, space, trees, values
from percolab.checks.independent import Subject
from percolab.checks.result import Check, does_not_apply, exact
from percolab.dataset.dataset import Dataset
from percolab.ground.progress import Progress, silent
from percolab.store.schema import StoreError

_KINDS = (sizes, trees, latents, small, space, dimension, values, labels, edited)
_KINDS_OF_A_RANDOM_GRAPH = (random_graph, space, values, labels, edited)
_KINDS_OF_A_SUBSAMPLE = (values, labels)


def all_checks(dataset: Dataset, progress: Progress = silent, stage: str = "laws") -> Iterator[Check]:
    """Yield every check of a dataset; if its forest breaks the data model, only that."""
    total = 1 + len(_KINDS)
    progress(stage, 0, total)
    subject = Subject(dataset)
    first = _structure(subject)
    yield first
    if first.failed:
        return
    kinds: tuple[Any, ...] = _KINDS
    if dataset.source_row is not None:
        kinds = _KINDS_OF_A_SUBSAMPLE
        why = "a subsample has lost latents, and some of its bonds have other ends"
        yield does_not_apply("clusters, trees and positions", "the laws of whole clusters", why)
    elif dataset.recipe.mode == "random_graph":
        kinds = _KINDS_OF_A_RANDOM_GRAPH
        why = "a cluster in which a bond closed a cycle is not a uniform tree"
        yield does_not_apply("depths and distances", "the laws of uniform trees", why)
    for done, kind in enumerate(kinds, 1):
        progress(stage, done, total)
        yield from kind.checks(subject)
    progress(stage, total, total)


def _structure(subject: Subject) -> Check:
    """Check the invariants of the forest, and that all arrays fit it and the recipe, and are finite."""
    law, expected, forest = "data model", "every invariant holds", subject.forest
    try:
        forest.validate()
        _validate_arrays(subject)
    except StoreError:  # what cannot be read breaks no law
        raise
    except ValueError as error:
        return exact(law, expected, "broken", 1, 0, f"{error}; no other law was tried")
    return exact(law, expected, "they do", 0, 0, f"{forest.n_points:,} points, {forest.n_clusters:,} clusters")


def _validate_arrays(subject: Subject) -> None:
    dataset, forest, recipe = subject.dataset, subject.forest, subject.recipe
    n, n_latents = forest.n_points, forest.n_latents
    target = recipe.target
    shapes = {"X": (n, recipe.dim), "y": (n, *target.y_shape), "latent_z": (n_latents,), "point_z": (n,)}
    for name, shape in shapes.items():
        found = getattr(dataset, name).shape
        if found != shape:
            raise ValueError(f"{name} must have shape {shape}, got {found}")
    if np.dtype(dataset.y.dtype) != target.y_dtype:
        raise ValueError(f"y must be {target.y_dtype} with target {target.kind!r}, got {dataset.y.dtype}")
    if dataset.source_row is None:
        _validate_sizes(subject)
        for edit in recipe.edits:
            edit.check(n, n_latents)
    else:
        _validate_sources(subject, dataset.source_row)
    for name, column in (("y", dataset.y), ("latent_z", dataset.latent_z), ("point_z", dataset.point_z)):
        if not np.isfinite(column).all():
            raise ValueError(f"{name} must be finite, got {column[~np.isfinite(column)][0]}")
    if not all(np.isfinite(subject.part.X[lo : lo + (1 << 15)]).all() for lo in range(0, len(subject.part.X), 1 << 15)):
        raise ValueError("X must be finite, got a row that is not")


def _validate_sizes(subject: Subject) -> None:
    n, recipe, size = subject.forest.n_points, subject.recipe, subject.forest.cluster_size
    least = recipe.min_cluster_size
    if n > recipe.n_points or (least == 1 and n != recipe.n_points):
        raise ValueError(f"n_points must be {recipe.n_points} as in the recipe, got {n}")
    if n and size[-1] < least:
        raise ValueError(f"cluster sizes must be at least {least} as in the recipe, got {size[-1]}")


def _validate_sources(subject: Subject, source_row: NDArray[np.int64]) -> None:
    """Check that rows of a subsample come from different rows, in leaf order within each cluster."""
    forest = subject.forest
    if source_row.shape != (forest.n_points,):
        raise ValueError(f"source_row must have shape ({forest.n_points},), got {source_row.shape}")
    if np.unique(source_row).size < source_row.size:
        raise ValueError("source_row must not repeat, got a row twice")
    falls = np.flatnonzero(np.diff(source_row) <= 0) + 1
    inside = falls[~np.isin(falls, forest.cluster_start)]
    if inside.size:
        raise ValueError(f"source_row[{inside[0]}] must be above the one before it, got {source_row[inside[0]]}")
