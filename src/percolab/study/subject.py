"""The data of one draw, as networks and readers see them.

A *view* is the data as one hierarchy sees them: the networks' inputs, the rows that readers are fitted on, and the rows
that they are scored on. Points have one input for all their hierarchies. Documents have one input per lexicon: held-out
documents of that lexicon alone, whose rows are positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.beliefs import Beliefs
from percolab.corpora.corpus import Corpus
from percolab.corpora.sampler import Documents
from percolab.features.concepts import Labels, by_row
from percolab.features.inputs import ABOUT, TRUTHS, Asked, find_labels
from percolab.ground.arrays import Floats, Ints
from percolab.ground.validation import check_choice, check_integer
from percolab.study.settings import AnyRecipe
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import AnyDataset, Truth, truth

AnyData = AnyDataset | Corpus

HELD_OUT = 1 << 40  #: Number of the first document that no network is trained on.
N_DOCUMENTS = 2000
FIT_SHARE = 0.8  #: Share of the documents that readers are fitted on; they are scored on the rest.
LEAST_SPREAD = 1e-9  #: A probability with a range up to this is constant.


@dataclass(frozen=True)
class Positions:
    """Which positions of documents are read, and which question is asked of them. Points have none of these options."""

    truth: str = "believed"  #: the truth, as for `percolab.features.score`: "believed" or "true"
    about: str = "context"  #: whether the question is about a position's context or its token
    #: fewest positions before a position in its segment; a segment begins with a fresh context
    since: int = 0

    def __post_init__(self) -> None:
        check_choice("truth", self.truth, TRUTHS)
        check_choice("about", self.about, ABOUT)
        check_integer("since", self.since, 0)


EVERY = Positions()


@dataclass(frozen=True, eq=False)
class PointView:
    """Points, as one hierarchy sees them."""

    data: AnyDataset
    factor: int
    train: Ints  #: (a,) rows that readers are fitted on
    test: Ints  #: (b,) rows that readers are scored on

    @property
    def inputs(self) -> Any:
        """(n, d) the networks' inputs."""
        return self.data.X

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,): one activation per row."""
        return (int(self.data.X.shape[0]),)

    @cached_property
    def truth(self) -> Truth:
        """The hierarchy, and the row of each sample in it."""
        return truth(self.data, self.factor)

    def labels(self, asked: Positions = EVERY) -> Labels:
        """Return the truth that readers are scored against: the latents that each row is in."""
        self.rows(asked)
        return by_row(self.truth.forest, self.truth.rows)

    def rows(self, asked: Positions = EVERY) -> tuple[Ints, Ints]:
        """Return the rows that readers are fitted on, and those that they are scored on."""
        if asked != EVERY:
            raise ValueError("truth, about and since of readers must be left out for points: they are for documents")
        return self.train, self.test

    def raw(self, order: Ints) -> Any:
        """Return the input of these rows as a representation."""
        return np.asarray(self.data.X)[order]


@dataclass(frozen=True, eq=False)
class DocumentView:
    """Held-out documents of one lexicon, whose rows are positions: position t of document i is row i·T + t."""

    data: Corpus  #: the corpus with this lexicon alone
    factor: int
    documents: Documents

    @property
    def inputs(self) -> Any:
        """(n, T) tokens."""
        return self.documents.tokens

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, T): one activation per position."""
        n, length = self.documents.tokens.shape
        return n, length

    @property
    def train(self) -> Ints:
        """Positions of the first documents, which readers are fitted on."""
        return np.arange(self._first_test)

    @property
    def test(self) -> Ints:
        """Positions of the other documents."""
        return np.arange(self._first_test, self.documents.tokens.size)

    @property
    def _first_test(self) -> int:
        n, length = self.shape
        return max(1, round(FIT_SHARE * n)) * length

    @cached_property
    def beliefs(self) -> Beliefs:
        """The exact beliefs at each position."""
        return self.data.beliefs(self.documents.tokens)

    @cached_property
    def inside(self) -> tuple[Ints, Floats]:
        """The contexts whose probability is not the same everywhere, and (rows, C) their probabilities."""
        contexts = self.data.contexts(self.factor)
        inside = self.beliefs.inside(contexts, self.factor).reshape(-1, contexts.size)
        varies = np.ptp(inside, axis=0) > LEAST_SPREAD
        return contexts[varies], inside[:, varies]

    def labels(self, asked: Positions = EVERY) -> Labels:
        """Return the truth that readers are scored against: the contexts that each position is in."""
        judged = Asked(self.documents, asked.about, asked.truth)
        return find_labels(self.data, self.factor, None, self.documents.tokens.size, judged)

    def rows(self, asked: Positions = EVERY) -> tuple[Ints, Ints]:
        """Return the positions that readers are fitted on, and those that they are scored on."""
        place = np.arange(self.shape[1])
        begin = np.maximum.accumulate(np.where(self.documents.renewed, place, 0), axis=1)
        kept = (place - begin >= asked.since).ravel()
        train, test = (rows[kept[rows]] for rows in (self.train, self.test))
        if not train.size or not test.size:
            raise ValueError(f"since must leave positions to fit and positions to score, got {asked.since}")
        return train, test

    def raw(self, order: Ints) -> Any:
        """Return the documents' input as a representation: decayed bags of tokens, made when indexed."""
        return _Bags(self.data, self.documents.tokens[order])


@dataclass(frozen=True, eq=False)
class _Bags:
    """Decayed bags of tokens (n, T, V), made on demand: all of them take 4 n T V bytes."""

    corpus: Corpus
    tokens: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, T, V)."""
        n, length = self.tokens.shape
        return n, length, self.corpus.n_tokens

    def __getitem__(self, documents: slice) -> NDArray[np.float32]:
        return self.corpus.bag(self.tokens[documents])


View = PointView | DocumentView


def n_factors(data: AnyData | AnyRecipe) -> int:
    """Return how many hierarchies are in the data, or in what a recipe makes."""
    return len(getattr(data, "factors", getattr(data, "lexicons", (None,))))


def views(data: AnyData, rows: Split | int | None = None) -> list[View]:
    """Return the data as each of its hierarchies sees them.

    Parameters
    ----------
    data
        A dataset, a world or a corpus.
    rows
        For points a `Split`: readers are fitted on its training rows and scored on its test rows; None takes the
        paper's split. For a corpus the number of held-out documents.
    """
    if isinstance(data, Corpus):
        count = check_integer("rows", N_DOCUMENTS if rows is None else rows, 2)
        each = [data.swapped(k) for k in range(n_factors(data))]
        return [DocumentView(corpus, k, corpus.documents(HELD_OUT, HELD_OUT + count)) for k, corpus in enumerate(each)]
    if rows is not None and not isinstance(rows, Split):
        raise ValueError(f"rows must be a Split for points, got {type(rows).__name__}")
    split = split_rows(data) if rows is None else rows
    train, test = np.sort(split.train), np.sort(split.test)
    if not test.size:
        raise ValueError("rows must have test rows, got none")
    return [PointView(data, k, train, test) for k in range(n_factors(data))]
