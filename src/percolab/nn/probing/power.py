"""What held-out subtrees can detect: values of latents are written into activations, and looked for.

If probes of held-out subtrees read nothing, that says something only if they would have read what is there. So
activations get a planted signal: for each depth a direction, along which a line moves by s times z, with z the value of
its latent at that depth and s in units of the standard deviation of the activations along the direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.ground.progress import Progress, silent
from percolab.nn.config import ProbeConfig
from percolab.nn.networks.device import Device
from percolab.nn.probing.controls import pooled
from percolab.nn.probing.latent_values import fresh_values
from percolab.nn.probing.prober import Prober
from percolab.worlds.truth import AnyDataset, truth

Floats = NDArray[np.float64]

STRENGTHS = (0.1, 0.2, 0.5, 1.0, 2.0)
CHANCE = 0.05
"""How often something is found where nothing is."""
N_DEPTHS = 5
"""Most depths that signals are planted at: they share the width of the activations."""


def plant(A: torch.Tensor, values: Floats, strength: float, seed: int) -> torch.Tensor:
    """Return activations (m, p) with values (m, k) written along k random orthonormal directions.

    A value v moves its line by strength · v, in units of the standard deviation of the activations along the direction.
    NaN moves nothing.
    """
    random = np.random.default_rng((seed, 4))
    directions, _ = np.linalg.qr(random.standard_normal((A.shape[1], values.shape[1])))
    U = torch.from_numpy(directions).to(A.device, A.dtype)
    sigma = (A @ U).std(0)
    moved = torch.from_numpy(np.nan_to_num(values)).to(A.device, A.dtype) * (strength * sigma)
    return A + moved @ U.T


def planted_power(
    dataset: AnyDataset,
    A: torch.Tensor,
    config: ProbeConfig,
    *,
    strengths: Sequence[float] = STRENGTHS,
    device: Device = "auto",
    progress: Progress = silent,
) -> dict[str, Any]:
    """Return how often a planted signal is found on held-out subtrees, by its strength; see `power_curve`.

    For every draw of fresh values they are planted and probed for; the other draws, which are not planted, tell what
    probes find where there is nothing. Depths are some of the configuration's.
    """
    most = min(N_DEPTHS, max(1, A.shape[1] // 2))
    depths = config.depths[:: -(-len(config.depths) // most)]
    own = replace(config, depths=depths, protocols=("subtree",))
    prober = Prober(dataset, own, device=device)
    if not prober.plans:
        return {}
    known = truth(dataset)
    fresh = fresh_values(known.forest, own.draws, own.seed)
    latents = np.stack([known.latent_at_depth(depth) for depth in depths], 1)
    planted, null = {}, []
    done, total = 0, len(strengths) * own.draws
    for strength in strengths:
        found = []
        for draw in range(own.draws):
            values = np.where(latents >= 0, fresh[latents, draw], np.nan)
            moved = plant(A, values, strength, draw)
            scores = pooled(prober.run({"planted": moved}).errors[0], "planted")[1:]
            found.append(scores[draw])
            null += np.delete(scores, draw).tolist()
            done += 1
            progress("power", done, total)
        planted[float(strength)] = np.array(found)
    return {**power_curve(planted, np.array(null)), "depths": list(depths), "width": A.shape[1]}


def power_curve(planted: Mapping[float, Floats], null: Floats) -> dict[str, Any]:
    """Return how often planted signals are found, by strength: below a threshold that 5% are below without a signal.

    Parameters
    ----------
    planted
        By strength, (draws,) relative errors of probes of a planted target.
    null
        Relative errors of probes of targets that were not planted: their lower 5% quantile is the threshold.
    """
    threshold = float(np.quantile(null, CHANCE))
    return {
        "threshold": threshold,
        "null": [float(np.quantile(null, q)) for q in (0.025, 0.5, 0.975)],
        "strengths": [
            {
                "strength": strength,
                "found": float(np.mean(errors < threshold)),
                "error": float(np.median(errors)),
                "low": float(np.quantile(errors, 0.025)),
                "high": float(np.quantile(errors, 0.975)),
                "draws": int(errors.size),
            }
            for strength, errors in planted.items()
        ],
    }
