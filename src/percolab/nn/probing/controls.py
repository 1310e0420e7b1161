"""Controls of the probes: networks that were never trained, random features, fresh values, permuted targets.

Every number about a trained network stands beside the same number for these, with its interval over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn

from percolab.intervals import Estimate, central, over_seeds
from percolab.nn.networks.recording import RAW
from percolab.nn.probing.errors import ProbeErrors
from percolab.nn.probing.rows import TARGETS

TRAINED, UNTRAINED, RANDOM = "trained", "untrained", "random"
KINDS = (RAW, RANDOM, UNTRAINED, TRAINED)
"""Kinds of what is probed, each with one or several members: the input itself, random features, networks."""


def random_features(X: torch.Tensor, width: int, seed: int) -> torch.Tensor:
    """Return relu(W x + b) with W and b as PyTorch initialises a linear layer: a layer that knows nothing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = nn.Linear(X.shape[1], width)
    with torch.no_grad():
        features: torch.Tensor = torch.relu(layer.to(X.device)(X))
    return features


TRUE_TARGETS = TARGETS[:2]
ByKind = Mapping[str, Sequence[ProbeErrors]]
"""By kind, the errors of its members under one protocol."""


def relative_errors(members: Sequence[ProbeErrors], name: str, target: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (members,) errors over those of the training mean: median over depths, mean over draws."""
    found = []
    for errors in members:
        ratio = errors.relative(name, target)
        there = ~np.isnan(ratio).all(1)
        found.append(np.mean(np.nanmedian(ratio[there], axis=1)) if there.any() else np.nan)
    return np.array(found)


def over_draws(members: Sequence[ProbeErrors], name: str, target: str) -> Estimate:
    """Return the mean of relative errors over draws, and the interval that holds 95% of them; means over members."""
    values = np.mean([np.nanmedian(errors.relative(name, target), axis=1) for errors in members], 0)
    return central(values, len(members))


def r_squared(members: Sequence[ProbeErrors], name: str, target: str) -> list[float]:
    """Return R² of all members, draws and depths where it is defined."""
    found = []
    for errors in members:
        k = errors.at(target)
        n = errors.by_depth(errors.n)
        there = n > 0
        total, squares, squared = (
            errors.by_depth(values[:, k])[there] for values in (errors.total, errors.squares, errors.squared[name])
        )
        spread = squares - total**2 / n[there, None]
        known = spread > 1e-9 * np.maximum(squares, 1)
        found += (1 - squared[known] / spread[known]).tolist()
    return found


def table(by_kind: ByKind, targets: Sequence[str]) -> list[dict[str, Any]]:
    """Return the relative error of every representation of every kind: mean over members, with its interval.

    A row for each kind and representation: ``n``, how many members; by target the mean and its 95% interval, over
    members for true values and over draws for fresh and permuted ones. Of trained networks ``over_untrained`` is the
    ratio to the untrained ones that they started as, by target.
    """
    rows = []
    for kind in KINDS:
        members = by_kind.get(kind, ())
        for name in members[0].squared if members else ():
            row: dict[str, Any] = {"kind": kind, "representation": name, "n": len(members)}
            for target in targets:
                if target.endswith(("_redrawn", "_shuffled")):
                    row[target] = asdict(over_draws(members, name, target))
                else:
                    row[target] = asdict(over_seeds(relative_errors(members, name, target)))
            if kind == TRAINED and by_kind.get(UNTRAINED):
                row["over_untrained"] = {
                    target: asdict(ratio_over_seeds(members, by_kind[UNTRAINED], name, target))
                    for target in targets
                    if target in TRUE_TARGETS
                }
            rows.append(row)
    return rows


def ratio_over_seeds(of: Sequence[ProbeErrors], over: Sequence[ProbeErrors], name: str, target: str) -> Estimate:
    """Return the ratio of relative errors of networks and of those that they started as, with Student's interval."""
    pairs = zip(relative_errors(of, name, target), relative_errors(over, name, target), strict=False)
    return over_seeds([np.log(a / b) for a, b in pairs]).through(np.exp)


def permuted(by_kind: ByKind) -> dict[str, float]:
    """Return R² of probes of permuted targets, over all networks, draws and depths: median, and the middle 95%."""
    values = [
        value
        for members in by_kind.values()
        for name in (members[0].squared if members else ())
        for target in ("z_shuffled", "sum_shuffled")
        for value in r_squared(members, name, target)
    ]
    if not values:
        return {}
    found = central(values)
    return {"median": float(np.median(values)), "low": found.low, "high": found.high, "n": len(values)}


def held_out(by_kind: ByKind) -> list[dict[str, Any]]:
    """Return, by kind and representation, whether z is read off latents never seen: error, fresh values, p.

    The error is the sum over latents of MSE over that of the training mean, mean over networks. ``p`` is the share of
    fresh draws that do at least as well, the true values counted among them.
    """
    rows = []
    for kind in KINDS:
        members = by_kind.get(kind, ())
        for name in members[0].squared if members else ():
            scores = np.mean([pooled(errors, name) for errors in members], 0)
            fresh = scores[1:]
            null = central(fresh)
            rows.append({
                "kind": kind, "representation": name, "n": len(members), "error": float(scores[0]),
                "fresh": {"value": null.value, "low": null.low, "high": null.high},
                "draws": int(fresh.size), "p": float((1 + np.sum(fresh <= scores[0])) / (1 + fresh.size)),
            })  # fmt: skip
    return rows


def pooled(errors: ProbeErrors, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return (1 + draws,) relative errors of z and of its fresh draws, each latent counting alike."""
    k = errors.at("z") + errors.at("z_redrawn")
    found: np.ndarray[Any, np.dtype[np.float64]] = errors.mse(name)[:, k].sum(0) / errors.baseline[:, k].sum(0)
    return found
