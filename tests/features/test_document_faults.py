"""Plausible wrong ways to judge documents, planted one at a time: the oracle must notice each."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from features_oracle import DocumentOracle, differing, document_scenario

from percolab.corpora.corpus import Corpus
from percolab.features import chance, concepts, inputs, scoring
from percolab.features import score as features_score

pytestmark = pytest.mark.slow

SEEDS = (0, 1, 2, 3, 4, 6, 7, 8, 9, 14, 17, 21, 24, 28)
FAULTS = {}


@pytest.fixture(scope="module")
def cases():
    made = []
    for seed in SEEDS:
        given, options = document_scenario(seed)
        oracle = DocumentOracle(*given, **options)
        assert oracle.tables  # computed now, before any fault
        made.append((given, options, oracle))
    return made


def fault(*columns):
    """Register a wrong version and the columns that must show it."""

    def keep(plant):
        FAULTS[plant.__name__] = (columns, plant)
        return plant

    return keep


REFUSED = "refused"  #: In place of the columns that differ.


def labels_through(patch, change):
    """Let the labels of all positions go through `change`, which also gets the corpus, the lexicon, what is asked."""
    real = inputs._of_documents
    patch.setattr(inputs, "_of_documents", lambda *given: change(real(*given), *given))


# ---------------------------------------------------------------------- who belongs


@fault("concepts.size", "concepts.f1")
def contexts_are_taken_for_rows(patch):
    def wrong(found, corpus, k, asked):
        if asked.about == "token":
            return found
        rows = np.append(found.forest.latent_start, -1)[found.label]
        return replace(
            found,
            label=rows,
            first=found.forest.latent_start,
            stop=found.forest.latent_start + found.forest.latent_size,
        )

    labels_through(patch, wrong)


@fault("concepts.size")
def an_interval_is_one_too_long(patch):
    labels_through(patch, lambda found, *given: replace(found, stop=found.stop + 1))


@fault("concepts.size")
def a_context_does_not_hold_itself(patch):
    labels_through(patch, lambda found, *given: replace(found, first=np.minimum(found.first + 1, found.stop)))


@fault("features.fired", "features.dense", "summary.l0")
def positions_without_a_context_are_no_rows(patch):
    find, decoder, kept = scoring.find_labels, scoring.check_decoder, None

    def fewer(*given):
        nonlocal kept
        labels = find(*given)
        kept = np.flatnonzero(labels.label >= 0)
        return labels.take(kept)

    def of_fewer(real):
        return lambda codes, *given: real(scoring.as_codes(codes.take(kept)), *given)

    def sliced(directions, bias, activations, shape):
        return decoder(directions, bias, None if activations is None else activations[kept], (kept.size, shape[1]))

    patch.setattr(scoring, "find_labels", fewer)
    patch.setattr(scoring, "check_decoder", sliced)
    for name in ("pack", "carried", "explained_variance"):
        patch.setattr(scoring, name, of_fewer(getattr(scoring, name)))


@fault("concepts.size")
def no_context_is_the_first_one(patch):
    labels_through(patch, lambda found, *given: replace(found, label=np.maximum(found.label, 0)))


@fault("concepts.size")
def lexicons_are_not_told_apart(patch):
    def wrong(found, corpus, k, asked):
        if asked.about == "token":
            return found
        of = corpus.beliefs(asked.documents.tokens).believed if asked.truth == "believed" else asked.documents.context
        return replace(found, label=np.minimum(of.ravel(), found.forest.n_latents - 1).astype(np.int64))

    labels_through(patch, wrong)


@fault("concepts.f1")
def truths_are_exchanged(patch):
    real, other = inputs._of_documents, {"true": "believed", "believed": "true"}
    patch.setattr(
        inputs, "_of_documents", lambda corpus, k, asked: real(corpus, k, replace(asked, truth=other[asked.truth]))
    )


@fault(REFUSED)
def tokens_are_taken_for_rows(patch):
    patch.setattr(Corpus, "token_ids", lambda self, k=0: np.arange(self.n_tokens, dtype=np.int32))


@fault(REFUSED)
def ids_are_those_of_the_first_lexicon(patch):
    real = Corpus.token_ids
    patch.setattr(Corpus, "token_ids", lambda self, k=0: real(self, 0))


# ---------------------------------------------------------------------- which concepts there are


@fault("concepts.latent")
def all_concepts_of_the_forest_are_asked_for(patch):
    labels_through(patch, lambda found, *given: replace(found, contexts=np.arange(found.forest.n_latents)))


@fault("concepts.latent")
def sizes_count_tokens(patch):
    def wrong(labels, size, min_size):
        return labels.contexts[labels.forest.latent_size[labels.contexts] >= min_size]

    patch.setattr(concepts, "_candidates", wrong)


@fault("concepts.latent")
def the_ratio_counts_tokens(patch):
    real = concepts.thinned
    patch.setattr(
        concepts, "thinned", lambda forest, latents, size, ratio: real(forest, latents, forest.latent_size, ratio)
    )


@fault("concepts.latent")
def copies_of_the_upper_concept_are_kept(patch):
    real = concepts.thinned

    def wrong(forest, latents, size, ratio):
        return real(forest, latents, size + 1e-9 * forest.latent_size, ratio)

    patch.setattr(concepts, "thinned", wrong)


@fault("concepts.summarised")
def what_holds_every_position_is_summarised(patch):
    real = concepts.find_concepts
    patch.setattr(
        "percolab.features.concepts.find_concepts",
        lambda *given: replace(found := real(*given), summarised=found.end > 0),
    )


@fault("concepts.cosine", "summary.cosine")
def a_direction_is_from_all_other_rows(patch):
    patch.setattr(concepts.Labels, "above", lambda self, latents: np.where(latents > 0, 0, -1))


# ---------------------------------------------------------------------- chance


@fault("concepts.chance", "summary.chance")
def rows_are_permuted_one_by_one(patch):
    real = scoring.chance

    def wrong(firing, truth, *given):
        return real(firing, replace(truth, labels=replace(truth.labels, place=None)), *given)

    patch.setattr(scoring, "chance", wrong)


@fault("concepts.chance")
def documents_are_one_position_longer(patch):
    labels_through(patch, lambda found, *given: replace(found, length=found.length + 1))


@fault("concepts.chance")
def one_order_for_all_features(patch):
    patch.setattr(chance, "_best_by_documents", chance._best_by_documents.py_func)
    real = chance.set_key
    patch.setattr(chance, "set_key", lambda seed, draw, feature: real(seed, draw, 0))


@fault("concepts.chance")
def places_of_rows_are_lost(patch):
    real = concepts.Labels.take
    patch.setattr(concepts.Labels, "take", lambda self, rows: replace(real(self, rows), place=np.arange(rows.size)))


# ---------------------------------------------------------------------- the tests


def wrong_columns(cases):
    noticed = []
    with np.errstate(all="ignore"):  # a fault may divide by nothing
        for given, options, oracle in cases:
            try:
                noticed.append(differing(features_score(*given, **options), oracle))
            except (ValueError, IndexError):
                noticed.append([REFUSED])  # tokens outside of their contexts, say
    return noticed


def test_without_a_fault_nothing_differs(cases):
    assert wrong_columns(cases) == [[]] * len(cases)


@pytest.mark.parametrize("name", FAULTS)
def test_the_oracle_notices(name, cases, monkeypatch):
    columns, plant = FAULTS[name]
    plant(monkeypatch)
    assert set(columns) <= set(itertools.chain.from_iterable(wrong_columns(cases)))
