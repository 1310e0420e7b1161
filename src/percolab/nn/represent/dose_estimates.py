"""What pushes say: slopes, r² and leakage, relevant against irrelevant, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.intervals import Estimate, jackknife, kin, prediction
from percolab.intervals.lines import line_through_origin
from percolab.nn.frame.frame import Arrays
from percolab.nn.frame.table import Row, row
from percolab.nn.represent.pushing import FRESH_PROBES, LEAST_DEPTH
from percolab.nn.represent.work import Work

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Blocks = dict[str, Ints]
"""Of kin, among pairs and among latents."""
LESS_OTHER = "feature less another"
"""The response to a concept's own feature less that to another concept's: what the right feature does."""
At = tuple[int, int, int]
"""Epoch, layer and dose, by their numbers."""


def response_line(truth: Floats, response: Floats, blocks: Ints) -> tuple[Estimate, Estimate]:
    """Return slope and r² of responses over what the truth says, through the origin, with intervals.

    Parameters
    ----------
    truth
        (…, U) what the change should be.
    response
        (S, …, U) what it is, by seed; NaN are left out.
    blocks
        (U,) blocks of kin.
    """

    def line(part: str) -> Any:
        def statistic(seeds: Ints, units: Ints) -> float:
            y = response[seeds][..., units]
            x = np.broadcast_to(truth[..., units], y.shape)
            known = np.isfinite(y)
            return float(getattr(line_through_origin(x[known], y[known]), part))

        return statistic

    S = len(response)
    return jackknife(line("slope"), S, blocks), jackknife(line("r2"), S, blocks)


def leakage(inside: Floats, outside: Floats, blocks: Ints) -> Estimate:
    """Return the mean size of the response elsewhere over that on the concept, (S, U) each, with its interval."""

    def statistic(seeds: Ints, units: Ints) -> float:
        there, here = outside[np.ix_(seeds, units)], inside[np.ix_(seeds, units)]
        known = np.isfinite(there) & np.isfinite(here)
        return float(there[known].mean() / here[known].mean()) if known.any() else np.nan

    return jackknife(statistic, len(inside), blocks)


def by_relevance(values: Floats, factor: Ints) -> dict[str, Floats]:
    """Return (S, …, U) responses where a unit's hierarchy is relevant, and the mean of those where it is not.

    Parameters
    ----------
    values
        (S, K, …, U) by seed and by the factor that the network was trained on.
    factor
        (U,) the factor of each unit.
    """
    K = values.shape[1]
    units = np.arange(factor.size)
    own = np.moveaxis(np.moveaxis(values, -1, 0)[units, :, factor], 0, -1).astype(np.float64)
    return {"relevant": own, "irrelevant": (values.sum(1) - own) / (K - 1)}


def analyse(found: Arrays, work: Work) -> list[Row]:
    """Return slopes, r² and leakage by direction, layer and dose: relevant, irrelevant, untrained, and the nulls."""
    names, blocks = [str(name) for name in found["layers"]], _blocks(found, work)
    rows: list[Row] = []
    for e, epoch in enumerate(found["epochs"]):
        for k, layer in enumerate(names):
            for d, dose in enumerate(work.settings.doses):
                told = {"network": "trained" if epoch else "untrained", "layer": layer, "dose": dose}
                rows += _own_rows(found, blocks, (e, k, d), dose, told)
                rows += _probe_rows(found, blocks, (e, k, d), dose, told)
                if dose == 1.0 and epoch:
                    rows += _leak_rows(found, blocks, (e, k, d), told)
    return rows


def _blocks(found: Arrays, work: Work) -> Blocks:
    return {
        "pairs": kin(found["place"], found["factor"]),
        "latents": kin(work.latent_places(LEAST_DEPTH), found["latent_factor"]),
    }


def _own_rows(found: Arrays, blocks: Blocks, at: At, dose: float, told: dict[str, Any]) -> list[Row]:
    """Return slopes along own, random and features' directions, and of the right feature less another."""
    e, k, d = at
    responses = {name: found[name][:, :, e, k, :, :, d] for name in ("own", "random", "feature", "other_feature")}
    responses[LESS_OTHER] = responses["feature"] - responses["other_feature"]
    rows = []
    for direction, values in responses.items():
        for case, response in by_relevance(values, found["factor"]).items():
            if not np.isfinite(response).any():
                continue
            slope, r2 = response_line(dose * found["true"], response, blocks["pairs"])
            here = {"direction": direction.replace("_", " "), "case": case, **told}
            here["concepts"] = round(np.isfinite(response).sum() / len(response))  # of which a mean network has one
            rows += [row(slope, measure="slope", **here), row(r2, measure="r2", **here)]
    return rows


def _probe_rows(found: Arrays, blocks: Blocks, at: At, dose: float, told: dict[str, Any]) -> list[Row]:
    """Return slopes along probes' directions, and of those of fresh values, all draws of them together."""
    factor = found["latent_factor"]
    e, k, d = at
    rows = []
    for case in ("relevant", "irrelevant"):
        own = by_relevance(found["probe"][:, :, e, k, :, d], factor)[case]
        slope, r2 = response_line(dose * found["law"], own, blocks["latents"])
        here = {"direction": "probe", "case": case, **told}
        rows += [row(slope, measure="slope", **here), row(r2, measure="r2", **here)]
        draws = [found[f"fresh_{t}"][:, :, e, k, :, d] for t in range(1, FRESH_PROBES + 1)]
        fresh = np.stack([by_relevance(values, factor)[case] for values in draws])
        null = _fresh_slope(dose * found["law"], fresh)
        rows.append(row(null, measure="slope", direction="fresh probe", case=case, **told))
    return rows


def _fresh_slope(law: Floats, fresh: Floats) -> Estimate:
    """Return the mean slope of fresh draws (F, S, L), and where 95% of further draws fall."""
    slopes = [line_through_origin(np.broadcast_to(law, draw.shape), draw).slope for draw in fresh]
    return prediction(slopes, law.size)


def _leak_rows(found: Arrays, blocks: Blocks, at: At, told: dict[str, Any]) -> list[Row]:
    """Return leakage of probes' and features' directions where the hierarchy is relevant."""
    e, k, d = at
    rows = []
    latents, pairs = found["latent_factor"], found["factor"]
    for direction, factor, units in (("probe", latents, "latents"), ("feature", pairs, "pairs")):
        parts = []
        for part in ("size", "leak"):
            values = found[f"{direction}_{part}"][:, :, e, k, ..., d]
            own = by_relevance(values, factor)["relevant"]
            parts.append(own if own.ndim == 2 else _mean_of_known(own))
        if np.isfinite(parts[0]).any():
            value = leakage(parts[0], parts[1], blocks[units])
            rows.append(row(value, measure="leakage", direction=direction, case="relevant", **told))
    return rows


def _mean_of_known(values: Floats) -> Floats:
    """Return (S, U) means over the two siblings (S, 2, U) of what is not NaN."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0).sum(1) / known.sum(1)
    return mean
