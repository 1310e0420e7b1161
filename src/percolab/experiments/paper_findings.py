"""The paper's findings about linear probes, each as statistics with intervals, a stated rule, and its control.

A statistic is the mean over networks of several seeds; its interval is over networks and blocks of kin among latents
(`intervals`). A case is decided when its interval is on one side, so a verdict does not turn on the seed. The same rule
is put to untrained networks: what holds for them too is no effect of training.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from percolab import intervals
from percolab.ground.arrays import Floats, Ints
from percolab.ground.text import paragraphs
from percolab.intervals import Estimate
from percolab.model.forest import Forest
from percolab.nn.config import FITTED_FOM
from percolab.nn.networks.activations import RAW, label
from percolab.nn.probing.errors import LEAST_BASELINE, ProbeErrors

N_BINS = 5
LAYER_CHANGE = 1.1  #: Largest ratio of errors at two blocks, either way, that still counts as no trend.
LEAST_R2 = 0.8
HOLDS, IN_PART, UNDECIDED, FAILS = "holds", "holds in part", "not decided", "does not hold"
ALSO = {HOLDS: "holds, but also in an untrained network", IN_PART: "holds in part, also in an untrained network"}


@dataclass(frozen=True)
class Case:
    """One of the cases that make up a finding: a statistic, and the range that the paper claims."""

    what: str
    value: Estimate
    low: float = -np.inf
    high: float = np.inf  #: the paper claims low < value < high

    @property
    def favours(self) -> bool:
        """Whether the whole interval is in the claimed range."""
        return self.low < self.value.low and self.value.high < self.high

    @property
    def opposes(self) -> bool:
        """Whether the whole interval is outside the claimed range."""
        return self.value.high <= self.low or self.value.low >= self.high

    def to_dict(self) -> dict[str, Any]:
        """Return the case as plain values."""
        return {"case": self.what, **asdict(self.value), "favours": self.favours, "opposes": self.opposes}


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, and the result of its test."""

    claim: str
    rule: str  #: the rule for when the claim holds
    verdict: str
    untrained_verdict: str | None  #: verdict of the same rule for untrained networks
    numbers: str  #: the statistics as text
    untrained_numbers: str | None
    cases: list[Case]

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {**asdict(self), "cases": [case.to_dict() for case in self.cases]}


@dataclass(frozen=True, eq=False)
class Findings:
    """The findings about each target of probes: a result of a cell."""

    z: list[Finding]
    sum: list[Finding]


def verdict(cases: Sequence[Case]) -> str:
    """Return holds, holds in part, not decided or does not hold.

    A finding holds if all its cases are decided for it; in part, if half of them are. Otherwise it does not hold if any
    case is decided against it, and is not decided if none is.
    """
    favours = sum(case.favours for case in cases)
    if cases and favours == len(cases):
        return HOLDS
    if cases and 2 * favours >= len(cases):
        return IN_PART
    return FAILS if any(case.opposes for case in cases) else UNDECIDED


# ---------------------------------------------------------------------- what is measured


