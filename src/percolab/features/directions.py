"""Directions: decoder vectors, compared with the difference between a concept's mean activation and its sibling's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.features.absorption import Absorbers
from percolab.features.codes import BLOCK_CELLS, Codes
from percolab.features.concepts import ConceptIntervals, Concepts
from percolab.features.counting import Matches
from percolab.features.firing import Firing, decode, fires_at, place
from percolab.features.inputs import also_on_gpu
from percolab.features.thresholds import CARRIED, GOOD
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel

PARTS_BYTES = 1 << 27  #: Memory for one block of the decoder's parts along concepts' directions.


def concept_directions(truth: ConceptIntervals, activations: NDArray[Any]) -> Floats:
    """Return (C, d): mean activation over a concept's rows minus the mean over the other rows of the latent above.

    For points the latent above is the parent, so the other rows are the sibling's; for documents it is the nearest
    context above. NaN at tops.
    """
    concepts, above = truth.concepts, truth.labels.above(truth.concepts.latent)
    start, stop = truth.labels.intervals(above)
    sums = interval_sums(
        activations, truth.order, np.concatenate([concepts.start, start]), np.concatenate([concepts.stop, stop])
    )
    inside, whole = np.split(sums, 2)
    others = np.where(above < 0, 1, stop - start - concepts.size)
    direction: Floats = inside / concepts.size[:, None] - (whole - inside) / others[:, None]
    direction[above < 0] = np.nan
    return direction


@also_on_gpu
def interval_sums(values: NDArray[Any], order: Ints, start: Ints, stop: Ints) -> Floats:
    """Return the sum of ``values[order]`` over each interval of positions, in float64 by prefix sums."""
    edges, where = np.unique(np.concatenate([start, stop]), return_inverse=True)
    below = np.zeros((edges.size, values.shape[1]))
    centre = values[: 1 << 16].mean(axis=0, dtype=np.float64)
    _sums_between(np.ascontiguousarray(values), centre, order, edges, below)
    np.cumsum(below, axis=0, out=below)
    first, last = where.reshape(2, -1)
    return below[last] - below[first] + (stop - start)[:, None] * centre


def cosines(directions: Floats, concept_direction: Floats, feature: Ints) -> Floats:
    """Return the cosine of each concept's direction and its best feature's decoder vector; NaN if either is missing."""
    cosine = np.full(feature.size, np.nan)
    known = feature >= 0
    a, b = directions[feature[known]], concept_direction[known]
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine[known] = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return cosine


def explained_variance(codes: Codes, directions: Floats, bias: Floats, activations: NDArray[Any]) -> float:
    """Return 1 - Σ|a - codes @ D - bias|² / Σ|a - mean a|², over all rows."""
    total, mean = 0.0, activations.mean(axis=0, dtype=np.float64)
    for part in codes.row_slices():
        spread = activations[part] - mean
        total += float((spread * spread).sum())
    return 1 - codes.squared_rest(directions, bias, activations) / total if total > 0 else float("nan")


def carried(
    codes: Codes,
    firing: Firing,
    truth: ConceptIntervals,
    matches: Matches,
    absorbers: Absorbers,
    directions: Floats,
    concept_direction: Floats,
) -> Floats:
    """Return the share of each concept's rows where its feature is silent and one absorber carries the concept.

    An absorber j carries the concept if its part along the concept's direction u, c_j d_j·u, is at least 0.4 of the sum
    over all features and that sum is positive. NaN where F1 is below 0.5 and at tops.
    """
    import scipy.sparse

    concepts = truth.concepts
    asked = np.flatnonzero((matches.f1 >= GOOD) & np.isfinite(concept_direction[:, 0]))
    share = np.full(len(concepts), np.nan)
    step, n_rows = max(1, PARTS_BYTES // (8 * len(directions))), max(1, BLOCK_CELLS // len(directions))
    for lo in range(0, asked.size, step):
        chosen = asked[lo : lo + step]
        part = np.ascontiguousarray((directions @ concept_direction[chosen].T).T)
        for j, c in enumerate(chosen):
            positions = _absorbed(c, firing, concepts, matches, absorbers)
            count = 0
            for first in range(0, positions.size, n_rows):
                some = positions[first : first + n_rows]
                rows = scipy.sparse.csr_array(codes.take(truth.order[some]))
                given = some, rows.indptr, rows.indices, rows.data, firing
                count += _carried(c, concepts.end[c], *given, absorbers.first, absorbers.lowest, part[j])
            share[c] = count / concepts.size[c]
    return share


def _absorbed(c: int, firing: Firing, concepts: Concepts, matches: Matches, absorbers: Absorbers) -> Ints:
    """Return the positions of a concept where its feature is silent and an absorber fires."""
    start, stop = int(concepts.start[c]), int(concepts.stop[c])
    fires_on = np.empty(firing.fired[matches.feature[c]], np.int32)
    decode(matches.feature[c], firing, fires_on)
    absorbed = absorbers.deepest[start:stop] >= c
    absorbed[fires_on[(fires_on >= start) & (fires_on < stop)] - start] = False
    return np.flatnonzero(absorbed) + start


# ---------------------------------------------------------------------- kernels


@kernel
def _sums_between(values, centre, order, edges, out):
    """Write, for each edge, the sum of the centred values from the edge before it up to it."""
    for j in range(1, edges.size):
        for p in range(edges[j - 1], edges[j]):
            row = order[p]
            for k in range(values.shape[1]):
                out[j, k] += values[row, k] - centre[k]


@kernel
def _carried(c, end, at, indptr, indices, data, firing, absorbs_first, lowest, weight):
    """Count the rows, given as CSR, on which some firing absorber of concept c carries enough of its direction."""
    count = 0
    for r in range(at.size):
        total, most = 0.0, -np.inf
        for j in range(indptr[r], indptr[r + 1]):
            f = indices[j]
            part = data[j] * weight[f]
            total += part
            if part > most:
                lo, hi = absorbs_first[f], absorbs_first[f + 1]
                lo = place(lowest, lo, hi, c)
                if lo < hi and lowest[lo] < end and fires_at(f, at[r], firing):
                    most = part
        count += total > 0 and most >= CARRIED * total
    return count
