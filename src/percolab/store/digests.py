"""Digests of blocks, arrays and cells, and the comparison of stored data with the digests of the written data."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.progress import Progress, silent
from percolab.ground.validation import check_choice
from percolab.store import metadata
from percolab.store.byte_sources import Source
from percolab.store.chunks import THREADS, Chunks
from percolab.store.locations import Location
from percolab.store.schema import DIGEST_BYTES, Content, StoreError

Block = tuple[str, int]  #: The name of an array and the number of one of its blocks.
Missing = dict[str, list[int]]  #: The cells of each kind that are missing or damaged.


def of_block(data: NDArray[Any]) -> bytes:
    """Return the sha256 of a block of rows."""
    return hashlib.sha256(np.ascontiguousarray(data).data).digest()


def of_array(blocks: Iterable[bytes]) -> str:
    """Return the digest of an array: the sha256 of the sha256 of its blocks."""
    return hashlib.sha256(b"".join(blocks)).hexdigest()


def block_fault(chunks: Chunks, block: int, digest: bytes) -> str | None:
    """Read a block and compare it with its digest; return a description of the fault, or None."""
    try:
        rows = chunks.read(block)
    except StoreError as error:
        return str(error)
    if of_block(rows) == digest:
        return None
    lo = block * chunks.layout.block_rows
    return f"array {chunks.name} does not match its digest in rows {lo} to {lo + len(rows) - 1}"


def recorded(source: Source, name: str, n_blocks: int, sha256: Mapping[str, Any], location: Location) -> list[bytes]:
    """Return the recorded sha256 of each block of an array of a complete store, checked against the array's digest."""
    key = f"digests/{name}"
    layout = metadata.layout(source, key, location)
    if layout is None or layout.shape != (n_blocks, DIGEST_BYTES) or layout.dtype != np.uint8:
        raise StoreError(f"digests of array {name} cannot be read: there must be {n_blocks} of them")
    chunks = Chunks(source, key, layout)
    block_digests = [row.tobytes() for block in range(layout.n_blocks) for row in chunks.read(block)]
    if of_array(block_digests) != sha256.get(name):
        raise StoreError(f"array {name} does not match its digest: the list of block digests was changed")
    return block_digests


# ---------------------------------------------------------------------- cells
#
# The cells of a store: the units that one writer owns and that are checked one at a time.
# The rows of a store are cut into cells of `CELL` rows: of points, of latents, of clusters and of cluster edges.
# Every chunk lies in one cell, so each cell can be written by another process, on another machine, in any order. The
# arrays and their chunks depend on the shapes and types of the data alone, so a finished store does not show how it
# was made.


class Cells(ABC):
    """The cells of a store, complete or not, and the digests that they should have."""

    cell: int  #: rows of a cell

    @property
    @abstractmethod
    def content(self) -> Content:
        """What the store holds."""

    @abstractmethod
    def chunks(self, name: str) -> Chunks:
        """Return the chunks of an array."""

    @abstractmethod
    def expected(self, kind: str, index: int) -> Sequence[bytes] | None:
        """Return the recorded digests of the blocks of a cell, or None if there are no trustworthy ones."""

    def n_rows(self, kind: str) -> int:
        """Return the number of rows of a kind: points, latents, clusters or cluster edges."""
        kinds = self.content.kinds
        return self.chunks(kinds[check_choice("kind", kind, tuple(kinds))][0]).layout.shape[0]

    def n_cells(self, kind: str) -> int:
        """Return the number of cells of a kind."""
        return -(-self.n_rows(kind) // self.cell)

    def span(self, kind: str, index: int) -> tuple[int, int]:
        """Return the first row of a cell and the row after its last."""
        return index * self.cell, min((index + 1) * self.cell, self.n_rows(kind))

    def cells(self) -> Iterator[tuple[str, int]]:
        """Yield every cell: its kind and its number."""
        return ((kind, index) for kind in self.content.kinds for index in range(self.n_cells(kind)))

    def blocks(self, kind: str, index: int) -> list[Block]:
        """Return every block of a cell, array after array."""
        lo, hi = self.span(kind, index)
        steps = [(name, self.chunks(name).layout.block_rows) for name in self.content.kinds[kind]]
        return [(name, block) for name, step in steps for block in range(lo // step, -(-hi // step))]

    # ------------------------------------------------------------------ checking

    def missing(self, progress: Progress = silent) -> Missing:
        """Return the cells of each kind that have no record or do not match it. Each block is read once.

        Parameters
        ----------
        progress
            Called with (stage, cells checked, cells in all).
        """
        lacking: Missing = {kind: [] for kind in self.content.kinds}
        for kind, index, fault in self.faults(progress):
            if fault is not None:
                lacking[kind].append(index)
        return lacking

    def faults(self, progress: Progress = silent) -> Iterator[tuple[str, int, str | None]]:
        """Read every cell, several at a time; yield each with a description of its fault, or None."""
        cells = list(self.cells())
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                for done, ((kind, index), fault) in enumerate(zip(cells, pool.map(self._fault, cells), strict=True), 1):
                    progress("checking", done, len(cells))
                    yield kind, index, fault
            finally:
                pool.shutdown(cancel_futures=True)

    def _fault(self, cell: tuple[str, int]) -> str | None:
        record = self.expected(*cell)
        if record is None:
            return f"{cell[0]} cell {cell[1]} is not written"
        blocks = zip(self.blocks(*cell), record, strict=False)  # a record may be longer than the last cell needs
        return next(
            (said for (name, block), digest in blocks if (said := block_fault(self.chunks(name), block, digest))), None
        )
