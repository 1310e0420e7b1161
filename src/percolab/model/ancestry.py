"""Who is above whom: paths to the top, common ancestors, and the minimum of a range that gives them.

Latent i parts the rows on its left from those on its right, so to each pair of neighbouring rows of a cluster belongs
exactly one latent, the smallest that has both. Written down row by row (`Forest.parting`) they turn questions about the
tree into questions about ranges. Latents are numbered in preorder, so of all latents that part two rows somewhere the
lowest number is above all others: it is the smallest latent that has both rows. At the first row of a cluster stands
-1, which is lower still: no latent has rows of two clusters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel

Ints = NDArray[np.int64]

BLOCK = 64
"""Values that one entry of the table of minima stands for: the table then takes less memory than the values."""


class Ragged(NamedTuple):
    """Lists of different lengths, one after another."""

    values: Ints
    """all lists, joined"""
    offsets: Ints
    """(number of lists + 1,) list j is ``values[offsets[j]:offsets[j + 1]]``"""

    def __repr__(self) -> str:
        return f"Ragged({self.offsets.size - 1:,} lists, {self.values.size:,} values)"

    def parts(self) -> list[Ints]:
        """Return the lists, as views."""
        return np.split(self.values, self.offsets[1:-1]) if self.offsets.size > 1 else []


def paths_to(last: Ints, latent_parent: Ints, latent_depth: Ints) -> Ragged:
    """Return the latents from the top down to each of `last`, itself included; nothing for -1."""
    length = np.where(last >= 0, latent_depth[last] + 1, 0) if latent_depth.size else np.zeros(last.size, np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    values = np.empty(offsets[-1], np.int64)
    climb(last, latent_parent, offsets, values)
    return Ragged(values, offsets)


@kernel
def climb(last, latent_parent, offsets, values):
    """Fill each list from its end: a latent, its parent, and so on to the top."""
    for j in range(last.size):
        latent = last[j]
        for k in range(offsets[j + 1] - 1, offsets[j] - 1, -1):
            values[k] = latent
            latent = latent_parent[latent]


# ---------------------------------------------------------------------- minimum of a range


def minima_table(values: Ints) -> Ints:
    """Return what `minima` needs to know of `values`: row j has the minimum of every 2^j blocks in a row."""
    blocks = -(-values.size // BLOCK)
    table = np.empty((max(1, blocks.bit_length()), blocks), np.int64)
    tabulate(values, table)
    return table


@kernel
def tabulate(values, table):
    """Fill the minima of blocks, and from each row of the table the next."""
    levels, blocks = table.shape
    for b in range(blocks):
        least = values[b * BLOCK]
        for k in range(b * BLOCK + 1, min(values.size, (b + 1) * BLOCK)):
            least = min(least, values[k])
        table[0, b] = least
    for j in range(1, levels):
        half = 1 << (j - 1)
        for b in range(blocks):
            table[j, b] = min(table[j - 1, b], table[j - 1, min(b + half, blocks - 1)])


@kernel
def minimum(values, table, low, high):
    """Return the minimum of values[low … high], ends included, in O(BLOCK + 1) steps."""
    first, last = low // BLOCK, high // BLOCK
    least = values[low]
    if last - first < 2:
        for k in range(low + 1, high + 1):
            least = min(least, values[k])
        return least
    for k in range(low + 1, (first + 1) * BLOCK):
        least = min(least, values[k])
    for k in range(last * BLOCK, high + 1):
        least = min(least, values[k])
    level = 0
    while (2 << level) <= last - first - 1:
        level += 1
    return min(least, min(table[level, first + 1], table[level, last - (1 << level)]))


@kernel
def common_latents(parting, table, a, b, out):
    """Fill the smallest latent that has rows a[j] and b[j], -1 where there is none."""
    n = parting.size
    for j in range(a.size):
        low, high = min(a[j], b[j]), max(a[j], b[j])
        if low < high:
            out[j] = minimum(parting, table, low + 1, high)
        else:
            out[j] = max(parting[low], parting[low + 1] if low + 1 < n else -1)
