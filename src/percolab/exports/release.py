"""The authors' files: points, latent values and metadata, as the authors' scripts write and read them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import StoredDocuments
from percolab.dataset.dataset import Dataset
from percolab.exports import sequences
from percolab.exports.columns import paths
from percolab.exports.point_tables import PointTables
from percolab.ground.arrays import Ints
from percolab.ground.files import PathLike, new_files
from percolab.ground.foreign_files import arrays, from_archive
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers
from percolab.worlds.superposed import AnyDataset, check_samples

if TYPE_CHECKING:
    import scipy.sparse


POINT_COLUMNS = ("y", "cluster_id", "cluster_size", "latent_tree_height")
BLOCK_MEMBERSHIPS = 1 << 20  #: Latent values made and written at a time.


@dataclass(frozen=True, eq=False)
class Release:
    """The content of the authors' files: points sorted by cluster, the largest first, then by birth."""

    X: NDArray[Any]  #: (n, d) positions
    y: NDArray[np.float64]  #: (n,) targets
    cluster_id: Ints  #: (n,) birth order of the point's cluster
    cluster_size: Ints  #: (n,) number of points of the point's cluster
    latent_tree_height: Ints  #: (n,) number of latents above the point
    #: (n, number of latents) value of every latent that a point has, shallow latents first
    latent_values: scipy.sparse.csr_array


def to_npz(
    dataset: AnyDataset | StoredDocuments,
    stem: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write the authors' files: ``{stem}.npz``, ``{stem}_gt_features.npz`` and ``{stem}_gt_metadata.npz``.

    The first has X, y, cluster_id, cluster_size and latent_tree_height; the second the value of every latent that a
    point has, as a SciPy CSR matrix; the third again cluster_id, cluster_size and latent_tree_height, since the
    authors' probes look for them there.

    Rows are in release order. Columns of the latent values are sorted by depth, then by birth of the cluster. Several
    latents of one cluster may have the same depth. The authors put these in the order of their merges; the forest
    keeps only which merge is above which, so here they are in preorder. The columns are the same, but some may be in
    other places.

    The cost in time and on disk is the number of memberships, one per latent of each point. They are written in blocks;
    X, whose rows are reordered, is read whole. For a superposed world, X and y are the samples', and all other columns
    describe the points of one factor.

    Documents of a store are written as `exports.sequences` says.
    """
    if isinstance(dataset, StoredDocuments):
        sequences.to_npz(dataset, stem, overwrite=overwrite, progress=progress)
        return
    check_samples(dataset)
    if dataset.y.ndim > 1:
        raise ValueError(f"y must have one number per row for these files, got {dataset.y.shape[1]}")
    tables = PointTables.of(dataset, factor)
    forest, order = tables.forest, tables.release_order
    place = tables.known.rows[order]
    cluster = forest.point_cluster[place]
    metadata: dict[str, Any] = {
        "cluster_id": forest.cluster_id[cluster],
        "cluster_size": forest.cluster_size[cluster],
        "latent_tree_height": forest.point_depth[place],
    }
    with new_files(*paths("npz", stem), overwrite=overwrite) as (points_file, features_file, metadata_file):
        _write_latent_values(tables.known.dataset, place, features_file, progress)
        X, y = np.asarray(dataset.X), dataset.y[order]
        with zipfile.ZipFile(points_file, "w", zipfile.ZIP_DEFLATED) as archive:
            rows = max(1, BLOCK_MEMBERSHIPS // X.shape[1])
            _write(archive, "X", X.dtype, X.shape, (X[order[lo : lo + rows]] for lo in range(0, len(order), rows)))
            for name, column in {"y": y, **metadata}.items():
                _write(archive, name, column.dtype, column.shape, [column])
        np.savez_compressed(metadata_file, **metadata)


def _write_latent_values(dataset: Dataset, order: Ints, file: IO[bytes], progress: Progress) -> None:
    """Write the latent values of points as SciPy's `save_npz` writes a CSR matrix (an array has no `getrow`)."""
    forest = dataset.forest
    columns = np.lexsort((forest.cluster_id[forest.latent_cluster], forest.latent_depth))
    place = np.empty(forest.n_latents, np.int64)
    place[columns] = np.arange(forest.n_latents)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(forest.point_depth[order])])
    index_type = np.dtype(np.int32 if max(indptr[-1], forest.n_latents) < 2**31 else np.int64)
    marks = np.searchsorted(indptr, np.arange(0, indptr[-1], BLOCK_MEMBERSHIPS))
    edges = np.unique([*marks.tolist(), order.size])

    def latents(stage: str) -> Iterator[Ints]:
        """Yield the latents of all rows, block by block: top first, so that their columns grow."""
        for lo, hi in pairwise(edges.tolist()):
            yield forest.path(order[lo:hi]).values
            progress(stage, hi, order.size)

    size = (int(indptr[-1]),)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        blocks = (place[block].astype(index_type) for block in latents("latents of points"))
        _write(archive, "indices", index_type, size, blocks)
        _write(archive, "indptr", index_type, indptr.shape, [indptr.astype(index_type)])
        _write(archive, "data", np.dtype(np.float64), size, (dataset.latent_z[i] for i in latents("latent values")))
        shape, form = np.array([order.size, forest.n_latents]), np.array(b"csr")
        _write(archive, "shape", shape.dtype, shape.shape, [shape])
        _write(archive, "format", form.dtype, form.shape, [form])


def _write(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
) -> None:
    """Write one array of an .npz, block by block."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(member, header)
        for block in blocks:
            member.write(block.tobytes())


def read_npz(stem: PathLike) -> Release:
    """Read the authors' files, ``{stem}.npz`` and ``{stem}_gt_features.npz``; the third file holds nothing new."""
    points, features, _ = paths("npz", stem)
    with arrays("release", points) as held:
        X = check_numbers("X", held["X"])
        if X.ndim != 2:
            raise ValueError(f"X must have rows and columns, got shape {X.shape}")
        columns = {name: _column(name, held[name], len(X)) for name in POINT_COLUMNS}
    with arrays("release", features) as held:
        latent_values = from_archive("latent values", held)
        if latent_values.shape[0] != len(X):
            raise ValueError(f"the matrix must have {len(X)} rows, got {latent_values.shape[0]}")
    return Release(X=X, latent_values=latent_values, **columns)


def _column(name: str, values: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Return a column as a list: the authors' code keeps some as lists, which become arrays of shape (n,) or (n, 1)."""
    column = check_numbers(name, values).reshape(-1).astype(np.float64 if name == "y" else np.int64, copy=False)
    if column.size != n_rows:
        raise ValueError(f"{name} must have {n_rows} rows, got {column.size}")
    return column
