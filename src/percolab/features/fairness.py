"""Scores that are fair to every method: chosen thresholds, AUC, one-to-one matches, directions, trees, probes.

All scores are about the same concepts over some rows: `Members` has the rows of each concept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import spearmanr

from percolab.features.concepts import Labels
from percolab.features.counting import even_ranges
from percolab.features.inputs import as_codes
from percolab.features.thresholds import GOOD
from percolab.ground.arrays import Floats, Ints
from percolab.ground.compiled import kernel
from percolab.ground.parallel import Task, run, thread_count

SHRINKAGE = 1e-3  #: Shrinkage of covariances, relative to their mean diagonal.
MOST_FITTED = 50_000  #: Rows that a linear reading is fitted on.


def sparse(codes: Any) -> scipy.sparse.csr_array:
    """Return codes of any kind as a SciPy array by rows."""
    return scipy.sparse.csr_array(as_codes(codes).take(slice(None)))


def choose_thresholds(
    members: Members, upper: Ints, counted: NDArray[np.bool_], codes: scipy.sparse.csr_array
) -> tuple[Floats, float]:
    """Return the threshold of each feature's best F1 on these rows, and the recovery with all these thresholds.

    Of all thresholds, the one with which the feature's best F1 over the counted concepts is largest; the lowest of
    equally good ones. Exact, in O(firings * (log firings + concepts over a row)). Recovery is over the counted
    concepts that have rows here.

    Parameters
    ----------
    members
        The rows of concepts in preorder.
    upper, counted
        (C,) the concept next above each, -1 for none; and whether it is counted.
    codes
        (n, features) the codes of the rows.
    """
    threads, columns = thread_count(None), codes.tocsc()
    columns.eliminate_zeros()
    for lo, hi in pairwise(columns.indptr):
        falling = np.argsort(-columns.data[lo:hi])
        columns.data[lo:hi], columns.indices[lo:hi] = columns.data[lo:hi][falling], columns.indices[lo:hi][falling]
    innermost = np.full(codes.shape[0], -1)
    for c in range(upper.size):  # in preorder, so that the concepts inside come later
        innermost[members.rows(c)] = c
    chosen = np.zeros(codes.shape[1])
    tree = upper, members.size, counted
    tasks: list[Task] = [
        (_best_thresholds, (*ends, columns.indptr, columns.indices, columns.data, innermost, *tree, chosen))
        for ends in even_ranges(codes.shape[1], threads)
    ]
    run(tasks, threads)
    f1 = Counts.of(codes, chosen, members).f1.max(1)
    return chosen, float(f1[counted & (members.size > 0)].mean())


@kernel
def _best_thresholds(lo, hi, first, row, code, innermost, upper, size, counted, chosen):
    """Write the best threshold of features `lo` to `hi`, whose codes fall, by lowering it from code to code.

    F1 with a concept rises only when a row of the concept is let in, so no other F1 needs to be computed.
    """
    hits = np.empty(size.size, np.int64)
    for f in range(lo, hi):
        at, end, best = first[f], first[f + 1], 0.0
        hits[:] = 0
        while at < end:
            stop = at
            while stop < end and code[stop] == code[at]:  # equal codes are let in together
                c = innermost[row[stop]]
                while c >= 0:
                    hits[c] += 1
                    c = upper[c]
                stop += 1
            for i in range(at, stop):
                c = innermost[row[i]]
                while c >= 0:
                    f1 = 2.0 * hits[c] / (stop - first[f] + size[c])
                    if counted[c] and f1 >= best:
                        best = f1
                        chosen[f] = code[stop] if stop < end else 0.0
                    c = upper[c]
            at = stop


@dataclass(frozen=True, eq=False)
class Members:
    """The rows of each concept, among some rows."""

    matrix: scipy.sparse.csr_array  #: (C, n) 1 where a row is in a concept

    @classmethod
    def of(cls, labels: Labels, latents: Ints) -> Members:
        """Return the rows of these latents."""
        start, stop = labels.intervals(latents)
        order = np.argsort(labels.label, kind="stable")
        rows = [order[lo:hi] for lo, hi in zip(start, stop, strict=True)]
        ends = np.cumsum([0, *map(len, rows)])
        parts = np.ones(ends[-1]), np.concatenate([np.empty(0, np.int64), *rows]), ends
        return cls(scipy.sparse.csr_array(parts, shape=(latents.size, len(labels))))

    @property
    def size(self) -> Ints:
        """(C,) number of rows."""
        return np.diff(self.matrix.indptr).astype(np.int64)

    def rows(self, c: int) -> Ints:
        """Return the rows of a concept."""
        return np.asarray(self.matrix.indices[self.matrix.indptr[c] : self.matrix.indptr[c + 1]])

    def means(self, values: Any) -> Floats:
        """Return (C, width) means of values over the rows of each concept."""
        total = self.matrix @ values
        dense = np.asarray(total.todense() if hasattr(total, "todense") else total, np.float64)
        return dense / np.maximum(self.size, 1)[:, None]


@dataclass(frozen=True, eq=False)
class Counts:
    """Hits of every feature in every concept."""

    hits: Floats  #: (C, F)
    fired: Floats  #: (F,)
    size: Ints  #: (C,)

    @classmethod
    def of(cls, codes: scipy.sparse.csr_array, threshold: Any, members: Members) -> Counts:
        """Return the counts of codes above the threshold of each feature."""
        fires = codes.copy()
        limit = np.broadcast_to(threshold, codes.shape[1:])
        fires.data = (codes.data > limit[codes.indices]).astype(np.float64)
        hits = np.asarray((members.matrix @ fires).todense())
        return cls(hits, np.asarray(fires.sum(0), np.float64).ravel(), members.size)

    @property
    def f1(self) -> Floats:
        """(C, F)."""
        return 2 * self.hits / np.maximum(self.fired + self.size[:, None], 1)

    @property
    def l0(self) -> float:
        """Firings of all features, over all rows."""
        return float(self.fired.sum())


def planted(
    codes: scipy.sparse.csr_array,
    threshold: Floats,
    members: Members,
    feature: Ints,
    shares: Sequence[float],
    seed: int,
) -> scipy.sparse.csr_array:
    """Return (n, C · shares) codes with a planted effect: each concept's feature, a share of its errors corrected.

    Of its firings outside the concept, and of the concept's rows where it is silent, each is corrected with the
    probability `share`; errors that are corrected at one share are corrected at all larger ones. Rows that are added
    get the feature's largest code, 1 if it never fires.
    """
    columns, rng = codes.tocsc(), np.random.default_rng(seed)
    rows: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    for c, f in enumerate(feature):
        at = slice(columns.indptr[f], columns.indptr[f + 1])
        fires = columns.data[at] > threshold[f]
        fired, code, inside = columns.indices[at][fires], columns.data[at][fires], members.rows(c)
        silent = np.setdiff1d(inside, fired)
        corrected_from = rng.random(fired.size + silent.size)
        right = np.isin(fired, inside)
        for share in shares:
            kept = right | (corrected_from[: fired.size] >= share)
            added = silent[corrected_from[fired.size :] < share]
            rows.append(np.concatenate([fired[kept], added]))
            values.append(np.concatenate([code[kept], np.full(added.size, code.max() if code.size else 1.0)]))
    ends = np.cumsum([0, *map(len, rows)])
    parts = np.concatenate(values), np.concatenate(rows), ends
    return scipy.sparse.csc_array(parts, shape=(codes.shape[0], len(rows))).tocsr()


def one_to_one(values: Floats, alone: float = 0.0) -> Floats:
    """Return the value of each row with its partner, a column, in the one-to-one matching with the largest sum.

    Rows are concepts, columns features, and values F1; or all are vectors, and values cosines. A row without a partner
    has the value `alone`.
    """
    row, column = linear_sum_assignment(values, maximize=True)
    matched = np.full(len(values), alone)
    matched[row] = values[row, column]
    return matched


def auc(values: Any, inside: Ints) -> float:
    """Return the probability that a row inside has a larger value than one outside, ties counted half.

    Only values other than 0 are sorted, since few features fire on a row.
    """
    n, m = values.size, inside.size
    if not 0 < m < n:
        return float("nan")
    fires = np.flatnonzero(values)
    member = np.isin(fires, inside, kind="table").astype(np.float64)
    _, place = np.unique(np.append(values[fires], 0), return_inverse=True)
    within = np.bincount(place, np.append(member, m - member.sum()))
    outside = np.bincount(place, np.append(1 - member, n - m - fires.size + member.sum()))
    # Not a product of BLAS, whose threads would wait for each other longer than it takes.
    return float((within * (np.cumsum(outside) - outside / 2)).sum() / (m * (n - m)))


def feature_auc(codes: scipy.sparse.csr_array, members: Members, feature: Ints) -> Floats:
    """Return the AUC of each concept, by the codes of its feature."""
    columns = codes.tocsc()
    return np.array([auc(columns[:, [int(f)]].toarray().ravel(), members.rows(c)) for c, f in enumerate(feature)])


# ---------------------------------------------------------------------- directions


def _cosines(a: Floats, b: Floats) -> Floats:
    a, b = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in (a, b))
    return np.asarray(a @ b.T)


def matched_cosines(a: Floats, b: Floats) -> Floats:
    """Return each vector's cosine with its partner in the best one-to-one matching; NaN without a partner."""
    return one_to_one(_cosines(a, b), alone=np.nan)