class Measured:
    """Errors of the probes of one target and protocol, on several networks, and how to redraw the latents."""

    def __init__(self, forest: Forest, networks: Sequence[ProbeErrors], raw: ProbeErrors, target: str) -> None:
        k = raw.at(target)[0]
        kept = raw.baseline[:, k] >= LEAST_BASELINE
        latent = raw.latent[kept]
        self.fom = forest.figure_of_merit[latent]
        self.names = list(networks[0].squared)
        self.raw: Floats = raw.mse(RAW)[kept, k]
        self.mse = np.stack([[errors.mse(name)[kept, k] for name in self.names] for errors in networks])
        """(networks, representations, latents)"""
        self.fresh, self.permuted = (
            self._over_draws(networks, raw, kept, f"{target}_{kind}") for kind in ("redrawn", "shuffled")
        )
        self.place = intervals.places(forest, latent)
        self.n, self.depth_index, self.depths = raw.n[kept], raw.depth_index[kept], raw.depths

    def _over_draws(self, networks: Sequence[ProbeErrors], raw: ProbeErrors, kept: Any, target: str) -> Floats | None:
        """Return (networks, representations, latents) errors for a target with several draws, median over the draws.

        So the true value is as often below as above, if it is a draw like the others.
        """
        k = raw.at(target)
        if not k:
            return None
        return np.stack([[np.median(errors.mse(name)[kept][:, k], 1) for name in self.names] for errors in networks])

    def at(self, name: str) -> Floats:
        """Return (networks, latents) errors of a representation."""
        return self.mse[:, self.names.index(name)]

    def blocks(self, part: str) -> list[str]:
        """Return the names of a part of each block, in order: part is ``"hidden"`` or ``"residual"``."""
        return blocks(self.names, part)

    @property
    def streams(self) -> list[str]:
        """The names of both streams of every block."""
        return self.blocks("residual") + self.blocks("hidden")

    def bins(self, least: float = 0.0) -> tuple[list[Ints], Floats]:
        """Return the latents in logarithmic bins of FOM, among those above `least`, and the middles of the bins."""
        fom = self.fom[self.fom >= least]
        if fom.size < N_BINS:
            return [], np.zeros(0)
        bins, edges = intervals.log_bins(fom, N_BINS)
        above, there = np.flatnonzero(self.fom >= least), np.unique(bins)
        return [above[bins == b] for b in there], np.sqrt(edges[there] * edges[there + 1])

    def draw(self, members: Ints) -> tuple[Ints, Floats]:
        """Return the blocks of kin among some latents, and how often each counts when blocks are redrawn (1 + B, L)."""
        blocks = intervals.kin(self.place[members])
        return blocks, intervals.redrawn(blocks)

    def median(self, values: Floats, members: Ints) -> Estimate:
        """Return the median over some latents of positive values (networks, latents)."""
        blocks, weights = self.draw(members)
        return intervals.bootstrap(intervals.quantiles(values[:, members], weights), blocks, positive=True)

    def ratio(self, of: Floats, over: Floats, members: Ints) -> Estimate:
        """Return the ratio of the medians over some latents of positive values, geometric mean over networks."""
        blocks, weights = self.draw(members)
        logs = [np.log(intervals.quantiles(values[:, members], weights)) for values in (of, over)]
        return intervals.bootstrap(logs[0] - logs[1], blocks).through(np.exp)


def blocks(names: Any, part: str) -> list[str]:
    """Return the names of a part of each block, in order: part is ``"hidden"`` or ``"residual"``."""
    pattern = re.compile(r"blocks\.(\d+)" + (r"\.hidden" if part == "hidden" else ""))
    matches = [match for name in dict.fromkeys(names) if (match := pattern.fullmatch(name))]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))]


def by_fom(measured: Measured) -> dict[str, Any]:
    """Return the numbers of Fig. 4: in bins of FOM, medians over latents of the error and its ratio to the raw input.

    ``FOM`` and ``n`` are those of the bins. By representation, for ``MSE`` and ``ratio``: the mean over networks, its
    interval ``_low`` to ``_high``, and the quartiles over latents, ``_q25`` and ``_q75``, means over networks. So for
    ``own``, the error on true values over that on fresh ones, and ``permuted``, the error on permuted targets.
    """
    members, middle = measured.bins()
    table: dict[str, Any] = {"FOM": middle, "n": np.array([len(at) for at in members])}
    sources = {RAW: measured.raw[None], **{name: measured.at(name) for name in measured.names}}
    for name, mse in sources.items():
        columns = {"MSE": mse, "ratio": mse / measured.raw}
        if name != RAW and measured.fresh is not None and measured.permuted is not None:
            k = measured.names.index(name)
            columns |= {"own": mse / measured.fresh[:, k], "permuted": measured.permuted[:, k]}
        for column, values in columns.items():
            stats = [measured.median(values, at) for at in members]
            table.setdefault(name, {}).update({
                column: np.array([stat.value for stat in stats]),
                f"{column}_low": np.array([stat.low for stat in stats]),
                f"{column}_high": np.array([stat.high for stat in stats]),
                **{
                    f"{column}_q{q}": np.array([np.quantile(values[:, at], q / 100, 1).mean() for at in members])
                    for q in (25, 75)
                },
            })  # fmt: skip
    return table


# ---------------------------------------------------------------------- the findings


#: Checks a finding. Its docstring has the claim, and the rule for when it holds.
Checked = Callable[[Measured], tuple[list[Case], str]]


