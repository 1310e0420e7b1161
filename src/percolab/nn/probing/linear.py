"""A linear probe of any activations, for values of latents, their sums, membership, or targets of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas
import scipy.stats
import torch
from numpy.typing import ArrayLike, NDArray

from percolab.ground import html
from percolab.ground.validation import check_integer, check_seed
from percolab.model.indices import listed
from percolab.nn.networks.device import Device, choose_device
from percolab.nn.probing.ridge import CHUNK_ROWS, NormalEquations
from percolab.nn.probing.targets import Asked, asked_for
from percolab.worlds.splits import Split
from percolab.worlds.truth import AnyDataset, truth

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

TRAIN_SHARE = 0.7
"""Share of the lines that are trained on where no split is given, as in the paper."""
TUNING_SHARE = 0.2
"""Share of the training lines that choose among penalties where the split has no validation rows."""
LEFT_OUT, TRAIN, TUNING, VALIDATION, TEST = range(5)
"""What a line is for; TUNING: to choose a penalty, and then to train."""
Parts = Split | tuple[ArrayLike, ArrayLike]


@dataclass(frozen=True, eq=False)
class LinearProbe:
    """A fitted probe, its scores on held-out rows and those of its controls. Made by `linear_probe`.

    Columns of `table`, a row a target:

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

    kind: str
    """z, sum, membership or own"""
    measure: str
    """R2 or AUC"""
    table: pandas.DataFrame
    per_latent: pandas.DataFrame | None
    """for z and sum: latent, n_test, MSE, and baseline, the error of the mean of the training lines"""
    weights: Floats
    """(width, targets) for activations as they are"""
    intercept: Floats
    """(targets,)"""
    alpha: Floats
    """(targets,) the penalty of each"""
    draws: dict[str, Floats] = field(repr=False)
    """(draws, targets) the score of every draw, by control"""

    def predict(self, activations: Any) -> Floats:
        """Return what the probe reads from activations (lines, width), as (lines, targets)."""
        parts = [
            block.cpu().numpy() @ self.weights + self.intercept
            for _, block in _blocks(activations, torch.device("cpu"))
        ]
        return np.concatenate(parts)

    def _control(self) -> str:
        return "fresh" if "fresh" in self.draws else "permuted"

    def __repr__(self) -> str:
        control = self._control()
        found = f"{self.measure} {_mean(self.table['score']):.3f}"
        return f"LinearProbe({self._what()}: {found}, {control} {_mean(self.table[control]):.3f})"

    def _what(self) -> str:
        return self.kind if len(self.table) == 1 else f"{self.kind}, {len(self.table):,} targets"

    def _repr_html_(self) -> str:
        measure = self.measure.replace("R2", "R²")
        lines: dict[str, object] = {f"{measure} on held-out rows": f"{_mean(self.table['score']):.3f}"}
        words = {"fresh": "with fresh values", "permuted": "with permuted targets"}
        for name in [name for name in words if name in self.draws]:
            low, high = _mean(self.table[f"{name}_low"]), _mean(self.table[f"{name}_high"])
            lines[f"{measure} {words[name]}"] = f"{_mean(self.table[name]):.3f} ({low:.3f} to {high:.3f})"
        lines |= {"targets": len(self.table), "training rows": int(self.table["n_train"].max())}
        lines |= {
            "held-out rows": int(self.table["n_test"].max()),
            "penalty": " to ".join(f"{one:g}" for one in sorted({self.alpha.min(), self.alpha.max()})),
        }
        return html.table(f"Linear probe: {self._what()}", lines)


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
    """Fit a ridge regression from activations to something known of their rows, and score it on held-out rows.

    Activations are standardised by the training lines, (a - mean) / (std + 1e-6); the penalty is ``alpha |w|²`` for the
    standardised weights. Activations are read block by block, and never held as a whole: twice; with several penalties
    three times, or four where the split has no validation rows.

    Parameters
    ----------
    dataset
        A dataset, or a superposed world.
    activations
        (lines, width) array, tensor on any device, memory map, or what is indexed like them.
    target
        ``"z"``: the value of the latent that a row is in; ``"sum"``: the values from the top of the cluster down to it,
        added. ``"membership"``: for each of the latents, whether a row is in it. Or (lines,) or (lines, k) numbers or
        truth values of one's own.
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
        Which hierarchy of a superposed world is meant.
    alpha
        The penalty; of several, each target takes the one with the least error on the split's validation rows, or on a
        random fifth of the training lines where it has none.
    draws
        How many times targets are permuted, and for z and sum values drawn afresh.
    seed
        Of the split, if none is given, and of the draws.
    device
        Where to compute.
    """
    known = truth(dataset, factor)
    check_seed("seed", seed)
    check_integer("draws", draws, 1)
    alphas = _check_alphas(alpha)
    _check_shape(activations)
    samples = listed("rows", rows, known.rows.size)
    if len(activations) != samples.size:
        what = "row of the dataset" if rows is None else "of the rows"
        raise ValueError(f"activations must have a line for each {what}, {samples.size}, got {len(activations)}")
    asked = asked_for(known.forest, known.latent_z, known.rows[samples], target, latents, depth, draws, seed)
    part = _parts(split, samples, known.rows.size, asked.used, len(alphas) > 1, seed)
    if not (part == TRAIN).any() or not (part == TEST).any():
        raise ValueError("split must leave lines to train on and lines to test on, got none of one of them")
    columns = _Columns(asked, part, draws, seed)
    fit = _fit(activations, columns.values, part, alphas, choose_device(device))
    return _result(asked, columns, part, fit)


