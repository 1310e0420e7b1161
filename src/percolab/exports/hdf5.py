"""HDF5: the columns of the data model in one file, of a dataset or of a superposed world."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset, vouch
from percolab.exports import columns
from percolab.ground import memory
from percolab.ground.extras import needing
from percolab.ground.files import PathLike, new_files
from percolab.ground.foreign_files import parse_json, reading
from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_numbers
from percolab.model.forest import Forest
from percolab.model.recipe import Recipe
from percolab.store import finished
from percolab.worlds.superposed import AnyDataset, RemadeArray, Superposed
from percolab.worlds.superposition import KIND, Superposition


def to_hdf5(
    dataset: AnyDataset,
    path: PathLike,
    *,
    factor: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> None:
    """Write ``{stem}.h5`` with X, y, latent_z, point_z and the columns of the forest; rare columns are in ``extra``.

    They have the names, shapes and types of the data model, without compression, since Gaussians do not compress; X is
    written block by block. The recipe and the provenance are attributes of the file, ``percolab.recipe`` and
    ``percolab.provenance``. For a superposed world the file has X, y, rows and sigma, and in ``factors/K`` all columns
    of each factor but X.
    """
    h5py = _h5py()
    columns.refuse_documents(dataset, "hdf5")
    if factor is not None and isinstance(dataset, Superposed):
        raise ValueError(f"factor must be left out with hdf5, which holds all factors, got {factor}")
    with (
        new_files(*columns.paths("hdf5", path), overwrite=overwrite) as (output,),
        _writing(h5py, output.name) as (file, sink),
    ):
        file.attrs.update(columns.record(dataset))
        if isinstance(dataset, Superposed):
            for name in ("y", "rows", "sigma"):
                file[name] = np.asarray(getattr(dataset, name))
            for k, part in enumerate(dataset.factors):
                _write_truth(file.create_group(f"factors/{k}"), part)
        else:
            _write_truth(file, dataset)
        X = file.create_dataset("X", dataset.X.shape, dataset.X.dtype)
        for rows in columns.blocks(dataset, progress):
            X[rows] = dataset.X[rows]
            sink.check()


class _Sink(io.FileIO):
    """A file for HDF5 to write to. HDF5 never sees a write fail: it would crash later, when Python ends.

    The first fault, of the disk or an interrupt, is kept for `check` to raise, and later writes are dropped.
    """

    _fault: BaseException | None = None

    def check(self) -> None:
        """Raise the first fault, if there was one."""
        if self._fault is not None:
            raise self._fault

    def write(self, data: Any) -> int:
        """Write all of the data."""
        left = memoryview(data).cast("B")
        try:
            while left and self._fault is None:
                left = left[super().write(left) :]
        except BaseException as fault:
            self._fault = fault
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Give the file a size."""
        try:
            return super().truncate(size) if self._fault is None else 0
        except BaseException as fault:
            self._fault = fault
            return 0


@contextmanager
def _writing(h5py: Any, name: str) -> Iterator[tuple[Any, _Sink]]:
    """Open a new HDF5 file, and raise the first fault of writing it."""
    with _Sink(name, "r+") as sink:
        try:
            with h5py.File(sink, "w") as file:
                yield file, sink
        finally:
            sink.check()


def _write_truth(group: Any, dataset: Dataset) -> None:
    """Write all columns of a dataset but X."""
    n, n_latents = dataset.forest.n_points, dataset.forest.n_latents
    for name, length in zip(columns.VALUES, (n, n_latents, n), strict=True):
        values = getattr(dataset, name)
        group.create_dataset(name, (length, *values.shape[1:]), data=values)
    for name in columns.FOREST:
        group[name] = getattr(dataset.forest, name)
    for name, column in dataset.extra.items():
        group[f"extra/{name}"] = column


def read_hdf5(path: PathLike) -> AnyDataset:
    """Read the dataset, or the superposed world, that `to_hdf5` wrote, into memory."""
    h5py = _h5py()
    (name,) = columns.paths("hdf5", path)
    with reading("export", name, columns.EXPORT) as plain, h5py.File(plain, "r") as file:
        return _read_world(file) if parse_json(file.attrs[columns.RECIPE]).get("kind") == KIND else _read_dataset(file)


def _read_dataset(file: Any) -> Dataset:
    recipe, provenance = Recipe.from_json(file.attrs[columns.RECIPE]), parse_json(file.attrs[columns.PROVENANCE])
    dataset = Dataset(recipe=recipe, X=_column(file, "X"), provenance=provenance, **_read_truth(file))
    return columns.checked(dataset, file.attrs)


def _read_world(file: Any) -> Superposed:
    recipe, provenance = Superposition.from_json(file.attrs[columns.RECIPE]), parse_json(file.attrs[columns.PROVENANCE])
    factors = []
    for k, part in enumerate(recipe.factors):
        fields = _read_truth(file[f"factors/{k}"])
        remade = RemadeArray(part, (fields["forest"].n_points, part.dim))
        factors.append(Dataset.lazy({"recipe": part, "X": remade, "provenance": {}, **fields}.__getitem__))
    X, y, rows, sigma = (_column(file, name) for name in ("X", "y", "rows", "sigma"))
    shapes = {"X": (len(X), recipe.dim), "y": (len(X), *y.shape[1:]), "rows": (len(X), len(factors))}
    for name, column in (("X", X), ("y", y), ("rows", rows), ("sigma", sigma)):
        columns.check_column(name, column, shapes.get(name, (len(factors),)))
    if rows.dtype != np.int64:
        raise ValueError(f"rows must be int64, got {rows.dtype}")
    finished.check_rows(rows, [factor.forest.n_points for factor in factors], "it")
    world = Superposed(recipe, X, y, np.asfortranarray(rows), tuple(factors), sigma, provenance)
    return vouch(world) if columns.is_intact(world, file.attrs) else world


def _read_truth(group: Any) -> dict[str, Any]:
    """Return all fields of a dataset that the file holds, except X. The forest is checked."""
    forest = Forest(*(_column(group, key) for key in columns.FOREST))
    forest.validate()
    extra = {key: _column(group, f"extra/{key}") for key in group.get("extra", {})}
    return {"forest": forest, "extra": extra, **{key: _column(group, key) for key in columns.VALUES}}


def _column(group: Any, key: str) -> NDArray[Any]:
    """Return a column that is in the file itself, and not in another file that it links to."""
    column = group[key]
    if column.file != group.file or column.is_virtual or column.external:
        raise ValueError(f"{key} must be in this file")
    memory.require(column.nbytes, f"{key} needs")
    return check_numbers(key, np.asarray(column[()]))


def _h5py() -> Any:
    with needing("HDF5 needs", "hdf5"):
        import h5py
    return h5py
