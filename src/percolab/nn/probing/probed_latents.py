"""Latents at depths: which latents are probed, which samples are held out, and probes of any values of the latents.

Samples of depth D are those whose latent at depth D has enough samples. A latent's ancestors are at least as large as
itself, so the samples of a depth contain those of every greater depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.concepts import by_row
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.model.forest import Forest
from percolab.nn.probing.ridge import TEST, TRAIN, CrossFit, Samples

HELD_OUT = 0.3  #: Share of samples that `read_places` scores on.
Column = tuple[str, int]  #: A target and its draw.

#: z: the latent's value. sum: the values from depth 0 down to the latent, added. z_redrawn, sum_redrawn: the same for
#: fresh values of all latents, which no network has been trained on. z_shuffled, sum_shuffled: z and sum dealt to the
#: wrong samples.
TARGETS = ("z", "sum", "z_redrawn", "sum_redrawn", "z_shuffled", "sum_shuffled")
#: Targets of true values; targets that are the same for all samples of a latent.
TRUE_TARGETS, LATENT_TARGETS = TARGETS[:2], TARGETS[:4]
_FRESH = 1 << 32  #: Second part of the seed of fresh values: separate from the depths, which are smaller numbers.


@dataclass(frozen=True, eq=False)
class Places:
    """The probed latents, and the samples of each."""

    depths: Ints  #: (J,) increasing
    latent: Ints  #: (L,) by depth, then by row
    depth_index: Ints  #: (L,)
    where: Ints  #: (n, J) for each sample, which of the L latents it has at each depth; -1 for none
    size: Ints  #: (L,) samples of each latent
    start: Ints  #: (L,) first row of each latent

    def __len__(self) -> int:
        return self.latent.size

    @property
    def level(self) -> Ints:
        """(n,) index of the last depth at which a sample has a probed latent, -1 for none."""
        return (self.where >= 0).sum(1) - 1


def find_places(
    forest: Forest, rows: Ints, depths: Sequence[int], min_size: int, *, least: int = 2, name: str = "min_size"
) -> Places:
    """Return the latents of some depths with at least `min_size` samples.

    Parameters
    ----------
    forest
        The hierarchy.
    rows
        (n,) the row of each sample.
    depths
        Depths of the latents.
    min_size
        Fewest samples of a latent.
    least
        Fewest latents of a depth; depths with fewer are left out. One depth must have two, since a probe cannot learn
        from a single value.
    name
        Name of `min_size` in an error message.
    """
    size = by_row(forest, rows).sizes
    at_depth = {d: np.flatnonzero(forest.latent_depth == d) for d in sorted(set(depths))}
    second = max(int(np.sort(size[latents])[-2]) if latents.size > 1 else 0 for latents in at_depth.values())
    if second < min_size:
        rule = f"{name} must leave two latents at some depth"
        raise ValueError(f"{rule}, got {min_size} and at these depths no second latent has more than {second} points")
    large = {d: latents[size[latents] >= min_size] for d, latents in at_depth.items()}
    kept = {d: latents for d, latents in large.items() if latents.size >= least}
    counts = [latents.size for latents in kept.values()]
    first = np.cumsum([0, *counts[:-1]])
    located = [locate(forest, rows, latents) for latents in kept.values()]
    where = np.stack([np.where(at >= 0, at + lo, -1) for at, lo in zip(located, first, strict=True)], 1)
    latent = np.concatenate(list(kept.values()))
    depth_index = np.repeat(np.arange(len(kept)), counts)
    return Places(np.array(list(kept)), latent, depth_index, where, size[latent], forest.latent_start[latent])


def locate(forest: Forest, rows: Ints, latents: Ints) -> Ints:
    """Return, for each row, the index of its latent, -1 for none. The latents share no row and are in leaf order."""
    start = forest.latent_start[latents]
    at = np.searchsorted(start, rows, side="right") - 1
    stop = start + forest.latent_size[latents]
    return np.where((at >= 0) & (rows < stop[at]), at, -1)


# ---------------------------------------------------------------------- samples held out


def random_points(places: Places, rows: Ints, train_share: float, seed: int) -> Ints:
    """Return the part of each sample, TRAIN or TEST: of n samples of a depth, int(train_share · n) train.

    Going up from the deepest depth, the samples that a depth adds are divided at random so that the counts are exact.
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

    The trunk goes down from the top of the largest cluster, always to the child with more points. Each subtree off the
    trunk, and each other cluster, is a piece. Pieces are assigned to folds, the largest first, each to the fold with
    the fewest samples. A fold trains on all samples outside its pieces and is scored on the latents inside them.
    Latents of the trunk have points in several pieces and are never scored: like samples in no piece, they are TRAIN.
    """
    labels, pieces = by_row(forest, rows), _pieces(forest, int(places.depths[-1]))
    start, stop = labels.first, labels.stop
    pieces = pieces[labels.sizes[pieces] >= min_size]
    load = np.zeros(min(folds, pieces.size), np.int64)
    fold_of_row = np.full(forest.n_points, TRAIN)
    top = np.full(forest.n_points, forest.n_latents)
    for piece in pieces[np.argsort(-labels.sizes[pieces], kind="stable")]:
        fold = int(load.argmin())
        load[fold] += labels.sizes[piece]
        fold_of_row[start[piece] : stop[piece]] = fold
        top[start[piece] : stop[piece]] = piece
    inside = top[places.start] <= places.latent  # in preorder a piece comes before all that is inside it
    return fold_of_row[rows], np.where(inside, fold_of_row[places.start], TRAIN)


def _pieces(forest: Forest, last_depth: int) -> Ints:
    """Return the tops of all clusters but the largest, and of the subtrees off its trunk down to `last_depth`."""
    n = forest.n_points
    tops = (forest.cluster_start[:-1] - np.arange(forest.n_clusters))[forest.cluster_size > 1]
    pieces = tops[1:].tolist()
    latent = 0
    for _ in range(min(last_depth, int(forest.latent_depth.max(initial=0))) + 1):
        left = int(forest.left_size[latent])
        heavy = 0 if left >= forest.latent_size[latent] - left else 1
        children = forest.latent_children[latent].tolist()
        if children[1 - heavy] >= n:  # a single point is not a piece
            pieces.append(children[1 - heavy] - n)
        if children[heavy] < n:
            break
        latent = children[heavy] - n
    return np.array(pieces, np.int64)


# ---------------------------------------------------------------------- probes of given values


@dataclass(frozen=True, eq=False)
class Reading:
    """Probes of T values of the latents in one representation."""

    mse: Floats  #: (L, T) mean squared error over the held-out samples of each latent; NaN where it has none
    baseline: Floats  #: (L, T) the same for the mean of the fitted samples
    weight: torch.Tensor  #: (J, T, w) the weights of each probe, for unstandardised activations
    #: (J, T) mean slope of the readings of held-out samples on the value: 1 for a perfect reading
    gain: Floats


def held_out(n: int) -> NDArray[np.bool_]:
    """Return which of n samples `read_places` scores on: each with probability `HELD_OUT`."""
    return np.random.default_rng((0, 0)).random(n) < HELD_OUT


def read_places(
    A: torch.Tensor, places: Places, values: Floats, alpha: float = 1.0, part: Ints | None = None
) -> Reading:
    """Fit probes of T values of the latents at every depth, and score them on held-out samples.

    Parameters
    ----------
    A
        (n, w) activations by sample.
    places
        From `find_places`.
    values
        (L, T) values of the probed latents: a network's own, those of other networks, or fresh ones.
    alpha
        Ridge penalty on standardised activations; 1 is the paper's.
    part
        (n,) whether each sample is fitted, TRAIN, scored, TEST, or neither, LEFT_OUT; None: as `held_out` decides.
    """
    J, T = places.depths.size, values.shape[1]
    part = np.where(held_out(len(A)), TEST, TRAIN) if part is None else part
    samples = Samples(part, places.level, np.where(places.where >= 0, places.where, len(places)), len(places))
    # A sample without a latent at a depth gets the last line, 0, and belongs to no fit of that depth.
    table = torch.from_numpy(np.concatenate([values, np.zeros((1, T))])).to(A.device, torch.float32)
    targets = table[torch.from_numpy(places.where).to(A.device)].view(len(A), J * T)
    fitted = CrossFit(A, targets, samples, [alpha], A.device)
    [fit], scores = fitted.fits, fitted.scores()
    with np.errstate(invalid="ignore", divide="ignore"):
        mse = scores.squared / scores.n
        both = np.nan_to_num(scores.target * scores.read / scores.n)  # of targets that a latent's samples share
    by_depth = np.eye(J)[:, places.depth_index]
    _, target, squares, read, n = (by_depth @ sums for sums in scores)
    gain = (n * (by_depth @ both) - read * target) / (n * squares - target**2)
    baseline = (fit.mean.view(J, T).cpu().numpy()[places.depth_index] - values) ** 2
    return Reading(mse, baseline, fit.weight.T.reshape(J, T, -1), gain)


# ---------------------------------------------------------------------- values of latents
#
# Values of latents that probes are asked for: the true ones, fresh and permuted ones, and sums down the hierarchy.


def path_sums(forest: Forest, values: Floats) -> Floats:
    """Return the sums of (n_latents, k) values from the top of the cluster down to each latent. Linear time."""
    total = np.array(values, np.float64, order="C")
    add_parents(forest.latent_parent, total)
    return total


@kernel
def add_parents(parent, total):
    """Add to every row the row of its parent, which comes before it."""
    for i in range(parent.size):
        if parent[i] >= 0:
            for k in range(total.shape[1]):
                total[i, k] += total[parent[i], k]


def fresh_values(forest: Forest, draws: int, seed: int) -> Floats:
    """Return (n_latents, draws) standard normal values that no network was trained on."""
    return np.random.default_rng((seed, _FRESH)).standard_normal((draws, forest.n_latents)).T


def columns(draws: int, targets: tuple[str, ...] = TARGETS) -> tuple[Column, ...]:
    """Return targets with their draws, in the order in which they stand side by side; true ones have draw 0."""
    return tuple((name, draw) for name in targets for draw in range(1 if name in TRUE_TARGETS else draws))


def targets_of(forest: Forest, z: Floats, places: Places, rows: Ints, draws: int, seed: int) -> NDArray[np.float32]:
    """Return (n, J, T) targets of samples at each depth, one for each of `columns`; 0 where a sample has no latent."""
    fresh = fresh_values(forest, draws, seed)
    values = np.column_stack([z, path_sums(forest, z[:, None]), fresh, path_sums(forest, fresh)])[places.latent]
    order = np.argsort(rows, kind="stable")
    targets = np.zeros((*places.where.shape, values.shape[1] + 2 * draws), np.float32)
    for index, depth in enumerate(places.depths.tolist()):
        here = order[places.where[order, index] >= 0]
        true = values[places.where[here, index]].astype(np.float32)
        random = np.random.default_rng((seed, depth))
        shuffled = [random.permuted(true[:, :2], axis=0) for _ in range(draws)]
        targets[here, index] = np.concatenate([true, np.stack(shuffled, 2).reshape(here.size, -1)], 1)
    return targets
