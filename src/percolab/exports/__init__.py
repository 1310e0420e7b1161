"""Exports: files that others read, and back; torch Datasets and a Ray Dataset.

=======  =======================================================  ===================
format   files                                                    needs
=======  =======================================================  ===================
npz      the authors': points, latent values, metadata            nothing more
parquet  a folder that ``datasets.load_dataset`` opens by name    ``percolab[frames]``
csv      the same tables as text, and the recipe as JSON          ``percolab[frames]``
hdf5     one file with the columns of the data model              ``percolab[hdf5]``
=======  =======================================================  ===================

All but the first hold the whole dataset; `read_parquet`, `read_csv` and `read_hdf5` give it back, equal to the
bit. Files are complete or not there. Documents of a store are written by `to_npz` and `to_parquet`, one line per
document, beside a table of contexts. `to_huggingface` is another name of `to_parquet`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.exports.columns import DOCUMENT_TAILS, TAILS, paths
from percolab.exports.hdf5 import read_hdf5, to_hdf5
from percolab.exports.release import Release, read_npz, to_npz
from percolab.exports.tables import read_csv, read_huggingface, read_parquet, to_csv, to_huggingface, to_parquet
from percolab.ground.extras import needing, surface
from percolab.ground.files import PathLike
from percolab.ground.validation import check_choice
from percolab.worlds.superposed import AnyDataset

if TYPE_CHECKING:
    import ray.data

    from percolab.loaders.torch_data import StreamingDataset, TokenDataset, TorchDataset


__all__ = [
    "Release",
    "StreamingDataset",
    "TokenDataset",
    "TorchDataset",
    "read_csv",
    "read_hdf5",
    "read_huggingface",
    "read_npz",
    "read_parquet",
    "to_csv",
    "to_hdf5",
    "to_huggingface",
    "to_npz",
    "to_parquet",
    "to_ray",
    "to_torch",
    "to_torch_stream",
]


# What `to_torch` and `to_torch_stream` return, for annotations.
_LAZY = dict.fromkeys(("StreamingDataset", "TokenDataset", "TorchDataset"), "percolab.loaders.torch_data")

__getattr__, __dir__ = surface(__name__, __all__, _LAZY, extra="torch")


# ---------------------------------------------------------------------- by name

#: What writes each format, by the names that the command line has for it.
WRITERS: Mapping[str, Callable[..., None]] = {
    "npz": to_npz, "parquet": to_parquet, "csv": to_csv, "hdf5": to_hdf5, "huggingface": to_parquet,
}  # fmt: skip


def files_of(form: str, dataset: AnyDataset | StoredDocuments, stem: PathLike) -> tuple[Path, ...]:
    """Return the files that the writer of a format makes of a stem; refuse a format that documents do not have."""
    tails = DOCUMENT_TAILS if isinstance(dataset, StoredDocuments) else TAILS
    known = "parquet" if form == "huggingface" else form
    return paths(check_choice("format", known, tuple(tails)), stem, tails)


# ---------------------------------------------------------------------- for torch and Ray


def to_torch(dataset: AnyDataset | Corpus | DocumentRange | StoredDocuments) -> TorchDataset | TokenDataset:
    """Return a ``torch.utils.data.Dataset`` of ``(X[i], y[i])``, read when asked for: float32, labels int64.

    Of a superposed world these are its samples; for the y of one factor, hand over ``world.swapped(k)``. Of documents,
    item i is the tokens of document i, int64, made when asked for unless they are in a store; of a corpus these are
    the documents below 2^40, so do not shuffle them.
    """
    with needing("a torch Dataset needs", "torch"):
        from percolab.loaders.torch_data import TokenDataset, TorchDataset
    if isinstance(dataset, Corpus | DocumentRange | StoredDocuments):
        return TokenDataset(dataset)
    return TorchDataset(dataset.X, dataset.y)


def to_torch_stream(path: PathLike | Corpus | DocumentRange, batch_size: int, **options: Any) -> StreamingDataset:
    """Return a ``torch.utils.data.IterableDataset`` of shuffled batches of the store at `path`, never whole in memory.

    Of a corpus or a range of documents: batches that are made as they are used. Options are those of
    `percolab.loaders.torch_data.StreamingDataset`.
    """
    with needing("a torch Dataset needs", "torch"):
        from percolab.loaders.torch_data import StreamingDataset
    return StreamingDataset(path, batch_size, **options)


def to_ray(path: PathLike, *, override_num_blocks: int | None = None, **options: Any) -> ray.data.Dataset:
    """Return a ``ray.data.Dataset`` of the points of the store at `path`, read by Ray's workers when asked for.

    Options are those of `percolab.loaders.ray_data.PercolabSource`; `override_num_blocks` is Ray's: the number of read
    tasks. None takes two for each processor of the cluster; as many as Ray would choose read three to four times
    slower. docs/scale.md has rates.
    """
    with needing("a Ray Dataset needs", "ray"):
        import ray.data

        from percolab.loaders.ray_data import PercolabSource
    source = PercolabSource(path, **options)
    if override_num_blocks is None:
        override_num_blocks = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    made: ray.data.Dataset = ray.data.read_datasource(source, override_num_blocks=override_num_blocks)
    return made
