"""From cells to the table: means over seeds, and the gaps between networks, concept by concept, with intervals.

A gap compares each concept with itself: its best F1 in one network minus that in another with the same initial weights
and the same order of rows. Intervals are over seeds and blocks of kin (`percolab.intervals`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.benchmark.bins import BINNED, EXCESS, Bin, bins, columns, number
from percolab.benchmark.keeping import Kept, read_kept
from percolab.benchmark.networks import module_names
from percolab.benchmark.tasks import RAW, TRAINED, TRUTH, UNTRAINED
from percolab.features.specs import ORACLE, READING, STANDARD
from percolab.intervals import Estimate, jackknife, kin, mean_interval, share_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Part = Callable[[dict[str, Any], int], dict[str, Any]]
"""What is read of a cell for a hierarchy."""

METRICS = (
    "recovery", "recovered", "chance", "purity", "pure", "splitting", "split", "f1_union", "absorption_edge",
    "absorption", "absorption_null", EXCESS, "absorption_carried", "cosine", "explained_variance",
    "l0", "dead", "dense",
)  # fmt: skip
"""Of the summary of a score, on the hierarchy that the network was trained on."""
LEAST = 1e-12
PLAIN = "kmeans"
"""What sparse autoencoders have to beat."""


@dataclass(frozen=True)
class Line:
    """A row of the table: a method on a layer of the networks of a task."""

    task: str
    layer: str
    method: str
    values: dict[str, Estimate]
    """metrics by name, of trained networks; `raw` and `untrained` are recoveries of the controls, their other metrics
    are `splitting_raw` and so on; the gaps are those of `_gaps`"""
    by_size: dict[str, list[Bin]]
    """recovery and splitting in bins of size: of the trained networks, the untrained ones and the raw input"""
    by_depth: dict[str, list[Bin]]
    """absorption in bins of depth, likewise"""

    def knows(self, name: str) -> bool:
        """Return whether there is a number of this name."""
        return name in self.values and bool(np.isfinite(self.values[name].value))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = {name: found.to_dict() for name, found in self.values.items()}
        return {
            "task": self.task,
            "layer": self.layer,
            "method": self.method,
            "values": values,
            "by_size": {name: columns(found) for name, found in self.by_size.items()},
            "by_depth": {name: columns(found) for name, found in self.by_depth.items()},
        }


def lines(output: Path) -> list[Line]:
    """Return the table of the cells that are there: tasks in their order, methods in theirs."""
    return lines_of(read_kept(output))


def lines_of(kept: Kept) -> list[Line]:
    """Return the table of cells that belong together."""
    found = []
    cells = [cell for cell in kept.cells if "values" in cell]
    for task, truth in kept.truths.items():
        own = [cell for cell in cells if cell["made_from"]["task"] == task]
        table = _Cells(own, truth["factors"], module_names(truth["task"]["training"]["n_blocks"]))
        found += [_line(table, task, layer, method) for layer in table.layers for method in table.methods(layer)]
    return found


def makings(kept: Kept) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the tasks whose truths are there, and what made the cells: every version, machine and device once."""
    tasks = [truth["task"] for truth in kept.truths.values()]
    made: list[dict[str, Any]] = []
    for cell in kept.cells:
        facts = {name: value for name, value in cell["provenance"].items() if name != "created"}
        if facts not in made:
            made.append(facts)
    return tasks, made


def failures(kept: Kept) -> list[str]:
    """Return the cells that failed, each with its reason, in a line."""
    return [_words(cell["made_from"]) + f": {cell['failed']}" for cell in kept.cells if "failed" in cell]


def _words(made_from: dict[str, Any]) -> str:
    return " ".join(str(made_from[name]) for name in ("task", "network", "layer", "name", "seed"))