def mcc(a: Floats, b: Floats) -> float:
    """Return the mean cosine of two sets of vectors under the best one-to-one matching; NaN for an empty set.

    SAELens takes absolute cosines. The true directions of two siblings can be exact opposites, so here signs count.
    """
    return float(np.nanmean(matched_cosines(a, b))) if len(a) and len(b) else float("nan")


def stability(directions: Floats, again: Floats, purity: Floats, rows: Floats, seed: int) -> dict[str, float]:
    """Return how well two dictionaries of one method agree, what arbitrary rows give, and whether stable means true.

    Parameters
    ----------
    directions, again
        (F, d) and (G, d) decoder vectors of features that fire, from two seeds.
    purity
        (F,) the best F1 of each feature of the first dictionary.
    rows
        (n, d) activations about the method's bias. The null is the agreement of two random sets of as many rows.
    seed
        Seed of the null.
    """
    cosine = matched_cosines(directions, again)
    drawn = np.random.default_rng(seed).permutation(len(rows))
    null = mcc(rows[drawn[: len(directions)]], rows[drawn[len(directions) : len(directions) + len(again)]])
    known = np.isfinite(cosine)
    rank = spearmanr(cosine[known], purity[known]).statistic if np.unique(cosine[known]).size > 1 else np.nan
    return {"stability": mcc(directions, again), "stability_rows": null, "stability_purity": float(rank)}


