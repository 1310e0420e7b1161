"""The data of the page: points, trees, columns and features of a dataset, as plain values and arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Floats, Ints
from percolab.ground.progress import Progress, silent
from percolab.ground.text import counted
from percolab.model.forest import Forest
from percolab.show.cluster_picture import principal_components
from percolab.show.explorer import shown_features
from percolab.show.explorer.shown_features import Features
from percolab.worlds.superposed import AnyDataset, Superposed, Truth, truth

MOST_PLANE_ROWS = 400_000  #: Most points of all sets of components together, six bytes each.
READ_ROWS = 1 << 14  #: Rows of X that are read at a time.
MOST_LISTED = 200_000  #: Up to this many latents, all are listed; of more, only concepts are.
MOST_CONCEPTS = 20_000  #: Most concepts of a tree; if there are more, only concepts with more points are listed.
#: A latent gets its own components if it has at most this share of the points of the nearest latent above with its own.
VIEW_RATIO = 1 / 2
FEWEST_SEEN = 30  #: Least points of a latent with its own components.
AXES = 3
#: Steps of a coordinate between its least and its largest: finer than a screen, even enlarged a hundred times.
STEPS = 2**16 - 1

Predict = Callable[[NDArray[Any]], Any]  #: Returns the prediction for rows of X.


@dataclass(frozen=True, eq=False)
class Subject:
    """The subject of a page: a dataset, and optionally a network's predictions and features."""

    dataset: AnyDataset
    name: str
    prediction: NDArray[Any] | Predict | None
    features: Features | None
    min_size: int  #: fewest points of a concept
    n_points: int  #: most points drawn
    seed: int

    @cached_property
    def truths(self) -> list[Truth]:
        """The hierarchies, one per factor."""
        count = len(self.dataset.factors) if isinstance(self.dataset, Superposed) else 1
        return [truth(self.dataset, k) for k in range(count)]

    def sample(self, factor: int = 0, latent: int | None = None) -> tuple[Ints, int]:
        """Return the samples to draw, increasing, and the number of samples they stand for: all, or those of a latent.

        If there are more samples than are drawn, the drawn ones are uniform, without replacement. With features, only
        samples with codes are drawn.
        """
        if latent is None:
            known = np.arange(len(self.dataset)) if self.features is None else self.features.rows
        else:
            known = self.truths[factor].samples_of(latent)
            if self.features is not None:
                known = np.intersect1d(known, self.features.rows)
        if known.size <= self.n_points:
            return known, known.size
        chosen = np.random.default_rng(self.seed).choice(known.size, self.n_points, replace=False)
        return known[np.sort(chosen)], known.size


def overview(subject: Subject, progress: Progress) -> dict[str, Any]:
    """Return the data that a page starts with."""
    samples, total = subject.sample()
    X = read(subject.dataset.X, samples, progress)
    truths = subject.truths
    listings = [list_latents(known.forest, subject.min_size) for known in truths]
    sets = _sets(truths, listings, samples)
    start = {
        "name": subject.name,
        "lead": _lead(subject.dataset),
        "seed": subject.seed,
        "planes": components(sets_that_fit(X, sets, max(MOST_PLANE_ROWS, 2 * samples.size), progress)),
        "trees": [
            tree_columns(known, listing) | _about(subject.dataset, k)
            for k, (known, listing) in enumerate(zip(truths, listings, strict=True))
        ],
    }
    return start | points(subject, samples, total, X)


def part(subject: Subject, factor: int, latent: int) -> dict[str, Any]:
    """Return the points of one latent, in their own components, and the tree below it."""
    samples, total = subject.sample(factor, latent)
    X = read(subject.dataset.X, samples)
    known = subject.truths[factor]
    listing = list_latents(known.forest, 2, latent)
    view = {"planes": components([(factor, latent, X)]), "factor": factor, "tree": tree_columns(known, listing)}
    return view | points(subject, samples, total, X)


