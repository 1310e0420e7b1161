"""A dataset as two tables, one of points and one of latents, and back.

Of a superposed world the table of points has a line for each sample, with the truth of one factor, and the other table
has the latents of that factor. These are no dataset, and are not read back as one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import StoredDocuments
from percolab.dataset.dataset import LATENT_COLUMNS, Dataset, vouch
from percolab.ground.extras import needing
from percolab.ground.files import PathLike
from percolab.ground.foreign_files import parse_json
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers, check_shape
from percolab.model.forest import Forest
from percolab.model.graphs import latent_columns
from percolab.model.recipe import Recipe
from percolab.worlds.superposed import AnyDataset, Superposed, Truth, truth
from percolab.worlds.superposition import KIND

EXPORT_BYTES = 1 << 24
"""Bytes of X read, and written as one row group, at a time."""
EXPORT = "an export of percolab"

RECIPE, PROVENANCE, DIGEST, FACTOR = (f"percolab.{word}" for word in ("recipe", "provenance", "sha256", "factor"))
"""Keys under which files keep, as JSON, the recipe, the provenance, the digest of all arrays, and of which factor they
tell."""
TAILS: Mapping[str, tuple[str, ...]] = {
    "npz": (".npz", "_gt_features.npz", "_gt_metadata.npz"),
    "parquet": (".points.parquet", ".latents.parquet"),
    "csv": (".points.csv", ".latents.csv", ".recipe.json"),
    "hdf5": (".h5",),
    "huggingface": ("/README.md", "/points.parquet", "/latents.parquet"),
}
"""How the files of each format are called, after their stem: with a slash, they are in a folder of that name."""
DOCUMENT_TAILS: Mapping[str, tuple[str, ...]] = {
    "npz": (".npz",),
    "parquet": (".documents.parquet", ".contexts.parquet"),
    "huggingface": ("/README.md", "/documents.parquet", "/contexts.parquet"),
}
"""And those of documents."""
CARD = """---
pretty_name: {title}
tags:
- percolation
- interpretability
- synthetic
configs:
- config_name: {first}
  data_files: {first}.parquet
  default: true
- config_name: {second}
  data_files: {second}.parquet
---

# {title}

{what} Written by percolab {version}.

```python
from datasets import load_dataset

{first} = load_dataset(PATH, "{first}", split="train").with_format("torch")
{second} = load_dataset(PATH, "{second}", split="train")
```

{columns}This recipe makes {it} again:

```json
{recipe}
```
"""
"""What the README.md of a folder of the Hugging Face Hub says."""
VALUES = ("y", "latent_z", "point_z")
FOREST = tuple(field.name for field in fields(Forest))

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Samples:
    """What a table of points has a line for: the rows of a dataset, or the samples of a world."""

    data: AnyDataset
    known: Truth
    """the hierarchy that is told of, and the row of it that each sample has"""
    factor: int | None
    """which factor it is of, in a world"""

    @classmethod
    def of(cls, dataset: AnyDataset, factor: int | None) -> Self:
        """Return the samples of a dataset, or of a world with the truth of one factor."""
        known = truth(dataset, factor)
        return cls(dataset, known, (factor or 0) if isinstance(dataset, Superposed) else None)

    @property
    def forest(self) -> Forest:
        """The hierarchy."""
        return self.known.forest

    def place(self, rows: slice) -> slice | NDArray[np.int64]:
        """Return the rows of the hierarchy that some samples have."""
        return rows if self.factor is None else self.known.rows[rows]

    @property
    def release_order(self) -> NDArray[np.int64]:
        """The samples by cluster, then by birth of their points, as in the authors' release."""
        order = self.forest.release_order
        if self.factor is None:
            return order
        rank = np.empty(order.size, np.int64)
        rank[order] = np.arange(order.size)
        return np.argsort(rank[self.known.rows], kind="stable")


def paths(form: str, path: PathLike, tails: Mapping[str, tuple[str, ...]] = TAILS) -> tuple[Path, ...]:
    """Return the files of an export to a stem, which may have the ending of its format."""
    stem = os.fspath(path)
    for ending in (f".{form}", ".h5" if form == "hdf5" else "") if form != "huggingface" else ():
        stem = stem.removesuffix(ending)
    return tuple(Path(stem) / tail[1:] if tail[0] == "/" else Path(stem + tail) for tail in tails[form])


