"""Readers: measures of activations, with one value for each unit of a hierarchy.

Everything that is fitted uses the view's training rows; everything that is scored uses its test rows. A reader is an
object with a `name` and `read(view, A, seed)`. `READERS` has the readers with a name, and any method of
`percolab.features` is a reader too, by name or as an object with `fit` and `encode`. A reader that intervenes on a
network needs the network itself: it has `read_network(view, model, layer, seed)` instead, and reads only torch modules
(`causes`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from percolab.corpora.corpus import Corpus
from percolab.corpora.sampler import Documents
from percolab.features.register import METHODS, MODEST, TRUTHFUL, as_taken, entry, make, take_options
from percolab.features.scoring import score
from percolab.ground.arrays import Ints
from percolab.ground.devices import Device, choose_device
from percolab.intervals import places
from percolab.nn.config import ProbeConfig
from percolab.nn.networks.activations import activations
from percolab.nn.probing import ridge, siblings
from percolab.nn.probing.probed_latents import find_places, read_places
from percolab.show.explorer.passages import Probed
from percolab.study.causes import Ablation, Interchange, Steering
from percolab.study.measured import Reading, Units
from percolab.study.sources import TorchSource
from percolab.study.subject import EVERY, PointView, Positions, View

LEAST_ROWS = 20  #: Fewest test rows of a concept.
MOST_PAIRS = 400  #: Most pairs of siblings of a hierarchy.
PENALTIES = (1.0, 1e2, 1e3, 1e4, 1e5)  #: Ridge penalties of beliefs, on standardised activations.
TUNING_STEP = 5  #: One in this many training documents chooses the penalty.
#: Number of documents that probes for shown documents are fitted to, and the first of them: none of these is shown.
N_FIT, FIT_FIRST = 400, (1 << 40) + (1 << 30)


class Reader(Protocol):
    """A measure of activations."""

    @property
    def name(self) -> str:
        """The name of the reader in tables."""

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the reader's measures; the verdict is about the first.

        Parameters
        ----------
        view
            The data as one hierarchy sees them.
        A
            (rows, width) activations.
        seed
            Seed of the reader's random draws.
        """


class NetworkReader(Protocol):
    """A measure of a network, by interventions."""

    @property
    def name(self) -> str:
        """The name of the reader in tables."""

    def read_network(self, view: View, model: torch.nn.Module, layer: str, seed: int) -> list[Reading]:
        """Return the reader's measures for one layer of a network; the network is not changed."""


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of siblings with enough test rows each."""

    label: Ints  #: (n,) label of each row
    bounds: Ints  #: (2, 2, P) first label, and one past the last, of both siblings
    units: Units

    def ready(self, rows: Ints, device: torch.device) -> siblings.Ready:
        """Return the pairs, restricted to some rows."""
        mask = np.zeros(self.label.size, np.bool_)
        mask[rows] = True
        return siblings.group_pairs(self.label, self.bounds, device, mask)


def _pairs(view: View, asked: Positions, min_size: int | None) -> _Pairs:
    labels, (_, test) = view.labels(asked), view.rows(asked)
    bounds, above = siblings.sibling_groups(labels)
    ends = np.searchsorted(np.sort(labels.label[test]), bounds)
    size = ends[:, 1] - ends[:, 0]
    # A single row has no variance, so siblings have at least two.
    least = LEAST_ROWS if min_size is None else max(2, -(-min_size * test.size // labels.label.size))
    chosen = siblings.choose(size.min(0), least, MOST_PAIRS)
    if not chosen.size:
        raise ValueError(f"siblings must have {least} test rows each, got no pair that has")
    smaller = size.argmin(0)[chosen]
    bounds = bounds[..., chosen]
    return _Pairs(labels.label, bounds, Units(above[chosen], bounds[smaller, 0, np.arange(chosen.size)]))


@dataclass(frozen=True, eq=False)
class _OfSiblings:
    """A reader of pairs of siblings."""

    name: str
    asked: Positions = EVERY
    min_size: int | None = None  #: fewest rows of a sibling, among all rows; None: 20 test rows


@dataclass(frozen=True, eq=False)
class Separation(_OfSiblings):
    """Squared distance of sibling concepts' mean activations over their summed variances, on test rows."""

    name: str = "separation"

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the separation of every pair of siblings."""
        pairs, (_, test) = _pairs(view, self.asked, self.min_size), view.rows(self.asked)
        sums = siblings.sums(A, pairs.ready(test, A.device))
        return [Reading("separation", pairs.units, siblings.separation(sums))]


@dataclass(frozen=True, eq=False)
class Accuracy(_OfSiblings):
    """How often a linear reading, fitted on training rows, tells test rows of two siblings apart; chance is 0.5."""

    name: str = "accuracy"

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the accuracy of every pair of siblings."""
        pairs, (train, test) = _pairs(view, self.asked, self.min_size), view.rows(self.asked)
        fit, held_out = (pairs.ready(rows, A.device) for rows in (train, test))
        factor = siblings.solver(A, fit)
        return [Reading("accuracy", pairs.units, siblings.reading_accuracy(A, factor, fit, held_out))]


