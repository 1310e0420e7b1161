"""From measures to endpoints: the setting of every method, contrasts, tests, health, power, verdicts.

Endpoints are named in advance. *method*: best F1 with thresholds and setting chosen on validation rows, in networks
trained on the concepts' hierarchy, less that of k-means in the same networks. *question*: the same F1, less that in the
networks trained on another hierarchy (own - other); with a single hierarchy, less that in untrained networks. Both are
means over concepts, then networks; a draw of the data is one number. *cause*, for documents: the share of the exact
difference between two predictions that a patch along the features of the method bridges, at the middle setting, less
that of k-means in the same networks. Per endpoint each confirmatory method is tested by a two-sided t over draws, with
Holm's correction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from percolab.benchmark.judgement import AT, AT_MIDDLE, DEAD_AT_MIDDLE, PLANTED, SUBTREES
from percolab.benchmark.tasks import CONFIRMATORY, MATCHED, MOST_DEAD, MOST_DROPPED, PLAIN
from percolab.intervals import over_seeds, p_text
from percolab.study.contrasts import DELTA, OWN_OTHER, TRAINED_UNTRAINED, UNDECIDED, Contrast, contrasts
from percolab.study.estimates import ENOUGH, Row, find, row, select
from percolab.study.measured import OTHER, TRAINED, UNTRAINED, Measured

METHOD, QUESTION, CAUSE = "method", "question", "cause"
_OVER_PLAIN = (f"{TRAINED} - {PLAIN}",)
#: The contrasts of each endpoint; the first one that the data allow is used.
ENDPOINTS = {METHOD: _OVER_PLAIN, QUESTION: (OWN_OTHER, TRAINED_UNTRAINED), CAUSE: _OVER_PLAIN}
AT_MATCHED = f"f1 at L0 {MATCHED:g}"
#: The measures that each endpoint compares; the first one is tested.
MEASURES = {METHOD: ("f1", AT_MATCHED, "f1_chosen"), QUESTION: ("f1", AT_MATCHED, "f1_chosen"), CAUSE: ("bridged",)}
#: Measures that have contrasts.
COMPARED = ("f1", AT_MATCHED, "f1_zero", "f1_chosen", "one_to_one", "auc", "probe_activations")
RANDOM = "random-dictionary"  #: A method that learns nothing.
OVER_RANDOM = "minus random directions"  #: Like the endpoint *method*, with `RANDOM` in place of k-means; exploratory.
DRAWN = ("f1", "l0", "splitting", "absorption_edge", "absorption_linear", "dead")  #: Measures that have curves.
ONE_CENTRE = f"{PLAIN}-1"
POWER, LEVEL, TRIALS = 0.8, 0.05, 2000


# ---------------------------------------------------------------------- settings


def at_chosen(cells: Sequence[Measured]) -> Iterator[Measured]:
    """Return every method's measures at the setting that validation rows choose, network by network; and at L0 32."""
    groups: dict[Any, dict[str, dict[str, Measured]]] = {}
    for cell in cells:
        family, _, setting = cell.reader.partition(AT)
        key = cell.role, cell.trained_on, cell.seed, cell.layer, cell.factor, family
        groups.setdefault(key, {}).setdefault(setting, {})[cell.measure] = cell
    for (*_, family), settings in groups.items():
        best = max(settings, key=lambda name: _number(settings[name], "validation"))
        at_middle = {n: cells[n] for cells in settings.values() for n in (SUBTREES, *AT_MIDDLE) if n in cells}
        yield from (replace(cell, reader=family) for cell in {**at_middle, **settings[best]}.values())
        if family == PLAIN and "k=1" in settings:
            yield from (replace(cell, reader=ONE_CENTRE) for cell in settings["k=1"].values())
        if len(settings) > 1:
            yield replace(interpolate(list(settings.values())), reader=family)


def _number(cells: dict[str, Measured], name: str) -> float:
    return float(cells[name].values[0]) if name in cells else float("nan")


