"""Features on the page: where each fires among the points that are drawn, and its score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.arrays import Ints, as_array
from percolab.ground.validation import indices

if TYPE_CHECKING:
    import scipy.sparse

#: Most bytes of firing points before compression, less the bytes of each further tree; the worst features are left out.
MOST_BYTES, BYTES_OF_TREE = 5_000_000, 1_000_000
LEVELS = 255  #: Levels of an activation, from 0 to the largest activation of its feature.
OF_CONCEPTS = ("f1", "chance", "f1_union", "absorption", "absorption_null", "absorption_edge", "cosine")
COUNTS_OF_CONCEPTS = ("best_feature", "k", "recovering")
OF_FEATURES = ("f1", "precision", "recall", "purity")


@dataclass(frozen=True, eq=False)
class Features:
    """Codes of some samples, and one score per hierarchy; only the tables of scores are used, see `features.Score`."""

    codes: scipy.sparse.csr_array  #: (codes, features), only entries that fire
    rows: Ints  #: the sample of each row of the codes, increasing
    order: Ints  #: the place of each of these rows in the codes as given
    scores: Sequence[Any]
    name: str


def above(codes: Any, threshold: float) -> scipy.sparse.csr_array:
    """Return codes, an array or a tensor of any kind, as a sparse array of the entries above the threshold."""
    import scipy.sparse

    matrix = scipy.sparse.csr_array(as_array(codes) if hasattr(codes, "detach") else codes)
    matrix.data = np.where(matrix.data > threshold, matrix.data, 0)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def levels(values: NDArray[Any], top: Any) -> NDArray[np.uint8]:
    """Return activations in levels up to the largest of their feature; a firing entry has at least level 1."""
    return np.asarray(np.clip(np.rint(LEVELS * values / top), 1, LEVELS), np.uint8)


def gather(codes: Any, rows: Any, scores: Any, n_samples: int, n_trees: int, threshold: float, name: str) -> Features:
    """Return codes and scores of a dataset, or say what is wrong with them."""
    matrix = above(codes, threshold)
    if rows is None and matrix.shape[0] != n_samples:
        raise ValueError(f"codes must have a row for each of the {n_samples} rows, got {matrix.shape[0]}")
    where = np.arange(n_samples) if rows is None else indices("rows", rows, n_samples)
    if where.shape != matrix.shape[:1]:
        raise ValueError(f"rows must name the row of each of the {matrix.shape[0]} rows of the codes, got {where.size}")
    per_tree = list(scores) if isinstance(scores, list | tuple) else [scores]
    if len(per_tree) != n_trees or any(score is None for score in per_tree):
        raise ValueError(f"scores must be one for each of {n_trees} hierarchies, got {len(per_tree)}")
    for score in per_tree:
        if len(score.features) != matrix.shape[1]:
            rule = f"scores must be of the {matrix.shape[1]} features of the codes"
            raise ValueError(f"{rule}, got {len(score.features)} features")
    samples, order = np.unique(where, return_index=True)
    return Features(matrix, samples, order, per_tree, name)


def columns(features: Features, samples: Ints) -> dict[str, Any]:
    """Return the features that fit on the page, the best matches first, over increasing samples."""
    place = features.order[np.searchsorted(features.rows, samples)]
    table = features.codes[place].tocsc()
    table.sort_indices()
    best = np.max([score.features["f1"].to_numpy() for score in features.scores], axis=0)
    count = np.diff(table.indptr)
    order = np.lexsort((np.arange(best.size), -best))
    order = order[count[order] > 0]
    room = max(MOST_BYTES - BYTES_OF_TREE * (len(features.scores) - 1), BYTES_OF_TREE)
    shown = order[np.cumsum(2 * count[order]) <= room]
    pieces = [table.indices[table.indptr[f] : table.indptr[f + 1]] for f in shown]
    values = [table.data[table.indptr[f] : table.indptr[f + 1]] for f in shown]
    top = np.array([part.max() for part in values], np.float32)
    return {
        "name": features.name,
        "total": best.size,
        "shown": shown,
        "count": count[shown],
        "top": top,
        "gaps": varints(np.concatenate([np.diff(part, prepend=0) for part in pieces]) if pieces else np.empty(0, int)),
        "levels": levels(np.concatenate([np.empty(0), *values]), np.repeat(top, count[shown])),
        "fired": features.scores[0].features["fired"].to_numpy(),
        "rows": features.rows.size,
    }


def score_columns(features: Features, factor: int, samples: Ints) -> dict[str, Any]:
    """Return one hierarchy's scores of concepts and of features, and which points are absorbed."""
    score = features.scores[factor]
    concepts, matches = score.concepts, score.features
    taken = {"latent": concepts["latent"].to_numpy(), "recovered": score.summary["recovered"]}
    taken |= {name: concepts[name].to_numpy().astype(np.float32) for name in OF_CONCEPTS}
    taken |= {name: concepts[name].to_numpy() for name in COUNTS_OF_CONCEPTS}
    of_features = {name: matches[name].to_numpy().astype(np.float32) for name in OF_FEATURES}
    place = features.order[np.searchsorted(features.rows, samples)]
    absorbed = np.asarray(score.absorbed_from)[place]
    return {"concepts": taken, "features": of_features | {"latent": matches["latent"].to_numpy()}, "absorbed": absorbed}


def varints(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Return non-negative numbers as bytes: seven bits each, the lowest first; the highest bit means "more"."""
    left = np.asarray(numbers, np.uint64)
    length = np.ones(left.size, np.int64)
    for bits in range(7, 35, 7):
        length += left >= 1 << bits
    first = np.cumsum(length) - length
    out = np.empty(int(length.sum()), np.uint8)
    for i in range(int(length.max(initial=0))):
        here = length > i
        more = (length[here] > i + 1).astype(np.uint64) << np.uint64(7)
        out[first[here] + i] = ((left[here] >> np.uint64(7 * i)) & np.uint64(127)) | more
    return out
