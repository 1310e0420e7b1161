"""Columns that only some datasets have, beside those that all have: where the rows of a subsample come from, and so on.

They lie in the group ``extra``, an array each, whose attribute `sha256` is the digest of its bytes. A dataset that has
some is saved whole, so they are written in one go, before the store is complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.dataset.dataset import LATENT_COLUMNS
from percolab.ground.files import one_line
from percolab.store import locations
from percolab.store.locations import Location
from percolab.store.schema import StoreError

GROUP = "extra"
CHUNK_ROWS = 1 << 16


def write(location: Location, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write extra columns to a store that is not complete yet."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    group, _ = locations.open_store(location, read_only=False)
    for name, column in columns.items():
        array = group.create_array(
            f"{GROUP}/{name}",
            shape=column.shape,
            dtype=column.dtype,
            chunks=(min(CHUNK_ROWS, max(1, len(column))), *column.shape[1:]),
            compressors=[BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"), Crc32cCodec()],
            dimension_names=["latent" if name in LATENT_COLUMNS else "point"],
            overwrite=True,
        )
        array[:] = column
        array.attrs["sha256"] = _digest(column)


def read(location: Location) -> dict[str, NDArray[Any]]:
    """Return the extra columns of a store; those that do not match their digest are refused."""
    group, _ = locations.open_store(location)
    try:
        found: Any = group.get(GROUP)
        columns = {} if found is None else dict(found.arrays())
        result = {name: np.asarray(array[:]) for name, array in columns.items()}
    except Exception as fault:
        raise StoreError(f"{location} is damaged: the extra columns cannot be read: {one_line(fault)}") from fault
    for name, column in result.items():
        if _digest(column) != columns[name].attrs.get("sha256"):
            raise StoreError(f"array {GROUP}/{name} does not match its digest")
    return result


def _digest(column: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(column).data).hexdigest()