def interpolate(settings: Sequence[dict[str, Measured]]) -> Measured:
    """Return F1 at L0 32, interpolated linearly in log L0, concept by concept; NaN outside the measured range.

    L0 counts firings under the same thresholds as F1. A NaN keeps the place of a network in its list, so that other
    networks are compared with themselves.
    """
    order = sorted((s for s in settings if _number(s, "l0") > 0), key=lambda s: _number(s, "l0"))
    if len(order) < 2 or not _number(order[0], "l0") <= MATCHED <= _number(order[-1], "l0"):
        return replace(settings[0]["f1"], measure=AT_MATCHED, values=np.full(settings[0]["f1"].values.size, np.nan))
    above = next(i for i in range(1, len(order)) if _number(order[i], "l0") >= MATCHED)
    low, high = order[above - 1], order[above]
    ends = np.log([_number(low, "l0"), _number(high, "l0")])
    weight = (np.log(MATCHED) - ends[0]) / (ends[1] - ends[0]) if ends[1] > ends[0] else 1.0
    values = (1 - weight) * low["f1"].values + weight * high["f1"].values
    return replace(low["f1"], measure=AT_MATCHED, values=values)


# ---------------------------------------------------------------------- estimates of one draw


def estimates(cells: Sequence[Measured], *, tuned: bool = False) -> Iterator[Row]:
    """Return contrasts, endpoints with and without unhealthy cells, levels and curves of one draw.

    If the network of the second lexicon was `tuned` from that of the first, it knows both lexicons. Only concepts of
    the second lexicon then have a network that does not know them: the question is asked of them alone.
    """
    if tuned:
        cells = [cell for cell in cells if cell.factor > 0 or cell.role_for_units != OTHER]
    chosen = list(at_chosen(cells))
    compared = [cell for cell in chosen if cell.measure in COMPARED]
    for c in _known(compared):
        yield row(c.estimate, part="contrast", contrast=c.contrast, method=c.reader, measure=c.measure)
    for method in dict.fromkeys(cell.reader for cell in chosen):
        yield from _endpoints(chosen, method)
    yield from _levels(chosen)
    yield from _curves(cells)


def _known(cells: Sequence[Measured], names: Sequence[str] = ()) -> list[Contrast]:
    """Return the contrasts of these names, or all, that have a value: none is above or below what was measured."""
    return [c for c in contrasts(cells) if np.isfinite(c.estimate.value) and (c.contrast in names or not names)]


def pair_cells(
    chosen: Sequence[Measured], endpoint: str, method: str, measure: str, against: str = PLAIN
) -> list[Measured]:
    """Return the cells of an endpoint: the method's cells, and the cells that they are compared with.

    Networks that have the same hierarchy and the same place in their lists are compared. They are all left out if one
    has no cell.
    """
    same = [cell for cell in chosen if cell.measure == measure]
    control, reader = TRAINED, against
    if endpoint == QUESTION:
        control, reader = OTHER if any(cell.factor for cell in same) else UNTRAINED, method
    sides = (TRAINED, method), (control, reader)
    mine, theirs = ([cell for cell in same if (cell.role_for_units, cell.reader) == side] for side in sides)
    cells = mine + (theirs if reader == method else [replace(cell, reader=method, role=PLAIN) for cell in theirs])
    held = Counter((cell.factor, cell.seed) for cell in cells)
    return [cell for cell in cells if held[cell.factor, cell.seed] == max(held.values())]


def _endpoints(chosen: Sequence[Measured], method: str) -> Iterator[Row]:
    if method in CONFIRMATORY:
        over_random = _known(pair_cells(chosen, METHOD, method, "f1", RANDOM), _OVER_PLAIN)
        names = {"endpoint": OVER_RANDOM, "method": method, "measure": "f1"}
        yield from (row(c.estimate, part="endpoint", **names) for c in over_random)
    for endpoint, contrast in ENDPOINTS.items():
        if endpoint != QUESTION and method == PLAIN:
            continue
        for measure in MEASURES[endpoint]:
            pairs = pair_cells(chosen, endpoint, method, measure)
            names = {"endpoint": endpoint, "method": method, "measure": measure}
            effects = _known(pairs, contrast)
            yield from (row(c.estimate, part="endpoint", **names) for c in effects)
            if measure != MEASURES[endpoint][0] or not effects:
                continue
            dead = DEAD_AT_MIDDLE if endpoint == CAUSE else "dead"  # where the endpoint is measured
            kept, dropped = healthy(pairs, pair_cells(chosen, endpoint, method, dead))
            yield row(over_seeds([dropped]), part="dropped", **names)
            yield from (row(c.estimate, part="healthy", **names) for c in _known(kept, contrast))
            for planted, share in PLANTED.items():
                made = pairs if endpoint == CAUSE else pair_cells(chosen, endpoint, method, planted)
                rises = [_mean(cell) for cell in made if cell.role_for_units == TRAINED]
                if endpoint == CAUSE:
                    rises = [share * (1 - bridged) for bridged in rises]
                if rises:
                    yield row(over_seeds(rises), part="planted", share=share, **names)


