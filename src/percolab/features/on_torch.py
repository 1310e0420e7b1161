"""On a GPU: codes, packed there to the same bits as by the compiled kernels; linear methods; and k-means.

This module is imported only when codes or activations on a device are given, or k-means on a device is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray

from percolab.features.bits import WORD, words_for
from percolab.features.codes import DeviceCodes
from percolab.ground.arrays import Floats, Ints
from percolab.ground.devices import on_device

CELLS = 1 << 28  #: Most codes, or distances, computed at once.
DEVICE_BYTES = {"cpu": 1 << 26, "cuda": 1 << 31}  #: Memory for one block of features, 8 bytes per cell.


class TorchCodes(DeviceCodes):
    """A dense tensor, on any device."""

    def take(self, rows: Ints | slice) -> Any:
        """Return some rows on the CPU, as a CSR array: for sparse codes this moves little data."""
        block = self.values[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.values.device)]
        row, column = torch.nonzero(block, as_tuple=True)
        parts = (block[row, column].double(), column, torch.bincount(row, minlength=len(block)).cumsum(0))
        data, indices, ends = (part.cpu().numpy() for part in parts)
        return scipy.sparse.csr_array((data, indices, np.concatenate([[0], ends])), shape=(len(block), block.shape[1]))

    def squared_rest(self, directions: Floats, bias: Floats, values: NDArray[Any]) -> float:
        """Return Σ|values - codes @ directions - bias|², in float64, on the device."""
        vectors, offset = (torch.from_numpy(part).to(self.values.device) for part in (directions, bias))
        total = 0.0
        for part in self.row_slices():
            block = torch.from_numpy(np.require(values[part], requirements=("C", "W"))).to(self.values.device).double()
            total += float((block - self.values[part].double() @ vectors - offset).square().sum())
        return total

    def packed(self, order: Ints, threshold: Floats) -> Iterator[NDArray[np.uint64]]:
        """Yield the bits of firing rows, in leaf order, by blocks of features."""
        device = self.values.device
        if not bool((self.values.amin() >= 0) & (self.values.amax() < torch.inf)):  # false for NaN
            self.refuse()
        rows, limit = (torch.from_numpy(values).to(device) for values in (order, threshold))
        width = max(1, DEVICE_BYTES.get(device.type, 1 << 28) // (8 * order.size))
        place = torch.arange(8, dtype=torch.uint8, device=device)[:, None]
        for lo in range(0, self.shape[1], width):
            fires = (self.values[:, lo : lo + width] > limit[lo : lo + width])[rows]
            padded = torch.zeros(words_for(order.size) * WORD, fires.shape[1], dtype=torch.uint8, device=device)
            padded[: order.size] = fires
            # Bytes first: then an eighth is left to transpose. Each bit is in one term, so the sum is their union.
            octets = (padded.view(-1, 8, fires.shape[1]) << place).sum(1, dtype=torch.uint8)
            words = octets.T.clone(memory_format=torch.contiguous_format).view(torch.int64)
            # The device copies to page-locked memory about ten times as fast as to other memory.
            held = torch.empty(words.shape, dtype=words.dtype, pin_memory=device.type == "cuda").copy_(words)
            yield held.numpy().view(np.uint64)


# ---------------------------------------------------------------------- linear methods
#
# The functions of `methods` and `directions` for tensors, which `inputs.also_on_gpu` calls.


def as_rows(activations: Any, device: torch.device) -> torch.Tensor:
    """Return activations (rows, d), an array or a tensor, as finite numbers on the device, float32."""
    values = activations.detach() if isinstance(activations, torch.Tensor) else np.asarray(activations)
    if values.ndim != 2:
        raise ValueError(f"activations must have shape (rows, d), got {tuple(values.shape)}")
    return on_device("activations", values, device, torch.float32)


def where_they_are(activations: torch.Tensor) -> torch.Tensor:
    """Return `as_rows` on the device of the activations."""
    return as_rows(activations, activations.device)


def in_blocks(values: torch.Tensor, n_features: int, encode: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return the codes that a function gives for all rows, block by block."""
    codes, step = values.new_empty(len(values), n_features), max(1, CELLS // n_features)
    for rows, out in zip(values.split(step), codes.split(step), strict=True):
        out.copy_(encode(rows))
    return codes


def signed_halves(values: torch.Tensor) -> torch.Tensor:
    """Return the positive parts of all columns, then the negative parts."""
    return torch.cat([values.clamp(min=0), (-values).clamp(min=0)], 1)


def largest(values: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k largest positive values of each row, and 0 elsewhere."""
    top = values.clamp(min=0).topk(min(k, values.shape[1]))
    return torch.zeros_like(values).scatter_(1, top.indices, top.values)


def principal_components(values: torch.Tensor, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return components (count, d), the largest entry of each positive as in scikit-learn, and the mean of the rows."""
    mean = values.mean(0, dtype=torch.float64)
    centred = values.double() - mean
    vectors = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :count].T
    vectors = vectors * vectors.gather(1, vectors.abs().argmax(1, keepdim=True)).sign()
    return tuple(part.to(values.dtype).cpu().numpy() for part in (vectors, mean))  # type: ignore[return-value]


def interval_sums(values: torch.Tensor, order: Ints, start: Ints, stop: Ints) -> NDArray[Any]:
    """Return the sum of ``values[order]`` over each interval of positions, in float64 by prefix sums."""
    centre = values.mean(0, dtype=torch.float64)
    ordered = values[torch.from_numpy(order).to(values.device)].double() - centre
    below = torch.nn.functional.pad(ordered.cumsum(0), (0, 0, 1, 0))
    first, last = (torch.from_numpy(edge).to(values.device) for edge in (start, stop))
    return (below[last] - below[first] + (last - first)[:, None] * centre).cpu().numpy()


# ---------------------------------------------------------------------- k-means
#
# k-means, for which scikit-learn does not use a GPU: k-means++ (Arthur and Vassilvitskii 2007), then Lloyd's steps.
# The same seed gives the same clusters on the same machine.


#: Steps end when centres have moved by less than this share of the variance of the rows, as in scikit-learn.
TOLERANCE = 1e-4


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
    """Return (n, k) the nearest centres of each row; for k = 1, the lowest among equals."""
    squares = centres.square().sum(1)
    step = max(1, CELLS // len(centres))
    distances = (torch.addmm(squares, part, centres.T, alpha=-2) for part in rows.split(step))
    if k == 1:
        return torch.cat([part.argmin(1, keepdim=True) for part in distances])
    return torch.cat([part.topk(k, largest=False).indices for part in distances])


def distances(rows: torch.Tensor, centres: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Return (n, k) the distances of each row from its chosen centres."""
    return torch.stack([(rows - centres[at]).norm(dim=1) for at in chosen.T], 1)


def _means(rows: torch.Tensor, cluster: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """Return the mean of each cluster's rows; an empty cluster keeps its centre.

    Sums over sorted rows are reproducible, unlike sums that many threads add to.
    """
    counts = torch.bincount(cluster, minlength=len(centres))
    sums = torch.segment_reduce(rows[cluster.argsort(stable=True)], "sum", lengths=counts)
    return torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], centres)
