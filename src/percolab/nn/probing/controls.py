"""Controls of the probes, over kinds of networks: untrained ones, random features, fresh values, permuted targets.

Every number for trained networks is reported with the same number for these controls, with its interval over seeds.

A positive control shows which signals held-out subtrees can detect: probes that read nothing are informative only if
they would have read a signal that is present. So a signal is planted in activations: for each depth there is a
direction along which a sample moves by s times z, with z the value of its latent at that depth and s in units of the
standard deviation of the activations along the direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas
import torch

from percolab.ground.arrays import Floats
from percolab.ground.devices import Device
from percolab.ground.progress import Progress, silent
from percolab.intervals import Estimate, central, over_seeds
from percolab.model.forest import Forest
from percolab.nn.config import ProbeConfig
from percolab.nn.networks.activations import RAW
from percolab.nn.probing.errors import ProbeErrors
from percolab.nn.probing.probed_latents import LATENT_TARGETS, TRUE_TARGETS, fresh_values
from percolab.nn.probing.prober import Prober
from percolab.worlds.superposed import AnyDataset, truth

TRAINED, UNTRAINED, RANDOM = "trained", "untrained", "random"
#: Kinds of representations, each with one or several members: the input itself, random features, networks.
NETWORK_KINDS = (RAW, RANDOM, UNTRAINED, TRAINED)
ByKind = Mapping[str, Sequence[ProbeErrors]]  #: By kind, the errors of its members under one protocol.
STRENGTHS = (0.1, 0.2, 0.5, 1.0, 2.0)
CHANCE = 0.05  #: Probability that a signal is found where there is none.
N_DEPTHS = 5  #: Most depths that signals are planted at: they share the width of the activations.


def _series(by_kind: ByKind) -> Iterator[tuple[str, Sequence[ProbeErrors], str]]:
    """Yield every kind that is present, its members, and each of their representations."""
    for kind in NETWORK_KINDS:
        members = by_kind.get(kind, ())
        for name in members[0].squared if members else ():
            yield kind, members, name


def relative_errors(members: Sequence[ProbeErrors], name: str, target: str) -> Floats:
    """Return (members,) errors relative to that of the training mean: median over depths, mean over draws."""
    return np.array([errors.typical(name, target) for errors in members])


def over_draws(members: Sequence[ProbeErrors], name: str, target: str) -> Estimate:
    """Return the mean of relative errors over draws, and the interval with 95% of the draws; averaged over members."""
    values = np.mean([np.nanmedian(errors.relative(name, target), axis=1) for errors in members], 0)
    return central(values, len(members))


def table(by_kind: ByKind, targets: Sequence[str]) -> list[dict[str, Any]]:
    """Return the relative error of every representation of every kind: mean over members, with its interval.

    One row for each kind and representation: ``n``, the number of members; by target the mean and its 95% interval,
    over members for true values and over draws for fresh and permuted ones. For trained networks ``over_untrained`` is
    the ratio to the same networks before training, by target.
    """
    rows = []
    for kind, members, name in _series(by_kind):
        row: dict[str, Any] = {"kind": kind, "representation": name, "n": len(members)}
        for target in targets:
            if target in TRUE_TARGETS:
                row[target] = asdict(over_seeds(relative_errors(members, name, target)))
            else:
                row[target] = asdict(over_draws(members, name, target))
        if kind == TRAINED and by_kind.get(UNTRAINED):
            row["over_untrained"] = {
                target: asdict(ratio_over_seeds(members, by_kind[UNTRAINED], name, target))
                for target in targets
                if target in TRUE_TARGETS
            }
        rows.append(row)
    return rows


def ratio_over_seeds(of: Sequence[ProbeErrors], over: Sequence[ProbeErrors], name: str, target: str) -> Estimate:
    """Return the ratio of relative errors, networks over their initial weights, with Student's interval."""
    pairs = zip(relative_errors(of, name, target), relative_errors(over, name, target), strict=False)
    return over_seeds([np.log(a / b) for a, b in pairs]).through(np.exp)


def permuted(by_kind: ByKind) -> dict[str, float]:
    """Return R² of probes of permuted targets, over all networks, draws and depths: median, and the middle 95%."""
    parts = [
        errors.r2(name)[:, errors.at("z_shuffled") + errors.at("sum_shuffled")].ravel()
        for _, members, name in _series(by_kind)
        for errors in members
    ]
    values = np.concatenate([np.zeros(0), *parts])
    values = values[~np.isnan(values)]
    if not values.size:
        return {}
    middle = central(values)
    return {"median": float(np.median(values)), "low": middle.low, "high": middle.high, "n": values.size}


