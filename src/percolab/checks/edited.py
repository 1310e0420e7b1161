"""Checks of values that edits set. They are no draws from N(0, 1), so the laws of z and y leave them out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from percolab.checks.independent import Subject
from percolab.checks.result import Check, exact
from percolab.model.edits import Do


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the check of values that edits set, if any did."""
    if has_set_values(subject):
        yield set_values(subject)


def has_set_values(subject: Subject) -> bool:
    """Tell whether edits set values."""
    return any(isinstance(edit, Do) for edit in subject.recipe.edits)


def set_values(subject: Subject) -> Check:
    """Check that every latent and point has the value that the last edit gave it."""
    dataset = subject.dataset
    error, count = 0.0, 0
    for pairs, values in zip(_last_values(subject), (dataset.latent_z, dataset.point_z), strict=True):
        for node, value in pairs.items():
            error, count = max(error, abs(float(values[node]) - value)), count + 1
    return exact("values set by edits", "as in the recipe", f"within {error:.0e}", error, 0, f"{count:,} values")


def _last_values(subject: Subject) -> tuple[dict[int, float], dict[int, float]]:
    latents: dict[int, float] = {}
    points: dict[int, float] = {}
    for edit in subject.recipe.edits:
        if isinstance(edit, Do):
            latents.update(edit.z)
            points.update(edit.point_z)
    return latents, points


def drawn(subject: Subject) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which latents and which points have the value that they were given by the draw."""
    masks = np.ones(subject.forest.n_latents, np.bool_), np.ones(subject.forest.n_points, np.bool_)
    for mask, nodes in zip(masks, _last_values(subject), strict=True):
        mask[list(nodes)] = False
    return masks