def _check_alphas(alpha: Any) -> list[float]:
    alphas = [float(one) for one in np.atleast_1d(alpha)]
    for one in alphas or (0.0,):
        if not 0 < one < np.inf:
            raise ValueError(f"alpha must be a positive number or several, got {alpha!r}")
    return alphas


def _check_shape(activations: Any) -> None:
    shape = getattr(activations, "shape", None)
    if shape is None or len(shape) != 2 or 0 in shape:
        got = type(activations).__name__ if shape is None else tuple(shape)
        raise ValueError(f"activations must be an array or tensor of shape (lines, width), got {got}")


# ---------------------------------------------------------------------- who is held out


def _parts(split: Parts | None, samples: Ints, n: int, used: Bools, tune: bool, seed: int) -> NDArray[np.int8]:
    """Return what each line is for: TRAIN, VALIDATION, TEST, LEFT_OUT, or TUNING, to `tune` without VALIDATION."""
    random = np.random.default_rng(seed)
    part = np.zeros(samples.size, np.int8)
    if split is None:
        lines = random.permutation(np.flatnonzero(used))
        part[lines] = TEST
        part[lines[: int(TRAIN_SHARE * lines.size)]] = TRAIN
    else:
        of_row = np.zeros(n, np.int8)
        for rows, value in _held_out(split, n):
            if of_row[rows].any():
                raise ValueError(f"split must have parts that share no row, got row {rows[of_row[rows] > 0][0]} twice")
            of_row[rows] = value
        part = np.where(used, of_row[samples], LEFT_OUT).astype(np.int8)
    if tune and not (part == VALIDATION).any():
        lines = random.permutation(np.flatnonzero(part == TRAIN))
        part[lines[: int(TUNING_SHARE * lines.size)]] = TUNING
    return part


def _held_out(split: Parts, n: int) -> list[tuple[Ints, int]]:
    if isinstance(split, Split):
        return [(split.train, TRAIN), (split.validation, VALIDATION), (split.test, TEST)]
    if not isinstance(split, tuple | list) or len(split) != 2:
        raise ValueError(f"split must be a Split or a pair of training and test rows, got {type(split).__name__}")
    return [(listed("rows of split", rows, n), value) for rows, value in zip(split, (TRAIN, TEST), strict=True)]


