"""A table of points and a table of latents: as Parquet, as CSV, and as a folder of the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from percolab.corpora.collection import StoredDocuments
from percolab.dataset.dataset import Dataset
from percolab.exports import sequences
from percolab.exports.columns import (
    CARD,
    EXPORT,
    Samples,
    arrow,
    assemble,
    blocks,
    latent_table_columns,
    numpy_columns,
    paths,
    point_columns,
    position_columns,
    positions,
    record,
    require_trees,
)
from percolab.ground import memory
from percolab.ground.files import PathLike, new_files, new_folder
from percolab.ground.foreign_files import open_plain, read_json, reading
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers
from percolab.ground.version import __version__
from percolab.worlds.superposed import AnyDataset

MOST_TYPES = 1 << 26
"""Bytes of the file with the recipe and the types of all columns of a CSV."""
HUGGING_FACE = "a Hugging Face folder"
ON_CLUSTERS = """{n:,} points in {dim} dimensions on {n_clusters:,} clusters, with the {n_latents:,} latent variables
that made their targets."""
OF_A_WORLD = """{n:,} samples of a superposed world in {dim} dimensions, with the {n_latents:,} latent variables of its
factor {factor}: `row` is the point of that factor that a sample has, and what follows is that point's."""
COLUMNS_SAID = """\
Line i of `points` is row i: its position `X`, its target `y`, its own value `z`, its cluster, and how many latents it
has (`depth`). Line i of `latents` is latent i, whose points are `start` to `start + size - 1`. Neighbouring points are
relatives: shuffle before training, and hold out whole subtrees or clusters (`percolab.split_rows`) to test more than
memory.

"""
READ_BACK = "`percolab.exports.read_huggingface(PATH)` gives the dataset back. "


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
    if isinstance(dataset, StoredDocuments):
        sequences.to_parquet(dataset, path, overwrite=overwrite, progress=progress)
        return
    samples, pa = _begun(dataset, factor, "Parquet")
    import pandas
    import pyarrow.parquet as pq

    facts = {key.encode(): text.encode() for key, text in record(samples).items()}
    with new_files(*paths("parquet", path), overwrite=overwrite) as (points_file, latents_file):
        columns = latent_table_columns(samples)
        index = pandas.RangeIndex(samples.forest.n_latents, name="latent")
        table = pa.Table.from_pandas(pandas.DataFrame(columns, index=index))
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **facts}), latents_file)
        with pq.ParquetWriter(points_file, point_schema(samples).with_metadata(facts)) as writer:
            _write_points(writer, samples, progress)


def read_parquet(path: PathLike) -> Dataset:
    """Read the dataset that `to_parquet` wrote."""
    arrow("Parquet")
    with _tables(*paths("parquet", path)) as (points, latents, facts):
        columns = numpy_columns(points)
        return assemble(positions(columns), columns, numpy_columns(latents), facts)


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
    samples, pa = _begun(dataset, factor, "CSV")
    from pyarrow import csv

    with new_files(*paths("csv", path), overwrite=overwrite) as (points_file, latents_file, recipe_file):
        latents = pa.table(latent_table_columns(samples))
        csv.write_csv(latents, latents_file)
        schema = point_schema(samples)
        with csv.CSVWriter(points_file, schema) as writer:
            _write_points(writer, samples, progress)
        types = {"points": _types(schema), "latents": _types(latents.schema)}
        facts = {key: json.loads(text) for key, text in record(samples).items()}
        recipe_file.write(json.dumps({**facts, "types": types}, indent=1).encode() + b"\n")


def read_csv(path: PathLike) -> Dataset:
    """Read the dataset that `to_csv` wrote."""
    pa = arrow("CSV")
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


# ---------------------------------------------------------------------- what tables have in common


def _begun(dataset: AnyDataset, factor: int | None, what: str) -> tuple[Samples, Any]:
    """Return what is to be written, and pyarrow; refuse what has no tables of trees."""
    samples = Samples.of(dataset, factor)
    require_trees(samples.forest)
    return samples, arrow(what)


def point_schema(samples: Samples) -> Any:
    """Return the names and types of the table of points."""
    return _rows(samples, slice(0, 0)).schema


def _rows(samples: Samples, rows: slice) -> Any:
    """Return some rows of the table of points."""
    import pyarrow as pa

    return pa.table(position_columns(samples, rows) | point_columns(samples, rows))


def _write_points(writer: Any, samples: Samples, progress: Progress) -> None:
    for rows in blocks(samples.data, progress):
        writer.write_table(_rows(samples, rows))


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


# ---------------------------------------------------------------------- for the Hugging Face Hub
#
# A folder in the form of the Hugging Face Hub: a card and two Parquet tables, which ``datasets`` opens by name.


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
    if isinstance(dataset, StoredDocuments):
        sequences.to_huggingface(dataset, path, overwrite=overwrite, progress=progress)
        return
    samples, pa = _begun(dataset, factor, HUGGING_FACE)
    import pyarrow.parquet as pq

    facts = {key.encode(): text.encode() for key, text in record(samples).items()}
    files = paths("huggingface", path)
    with new_folder(path), new_files(*files, overwrite=overwrite) as (card, points_file, latents_file):
        card.write(_card(samples).encode())
        latents = pa.table(latent_table_columns(samples))
        pq.write_table(latents.replace_schema_metadata(facts), latents_file)
        schema = _points(samples, slice(0, 0)).schema.with_metadata(facts)
        with pq.ParquetWriter(points_file, schema) as writer:
            for rows in blocks(dataset, progress):
                writer.write_table(_points(samples, rows).cast(schema))


def read_huggingface(path: PathLike) -> Dataset:
    """Read the dataset that `to_huggingface` wrote."""
    arrow(HUGGING_FACE)
    with _tables(*paths("huggingface", path)[1:]) as (points, latents, facts):
        vectors = points["X"].combine_chunks()
        X = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(points), vectors.type.list_size)
        columns = numpy_columns(points.drop_columns("X"))
        return assemble(check_numbers("X", X), columns, numpy_columns(latents), facts)


def _points(samples: Samples, rows: slice) -> Any:
    """Return some rows of the table of points, X in one column."""
    import pyarrow as pa

    X = np.ascontiguousarray(samples.data.X[rows])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), X.shape[1])
    return pa.table({"X": vectors} | point_columns(samples, rows))


def _card(samples: Samples) -> str:
    forest, (n, dim) = samples.forest, samples.data.X.shape
    what, back = ON_CLUSTERS.format(n=n, dim=dim, n_clusters=forest.n_clusters, n_latents=forest.n_latents), READ_BACK
    if samples.factor is not None:
        what, back = OF_A_WORLD.format(n=n, dim=dim, factor=samples.factor, n_latents=forest.n_latents), ""
    names = {"title": "Percolation data", "first": "points", "second": "latents", "it": "it"}
    said = {"columns": COLUMNS_SAID + back, "version": __version__, "recipe": samples.data.recipe.to_json()}
    return CARD.format(**names, what=what, **said)
