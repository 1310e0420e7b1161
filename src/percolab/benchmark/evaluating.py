"""What a cell computes: a method is fitted to activations and its features are scored against every hierarchy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from percolab.benchmark.cells import Cell
from percolab.benchmark.keeping import write_truths
from percolab.benchmark.networks import Networks
from percolab.benchmark.tasks import relevant_factor
from percolab.features.concepts import SUMMARY_RATIO, by_row
from percolab.features.inputs import as_array
from percolab.features.result import Score
from percolab.features.scoring import best_f1, score
from percolab.features.specs import ORACLE, READING, Entry, make, on_device
from percolab.features.truth import find_truth
from percolab.nn.networks.activations import loss_recovered
from percolab.nn.probing.siblings import find_siblings, ready, separation, sums
from percolab.worlds.superposed import truth

DIGITS = 4
"""Of what a cell keeps of every concept."""
BINS = ("size", "depth")
Values = dict[str, Any]


class Evaluator:
    """Evaluates the cells of one task, keeping the activations it has."""

    def __init__(self, networks: Networks, output: Path) -> None:
        self.networks, self.task = networks, networks.task
        self._at: tuple[str, str, int] | None = None
        self._kept: torch.Tensor | None = None
        truths = [truth(networks.dataset, k) for k in range(self.task.n_factors)]
        pairs = [find_siblings(one.forest, one.rows, self.task.min_size) for one in truths]
        self.pairs = [ready(found, networks.device) for found in pairs]
        concepts = [
            find_truth(by_row(one.forest, one.rows), self.task.min_size, SUMMARY_RATIO).concepts for one in truths
        ]
        self.counted = [found.summarised for found in concepts]
        described = [
            {
                "concepts": _columns(latent=found.latent, size=found.size, start=found.start, counted=found.summarised),
                "pairs": _columns(parent=siblings.parent, size=siblings.size, start=siblings.place),
            }
            for found, siblings in zip(concepts, pairs, strict=True)
        ]
        write_truths(output, self.task, described)

    def evaluate(self, cell: Cell) -> Values:
        """Return what a cell keeps, plain values."""
        if cell.entry.method == ORACLE:
            return self._oracle(cell.entry)
        A = self._activations(cell.network, cell.layer, cell.seed)
        if cell.entry.method == READING:
            found = [separation(sums(A, pairs)) for pairs in self.pairs]
            return {"factors": {str(k): {"separation": _rounded(values)} for k, values in enumerate(found)}}
        start = time.perf_counter()
        given = _given(cell.entry, A)
        method = make(cell.entry, cell.seed, str(self.networks.device), A.shape[1]).fit(given)
        fitted = time.perf_counter()
        codes = method.encode(given)
        seconds = {"fit": fitted - start, "encode": time.perf_counter() - fitted}
        values: Values = {"factors": {}, "loss_recovered": self._recovered(cell, method, A)}
        start = time.perf_counter()
        for k in range(self.task.n_factors):
            values["factors"][str(k)] = self._scored(cell, method, codes, A, k)
        return {**values, "seconds": {**seconds, "score": time.perf_counter() - start}}

    def _activations(self, network: str, layer: str, seed: int) -> torch.Tensor:
        if self._at != (network, layer, seed) or self._kept is None:
            self._kept = None  # the old ones may go before the new ones come
            self._kept = self.networks.activations(network, layer, seed)
            self._at = (network, layer, seed)
        return self._kept

    def _scored(self, cell: Cell, method: Any, codes: Any, A: torch.Tensor, factor: int) -> Values:
        """Score against one hierarchy; for one that the network was not trained on, the best F1 is all that is used."""
        given: dict[str, Any] = {"factor": factor, "min_size": self.task.min_size}
        if relevant_factor(cell.network) not in (None, factor):
            f1 = best_f1(self.networks.dataset, codes, **given)
            return {"f1": _rounded(f1[self.counted[factor]])}
        directions = getattr(method, "directions", None)
        decoder = {"directions": directions, "bias": method.bias, "activations": A} if directions is not None else {}
        return _of_score(score(self.networks.dataset, codes, **given, **decoder, seed=cell.seed))

    def _oracle(self, entry: Entry) -> Values:
        found, rows = {}, np.empty((self.networks.dataset.X.shape[0], 0))
        for k in range(self.task.n_factors):
            given = {"dataset": self.networks.dataset, "factor": k, "min_size": self.task.min_size}
            codes = make(Entry(entry.name, entry.method, given | entry.options), 0, "cpu").fit(rows).encode(rows)
            found[str(k)] = _of_score(score(self.networks.dataset, codes, factor=k, min_size=self.task.min_size))
        return {"factors": found}

    def _recovered(self, cell: Cell, method: Any, A: torch.Tensor) -> Values | None:
        """Return what reconstructions of the test rows lose, for networks that were trained."""
        factor, directions = relevant_factor(cell.network), getattr(method, "directions", None)
        if factor is None or directions is None:
            return None
        rows = self.networks.split.test
        codes = method.encode(_given(cell.entry, A[torch.from_numpy(rows).to(A.device)]))
        decoded = as_array(_times(codes, directions))
        if method.bias is not None:
            decoded = decoded + as_array(method.bias)
        X, y = np.asarray(self.networks.dataset.X[rows]), self.networks.y(factor)[rows]
        model = self.networks.model(cell.network, cell.seed)
        found = loss_recovered(model, X, y, cell.layer, decoded, device=self.networks.device)
        return {"loss": found.loss, "replaced": found.replaced, "ablated": found.ablated, "share": found.share}


def _given(entry: Entry, A: torch.Tensor) -> Any:
    """Return activations as a method takes them."""
    return A if on_device(entry) else A.cpu().numpy()


def _times(codes: Any, directions: Any) -> Any:
    if isinstance(codes, torch.Tensor):
        return codes @ torch.as_tensor(directions, dtype=codes.dtype, device=codes.device)
    return codes @ np.asarray(directions)


def _of_score(found: Score) -> Values:
    counted = found.concepts[found.concepts["summarised"]]
    tables = {f"by_{name}": found.by(name).round(DIGITS).to_dict("list") for name in BINS}
    return {"summary": found.summary, **tables, "f1": _rounded(counted["f1"])}


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, np.float64)]


def _columns(**columns: NDArray[Any]) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in columns.items()}