def check(
    trained: Measured, untrained: Measured | None, *, multi_cluster: bool = False, fit_from: float = FITTED_FOM
) -> list[Finding]:
    """Return the findings for a protocol and target."""
    if trained.fom.size < 2 * N_BINS or len(trained.blocks("residual")) < 2:
        return []
    apart = multi_cluster and len(trained.blocks("residual")) > 2
    rules: list[tuple[Checked, dict[str, Any]]] = [
        (_beats_raw, {}),
        (_hidden_beats_residual, {}),
        (_shrinks, {}),
        (partial(_power, least=0.0), {"which": "all latents"}),
        (partial(_power, least=fit_from), {"which": f"latents above FOM {fit_from:g}"}),
        *([(_no_trend_after_first, {}), (_first_block, {})] if apart else [(_no_trend, {})]),
    ]
    return [_find(checked, named, trained, untrained) for checked, named in rules]


def _find(checked: Checked, given: dict[str, Any], trained: Measured, untrained: Measured | None) -> Finding:
    stated = paragraphs(getattr(checked, "func", checked).__doc__)
    claim, rule = (part.format(least_r2=LEAST_R2, change=f"{LAYER_CHANGE - 1:.0%}", **given) for part in stated)
    cases, text = checked(trained)
    here, other, other_text = verdict(cases), None, None
    if untrained is not None:
        other_cases, other_text = checked(untrained)
        other = verdict(other_cases)
        if here in ALSO and other in (HOLDS, here):
            here = ALSO[here]
    return Finding(claim, rule.removesuffix("."), here, other, text, other_text, cases)


def _counted(cases: Sequence[Case], what: str, name: str) -> str:
    favours, opposes = sum(case.favours for case in cases), sum(case.opposes for case in cases)
    values = [case.value.value for case in cases]
    against = f", against it in {opposes}" if opposes else ""
    return f"so in {favours} of {len(cases)} {what}{against}; {name} {min(values):.2f} to {max(values):.2f}"


def _in_bins(measured: Measured, of: Mapping[str, Callable[[Ints], Estimate]]) -> list[Case]:
    """Return a case for each layer and bin of FOM: the claim that a statistic of the bin's latents is below 1."""
    bins = list(zip(*measured.bins(), strict=True))
    return [Case(f"{label(name)}, FOM {fom:.2g}", find(at), high=1) for name, find in of.items() for at, fom in bins]


def _beats_raw(measured: Measured) -> tuple[list[Case], str]:
    """Activations beat the raw input at every FOM.

    the median over latents of MSE / MSE on raw input is below 1 in every FOM bin, for both streams of every block (the
    input layer is linear, so it is left out)
    """
    ratios = {name: measured.at(name) / measured.raw for name in measured.streams}
    cases = _in_bins(measured, {name: partial(measured.median, ratio) for name, ratio in ratios.items()})
    return cases, _counted(cases, "pairs of bin and layer", "median ratio")


def _hidden_beats_residual(measured: Measured) -> tuple[list[Case], str]:
    """Hidden activations beat the residual stream.

    the median MSE on the hidden layer is below that on the same block's residual stream in every FOM bin
    """
    pairs = zip(measured.blocks("hidden"), measured.blocks("residual"), strict=True)
    cases = _in_bins(measured, {h: partial(measured.ratio, measured.at(h), measured.at(r)) for h, r in pairs})
    return cases, _counted(cases, "pairs of bin and block", "ratio of medians")


def _shrinks(measured: Measured) -> tuple[list[Case], str]:
    """The advantage over the raw input shrinks as FOM grows.

    over latents, FOM and the ratio to raw input have a positive rank correlation, for both streams of every block
    """
    cases = []
    blocks, weights = measured.draw(np.arange(measured.fom.size))
    for name in measured.streams:
        ratio = measured.at(name) / measured.raw
        ranks = np.stack([intervals.rank_correlation(measured.fom, values, weights) for values in ratio])
        cases.append(Case(label(name), intervals.bootstrap(ranks, blocks, null=0).within(-1, 1), low=0))
    largest = max(case.value.p or 0 for case in cases)
    return cases, f"{_counted(cases, 'layers', 'rank correlation')}, p up to {largest:.2g}"


