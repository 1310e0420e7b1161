"""Exports: the authors' pair of .npz files, Parquet tables, torch Datasets and a Ray Dataset."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground.files import PathLike, new_files

if TYPE_CHECKING:
    import ray.data
    import scipy.sparse

    from percolab.loaders.torch_data import StreamingDataset as StreamingDataset
    from percolab.loaders.torch_data import TorchDataset as TorchDataset

Ints = NDArray[np.int64]

BLOCK_BYTES = 1 << 24
"""Bytes of X read, and written as one row group, at a time."""


def __getattr__(name: str) -> Any:
    # What `to_torch` and `to_torch_stream` return, for annotations. They need torch: imported when asked for.
    if name in ("StreamingDataset", "TorchDataset"):
        from percolab.loaders import torch_data

        return getattr(torch_data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---------------------------------------------------------------------- the authors' files


@dataclass(frozen=True, eq=False)
class Release:
    """What the authors' pair of files holds: points by cluster, the largest first, then by birth."""

    X: NDArray[Any]
    """(n, d) positions"""
    y: NDArray[np.float64]
    """(n,) targets"""
    cluster_id: Ints
    """(n,) birth order of the point's cluster"""
    cluster_size: Ints
    """(n,) number of points of the point's cluster"""
    latent_tree_height: Ints
    """(n,) number of latents above the point"""
    latent_values: scipy.sparse.csr_array
    """(n, number of latents) value of every latent that a point has, shallow latents first"""


def npz_paths(stem: PathLike) -> tuple[Path, Path]:
    """Return the two files of a release: ``{stem}.npz`` and ``{stem}_gt_features.npz``."""
    name = os.fspath(stem).removesuffix(".npz")
    return Path(f"{name}.npz"), Path(f"{name}_gt_features.npz")


def to_npz(dataset: Dataset, stem: PathLike, *, overwrite: bool = False) -> None:
    """Write the authors' pair of files: ``{stem}.npz`` and ``{stem}_gt_features.npz``.

    Rows are in release order. Columns of the latent values are sorted by depth, then by birth of the cluster. Several
    latents of one cluster may have the same depth. The authors put these in the order of their merges; the forest
    keeps only which merge is above which, so here they are in preorder. The columns are the same, some may be
    elsewhere.

    The cost is the number of memberships (one per latent of each point), in time, memory and disk.
    """
    import scipy.sparse

    if dataset.y.ndim > 1:
        raise ValueError(f"target must have one number a row for these files, got {dataset.target.kind!r}")
    points, features = npz_paths(stem)
    forest, order = dataset.forest, dataset.release_order
    cluster = forest.point_cluster  # clusters are contiguous in release order too, in the same places
    with new_files(points, features, overwrite=overwrite) as (points_file, features_file):
        scipy.sparse.save_npz(features_file, _latent_values(dataset)[order])
        np.savez_compressed(
            points_file,
            X=np.asarray(dataset.X)[order],
            y=dataset.y[order],
            cluster_id=forest.cluster_id[cluster],
            cluster_size=forest.cluster_size[cluster],
            latent_tree_height=forest.point_depth[order],
        )


def _latent_values(dataset: Dataset) -> scipy.sparse.csr_array:
    """Return the values of all latents, rows in leaf order, columns as in the release."""
    forest = dataset.forest
    columns = np.lexsort((forest.cluster_id[forest.latent_cluster], forest.latent_depth))
    return forest.values(dataset.latent_z, columns)


def read_npz(stem: PathLike) -> Release:
    """Read the authors' pair of files, ``{stem}.npz`` and ``{stem}_gt_features.npz``."""
    points, features = npz_paths(stem)
    columns = _read_arrays(points, ("X", "y", "cluster_id", "cluster_size", "latent_tree_height"))
    n = len(columns["X"])
    for name in ("y", "cluster_id", "cluster_size", "latent_tree_height"):
        # The authors' code keeps some of these as lists, which become arrays of shape (n,) or (n, 1).
        columns[name] = columns[name].reshape(-1).astype(np.float64 if name == "y" else np.int64, copy=False)
        if columns[name].size != n:
            raise ValueError(f"{points}: {name} must have {n} rows, got {columns[name].size}")
    latent_values = _read_sparse(features)
    if latent_values.shape[0] != n:
        raise ValueError(f"{features}: the matrix must have {n} rows, got {latent_values.shape[0]}")
    return Release(latent_values=latent_values, **columns)


def _read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    with _opened(path) as file:
        arrays = np.load(file, allow_pickle=False)
        found = getattr(arrays, "files", [])
        for name in names:
            if name not in found:
                raise ValueError(f"it must hold the array {name}, got {', '.join(found) or 'a single array'}")
        return {name: arrays[name] for name in names}


