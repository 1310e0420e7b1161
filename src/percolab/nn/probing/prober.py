"""The paper's probes: how well the value of a point's latent at each depth can be read from a representation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from percolab.ground.arrays import Floats, Ints
from percolab.ground.devices import Device, choose_device, on_device
from percolab.ground.progress import Progress, shown
from percolab.ground.validation import listed
from percolab.nn.config import ProbeConfig
from percolab.nn.networks.activations import RAW
from percolab.nn.probing import probed_latents
from percolab.nn.probing.errors import ProbeErrors, ProbeResult
from percolab.nn.probing.probed_latents import LATENT_TARGETS, Column, Places
from percolab.nn.probing.ridge import TEST, CrossFit, Samples, Scores
from percolab.worlds.superposed import AnyDataset, truth


def probes(
    dataset: AnyDataset,
    activations: Mapping[str, Any],
    config: ProbeConfig | None = None,
    *,
    raw: bool = True,
    rows: ArrayLike | None = None,
    factor: int | None = None,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> ProbeResult:
    """Fit and score linear probes on any representations of a dataset's points.

    Protocol ``"random"`` is the paper's: points are held out at random, so every latent has points on both sides
    and a probe may learn where each latent is. Protocol ``"subtree"`` holds out whole subtrees, so a probe is scored on
    latents none of whose points it has seen; its penalty is chosen by holding out subtrees of the training rows.
    Besides z and its sum, controls are fitted: fresh values and permuted targets, several draws of each; see
    `percolab.nn.probing.probed_latents.TARGETS`. For probes of one's own targets or split, see `linear_probe`.

    Parameters
    ----------
    dataset
        Any dataset, or a superposed world.
    activations
        Arrays or tensors (lines, width) by name, rows as in the dataset; see `percolab.nn.activations`.
    config
        See `ProbeConfig`.
    raw
        Whether to probe X itself too, under the name ``"raw"``.
    rows
        The dataset's row of each line, in any order, or a mask; None: all rows, in order.
    factor
        The hierarchy of a superposed world.
    device
        Where to compute.
    progress
        True shows a bar; a function is called with ("probes", fits done, fits in all), a fit being of one
        representation with one protocol.
    """
    if not isinstance(activations, Mapping):
        raise ValueError(f"activations must be arrays by name, as {{'mine': A}}, got a {type(activations).__name__}")
    prober = Prober(dataset, config, rows=rows, factor=factor, device=device)
    sources = dict(activations)
    if raw:
        sources = {RAW: dataset.X if rows is None else dataset.X[prober.samples], **sources}
    return prober.run(sources, progress)


class Prober:
    """The targets and held-out parts that the probes of a dataset share for any activations."""

    def __init__(
        self,
        dataset: AnyDataset,
        config: ProbeConfig | None = None,
        *,
        rows: ArrayLike | None = None,
        factor: int | None = None,
        device: Device = "auto",
    ) -> None:
        self.config = config = config or ProbeConfig()
        self.device = choose_device(device)
        known = truth(dataset, factor)
        self.forest, self.samples = known.forest, listed("rows", rows, known.rows.size)
        at, least = known.rows[self.samples], config.min_latent_size
        places = probed_latents.find_places(self.forest, at, config.depths, least, least=1, name="min_latent_size")
        targets = probed_latents.targets_of(self.forest, known.latent_z, places, at, config.draws, config.seed)
        self.skipped = []
        if places.depths.size < len(config.depths):  # a latent's ancestors are at least as large: the last depths
            self.skipped.append(f"from depth {config.depths[places.depths.size]} on no latent has {least} points")
        self.plans: list[_Plan] = []
        for protocol in config.protocols:
            if protocol == "random":
                latent_part = np.full(len(places), TEST)
                part = probed_latents.random_points(places, at, config.train_share, config.seed)
                kept, alphas = probed_latents.columns(config.draws), [config.alpha]
            else:
                part, latent_part = probed_latents.whole_subtrees(self.forest, places, at, least, config.folds)
                kept, alphas = probed_latents.columns(config.draws, LATENT_TARGETS), list(config.subtree_alphas)
            asked = np.ascontiguousarray(targets[:, :, : len(kept)]).reshape(len(targets), -1)
            plan = _Plan(protocol, places, part, latent_part, kept, torch.from_numpy(asked).to(self.device), alphas)
            if plan.latent.size:
                self.plans.append(plan)
            else:
                self.skipped.append(f"no subtree of at least {least} points can be held out")

    def run(self, activations: Mapping[str, Any], progress: bool | Progress = False) -> ProbeResult:
        """Fit and score the probes of some representations."""
        n = self.samples.size
        for name, values in activations.items():
            if len(values.shape) != 2 or len(values) != n:
                shape = tuple(values.shape)
                raise ValueError(f"activations[{name!r}] must have shape ({n}, width), got {shape}")
        errors: list[ProbeErrors] = []
        done, total, seconds = 0, len(activations) * len(self.plans), {}
        with shown(progress) as tell:
            for name, values in activations.items():
                start = time.perf_counter()
                what = f"activations[{name!r}]" if name != RAW else "X"
                A = on_device(what, values, self.device, torch.float32)
                for index, plan in enumerate(self.plans):
                    tell("probes", done, total)
                    fit = plan.fit(A)
                    scores = fit.scores()
                    if index == len(errors):
                        errors.append(plan.errors(fit, scores))
                    errors[index].squared[name], errors[index].alpha[name] = scores.squared, fit.alpha
                    done += 1
                seconds[name] = time.perf_counter() - start
            tell("probes", total, total)
        return ProbeResult(tuple(errors), self.forest, tuple(self.skipped), seconds)


class _Plan:
    """One protocol of holding out: samples, targets, and the scored latents, by depth and part."""

    def __init__(
        self,
        protocol: str,
        places: Places,
        part: Ints,
        latent_part: Ints,
        kept: tuple[Column, ...],
        targets: torch.Tensor,
        alphas: list[float],
    ) -> None:
        self.protocol, self.columns, self.targets, self.alphas = protocol, kept, targets, alphas
        parts, level, held = int(part.max()) + 1, places.level, places.where[part >= 0]
        size = np.zeros((places.depths.size, 1 + parts), np.int64)
        np.add.at(size, (level[level >= 0], 1 + part[level >= 0]), 1)
        size = size[::-1].cumsum(0)[::-1]
        #: (J, parts) number of training samples when a part is held out
        self.n_train = size.sum(1, keepdims=True) - size[:, 1:]
        n = np.bincount(held[held >= 0], minlength=len(places))
        scored = np.flatnonzero((latent_part >= 0) & (n > 0))
        scored = scored[self.n_train[places.depth_index[scored], latent_part[scored]] > 1]
        scored = scored[np.lexsort((latent_part[scored], places.depth_index[scored]))]
        self.latent, self.part = places.latent[scored], latent_part[scored]
        self.depths, self.depth_index = places.depths, places.depth_index[scored]
        number = np.full(len(places) + 1, scored.size)
        number[scored] = np.arange(scored.size)
        self.samples = Samples(part, level, number[places.where], scored.size, scored=parts)
        depth = self.depths[self.depth_index, None]
        variance = np.where([name.startswith("sum") for name, _ in kept], 1 + depth, 1)
        # When a penalty is chosen, latents have equal weight, each relative to the variance of its target at its depth.
        self.importance: Floats = 1 / (n[scored, None] * variance)

    def fit(self, A: torch.Tensor) -> CrossFit:
        """Fit the probes of one representation."""
        return CrossFit(A, self.targets, self.samples, self.alphas, A.device, self.importance)

    def errors(self, fit: CrossFit, scores: Scores) -> ProbeErrors:
        """Return the errors without representations: the arrays that all representations share."""
        stacked = torch.stack([of_part.mean for of_part in fit.fits])
        means = stacked.view(-1, self.depths.size, len(self.columns)).cpu().numpy()
        mean, n, about = means[self.part, self.depth_index], scores.n, scores.target
        squares = scores.target_squared + 2 * mean * about + n * mean**2
        n_train = self.n_train.mean(1).astype(np.int64)
        return ProbeErrors(
            self.protocol, self.columns, self.depths, n_train, self.latent, self.depth_index, n[:, 0], about + n * mean,
            squares, mean,
        )  # fmt: skip