def blocks(dataset: AnyDataset | StoredDocuments, progress: Progress) -> Iterator[slice]:
    """Yield the rows of a dataset in slices of about `EXPORT_BYTES`, and report each that is done."""
    documents, n = isinstance(dataset, StoredDocuments), len(dataset)
    row_bytes = 8 * dataset.corpus.length if documents else dataset.X.shape[1] * dataset.X.dtype.itemsize
    # A power of two, as the rows of a stored chunk are, so that no chunk is read twice.
    step = 1 << max(0, (EXPORT_BYTES // row_bytes).bit_length() - 1)
    for lo in range(0, n, step):
        yield slice(lo, min(lo + step, n))
        progress("exporting", min(lo + step, n), n)


def point_columns(samples: Samples, rows: slice) -> dict[str, NDArray[Any]]:
    """Return some rows of the table of points but for X, by column; a y of several columns is y0, y1 and so on."""
    forest, dataset, at = samples.forest, samples.known.dataset, samples.place(rows)
    cluster = forest.point_cluster[at]
    y = np.asarray(samples.data.y)[rows]
    targets = {"y": y} if y.ndim == 1 else {f"y{j}": column for j, column in enumerate(y.T)}
    columns = {
        "z": dataset.point_z[at],
        "cluster": cluster,
        "cluster_id": forest.cluster_id[cluster],
        "point_id": forest.point_id[at],
        "depth": forest.point_depth[at],
    }
    if isinstance(at, np.ndarray):
        return targets | {"row": at} | columns
    return targets | columns | {name: column[at] for name, column in _extra(dataset, latents=False).items()}


def position_columns(samples: Samples, rows: slice) -> dict[str, NDArray[Any]]:
    """Return some rows of X, as columns x0, x1 and so on."""
    X = np.ascontiguousarray(np.asarray(samples.data.X[rows]).T)
    return {f"x{j}": column for j, column in enumerate(X)}


def latent_table_columns(samples: Samples) -> dict[str, NDArray[Any]]:
    """Return the table of latents, by column."""
    dataset = samples.known.dataset
    return latent_columns(dataset.forest, dataset.latent_z) | _extra(dataset, latents=True)


def _extra(dataset: Dataset, *, latents: bool) -> dict[str, NDArray[Any]]:
    """Return the columns that only some datasets have, of latents or of points."""
    return {name: np.asarray(column) for name, column in dataset.extra.items() if (name in LATENT_COLUMNS) == latents}


# ---------------------------------------------------------------------- what files say of themselves


def record(samples: Samples) -> dict[str, str]:
    """Return what makes the data again, and where they came from, as JSON, by key; and a digest of all arrays."""
    data = samples.data
    modified = {"modified": data.modification} if data.modification else {}
    facts = {RECIPE: data.recipe.to_json(), PROVENANCE: json.dumps({**data.provenance, **modified})}
    if isinstance(data, Superposed):
        return facts | {FACTOR: json.dumps(samples.factor)}
    return facts | {DIGEST: json.dumps(digest(data))}


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
    """Tell whether all arrays are as they were when their file was written."""
    return facts.get(DIGEST) == json.dumps(digest(data))


def numpy_columns(table: Any) -> Columns:
    """Return the columns of an Arrow table, which must be numbers."""
    return {name: check_numbers(name, table[name].to_numpy()) for name in table.column_names}


def require_trees(forest: Forest) -> None:
    """Raise, in one line, if a table of latents would not hold all bonds."""
    if forest.n_extra_bonds:
        count = forest.n_extra_bonds
        raise ValueError(f"forest must have no bonds that close cycles in a table of latents, got {count}; use hdf5")


def assemble(X: NDArray[Any], points: Columns, latents: Columns, facts: Mapping[str, str]) -> Dataset:
    """Return the dataset of two tables, of which X is given as an array. The forest is checked."""
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
    """Return a dataset that was read, vouched for if nothing changed; raise unless its arrays fit together."""
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
    """Raise, in one line, unless a column has a shape and a type that kernels know."""
    check_shape(name, column, shape)
    if column.dtype.kind == "f" and column.dtype.itemsize not in (4, 8):
        raise ValueError(f"{name} must be float32 or float64, got {column.dtype}")


def positions(columns: Columns) -> NDArray[Any]:
    """Return X from columns x0, x1 and so on."""
    return np.column_stack([columns[f"x{j}"] for j in range(_count("x", columns))])


def _count(letter: str, columns: Columns) -> int:
    return sum(name[0] == letter and name[1:].isdigit() for name in columns)


def arrow(what: str) -> Any:
    """Return pyarrow, or say that it is needed, and pandas with it."""
    with needing(f"{what} needs", "frames"):
        import pandas  # noqa: F401  # latent_table needs it: say so before anything is written
        import pyarrow
    return pyarrow
