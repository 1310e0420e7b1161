"""Documents as one page: each a strip of tokens, with the exact beliefs over its lexicon's tree at every position."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from percolab.corpora.collection import StoredDocuments
from percolab.corpora.corpus import HELD_OUT, Corpus
from percolab.corpora.sampler import Documents
from percolab.ground.extras import needing
from percolab.show import style
from percolab.show.belief_map import nested
from percolab.show.explorer import page
from percolab.show.explorer.packing import pack
from percolab.show.explorer.shown_features import LEVELS, above, levels

MOST_DOCUMENTS = 200
MOST_BYTES = 1 << 26  #: Most bytes of beliefs before compression: documents beyond are left out.
SCRIPTS = ("unpack", "colours", "documents")


@dataclass(frozen=True, eq=False)
class Probed:
    """The beliefs that a probe reads from a network's activations, at every position of the first documents."""

    trained_on: Collection[int]  #: lexicons that the network was trained on; none: untrained
    #: for each lexicon (positions, contexts): the probability that the context lies inside, as the probe reads it
    inside: Sequence[Any]


def gather(
    source: Corpus | StoredDocuments, codes: Any, scores: Any, name: str, most: int, beliefs: Mapping[str, Probed]
) -> bytes:
    """Return the packed data of the page for the first documents.

    Parameters
    ----------
    source
        A corpus, or stored documents.
    codes
        None; (documents · positions, features), or (documents, positions, features), of the first documents; or the
        codes of several networks by name.
    scores
        None, or the results of `percolab.features.score` for the codes, one per lexicon; for several networks, by name.
    name
        What the page calls the documents.
    most
        Most positions shown.
    beliefs
        The beliefs read from networks, by name.
    """
    if isinstance(source, StoredDocuments):
        corpus, first, total = source.corpus, source.recipe.lo, len(source)
    else:
        corpus, first, total = source, HELD_OUT, None
    length, lexicons = corpus.length, range(len(corpus.lexicons))
    room = MOST_BYTES // (length * sum(corpus.contexts(k).size for k in lexicons))
    by_label = {} if codes is None else dict(codes) if isinstance(codes, Mapping) else {"features": codes}
    sizes = {label: int(np.prod(part.shape[:-1])) // length for label, part in by_label.items()}
    read = [len(probed.inside[0]) // length for probed in beliefs.values()]
    known = [size for size in (total, *sizes.values(), *read) if size is not None]
    count = max(1, min(MOST_DOCUMENTS, most // length, room, *known))
    documents = corpus.documents(first, first + count)
    by_name = scores if isinstance(scores, Mapping) else dict.fromkeys(by_label, scores)
    return pack(
        {
            "name": name,
            "lead": f"{count:,} {'held-out' if total is None else f'of {total:,}'} documents of {length} tokens each"
            + (" (their numbers begin at 2^40)" if total is None else ""),
            "length": length,
            "trees": [_tree(corpus, k) for k in lexicons],
            "features": [_features(label, part, documents, by_name.get(label)) for label, part in by_label.items()],
            "networks": [_network(corpus, label, probed, count) for label, probed in beliefs.items()],
            **_columns(corpus, documents),
        }
    )  # fmt: skip


def _tree(corpus: Corpus, k: int) -> dict[str, Any]:
    """Return the contexts of a lexicon in preorder, and the row of every token."""
    forest, contexts = corpus.forest(k), corpus.contexts(k)
    upper, level = nested(corpus, k)
    return {
        "latent": contexts,
        "start": forest.latent_start[contexts],
        "size": forest.latent_size[contexts],
        "upper": upper,
        "level": level,
        "row": np.argsort(corpus.token_ids(k)),
        "share": corpus.shares[k],
    }


def _columns(corpus: Corpus, documents: Documents) -> dict[str, Any]:
    """Return documents and the exact beliefs at each position; probabilities are in 255 levels."""
    beliefs = corpus.beliefs(documents.tokens)
    levels = [
        np.rint(LEVELS * beliefs.inside(corpus.contexts(k), k)).astype(np.uint8) for k in range(len(corpus.lexicons))
    ]
    return {
        "number": documents.number,
        "lexicon": documents.lexicon,
        "tokens": documents.tokens,
        "context": documents.context,
        "renewed": documents.renewed,
        "floor": beliefs.floor.astype(np.float32),
        "believed": beliefs.believed,
        "believed_lexicon": beliefs.believed_lexicon,
        "of_lexicon": np.rint(LEVELS * beliefs.lexicon).astype(np.uint8),
        "inside": levels,
    }


def _network(corpus: Corpus, name: str, probed: Probed, count: int) -> dict[str, Any]:
    """Return the beliefs read from a network in 255 levels; readings are clipped to between 0 and 1."""
    rows, inside = count * corpus.length, []
    for k in range(len(corpus.lexicons)):
        values = np.asarray(probed.inside[k], np.float64)
        if values.shape[1:] != corpus.contexts(k).shape:
            rule = f"beliefs must have one column for each of the {corpus.contexts(k).size} contexts of lexicon {k}"
            raise ValueError(f"{rule}, got shape {values.shape}")
        inside.append(np.rint(LEVELS * np.clip(values[:rows], 0, 1)).astype(np.uint8))
    return {"name": name, "trained_on": list(probed.trained_on), "inside": inside}


def _features(label: str, codes: Any, documents: Documents, scores: Any) -> dict[str, Any]:
    """Return where features fire, row by row, and the context that each matches best in every lexicon."""
    n, length = documents.tokens.shape
    if len(codes.shape) == 3:
        codes = codes.reshape(-1, codes.shape[2])
    if codes.shape[0] % length:
        raise ValueError(f"codes must have {length} rows for each document, got {codes.shape[0]} rows")
    matrix = above(codes[: n * length], 0)
    top = np.maximum(matrix.max(0).toarray().ravel() if matrix.nnz else np.ones(matrix.shape[1]), 1e-30)
    per_lexicon = [] if scores is None else list(scores) if isinstance(scores, list | tuple) else [scores]
    return {
        "name": label,
        "n_features": matrix.shape[1],
        "end": np.asarray(matrix.indptr, np.int64),
        "feature": np.asarray(matrix.indices, np.int64),
        "level": levels(matrix.data, top[matrix.indices]),
        "best": [
            {"latent": score.features["latent"].to_numpy(), "f1": score.features["f1"].to_numpy().astype(np.float32)}
            for score in per_lexicon
        ],
    }


def build(data: bytes, *, title: str) -> str:
    """Return the page of packed data."""
    with needing("the explorer needs", "explore", "Bokeh"):
        from jinja2 import Template
    return Template(page.text("documents.html")).render(
        title=title,
        style=style.css() + page.text("style.css") + page.text("documents.css"),
        script=page.script(SCRIPTS),
        data=base64.b64encode(data).decode(),
    )