class _Cells:
    """The cells of one task, by network, layer, method and seed."""

    def __init__(
        self, cells: Sequence[dict[str, Any]], truths: Sequence[dict[str, Any]], modules: Sequence[str]
    ) -> None:
        self.truths = truths
        self._values: dict[tuple[str, str, str, int], dict[str, Any]] = {}
        for cell in cells:
            m = cell["made_from"]
            self._values[m["network"], m["layer"], m["name"], m["seed"]] = cell["values"]
        self.oracles = {m["name"] for cell in cells if (m := cell["made_from"])["method"] == ORACLE}
        at = {layer for _, layer, _, _ in self._values}
        self.inside = [layer for layer in modules if layer in at]
        """layers of networks, in their order"""
        self.networks = [f"{TRAINED}-{k}" for k in range(len(truths))] if len(truths) > 1 else [TRAINED]

    @property
    def layers(self) -> list[str]:
        """Layers of networks, then the raw input for methods on it alone; the truth where there is nothing else."""
        found = [*self.inside, *([RAW] if self._at(RAW) - self._at(*self.inside) else [])]
        return found or ([TRUTH] if self.oracles else [])

    def methods(self, layer: str) -> list[str]:
        """Return the methods on a layer in the order of the standard ones, with the oracles.

        The raw input has those that are on no layer of a network; the oracles are beside them if there is no other.
        """
        found = self._at(layer)
        if layer == RAW:
            found -= self._at(*self.inside)
        if layer != RAW or not self.inside:
            found |= self._at(TRUTH)
        order = {name: i for i, name in enumerate(STANDARD)}
        return sorted(found, key=lambda name: (order.get(name, len(order)), name))

    def _at(self, *layers: str) -> set[str]:
        return {name for _, layer, name, _ in self._values if layer in layers}

    def seeds(self, method: str) -> list[int]:
        """Return the seeds of a method."""
        return sorted({seed for _, _, name, seed in self._values if name == method})

    def get(self, network: str | None, layer: str, method: str, seed: int) -> dict[str, Any] | None:
        """Return the values of a cell, None if it is not there; the raw input and the truth are their own layers."""
        if network is None:
            return None
        return self._values.get((network, network if network in (RAW, TRUTH) else layer, method, seed))

    def trained_on(self, layer: str, method: str) -> set[int]:
        """Return the hierarchies of which there are trained networks."""
        seeds = self.seeds(method)
        return {k for k, name in enumerate(self.networks) if any(self.get(name, layer, method, seed) for seed in seeds)}

    def on_hierarchies(
        self, networks: Sequence[str | None], layer: str, method: str
    ) -> list[dict[int, dict[str, Any]]]:
        """Return, by seed, the values of the k-th network by its hierarchy k.

        Networks that no seed has are left out, and then seeds that lack one of the others.
        """
        found = []
        for seed in self.seeds(method):
            cells = ((k, self.get(network, layer, method, seed)) for k, network in enumerate(networks))
            found.append({k: cell for k, cell in cells if cell})
        known = {k for row in found for k in row}
        return [row for row in found if row and row.keys() == known]


def _line(cells: _Cells, task: str, layer: str, method: str) -> Line:
    count = len(cells.networks)
    home = [TRUTH] * count if method in cells.oracles else cells.networks
    trained = cells.trained_on(layer, method) or range(count)
    places: dict[str, Sequence[str | None]] = {
        TRAINED: home, **{name: [name if k in trained else None for k in range(count)] for name in (UNTRAINED, RAW)}
    }  # fmt: skip
    values: dict[str, Estimate] = {}
    if method == READING:
        values |= _gaps(cells, layer, READING, "separation", "pairs")
        return Line(task, layer, method, values, {}, {})
    for metric in METRICS:
        values[metric] = _mean(cells, home, layer, method, metric)
        for name in (UNTRAINED, RAW):
            control = name if metric == "recovery" else f"{metric}_{name}"
            values[control] = _mean(cells, places[name], layer, method, metric)
    values["loss_recovered"] = _mean(cells, home, layer, method, "share", _loss)
    values |= _gaps(cells, layer, method, "f1", "concepts")
    if method != PLAIN:
        values |= _over_plain(cells, layer, method)
    binned = [
        {name: _binned(cells, where, layer, method, column) for name, where in places.items()} for column in BINNED
    ]
    return Line(task, layer, method, values, *binned)


def _summary(cell: dict[str, Any], factor: int) -> dict[str, Any]:
    """Return the summary of a score, and what there is of absorption beyond independent misses."""
    found = dict(cell["factors"][str(factor)]["summary"])
    excess = number(found.get("absorption")) - number(found.get("absorption_null"))
    return {**found, EXCESS: excess}


def _loss(cell: dict[str, Any], factor: int) -> dict[str, Any]:
    return dict(cell.get("loss_recovered") or {})


def _mean(
    cells: _Cells, networks: Sequence[str | None], layer: str, method: str, metric: str, part: Part = _summary
) -> Estimate:
    """Return the mean over hierarchies and seeds, with its interval over seeds."""
    rows = cells.on_hierarchies(networks, layer, method)
    means = [[np.mean([number(part(cell, k).get(metric)) for k, cell in row.items()])] for row in rows]
    return mean_interval(np.array(means).reshape(len(rows), 1))


# ---------------------------------------------------------------------- gaps


@dataclass(frozen=True, eq=False)
class _Pairs:
    """What each unit has in the networks trained on its hierarchy, and in those that it is compared with."""

    own: Floats
    """(seeds, units), the hierarchies one after another; NaN for what is not there"""
    against: dict[str, Floats]
    kin: Ints
    """(units,) blocks of neighbours"""


def _pairs(cells: _Cells, layer: str, method: str, column: str, units: str) -> _Pairs:
    own: list[Floats] = []
    against: dict[str, list[Floats]] = {"trained_untrained": [], "trained_raw": [], "relevant_irrelevant": []}
    places: list[Ints] = []
    for k, (network, truth) in enumerate(zip(cells.networks, cells.truths, strict=True)):
        start = np.asarray(truth[units]["start"])
        if units == "concepts":
            start = start[np.asarray(truth[units]["counted"], np.bool_)]
        others = [name for name in cells.networks if name != network]
        found = {
            name: _by_seed(cells, name, layer, method, column, k, start.size)
            for name in (network, UNTRAINED, RAW, *others)
        }
        own.append(found[network])
        against["trained_untrained"].append(found[UNTRAINED])
        against["trained_raw"].append(found[RAW])
        against["relevant_irrelevant"].append(_mean_known([found[name] for name in others], found[network].shape))
        places.append(start)
    joined = {name: np.concatenate(values, axis=1) for name, values in against.items()}
    hierarchy = np.repeat(np.arange(len(places)), [len(start) for start in places])
    return _Pairs(np.concatenate(own, axis=1), joined, kin(np.concatenate(places), hierarchy))


