"""Linear probes: how well a representation gives the value of a point's latent at each depth.

The lines of a depth contain those of every greater depth (see `rows`), so going up from the deepest depth the
normal equations only grow: one pass over the activations serves all depths, ways of holding out and penalties, and one
factorisation serves all targets of a depth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from percolab.ground.progress import Progress, shown
from percolab.model.indices import listed
from percolab.nn.config import ProbeConfig
from percolab.nn.networks.device import Device, choose_device, on_device
from percolab.nn.networks.recording import RAW
from percolab.nn.probing.errors import ProbeErrors, ProbeResult
from percolab.nn.probing.ridge import CHUNK_ROWS, NormalEquations
from percolab.nn.probing.rows import (
    LATENT_TARGETS,
    TARGETS,
    Floats,
    HoldOut,
    Ints,
    Lines,
    ProbeRows,
    probe_rows,
    random_points,
    whole_subtrees,
)
from percolab.worlds.truth import AnyDataset, truth


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
    `percolab.nn.probing.rows.TARGETS`. For probes of one's own targets or split, see `linear_probe`.

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
        Which hierarchy of a superposed world is meant.
    device
        Where to compute.
    progress
        True shows a bar; a function is called with ("probes", fits done, fits in all), a fit being of one
        representation with one protocol.
    """
    prober = Prober(dataset, config, rows=rows, factor=factor, device=device)
    sources = dict(activations)
    if raw:
        sources = {RAW: dataset.X if rows is None else _taken(dataset.X, prober.samples), **sources}
    return prober.run(sources, progress)


def _taken(X: Any, rows: Ints) -> Any:
    """Return rows in any order, read in increasing order, as a store wants."""
    wanted, place = np.unique(rows, return_inverse=True)
    return np.asarray(X[wanted])[place]


class Prober:
    """What `probes` of a dataset share, whatever the activations: lines, targets and held-out parts, on the device."""

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
        self.forest = forest = known.forest
        self.samples = listed("rows", rows, known.rows.size)
        lines = Lines.of(forest, known.rows[self.samples])
        depths = np.array(config.depths, np.int64)
        found = probe_rows(forest, known.latent_z, lines, depths, config.min_latent_size, config.draws, config.seed)
        self.order = torch.from_numpy(lines.order).to(self.device)
        self.skipped = []
        if found.skipped.size:  # a latent's ancestors are at least as large, so these are the last depths
            self.skipped.append(f"from depth {found.skipped[0]} on no latent has {config.min_latent_size} points")
        self.plans: list[_Plan] = []
        for protocol in config.protocols:
            if protocol == "random":
                held = random_points(found, config.train_share, config.seed)
                self.plans.append(_Plan(protocol, found, lines, held, TARGETS, [config.alpha], self.device))
                continue
            held = whole_subtrees(forest, lines, found, config.min_latent_size, config.folds)
            alphas = list(config.subtree_alphas)
            plan = _Plan(protocol, found, lines, held, LATENT_TARGETS, alphas, self.device)
            if plan.latent.size:
                self.plans.append(plan)
            else:
                self.skipped.append(f"no subtree of at least {config.min_latent_size} points can be held out")

    def run(self, activations: Mapping[str, Any], progress: bool | Progress = False) -> ProbeResult:
        """Fit and score the probes of some representations."""
        n = self.samples.size
        for name, values in activations.items():
            if len(values.shape) != 2 or len(values) != n:
                shape = tuple(values.shape)
                raise ValueError(f"activations[{name!r}] must have shape ({n}, width), got {shape}")
        errors = [plan.empty() for plan in self.plans]
        done, total, seconds = 0, len(activations) * len(self.plans), {}
        with shown(progress) as tell:
            for name, values in activations.items():
                start = time.perf_counter()
                what = f"activations[{name!r}]" if name != RAW else "X"
                A = on_device(what, values, self.device, torch.float32)[self.order]
                for plan, into in zip(self.plans, errors, strict=True):
                    tell("probes", done, total)
                    into.squared[name], into.alpha[name] = plan.fit(A)
                    done += 1
                seconds[name] = time.perf_counter() - start
            tell("probes", total, total)
        return ProbeResult(tuple(errors), self.forest, tuple(self.skipped), seconds)


# ---------------------------------------------------------------------- one way of holding out


@dataclass(frozen=True, eq=False)
class _Scored:
    """The lines of a part that count at a depth, and the latents that they are of."""

    lines: torch.Tensor
    first: torch.Tensor
    """(k,) of each latent, the first of these lines"""
    end: torch.Tensor
    n: Ints
    at: slice
    """where the latents stand in the results"""


