"""Plausible wrong versions of every column of a score, planted one at a time: the oracle must notice each.

Kernels run here as plain Python, so that what they call and the constants they use can be exchanged.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from features_oracle import Oracle, differing, scenario

from percolab.features import (
    absorption,
    chance,
    concept_splitting,
    concepts,
    counting,
    directions,
    pairs,
    result,
    scoring,
)
from percolab.features import score as features_score
from percolab.features.firing import decode
from percolab.model import latent_groups as model

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 4, 5, 7, 10, 11, 14, 17, 22)


@pytest.fixture(scope="module")
def cases():
    """Scenarios that are different enough, each with what the oracle says of it."""
    found = []
    for seed in SEEDS:
        forest, codes, rows, options = scenario(seed, n=120)
        options.setdefault("directions", np.ones((codes.shape[1], 2)))
        options.setdefault("activations", np.random.default_rng(seed).normal(size=(len(codes), 2)))
        codes[: len(codes) // 2, -1], codes[len(codes) // 2 :, -1] = 1, 0  # on half of the rows, or just below
        oracle = Oracle(forest, codes, rows, **options)
        assert oracle.tables  # computed now, before any fault
        found.append(((forest, codes, rows), options, oracle))
    return found


FAULTS = {}


def fault(*columns):
    """Register a wrong version and the columns that must show it."""

    def keep(plant):
        FAULTS[plant.__name__] = (columns, plant)
        return plant

    return keep


def as_python(patch, module, *names):
    for name in names:
        patch.setattr(module, name, getattr(module, name).py_func)


def changed(patch, module, name, change):
    """Let a function's result go through `change`."""
    real = getattr(module, name)
    patch.setattr(module, name, lambda *given, **options: change(real(*given, **options), *given))


def column(name, change):
    """Return a change of one column in a dict of columns."""
    return lambda found, *given: found | {name: change(found, *given)}


# ---------------------------------------------------------------------- which concepts there are


@fault("concepts.latent")
def sizes_count_rows_that_are_not_there(patch):
    patch.setattr(model, "_present", lambda forest, rows: (forest.latent_size, forest.left_size))


@fault("concepts.latent")
def one_large_child_is_enough(patch):
    patch.setattr(model.np, "minimum", np.maximum)


@fault("concepts.latent")
def ratio_is_of_the_nearest_concept_kept_or_not(patch):
    def wrong(forest, latents, size, ratio):
        above = model.nearest_above(forest, latents)
        return (above < 0) | (size[latents] <= ratio * size[above])

    patch.setattr(concepts, "thinned", wrong)


@fault("concepts.upper")
def upper_is_the_parent(patch):
    change = column("upper", lambda found, firing, truth, *rest: truth.labels.forest.latent_parent[found["latent"]])
    changed(patch, scoring, "_concept_columns", change)


@fault("concepts.summarised", "summary.concepts", "summary.recovery")
def the_top_is_summarised(patch):
    changed(patch, concepts, "find_concepts", lambda found, *given: replace(found, summarised=found.end > 0))
    patch.setattr("percolab.features.concepts.find_concepts", concepts.find_concepts)


@fault("concepts.size")
def size_is_of_the_forest(patch):
    change = column("size", lambda found, firing, truth, *rest: truth.labels.forest.latent_size[found["latent"]])
    changed(patch, scoring, "_concept_columns", change)


@fault("concepts.depth")
def depth_counts_from_one(patch):
    plain = scoring._result
    patch.setattr(scoring, "_result", lambda columns, *given: plain(columns | {"depth": columns["depth"] + 1}, *given))


@fault("concepts.fom")
def figure_of_merit_by_the_rows_there(patch):
    change = column("fom", lambda found, firing, truth, *rest: found["size"] / np.sqrt(firing.n_rows))
    changed(patch, scoring, "_concept_columns", change)


# ---------------------------------------------------------------------- matches


def match_with(patch, score_f1):
    as_python(patch, counting, "_match")
    patch.setattr(counting, "score_f1", score_f1)


@fault("concepts.f1", "features.f1", "features.purity", "summary.recovery", "summary.purity", "summary.recovered")
def jaccard_for_f1(patch):
    def wrong(fired, size, start, stop, below, hits, f1):
        hits[:] = below[stop] - below[start]
        f1[:] = hits / (fired + size - hits)

    match_with(patch, wrong)


