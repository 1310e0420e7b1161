"""Two tables, of points and latents or of documents and contexts: as Parquet, as CSV, and as a folder of the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from percolab.corpora.collection import StoredDocuments
from percolab.dataset.dataset import Dataset
from percolab.exports.columns import EXPORT, assemble, blocks, numpy_columns, paths, positions, record, refuse_documents
from percolab.exports.point_tables import PointTables
from percolab.exports.sequences import DocumentTables
from percolab.ground import memory
from percolab.ground.extras import needing
from percolab.ground.files import PathLike, new_files, new_folder
from percolab.ground.foreign_files import open_plain, read_json, reading
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers
from percolab.ground.version import __version__
from percolab.worlds.superposed import AnyDataset

MOST_TYPES = 1 << 26
"""Bytes of the file with the recipe and the types of all columns of a CSV."""
HUGGING_FACE = "a Hugging Face folder"
CARD = """---
pretty_name: {title}
tags:
- percolation
- interpretability
- synthetic
configs:
- config_name: {first}
  data_files: {first}.parquet
  default: true
- config_name: {second}
  data_files: {second}.parquet
---

# {title}

{what} Written by percolab {version}.

```python
from datasets import load_dataset

{first} = load_dataset(PATH, "{first}", split="train").with_format("torch")
{second} = load_dataset(PATH, "{second}", split="train")
```

{columns}This recipe makes {it} again:

```json
{recipe}
```
"""
"""What the README.md of a folder of the Hugging Face Hub says."""


def to_parquet(
    dataset: AnyDataset | StoredDocuments,
    path: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write two Parquet tables, ``{stem}.points.parquet`` and ``{stem}.latents.parquet``.

    The first has one line per point, in the order of the rows: ``x0 …``, ``y``, ``z``, ``cluster`` (index),
    ``cluster_id`` (birth), ``point_id``, ``depth``. The second is `Forest.latent_table` with the latents' ``z``. X is
    written block by block, so one that is still on disk is never whole in memory. The recipe is in the metadata of
    both schemas, as JSON, under the key ``percolab.recipe``. Of a superposed world, the first has one line per sample,
    with X and y of the world and the truth of the point of one factor, ``row`` being that point; the second has the
    latents of that factor.

    Documents of a store are written as `exports.sequences` says.
    """
    tables = _tables_of(dataset, factor, "Parquet")
    with new_files(*paths("parquet", path, tables.tails), overwrite=overwrite) as files:
        _write(tables, *files, hub=False, progress=progress)


