"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from importlib import import_module
from typing import TYPE_CHECKING

from percolab.ground import machine as machine  # first: it refuses machines on which what follows cannot be loaded

# isort: split
from percolab.corpora.beliefs import Beliefs
from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.corpora.sampler import Documents
from percolab.dataset.dataset import Dataset
from percolab.engines.attachment import attachment
from percolab.engines.native import cluster_of, node_paths, split_forest
from percolab.engines.native.rows import Rows, Table, cluster_table, generate_rows
from percolab.engines.paper.coalescent import cyclic_coalescent
from percolab.ground.version import __version__
from percolab.model.forest import Forest
from percolab.model.kinship import Ragged
from percolab.model.latent_groups import Cut
from percolab.model.moments import Moments
from percolab.model.recipe import Recipe, Seeds
from percolab.model.sums import targets
from percolab.model.target import Target
from percolab.store.schema import StoreError
from percolab.store.shards import Made, generate_store
from percolab.store.stored_array import StoredArray
from percolab.store.worlds import load
from percolab.worlds.generation import PRESETS, generate, make_percolation, superpose
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import Superposed, Truth, truth
from percolab.worlds.superposition import Superposition

if TYPE_CHECKING:
    from percolab import benchmark, exports, features, nn, show, streaming, study, theory
    from percolab.checks.suite import Verification, verify
    from percolab.checks.verdicts import Check
    from percolab.study.comparison import Comparison, compare
    from percolab.study.crosscoder import Difference, diff

__all__ = [
    "PRESETS",
    "Beliefs",
    "Check",
    "Comparison",
    "Corpus",
    "Cut",
    "Dataset",
    "Difference",
    "DocumentRange",
    "Documents",
    "Forest",
    "Made",
    "Moments",
    "Ragged",
    "Recipe",
    "Rows",
    "Seeds",
    "Split",
    "StoreError",
    "StoredArray",
    "StoredDocuments",
    "Superposed",
    "Superposition",
    "Table",
    "Target",
    "Truth",
    "Verification",
    "__version__",
    "attachment",
    "benchmark",
    "cluster_of",
    "cluster_table",
    "compare",
    "cyclic_coalescent",
    "diff",
    "exports",
    "features",
    "generate",
    "generate_rows",
    "generate_store",
    "load",
    "make_percolation",
    "nn",
    "node_paths",
    "show",
    "split_forest",
    "split_rows",
    "streaming",
    "study",
    "superpose",
    "targets",
    "theory",
    "truth",
    "verify",
]

# These bring SciPy, Zarr or torch along, so they are imported when first asked for.
_MODULES = ("benchmark", "exports", "features", "nn", "show", "streaming", "study", "theory")
_HOME = {
    "Check": "checks.verdicts",
    "Comparison": "study",
    "Difference": "study",
    "Verification": "checks.suite",
    "compare": "study",
    "diff": "study",
    "verify": "checks.suite",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"percolab.{name}")
    if name in _HOME:
        return getattr(import_module(f"percolab.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # Rooms and helpers are attributes too, but not what one looks for here.
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__"])