def power_laws(measured: Measured, name: str, least: float = 0.0) -> dict[str, Estimate]:
    """Return slopes and R² of log error on log FOM, in bins of the latents above `least`, and on log depth.

    R² of the networks are averaged, and compared, as Fisher's z.
    """
    mse = measured.at(name)
    blocks, weights = measured.draw(np.arange(measured.fom.size))
    members, middle = measured.bins(least)
    medians = [intervals.quantiles(mse[:, at], weights[:, at]) for at in members] or [np.ones((len(mse), 1))]
    slope, intercept, r2 = intervals.log_lines(middle if members else np.ones(1), np.stack(medians, 1))
    weighted = weights * measured.n
    inside = np.zeros((measured.depths.size, measured.fom.size))
    inside[measured.depth_index, np.arange(measured.fom.size)] = 1
    with np.errstate(invalid="ignore"):
        by_depth = np.stack([inside @ (weighted * errors).T / (inside @ weighted.T) for errors in mse])
    depth_slope, _, depth_r2 = intervals.log_lines(measured.depths.astype(np.float64), by_depth)
    z, depth_z = _fisher(r2), _fisher(depth_r2)
    statistics = {
        "slope": slope, "intercept": intercept, "r2": z, "depth_slope": depth_slope, "depth_r2": depth_z,
        "z_difference": z - depth_z,
    }  # fmt: skip
    fitted = blocks[np.concatenate(members)] if members else blocks[:0]
    fits = {
        key: intervals.bootstrap(values, blocks if key.startswith("depth") else fitted)
        for key, values in statistics.items()
    }
    return fits | {key: fits[key].through(lambda z: np.tanh(max(0.0, z)) ** 2) for key in ("r2", "depth_r2")}


def _fisher(r2: Floats) -> Floats:
    """Return Fisher's z of correlations, given their squares: its error is the same for weak and strong ones."""
    return np.asarray(np.arctanh(np.sqrt(np.clip(r2, 0, 1 - 1e-12))), np.float64)


def _power(measured: Measured, least: float) -> tuple[list[Case], str]:
    """MSE follows a power law in FOM, and none in depth: {which}.

    for the last block, log median MSE on log FOM has a slope below 0 and R² above {least_r2}, and a larger R² than log
    MSE on log depth
    """
    cases, notes = [], []
    for part in ("residual", "hidden"):
        name = measured.blocks(part)[-1]
        fit = power_laws(measured, name, least)
        if not np.isfinite(fit["slope"].value):
            return [], "too few latents"
        cases += [
            Case(f"{label(name)}, slope in FOM", fit["slope"], high=0),
            Case(f"{label(name)}, R² in FOM", fit["r2"], low=LEAST_R2),
            Case(f"{label(name)}, R² in FOM against R² in depth, difference of Fisher's z", fit["z_difference"], low=0),
        ]
        notes.append(
            f"{label(name)}: FOM slope {fit['slope']}, R² {fit['r2']}; depth slope {fit['depth_slope']}, "
            f"R² {fit['depth_r2']}"
        )
    return cases, ". ".join(notes)


def _between(measured: Measured, later: str, earlier: str) -> Estimate:
    blocks, weights = measured.draw(np.arange(measured.fom.size))
    logs = intervals.quantiles(np.log(measured.at(later) / measured.at(earlier)), weights)
    return intervals.bootstrap(logs, blocks).through(np.exp)


def _no_trend(measured: Measured, first: int = 0) -> tuple[list[Case], str]:
    """There is no trend across layers.

    the median over latents of MSE at a later block / MSE at block 0 is within {change} of 1, in both streams
    """
    cases = []
    for part in ("residual", "hidden"):
        names = measured.blocks(part)[first:]
        for name in names[1:]:
            value = _between(measured, name, names[0])
            cases.append(Case(f"{label(name)} / block {first}", value, 1 / LAYER_CHANGE, LAYER_CHANGE))
    return cases, _listed(cases)


def _no_trend_after_first(measured: Measured) -> tuple[list[Case], str]:
    """There is no trend across layers, block 0 apart.

    the median over latents of MSE at a later block / MSE at block 1 is within {change} of 1, in both streams; the paper
    makes an exception for block 0 of multi-cluster data
    """
    return _no_trend(measured, 1)


def _first_block(measured: Measured) -> tuple[list[Case], str]:
    """Block 0 has a slightly lower MSE in multi-cluster data.

    the median over latents of MSE at block 0 / MSE at block 1 is below 1, in both streams
    """
    cases = []
    for part in ("residual", "hidden"):
        names = measured.blocks(part)
        cases.append(Case(f"{label(names[0])} / block 1", _between(measured, names[0], names[1]), high=1))
    return cases, _listed(cases)


def _listed(cases: Sequence[Case]) -> str:
    return "; ".join(f"{case.what} {case.value}" for case in cases)
