"""Ridge regression by exact normal equations: every linear probe is fitted and scored here.

`ridge` is the plain form: from activations, targets, training rows, test rows and penalties to weights, errors and R²
of every target. It uses `CrossFit`, which also serves probes whose rows are held out in turn or differ between targets,
and whose errors are needed by latent.

Activations and targets are read in blocks of rows, from tensors on any device, arrays, memory maps, or anything else
that slices like an array. Sums are in float64: the Gram matrix of some hundred thousand rows, regularised by 1, has
condition numbers that are too large for float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from percolab.ground.arrays import Floats, Ints
from percolab.ground.devices import Device, choose_device
from percolab.ground.validation import listed

STD_FLOOR = 1e-6
#: Variance, as a share of the mean square about the centre, up to which a unit is constant: rounding makes up to about
#: 1e-15 of the mean square, times a hundred thousand rows, which must stay below the penalty.
CONSTANT = 1e-9
CONSTANT_TARGET = 1e-20  #: Variance, as a share of the mean square, up to which a target is constant, and has no R².
JITTER = 1e-6  #: Penalty per row that is added if rounding makes a matrix indefinite.
CHUNK_ROWS = {"cpu": 1 << 12, "cuda": 1 << 15}  #: Rows of activations that are in float64 at a time, by kind of device.
#: Parts of the rows: unused; never held out; the part that is scored, and the part that chooses its penalty.
LEFT_OUT, TRAIN, TEST, TUNING = range(-2, 2)
#: Penalties whose errors differ relatively by at most this are equally good: the first of them is taken.
TIE = 1e-9
TUNING_STEP = 5  #: One in this many training rows chooses the penalty if no rows are given for it.


# ---------------------------------------------------------------------- rows in blocks


def take(name: str, values: Any, rows: Ints, device: torch.device, columns: slice = slice(None)) -> torch.Tensor:
    """Return some rows of a tensor or array (n, k) in float64 on a device; raise for numbers that are not finite.

    Rows of a tensor or array may be in any order. Anything else is read as one slice, and its rows must increase.
    """
    if isinstance(values, torch.Tensor):
        chosen = values.detach()[torch.from_numpy(rows).to(values.device), columns]
    elif isinstance(values, np.ndarray):
        chosen = torch.from_numpy(np.asarray(values[rows, columns], np.float64))
    else:
        window = np.asarray(values[int(rows[0]) : int(rows[-1]) + 1], np.float64)
        chosen = torch.from_numpy(window[rows - rows[0], columns])
    block = chosen.to(device, torch.float64)
    if not bool(block.sum().isfinite()):
        finite = block.isfinite().all(1)
        if not bool(finite.all()):
            raise ValueError(f"{name} must be finite, got NaN or infinity in line {rows[int(finite.int().argmin())]}")
    return block


def blocks(values: Any, rows: Ints, device: torch.device) -> Iterator[tuple[Ints, torch.Tensor]]:
    """Yield increasing rows of activations (n, width), block by block, and their values, in float64."""
    step = CHUNK_ROWS[device.type]
    if isinstance(values, torch.Tensor | np.ndarray):
        ends = np.arange(step, rows.size, step)
    else:  # windows of rows, each of them one slice
        ends = np.searchsorted(rows, np.arange(step, len(values), step))
    for part in np.split(rows, ends):
        if part.size:
            yield part, take("activations", values, part, device)


# ---------------------------------------------------------------------- normal equations


class Fit(NamedTuple):
    """k linear maps of unstandardised activations, on a device."""

    weight: torch.Tensor  #: (width, k)
    intercept: torch.Tensor  #: (k,)
    mean: torch.Tensor  #: (k,) means of the targets that were fitted

    def predict(self, activations: Any, rows: Ints) -> Floats:
        """Return the readings of some rows of activations by the maps: (rows, k)."""
        parts = [a @ self.weight + self.intercept for _, a in blocks(activations, rows, self.weight.device)]
        return torch.cat(parts).cpu().numpy()


class NormalEquations:
    """The sums behind ridge regressions on some rows: products of activations, 1 and targets.

    Moments are taken about a row of the data, so that a large mean costs no digits.

    Parameters
    ----------
    centre
        (p,) a row of activations, float64, on the device that is to do the work.
    columns
        Number of targets.
    """

    def __init__(self, centre: torch.Tensor, columns: int) -> None:
        self.centre, self.n, p = centre, 0, len(centre)
        self.gram, self.cross = centre.new_zeros(p + 1, p + 1), centre.new_zeros(p + 1, columns)

    def add(self, a: torch.Tensor, t: torch.Tensor, columns: slice = slice(None)) -> None:
        """Add rows: their activations, and their targets in some of the columns."""
        row = torch.nn.functional.pad(a - self.centre, (0, 1), value=1.0)
        self.gram.addmm_(row.T, row)
        self.cross[:, columns] += row.T @ t
        self.n += len(a)

    def __add__(self, other: NormalEquations) -> NormalEquations:
        both = NormalEquations(self.centre, 0)
        both.gram, both.cross, both.n = self.gram + other.gram, self.cross + other.cross, self.n + other.n
        return both

    def covariance(self) -> torch.Tensor:
        """Return the covariance (p, p) of the activations."""
        mean = self.gram[-1, :-1] / self.n
        return self.gram[:-1, :-1] / self.n - torch.outer(mean, mean)

    def solve(self, alphas: Sequence[float], columns: slice = slice(None)) -> list[Fit]:
        """Return the fits of some columns, for each penalty.

        Activations are standardised by the rows: (a - mean) / (std + 1e-6). The penalty is alpha |w|² for the
        standardised weights; the intercept is not penalised. Weights are for unstandardised activations. Equal to
        scikit-learn's ``Ridge(alpha)``.
        """
        n, total, cross = self.n, self.gram[-1, :-1], self.cross[:, columns]
        mean, covariance = cross[-1] / n, self.covariance()
        # The variance of a unit that is constant on these rows is a rounding error of either sign.
        constant = covariance.diagonal() <= CONSTANT * self.gram.diagonal()[:-1] / n
        covariance.masked_fill_(constant[:, None] | constant, 0)
        scale = covariance.diagonal().clamp(min=0).sqrt() + STD_FLOOR
        normal = covariance * n / torch.outer(scale, scale)
        right = ((cross[:-1] - torch.outer(total, mean)) / scale[:, None]).masked_fill_(constant[:, None], 0)
        fits, penalty = [], 0.0
        for alpha in alphas:
            normal.diagonal().add_(alpha - penalty)
            penalty = alpha
            factor, failed = torch.linalg.cholesky_ex(normal)
            if failed:
                factor = torch.linalg.cholesky(normal + torch.diag_embed(torch.full_like(scale, JITTER * n)))
            weight = torch.cholesky_solve(right, factor) / scale[:, None]
            fits.append(Fit(weight, mean - (self.centre + total / n) @ weight, mean))
        return fits


# ---------------------------------------------------------------------- rows held out in turn


@dataclass(frozen=True, eq=False)
class Samples:
    """Which rows each probe is fitted to and scored on.

    Rows are divided into parts. The probe of a part is fitted to the rows of all other parts and scored on the part.
    With several penalties, each part takes the one with the least error when one more part is held out and predicted.

    Targets stand in J groups of T columns, one group per depth. A row of level j belongs to groups 0 to j. So the rows
    of a group contain those of every later group, and going up from the last group normal equations only grow: one
    pass over the activations fits all groups.
    """

    part: Ints  #: (n,) part of each row, from 0 on; or TRAIN, or LEFT_OUT
    level: Ints  #: (n,) the last group that a row belongs to; -1 for none
    where: Ints  #: (n, J) the unit, such as a latent, that a row is scored under in each group; `units` for none
    units: int = 1
    scored: int = 1  #: number of scored parts, which come first; one more part may choose penalties
    refit: bool = True  #: whether the rows of that part are fitted too once the penalties are chosen

    @cached_property
    def rows(self) -> dict[tuple[int, int], Ints]:
        """Rows by level and part."""
        levels, parts = range(self.where.shape[1]), range(TRAIN, max(self.scored, 1 + int(self.part.max())))
        return {(j, k): np.flatnonzero((self.part == k) & (self.level == j)) for j in levels for k in parts}

    @classmethod
    def split(cls, part: Ints, refit: bool, unit: Ints | None = None) -> Samples:
        """Return rows with one test part, for targets that all rows have; with the unit of each row, if any."""
        if not (part == TRAIN).any() or not (part == TEST).any():
            raise ValueError("split must leave lines to train on and lines to test on, got none of one of them")
        level = np.zeros(part.size, np.int64)
        where = level if unit is None else unit
        return cls(part, level, where[:, None], 1 + int(where.max()), refit=refit)


def divide(n: int, train: ArrayLike, tuning: ArrayLike, test: ArrayLike) -> Ints:
    """Return the part of each of n rows, from the rows of three parts: indices or masks."""
    part = np.full(n, LEFT_OUT)
    for given, number in ((train, TRAIN), (tuning, TUNING), (test, TEST)):
        rows = listed("rows of split", given, n)
        again = rows[part[rows] != LEFT_OUT]
        if again.size:
            raise ValueError(f"split must have parts that share no row, got row {again[0]} twice")
        part[rows] = number
    return part


class Scores(NamedTuple):
    """Sums over the held-out rows of each unit, (units, T); targets and readings are about the mean that was fitted."""

    squared: Floats  #: squared errors
    target: Floats
    target_squared: Floats  #: squares of targets, which are the squared errors of the mean
    read: Floats  #: readings
    n: Ints  #: (units, 1) rows

    def r2(self, mean: Floats) -> Floats:
        """Return (T,) R² over the rows of all units, NaN where a target is constant; from the means (T,) fitted."""
        squared, target, about_mean, _, n = (part.sum(0) for part in self)
        spread = about_mean - target**2 / n
        constant = spread <= CONSTANT_TARGET * (about_mean + n * mean**2)
        return np.where(constant, np.nan, 1 - squared / np.where(constant, 1, spread))


class CrossFit:
    """Ridge regressions of targets (n, J T) on activations (n, width), one for each part that is scored.

    Parameters
    ----------
    activations, targets
        Tensors, arrays, or objects that slice like them.
    samples
        Which rows are fitted and scored.
    alphas
        Penalties. All groups share one; if there are several, each part and column takes the best.
    device
        Where to compute.
    importance
        (units, T) weights of the squared errors that choose a penalty.
    """

    def __init__(
        self,
        activations: Any,
        targets: Any,
        samples: Samples,
        alphas: Sequence[float],
        device: torch.device,
        importance: Floats | float = 1.0,
    ) -> None:
        self.activations, self.targets, self.samples, self.device = activations, targets, samples, device
        self.groups, columns = samples.where.shape[1], targets.shape[1]
        self.width = columns // self.groups
        parts = sorted({part for _, part in samples.rows} - {TRAIN})
        spare = frozenset() if samples.refit else frozenset(parts[samples.scored :])
        outer = [frozenset({part}) | spare for part in parts[: samples.scored]]
        pairs = [(part, other) for part in parts[: samples.scored] for other in parts if other != part]
        inner = {pair: frozenset(pair) for pair in pairs} if len(alphas) > 1 else {}
        by_fold = self._fit_without({*outer, *inner.values()}, alphas)
        cost = np.zeros((len(outer), len(alphas), self.width))
        for (part, other), fold in inner.items():
            cost[part] += (self._sums(other, by_fold[fold], 1)[:, 0] * importance).sum(1)
        best = (cost <= (1 + TIE) * cost.min(1, keepdims=True)).argmax(1)
        self.alpha: Floats = np.array(alphas, np.float64)[best]  #: (parts, T) the penalties
        self.fits: list[Fit] = []  #: by part
        for fold, index in zip(outer, torch.from_numpy(best).to(device), strict=True):
            weight, intercept, mean = (torch.stack(kind) for kind in zip(*by_fold[fold], strict=True))
            at, column = index.repeat(self.groups), torch.arange(columns, device=device)
            self.fits.append(Fit(weight[at, :, column].T, intercept[at, column], mean[0]))

    def _fit_without(self, folds: set[frozenset[int]], alphas: Sequence[float]) -> dict[frozenset[int], list[Fit]]:
        """Return fits to the rows of all parts outside a fold, for each fold and penalty; in one pass."""
        used = {key: rows for key, rows in self.samples.rows.items() if any(key[1] not in fold for fold in folds)}
        _, last = max((level, rows[0]) for (level, _), rows in used.items() if rows.size)  # it is in most groups
        centre, columns = take("activations", self.activations, np.array([last]), self.device)[0], self.targets.shape[1]
        equations = {part: NormalEquations(centre, columns) for _, part in used}
        shapes = (len(centre), columns), (columns,), (columns,)
        fits = {fold: [Fit(*(centre.new_zeros(shape) for shape in shapes)) for _ in alphas] for fold in folds}
        for level in reversed(range(self.groups)):
            upto, here = slice(0, (level + 1) * self.width), slice(level * self.width, (level + 1) * self.width)
            for part, sums in equations.items():
                for rows, a in blocks(self.activations, used[level, part], self.device):
                    sums.add(a, take("targets", self.targets, rows, self.device, upto), upto)
            for fold, fitted in fits.items():
                others = reduce(add, (sums for part, sums in equations.items() if part not in fold))
                for fit, solved in zip(fitted, others.solve(alphas, here), strict=True) if others.n else ():
                    for into, values in zip(fit, solved, strict=True):
                        into[..., here] = values
        return fits

    def _sums(self, part: int, fits: Sequence[Fit], kinds: int) -> Floats:
        """Return the first kinds of `Scores` for the rows of a part, by fit; in one pass."""
        mean = fits[0].mean
        sums = mean.new_zeros(len(fits), kinds, self.samples.units + 1, self.width)
        for level in range(self.groups):
            upto = slice(0, (level + 1) * self.width)
            for rows, a in blocks(self.activations, self.samples.rows[level, part], self.device):
                target = take("targets", self.targets, rows, self.device, upto) - mean[upto]
                unit = torch.from_numpy(self.samples.where[rows, : level + 1].ravel()).to(self.device)
                for into, fit in zip(sums, fits, strict=True):
                    read = a @ fit.weight[:, upto] + fit.intercept[upto] - mean[upto]
                    values = (read - target).square(), target, target.square(), read
                    for total, value in zip(into, values, strict=False):
                        total.index_add_(0, unit, value.view(-1, self.width))
        return sums[:, :, :-1].cpu().numpy()

    def scores(self) -> Scores:
        """Score the fit of every part on the rows that it holds out, by unit."""
        sums: Floats = np.sum([self._sums(part, [fit], 4)[0] for part, fit in enumerate(self.fits)], 0)
        held = self.samples.where[(self.samples.part >= 0) & (self.samples.part < len(self.fits))]
        n = np.bincount(held.ravel(), minlength=self.samples.units + 1)
        return Scores(sums[0], sums[1], sums[2], sums[3], n[:-1, None])


# ---------------------------------------------------------------------- the plain form


@dataclass(frozen=True, eq=False)
class Ridge:
    """A ridge regression and its errors on test rows, for k targets. Made by `ridge`."""

    weights: Floats  #: (width, k) for activations as they are
    intercept: Floats  #: (k,)
    alpha: Floats  #: (k,) the penalty
    r2: Floats  #: (k,) R² on the test rows; NaN where the target is constant on them
    mse: Floats  #: (k,) mean squared error on the test rows
    baseline: Floats  #: (k,) mean squared error of the mean of the training rows


def ridge(
    activations: Any,
    targets: Any,
    train: ArrayLike,
    test: ArrayLike,
    alphas: float | Sequence[float] = 1.0,
    *,
    validation: ArrayLike | None = None,
    refit: bool | None = None,
    device: Device = "auto",
) -> Ridge:
    """Fit a ridge regression from activations to k targets on training rows, and score each target on test rows.

    Minimises Σ (t - w·s - b)² + alpha |w|² over the training rows for each target t, s being the activations
    standardised by the training rows, (a - mean) / (std + 1e-6). The solution is exact: normal equations in float64,
    O(n width (width + k) + width³) time. Activations and targets are read in blocks and never held as a whole: training
    and test rows once, and rows that choose a penalty once more.

    Parameters
    ----------
    activations
        (n, width), or (n, positions, width) of documents: a tensor on any device, an array or a memory map.
    targets
        (n, k), or (n, positions, k) numbers in the same forms. Beliefs of a corpus are such targets.
    train, test
        Indices along the first axis, or masks. All positions of a document are on one side.
    alphas
        The penalty; if there are several, each target takes the one with the least error on the validation rows.
    validation
        Rows that choose among several penalties. None: every fifth training row.
    refit
        Whether validation rows are fitted too once the penalty is chosen. None: only if they are training rows.
    device
        Where to compute.
    """
    penalties, place = check_penalties("alphas", alphas), choose_device(device)
    if activations.shape[:-1] != targets.shape[:-1] or len(activations.shape) < 2:
        shapes = f"{tuple(activations.shape)} and {tuple(targets.shape)}"
        raise ValueError(f"activations and targets must have the same rows and positions, got shapes {shapes}")
    part = divide(activations.shape[0], train, () if validation is None else validation, test)
    if len(penalties) > 1 and validation is None:
        part[np.flatnonzero(part == TRAIN)[::TUNING_STEP]] = TUNING
    A, T = (values.reshape(-1, values.shape[-1]) for values in (activations, targets))
    both = validation is None if refit is None else refit
    samples = Samples.split(np.repeat(part, A.shape[0] // part.size), refit=both)
    fitted = CrossFit(A, T, samples, penalties, place)
    scores, (weights, intercept, mean) = fitted.scores(), (values.cpu().numpy() for values in fitted.fits[0])
    mse, baseline = scores.squared[0] / scores.n[0], scores.target_squared[0] / scores.n[0]
    return Ridge(weights, intercept, fitted.alpha[0], scores.r2(mean), mse, baseline)


def check_penalties(name: str, alphas: Any) -> list[float]:
    """Return one penalty or several as a list."""
    values = [float(alpha) for alpha in np.atleast_1d(alphas)]
    if not values or not all(0 < alpha < np.inf for alpha in values):
        raise ValueError(f"{name} must be a positive number or several, got {alphas!r}")
    return values
