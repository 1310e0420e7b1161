"""Sums, means and variances over latents, by prefix sums.

The rows of a latent are an interval, so a sum over them is the difference of two prefix sums. The rows are read once;
sums and sums of squares, both of differences from the first row, are carried in 106 bits, and only the prefix sums at
the ends of intervals are kept. So neither the length of the prefix nor a mean far from zero costs digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.intrinsics import two_product, two_sum
from percolab.ground.validation import listed

if TYPE_CHECKING:
    from percolab.model.forest import Forest


MOMENT_BYTES = 1 << 22  #: Bytes of rows read at a time.
KEPT_BYTES = 1 << 28  #: Most bytes of prefix sums kept at a time: columns are taken in blocks to stay below it.
CARRIED = 4  #: Numbers carried per column: its sum and its sum of squares, each as two doubles.


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums, means and variances of columns over the rows of some latents. (k,) for a single column, else (k, w)."""

    count: Ints  #: (k,) number of rows
    total: Floats  #: sum over the rows
    mean: Floats  #: mean over the rows
    variance: Floats  #: mean squared distance from the mean

    def __repr__(self) -> str:
        columns = 1 if self.total.ndim == 1 else self.total.shape[1]
        return f"Moments({self.count.size:,} latents, {columns:,} column{'' if columns == 1 else 's'})"


def moments(forest: Forest, values: Any, latents: ArrayLike | None = None) -> Moments:
    """Return sums, means and variances of columns over the rows of latents.

    `values` are read in blocks, so they may stay on disk. They are read once, unless the prefix sums at the ends of
    latents take more than 256 MB: then columns are taken in parts. Sums are carried in 106 bits: in 200,000 rows a mean
    is off by less than 3e-16 of the largest value; a variance by less than 1e-11 of itself if all values spread 10,000
    times as much as the values of the latent, and by less than 1e-7 if they spread a million times as much.

    Parameters
    ----------
    values
        (n,) or (n, w) numbers: an array, a tensor, a memory map, a stored or a sparse array.
    latents
        Indices, or a mask; None takes all.
    """
    if not hasattr(values, "shape"):
        values = np.asarray(values)
    shape, n = tuple(values.shape), forest.n_points
    if len(shape) not in (1, 2) or shape[0] != n:
        raise ValueError(f"values must have shape ({n},) or ({n}, w), got {shape}")
    chosen = listed("latents", latents, forest.n_latents)
    ends = np.stack([forest.latent_start[chosen], forest.latent_start[chosen] + forest.latent_size[chosen]])
    edges, place = np.unique(ends, return_inverse=True)
    first, last = place.reshape(ends.shape)
    count = ends[1] - ends[0]
    width = 1 if len(shape) == 1 else int(shape[1])
    total, variance = np.empty((chosen.size, width)), np.empty((chosen.size, width))
    step = max(1, KEPT_BYTES // (8 * CARRIED * max(1, edges.size)))
    for lo in range(0, width, step):
        columns = slice(lo, min(lo + step, width))
        origin, kept = _prefix_sums(values, n, columns if len(shape) == 2 else None, edges)
        differences(origin, kept, first, last, count, total[:, columns], variance[:, columns])
    shape = (chosen.size, *shape[1:])
    mean = total / count[:, None]
    return Moments(count, total.reshape(shape), mean.reshape(shape), variance.reshape(shape))


def _prefix_sums(values: Any, n: int, columns: slice | None, edges: Ints) -> tuple[Floats, Floats]:
    """Return the first row, and the carried sums at each edge: over all rows before it, each less the first row."""
    width = 1 if columns is None else columns.stop - columns.start
    kept = np.empty((edges.size, CARRIED, width))
    carried = np.zeros((CARRIED, width))
    origin = np.zeros(width)
    step = max(1, MOMENT_BYTES // (8 * max(1, width)))
    with np.errstate(invalid="ignore", over="ignore"):
        for lo in range(0, n, step):
            part = slice(lo, min(lo + step, n))
            block = values[part] if columns is None else values[part][:, columns]
            dense = block.toarray() if hasattr(block, "toarray") else block
            numbers = np.asarray(dense, np.float64).reshape(-1, width)
            if lo == 0:
                origin[:] = numbers[0]
            carry(numbers, lo, origin, edges, carried, kept)
    kept[edges == n] = carried
    if not np.isfinite(carried).all():
        raise ValueError("values must be finite, and so must the sums of their squares, got NaN or infinity")
    return origin, kept


@kernel
def carry(block, first, origin, edges, carried, kept):
    """Add rows first, first + 1, … to the carried sums; keep a copy of the sums before each row that is an edge."""
    e = np.searchsorted(edges, first)
    for r in range(block.shape[0]):
        if e < edges.size and edges[e] == first + r:
            for i in range(carried.shape[0]):
                for j in range(carried.shape[1]):
                    kept[e, i, j] = carried[i, j]
            e += 1
        for j in range(block.shape[1]):
            x, x_rest = two_sum(block[r, j], -origin[j])
            carried[0, j], lost = two_sum(carried[0, j], x)
            carried[1, j] += lost + x_rest
            square, rest = two_product(x, x)
            carried[2, j], lost = two_sum(carried[2, j], square)
            carried[3, j] += lost + (rest + 2.0 * x * x_rest)


@kernel
def differences(origin, kept, first, last, count, total, variance):
    """Fill the sum between two edges, and the mean of the squares less the square of the mean."""
    for k in range(first.size):
        a, b = kept[first[k]], kept[last[k]]
        for j in range(total.shape[1]):
            x, lost = two_sum(b[0, j], -a[0, j])
            x, x_rest = two_sum(x, lost + (b[1, j] - a[1, j]))
            xx, lost = two_sum(b[2, j], -a[2, j])
            xx, xx_rest = two_sum(xx, lost + (b[3, j] - a[3, j]))
            shift, shift_rest = two_product(np.float64(count[k]), origin[j])
            shift, lost = two_sum(shift, x)
            total[k, j] = shift + (lost + shift_rest + x_rest)
            # m · Σx² - (Σx)², whose digits cancel, then divided.
            left, left_rest = two_product(xx, np.float64(count[k]))
            right, right_rest = two_product(x, x)
            spread, lost = two_sum(left, -right)
            spread += lost + (left_rest + xx_rest * count[k]) - (right_rest + 2.0 * x * x_rest)
            variance[k, j] = max(spread, 0.0) / (np.float64(count[k]) * count[k])