def held_out(by_kind: ByKind) -> list[dict[str, Any]]:
    """Return, by kind and representation, whether z can be read for unseen latents: error, fresh values, p.

    The error is the summed MSE over latents divided by that of the training mean, averaged over networks. ``p`` is the
    share of fresh draws with an error at most as large, counting the true values as one of them.
    """
    rows = []
    for kind, members, name in _series(by_kind):
        scores = np.mean([pooled(errors, name) for errors in members], 0)
        fresh = scores[1:]
        null = central(fresh)
        rows.append({
            "kind": kind, "representation": name, "n": len(members), "error": float(scores[0]),
            "fresh": {"value": null.value, "low": null.low, "high": null.high},
            "draws": int(fresh.size), "p": float((1 + np.sum(fresh <= scores[0])) / (1 + fresh.size)),
        })  # fmt: skip
    return rows


def pooled(errors: ProbeErrors, name: str) -> Floats:
    """Return (1 + draws,) relative errors of z and of its fresh draws; every latent has the same weight."""
    k = errors.at("z") + errors.at("z_redrawn")
    return errors.mse(name)[:, k].sum(0) / errors.baseline[:, k].sum(0)


def of_kinds(forest: Forest, by_protocol: Mapping[str, ByKind]) -> dict[str, pandas.DataFrame]:
    """Return the tables ``per_latent`` and ``per_depth``: errors, summarised over the members of each kind.

    Columns: protocol, kind (raw, random, untrained, trained), representation, target, then of a latent: depth, latent,
    s_latent, s_cluster, FOM, n_validation; of a depth: depth, n_validation, n_latents; then MSE, its mean over members
    and draws, MSE_sd, the standard deviation over members, and baseline, the error of the training mean.
    """
    tables: dict[str, list[pandas.DataFrame]] = {"per_latent": [], "per_depth": []}
    for protocol, by_kind in by_protocol.items():
        for kind, members, name in _series(by_kind):
            first, n = members[0], members[0].n
            by_depth, mean = first.depth_columns()
            del by_depth["n_train"]
            for target in LATENT_TARGETS:
                head = {"protocol": protocol, "kind": kind, "representation": name, "target": target}
                k = first.at(target)
                mse = np.stack([errors.mse(name)[:, k].mean(1) for errors in members])
                baseline = first.baseline[:, k].mean(1)
                tables["per_latent"].append(_summarised(head | first.latent_columns(forest), mse, baseline))
                by_member = np.stack([mean(of_member * n) for of_member in mse])
                tables["per_depth"].append(_summarised(head | by_depth, by_member, mean(baseline * n)))
    return {name: pandas.concat(parts, ignore_index=True) for name, parts in tables.items()}


def _summarised(columns: dict[str, Any], mse: Floats, baseline: Floats) -> pandas.DataFrame:
    spread = mse.std(0, ddof=1) if len(mse) > 1 else np.full(mse.shape[1], np.nan)
    return pandas.DataFrame(columns | {"MSE": mse.mean(0), "MSE_sd": spread, "baseline": baseline})


# ---------------------------------------------------------------------- planted signals


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
    dataset: AnyDataset, A: torch.Tensor, config: ProbeConfig, *, device: Device = "auto", progress: Progress = silent
) -> dict[str, Any]:
    """Return how often a planted signal is found on held-out subtrees, by its strength; see `power_curve`.

    Each draw of fresh values is planted and probed for; the other draws, which are not planted, show what probes find
    by chance. The depths are some of the configuration's depths.
    """
    most = min(N_DEPTHS, max(1, A.shape[1] // 2))
    depths = config.depths[:: -(-len(config.depths) // most)]
    reduced = replace(config, depths=depths, protocols=("subtree",))
    prober = Prober(dataset, reduced, device=device)
    if not prober.plans:
        return {}
    known = truth(dataset)
    fresh = fresh_values(known.forest, reduced.draws, reduced.seed)
    latents = np.stack([known.latent_at_depth(depth) for depth in depths], 1)
    planted, null = {}, []
    done, total = 0, len(STRENGTHS) * reduced.draws
    for strength in STRENGTHS:
        errors = []
        for draw in range(reduced.draws):
            values = np.where(latents >= 0, fresh[latents, draw], np.nan)
            moved = plant(A, values, strength, draw)
            scores = pooled(prober.run({"planted": moved}).errors[0], "planted")[1:]
            errors.append(scores[draw])
            null += np.delete(scores, draw).tolist()
            done += 1
            progress("power", done, total)
        planted[float(strength)] = np.array(errors)
    return {**power_curve(planted, np.array(null)), "depths": list(depths), "width": A.shape[1]}


def power_curve(planted: Mapping[float, Floats], null: Floats) -> dict[str, Any]:
    """Return how often planted signals are found, by strength: their error is below the 5% quantile of the null.

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
