"""Collections of documents: a range of the documents of a corpus, with the truth at every position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.corpus import Corpus
from percolab.corpora.sampler import Documents
from percolab.dataset.dataset import Lazy
from percolab.ground.validation import check_integer
from percolab.model.recipe import Written

if TYPE_CHECKING:
    from percolab.store.stored_array import StoredArray

KIND = "documents"  #: The ``kind`` in the JSON of a range.
VERSION = 1  #: Version of documents and beliefs: the same corpus and version give the same data.
#: Most tokens of all lexicons of a corpus read from a file: lexicons are grown before anything else is checked.
MOST_TOKENS = 1 << 24

INTEGERS = dict.fromkeys(("tokens", "context", "lexicon", "believed", "believed_lexicon"), np.dtype(np.int32))
#: The stored columns of documents and their types: fields of `Documents` and `Beliefs`, booleans as bytes.
COLUMNS: Mapping[str, np.dtype[Any]] = {**INTEGERS, "renewed": np.dtype(np.uint8), "floor": np.dtype(np.float64)}


@dataclass(frozen=True)
class DocumentRange(Written, kind=KIND):
    """Documents lo … hi - 1 of a corpus: the recipe from which `generate_store` writes documents."""

    corpus: Corpus
    lo: int
    hi: int

    def __post_init__(self) -> None:
        if not isinstance(self.corpus, Corpus):
            raise ValueError(f"corpus must be a Corpus, got {self.corpus!r}")
        self.corpus.check_range(self.lo, self.hi)

    def __len__(self) -> int:
        return self.hi - self.lo

    def columns(self, names: Iterable[str] = COLUMNS, threads: int | None = None) -> dict[str, NDArray[Any]]:
        """Make the documents with their truth; `names` are the columns to return."""
        wanted, documents = tuple(names), self.corpus.documents(self.lo, self.hi, threads=threads)
        columns = {**vars(documents), "renewed": documents.renewed.view(np.uint8)}
        if not set(wanted) <= set(columns):
            beliefs = self.corpus.beliefs(documents.tokens, threads=threads)
            columns |= {name: getattr(beliefs, name) for name in ("floor", "believed", "believed_lexicon")}
        return {name: columns[name] for name in wanted}

    def part(self, lo: int, hi: int) -> DocumentRange:
        """Return documents lo … hi - 1 of these."""
        return DocumentRange(self.corpus, self.lo + lo, self.lo + hi)

    @classmethod
    def _of_plain(cls, given: dict[str, Any]) -> Self:
        if set(given) != {"corpus", "lo", "hi"}:
            raise ValueError(f"a range of documents must have kind, corpus, lo and hi, got {', '.join(given)}")
        if not isinstance(given["corpus"], Mapping):
            raise ValueError(f"corpus must be an object of JSON, got {given['corpus']!r}")
        sources = given["corpus"].get("lexicons")
        sizes = [source.get("n_points", 0) for source in sources or () if isinstance(source, Mapping)]
        if sum(check_integer("n_points", size, 0) for size in sizes) > MOST_TOKENS:
            raise ValueError(f"lexicons must have at most {MOST_TOKENS:,} tokens in all, got {sum(sizes):,}")
        return cls(Corpus.from_dict(given["corpus"]), given["lo"], given["hi"])


@dataclass(frozen=True, eq=False)
class StoredDocuments(Lazy):
    """Documents on disk with their truth: n documents of T positions; each column is read when it is indexed."""

    recipe: DocumentRange  #: the recipe that makes the documents again
    tokens: StoredArray  #: (n, T) ids of tokens, int32
    context: StoredArray  #: (n, T) the context that each token was drawn from, a latent of its lexicon's forest, int32
    lexicon: StoredArray  #: (n,) lexicon of each document, int32
    renewed: StoredArray  #: (n, T) 1 where the context was drawn afresh, uint8
    floor: StoredArray  #: (n, T) -log P(token | tokens before it), float64
    #: (n, T) the deepest context that holds the present one with probability above 1/2, -1 for none, int32
    believed: StoredArray
    believed_lexicon: StoredArray  #: (n, T) its lexicon, int32
    provenance: dict[str, Any]  #: versions, platform and time of making

    @property
    def corpus(self) -> Corpus:
        """The corpus of the documents."""
        return self.recipe.corpus

    @property
    def number(self) -> NDArray[np.int64]:
        """(n,) number of each document in the corpus."""
        return np.arange(self.recipe.lo, self.recipe.hi)

    def read(self, count: int | None = None) -> Documents:
        """Return the first documents, or all of them, in memory."""
        part = slice(0, count)
        tokens, context, lexicon, renewed = (
            np.asarray(column[part]) for column in (self.tokens, self.context, self.lexicon, self.renewed)
        )
        return Documents(tokens, context, lexicon, self.number[part], renewed == 1)

    def __len__(self) -> int:
        return len(self.recipe)

    def __repr__(self) -> str:
        return f"StoredDocuments({len(self):,} of {self.corpus.length:,} tokens out of {self.corpus.n_tokens:,})"
