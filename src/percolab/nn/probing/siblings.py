"""Pairs of groups of samples, such as sibling concepts, and how well activations tell one group from the other.

Every sample has a label, and a group is an interval of labels: in a forest, rows below a latent; in a corpus, contexts
inside a context. Sorted by label the samples of a group are an interval, so sums over them are differences of running
sums at the ends of the intervals: one pass over the activations serves all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.concepts import Labels, by_row
from percolab.ground.arrays import Floats, Ints
from percolab.model.forest import Forest
from percolab.nn.probing.ridge import CHUNK_ROWS, NormalEquations, blocks, take

SHRINKAGE = 1e-3  #: Share of the mean diagonal that is added to a covariance before a solve.


@dataclass(frozen=True, eq=False)
class Siblings:
    """Pairs of siblings over the given samples, by position: a sample's place in leaf order."""

    order: Ints  #: (n,) sample at each position
    start: Ints  #: (P,) first position of the left sibling
    middle: Ints  #: (P,) first position of the right sibling
    stop: Ints  #: (P,) one past the last position of the right sibling
    parent: Ints  #: (P,) the latent whose children they are
    depth: Ints  #: (P,) depth of the siblings
    fom: Floats  #: (P,) figure of merit of the smaller sibling

    def __len__(self) -> int:
        return self.parent.size

    @property
    def sizes(self) -> tuple[Ints, Ints]:
        """(P,) samples of the left and of the right sibling."""
        return self.middle - self.start, self.stop - self.middle

    @property
    def size(self) -> Ints:
        """(P,) samples of the smaller sibling."""
        return np.minimum(*self.sizes)

    @property
    def place(self) -> Ints:
        """(P,) first position of the smaller sibling: pairs whose places are near are kin."""
        left, right = self.sizes
        return np.where(left <= right, self.start, self.middle)


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
        If there are more pairs, take this many, evenly spread by the size of the smaller sibling.
    """
    below = by_row(forest, rows).below
    start, stop = forest.latent_start, forest.latent_start + forest.latent_size
    first, middle, last = below[start], below[start + forest.left_size], below[stop]
    smaller = np.minimum(middle - first, last - middle)
    parent = choose(smaller, min_size, most)
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


def choose(size: Ints, min_size: int, most: int | None = None) -> Ints:
    """Return the units of at least `min_size` samples; at most `most` of them, evenly spread by size."""
    chosen = np.flatnonzero(size >= min_size)
    if most is not None and chosen.size > most:
        by_size = chosen[np.argsort(size[chosen], kind="stable")]
        chosen = np.sort(by_size[np.linspace(0, chosen.size - 1, most).astype(np.int64)])
    return chosen


# ---------------------------------------------------------------------- pairs of groups


def sibling_groups(labels: Labels) -> tuple[Ints, Ints]:
    """Return all pairs of siblings as intervals of labels (2, 2, P), for `group_pairs`, and the latent above each pair.

    Siblings are the two children of a latent; in documents, any two contexts with the same nearest context above.
    """
    forest, first, stop = labels.forest, labels.first, labels.stop
    if labels.contexts is None:
        middle = first + forest.left_size
        return np.array([[first, middle], [middle, stop]]), np.arange(forest.n_latents)
    above = forest.nearest_above(labels.contexts)
    alike = (labels.contexts[above == parent] for parent in np.unique(above[above >= 0]))
    pairs = np.array([pair for group in alike for pair in combinations(group, 2)], np.int64).reshape(-1, 2)
    left, right = pairs.T
    bounds = np.array([[first[left], stop[left]], [first[right], stop[right]]])
    return bounds, above[np.searchsorted(labels.contexts, left)]


@dataclass(frozen=True, eq=False)
class Ready:
    """Pairs of groups and the samples used, on a device: made once, for many activations."""

    rows: Ints  #: (m,) samples that count, sorted by label
    ends: Ints  #: (2, 2, P) of the left and of the right group, first place in `rows` and one past the last
    counts: torch.Tensor  #: (2, P) samples of the left and of the right group, float64

    @cached_property
    def steps(self) -> tuple[Ints, torch.Tensor, torch.Tensor]:
        """Samples in increasing order, how many ends are at or before each, and (2, 2, P) which end is which."""
        edges, at = np.unique(self.ends, return_inverse=True)
        order, device = np.argsort(self.rows), self.counts.device
        before = torch.from_numpy(np.searchsorted(edges, order, side="right")).to(device)
        return self.rows[order], before, torch.from_numpy(at.reshape(self.ends.shape)).to(device)


def group_pairs(labels: Ints, bounds: Ints, device: torch.device, used: NDArray[np.bool_] | None = None) -> Ready:
    """Put pairs of groups on a device. Time O(n log n + P log n) for n samples.

    Parameters
    ----------
    labels
        (n,) the integer label of each sample; a label outside all groups, such as -1, for samples of no group.
    bounds
        (2, 2, P) of the left and of the right group of each pair, the first label and one past the last.
    device
        Where to compute.
    used
        (n,) which samples count; None: all.
    """
    order = np.argsort(labels, kind="stable")
    rows = order if used is None else order[used[order]]
    ends = np.searchsorted(labels[rows], bounds)
    return Ready(rows, ends, torch.from_numpy(ends[:, 1] - ends[:, 0]).to(device, torch.float64))


def ready(pairs: Siblings, device: torch.device, used: NDArray[np.bool_] | None = None) -> Ready:
    """Put pairs of siblings on a device, with all samples or those of a mask (n,)."""
    position = np.empty_like(pairs.order)
    position[pairs.order] = np.arange(position.size)
    bounds = np.stack([[pairs.start, pairs.middle], [pairs.middle, pairs.stop]])
    return group_pairs(position, bounds, device, used)


@dataclass(frozen=True, eq=False)
class Sums:
    """Means and spreads of both groups of each pair, on the device, in float64."""

    #: (2, P, w) of the left and of the right group, less the centre; NaN where there are no samples
    means: torch.Tensor
    spreads: torch.Tensor  #: (2, P) mean squared distance from the mean, summed over columns
    centre: torch.Tensor  #: (w,) the centre that is subtracted from all activations


def sums(A: Any, pairs: Ready) -> Sums:
    """Return means and spreads of both groups of every pair, from activations (n, w) by sample.

    Time O(n w), and O(P w) for P pairs, whatever their sizes.
    """
    device = pairs.counts.device
    centre, (rows, before, at) = _centre(A, pairs.rows, device), pairs.steps
    running = centre.new_zeros(int(at.max()) + 2, len(centre) + 1)
    step = CHUNK_ROWS[device.type]
    for bins, (_, a) in zip(before.split(step), blocks(A, rows, device), strict=True):
        a -= centre
        running.index_add_(0, bins, torch.column_stack([a, a.square().sum(1)]))
    running = running.cumsum(0)
    first, last = at.unbind(1)
    moments = (running[last] - running[first]) / pairs.counts[..., None]
    means = moments[..., :-1]
    return Sums(means, (moments[..., -1] - means.square().sum(-1)).clamp(min=0), centre)


def _centre(A: Any, rows: Ints, device: torch.device) -> torch.Tensor:
    """Return the mean of some of the rows: moments about a point near the data lose no digits to a large mean."""
    some = max(1, -(-rows.size // CHUNK_ROWS[device.type]))
    return take("activations", A, rows[::some], device).mean(0)


def separation(moments: Sums) -> Floats:
    """Return, for each pair, the squared distance of the groups' means over their summed variances."""
    distance = ((moments.means[0] - moments.means[1]) ** 2).sum(1)
    return (distance / moments.spreads.sum(0)).cpu().numpy()


