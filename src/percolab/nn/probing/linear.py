"""A linear probe of any activations, for values of latents, their sums, membership, or the user's own targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import ArrayLike, NDArray

from percolab.features.fairness import auc
from percolab.ground import text
from percolab.ground.arrays import Floats, Ints, as_array
from percolab.ground.devices import Device, choose_device
from percolab.ground.validation import check_choice, check_finite, check_integer, check_seed, listed
from percolab.model.forest import Forest
from percolab.nn.probing import ridge
from percolab.nn.probing.probed_latents import fresh_values, locate, path_sums
from percolab.nn.probing.ridge import LEFT_OUT, TEST, TRAIN, TUNING, Fit, Samples
from percolab.worlds.splits import Split
from percolab.worlds.superposed import AnyDataset, Truth, truth

TRAIN_SHARE = 0.7  #: Share of lines for training if no split is given, as in the paper.
TUNING_SHARE = 0.2  #: Share of training lines that choose the penalty if there are no validation rows.
PROBE_TARGETS = ("z", "sum", "membership")
CONTROLS = {"fresh": "with fresh values", "permuted": "with permuted targets"}  #: What takes the targets' place.
Parts = Split | tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A fitted probe, its scores on held-out rows and the scores of its controls. Made by `linear_probe`.

    Columns of `table`, one row per target:

    - ``target``: the latent for membership; else z, sum, or the number of the column.
    - ``n_train``, ``n_test``: lines that it was fitted to and scored on.
    - ``score``: R² of numbers, AUC of membership; NaN where the held-out targets are all equal.
    - ``permuted``, ``permuted_low``, ``permuted_high``: the same for targets dealt to the wrong lines: mean over the
      draws, and the interval that holds 95% of them.
    - ``fresh``, ``fresh_low``, ``fresh_high``: for z and sum, the same for fresh values of all latents, which the
      network was never trained on.
    - ``p``: share of the draws that score at least as well, the true one counted among them; of the fresh draws
      for z and sum, else of the permuted ones.
    """

    kind: str  #: z, sum, membership or own
    measure: str  #: R2 or AUC
    table: pandas.DataFrame
    #: for z and sum: latent, n_test, MSE, and baseline, the error of the mean of the training lines
    per_latent: pandas.DataFrame | None
    #: (width, targets) in units of the target per unit of activation: for activations as they are, not standardised
    weights: Floats
    intercept: Floats  #: (targets,)
    alpha: Floats  #: (targets,) the penalty of each
    draws: dict[str, Floats] = field(repr=False)  #: (draws, targets) the score of every draw, by control

    def predict(self, activations: Any) -> Floats:
        """Return the probe's readings of activations (lines, width), as (lines, targets)."""
        weights, intercept = torch.from_numpy(self.weights), torch.from_numpy(self.intercept)
        return Fit(weights, intercept, intercept).predict(activations, np.arange(len(activations)))

    def __repr__(self) -> str:
        control = "fresh" if "fresh" in self.draws else "permuted"
        scored = f"{self.measure} {self.table['score'].mean():.3f} on held-out rows"
        return f"LinearProbe({self._what()}: {scored}, {CONTROLS[control]} {self.table[control].mean():.3f})"

    def _what(self) -> str:
        what, each = ("your target", "column") if self.kind == "own" else (self.kind, "latent")
        return what if len(self.table) == 1 else f"{what}, {text.counted(len(self.table), each)}"

    def _repr_html_(self) -> str:
        measure = self.measure.replace("R2", "R²")
        lines: dict[str, object] = {f"{measure} on held-out rows": f"{self.table['score'].mean():.3f}"}
        for name in [name for name in CONTROLS if name in self.draws]:
            low, high = self.table[f"{name}_low"].mean(), self.table[f"{name}_high"].mean()
            lines[f"{measure} {CONTROLS[name]}"] = f"{self.table[name].mean():.3f} ({low:.3f} to {high:.3f})"
        sizes = {"training rows": int(self.table["n_train"].max()), "held-out rows": int(self.table["n_test"].max())}
        penalty = " to ".join(f"{alpha:g}" for alpha in sorted({self.alpha.min(), self.alpha.max()}))
        lines |= {"targets": len(self.table), **sizes, "penalty": penalty}
        return text.table(f"Linear probe: {self._what()}", lines)


