"""Two ways of holding samples out of the probes of all depths: at random, and by whole subtrees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from percolab.features.concepts import rows_below
from percolab.model.forest import Forest
from percolab.nn.probing.places import Places
from percolab.nn.probing.ridge import TEST, TRAIN

Ints = NDArray[np.int64]


def random_points(places: Places, rows: Ints, train_share: float, seed: int) -> Ints:
    """Return the part of each sample, TRAIN or TEST: of n samples of a depth, int(train_share · n) train.

    Going up from the deepest depth, the samples that a depth adds are divided at random so that the count comes out.
    """
    random = np.random.default_rng(seed)
    order = np.argsort(rows, kind="stable")
    level = places.level[order]
    part = np.full(rows.size, TEST)
    done = chosen = 0
    for index in reversed(range(places.depths.size)):
        added = order[level == index]
        done += added.size
        more = int(train_share * done) - chosen
        chosen += more
        part[random.permutation(added)[:more]] = TRAIN
    return part


def whole_subtrees(forest: Forest, places: Places, rows: Ints, min_size: int, folds: int) -> tuple[Ints, Ints]:
    """Return the part of each sample, and of each probed latent: a probe sees no sample of a latent it is scored on.

    The trunk goes down from the top of the largest cluster, always to the child with more points. What breaks off
    from it, and every other cluster, is a piece. Pieces are dealt to folds, the largest first, each to the fold with
    the fewest samples. A fold trains on all samples outside its pieces and is scored on the latents inside them.
    Latents of the trunk have points in several pieces and are never scored: like samples in no piece, they are TRAIN.
    """
    below = rows_below(forest, rows)
    start, stop = forest.latent_start, forest.latent_start + forest.latent_size
    pieces = _pieces(forest, int(places.depths[-1]))
    size = below[stop[pieces]] - below[start[pieces]]
    pieces, size = pieces[size >= min_size], size[size >= min_size]
    load = np.zeros(min(folds, pieces.size), np.int64)
    fold_of_row = np.full(forest.n_points, TRAIN)
    top = np.full(forest.n_points, forest.n_latents)
    for piece, own in sorted(zip(pieces, size, strict=True), key=lambda pair: -pair[1]):
        fold = int(load.argmin())
        load[fold] += own
        fold_of_row[start[piece] : stop[piece]] = fold
        top[start[piece] : stop[piece]] = piece
    inside = top[places.start] <= places.latent  # in preorder a piece comes before all that is inside it
    return fold_of_row[rows], np.where(inside, fold_of_row[places.start], TRAIN)


def _pieces(forest: Forest, last_depth: int) -> Ints:
    """Return the tops of all clusters but the largest, and what breaks off from its trunk down to `last_depth`."""
    n = forest.n_points
    tops = (forest.cluster_start[:-1] - np.arange(forest.n_clusters))[forest.cluster_size > 1]
    pieces = tops[1:].tolist()
    latent = 0
    for _ in range(min(last_depth, int(forest.latent_depth.max(initial=0))) + 1):
        left = int(forest.left_size[latent])
        heavy = 0 if left >= forest.latent_size[latent] - left else 1
        children = forest.latent_children[latent].tolist()
        if children[1 - heavy] >= n:  # a single point is no piece
            pieces.append(children[1 - heavy] - n)
        if children[heavy] < n:
            break
        latent = children[heavy] - n
    return np.array(pieces, np.int64)