def _read_sparse(path: Path) -> scipy.sparse.csr_array:
    import scipy.sparse

    with _opened(path) as file:
        return scipy.sparse.csr_array(scipy.sparse.load_npz(file))


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file, and turn the ways in which a damaged or foreign .npz fails into one line that names it."""
    with open(path, "rb") as file:
        try:
            yield file
        except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a complete file of the release: {error}") from error


# ---------------------------------------------------------------------- Parquet


def parquet_paths(path: PathLike) -> tuple[Path, Path]:
    """Return the two tables of an export: ``{stem}.points.parquet`` and ``{stem}.latents.parquet``."""
    stem = os.fspath(path).removesuffix(".parquet")
    return Path(f"{stem}.points.parquet"), Path(f"{stem}.latents.parquet")


def to_parquet(dataset: Dataset, path: PathLike, *, overwrite: bool = False) -> None:
    """Write two Parquet tables, ``{stem}.points.parquet`` and ``{stem}.latents.parquet``.

    The first has one line per point, in the order of the rows: ``x0 …``, ``y``, ``z``, ``cluster`` (index),
    ``cluster_id`` (birth), ``point_id``, ``depth``. The second is `Forest.latent_table` with the latents' ``z``. X is
    written block by block, so one that is still on disk is never whole in memory. The recipe is in the metadata of
    both schemas, as JSON, under the key ``percolab.recipe``; a dataset that its recipe does not make says so under
    ``percolab.modified``. A y of several columns becomes ``y0 …``.
    """
    try:
        import pandas  # noqa: F401  # latent_table needs it: say so before anything is written
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(f"Parquet needs {error.name}: pip install 'percolab[frames]'") from error
    points, latents = parquet_paths(path)
    recipe = {b"percolab.recipe": dataset.recipe.to_json().encode()}
    if dataset.modification:
        recipe[b"percolab.modified"] = dataset.modification.encode()
    with new_files(points, latents, overwrite=overwrite) as (points_file, latents_file):
        table = pa.Table.from_pandas(dataset.forest.latent_table(dataset.latent_z))
        pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **recipe}), latents_file)
        schema = pa.schema([(name, pa.from_numpy_dtype(c.dtype)) for name, c in _columns(dataset, slice(0, 0)).items()])
        with pq.ParquetWriter(points_file, schema.with_metadata(recipe)) as writer:
            for rows in _blocks(dataset):
                writer.write_table(pa.table(_columns(dataset, rows), schema=writer.schema))


def _columns(dataset: Dataset, rows: slice) -> dict[str, NDArray[Any]]:
    """Return some rows of the table of points, by column."""
    forest = dataset.forest
    cluster = forest.point_cluster[rows]
    X = np.ascontiguousarray(np.asarray(dataset.X[rows]).T)
    return {f"x{j}": column for j, column in enumerate(X)} | {
        **_target_columns(dataset.y[rows]),
        "z": dataset.point_z[rows],
        "cluster": cluster,
        "cluster_id": forest.cluster_id[cluster],
        "point_id": forest.point_id[rows],
        "depth": forest.point_depth[rows],
    }


def _target_columns(y: NDArray[Any]) -> dict[str, NDArray[Any]]:
    return {"y": y} if y.ndim == 1 else {f"y{level}": np.ascontiguousarray(y[:, level]) for level in range(y.shape[1])}


def _blocks(dataset: Dataset) -> Iterator[slice]:
    n, dim = dataset.X.shape
    # A power of two, as the rows of a stored chunk are, so that no chunk is read twice.
    step = 1 << max(0, (BLOCK_BYTES // (dim * dataset.X.dtype.itemsize)).bit_length() - 1)
    return (slice(lo, min(lo + step, n)) for lo in range(0, n, step))


# ---------------------------------------------------------------------- torch and Ray


def to_torch(dataset: Dataset) -> TorchDataset:
    """Return a ``torch.utils.data.Dataset`` of ``(X[i], y[i])``, read when asked for: float32, labels int64."""
    try:
        from percolab.loaders.torch_data import TorchDataset
    except ImportError as error:
        raise ImportError("a torch Dataset needs torch: pip install 'percolab[torch]'") from error
    return TorchDataset(dataset.X, dataset.y)


def to_torch_stream(path: PathLike, batch_size: int, **options: Any) -> StreamingDataset:
    """Return a ``torch.utils.data.IterableDataset`` of shuffled batches of the store at `path`, never whole in memory.

    Options are those of `percolab.loaders.torch_data.StreamingDataset`.
    """
    try:
        from percolab.loaders.torch_data import StreamingDataset
    except ImportError as error:
        raise ImportError("a torch Dataset needs torch: pip install 'percolab[torch]'") from error
    return StreamingDataset(path, batch_size, **options)


def to_ray(path: PathLike, *, override_num_blocks: int | None = None, **options: Any) -> ray.data.Dataset:
    """Return a ``ray.data.Dataset`` of the points of the store at `path`, read by Ray's workers when asked for.

    Options are those of `percolab.loaders.ray_data.PercolabSource`; `override_num_blocks` is Ray's: the read tasks.
    """
    try:
        import ray.data

        from percolab.loaders.ray_data import PercolabSource
    except ImportError as error:
        raise ImportError("a Ray Dataset needs ray: pip install 'percolab[ray]'") from error
    source = PercolabSource(path, **options)
    made: ray.data.Dataset = ray.data.read_datasource(source, override_num_blocks=override_num_blocks)
    return made
