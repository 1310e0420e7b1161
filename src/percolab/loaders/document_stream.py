"""Batches of documents without a store: made from their recipe as they are used, none of them twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count

import numpy as np

from percolab.corpora.collection import COLUMNS, DocumentRange
from percolab.corpora.corpus import HELD_OUT, Corpus
from percolab.ground.validation import check_choice, check_integer
from percolab.loaders.mixture import READERS, Batch, Batches, Room, ahead
from percolab.loaders.row_stream import Share, check_names


def as_range(documents: Corpus | DocumentRange) -> DocumentRange:
    """Return a range of documents; a corpus stands for all that are not held out."""
    return DocumentRange(documents, 0, HELD_OUT) if isinstance(documents, Corpus) else documents


class DocumentStream:
    """Batches of documents as tuples of NumPy arrays, in the order of their numbers: they are independent as they are.

    Batch b of a rank is the same for any number of workers: ranks take turns with batches of `batch_size` documents.

    Parameters
    ----------
    documents
        A `DocumentRange`; or a `Corpus`, whose documents below 2^40 do not end in practice.
    batch_size
        Documents of a batch. What is left at the end of a range, less than a batch for each rank, is left out.
    columns
        What a batch holds, of tokens, context, lexicon, renewed, floor, believed and believed_lexicon. Floats are
        float32.
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

    def batches(self, epoch: int = 0, share: Share = Share(), room: Room | None = None) -> Batches:  # noqa: B008  # frozen
        """Yield the batches in a share, made ahead of their use; every epoch has the same. Close it to end early."""
        return ahead(partial(self._make, lo, room) for lo in self._starts(share))

    def parts(self) -> tuple[Room, int, int]:
        """Return what gives memory for batches, their most rows, and how many are there at a time."""
        return self._room, self.batch_size, READERS + 8

    def _starts(self, share: Share) -> Iterator[int]:
        """Yield the first document of each batch of a share."""
        for batch in count(share.worker, share.n_workers):
            if batch >= self.n_batches(share.world_size):
                return
            yield (batch * share.world_size + share.rank) * self.batch_size

    def _room(self, n_rows: int) -> Batch:
        shapes = {name: column.shape[1:] for name, column in self.documents.part(0, 0).columns(self.columns, 1).items()}
        types = [np.float32 if COLUMNS[name].kind == "f" else COLUMNS[name] for name in shapes]
        return tuple(np.empty((n_rows, *shape), kind) for shape, kind in zip(shapes.values(), types, strict=True))

    def _make(self, lo: int, room: Room | None) -> Batch:
        batch = (room or self._room)(self.batch_size)
        made = self.documents.part(lo, lo + self.batch_size).columns(self.columns, 1)
        for out, column in zip(batch, made.values(), strict=True):
            out[:] = column
        return batch
