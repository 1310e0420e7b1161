"""Errors of probes by latent, as arrays: the source of figures, findings and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from percolab.ground import text
from percolab.ground.arrays import Floats, Ints
from percolab.model.forest import Forest
from percolab.nn.probing.probed_latents import LATENT_TARGETS, TARGETS, Column

#: Latents whose error under the training mean is below this are left out: their target is nearly constant.
LEAST_BASELINE = 1e-4
LEAST_SPREAD = 1e-9  #: Variance, as a share of the mean square, up to which a target is constant.


@dataclass(frozen=True, eq=False)
class ProbeErrors:
    """Errors of the probes of one protocol: T targets, on held-out lines of L latents at J depths."""

    protocol: str
    columns: tuple[Column, ...]  #: (T,) targets and draws
    depths: Ints  #: (J,)
    n_train: Ints  #: (J,) lines trained on, mean over folds
    latent: Ints  #: (L,)
    depth_index: Ints  #: (L,) index of the latent's depth
    n: Ints  #: (L,) held-out lines
    total: Floats  #: (L, T) sum of their targets
    squares: Floats  #: (L, T) sum of the squares of their targets
    train_mean: Floats  #: (L, T) mean of the targets that were trained on
    squared: dict[str, Floats] = field(default_factory=dict)  #: (L, T) sum of squared errors, by representation
    alpha: dict[str, Floats] = field(default_factory=dict)  #: (folds, T) the penalty, by representation

    def at(self, target: str) -> list[int]:
        """Return the columns of a target, one per draw."""
        return [index for index, (name, _) in enumerate(self.columns) if name == target]

    def mse(self, name: str) -> Floats:
        """Return (L, T) mean squared errors of a representation."""
        return self.squared[name] / self.n[:, None]

    @cached_property
    def baseline(self) -> Floats:
        """(L, T) mean squared error of the mean of the training targets."""
        spread = self.squares - 2 * self.train_mean * self.total + self.n[:, None] * self.train_mean**2
        return np.maximum(spread, 0) / self.n[:, None]

    def by_depth(self, values: NDArray[Any]) -> Floats:
        """Return (J, …) sums over the latents of each depth."""
        sums = np.zeros((self.depths.size, *values.shape[1:]))
        np.add.at(sums, self.depth_index, values)
        return sums

    def relative(self, name: str, target: str) -> Floats:
        """Return (draws, J) errors relative to the training mean, by depth; NaN where the mean is almost exact.

        Also NaN at a depth where all training lines have the same target, which a probe can only return.
        """
        k = self.at(target)
        with np.errstate(invalid="ignore", divide="ignore"):
            n = self.by_depth(self.n[:, None])
            mean = self.by_depth(self.baseline[:, k] * self.n[:, None]) / n
            ratio = self.by_depth(self.squared[name][:, k]) / n / mean
        ratio[(mean < LEAST_BASELINE) | (np.abs(ratio - 1) <= 1e-9)] = np.nan
        return ratio.T

    def typical(self, name: str, target: str) -> float:
        """Return the relative error of a target, median over depths, mean over draws; NaN if no depth has a value."""
        ratio = self.relative(name, target)
        known = ratio[~np.isnan(ratio).all(1)]
        return float(np.mean(np.nanmedian(known, axis=1))) if len(known) else float("nan")

    def r2(self, name: str) -> Floats:
        """Return (J, T) R² of a representation by depth; NaN where a target is constant."""
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = self.by_depth(self.squares)
            spread = squares - self.by_depth(self.total) ** 2 / self.by_depth(self.n[:, None])
            ratio = self.by_depth(self.squared[name]) / spread
        return np.where(spread > LEAST_SPREAD * np.maximum(squares, 1), 1 - ratio, np.nan)

    def latent_columns(self, forest: Forest) -> dict[str, Any]:
        """Return the columns of a table of latents: depth, latent, s_latent, s_cluster, FOM, n_validation."""
        return {
            "depth": self.depths[self.depth_index],
            "latent": self.latent,
            "s_latent": forest.latent_size[self.latent],
            "s_cluster": forest.cluster_size[forest.latent_cluster[self.latent]],
            "FOM": forest.figure_of_merit[self.latent],
            "n_validation": self.n,
        }

    def depth_columns(self) -> tuple[dict[str, Any], Callable[[Floats], Floats]]:
        """Return the columns of a table of depths that have latents, and a function from sums by latent to means."""
        n, count = self.by_depth(self.n), self.by_depth(np.ones(self.latent.size))
        there = n > 0
        integers = {"n_validation": n[there].astype(np.int64), "n_latents": count[there].astype(np.int64)}
        columns = {"depth": self.depths[there], "n_train": self.n_train[there], **integers}
        return columns, lambda sums: (self.by_depth(sums)[there].T / n[there]).T

    def per_latent(self, forest: Forest) -> pandas.DataFrame:
        """Return the table of `ProbeResult.per_latent`."""
        arrays = {name: {"MSE": self.mse(name), "baseline": self.baseline} for name in self.squared}
        return self._long(self.latent_columns(forest), arrays, LATENT_TARGETS)

    def per_depth(self) -> pandas.DataFrame:
        """Return the table of `ProbeResult.per_depth`."""
        common, mean = self.depth_columns()
        there, baseline = np.isin(self.depths, common["depth"]), mean(self.baseline * self.n[:, None])
        arrays = {
            name: {"MSE": mean(squared), "R2": self.r2(name)[there], "mean_MSE": baseline}
            for name, squared in self.squared.items()
        }
        return self._long(common, arrays)

    def penalties(self) -> pandas.DataFrame:
        """Return the table of `ProbeResult.penalties`."""
        folds = {len(alpha) for alpha in self.alpha.values()}
        return self._long({"fold": np.arange(max(folds))}, {name: {"alpha": a} for name, a in self.alpha.items()})

    def _long(
        self, common: dict[str, Any], arrays: dict[str, dict[str, Floats]], kept: Sequence[str] = TARGETS
    ) -> pandas.DataFrame:
        """Return a tidy table from columns of (…, T) values of each representation."""
        tables = [
            pandas.DataFrame(
                {"protocol": self.protocol, "target": target, "draw": draw, "representation": name}
                | common
                | {key: values[:, k] for key, values in columns.items()}
            )
            for name, columns in arrays.items()
            for k, (target, draw) in enumerate(self.columns)
            if target in kept
        ]
        return pandas.concat(tables, ignore_index=True)


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Errors of probes, as tidy tables."""

    errors: tuple[ProbeErrors, ...]  #: the errors as arrays, one per protocol
    forest: Forest
    skipped: tuple[str, ...] = ()  #: one sentence for everything that could not be probed
    seconds: dict[str, float] = field(default_factory=dict)  #: time by representation

    @cached_property
    def per_latent(self) -> pandas.DataFrame:
        """protocol, target, draw, representation, depth, latent, s_latent, s_cluster, FOM, n_validation, MSE, baseline.

        Shuffled targets, which differ within a latent, are left out.
        """
        return pandas.concat([errors.per_latent(self.forest) for errors in self.errors], ignore_index=True)

    @cached_property
    def per_depth(self) -> pandas.DataFrame:
        """protocol, target, draw, representation, depth, n_train, n_validation, n_latents, MSE, R2, mean_MSE."""
        return pandas.concat([errors.per_depth() for errors in self.errors], ignore_index=True)

    @cached_property
    def penalties(self) -> pandas.DataFrame:
        """protocol, target, draw, representation, fold, alpha: the ridge penalty of every probe."""
        return pandas.concat([errors.penalties() for errors in self.errors], ignore_index=True)

    def __repr__(self) -> str:
        names = dict.fromkeys(name for part in self.errors for name in part.squared)
        latents = max((part.latent.size for part in self.errors), default=0)
        protocols = " and ".join(part.protocol for part in self.errors)
        return f"ProbeResult({len(names)} representations, {latents:,} latents, held out: {protocols})"

    def _repr_html_(self) -> str:
        lines = {
            f"{name}, {part.protocol}": f"z {error:.3f}, fresh z {part.typical(name, 'z_redrawn'):.3f}"
            for part in self.errors
            for name in part.squared
            if not np.isnan(error := part.typical(name, "z"))
        }
        return text.table("Probes: error over the error of the training mean, median over depths", lines)
