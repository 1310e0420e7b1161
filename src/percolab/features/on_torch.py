"""Codes on a GPU: packed and matched there, to the same integers as by the compiled kernels.

The one module of this room that imports torch; nothing imports it until codes on a device are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.bits import WORD, words_for
from percolab.features.codes import DeviceCodes, refuse
from percolab.features.counting import Matches, complete
from percolab.features.firing import Firing
from percolab.features.truth import Truth

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BLOCK_BYTES = {"cpu": 1 << 26, "cuda": 1 << 31}
"""Memory for one block of features: 8 bytes a cell where bits are packed, and for counts and scores."""


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
            block = torch.from_numpy(np.ascontiguousarray(values[part])).to(self.device).double()
            total += float((block - self.tensor[part].double() @ vectors - offset).square().sum())
        return total

    def packed(self, order: Ints, threshold: Floats) -> Iterator[NDArray[np.uint64]]:
        """Yield the bits of firing rows, in leaf order, by blocks of features."""
        n_words = words_for(order.size)
        shift = torch.arange(WORD, device=self.device)
        for _, fires in self._firing(order, threshold, 8 * WORD * n_words):
            padded = torch.zeros(n_words * WORD, fires.shape[1], dtype=torch.int64, device=self.device)
            padded[: order.size] = fires
            # Each bit is set in one term, so the sum is their union, the sign bit included.
            words = (padded.view(n_words, WORD, -1) << shift[None, :, None]).sum(1)
            yield np.ascontiguousarray(words.T.cpu().numpy()).view(np.uint64)

    def match(self, firing: Firing, truth: Truth, threshold: Floats) -> Matches:
        """Return the best feature of every concept and the best concept of every feature."""
        concepts, edges = truth.concepts, truth.edges
        at, start, stop = (self._place(index) for index in (edges.edges, edges.start, edges.stop))
        size, counted = self._place(concepts.size), self._place(concepts.summarised)
        f1 = torch.zeros(len(concepts), dtype=torch.float64, device=self.device)
        feature = torch.full((len(concepts),), -1, device=self.device)
        found: list[tuple[torch.Tensor, ...]] = []
        per_feature = max(8 * truth.rows.size, 24 * len(concepts))
        for lo, fires in self._firing(truth.order, threshold, per_feature):
            below = torch.zeros(len(fires) + 1, fires.shape[1], dtype=torch.int32, device=self.device)
            torch.cumsum(fires, 0, dtype=torch.int32, out=below[1:])
            fired, below = below[-1], below[at]
            scores = 2.0 * (below[stop] - below[start]).double() / (fired[None, :] + size[:, None])
            best, which = _first_best(scores, 1)
            feature = torch.where(best > f1, lo + which, feature)
            f1 = torch.maximum(f1, best)
            own, concept = _first_best(scores, 0)
            pure = torch.where(counted[:, None], scores, 0.0).amax(0)
            found.append((torch.where(own > 0, concept, -1), own, pure))
        columns = (torch.cat(column).cpu().numpy() for column in zip(*found, strict=True))
        return complete(firing, concepts, feature.cpu().numpy(), f1.cpu().numpy(), *columns)

    def _place(self, values: NDArray[Any]) -> torch.Tensor:
        wide = values if values.dtype == np.bool_ else values.astype(np.int64)
        return torch.from_numpy(wide).to(self.device)

    def _firing(self, order: Ints, threshold: Floats, per_feature: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield where a block of features starts, and which of the rows, in leaf order, each fires on."""
        rows, limit = torch.from_numpy(order).to(self.device), torch.from_numpy(threshold).to(self.device)
        width = max(1, BLOCK_BYTES.get(self.device.type, 1 << 28) // per_feature)
        for lo in range(0, self.shape[1], width):
            values = self.tensor[:, lo : lo + width]
            bad = ~((values >= 0) & (values < torch.inf))
            if bool(bad.any()):
                row, column = torch.nonzero(bad)[0].tolist()
                refuse(values[row, column].item(), row, lo + column)
            yield lo, values[rows] > limit[lo : lo + width]


def _first_best(scores: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest score along an axis and the lowest index that has it."""
    best = scores.amax(axis)
    index = torch.arange(scores.shape[axis], device=scores.device).unsqueeze(1 - axis)
    return best, torch.where(scores == best.unsqueeze(axis), index, scores.shape[axis]).amin(axis)