def linear_probe(
    dataset: AnyDataset,
    activations: Any,
    target: str | ArrayLike = "z",
    *,
    latents: ArrayLike | None = None,
    depth: int | None = None,
    rows: ArrayLike | None = None,
    split: Parts | None = None,
    factor: int | None = None,
    alpha: float | Sequence[float] = 1.0,
    draws: int = 10,
    seed: int = 42,
    device: Device = "auto",
) -> LinearProbe:
    """Fit a ridge regression from activations to a known property of their rows, and score it on held-out rows.

    Activations are standardised by the training lines, (a - mean) / (std + 1e-6); the penalty is ``alpha |w|²`` for the
    standardised weights. The returned weights are for unstandardised activations: multiplied by the standard deviations
    of the activations, they are the standardised weights. Activations are read block by block and never held as a
    whole: every line once, and twice if it first chooses among penalties and is then fitted.

    Parameters
    ----------
    dataset
        A dataset, or a superposed world.
    activations
        (lines, width) array, tensor on any device, memory map, or any object that is indexed like them.
    target
        ``"z"``: the value of the latent that a row is in; ``"sum"``: the sum of the values from the top of the cluster
        down to it. ``"membership"``: for each of the latents, whether a row is in it. Or the user's own (lines,) or
        (lines, k) numbers or truth values.
    latents
        Which latents: indices, or a mask. For z and sum they must share no row, and lines in none are left out.
    depth
        Instead of `latents`: all latents at this depth.
    rows
        The dataset's row of each line, in any order, or a mask; None: all rows, in order.
    split
        From `percolab.split_rows`, or a pair of training and test rows of the dataset; rows in neither are left out.
        None: 70% of the lines train, at random. Lines of one latent are then on both sides.
    factor
        The hierarchy of a superposed world.
    alpha
        The penalty. If there are several, each target takes the one with the least error on the split's validation
        rows, or on a random fifth of the training lines if the split has none.
    draws
        Number of permutations of the targets and, for z and sum, of draws of fresh values.
    seed
        Seed of the draws, and of the split if none is given.
    device
        Where to compute.
    """
    known = truth(dataset, factor)
    check_seed("seed", seed)
    check_integer("draws", draws, 1)
    alphas = ridge.check_penalties("alpha", alpha)
    shape = getattr(activations, "shape", None)
    if shape is None or len(shape) != 2 or 0 in shape:
        got = type(activations).__name__ if shape is None else tuple(shape)
        raise ValueError(f"activations must be an array or tensor of shape (lines, width), got {got}")
    samples = listed("rows", rows, known.rows.size)
    if len(activations) != samples.size:
        what = "row of the dataset" if rows is None else "of the rows"
        raise ValueError(f"activations must have a line for each {what}, {samples.size}, got {len(activations)}")
    asked = _asked_for(known, samples, target, latents, depth, draws, seed)
    part, refit = _parts(split, samples, known.rows.size, asked.unit >= 0, len(alphas) > 1, seed)
    # The targets and their controls stand side by side in one fit: (lines, 1 + draws, k).
    controls = _controls(asked, np.flatnonzero(part != LEFT_OUT), draws, seed)
    values = np.concatenate([asked.values[:, None], *controls.values()], 1)
    flat, k = values.reshape(part.size, -1), values.shape[2]
    divided = Samples.split(part, refit, asked.unit if asked.latents is not None else None)
    fitted = ridge.CrossFit(activations, flat, divided, alphas, choose_device(device))
    weights, intercept, mean = (column.cpu().numpy() for column in fitted.fits[0])
    per_latent, test = None, np.flatnonzero(part == TEST)
    if asked.binary:
        pairs = zip(fitted.fits[0].predict(activations, test).T, flat[test].T, strict=True)
        scores = np.array([auc(predicted, np.flatnonzero(inside)) for predicted, inside in pairs])
    else:
        sums = fitted.scores()
        scores = sums.r2(mean)
        per_latent = None if asked.latents is None else _by_latent(asked.latents, sums)
    true, *drawn = np.split(scores.reshape(-1, k), [1, 1 + draws][: len(controls)])
    by_control = dict(zip(controls, drawn, strict=True))
    n_train = np.isin(part, (TRAIN, TUNING) if refit else TRAIN).sum()
    table = pandas.DataFrame({"target": asked.names, "n_train": n_train, "n_test": test.size, "score": true[0]})
    table = _beside(table, by_control)
    measure = "AUC" if asked.binary else "R2"
    return LinearProbe(
        asked.kind, measure, table, per_latent, weights[:, :k], intercept[:k], fitted.alpha[0, :k], by_control
    )


