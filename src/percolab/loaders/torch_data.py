"""Torch datasets. Imported only through `percolab.exports`, whose functions say that they need torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed
import torch.utils.data
from numpy.typing import NDArray

from percolab.corpora.collection import DocumentRange, StoredDocuments
from percolab.corpora.corpus import Corpus
from percolab.ground.validation import check_integer
from percolab.loaders import shared_memory
from percolab.loaders.mixture import Room
from percolab.loaders.streams import DocumentStream, Share, Stream, as_range
from percolab.store.locations import Location

if TYPE_CHECKING:
    from percolab.store.stored_array import StoredArray

Sample = tuple[torch.Tensor, torch.Tensor]


class TorchDataset(torch.utils.data.Dataset[Sample]):
    """Pairs ``(X[i], y[i])`` as float32 tensors of shape (d,) and (), labels as int64; X may stay on disk.

    Rows that are neighbours are relatives, so load with ``shuffle=True``. A `DataLoader` fetches a batch at once
    through ``__getitems__``, which reads each chunk of a stored X at most once per batch.
    """

    def __init__(self, X: NDArray[Any] | StoredArray, y: NDArray[Any]) -> None:
        self.X = X
        self.y = torch.from_numpy(np.array(y, np.float32 if y.dtype.kind == "f" else np.int64))

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Sample:
        # Indexing y first raises IndexError past the end, which ends a plain `for` over the dataset.
        target = self.y[index]
        return torch.from_numpy(np.array(self.X[index], np.float32)), target

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Return the samples of a batch."""
        rows = np.asarray(indices, np.int64)
        X = torch.from_numpy(np.asarray(self.X[rows], np.float32))
        y = self.y[torch.from_numpy(rows)]
        return list(zip(X, y, strict=True))


class TokenDataset(torch.utils.data.Dataset[torch.Tensor]):
    """The tokens of each document as an int64 tensor of shape (T,), read from a store or made when indexed."""

    def __init__(self, documents: Corpus | DocumentRange | StoredDocuments) -> None:
        self.documents = documents if isinstance(documents, StoredDocuments) else as_range(documents)

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> torch.Tensor:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be below {len(self)}, got {index}")
        return self.__getitems__([index % len(self)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Return the documents of a batch."""
        if isinstance(self.documents, StoredDocuments):
            tokens = self.documents.tokens[np.asarray(indices, np.int64)]
        else:
            parts = [self.documents.part(int(i), int(i) + 1).columns(["tokens"], 1)["tokens"] for i in indices]
            tokens = np.concatenate(parts)
        return list(torch.from_numpy(tokens.astype(np.int64)))


class StreamingDataset(torch.utils.data.IterableDataset[tuple[torch.Tensor, ...]]):
    """Batches ``(X, y)`` of a store larger than memory, float32, in random order, every row once per epoch.

    Or batches ``(tokens,)`` of documents that are made on the fly: see `percolab.streaming.DocumentStream`.

    Give it to a loader that does not batch again: ``DataLoader(data, batch_size=None, num_workers=2)``. Workers and
    ranks share the rows of an epoch; every rank has ``len(data)`` batches, for any number of workers. Call `set_epoch`
    before each epoch; otherwise all epochs have the same order. Constructing reads only metadata, and each worker opens
    the store itself. See `percolab.loaders.streams` for the law of the random order.

    Parameters
    ----------
    path, batch_size, **options
        As in `percolab.streaming.Stream`. Each worker has its own pool of `buffer_rows` rows. With a `Corpus` or a
        `DocumentRange` in place of the path there is nothing to shuffle: give only `batch_size` and `columns`.
    rank, world_size
        The number of this process, and of all processes. By default they come from ``torch.distributed`` if it is
        initialised at this moment, else they are 0 and 1.
    """

    def __init__(
        self,
        path: Location | Corpus | DocumentRange,
        batch_size: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        self.stream: Stream | DocumentStream
        if isinstance(path, Corpus | DocumentRange):
            self.stream = DocumentStream(path, batch_size, **options)
        else:
            self.stream = Stream(path, batch_size, **options)
        self.share = _share(rank, world_size)
        self._length = self.stream.n_batches(self.share.world_size)
        # Shared, so that persistent workers see the next epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        # Made by each worker, and kept until it ends: the parent may open a batch after the worker's epoch is over.
        self._slots: shared_memory.Slots | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass over the data."""
        self._epoch.fill_(check_integer("epoch", epoch, 0))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        worker = torch.utils.data.get_worker_info()
        share = self.share
        room: Room | None = None
        tensor: Callable[[NDArray[Any]], torch.Tensor] = torch.from_numpy
        if worker is not None:
            share = replace(share, worker=worker.id, n_workers=worker.num_workers)
            self._slots = self._slots or shared_memory.slots_for(*self.stream.parts())
        if self._slots is not None:
            room, tensor = self._slots.room, self._slots.tensor
        with closing(self.stream.batches(int(self._epoch), share, room)) as batches:
            for batch in batches:
                yield tuple(map(tensor, batch))


def _share(rank: int | None, world_size: int | None) -> Share:
    if rank is not None and world_size is not None:
        return Share(rank, world_size)
    if rank is not None or world_size is not None:
        raise ValueError(f"rank and world_size must be given together, got {rank} and {world_size}")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Share(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return Share()
