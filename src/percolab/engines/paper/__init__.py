"""The paper engine: the published datasets, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.engines import embedding, generated
from percolab.engines.cluster_growth import attachment
from percolab.engines.clusters import Clusters, batches
from percolab.engines.generated import Arrays
from percolab.engines.paper import coalescent
from percolab.ground import parallel
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.progress import Progress
from percolab.model import sums
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe, Seeds
from percolab.rng import pcg64

VERSION = 1  #: Version of the data this engine makes; it would change only if the data did.

VECTOR_CHILD, ORIGIN_CHILD, ROOT_CHILD, DIRECTION_CHILD = range(4)
LATENT_CHILD, POINT_CHILD = range(2)

BATCH = 1 << 15  #: Points per task, and latents drawn between two reports of progress.


# ---------------------------------------------------------------------- engine
#
# The paper engine: the published datasets, from the same seeds, to the bit.
# Which random numbers are drawn, from which child of which seed, and in what order, is fixed by the authors' release.
# Streams that belong to one cluster are drawn in parallel; the directions of all clusters share one stream, which is
# drawn in order of birth while other threads walk the clusters already drawn. Clusters that `min_cluster_size` drops
# are not built: their part of a common stream is skipped, and the stream is not read after the last kept cluster.


def build(recipe: Recipe, threads: int, progress: Progress) -> Arrays:
    """Make the dataset of a recipe."""
    if recipe.n_points >= coalescent.SIZE_LIMIT:
        raise ValueError(f"n_points must be below 2**31 with engine='paper', got {recipe.n_points}")
    generated.require_memory(generated.bytes_before_clusters(recipe), recipe)
    clusters = find_clusters(recipe)
    generated.require_memory(generated.bytes_of_arrays(clusters.n_points, recipe), recipe)
    arrays, split_rows = grow(recipe.seeds, clusters, recipe.dim, recipe.dtype, threads, progress)
    parallel.run(_draw_and_walk(recipe, clusters, arrays, split_rows, threads, progress), threads)
    return arrays


def find_clusters(recipe: Recipe) -> Clusters:
    """Return the clusters that a recipe keeps."""
    labels = attachment(recipe.n_points, recipe.attachment_prob, recipe.seeds.graph)
    return Clusters.from_labels([labels], recipe.min_cluster_size, with_born_size=True)


# ---------------------------------------------------------------------- trees and targets


def grow(
    seeds: Seeds, clusters: Clusters, dim: int, dtype: str, threads: int, progress: Progress
) -> tuple[Arrays, NDArray[np.int32]]:
    """Grow every cluster's tree and merger tree, draw the values and sum them to targets; X is not filled yet.

    Also return the first rows of the two children of every latent, from the last merge of each cluster on.
    """
    n, C = clusters.n_points, clusters.birth.size
    columns = np.empty(n, np.int64), np.empty(n - C, np.int64), np.empty((n - C, 2), np.int64)
    forest = Forest(clusters.start, clusters.birth.astype(np.int64), *columns)
    arrays = Arrays(forest, np.empty((n, dim), dtype), np.empty(n), np.empty(n - C), np.empty(n))
    split_rows = np.empty((n - C, 2), np.int32)
    graph, value = pcg64.root_pool(seeds.graph), pcg64.root_pool(seeds.value)
    # The z of points come from one stream in release order; y holds them until each cluster assigns them to its rows.
    pcg64.normals(pcg64.make_stream(pcg64.spawn(value, POINT_CHILD)), arrays.y)
    latents = pcg64.spawn(value, LATENT_CHILD)
    edges = batches(clusters.size, BATCH)
    common = (
        graph, latents, clusters.start, clusters.birth, clusters.point_id,
        forest.point_id, forest.left_size, forest.bond, arrays.latent_z, arrays.point_z, arrays.y, split_rows,
    )  # fmt: skip
    tasks = ((_grow_clusters, (lo, hi, *common)) for lo, hi in edges)
    parallel.run(tasks, threads, parallel.counter(progress, "trees", [int(clusters.start[hi]) for _, hi in edges]))
    return arrays, split_rows


@kernel
def _grow_clusters(
    lo, hi, graph, latents, start, birth, born_point, point_id, left_size, bond, latent_z, point_z, y, split_rows
):
    """Grow clusters lo … hi - 1, of which the first is the largest."""
    largest = start[lo + 1] - start[lo]
    work = coalescent.work_arrays(largest)
    row, merge_order = np.empty(largest, np.int64), np.empty(largest, np.int32)
    z, stream = np.empty(largest), np.empty(pcg64.STREAM_WORDS, np.uint64)
    for c in range(lo, hi):
        first, end = start[c], start[c + 1]
        size = end - first
        if size == 1:
            row[0] = first
        else:
            top, stop = first - c, end - c - 1
            pool = pcg64.spawn(graph, birth[c] + coalescent.FIRST_CLUSTER_CHILD)
            coalescent.coalesce(size, pool, work)
            coalescent.arrange(
                size, first, work, left_size[top:stop], bond[top:stop], row, split_rows[top:stop], merge_order
            )
            pcg64.seed_stream(pcg64.spawn(latents, birth[c]), stream)
            pcg64.normals(stream, z[: size - 1])
            for k in range(size - 1):
                latent_z[top + merge_order[k]] = z[k]
        for i in range(size):
            point_id[row[i]] = born_point[first + i]
            point_z[row[i]] = y[first + i]
    sums.sum_down(lo, hi, start, left_size, latent_z, point_z, y)


# ---------------------------------------------------------------------- positions


def _draw_and_walk(
    recipe: Recipe, clusters: Clusters, arrays: Arrays, split_rows: NDArray[np.int32], threads: int, progress: Progress
) -> Iterator[parallel.Task]:
    """Draw every direction, in order of birth, and yield the tasks that walk clusters whose directions are drawn."""
    embed = pcg64.root_pool(recipe.seeds.embed)
    vector, origin, direction = (
        pcg64.make_stream(pcg64.spawn(embed, child)) for child in (VECTOR_CHILD, ORIGIN_CHILD, DIRECTION_CHILD)
    )
    by_birth, size, start = np.argsort(clusters.birth), clusters.size, clusters.start
    skipped = _skipped_before(clusters, by_birth)
    trees = start, clusters.birth, arrays.forest.left_size, arrays.forest.bond, pcg64.spawn(embed, ROOT_CHILD)
    scale, X, done = math.sqrt(recipe.dim), arrays.X, 0
    for lo, hi in batches(size[by_birth], BATCH):
        batch = by_birth[lo:hi]
        origins = np.zeros((hi - lo, recipe.dim))
        _draw_starts(X, batch, start, skipped[lo:hi, 0], vector)
        if recipe.mode != "one_cluster":
            _draw_origins(origins, skipped[lo:hi, 0], origin, scale)
        points = int(size[batch[0]])  # clusters of a batch of several are drawn in one pass
        for first in range(0, points, BATCH):
            _draw_directions(X, batch, start, skipped[lo:hi, 1], split_rows, direction, first, first + BATCH)
            progress("positions", done + min(first + BATCH, points), clusters.n_points)
        done += int(size[batch].sum())
        progress("positions", done, clusters.n_points)
        yield from _walk_tasks(X, batch, trees, origins, recipe.step * scale, threads)


def _walk_tasks(
    X: NDArray[Any], batch: Ints, trees: tuple[Any, ...], origins: Floats, stride: float, threads: int
) -> Iterator[parallel.Task]:
    """Yield the tasks that walk a batch of clusters: one task, or one per thread if it is a single large cluster."""
    if batch.size > 1 or threads == 1:
        yield _walk_clusters, (X, batch, *trees, origins, stride)
        return
    start, cluster, dim = trees[0], int(batch[0]), X.shape[1]
    rows = X[start[cluster] : start[cluster + 1]]
    order, parent = _plan_walk(cluster, *trees, embedding.walk_work(len(rows)))
    for columns in np.array_split(np.arange(dim), min(threads, dim)):
        block = slice(columns[0], columns[-1] + 1)
        yield embedding.walk, (rows[:, block], order, parent, origins[0, block], stride)


def _skipped_before(clusters: Clusters, by_birth: Ints) -> Ints:
    """Count the dropped clusters, and the latents of dropped clusters, born just before each kept cluster."""
    latents_born = np.concatenate([[0], np.cumsum(clusters.born_size - 1)])
    birth, size = clusters.birth[by_birth], clusters.size[by_birth]
    clusters_skipped = np.diff(birth, prepend=-1) - 1
    end_of_previous = np.concatenate([[0], latents_born[birth[:-1] + 1]]) if birth.size else np.empty(0, np.int64)
    assert np.array_equal(size, clusters.born_size[birth])
    return np.column_stack([clusters_skipped, latents_born[birth] - end_of_previous])


@kernel
def _draw_starts(X, batch, start, skipped, stream):
    """Put each cluster's random unit vector in its first row."""
    dim = X.shape[1]
    gauss = np.empty(dim)
    for k in range(batch.size):
        pcg64.skip_normals(stream, skipped[k] * dim)
        pcg64.normals(stream, gauss)
        embedding.normalise(gauss)
        for j in range(dim):
            X[start[batch[k]], j] = gauss[j]