def by_direction(directions: Floats, true: Floats, counts: Counts, known: Ints) -> dict[str, float]:
    """Return MCC, uniqueness, precision and recall of features' nearest true directions.

    They are those of SAELens, with signed cosines.

    Parameters
    ----------
    directions
        (F, d) decoder vectors.
    true
        (T, d) true directions.
    counts
        Hits of the features.
    known
        (T,) the concept of each true direction.
    """
    nearest = _cosines(directions, true).argmax(1)
    concept = known[nearest]
    hits = counts.hits[concept, np.arange(len(directions))]
    return {
        "mcc": mcc(directions, true),
        "uniqueness": np.unique(nearest).size / len(directions),
        "latent_precision": float((hits / np.maximum(counts.fired, 1)).mean()),
        "latent_recall": float((hits / np.maximum(counts.size[concept], 1)).mean()),
    }


def shrinkage(decoded: Floats, activations: Floats) -> float:
    """Return the mean ratio of the norms of reconstructions and activations, as in SAELens."""
    norm = np.linalg.norm(activations, axis=1)
    kept = norm > 1e-6
    return float((np.linalg.norm(decoded[kept], axis=1) / norm[kept]).mean()) if kept.any() else float("nan")


# ---------------------------------------------------------------------- linear readings


def _discriminant(centred: Floats, difference: Floats) -> Floats:
    """Return the inverse covariance of centred rows times a difference of means."""
    covariance = centred.T @ centred / len(centred)
    covariance[np.diag_indices_from(covariance)] += SHRINKAGE * covariance.trace() / len(covariance) + 1e-12
    return np.asarray(np.linalg.solve(covariance, difference), np.float64)


