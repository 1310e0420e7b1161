"""What a store says of itself, believed only as far as it is checked.

A Zarr group and its arrays are described by files named ``zarr.json``. They are read here, and not by Zarr, so that
nothing is accepted but what a writer of percolab writes: one way to cut arrays, to name chunks and to pack them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from percolab.ground.foreign_files import MOST_JSON, parse_json
from percolab.ground.text import one_line, shown
from percolab.ground.validation import check_choice
from percolab.model.recipe import Recipe
from percolab.store import schema
from percolab.store.byte_sources import Source
from percolab.store.locations import Location, is_free
from percolab.store.schema import FORMAT, AnyRecipe, Layout, StoreError

ROOT = "zarr.json"
LARGEST_BLOCK = 1 << 26
"""Bytes of a block, unless it is a single row: sixteen times what a writer makes."""
MOST_ROWS = 1 << 62
TYPES = ("float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


# ---------------------------------------------------------------------- the group


def attributes(source: Source, location: Location) -> dict[str, Any]:
    """Return the attributes of the store at a location, whatever its status."""
    try:
        group = _json(source, ROOT)
    except FileNotFoundError:
        if is_free(location):
            raise FileNotFoundError(f"dataset must exist, got {str(location)!r}") from None
        raise StoreError(f"{location} is not a percolab dataset: it is not a Zarr group") from None
    except StoreError as fault:
        raise StoreError(f"{location} is not a percolab dataset: {fault}") from fault
    found = group.get("attributes")
    ours = found.get("percolab") if isinstance(found, dict) else None
    if group.get("zarr_format") != 3 or group.get("node_type") != "group" or not isinstance(ours, dict):
        raise StoreError(f"{location} is not a percolab dataset: it is a Zarr group of another kind")
    return ours


def check_length(attributes: Mapping[str, Any]) -> None:
    """Raise unless what a store is to say of itself is short enough to be read back, with its digests."""
    length = len(json.dumps({"attributes": {"percolab": attributes}}, indent=2))
    if length > MOST_JSON // 2:
        raise ValueError(f"recipe must have at most {MOST_JSON // 2:,} characters of JSON in a store, got {length:,}")


def check_complete(found: Mapping[str, Any], location: Location) -> None:
    """Raise unless attributes are those of a complete store that this version reads."""
    if found.get("status") != "complete":
        raise StoreError(
            f"{location} is not a dataset but an unfinished write: run the same command again to resume, or delete it"
        )
    if found.get("format") != FORMAT:
        raise StoreError(f"{location} has format {shown(found.get('format'))}; this version of percolab reads {FORMAT}")
    made, sha256, content = found.get("provenance"), found.get("sha256"), schema.content_of(found.get("recipe"))
    if not isinstance(made, dict):
        raise StoreError(f"{location} is damaged: its provenance must be a JSON object, got {shown(made)}")
    if not isinstance(sha256, dict) or not {*content.columns} <= {*sha256} <= {*content.columns, *content.extra}:
        raise StoreError(f"{location} is damaged: it must have a digest for every array, got {shown(sha256)}")


# ---------------------------------------------------------------------- arrays


def layout(source: Source, name: str, location: Location) -> Layout | None:
    """Return how an array is stored, or None if it is missing; raise unless a writer of percolab could have made it."""
    try:
        return _layout(_json(source, f"{name}/{ROOT}"), schema.is_packed(name))
    except FileNotFoundError:
        return None
    except StoreError as fault:
        raise StoreError(f"{location} is damaged: array {name} cannot be opened: {fault}") from fault


def _layout(found: dict[str, Any], packed: bool) -> Layout:
    try:
        shape, chunks = tuple(found["shape"]), tuple(found["chunk_grid"]["configuration"]["chunk_shape"])
        codecs = [codec["name"] for codec in found["codecs"]]
        dtype = np.dtype(check_choice("data_type", found["data_type"], TYPES)).newbyteorder("<")
        how = {
            "node_type": found["node_type"],
            "chunk_grid": found["chunk_grid"]["name"],
            "chunk_key_encoding": found["chunk_key_encoding"],
            "codecs": codecs,
            "endian": found["codecs"][0]["configuration"]["endian"] if dtype.itemsize > 1 else "little",
            "storage_transformers": list(found.get("storage_transformers") or ()),
        }
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"its metadata are not those of an array: {one_line(fault)}") from fault
    for key, value in _how(packed).items():
        if how[key] != value:
            raise StoreError(f"{key} must be {value!r}, got {shown(how[key])}")
    _check_sizes(shape, chunks)
    return _check_block(Layout(shape, dtype, chunks[0], packed))


def _how(packed: bool) -> dict[str, Any]:
    return {
        "node_type": "array",
        "chunk_grid": "regular",
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": ["bytes", *(["blosc"] if packed else []), "crc32c"],
        "endian": "little",
        "storage_transformers": [],
    }


def _check_sizes(shape: tuple[Any, ...], chunks: tuple[Any, ...]) -> None:
    for size in (*shape, *chunks):
        if type(size) is not int or not 0 <= size <= MOST_ROWS:
            raise StoreError(f"sizes must be integers from 0 to 2^62, got {shown(shape)} in blocks of {shown(chunks)}")
    if not shape or len(shape) != len(chunks) or chunks[0] < 1 or chunks[1:] != shape[1:] or 0 in shape[1:]:
        raise StoreError(f"blocks must be of whole rows, got {shown(shape)} in blocks of {shown(chunks)}")


def _check_block(found: Layout) -> Layout:
    most = max(LARGEST_BLOCK, found.row_bytes)
    if found.block_bytes > most:
        raise StoreError(f"blocks must have at most {most} bytes, got {found.block_bytes}")
    return found


def layouts(
    source: Source, recipe: AnyRecipe, location: Location, names: Iterable[str], *, modified: bool = False
) -> dict[str, Layout]:
    """Return how the arrays of a dataset are stored; raise unless shapes and types are those of the recipe.

    A modified dataset may have another number of points than its recipe makes.
    """
    found: dict[str, Layout] = {}
    for name in sorted(names):
        known = layout(source, name, location)
        if known is None:
            raise StoreError(f"{location} is damaged: array {name} is missing")
        found[name] = known
    points = isinstance(recipe, Recipe)
    n_points, n_clusters = (found[name].shape[0] if points else 0 for name in ("point_id", "cluster_id"))
    expected, types = schema.shapes(recipe, n_points, n_clusters), schema.dtypes(recipe)
    extra = [name.removeprefix("extra/") for name in found if name not in expected]
    n_extra = found["extra/extra_latent"].shape[0] if "extra_latent" in extra else 0
    expected |= schema.extra_shapes(extra, n_points, n_clusters, n_extra)
    types |= {f"extra/{name}": schema.EXTRA_COLUMNS[name][1] for name in extra}
    for name, known in found.items():
        if known.shape != expected[name]:
            raise StoreError(f"{location} is damaged: array {name} must have shape {expected[name]}, got {known.shape}")
        if known.dtype != types[name]:
            raise StoreError(f"{location} is damaged: array {name} must be {types[name]}, got {known.dtype}")
    try:
        if isinstance(recipe, Recipe) and not modified:
            schema.check_counts(recipe, n_points, n_clusters)
    except ValueError as fault:
        raise StoreError(f"{location} is damaged: its arrays are not those of its recipe: {fault}") from fault
    return found


# ---------------------------------------------------------------------- reading JSON


def _json(source: Source, key: str) -> dict[str, Any]:
    text = source.read(key, MOST_JSON)
    try:
        return parse_json(text)
    except ValueError as fault:
        raise StoreError(f"{key} cannot be read: {fault}") from fault


# ---------------------------------------------------------------------- digest


def check_digest(found: Mapping[str, Any], arrays: Mapping[str, Layout], location: Location) -> str:
    """Return the digest of all that a store says of itself; raise unless it is the one that was written."""
    known = digest(found, arrays)
    if found.get("metadata_sha256") != known:
        raise StoreError(f"{location} is damaged: its metadata do not match their digest")
    return known


def digest(found: Mapping[str, Any], arrays: Mapping[str, Layout]) -> str:
    """Return the sha256 of all that a complete store says of itself: recipe, provenance, arrays and their digests."""
    said = {key: found.get(key) for key in ("format", "recipe", "provenance", "sha256")}
    said["arrays"] = {name: [list(known.shape), str(known.dtype), known.block_rows] for name, known in arrays.items()}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
