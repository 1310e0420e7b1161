"""What an engine makes of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.model.forest import Forest


@dataclass(frozen=True, eq=False)
class Arrays:
    """A forest, positions, targets and the values behind them."""

    forest: Forest
    X: NDArray[Any]  #: (n, d) positions
    y: NDArray[np.float64]  #: (n,) targets
    latent_z: NDArray[np.float64]  #: (n-C,) values of latents
    point_z: NDArray[np.float64]  #: (n,) values of points