def healthy(pairs: Sequence[Measured], dead: Sequence[Measured]) -> tuple[list[Measured], float]:
    """Return the cells without mostly dead cells and their partners, and the share of pairs dropped.

    Cells of a hierarchy are partners if they have the same place in their lists.
    """
    unhealthy = {(cell.factor, cell.seed) for cell in dead if cell.values[0] > MOST_DEAD}
    places = {(cell.factor, cell.seed) for cell in pairs}
    kept = [cell for cell in pairs if (cell.factor, cell.seed) not in unhealthy]
    return kept, len(places & unhealthy) / max(1, len(places))


def _levels(chosen: Sequence[Measured]) -> list[Row]:
    """Return the mean of every measure by role and method, over concepts, then networks."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for cell in chosen:
        key = cell.role_for_units, cell.reader
        groups.setdefault((*key, cell.measure), []).append(_mean(cell))
        if cell.measure == "absorption_edge":
            eligible = float(np.isfinite(cell.values).sum())
            groups.setdefault((*key, "absorption_eligible"), []).append(eligible)
    return [
        row(over_seeds(finite), part="level", role=role, method=method, measure=measure)
        for (role, method, measure), values in groups.items()
        if (finite := [value for value in values if np.isfinite(value)])
    ]


def _mean(cell: Measured) -> float:
    """Return the mean of the finite values of a cell."""
    known = cell.values[np.isfinite(cell.values)]
    return float(known.mean()) if known.size else float("nan")


def _curves(cells: Sequence[Measured]) -> Iterator[Row]:
    """Yield measures at every setting, with the setting's L0."""
    groups: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for cell in cells:
        if cell.measure in DRAWN:
            family, _, setting = cell.reader.partition(AT)
            measures = groups.setdefault((cell.role_for_units, family, setting), {})
            measures.setdefault(cell.measure, []).append(_mean(cell))
    for (role, method, setting), measures in groups.items():
        names = {"role": role, "method": method, "setting": setting, "at": float(np.mean(measures["l0"]))}
        for measure, values in measures.items():
            if measure != "l0" and np.isfinite(values).any():
                known = [value for value in values if np.isfinite(value)]
                yield row(over_seeds(known), part="curve", measure=measure, **names)


# ---------------------------------------------------------------------- tests over draws


@dataclass(frozen=True)
class Tested:
    """The verdict of an endpoint on a method, and the numbers behind it."""

    endpoint: str
    method: str
    estimate: Row
    p: float  #: two-sided, of Student's t over draws; NaN with fewer than two draws
    holm: float  #: corrected for the confirmatory methods of this endpoint
    healthy: Row | None  #: the same estimate without unhealthy cells
    dropped: float  #: share of pairs with an unhealthy cell
    smallest: float  #: smallest effect found with 80% power; NaN if even the largest planted one is not
    verdict: str

    @property
    def words(self) -> str:
        """The text beside the number."""
        power = "no effect that was planted is found with 80% power"
        if self.smallest == self.smallest:
            power = f"smallest effect found with 80% power {self.smallest:.3f}"
        if len(self.estimate.by_draw) < ENOUGH:
            power = "power needs three draws"
        second = "no healthy pairs" if self.healthy is None else f"healthy pairs {self.healthy.estimate.text()}"
        test = f"Holm p {p_text(self.holm)}" if self.holm == self.holm else "no test with fewer than three draws"
        return f"{test}; {second}, {self.dropped:.0%} of pairs dropped; {power}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        second = None if self.healthy is None else self.healthy.to_dict()
        return {
            "endpoint": self.endpoint, "method": self.method, **self.estimate.estimate.to_dict(),
            "by_draw": list(self.estimate.by_draw or (self.estimate.estimate.value,)), "p": self.p, "holm": self.holm,
            "healthy": second, "dropped": self.dropped, "smallest_effect": self.smallest, "verdict": self.verdict,
        }  # fmt: skip


