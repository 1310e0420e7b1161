"""Readers: what is asked of activations, one value for each unit of a hierarchy.

All that is learned is fitted on the view's training rows, all that is scored is scored on its test rows. A reader is an
object with a `name` and `read(view, A, seed)`; `READERS` has those that go by a name, and any method of
`percolab.features` is one too, by name or as an object with `fit` and `encode`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from percolab.features.scoring import score
from percolab.features.specs import METHODS, ORACLE, READING, Budget, entry, make, on_device
from percolab.intervals import places
from percolab.nn.probing import siblings
from percolab.study.measured import Floats, Ints, Units
from percolab.study.subject import PointView, View

LEAST_ROWS = 20
"""Fewest test rows of a concept."""
MOST_PAIRS = 400
"""Most pairs of siblings of a hierarchy."""


@dataclass(frozen=True, eq=False)
class Reading:
    """One measure of all units of a hierarchy."""

    measure: str
    units: Units
    values: Floats


class Reader(Protocol):
    """What is asked of activations."""

    @property
    def name(self) -> str:
        """The reader in tables."""

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return its measures, the first of which the verdict is about.

        Parameters
        ----------
        view
            The data from the side of one hierarchy.
        A
            (rows, width) activations.
        seed
            Of what the reader draws.
        """


def _pairs(view: PointView) -> tuple[siblings.Siblings, Units]:
    """Return pairs of siblings with enough test rows each."""
    known = view.truth
    least = -(-LEAST_ROWS * known.rows.size // view.test.size)
    pairs = siblings.find_siblings(known.forest, known.rows, least, MOST_PAIRS)
    return pairs, Units(pairs.parent, pairs.place)


def _mask(rows: Ints, count: int) -> Any:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


class Separation:
    """Squared distance of sibling concepts' mean activations over their summed variances, on test rows."""

    name = "separation"

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the separation of every pair of siblings."""
        pairs, units = _pairs(view)
        ready = siblings.ready(pairs, A.device, _mask(view.test, len(A)))
        return [Reading(self.name, units, siblings.separation(siblings.sums(A, ready)))]


class Accuracy:
    """How often a linear reading, fitted on training rows, tells test rows of two siblings apart; chance is 0.5."""

    name = "accuracy"

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the accuracy of every pair of siblings."""
        pairs, units = _pairs(view)
        fit, held_out = (siblings.ready(pairs, A.device, _mask(rows, len(A))) for rows in (view.train, view.test))
        factor = siblings.solver(A, torch.from_numpy(view.train).to(A.device))
        return [Reading(self.name, units, siblings.reading_accuracy(A, factor, fit, held_out))]


BUDGET = Budget(n_features=512, k=16, steps=1000, batch_size=1024, lr=2e-3, n_components=32)
"""Of methods that are asked for by name and without sizes."""


@dataclass(frozen=True, eq=False)
class Features:
    """A feature method, fitted on training rows; its features are scored on test rows against the truth."""

    name: str
    make: Callable[[int, torch.device, int], Any]
    """gives a fresh method for a seed, a device and the width of the activations"""
    takes_tensors: bool = False
    """whether the method takes tensors on their device; others take arrays"""

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the best F1 of any feature for every concept."""
        method = self.make(seed, A.device, A.shape[1])
        fit, scored = (A[torch.from_numpy(rows).to(A.device)] for rows in (view.train, view.test))
        if not self.takes_tensors:
            fit, scored = fit.cpu().numpy(), scored.cpu().numpy()
        codes = method.fit(fit).encode(scored)
        table = score(view.data, codes, view.test, view.factor, min_size=LEAST_ROWS, draws=1).concepts
        table = table[table["summarised"]]
        latent = table["latent"].to_numpy(np.int64)
        return [Reading("f1", Units(latent, places(view.truth.forest, latent)), table["f1"].to_numpy(np.float64))]


def _by_spec(spec: str) -> Features:
    """Return a method by its name, with options after ``@`` if there are any."""
    known = entry(spec, BUDGET)
    return Features(spec, lambda seed, device, width: make(known, seed, str(device), width), on_device(known))


READERS: dict[str, type[Any]] = {"separation": Separation, "accuracy": Accuracy}
"""Readers by name. One more is one line here, or an object given to `compare`."""


def as_reader(reader: Any) -> Reader:
    """Return a reader by its name, or as an object: a reader, or a method with `fit` and `encode`."""
    if isinstance(reader, str):
        if reader in READERS:
            usual: Reader = READERS[reader]()
            return usual
        if reader.partition("@")[0] in (READING, ORACLE):
            raise ValueError(f"readers must make features of activations, got {reader!r}")
        try:
            return _by_spec(reader)
        except ValueError as error:
            known = ", ".join([*READERS, *METHODS])
            raise ValueError(f"readers must be names ({known}) or objects, got {reader!r}: {error}") from error
    if callable(getattr(reader, "read", None)) and hasattr(reader, "name"):
        chosen: Reader = reader
        return chosen
    if callable(getattr(reader, "fit", None)) and callable(getattr(reader, "encode", None)):
        return Features(type(reader).__name__, lambda seed, device, width: copy.deepcopy(reader))
    raise ValueError(f"a reader must be a name, or have fit and encode, or name and read, got {type(reader).__name__}")