class _Columns:
    """The targets and their controls side by side, for one fit."""

    def __init__(self, asked: Asked, part: NDArray[np.int8], draws: int, seed: int) -> None:
        random = np.random.default_rng((seed, 1))
        lines = np.flatnonzero(part != LEFT_OUT)
        permuted = np.repeat(asked.values[:, None], draws, axis=1)
        for draw in range(draws):
            permuted[lines, draw] = asked.values[random.permutation(lines)]
        parts = {"true": asked.values[:, None], "permuted": permuted}
        if asked.fresh is not None:
            parts["fresh"] = asked.fresh[:, :, None]
        self.values = np.concatenate([values.reshape(len(part), -1) for values in parts.values()], 1)
        self.shapes = {name: values.shape[1:] for name, values in parts.items()}

    def split(self, values: Floats) -> dict[str, Floats]:
        """Return (columns,) values as (draws, targets), by control."""
        ends = np.cumsum([np.prod(shape) for shape in self.shapes.values()])
        pieces = np.split(values, ends[:-1])
        return {name: piece.reshape(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


# ---------------------------------------------------------------------- fitting


@dataclass(frozen=True, eq=False)
class _Fit:
    weight: Floats
    intercept: Floats
    alpha: Floats
    predicted: Floats
    """(test lines, columns)"""


def _blocks(activations: Any, device: torch.device) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the activations in float64, some lines at a time; refuse what is not finite."""
    step = CHUNK_ROWS[device.type]
    for lo in range(0, len(activations), step):
        block = activations[lo : lo + step]
        if isinstance(block, torch.Tensor):
            values = block.detach().to(device, torch.float64)
        else:
            values = torch.from_numpy(np.array(block, np.float64)).to(device)
        finite = torch.isfinite(values).all(1)
        if not bool(finite.all()):
            raise ValueError(
                f"activations must be finite, got NaN or infinity in line {lo + int(finite.int().argmin())}"
            )
        yield slice(lo, lo + step), values


def _fit(activations: Any, targets: Floats, part: NDArray[np.int8], alphas: list[float], device: torch.device) -> _Fit:
    """Fit all columns at once; of several penalties each column takes the one that is best for it."""
    T = torch.from_numpy(targets).to(device)

    def chosen(*kinds: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for lines, block in _blocks(activations, device):
            here = torch.from_numpy(np.isin(part[lines], kinds)).to(device)
            if bool(here.any()):
                yield block[here], T[lines][here]

    equations = _equations(chosen(TRAIN), T.shape[1])
    fits = equations.solve(alphas)
    best = torch.zeros(T.shape[1], dtype=torch.int64, device=device)
    if len(alphas) > 1:
        errors = torch.zeros(len(alphas), T.shape[1], dtype=torch.float64, device=device)
        for a, t in chosen(VALIDATION, TUNING):
            for i, (weight, intercept, _) in enumerate(fits):
                errors[i] += ((a @ weight + intercept - t) ** 2).sum(0)
        best = errors.argmin(0)
        if (part == TUNING).any():
            fits = _equations(chosen(TRAIN, TUNING), T.shape[1]).solve(alphas)
    every = torch.arange(T.shape[1], device=device)
    weight = torch.stack([fit[0] for fit in fits])[best, :, every].T
    intercept = torch.stack([fit[1] for fit in fits])[best, every]
    predicted = [(a @ weight + intercept).cpu().numpy() for a, _ in chosen(TEST)]
    used = np.array(alphas)[best.cpu().numpy()]
    return _Fit(weight.cpu().numpy(), intercept.cpu().numpy(), used, np.concatenate(predicted))


def _equations(lines: Iterator[tuple[torch.Tensor, torch.Tensor]], columns: int) -> NormalEquations:
    equations = None
    for a, t in lines:
        if equations is None:
            equations = NormalEquations(a[0].clone(), columns)
        equations.add(a, t)
    assert equations is not None  # there are lines to train on
    return equations


# ---------------------------------------------------------------------- scores


def _result(asked: Asked, columns: _Columns, part: NDArray[np.int8], fit: _Fit) -> LinearProbe:
    test, train = np.flatnonzero(part == TEST), np.isin(part, (TRAIN, TUNING))
    held_out = columns.values[test]
    measured = _auc if asked.binary else _r2
    scores = columns.split(np.array([measured(*pair) for pair in zip(held_out.T, fit.predicted.T, strict=True)]))
    k = len(asked.names)
    true = scores.pop("true")[0]
    table = pandas.DataFrame({"target": asked.names, "n_train": int(train.sum()), "n_test": test.size, "score": true})
    for name, values in scores.items():
        table[name] = values.mean(0)
        table[f"{name}_low"], table[f"{name}_high"] = np.quantile(values, [0.025, 0.975], axis=0)
    null = scores.get("fresh", scores["permuted"])
    table["p"] = np.where(np.isnan(true), np.nan, (1 + (null >= true).sum(0)) / (1 + len(null)))
    weights, intercept = fit.weight[:, :k], fit.intercept[:k]
    return LinearProbe(
        asked.kind,
        "AUC" if asked.binary else "R2",
        table,
        _by_latent(asked, test, train, fit.predicted[:, 0]),
        weights,
        intercept,
        fit.alpha[:k],
        scores,
    )


def _by_latent(asked: Asked, test: Ints, train: Bools, predicted: Floats) -> pandas.DataFrame | None:
    if asked.latent is None:
        return None
    value = asked.values[:, 0]
    table = pandas.DataFrame({"latent": asked.latent[test], "squared": (predicted - value[test]) ** 2})
    table["baseline"] = (value[test] - value[train].mean()) ** 2
    columns = {"n_test": ("squared", "size"), "MSE": ("squared", "mean"), "baseline": ("baseline", "mean")}
    return table.groupby("latent", as_index=False).agg(**columns)


def _r2(target: Floats, predicted: Floats) -> float:
    spread = float(((target - target.mean()) ** 2).sum())
    return 1 - float(((target - predicted) ** 2).sum()) / spread if spread > 0 else float("nan")


def _auc(target: Floats, predicted: Floats) -> float:
    """Return the probability that a line inside is ranked above one outside; half for equal ones."""
    inside = target > 0
    n, m = int(inside.sum()), int((~inside).sum())
    if not n or not m:
        return float("nan")
    return float((scipy.stats.rankdata(predicted)[inside].sum() - n * (n + 1) / 2) / (n * m))


def _mean(values: Any) -> float:
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else float("nan")
