"""The command ``percolab export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from percolab.cli.errors import command
from percolab.cli.options import Factor, Overwrite, Store, output_option, word_option
from percolab.cli.output import print_wrote
from percolab.corpora.collection import StoredDocuments
from percolab.exports.columns import DOCUMENT_TAILS, TAILS, paths
from percolab.exports.hdf5 import to_hdf5
from percolab.exports.release import to_npz
from percolab.exports.tables import to_csv, to_parquet
from percolab.ground import files
from percolab.ground.progress import bar
from percolab.ground.validation import check_choice
from percolab.store import finished
from percolab.worlds.superposed import AnyDataset

#: The writer of each format.
WRITERS: Mapping[str, Callable[..., None]] = {
    "npz": to_npz, "parquet": to_parquet, "csv": to_csv, "hdf5": to_hdf5, "huggingface": to_parquet,
}  # fmt: skip


@command
def export(
    path: Store,
    form: Annotated[str, word_option("|".join(WRITERS), "Format to write.", tuple(WRITERS), names="--format")],
    output: Annotated[Path, output_option("STEM", "Start of the file names.")],
    factor: Factor = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a dataset in another format.

    npz: the authors' files, STEM.npz, STEM_gt_features.npz and STEM_gt_metadata.npz.
    parquet, or huggingface: a folder STEM with a table of points, one of latents and a card, which
    datasets.load_dataset opens. csv: the two tables as text. hdf5: one file with the columns of the data model.
    For a superposed world, hdf5 holds everything; the other formats hold its samples with the truth of one --factor.
    Documents are written as npz, or as parquet with tokens as input_ids.

    Examples
    --------
    percolab export one.zarr --format npz -o percolation
    percolab export one.zarr --format parquet -o one
    # documents, for datasets.load_dataset
    percolab export docs.zarr --format parquet -o docs-hub
    # a superposed world with the hierarchy of its second factor
    percolab export two.zarr --factor 1 --format npz -o two
    """
    dataset = finished.load(path)
    paths = files_of(form, dataset, output)
    for file in paths if form not in ("parquet", "huggingface") else ():  # there the folder is made first
        files.check_output(file, overwrite=overwrite)
    with bar(label="exporting") as display:
        WRITERS[form](dataset, output, factor=factor, overwrite=overwrite, progress=display)
    print_wrote(" and ".join(map(str, paths)))


def files_of(form: str, dataset: AnyDataset | StoredDocuments, stem: files.PathLike) -> tuple[Path, ...]:
    """Return the files that the writer of a format makes for a stem; refuse a format that documents do not have."""
    tails = DOCUMENT_TAILS if isinstance(dataset, StoredDocuments) else TAILS
    known = "parquet" if form == "huggingface" else form
    return paths(check_choice("format", known, tuple(tails)), stem, tails)
