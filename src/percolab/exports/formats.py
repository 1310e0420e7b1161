"""Formats of files by name: the writer of each, and the files it makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from percolab.corpora.collection import StoredDocuments
from percolab.exports.columns import DOCUMENT_TAILS, TAILS, paths
from percolab.exports.hdf5 import to_hdf5
from percolab.exports.release import to_npz
from percolab.exports.tables import to_csv, to_parquet
from percolab.ground.files import PathLike
from percolab.ground.validation import check_choice
from percolab.worlds.superposed import AnyDataset

#: The writer of each format, by the name of the format on the command line.
WRITERS: Mapping[str, Callable[..., None]] = {
    "npz": to_npz, "parquet": to_parquet, "csv": to_csv, "hdf5": to_hdf5, "huggingface": to_parquet,
}  # fmt: skip


def files_of(form: str, dataset: AnyDataset | StoredDocuments, stem: PathLike) -> tuple[Path, ...]:
    """Return the files that the writer of a format makes for a stem; refuse a format that documents do not have."""
    tails = DOCUMENT_TAILS if isinstance(dataset, StoredDocuments) else TAILS
    known = "parquet" if form == "huggingface" else form
    return paths(check_choice("format", known, tuple(tails)), stem, tails)
