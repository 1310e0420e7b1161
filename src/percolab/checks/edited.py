"""Checks of what edits did: values that they set, and directions that they drew again.

Values that edits set are not drawn from N(0, 1), so the laws of z and y leave them out. Moves have no check here:
`independence` subtracts what they add, and then bonds must have their length.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from percolab.checks.independence import Subject
from percolab.checks.verdicts import Check, exact, too_small
from percolab.model.edits import Do, Turn


def checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of values that edits set and of latents that they turned, if any did."""
    if has_set_values(subject):
        yield set_values(subject)
    if any(isinstance(edit, Turn) for edit in subject.recipe.edits):
        yield turned(subject)


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
    """Return which latents and which points still have the value that was drawn for them."""
    masks = np.ones(subject.forest.n_latents, np.bool_), np.ones(subject.forest.n_points, np.bool_)
    for mask, nodes in zip(masks, _last_values(subject), strict=True):
        mask[list(nodes)] = False
    return masks


def turned(subject: Subject) -> Check:
    """Check that rows below turned latents are where the steps that their seeds draw lead."""
    law, expected, part = "turned directions", "as drawn from their seed", subject.part
    turns = [edit.latent for edit in subject.recipe.edits if isinstance(edit, Turn)]
    rows = np.unique(np.concatenate([np.arange(subject.forest.n_points)[subject.forest.points_of(i)] for i in turns]))
    at = part.place(rows)
    if not (at >= 0).any():
        return too_small(law, expected, "1 row that was read", "0")
    drawn_again = subject.unmoved[rows[at >= 0]].astype(np.float64)
    unit = subject.recipe.step * np.sqrt(subject.recipe.dim)
    error = np.linalg.norm(part.X[at[at >= 0]] - drawn_again, axis=1) / unit
    granted = subject.granted(np.linalg.norm(drawn_again, axis=1) / unit)
    worst = int(np.argmax(error / granted))
    note = f"{error.size:,} rows below turned latents"
    return exact(law, expected, f"within {error.max():.0e}", float(error[worst]), float(granted[worst]), note)
