"""Responses to steering: samples, directions, the forward pass after a layer, and slopes of the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from percolab.ground.arrays import Floats, Ints
from percolab.intervals import Estimate, jackknife, line_through_origin, prediction
from percolab.nn.networks.model import ResidualMLP
from percolab.nn.probing import siblings
from percolab.nn.probing.probed_latents import Places, Reading
from percolab.nn.probing.siblings import Ready, Siblings

#: The rest of a network: takes activations (n, w) of a layer, returns predictions (n,).
Rest = Callable[[torch.Tensor], torch.Tensor]
#: `steer` in one layer of a network, with its doses: takes samples and vectors.
Steer = Callable[[Ints, torch.Tensor], tuple[Floats, Floats]]

FRESH_PROBES = 10  #: Probes of fresh values whose directions are a null.
LEAST_DEPTH = 1  #: Least depth of latents whose probes are steered along: at depth 0 a latent is a whole cluster.
STEERED_ROWS = 1 << 16  #: Samples that are steered at a time.


def spread_rows(start: Ints, stop: Ints, count: int) -> Ints:
    """Return (…, count) positions evenly spread from start to stop - 1; if there are fewer, some repeat."""
    share = (np.arange(count) + 0.5) / count
    return np.asarray(start[..., None] + (stop - start)[..., None] * share).astype(np.int64)


def beyond_rows(start: Ints, stop: Ints, n: int, count: int) -> Ints:
    """Return (G, count) positions evenly spread over those before start and those from stop on."""
    left = n - (stop - start)
    at = spread_rows(np.zeros_like(left), left, count)
    return np.where(at < start[:, None], at, at + (stop - start)[:, None]).clip(0, n - 1)


def steer(A: torch.Tensor, rest: Rest, samples: Ints, vectors: torch.Tensor, doses: Any) -> tuple[Floats, Floats]:
    """Return the mean change of the prediction, and the mean of its absolute value, for each group and dose.

    Parameters
    ----------
    A
        (n, w) activations of a layer.
    rest
        The network from there on.
    samples
        (G, R) samples of each group.
    vectors
        (G, w) what the activations of a group are moved by at dose 1.
    doses
        D multiples of the vectors.

    Returns
    -------
    mean, size
        (G, D) each.
    """
    G, R = samples.shape
    mean, size = np.empty((G, len(doses))), np.empty((G, len(doses)))
    step = max(1, STEERED_ROWS // R)
    with torch.no_grad():
        for lo in range(0, G, step):
            chosen = torch.from_numpy(samples[lo : lo + step]).to(A.device)
            h = A[chosen]
            before = rest(h.flatten(0, 1)).view(len(chosen), R)
            by = vectors[lo : lo + step].to(A.dtype)[:, None]
            for d, dose in enumerate(doses):
                change = (rest((h + float(dose) * by).flatten(0, 1)).view(len(chosen), R) - before).double()
                mean[lo : lo + step, d] = change.mean(1).cpu().numpy()
                size[lo : lo + step, d] = change.abs().mean(1).cpu().numpy()
    return mean, size


def own_directions(A: torch.Tensor, pairs: Ready) -> torch.Tensor:
    """Return (2, P, w): the vector from the left sibling's mean to the right one's, and back."""
    left, right = siblings.sums(A, pairs).means
    return torch.stack([right - left, left - right])


def random_like(vectors: torch.Tensor, seed: int) -> torch.Tensor:
    """Return random directions, each as long as one of the vectors."""
    drawn = torch.from_numpy(np.random.default_rng((seed, 2)).standard_normal(tuple(vectors.shape))).to(vectors)
    return drawn * (vectors.norm(dim=-1, keepdim=True) / drawn.norm(dim=-1, keepdim=True))


def true_differences(pairs: Siblings, y: Floats) -> Floats:
    """Return (2, P) differences of mean y: right less left, and left less right."""
    running = np.concatenate([[0.0], np.cumsum(y[pairs.order])])
    left, right = pairs.sizes
    upto_left, upto_middle, upto_right = running[pairs.start], running[pairs.middle], running[pairs.stop]
    there = (upto_right - upto_middle) / right - (upto_middle - upto_left) / left
    return np.stack([there, -there])


def sibling_samples(pairs: Siblings, count: int) -> Ints:
    """Return (2, P, count) samples of the left and of the right siblings."""
    start, stop = np.stack([pairs.start, pairs.middle]), np.stack([pairs.middle, pairs.stop])
    return pairs.order[spread_rows(start, stop, count)]


def probe_directions(A: torch.Tensor, probed: Reading) -> torch.Tensor:
    """Return (J, T, w): what activations are moved by so that a reading rises as it does where the value is 1 larger.

    Activations vary with a reading w along Σw, Σ being their covariance; along d = Σw / wᵀΣw the reading rises by 1. A
    value that is 1 larger raises the reading of held-out samples by the probe's gain, which is below 1, so that is how
    far they are moved.
    """
    weight = probed.weight.to(A.dtype)
    centred = A - A.mean(0)
    pattern = (centred.T @ (centred @ weight.flatten(0, 1).T) / len(A)).T.view(weight.shape)
    along = pattern / (pattern * weight).sum(-1, keepdim=True)
    return along * torch.from_numpy(probed.gain).to(A)[..., None]


def place_samples(places: Places, count: int) -> tuple[Ints, Ints]:
    """Return (L, count) samples of each probed latent, and (J, count) without one at a depth, -1 if too few."""
    inside = np.empty((len(places), count), np.int64)
    outside = np.full((places.depths.size, count), -1, np.int64)
    for j in range(places.depths.size):
        order = np.argsort(places.where[:, j], kind="stable")
        ends = np.searchsorted(places.where[order, j], np.arange(-1, len(places) + 1))
        for latent in np.flatnonzero(places.depth_index == j):
            span = ends[latent + 1], ends[latent + 2]
            inside[latent] = order[spread_rows(np.array(span[0]), np.array(span[1]), count)]
        if ends[1] - ends[0] >= count:
            outside[j] = order[spread_rows(np.array(ends[0]), np.array(ends[1]), count)]
    return inside, outside


def forward_from(model: ResidualMLP, layer: str, h: torch.Tensor) -> torch.Tensor:
    """Return the predictions (n,) of a network from the residual stream after a layer.

    Parameters
    ----------
    model
        A residual MLP.
    layer
        ``"raw"``: h is the input; ``"input"``: what the input layer gives; ``"blocks.i"``: what block i gives.
    h
        (n, w).
    """
    if layer == "raw":
        h, layer = model.input(h), "input"
    first = 0 if layer == "input" else int(layer.removeprefix("blocks.")) + 1
    for block in list(model.blocks)[first:]:
        h = block(h)
    return model.output(h).squeeze(-1)


def streams(model: ResidualMLP) -> list[str]:
    """Return the layers that `forward_from` knows besides the input itself, without the last block.

    After the last block the readout is linear, so the mean response to the difference of two means is the difference
    of the mean predictions, whatever the network has learned.
    """
    return ["input", *(f"blocks.{i}" for i in range(len(model.blocks) - 1))]


# ---------------------------------------------------------------------- slopes, r² and leakage


def response_line(truth: Floats, response: Floats, blocks: Ints) -> tuple[Estimate, Estimate]:
    """Return slope and r² of responses on the exact responses, through the origin, with intervals.

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
    """Return the mean size of the response elsewhere over the size on the concept, (S, U) each, with its interval."""

    def statistic(seeds: Ints, units: Ints) -> float:
        there, here = outside[np.ix_(seeds, units)], inside[np.ix_(seeds, units)]
        known = np.isfinite(there) & np.isfinite(here)
        return float(there[known].mean() / here[known].mean()) if known.any() else np.nan

    return jackknife(statistic, len(inside), blocks)


def by_relevance(values: Floats, factor: Ints) -> dict[str, Floats]:
    """Return (S, …, U) responses where a unit's hierarchy is relevant, and their mean where it is not.

    Parameters
    ----------
    values
        (S, K, …, U) by seed and by the factor that the network was trained on.
    factor
        (U,) the factor of each unit.
    """
    K = values.shape[1]
    units = np.arange(factor.size)
    relevant = np.moveaxis(np.moveaxis(values, -1, 0)[units, :, factor], 0, -1).astype(np.float64)
    return {"relevant": relevant, "irrelevant": (values.sum(1) - relevant) / (K - 1)}


def fresh_slope(law: Floats, fresh: Floats) -> Estimate:
    """Return the mean slope of fresh draws (F, S, L), and the range of 95% of further draws."""
    slopes = [line_through_origin(np.broadcast_to(law, draw.shape), draw).slope for draw in fresh]
    return prediction(slopes, law.size)
