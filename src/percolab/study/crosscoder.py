"""What two networks do not share: features of both networks' activations, and which network owns each.

A crosscoder is a sparse autoencoder of the activations of both networks side by side, each centred and scaled to a mean
square norm of 1. The *share* of a feature is the norm of its decoder vector's half for the second network over the sum
of the norms of both halves: near 0 for a feature of the first network alone, near 1 for one of the second network
alone, near 1/2 for one that both have. Where the concepts that each network was trained on are known, shares are
compared with these true owners.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse
import torch

from percolab.corpora.corpus import Corpus
from percolab.features import score
from percolab.features.fairness import auc
from percolab.features.register import MODEST, as_taken, check_installed, entry, make
from percolab.ground.arrays import Floats, Ints, as_array
from percolab.ground.devices import Device, choose_device
from percolab.ground.files import new_files
from percolab.ground.progress import Progress, shown
from percolab.ground.validation import check_integer, check_seed
from percolab.show import pages, style
from percolab.study.sources import as_source
from percolab.study.subject import FIT_SHARE, HELD_OUT, N_DOCUMENTS

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

MATCHED = 0.5  #: A concept is matched by a feature whose F1 is above this.
FIRST, BOTH, SECOND = OWNERS = "first", "both", "second"  #: The owner of a concept, by its share: 0, 1/2 or 1.
LEAST_ROWS = 20  #: Fewest firings of a feature that is listed as one-sided.
LISTED = 12


def side_by_side(values: Sequence[torch.Tensor], fit: int) -> torch.Tensor:
    """Return (rows, width) activations of both networks joined, each centred and with a mean square norm of 1.

    Means and norms are those of the first `fit` rows.
    """
    means = [part[:fit].mean(0) for part in values]
    centred = [part - mean for part, mean in zip(values, means, strict=True)]
    return torch.cat([part * part[:fit].square().sum(1).mean().clamp(min=1e-24).rsqrt() for part in centred], 1)


def shares(directions: Floats, width: int) -> Floats:
    """Return (features,) the second network's part of the norms of decoder vectors; the first has `width` columns."""
    first, second = (np.linalg.norm(half, axis=1) for half in (directions[:, :width], directions[:, width:]))
    return np.asarray(second / np.maximum(first + second, 1e-12), np.float64)


def owner_auc(matched: pandas.DataFrame) -> float:
    """Return the probability that a concept owned more by the second network has a larger share than one owned less.

    0.5 is chance. NaN where all have the same owner.
    """
    owner = matched["owner"].map(OWNERS.index).to_numpy()
    if owner.size == 0:
        return float("nan")
    extreme = (owner == owner.max()) | (owner == owner.min())
    more = (owner == owner.max()) & (owner > owner.min())
    return auc(matched["share"].to_numpy()[extreme], np.flatnonzero(more[extreme]))


def misattributed_share(matched: pandas.DataFrame) -> float:
    """Return the share of concepts whose feature's share is nearest to that of another owner."""
    return float((matched["owner"] != matched["said"]).mean()) if len(matched) else float("nan")


