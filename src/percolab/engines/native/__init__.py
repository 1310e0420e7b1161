"""The native engine: any size, any number of workers, any part alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from percolab.engines import generated
from percolab.engines.cluster_growth import attach_keyed, follow_to_founder
from percolab.engines.clusters import Clusters
from percolab.engines.generated import Arrays
from percolab.engines.native import graph_process, growth, positions, value_draws
from percolab.engines.native.pieces import GROUP
from percolab.engines.native.skeleton import BRANCH, TIP, TOKEN, Expansion, Stand
from percolab.ground import parallel
from percolab.ground.compiled import ahead
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_index, check_integer, check_seed
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe

VERSION = 1  #: Version of the data this engine makes: the same recipe and version give the same data.
ALONE = 1 << 18  #: Points up to which one thread finds the clusters: waking a second thread does not pay.


# ---------------------------------------------------------------------- engine
#
# The native engine: any size, any number of workers, any part alone.
# Every random number is a pure function of (seed, node, purpose): see `philox`. Clusters are grown from the
# top down by the split law: see `splitting` and `pieces`. Since the split laws interlace and a node's numbers depend
# on its path alone, datasets of different sizes from one seed are refinements of each other in hierarchy, values and
# directions: see docs/native-engine.md.


def build(recipe: Recipe, threads: int, progress: Progress) -> Arrays:
    """Make the dataset of a recipe."""
    generated.require_memory(generated.bytes_before_clusters(recipe), recipe)
    if recipe.mode == "random_graph":
        return _build_graph(recipe, threads, progress)
    with ahead("engines.native", np.dtype(recipe.dtype).name, threads=threads) as wait_for_kernels:
        clusters = find_clusters(recipe, threads)
        generated.require_memory(generated.bytes_of_arrays(clusters.n_points, recipe), recipe)
        # Waking a thread takes as long as making some hundred points. Powers of two, since pools are cached by size.
        threads = min(threads, 1 << (clusters.n_points // GROUP).bit_length())
        graph = np.uint64(recipe.seeds.graph)
        grown = growth.grow(Stand.of_clusters(clusters.start, clusters.founder), graph, threads, progress)
        forest = growth.forest_of(clusters, grown, graph, threads)
        wait_for_kernels()
        return _fill(recipe, forest, grown, threads, progress)


def rehearse(dtype: str) -> None:
    """Call every kernel that `build` calls once it has a forest, on a cluster of two points cut into two pieces."""
    recipe = Recipe(n_points=2, dim=2, dtype=dtype, seeds=0, engine="native")
    tip, skeleton = np.zeros(2, TIP), np.zeros(1, BRANCH)
    tip["first"], tip["latent"], tip["size"], tip["depth"] = [0, 1], 1, 1, 1
    skeleton["size"], skeleton["left"], skeleton["parent"] = 2, 1, -1
    expansion = Expansion(tip, skeleton, np.zeros(0, TOKEN), first_end=2)
    stand = Stand.of_clusters(np.array([0, 2]), np.zeros(1, np.int64))
    left_size, end_row = np.ones(1, np.int64), np.array([0, 1, 0, 1])
    forest = Forest(stand.start, np.zeros(1, np.int64), np.arange(2), left_size, end_row[:2].reshape(1, 2))
    _fill(recipe, forest, growth.Trees(stand, expansion, left_size, end_row), 1, silent)


def _build_graph(recipe: Recipe, threads: int, progress: Progress) -> Arrays:
    """Make a dataset on the clusters of a random graph."""
    progress("graph", 0, recipe.n_points)
    forest = graph_process.grow_graph(recipe.n_points, recipe.mean_degree or 0.0, np.uint64(recipe.seeds.graph))
    forest = forest.largest(int(np.count_nonzero(forest.cluster_size >= recipe.min_cluster_size)))
    progress("graph", recipe.n_points, recipe.n_points)
    generated.require_memory(generated.bytes_of_arrays(forest.n_points, recipe), recipe)
    return _fill(recipe, forest, growth.of_forest(forest), threads, progress)


def _fill(recipe: Recipe, forest: Forest, grown: growth.Trees, threads: int, progress: Progress) -> Arrays:
    """Draw values and positions for trees that are grown."""
    drawn = value_draws.draw_values(grown, np.zeros(0), np.uint64(recipe.seeds.value), threads, progress)
    X = positions.embed(recipe, grown, positions.Entries.none(recipe), threads, progress)
    return Arrays(forest, X, *drawn)


def find_clusters(recipe: Recipe, threads: int) -> Clusters:
    """Return the clusters that a recipe keeps."""
    if recipe.attachment_prob == 0:
        return Clusters.single(recipe.n_points, keep=recipe.n_points >= recipe.min_cluster_size)
    dtype: type[np.signedinteger[Any]] = np.int32 if recipe.n_points < 2**31 else np.int64
    threads = min(threads, max(1, recipe.n_points // ALONE))
    labels = [np.empty(recipe.n_points, dtype)]
    attach_keyed(recipe.attachment_prob, np.uint64(recipe.seeds.graph), labels[0], threads)
    return Clusters.from_labels(labels, recipe.min_cluster_size, dtype, threads=threads)


def split_forest(n: int, seed: int) -> Forest:
    """Sample a uniform random labelled tree on n points with its merger tree, as a forest of one cluster.

    The law is that of `cyclic_coalescent`: all n^(n-2) trees equally likely, and given the tree a uniform order of its
    bonds. It is sampled from the top down: a latent of m points has k of them on the left with probability
    C(m,k) k^(k-1) (m-k)^(m-k-1) / (2 (m-1) m^(m-2)), and its bond joins uniform points of both sides. Time
    O(n log n), of which the logarithm is the cheap part; memory 40 bytes per point. The forest equals that of a
    `Recipe` with ``mode="one_cluster"``, ``engine="native"`` and this graph seed.

    Parameters
    ----------
    n
        Number of points.
    seed
        Seed of the graph.
    """
    n = check_integer("n", n, 1)
    key = np.uint64(check_seed("seed", seed))
    return growth.grow_forest(Clusters.single(n), key, parallel.thread_count(None))


def cluster_of(recipe: Recipe, point: int) -> int:
    """Return the founder of a point's cluster, the first point that joined it, without building anything.

    Two points are in the same cluster if they have the same founder. Time O(log n).
    """
    if recipe.engine != "native":
        raise ValueError(f"recipe.engine must be 'native', got {recipe.engine!r}")
    recipe.require_plain("to find the cluster of a point alone")
    known = check_index("point", point, recipe.n_points)
    return int(follow_to_founder(known, recipe.attachment_prob, np.uint64(recipe.seeds.graph)))
