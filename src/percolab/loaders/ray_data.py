"""A store as a Ray Data source. Imported only through `percolab.exports.to_ray`, which needs ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from ray.data import DataContext, Datasource, ReadTask
from ray.data.block import Block, BlockAccessor, BlockMetadata

from percolab.ground import parallel
from percolab.ground.validation import check_integer, check_seed
from percolab.loaders import streams
from percolab.loaders.mixture import Batches, cut, taken
from percolab.store.locations import Location


class PercolabSource(Datasource):
    """The points of a store, for ``ray.data.read_datasource``: one row per point, X as a tensor column.

    Each read task reads some blocks, each of them once, on the machine it runs on; the driver reads only metadata.

    Parameters
    ----------
    path
        Location of the store, which every machine of the cluster must reach.
    columns
        Columns of the table, out of X, y, point_z and point_id. Floats are float32.
    shuffle
        Assign the blocks to the tasks in an order drawn from (seed, epoch), and mix the rows of each task.
        Ray's own ``random_shuffle``, or ``local_shuffle_buffer_size`` of its iterators, mixes rows of several tasks.
    seed, epoch
        Seed and epoch that the order is drawn from.
    buffer_rows
        Rows that a task mixes at a time; None takes as many as fit in 256 MiB. At least the rows of a block.
    """

    def __init__(
        self,
        path: Location,
        *,
        columns: Sequence[str] = ("X", "y"),
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        buffer_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.columns = streams.Columns(path, columns)
        self.shuffle = shuffle
        self.seed, self.epoch = check_seed("seed", seed), check_integer("epoch", epoch, 0)
        self.buffer_rows = streams.pool_rows(self.columns, buffer_rows)

    def get_name(self) -> str:
        """Return the name of the read tasks."""
        return "Percolab"

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of all rows in memory."""
        return self.columns.n_points * self.columns.row_bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return the read tasks: as many as asked for, but at most one per block."""
        order, n_blocks = np.arange(self.columns.n_blocks), self.columns.n_blocks
        if self.shuffle:
            order = streams.block_order(self.columns, streams.generator(self.seed, self.epoch))
        shares = np.array_split(order, min(parallelism, n_blocks)) if n_blocks else []
        return [self._task(number, share, per_task_row_limit) for number, share in enumerate(shares)]

    def _task(self, number: int, blocks: Any, row_limit: int | None) -> ReadTask:
        columns = self.columns
        rows = sum(stop - start for start, stop in streams.row_ranges(blocks, columns, 0, columns.n_points))
        metadata = BlockMetadata(
            num_rows=rows, size_bytes=rows * columns.row_bytes, exec_stats=None, input_files=(columns.path,)
        )
        pool = min(self.buffer_rows, rows) if self.shuffle else 0
        read = partial(_read, columns, blocks, pool, (self.seed, self.epoch, number))
        return ReadTask(read, metadata, per_task_row_limit=row_limit)


def _read(columns: streams.Columns, blocks: Any, pool: int, key: tuple[int, int, int]) -> Iterator[Block]:
    """Read blocks as tables, in this order, or with their rows mixed if there is a pool.

    Tables have the size that Ray wants, so that Ray does not combine them itself, which would take another copy.
    """
    ranges = streams.row_ranges(blocks, columns, 0, columns.n_points)
    rows = sum(stop - start for start, stop in ranges)
    wanted = DataContext.get_current().target_max_block_size or rows * columns.row_bytes
    size = columns.block_rows * max(1, -(-wanted // (columns.block_rows * columns.row_bytes)))
    edges, random = parallel.ranges(rows, size), streams.generator(*key)
    parts: Batches
    if not pool:
        wanted_ranges = (streams.row_ranges(blocks, columns, lo, hi) for lo, hi in edges)
        parts = (streams.read_together(columns, some) for some in wanted_ranges)
    elif pool == rows:
        whole, order = streams.read_together(columns, ranges), random.permutation(rows)
        parts = (taken(whole, order[lo:hi]) for lo, hi in edges)
    else:
        parts = cut(streams.read_mixed(columns, ranges, pool, random), [hi - lo for lo, hi in edges])
    with closing(parts):
        for part in parts:
            yield BlockAccessor.batch_to_block(dict(zip(columns.names, part, strict=True)))