@kernel
def _draw_origins(origins, skipped, stream, scale):
    """Fill uniform points of a ball: the first d coordinates of a uniform point of the sphere in R^(d+2)."""
    dim = origins.shape[1]
    gauss = np.empty(dim + 2)
    for k in range(origins.shape[0]):
        pcg64.skip_normals(stream, skipped[k] * (dim + 2))
        pcg64.normals(stream, gauss)
        embedding.normalise(gauss)
        for j in range(dim):
            origins[k, j] = scale * gauss[j]


@kernel
def _draw_directions(X, batch, start, skipped, split_rows, stream, first, end):
    """Split the vectors of latents first … end - 1, from the last merge on, of each cluster of the batch."""
    dim = X.shape[1]
    gauss = np.empty(dim)
    for k in range(batch.size):
        c = batch[k]
        if first == 0:
            pcg64.skip_normals(stream, skipped[k] * dim)
        top = start[c] - c
        for i in range(top + first, min(top + end, start[c + 1] - c - 1)):
            pcg64.normals(stream, gauss)
            embedding.split_direction(gauss, X[split_rows[i, 0]], X[split_rows[i, 1]])


def walk_root(recipe: Recipe, forest: Forest, cluster: int) -> int:
    """Return the row at which the walk of a cluster starts. Time proportional to its depth."""
    first, stop = (int(edge) for edge in forest.cluster_start[cluster : cluster + 2])
    splits = forest.left_size[first - cluster : stop - cluster - 1]
    roots = pcg64.spawn(pcg64.root_pool(recipe.seeds.embed), ROOT_CHILD)
    return first + int(_choose_root(splits, pcg64.spawn(roots, forest.cluster_id[cluster])))


