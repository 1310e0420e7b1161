"""Batches: from a store larger than memory, in random order; or of documents that are made on the fly.

Rows of a store are in leaf order, so neighbours are relatives and a batch must not be a run of rows. An epoch reads
every block once, in an order drawn from (seed, epoch), and mixes its rows through a pool of `buffer_rows` rows: each
block that is read replaces as many rows of the pool, drawn at random, which leave in random order.

If all rows of a reader fit in the pool, the order is a uniform permutation. Otherwise a row leaves after a wait with a
geometric law, whose mean is the time of reading `buffer_rows` rows. So rows of one block come within a few
`buffer_rows` of each other. Two rows of a batch are from one block with probability 1 / (2B - 1), and 1 / B at the
start, where B is the number of blocks that fit in the pool; in a uniform permutation the probability is one over the
number of all blocks.

A chunk of y holds the rows of several blocks of X. To read each chunk about once, the order of blocks is drawn for
OPEN_ROWS rows at a time: whole chunks of y, in random order, which stay in memory while their blocks are read. The
order of the blocks is uniform for a store of up to OPEN_ROWS rows; in a larger store, blocks that lie far apart can
still meet in a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.corpora.collection import COLUMNS, DocumentRange
from percolab.corpora.corpus import HELD_OUT, Corpus
from percolab.ground.validation import check_choice, check_integer, check_seed
from percolab.loaders.mixture import READERS, Batch, Batches, Room, ahead, cut, mixed, worked_ahead
from percolab.store import finished
from percolab.store.locations import Location, absolute
from percolab.store.stored_array import StoredArray

Range = tuple[int, int]  #: The first row and the row after the last.
BUFFER_BYTES = 1 << 28  #: Size of a pool unless `buffer_rows` is given.
#: Rows among which the order of blocks is drawn at a time; all their columns but X are in memory.
OPEN_ROWS = 1 << 23


# ---------------------------------------------------------------------- reading


class Columns:
    """Columns of the points of a store, floats as float32. Opening reads only metadata.

    Parameters
    ----------
    path
        Where the store is.
    names
        The columns.
    identity
        The identity of the store, if it is known already; another store is refused.
    """

    def __init__(self, path: Location, names: Sequence[str], identity: str | None = None) -> None:
        check_names(names)
        self.path, self.names = absolute(path), tuple(names)
        store = finished.Complete(path, identity)
        self._arrays, self.identity = store.columns(names), store.identity
        arrays = self._arrays.values()
        self.n_points = len(next(iter(arrays)))
        #: rows that are read at once: the rows of the smallest chunk
        self.block_rows = min(array.block_rows for array in arrays)
        self.n_blocks = -(-self.n_points // self.block_rows)  #: the last block may be shorter
        self.chunk_rows = max(array.block_rows for array in arrays)  #: rows of the largest chunk
        self.row_bytes = sum(_type(array).itemsize * array.size for array in arrays) // max(1, self.n_points)
        self._chunk = lru_cache(len(names) * _open_chunks(self.chunk_rows))(partial(_read_chunk, self._arrays))

    def __reduce__(self) -> tuple[type[Columns], tuple[str, tuple[str, ...], str]]:
        return Columns, (self.path, self.names, self.identity)  # opened again where it is unpickled

    def room(self, n_rows: int) -> Batch:
        """Return memory for `n_rows` rows."""
        return tuple(np.empty((n_rows, *array.shape[1:]), _type(array)) for array in self._arrays.values())

    def read(self, start: int, stop: int, room: Room | None = None) -> Batch:
        """Return the rows from `start` to `stop`, which lie in one block, in memory that is given or new."""
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


def check_names(names: Sequence[str]) -> None:
    """Raise unless columns are a list of different names."""
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


def read_ahead(columns: Columns, ranges: Iterable[Range], rooms: Iterable[Room | None] = repeat(None)) -> Batches:
    """Yield ranges of rows in order, each in memory from its room, while the next ones are being read."""
    return ahead(partial(columns.read, *rows, room) for rows, room in zip(ranges, rooms, strict=False))


def read_together(columns: Columns, ranges: Sequence[Range]) -> Batch:
    """Return ranges of rows, each in one block, one after another in one piece of memory."""
    ends = _ends(ranges)
    whole = columns.room(ends[-1] if ends else 0)
    deque(read_ahead(columns, ranges, (_part(whole, end) for end in ends)), maxlen=0)
    return whole


def _ends(ranges: Sequence[Range]) -> list[int]:
    """Return the cumulative number of rows at the end of each range."""
    return np.cumsum([stop - start for start, stop in ranges], dtype=np.int64).tolist()


def _part(whole: Batch, end: int) -> Room:
    """Return room for the rows of a batch before `end`."""
    return lambda count: tuple(column[end - count : end] for column in whole)


# ---------------------------------------------------------------------- order


def generator(seed: int, *key: int) -> np.random.Generator:
    """Return the random generator of a seed and a key."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def block_order(columns: Columns, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw an order of the blocks in which the blocks of one group of OPEN_ROWS rows come before the next group."""
    together = -(-columns.chunk_rows // columns.block_rows)
    chunks = random.permutation(-(-columns.n_blocks // together))
    step = _open_chunks(columns.chunk_rows)
    order = np.empty(0, np.int64)
    for k in range(0, chunks.size, step):
        blocks = np.add.outer(chunks[k : k + step] * together, np.arange(together)).ravel()
        order = np.append(order, random.permutation(blocks[blocks < columns.n_blocks]))
    return order


def row_ranges(order: NDArray[np.int64], columns: Columns, lo: int, hi: int) -> list[Range]:
    """Return the rows numbered `lo` to `hi` in the blocks laid end to end in this order, as ranges."""
    start = order * columns.block_rows
    size = np.minimum(columns.block_rows, columns.n_points - start)
    before = np.cumsum(size) - size
    first, last = np.clip(lo - before, 0, size), np.clip(hi - before, 0, size)
    here = first < last
    return list(zip((start + first)[here].tolist(), (start + last)[here].tolist(), strict=True))


def read_mixed(
    columns: Columns, ranges: Sequence[Range], buffer_rows: int, random: np.random.Generator, room: Room | None = None
) -> Batches:
    """Yield ranges of rows, mixed through a pool of `buffer_rows` rows. The first ranges are read into the pool."""
    ends = [end for end in _ends(ranges) if end <= buffer_rows]
    pool = columns.room(buffer_rows)
    parts = read_ahead(columns, ranges, chain((_part(pool, end) for end in ends), repeat(room)))
    return mixed(parts, pool, random, room, inside=ends[-1] if ends else 0)


# ---------------------------------------------------------------------- batches


@dataclass(frozen=True)
class Share:
    """The part of an epoch that belongs to one reader: one worker of one rank."""

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
    """Batches of a store as tuples of NumPy arrays, in random order, every row once per epoch.

    It holds no open file, so it can be sent to other processes. The batches are the same for the same store, options,
    epoch, `Share` and version of NumPy.

    Every rank has the same number of batches, `n_batches`, for any number of workers. All have `batch_size` rows except
    the last of a rank; where no row is left for the last batch of a rank, it takes a row from the batch before.

    Parameters
    ----------
    path
        Where the store is.
    batch_size
        Rows of a batch.
    columns
        The columns of a batch, out of X, y, point_z and point_id. Floats are float32.
    shuffle
        False gives the rows in order, the first rows to the first rank and worker.
    seed
        Seed of the order, together with the epoch.
    buffer_rows
        Rows mixed at a time in each reader; None takes as many as fit in 256 MiB. At least the rows of a block.
    drop_last
        Give only full batches, equally many to every rank: up to `batch_size` rows per rank are left out, the last ones
        in the order of the epoch.
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
            given = f"{self.n_points} points in batches of {self.batch_size} for {world_size} ranks"
            raise ValueError(f"drop_last must be true where a rank would have an empty batch, got {given}")
        return count

    def batches(self, epoch: int = 0, share: Share = Share(), room: Room | None = None) -> Batches:
        """Yield the batches of a share of an epoch, in memory that is given or new. Close the generator to stop."""
        key = check_integer("epoch", epoch, 0)
        lo, hi, sizes = self._extent(share)
        columns = Columns(self.path, self.columns, self.identity)
        if not self.shuffle:
            ranges = row_ranges(np.arange(columns.n_blocks), columns, lo, hi)
            return cut(read_ahead(columns, ranges, repeat(room)), sizes, room)
        ranges = row_ranges(block_order(columns, generator(self.seed, key)), columns, lo, hi)
        pool = min(self.buffer_rows, max(1, hi - lo))
        parts = read_mixed(columns, ranges, pool, generator(self.seed, key, lo), room)
        return cut(worked_ahead(parts), sizes, room)

    def parts(self) -> tuple[Room, int, int]:
        """Return a function that allocates parts and batches, their most rows, and how many are alive at a time."""
        columns = Columns(self.path, self.columns, self.identity)
        return columns.room, max(columns.block_rows, self.batch_size), READERS + 8

    def _extent(self, share: Share) -> tuple[int, int, list[int]]:
        """Return the range of a share's rows in the order of the epoch, and the sizes of its batches."""
        count = self.n_batches(share.world_size)
        if self.drop_last:
            begin, end = (rank * count * self.batch_size for rank in (share.rank, share.rank + 1))
        else:
            begin, end = (self.n_points * rank // share.world_size for rank in (share.rank, share.rank + 1))
        first, last = (count * worker // share.n_workers for worker in (share.worker, share.worker + 1))
        batch = np.arange(first, last + 1)
        # Each of the following batches keeps at least one row.
        edges = begin + np.minimum(batch * self.batch_size, end - begin - (count - batch))
        return int(edges[0]), int(edges[-1]), np.diff(edges).tolist()


def pool_rows(columns: Columns, buffer_rows: int | None) -> int:
    """Return the rows of a pool for these columns."""
    if buffer_rows is None:
        return max(columns.block_rows, BUFFER_BYTES // max(1, columns.row_bytes))
    if check_integer("buffer_rows", buffer_rows, 1) < columns.block_rows:
        raise ValueError(f"buffer_rows must be at least {columns.block_rows}, the rows of a block, got {buffer_rows}")
    return int(buffer_rows)


# ---------------------------------------------------------------------- documents, none of them twice


def as_range(documents: Corpus | DocumentRange) -> DocumentRange:
    """Return a range of documents; a corpus means all its documents that are not held out."""
    return DocumentRange(documents, 0, HELD_OUT) if isinstance(documents, Corpus) else documents


class DocumentStream:
    """Batches of documents as tuples of NumPy arrays, in the order of their numbers, since documents are independent.

    Batch b of a rank is the same for any number of workers: ranks take turns with batches of `batch_size` documents.

    Parameters
    ----------
    documents
        A `DocumentRange`; or a `Corpus`, which means all its documents below 2^40.
    batch_size
        Documents of a batch. The documents at the end of a range that do not fill one batch for each rank are left out.
    columns
        The columns of a batch, out of tokens, context, lexicon, renewed, floor, believed and believed_lexicon. Floats
        are float32.
    """

    def __init__(
        self, documents: Corpus | DocumentRange, batch_size: int, *, columns: Sequence[str] = ("tokens",)
    ) -> None:
        check_names(columns)
        self.documents = as_range(documents)
        self.columns = tuple(check_choice("columns", name, tuple(COLUMNS)) for name in columns)
        self.batch_size = check_integer("batch_size", batch_size, 1)

    def n_batches(self, world_size: int = 1) -> int:
        """Return the number of batches of every rank."""
        return len(self.documents) // (world_size * self.batch_size)

    def batches(self, epoch: int = 0, share: Share = Share(), room: Room | None = None) -> Batches:
        """Yield the batches of a share, made ahead of use, the same in every epoch. Close the generator to stop."""
        numbers = range(share.worker, self.n_batches(share.world_size), share.n_workers)
        starts = ((batch * share.world_size + share.rank) * self.batch_size for batch in numbers)
        return ahead(partial(self._make, lo, room) for lo in starts)

    def parts(self) -> tuple[Room, int, int]:
        """Return a function that allocates batches, their most rows, and how many are alive at a time."""
        return self._room, self.batch_size, READERS + 8

    def _room(self, n_rows: int) -> Batch:
        shapes = {name: column.shape[1:] for name, column in self.documents.part(0, 0).columns(self.columns, 1).items()}
        types = [np.float32 if COLUMNS[name].kind == "f" else COLUMNS[name] for name in shapes]
        return tuple(np.empty((n_rows, *shape), kind) for shape, kind in zip(shapes.values(), types, strict=True))

    def _make(self, lo: int, room: Room | None) -> Batch:
        batch = (room or self._room)(self.batch_size)
        columns = self.documents.part(lo, lo + self.batch_size).columns(self.columns, 1)
        for out, column in zip(batch, columns.values(), strict=True):
            out[:] = column
        return batch
