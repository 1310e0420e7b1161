"""Digests: of a block of rows, of an array, and the one comparison of what is stored with what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.store import metadata
from percolab.store.chunks import Chunks
from percolab.store.locations import Location
from percolab.store.schema import DIGEST_BYTES, StoreError
from percolab.store.sources import Source


def of_block(data: NDArray[Any]) -> bytes:
    """Return the sha256 of a block of rows."""
    return hashlib.sha256(np.ascontiguousarray(data).data).digest()


def of_array(blocks: Iterable[bytes]) -> str:
    """Return the digest of an array: the sha256 of the sha256 of its blocks."""
    return hashlib.sha256(b"".join(blocks)).hexdigest()


def fault(chunks: Chunks, block: int, digest: bytes) -> str | None:
    """Read a block and compare it with its digest; return what is wrong with it, or None."""
    try:
        rows = chunks.read(block)
    except StoreError as error:
        return str(error)
    if of_block(rows) == digest:
        return None
    lo = block * chunks.layout.block_rows
    return f"array {chunks.name} does not match its digest in rows {lo} to {lo + len(rows) - 1}"


def check_array(chunks: Chunks, blocks: Sequence[bytes]) -> None:
    """Compare every block of an array with its digest; raise `StoreError` naming the first that differs."""
    for block, digest in enumerate(blocks):
        said = fault(chunks, block, digest)
        if said is not None:
            raise StoreError(said)


def recorded(source: Source, name: str, n_blocks: int, sha256: Mapping[str, Any], location: Location) -> list[bytes]:
    """Return the recorded sha256 of each block of an array of a complete store, checked against the array's digest."""
    key = f"digests/{name}"
    layout = metadata.layout(source, key, location)
    if layout is None or layout.shape != (n_blocks, DIGEST_BYTES) or layout.dtype != np.uint8:
        raise StoreError(f"digests of array {name} cannot be read: there must be {n_blocks} of them")
    chunks = Chunks(source, key, layout)
    found = [row.tobytes() for block in range(layout.n_blocks) for row in chunks.read(block)]
    if of_array(found) != sha256.get(name):
        raise StoreError(f"array {name} does not match its digest: the list of block digests was changed")
    return found