def _gaps(cells: _Cells, layer: str, method: str, column: str, units: str) -> dict[str, Estimate]:
    """Return the gaps of a method by name, each also as a share of units and as a log ratio.

    ``trained_untrained``: trained minus untrained, for the hierarchy that was trained on. ``trained_raw``: minus the
    raw input. ``relevant_irrelevant``: minus the mean of the networks trained on the other hierarchies. ``…_share``:
    the share of units on whose side it is, ties counted half. ``…_ratio``: the log ratio of the two means, which
    compares methods of unequal recovery. For the linear reading all are differences of logarithms of separations.
    """
    pairs = _pairs(cells, layer, method, column, units)
    if method == READING:
        own = np.log(np.maximum(pairs.own, LEAST))
        against = {name: np.log(np.maximum(values, LEAST)) for name, values in pairs.against.items()}
        pairs = _Pairs(own, against, pairs.kin)
    found: dict[str, Estimate] = {}
    for name, values in pairs.against.items():
        difference = pairs.own - values
        found[name] = mean_interval(difference, pairs.kin)
        won = np.where(np.isnan(difference), np.nan, (np.sign(difference) + 1) / 2)
        found[f"{name}_share"] = share_interval(won, pairs.kin)
        if method != READING:
            statistic = partial(_log_ratio, pairs.own, values)
            found[f"{name}_ratio"] = jackknife(statistic, len(difference), pairs.kin)
    return found


def _over_plain(cells: _Cells, layer: str, method: str) -> dict[str, Estimate]:
    """Return how much larger the gaps of a method are than those of k-means: same seeds, same concepts."""
    if cells.seeds(method) != cells.seeds(PLAIN):
        return {}
    mine, plain = (_pairs(cells, layer, name, "f1", "concepts") for name in (method, PLAIN))
    found: dict[str, Estimate] = {}
    for name in ("trained_untrained", "relevant_irrelevant"):
        tables = mine.own, mine.against[name], plain.own, plain.against[name]
        known = np.where(np.isfinite(sum(tables)), 1.0, np.nan)
        a, b, c, d = (table * known for table in tables)
        found[f"{name}_over_{PLAIN}"] = mean_interval((a - b) - (c - d), mine.kin)
        found[f"{name}_ratio_over_{PLAIN}"] = jackknife(partial(_log_ratios, a, b, c, d), len(mine.own), mine.kin)
    return found


def _log_ratio(own: Floats, against: Floats, seeds: Ints, units: Ints) -> float:
    """Return the log ratio of the means over what both have; NaN where one of the means is 0."""
    a, b = own[seeds][:, units], against[seeds][:, units]
    known = np.isfinite(a) & np.isfinite(b)
    top, bottom = float(a[known].sum()), float(b[known].sum())
    return float(np.log(top / bottom)) if top > 0 and bottom > 0 else float("nan")


def _log_ratios(a: Floats, b: Floats, c: Floats, d: Floats, seeds: Ints, units: Ints) -> float:
    """Return the log ratio of a over b less that of c over d."""
    return _log_ratio(a, b, seeds, units) - _log_ratio(c, d, seeds, units)


def _mean_known(tables: Sequence[Floats], shape: tuple[int, ...]) -> Floats:
    """Return the mean of what is not NaN, cell by cell; NaN where nothing is."""
    stacked = np.array(tables).reshape(-1, *shape)
    known = np.isfinite(stacked)
    total = np.where(known, stacked, 0).sum(0)
    return np.where(known.any(0), total / np.maximum(known.sum(0), 1), np.nan)


def _by_seed(cells: _Cells, network: str, layer: str, method: str, column: str, factor: int, size: int) -> Floats:
    """Return (seeds, units) of one network against one hierarchy; NaN for seeds that are not there."""
    seeds = cells.seeds(method)
    table = np.full((len(seeds), size), np.nan)
    for i, seed in enumerate(seeds):
        cell = cells.get(network, layer, method, seed)
        if cell is not None:
            table[i] = [number(value) for value in cell["factors"][str(factor)][column]]
    return table


def _binned(cells: _Cells, networks: Sequence[str | None], layer: str, method: str, column: str) -> list[Bin]:
    """Return the bins of a score by "size" or "depth", over seeds and hierarchies."""
    rows = cells.on_hierarchies(networks, layer, method)
    kept = [[cell["factors"][str(k)][f"by_{column}"] for k, cell in row.items()] for row in rows]
    return bins(kept, BINNED[column])
