"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from percolab.ground import machine as machine  # first: it refuses machines on which what follows cannot be loaded

# isort: split
from percolab.ground.extras import stubbed

_FORMERLY = {
    "Cut": "Partition",
    "Made": "StoreReport",
    "Rows": "engines.GeneratedRows",
    "Table": "engines.ClusterTable",
    "attachment": "engines.attachment",
    "cluster_of": "engines.cluster_of",
    "cluster_table": "engines.cluster_table",
    "cyclic_coalescent": "engines.cyclic_coalescent",
    "generate_rows": "engines.generate_rows",
    "node_paths": "engines.node_paths",
    "split_forest": "engines.split_forest",
    "targets": "engines.targets",
}

__getattr__, __dir__, __all__ = stubbed(__name__, formerly=_FORMERLY)