def tested(rows: Sequence[Row]) -> Iterator[Tested]:
    """Return the endpoints of the confirmatory methods, from the rows of all draws."""
    for endpoint in ENDPOINTS:
        methods = [m for m in CONFIRMATORY if endpoint == QUESTION or m != PLAIN]  # those without results count too
        main = {m: r for m in methods for r in select(rows, part="endpoint", **_names(endpoint, m))}
        p = {m: t_test(main[m].by_draw) if m in main else np.nan for m in methods}
        corrected = _corrected(p)
        kept = {m: find(rows, part="healthy", **_names(endpoint, m)) for m in methods}
        again = _corrected({m: np.nan if effect is None else t_test(effect.by_draw) for m, effect in kept.items()})
        drawn = {m: main[m].by_draw if m in main else () for m in methods}
        spread = {m: float(np.std(values, ddof=1)) if len(values) > 1 else np.nan for m, values in drawn.items()}
        for method, effect in main.items():
            second = kept[method]
            dropped = select(rows, part="dropped", **_names(endpoint, method))[0].estimate.value
            planted = [r.estimate.value for r in select(rows, part="planted", **_names(endpoint, method))]
            draws = 0 if too_many(dropped) else len(effect.by_draw)  # with too many dropped, nothing is decided
            smallest = smallest_effect(planted, method, spread, draws)
            said = ruling(effect, corrected[method], second, again[method] if dropped else corrected[method], dropped)
            yield Tested(endpoint, method, effect, p[method], corrected[method], second, dropped, smallest, said)


def _names(endpoint: str, method: str) -> dict[str, str]:
    return {"endpoint": endpoint, "method": method, "measure": MEASURES[endpoint][0]}


def t_test(values: Sequence[float]) -> float:
    """Return the two-sided p value of a mean of 0, by Student's t over draws; NaN with fewer than three."""
    from scipy.stats import ttest_1samp

    if len(values) < ENOUGH or not np.isfinite(values).all():
        return float("nan")
    if np.ptp(values) == 0:
        return 1.0 if values[0] == 0 else 0.0
    return float(ttest_1samp(values, 0.0).pvalue)


def _corrected(p: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(p, holm(np.array(list(p.values()))), strict=True))


def holm(p: Any) -> Any:
    """Return p values corrected by Holm's method along the last axis; NaN stays NaN and counts as a test."""
    p = np.asarray(p, np.float64)
    order = np.argsort(p, axis=-1)  # NaN last
    times = p.shape[-1] - np.arange(p.shape[-1])
    stepped = np.maximum.accumulate(np.take_along_axis(p, order, -1) * times, axis=-1)
    corrected = np.empty_like(p)
    np.put_along_axis(corrected, order, np.minimum(stepped, 1.0), -1)
    return corrected


def ruling(main: Row, p: float, second: Row | None, p_second: float, dropped: float) -> str:
    """Return the verdict of an endpoint: above 0, below 0, not above 0, or undecided; both p values are corrected."""
    said = _said(main, p)
    if second is None or too_many(dropped):
        return UNDECIDED
    return said if _said(second, p_second) == said else UNDECIDED


def _said(main: Row, p: float) -> str:
    if p < LEVEL:
        return "above 0" if main.estimate.value > 0 else "below 0"
    return "not above 0" if np.isfinite(p) and main.estimate.high < DELTA else UNDECIDED


def too_many(dropped: float) -> bool:
    """Return whether more pairs were dropped than a verdict allows; shares are means of draws, and may be rounded."""
    return dropped > MOST_DROPPED + 1e-9


def smallest_effect(planted: Sequence[float], method: str, spread: dict[str, float], draws: int) -> float:
    """Return the smallest planted effect that the whole rule finds in 80% of simulated benchmarks.

    Fresh draws vary as much as the measured ones. One method has the planted effect, the others have none; all are
    tested and corrected together. A method with a single draw is never found, but counts in the correction.
    """
    from scipy.stats import t

    names = list(spread)
    if draws < ENOUGH or not np.isfinite(spread[method]):
        return float("nan")
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((TRIALS, len(names), draws)) * np.maximum(list(spread.values()), 1e-6)[:, None]
    target = names.index(method)
    for effect in planted:
        values = noise.copy()
        values[:, target] += effect
        error = values.std(-1, ddof=1) / np.sqrt(draws)
        p = holm(2 * t.sf(np.abs(values.mean(-1) / error), draws - 1))[:, target]
        if np.mean((p < LEVEL) & (values[:, target].mean(-1) > 0)) >= POWER:
            return float(effect)
    return float("nan")