@dataclass(frozen=True, eq=False)
class BeliefProbe:
    """R² on test documents of a ridge regression from activations to the probability of being inside each context.

    The penalty of each context is chosen on every fifth training document; the final fit includes these documents.
    Contexts with a constant probability are left out, and contexts that few test positions are expected to be in.
    """

    name: str = "beliefs"
    asked: Positions = EVERY

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return R² of every context."""
        if isinstance(view, PointView):
            raise ValueError("beliefs must be read in documents, got points")
        if self.asked != Positions(since=self.asked.since):
            raise ValueError("truth and about must be left out for beliefs, which are probabilities of contexts")
        train, test = view.rows(self.asked)
        tuning = train // view.shape[1] % TUNING_STEP == 0
        latents, inside = view.inside
        kept = inside[test].sum(0) >= LEAST_ROWS
        if not kept.any():
            rule = "beliefs must be in doubt somewhere: contexts with a probability that is not constant"
            raise ValueError(f"{rule}, got none; with a smaller min_size a corpus has more contexts")
        latents, inside = latents[kept], inside[:, kept]
        parts = {"validation": train[tuning], "refit": True, "device": A.device}
        r2 = ridge.ridge(A, inside, train[~tuning], test, PENALTIES, **parts).r2
        return [Reading("r2", Units(latents, places(view.data.forest(view.factor), latents)), r2)]


def probed_beliefs(
    corpus: Corpus,
    networks: Mapping[str, tuple[nn.Module, Collection[int]]],
    documents: Documents,
    *,
    layer: str | None = None,
    n_fit: int = N_FIT,
    device: Device = "auto",
) -> dict[str, Probed]:
    """Return ridge regressions' readings of the contexts of documents from networks, for `percolab.show.explore`.

    It is fitted to the exact beliefs on `n_fit` other held-out documents of the corpus.

    Parameters
    ----------
    corpus
        The corpus that the documents are from.
    networks
        By name, a network and the lexicons that it was trained on; an empty collection for an untrained network.
    documents
        The documents to read.
    layer
        A module; None: the last block.
    n_fit
        Number of documents to fit to.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    """
    place, lexicons = choose_device(device), range(len(corpus.lexicons))
    n, length = documents.tokens.shape
    tokens = np.concatenate([documents.tokens, corpus.documents(FIT_FIRST, FIT_FIRST + n_fit).tokens])
    exact = corpus.beliefs(tokens)
    inside = [exact.inside(corpus.contexts(k), k).reshape(tokens.size, -1) for k in lexicons]
    shown, fitted = np.arange(n * length), np.arange(n * length, tokens.size)
    probed = {}
    for name, (network, trained_on) in networks.items():
        (where,) = [layer] if layer else TorchSource(network).layers()
        A = activations(network, tokens, [where], device=place)[where].reshape(tokens.size, -1)
        fits = [ridge.ridge(A, inside[k], fitted, shown, PENALTIES, device=place) for k in lexicons]
        a = A[: n * length].cpu().numpy()
        probed[name] = Probed(tuple(trained_on), [a @ fit.weights + fit.intercept for fit in fits])
    return probed


@dataclass(frozen=True, eq=False)
class LatentProbe:
    """Mean squared error on test rows of ridge probes of z, by latent, with the depths and the penalty of the paper."""

    name: str = "probe"
    asked: Positions = EVERY
    min_size: int | None = None  #: fewest rows of a latent, among all rows; None: 20 test rows in expectation

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the error of every latent."""
        if not isinstance(view, PointView):
            raise ValueError("probe must read points, got documents, where beliefs are probed")
        (train, test), known, config = view.rows(self.asked), view.truth, ProbeConfig()
        least = -(-LEAST_ROWS * known.rows.size // test.size) if self.min_size is None else self.min_size
        probed = find_places(known.forest, known.rows, config.depths, least)
        part = np.full(known.rows.size, ridge.LEFT_OUT)
        part[train], part[test] = ridge.TRAIN, ridge.TEST
        values = known.latent_z[probed.latent][:, None]
        fit = read_places(A, probed, values, config.alpha, part=part)
        return [Reading("error", Units(probed.latent, probed.start), fit.mse[:, 0])]


@dataclass(frozen=True, eq=False)
class Features:
    """A feature method, fitted on training rows; its features are scored on test rows against the truth."""

    name: str
    #: makes a fresh method from a seed, a device and the width of the activations
    make: Callable[[int, torch.device, int], Any]
    asked: Positions = EVERY

    def read(self, view: View, A: torch.Tensor, seed: int) -> list[Reading]:
        """Return the best F1 of any feature for every concept."""
        method, parts = self.make(seed, A.device, A.shape[1]), view.rows(self.asked)
        fit, scored = (as_taken(method, A[torch.from_numpy(rows).to(A.device)]) for rows in parts)
        method.fit(fit)
        codes, labels = method.encode(scored), view.labels(self.asked)
        table = score(labels, codes, parts[1], min_size=LEAST_ROWS, draws=1).concepts
        table = table[table["summarised"]]
        latent = table["latent"].to_numpy(np.int64)
        return [Reading("f1", Units(latent, places(labels.forest, latent)), table["f1"].to_numpy(np.float64))]


#: Readers by name. To add a reader, add a line here, or give an object to `compare`.
READERS: dict[str, type[Any]] = {
    "separation": Separation, "accuracy": Accuracy, "beliefs": BeliefProbe, "probe": LatentProbe,
    "interchange": Interchange, "steering": Steering, "ablation": Ablation,
}  # fmt: skip
#: Options after ``@`` that say which positions of documents are read, of any reader.
OPTIONS = ("truth", "about", "since")
#: After the name of a causal reader: feature methods along which it intervenes too, with commas between.
ALONG = "@along="


def listed_readers(text: str) -> list[str]:
    """Return the readers that a text names with commas between; methods after ``@along=`` belong to that reader."""
    readers: list[str] = []
    for part in text.split(","):
        if readers and ALONG in readers[-1] and part.partition("@")[0] not in READERS:
            readers[-1] += f",{part}"
        else:
            readers.append(part)
    return readers


def as_reader(reader: Any) -> Reader | NetworkReader:
    """Return a reader by its name, or as an object: a reader, or a method with `fit` and `encode`.

    ``separation@since=6+truth=true`` reads positions six or more into a segment, by their true contexts.
    ``steering@along=kmeans,topk@k=8`` steers along the features of two methods too.
    """
    if isinstance(reader, str):
        spec, options = take_options(reader, OPTIONS)
        name, _, along = spec.partition(ALONG)
        if name in READERS:
            if along and name not in ("interchange", "steering"):
                raise ValueError(f"along must be an option of interchange or steering, got {reader!r}")
            asked, is_causal = Positions(**options), hasattr(READERS[name], "read_network")
            if is_causal and asked != EVERY:
                rule = "truth, about and since of readers must be left out of causal readers"
                raise ValueError(f"{rule}, got {reader!r}")
            given: dict[str, Any] = {"along": along.split(",")} if along else {} if is_causal else {"asked": asked}
            return READERS[name](reader, **given)
        if METHODS.get(spec.partition("@")[0], ("",))[0] in TRUTHFUL:
            raise ValueError(f"readers must make features of activations, got {reader!r}")
        try:
            method = entry(spec, MODEST)
            return Features(reader, partial(make, method), Positions(**options))
        except ValueError as error:
            known = ", ".join(READERS)
            raise ValueError(f"readers must be names ({known}), methods or objects, got {reader!r}: {error}") from error
    if isinstance(reader, type):
        name = reader.__name__
        raise ValueError(f"readers must be names or objects, got the class {name}: give {name}(…)")
    if hasattr(reader, "name") and any(callable(getattr(reader, name, None)) for name in ("read", "read_network")):
        return reader
    if callable(getattr(reader, "fit", None)) and callable(getattr(reader, "encode", None)):
        return Features(type(reader).__name__, lambda seed, device, width: copy.deepcopy(reader))
    raise ValueError(f"a reader must be a name, or have fit and encode, or name and read, got {type(reader).__name__}")
