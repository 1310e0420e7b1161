"""Corpora: recipes of endless documents over lexicons of tokens, and the exact truth at every position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from percolab.corpora import lexicon as lexicons_
from percolab.corpora import sampler
from percolab.corpora.beliefs import Beliefs, Filter
from percolab.corpora.sampler import Documents
from percolab.dataset.dataset import GIVEN, Dataset
from percolab.ground import parallel, validation
from percolab.ground.text import shown
from percolab.ground.validation import check_index, check_integer, check_seed, indices
from percolab.model.forest import Forest, locked
from percolab.model.recipe import Recipe, Written
from percolab.model.target import Target

KIND = "corpus"  #: The ``kind`` in the JSON of a corpus.
MOST = 2**31 - 1  #: The most tokens, or positions: they are counted in int32.
HELD_OUT = 2**40  #: Documents from this number on are kept for tests.
LEAST_RENEWAL, LEAST_SHARE = 2.0**-64, 2.0**-53  #: The least probabilities that are drawn: by 64 bits, and by 53.

Source = Recipe | Forest | Dataset


@dataclass(frozen=True, init=False, eq=False)
class Corpus(Written, kind=KIND):
    """A recipe of documents: sequences of tokens drawn from contexts that change now and then.

    A lexicon is a forest whose points are tokens; the ids of tokens are independent of the forest. Its contexts are the
    concepts of at least `min_size` tokens: ``forest.concepts(min_size, ratio=2/3)``. A context has prior probability
    π(c) = 1/V Σ 1/m(u) over its tokens u: draw a token uniformly, then one of the m(u) contexts that hold it. A
    document uses lexicon k with probability ``shares[k]``. Its first context is drawn from π; at each later position
    the context is drawn again from π with probability `renewal`, else it stays; the token is uniform among the
    context's tokens.

    Document i is a pure function of (corpus, i): the same for any range, number of threads or machine. The number of
    documents is unlimited; by convention the documents for testing begin at 2^40.

    Parameters
    ----------
    lexicons
        A `Recipe`, a `Forest` or a `Dataset`, or several over the same number V of tokens.
    length
        Number T of tokens of a document, at least 2.
    renewal
        Probability of a fresh context at each position but the first, above 0 and at most 1.
    min_size
        Least number of tokens of a context.
    shares
        Probability of each lexicon, up to a factor; None: all the same. A lexicon with share 0 is part of the corpus,
        but no document uses it.
    seed
        Seed of ids and documents.
    """

    lexicons: tuple[Recipe | Forest, ...]
    length: int
    renewal: float
    min_size: int
    shares: tuple[float, ...]  #: sum to 1
    seed: int

    def __init__(
        self,
        lexicons: Source | Iterable[Source],
        *,
        length: int = 64,
        renewal: float = 1 / 16,
        min_size: int = 32,
        shares: Iterable[float] | None = None,
        seed: int = 0,
    ) -> None:
        sources = _as_sources(lexicons)
        validation.fill(
            self,
            lexicons=sources,
            length=_at_most("length", check_integer("length", length, 2)),
            renewal=_as_renewal(renewal),
            min_size=check_integer("min_size", min_size, 2),
            shares=_as_shares(shares, len(sources)),
            seed=check_seed("seed", seed),
        )
        _ = self._filter  # it refuses lexicons that cannot be used

    @cached_property
    def _filter(self) -> Filter:
        """The recursion over the lexicons, which are built once."""
        forests = [lexicons_.grown(source) if isinstance(source, Recipe) else source for source in self.lexicons]
        sizes = [forest.n_points for forest in forests]
        if len(set(sizes)) > 1:
            raise ValueError(f"lexicons must have the same number of tokens, got {' and '.join(map(str, sizes))}")
        read = tuple(lexicons_.read(forest, self.min_size, k, self.seed) for k, forest in enumerate(forests))
        return Filter(read, lexicons_.tables(read, self.renewal), np.array(self.shares))

    # ------------------------------------------------------------------ documents

    def documents(self, lo: int, hi: int, *, threads: int | None = None) -> Documents:
        """Return documents lo … hi - 1: tokens and the contexts they were drawn from.

        Parameters
        ----------
        lo, hi
            Numbers of documents, below 2^63.
        threads
            Number of threads; None takes all cores.
        """
        first, end = self.check_range(lo, hi)
        plan = sampler.plan(self.seed, self.shares, self.renewal)
        return sampler.draw(plan, self._filter.tables, first, end, self.length, parallel.thread_count(threads))

    @staticmethod
    def check_range(lo: object, hi: object) -> tuple[int, int]:
        """Return numbers of documents, or say what is wrong with them."""
        first = check_integer("lo", lo, 0)
        return first, check_integer("hi", hi, first)

    def counterfactual(self, documents: Documents, position: ArrayLike, context: ArrayLike) -> Documents:
        """Return the same documents with a context forced from a position until the document's next renewal.

        All draws stay the same: the uniform draw that chooses each token, the positions where contexts are renewed, and
        the new contexts. So tokens before the position and from the next renewal on do not change, and forcing the
        document's own context returns the document itself. For beliefs and floors of the new tokens, call `beliefs` or
        `predict`.

        Parameters
        ----------
        documents
            Documents of this corpus; they may be counterfactual themselves.
        position
            Where the context begins: one number, or (n,) one for each document.
        context
            A context of the document's own lexicon, as in `contexts`: one, or (n,) one for each document.
        """
        plan = sampler.plan(self.seed, self.shares, self.renewal)
        return sampler.counterfactual(plan, self._filter.tables, documents, position, context)

    @property
    def n_tokens(self) -> int:
        """Number V of tokens."""
        return self._filter.lexicons[0].forest.n_points

    def forest(self, k: int = 0) -> Forest:
        """Return the forest of lexicon k."""
        return self._lexicon(k).forest

    def token_ids(self, k: int = 0) -> NDArray[np.int32]:
        """Return (V,) the token id of each row of lexicon k."""
        return self._lexicon(k).ids.copy()

    def contexts(self, k: int = 0) -> NDArray[np.int64]:
        """Return (C,) the contexts of lexicon k, as latents of its forest, sorted."""
        return self._lexicon(k).contexts.copy()

    def prior(self, k: int = 0) -> NDArray[np.float64]:
        """Return (C,) the prior probability of each context of lexicon k."""
        return self._lexicon(k).prior.copy()

    @cached_property
    def unigram(self) -> NDArray[np.float64]:
        """(V,) probability of each token id, at every position."""
        return locked(self.predict(np.empty((1, 0), np.int32))[0])

    def _lexicon(self, k: int) -> lexicons_.Lexicon:
        return self._filter.lexicons[check_index("k", k, len(self.lexicons))]

    # ------------------------------------------------------------------ the truth at every position

    def beliefs(self, tokens: ArrayLike, *, threads: int | None = None) -> Beliefs:
        """Return the exact beliefs at every position, given the tokens so far. O(contexts over a token) per position.

        Parameters
        ----------
        tokens
            (n, T) ids of tokens, of any length T, from this corpus or from any other source.
        threads
            Number of threads; None takes all cores.
        """
        return self._filter.beliefs(self._as_tokens(tokens), parallel.thread_count(threads))

    def predict(self, tokens: ArrayLike, every: bool = False, *, threads: int | None = None) -> NDArray[np.float64]:
        """Return the exact distribution of the token after the last, (n, V).

        Parameters
        ----------
        tokens
            (n, T) ids of tokens, of any length T.
        every
            Return the distribution after each token instead, (n, T, V).
        threads
            Number of threads; None takes all cores.
        """
        return self._filter.predict(self._as_tokens(tokens), every, parallel.thread_count(threads))

    def bag(self, tokens: ArrayLike, decay: float = 0.9, *, threads: int | None = None) -> NDArray[np.float32]:
        """Return (n, T, V) the decayed bag of tokens b_t = decay · b_{t-1} + onehot(token t): the raw input.

        It takes 4 n T V bytes, 4.2 GB for 2,000 documents of 64 tokens out of 8,192: pass some documents at a time.

        Parameters
        ----------
        tokens
            (n, T) ids of tokens, of any length T.
        decay
            The factor by which a token's weight falls at each position, between 0 and 1.
        threads
            Number of threads; None takes all cores.
        """
        share = validation.check_probability("decay", decay)
        return sampler.decayed(self._as_tokens(tokens), self.n_tokens, share, parallel.thread_count(threads))

    def _as_tokens(self, tokens: ArrayLike) -> NDArray[np.int32]:
        try:
            ids = np.asarray(tokens)
        except ValueError as fault:  # rows of unequal lengths
            raise ValueError(f"tokens must be documents of one length, got {shown(tokens)}") from fault
        if ids.ndim != 2:
            raise ValueError(f"tokens must have shape (documents, positions), got {type(tokens).__name__} {ids.shape}")
        return np.ascontiguousarray(indices("tokens", ids, self.n_tokens), np.int32)

    # ------------------------------------------------------------------ recipes

    def swapped(self, k: int) -> Corpus:
        """Return the corpus whose documents all use lexicon k; the other lexicons stay in the corpus with share 0."""
        only = check_index("k", k, len(self.lexicons))
        return self.replace(shares=[float(other == only) for other in range(len(self.lexicons))])

    def replace(self, **changes: Any) -> Corpus:
        """Return the corpus with some fields changed."""
        return Corpus(**{**{field.name: getattr(self, field.name) for field in fields(self)}, **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Corpus) and hash(self) == hash(other) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        sizes = len(self.lexicons), self.n_tokens
        return hash((*sizes, self.length, self.renewal, self.min_size, self.shares, self.seed))

    def to_dict(self) -> dict[str, Any]:
        """Return the corpus as plain values, ready for JSON; a lexicon without a recipe is written as its columns."""
        return super().to_dict() | {"lexicons": [_source_to_dict(source) for source in self.lexicons]}

    @classmethod
    def _of_plain(cls, given: dict[str, Any]) -> Self:
        return cls(**{**given, "lexicons": cls._parts(given, "lexicons", "recipes or forests", _source_from_dict)})


# ---------------------------------------------------------------------- fields


def _as_sources(lexicons: object) -> tuple[Recipe | Forest, ...]:
    several = lexicons if isinstance(lexicons, Iterable) and not isinstance(lexicons, str | Mapping) else (lexicons,)
    sources = tuple(_as_source(source) for source in several)
    if not sources:
        raise ValueError("lexicons must have at least one, got none")
    return sources


def _as_source(source: object) -> Recipe | Forest:
    """Return a recipe, or the forest if no recipe makes it."""
    if isinstance(source, Dataset):
        source = source.recipe if source.modification in (None, GIVEN) else source.forest
    if not isinstance(source, Recipe | Forest):
        raise ValueError(f"lexicons must be recipes, forests or datasets, got {source!r}")
    _at_most("n_points", source.n_points)
    if isinstance(source, Recipe):
        return replace(source, edits=(), target=Target())  # edits and targets do not change the forest
    source.check_structure()
    return source


def _at_most(name: str, value: int) -> int:
    if value > MOST:
        raise ValueError(f"{name} must be at most 2**31 - 1, got {value}")
    return value


def _as_renewal(renewal: object) -> float:
    value = validation.check_number("renewal", renewal)
    if not 0 < value <= 1:
        raise ValueError(f"renewal must be above 0 and at most 1, got {value}")
    if value < LEAST_RENEWAL:
        raise ValueError(f"renewal must be at least 2**-64, the least probability that is drawn, got {value}")
    return value


def _as_shares(shares: object, count: int) -> tuple[float, ...]:
    """Return one share for each lexicon, with sum 1."""
    if shares is None:
        return (1 / count,) * count
    numbers = validation.check_one_each("shares", shares, count, "lexicon", 0)
    total = sum(numbers)
    if not 0 < total < float("inf"):
        raise ValueError(f"shares must have a finite sum above 0, got {shares!r}")
    if min(filter(None, numbers)) / total < LEAST_SHARE:
        raise ValueError(f"shares must be 0 or at least 2**-53 of their sum, the least that is drawn, got {shares!r}")
    # Shares that sum to 1 up to rounding are not changed, so that a corpus read from JSON equals the one written.
    return numbers if abs(total - 1) <= count * 2.0**-52 else tuple(number / total for number in numbers)


def _source_to_dict(source: Recipe | Forest) -> dict[str, Any]:
    if isinstance(source, Recipe):
        return source.to_dict()
    return {"forest": {field.name: getattr(source, field.name).tolist() for field in fields(source)}}


def _source_from_dict(values: Mapping[str, Any]) -> Recipe | Forest:
    if "forest" not in values:
        return Recipe.from_dict(values)
    columns = values["forest"]
    names = {field.name for field in fields(Forest)}
    if not isinstance(columns, Mapping) or set(columns) != names:
        raise ValueError(f"forest must have the columns {', '.join(sorted(names))}, got {columns!r}"[:300])
    return Forest(**columns)


def misplaced(corpus: Corpus, documents: Documents) -> int:
    """Return how many tokens are outside of their context: none, unless the documents are of another corpus."""
    wrong = int(np.isin(documents.lexicon, range(len(corpus.lexicons)), invert=True).sum())
    for k in range(len(corpus.lexicons)):
        of_lexicon = documents.lexicon == k
        forest, context = corpus.forest(k), documents.context[of_lexicon]
        known = np.isin(context, corpus.contexts(k))
        row = np.argsort(corpus.token_ids(k))[documents.tokens[of_lexicon]]
        place = row - forest.latent_start[np.where(known, context, 0)]
        inside = (place >= 0) & (place < forest.latent_size[np.where(known, context, 0)])
        wrong += int(np.count_nonzero(~(known & inside)))
    return wrong
