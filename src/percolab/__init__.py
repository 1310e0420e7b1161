"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from importlib import import_module
from typing import TYPE_CHECKING

from percolab.dataset.dataset import Dataset
from percolab.dataset.generation import make_percolation
from percolab.engines.clusters import attachment
from percolab.engines.native.engine import cluster_of, node_paths, split_forest
from percolab.engines.native.rows import Rows, cluster_table, generate_rows
from percolab.engines.paper.coalescent import cyclic_coalescent
from percolab.ground.version import __version__
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe, Seeds
from percolab.model.sums import targets
from percolab.store.schema import StoreError
from percolab.store.shards import generate_store
from percolab.store.worlds import load
from percolab.worlds.generation import generate, superpose
from percolab.worlds.presets import PRESETS
from percolab.worlds.recipe import Superposition
from percolab.worlds.superposed import Superposed
from percolab.worlds.truth import Truth, truth

if TYPE_CHECKING:
    from percolab import theory
    from percolab.checks.suite import verify

__all__ = [
    "PRESETS",
    "Dataset",
    "Forest",
    "Recipe",
    "Rows",
    "Seeds",
    "StoreError",
    "Superposed",
    "Superposition",
    "Truth",
    "__version__",
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
    "superpose",
    "targets",
    "theory",
    "truth",
    "verify",
]


def __getattr__(name: str) -> object:
    # These bring SciPy along, so they are imported when first asked for.
    if name == "theory":
        return import_module("percolab.theory")
    if name == "verify":
        return import_module("percolab.checks.suite").verify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
