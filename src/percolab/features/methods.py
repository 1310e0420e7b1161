"""Methods to compare with: each turns activations into codes by `fit` and `encode`.

A method is any class with ``fit(activations)``, which returns the method, and ``encode(activations)``, which returns
codes as `score` takes them: (rows, features), not negative. Where codes @ directions + bias gives the activations back,
the method has ``directions`` (features, d) and ``bias`` (d,) after the fit; otherwise they are None or missing.

Given a tensor on a GPU, all but ICA compute there; dense codes are then a tensor too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.sampler import Documents
from percolab.features.chance import permuted
from percolab.features.codes import BLOCK_CELLS
from percolab.features.concepts import Labels, find_truth
from percolab.features.directions import concept_directions
from percolab.features.inputs import Asked, also_on_gpu, find_labels, on_gpu
from percolab.features.thresholds import SUMMARY_RATIO
from percolab.ground.arrays import as_array
from percolab.ground.extras import needing
from percolab.ground.validation import check_finite, check_integer, check_probability, check_seed
from percolab.model.latent_groups import check_ratio

if TYPE_CHECKING:
    import scipy.sparse

Floats = NDArray[np.floating[Any]]


class Method(Protocol):
    """A method that makes codes of activations."""

    def fit(self, activations: Any) -> Self:
        """Learn from activations (rows, d)."""

    def encode(self, activations: Any) -> Any:
        """Return the codes of activations, (rows, features)."""


class Decodes:
    """A method with a decoder: its directions and bias, or None."""

    directions: Floats | None = None
    bias: Floats | None = None


@dataclass
class KMeans(Decodes):
    """Clusters of activations, one feature each: the k nearest centres of a row fire, with codes of almost 1/k.

    A row is thus decoded to the mean of its nearest centres. Directions lead from the mean of the fitted rows, which is
    the bias, to the centres. A code falls slightly with the distance from its centre, so a threshold on a feature
    selects a ball around the centre. Computed by scikit-learn, or on a GPU by the same steps in torch, with all rows in
    each step.
    """

    n_features: int
    k: int = 1
    seed: int = 0
    max_iterations: int = 50
    batch_size: int | None = None  #: rows of a mini-batch; None takes all rows in each step, which is better and slower
    device: str | None = None  #: cpu, cuda, cuda:N, or auto: a GPU where there is one; None: where the activations are
    fall: float = 1e-3  #: share of a code that a row infinitely far from the centre would lose; 0: all codes are 1/k
    _model: Any = field(default=None, init=False, repr=False, compare=False)
    _spread: float = field(default=1.0, init=False, repr=False, compare=False)  #: deviation of the fitted rows

    def fit(self, activations: Any) -> Self:
        """Find the clusters."""
        seed, self._model = check_seed("seed", self.seed), None
        on_gpu = self._on_gpu(activations)
        if on_gpu is None:
            values: Any = _check_rows("n_features", self.n_features, check_activations(activations))
            self._model = self._by_sklearn(seed).fit(values)
            centres = self._model.cluster_centers_
        else:
            from percolab.features import on_torch

            values = _check_rows("n_features", self.n_features, on_gpu)
            self._model = on_torch.fit_centres(values, self.n_features, seed, self.max_iterations)
            centres = as_array(self._model)
        self._spread = float(as_array(values.var(0)).sum(dtype=np.float64)) ** 0.5 or 1.0
        self.bias = as_array(values.mean(0))
        self.directions = centres - self.bias
        return self

    def _by_sklearn(self, seed: int) -> Any:
        cluster = _sklearn("cluster")
        options = {"n_clusters": self.n_features, "random_state": seed, "max_iter": self.max_iterations, "n_init": 1}
        if self.batch_size is None:
            return cluster.KMeans(**options)
        return cluster.MiniBatchKMeans(batch_size=self.batch_size, **options)

    def _on_gpu(self, activations: Any) -> Any:
        """Return the activations as a tensor on the requested GPU or the GPU they are on; None for the CPU.

        After the fit, it is the GPU of the centres.
        """
        place: Any = getattr(activations if self._model is None else self._model, "device", None)
        if self._model is None and self.device is not None:
            from percolab.ground.devices import choose_device

            place = choose_device(self.device)
        if getattr(place, "type", "cpu") == "cpu":
            return None
        from percolab.features import on_torch

        rows = activations if hasattr(activations, "detach") else check_activations(activations)
        return on_torch.as_rows(rows, place)

    def _nearest(self, activations: Any) -> tuple[NDArray[np.int64], Floats]:
        """Return (n, k) the nearest centres of each row, increasing, and their distances."""
        on_gpu = self._on_gpu(activations)
        if on_gpu is not None:
            from percolab.features import on_torch

            mean = self._model.mean(0)
            at = on_torch.nearest(on_gpu - mean, self._model - mean, self.k).sort(1).values
            return as_array(at), as_array(on_torch.distances(on_gpu, self._model, at))
        values = check_activations(activations)
        nearest, distances, step = [], [], max(1, BLOCK_CELLS // self.n_features)
        for lo in range(0, len(values), step):
            block = self._model.transform(values[lo : lo + step])
            nearest.append(np.sort(np.argpartition(block, self.k - 1)[:, : self.k]))
            distances.append(np.take_along_axis(block, nearest[-1], 1))
        return np.concatenate(nearest), np.concatenate(distances)

    def encode(self, activations: Any) -> Any:
        """Return the codes of each row at its k nearest centres: (1 - fall · distance / (distance + spread)) / k.

        The spread is the root mean square distance of the fitted rows from their mean.
        """
        import scipy.sparse

        check_fitted(self)
        if check_integer("k", self.k, 1) > self.n_features:
            raise ValueError(f"k must be at most n_features, {self.n_features}, got {self.k}")
        nearest, distances = self._nearest(activations)
        fall = check_probability("fall", self.fall)
        codes = ((1 - fall * distances / (distances + self._spread)) / self.k).astype(np.float32)
        parts = codes.ravel(), nearest.ravel().astype(np.int32), self.k * np.arange(len(nearest) + 1)
        return scipy.sparse.csr_array(parts, shape=(len(nearest), self.n_features))


@dataclass
class _Components(Decodes):
    """Linear components; each gives one feature per sign."""

    n_components: int
    seed: int = 0
    _model: Any = field(default=None, init=False, repr=False, compare=False)

    def _fit(self, model: Any, activations: Any) -> Any:
        check_seed("seed", self.seed)
        return model.fit(_check_rows("n_components", self.n_components, check_activations(activations)))

    def _decode_by(self, vectors: Floats, mean: Floats) -> Self:
        self.directions, self.bias = np.concatenate([vectors, -vectors]), mean
        return self

    def encode(self, activations: Any) -> Any:
        """Return the positive parts of all components, then the negative parts."""
        check_fitted(self)
        return signed_halves(self._model.transform(check_activations(activations)))


@dataclass
class PCA(_Components):
    """Principal components, each in two halves: where it is positive, and where it is negative.

    Computed by scikit-learn, or on a GPU from the covariance of the rows, exactly.
    """

    def fit(self, activations: Any) -> Self:
        """Find the components."""
        if on_gpu(activations):
            from percolab.features import on_torch

            values = _check_rows("n_components", self.n_components, where_they_are(activations))
            self._model = None
            return self._decode_by(*on_torch.principal_components(values, self.n_components))
        model = _sklearn("decomposition").PCA(self.n_components, random_state=self.seed)
        self._model = self._fit(model, activations)
        return self._decode_by(self._model.components_, self._model.mean_)

    def encode(self, activations: Any) -> Any:
        """Return the positive parts of all components, then the negative parts."""
        vectors, mean = check_fitted(self)
        if self._model is not None and not on_gpu(activations):
            return super().encode(activations)
        return signed_halves(projections(where_they_are(activations), vectors[: len(vectors) // 2], mean))


@dataclass
class ICA(_Components):
    """Independent components (scikit-learn's FastICA), each in two halves by its sign; always on the CPU."""

    max_iterations: int = 500
    tolerance: float = 1e-3

    def fit(self, activations: Any) -> Self:
        """Find the components."""
        how = {"random_state": self.seed, "max_iter": self.max_iterations, "tol": self.tolerance}
        model = _sklearn("decomposition").FastICA(self.n_components, whiten="unit-variance", **how)
        self._model = self._fit(model, activations)
        return self._decode_by(self._model.mixing_.T, self._model.mean_)


@dataclass
class Neurons(Decodes):
    """The activations themselves; where some are negative, each in two halves by its sign."""

    signed: bool | None = None  #: whether to split by sign; None: if any fitted activation is negative

    def fit(self, activations: Any) -> Self:
        """Check whether activations are signed."""
        values = where_they_are(activations)
        self._halves = bool((values < 0).any()) if self.signed is None else self.signed
        unit = np.eye(values.shape[1])
        self.directions, self.bias = np.concatenate([unit, -unit]) if self._halves else unit, np.zeros(len(unit))
        return self

    def encode(self, activations: Any) -> Any:
        """Return the activations, split by sign if they are signed."""
        check_fitted(self)
        values = where_they_are(activations)
        return signed_halves(values) if self._halves else values


class _Projections(Decodes):
    """Directions of unit length: a row's code is its k largest positive projections, about the fitted mean."""

    k: int

    def _project_on(self, vectors: Floats, values: Any) -> Self:
        check_integer("k", self.k, 1)
        self.directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self.bias = as_array(values.double().mean(0)) if on_gpu(values) else values.mean(axis=0, dtype=np.float64)
        return self

    def encode(self, activations: Any) -> Any:
        """Return at most k codes per row."""
        vectors, mean = check_fitted(self)
        k, values = check_integer("k", self.k, 1), where_they_are(activations)
        return in_blocks(values, len(vectors), lambda rows: largest(projections(rows, vectors, mean), k))


@dataclass
class RandomDictionary(_Projections):
    """Uniform random directions that are never learned; a row's code is its k largest positive projections."""

    n_features: int
    k: int = 32
    seed: int = 0

    def fit(self, activations: Any) -> Self:
        """Take the mean and draw the directions."""
        values = where_they_are(activations)
        shape = check_integer("n_features", self.n_features, 1), values.shape[1]
        drawn = np.random.default_rng(check_seed("seed", self.seed)).standard_normal(shape)
        return self._project_on(drawn, values)


@dataclass
class TrueDirections(_Projections):
    """The true directions of concepts with a TopK encoder: what a sparse autoencoder could have, though not its best.

    The direction of a concept leads from the mean activation of its sibling to its own, on the rows of the fit. A
    row's code is its k largest positive projections.
    """

    labels: Labels  #: of the rows of the fit
    k: int = 32
    min_size: int = 20

    def fit(self, activations: Any) -> Self:
        """Find the directions of all concepts but the tops."""
        values = where_they_are(activations)
        known = find_truth(self.labels, check_integer("min_size", self.min_size, 2), SUMMARY_RATIO)
        vectors = concept_directions(known, values)
        vectors = vectors[np.isfinite(vectors).all(1) & (np.linalg.norm(vectors, axis=1) > 0)]
        if not len(vectors):
            raise ValueError("labels must have concepts below a top, got none")
        return self._project_on(vectors, values)


@dataclass
class Oracle(Decodes):
    """The truth itself: one feature per concept, which fires on its rows; optionally some firings are flipped.

    It knows the rows beforehand, and uses only the number of activations.
    """

    dataset: Any  #: a dataset, a forest, a world or a corpus, as for `score`
    rows: Any = None
    factor: int | None = None
    min_size: int = 20
    ratio: float = SUMMARY_RATIO
    flipped: float = 0.0  #: share of all rows, drawn for each feature, on which it does the opposite
    #: share of the rows of each concept, drawn for it, on which the feature of the nearest concept above is silent
    absorbed: float = 0.0
    split: int = 1  #: features of each concept, which divide its rows at random
    seed: int = 0
    documents: Documents | None = None  #: with a corpus, the documents, and what is asked of them, as for `score`
    about: str = "context"
    truth: str = "believed"
    latent: NDArray[np.int64] = field(init=False, repr=False)  #: the concept of each feature, after the fit

    def fit(self, activations: Any) -> Self:
        """Find the concepts of the rows."""
        asked = Asked(self.documents, self.about, self.truth)
        n = len(asked.flat("activations", activations))
        labels = find_labels(self.dataset, self.factor, self.rows, n, asked)
        self._asked, least = asked, check_integer("min_size", self.min_size, 2)
        self._truth = find_truth(labels, least, check_ratio(self.ratio))
        self.latent = self._truth.concepts.latent
        return self

    def encode(self, activations: Any) -> Any:
        """Return the membership of the rows, 1 or 0."""
        order, concepts = self._truth.order, self._truth.concepts
        n, given = order.size, len(self._asked.flat("activations", activations))
        if given != n:
            raise ValueError(f"activations must have the {n} rows that the oracle knows, got {given}")
        members = [order[lo:hi] for lo, hi in zip(concepts.start, concepts.stop, strict=True)]
        rng = np.random.default_rng(check_seed("seed", self.seed))
        if check_probability("absorbed", self.absorbed):
            members = _absorbed(members, concepts.upper, self.absorbed, rng)
        if check_integer("split", self.split, 1) > 1:
            members = [part for rows in members for part in np.array_split(rng.permutation(rows), self.split)]
        truth = _columns(members, n)
        count = round(check_probability("flipped", self.flipped) * n)
        if not count:
            return truth
        flips = [permuted(count, n, seed=self.seed, draw=0, feature=f) for f in range(len(members))]
        return abs(truth - _columns(flips, n)).tocsr()


# ---------------------------------------------------------------------- parts


def _absorbed(
    members: Sequence[NDArray[np.int64]], upper: NDArray[np.int64], share: float, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return the rows of each concept without a share of the rows of every concept next below it."""
    taken: list[list[NDArray[np.int64]]] = [[] for _ in members]
    for rows, above in zip(members, upper, strict=True):
        if above >= 0:
            taken[above].append(rng.permutation(rows)[: round(share * rows.size)])
    return [
        np.setdiff1d(rows, np.concatenate(parts)) if parts else rows for rows, parts in zip(members, taken, strict=True)
    ]


def _columns(rows: Sequence[NDArray[np.int64]], n: int) -> scipy.sparse.csr_array:
    """Return a matrix of n rows that is 1 on these rows of each column."""
    import scipy.sparse

    ends = np.cumsum([0, *map(len, rows)])
    parts = np.ones(ends[-1], np.float32), np.concatenate(rows), ends
    return scipy.sparse.csc_array(parts, shape=(n, len(rows))).tocsr()


@also_on_gpu
def signed_halves(values: Floats) -> Floats:
    """Return the positive parts of all columns, then the negative parts: twice the columns, none negative."""
    return np.concatenate([np.maximum(values, 0), np.maximum(-values, 0)], axis=1)


def projections(values: Any, vectors: Floats, mean: Floats) -> Any:
    """Return (rows, vectors) projections of rows on vectors, about the mean, on the device of the rows."""
    like = getattr(values, "new_tensor", np.asarray)
    return (values - like(mean)) @ like(vectors).T


@also_on_gpu
def in_blocks(values: Any, n_features: int, encode: Callable[[Any], Any]) -> Any:
    """Return the codes that a function gives for all rows, block by block: a sparse array; on a GPU, a dense tensor."""
    import scipy.sparse

    step = max(1, BLOCK_CELLS // n_features)
    blocks = (encode(values[lo : lo + step]) for lo in range(0, len(values), step))
    return scipy.sparse.vstack([scipy.sparse.csr_array(as_array(block)) for block in blocks], format="csr")


@also_on_gpu
def largest(values: Floats, k: int) -> Floats:
    """Return the k largest positive values of each row, and 0 elsewhere."""
    kept = np.maximum(values, 0)
    if k < values.shape[1]:
        low = np.argpartition(values, -k, axis=1)[:, :-k]
        np.put_along_axis(kept, low, 0, axis=1)
    return kept


def check_fitted(method: Decodes) -> tuple[Floats, Floats]:
    """Return the directions and the bias of a method, or say that it is not fitted."""
    if method.directions is None or method.bias is None:
        raise ValueError(f"{type(method).__name__} must be fitted before it encodes")
    return method.directions, method.bias


@also_on_gpu
def where_they_are(activations: Any) -> Any:
    """Return `check_activations`; for a tensor on a GPU, a tensor there."""
    return check_activations(activations)


def check_activations(activations: Any) -> Floats:
    """Return activations (rows, d) as a finite array of floats, on the CPU."""
    values = as_array(activations)
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        kind = f"{type(activations).__name__} of {values.dtype} and shape {values.shape}"
        raise ValueError(f"activations must be numbers of shape (rows, d), got {kind}")
    check_finite("activations", values)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _check_rows(name: str, count: int, values: Any) -> Any:
    most = len(values) if name == "n_features" else min(values.shape)
    if check_integer(name, count, 1) > most:
        raise ValueError(f"{name} must be at most {most} for activations of shape {values.shape}, got {count}")
    return values


def _sklearn(part: str) -> Any:
    with needing("this method needs", "features", "scikit-learn"):
        return import_module(f"sklearn.{part}")
