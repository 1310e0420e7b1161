"""Documents in other formats: one line per document, and a table of the contexts of all lexicons."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import COLUMNS, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.exports.columns import EXPORT_BYTES, PROVENANCE, RECIPE, arrow
from percolab.ground.files import PathLike, new_files, new_folder
from percolab.ground.progress import Progress
from percolab.ground.version import __version__

CARD = """---
pretty_name: Documents of percolation contexts
tags:
- percolation
- interpretability
- synthetic
configs:
- config_name: documents
  data_files: documents.parquet
  default: true
- config_name: contexts
  data_files: contexts.parquet
---

# Documents of percolation contexts

{n:,} documents of {length:,} tokens out of {n_tokens:,}, with the contexts that they were drawn from and the exact
loss of the best predictor. Written by percolab {version}.

```python
from datasets import load_dataset

documents = load_dataset(PATH, "documents", split="train").with_format("torch")
contexts = load_dataset(PATH, "contexts", split="train")
```

Each line of `documents` is a document: `input_ids`; the `context` of each token, a latent of lexicon `lexicon`;
`renewed`, 1 where it was drawn afresh; `floor`, -log of the exact probability of each token given those before; and the
deepest context that is `believed` after each token, -1 for none. Each line of `contexts` is a context with its tokens.
This recipe makes them again:

```json
{recipe}
```
"""


def npz_paths(path: PathLike) -> tuple[Path]:
    """Return the file of an export, ``{stem}.npz``."""
    return (Path(os.fspath(path).removesuffix(".npz") + ".npz"),)


def parquet_paths(path: PathLike) -> tuple[Path, Path]:
    """Return the files of an export, ``{stem}.documents.parquet`` and ``{stem}.contexts.parquet``."""
    stem = os.fspath(path).removesuffix(".parquet")
    return Path(f"{stem}.documents.parquet"), Path(f"{stem}.contexts.parquet")


def huggingface_paths(path: PathLike) -> tuple[Path, Path, Path]:
    """Return the files of an export: ``README.md``, ``documents.parquet`` and ``contexts.parquet`` in a folder."""
    folder = Path(os.fspath(path))
    return folder / "README.md", folder / "documents.parquet", folder / "contexts.parquet"


def to_npz(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write one array for each column, the ids of each lexicon's rows, and the recipe as JSON; all is read at once."""
    corpus = documents.corpus
    ids = np.stack([corpus.token_ids(k) for k in range(len(corpus.lexicons))])
    columns: dict[str, Any] = {name: getattr(documents, name)[:] for name in COLUMNS}
    columns |= {"number": documents.number, "token_ids": ids, "recipe": documents.recipe.to_json()}
    with new_files(*npz_paths(path), overwrite=overwrite) as (file,):
        np.savez_compressed(file, **columns)
    progress("exporting", len(documents), len(documents))


def to_parquet(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write a table of documents and one of contexts, block by block."""
    arrow("Parquet")
    with new_files(*parquet_paths(path), overwrite=overwrite) as (lines, contexts):
        _write_tables(documents, lines, contexts, "tokens", progress)


def to_huggingface(documents: StoredDocuments, path: PathLike, *, overwrite: bool, progress: Progress) -> None:
    """Write a folder that ``datasets.load_dataset`` opens; tokens are ``input_ids`` there."""
    arrow("a Hugging Face folder")
    corpus, recipe = documents.corpus, documents.recipe.to_json()
    with new_folder(path), new_files(*huggingface_paths(path), overwrite=overwrite) as (card, lines, contexts):
        sizes = {"n": len(documents), "length": corpus.length, "n_tokens": corpus.n_tokens}
        card.write(CARD.format(**sizes, version=__version__, recipe=recipe).encode())
        _write_tables(documents, lines, contexts, "input_ids", progress)


def _write_tables(documents: StoredDocuments, lines: Any, contexts: Any, ids: str, progress: Progress) -> None:
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    told = {RECIPE: documents.recipe.to_json(), PROVENANCE: json.dumps(documents.provenance)}
    pq.write_table(pa.table(_contexts(documents.corpus)).replace_schema_metadata(told), contexts)
    schema = _lines(documents, slice(0, 0), ids).schema.with_metadata(told)
    with pq.ParquetWriter(lines, schema) as writer:
        for rows in _blocks(documents, progress):
            writer.write_table(_lines(documents, rows, ids).cast(schema))


def _blocks(documents: StoredDocuments, progress: Progress) -> Iterator[slice]:
    step = 1 << max(0, (EXPORT_BYTES // (8 * documents.corpus.length)).bit_length() - 1)
    for lo in range(0, len(documents), step):
        yield slice(lo, min(lo + step, len(documents)))
        progress("exporting", min(lo + step, len(documents)), len(documents))


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
    found: dict[str, list[Any]] = {name: [] for name in ("lexicon", "context", "above", "prior", "tokens")}
    for k in range(len(corpus.lexicons)):
        forest, contexts, ids = corpus.forest(k), corpus.contexts(k), corpus.token_ids(k)
        found["lexicon"] += [k] * contexts.size
        found["context"] += contexts.tolist()
        found["above"] += forest.nearest_above(contexts).tolist()
        found["prior"] += corpus.prior(k).tolist()
        found["tokens"] += [ids[forest.points_of(int(latent))] for latent in contexts]
    return found
