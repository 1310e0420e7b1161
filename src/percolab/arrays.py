"""What an engine returns, and how it says how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.forest import Forest

Report = Callable[[str, int, int], None]
"""Called with a stage, how many points are done and how many there are."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A forest, positions, targets and the values behind them."""

    forest: Forest
    X: NDArray[Any]
    """(n, d) positions"""
    y: NDArray[np.float64]
    """(n,) targets"""
    latent_z: NDArray[np.float64]
    """(n-C,) values of latents"""
    point_z: NDArray[np.float64]
    """(n,) values of points"""
