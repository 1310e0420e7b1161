"""Checks of corpora: how contexts and tokens are drawn, and whether beliefs are calibrated.

Each law is compared with the definition of a corpus, and not by drawing the documents again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.checks import verdicts
from percolab.checks.verdicts import Check, exact, p_of_counts, p_of_score, smallest, sound, statistical, too_small
from percolab.corpora.beliefs import Beliefs
from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import Corpus, misplaced
from percolab.corpora.sampler import Documents
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_shape

POSITIONS = 1 << 21  #: Most positions that are checked, in the first documents.
PREDICTED = 1 << 25  #: Probabilities of next tokens that are summed.
#: Most positions at which beliefs are compared with contexts, and most contexts per lexicon.
JUDGED, MOST_CONTEXTS = 1 << 19, 16
FEWEST = 1000  #: Least documents that statistical laws need.
RELATIVE_ROUNDING = 1e-9  #: Relative differences that are due to rounding.
LEAST_COUNT = 10  #: Least expected count of a cell of a chi-square test, after merging neighbours.


@dataclass(frozen=True, eq=False)
class Sample:
    """Documents of a corpus with the beliefs about them, either exact or read from a store."""

    corpus: Corpus
    documents: Documents
    beliefs: Beliefs

    @classmethod
    def of(cls, corpus: Corpus) -> Sample:
        """Return the first documents of a corpus."""
        documents = corpus.documents(0, -(-POSITIONS // corpus.length))
        return cls(corpus, documents, corpus.beliefs(documents.tokens))

    @classmethod
    def stored(cls, stored: StoredDocuments) -> Sample:
        """Return the first documents of a store, with the beliefs that it holds."""
        documents = stored.read(-(-POSITIONS // stored.corpus.length))
        names = ("floor", "believed", "believed_lexicon")
        said: dict[str, Any] = {name: np.asarray(getattr(stored, name)[: len(documents)]) for name in names}
        return cls(stored.corpus, documents, replace(stored.corpus.beliefs(documents.tokens), **said))


def checks(sample: Sample) -> Iterator[Check]:
    """Yield the checks of some documents; only the failed check of their structure if they do not fit the lexicons."""
    first = structure(sample)
    yield first
    if first.failed:
        return
    laws = [prior, renewal, tokens, unigram, floor, beliefs]
    for law in laws if len(sample.corpus.lexicons) == 1 else [shares, *laws]:
        yield law(sample)


# ---------------------------------------------------------------------- exact laws


def structure(sample: Sample) -> Check:
    """Check that contexts belong to the lexicon, hold their tokens, and stay unless they are renewed."""
    expected, corpus, documents = "every token is in its context", sample.corpus, sample.documents
    fits = sound(expected, lambda: _validate(corpus, documents), "", "documents")
    if fits.failed:
        return fits
    wrong = int(np.count_nonzero(~documents.renewed[:, 0]))
    wrong += int(np.count_nonzero((np.diff(documents.context) != 0) & ~documents.renewed[:, 1:]))
    wrong += misplaced(corpus, documents)
    note = f"{len(documents):,} documents of {corpus.length:,} tokens"
    return exact("documents", expected, f"{wrong:,} out of place", wrong, 0, note)


def remade(stored: StoredDocuments) -> Check:
    """Check that the first documents and beliefs of a store equal those that its recipe makes, to the bit."""
    n = min(len(stored), -(-POSITIONS // stored.corpus.length))
    columns = stored.recipe.part(0, n).columns()
    wrong = [name for name, column in columns.items() if not np.array_equal(getattr(stored, name)[:n], column)]
    measured = f"{', '.join(wrong)} differ" if wrong else "the same"
    return exact("recipe", "the same documents, to the bit", measured, len(wrong), 0, f"{n:,} documents")


def _validate(corpus: Corpus, documents: Documents) -> None:
    shape = (len(documents.number), corpus.length)
    for name in ("tokens", "context", "renewed"):
        check_shape(name, getattr(documents, name), shape)
    latents = np.array([corpus.forest(k).n_latents for k in range(len(corpus.lexicons))])
    _check_below("lexicon", documents.lexicon, len(corpus.lexicons))
    _check_below("tokens", documents.tokens, corpus.n_tokens)
    _check_below("context", documents.context, latents[documents.lexicon][:, None])


def _check_below(name: str, values: NDArray[np.int32], limit: int | Ints) -> None:
    outside = values[(values < 0) | (values >= limit)]
    if outside.size:
        raise ValueError(f"{name} must be one that there is, got {outside[0]}")


# ---------------------------------------------------------------------- draws


def shares(sample: Sample) -> Check:
    """Check that each lexicon has its share of the documents, and none if its share is 0."""
    chances = np.array(sample.corpus.shares)
    counts = np.bincount(sample.documents.lexicon, minlength=chances.size)
    return _counted("shares of lexicons", counts, chances * len(sample.documents), "documents by lexicon")


def prior(sample: Sample) -> Check:
    """Check that renewed contexts have their prior probabilities: they are independent, given the lexicons."""
    corpus, documents = sample.corpus, sample.documents
    counts, expected = [], []
    for k in range(len(corpus.lexicons)):
        of_lexicon = documents.lexicon == k
        drawn = documents.context[of_lexicon][documents.renewed[of_lexicon]]
        counts.append(np.bincount(np.searchsorted(corpus.contexts(k), drawn), minlength=corpus.contexts(k).size))
        expected.append(corpus.prior(k) * drawn.size)
    return _counted("prior of contexts", np.concatenate(counts), np.concatenate(expected), "contexts")


def renewal(sample: Sample) -> Check:
    """Check that the number of renewals of a document after its first position is binomial."""
    from scipy.stats import binom

    count = np.bincount(sample.documents.renewed[:, 1:].sum(axis=1), minlength=sample.corpus.length)
    law = binom(sample.corpus.length - 1, sample.corpus.renewal)
    return _counted("renewals", count, law.pmf(np.arange(count.size)) * len(sample.documents), "renewals per document")


def tokens(sample: Sample) -> Check:
    """Check that tokens are uniform in their contexts: they are independent, given the contexts."""
    from scipy.stats import chi2

    corpus, documents, square, degrees = sample.corpus, sample.documents, 0.0, 0
    for k in range(len(corpus.lexicons)):
        of_lexicon = documents.lexicon == k
        row_of = np.argsort(corpus.token_ids(k))
        context, rows = documents.context[of_lexicon], row_of[documents.tokens[of_lexicon]]
        order = np.argsort(context, axis=None, kind="stable")
        latents, first = np.unique(context.ravel()[order], return_index=True)
        for latent, part in zip(latents, np.split(rows.ravel()[order], first)[1:], strict=True):
            size = corpus.forest(k).latent_size[latent]
            counts = np.bincount(part - corpus.forest(k).latent_start[latent], minlength=size)
            cells = _together(counts, np.full(size, part.size / size))
            square += float(np.sum((cells[0] - cells[1]) ** 2 / cells[1]))
            degrees += cells[0].size - 1
    law, expected = "tokens of contexts", "uniform"
    if len(documents) < FEWEST or not degrees:
        return too_small(law, expected, f"{FEWEST:,} documents", f"{len(documents):,}")
    measured = f"χ² {square:,.0f} of {degrees:,} degrees"
    return statistical(law, expected, measured, float(chi2.sf(square, degrees)), f"{documents.tokens.size:,} tokens")


def unigram(sample: Sample) -> Check:
    """Check that the last tokens of documents, which are independent, have the unigram probabilities."""
    last = sample.documents.tokens[:, -1]
    counts = np.bincount(last, minlength=sample.corpus.n_tokens)
    return _counted("unigram", counts, sample.corpus.unigram * last.size, "tokens")


def _counted(law: str, counts: Ints, expected: Floats, what: str) -> Check:
    """Check independent draws among cells; a cell of probability 0 must have no draw."""
    total = int(counts.sum())
    if total < FEWEST:
        return too_small(law, "independent draws", f"{FEWEST:,} draws", f"{total:,}")
    impossible = int(counts[expected == 0].sum())
    if not impossible and np.count_nonzero(expected) < 2:
        return too_small(law, "independent draws", f"two {what}", "one")
    cells = _together(counts[expected > 0], expected[expected > 0])
    p = 0.0 if impossible else p_of_counts(*cells)
    scores = (cells[0] - cells[1]) / np.sqrt(cells[1])
    measured = f"{impossible:,} impossible" if impossible else f"largest score {np.abs(scores).max(initial=0):.2f}"
    note = f"{total:,} draws, {scores.size:,} cells of {what}"
    draw = verdicts.histogram(scores, "(count - expected) / standard error of a cell", normal=True)
    return statistical(law, "independent draws", measured, p, note, draw)


def _together(counts: Ints, expected: Floats) -> tuple[Floats, Floats]:
    """Return counts with neighbouring cells merged until each cell has an expected count of `LEAST_COUNT`."""
    before = np.cumsum(expected) - expected
    cell = np.floor(before / LEAST_COUNT).astype(np.int64)
    cell = np.unique(np.minimum(cell, max(0, math.ceil(expected.sum() / LEAST_COUNT) - 2)), return_inverse=True)[1]
    counted, wanted = (np.bincount(cell, weights=weights).astype(np.float64) for weights in (counts, expected))
    return counted, wanted


# ---------------------------------------------------------------------- beliefs


def floor(sample: Sample) -> Check:
    """Check that floors are -log of the probabilities of the tokens.

    Given the tokens before, the mean of a floor is the entropy of the exact distribution, and differences from that
    mean are uncorrelated. The sum of the differences, over its standard deviation, is nearly normal.
    """
    corpus, law, expected = sample.corpus, "floor", "the entropy of the next token"
    n = min(len(sample.documents), max(1, PREDICTED // (corpus.length * corpus.n_tokens)))
    step = max(1, PREDICTED // 8 // (corpus.length * corpus.n_tokens))
    gap = spread = total = 0.0
    for lo in range(0, n, step):
        part = slice(lo, min(lo + step, n))
        chances = corpus.predict(sample.documents.tokens[part, :-1], every=True)
        surprise = -np.log(chances)
        entropy = np.einsum("itv,itv->it", chances, surprise)
        spread += float((np.einsum("itv,itv,itv->it", chances, surprise, surprise) - entropy**2).sum())
        gap += float((sample.beliefs.floor[part, 1:] - entropy).sum())
        total += float(entropy.sum())
    positions = n * (corpus.length - 1)
    if positions < FEWEST:
        return too_small(law, expected, f"{FEWEST:,} positions", f"{positions:,}")
    measured = f"{(total + gap) / positions:.5f} nats"
    certain = spread <= RELATIVE_ROUNDING * total  # all tokens are equally likely, always
    p = float(abs(gap) <= RELATIVE_ROUNDING * total) if certain else p_of_score(gap / math.sqrt(spread))
    return statistical(law, f"{total / positions:.5f} nats", measured, p, f"{positions:,} positions")


def beliefs(sample: Sample) -> Check:
    """Check that contexts and lexicons are the present ones as often as the beliefs say.

    Documents are independent, so the mean over documents of the difference, summed over a document, is nearly normal.
    """
    corpus, law, expected = sample.corpus, "beliefs", "true as often as believed"
    n = min(len(sample.documents), max(FEWEST, JUDGED // corpus.length))
    if n < FEWEST:
        return too_small(law, expected, f"{FEWEST:,} documents", f"{n:,}")
    if wrong := _not_deepest(sample):
        return exact(law, "the deepest is believed", f"not at {wrong:,} positions", wrong, 0)
    scores = [score for k in range(len(corpus.lexicons)) for score in _scores(sample, k, n) if not math.isnan(score)]
    if not scores:
        return too_small(law, expected, "contexts that are in doubt", "none")
    measured = f"largest score {max(scores, key=abs):.2f}"
    note = f"{len(scores)} contexts and lexicons, {n:,} documents"
    return statistical(law, expected, measured, smallest(*map(p_of_score, scores)), note)


def _not_deepest(sample: Sample) -> int:
    """Return at how many positions of some documents the believed context is not the deepest above 1/2."""
    corpus = sample.corpus
    contexts = [corpus.contexts(k) for k in range(len(corpus.lexicons))]
    n = max(1, PREDICTED // 8 // (corpus.length * sum(map(len, contexts))))
    said = corpus.beliefs(sample.documents.tokens[:n])
    deepest, lexicon = np.full((2, *said.floor.shape), -1)
    for k, known in enumerate(contexts):
        holding = (said.inside(known, k) > 0.5) & (said.lexicon[:, :, k, None] > 0.5)
        lexicon[holding.any(axis=2)] = k
        deepest = np.maximum(deepest, np.where(holding, known, -1).max(axis=2))  # in preorder the deepest comes last
    wrong = (deepest != sample.beliefs.believed[:n]) | (lexicon != sample.beliefs.believed_lexicon[:n])
    return int(np.count_nonzero(wrong))


def _scores(sample: Sample, k: int, n: int) -> Iterator[float]:
    """Yield the scores of lexicon k, of some of its contexts, and of the contexts that are believed most."""
    corpus, context = sample.corpus, sample.documents.context[:n]
    of_lexicon = (sample.documents.lexicon[:n] == k)[:, None]
    said, size = corpus.beliefs(sample.documents.tokens[:n]), corpus.forest(k).latent_size
    yield _score(of_lexicon - said.lexicon[:, :, k])
    contexts = corpus.contexts(k)
    chosen = contexts[:: -(-contexts.size // MOST_CONTEXTS)]
    for j, chances in enumerate(np.moveaxis(said.inside(chosen, k), 2, 0)):
        yield _score((of_lexicon & (context >= chosen[j]) & (context < chosen[j] + size[chosen[j]] - 1)) - chances)
    at = sample.beliefs.believed_lexicon[:n] == k
    latent = np.where(at, sample.beliefs.believed[:n], 0)
    wrong = at & ~(of_lexicon & (context >= latent) & (context < latent + size[latent] - 1))
    excess = (wrong - 0.5 * at).sum(axis=1)  # a believed context is wrong less than half of the time
    yield max(0.0, _score(excess[:, None])) if at.any() else math.nan


def _score(difference: Floats) -> float:
    """Return how many standard errors the mean over documents is from 0; NaN if all differences are 0."""
    sums = difference.sum(axis=1)
    spread = float(sums.std(ddof=1)) / math.sqrt(sums.size)
    if spread > RELATIVE_ROUNDING:
        return float(sums.mean()) / spread
    in_doubt = abs(sums.sum()) > RELATIVE_ROUNDING * difference.size
    return math.copysign(math.inf, sums.mean()) if in_doubt else math.nan
