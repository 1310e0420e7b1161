"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from percolab.ground import machine as machine  # first: it refuses machines that cannot load the imports below

# isort: split
from percolab.ground.extras import stubbed

_LOW_LEVEL = "attachment cluster_of cluster_table cyclic_coalescent generate_rows node_paths split_forest targets"
_FORMERLY = {name: f"engines.{name}" for name in _LOW_LEVEL.split()}
_FORMERLY |= {
    "Cut": "Partition",
    "Made": "StoreReport",
    "Rows": "engines.GeneratedRows",
    "Table": "engines.ClusterTable",
}

__getattr__, __dir__, __all__ = stubbed(__name__, formerly=_FORMERLY)