def to_huggingface(
    dataset: AnyDataset | StoredDocuments,
    path: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write a folder that ``datasets.load_dataset(path, "points")`` opens, and that can be uploaded as it is.

    The table of points has X as one column of vectors, and ``y``, ``z``, ``cluster``, ``cluster_id``, ``point_id``,
    ``depth``; the table of latents is `Forest.latent_table` with the latents' ``z``. X is written block by block. Of a
    superposed world they are as those of `to_parquet`.

    Documents of a store are written as `exports.sequences` says.
    """
    tables = _tables_of(dataset, factor, HUGGING_FACE)
    files = paths("huggingface", path, tables.tails)
    names = {"first": files[1].stem, "second": files[2].stem, "version": __version__}
    with new_folder(path), new_files(*files, overwrite=overwrite) as (card, *both):
        card.write(CARD.format(**tables.card(), **names, recipe=dataset.recipe.to_json()).encode())
        _write(tables, *both, hub=True, progress=progress)


def to_csv(
    dataset: AnyDataset,
    path: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write the tables of `to_parquet` as ``{stem}.points.csv`` and ``{stem}.latents.csv``.

    Line i is row or latent i. Numbers are written with as many digits as they need to be read back to the bit. The
    recipe and the types of the columns are in ``{stem}.recipe.json``.
    """
    refuse_documents(dataset, "csv")
    tables = _tables_of(dataset, factor, "CSV")
    from pyarrow import csv

    with new_files(*paths("csv", path), overwrite=overwrite) as (points_file, latents_file, recipe_file):
        latents = tables.truths()
        csv.write_csv(latents, latents_file)
        schema = tables.lines(slice(0, 0), hub=False).schema
        with csv.CSVWriter(points_file, schema) as writer:
            for rows in blocks(dataset, progress):
                writer.write_table(tables.lines(rows, hub=False))
        types = {"points": _types(schema), "latents": _types(latents.schema)}
        facts = {key: json.loads(text) for key, text in record(dataset, tables.factor).items()}
        recipe_file.write(json.dumps({**facts, "types": types}, indent=1).encode() + b"\n")


def _tables_of(dataset: AnyDataset | StoredDocuments, factor: int | None, what: str) -> PointTables | DocumentTables:
    """Return the tables to be written; refuse what has none, and say what is needed to write them."""
    tables = DocumentTables(dataset) if isinstance(dataset, StoredDocuments) else PointTables.of(dataset, factor)
    tables.check()
    _arrow(what)
    return tables


def _write(tables: PointTables | DocumentTables, lines: Any, truths: Any, *, hub: bool, progress: Progress) -> None:
    """Write both tables as Parquet, with the recipe in their metadata; the first block by block."""
    import pyarrow.parquet as pq

    facts = {key.encode(): text.encode() for key, text in record(tables.data, tables.factor).items()}
    table = tables.truths(hub=hub)
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **facts}), truths)
    with pq.ParquetWriter(lines, tables.lines(slice(0, 0), hub=hub).schema.with_metadata(facts)) as writer:
        for rows in blocks(tables.data, progress):
            writer.write_table(tables.lines(rows, hub=hub))


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _arrow(what: str) -> Any:
    """Return pyarrow, or say that it is needed, and pandas with it."""
    with needing(f"{what} needs", "frames"):
        import pandas  # noqa: F401  # latent_table needs it: say so before anything is written
        import pyarrow
    return pyarrow


# ---------------------------------------------------------------------- read back


def read_parquet(path: PathLike) -> Dataset:
    """Read the dataset that `to_parquet` wrote."""
    _arrow("Parquet")
    with _tables(*paths("parquet", path)) as (points, latents, facts):
        columns = numpy_columns(points)
        return assemble(positions(columns), columns, numpy_columns(latents), facts)


def read_huggingface(path: PathLike) -> Dataset:
    """Read the dataset that `to_huggingface` wrote."""
    _arrow(HUGGING_FACE)
    with _tables(*paths("huggingface", path)[1:]) as (points, latents, facts):
        vectors = points["X"].combine_chunks()
        X = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(points), vectors.type.list_size)
        columns = numpy_columns(points.drop_columns("X"))
        return assemble(check_numbers("X", X), columns, numpy_columns(latents), facts)


@contextmanager
def _tables(points_path: Path, latents_path: Path) -> Iterator[tuple[Any, Any, dict[str, str]]]:
    """Yield the two tables of an export and what its metadata say; faults in them are faults of the export."""
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        points, latents = _table(points_file), _table(latents_file)
        yield points, latents, {key.decode(): text.decode() for key, text in (points.schema.metadata or {}).items()}


def _table(file: IO[bytes]) -> Any:
    """Return the table of a Parquet file, if it is one of numbers that memory holds: small files can unpack to more."""
    import pyarrow.parquet as pq

    packed = pq.ParquetFile(file)
    held = packed.metadata
    columns = [held.row_group(k).column(j) for k in range(held.num_row_groups) for j in range(held.num_columns)]
    if not {column.physical_type for column in columns} <= {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"}:
        raise ValueError("its columns must be numbers")
    memory.require(8 * sum(column.num_values for column in columns), "what export holds needs")
    return packed.read()


def read_csv(path: PathLike) -> Dataset:
    """Read the dataset that `to_csv` wrote."""
    pa = _arrow("CSV")
    from pyarrow import csv

    points_path, latents_path, recipe_path = paths("csv", path)
    kept = read_json("export", recipe_path, MOST_TYPES)
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        tables = []
        for file, name in ((points_file, "points"), (latents_file, "latents")):
            types = {column: pa.type_for_alias(word) for column, word in kept["types"][name].items()}
            tables.append(numpy_columns(csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=types))))
        points, latents = tables
        return assemble(positions(points), points, latents, {key: json.dumps(value) for key, value in kept.items()})
