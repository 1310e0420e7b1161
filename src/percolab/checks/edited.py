"""Checks of what edits did: values that they set, and directions that they drew again.

Values that edits set are not drawn from N(0, 1), so the laws of z and y leave them out. Moves have no check here:
`independence` subtracts them again, and then bonds must have their length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.checks.independence import Subject, Walk
from percolab.checks.verdicts import Check, exact, too_small
from percolab.dataset.replay import turned_directions
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
    """Check that rows below a turned latent are one step from the row before, in the direction that its seed draws.

    The row before is the parent on the walk. The root has none and is left out.
    """
    law, expected, part = "turned directions", "as drawn from their seed", subject.part
    unit = subject.recipe.step * np.sqrt(subject.recipe.dim)
    rows, vectors = _drawn_again(subject)
    before = _walk_parents(subject, rows)
    at, last = part.place(rows), np.where(before >= 0, part.place(before), -1)
    seen = (at >= 0) & (last >= 0)
    if not seen.any():
        return too_small(law, expected, "1 row that was read", "0")
    ends = part.X[at[seen]].astype(np.float64), part.X[last[seen]].astype(np.float64)
    error = np.linalg.norm((ends[0] - ends[1]) / unit - vectors[seen], axis=1)
    granted = subject.granted(sum(np.linalg.norm(end, axis=1) for end in ends) / unit)
    worst = int(np.argmax(error / granted))
    note = f"{int(seen.sum()):,} rows below turned latents"
    return exact(law, expected, f"within {error.max():.0e}", float(error[worst]), float(granted[worst]), note)


def _drawn_again(subject: Subject) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the rows below turned latents, and the unit vectors that the last turn gave each."""
    edits = subject.recipe.edits
    rows, vectors = [], []
    for number, edit in reversed([*enumerate(edits)]):
        if isinstance(edit, Turn):
            interval, directions = turned_directions(subject.recipe, subject.forest, edit, edits[:number])
            rows.append(np.arange(interval.start, interval.stop))
            vectors.append(directions)
    listed, first = np.unique(np.concatenate(rows), return_index=True)
    return listed, np.concatenate(vectors)[first]


def _walk_parents(subject: Subject, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row before each on its cluster's walk, -1 at the root."""
    before = np.empty(subject.forest.n_points, np.int64)
    for cluster in np.unique(subject.forest.point_cluster[rows]).tolist():
        walk = Walk.of(subject.dataset, cluster)
        before[walk.start :][: walk.parent.size] = np.where(walk.parent >= 0, walk.parent + walk.start, -1)
    return before[rows]
