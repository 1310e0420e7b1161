"""HDF5: the columns of the data model in one file."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from percolab.dataset.dataset import Dataset
from percolab.exports.columns import PROVENANCE, RECIPE, blocks, record
from percolab.ground.files import PathLike, new_files
from percolab.ground.progress import Progress, silent
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe

FOREST = tuple(field.name for field in fields(Forest))


def hdf5_paths(path: PathLike) -> tuple[Path]:
    """Return the file of an export, ``{stem}.h5``."""
    return (Path(f"{os.fspath(path).removesuffix('.hdf5').removesuffix('.h5')}.h5"),)


def to_hdf5(dataset: Dataset, path: PathLike, *, overwrite: bool = False, progress: Progress = silent) -> None:
    """Write ``{stem}.h5`` with X, y, latent_z, point_z and the columns of the forest, under these names.

    They have the shapes and types of the data model, without compression, since Gaussians have none; X is written block
    by block. The recipe and the provenance are attributes of the file, ``percolab.recipe`` and ``percolab.provenance``.
    """
    h5py = _h5py()
    with (
        new_files(*hdf5_paths(path), overwrite=overwrite) as (output,),
        h5py.File(output.name, "w", locking=False) as file,
    ):
        file.attrs.update(record(dataset))
        n, n_latents = dataset.forest.n_points, dataset.forest.n_latents
        for name, length in (("y", n), ("latent_z", n_latents), ("point_z", n)):
            values = getattr(dataset, name)
            file.create_dataset(name, (length, *values.shape[1:]), data=values)
        for name in FOREST:
            file[name] = getattr(dataset.forest, name)
        X = file.create_dataset("X", dataset.X.shape, dataset.X.dtype)
        for rows in blocks(dataset, progress):
            X[rows] = dataset.X[rows]


def read_hdf5(path: PathLike) -> Dataset:
    """Read the dataset that `to_hdf5` wrote, into memory."""
    h5py = _h5py()
    (name,) = hdf5_paths(path)
    if not name.exists():
        raise FileNotFoundError(f"there is no file {str(name)!r}")
    try:
        with h5py.File(name, "r") as file:
            arrays = {key: file[key][()] for key in ("X", "y", "latent_z", "point_z")}
            forest = Forest(*(file[key][()] for key in FOREST))
            recipe, provenance = Recipe.from_json(file.attrs[RECIPE]), json.loads(file.attrs[PROVENANCE])
        forest.validate()
        for key, length in _lengths(forest).items():
            if arrays[key].shape[:1] != (length,):
                raise ValueError(f"{key} must have {length} rows, got {arrays[key].shape}")
    except (KeyError, OSError, ValueError) as error:
        raise ValueError(f"{name} is not an export of percolab: {error}") from error
    return Dataset(recipe=recipe, forest=forest, provenance=provenance, **arrays)


def _lengths(forest: Forest) -> dict[str, int]:
    n, n_latents = forest.n_points, forest.n_latents
    return {"X": n, "y": n, "point_z": n, "latent_z": n_latents}


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 needs h5py: pip install 'percolab[hdf5]'") from error
    return h5py
