"""Engines: what turns a recipe into a forest, positions and targets. `paper` and `native` share what is here.

Public are the random processes alone, and rows of a dataset without the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.extras import surface
from percolab.model.forest import Forest

if TYPE_CHECKING:
    from percolab.engines.cluster_growth import attachment
    from percolab.engines.native import cluster_of, split_forest
    from percolab.engines.native.positions import node_paths
    from percolab.engines.native.rows import ClusterTable, GeneratedRows, cluster_table, generate_rows
    from percolab.engines.paper.coalescent import cyclic_coalescent
    from percolab.model.sums import targets

__all__ = [
    "ClusterTable",
    "GeneratedRows",
    "attachment",
    "cluster_of",
    "cluster_table",
    "cyclic_coalescent",
    "generate_rows",
    "node_paths",
    "split_forest",
    "targets",
]

_HOMES = {
    "engines.cluster_growth": "attachment",
    "engines.native": "cluster_of split_forest",
    "engines.native.positions": "node_paths",
    "engines.native.rows": "ClusterTable GeneratedRows cluster_table generate_rows",
    "engines.paper.coalescent": "cyclic_coalescent",
    "model.sums": "targets",
}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES)


@dataclass(frozen=True, eq=False)
class Arrays:
    """A forest, positions, targets and the values behind them."""

    forest: Forest
    X: NDArray[Any]  #: (n, d) positions
    y: NDArray[np.float64]  #: (n,) targets
    latent_z: NDArray[np.float64]  #: (n-C,) values of latents
    point_z: NDArray[np.float64]  #: (n,) values of points
