"""One method on one representation: fitted on some rows, thresholds chosen on other rows, scored on the rest.

Every measure is one number per concept (`UNITS`), or a single number (`SCALARS`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from percolab.benchmark.networks_and_controls import RENORMED, TRUTH, Representation, Subject, model_of, read
from percolab.benchmark.tasks import KNOBS, MIDDLE, SPARSITIES, Options
from percolab.features import fairness
from percolab.features.concepts import Labels, find_truth
from percolab.features.dictionaries import Pretrained, Wrapped
from percolab.features.directions import concept_directions
from percolab.features.register import Entry, as_taken, decoder_of, find_method, fitted, make, take_options
from percolab.features.scoring import score
from percolab.features.thresholds import GOOD, SUMMARY_RATIO
from percolab.ground.arrays import Floats, Ints, as_array
from percolab.intervals import places
from percolab.nn.networks.activations import LossRecovered, loss_recovered, replaced
from percolab.nn.networks.excess import token_losses
from percolab.study.causes import bridged
from percolab.study.material import Networks
from percolab.study.measured import RAW, TRAINED, Columns, Measured, Units
from percolab.study.subject import DocumentView, PointView, View
from percolab.worlds.splits import split_rows

#: Measures of every concept: `f1` with each feature's threshold chosen on validation rows, `f1_zero` with threshold 0,
#: `f1_chosen` with threshold and feature chosen on validation rows.
UNITS = (
    "f1", "f1_zero", "f1_chosen", "one_to_one", "auc", "precision", "recall", "chance", "splitting", "f1_union",
    "absorption_edge", "absorption_linear", "absorption_over_linear", "absorption", "absorption_null",
    "absorption_carried", "probe_1", "probe_5",
    "probe_activations", "size",
)  # fmt: skip
#: How much recovery rises if this share of the errors of every concept's feature is corrected, by the measure's name.
PLANTED = {f"planted_{share:g}": share for share in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)}
#: Measures of a method as a whole; `validation` is recovery on validation rows, which chooses the setting.
SCALARS = (
    "validation", "l0", "l0_zero", "dead", "explained_variance", "loss_recovered", "shrinkage", "mcc", "uniqueness",
    "latent_precision", "latent_recall", "stability", "stability_rows", "stability_purity", "bridged",
    "bridged_random", "dead_at_middle", "tree_edges", "tree_ancestors", "tree_recall", "features", "seconds", *PLANTED,
)  # fmt: skip
#: Measured only at the middle setting.
DEAD_AT_MIDDLE = "dead_at_middle"
AT_MIDDLE = ("stability", "stability_rows", "stability_purity", "bridged", "bridged_random", DEAD_AT_MIDDLE)
SUBTREES = "f1_subtrees"  #: F1 on held-out subtrees, of concepts inside them.
AT = " @ "  #: Separates a method and its setting.
ENCODED = ("kmeans", "random-dictionary", "true-directions")  #: Methods that need k only when they encode.
ORACLES = ("oracle",)
WIDEST = 2048  #: Most columns of a linear reading.
WHOLE = Units(np.full(1, -1), np.zeros(1, np.int64))


def settings_of(entry: Entry) -> list[tuple[str, Entry]]:
    """Return a method at all settings of its sparsity option, with names; unchanged if it has no option to vary."""
    name, values = KNOBS.get(entry.method, ("k", SPARSITIES))
    if (name not in entry.options and entry.method not in KNOBS) or name in take_options(entry.name)[1]:
        return [(entry.name, entry)]
    most = entry.options.get("n_features", max(values))
    return [
        (f"{entry.name}{AT}{name}={value:g}", replace(entry, options={**entry.options, name: value}))
        for value in values
        if name != "k" or value <= max(most, values[0])
    ]


def at_middle(entry: Entry) -> bool:
    """Return whether a method is at the middle one of its settings, or has none."""
    name, values = KNOBS.get(entry.method, ("k", SPARSITIES))
    return entry.options.get(name, MIDDLE) == (MIDDLE if name == "k" else values[len(values) // 2])


def reads(entry: Entry, role: str) -> bool:
    """Return whether a method is measured on networks of a role, or on what takes their place.

    Oracles read the truth alone. Autoencoders that were trained elsewhere cannot read the raw input, of another width.
    """
    if role == RAW and issubclass(find_method(entry.method), (Pretrained, Wrapped)):
        return False
    return (entry.method in ORACLES) == (role == TRUTH)


def judge(which: Representation, entry: Entry, data: Subject, networks: Networks | None = None) -> Columns:
    """Return all measures of a method on a representation, at all settings and for every hierarchy."""
    measured: list[Measured] = []
    for bench, views in _benches(which, data, networks, apart=entry.method in ("true-directions", *ORACLES)):
        for reader, setting, method in bench.fitted(rated(data.settings.options, which.role, entry), views):
            for view in views:
                measured += bench.measured(view, reader, setting, method)
    return Columns.of(measured)


#: The benches of the previous cell: the next cell most likely needs them too.
_LAST: dict[str, list[tuple[_Bench, list[View]]]] = {}


def _benches(
    which: Representation, data: Subject, networks: Networks | None, *, apart: bool
) -> Iterable[tuple[_Bench, list[View]]]:
    """Return the benches of a representation; methods that follow each other share activations and truth.

    Nothing is kept for the raw input, which is too large, and for files, which may have changed.
    """
    s = data.settings
    if which.role == RAW or s.options.activations or s.store or s.network:
        return _prepared(which, data, networks, apart=apart)
    key = json.dumps([s.to_dict(), which.name, data.here.device, apart], sort_keys=True)
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = list(_prepared(which, data, networks, apart=apart))
    return _LAST[key]


def _prepared(
    which: Representation, subject: Subject, networks: Networks | None, *, apart: bool
) -> Iterator[tuple[_Bench, list[View]]]:
    model = model_of(subject, which, networks)
    for views in subject.groups(apart=apart):
        A = read(subject, which, model, views) if which.role != TRUTH else None
        bench = _Bench(subject, which, model, A, subject.rows(views[0]))
        for view in views:
            bench.prepare(view)
        yield bench, views


def rated(task: Options, role: str, entry: Entry) -> Entry:
    """Return a method with the learning rate chosen for representations of a role."""
    rate = task.rates.get("untrained" if role == RENORMED else role)
    if rate is None or "lr" not in entry.options or "lr" in take_options(entry.name)[1]:
        return entry
    return replace(entry, options={**entry.options, "lr": rate})


@dataclass(frozen=True, eq=False)
class _Side:
    """The concepts of one hierarchy, with their members in each part of the rows."""

    labels: dict[str, Labels]
    latent: Ints  #: (C,) concepts of the scored rows
    counted: NDArray[np.bool_]  #: (C,) whether the concept is summarised
    upper: Ints
    members: dict[str, fairness.Members]
    readings: Floats | None  #: (n, C) linear readings of the scored rows
    true: Floats  #: (C, d) true directions, NaN at top concepts
    probe: Floats  #: (C,) AUC of a linear reading that is fitted on validation rows, as sparse probes are

    def choose_thresholds(self, codes: Any) -> tuple[Floats, float]:
        """Return thresholds and recovery from the codes of validation rows, about the concepts that are scored."""
        return fairness.choose_thresholds(self.members["validation"], self.upper, self.counted, codes)


class _Bench:
    """Measures methods on one representation."""

    def __init__(
        self, subject: Subject, which: Representation, model: nn.Module | None, A: Any, rows: dict[str, Ints]
    ) -> None:
        self.subject, self.which, self.model, self.A, self.rows = subject, which, model, A, rows
        self.s, self.device = subject.settings, subject.device
        self.parts: dict[str, torch.Tensor] = {}
        if A is not None:
            self.parts = {name: A[torch.from_numpy(part).to(A.device)] for name, part in rows.items()}
        self.sides: dict[int, _Side] = {}

    def prepare(self, view: View) -> None:
        """Find the concepts of a hierarchy, their true directions, and the AUC of a linear reading."""
        every, least = view.labels(), self.s.options.min_size
        labels = {name: every.take(part) for name, part in self.rows.items()}
        known = find_truth(labels["scored"], least, SUMMARY_RATIO)
        concepts = known.concepts
        members = {name: fairness.Members.of(part, concepts.latent) for name, part in labels.items()}
        probe, readings = np.full(len(concepts), np.nan), None
        true = np.full((len(concepts), 1), np.nan)
        if self.parts:
            scored = as_array(self.parts["scored"])
            true = concept_directions(known, scored)
            if scored.shape[1] <= WIDEST:
                readings, same = (
                    scored @ fairness.discriminants(as_array(self.parts[name]), members[name])
                    for name in ("fit", "validation")
                )
                probe = fairness.reading_auc(same, members["scored"])
        self.sides[view.factor] = _Side(
            labels, concepts.latent, concepts.summarised, concepts.upper, members, readings, true, probe
        )

    def fitted(self, entry: Entry, views: list[View]) -> Iterator[tuple[str, Entry, Any]]:
        """Yield the method at each setting, fitted."""
        shared: Any = None
        for reader, setting in settings_of(entry):
            begun = time.perf_counter()
            if entry.method in ENCODED and shared is not None:
                shared.k = setting.options["k"]
                method = shared
            elif entry.method in ORACLES:
                method = setting
            else:
                method = self._fit(setting, self.parts["fit"], self.sides[views[0].factor].labels["fit"])
                shared = method
            self.seconds = time.perf_counter() - begun
            yield reader, setting, method

    def _fit(self, setting: Entry, rows: torch.Tensor, labels: Labels, seed: int = 0) -> Any:
        if setting.method == "true-directions":
            setting = replace(setting, options={**setting.options, "labels": labels})
        return fitted(setting, 1000 * seed + self.which.seed, rows)

    # ------------------------------------------------------------------ measures

    def measured(self, view: View, reader: str, setting: Entry, method: Any) -> list[Measured]:
        """Return all measures of a fitted method for a hierarchy."""
        side = self.sides[view.factor]
        if isinstance(method, Entry):
            columns, scalars = _of_oracle(method, side, self.s.options.min_size)
        else:
            columns, scalars = self._of_method(view, side, setting, method)
        which, layer = self.which, self.which.role if self.which.role in ("raw", TRUTH) else self.s.options.layer
        where = self.s.draw, which.role, which.trained_on, which.seed, layer, reader
        units = Units(side.latent[side.counted], places(side.labels["scored"].forest, side.latent[side.counted]))
        columns |= {"size": side.members["scored"].size.astype(np.float64), "probe_activations": side.probe}
        cells = [
            Measured(*where, name, view.factor, units, np.asarray(columns[name], np.float64)[side.counted])
            for name in UNITS
            if name in columns
        ]
        scalars |= {"seconds": self.seconds}
        cells += [
            Measured(*where, name, view.factor, WHOLE, np.full(1, scalars[name])) for name in SCALARS if name in scalars
        ]
        if self._is_own(view) and setting.options.get("k") == MIDDLE and isinstance(view, PointView):
            latents, f1 = self._subtrees(view, setting)
            held_out = Units(latents, places(side.labels["scored"].forest, latents))
            cells.append(Measured(*where, SUBTREES, view.factor, held_out, f1))
        return cells

    def _is_own(self, view: View) -> bool:
        return self.which.role == TRAINED and self.which.trained_on in (None, view.factor)

    def _of_method(
        self, view: View, side: _Side, setting: Entry, method: Any
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        least = self.s.options.min_size
        codes = {name: _encoded(method, self.parts[name]) for name in ("validation", "scored")}
        threshold, recovery = side.choose_thresholds(codes["validation"])
        decoder = decoder_of(method, self.parts["scored"])
        columns, counts = _of_codes(codes["scored"], threshold, side, least, decoder)
        best = fairness.Counts.of(codes["validation"], threshold, side.members["validation"]).f1.argmax(1)
        columns["auc"] = fairness.feature_auc(codes["scored"], side.members["scored"], best)
        columns["f1_chosen"] = counts.f1[np.arange(best.size), best]
        n = len(side.labels["scored"])
        zero = fairness.Counts.of(codes["scored"], 0.0, side.members["scored"])
        ever = zero.fired + fairness.Counts.of(codes["validation"], 0.0, side.members["validation"]).fired
        columns |= {"f1_zero": zero.f1.max(1)}
        fit, test = ((codes[name], side.members[name]) for name in ("validation", "scored"))
        columns["probe_1"], columns["probe_5"] = fairness.sparse_probes(fit, test, (1, 5))
        if side.readings is not None:
            edges = fairness.reading_edges(side.readings, side.members["scored"], side.upper, columns["recall"])
            measured = columns.get("absorption_edge", np.full(edges.size, np.nan))
            columns["absorption_linear"] = np.where(np.isfinite(measured), edges, np.nan)  # a control: the same edges
            columns["absorption_over_linear"] = measured - edges
        scalars = {
            "validation": recovery, "l0": counts.l0 / n, "l0_zero": zero.l0 / n, "dead": float((ever == 0).mean()),
            "features": float(ever.size),
        }  # fmt: skip
        if getattr(method, "parents", None) is not None:
            scalars |= fairness.tree_scores(method.parents, counts.f1, side.upper)
        if at_middle(setting):
            scalars[DEAD_AT_MIDDLE] = scalars["dead"]
        if self._is_own(view):
            scalars |= self._planted(side, codes, threshold, best, columns["f1"])
        purity = counts.f1[side.counted].max(0, initial=0)
        return columns, scalars | self._of_decoder(view, side, setting, method, codes["scored"], zero, purity)

    def _planted(self, side: _Side, codes: dict[str, Any], cutoff: Floats, best: Ints, f1: Floats) -> dict[str, float]:
        """Return how much recovery rises by effects planted in the codes, whose thresholds are chosen like all others.

        Each concept gets one more feature per effect, made from the feature that validation rows choose for it.
        """
        names = "validation", "scored"
        made = [fairness.planted(codes[n], cutoff, side.members[n], best, [*PLANTED.values()], i)
                for i, n in enumerate(names)]  # fmt: skip
        limits, _ = side.choose_thresholds(made[0])
        reached = fairness.Counts.of(made[1], limits, side.members["scored"]).f1
        rises = np.maximum(reached.reshape(len(f1), len(f1), -1).max(1) - f1[:, None], 0)[side.counted].mean(0)
        return dict(zip(PLANTED, map(float, rises), strict=True))

    def _of_decoder(
        self, view: View, side: _Side, setting: Entry, method: Any, codes: Any, zero: fairness.Counts, purity: Floats
    ) -> dict[str, float]:
        """Return the measures of a method that decodes."""
        if getattr(method, "directions", None) is None:
            return {}
        directions, values = as_array(method.directions), as_array(self.parts["scored"])
        bias = 0 if method.bias is None else as_array(method.bias)
        decoded = np.asarray(codes @ directions) + bias
        spread = np.square(values - values.mean(0)).sum(dtype=np.float64)
        scalars = {
            "explained_variance": float(1 - np.square(values - decoded).sum(dtype=np.float64) / max(spread, 1e-12)),
            "shrinkage": fairness.shrinkage(decoded, values),
        }
        known = np.flatnonzero(np.isfinite(side.true).all(1))
        if known.size:
            scalars |= fairness.by_direction(directions, side.true[known], zero, known)
        if self._is_own(view):
            if self.model is not None:
                scalars["loss_recovered"] = self._loss(view, decoded).share
            if at_middle(setting):
                scalars |= self._bridged(view, method)
            if setting.options.get("k") == MIDDLE and setting.method not in ENCODED[1:]:
                other = self._fit(setting, self.parts["fit"], side.labels["fit"], seed=1)
                live, again = zero.fired > 0, _encoded(other, self.parts["scored"]).sum(0) > 0
                pair = directions[live], as_array(other.directions)[again]
                scalars |= fairness.stability(*pair, purity[live], values - bias, self.which.seed)
        return scalars

    def _bridged(self, view: View, method: Any) -> dict[str, float]:
        """Return the shares bridged by patches along a method's features and random directions; nothing for points."""
        if self.model is None or not isinstance(view, DocumentView):
            return {}
        model = self.model.to(self.device)
        along, at_random = bridged(view, model, self.s.options.layer, method, self.which.seed)
        return {"bridged": along, "bridged_random": at_random}

    def _loss(self, view: View, decoded: Floats) -> LossRecovered:
        assert self.model is not None
        layer, scored = self.s.options.layer, self.rows["scored"]
        values = torch.from_numpy(np.asarray(decoded, np.float32)).to(self.device)
        if not isinstance(view, DocumentView):
            data = self.subject.target(view.factor)
            X, y = np.asarray(data.X[scored]), np.asarray(data.y)[scored]
            return loss_recovered(self.model, X, y, layer, values, device=self.device)
        tokens = torch.from_numpy(np.asarray(view.inputs)[scored[:: view.shape[1]] // view.shape[1]])
        shape, mean = (len(tokens), view.shape[1], -1), self.parts["scored"].mean(0).expand_as(values)
        cases = (None, values.reshape(shape), mean.reshape(shape))
        return LossRecovered(*(_token_loss(self.model, tokens.long().to(self.device), layer, case) for case in cases))

    def _subtrees(self, view: PointView, setting: Entry) -> tuple[Ints, Floats]:
        """Return the concepts of held-out subtrees, and their best F1 by a method fitted without any of their rows."""
        several = len(self.subject.views) > 1
        most = max(50, view.shape[0] // 20)
        split = split_rows(view.data, by="subtree", max_size=most, factor=view.factor if several else None)
        rows = {name: np.sort(getattr(split, name)) for name in ("train", "validation", "test")}
        every = view.labels()
        labels = {name: every.take(part) for name, part in rows.items()}
        A = {name: self.A[torch.from_numpy(part).to(self.A.device)] for name, part in rows.items()}
        try:
            truth = {n: find_truth(labels[n], self.s.options.min_size, SUMMARY_RATIO) for n in ("validation", "test")}
        except ValueError:  # too few rows for any concept
            return np.empty(0, np.int64), np.empty(0)
        chosen, tested = (known.concepts for known in truth.values())
        inside = every.sizes[tested.latent] == tested.size
        latents = tested.latent[tested.summarised & inside]
        method = self._fit(setting, A["train"], labels["train"])
        codes = {name: _encoded(method, A[name]) for name in truth}
        members = fairness.Members.of(labels["validation"], chosen.latent)
        threshold, _ = fairness.choose_thresholds(members, chosen.upper, chosen.summarised, codes["validation"])
        counts = fairness.Counts.of(codes["test"], threshold, fairness.Members.of(labels["test"], latents))
        return latents, counts.f1.max(1)


def _of_codes(
    codes: Any, threshold: Any, side: _Side, least: int, decoder: dict[str, Any]
) -> tuple[dict[str, Floats], fairness.Counts]:
    """Return the measures of every concept, and the counts behind them."""
    members, labels = side.members["scored"], side.labels["scored"]
    counts = fairness.Counts.of(codes, threshold, members)
    f1 = counts.f1
    best, every = f1.argmax(1), np.arange(len(f1))
    hits = counts.hits[every, best]
    columns = {
        "f1": f1.max(1),
        "one_to_one": np.where(side.counted, 0.0, np.nan),
        "precision": hits / np.maximum(counts.fired[best], 1),
        "recall": hits / np.maximum(counts.size, 1),
    }
    columns["one_to_one"][side.counted] = fairness.one_to_one(f1[side.counted])
    if counts.fired.any():
        table = score(labels, codes, min_size=least, threshold=threshold, draws=1, **decoder).concepts
        names = {"chance": "chance", "splitting": "k", "f1_union": "f1_union", "absorption_edge": "absorption_edge"}
        names |= {name: name for name in ("absorption", "absorption_null", "absorption_carried")}
        columns |= {name: table[column].to_numpy(np.float64) for name, column in names.items()}
        upper = np.maximum(side.upper, 0)
        eligible = (side.upper >= 0) & (columns["f1"][upper] >= GOOD) & (counts.size[upper] < len(labels))
        columns["absorption_edge"] = np.where(eligible, columns["absorption_edge"], np.nan)
    return columns, counts


def _of_oracle(entry: Entry, side: _Side, least: int) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return the measures of an oracle, which knows the scored rows."""
    labels = side.labels["scored"]
    nothing = np.empty((len(labels), 0))
    oracle = make(replace(entry, options={"dataset": labels, "min_size": least, **entry.options}), 0, "cpu")
    codes = fairness.sparse(oracle.fit(nothing).encode(nothing))
    columns, counts = _of_codes(codes, 0.0, side, least, {})
    columns["f1_zero"] = columns["f1"]
    return columns, {"l0": counts.l0 / len(labels), "validation": float(columns["f1"][side.counted].mean())}


def _encoded(method: Any, rows: torch.Tensor) -> Any:
    """Return the features of rows, encoded by a fitted method."""
    return fairness.sparse(method.encode(as_taken(method, rows)))


def _token_loss(model: nn.Module, tokens: torch.Tensor, layer: str, values: torch.Tensor | None) -> float:
    """Return the mean loss on documents, with the output of a layer replaced by values unless they are None."""
    with replaced(model, layer, values):
        return float(token_losses(model.to(tokens.device), tokens).double().mean())
