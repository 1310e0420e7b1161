"""Pairs of sibling concepts, and how well activations tell one from the other.

A pair is the two children of a latent, both with enough rows. The rows of each are an interval in leaf order, so
sums over them are differences of running sums at the ends of the intervals: one pass over the activations serves all
pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.concepts import rows_below
from percolab.model.forest import Forest
from percolab.nn.probing.ridge import CHUNK_ROWS

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHRINKAGE = 1e-3
"""What is added to the diagonal of a covariance, as a share of its mean, before it is solved with."""


@dataclass(frozen=True, eq=False)
class Siblings:
    """Pairs of siblings over the samples that are there, by position: their place when sorted in leaf order."""

    order: Ints
    """(n,) sample at each position"""
    start: Ints
    """(P,) first position of the left sibling"""
    middle: Ints
    """(P,) first position of the right sibling"""
    stop: Ints
    """(P,) one past the last position of the right sibling"""
    parent: Ints
    """(P,) the latent whose children they are"""
    depth: Ints
    """(P,) depth of the siblings"""
    fom: Floats
    """(P,) figure of merit of the smaller sibling"""

    def __len__(self) -> int:
        return self.parent.size

    @property
    def sizes(self) -> tuple[Ints, Ints]:
        """(P,) samples of the left and of the right sibling."""
        return self.middle - self.start, self.stop - self.middle

    @property
    def size(self) -> Ints:
        """(P,) samples of the smaller sibling."""
        smaller: Ints = np.minimum(*self.sizes)
        return smaller

    @property
    def place(self) -> Ints:
        """(P,) first position of the smaller sibling: pairs whose places are near are kin."""
        left, right = self.sizes
        return np.where(left <= right, self.start, self.middle)

    def take(self, chosen: Ints) -> Siblings:
        """Return some of the pairs."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return Siblings(**{name: value if name == "order" else value[chosen] for name, value in columns.items()})


def find_siblings(forest: Forest, rows: Ints, min_size: int, most: int | None = None) -> Siblings:
    """Return the pairs of siblings that both have at least `min_size` samples.

    Parameters
    ----------
    forest
        The hierarchy.
    rows
        (n,) the row of each sample; repeats count.
    min_size
        Fewest samples of a sibling, at least 2.
    most
        Of more pairs than this, take so many, evenly spread by the size of the smaller sibling.
    """
    below = rows_below(forest, rows)
    start, stop = forest.latent_start, forest.latent_start + forest.latent_size
    first, middle, last = below[start], below[start + forest.left_size], below[stop]
    smaller = np.minimum(middle - first, last - middle)
    parent = np.flatnonzero(smaller >= min_size)
    if most is not None and parent.size > most:
        by_size = parent[np.argsort(smaller[parent], kind="stable")]
        parent = np.sort(by_size[np.linspace(0, parent.size - 1, most).astype(np.int64)])
    cluster = forest.cluster_size[forest.latent_cluster[parent]]
    return Siblings(
        order=np.argsort(rows, kind="stable"),
        start=first[parent],
        middle=middle[parent],
        stop=last[parent],
        parent=parent,
        depth=forest.latent_depth[parent] + 1,
        fom=smaller[parent] / np.sqrt(cluster),
    )


# ---------------------------------------------------------------------- sums over intervals


@dataclass(frozen=True, eq=False)
class Ready:
    """Pairs, and the samples of them that count, on a device: made once, for many activations."""

    rows: torch.Tensor
    """(m,) samples that count, in leaf order"""
    bins: torch.Tensor
    """(m,) number of ends of siblings, out of all E, that are at the sample or before it"""
    n_ends: int
    """E"""
    at: torch.Tensor
    """(3, P) which end is the start, the middle and the stop of each pair"""
    counts: torch.Tensor
    """(2, P) samples of the left and of the right sibling, float64"""

    def running(self, values: Callable[[torch.Tensor], torch.Tensor], columns: int) -> torch.Tensor:
        """Return sums over all samples before each end, (E + 1, columns) in float64.

        `values` gives what is summed, (c, columns), of c samples: it is asked for `CHUNK_ROWS` of them at a time.
        """
        sums = torch.zeros(self.n_ends + 1, columns, dtype=torch.float64, device=self.rows.device)
        step = CHUNK_ROWS[self.rows.device.type]
        for rows, bins in zip(self.rows.split(step), self.bins.split(step), strict=True):
            sums.index_add_(0, bins, values(rows).double())
        return sums.cumsum(0)


