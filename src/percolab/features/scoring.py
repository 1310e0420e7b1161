"""`score`: features of any method against the concepts of a forest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.features.absorption import Absorbers, deepest_latent, find_absorbers, on_edges, on_rows
from percolab.features.chance import chance
from percolab.features.codes import Codes, DeviceCodes
from percolab.features.concepts import SUMMARY_RATIO, Concepts
from percolab.features.counting import Matches, match
from percolab.features.directions import carried, concept_directions, cosines, explained_variance
from percolab.features.firing import Firing, pack
from percolab.features.inputs import (
    Decoder,
    as_codes,
    check_decoder,
    check_ratio,
    check_rows,
    check_threshold,
    resolve,
)
from percolab.features.pairs import Pairs, find_pairs
from percolab.features.result import Score, concept_means, feature_means, summarised
from percolab.features.truth import Truth, find_truth
from percolab.features.union import unions
from percolab.ground.compiled import ahead
from percolab.ground.parallel import thread_count
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_integer, check_seed

Floats = NDArray[np.float64]


def score(
    dataset: Any,
    codes: Any,
    rows: Any = None,
    factor: int | None = None,
    *,
    min_size: int = 20,
    ratio: float = SUMMARY_RATIO,
    threshold: Any = 0.0,
    directions: Any = None,
    bias: Any = None,
    activations: Any = None,
    draws: int = 5,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Score:
    """Score features against concepts: recovery, purity, splitting, absorption, direction, redundancy.

    A *concept* is the top of a cluster of at least `min_size` rows, or a child of a latent both of whose children have
    that many. A feature *fires* where its code is above the threshold. A match is F1 = 2 hits / (fired + size) of a
    feature's firing rows against a concept's rows, exact counts, one division in float64; ties go to the lowest
    feature and the lowest latent. A concept is *recovered* where its best F1 is above 0.8.

    Time is O(firings + features * concepts), some times over. Memory, beside the codes: 4 bytes a firing or a bit a
    cell, whichever is less; one block of features; and the pairs of a feature and a concept that it could help to say.
    With directions, some tables of (concepts, d) numbers too.

    Parameters
    ----------
    dataset
        A `Dataset`, a `Forest`, anything with a ``forest``, or a world of several factors.
    codes
        (rows, features) activations of features, not negative: an array, a memory map, a torch tensor, a SciPy sparse
        array (of which formats other than CSR are copied). Tensors on a GPU are packed and matched there.
    rows
        Row i of the codes is row ``rows[i]`` of the dataset; any order, repeats counted. None: all rows in order.
    factor
        Which hierarchy of a world of several.
    min_size
        Fewest rows of a concept, at least 2; only rows that are given count.
    ratio
        Going down, a concept is listed if it has at most this share of the rows of the nearest listed one above.
        1 lists all. Summaries keep, of those listed, what the same rule with 2/3 keeps, and none that has all rows.
    threshold
        A number, or one for each feature, at least 0.
    directions
        (features, d) decoder vectors. Needs activations; gives `cosine` and `absorption_carried`, and, in the summary,
        the variance that codes @ directions + bias explains.
    bias
        (d,) what the decoder adds; 0 if None.
    activations
        (rows, d) what the features were made from, in the order of the codes.
    draws
        How many times every feature's rows are permuted for `chance`.
    seed
        Of these draws.
    threads
        None: all cores. The result does not depend on it.
    progress
        Called with (stage, done, total).

    Returns
    -------
    Score
        Tables of concepts and of features, and their summary; `Score` says what the columns are.
    """
    workers, stages = thread_count(threads), _Stages(progress or silent)
    forest, samples = resolve(dataset, factor)
    table = as_codes(codes)
    place = check_rows(rows, samples, forest, table.shape[0])
    limit = check_threshold(threshold, table.shape[1])
    decoder = check_decoder(directions, bias, activations, table.shape)
    least, share = check_integer("min_size", min_size, 2), check_ratio(ratio)
    n_draws, key = check_integer("draws", draws, 1), check_seed("seed", seed)
    with ahead("features.scoring", threads=workers) as wait_for_kernels:
        truth = find_truth(forest, place, least, share)
        firing, matches = _match(table, truth, limit, workers, stages)
        drawn = chance(firing.fired, truth, n_draws, key, workers)
        stages.done("chance")
        pairs = find_pairs(firing, truth, matches, workers)
        wait_for_kernels()
    taken, reached = unions(firing, truth.concepts, matches, pairs, workers)
    stages.done("splitting")
    absorbers = find_absorbers(firing, truth.concepts, pairs, workers)
    columns = _concept_columns(firing, truth, matches, pairs, absorbers, workers)
    columns |= {"chance": drawn.mean(axis=0), "k": taken, "f1_union": reached}
    stages.done("absorption")
    extra = {"l0": float(firing.fired.sum() / place.size)}
    if decoder is not None:
        columns |= _direction_columns(decoder, table, firing, truth, matches, absorbers)
        extra["explained_variance"] = explained_variance(table, decoder.directions, decoder.bias, decoder.activations)
    stages.done("directions")
    settings: dict[str, Any] = {"rows": place.size, "min_size": least, "ratio": share, "threshold": _plain(limit)}
    settings |= {"draws": n_draws, "seed": key}
    found = _result(columns, _feature_columns(firing, truth, matches, pairs), drawn, extra, settings)
    return replace(found, absorbed_from=deepest_latent(absorbers, truth.concepts, truth.order))


def rehearse() -> None:
    """Call every kernel that `score` calls once pairs are found: each of two features says one of two rows."""
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    concepts = Concepts(zero, zero, 2 * one, -one, one, np.ones(1, np.bool_))
    positions, words = np.arange(2, dtype=np.int32), np.empty((0, 1), np.uint64)
    firing = Firing(2, np.ones(2, np.int64), np.full(2, -1), np.arange(3), positions, words)
    matches = Matches(zero, one * 2 / 3, one, zero, one * 2 / 3, one, one * 2 / 3)
    pairs = Pairs(np.array([[1, 0, 1]], np.int32), np.array([0, 1, 2]), np.zeros(2, np.int64), zero, zero)
    unions(firing, concepts, matches, pairs, 1)
    on_rows(firing, concepts, matches, find_absorbers(firing, concepts, pairs, 1), 1)


def best_f1(
    dataset: Any,
    codes: Any,
    rows: Any = None,
    factor: int | None = None,
    *,
    min_size: int = 20,
    ratio: float = SUMMARY_RATIO,
    threshold: Any = 0.0,
    threads: int | None = None,
) -> Floats:
    """Return the best F1 of every concept that `score` lists, in its order, without the rest of the work."""
    forest, samples = resolve(dataset, factor)
    table = as_codes(codes)
    place = check_rows(rows, samples, forest, table.shape[0])
    limit = check_threshold(threshold, table.shape[1])
    truth = find_truth(forest, place, check_integer("min_size", min_size, 2), check_ratio(ratio))
    _, matches = _match(table, truth, limit, thread_count(threads), _Stages(silent))
    return matches.f1


def _plain(threshold: Floats) -> float | list[float]:
    """Return the threshold of all features, or that of each where they differ."""
    return float(threshold[0]) if (threshold == threshold[0]).all() else list(map(float, threshold))


STAGES = ("packing", "matching", "chance", "splitting", "absorption", "directions")


class _Stages:
    """Says which part of the work is done."""

    def __init__(self, report: Progress) -> None:
        self._report = report

    def done(self, stage: str) -> None:
        self._report("scoring", STAGES.index(stage) + 1, len(STAGES))


def _match(codes: Codes, truth: Truth, threshold: Floats, threads: int, stages: _Stages) -> tuple[Firing, Matches]:
    firing = pack(codes, truth.order, threshold, threads)
    if not firing.fired.any():
        raise ValueError(f"codes must be above the threshold somewhere, got none in {codes.shape[1]} features")
    stages.done("packing")
    matches = codes.match(firing, truth, threshold) if isinstance(codes, DeviceCodes) else match(firing, truth, threads)
    stages.done("matching")
    return firing, matches


CONCEPT_COLUMNS = (
    "latent", "size", "depth", "fom", "best_feature", "f1", "chance", "k", "f1_union", "absorption", "absorption_null",
    "absorption_edge", "absorption_carried", "cosine", "recovering", "upper", "summarised",
)  # fmt: skip


def _concept_columns(
    firing: Firing, truth: Truth, matches: Matches, pairs: Pairs, absorbers: Absorbers, threads: int
) -> dict[str, NDArray[Any]]:
    concepts, forest = truth.concepts, truth.forest
    absorbed, expected = on_rows(firing, concepts, matches, absorbers, threads)
    nothing = np.full(len(concepts), np.nan)
    return {
        "latent": concepts.latent,
        "size": concepts.size,
        "depth": forest.latent_depth[concepts.latent],
        "fom": forest.figure_of_merit[concepts.latent],
        "best_feature": matches.feature,
        "f1": matches.f1,
        "absorption": absorbed,
        "absorption_null": expected,
        "absorption_edge": on_edges(firing, concepts, matches),
        "absorption_carried": nothing,
        "cosine": nothing,
        "recovering": pairs.recovering,
        "upper": np.where(concepts.upper < 0, -1, concepts.latent[concepts.upper]),
        "summarised": concepts.summarised,
    }


def _direction_columns(
    decoder: Decoder, codes: Codes, firing: Firing, truth: Truth, matches: Matches, absorbers: Absorbers
) -> dict[str, NDArray[Any]]:
    u = concept_directions(truth, decoder.activations)
    return {
        "cosine": cosines(decoder.directions, u, matches.feature),
        "absorption_carried": carried(codes, firing, truth, matches, absorbers, decoder.directions, u),
    }


def _feature_columns(firing: Firing, truth: Truth, matches: Matches, pairs: Pairs) -> dict[str, NDArray[Any]]:
    concepts, found = truth.concepts, matches.concept
    matched = found >= 0
    hits = np.where(matched, matches.feature_hits, np.nan)
    return {
        "feature": np.arange(firing.fired.size),
        "fired": firing.fired,
        "dead": firing.fired == 0,
        "dense": 2 * firing.fired > firing.n_rows,
        "latent": np.where(matched, concepts.latent[found], -1),
        "f1": matches.feature_f1,
        "precision": hits / np.maximum(firing.fired, 1),
        "recall": hits / concepts.size[found],
        "purity": matches.purity,
        "recovered": pairs.recovered,
    }


def _result(
    columns: dict[str, NDArray[Any]],
    features: dict[str, NDArray[Any]],
    drawn: Floats,
    extra: dict[str, float],
    settings: dict[str, Any],
) -> Score:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tables need pandas: pip install 'percolab[features]'") from error
    concept_table = pandas.DataFrame({name: columns[name] for name in CONCEPT_COLUMNS})
    feature_table = pandas.DataFrame(features)
    counted = summarised(concept_table, settings["rows"])
    summary = {"concepts": float(len(counted))} | concept_means(counted) | feature_means(feature_table) | extra
    return Score(concept_table, feature_table, summary, drawn, settings)
