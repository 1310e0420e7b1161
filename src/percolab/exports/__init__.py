"""Exports: files that others read, and back; torch Datasets and a Ray Dataset.

===========  =======================================================  ===================
format       files                                                    needs
===========  =======================================================  ===================
npz          the authors': points, latent values, metadata            nothing more
parquet      a table of points, a table of latents                    ``percolab[frames]``
csv          the same as text, and the recipe as JSON                 ``percolab[frames]``
hdf5         one file with the columns of the data model              ``percolab[hdf5]``
huggingface  a folder that ``datasets.load_dataset`` opens by name    ``percolab[frames]``
===========  =======================================================  ===================

All but the first hold the whole dataset; `read_parquet`, `read_csv`, `read_hdf5` and `read_huggingface` give it back,
equal to the bit. Files are complete or not there. Documents of a store are written by `to_npz`, `to_parquet` and
`to_huggingface`, one line per document, beside a table of contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from percolab.corpora.collection import StoredDocuments
from percolab.exports import sequences
from percolab.exports.handing import to_ray, to_torch, to_torch_stream
from percolab.exports.hdf5 import hdf5_paths, read_hdf5, to_hdf5
from percolab.exports.huggingface import huggingface_paths, read_huggingface, to_huggingface
from percolab.exports.release import Release, npz_paths, read_npz, to_npz
from percolab.exports.tables import csv_paths, parquet_paths, read_csv, read_parquet, to_csv, to_parquet
from percolab.ground.surface import surface
from percolab.ground.validation import check_choice

if TYPE_CHECKING:
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


class Format(NamedTuple):
    """A format of files: how it is written, and which files that makes."""

    write: Callable[..., None]
    """called with a dataset, a stem, `overwrite` and `progress`"""
    paths: Callable[..., tuple[Path, ...]]
    """the files that `write` makes of a stem"""


FORMATS = {
    "npz": Format(to_npz, npz_paths),
    "parquet": Format(to_parquet, parquet_paths),
    "csv": Format(to_csv, csv_paths),
    "hdf5": Format(to_hdf5, hdf5_paths),
    "huggingface": Format(to_huggingface, huggingface_paths),
}
"""The formats of files, by name."""
DOCUMENT_FORMATS = {
    "npz": Format(to_npz, sequences.npz_paths),
    "parquet": Format(to_parquet, sequences.parquet_paths),
    "huggingface": Format(to_huggingface, sequences.huggingface_paths),
}
"""Those that documents have."""


def format_of(name: str, dataset: Any) -> Format:
    """Return a format of files for a dataset, or for documents."""
    known = DOCUMENT_FORMATS if isinstance(dataset, StoredDocuments) else FORMATS
    return known[check_choice("format", name, tuple(known))]


# What `to_torch` and `to_torch_stream` return, for annotations. They need torch: imported when first used.
_HOMES = dict.fromkeys(("StreamingDataset", "TokenDataset", "TorchDataset"), "loaders.torch_data")

__getattr__, __dir__ = surface(__name__, __all__, _HOMES, extra="torch")