class _Plan:
    """Lines to fit and lines to score, on the device."""

    def __init__(
        self,
        protocol: str,
        rows: ProbeRows,
        lines: Lines,
        held: HoldOut,
        targets: tuple[str, ...],
        alphas: list[float],
        device: torch.device,
    ) -> None:
        self.protocol, self.rows, self.held, self.alphas = protocol, rows, held, alphas
        used = [k for k, (name, _) in enumerate(rows.columns) if name in targets]
        self.columns = tuple(rows.columns[k] for k in used)
        chosen = rows.targets if len(used) == len(rows.columns) else rows.targets[:, :, used]
        self.targets = torch.from_numpy(np.ascontiguousarray(chosen)).to(device)
        parts = range(-1, held.n_parts)
        J = rows.depths.size
        self.added = [
            [torch.from_numpy(np.flatnonzero((held.part == g) & (rows.level == j))).to(device) for g in parts]
            for j in range(J)
        ]
        size = np.array([[len(self.added[j][1 + g]) for g in parts] for j in range(J)])[::-1].cumsum(0)[::-1]
        self.size: Ints = size
        """(J, 1 + parts) lines of a depth in each part, those of part -1 first"""
        self._score(lines, device)

    def _score(self, lines: Lines, device: torch.device) -> None:
        """Find the latents that are scored, by depth and part, and the sums of their targets."""
        rows, held = self.rows, self.held
        found: list[Ints] = []
        self.scored: dict[tuple[int, int], _Scored] = {}
        done = 0
        sums = []
        for j in range(rows.depths.size):
            latents = rows.latent[rows.depth_index == j]
            start, end = lines.start[latents], lines.start[latents] + lines.size[latents]
            for part in range(held.n_parts):
                if self._trained(j, part) < 2:
                    continue
                own = np.flatnonzero((held.part == part) & (rows.level >= j))
                lo, hi = np.searchsorted(own, start), np.searchsorted(own, end)
                counts = hi > lo
                if held.whole:  # from the depth on at which all its points are held out alike
                    counts &= (held.part[start] == part) & (held.first_index[start] <= j)
                if not counts.any():
                    continue
                lo, hi = lo[counts], hi[counts]
                at = slice(done, done + lo.size)
                there, first, past = (torch.from_numpy(a).to(device) for a in (own, lo, hi))
                self.scored[j, part] = scored = _Scored(there, first, past, hi - lo, at)
                found.append(latents[counts])
                done = at.stop
                t = self.targets[scored.lines, j].double()
                sums.append(np.stack([_by_latent(t, scored), _by_latent(t**2, scored)]))
        T = len(self.columns)
        self.latent = np.concatenate(found) if found else np.zeros(0, np.int64)
        self.total, self.squares = np.concatenate(sums, 1) if sums else np.zeros((2, 0, T))
        self.train_mean = self._train_means()

    def _trained(self, j: int, part: int) -> int:
        """Return the number of lines that are trained on when a part is held out."""
        return int(self.size[j].sum() - self.size[j, 1 + part])

    def _train_means(self) -> Floats:
        means = np.zeros((self.latent.size, len(self.columns)))
        shape = (1 + self.held.n_parts, *self.targets.shape[1:])
        totals = torch.zeros(shape, dtype=torch.float64, device=self.targets.device)
        for j in range(self.rows.depths.size - 1, -1, -1):
            for total, added in zip(totals, self.added[j], strict=True):
                total += self.targets[added].sum(0, dtype=torch.float64)
            for part in range(self.held.n_parts):
                if (j, part) in self.scored:
                    others = totals[:, j].sum(0) - totals[1 + part, j]
                    means[self.scored[j, part].at] = (others / self._trained(j, part)).cpu().numpy()
        return means

    def empty(self) -> ProbeErrors:
        """Return results without any representation."""
        n = np.concatenate([scored.n for scored in self.scored.values()])
        depth_index = np.concatenate([np.full(scored.n.size, j) for (j, _), scored in self.scored.items()])
        n_train = np.array([
            np.mean([self._trained(j, part) for part in range(self.held.n_parts)])
            for j in range(self.rows.depths.size)
        ]).astype(np.int64)  # fmt: skip
        return ProbeErrors(
            self.protocol, self.columns, self.rows.depths, n_train, self.latent, depth_index, n, self.total,
            self.squares, self.train_mean,
        )  # fmt: skip

    # ------------------------------------------------------------------ fitting

    def fit(self, A: torch.Tensor) -> tuple[Floats, Floats]:
        """Return (L, T) sums of squared errors by latent, and (parts, T) the penalties."""
        T, parts, n_alphas = len(self.columns), self.held.n_parts, len(self.alphas)
        errors = np.zeros((n_alphas, self.latent.size, T))
        inner = np.zeros((parts, n_alphas, T))
        for j, equations in self._levels(A):
            here = slice(j * T, (j + 1) * T)
            for part in range(parts):
                if (j, part) not in self.scored:
                    continue
                scored = self.scored[j, part]
                fits = _without(equations, part).solve(self.alphas, here)
                errors[:, scored.at] = self._errors(A, fits, j, scored)
            if n_alphas > 1:
                self._choose(A, equations, j, here, inner)
        best = inner.argmin(1)
        chosen = np.empty((self.latent.size, T))
        for (_, part), scored in self.scored.items():
            chosen[scored.at] = np.take_along_axis(errors[:, scored.at], best[part][None, None], 0)[0]
        return chosen, np.array(self.alphas)[best]

    def _levels(self, A: torch.Tensor) -> Iterator[tuple[int, list[NormalEquations]]]:
        """Yield the normal equations of every part, from the deepest depth up; the list is the same, and grows."""
        J, T = self.rows.depths.size, len(self.columns)
        flat = self.targets.view(len(self.targets), J * T)
        # A line that every depth has; see `NormalEquations`.
        first = next(added[0] for added in reversed([rows for level in self.added for rows in level]) if len(added))
        needed = [g for g in range(1 + self.held.n_parts) if g == 0 or self.held.n_parts > 1]
        equations = [NormalEquations(A[first].double(), J * T) for _ in needed]
        for j in range(J - 1, -1, -1):
            used = slice(0, (j + 1) * T)
            for g in needed:
                for lines in self.added[j][g].split(CHUNK_ROWS[A.device.type]):
                    equations[g].add(A[lines], flat[lines, used], used)
            yield j, equations

    def _errors(self, A: torch.Tensor, fits: list[Any], j: int, scored: _Scored) -> Floats:
        """Return (alphas, k, T) sums of squared errors over each latent's lines."""
        squared = torch.empty(len(fits), len(scored.lines), len(self.columns), dtype=torch.float64, device=A.device)
        first = 0
        for lines in scored.lines.split(CHUNK_ROWS[A.device.type]):
            a, t = A[lines].double(), self.targets[lines, j].double()
            for i, (weight, intercept, _) in enumerate(fits):
                squared[i, first : first + len(lines)] = (a @ weight + intercept - t) ** 2
            first += len(lines)
        return np.stack([_by_latent(values, scored) for values in squared])

    def _choose(self, A: torch.Tensor, equations: list[NormalEquations], j: int, here: slice, inner: Floats) -> None:
        """Add to `inner` how the penalties do for each part when one more part is held out and scored.

        Each latent counts alike: the mean over its lines, over the variance that its target has at this depth.
        """
        depth = int(self.rows.depths[j])
        variance = np.array([1 + depth if name.startswith("sum") else 1 for name, _ in self.columns])
        for one in range(self.held.n_parts):
            for other in range(one):
                rest = _without(equations, one, other)
                pairs = [(a, b) for a, b in ((one, other), (other, one)) if (j, b) in self.scored]
                if rest.n < 2 or not pairs:
                    continue
                fits = rest.solve(self.alphas, here)
                for held, scored_part in pairs:
                    scored = self.scored[j, scored_part]
                    means = self._errors(A, fits, j, scored) / scored.n[:, None]
                    inner[held] += means.sum(1) / variance


def _without(equations: list[NormalEquations], *parts: int) -> NormalEquations:
    """Return the equations of all parts but these."""
    first, *others = (one for g, one in enumerate(equations) if g - 1 not in parts)
    return first.combine(*others) if others else first


def _by_latent(values: torch.Tensor, scored: _Scored) -> Floats:
    """Return (k, T) sums over each latent's lines: a difference of running sums."""
    # Along the dimension that is contiguous: across it, a GPU adds line after line.
    running = torch.nn.functional.pad(torch.cumsum(values.T.contiguous(), 1), (1, 0))
    sums: Floats = (running[:, scored.end] - running[:, scored.first]).T.cpu().numpy()
    return sums
