"""Errors of probes by latent, as arrays: what figures, findings and tables are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from numpy.typing import NDArray

from percolab.ground import foreign_files, html
from percolab.ground.files import replacing
from percolab.model.forest import Forest
from percolab.nn.probing.rows import LATENT_TARGETS, Column

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LEAST_BASELINE = 1e-4
"""Latents that the mean alone predicts better than this are left out: their target is all but constant."""
_ARRAYS = ("depths", "n_train", "latent", "depth_index", "n", "total", "squares", "train_mean")


@dataclass(frozen=True, eq=False)
class ProbeErrors:
    """Errors of the probes of one protocol: T targets, on held-out lines of L latents at J depths."""

    protocol: str
    columns: tuple[Column, ...]
    """(T,) targets and draws"""
    depths: Ints
    """(J,)"""
    n_train: Ints
    """(J,) lines trained on, mean over folds"""
    latent: Ints
    """(L,)"""
    depth_index: Ints
    """(L,) index of the latent's depth"""
    n: Ints
    """(L,) held-out lines"""
    total: Floats
    """(L, T) sum of their targets"""
    squares: Floats
    """(L, T) sum of the squares of their targets"""
    train_mean: Floats
    """(L, T) mean of the targets that were trained on"""
    squared: dict[str, Floats] = field(default_factory=dict)
    """(L, T) sum of squared errors, by representation"""
    alpha: dict[str, Floats] = field(default_factory=dict)
    """(folds, T) the penalty, by representation"""

    def at(self, target: str) -> list[int]:
        """Return the columns of a target, a draw each."""
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
        """Return (draws, J) errors over those of the training mean, by depth; NaN where it predicts all but exactly.

        At a depth where all training lines have one target a probe can only give it back: NaN too.
        """
        k = self.at(target)
        with np.errstate(invalid="ignore", divide="ignore"):
            n = self.by_depth(self.n[:, None])
            mean = self.by_depth(self.baseline[:, k] * self.n[:, None]) / n
            ratio = self.by_depth(self.squared[name][:, k]) / n / mean
        ratio[(mean < LEAST_BASELINE) | (np.abs(ratio - 1) <= 1e-9)] = np.nan
        return ratio.T

    def save(self, path: Path) -> None:
        """Write to a file that `load` reads."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"squared/{name}": values.astype(np.float32) for name, values in self.squared.items()}
        arrays |= {f"alpha/{name}": values for name, values in self.alpha.items()}
        names, draws = zip(*self.columns, strict=True)
        with replacing(path) as partial:
            np.savez_compressed(
                partial, protocol=self.protocol, targets=np.array(names), draws=np.array(draws), **arrays
            )

    @staticmethod
    def load(path: Path) -> ProbeErrors:
        """Read what `save` wrote."""
        with foreign_files.arrays("probes", path) as stored:
            parts: dict[str, Any] = {"squared": {}, "alpha": {}}
            for key in stored:
                kind, _, name = key.partition("/")
                if name:
                    parts[kind][name] = stored[key].astype(np.float64)
            pairs = zip(stored["targets"].tolist(), stored["draws"].tolist(), strict=True)
            arrays: dict[str, Any] = {name: stored[name] for name in _ARRAYS}
            return ProbeErrors(str(stored["protocol"]), tuple(pairs), **arrays, **parts)


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Errors of probes, as tidy tables."""

    errors: tuple[ProbeErrors, ...]
    """the same as arrays, a protocol each"""
    forest: Forest
    skipped: tuple[str, ...] = ()
    """what could not be probed, each in a sentence"""
    seconds: dict[str, float] = field(default_factory=dict)
    """time by representation"""

    @cached_property
    def per_latent(self) -> pandas.DataFrame:
        """protocol, target, draw, representation, depth, latent, s_latent, s_cluster, FOM, n_validation, MSE, baseline.

        Targets that differ within a latent, those that were shuffled, are left out.
        """
        return pandas.concat([_per_latent(part, self.forest) for part in self.errors], ignore_index=True)

    @cached_property
    def per_depth(self) -> pandas.DataFrame:
        """protocol, target, draw, representation, depth, n_train, n_validation, n_latents, MSE, R2, mean_MSE."""
        return pandas.concat([_per_depth(part) for part in self.errors], ignore_index=True)

    @cached_property
    def penalties(self) -> pandas.DataFrame:
        """protocol, target, draw, representation, fold, alpha: the ridge penalty of every probe."""
        parts = [
            pandas.DataFrame({
                "protocol": part.protocol, "target": target, "draw": draw, "representation": name,
                "fold": np.arange(len(alpha)), "alpha": alpha[:, k],
            })
            for part in self.errors
            for name, alpha in part.alpha.items()
            for k, (target, draw) in enumerate(part.columns)
        ]  # fmt: skip
        return pandas.concat(parts, ignore_index=True)

    def _relative(self) -> dict[tuple[str, str, str], float]:
        """Return the median relative error over depths, by protocol, representation and target; mean over draws."""
        found = {}
        for part in self.errors:
            for name in part.squared:
                for target in LATENT_TARGETS:
                    ratio = part.relative(name, target)
                    if not np.isnan(ratio).all():
                        found[part.protocol, name, target] = float(np.mean(np.nanmedian(ratio, axis=1)))
        return found

    def __repr__(self) -> str:
        names = dict.fromkeys(name for part in self.errors for name in part.squared)
        latents = max((part.latent.size for part in self.errors), default=0)
        protocols = " and ".join(part.protocol for part in self.errors)
        return f"ProbeResult({len(names)} representations, {latents:,} latents, held out: {protocols})"

    def _repr_html_(self) -> str:
        lines = {
            f"{name}, {protocol}": f"z {value:.3f}, fresh z {found.get((protocol, name, 'z_redrawn'), np.nan):.3f}"
            for found in [self._relative()]
            for (protocol, name, target), value in found.items()
            if target == "z"
        }
        return html.table("Probes: error over that of the training mean, median over depths", lines)


