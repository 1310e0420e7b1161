"""Synthetic data on critical percolation clusters, with the complete hierarchy of latents that made it."""

from typing import TYPE_CHECKING

from percolab.ground import machine as machine  # first: it refuses machines on which what follows cannot be loaded

# isort: split
from percolab.corpora.beliefs import Beliefs
from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.corpora.sampler import Documents
from percolab.dataset.dataset import Dataset
from percolab.ground.extras import surface
from percolab.ground.version import __version__
from percolab.model.forest import Forest
from percolab.model.kinship import Ragged
from percolab.model.latent_groups import Partition
from percolab.model.moments import Moments
from percolab.model.recipe import Recipe, Seeds
from percolab.model.target import Target
from percolab.store.finished import load
from percolab.store.schema import StoreError
from percolab.store.shards import StoreReport, generate_store
from percolab.store.stored_array import StoredArray
from percolab.worlds.generation import PRESETS, generate, make_percolation, superpose
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import Superposed, Truth, truth
from percolab.worlds.superposition import Superposition

if TYPE_CHECKING:
    from percolab import benchmark, engines, exports, features, nn, show, streaming, study, theory
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
    "Dataset",
    "Difference",
    "DocumentRange",
    "Documents",
    "Forest",
    "Moments",
    "Partition",
    "Ragged",
    "Recipe",
    "Seeds",
    "Split",
    "StoreError",
    "StoreReport",
    "StoredArray",
    "StoredDocuments",
    "Superposed",
    "Superposition",
    "Target",
    "Truth",
    "Verification",
    "__version__",
    "benchmark",
    "compare",
    "diff",
    "engines",
    "exports",
    "features",
    "generate",
    "generate_store",
    "load",
    "make_percolation",
    "nn",
    "show",
    "split_rows",
    "streaming",
    "study",
    "superpose",
    "theory",
    "truth",
    "verify",
]

# What brings SciPy, Zarr or torch along is imported when first used.
_HOMES = {
    "": "benchmark engines exports features nn show streaming study theory",
    "checks.suite": "Verification verify",
    "checks.verdicts": "Check",
    "study": "Comparison Difference compare diff",
}
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

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, formerly=_FORMERLY)