@fault("concepts.f1", "concepts.best_feature", "features.latent", "features.recall")
def precision_for_f1(patch):
    def wrong(fired, size, start, stop, below, hits, f1):
        hits[:] = below[stop] - below[start]
        f1[:] = hits / fired

    match_with(patch, wrong)


@fault("concepts.best_feature")
def ties_go_to_the_highest_feature(patch):
    def wrong(found, firing, truth, threads):
        count = firing.fired.size
        columns = {f: np.empty(firing.fired[f], np.int32) for f in range(count)}
        for f, own in columns.items():
            decode(f, firing, own)
        last = [max(g for g in range(count) if np.array_equal(columns[g], columns[f])) for f in range(count)]
        return replace(found, feature=np.array([f if f < 0 else last[f] for f in found.feature]))

    changed(patch, scoring, "match", wrong)


@fault("features.latent", "features.precision", "features.recall")
def ties_go_to_the_highest_latent(patch):
    def wrong(found, firing, truth, threads):
        size, at = truth.concepts.size, found.concept.copy()
        for f, c in enumerate(found.concept):
            hits = counting.count_pairs(firing, np.full(size.size, f), truth.concepts.start, truth.concepts.stop)
            equal = np.flatnonzero(2.0 * hits / (firing.fired[f] + size) == found.feature_f1[f])
            at[f] = equal[-1] if c >= 0 else -1
        start, stop = truth.concepts.start[at], truth.concepts.stop[at]
        hits = counting.count_pairs(firing, np.where(at < 0, -1, np.arange(at.size)), start, stop)
        return replace(found, concept=at, feature_hits=hits)

    changed(patch, scoring, "match", wrong)


@fault("features.fired", "concepts.f1", "summary.l0")
def firing_is_above_or_equal(patch):
    patch.setattr(
        scoring, "check_threshold", lambda threshold, n: np.broadcast_to(np.asarray(threshold) - 0.5, n) + 0.0
    )


@fault("features.dead", "summary.dead", "summary.purity")
def nothing_is_dead(patch):
    changed(patch, scoring, "_feature_columns", column("dead", lambda found, *given: found["fired"] < 0))


@fault("features.dense", "summary.dense")
def half_of_the_rows_is_dense(patch):
    change = column("dense", lambda found, firing, *rest: 2 * found["fired"] >= firing.n_rows)
    changed(patch, scoring, "_feature_columns", change)


@fault("features.feature")
def features_count_from_one(patch):
    changed(patch, scoring, "_feature_columns", column("feature", lambda found, *given: found["feature"] + 1))


@fault("features.precision", "features.recall")
def precision_and_recall_exchanged(patch):
    exchange = {"precision": "recall", "recall": "precision"}
    changed(
        patch, scoring, "_feature_columns", lambda found, *given: found | {a: found[b] for a, b in exchange.items()}
    )


@fault("features.purity", "summary.purity")
def purity_counts_the_top(patch):
    changed(patch, scoring, "_feature_columns", column("purity", lambda found, *given: found["f1"]))


# ---------------------------------------------------------------------- chance


@fault("concepts.chance", "summary.chance")
def chance_is_the_best_draw(patch):
    changed(patch, scoring, "chance", lambda found, *given: np.repeat(found.max(0, keepdims=True), 2, axis=0))


@fault("concepts.chance")
def one_permutation_for_all_features(patch):
    as_python(patch, chance, "_best_by_rows")
    real = chance.set_key
    patch.setattr(chance, "set_key", lambda seed, draw, feature: np.uint64(real(seed, draw, 0)))


@fault("concepts.chance")
def rows_are_not_permuted(patch):
    def wrong(fired, truth, draws, seed, threads):
        return np.repeat(scoring_match.f1[None], draws, axis=0)

    scoring_match = None
    real = scoring.match

    def remember(*given):
        nonlocal scoring_match
        scoring_match = real(*given)
        return scoring_match

    patch.setattr(scoring, "match", remember)
    patch.setattr(scoring, "chance", wrong)


# ---------------------------------------------------------------------- splitting


def grow_with_raise(patch, least):
    as_python(patch, concept_splitting, "_grow", "_grow_together", "_wins")
    patch.setattr(concept_splitting, "LEAST_RAISE", least)
    patch.setattr(pairs, "LEAST_RAISE", least)


