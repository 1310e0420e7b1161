"""What responses to steering say: slopes, r² and leakage, relevant against irrelevant, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.intervals import Estimate, jackknife, line_through_origin, prediction

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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


def fresh_slope(law: Floats, fresh: Floats) -> Estimate:
    """Return the mean slope of fresh draws (F, S, L), and where 95% of further draws fall."""
    slopes = [line_through_origin(np.broadcast_to(law, draw.shape), draw).slope for draw in fresh]
    return prediction(slopes, law.size)


def mean_of_known(values: Floats) -> Floats:
    """Return (S, U) means over the two siblings (S, 2, U) of what is not NaN."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0).sum(1) / known.sum(1)
    return mean