# ---------------------------------------------------------------------- a linear reading


def solver(A: Any, pairs: Ready) -> torch.Tensor:
    """Return `covariance_factor` of the samples of pairs."""
    return covariance_factor(A, pairs.rows, pairs.counts.device)


def covariance_factor(A: Any, rows: Ints, device: torch.device) -> torch.Tensor:
    """Return the Cholesky factor of the covariance of some rows, plus a small multiple of its mean diagonal."""
    equations = NormalEquations(_centre(A, rows, device), 0)
    for _, a in blocks(A, np.sort(rows), device):
        equations.add(a, a[:, :0])
    covariance = equations.covariance()
    covariance.diagonal().add_(SHRINKAGE * covariance.diagonal().mean() + 1e-12)
    return torch.linalg.cholesky(covariance)


def reading_accuracy(A: Any, factor: torch.Tensor, fit: Ready, held_out: Ready) -> Floats:
    """Return, for each pair, how often a linear reading tells its held-out samples apart; chance is 0.5.

    The reading is the discriminant Σ⁻¹ (m_left - m_right) with the threshold half way between the means m. The accuracy
    is the mean of the accuracies of the two groups; NaN where one has no sample in either part. A block of samples is
    read only for the pairs that have samples in it.

    Parameters
    ----------
    A
        (n, w) activations by sample.
    factor
        Of Σ, the covariance of the samples fitted: see `solver`.
    fit, held_out
        The same pairs over the samples that the reading is fitted to, and over the samples that it is scored on.
    """
    moments, device = sums(A, fit), factor.device
    left, right = moments.means
    weight = torch.cholesky_solve((left - right).nan_to_num().T, factor)
    bound = ((left + right).nan_to_num() / 2 * weight.T).sum(1).float()
    direction, lefts = weight.T.float(), torch.zeros_like(held_out.counts)
    begin, end, step = held_out.ends[:, 0].min(0), held_out.ends[:, 1].max(0), CHUNK_ROWS[device.type]
    for first in range(0, held_out.rows.size, step):
        rows = held_out.rows[first : first + step]
        near = np.flatnonzero((begin < first + rows.size) & (end > first))
        at = torch.from_numpy((held_out.ends[:, :, near] - first).clip(0, rows.size)).to(device)
        pair, a = torch.from_numpy(near).to(device), take("activations", A, rows, device) - moments.centre
        # Sum along the contiguous dimension: across it, a GPU would add row after row.
        running = (direction[pair] @ a.float().T > bound[pair, None]).cumsum(1, dtype=torch.int32)
        taken = torch.nn.functional.pad(running, (1, 0)).gather(1, at.view(4, -1).T)
        lefts[:, pair] += (taken[:, 1::2] - taken[:, ::2]).T
    share = lefts / held_out.counts
    accuracy = (share[0] + 1 - share[1]) / 2
    accuracy[~torch.isfinite(moments.spreads.sum(0))] = torch.nan
    return accuracy.cpu().numpy()