def points(subject: Subject, samples: Ints, total: int, X: NDArray[Any]) -> dict[str, Any]:
    """Return the data of some samples: their places in each hierarchy, their columns, features that fire on them."""
    features = subject.features
    view: dict[str, Any] = {"samples": samples, "total": total, "columns": _columns(subject, samples, X), "places": []}
    for k, known in enumerate(subject.truths):
        rows = known.rows[samples]
        place = {"rows": rows, "depth": known.forest.point_depth[rows]}
        if features is not None:
            place |= shown_features.score_columns(features, k, samples)
        view["places"].append(place)
    return view if features is None else view | {"features": shown_features.columns(features, samples)}


def read(X: Any, rows: Ints, progress: Progress = silent) -> NDArray[Any]:
    """Return some rows of X, in increasing order, read part by part."""
    out = np.empty((rows.size, X.shape[1]), X.dtype)
    for lo in range(0, rows.size, READ_ROWS):
        out[lo : lo + READ_ROWS] = X[rows[lo : lo + READ_ROWS]]
        progress("reading", min(lo + READ_ROWS, rows.size), rows.size)
    return out


# ---------------------------------------------------------------------- trees


@dataclass(frozen=True, eq=False)
class Listing:
    """Latents of a hierarchy, in preorder, and which of them are concepts."""

    latent: Ints
    concept: NDArray[np.bool_]
    min_size: int  #: fewest points of a concept


def list_latents(forest: Forest, min_size: int, below: int | None = None) -> Listing:
    """Return the latents of a forest to show, or those below one of its latents, itself included.

    All of them if there are few. Otherwise concepts, whose least size is doubled until there are few enough.
    """
    first, end = (0, forest.n_latents) if below is None else (below, forest.descendants(below).stop)
    least = min_size
    while True:
        concepts = forest.concepts(least, 1)
        concepts = concepts[(concepts >= first) & (concepts < end)]
        if concepts.size <= MOST_CONCEPTS:
            break
        least *= 2
    if end - first <= MOST_LISTED:
        latent = np.arange(first, end)
        return Listing(latent, np.isin(latent, concepts), least)
    latent = concepts if below is None else np.union1d(concepts, [below])
    return Listing(latent, np.ones(latent.size, np.bool_), least)


def tree_columns(truth: Truth, listing: Listing) -> dict[str, Any]:
    """Return the listed latents as columns."""
    forest, latent = truth.forest, listing.latent
    return {
        "latent": latent,
        "start": forest.latent_start[latent],
        "size": forest.latent_size[latent],
        "depth": forest.latent_depth[latent],
        "z": np.asarray(truth.latent_z[latent], np.float32),
        "concept": listing.concept,
        "min_size": listing.min_size,
        "n_rows": forest.n_points,
        "n_latents": forest.n_latents,
        "n_clusters": forest.n_clusters,
        "cluster_start": forest.cluster_start[: np.count_nonzero(forest.cluster_size > 1) + 1],
    }


def seen_alone(forest: Forest, listing: Listing) -> Ints:
    """Return the latents that get their own components, the largest first."""
    chosen = forest.concepts(max(listing.min_size, FEWEST_SEEN), VIEW_RATIO)
    chosen = chosen[forest.latent_size[chosen] < forest.n_points]
    return chosen[np.argsort(-forest.latent_size[chosen], kind="stable")]


# ---------------------------------------------------------------------- principal components


def in_steps(places: Floats) -> tuple[NDArray[np.uint16], Floats, Floats]:
    """Return coordinates (n, 3) as integer steps, column after column, with each column's minimum and step size."""
    low = places.min(axis=0, initial=np.inf) if len(places) else np.zeros(AXES)
    high = places.max(axis=0, initial=-np.inf) if len(places) else np.zeros(AXES)
    step = np.where(high > low, (high - low) / STEPS, 1.0)
    return np.rint((places - low) / step).astype(np.uint16).T.ravel(), low, step