def _per_latent(part: ProbeErrors, forest: Forest) -> pandas.DataFrame:
    latent = part.latent
    common = {
        "depth": part.depths[part.depth_index],
        "latent": latent,
        "s_latent": forest.latent_size[latent],
        "s_cluster": forest.cluster_size[forest.latent_cluster[latent]],
        "FOM": forest.figure_of_merit[latent],
        "n_validation": part.n,
    }
    tables = []
    for name in part.squared:
        mse = part.mse(name)
        for k, (target, draw) in enumerate(part.columns):
            if target in LATENT_TARGETS:
                head = {"protocol": part.protocol, "target": target, "draw": draw, "representation": name}
                tables.append(pandas.DataFrame(head | common | {"MSE": mse[:, k], "baseline": part.baseline[:, k]}))
    return pandas.concat(tables, ignore_index=True)


def _per_depth(part: ProbeErrors) -> pandas.DataFrame:
    n = part.by_depth(part.n)
    there = np.flatnonzero(n > 0)
    n = n[there]
    total, squares = part.by_depth(part.total)[there], part.by_depth(part.squares)[there]
    mean = part.by_depth(part.baseline * part.n[:, None])[there] / n[:, None]
    spread = squares - total**2 / n[:, None]
    constant = spread <= 1e-12 * np.maximum(squares, 1)
    common = {
        "depth": part.depths[there],
        "n_train": part.n_train[there],
        "n_validation": n.astype(np.int64),
        "n_latents": part.by_depth(np.ones(part.latent.size))[there].astype(np.int64),
    }
    tables = []
    for name in part.squared:
        errors = part.by_depth(part.squared[name])[there]
        r2 = np.where(constant, np.nan, 1 - errors / np.where(constant, 1, spread))
        for k, (target, draw) in enumerate(part.columns):
            head = {"protocol": part.protocol, "target": target, "draw": draw, "representation": name}
            own = {"MSE": errors[:, k] / n, "R2": r2[:, k], "mean_MSE": mean[:, k]}
            tables.append(pandas.DataFrame(head | common | own))
    return pandas.concat(tables, ignore_index=True)
