"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from percolab.clusters import attachment
from percolab.coalescent import cyclic_coalescent
from percolab.dataset import Dataset, generate, make_percolation
from percolab.forest import Forest
from percolab.native import cluster_of, node_paths, split_forest
from percolab.recipe import PRESETS, Recipe, Seeds
from percolab.rows import Rows, cluster_table, generate_rows
from percolab.shards import generate_store
from percolab.storage import StoreError, load
from percolab.targets import targets
from percolab.verify import verify

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "Dataset",
    "Forest",
    "Recipe",
    "Rows",
    "Seeds",
    "StoreError",
    "attachment",
    "cluster_of",
    "cluster_table",
    "cyclic_coalescent",
    "generate",
    "generate_rows",
    "generate_store",
    "load",
    "make_percolation",
    "node_paths",
    "split_forest",
    "targets",
    "theory",
    "verify",
]


def __getattr__(name: str) -> object:
    # `theory` brings SciPy along, so it is imported when it is first asked for.
    if name == "theory":
        from importlib import import_module

        return import_module("percolab.theory")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
