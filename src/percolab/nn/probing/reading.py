"""Ridge probes of any values of the latents, many at a time: errors by latent, and the directions that are read.

As in `percolab.nn.probing.prober` a probe reads, at one depth, the value of the latent that a sample belongs to there.
Here the values are given: those that a network was trained on, those of other networks, fresh ones. One factorisation
serves all values of a depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.features.concepts import rows_below
from percolab.model.forest import Forest
from percolab.nn.probing.ridge import CHUNK_ROWS, NormalEquations

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

HELD_OUT = 0.3
"""Share of samples that probes are scored on."""
ALPHA = 1.0
"""Ridge penalty on standardised activations, the paper's."""


@dataclass(frozen=True, eq=False)
class Places:
    """The latents that are probed, and the samples of each."""

    depths: Ints
    """(J,) increasing, each with at least two latents"""
    latent: Ints
    """(L,) by depth, then by row"""
    depth_index: Ints
    """(L,)"""
    where: Ints
    """(n, J) for each sample, which of the L latents it has at each depth; -1 for none"""
    fit: NDArray[np.bool_]
    """(n,) samples that probes are fitted to; the others are scored on"""
    size: Ints
    """(L,) samples of each latent"""
    start: Ints
    """(L,) first row of each latent"""

    def __len__(self) -> int:
        return self.latent.size


def find_places(forest: Forest, rows: Ints, depths: Sequence[int], min_size: int, seed: int) -> Places:
    """Return the latents of some depths with at least `min_size` samples; depths with fewer than two are left out.

    Parameters
    ----------
    forest
        The hierarchy.
    rows
        (n,) the row of each sample.
    depths
        Which depths.
    min_size
        Fewest samples of a latent.
    seed
        What decides which samples are held out: each is with probability `HELD_OUT`.
    """
    below = rows_below(forest, rows)
    size = below[forest.latent_start + forest.latent_size] - below[forest.latent_start]
    at_depth = {d: np.flatnonzero((forest.latent_depth == d) & (size >= min_size)) for d in sorted(set(depths))}
    kept = [d for d, latents in at_depth.items() if latents.size > 1]
    if not kept:
        raise ValueError(f"min_size must leave two latents at some depth, got {min_size}")
    latent = np.concatenate([at_depth[d] for d in kept])
    depth_index = np.repeat(np.arange(len(kept)), [at_depth[d].size for d in kept])
    where = np.full((rows.size, len(kept)), -1, np.int64)
    number = np.full(forest.n_latents + 1, -1, np.int64)
    number[latent] = np.arange(latent.size)
    for j, d in enumerate(kept):
        here = forest.latent_at_depth(d)
        where[:, j] = number[here][rows]
    fit = np.random.default_rng((seed, 0)).random(rows.size) >= HELD_OUT
    return Places(np.array(kept), latent, depth_index, where, fit, size[latent], forest.latent_start[latent])


@dataclass(frozen=True, eq=False)
class Reading:
    """Probes of one representation."""

    mse: Floats
    """(L, T) mean squared error over the held-out samples of each latent; NaN where it has none"""
    baseline: Floats
    """(L, T) the same for the mean of the samples fitted"""
    weight: torch.Tensor
    """(J, T, w) what each probe reads along, for activations as they are"""
    gain: Floats
    """(J, T) by how much the reading of held-out samples rises with the value, on average: 1 for a perfect reading"""


def read(A: torch.Tensor, places: Places, values: Floats, alpha: float = ALPHA) -> Reading:
    """Fit probes of T values of the latents at every depth, and score them on held-out samples.

    Parameters
    ----------
    A
        (n, w) activations by sample.
    places
        From `find_places`.
    values
        (L, T) values of the probed latents.
    alpha
        Ridge penalty.
    """
    device, (J, T) = A.device, (places.depths.size, values.shape[1])
    where = torch.from_numpy(places.where).to(device)
    table = torch.from_numpy(np.concatenate([values, np.zeros((1, T))])).to(device, torch.float32)
    # A row that has no latent at a depth gets the last line of the table, 0, and belongs to no fit of that depth.
    targets = table[where].reshape(len(A), J * T)
    level = _levels(places)
    weight, bias, mean = _fit(A, targets, np.where(places.fit, level, -1), J, alpha)
    error = torch.zeros(len(places) + 1, T, dtype=torch.float64, device=device)
    count = torch.zeros(len(places) + 1, dtype=torch.float64, device=device)
    held = torch.from_numpy(np.flatnonzero(~places.fit & (level >= 0))).to(device)
    moments = torch.zeros(5, J, T, dtype=torch.float64, device=device)
    for part in held.split(CHUNK_ROWS[device.type]):
        read_off, wanted = (A[part].double() @ weight + bias).view(-1, J, T), targets[part].double().view(-1, J, T)
        squared = (read_off - wanted).square()
        inside = (where[part] >= 0)[:, :, None]
        r, t = read_off * inside, wanted * inside
        moments += torch.stack([(inside + 0 * t).sum(0), r.sum(0), t.sum(0), (r * t).sum(0), (t * t).sum(0)])
        for j in range(J):
            at = where[part, j]
            error.index_add_(0, at.where(at >= 0, len(places)), squared[:, j])
            count.index_add_(0, at.where(at >= 0, len(places)), torch.ones_like(at, dtype=torch.float64))
    mse = (error[:-1] / count[:-1, None]).cpu().numpy()
    baseline = (mean.view(J, T).cpu().numpy()[places.depth_index] - values) ** 2
    n, r_sum, t_sum, rt_sum, tt_sum = moments
    gain = (n * rt_sum - r_sum * t_sum) / (n * tt_sum - t_sum**2)
    return Reading(mse, baseline, weight.T.reshape(J, T, -1), gain.cpu().numpy())


def _fit(
    A: torch.Tensor, targets: torch.Tensor, level: Ints, count: int, alpha: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return weights (w, J·T), intercepts and target means (J·T,) of the probes of all depths.

    The samples of a depth are those of the next one and some more, so going up from the deepest equations only grow.
    """
    T = targets.shape[1] // count
    rows = [torch.from_numpy(np.flatnonzero(level == j)).to(A.device) for j in range(count)]
    centre = A[next(part[0] for part in reversed(rows) if len(part))].double()
    equations = NormalEquations(centre, targets.shape[1])
    fits = []
    for j in range(count - 1, -1, -1):
        used = slice(0, (j + 1) * T)
        for part in rows[j].split(CHUNK_ROWS[A.device.type]):
            equations.add(A[part], targets[part, used], used)
        fits += equations.solve([alpha], slice(j * T, (j + 1) * T))
    weight, bias, mean = (torch.cat(parts, -1) for parts in zip(*fits[::-1], strict=True))
    return weight, bias, mean


def _levels(places: Places) -> Ints:
    """Return, for each sample, the index of the last depth at which it has a probed latent, -1 for none.

    A latent's ancestors are at least as large as itself, so a sample that has one at a depth has one at all before it.
    """
    levels: Ints = (places.where >= 0).sum(1) - 1
    return levels
