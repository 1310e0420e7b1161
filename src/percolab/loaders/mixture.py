"""Parts of an epoch: read or computed ahead of their use, mixed through a pool, cut into batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import repeat, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from percolab.ground.compiled import kernel

Batch = tuple[NDArray[Any], ...]  #: The same rows of several columns.
#: A generator of batches. The consumer closes it, so that its threads end at once.
Batches = Generator[Batch, None, None]
Room = Callable[[int], Batch]  #: Returns memory for a number of rows of every column. Several threads call it.

READERS = 4  #: Parts that are read, or assembled, at the same time, ahead of their use.


# ---------------------------------------------------------------------- ahead of their use


def ahead(calls: Iterable[Callable[[], Batch]], readers: int | None = None) -> Batches:
    """Yield the results of calls in order, while threads work on the next calls. Closing the generator ends them."""
    readers = readers or READERS
    threads = ThreadPoolExecutor(readers, thread_name_prefix="percolab-read")
    pending: deque[Future[Batch]] = deque()
    try:
        for call in calls:
            pending.append(threads.submit(call))
            if len(pending) > readers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        threads.shutdown(cancel_futures=True)


def worked_ahead(parts: Batches) -> Batches:
    """Yield parts in order, while another thread works on the next one. Closing the generator ends that thread."""
    worked = ahead(repeat(partial(next, parts, ())), readers=1)
    with closing(parts), closing(worked):  # the thread ends first: a generator cannot be closed while it runs
        yield from takewhile(len, worked)


# ---------------------------------------------------------------------- mixing


def mixed(
    parts: Batches, pool: Batch, random: np.random.Generator, room: Room | None = None, *, inside: int = 0
) -> Batches:
    """Mix rows through a pool, which already holds the first `inside` rows.

    Every part has at most as many rows as the pool, and its memory is reused for the rows that leave. The rows that
    leave after the last part are put into memory that `room` gives.
    """
    buffer_rows = len(pool[0])
    filled = most = 0
    with closing(parts):
        for part in parts:
            size = len(part[0])
            most = max(most, size)
            new = min(size, buffer_rows - filled)
            if filled >= inside:
                for column, values in zip(pool, part, strict=True):
                    column[filled : filled + new] = values[:new]
            filled += new
            if new < size:
                leaving = random.choice(buffer_rows, size - new, replace=False)
                for column, values in zip(pool, part, strict=True):
                    _swap(column.reshape(buffer_rows, -1), leaving, values[new:].reshape(size - new, -1))
                yield tuple(values[new:] for values in part)
    leaving = random.permutation(filled)
    yield from ahead(partial(taken, pool, leaving[k : k + most], room) for k in range(0, filled, max(1, most)))


def taken(whole: Batch, rows: NDArray[np.int64], room: Room | None = None) -> Batch:
    """Return some rows of a batch, in memory that is given or new."""
    out = room(rows.size) if room else tuple(np.empty((rows.size, *c.shape[1:]), c.dtype) for c in whole)
    for column, values in zip(whole, out, strict=True):
        column.take(rows, axis=0, out=values, mode="clip")  # other modes make another copy
    return out


@kernel
def _swap(pool, leaving, part):
    """Exchange rows of the pool with the rows of a part: one pass over memory, without an allocation."""
    for i in range(leaving.size):
        inside, outside = pool[leaving[i]], part[i]
        for j in range(inside.size):
            inside[j], outside[j] = outside[j], inside[j]


# ---------------------------------------------------------------------- batches


def cut(parts: Batches, sizes: Iterable[int], room: Room | None = None) -> Batches:
    """Yield batches of the given sizes: views, or, where they cross parts, copies in memory that is given or new."""
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
            yield pieces[0] if len(pieces) == 1 else _joined(pieces, room)


def _joined(pieces: list[Batch], room: Room | None) -> Batch:
    columns = list(zip(*pieces, strict=True))
    if room is None:
        return tuple(map(np.concatenate, columns))
    batch = room(sum(len(piece[0]) for piece in pieces))
    for column, out in zip(columns, batch, strict=True):
        np.concatenate(column, out=out)
    return batch
