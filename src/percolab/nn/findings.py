"""The paper's five findings about linear probes, each as a statistic of the per-latent table with a stated rule."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas
import scipy.stats

from percolab.nn.probe_errors import LEAST_BASELINE
from percolab.nn.probe_rows import LATENT_TARGETS, TARGETS
from percolab.nn.recording import RAW, label

N_BINS = 5
SIGNIFICANCE = 0.01
LAYER_CHANGE = 0.1
"""Largest relative change of the error from the first block to the last that still counts as no trend."""


@dataclass(frozen=True)
class Finding:
    """One statement of the paper, the statistic that checks it, and how it comes out."""

    claim: str
    rule: str
    """when it is said to hold"""
    verdict: str
    """holds, holds in part, or does not hold"""
    numbers: str
    """the statistic, in words"""
    values: dict[str, Any]


def select(per_latent: pandas.DataFrame, protocol: str, target: str) -> pandas.DataFrame:
    """Return the rows of a protocol and target whose target is not all but constant."""
    table = per_latent
    return table[(table["protocol"] == protocol) & (table["target"] == target) & (table["baseline"] >= LEAST_BASELINE)]


def with_ratio(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table with a column `ratio`: MSE over the same latent's MSE on the raw input."""
    raw = table[table["representation"] == RAW].set_index("latent")["MSE"]
    return table.assign(ratio=table["MSE"].to_numpy() / raw.reindex(table["latent"]).to_numpy())


def by_fom(table: pandas.DataFrame, n_bins: int = N_BINS) -> pandas.DataFrame:
    """Return medians and quartiles of MSE and ratio in logarithmic bins of FOM, by representation."""
    table = with_ratio(table)
    edges = np.geomspace(table["FOM"].min() * (1 - 1e-9), table["FOM"].max() * (1 + 1e-9), n_bins + 1)
    table = table.assign(bin=np.digitize(table["FOM"], edges[1:-1]))
    parts = []
    for (name, index), group in table.groupby(["representation", "bin"], sort=False):
        row: dict[str, Any] = {"representation": name, "bin": index, "n": len(group)}
        row["FOM"] = float(np.sqrt(edges[int(index)] * edges[int(index) + 1]))
        for column in ("MSE", "ratio"):
            row |= dict(
                zip((f"{column}_q25", column, f"{column}_q75"), group[column].quantile([0.25, 0.5, 0.75]), strict=True)
            )
        parts.append(row)
    return pandas.DataFrame(parts).sort_values(["representation", "bin"], ignore_index=True)


@dataclass(frozen=True)
class PowerLaw:
    """Least squares of log10 y on log10 x."""

    slope: float
    slope_error: float
    intercept: float
    r2: float
    n: int


