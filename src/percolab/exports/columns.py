"""Shared by all exports: names of files, blocks of rows, the metadata of files, and reading a dataset back."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import StoredDocuments
from percolab.dataset.dataset import LATENT_COLUMNS, Dataset, vouch
from percolab.ground.files import PathLike
from percolab.ground.foreign_files import parse_json
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers, check_shape
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.worlds.superposed import AnyDataset, Superposed, check_samples
from percolab.worlds.superposition import KIND

EXPORT_BYTES = 1 << 24  #: Bytes of X read, and written as one row group, at a time.
EXPORT = "an export of percolab"

#: Keys under which files keep, as JSON, the recipe, the provenance, the digest of all arrays, and the number of the
#: factor whose truth they hold.
RECIPE, PROVENANCE, DIGEST, FACTOR = (f"percolab.{word}" for word in ("recipe", "provenance", "sha256", "factor"))
#: Names of the files of each format after the stem; a slash puts them in a folder of that name.
TAILS: Mapping[str, tuple[str, ...]] = {
    "npz": (".npz", "_gt_features.npz", "_gt_metadata.npz"),
    "parquet": ("/README.md", "/points.parquet", "/latents.parquet"),
    "csv": (".points.csv", ".latents.csv", ".recipe.json"),
    "hdf5": (".h5",),
}
#: The same for documents.
DOCUMENT_TAILS: Mapping[str, tuple[str, ...]] = {
    "npz": (".npz",),
    "parquet": ("/README.md", "/documents.parquet", "/contexts.parquet"),
}
VALUES = ("y", "latent_z", "point_z")
FOREST = tuple(field.name for field in fields(Forest))

Columns = Mapping[str, NDArray[Any]]


def paths(form: str, path: PathLike, tails: Mapping[str, tuple[str, ...]] = TAILS) -> tuple[Path, ...]:
    """Return the files of an export to a stem, which may have the suffix of its format."""
    stem = os.fspath(path)
    for ending in () if form == "parquet" else (f".{form}", ".h5" if form == "hdf5" else ""):
        stem = stem.removesuffix(ending)
    return tuple(Path(stem) / tail[1:] if tail[0] == "/" else Path(stem + tail) for tail in tails[form])


def refuse_documents(dataset: object, form: str) -> None:
    """Raise, in one line, if documents, or no data at all, are given for a format that holds only points."""
    if isinstance(dataset, StoredDocuments):
        raise ValueError(f"dataset must be a dataset or a world for {form}, got documents: use parquet or npz")
    check_samples(dataset)


def blocks(dataset: AnyDataset | StoredDocuments, progress: Progress) -> Iterator[slice]:
    """Yield the rows of a dataset in slices of about `EXPORT_BYTES`, and report the progress."""
    documents, n = isinstance(dataset, StoredDocuments), len(dataset)
    row_bytes = 8 * dataset.corpus.length if documents else dataset.X.shape[1] * dataset.X.dtype.itemsize
    # A power of two, like the rows of a stored chunk, so that no chunk is read twice.
    step = 1 << max(0, (EXPORT_BYTES // row_bytes).bit_length() - 1)
    for lo in range(0, n, step):
        yield slice(lo, min(lo + step, n))
        progress("exporting", min(lo + step, n), n)


# ---------------------------------------------------------------------- what files say of themselves


def record(data: AnyDataset | StoredDocuments, factor: int | None = None) -> dict[str, str]:
    """Return the recipe and the provenance of the data, as JSON, by key.

    The factor of a world is added if the file holds its truth, or the digest of all arrays if the file holds them all.
    """
    modified = {} if isinstance(data, StoredDocuments) or not data.modification else {"modified": data.modification}
    facts = {RECIPE: data.recipe.to_json(), PROVENANCE: json.dumps({**data.provenance, **modified})}
    if factor is not None:
        return facts | {FACTOR: json.dumps(factor)}
    return facts if isinstance(data, StoredDocuments) else facts | {DIGEST: json.dumps(digest(data))}


def digest(data: AnyDataset) -> str:
    """Return the sha256 of all arrays of a dataset, or of a world; X is read block by block."""
    sha256 = hashlib.sha256()
    for rows in blocks(data, silent):
        sha256.update(np.ascontiguousarray(data.X[rows]).data)
    if isinstance(data, Superposed):
        for column in (data.y, data.rows, data.sigma):
            sha256.update(np.ascontiguousarray(column).data)
    for part in data.factors if isinstance(data, Superposed) else (data,):
        for name in (*VALUES, *FOREST):
            sha256.update(np.ascontiguousarray(getattr(part if name in VALUES else part.forest, name)).data)
    return sha256.hexdigest()


def is_intact(data: AnyDataset, facts: Mapping[str, str]) -> bool:
    """Return whether all arrays are unchanged since their file was written."""
    return facts.get(DIGEST) == json.dumps(digest(data))


def numpy_columns(table: Any) -> Columns:
    """Return the columns of an Arrow table, which must be numbers."""
    return {name: check_numbers(name, table[name].to_numpy()) for name in table.column_names}


def assemble(X: NDArray[Any], points: Columns, latents: Columns, facts: Mapping[str, str]) -> Dataset:
    """Return the dataset of two tables and X, which is given as an array. The forest is checked."""
    if parse_json(facts[RECIPE]).get("kind") == KIND:
        raise ValueError("it holds samples of a superposed world, not a dataset: read it as a table, or use hdf5")
    cluster = points["cluster"]
    first = np.flatnonzero(np.diff(cluster, prepend=-1))
    forest = Forest(
        cluster_start=np.append(first, cluster.size),
        cluster_id=points["cluster_id"][first],
        point_id=points["point_id"],
        left_size=latents["left_size"],
        bond=np.column_stack([latents["bond_left"], latents["bond_right"]]),
    )
    forest.validate()
    y = points["y"] if "y" in points else np.column_stack([points[f"y{j}"] for j in range(_count("y", points))])
    recipe, provenance = Recipe.from_json(facts[RECIPE]), parse_json(facts[PROVENANCE])
    extra = {name: points[name] for name in ("source_row", "point_active") if name in points}
    extra |= {name: latents[name] for name in LATENT_COLUMNS if name in latents}
    return checked(Dataset(recipe, forest, X, y, latents["z"], points["z"], provenance, extra), facts)


def checked(dataset: Dataset, facts: Mapping[str, str]) -> Dataset:
    """Return a dataset that was read, marked as its recipe's if unchanged; raise unless its arrays fit together."""
    n, n_latents, extra = dataset.forest.n_points, dataset.forest.n_latents, dataset.extra
    rows: dict[str, Any] = {"X": (n, dataset.X.shape[-1]), "point_z": (n,), "latent_z": (n_latents,)}
    for name, shape in {**rows, "y": (n, *dataset.y.shape[1:])}.items():
        check_column(name, getattr(dataset, name), shape)
    for name, column in extra.items():
        check_column(name, column, (n_latents if name in LATENT_COLUMNS else n,))
    for name in ("latent_z", "point_z"):
        if getattr(dataset, name).dtype != np.float64:
            raise ValueError(f"{name} must be float64, got {getattr(dataset, name).dtype}")
    if ("latent_active" in extra) != ("point_active" in extra):
        raise ValueError("latent_active and point_active must come together")
    return vouch(dataset) if is_intact(dataset, facts) else dataset


def check_column(name: str, column: Any, shape: tuple[int, ...]) -> None:
    """Raise, in one line, unless a column has this shape and a type that kernels accept."""
    check_shape(name, column, shape)
    if column.dtype.kind == "f" and column.dtype.itemsize not in (4, 8):
        raise ValueError(f"{name} must be float32 or float64, got {column.dtype}")


def positions(columns: Columns) -> NDArray[Any]:
    """Return X from columns x0, x1 and so on."""
    return np.column_stack([columns[f"x{j}"] for j in range(_count("x", columns))])


def _count(letter: str, columns: Columns) -> int:
    return sum(name[0] == letter and name[1:].isdigit() for name in columns)