def ready(pairs: Siblings, device: torch.device, used: NDArray[np.bool_] | None = None) -> Ready:
    """Put pairs on a device, with all samples or those of a mask (n,)."""
    kept = np.ones(pairs.order.size, np.bool_) if used is None else used[pairs.order]
    before = np.concatenate([[0], np.cumsum(kept)])
    ends = before[np.stack([pairs.start, pairs.middle, pairs.stop])]
    edges, place = np.unique(ends, return_inverse=True)
    m = int(before[-1])
    return Ready(
        rows=torch.from_numpy(pairs.order[kept]).to(device),
        bins=torch.from_numpy(np.searchsorted(edges, np.arange(m), side="right")).to(device),
        n_ends=edges.size,
        at=torch.from_numpy(place.reshape(ends.shape)).to(device),
        counts=torch.from_numpy(np.diff(ends, axis=0)).to(device).double(),
    )


@dataclass(frozen=True, eq=False)
class Sums:
    """Means and spreads of both siblings of each pair, on the device of the activations, in float64."""

    means: torch.Tensor
    """(2, P, w) of the left and of the right sibling, less the centre; NaN where there are no samples"""
    spreads: torch.Tensor
    """(2, P) mean squared distance from the mean, summed over columns"""
    centre: torch.Tensor
    """(w,) what is taken off all activations"""


def sums(A: torch.Tensor, pairs: Ready) -> Sums:
    """Return means and spreads of the siblings of every pair, from activations (n, w) by sample."""
    centre = _centre(A, pairs.rows)

    def moments(rows: torch.Tensor) -> torch.Tensor:
        a = A[rows].double() - centre
        return torch.column_stack([a, a.square().sum(1)])

    running = pairs.running(moments, len(centre) + 1)
    total, square = running[:, :-1], running[:, -1]
    means, spreads = [], []
    for side in range(2):
        lo, hi, n = pairs.at[side], pairs.at[side + 1], pairs.counts[side]
        mean = (total[hi] - total[lo]) / n[:, None]
        means.append(mean)
        spreads.append(((square[hi] - square[lo]) / n - (mean * mean).sum(1)).clamp(min=0))
    return Sums(torch.stack(means), torch.stack(spreads), centre)


def _centre(A: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean of some of the rows: moments about a point near the data do not lose digits to a large mean."""
    some = max(1, -(-len(rows) // CHUNK_ROWS[rows.device.type]))
    return A[rows[::some]].double().mean(0)


def separation(found: Sums) -> Floats:
    """Return, for each pair, the squared distance of the siblings' means over their summed variances."""
    distance = ((found.means[0] - found.means[1]) ** 2).sum(1)
    result: Floats = (distance / found.spreads.sum(0)).cpu().numpy()
    return result


# ---------------------------------------------------------------------- a linear reading


def solver(A: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the Cholesky factor of the covariance of some rows, with a small multiple of its mean diagonal added."""
    centre = _centre(A, rows)
    gram = torch.zeros(A.shape[1], A.shape[1], dtype=torch.float64, device=A.device)
    total = torch.zeros_like(centre)
    for part in rows.split(CHUNK_ROWS[A.device.type]):
        a = A[part].double() - centre
        gram.addmm_(a.T, a)
        total += a.sum(0)
    mean = total / len(rows)
    covariance = gram / len(rows) - torch.outer(mean, mean)
    covariance.diagonal().add_(SHRINKAGE * covariance.diagonal().mean() + 1e-12)
    factor: torch.Tensor = torch.linalg.cholesky(covariance)
    return factor


def reading_accuracy(A: torch.Tensor, factor: torch.Tensor, fit: Ready, held_out: Ready) -> Floats:
    """Return, for each pair, how often a linear reading tells held-out samples of the two apart; chance is 0.5.

    The reading is the discriminant Σ⁻¹ (m_left - m_right) with the threshold half way between the means m. The accuracy
    is the mean of those of the two siblings; NaN where one has no sample in either part.

    Parameters
    ----------
    A
        (n, w) activations by sample.
    factor
        Of Σ, the covariance of the samples fitted: see `solver`.
    fit, held_out
        The same pairs with the samples that the reading is fitted to, and those that it is scored on.
    """
    found = sums(A, fit)
    left, right = found.means
    weight = torch.cholesky_solve((left - right).nan_to_num().T, factor)
    threshold = ((left + right).nan_to_num() / 2 * weight.T).sum(1)
    centre, direction, bound = found.centre.float(), weight.float(), threshold.float()
    running = held_out.running(lambda rows: (A[rows] - centre) @ direction > bound, len(bound))
    column = torch.arange(running.shape[1], device=A.device)
    lefts = torch.stack([running[held_out.at[i + 1], column] - running[held_out.at[i], column] for i in range(2)])
    share = lefts / held_out.counts
    accuracy = (share[0] + 1 - share[1]) / 2
    accuracy[~torch.isfinite(found.spreads.sum(0))] = torch.nan
    result: Floats = accuracy.cpu().numpy()
    return result
