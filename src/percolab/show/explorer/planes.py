"""Principal components: of all points that are drawn, and of those of large latents, each in its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Floats, Ints
from percolab.ground.progress import Progress

AXES = 3
PART_ROWS = 1 << 13
#: Steps of a coordinate between its least and its largest: finer than a screen, even enlarged a hundred times.
STEPS = 2**16 - 1


def principal_axes(X: NDArray[Any]) -> tuple[Floats, Floats]:
    """Return X in its first three principal components, and the share of the variance of each.

    Axes have the sign that makes their largest entry positive, so that a picture is the same everywhere. Where there
    are fewer than three the others are 0.
    """
    n, dim = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    # In parts: as float64 and without its mean, a sample of many dimensions would be the most that is in memory.
    parts = [slice(lo, lo + PART_ROWS) for lo in range(0, n, PART_ROWS)]
    if n < dim:
        points = X - mean
        squares = points @ points.T
    else:
        squares = np.zeros((dim, dim))
        for part in parts:
            points = X[part] - mean
            squares += points.T @ points
    variance, vectors = np.linalg.eigh(squares)
    count = min(AXES, variance.size)
    top, axes = np.maximum(variance[::-1][:count], 0), vectors[:, ::-1][:, :count]
    if n < dim:
        axes = points.T @ axes
        axes /= np.maximum(np.linalg.norm(axes, axis=0), np.finfo(float).tiny)
    axes *= np.where(axes[np.abs(axes).argmax(axis=0), np.arange(count)] < 0, -1.0, 1.0)
    places, share = np.zeros((n, AXES)), np.zeros(AXES)
    for part in parts:
        places[part, :count] = (X[part] - mean) @ axes
    share[:count] = top / max(float(np.maximum(variance, 0).sum()), np.finfo(float).tiny)
    return places, share


def in_steps(places: Floats) -> tuple[NDArray[np.uint16], Floats, Floats]:
    """Return coordinates (n, 3) as whole steps, column after column, with the least of each and the size of a step."""
    low = places.min(axis=0, initial=np.inf) if len(places) else np.zeros(AXES)
    high = places.max(axis=0, initial=-np.inf) if len(places) else np.zeros(AXES)
    step = np.where(high > low, (high - low) / STEPS, 1.0)
    return np.rint((places - low) / step).astype(np.uint16).T.ravel(), low, step


class Planes:
    """Components of several sets of points, as they are sent to the page."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint16]] = []
        self._columns: dict[str, list[Any]] = {"factor": [], "latent": [], "first": [], "count": []}
        self._scales: list[Floats] = []
        self._rows = 0

    @property
    def rows(self) -> int:
        """Points so far, counted as often as they are there."""
        return self._rows

    def add(self, X: NDArray[Any], factor: int, latent: int) -> None:
        """Add the components of the points of a latent; -1 for those of all."""
        places, share = principal_axes(X)
        steps, low, step = in_steps(places)
        for name, value in zip(self._columns, (factor, latent, self._rows, len(X)), strict=True):
            self._columns[name].append(value)
        self._parts.append(steps)
        self._scales.append(np.concatenate([low, step, share]))
        self._rows += len(X)

    def packed(self) -> dict[str, Any]:
        """Return the columns; `scale` has nine numbers a set: the least, the step and the share of each component."""
        columns = {name: np.asarray(values, np.int64) for name, values in self._columns.items()}
        return columns | {"scale": np.concatenate(self._scales), "values": np.concatenate(self._parts)}


def of_latents(
    X: NDArray[Any], sets: Sequence[tuple[int, int, Ints]], most_rows: int, progress: Progress | None = None
) -> Planes:
    """Return the components of all points, and of sets of them (factor, latent, rows of X), while there is room.

    The sets come in their order, and those that do not fit in `most_rows` are left out.
    """
    planes = Planes()
    planes.add(X, 0, -1)
    for i, (factor, latent, rows) in enumerate(sets):
        if planes.rows + rows.size <= most_rows:
            planes.add(X[rows], factor, latent)
        if progress is not None:
            progress("components", i + 1, len(sets))
    return planes
