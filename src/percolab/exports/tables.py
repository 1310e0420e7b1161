"""Parquet and CSV: a table of points and a table of latents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from percolab.corpora.collection import StoredDocuments
from percolab.dataset.dataset import Dataset
from percolab.exports import sequences
from percolab.exports.columns import (
    EXPORT,
    Samples,
    arrow,
    assemble,
    blocks,
    latent_table_columns,
    numpy_columns,
    point_columns,
    position_columns,
    positions,
    record,
    require_trees,
)
from percolab.ground.files import PathLike, new_files
from percolab.ground.foreign_files import open_plain, read_json, reading
from percolab.ground.progress import Progress, silent
from percolab.worlds.superposed import AnyDataset

MOST_TYPES = 1 << 26
"""Bytes of the file with the recipe and the types of all columns of a CSV."""


def parquet_paths(path: PathLike) -> tuple[Path, Path]:
    """Return the two tables of an export: ``{stem}.points.parquet`` and ``{stem}.latents.parquet``."""
    stem = os.fspath(path).removesuffix(".parquet")
    return Path(f"{stem}.points.parquet"), Path(f"{stem}.latents.parquet")


def csv_paths(path: PathLike) -> tuple[Path, Path, Path]:
    """Return the files of an export: ``{stem}.points.csv``, ``{stem}.latents.csv`` and ``{stem}.recipe.json``."""
    stem = os.fspath(path).removesuffix(".csv")
    return Path(f"{stem}.points.csv"), Path(f"{stem}.latents.csv"), Path(f"{stem}.recipe.json")


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
    samples = Samples.of(dataset, factor)
    require_trees(samples.forest)
    pa = arrow("Parquet")
    import pandas
    import pyarrow.parquet as pq

    told = {key.encode(): text.encode() for key, text in record(samples).items()}
    with new_files(*parquet_paths(path), overwrite=overwrite) as (points_file, latents_file):
        columns = latent_table_columns(samples)
        index = pandas.RangeIndex(samples.forest.n_latents, name="latent")
        table = pa.Table.from_pandas(pandas.DataFrame(columns, index=index))
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **told}), latents_file)
        with pq.ParquetWriter(points_file, point_schema(samples).with_metadata(told)) as writer:
            for rows in blocks(dataset, progress):
                columns = position_columns(samples, rows) | point_columns(samples, rows)
                writer.write_table(pa.table(columns, schema=writer.schema))


def read_parquet(path: PathLike) -> Dataset:
    """Read the dataset that `to_parquet` wrote."""
    arrow("Parquet")
    import pyarrow.parquet as pq

    points_path, latents_path = parquet_paths(path)
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        points, latents = pq.read_table(points_file), pq.read_table(latents_file)
        told = {key.decode(): text.decode() for key, text in (points.schema.metadata or {}).items()}
        columns = numpy_columns(points)
        return assemble(positions(columns), columns, numpy_columns(latents), told)


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
    samples = Samples.of(dataset, factor)
    require_trees(samples.forest)
    pa = arrow("CSV")
    from pyarrow import csv

    with new_files(*csv_paths(path), overwrite=overwrite) as (points_file, latents_file, recipe_file):
        latents = pa.table(latent_table_columns(samples))
        csv.write_csv(latents, latents_file)
        schema = point_schema(samples)
        with csv.CSVWriter(points_file, schema) as writer:
            for rows in blocks(dataset, progress):
                columns = position_columns(samples, rows) | point_columns(samples, rows)
                writer.write_table(pa.table(columns, schema=schema))
        types = {"points": _types(schema), "latents": _types(latents.schema)}
        told = {key: json.loads(text) for key, text in record(samples).items()}
        recipe_file.write(json.dumps({**told, "types": types}, indent=1).encode() + b"\n")


def read_csv(path: PathLike) -> Dataset:
    """Read the dataset that `to_csv` wrote."""
    pa = arrow("CSV")
    from pyarrow import csv

    points_path, latents_path, recipe_path = csv_paths(path)
    kept = read_json("export", recipe_path, MOST_TYPES)
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        tables = []
        for file, name in ((points_file, "points"), (latents_file, "latents")):
            types = {column: pa.type_for_alias(word) for column, word in kept["types"][name].items()}
            tables.append(numpy_columns(csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=types))))
        points, latents = tables
        return assemble(positions(points), points, latents, {key: json.dumps(value) for key, value in kept.items()})


# ---------------------------------------------------------------------- what tables have in common


def point_schema(samples: Samples) -> Any:
    """Return the names and types of the table of points."""
    import pyarrow as pa

    columns = position_columns(samples, slice(0, 0)) | point_columns(samples, slice(0, 0))
    return pa.schema([(name, pa.from_numpy_dtype(column.dtype)) for name, column in columns.items()])


def _types(schema: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}
