"""What is grown together: a stand of trees, and the tables that describe parts of them.

A stand is made of whole clusters, and of *limbs*: parts of clusters that are too large to be grown at once. It is split
from the top down (see `skeleton`) to parts that threads can grow apart, the *tips*; the latents above tips are the
*skeleton*. Tips of a stand are called *pieces*, and those of the largest clusters of a dataset are its limbs.

The bond of a latent has two *ends*, which are numbered: ends e and e ^ 1 are those of one bond, and the row of every
end is kept in one array. Ends 2i and 2i + 1 belong to latent i of the stand, then there is one for each end that enters
a limb from above, then two for each latent of the skeleton. An end that has not found its row is a *token*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel

_NODE = [("path", "u8"), ("latent", "i8"), ("first", "i8"), ("size", "i8"), ("depth", "i8"), ("parent", "i8")]
"""A node: its path, its latent, first row, number of points, depth, and parent in the skeleton. `parent` is -1 at the
top of a cluster and -2 - j at the top of limb j."""

TIP = np.dtype([*_NODE, ("tokens_end", "i8")], align=True)
"""A limb or a piece, and where its tokens end in the list of tokens."""
BRANCH = np.dtype([*_NODE, ("left", "i8")], align=True)
"""A latent of the skeleton, and the number of points on its left side."""
TOKEN = np.dtype([("bond_key", "u8"), ("end", "i8")], align=True)
"""The key that decides where the end of a bond goes, and the number of that end."""

Records = NDArray[Any]
"""An array of one of these types."""


@dataclass(frozen=True, eq=False)
class Stand:
    """Trees to grow together, in row order: limbs of larger clusters first, then whole clusters.

    Rows and latents are counted from the first of the stand; limb j that starts at row r has the latents from r - j on.
    """

    limb: Records
    """(J,) tips"""
    token: Records
    """(T,) tokens that enter limbs, limb after limb"""
    start: NDArray[np.int64]
    """(C+1,) first row of each whole cluster, and the end"""
    founder: NDArray[np.int64]
    """(C,) founder of each whole cluster"""

    @classmethod
    def of_clusters(cls, start: NDArray[np.int64], founder: NDArray[np.int64]) -> Stand:
        """Return a stand of whole clusters."""
        return cls(np.empty(0, TIP), np.empty(0, TOKEN), start, founder)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.start[-1])

    @property
    def n_latents(self) -> int:
        """Number of latents."""
        return self.n_rows - self.limb.size - self.founder.size


def end_of(tips: Records) -> int:
    """Return the row after the last of some tips."""
    return int(tips[-1]["first"] + tips[-1]["size"])


@kernel
def last_at_most(rows, row):
    """Return the last place of an ascending list whose entry is at most `row`; -1 if there is none."""
    low, high = 0, rows.size
    while low < high:
        middle = (low + high) // 2
        if rows[middle] <= row:
            low = middle + 1
        else:
            high = middle
    return low - 1
