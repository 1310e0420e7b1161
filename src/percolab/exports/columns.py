"""A dataset as two tables, one of points and one of latents, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground.progress import Progress
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe

BLOCK_BYTES = 1 << 24
"""Bytes of X read, and written as one row group, at a time."""

RECIPE, PROVENANCE = "percolab.recipe", "percolab.provenance"
"""Keys under which files keep the recipe and the provenance, as JSON."""

Columns = Mapping[str, NDArray[Any]]


def blocks(dataset: Dataset, progress: Progress) -> Iterator[slice]:
    """Yield the rows of a dataset in slices of about `BLOCK_BYTES`, and report each that is done."""
    n, dim = dataset.X.shape
    # A power of two, as the rows of a stored chunk are, so that no chunk is read twice.
    step = 1 << max(0, (BLOCK_BYTES // (dim * dataset.X.dtype.itemsize)).bit_length() - 1)
    for lo in range(0, n, step):
        yield slice(lo, min(lo + step, n))
        progress("exporting", min(lo + step, n), n)


def point_columns(dataset: Dataset, rows: slice) -> dict[str, NDArray[Any]]:
    """Return some rows of the table of points but for X, by column; a y of several columns is y0, y1 and so on."""
    forest = dataset.forest
    cluster = forest.point_cluster[rows]
    y = np.asarray(dataset.y)[rows]
    targets = {"y": y} if y.ndim == 1 else {f"y{j}": column for j, column in enumerate(y.T)}
    return targets | {
        "z": dataset.point_z[rows],
        "cluster": cluster,
        "cluster_id": forest.cluster_id[cluster],
        "point_id": forest.point_id[rows],
        "depth": forest.point_depth[rows],
    }


def position_columns(dataset: Dataset, rows: slice) -> dict[str, NDArray[Any]]:
    """Return some rows of X, as columns x0, x1 and so on."""
    X = np.ascontiguousarray(np.asarray(dataset.X[rows]).T)
    return {f"x{j}": column for j, column in enumerate(X)}


def record(dataset: Dataset) -> dict[str, str]:
    """Return what makes the dataset again, and where it came from, as JSON, by key; what its recipe does not make."""
    modified = {"modified": dataset.modification} if dataset.modification else {}
    return {RECIPE: dataset.recipe.to_json(), PROVENANCE: json.dumps({**dataset.provenance, **modified})}


def require_trees(dataset: Dataset) -> None:
    """Raise, in one line, if a table of latents would not hold all bonds."""
    if dataset.forest.n_extra_bonds:
        count = dataset.forest.n_extra_bonds
        raise ValueError(f"forest must have no bonds that close cycles in a table of latents, got {count}; use hdf5")


def assemble(X: NDArray[Any], points: Columns, latents: Columns, told: Mapping[str, str]) -> Dataset:
    """Return the dataset of two tables, of which X is given as an array. The forest is checked."""
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
    recipe, provenance = Recipe.from_json(told[RECIPE]), json.loads(told[PROVENANCE])
    return Dataset(recipe, forest, X, y, latents["z"], points["z"], provenance)


def positions(columns: Columns) -> NDArray[Any]:
    """Return X from columns x0, x1 and so on."""
    return np.column_stack([columns[f"x{j}"] for j in range(_count("x", columns))])


def _count(letter: str, columns: Columns) -> int:
    return sum(name[0] == letter and name[1:].isdigit() for name in columns)
