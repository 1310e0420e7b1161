"""The description of a store, which is trusted only as far as it is checked.

A Zarr group and its arrays are described by files named ``zarr.json``. They are read here, and not by Zarr, so that
only descriptions that percolab writes are accepted: one way to cut arrays, to name chunks and to pack them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from percolab.ground.foreign_files import MOST_JSON, parse_json
from percolab.ground.text import one_line, shown
from percolab.ground.validation import check_choice
from percolab.model.recipe import Recipe
from percolab.store import schema
from percolab.store.byte_sources import Source
from percolab.store.locations import Location, is_free
from percolab.store.schema import FORMAT, Layout, StoredRecipe, StoreError
from percolab.worlds.superposition import Superposition

ROOT = "zarr.json"
LARGEST_BLOCK = 1 << 26  #: Most bytes of a block, unless it is a single row: sixteen times the size that writers use.
MOST_ROWS = 1 << 62
KEY_ENCODING = {"name": "default", "configuration": {"separator": "/"}}
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
    said = group.get("attributes")
    ours = said.get("percolab") if isinstance(said, dict) else None
    if group.get("zarr_format") != 3 or group.get("node_type") != "group" or not isinstance(ours, dict):
        raise StoreError(f"{location} is not a percolab dataset: it is a Zarr group of another kind")
    return ours


def check_length(attributes: Mapping[str, Any]) -> None:
    """Raise unless the description of a store is short enough to be read back once its digests are in it."""
    length = len(json.dumps({"attributes": {"percolab": attributes}}, indent=2))
    if length > MOST_JSON // 2:
        raise ValueError(f"recipe must have at most {MOST_JSON // 2:,} characters of JSON in a store, got {length:,}")


def check_complete(said: Mapping[str, Any], location: Location) -> None:
    """Raise unless attributes are those of a complete store that this version reads."""
    if said.get("status") != "complete":
        advice = "run the same command again to resume, or delete it"
        raise StoreError(f"{location} is not a dataset but an unfinished write: {advice}")
    if said.get("format") != FORMAT:
        raise StoreError(f"{location} has format {shown(said.get('format'))}; this version of percolab reads {FORMAT}")
    if not isinstance(said.get("provenance"), dict):
        got = shown(said.get("provenance"))
        raise StoreError(f"{location} is damaged: its provenance must be a JSON object, got {got}")


# ---------------------------------------------------------------------- arrays


def layout(source: Source, name: str, location: Location) -> Layout | None:
    """Return the layout of an array, or None if it is missing; raise unless percolab could have written it."""
    try:
        return _layout(_json(source, f"{name}/{ROOT}"), schema.is_packed(name))
    except FileNotFoundError:
        return None
    except StoreError as fault:
        raise StoreError(f"{location} is damaged: array {name} cannot be opened: {fault}") from fault


def _layout(said: dict[str, Any], packed: bool) -> Layout:
    try:
        shape, chunks = tuple(said["shape"]), tuple(said["chunk_grid"]["configuration"]["chunk_shape"])
        codecs = [codec["name"] for codec in said["codecs"]]
        dtype = np.dtype(check_choice("data_type", said["data_type"], TYPES)).newbyteorder("<")
        endian = said["codecs"][0]["configuration"]["endian"] if dtype.itemsize > 1 else "little"
        rules: tuple[tuple[str, Any, Any], ...] = (
            ("node_type", said["node_type"], "array"),
            ("chunk_grid", said["chunk_grid"]["name"], "regular"),
            ("chunk_key_encoding", said["chunk_key_encoding"], KEY_ENCODING),
            ("codecs", codecs, ["bytes", *(["blosc"] if packed else []), "crc32c"]),
            ("endian", endian, "little"),
            ("storage_transformers", list(said.get("storage_transformers") or ()), []),
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as fault:
        raise StoreError(f"its metadata are not those of an array: {one_line(fault)}") from fault
    for key, value, wanted in rules:
        if value != wanted:
            raise StoreError(f"{key} must be {wanted!r}, got {shown(value)}")
    _check_sizes(shape, chunks)
    known = Layout(shape, dtype, chunks[0], packed)
    most = max(LARGEST_BLOCK, known.row_bytes)
    if known.block_bytes > most:
        raise StoreError(f"blocks must have at most {most} bytes, got {known.block_bytes}")
    return known


def _check_sizes(shape: tuple[Any, ...], chunks: tuple[Any, ...]) -> None:
    for size in (*shape, *chunks):
        if type(size) is not int or not 0 <= size <= MOST_ROWS:
            raise StoreError(f"sizes must be integers from 0 to 2^62, got {shown(shape)} in blocks of {shown(chunks)}")
    if not shape or len(shape) != len(chunks) or chunks[0] < 1 or chunks[1:] != shape[1:] or 0 in shape[1:]:
        raise StoreError(f"blocks must be of whole rows, got {shown(shape)} in blocks of {shown(chunks)}")


def layouts(
    source: Source, recipe: StoredRecipe, location: Location, attributes: Mapping[str, Any]
) -> dict[str, Layout]:
    """Return the layouts of the arrays of a complete store; raise unless shapes and types fit the recipe.

    A modified dataset may have another number of points than its recipe makes.
    """
    sha256, content = attributes.get("sha256"), schema.content_of(recipe)
    if not isinstance(sha256, dict) or not {*content.columns} <= {*sha256} <= {*content.columns, *content.extra}:
        raise StoreError(f"{location} is damaged: it must have a digest for every array, got {shown(sha256)}")
    arrays: dict[str, Layout] = {}
    for name in sorted(sha256):
        known = layout(source, name, location)
        if known is None:
            raise StoreError(f"{location} is damaged: array {name} is missing")
        arrays[name] = known
    for name, (shape, dtype) in _expected(recipe, arrays).items():
        if arrays[name].shape != shape:
            raise StoreError(f"{location} is damaged: array {name} must have shape {shape}, got {arrays[name].shape}")
        if arrays[name].dtype != dtype:
            raise StoreError(f"{location} is damaged: array {name} must be {dtype}, got {arrays[name].dtype}")
    try:
        if isinstance(recipe, Recipe) and "modified" not in attributes["provenance"]:
            schema.check_counts(recipe, *_counts(arrays))
    except ValueError as fault:
        raise StoreError(f"{location} is damaged: its arrays are not those of its recipe: {fault}") from fault
    return arrays


def _counts(arrays: Mapping[str, Layout]) -> tuple[int, int]:
    """Return the number of points and of clusters of a dataset, from the lengths of its arrays."""
    return arrays["point_id"].shape[0], arrays["cluster_id"].shape[0]


def _expected(recipe: StoredRecipe, arrays: Mapping[str, Layout]) -> dict[str, schema.Column]:
    """Return the shape and the type that each of these arrays must have, given the number of points and clusters."""
    if isinstance(recipe, Superposition):
        n = arrays["y"].shape[0]
        expected: dict[str, schema.Column] = {
            "X": ((n, recipe.dim), np.dtype(recipe.dtype)),
            "y": ((n, *recipe.y_shape), recipe.y_dtype),
            "rows": ((n, len(recipe.factors)), np.dtype(np.int64)),
        }
        for k, factor in enumerate(recipe.factors):
            part = {name: arrays[f"factors/{k}/{name}"] for name in schema.factor_columns(factor)}
            expected |= {f"factors/{k}/{name}": known for name, known in _expected(factor, part).items()}
        return expected
    n_points, n_clusters = _counts(arrays) if isinstance(recipe, Recipe) else (0, 0)
    n_extra = next((known.shape[0] for name, known in arrays.items() if name.endswith("extra_latent")), 0)
    columns = schema.columns_of(recipe, n_points, n_clusters, n_extra)
    return {name: columns[name.removeprefix("extra/")] for name in arrays}


# ---------------------------------------------------------------------- reading JSON


def _json(source: Source, key: str) -> dict[str, Any]:
    text = source.read(key, MOST_JSON)
    try:
        return parse_json(text)
    except ValueError as fault:
        raise StoreError(f"{key} cannot be read: {fault}") from fault


# ---------------------------------------------------------------------- digest


def digest(attributes: Mapping[str, Any], arrays: Mapping[str, Layout]) -> str:
    """Return the sha256 of the description of a complete store: recipe, provenance, arrays and their digests."""
    said = {key: attributes.get(key) for key in ("format", "recipe", "provenance", "sha256")}
    said["arrays"] = {name: [list(known.shape), str(known.dtype), known.block_rows] for name, known in arrays.items()}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
