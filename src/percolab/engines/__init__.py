"""Engines: what turns a recipe into a forest, positions and targets. `paper` and `native` share what is here.

Public are the random processes alone, and rows of a dataset without the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from percolab.ground.surface import surface

if TYPE_CHECKING:
    from percolab.engines.growth import attachment
    from percolab.engines.native.engine import cluster_of, node_paths, split_forest
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
    "ClusterTable": "engines.native.rows",
    "GeneratedRows": "engines.native.rows",
    "attachment": "engines.growth",
    "cluster_of": "engines.native.engine",
    "cluster_table": "engines.native.rows",
    "cyclic_coalescent": "engines.paper.coalescent",
    "generate_rows": "engines.native.rows",
    "node_paths": "engines.native.engine",
    "split_forest": "engines.native.engine",
    "targets": "model.sums",
}

__getattr__, __dir__ = surface(__name__, __all__, _HOMES)
