"""Tidy tables of what was probed: errors by latent and by depth, summarised over the members of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from percolab.model.forest import Forest
from percolab.nn.probing.controls import KINDS, ByKind
from percolab.nn.probing.rows import LATENT_TARGETS


def of_kinds(forest: Forest, by_protocol: Mapping[str, ByKind]) -> dict[str, pandas.DataFrame]:
    """Return the tables ``per_latent`` and ``per_depth``.

    Columns: protocol, kind (raw, random, untrained, trained), representation, target, then of a latent: depth, latent,
    s_latent, s_cluster, FOM, n_validation; of a depth: depth, n_validation, n_latents; then MSE, its mean over members
    and draws, MSE_sd, the standard deviation over members, and baseline, the error of the training mean.
    """
    latents, depths = [], []
    for protocol, by_kind in by_protocol.items():
        for kind in KINDS:
            members = by_kind.get(kind, ())
            for name in members[0].squared if members else ():
                first = members[0]
                n = first.by_depth(first.n)
                there = np.flatnonzero(n > 0)
                for target in LATENT_TARGETS:
                    k = first.at(target)
                    head: dict[str, Any] = {
                        "protocol": protocol,
                        "kind": kind,
                        "representation": name,
                        "target": target,
                    }
                    mse = np.stack([errors.mse(name)[:, k].mean(1) for errors in members])
                    own: dict[str, Any] = {
                        "depth": first.depths[first.depth_index],
                        "latent": first.latent,
                        "s_latent": forest.latent_size[first.latent],
                        "s_cluster": forest.cluster_size[forest.latent_cluster[first.latent]],
                        "FOM": forest.figure_of_merit[first.latent],
                        "n_validation": first.n,
                    }
                    latents.append(_summarised(head | own, mse, first.baseline[:, k].mean(1)))
                    sums = np.stack([first.by_depth(one * first.n)[there] / n[there] for one in mse])
                    mean = first.by_depth(first.baseline[:, k].mean(1) * first.n)[there] / n[there]
                    count = first.by_depth(np.ones(first.n.size))[there].astype(np.int64)
                    own = {"depth": first.depths[there], "n_validation": n[there].astype(np.int64), "n_latents": count}
                    depths.append(_summarised(head | own, sums, mean))
    return {
        "per_latent": pandas.concat(latents, ignore_index=True),
        "per_depth": pandas.concat(depths, ignore_index=True),
    }


def _summarised(columns: dict[str, Any], mse: NDArray[Any], baseline: NDArray[Any]) -> pandas.DataFrame:
    spread = mse.std(0, ddof=1) if len(mse) > 1 else np.full(mse.shape[1], np.nan)
    return pandas.DataFrame(columns | {"MSE": mse.mean(0), "MSE_sd": spread, "baseline": baseline})