@fault("concepts.k", "concepts.f1_union", "summary.splitting", "summary.f1_union")
def unions_grow_by_any_raise(patch):
    grow_with_raise(patch, 1e-6)


@fault("concepts.k", "concepts.f1_union")
def unions_want_a_large_raise(patch):
    grow_with_raise(patch, 0.05)


@fault("concepts.k", "concepts.f1_union")
def unions_take_the_first_that_raises(patch):
    as_python(patch, concept_splitting, "_grow", "_grow_together")
    real = concept_splitting._wins
    patch.setattr(concept_splitting, "_wins", lambda new, f1, best: best == f1 and real(new, f1, best))


@fault("concepts.f1_union")
def unions_ignore_rows_outside(patch):
    as_python(patch, concept_splitting, "_grow", "_grow_together")
    real = concept_splitting.new_in
    patch.setattr(concept_splitting, "new_in", lambda u, f, lo, hi, *rest: 0 if lo == 0 else real(u, f, lo, hi, *rest))


@fault("concepts.f1_union")
def rows_held_twice_count_twice(patch):
    as_python(patch, concept_splitting, "_grow", "_grow_together", "_new_below", "new_in")
    bits = concept_splitting.bits
    patch.setattr(bits, "count_outside", lambda words, other, lo, hi: bits.count(words, lo, hi))
    patch.setattr(bits, "has", lambda words, p: False)


@fault("concepts.k")
def a_concept_without_a_feature_takes_one(patch):
    changed(patch, scoring, "unions", lambda found, *given: (np.maximum(found[0], 1), found[1]))


@fault("summary.split")
def split_is_of_all_concepts(patch):
    changed(patch, scoring, "concept_means", lambda found, table: found | {"split": result.mean(table["k"] > 1)})


# ---------------------------------------------------------------------- absorption


@fault("concepts.absorption_edge", "summary.absorption_edge")
def edges_inside_minus_outside(patch):
    changed(patch, scoring, "on_edges", lambda found, *given: -found)


@fault("concepts.absorption_edge")
def edges_by_the_lower_concepts_feature(patch):
    def wrong(firing, concepts_, matches):
        swapped = matches.feature.copy()
        for c, above in enumerate(concepts_.upper):
            if above >= 0:
                swapped[above] = matches.feature[c]
        hits = counting.count_pairs(firing, swapped, concepts_.start, concepts_.stop)
        return real(firing, concepts_, replace(matches, feature=swapped, hits=hits))

    real = scoring.on_edges
    patch.setattr(scoring, "on_edges", wrong)


@fault("concepts.absorption_edge")
def edges_compare_with_all_rows_above(patch):
    def wrong(found, firing, concepts_, matches):
        size, upper = concepts_.size, concepts_.upper
        inside = counting.count_pairs(
            firing, np.where(upper < 0, -1, matches.feature[upper]), concepts_.start, concepts_.stop
        )
        return np.where(np.isnan(found), np.nan, matches.hits[upper] / size[upper] - inside / size)

    changed(patch, scoring, "on_edges", wrong)


@fault("summary.absorption_edge")
def edges_to_the_top_are_summarised(patch):
    patch.setattr(scoring, "summarised", lambda table, n_rows: table[table["summarised"]])


@fault("concepts.absorption", "concepts.absorption_null", "summary.absorption")
def absorbers_may_be_as_large(patch):
    patch.setattr(absorption, "_first_twice_as_large", lambda upper, size: upper)


@fault("concepts.absorption")
def poor_features_absorb(patch):
    as_python(patch, pairs, "_write_pairs")
    patch.setattr(pairs, "GOOD", 0.2)


@fault("concepts.absorption")
def absorption_of_poor_concepts_too(patch):
    patch.setattr(absorption, "GOOD", 0.2)


@fault("concepts.absorption")
def no_concept_is_absorbed_from(patch):
    patch.setattr(absorption, "_first_twice_as_large", lambda upper, size: np.full_like(upper, -1))


@fault("concepts.absorption_null", "summary.absorption_null")
def a_concepts_own_feature_counts_as_its_absorber(patch):
    as_python(patch, absorption, "_covered_by_own")
    real = absorption._covered_by_own

    def wrong(*given):
        real(*given)
        given[-1][:] = given[-2]

    patch.setattr(absorption, "_covered_by_own", wrong)