def components(sets: Iterable[tuple[int, int, NDArray[Any]]]) -> dict[str, Any]:
    """Return the components of sets of points (factor, latent, X), as sent to the page; latent -1 means all points.

    `scale` has nine numbers per set: the minimum, the step and the variance share of each component.
    """
    names, counts, scales, values = [], [], [], []
    for factor, latent, X in sets:
        places, share = principal_components(X, AXES)
        steps, low, step = in_steps(places)
        names.append((factor, latent))
        counts.append(len(X))
        scales.append(np.concatenate([low, step, share]))
        values.append(steps)
    factors, latents = np.array(names, np.int64).T
    columns = {"factor": factors, "latent": latents, "first": np.cumsum([0, *counts[:-1]]), "count": np.array(counts)}
    return columns | {"scale": np.concatenate(scales), "values": np.concatenate(values)}


def sets_that_fit(
    X: NDArray[Any], sets: Sequence[tuple[int, int, Ints]], most_rows: int, progress: Progress
) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Yield all points, then those sets of points (factor, latent, rows of X), in order, for which there is room."""
    yield 0, -1, X
    used = len(X)
    for i, (factor, latent, rows) in enumerate(sets):
        if used + rows.size <= most_rows:
            used += rows.size
            yield factor, latent, X[rows]
        progress("components", i + 1, len(sets))


# ---------------------------------------------------------------------- parts


def _sets(truths: list[Truth], listings: list[Listing], samples: Ints) -> list[tuple[int, int, Ints]]:
    """Return the latents that get their own components, with their points among the drawn ones."""
    sets = []
    for k, (known, listing) in enumerate(zip(truths, listings, strict=True)):
        rows = known.rows[samples]
        order = np.argsort(rows, kind="stable")
        for latent in seen_alone(known.forest, listing).tolist():
            inside = known.forest.points_of(latent)
            lo, hi = np.searchsorted(rows[order], [inside.start, inside.stop])
            if hi - lo >= FEWEST_SEEN:
                sets.append((k, latent, np.sort(order[lo:hi])))
    return sorted(sets, key=lambda entry: -entry[2].size)


def _columns(subject: Subject, samples: Ints, X: NDArray[Any]) -> list[dict[str, Any]]:
    """Return y and, if there is a network, its prediction and error; for sequences of labels, the first level."""
    y = _flat(np.asarray(subject.dataset.y[samples]))
    labels = y.dtype.kind in "iu"
    kind = "label" if labels else "number"
    columns = [{"name": "y", "kind": kind, "values": y if labels else y.astype(np.float32)}]
    prediction = subject.prediction
    if prediction is not None:
        guess = _flat(np.asarray(prediction(X) if callable(prediction) else prediction[samples]))
        error = (guess != y).astype(np.float32) if labels else (guess - y).astype(np.float32)
        columns.append({"name": "prediction", "kind": kind, "values": guess if labels else guess.astype(np.float32)})
        columns.append({"name": "error", "kind": "wrong" if labels else "number", "values": error})
    return columns


def _flat(values: NDArray[Any]) -> NDArray[Any]:
    return values[:, 0] if values.ndim > 1 else values


def _lead(dataset: AnyDataset) -> str:
    """Return a description of the dataset in one line."""
    n, dim = dataset.X.shape
    if isinstance(dataset, Superposed):
        return f"{n:,} samples in {dim} dimensions, {len(dataset.factors)} hierarchies added"
    forest = dataset.forest
    return f"{n:,} points in {dim} dimensions, {counted(forest.n_clusters, 'cluster')}, {forest.n_latents:,} latents"


def _about(dataset: AnyDataset, factor: int) -> dict[str, Any]:
    """Return the title of a tree, and whether y depends on it."""
    if not isinstance(dataset, Superposed):
        return {"title": "Tree of concepts: smaller ones lie inside larger ones", "relevant": True, "weight": ""}
    relevant = factor in dataset.relevant
    weights = dataset.weights
    weight = "in a product" if weights is None else f"weight {weights[factor]:g}"
    said = f"relevant to y ({weight})" if relevant else "irrelevant to y"
    return {"title": f"Factor {factor}: {said}", "relevant": relevant, "weight": weight if relevant else ""}
