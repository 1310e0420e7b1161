"""Superposed worlds on disk: one Zarr group with the samples, and beside them the truth of every factor.

The group holds X, y and rows; ``factors/K`` holds y, latent_z, point_z and the five columns of the forest of factor K,
whose X is not stored: the recipe makes it again. Arrays are cut, packed and digested as those of a dataset. A world is
written whole: it cannot be resumed, nor made in shards.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import Dataset
from percolab.ground.files import one_line
from percolab.ground.progress import Progress, silent
from percolab.model.forest import Forest
from percolab.store import locations, reading, saving, schema
from percolab.store.cells import BLOCK_BYTES, CELL
from percolab.store.locations import Location
from percolab.store.reading import StoredArray
from percolab.store.schema import FOREST_COLUMNS, FORMAT, VALUE_COLUMNS, StoreError
from percolab.worlds.recipe import KIND, Superposition
from percolab.worlds.remade import RemadeArray
from percolab.worlds.superposed import Superposed, save_with

if TYPE_CHECKING:
    import zarr

SAMPLE_COLUMNS = ("X", "y", "rows")
FACTOR_COLUMNS = (*VALUE_COLUMNS, *FOREST_COLUMNS)


def load(path: Location, *, verify: bool = False) -> Dataset | Superposed:
    """Open a dataset or a world. Nothing but metadata is read: X as it is indexed, each other column at first touch.

    Parameters
    ----------
    path
        Where `save` or ``percolab generate`` wrote it: a path, or a URL that fsspec knows.
    verify
        Read everything once and compare it with its digests; raise `StoreError` naming what differs.
    """
    group, attributes = locations.open_store(path)
    if not is_world(attributes):
        return reading.load(path, verify=verify)
    _check_complete(attributes, path)
    recipe = _recipe(attributes, path)
    arrays = {name: _stored(group, name, path) for name in _names(recipe)}
    _check_shapes(arrays, recipe, path)
    if verify:
        _verify(group, attributes, arrays)
    return Superposed.lazy(_reader(recipe, attributes, arrays, path))


def is_world(attributes: dict[str, Any]) -> bool:
    """Tell whether the attributes of a store are those of a superposed world."""
    recipe = attributes.get("recipe")
    return isinstance(recipe, dict) and recipe.get("kind") == KIND


def _names(recipe: Superposition) -> list[str]:
    """Return the name of every array."""
    of_factors = [f"factors/{k}/{name}" for k in range(len(recipe.factors)) for name in FACTOR_COLUMNS]
    return [*SAMPLE_COLUMNS, *of_factors]


# ---------------------------------------------------------------------- saving


def save(world: Superposed, path: Location, *, overwrite: bool = False, progress: Progress = silent) -> None:
    """Write a world to a path or a URL. What is at a path stays unless this succeeds."""
    saving.check_target(path, overwrite=overwrite)
    target = locations.local_path(path)
    if target is None:
        _write(world, path, progress)
        return
    partial = target.with_name(f".{target.name}.partial-{secrets.token_hex(8)}")
    try:
        _write(world, partial, progress)
        saving.put_in_place(Path(partial), target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


save_with(save)


def _write(world: Superposed, path: Location, progress: Progress) -> None:
    import zarr

    said: dict[str, Any] = {
        "format": FORMAT,
        "status": "writing",
        "recipe": world.recipe.to_dict(),
        "sigma": world.sigma.tolist(),
    }
    store = locations.zarr_store(path)
    group = zarr.create_group(store, zarr_format=3, attributes={"percolab": said}, overwrite=True)
    columns = dict(_columns(world))
    total, done = sum(int(column.nbytes) for column in columns.values()), 0
    sha256 = {}
    for name, column in columns.items():
        sha256[name] = _write_column(group, name, column)
        done += int(column.nbytes)
        progress("saving", done, total)
    made: dict[str, Any] = {
        "provenance": _plain(world.provenance) | ({"modified": world.modification} if world.modification else {}),
        "factors": [_plain(factor.provenance) for factor in world.factors],
    }
    group.attrs["percolab"] = said | made | {"status": "complete", "sha256": sha256}


def _plain(provenance: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in provenance.items() if key != "loaded_from"}


def _columns(world: Superposed) -> Iterator[tuple[str, Any]]:
    for name in SAMPLE_COLUMNS:
        yield name, getattr(world, name)
    for k, factor in enumerate(world.factors):
        for name in FACTOR_COLUMNS:
            yield f"factors/{k}/{name}", getattr(factor.forest if name in FOREST_COLUMNS else factor, name)


def _write_column(group: zarr.Group, name: str, column: Any) -> str:
    """Write an array block by block, and the digests of its blocks; return the digest of these."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    integers = column.dtype.kind == "i"
    row_bytes = max(1, int(column.nbytes) // max(1, len(column)))
    rows = min(CELL, 1 << max(0, (BLOCK_BYTES // row_bytes).bit_length() - 1), max(1, len(column)))
    packing = [BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")] if integers else []
    array = group.create_array(
        name,
        shape=column.shape,
        dtype=column.dtype,
        chunks=(rows, *column.shape[1:]),
        compressors=[*packing, Crc32cCodec()],
        fill_value=-1 if integers else np.nan,
        config={"write_empty_chunks": True},
    )
    digests = []
    for lo in range(0, len(column), rows):
        block = np.ascontiguousarray(column[lo : lo + rows])
        array[lo : lo + rows] = block
        digests.append(hashlib.sha256(block.data).digest())
    table = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
    chunks = (max(1, len(table)), table.shape[1])
    group.create_array(f"digests/{name}", shape=table.shape, dtype=table.dtype, chunks=chunks)[:] = table
    return schema.digest(digests)


# ---------------------------------------------------------------------- loading


def _reader(
    recipe: Superposition, attributes: dict[str, Any], arrays: dict[str, StoredArray], path: Location
) -> Callable[[str], Any]:
    """Return what reads the fields of a world by name."""

    def read(name: str) -> Any:
        match name:
            case "recipe":
                return recipe
            case "provenance":
                return {**attributes.get("provenance", {}), "loaded_from": str(path)}
            case "sigma":
                return np.array(attributes["sigma"], np.float64)
            case "X":
                return arrays["X"]
            case "rows":
                return np.asfortranarray(arrays["rows"][:])  # rows of one factor lie side by side
            case "factors":
                return tuple(Dataset.lazy(factor_reader(k)) for k in range(len(recipe.factors)))
            case _:
                return arrays[name][:]

    def factor_reader(k: int) -> Callable[[str], Any]:
        def of(name: str) -> StoredArray:
            return arrays[f"factors/{k}/{name}"]

        def read_factor(name: str) -> Any:
            match name:
                case "recipe":
                    return recipe.factors[k]
                case "provenance":
                    return dict(attributes.get("factors", [{}] * (k + 1))[k])
                case "X":
                    return RemadeArray(recipe.factors[k], (len(of("point_id")), recipe.factors[k].dim))
                case "forest":
                    return Forest(**{column: of(column)[:] for column in FOREST_COLUMNS})
                case _:
                    return of(name)[:]

        return read_factor

    return read


def _recipe(attributes: dict[str, Any], path: Location) -> Superposition:
    try:
        recipe = Superposition.from_dict(attributes["recipe"])
        if recipe.to_dict() != attributes["recipe"] or len(attributes["sigma"]) != len(recipe.factors):
            raise ValueError("it must be complete")
    except (KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"{path} has a damaged recipe: {one_line(fault)}") from fault
    return recipe


def _check_complete(attributes: dict[str, Any], path: Location) -> None:
    if attributes.get("status") != "complete":
        raise StoreError(f"{path} is not a dataset but an unfinished write: delete it, and save it again")
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{path} has format {attributes.get('format')!r}; this version of percolab reads {FORMAT}")


def _stored(group: zarr.Group, name: str, path: Location) -> StoredArray:
    array = locations.open_array(group, name, path)
    if array is None:
        raise StoreError(f"{path} is damaged: array {name} is missing")
    return StoredArray(array, name)


def _check_shapes(arrays: dict[str, StoredArray], recipe: Superposition, path: Location) -> None:
    n = len(arrays["y"])
    expected: dict[str, tuple[int, ...]] = {"X": (n, recipe.dim), "y": (n,), "rows": (n, len(recipe.factors))}
    for k, factor in enumerate(recipe.factors):
        sizes = (len(arrays[f"factors/{k}/{name}"]) for name in ("point_id", "cluster_id"))
        shapes = schema.shapes(factor, *sizes)
        expected |= {f"factors/{k}/{name}": shapes[name] for name in FACTOR_COLUMNS}
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise StoreError(f"{path} is damaged: array {name} must have shape {expected[name]}, got {array.shape}")


def _verify(group: zarr.Group, attributes: dict[str, Any], arrays: dict[str, StoredArray]) -> None:
    """Compare every block of every array with its digest."""
    for name, array in arrays.items():
        recorded = schema.block_digests(group, name)
        if schema.digest(recorded) != attributes.get("sha256", {}).get(name):
            raise StoreError(f"array {name} does not match its digest: the list of block digests was changed")
        for lo, digest in zip(range(0, len(array), array.block_rows), recorded, strict=True):
            block: NDArray[Any] = array[lo : lo + array.block_rows]
            if hashlib.sha256(np.ascontiguousarray(block).data).digest() != digest:
                raise StoreError(f"array {name} does not match its digest in rows {lo} to {lo + len(block) - 1}")