@fault("concepts.absorption_null")
def the_null_is_a_sum(patch):
    def wrong(found, firing, concepts_, matches, *others):
        absorbed, null = found
        silent = (concepts_.size - matches.hits) / concepts_.size
        return absorbed, np.where(silent > 0, silent + null / np.where(silent > 0, silent, 1), null)

    changed(patch, scoring, "on_rows", wrong)


# ---------------------------------------------------------------------- directions


@fault("concepts.absorption_carried", "summary.absorption_carried")
def absorbers_carry_all(patch):
    as_python(patch, directions, "_carried")
    patch.setattr(directions, "CARRIED", 0.9)


@fault("concepts.absorption_carried")
def any_feature_carries(patch):
    as_python(patch, directions, "_carried")
    patch.setattr(directions, "place", lambda lowest, lo, hi, c: lo)


@fault("concepts.absorption_carried")
def a_negative_sum_is_carried(patch):
    real = directions._carried.py_func
    patch.setattr(directions, "CARRIED", -1e9)
    patch.setattr(directions, "_carried", real)


@fault("concepts.cosine", "summary.cosine")
def direction_from_all_other_rows(patch):
    def wrong(truth, activations):
        found = real(truth, activations)
        for c, own in enumerate(zip(truth.concepts.start, truth.concepts.stop, strict=True)):
            here = truth.order[slice(*own)]
            rest = np.delete(np.arange(truth.order.size), here)
            if rest.size and not np.isnan(found[c, 0]):
                found[c] = activations[here].mean(0) - activations[rest].mean(0)
        return found

    real = scoring.concept_directions
    patch.setattr(scoring, "concept_directions", wrong)


@fault("concepts.cosine")
def tops_have_a_direction(patch):
    changed(patch, scoring, "concept_directions", lambda found, *given: np.nan_to_num(found, nan=1.0))


@fault("concepts.cosine")
def vectors_are_not_normed(patch):
    def wrong(vectors, own, feature):
        return np.where(feature < 0, np.nan, (vectors[feature] * own).sum(1))

    patch.setattr(scoring, "cosines", wrong)


@fault("summary.explained_variance")
def the_decoder_has_no_bias(patch):
    real = scoring.explained_variance
    patch.setattr(
        scoring, "explained_variance", lambda codes, vectors, bias, values: real(codes, vectors, 0 * bias, values)
    )


# ---------------------------------------------------------------------- redundancy and summaries


def count_recovered_from(patch, limit):
    as_python(patch, pairs, "_write_pairs")
    patch.setattr(pairs, "RECOVERED", limit)


@fault("concepts.recovering", "features.recovered", "summary.features_per_concept", "summary.concepts_per_feature")
def half_is_recovered(patch):
    count_recovered_from(patch, 0.5)


@fault("features.recovered")
def the_top_is_recovered(patch):
    as_python(patch, pairs, "_write_pairs")
    real = pairs._write_pairs
    patch.setattr(pairs, "_write_pairs", lambda *given: real(*given[:11], np.ones_like(given[11]), *given[12:]))


@fault("summary.recovered", "summary.pure", "summary.split")
def recovered_from_another_f1(patch):
    patch.setattr(result, "RECOVERED", 0.6)


@fault("summary.features")
def dead_features_are_not_counted(patch):
    changed(patch, scoring, "feature_means", lambda found, table: found | {"features": found["features"] - 1})


# ---------------------------------------------------------------------- the tests


def wrong_columns(cases):
    with np.errstate(all="ignore"):  # a fault may divide by nothing
        return [differing(features_score(*given, **options), oracle) for given, options, oracle in cases]


def test_without_a_fault_nothing_differs(cases):
    assert wrong_columns(cases) == [[]] * len(cases)


@pytest.mark.parametrize("name", FAULTS)
def test_the_oracle_notices(name, cases, monkeypatch):
    columns, plant = FAULTS[name]
    plant(monkeypatch)
    noticed = set(itertools.chain.from_iterable(wrong_columns(cases)))
    assert set(columns) <= noticed


def test_every_column_has_a_fault(cases):
    given, options, _ = cases[0]
    found = features_score(*given, **options)
    names = {f"concepts.{name}" for name in found.concepts} | {f"features.{name}" for name in found.features}
    names |= {f"summary.{name}" for name in found.summary}
    assert names == set(itertools.chain.from_iterable(columns for columns, _ in FAULTS.values()))