def power_law(x: Any, y: Any) -> PowerLaw | None:
    """Fit y = 10^intercept · x^slope; None with fewer than three usable points."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    good = (x > 0) & (y > 0)
    if np.count_nonzero(good) < 3:
        return None
    fit = scipy.stats.linregress(np.log10(x[good]), np.log10(y[good]))
    return PowerLaw(
        float(fit.slope), float(fit.stderr), float(fit.intercept), float(fit.rvalue**2), int(np.count_nonzero(good))
    )


def blocks(names: Any, part: str) -> list[str]:
    """Return the names of a part of each block, in order: part is ``"hidden"`` or ``"residual"``."""
    pattern = re.compile(r"blocks\.(\d+)" + (r"\.hidden" if part == "hidden" else ""))
    found = [match for name in dict.fromkeys(names) if (match := pattern.fullmatch(name))]
    return [match[0] for match in sorted(found, key=lambda match: int(match[1]))]


def check(
    per_latent: pandas.DataFrame, per_depth: pandas.DataFrame, protocol: str = "random", target: str = "z"
) -> list[dict[str, Any]]:
    """Check the five findings for a protocol and target; return them ready for JSON."""
    table = select(per_latent, protocol, target)
    depth = per_depth[(per_depth["protocol"] == protocol) & (per_depth["target"] == target)]
    depth = depth[depth["mean_MSE"] >= LEAST_BASELINE]
    if table.empty or len(blocks(table["representation"].unique(), "residual")) < 2:
        return []
    bins = by_fom(table)
    found = [_beats_raw(bins), _hidden_beats_residual(bins), _shrinks(table), _power(bins, depth), _layers(table)]
    return [asdict(finding) for finding in found]


def _verdict(share: float) -> str:
    return "holds" if share == 1 else "holds in part" if share >= 0.5 else "does not hold"


def _beats_raw(bins: pandas.DataFrame) -> Finding:
    names = bins["representation"].unique()
    other = bins[bins["representation"].isin(blocks(names, "residual") + blocks(names, "hidden"))]
    wins = int((other["ratio"] < 1).sum())
    return Finding(
        "Activations beat the raw input at every FOM.",
        "the median over latents of MSE / MSE on raw input is below 1 in every FOM bin, for both streams of "
        "every block (the input layer is linear, so it is left out)",
        _verdict(wins / len(other)),
        f"below 1 in {wins} of {len(other)} pairs of bin and layer; median ratios from {other['ratio'].min():.2f} to "
        f"{other['ratio'].max():.2f}",
        {"wins": wins, "of": len(other), "lowest": float(other["ratio"].min()), "highest": float(other["ratio"].max())},
    )


def _hidden_beats_residual(bins: pandas.DataFrame) -> Finding:
    pivot = bins.pivot(index="bin", columns="representation", values="MSE")
    pairs = list(zip(blocks(pivot.columns, "hidden"), blocks(pivot.columns, "residual"), strict=True))
    ratios = np.concatenate([(pivot[hidden] / pivot[residual]).to_numpy() for hidden, residual in pairs])
    wins = int(np.count_nonzero(ratios < 1))
    return Finding(
        "Hidden activations beat the residual stream.",
        "the median MSE on the hidden layer is below that on the same block's residual stream in every FOM bin",
        _verdict(wins / ratios.size),
        f"below in {wins} of {ratios.size} pairs of bin and block; ratio of medians {ratios.min():.2f} to "
        f"{ratios.max():.2f}",
        {"wins": wins, "of": int(ratios.size), "lowest": float(ratios.min()), "highest": float(ratios.max())},
    )


def _shrinks(table: pandas.DataFrame) -> Finding:
    table = with_ratio(table)
    values = {}
    for name in blocks(table["representation"].unique(), "residual") + blocks(
        table["representation"].unique(), "hidden"
    ):
        own = table[table["representation"] == name]
        test = scipy.stats.spearmanr(own["FOM"], own["ratio"])
        values[name] = {"spearman": float(test.statistic), "p": float(test.pvalue)}
    wins = sum(v["spearman"] > 0 and v["p"] < SIGNIFICANCE for v in values.values())
    low, high = (f([v["spearman"] for v in values.values()]) for f in (min, max))
    return Finding(
        "The advantage over the raw input shrinks as FOM grows.",
        f"over latents, FOM and the ratio to raw input have a positive rank correlation (p < {SIGNIFICANCE}), "
        "for every layer",
        _verdict(wins / len(values)),
        f"so in {wins} of {len(values)} layers; Spearman's rank correlation from {low:.2f} to {high:.2f}",
        values,
    )


def _power(bins: pandas.DataFrame, depth: pandas.DataFrame) -> Finding:
    values: dict[str, Any] = {}
    for part in ("residual", "hidden"):
        last = blocks(bins["representation"].unique(), part)[-1]
        own, own_depth = bins[bins["representation"] == last], depth[depth["representation"] == last]
        fits = {
            "FOM": power_law(own["FOM"], own["MSE"]),
            "depth": power_law(own_depth["depth"], own_depth["MSE"]),
        }
        values[last] = {name: asdict(fit) if fit else None for name, fit in fits.items()}
    in_fom, in_depth, words = [], [], []
    for name, fits in values.items():
        fom, deep = fits["FOM"], fits["depth"]
        in_fom.append(bool(fom and fom["r2"] >= 0.8 and abs(fom["slope"]) > 2 * fom["slope_error"]))
        in_depth.append(bool(deep and deep["r2"] >= 0.5))
        words.append(f"{label(name)}: FOM {_fit_words(fom)}, depth {_fit_words(deep)}")
    return Finding(
        "MSE follows a power law in FOM, and none in depth.",
        "for the last block, log median MSE on log FOM has R² ≥ 0.8 and a slope beyond two standard errors of 0; "
        "log MSE on log depth has R² < 0.5",
        "does not hold" if not any(in_fom) else "holds" if all(in_fom) and not any(in_depth) else "holds in part",
        "; ".join(words),
        values,
    )


def _fit_words(fit: dict[str, Any] | None) -> str:
    return f"slope {fit['slope']:.2f} ± {fit['slope_error']:.2f} (R² {fit['r2']:.2f})" if fit else "too few points"


def _layers(table: pandas.DataFrame) -> Finding:
    values = {}
    pivot = table.pivot(index="latent", columns="representation", values="MSE")
    for part in ("residual", "hidden"):
        names = blocks(pivot.columns, part)
        values[part] = float((pivot[names[-1]] / pivot[names[0]]).median())
    wins = sum(abs(value - 1) < LAYER_CHANGE for value in values.values())
    return Finding(
        "There is no trend across layers.",
        f"the median over latents of MSE at the last block / MSE at the first is within {LAYER_CHANGE:.0%} of 1, "
        "in both streams",
        _verdict(wins / 2),
        "; ".join(f"{part} {value:.2f}" for part, value in values.items()),
        values,
    )


def controls(per_depth: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return how each target fares under each protocol, on the raw input and on the last block; medians over depths.

    Depths at which all training rows have one target are left out: a probe can only give it back, and is then equal to
    the mean by construction.
    """
    names = per_depth["representation"].unique()
    shown = [RAW, *blocks(names, "residual")[-1:], *blocks(names, "hidden")[-1:]]
    relative = per_depth["MSE"] / per_depth["mean_MSE"]
    table = per_depth.assign(relative=relative)[
        (per_depth["mean_MSE"] >= LEAST_BASELINE) & ((relative - 1).abs() > 1e-9)
    ]
    rows = []
    for protocol in table["protocol"].unique():
        # Shuffled rows are a control of the fit; where the fit is on other latents they say nothing.
        for target in TARGETS if protocol == "random" else LATENT_TARGETS:
            for name in shown:
                own = table[(table["protocol"] == protocol) & (table["target"] == target)]
                own = own[own["representation"] == name]
                if not own.empty:
                    rows.append(
                        {
                            "protocol": protocol,
                            "target": target,
                            "representation": name,
                            "median_r2": float(own["R2"].median()),
                            "median_relative_mse": float(own["relative"].median()),
                        }
                    )
    return rows
