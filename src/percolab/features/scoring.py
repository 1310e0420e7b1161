"""`score`: features of any method against the concepts of a forest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import StoredDocuments
from percolab.corpora.sampler import Documents
from percolab.features.absorption import Absorbers, deepest_latent, find_absorbers, on_edges, on_rows
from percolab.features.chance import chance
from percolab.features.concept_splitting import unions
from percolab.features.concepts import ConceptIntervals, Concepts, find_truth
from percolab.features.counting import Matches, match
from percolab.features.directions import carried, concept_directions, cosines, explained_variance
from percolab.features.firing import Firing, pack
from percolab.features.inputs import Asked, as_codes, check_decoder, check_threshold, find_labels
from percolab.features.pairs import Pairs, find_pairs
from percolab.features.result import Score, concept_means, feature_means, summarised
from percolab.features.thresholds import DENSE, MIN_SIZE, SUMMARY_RATIO
from percolab.ground.arrays import Floats
from percolab.ground.compiled import ahead
from percolab.ground.extras import needing
from percolab.ground.parallel import thread_count
from percolab.ground.progress import Progress, shown
from percolab.ground.validation import check_integer, check_seed
from percolab.model.latent_groups import check_ratio


def score(
    dataset: Any,
    codes: Any,
    rows: Any = None,
    factor: int | None = None,
    *,
    documents: Documents | StoredDocuments | None = None,
    about: str = "context",
    truth: str = "believed",
    min_size: int = MIN_SIZE,
    ratio: float = SUMMARY_RATIO,
    threshold: Any = 0.0,
    directions: Any = None,
    bias: Any = None,
    activations: Any = None,
    draws: int = 5,
    seed: int = 0,
    threads: int | None = None,
    progress: bool | Progress = False,
) -> Score:
    """Score features against concepts: recovery, purity, splitting, absorption, direction, redundancy.

    A *concept* is the top of a cluster of at least `min_size` rows, or a child of a latent both of whose children have
    that many. A feature *fires* where its code is above the threshold. A match is F1 = 2 hits / (fired + size) of a
    feature's firing rows against a concept's rows, exact counts, one division in float64; ties go to the lowest
    feature and the lowest latent. A concept is *recovered* where its best F1 is above 0.8.

    With a corpus, rows are positions: position t of document i is row i T + t. Concepts are the contexts of lexicon
    `factor` with at least `min_size` positions. A position belongs to a concept if its context lies inside it. A
    position without a believed context, or of another lexicon, belongs to no concept, but is a row like any other. For
    `chance` whole documents are permuted.

    Time is O(firings + features * concepts), some times over. Memory, beside the codes: 4 bytes per firing or one
    bit per cell, whichever is less; one block of features; and the pairs of a feature and a concept whose union it
    could extend. With directions, some tables of (concepts, d) numbers too.

    Parameters
    ----------
    dataset
        A `Dataset`, a `Forest`, anything with a ``forest``, a world of several factors, a `Corpus`, or documents
        of a store.
    codes
        (rows, features) activations of features, not negative: an array, a memory map, a torch tensor, a SciPy sparse
        array (of which formats other than CSR are copied). Tensors on a GPU are packed there. Of documents also
        (documents, positions, features).
    rows
        Row i of the codes is row ``rows[i]`` of the dataset; any order, repeats counted. None: all rows in order.
    factor
        The hierarchy of a world, or the lexicon of a corpus, where there are several.
    documents
        The documents of the codes, with a corpus; those of a store may be loaded or not.
    about
        "context" asks whether a position's context lies inside a concept, "token" whether its token is in the concept,
        over the same contexts.
    truth
        "believed" takes the deepest context that a perfect reader holds for more likely than not, "true" the one that
        the token was drawn from, which is not always knowable.
    min_size
        Fewest rows of a concept, at least 2; only rows that are given count.
    ratio
        Going down, a concept is listed if it has at most this share of the rows of the nearest listed concept above,
        and fewer rows. 1 lists all others. Summaries keep the listed concepts that the same rule with 2/3 keeps, and
        none that has all rows.
    threshold
        A number, or one for each feature, at least 0.
    directions
        (features, d) decoder vectors. Needs activations; gives `cosine` and `absorption_carried`, and, in the summary,
        the variance that codes @ directions + bias explains.
    bias
        (d,) bias of the decoder; 0 if None.
    activations
        (rows, d) the activations that the features were made from, in the order of the codes.
    draws
        Number of permutations of every feature's rows for `chance`.
    seed
        Seed of these permutations.
    threads
        None: all cores. The result does not depend on it.
    progress
        True shows a bar; a function is called with (stage, done, total).

    Returns
    -------
    Score
        Tables of concepts and of features, and their summary; `Score` says what the columns are.
    """
    if hasattr(dataset, "shape") and not hasattr(codes, "shape"):
        raise ValueError("dataset must come first, then codes, got them the other way round")
    workers = thread_count(threads)
    if isinstance(dataset, StoredDocuments):
        dataset, documents = dataset.corpus, dataset
    asked = Asked(documents, about, truth)
    n_draws, key = check_integer("draws", draws, 1), check_seed("seed", seed)
    with shown(progress) as tell:

        def done(stage: str) -> None:
            tell("scoring", STAGES.index(stage) + 1, len(STAGES))

        with ahead("features.scoring", threads=workers) as wait_for_kernels:
            table = as_codes(asked.flat("codes", codes))
            labels = find_labels(dataset, factor, rows, table.shape[0], asked)
            limit = check_threshold(threshold, table.shape[1])
            known = find_truth(labels, check_integer("min_size", min_size, 2), check_ratio(ratio))
            decoder = check_decoder(directions, bias, asked.flat("activations", activations), table.shape)
            firing = pack(table, known.order, limit, workers)
            if not firing.fired.any():
                raise ValueError(f"codes must be above the threshold somewhere, got none in {table.shape[1]} features")
            done("packing")
            matches = match(firing, known, workers)
            done("matching")
            drawn = chance(firing, known, n_draws, key, workers)
            done("chance")
            pairs = find_pairs(firing, known, matches, workers)
            depth = known.labels.forest.latent_depth[known.concepts.latent]
            wait_for_kernels()
        taken, reached = unions(firing, known.concepts, matches, pairs, workers)
        done("splitting")
        absorbers = find_absorbers(firing, known.concepts, pairs, workers)
        columns = _concept_columns(firing, known, matches, pairs, absorbers, workers)
        columns |= {"depth": depth, "chance": drawn.mean(axis=0), "k": taken, "f1_union": reached}
        done("absorption")
        extra = {"l0": float(firing.fired.sum() / firing.n_rows)}
        if decoder is not None:
            vectors, toward = decoder.directions, concept_directions(known, decoder.activations)
            columns["cosine"] = cosines(vectors, toward, matches.feature)
            columns["absorption_carried"] = carried(table, firing, known, matches, absorbers, vectors, toward)
            extra["explained_variance"] = explained_variance(table, vectors, decoder.bias, decoder.activations)
        done("directions")
        settings: dict[str, Any] = {"rows": firing.n_rows, "min_size": int(min_size), "ratio": float(ratio)}
        settings |= {"threshold": _plain(limit), "draws": n_draws, "seed": key}
        if documents is not None:
            settings |= {"about": about, "truth": truth}
        result = _result(columns, _feature_columns(firing, known, matches, pairs), drawn, extra, settings)
        return replace(result, absorbed_from=deepest_latent(absorbers, known.concepts, known.order))


def rehearse() -> None:
    """Call every kernel that `score` calls once pairs are found: each of two features fires on one of two rows."""
    zero, unit = np.zeros(1, np.int64), np.ones(1, np.int64)
    concepts = Concepts(zero, zero, 2 * unit, -unit, unit, np.ones(1, np.bool_))
    positions, words = np.arange(2, dtype=np.int32), np.empty((0, 1), np.uint64)
    firing = Firing(2, np.ones(2, np.int64), np.full(2, -1), np.arange(3), positions, words)
    matches = Matches(zero, unit * 2 / 3, unit, zero, unit * 2 / 3, unit, unit * 2 / 3)
    pairs = Pairs(np.array([[1, 0, 1]], np.int32), np.array([0, 1, 2]), np.zeros(2, np.int64), zero, zero)
    unions(firing, concepts, matches, pairs, 1)
    on_rows(firing, concepts, matches, find_absorbers(firing, concepts, pairs, 1), 1)


def _plain(threshold: Floats) -> float | list[float]:
    """Return one threshold if all features share it, otherwise the threshold of each."""
    return float(threshold[0]) if (threshold == threshold[0]).all() else list(map(float, threshold))


STAGES = ("packing", "matching", "chance", "splitting", "absorption", "directions")

CONCEPT_COLUMNS = (
    "latent", "size", "depth", "fom", "best_feature", "f1", "chance", "k", "f1_union", "absorption", "absorption_null",
    "absorption_edge", "absorption_carried", "cosine", "recovering", "upper", "summarised",
)  # fmt: skip


def _concept_columns(
    firing: Firing, truth: ConceptIntervals, matches: Matches, pairs: Pairs, absorbers: Absorbers, threads: int
) -> dict[str, NDArray[Any]]:
    concepts, forest = truth.concepts, truth.labels.forest
    absorbed, expected = on_rows(firing, concepts, matches, absorbers, threads)
    nothing = np.full(len(concepts), np.nan)
    return {
        "latent": concepts.latent,
        "size": concepts.size,
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


def _feature_columns(
    firing: Firing, truth: ConceptIntervals, matches: Matches, pairs: Pairs
) -> dict[str, NDArray[Any]]:
    concepts, best = truth.concepts, matches.concept
    matched = best >= 0
    hits = np.where(matched, matches.feature_hits, np.nan)
    return {
        "feature": np.arange(firing.fired.size),
        "fired": firing.fired,
        "dead": firing.fired == 0,
        "dense": firing.fired > DENSE * firing.n_rows,
        "latent": np.where(matched, concepts.latent[best], -1),
        "f1": matches.feature_f1,
        "precision": hits / np.maximum(firing.fired, 1),
        "recall": hits / concepts.size[best],
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
    with needing("tables need", "features"):
        import pandas
    concept_table = pandas.DataFrame({name: columns[name] for name in CONCEPT_COLUMNS})
    feature_table = pandas.DataFrame(features)
    counted = summarised(concept_table, settings["rows"])
    summary = {"concepts": float(len(counted))} | concept_means(counted) | feature_means(feature_table) | extra
    return Score(concept_table, feature_table, summary, drawn, settings)
