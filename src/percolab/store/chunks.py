"""The chunks of an array: their sizes, and how they are read: one open, one read, one checksum.

A chunk is a block of rows in C order, little-endian, padded to a whole block at the end of the array. Floats are
stored uncompressed, integers packed by Blosc; a CRC32C of four bytes follows. Zarr reads the same files; this reader
is faster, and never takes more memory than the block has, whatever the files hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from percolab.ground.text import one_line
from percolab.store.byte_sources import Source
from percolab.store.schema import DIGEST_BYTES, Layout, StoreError, is_packed

#: Target size of a block of rows: large enough to stream, small enough to read a few rows from.
CHUNK_BYTES = 1 << 22
DIGESTS_PER_CHUNK = 1 << 16
CRC_BYTES = 4
HEADER_BYTES = 16  #: Bytes of Blosc's header: packing makes a chunk longer by at most this many.
THREADS = 4  #: Threads that read back, or use a URL, where most of the time is spent waiting.
SPARSE = 4  #: Rows are read one by one if fewer than one row in `SPARSE` of their block is needed.


def layout_of(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], cell: int) -> Layout:
    """Return how a writer stores a column of a dataset."""
    row_bytes = max(1, dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64)))
    rows = min(cell, 1 << max(0, (CHUNK_BYTES // row_bytes).bit_length() - 1), max(1, shape[0]))
    return Layout(shape, dtype, rows, is_packed(name))


def digests_layout(n_blocks: int) -> Layout:
    """Return how the digests of an array's blocks are stored."""
    return Layout((n_blocks, DIGEST_BYTES), np.dtype(np.uint8), min(DIGESTS_PER_CHUNK, max(1, n_blocks)), False)


class Chunks:
    """The chunks of one array.

    Parameters
    ----------
    source
        The files of the store.
    name
        Key of the array.
    layout
        How it is stored.
    """

    def __init__(self, source: Source, name: str, layout: Layout) -> None:
        self.source = source
        self.name = name
        self.layout = layout
        self._tail = "/0" * (len(layout.shape) - 1)
        #: the stamp of each chunk whose checksum was correct
        self._checked: dict[int, object] = {}

    def read(self, block: int) -> NDArray[Any]:
        """Return a block of rows."""
        lo = block * self.layout.block_rows
        rows = min(self.layout.block_rows, self.layout.shape[0] - lo)
        out = np.empty(self.layout.chunks, self.layout.dtype)
        self._fill(block, out)
        return out[:rows]

    def read_into(self, block: int, first: int, out: NDArray[Any]) -> None:
        """Fill `out`, which is C-contiguous, with rows of a block from its row `first` on."""
        if first == 0 and len(out) == self.layout.block_rows:
            self._fill(block, out)
        else:
            out[:] = self.read(block)[first : first + len(out)]

    def take(self, block: int, rows: NDArray[np.intp], out: NDArray[Any]) -> None:
        """Fill `out` with some rows of a block. A few are read one by one, if the checksum of the chunk was right."""
        if len(rows) * SPARSE >= self.layout.block_rows or not self._pick(block, rows, out):
            out[:] = self.read(block)[rows]

    def _pick(self, block: int, rows: NDArray[np.intp], out: NDArray[Any]) -> bool:
        """Read single rows; return whether that was possible."""
        stamp, size = self._checked.get(block), self.layout.row_bytes
        if stamp is None:
            return False
        with self._faults():
            return self.source.read_parts(self._key(block), stamp, (rows * size).tolist(), _bytes(out).data)

    def _fill(self, block: int, out: NDArray[Any]) -> None:
        """Fill a whole block, C-contiguous and of the shape of a chunk."""
        with self._faults():
            if self.layout.packed:
                self._unpack(self._key(block), out)
            else:
                self._checked[block] = self._copy(self._key(block), out)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Name the array in errors."""
        try:
            yield
        except FileNotFoundError:
            raise StoreError(f"{self.name} cannot be read: a chunk is missing") from None
        except (OSError, StoreError) as fault:
            raise StoreError(f"{self.name} cannot be read: {one_line(fault)}") from fault

    def _copy(self, key: str, out: NDArray[Any]) -> object:
        """Read a chunk of floats and return its stamp."""
        crc = np.empty(CRC_BYTES, np.uint8)
        stamp = self.source.read_into(key, [_bytes(out).data, crc.data])
        _check(key, _bytes(out), crc)
        return stamp

    def _unpack(self, key: str, out: NDArray[Any]) -> None:
        content = np.frombuffer(self.source.read(key, out.nbytes + HEADER_BYTES + CRC_BYTES), np.uint8)
        packed = content[:-CRC_BYTES]
        _check(key, packed, content[-CRC_BYTES:])
        # The header holds the length of the chunk and its unpacked size: both are checked before Blosc uses them.
        unpacked, _, size = packed[4:HEADER_BYTES].view("<u4").tolist() if packed.size >= HEADER_BYTES else (0, 0, 0)
        if (unpacked, size) != (out.nbytes, packed.size):
            raise StoreError(f"{key} must unpack to {out.nbytes} bytes, got {unpacked}")
        try:
            blosc.decompress(packed, _bytes(out))
        except (RuntimeError, ValueError) as fault:
            raise StoreError(f"{key} cannot be unpacked: {one_line(fault)}") from fault

    def _key(self, block: int) -> str:
        return f"{self.name}/c/{block}{self._tail}"


def _bytes(out: NDArray[Any]) -> NDArray[np.uint8]:
    return out.reshape(-1).view(np.uint8)


def _check(key: str, data: NDArray[np.uint8], crc: NDArray[np.uint8]) -> None:
    if crc.size < CRC_BYTES or google_crc32c.value(data) != int.from_bytes(crc.tobytes(), "little"):
        raise StoreError(f"{key} does not match its checksum")
