"""Formats of files, by name: how each is written, and which files that makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from percolab.corpora.collection import StoredDocuments
from percolab.exports.columns import DOCUMENT_TAILS, TAILS, paths
from percolab.exports.hdf5 import to_hdf5
from percolab.exports.point_tables import to_csv, to_huggingface
from percolab.exports.release import to_npz
from percolab.ground.validation import check_choice


class Format(NamedTuple):
    """A format of files: how it is written, and which files that makes."""

    write: Callable[..., None]
    """called with a dataset, a stem, `overwrite` and `progress`"""
    paths: Callable[..., tuple[Path, ...]]
    """the files that `write` makes of a stem"""


_WRITERS = {
    "npz": to_npz, "parquet": to_huggingface, "csv": to_csv, "hdf5": to_hdf5, "huggingface": to_huggingface,
}  # fmt: skip


def _format(name: str, tails: Mapping[str, tuple[str, ...]] = TAILS) -> Format:
    return Format(_WRITERS[name], partial(paths, name if name != "parquet" else "huggingface", tails=tails))


FORMATS = {name: _format(name) for name in _WRITERS}
"""The formats of files, by the name that the command line has for them: Parquet is a folder that `datasets` opens."""
DOCUMENT_FORMATS = {name: _format(name, DOCUMENT_TAILS) for name in _WRITERS if name in DOCUMENT_TAILS}
"""Those that documents have."""


def format_of(name: str, dataset: Any) -> Format:
    """Return a format of files for a dataset, or for documents."""
    known = DOCUMENT_FORMATS if isinstance(dataset, StoredDocuments) else FORMATS
    return known[check_choice("format", name, tuple(known))]
