"""Documents in other formats: one line per document, and a table of the contexts of all lexicons."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import COLUMNS, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.exports.columns import CARD, DOCUMENT_TAILS, PROVENANCE, RECIPE, arrow, blocks, paths
from percolab.ground.files import PathLike, new_files, new_folder
from percolab.ground.progress import Progress
from percolab.ground.version import __version__

WHAT = """\
{n:,} documents of {length:,} tokens out of {n_tokens:,}, with the contexts that they were drawn from and the exact
loss of the best predictor."""
COLUMNS_SAID = """\
Each line of `documents` is a document: `input_ids`; the `context` of each token, a latent of lexicon `lexicon`;
`renewed`, 1 where it was drawn afresh; `floor`, -log of the exact probability of each token given those before; and the
deepest context that is `believed` after each token, -1 for none. Each line of `contexts` is a context with its tokens.
"""


def to_npz(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write one array for each column, the ids of each lexicon's rows, and the recipe as JSON; all is read at once."""
    corpus = documents.corpus
    ids = np.stack([corpus.token_ids(k) for k in range(len(corpus.lexicons))])
    columns: dict[str, Any] = {name: getattr(documents, name)[:] for name in COLUMNS}
    columns |= {"number": documents.number, "token_ids": ids, "recipe": documents.recipe.to_json()}
    with new_files(*paths("npz", path, DOCUMENT_TAILS), overwrite=overwrite) as (file,):
        np.savez_compressed(file, **columns)
    progress("exporting", len(documents), len(documents))


def to_parquet(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write a table of documents and one of contexts, block by block."""
    arrow("Parquet")
    with new_files(*paths("parquet", path, DOCUMENT_TAILS), overwrite=overwrite) as (lines, contexts):
        _write_tables(documents, lines, contexts, "tokens", progress)


def to_huggingface(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write a folder that ``datasets.load_dataset`` opens; tokens are ``input_ids`` there."""
    arrow("a Hugging Face folder")
    what = WHAT.format(n=len(documents), length=documents.corpus.length, n_tokens=documents.corpus.n_tokens)
    names = {"title": "Documents of percolation contexts", "first": "documents", "second": "contexts", "it": "them"}
    said = {"what": what, "columns": COLUMNS_SAID, "version": __version__, "recipe": documents.recipe.to_json()}
    files = paths("huggingface", path, DOCUMENT_TAILS)
    with new_folder(path), new_files(*files, overwrite=overwrite) as (card, lines, contexts):
        card.write(CARD.format(**names, **said).encode())
        _write_tables(documents, lines, contexts, "input_ids", progress)


def _write_tables(documents: StoredDocuments, lines: Any, contexts: Any, ids: str, progress: Progress) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    facts = {RECIPE: documents.recipe.to_json(), PROVENANCE: json.dumps(documents.provenance)}
    pq.write_table(pa.table(_contexts(documents.corpus)).replace_schema_metadata(facts), contexts)
    schema = _lines(documents, slice(0, 0), ids).schema.with_metadata(facts)
    with pq.ParquetWriter(lines, schema) as writer:
        for rows in blocks(documents, progress):
            writer.write_table(_lines(documents, rows, ids).cast(schema))


def _lines(documents: StoredDocuments, rows: slice, ids: str) -> Any:
    import pyarrow as pa

    columns = {ids if name == "tokens" else name: getattr(documents, name)[rows] for name in COLUMNS}
    return pa.table({"number": documents.number[rows]} | {name: _arrow(column) for name, column in columns.items()})


def _arrow(column: NDArray[Any]) -> Any:
    import pyarrow as pa

    values = pa.array(np.ascontiguousarray(column).reshape(-1))
    return values if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(values, column.shape[1])


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