@kernel
def _choose_root(left_size, pool):
    """Walk down from the top latent, left or right with probability 1/2 each; return the row reached."""
    stream = pcg64.make_stream(pool)
    i, row, size = 0, 0, left_size.size + 1
    while size > 1:
        left = left_size[i]
        if pcg64.integer_below(stream, 2) == 0:
            i, size = i + 1, left
        else:
            i, row, size = i + left, row + left, size - left
    return row


@kernel
def _plan_walk(c, start, birth, left_size, bond, roots, work):
    """Return the rows of a cluster in the order of its walk, counted from its first, and the parent of each."""
    first, end = start[c], start[c + 1]
    splits, bonds = left_size[first - c : end - c - 1], bond[first - c : end - c - 1]
    root = _choose_root(splits, pcg64.spawn(roots, birth[c])) if end - first > 1 else 0
    return embedding.plan_walk(first, splits, bonds, root, work)


@kernel
def _walk_clusters(X, batch, start, birth, left_size, bond, roots, origins, stride):
    """Walk each cluster of a batch."""
    largest = 0
    for c in batch:
        largest = max(largest, start[c + 1] - start[c])
    work = embedding.walk_work(largest)
    for k in range(batch.size):
        c = batch[k]
        order, parent = _plan_walk(c, start, birth, left_size, bond, roots, work)
        embedding.walk(X[start[c] : start[c + 1]], order, parent, origins[k], stride)
