"""Batches from a store larger than memory: which blocks are read in which order, and how batches are cut from them.

Batch of a store are in leaf order, so neighbours are relatives and a batch must not be a run of rows. An epoch reads
every block once, in an order drawn from (seed, epoch), and mixes its rows through a pool of `buffer_rows` rows: each
block that is read takes the room of as many rows, drawn at random, which leave in random order.

How far that is from a uniform permutation: if all rows of a reader fit in the pool, it is one. Otherwise a row leaves
after a wait of geometric law, in mean the time of reading `buffer_rows` rows. So rows of one block come within a few
`buffer_rows` of each other. Two rows of a batch are of one block with probability 1 / (2B - 1), and 1 / B at the start,
where B is the number of blocks that fit in the pool; in a uniform permutation it is one over the number of blocks.

A chunk of y holds the rows of several blocks of X. So that it is read about once, the order of blocks is drawn for
OPEN_ROWS rows at a time: whole chunks of y, themselves in random order, which stay in memory meanwhile. The order of
the blocks is uniform for a store of up to so many rows, and in a larger one blocks far apart meet as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel
from percolab.ground.validation import check_integer, check_seed
from percolab.store import worlds
from percolab.store.arrays import StoredArray
from percolab.store.locations import Location, absolute

Batch = tuple[NDArray[Any], ...]
"""The same rows of several columns."""
Batches = Generator[Batch, None, None]
"""Batches one after another. Whoever takes them closes them: what a generator holds must not wait for a collector."""
Room = Callable[[int], Batch]
"""Gives memory for so many rows of every column. It is called by several threads."""

BUFFER_BYTES = 1 << 28
"""Size that a pool has unless `buffer_rows` says otherwise."""
READERS = 4
"""Blocks read at the same time, ahead of their use."""
OPEN_ROWS = 1 << 23
"""Rows among which the order of blocks is drawn at a time; of them, all columns but X are in memory."""


# ---------------------------------------------------------------------- reading


class Columns:
    """Columns of the points of a store, floats as float32. Opening reads metadata alone.

    Parameters
    ----------
    path
        Where the store is.
    names
        The columns.
    identity
        That of the store, if it is known already; another store is refused.
    """

    def __init__(self, path: Location, names: Sequence[str], identity: str | None = None) -> None:
        _check_names(names)
        self._arrays, self.identity = worlds.open_columns(path, names, identity)
        arrays = self._arrays.values()
        self.n_points = len(next(iter(arrays)))
        self.block_rows = min(array.block_rows for array in arrays)
        """rows that are read at once: those of the smallest chunk"""
        self.chunk_rows = max(array.block_rows for array in arrays)
        """rows of the largest chunk"""
        self.row_bytes = sum(_type(array).itemsize * array.size for array in arrays) // max(1, self.n_points)
        self._chunk = lru_cache(len(names) * _open_chunks(self.chunk_rows))(partial(_read_chunk, self._arrays))

    @property
    def n_blocks(self) -> int:
        """Number of blocks, of which the last may be shorter."""
        return -(-self.n_points // self.block_rows)

    def room(self, n_rows: int) -> Batch:
        """Return memory for so many rows."""
        return tuple(np.empty((n_rows, *array.shape[1:]), _type(array)) for array in self._arrays.values())

    def read(self, start: int, stop: int, room: Room | None = None) -> Batch:
        """Return the rows from `start` to `stop`, which are of one block, in memory that is given or new."""
        batch = (room or self.room)(stop - start)
        for name, out in zip(self._arrays, batch, strict=True):
            self._read(name, start, out)
        return batch

    def _read(self, name: str, start: int, out: NDArray[Any]) -> None:
        array = self._arrays[name]
        chunk, first = divmod(start, array.block_rows)
        if array.block_rows == self.block_rows or first + len(out) > array.block_rows:
            array.read_into(start, out)
        else:
            out[:] = self._chunk(name, chunk)[first : first + len(out)]


def _check_names(names: Sequence[str]) -> None:
    if isinstance(names, str) or not names:
        raise ValueError(f"columns must be a list of names, got {names!r}")
    if len(set(names)) < len(names):
        raise ValueError(f"columns must not repeat, got {list(names)}")


def _read_chunk(arrays: dict[str, StoredArray], name: str, chunk: int) -> NDArray[Any]:
    array = arrays[name]
    return array[chunk * array.block_rows : (chunk + 1) * array.block_rows].astype(_type(array), copy=False)


def _open_chunks(chunk_rows: int) -> int:
    return max(1, OPEN_ROWS // chunk_rows)


def _type(array: StoredArray) -> np.dtype[Any]:
    return np.dtype(np.float32) if array.dtype.kind == "f" else array.dtype


def read_ahead(columns: Columns, ranges: Iterable[tuple[int, int]], room: Room | None = None) -> Batches:
    """Yield ranges of rows in turn, while the next ones are being read. Closing it ends the threads that read."""
    readers = ThreadPoolExecutor(READERS, thread_name_prefix="percolab-read")
    pending: deque[Future[Batch]] = deque()
    try:
        for start, stop in ranges:
            pending.append(readers.submit(columns.read, start, stop, room))
            if len(pending) > READERS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        readers.shutdown(cancel_futures=True)


def read_together(columns: Columns, ranges: Sequence[tuple[int, int]]) -> Batch:
    """Return ranges of rows, each of one block, one after another in one piece of memory."""
    ends = np.cumsum([stop - start for start, stop in ranges]).tolist()
    whole = columns.room(ends[-1] if ends else 0)

    def read(rows: tuple[int, int], end: int) -> None:
        columns.read(*rows, lambda count: tuple(column[end - count : end] for column in whole))

    with ThreadPoolExecutor(READERS, thread_name_prefix="percolab-read") as readers:
        list(readers.map(read, ranges, ends))
    return whole


def worked_ahead(parts: Batches) -> Batches:
    """Yield parts in turn, while another thread works at the next one. Closing it ends that thread."""
    worker = ThreadPoolExecutor(1, thread_name_prefix="percolab-mix")
    try:
        pending = worker.submit(next, parts, None)
        while (part := pending.result()) is not None:
            pending = worker.submit(next, parts, None)
            yield part
    finally:
        worker.shutdown()  # a generator cannot be closed while it runs
        parts.close()


# ---------------------------------------------------------------------- order


def generator(seed: int, *key: int) -> np.random.Generator:
    """Return the random numbers of a seed and a key."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def block_order(columns: Columns, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw an order of the blocks, in which those of OPEN_ROWS rows come before all others, and so on."""
    together = -(-columns.chunk_rows // columns.block_rows)
    chunks = random.permutation(-(-columns.n_blocks // together))
    step = _open_chunks(columns.chunk_rows)
    order = np.empty(0, np.int64)
    for k in range(0, chunks.size, step):
        blocks = np.add.outer(chunks[k : k + step] * together, np.arange(together)).ravel()
        order = np.append(order, random.permutation(blocks[blocks < columns.n_blocks]))
    return order


def row_ranges(order: NDArray[np.int64], columns: Columns, lo: int, hi: int) -> list[tuple[int, int]]:
    """Return the rows numbered `lo` to `hi` in the blocks laid end to end in this order, as ranges."""
    start = order * columns.block_rows
    size = np.minimum(columns.block_rows, columns.n_points - start)
    before = np.cumsum(size) - size
    first, last = np.clip(lo - before, 0, size), np.clip(hi - before, 0, size)
    here = first < last
    return list(zip((start + first)[here].tolist(), (start + last)[here].tolist(), strict=True))


def mixed(parts: Batches, buffer_rows: int, random: np.random.Generator, room: Room | None = None) -> Batches:
    """Mix rows through a pool. Every part has at most `buffer_rows` rows, and its memory is used for what leaves.

    What leaves last, when no part comes any more, is put into memory that `room` gives.
    """
    pool: Batch = ()
    filled = most = 0
    with closing(parts):
        for part in parts:
            size = len(part[0])
            most = max(most, size)
            pool = pool or tuple(np.empty((buffer_rows, *column.shape[1:]), column.dtype) for column in part)
            new = min(size, buffer_rows - filled)
            for column, values in zip(pool, part, strict=True):
                column[filled : filled + new] = values[:new]
            filled += new
            if new < size:
                leaving = random.choice(buffer_rows, size - new, replace=False)
                for column, values in zip(pool, part, strict=True):
                    _swap(column.reshape(buffer_rows, -1), leaving, values[new:].reshape(size - new, -1))
                yield tuple(values[new:] for values in part)
    leaving = random.permutation(filled)
    for k in range(0, filled, max(1, most)):
        rows = leaving[k : k + most]
        out = room(rows.size) if room else tuple(np.empty_like(column[: rows.size]) for column in pool)
        for column, values in zip(pool, out, strict=True):
            column.take(rows, axis=0, out=values, mode="clip")  # other modes copy once more
        yield out


@kernel
def _swap(pool, leaving, part):
    """Exchange rows of the pool with those of a part: one pass over memory, and none to allocate."""
    for i in range(leaving.size):
        inside, outside = pool[leaving[i]], part[i]
        for j in range(inside.size):
            inside[j], outside[j] = outside[j], inside[j]


def cut(parts: Batches, sizes: Iterable[int]) -> Batches:
    """Yield batches of the given sizes, which are views unless they cross from one part to the next."""
    part: Batch = ()
    at = end = 0
    with closing(parts):
        for size in sizes:
            pieces: list[Batch] = []
            while size:
                if at == end:
                    part = next(parts)
                    at, end = 0, len(part[0])
                stop = min(at + size, end)
                pieces.append(tuple(column[at:stop] for column in part))
                size -= stop - at
                at = stop
            yield pieces[0] if len(pieces) == 1 else tuple(map(np.concatenate, zip(*pieces, strict=True)))


# ---------------------------------------------------------------------- batches


@dataclass(frozen=True)
class Share:
    """The part of an epoch that one reader has: that of a rank among ranks and of a worker among the rank's workers."""

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    n_workers: int = 1

    def __post_init__(self) -> None:
        for part, whole in (("rank", "world_size"), ("worker", "n_workers")):
            limit = check_integer(whole, getattr(self, whole), 1)
            if check_integer(part, getattr(self, part), 0) >= limit:
                raise ValueError(f"{part} must be below {whole}, which is {limit}, got {getattr(self, part)}")


class Stream:
    """Batches of a store as tuples of NumPy arrays, in random order, every row once an epoch.

    It holds no open file, so it goes to other processes as it is. The batches are the same for the same store, options,
    epoch and `Share`, and version of NumPy.

    Every rank has the same number of batches, `n_batches`, for any number of workers. All have `batch_size` rows but
    the last of a rank; where the rows of a rank end one short of a last batch, it takes a row from the one before.

    Parameters
    ----------
    path
        Where the store is.
    batch_size
        Rows of a batch.
    columns
        What a batch holds, of X, y, point_z and point_id. Floats are float32.
    shuffle
        False gives the rows in their order, the first to the first rank and worker.
    seed
        What the order is drawn from, with the epoch.
    buffer_rows
        Rows that are mixed at a time, in each reader; None takes as many as fit in 256 MiB. At least those of a block.
    drop_last
        Give full batches alone, and as many to every rank: up to `batch_size` rows a rank are left out, those that come
        last in the order of the epoch.
    """

    def __init__(
        self,
        path: Location,
        batch_size: int,
        *,
        columns: Sequence[str] = ("X", "y"),
        shuffle: bool = True,
        seed: int = 0,
        buffer_rows: int | None = None,
        drop_last: bool = False,
    ) -> None:
        opened = Columns(path, columns)
        self.path = absolute(path)
        self.identity = opened.identity
        self.columns = tuple(columns)
        self.n_points = opened.n_points
        self.batch_size = check_integer("batch_size", batch_size, 1)
        self.shuffle = shuffle
        self.seed = check_seed("seed", seed)
        self.buffer_rows = pool_rows(opened, buffer_rows)
        self.drop_last = drop_last

    def n_batches(self, world_size: int = 1) -> int:
        """Return the number of batches of every rank."""
        if self.drop_last:
            return self.n_points // world_size // self.batch_size
        count = -(-self.n_points // (world_size * self.batch_size))
        if self.n_points // world_size < count:
            raise ValueError(
                f"drop_last must be true where a rank would have an empty batch, got {self.n_points} points "
                f"in batches of {self.batch_size} for {world_size} ranks"
            )
        return count

    def batches(self, epoch: int = 0, share: Share = Share(), room: Room | None = None) -> Batches:  # noqa: B008  # frozen
        """Yield the batches of an epoch that are in a share, in memory that is given or new. Close it to end early."""
        key = check_integer("epoch", epoch, 0)
        lo, hi, sizes = self._extent(share)
        columns = Columns(self.path, self.columns, self.identity)
        if not self.shuffle:
            ranges = row_ranges(np.arange(columns.n_blocks), columns, lo, hi)
            return cut(read_ahead(columns, ranges, room), sizes)
        order = block_order(columns, generator(self.seed, key))
        parts = read_ahead(columns, row_ranges(order, columns, lo, hi), room)
        pool = min(self.buffer_rows, max(1, hi - lo))
        return cut(worked_ahead(mixed(parts, pool, generator(self.seed, key, lo), room)), sizes)

    def parts(self) -> tuple[Room, int, int]:
        """Return what gives memory for parts of an epoch, the most rows of a part, and how many there are at a time."""
        columns = Columns(self.path, self.columns, self.identity)
        return columns.room, columns.block_rows, READERS + 6

    def _extent(self, share: Share) -> tuple[int, int, list[int]]:
        """Return the range of a share's rows in the order of the epoch, and the sizes of its batches."""
        count = self.n_batches(share.world_size)
        if self.drop_last:
            begin, end = (rank * count * self.batch_size for rank in (share.rank, share.rank + 1))
        else:
            begin, end = (self.n_points * rank // share.world_size for rank in (share.rank, share.rank + 1))
        first, last = (count * worker // share.n_workers for worker in (share.worker, share.worker + 1))
        batch = np.arange(first, last + 1)
        # Every batch from here on keeps at least one row.
        edges = begin + np.minimum(batch * self.batch_size, end - begin - (count - batch))
        return int(edges[0]), int(edges[-1]), np.diff(edges).tolist()


def pool_rows(columns: Columns, buffer_rows: int | None) -> int:
    """Return the rows of a pool for these columns."""
    if buffer_rows is None:
        return max(columns.block_rows, BUFFER_BYTES // max(1, columns.row_bytes))
    if check_integer("buffer_rows", buffer_rows, 1) < columns.block_rows:
        raise ValueError(f"buffer_rows must be at least {columns.block_rows}, the rows of a block, got {buffer_rows}")
    return int(buffer_rows)
