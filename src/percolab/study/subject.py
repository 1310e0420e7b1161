"""What is studied: the data of one draw, as networks and readers see it.

A *view* is the data from the side of one hierarchy: what networks are given, which rows are learned from and which are
scored. Points have one input for all their hierarchies. Documents have one input for each lexicon: held-out documents
of that lexicon alone, whose rows are positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from percolab.corpora.beliefs import Beliefs
from percolab.corpora.corpus import Corpus
from percolab.corpora.documents import Documents
from percolab.study.measured import Ints
from percolab.worlds.splits import Split, split_rows
from percolab.worlds.superposed import Superposed
from percolab.worlds.truth import AnyDataset, Truth, truth

AnyData = AnyDataset | Corpus

HELD_OUT = 1 << 40
"""Number of the first document that no network is trained on."""
N_DOCUMENTS = 2000
FIT_SHARE = 0.8
"""Share of the documents that readers are fitted on; they are scored on the rest."""


@dataclass(frozen=True, eq=False)
class PointView:
    """Points, from the side of one hierarchy."""

    data: AnyDataset
    factor: int
    train: Ints
    """(a,) rows that readers are fitted on"""
    test: Ints
    """(b,) rows that readers are scored on"""

    @property
    def inputs(self) -> Any:
        """(n, d) what networks are given."""
        return self.data.X

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,): one activation per row."""
        return (int(self.data.X.shape[0]),)

    @cached_property
    def truth(self) -> Truth:
        """The hierarchy, and the row of it that each sample has."""
        return truth(self.data, self.factor)

    def raw(self) -> Any:
        """Return the input as a representation."""
        return np.asarray(self.data.X)


@dataclass(frozen=True, eq=False)
class DocumentView:
    """Held-out documents of one lexicon, whose rows are positions: position t of document i is row i·T + t."""

    data: Corpus
    """the corpus with this lexicon alone"""
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
        """What can be known at each position."""
        return self.data.beliefs(self.documents.tokens)

    def raw(self) -> Any:
        """Return the input as a representation: the decayed bag of tokens."""
        return self.data.bag(self.documents.tokens)


View = PointView | DocumentView


def n_factors(data: AnyData) -> int:
    """Return how many hierarchies are in the data."""
    if isinstance(data, Corpus):
        return len(data.lexicons)
    return len(data.factors) if isinstance(data, Superposed) else 1


def views(data: AnyData, rows: Split | int | None = None) -> list[View]:
    """Return the data from the side of each of its hierarchies.

    Parameters
    ----------
    data
        A dataset, a world or a corpus.
    rows
        For points a `Split`: readers are fitted on its training rows and scored on its test rows; None takes the
        paper's split. For a corpus the number of held-out documents.
    """
    if isinstance(data, Corpus):
        count = _document_count(rows)
        each = [data.swapped(k) for k in range(n_factors(data))]
        return [DocumentView(corpus, k, corpus.documents(HELD_OUT, HELD_OUT + count)) for k, corpus in enumerate(each)]
    if rows is not None and not isinstance(rows, Split):
        raise ValueError(f"rows must be a Split for points, got {type(rows).__name__}")
    split = split_rows(data) if rows is None else rows
    train, test = np.sort(split.train), np.sort(split.test)
    if not test.size:
        raise ValueError("rows must have test rows, got none")
    return [PointView(data, k, train, test) for k in range(n_factors(data))]


def _document_count(rows: Any) -> int:
    if rows is None:
        return N_DOCUMENTS
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 2:
        raise ValueError(f"rows must be a number of documents, at least 2, for a corpus, got {rows!r}")
    return rows
