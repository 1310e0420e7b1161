"""Principal components: of all points that are drawn, and of those of large latents, each in its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Floats, Ints
from percolab.ground.progress import Progress
from percolab.show.cluster_picture import principal_components

AXES = 3
#: Steps of a coordinate between its least and its largest: finer than a screen, even enlarged a hundred times.
STEPS = 2**16 - 1


def in_steps(places: Floats) -> tuple[NDArray[np.uint16], Floats, Floats]:
    """Return coordinates (n, 3) as whole steps, column after column, with the least of each and the size of a step."""
    low = places.min(axis=0, initial=np.inf) if len(places) else np.zeros(AXES)
    high = places.max(axis=0, initial=-np.inf) if len(places) else np.zeros(AXES)
    step = np.where(high > low, (high - low) / STEPS, 1.0)
    return np.rint((places - low) / step).astype(np.uint16).T.ravel(), low, step


def packed(sets: Iterable[tuple[int, int, NDArray[Any]]]) -> dict[str, Any]:
    """Return the components of sets of points (factor, latent, X), as they are sent to the page; latent -1: of all.

    `scale` has nine numbers per set: the least, the step and the share of each component.
    """
    names, counts, scales, values = [], [], [], []
    for factor, latent, X in sets:
        places, share = principal_components(X, AXES)
        steps, low, step = in_steps(places)
        names.append((factor, latent))
        counts.append(len(X))
        scales.append(np.concatenate([low, step, share]))
        values.append(steps)
    factors, latents = np.array(names, np.int64).T
    columns = {"factor": factors, "latent": latents, "first": np.cumsum([0, *counts[:-1]]), "count": np.array(counts)}
    return columns | {"scale": np.concatenate(scales), "values": np.concatenate(values)}


def that_fit(
    X: NDArray[Any], sets: Sequence[tuple[int, int, Ints]], most_rows: int, progress: Progress
) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Yield all points, then sets of them (factor, latent, rows of X) in their order, those for which there is room."""
    yield 0, -1, X
    used = len(X)
    for i, (factor, latent, rows) in enumerate(sets):
        if used + rows.size <= most_rows:
            used += rows.size
            yield factor, latent, X[rows]
        progress("components", i + 1, len(sets))
