"""Two tables, of points and latents or of documents and contexts: as a folder of Parquet, and as CSV."""

from __future__ import annotations

import json
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

MOST_TYPES = 1 << 26  #: Bytes of the file with the recipe and the types of all columns of a CSV.
#: The README.md of a folder for the Hugging Face Hub.
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


def to_parquet(
    dataset: AnyDataset | StoredDocuments,
    path: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write a folder that ``datasets.load_dataset(path, "points")`` opens, and that can be uploaded without changes.

    ``points.parquet`` has one line per point, in the order of the rows: X as one column of vectors, ``y``, ``z``,
    ``cluster`` (index), ``cluster_id`` (birth), ``point_id``, ``depth``. ``latents.parquet`` is `Forest.latent_table`
    with the latents' ``z``. X is written block by block, so a stored X is never whole in memory. The recipe is in the
    metadata of both schemas, as JSON, under the key ``percolab.recipe``. For a superposed world, the first table has
    one line per sample, with X and y of the world and the truth of the point of one factor, whose row is ``row``; the
    second table has the latents of that factor.

    Documents of a store are written as `exports.sequences` says.
    """
    import_arrow("Parquet")
    import pyarrow.parquet as pq

    tables = DocumentTables(dataset) if isinstance(dataset, StoredDocuments) else PointTables.of(dataset, factor)
    files = paths("parquet", path, tables.tails)
    names = {"first": files[1].stem, "second": files[2].stem, "version": __version__}
    facts = {key.encode(): text.encode() for key, text in record(dataset, tables.factor).items()}
    with new_folder(path), new_files(*files, overwrite=overwrite) as (card, lines, truths):
        card.write(CARD.format(**tables.card(), **names, recipe=dataset.recipe.to_json()).encode())
        pq.write_table(tables.truths().replace_schema_metadata(facts), truths)
        with pq.ParquetWriter(lines, tables.lines(slice(0, 0)).schema.with_metadata(facts)) as writer:
            for rows in blocks(dataset, progress):
                writer.write_table(tables.lines(rows))


to_huggingface = to_parquet


def to_csv(
    dataset: AnyDataset,
    path: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write the tables of `to_parquet`, X as columns ``x0 …``, as ``{stem}.points.csv`` and ``{stem}.latents.csv``.

    Line i is row or latent i. Numbers are written with enough digits to be read back to the bit. The recipe and the
    types of the columns are in ``{stem}.recipe.json``.
    """
    import_arrow("CSV")
    from pyarrow import csv

    refuse_documents(dataset, "csv")
    tables = PointTables.of(dataset, factor)
    with new_files(*paths("csv", path), overwrite=overwrite) as (points_file, latents_file, recipe_file):
        latents = tables.truths()
        csv.write_csv(latents, latents_file)
        schema = tables.flat_lines(slice(0, 0)).schema
        with csv.CSVWriter(points_file, schema) as writer:
            for rows in blocks(dataset, progress):
                writer.write_table(tables.flat_lines(rows))
        types = {"points": _types(schema), "latents": _types(latents.schema)}
        facts = {key: json.loads(text) for key, text in record(dataset, tables.factor).items()}
        recipe_file.write(json.dumps({**facts, "types": types}, indent=1).encode() + b"\n")


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def import_arrow(what: str) -> None:
    """Raise, in one line, before anything is written, if pyarrow is missing, or pandas, which `latent_table` needs."""
    with needing(f"{what} needs", "frames"):
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401


# ---------------------------------------------------------------------- read back


def read_parquet(path: PathLike) -> Dataset:
    """Read the dataset that `to_parquet` wrote."""
    import_arrow("Parquet")
    _, points_path, latents_path = paths("parquet", path)
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        points, latents = _table(points_file), _table(latents_file)
        facts = {key.decode(): text.decode() for key, text in (points.schema.metadata or {}).items()}
        vectors = points["X"].combine_chunks()
        X = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(points), vectors.type.list_size)
        columns = numpy_columns(points.drop_columns("X"))
        return assemble(check_numbers("X", X), columns, numpy_columns(latents), facts)


read_huggingface = read_parquet


def _table(file: IO[bytes]) -> Any:
    """Return the table of a Parquet file, if it holds numbers and fits in memory: small files can be large unpacked."""
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
    import_arrow("CSV")
    import pyarrow as pa
    from pyarrow import csv

    points_path, latents_path, recipe_path = paths("csv", path)
    header = read_json("export", recipe_path, MOST_TYPES)
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        tables = []
        for file, name in ((points_file, "points"), (latents_file, "latents")):
            types = {column: pa.type_for_alias(word) for column, word in header["types"][name].items()}
            tables.append(numpy_columns(csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=types))))
        points, latents = tables
        return assemble(positions(points), points, latents, {key: json.dumps(value) for key, value in header.items()})