@dataclass(frozen=True, eq=False)
class Difference:
    """What two networks do not share. Made by `diff`; all tables are of rows that the crosscoder was not fitted on."""

    #: one row for each feature: feature, share, fired (on how many rows), activation (mean where it fires)
    features: pandas.DataFrame
    #: one row for each concept of the corpus, where the networks' lexicons are known: lexicon, latent, size, feature
    #: (the best match), f1, share (of that feature), owner (first, both or second), said (the owner that the share is
    #: nearest to)
    concepts: pandas.DataFrame | None
    codes: scipy.sparse.csc_array = field(repr=False)  #: (rows, features)
    shape: tuple[int, ...]  #: of the rows: (documents, positions), or (rows,)
    tokens: Any = field(default=None, repr=False)  #: (documents, positions), where inputs are tokens
    numbers: Any = field(default=None, repr=False)  #: (documents,) their numbers, or the numbers of rows

    @property
    def matched(self) -> pandas.DataFrame:
        """The concepts that a feature matches with an F1 above 0.5."""
        if self.concepts is None:
            raise ValueError("concepts must be known to be matched: give a corpus, and trained_on")
        return self.concepts[self.concepts["f1"] > MATCHED]

    @property
    def auc(self) -> float:
        """The probability that a concept owned more by the second network has a larger share than one owned less.

        Of matched concepts; 0.5 is chance. NaN where all have the same owner.
        """
        return owner_auc(self.matched)

    @property
    def misattributed(self) -> float:
        """The share of matched concepts whose feature's share is nearest to that of another owner."""
        return misattributed_share(self.matched)

    def one_sided(self, count: int = LISTED) -> pandas.DataFrame:
        """Return the features with the most one-sided shares, of those that fire on at least 20 rows."""
        check_integer("count", count, 0)
        live = self.features[self.features["fired"] >= LEAST_ROWS]
        return live.loc[(live["share"] - 0.5).abs().sort_values(ascending=False, kind="stable").index[:count]]

    def firing(self, feature: int, count: int = LISTED) -> pandas.DataFrame:
        """Return where a feature fires most: document and position, or row, activation, and token if there is one."""
        import pandas

        if not 0 <= check_integer("feature", feature, 0) < len(self.features):
            raise ValueError(f"feature must be below {len(self.features)}, got {feature}")
        column = self.codes[:, [feature]].toarray().ravel()
        rows = np.argsort(-column, kind="stable")[: check_integer("count", count, 0)]
        rows = rows[column[rows] > 0]
        places = np.unravel_index(rows, self.shape)
        table: dict[str, Any] = {"document" if len(self.shape) > 1 else "row": self.numbers[places[0]]}
        table |= {"position": places[1]} if len(self.shape) > 1 else {}
        table |= {"token": self.tokens.reshape(-1)[rows]} if self.tokens is not None else {}
        return pandas.DataFrame({**table, "activation": column[rows]})

    @property
    def summary(self) -> dict[str, float]:
        """The numbers that the report shows."""
        live = self.features["fired"] > 0
        numbers: dict[str, float] = {"features": float(len(live)), "firing": float(live.sum())}
        if self.concepts is not None:
            numbers |= {"concepts": float(len(self.concepts)), "matched": float(len(self.matched))}
            numbers |= {"auc": self.auc, "misattributed": self.misattributed}
        return numbers

    @property
    def verdict(self) -> str:
        """What the shares say, in one sentence."""
        live = self.features["share"][self.features["fired"] >= LEAST_ROWS]
        first, second = int((live < 1 / 4).sum()), int((live > 3 / 4).sum())
        text = f"Of {len(live):,} features, {first:,} are mostly the first network's and {second:,} mostly the second's"
        if self.concepts is None or self.auc != self.auc:
            return f"{text}; the others are shared."
        return f"{text}. Shares order the {len(self.matched):,} matched concepts by owner with AUC {self.auc:.2f}."

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.3g}" for name, value in self.summary.items() if value == value)
        return f"Difference({numbers})"

    def plot(self) -> Figure:
        """Draw the shares of all features that fire, and those of matched concepts by owner."""
        with style.sheet():
            figure = style.new_figure(6.4, 3.2)
            axes = figure.subplots()
            live = self.features["share"][self.features["fired"] >= LEAST_ROWS]
            axes.hist(live, bins=np.linspace(0, 1, 41).tolist(), color=style.MIDDLE)
            axes.set_ylabel("features")
            if self.concepts is not None:
                draw_owners(axes.twinx(), self.matched)
            axes.set_xlabel("share of the second network in the decoder")
        return figure

    def _body(self) -> list[str]:
        """Return numbers, picture and tables as HTML."""
        lines = [(name, f"{value:.3g}") for name, value in self.summary.items()]
        rows = [
            (f"{row.feature}", f"{row.share:.2f}", f"{row.fired:,}", self.places(row.feature))
            for row in self.one_sided().itertuples()
        ]
        caption = "Grey: features by share. Dots: matched concepts by their true owner, at the share of their feature."
        return [
            pages.picture(self.plot(), caption if self.concepts is not None else caption.partition(" Dots")[0]),
            pages.table(lines, numbers=[1]),
            pages.heading("Features with the most one-sided shares"),
            pages.table(rows, ("feature", "share", "firings", "where it fires most"), numbers=[0, 1, 2]),
        ]

    def places(self, feature: int, count: int = 4) -> str:
        """Return where a feature fires most, as text."""
        table = self.firing(feature, count).drop(columns="activation")
        return "; ".join(" ".join(f"{name} {value}" for name, value in row.items()) for _, row in table.iterrows())

    def _repr_html_(self) -> str:
        return "".join(self._body())

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a page with numbers, picture and tables."""
        with new_files(Path(path), overwrite=overwrite) as (file,):
            file.write(pages.page("What two networks do not share", "", self._body(), verdict=self.verdict))


def draw_owners(axes: Any, matched: pandas.DataFrame) -> None:
    """Draw the share of every matched concept, one line for each owner."""
    for place, (owner, colour) in enumerate(zip(OWNERS, (style.BLUE, style.GREEN, style.VERMILION), strict=True)):
        share = matched["share"][matched["owner"] == owner].to_numpy()
        axes.plot(share, np.full(share.size, place), "o", color=colour, alpha=0.7, markersize=5)
    axes.set_yticks(range(len(OWNERS)), [f"owner: {owner}" for owner in OWNERS])
    axes.set_ylim(-0.6, len(OWNERS) - 0.4)
    axes.set_xlim(-0.02, 1.02)


def diff(
    first: Any,
    second: Any,
    data: Any = None,
    *,
    layer: str | Sequence[str] | None = None,
    trained_on: Sequence[Collection[int]] | None = None,
    documents: int = N_DOCUMENTS,
    method: str = "topk",
    seed: int = 0,
    device: Device = "auto",
    progress: bool | Progress = False,
) -> Difference:
    """Find what two networks do not share, by a crosscoder on the activations of both.

    The crosscoder is fitted on the first four fifths of the rows or documents; all results are of the other rows.

    Parameters
    ----------
    first, second
        Torch modules, functions from inputs to arrays, or arrays of activations for the same inputs: (rows, width) or
        (documents, positions, width).
    data
        A `Corpus`, whose held-out documents are read; it should have documents of all lexicons that either network was
        trained on. Or inputs, as an array. None where `first` and `second` are arrays.
    layer
        Name of a module, or one for each network; None: the last block.
    trained_on
        The lexicons of the corpus that each network was trained on, such as ``[{0}, {0, 1}]``. It says which network
        owns each concept.
    documents
        How many documents of a corpus are read.
    method
        What finds features: "topk" or another sparse autoencoder of SAELens, or "kmeans", with options after ``@``.
    seed
        Seed of the method.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    progress
        True shows a bar; a function is called with (stage, done, total).
    """
    place, rows = choose_device(device), _Rows.of(data, first, documents)
    if trained_on is not None and (not isinstance(data, Corpus) or len(trained_on) != 2):
        raise ValueError("trained_on must be the lexicons of two networks, with a corpus as data")
    names = [layer, layer] if layer is None or isinstance(layer, str) else list(layer)
    if len(names) != 2:
        raise ValueError(f"layer must be a name, or two, got {len(names)}")
    known = check_installed(entry(method, MODEST))  # before networks are read, which may take long
    with shown(progress) as tell:
        values = [rows.read(network, name, place) for network, name in zip((first, second), names, strict=True)]
        crosscoder = make(known, check_seed("seed", seed), place, sum(part.shape[1] for part in values))
        if hasattr(crosscoder, "progress"):
            crosscoder.progress = tell
        fit, width = rows.first_test * int(np.prod(rows.shape[1:])), values[0].shape[1]
        joined = as_taken(crosscoder, side_by_side(values, fit))
        crosscoder.fit(joined[:fit])
    if getattr(crosscoder, "directions", None) is None:
        raise ValueError(f"method must have directions, got {method!r}")
    encoded, share = crosscoder.encode(joined[fit:]), shares(as_array(crosscoder.directions), width)
    codes = scipy.sparse.csc_array(as_array(encoded) if hasattr(encoded, "detach") else encoded)
    held_out = (rows.shape[0] - rows.first_test, *rows.shape[1:])
    return Difference(
        features=_features(codes, share),
        concepts=None if trained_on is None else _concepts(data, rows, codes, share, trained_on),
        codes=codes,
        shape=held_out,
        tokens=rows.tokens,
        numbers=rows.first_number + np.arange(rows.first_test, rows.shape[0]),
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """The inputs of both networks, in the form that sources of activations read."""

    inputs: Any
    shape: tuple[int, ...]  #: (documents, positions), or (rows,)
    first_number: int = 0
    has_tokens: bool = False

    @classmethod
    def of(cls, data: Any, network: Any, documents: int) -> _Rows:
        if isinstance(data, Corpus):
            count = check_integer("documents", documents, 2)
            tokens = data.documents(HELD_OUT, HELD_OUT + count).tokens
            return cls(tokens, tokens.shape, HELD_OUT, True)
        if data is None and not hasattr(network, "shape"):
            raise ValueError("data must be a corpus or inputs unless activations are given, got None")
        inputs = getattr(data, "X", data)
        array = network if inputs is None else inputs
        whole = inputs is not None and np.issubdtype(np.asarray(array[:1]).dtype, np.integer)
        shape = tuple(array.shape[:2] if whole or (inputs is None and len(array.shape) == 3) else array.shape[:1])
        if not shape or shape[0] < 2:
            raise ValueError(f"data must have at least 2 rows, got shape {tuple(array.shape)}")
        return cls(inputs, shape, 0, whole)

    @property
    def first_test(self) -> int:
        """The first row, or document, that the crosscoder is not fitted on."""
        return min(self.shape[0] - 1, max(1, round(FIT_SHARE * self.shape[0])))

    @property
    def tokens(self) -> Any:
        return np.asarray(self.inputs[self.first_test :]) if self.has_tokens else None

    def read(self, network: Any, layer: str | None, device: torch.device) -> torch.Tensor:
        source = as_source(network)
        name = layer or next(iter(source.layers()), "activations")
        return source.read(cast(Any, self), [name], device)[name]


def _features(codes: scipy.sparse.csc_array, share: Floats) -> pandas.DataFrame:
    import pandas

    fired = np.asarray((codes > 0).sum(0), np.int64)
    activation = codes.maximum(0).sum(0) / np.maximum(fired, 1)
    values = {"share": share, "fired": fired, "activation": activation}
    return pandas.DataFrame({"feature": np.arange(share.size), **values})


def _concepts(
    corpus: Corpus, rows: _Rows, codes: scipy.sparse.csc_array, share: Floats, trained_on: Sequence[Collection[int]]
) -> pandas.DataFrame:
    """Return the concepts of all lexicons that any of the networks was trained on, with their owners."""
    import pandas

    documents = corpus.documents(HELD_OUT + rows.first_test, HELD_OUT + rows.shape[0])
    tables = []
    for k in sorted({k for known in trained_on for k in known}):
        if not 0 <= k < len(corpus.lexicons):
            raise ValueError(f"trained_on must be lexicons below {len(corpus.lexicons)}, got {k}")
        table = score(corpus, codes, factor=k, documents=documents, draws=1).concepts
        table = table[table["summarised"]].rename(columns={"best_feature": "feature"})
        has = [k in known for known in trained_on]
        owner = BOTH if all(has) else FIRST if has[0] else SECOND
        feature = table["feature"].to_numpy()
        table = table.assign(lexicon=k, owner=owner, share=np.where(feature < 0, 0.5, share[feature]))
        tables.append(table[["lexicon", "latent", "size", "feature", "f1", "share", "owner"]])
    concepts = pandas.concat(tables, ignore_index=True) if tables else pandas.DataFrame()
    nearest: Ints = np.abs(concepts["share"].to_numpy()[:, None] - [0, 0.5, 1]).argmin(1)
    return concepts.assign(said=[OWNERS[i] for i in nearest])
