"""What a linear probe is asked for: the targets of every line of activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from percolab.ground.validation import check_choice, check_integer
from percolab.model.forest import Forest
from percolab.model.indices import listed
from percolab.nn.probing.latent_values import fresh_values, path_sums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

KINDS = ("z", "sum", "membership")
OWN = "own"


@dataclass(frozen=True, eq=False)
class Asked:
    """Targets of every line."""

    kind: str
    names: list[Any]
    values: NDArray[np.floating[Any]]
    """(lines, k); truth values as 0 and 1"""
    used: Bools
    """(lines,) whether a line has a target"""
    latent: Ints | None = None
    """(lines,) for z and sum, the latent of a line"""
    fresh: Floats | None = None
    """(lines, draws) the same for fresh values"""
    binary: bool = False


def asked_for(
    forest: Forest,
    z: Floats,
    at: Ints,
    target: Any,
    latents: ArrayLike | None,
    depth: int | None,
    draws: int,
    seed: int,
) -> Asked:
    """Return the targets of lines that are these rows of the forest."""
    if not isinstance(target, str):
        if latents is not None or depth is not None:
            raise ValueError("latents and depth must be left out with a target of one's own, got one of them")
        return _own(target, at.size)
    check_choice("target", target, KINDS)
    chosen = _chosen(forest, target, latents, depth)
    start, size = forest.latent_start[chosen], forest.latent_size[chosen]
    if target == "membership":
        inside = (at[:, None] >= start) & (at[:, None] < start + size)
        return Asked(target, chosen.tolist(), inside.astype(np.float32), np.ones(at.size, np.bool_), binary=True)
    order = np.argsort(start, kind="stable")
    chosen, start, size = chosen[order], start[order], size[order]
    for i in np.flatnonzero(start[1:] < (start + size)[:-1])[:1]:
        raise ValueError(f"latents must share no row for target {target!r}, got {chosen[i]} and {chosen[i + 1]}")
    place = np.searchsorted(start, at, side="right") - 1
    used = (place >= 0) & (at < (start + size)[np.maximum(place, 0)])
    latent = np.where(used, chosen[np.maximum(place, 0)], -1)
    true, fresh = z[:, None], fresh_values(forest, draws, seed)
    if target == "sum":
        true, fresh = path_sums(forest, true), path_sums(forest, fresh)
    return Asked(target, [target], true[latent], used, latent, fresh[latent])


def _chosen(forest: Forest, target: str, latents: ArrayLike | None, depth: int | None) -> Ints:
    if (latents is None) == (depth is None):
        got = "neither" if latents is None else "both"
        raise ValueError(f"latents or depth must be given with target {target!r}, got {got}")
    if depth is not None:
        chosen = np.flatnonzero(forest.latent_depth == check_integer("depth", depth, 0))
        if not chosen.size:
            raise ValueError(f"depth must be one that some latent has, got {depth}")
        return chosen
    chosen = np.unique(listed("latents", latents, forest.n_latents))
    if not chosen.size:
        raise ValueError("latents must not be empty, got none")
    return chosen


def _own(target: Any, lines: int) -> Asked:
    if isinstance(target, torch.Tensor):
        target = target.detach().cpu().numpy()
    values = np.asarray(target)
    if values.ndim not in (1, 2) or len(values) != lines or 0 in values.shape:
        raise ValueError(f"target must have shape ({lines},) or ({lines}, k), got {values.shape}")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"target must be numbers or truth values, got {values.dtype}")
    binary = values.dtype == np.bool_
    numbers: NDArray[Any] = values.reshape(lines, -1).astype(np.float32 if binary else np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError(f"target must be finite, got {numbers[~np.isfinite(numbers)][0]}")
    return Asked(OWN, list(range(numbers.shape[1])), numbers, np.ones(lines, np.bool_), binary=binary)
