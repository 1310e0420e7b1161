"""Pairs of sibling concepts, and how well activations tell one from the other.

A pair is the two children of a latent, both with enough rows. The rows of each are an interval in leaf order, so
sums over them are differences of running sums at the ends of the intervals: one pass over the activations serves all
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.concepts import rows_below
from percolab.model.forest import Forest

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHUNK_ROWS = {"cpu": 1 << 13, "cuda": 1 << 16}
"""Rows of activations that are in float64 at a time."""
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
class Sums:
    """Means and spreads of both siblings of each pair, on the device of the activations, in float64."""

    left_mean: torch.Tensor
    """(P, w), less the centre"""
    right_mean: torch.Tensor
    """(P, w), less the centre"""
    left_spread: torch.Tensor
    """(P,) mean squared distance from the mean, summed over columns"""
    right_spread: torch.Tensor
    """(P,)"""
    centre: torch.Tensor
    """(w,) what is taken off all activations"""


def sums(A: torch.Tensor, pairs: Siblings, used: Ints | None = None) -> Sums:
    """Return means and spreads of the siblings of every pair.

    Parameters
    ----------
    A
        (n, w) activations by sample.
    pairs
        From `find_siblings`.
    used
        Samples that count; None: all. A sibling without any has NaN.
    """
    device = A.device
    order = pairs.order if used is None else pairs.order[np.isin(pairs.order, used)]
    ends = np.stack([pairs.start, pairs.middle, pairs.stop])
    if used is not None:
        before = np.concatenate([[0], np.cumsum(np.isin(pairs.order, used))])
        ends = before[ends]
    edges, place = np.unique(ends, return_inverse=True)
    bins = torch.from_numpy(np.searchsorted(edges, np.arange(order.size), side="right")).to(device)
    rows = torch.from_numpy(order).to(device)
    centre = A[rows[:: max(1, len(rows) // 4096)]].double().mean(0)
    total = torch.zeros(edges.size + 1, A.shape[1], dtype=torch.float64, device=device)
    square = torch.zeros(edges.size + 1, dtype=torch.float64, device=device)
    step = CHUNK_ROWS[device.type]
    for part, bin_of in zip(rows.split(step), bins.split(step), strict=True):
        a = A[part].double() - centre
        total.index_add_(0, bin_of, a)
        square.index_add_(0, bin_of, (a * a).sum(1))
    total, square = total.cumsum(0), square.cumsum(0)
    at = torch.from_numpy(place.reshape(ends.shape)).to(device)
    counts = torch.from_numpy(np.diff(ends, axis=0)).to(device).double()
    means, spreads = [], []
    for side in range(2):
        n = counts[side]
        mean = (total[at[side + 1]] - total[at[side]]) / n[:, None]
        means.append(mean)
        spreads.append(((square[at[side + 1]] - square[at[side]]) / n - (mean * mean).sum(1)).clamp(min=0))
    return Sums(means[0], means[1], spreads[0], spreads[1], centre)


def separation(found: Sums) -> Floats:
    """Return, for each pair, the squared distance of the siblings' means over their summed variances."""
    distance = ((found.left_mean - found.right_mean) ** 2).sum(1)
    result: Floats = (distance / (found.left_spread + found.right_spread)).cpu().numpy()
    return result


# ---------------------------------------------------------------------- a linear reading


def reading_accuracy(A: torch.Tensor, pairs: Siblings, fit: Ints, held_out: Ints) -> Floats:
    """Return, for each pair, how often a linear reading tells held-out samples of the two apart; chance is 0.5.

    The reading is the discriminant Σ⁻¹ (m_left - m_right) with the threshold half way between the means m, all from the
    samples of `fit`; Σ is the covariance of all of them. The accuracy is the mean of those of the two siblings. NaN
    where one has no sample in either part.
    """
    found = sums(A, pairs, fit)
    fit_rows = torch.from_numpy(fit).to(A.device)
    covariance = _covariance(A, fit_rows, found.centre)
    difference = found.left_mean - found.right_mean
    weight = torch.cholesky_solve(difference.nan_to_num().T, torch.linalg.cholesky(covariance))
    threshold = ((found.left_mean + found.right_mean).nan_to_num() / 2 * weight.T).sum(1)
    return _scored(A, pairs, held_out, weight, threshold, found)


def _covariance(A: torch.Tensor, rows: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """Return the covariance of some rows, with a small multiple of its mean diagonal added."""
    gram = torch.zeros(A.shape[1], A.shape[1], dtype=torch.float64, device=A.device)
    total = torch.zeros_like(centre)
    for part in rows.split(CHUNK_ROWS[A.device.type]):
        a = A[part].double() - centre
        gram.addmm_(a.T, a)
        total += a.sum(0)
    mean = total / len(rows)
    covariance = gram / len(rows) - torch.outer(mean, mean)
    covariance.diagonal().add_(SHRINKAGE * covariance.diagonal().mean() + 1e-12)
    return covariance


def _scored(
    A: torch.Tensor, pairs: Siblings, held_out: Ints, weight: torch.Tensor, threshold: torch.Tensor, found: Sums
) -> Floats:
    """Return balanced accuracies: right counts of each side by running sums over the held-out samples."""
    inside = np.isin(pairs.order, held_out)
    order, before = pairs.order[inside], np.concatenate([[0], np.cumsum(inside)])
    ends = torch.from_numpy(before[np.stack([pairs.start, pairs.middle, pairs.stop])]).to(A.device)
    rows = torch.from_numpy(order).to(A.device)
    weight32, threshold32 = weight.float(), threshold.float()
    counts = torch.zeros(len(rows) + 1, len(pairs), dtype=torch.int32, device=A.device)
    first = 1
    for part in rows.split(CHUNK_ROWS[A.device.type]):
        side = (A[part] - found.centre.float()) @ weight32 > threshold32
        counts[first : first + len(part)] = side
        first += len(part)
    counts = counts.cumsum(0, dtype=torch.int32)
    column = torch.arange(len(pairs), device=A.device)
    lefts = [counts[ends[i + 1], column] - counts[ends[i], column] for i in range(2)]
    sizes = [(ends[i + 1] - ends[i]).double() for i in range(2)]
    accuracy = (lefts[0] / sizes[0] + 1 - lefts[1] / sizes[1]) / 2
    accuracy[~torch.isfinite(found.left_spread + found.right_spread)] = torch.nan
    result: Floats = accuracy.double().cpu().numpy()
    return result