def discriminants(values: NDArray[Any], members: Members) -> Floats:
    """Return (d, C) linear discriminants: of each concept, the inverse covariance times its mean less the mean of all.

    A concept's linear reading of a row is the row's product with its discriminant.
    """
    mean = values.mean(0, dtype=np.float64)
    step = -(-len(values) // MOST_FITTED)
    return _discriminant(np.asarray(values[::step], np.float64) - mean, (members.means(values) - mean).T)


def reading_auc(readings: Floats, members: Members) -> Floats:
    """Return the AUC of every concept, by its (n,) column of readings."""
    return np.array([auc(readings[:, c], members.rows(c)) for c in range(readings.shape[1])])


def reading_edges(readings: Floats, members: Members, upper: Ints, recall: Floats) -> Floats:
    """Return recall outside minus inside each concept, of the reading of the concept above it.

    The reading is a control for a feature: its threshold gives it the feature's recall on the concept above. NaN where
    there is no concept above.
    """
    edge = np.full(upper.size, np.nan)
    for u in map(int, np.unique(upper[upper >= 0])):
        if not np.isfinite(recall[u]):
            continue
        rows = members.rows(u)
        kept = np.zeros(rows.size, np.bool_)
        kept[np.argsort(-readings[rows, u], kind="stable")[: round(recall[u] * rows.size)]] = True
        for c in map(int, np.flatnonzero(upper == u)):
            below = np.isin(rows, members.rows(c))
            if below.any() and not below.all():
                edge[c] = kept[~below].mean() - kept[below].mean()
    return edge


def sparse_probes(fit: tuple[Any, Members], test: tuple[Any, Members], counts: Sequence[int]) -> list[Floats]:
    """Return the AUC of linear discriminants of each concept, on the features whose means differ most inside it.

    Parameters
    ----------
    fit, test
        Codes and concepts of the rows that probes are fitted on, and of those they are scored on.
    counts
        Numbers of features of a probe; the areas of each number are one array.
    """
    codes, members = fit
    mean = np.asarray(codes.mean(0)).ravel()
    difference = members.means(codes) - mean
    order = np.argsort(-np.abs(difference), axis=1, kind="stable")[:, : max(counts)]
    columns, tested = codes.tocsc(), test[0].tocsc()
    areas = [np.full(len(difference), np.nan) for _ in counts]
    for c, best in enumerate(order):
        values, rows = columns[:, best].toarray() - mean[best], tested[:, best].tocsr()
        for area, count in zip(areas, counts, strict=True):
            weights = _discriminant(values[:, :count], difference[c, best[:count]])
            area[c] = auc(rows[:, :count] @ weights, test[1].rows(c))
    return areas


# ---------------------------------------------------------------------- trees


def tree_scores(parents: Any, f1: Floats, upper: Ints) -> dict[str, float]:
    """Return the agreement of a method's tree with the true one.

    A feature stands for the concept of its best F1, if that is 0.5 or more. Of the edges between two such features,
    `tree_edges` is the share whose upper end stands for the concept next above, `tree_ancestors` for any concept above;
    `tree_recall` is the share of the true edges that are among them.

    Parameters
    ----------
    parents
        (F,) the feature above each feature, -1 for none.
    f1
        (C, F) F1 of every concept and feature.
    upper
        (C,) the concept next above each.
    """
    above = np.asarray(parents, np.int64)
    if above.shape != f1.shape[1:] or (above >= f1.shape[1]).any() or (above < -1).any():
        raise ValueError(f"parents must be one number from -1 to {f1.shape[1] - 1} for each feature, got {above.shape}")
    concept = np.where(f1.max(0) >= GOOD, f1.argmax(0), -1)
    child = np.flatnonzero((above >= 0) & (concept >= 0))
    child = child[concept[above[child]] >= 0]
    lower, higher = concept[child], concept[above[child]]
    ancestor = np.zeros(child.size, np.bool_)
    at = upper[lower]
    while (at >= 0).any():
        ancestor |= (at == higher) & (at >= 0)
        at = np.where(at >= 0, upper[at], -1)
    direct = upper[lower] == higher
    true = np.count_nonzero(upper >= 0)
    named = np.unique(lower[direct]).size
    return {
        "tree_edges": float(direct.mean()) if child.size else float("nan"),
        "tree_ancestors": float(ancestor.mean()) if child.size else float("nan"),
        "tree_recall": named / true if true else float("nan"),
    }
