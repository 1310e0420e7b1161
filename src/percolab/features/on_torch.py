"""On a GPU: codes, packed and matched there to the same integers as by the compiled kernels; and k-means.

Nothing imports this module until codes on a device are given, or k-means on one is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.bits import WORD, words_for
from percolab.features.codes import DeviceCodes, refuse
from percolab.features.concepts import ConceptIntervals
from percolab.features.counting import Matches, complete
from percolab.features.firing import Firing
from percolab.ground.arrays import Floats, Ints

DEVICE_BYTES = {"cpu": 1 << 26, "cuda": 1 << 31}
"""Memory for one block of features: 8 bytes per cell where bits are packed, 64 per concept for ranks and scores."""


class TorchCodes(DeviceCodes):
    """A dense tensor, on any device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.shape = (tensor.shape[0], tensor.shape[1])
        self.device = tensor.device

    def take(self, rows: Ints | slice) -> Any:
        """Return some rows on the CPU, as a CSR array: of sparse codes little is then moved."""
        import scipy.sparse

        block = self.tensor[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.device)]
        row, column = torch.nonzero(block, as_tuple=True)
        parts = (block[row, column].double(), column, torch.bincount(row, minlength=len(block)).cumsum(0))
        data, indices, ends = (part.cpu().numpy() for part in parts)
        return scipy.sparse.csr_array((data, indices, np.concatenate([[0], ends])), shape=(len(block), block.shape[1]))

    def squared_rest(self, directions: Floats, bias: Floats, values: NDArray[Any]) -> float:
        """Return Σ|values - codes @ directions - bias|², in float64, on the device."""
        vectors, offset = (torch.from_numpy(part).to(self.device) for part in (directions, bias))
        total = 0.0
        for part in self.row_slices():
            block = torch.from_numpy(np.require(values[part], requirements=("C", "W"))).to(self.device).double()
            total += float((block - self.tensor[part].double() @ vectors - offset).square().sum())
        return total

    def packed(self, order: Ints, threshold: Floats) -> Iterator[NDArray[np.uint64]]:
        """Yield the bits of firing rows, in leaf order, by blocks of features."""
        self._check()
        for _, words in self._words(order, threshold, 8 * order.size):
            # From page-locked memory the device copies at its own speed, some ten times that of other memory.
            held = torch.empty(words.shape, dtype=words.dtype, pin_memory=self.device.type == "cuda").copy_(words)
            yield held.numpy().view(np.uint64)

    def match(self, firing: Firing, truth: ConceptIntervals, threshold: Floats) -> Matches:
        """Return the best feature of every concept and the best concept of every feature."""
        concepts, edges = truth.concepts, truth.edges
        at, start, stop = (self._place(index) for index in (edges.edges, edges.start, edges.stop))
        size, counted, fired = (self._place(values) for values in (concepts.size, concepts.summarised, firing.fired))
        f1 = torch.zeros(len(concepts), dtype=torch.float64, device=self.device)
        feature = torch.full((len(concepts),), -1, device=self.device)
        matched: list[tuple[torch.Tensor, ...]] = []
        for lo, words in self._words(truth.order, threshold, max(8 * truth.order.size, 64 * len(concepts))):
            below = _ranks(words, at)
            hits, either = below[:, stop] - below[:, start], fired[lo : lo + len(words), None] + size
            scores = 2.0 * hits.double() / either
            best, which = _first_best(scores, 0)
            feature = torch.where(best > f1, lo + which, feature)
            f1 = torch.maximum(f1, best)
            best_of_feature, concept = _first_best(scores, 1)
            pure = torch.where(counted, scores, 0.0).amax(1)
            matched.append((torch.where(best_of_feature > 0, concept, -1), best_of_feature, pure))
        columns = (torch.cat(column).cpu().numpy() for column in zip(*matched, strict=True))
        return complete(firing, concepts, feature.cpu().numpy(), f1.cpu().numpy(), *columns)

    def _place(self, values: NDArray[Any]) -> torch.Tensor:
        wide = values if values.dtype == np.bool_ else values.astype(np.int64)
        return torch.from_numpy(wide).to(self.device)

    def _check(self) -> None:
        """Refuse codes that are negative or not finite; NaN is passed on by both extremes."""
        if bool((self.tensor.amin() >= 0) & (self.tensor.amax() < torch.inf)):
            return
        for part in self.row_slices():
            block = self.tensor[part]
            bad = torch.nonzero(~((block >= 0) & (block < torch.inf)))
            if len(bad):
                row, column = bad[0].tolist()
                refuse(block[row, column].item(), part.start + row, column)

    def _words(self, order: Ints, threshold: Floats, per_feature: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield where a block of features starts, and its bits (features, words), as int64, the last bit the sign."""
        rows, limit = self._place(order), torch.from_numpy(threshold).to(self.device)
        width = max(1, DEVICE_BYTES.get(self.device.type, 1 << 28) // per_feature)
        place = torch.arange(8, dtype=torch.uint8, device=self.device)[:, None]
        for lo in range(0, self.shape[1], width):
            fires = (self.tensor[:, lo : lo + width] > limit[lo : lo + width])[rows]
            padded = torch.zeros(words_for(order.size) * WORD, fires.shape[1], dtype=torch.uint8, device=self.device)
            padded[: order.size] = fires
            # Bytes first: then an eighth is left to transpose. Each bit is in one term, so the sum is their union.
            octets = (padded.view(-1, 8, fires.shape[1]) << place).sum(1, dtype=torch.uint8)
            yield lo, octets.T.clone(memory_format=torch.contiguous_format).view(torch.int64)


def _ranks(words: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """Return, for each row of bits and each edge, how many bits are below it."""
    before = torch.nn.functional.pad(_ones(words).cumsum(1), (1, 0))
    word, bit = edges // WORD, edges % WORD
    inside = words[:, word.clamp(max=words.shape[1] - 1)] & ((1 << bit) - 1)  # no bit, where the edge is the very end
    return before[:, word] + _ones(inside)


def _ones(words: torch.Tensor) -> torch.Tensor:
    """Return the number of ones in each word, summed by 2, 4, 8 bits; masks take away what shifts copy of the sign."""
    pairs = words - ((words >> 1) & 0x5555555555555555)
    fours = (pairs & 0x3333333333333333) + ((pairs >> 2) & 0x3333333333333333)
    eights = (fours + (fours >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (eights * 0x0101010101010101) >> 56


def _first_best(scores: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest score along an axis and the lowest index that has it."""
    best = scores.amax(axis)
    index = torch.arange(scores.shape[axis], device=scores.device).unsqueeze(1 - axis)
    return best, torch.where(scores == best.unsqueeze(axis), index, scores.shape[axis]).amin(axis)


# ---------------------------------------------------------------------- k-means
#
# k-means, for which scikit-learn does not use a GPU: k-means++ (Arthur and Vassilvitskii 2007), then Lloyd's steps.
# The same seed gives the same clusters on the same machine.


DISTANCES = 1 << 28
"""Distances that are held at once."""
TOLERANCE = 1e-4
"""Steps end when centres have moved by less than this share of the variance of the rows, as in scikit-learn."""


def as_rows(activations: Any, device: torch.device) -> torch.Tensor:
    """Return activations, an array or a tensor, as a tensor on the device, float32."""
    values = activations if isinstance(activations, torch.Tensor) else np.require(activations, requirements="W")
    return torch.as_tensor(values).detach().to(device, torch.float32)


def fit_centres(values: torch.Tensor, n_clusters: int, seed: int, iterations: int) -> torch.Tensor:
    """Return (clusters, d) centres of rows (n, d)."""
    mean = values.mean(0)
    rows = values - mean  # distances from products lose digits to a large mean
    generator = torch.Generator(values.device).manual_seed(seed)
    centres = plus_plus(rows, n_clusters, generator)
    limit = TOLERANCE * float(rows.var(0, correction=0).mean())
    for _ in range(iterations):
        moved = _means(rows, nearest(rows, centres)[:, 0], centres)
        shift = float((moved - centres).square().sum())
        centres = moved
        if shift <= limit:
            break
    return centres + mean


def plus_plus(rows: torch.Tensor, n_clusters: int, generator: torch.Generator) -> torch.Tensor:
    """Return rows as first centres, each drawn by its squared distance from the nearest one before it."""
    chosen = torch.empty(n_clusters, dtype=torch.int64, device=rows.device)
    chosen[0] = torch.randint(len(rows), (), generator=generator, device=rows.device)
    distance = torch.full((len(rows),), torch.inf, device=rows.device)
    draws = torch.rand(n_clusters, generator=generator, device=rows.device, dtype=torch.float64)
    for i in range(1, n_clusters):
        distance = torch.minimum(distance, (rows - rows[chosen[i - 1]]).square().sum(1))
        total = distance.double().cumsum(0)
        chosen[i] = torch.searchsorted(total, draws[i] * total[-1]).clamp(max=len(rows) - 1)
    return rows[chosen]


def nearest(rows: torch.Tensor, centres: torch.Tensor, k: int = 1) -> torch.Tensor:
    """Return (n, k) the nearest centres of each row; of one, the lowest of equals."""
    squares = centres.square().sum(1)
    step = max(1, DISTANCES // len(centres))
    distances = (torch.addmm(squares, part, centres.T, alpha=-2) for part in rows.split(step))
    if k == 1:
        return torch.cat([part.argmin(1, keepdim=True) for part in distances])
    return torch.cat([part.topk(k, largest=False).indices for part in distances])


def _means(rows: torch.Tensor, cluster: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return the mean of each cluster's rows, and the centre as it is where there are none.

    Sums over sorted rows are the same every time, unlike sums that many threads add to.
    """
    counts = torch.bincount(cluster, minlength=len(centres))
    sums = torch.segment_reduce(rows[cluster.argsort(stable=True)], "sum", lengths=counts)
    return torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