def _parts(
    split: Parts | None, samples: Ints, n: int, used: NDArray[np.bool_], tune: bool, seed: int
) -> tuple[Ints, bool]:
    """Return the part of each line, and whether the lines that choose a penalty are fitted once it is chosen."""
    random = np.random.default_rng(seed)
    if split is None:
        part, lines = np.full(samples.size, LEFT_OUT), random.permutation(np.flatnonzero(used))
        part[lines] = TEST
        part[lines[: int(TRAIN_SHARE * lines.size)]] = TRAIN
    else:
        if isinstance(split, Split):
            given: tuple[ArrayLike, ArrayLike, ArrayLike] = (split.train, split.validation, split.test)
        elif isinstance(split, tuple | list) and len(split) == 2:
            given = (split[0], (), split[1])
        else:
            raise ValueError(f"split must be a Split or a pair of training and test rows, got {type(split).__name__}")
        part = np.where(used, ridge.divide(n, *given)[samples], LEFT_OUT)
    refit = tune and not (part == TUNING).any()
    if refit:
        lines = random.permutation(np.flatnonzero(part == TRAIN))
        part[lines[: int(TUNING_SHARE * lines.size)]] = TUNING
    return part, refit


def _controls(asked: _Asked, lines: Ints, draws: int, seed: int) -> dict[str, Floats]:
    """Return (lines, draws, k) permuted targets and, for z and sum, targets of fresh values."""
    random = np.random.default_rng((seed, 1))
    permuted = np.repeat(asked.values[:, None], draws, axis=1)
    for draw in range(draws):
        permuted[lines, draw] = asked.values[random.permutation(lines)]
    return {"permuted": permuted} | ({} if asked.fresh is None else {"fresh": asked.fresh[:, :, None]})


def _by_latent(latents: Ints, sums: ridge.Scores) -> pandas.DataFrame:
    there = np.flatnonzero(sums.n)
    n = sums.n[there, 0]
    means = {"MSE": sums.squared[there, 0] / n, "baseline": sums.target_squared[there, 0] / n}
    return pandas.DataFrame({"latent": latents[there], "n_test": n} | means)


def _beside(table: pandas.DataFrame, controls: dict[str, Floats]) -> pandas.DataFrame:
    """Return the table with the scores of the controls, and p."""
    for name, values in controls.items():
        table[name] = values.mean(0)
        table[f"{name}_low"], table[f"{name}_high"] = np.quantile(values, [0.025, 0.975], axis=0)
    null, true = controls.get("fresh", controls["permuted"]), table["score"].to_numpy()
    table["p"] = np.where(np.isnan(true), np.nan, (1 + (null >= true - ridge.TIE).sum(0)) / (1 + len(null)))
    return table


# ---------------------------------------------------------------------- targets


@dataclass(frozen=True, eq=False)
class _Asked:
    """Targets of every line."""

    kind: str
    names: list[Any]
    values: NDArray[np.floating[Any]]  #: (lines, k); truth values as 0 and 1
    unit: Ints  #: (lines,) for z and sum, which of the latents a line is in; -1 where it has no target
    latents: Ints | None = None  #: for z and sum
    fresh: Floats | None = None  #: (lines, draws) for z and sum, the same for fresh values
    binary: bool = False


def _asked_for(
    known: Truth, samples: Ints, target: Any, latents: ArrayLike | None, depth: int | None, draws: int, seed: int
) -> _Asked:
    """Return the targets of lines, given the sample of each line."""
    forest, at = known.forest, known.rows[samples]
    if not isinstance(target, str):
        if latents is not None or depth is not None:
            raise ValueError("latents and depth must be left out with a target of one's own, got one of them")
        return _own(target, at.size)
    check_choice("target", target, PROBE_TARGETS)
    chosen = _chosen(forest, target, latents, depth)
    start, stop = forest.latent_start[chosen], forest.latent_start[chosen] + forest.latent_size[chosen]
    if target == "membership":
        inside = (at[:, None] >= start) & (at[:, None] < stop)
        return _Asked(target, chosen.tolist(), inside.astype(np.float32), np.zeros(at.size, np.int64), binary=True)
    for i in np.flatnonzero(start[1:] < stop[:-1])[:1]:
        raise ValueError(f"latents must share no row for target {target!r}, got {chosen[i]} and {chosen[i + 1]}")
    unit = locate(forest, at, chosen)
    values = np.column_stack([known.latent_z, fresh_values(forest, draws, seed)])
    by_line = (path_sums(forest, values) if target == "sum" else values)[chosen[unit]]
    return _Asked(target, [target], by_line[:, :1], unit, chosen, by_line[:, 1:])


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


def _own(target: Any, lines: int) -> _Asked:
    values = as_array(target)
    if values.ndim not in (1, 2) or len(values) != lines or 0 in values.shape:
        raise ValueError(f"target must have shape ({lines},) or ({lines}, k), got {values.shape}")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"target must be numbers or truth values, got {values.dtype}")
    binary = values.dtype == np.bool_
    numbers: NDArray[Any] = values.reshape(lines, -1).astype(np.float32 if binary else np.float64)
    check_finite("target", numbers)
    return _Asked("own", list(range(numbers.shape[1])), numbers, np.zeros(lines, np.int64), binary=binary)
