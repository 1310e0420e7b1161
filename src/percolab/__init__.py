"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from percolab.clusters import attachment
from percolab.coalescent import cyclic_coalescent
from percolab.dataset import Dataset, generate, make_percolation
from percolab.forest import Forest
from percolab.native import cluster_of, split_forest
from percolab.recipe import PRESETS, Recipe, Seeds
from percolab.storage import StoreError, load
from percolab.targets import targets

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "Dataset",
    "Forest",
    "Recipe",
    "Seeds",
    "StoreError",
    "attachment",
    "cluster_of",
    "cyclic_coalescent",
    "generate",
    "load",
    "make_percolation",
    "split_forest",
    "targets",
]
