"""A folder in the form of the Hugging Face Hub: a card and two Parquet tables, which ``datasets`` opens by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

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
    record,
    require_trees,
)
from percolab.ground.files import PathLike, new_files, new_folder
from percolab.ground.foreign_files import open_plain, reading
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers
from percolab.ground.version import __version__
from percolab.worlds.superposed import AnyDataset

CARD = """---
pretty_name: Percolation data
tags:
- percolation
- interpretability
- synthetic
configs:
- config_name: points
  data_files: points.parquet
  default: true
- config_name: latents
  data_files: latents.parquet
---

# Percolation data

{what} Written by percolab {version}.

```python
from datasets import load_dataset

points = load_dataset(PATH, "points", split="train").with_format("torch")
latents = load_dataset(PATH, "latents", split="train")
```

Line i of `points` is row i: its position `X`, its target `y`, its own value `z`, its cluster, and how many latents it
has (`depth`). Line i of `latents` is latent i, whose points are `start` to `start + size - 1`. Neighbouring points are
relatives: shuffle before training, and hold out whole subtrees or clusters (`percolab.split_rows`) to test more than
memory.

{back}This recipe makes it again:

```json
{recipe}
```
"""


ON_CLUSTERS = """{n:,} points in {dim} dimensions on {n_clusters:,} clusters, with the {n_latents:,} latent variables
that made their targets."""
OF_A_WORLD = """{n:,} samples of a superposed world in {dim} dimensions, with the {n_latents:,} latent variables of its
factor {factor}: `row` is the point of that factor that a sample has, and what follows is that point's."""
READ_BACK = "`percolab.exports.read_huggingface(PATH)` gives the dataset back. "


def huggingface_paths(path: PathLike) -> tuple[Path, Path, Path]:
    """Return the files of an export: ``README.md``, ``points.parquet`` and ``latents.parquet`` in the folder `path`."""
    folder = Path(os.fspath(path))
    return folder / "README.md", folder / "points.parquet", folder / "latents.parquet"


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
    samples = Samples.of(dataset, factor)
    require_trees(samples.forest)
    pa = arrow("a Hugging Face folder")
    import pyarrow.parquet as pq

    told = {key.encode(): text.encode() for key, text in record(samples).items()}
    paths = huggingface_paths(path)
    with new_folder(path), new_files(*paths, overwrite=overwrite) as (card, points_file, latents_file):
        card.write(_card(samples).encode())
        latents = pa.table(latent_table_columns(samples))
        pq.write_table(latents.replace_schema_metadata(told), latents_file)
        schema = _points(samples, slice(0, 0)).schema.with_metadata(told)
        with pq.ParquetWriter(points_file, schema) as writer:
            for rows in blocks(dataset, progress):
                writer.write_table(_points(samples, rows).cast(schema))


def read_huggingface(path: PathLike) -> Dataset:
    """Read the dataset that `to_huggingface` wrote."""
    arrow("a Hugging Face folder")
    import pyarrow.parquet as pq

    _, points_path, latents_path = huggingface_paths(path)
    with reading("export", points_path, EXPORT) as points_file, open_plain(latents_path) as latents_file:
        points, latents = pq.read_table(points_file), pq.read_table(latents_file)
        told = {key.decode(): text.decode() for key, text in (points.schema.metadata or {}).items()}
        vectors = points["X"].combine_chunks()
        X = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(points), vectors.type.list_size)
        columns = numpy_columns(points.drop_columns("X"))
        return assemble(check_numbers("X", X), columns, numpy_columns(latents), told)


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
    return CARD.format(what=what, back=back, version=__version__, recipe=samples.data.recipe.to_json())
