"""Documents in other formats: one line per document, and a table of the contexts of all lexicons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from percolab.corpora.collection import COLUMNS, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.exports.columns import DOCUMENT_TAILS, paths
from percolab.ground.files import PathLike, new_files
from percolab.ground.progress import Progress

WHAT = """\
{n:,} documents of {length:,} tokens out of {n_tokens:,}, with the contexts that they were drawn from and the exact
loss of the best predictor."""
COLUMNS_SAID = """\
Each line of `documents` is a document: `input_ids`; the `context` of each token, a latent of lexicon `lexicon`;
`renewed`, 1 where it was drawn afresh; `floor`, -log of the exact probability of each token given those before; and the
deepest context that is `believed` after each token, -1 for none. Each line of `contexts` is a context with its tokens.
"""


@dataclass(frozen=True, eq=False)
class DocumentTables:
    """Documents of a store, each a line of the first table; the contexts of all lexicons are the second."""

    data: StoredDocuments

    tails = DOCUMENT_TAILS
    factor = None

    def lines(self, rows: slice) -> Any:
        """Return some lines of the table of documents; tokens are named ``input_ids``, as on the Hugging Face Hub."""
        import pyarrow as pa

        columns = {"number": self.data.number[rows]}
        for name in COLUMNS:
            column = getattr(self.data, name)[rows]
            values = pa.array(np.ascontiguousarray(column).reshape(-1))
            lists = values if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, column.shape[1])
            columns["input_ids" if name == "tokens" else name] = lists
        return pa.table(columns)

    def truths(self) -> Any:
        """Return the table of contexts."""
        import pyarrow as pa

        return pa.table(_contexts(self.data.corpus))

    def card(self) -> dict[str, str]:
        """Return the text about these tables for the card of a folder."""
        corpus = self.data.corpus
        return {
            "title": "Documents of percolation contexts",
            "it": "them",
            "what": WHAT.format(n=len(self.data), length=corpus.length, n_tokens=corpus.n_tokens),
            "columns": COLUMNS_SAID,
        }


def to_npz(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write one array for each column, the ids of each lexicon's rows, and the recipe as JSON; all is read at once."""
    corpus = documents.corpus
    ids = np.stack([corpus.token_ids(k) for k in range(len(corpus.lexicons))])
    columns: dict[str, Any] = {name: getattr(documents, name)[:] for name in COLUMNS}
    columns |= {"number": documents.number, "token_ids": ids, "recipe": documents.recipe.to_json()}
    with new_files(*paths("npz", path, DOCUMENT_TAILS), overwrite=overwrite) as (file,):
        np.savez_compressed(file, **columns)
    progress("exporting", len(documents), len(documents))


def _contexts(corpus: Corpus) -> dict[str, Any]:
    """Return one line per context: its lexicon, its latent, the context above it, its prior, and its tokens."""
    columns: dict[str, list[Any]] = {name: [] for name in ("lexicon", "context", "above", "prior", "tokens")}
    for k in range(len(corpus.lexicons)):
        forest, contexts, ids = corpus.forest(k), corpus.contexts(k), corpus.token_ids(k)
        columns["lexicon"] += [k] * contexts.size
        columns["context"] += contexts.tolist()
        columns["above"] += forest.nearest_above(contexts).tolist()
        columns["prior"] += corpus.prior(k).tolist()
        columns["tokens"] += [ids[forest.points_of(int(latent))] for latent in contexts]
    return columns
